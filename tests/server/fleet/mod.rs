//! Several servers: replicas under load, changes of role, a cluster, and filters that move from one server to another.
//! `BLOOMGATE_EFFORT` (default 1) multiplies the work of these tests.

mod cluster;
mod failover;
mod guard;
mod load;
mod migrate;
mod redirections;
mod replicas;
mod slot_migration;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use testing::{Builder, Connection, Server, eventually, integer, ok};

/// Every layout, hash and kind that forgets nothing during a test: a name for keys, and the options with which BF.INSERT
/// creates such a filter, following options that they override. The window is longer than any test, and counting filters have
/// room for all items.
const LAYOUTS: [(&str, &[&str]); 6] = [
    ("native", &[]),
    ("redisbloom", &["LAYOUT", "redisbloom"]),
    ("valkey", &["TIGHTENING", "0.5"]),
    ("keyed", &["HASH", "siphash"]),
    ("windowed", &["WINDOW", "100000000"]),
    ("counting", &["CAPACITY", "20000", "COUNTING"]),
];

/// The number of the first of these that grow without limit.
const GROWING: usize = 5;

/// Returns `count` times `BLOOMGATE_EFFORT`, at least 1.
pub fn effort(count: usize) -> usize {
    let factor = std::env::var("BLOOMGATE_EFFORT").map_or(1.0, |text| text.parse::<f64>().expect("a factor"));
    ((count as f64 * factor).round() as usize).max(1)
}

/// Stops the writers of a test, even if the test fails before it does so itself.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Starts a server whose settings for new filters all differ from the defaults.
fn contrary(program: &Path) -> Builder {
    Server::with(program)
        .module_words("ERROR_RATE 0.2 INITIAL_SIZE 7")
        .line("bf.expansion-factor 0")
        .line("bf.layout redisbloom")
        .line("bf.max-filter-bytes 500")
}

/// Makes a server a replica of another, even if it is one already. A server that is loading refuses this, so it is retried.
pub fn follow(replica: &mut Connection, port: u16) {
    eventually("REPLICAOF to be taken", || !replica.run(&format!("REPLICAOF 127.0.0.1 {port}")).is_error());
}

/// Waits until the replica has the primary's replication ID and offset.
pub fn catch_up(primary: &mut Connection, replica: &mut Connection) {
    eventually("the replica to have everything", || {
        replica.info("role") == "slave"
            && replica.info("master_link_status") == "up"
            && replica.info("master_replid") == primary.info("master_replid")
            && replica.info_number("slave_repl_offset") >= primary.info_number("master_repl_offset")
    });
}

/// Compares two idle servers key by key and as a whole.
pub fn assert_equal(occasion: &str, primary: &mut Connection, replica: &mut Connection) {
    let keys = primary.run("KEYS *");
    assert_eq!(replica.run("DBSIZE"), integer(keys.elements().len() as i64), "{occasion}");
    for key in keys.elements() {
        let words: [&[u8]; 3] = [b"DEBUG", b"DIGEST-VALUE", key.bytes()];
        assert_eq!(replica.call(&words), primary.call(&words), "{occasion}: {key:?}");
        let words: [&[u8]; 2] = [b"TYPE", key.bytes()];
        assert_eq!(replica.call(&words), primary.call(&words), "{occasion}: {key:?}");
    }
    assert_eq!(replica.run("DEBUG DIGEST"), primary.run("DEBUG DIGEST"), "{occasion}");
}

/// Returns how many of `items` the filter reports absent.
fn denied(client: &mut Connection, key: &str, items: &[String]) -> usize {
    let found = client.batched(&[b"BF.MEXISTS", key.as_bytes()], items);
    found.iter().filter(|&&present| !present).count()
}

/// Passes the records of BF.SCANDUMP with their iterators to `take`. Returns the number of records.
fn scan_dump(from: &mut Connection, key: &str, mut take: impl FnMut(&mut Connection, &str, &[u8])) -> usize {
    let mut iterator = "0".to_owned();
    let mut records = 0;
    loop {
        let reply = from.run(&format!("BF.SCANDUMP {key} {iterator}"));
        let [next, data] = reply.elements() else { panic!("not an iterator and its data: {reply:?}") };
        if next.number() == 0 {
            return records;
        }
        iterator = next.number().to_string();
        take(from, &iterator, data.bytes());
        records += 1;
    }
}

/// Loads a record with BF.LOADCHUNK.
fn load_chunk(to: &mut Connection, key: &str, iterator: &str, data: &[u8]) {
    let words: [&[u8]; 4] = [b"BF.LOADCHUNK", key.as_bytes(), iterator.as_bytes(), data];
    assert_eq!(to.call(&words), ok(), "{key}, iterator {iterator}");
}
