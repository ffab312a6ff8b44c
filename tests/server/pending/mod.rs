//! Adds that are pending while a child of the server lives: they are found, saved, copied and replicated as if they were in the
//! bits, and are flushed afterwards, whatever happens to the child and to the filter.

mod children;
mod meanwhile;
mod names;
mod random;
mod timer;

use std::fs;
use std::path::Path;
use std::process::Command;

use testing::{Connection, Server, eventually, fault_module, module, ok, simple};

/// 4.8 MB of bits, enough for adds to be pending.
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

/// Bytes of pending adds in all filters.
fn pending(client: &mut Connection) -> i64 {
    client.gauge("pending_bytes")
}

/// Waits until the timer has flushed all pending adds.
fn all_written(client: &mut Connection) {
    eventually("pending adds to be flushed", || pending(client) == 0);
}

fn digest(client: &mut Connection) -> String {
    client.run("DEBUG DIGEST").text()
}

/// Begins a save whose child lives until it is killed: it sleeps after each key. There is one.
pub fn begin_endless_save(client: &mut Connection) {
    assert_eq!(client.run("CONFIG SET rdb-key-save-delay 2000000000"), ok());
    assert_eq!(client.run("BGSAVE"), simple("Background saving started"));
    assert_eq!(client.info_number("rdb_bgsave_in_progress"), 1);
}

/// A child that is stopped. It continues when this is dropped.
struct Stopped(Vec<String>);

impl Drop for Stopped {
    fn drop(&mut self) {
        signal("-CONT", &self.0);
    }
}

/// Begins a save or a rewrite, and stops its child.
fn begin_stopped(server: &Server, client: &mut Connection, command: &str) -> Stopped {
    let is_working = |client: &mut Connection| {
        client.info_number("rdb_bgsave_in_progress") + client.info_number("aof_rewrite_in_progress") == 1
    };
    // After each key, so that the child does not come to its end before it is stopped; on a busy machine it may.
    assert_eq!(client.run("CONFIG SET rdb-key-save-delay 50000"), ok());
    loop {
        assert!(!client.run(command).is_error());
        let child = Stopped(children(server));
        signal("-STOP", &child.0);
        if is_working(client) {
            return child;
        }
    }
}

/// The process ids of a server's children.
pub fn children(server: &Server) -> Vec<String> {
    let own = server.process_id();
    let text = fs::read_to_string(format!("/proc/{own}/task/{own}/children")).expect("a system that tells");
    text.split_whitespace().map(str::to_owned).collect()
}

/// Kills what saves, and waits until the server knows.
pub fn kill_child(server: &Server, client: &mut Connection) {
    kill(&children(server));
    no_child(client);
}

pub fn kill(children: &[String]) {
    signal("-KILL", children);
}

fn signal(signal: &str, children: &[String]) {
    for child in children {
        // It may have come to its end meanwhile.
        let _ = Command::new("kill").args([signal, child]).output().expect("kill runs");
    }
}

pub fn no_child(client: &mut Connection) {
    eventually("the end of the child", || !client.has_rewrite() && client.info_number("rdb_bgsave_in_progress") == 0);
}

/// How many adds are pending in a filter that is listed: the timer needs several steps for them.
const ADDS: u32 = 20_000;

/// A server whose module is loaded by the fault module.
fn start_with_faults(program: &Path) -> (Server, Connection) {
    let modules = format!("loadmodule {} {}", fault_module().display(), module().display());
    let server = Server::with(program).without_module().line(&modules).line("lazyfree-lazy-expire yes").start();
    let client = server.connect();
    (server, client)
}

/// Has adds pending in filters, which the module lists in this order. No child is left, and the timer that flushes them does not
/// start before FAULTS.HOLD 0.
fn list(server: &Server, client: &mut Connection, keys: &[String], adds: u32) {
    begin_endless_save(client);
    for key in keys {
        add(client, key, 0..adds);
    }
    client.run("FAULTS.HOLD 1");
    kill_child(server, client);
    assert!(pending(client) > 0);
}
