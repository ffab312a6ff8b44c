//! All that a client can see of the keys of a server: types, times to live, what BF.INFO and BF.DEBUG say, every record of
//! BF.SCANDUMP, every payload of DUMP. Two servers with the same filters are equal in all of it, to the byte.

use std::collections::BTreeMap;

use testing::{Connection, Reply, simple};
use testing::{FOOTER, dump, records};

/// The keys of a server's first database.
#[derive(PartialEq)]
pub struct View(BTreeMap<Vec<u8>, KeyView>);

#[derive(PartialEq)]
struct KeyView {
    kind: Reply,
    expires_at_ms: Reply,
    info: Reply,
    debug: Reply,
    records: Vec<(i64, Vec<u8>)>,
    /// Without the version of the server's format and the checksum.
    payload: Vec<u8>,
}

impl View {
    pub fn of(client: &mut Connection) -> Self {
        let keys = client.run("KEYS *");
        Self(keys.elements().iter().map(|key| (key.bytes().to_vec(), KeyView::of(client, key.bytes()))).collect())
    }

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.0.keys().map(Vec::as_slice)
    }

    /// Says in what they differ, without the megabytes.
    pub fn assert_same(&self, other: &Self, occasion: &str) {
        assert!(self.keys().eq(other.keys()), "{occasion}: {} and {}", self.names(), other.names());
        for ((key, one), other) in self.0.iter().zip(other.0.values()) {
            let key = key.escape_ascii();
            assert_eq!(one.kind, other.kind, "{occasion}: type of {key}");
            assert_eq!(one.expires_at_ms, other.expires_at_ms, "{occasion}: time to live of {key}");
            assert_eq!(one.info, other.info, "{occasion}: BF.INFO {key}");
            assert_eq!(one.debug, other.debug, "{occasion}: BF.DEBUG {key}");
            let iterators = |view: &KeyView| view.records.iter().map(|(iterator, _)| *iterator).collect::<Vec<_>>();
            assert_eq!(iterators(one), iterators(other), "{occasion}: iterators of {key}");
            for ((iterator, one), (_, other)) in one.records.iter().zip(&other.records) {
                assert_bytes(one, other, &format!("{occasion}: record {iterator} of {key}"));
            }
            assert_bytes(&one.payload, &other.payload, &format!("{occasion}: payload of {key}"));
        }
    }

    fn names(&self) -> String {
        self.keys().map(|key| key.escape_ascii().to_string()).collect::<Vec<_>>().join(" ")
    }
}

impl KeyView {
    fn of(client: &mut Connection, key: &[u8]) -> Self {
        let kind = client.call(&[b"TYPE", key]);
        let is_filter = kind == simple("MBbloom--");
        let mut payload = dump(client, key);
        payload.truncate(payload.len() - FOOTER);
        Self {
            kind,
            expires_at_ms: client.call(&[b"PEXPIRETIME", key]),
            info: client.call(&[b"BF.INFO", key]),
            debug: client.call(&[b"BF.DEBUG", key]),
            records: if is_filter { records(client, key) } else { Vec::new() },
            payload,
        }
    }
}

fn assert_bytes(one: &[u8], other: &[u8], what: &str) {
    if one == other {
        return;
    }
    let place = one.iter().zip(other).position(|(one, other)| one != other).unwrap_or(one.len().min(other.len()));
    let around = |bytes: &[u8]| bytes[place.saturating_sub(8)..bytes.len().min(place + 24)].escape_ascii().to_string();
    let lengths = format!("{} and {} bytes", one.len(), other.len());
    panic!("{what} differs ({lengths}), from byte {place} on: {} and {}", around(one), around(other));
}
