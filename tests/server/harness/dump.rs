//! DUMP payloads. The server checks the checksum at the end before the module sees any byte, so a test that damages a payload
//! must correct it.

/// Replaces the last eight bytes of a DUMP payload with the checksum of the bytes before them.
pub fn with_fixed_checksum(mut payload: Vec<u8>) -> Vec<u8> {
    let body = payload.len() - 8;
    let checksum = crc64(&payload[..body]);
    payload[body..].copy_from_slice(&checksum.to_le_bytes());
    payload
}

/// Redis's CRC-64: polynomial 0xad93d23594c935a9 (Jones), reflected, without inversion.
fn crc64(bytes: &[u8]) -> u64 {
    const REFLECTED: u64 = 0xad93_d235_94c9_35a9_u64.reverse_bits();
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ u64::from(byte), |crc, _| if crc & 1 == 1 { (crc >> 1) ^ REFLECTED } else { crc >> 1 })
    })
}

#[test]
fn the_checksum_equals_the_servers() {
    // The check value in Redis' own crc64.c.
    assert_eq!(crc64(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
}
