//! The connections of a client.

use std::io;
use std::net::TcpListener;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use bloomgate_client::{Client, Filter, Guard, GuardOptions, aio};
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
fn a_waiting_caller_gets_a_freed_connection() {
    let server = Server::start(&servers()[0]);
    let client = Client::open(format!("redis://127.0.0.1:{}", server.port)).unwrap().with_connections(1);
    // A caller that is woken up does not wait for that long.
    let seen = Filter::new(&client.with_timeout(Duration::from_secs(60)), "seen");
    seen.add("a").unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..100).for_each(|_| assert!(seen.exists("a").unwrap())));
        }
    });
}

/// After a connection has waited in the server, its long time limit is reset.
#[test]
fn a_command_after_a_wait_has_the_default_time_limit() {
    let hour = Duration::from_secs(3600);
    let server = Server::start(&servers()[0]);
    let mut other = server.connect();
    other.run("BF.RESERVE {rows} 0.01 100");
    other.run("BF.ADD {rows} 1");
    let token = other.run("BF.FETCH {rows} 1 {rows}:1 LEASE 3600000").elements()[1].text();
    let client = Client::open(format!("redis://127.0.0.1:{}", server.port)).unwrap().with_connections(2);
    let client = client.with_timeout(Duration::from_secs(3));
    let rows = Guard::new(&client, "{rows}", GuardOptions { wait: hour, ..GuardOptions::default() }).unwrap();
    let waiting = thread::spawn(move || rows.get(1, |_| -> io::Result<_> { panic!("nobody loads") }).unwrap());
    eventually("the caller to wait in the server", || other.info_number("bf_bloom_waiting") == 1);
    other.run(&format!("BF.FILL {{rows}} 1 {{rows}}:1 {token} VALUE one EX 600"));
    assert_eq!(waiting.join().unwrap(), Some(b"one".to_vec()));
    other.run("CLIENT PAUSE 3600000 ALL");
    let (ended, end) = channel();
    thread::spawn(move || ended.send(Filter::new(&client, "{rows}").exists("1").is_err()));
    assert_eq!(end.recv_timeout(Duration::from_secs(60)), Ok(true));
}

/// If each of many callers made its own attempt in turn, the last would wait for a very long time.
#[test]
fn callers_share_a_failed_attempt_to_connect() {
    // Connections stay in its queue, and no reply is sent.
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
