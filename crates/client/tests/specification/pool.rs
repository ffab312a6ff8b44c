//! The connections of a client.

use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use bloomgate_client::{Client, Filter, aio};
use tokio::runtime::Builder;

use testing::{Server, eventually, servers};

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

#[test]
fn a_caller_that_waits_gets_the_connection_that_becomes_free() {
    let server = Server::start(&servers()[0]);
    let client = Client::open(format!("redis://127.0.0.1:{}", server.port)).unwrap().with_connections(1);
    // Nobody who is woken waits for that long.
    let seen = Filter::new(&client.with_timeout(Duration::from_secs(60)), "seen");
    seen.add("a").unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..100).for_each(|_| assert!(seen.exists("a").unwrap())));
        }
    });
}

/// If each of many callers waited for an attempt of its own, one after the other, the last would wait for a very long time.
#[test]
fn callers_share_a_failed_attempt_to_connect() {
    // Connections stay in its queue: nobody replies.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = aio::Client::open(format!("redis://127.0.0.1:{port}")).unwrap();
        let client = client.with_timeout(Duration::from_millis(300));
        let call = || {
            let seen = aio::Filter::new(&client, "seen");
            tokio::spawn(async move { seen.exists("a").await })
        };
        let calls: Vec<_> = (0..20).map(|_| call()).collect();
        for call in calls {
            assert!(call.await.unwrap().is_err());
        }
        assert!(call().await.unwrap().is_err());
    });
    silent.set_nonblocking(true).unwrap();
    let attempts = std::iter::from_fn(|| silent.accept().ok()).count();
    assert_eq!(attempts, 2, "one for the calls that began together, one for the last");
}
