//! The room that a filter finds where the server evicts, and where it has no limit: what can be had, not more.

use std::fs;

use crate::harness::{Connection, Reply, Server, on_every_server};
use crate::reserve::sizes_of_a_refusal;

/// What is available to a filter that is far too large.
fn available(client: &mut Connection) -> i64 {
    let refusal = client.run("BF.RESERVE too-large 0.01 35184372088832 NONSCALING");
    sizes_of_a_refusal(&refusal).1 as i64
}

/// MemTotal and MemAvailable, in bytes.
fn machine() -> Option<(i64, i64)> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().trim_end_matches(" kB").parse::<i64>().ok().map(|kibibytes| kibibytes << 10)
    };
    Some((bytes("MemTotal:")?, bytes("MemAvailable:")?))
}

#[test]
fn without_a_limit_it_is_what_the_machine_has_left() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        let (Some((total, before)), told, Some((_, after))) = (machine(), available(&mut client), machine()) else {
            eprintln!("SKIPPED: this system does not say what is available");
            return;
        };
        // Others come and go meanwhile. A control group may leave less.
        let left = before.max(after);
        assert!(told < left + (total - left) / 2, "{told} told, {left} of {total} left");
        if let Reply::Error(text) = client.run("BF.RESERVE k 0.01 100000000") {
            panic!("with {told} bytes left: {text}");
        }
    });
}
