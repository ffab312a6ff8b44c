//! Runs a test on each server.

use std::path::{Path, PathBuf};

use super::aof::with_append_only_file;
use super::locate::servers;
use super::process::Server;
use super::resp::Connection;

/// Runs a test on each server; the argument is the path of the server's program.
pub fn on_every_server(test: impl Fn(&Path)) {
    for program in servers() {
        eprintln!("server: {}", program.display());
        test(&program);
    }
}

/// Starts each server with the module and without settings, and runs a test on it and a connection to it.
pub fn with_client(test: impl Fn(&Server, &mut Connection)) {
    on_every_server(|program| {
        let server = Server::start(program);
        test(&server, &mut server.connect());
    });
}

/// Like [`with_client`], in RESP2 and again in RESP3, on an empty server; the last argument is the protocol.
pub fn in_both_protocols(test: impl Fn(&mut Connection, u8)) {
    on_every_server(|program| {
        let server = Server::start(program);
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            client.run("FLUSHALL");
            test(&mut client, protocol);
        }
    });
}

/// Like [`with_client`], on servers that write an append-only file of commands.
pub fn with_append_only_client(test: impl Fn(&Server, &mut Connection)) {
    on_every_server(|program| {
        let server = with_append_only_file(program);
        test(&server, &mut server.connect());
    });
}

/// Runs a test on each server with the feature `what`, and panics if there is none. Such a test is `#[ignore]`d for that reason, unless the
/// servers of an ordinary run have the feature.
pub fn on_servers_with(what: &str, has: impl Fn(&Path) -> bool, test: impl Fn(&Path)) {
    let servers: Vec<PathBuf> = servers().into_iter().filter(|program| has(program)).collect();
    assert!(!servers.is_empty(), "no server has {what}: list one in BLOOMGATE_SERVERS");
    for program in servers {
        eprintln!("server: {}", program.display());
        test(&program);
    }
}
