//! DUMP payloads: what the server checks before a module sees a byte is the checksum at the end, so a test that damages a
//! payload puts that right again.

/// Replaces the last eight bytes of a DUMP payload by the checksum of those before.
pub fn with_fixed_checksum(mut payload: Vec<u8>) -> Vec<u8> {
    let body = payload.len() - 8;
    let checksum = crc64(&payload[..body]);
    payload[body..].copy_from_slice(&checksum.to_le_bytes());
    payload
}

/// CRC-64 as Redis has it: polynomial 0xad93d23594c935a9 (Jones), reflected, no inversion at either end.
fn crc64(bytes: &[u8]) -> u64 {
    const REFLECTED: u64 = 0xad93_d235_94c9_35a9_u64.reverse_bits();
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ u64::from(byte), |crc, _| if crc & 1 == 1 { (crc >> 1) ^ REFLECTED } else { crc >> 1 })
    })
}

#[test]
fn the_checksum_is_the_servers() {
    // The check value in Redis' own crc64.c.
    assert_eq!(crc64(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
}
