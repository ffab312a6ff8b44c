//! Filters on their way from one server to another: payloads of DUMP, and records of BF.SCANDUMP.

use super::resp::{Connection, Reply, bulk, ok};

/// The bytes at the end of a payload: two for the version of the server's format, eight for the checksum.
pub const FOOTER: usize = 10;

/// One record of BF.SCANDUMP: its iterator and its data.
pub type Record = (i64, Vec<u8>);

/// Returns the payload of DUMP.
pub fn dump(client: &mut Connection, key: impl AsRef<[u8]>) -> Vec<u8> {
    client.call(&[b"DUMP", key.as_ref()]).bytes().to_vec()
}

/// Returns a payload without the server's footer, which differs from server to server.
pub fn value_of(payload: &[u8]) -> &[u8] {
    &payload[..payload.len() - FOOTER]
}

/// Restores a payload at a free key, without a time to live.
pub fn restore(client: &mut Connection, key: impl AsRef<[u8]>, payload: &[u8]) -> Reply {
    client.call(&[b"RESTORE", key.as_ref(), b"0", payload])
}

/// Returns the record that follows an iterator, or nothing at the end of the dump.
pub fn next_record(client: &mut Connection, key: impl AsRef<[u8]>, iterator: i64) -> Option<Record> {
    let reply = client.call(&[b"BF.SCANDUMP", key.as_ref(), iterator.to_string().as_bytes()]);
    let [next, data] = reply.elements() else { panic!("not a pair: {reply:?}") };
    if next.number() == 0 {
        assert_eq!(data, &bulk(""));
        return None;
    }
    Some((next.number(), data.bytes().to_vec()))
}

/// Returns all records of a filter.
pub fn records(client: &mut Connection, key: impl AsRef<[u8]>) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    while let Some(record) = next_record(client, key.as_ref(), records.last().map_or(0, |record| record.0)) {
        records.push(record);
    }
    records
}

/// Sends one record by BF.LOADCHUNK.
pub fn load_record(client: &mut Connection, key: impl AsRef<[u8]>, (iterator, data): &Record) -> Reply {
    client.call(&[b"BF.LOADCHUNK", key.as_ref(), iterator.to_string().as_bytes(), data])
}

/// Sends records, each of which must be accepted.
pub fn load_records(client: &mut Connection, key: impl AsRef<[u8]>, records: &[Record]) {
    for record in records {
        assert_eq!(load_record(client, key.as_ref(), record), ok(), "record {}", record.0);
    }
}

/// Replaces the checksum of a payload, which the server verifies before it calls a module, so that a test can damage the value.
pub fn with_fixed_checksum(mut payload: Vec<u8>) -> Vec<u8> {
    let body = payload.len() - 8;
    let checksum = crc64(&payload[..body]);
    payload[body..].copy_from_slice(&checksum.to_le_bytes());
    payload
}

/// Redis's CRC-64: polynomial 0xad93d23594c935a9 (Jones), reflected, no inversion at either end.
pub fn crc64(bytes: &[u8]) -> u64 {
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
