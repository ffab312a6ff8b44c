//! The commands of the guard: a filter, a cache and a database in one round trip.

mod answers;
mod batches;
mod effects;
mod fresh;
mod keys;
mod waiting;

use testing::{Connection, Reply, Server, Version, array, bulk, eventually, nil, ok};

/// The filter of most tests holds this item. Cache keys are named so that all keys of a command lie in one slot.
const ITEM: &str = "42";
const FETCH: &str = "BF.FETCH {f} 42 {f}:42";
/// BF.FETCH that waits for writes in flight.
const UNLESS: &str = "BF.FETCH {f} 42 {f}:42 UNLESS {f}:open";
/// BF.FETCH that never gets `absent` without the heartbeat.
const WHILE: &str = "BF.FETCH {f} 42 {f}:42 WHILE {f}:feed";

/// A token that no server has issued.
const INVENTED: &str = "0123456789abcdef0123456789abcdef";
/// A filter, with an item in it.
fn with_filter(client: &mut Connection) {
    assert_eq!(client.run("BF.RESERVE {f} 0.0001 1000 SEED 500"), ok());
    assert!(client.run(&format!("BF.ADD {{f}} {ITEM}")).truth());
}

/// How many clients wait.
fn waiters(client: &mut Connection) -> i64 {
    client.info_number("bf_bloom_waiting")
}

/// The longest lease, and a wait that is longer than any test. The usual lease of 3 s ends too early on a machine that is busy enough.
const LONG: u64 = 3_600_000;

/// The command with a lease that outlives the test, unless it says how long its lease is.
fn lasting(line: &str) -> String {
    if line.contains(" LEASE ") { line.to_owned() } else { format!("{line} LEASE {LONG}") }
}

/// Starts clients that wait for the usual cache key for longer than the test, in order of arrival.
fn waiting(server: &Server, clients: usize) -> Vec<Connection> {
    (0..clients).map(|_| wait_with(server, FETCH)).collect()
}

/// Starts a client that waits with this command, for longer than the test.
fn wait_with(server: &Server, line: &str) -> Connection {
    let (mut client, mut watcher) = (server.connect(), server.connect());
    let before = waiters(&mut watcher);
    let line = format!("{} WAIT {LONG}", lasting(line));
    client.send(&line.split(' ').collect::<Vec<_>>()).unwrap();
    eventually("the client to wait", || waiters(&mut watcher) == before + 1);
    client
}

/// The word that a reply of BF.FETCH begins with.
fn word(reply: &Reply) -> String {
    reply.elements()[0].text()
}

/// Fetches the value and expects a lease, which outlives the test unless the command sets its length. Returns its token.
fn load(client: &mut Connection, line: &str) -> String {
    token(&client.run(&lasting(line)))
}

/// The token in a reply that grants a lease.
fn token(reply: &Reply) -> String {
    let [.., token] = reply.elements() else { panic!("no token in {reply:?}") };
    assert!(["load", "stale"].contains(&word(reply).as_str()), "{reply:?}");
    let token = token.text();
    assert!(token.len() == 32 && token.bytes().all(|digit| digit.is_ascii_hexdigit()), "{token}");
    token
}

/// The reply of BF.FILL on a server that does, or does not, report what the token depends on.
fn ok_if(is_filled: bool) -> Reply {
    if is_filled { ok() } else { nil(2) }
}

/// Whether the guard is notified of every change of a key.
fn hears_everything(client: &mut Connection) -> bool {
    Version::of_server(client).reports_every_change()
}

/// Fills the usual cache key.
fn fill(client: &mut Connection, token: &str, what: &str) -> Reply {
    client.run(&format!("BF.FILL {{f}} {ITEM} {{f}}:42 {token} {what}"))
}

fn hit(value: &str) -> Reply {
    array([bulk("hit"), bulk(value)])
}

fn absent() -> Reply {
    array([bulk("absent")])
}

/// The time in a `wait` reply.
fn wait_of(reply: &Reply) -> i64 {
    assert_eq!(word(reply), "wait", "{reply:?}");
    reply.elements()[1].number()
}
