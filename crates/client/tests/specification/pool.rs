//! The pool of connections.

use std::thread;

use bloomgate_client::{Client, Filter};

use crate::harness::{Server, eventually, servers};

#[test]
fn one_call_fails_if_all_connections_are_lost() {
    let server = Server::start(&servers()[0]);
    let client = Client::open(format!("redis://127.0.0.1:{}", server.port)).unwrap();
    let (seen, mut other) = (Filter::new(&client, "seen"), server.connect());
    seen.add("a").unwrap();
    eventually("several connections", || {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert!((0..50).all(|_| seen.exists("a").unwrap())));
            }
        });
        other.info_number("connected_clients") > 3
    });
    assert!(other.run("CLIENT KILL TYPE normal").number() > 2);
    assert!(seen.exists("a").is_err());
    assert!(seen.exists("a").unwrap());
}
