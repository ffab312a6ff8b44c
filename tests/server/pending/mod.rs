//! Adds that pend while a child of the server lives: they are found, saved, copied and carried as if they were in the bits,
//! and come there afterwards, whatever becomes of the child and of the filter.

mod children;
mod meanwhile;
mod races;
mod random;

use std::fs;
use std::process::Command;

use crate::harness::{Connection, Server, eventually, ok, simple};

/// 4.8 MB of bits, enough for adds to pend.
const RESERVE: &str = "0.01 3500000 NONSCALING SEED 7";

fn reserve(client: &mut Connection, key: &str) {
    assert_eq!(client.run(&format!("BF.RESERVE {key} {RESERVE}")), ok());
}

fn items(numbers: std::ops::Range<u32>) -> Vec<String> {
    numbers.map(|number| format!("item {number}")).collect()
}

/// Adds items; answers how many were new.
fn add(client: &mut Connection, key: &str, numbers: std::ops::Range<u32>) -> usize {
    client.batched(&[b"BF.MADD", key.as_bytes()], &items(numbers)).into_iter().filter(|is_new| *is_new).count()
}

fn assert_has(client: &mut Connection, key: &str, numbers: std::ops::Range<u32>) {
    let answers = client.batched(&[b"BF.MEXISTS", key.as_bytes()], &items(numbers));
    assert!(answers.iter().all(|found| *found), "all of {key} is found");
}

/// Bytes of adds that pend in all filters.
fn pending(client: &mut Connection) -> i64 {
    client.gauge("pending_bytes")
}

/// Waits until all adds are in the bits. Nothing has to be done for that.
fn all_written(client: &mut Connection) {
    eventually("the adds that pend to be written", || pending(client) == 0);
}

fn digest(client: &mut Connection) -> String {
    client.run("DEBUG DIGEST").text()
}

/// Begins a save whose child lives until it is killed: it sleeps after each key. There is one.
fn begin_endless_save(client: &mut Connection) {
    begin_save(client, 2_000_000_000);
}

/// Begins a save whose child sleeps so many microseconds after each key.
fn begin_save(client: &mut Connection, delay: u64) {
    assert_eq!(client.run(&format!("CONFIG SET rdb-key-save-delay {delay}")), ok());
    assert_eq!(client.run("BGSAVE"), simple("Background saving started"));
    assert_eq!(client.info_number("rdb_bgsave_in_progress"), 1);
}

/// The process ids of a server's children.
pub fn children(server: &Server) -> Vec<String> {
    let own = server.process_id();
    let text = fs::read_to_string(format!("/proc/{own}/task/{own}/children")).expect("a system that tells");
    text.split_whitespace().map(str::to_owned).collect()
}

/// Kills what saves, and waits until the server knows.
fn kill_child(server: &Server, client: &mut Connection) {
    kill(&children(server));
    no_child(client);
}

pub fn kill(children: &[String]) {
    for child in children {
        // It may have come to its end meanwhile.
        let _ = Command::new("kill").args(["-KILL", child]).output().expect("kill runs");
    }
}

pub fn no_child(client: &mut Connection) {
    eventually("the end of the child", || {
        client.info_number("rdb_bgsave_in_progress") == 0
            && client.info_number("aof_rewrite_in_progress") == 0
            && client.info_number("aof_rewrite_scheduled") == 0
    });
}
