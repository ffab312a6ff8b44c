//! The server's wall clock is set back or forward, as on a resumed virtual machine or by NTP. The module's timers fire nevertheless.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use crate::pending::{add, all_written, assert_has, begin_endless_save, kill_child, pending, reserve};
use testing::{Connection, Reply, Server, array, bulk, eventually, ok, on_every_server};

const HOUR: i64 = 3600;

fn start(program: &Path) -> (Server, Connection) {
    let server = Server::with(program).with_clock().start();
    let client = server.connect();
    (server, client)
}

/// A client that waits for a value.
fn wait(server: &Server, client: &mut Connection, milliseconds: u64) -> Connection {
    let mut waiter = server.connect();
    let before = client.info_number("bf_bloom_waiting");
    waiter.send(&["BF.FETCH", "f", "item", "c", "WAIT", &milliseconds.to_string()]).unwrap();
    eventually("the client to wait", || client.info_number("bf_bloom_waiting") > before);
    waiter
}

/// Acquires the lease, and returns its token.
fn lease(client: &mut Connection, milliseconds: u64) -> String {
    let reply = client.run(&format!("BF.FETCH f item c LEASE {milliseconds}"));
    let [word, token] = reply.elements() else { panic!("{reply:?}") };
    assert_eq!(word, &bulk("load"));
    token.text()
}

fn is_wait(reply: &Reply) -> bool {
    reply.elements()[0] == bulk("wait")
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "needs LD_PRELOAD")]
fn waiters_are_served_after_the_clock_was_set_back() {
    on_every_server(|program| {
        let (server, mut client) = start(program);
        // The end of a lease, and of WAIT.
        lease(&mut client, 1000);
        let mut waiters = [100_000, 2000].map(|milliseconds| wait(&server, &mut client, milliseconds));
        server.shift_clock(-HOUR);
        assert_eq!(waiters[0].receive().unwrap().elements()[0], bulk("load"));
        assert!(is_wait(&waiters[1].receive().unwrap()));
        // Again, while the timer is set for a later time.
        let mut waiter = wait(&server, &mut client, 1000);
        server.shift_clock(-2 * HOUR);
        assert!(is_wait(&waiter.receive().unwrap()));
    });
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "needs LD_PRELOAD")]
fn waiters_wait_on_after_the_clock_was_set_forward() {
    on_every_server(|program| {
        let (server, mut client) = start(program);
        client.run("BF.ADD f item");
        let token = lease(&mut client, 1_000_000);
        let mut waiter = wait(&server, &mut client, 1_000_000);
        server.shift_clock(HOUR);
        // Time for a timer that fires.
        sleep(Duration::from_millis(300));
        assert_eq!(client.info_number("bf_bloom_waiting"), 1);
        let mut other = wait(&server, &mut client, 500);
        assert!(is_wait(&other.receive().unwrap()), "its own time is up");
        assert_eq!(client.run(&format!("BF.FILL f item c {token} VALUE row")), ok());
        assert_eq!(waiter.receive().unwrap(), array([bulk("hit"), bulk("row")]));
    });
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "needs LD_PRELOAD")]
fn pending_adds_are_flushed_after_the_clock_was_set_back() {
    const ADDS: u32 = 60_000;
    on_every_server(|program| {
        let (server, mut client) = start(program);
        reserve(&mut client, "k");
        // On a busy machine the adds may be flushed before the step.
        let is_early = (1..20).any(|attempt| {
            begin_endless_save(&mut client);
            add(&mut client, "k", (attempt - 1) * ADDS..attempt * ADDS);
            kill_child(&server, &mut client);
            server.shift_clock(-HOUR * i64::from(attempt));
            let is_early = pending(&mut client) > 0;
            all_written(&mut client);
            assert_has(&mut client, "k", 0..attempt * ADDS);
            is_early
        });
        assert!(is_early, "the timer was never set when the clock was");
    });
}
