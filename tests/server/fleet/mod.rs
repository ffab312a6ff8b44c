//! Several servers: links that are cut, a failover under load, a cluster, and filters that move from one server to another.
//! `BLOOMGATE_EFFORT` (default 1) multiplies the work of these tests.

mod cluster;

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use cluster::migrate;

use crate::reliability::scaled;
use crate::transfer::contrary;

use testing::nodes::{id, pair, slot, state};
use testing::{
    Connection, Reply, Rng, Server, Version, catch_up, eventually, figures, integer, nil, ok, on_every_server,
    on_servers_with,
};

/// Every layout, hash and kind, with no items forgotten during a test: a name for keys, and the options of BF.INSERT, which override the
/// options before them. The window is longer than any test, and counting filters have room for all items.
const LAYOUTS: [(&str, &[&str]); 7] = [
    ("native", &[]),
    ("redisbloom", &["LAYOUT", "redisbloom"]),
    ("valkey", &["TIGHTENING", "0.5"]),
    ("keyed", &["HASH", "siphash"]),
    ("windowed", &["WINDOW", "100000000"]),
    ("cuckoo", &["CUCKOO"]),
    ("counting", &["CAPACITY", "20000", "COUNTING"]),
];

/// The number of these, from the first on, that grow without limit.
const GROWING: usize = 6;

/// Stops the writers at the end of a test, even if it fails.
pub struct StopAtEnd<'a>(pub &'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Makes a server a replica of another one, even if it is already a replica. Retries, because a server refuses this while it is loading.
pub fn follow(replica: &mut Connection, port: u16) {
    eventually("REPLICAOF to be taken", || !replica.run(&format!("REPLICAOF 127.0.0.1 {port}")).is_error());
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

// Links that are cut, with full and partial synchronisations.

/// More bytes than a backlog of 128 KiB holds, written while a link is cut.
pub fn cut_and_flood(primary: &mut Connection, name: &str) {
    let script = "for i = 1, 8000 do redis.call('BF.ADD', KEYS[1], ARGV[1] .. i) end";
    assert_eq!(primary.run("MULTI"), ok());
    primary.run("CLIENT KILL TYPE replica");
    primary.call(&["EVAL", script, "1", "flood", name]);
    let reply = primary.run("EXEC");
    assert!(!reply.elements()[1].is_error(), "{reply:?}");
}

fn primary(program: &Path) -> Server {
    Server::with(program).line("repl-backlog-size 128kb").line("repl-diskless-sync yes").start()
}

#[test]
fn reads_during_a_swap_of_the_data_set_have_no_false_negatives() {
    on_every_server(|program| {
        let server = primary(program);
        let other = contrary(program)
            .line("repl-diskless-load swapdb")
            .line("key-load-delay 2000")
            .line("loading-process-events-interval-bytes 1024")
            .start();
        let (mut primary, mut replica) = (server.connect(), other.connect());
        let items: Vec<String> = (0..1000).map(|number| format!("item/{number}")).collect();
        let keys: Vec<String> =
            (0..90).map(|number| format!("{}:{number}", LAYOUTS[number % LAYOUTS.len()].0)).collect();
        for (number, key) in keys.iter().enumerate() {
            let line = format!("BF.INSERT {key} CAPACITY 50 {} ITEMS x", LAYOUTS[number % LAYOUTS.len()].1.join(" "));
            assert_eq!(primary.run(&line.replace("  ", " ")).elements(), [integer(1)]);
            primary.batched(&[b"BF.MADD", key.as_bytes()], &items);
        }
        follow(&mut replica, server.port);
        catch_up(&mut primary, &mut replica);
        let (mut asked, mut while_loading) = (0, 0);
        let mut rounds = 0;
        // On a busy machine a load may finish before it is observed.
        while rounds < scaled(3) || while_loading == 0 {
            let before = primary.info_number("sync_full");
            cut_and_flood(&mut primary, &rounds.to_string());
            let mut rng = Rng::new(rounds as u64);
            rounds += 1;
            assert!(rounds < 100, "no question in {rounds} loads");
            eventually("the data set to come", || {
                let loading = replica.info("async_loading") == "1";
                let key = &keys[rng.below(90) as usize];
                let item = &items[rng.below(1000) as usize];
                for words in [["BF.EXISTS", key, item], ["BF.MEXISTS", key, item]] {
                    let reply = replica.call(&words);
                    let answer = if let Reply::Array(answers) = &reply { &answers[0] } else { &reply };
                    assert_eq!(answer, &integer(1), "{words:?}, loading: {loading}");
                }
                for line in ["BF.INFO", "BF.CARD", "BF.DEBUG", "MEMORY USAGE"] {
                    assert!(!replica.run(&format!("{line} {key}")).is_error(), "{line} {key}");
                }
                assert!(replica.run(&format!("BF.ADD {key} {item}")).is_error(), "a replica takes no adds");
                replica.run("INFO everything");
                asked += 6;
                while_loading += usize::from(loading) * 6;
                !loading && primary.info_number("sync_full") > before && replica.info("master_link_status") == "up"
            });
            catch_up(&mut primary, &mut replica);
            assert_equal("after the swap", &mut primary, &mut replica);
        }
        figures(&format!("reads during a load: {asked} in {rounds} swaps, {while_loading} while loading"));
    });
}

// A failover on request under load.

/// The items that each layout's filter must contain from now on.
type Kept = [Mutex<Vec<String>>; GROWING];

/// Returns the arguments of an add to a filter of the layout, which creates the filter if it is missing.
fn add(layout: usize, items: &[String]) -> Vec<&str> {
    let (key, words) = LAYOUTS[layout];
    let mut line = vec!["BF.INSERT", key, "CAPACITY", "100"];
    line.extend(words.iter().chain(&["ITEMS"]));
    line.extend(items.iter().map(String::as_str));
    line
}

fn assert_nothing_lost(occasion: &str, client: &mut Connection, kept: &Kept) -> usize {
    let mut checked = 0;
    for ((key, _), items) in LAYOUTS.iter().zip(kept) {
        let items = items.lock().unwrap();
        assert_eq!(denied(client, key, &items), 0, "{occasion}: {key} lost some of {}", items.len());
        checked += items.len();
    }
    checked
}

/// Adds to whichever server accepts writes, and records the acknowledged adds.
fn add_until_stopped(servers: &[Server; 2], name: &str, stop: &AtomicBool, refused: &AtomicUsize, kept: &Kept) {
    let mut clients = [servers[0].connect(), servers[1].connect()];
    let mut current = 0;
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let layout = number % GROWING;
        let items: Vec<String> = (0..number % 20 + 1).map(|item| format!("{name}/{number}/{item}")).collect();
        loop {
            match clients[current].call(&add(layout, &items)) {
                Reply::Array(_) => break,
                Reply::Error(text) if text.starts_with("READONLY") || text.starts_with("LOADING") => {
                    refused.fetch_add(1, Ordering::Relaxed);
                    current = 1 - current;
                }
                other => panic!("an add answered {other:?}"),
            }
        }
        kept[layout].lock().unwrap().extend(items);
    }
}

#[test]
fn a_failover_under_load_loses_no_acknowledged_add() {
    on_every_server(|program| {
        let servers = [Server::start(program), Server::start(program)];
        let mut clients = [servers[0].connect(), servers[1].connect()];
        follow(&mut clients[1], servers[0].port);
        let [one, two] = &mut clients;
        catch_up(one, two);
        let kept = Kept::default();
        let (stop, refused) = (AtomicBool::new(false), AtomicUsize::new(0));
        let hand_overs = scaled(8);
        let mut primary = 0;
        thread::scope(|scope| {
            for worker in 0..3 {
                let (servers, stop, refused, kept) = (&servers, &stop, &refused, &kept);
                scope.spawn(move || add_until_stopped(servers, &worker.to_string(), stop, refused, kept));
            }
            let _end = StopAtEnd(&stop);
            for _ in 0..hand_overs {
                thread::sleep(Duration::from_millis(50));
                let before = refused.load(Ordering::Relaxed);
                assert_eq!(clients[primary].run("FAILOVER"), ok());
                eventually("the roles to change", || {
                    clients[primary].info("role") == "slave"
                        && clients[1 - primary].info("role") == "master"
                        && clients[primary].info("master_link_status") == "up"
                });
                eventually("a writer to be sent on", || refused.load(Ordering::Relaxed) > before);
                primary = 1 - primary;
            }
        });
        let (first, second) = clients.split_at_mut(1);
        let (new, old) = if primary == 0 { (&mut first[0], &mut second[0]) } else { (&mut second[0], &mut first[0]) };
        catch_up(new, old);
        assert_equal("after the hand-overs", new, old);
        let checked = assert_nothing_lost("new primary", new, &kept);
        assert_nothing_lost("former primary", old, &kept);
        let refused = refused.into_inner();
        figures(&format!(
            "hand-over: {hand_overs} hand-overs, {checked} adds verified, {refused} sent to the other server"
        ));
    });
}

// Leases of the guard on a node whose slots leave and come back. Changes to rows on another node in the meantime void the leases, whether
// the filter exists or not.

const FETCH: &str = "BF.FETCH {f} 42 {f}:42 LEASE 3600000";
const CHANGED: &str = "BF.CHANGED {f} 42 {f}:42";

fn load(client: &mut Connection) -> String {
    granted(&client.run(FETCH))
}

fn granted(reply: &Reply) -> String {
    let [word, token] = reply.elements() else { panic!("{reply:?}") };
    assert_eq!(word.text(), "load");
    token.text()
}

fn fill(client: &mut Connection, token: &str) -> Reply {
    client.run(&format!("BF.FILL {{f}} 42 {{f}}:42 {token} VALUE old"))
}

/// Moves a slot with all its keys as `redis-cli --cluster reshard` does, and waits until both nodes know the new owner's
/// epoch, which takes one message between them.
fn move_slot(from: &Server, to: &Server) {
    let slot = slot("{f}");
    let [mut source, mut target] = [from, to].map(Server::connect);
    assert_eq!(target.run(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", id(from))), ok());
    assert_eq!(source.run(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", id(to))), ok());
    for key in source.run(&format!("CLUSTER GETKEYSINSLOT {slot} 100")).elements() {
        let port = to.port.to_string();
        let words: [&[u8]; 6] = [b"MIGRATE", b"127.0.0.1", port.as_bytes(), key.bytes(), b"0", b"60000"];
        assert_eq!(source.call(&words), ok());
    }
    for client in [&mut target, &mut source] {
        assert_eq!(client.run(&format!("CLUSTER SETSLOT {slot} NODE {}", id(to))), ok());
    }
    eventually("both to know the epoch", || {
        state(&mut source, "cluster_current_epoch") == state(&mut target, "cluster_current_epoch")
    });
}

/// Checks that a token from before the slot left is refused after the row was changed elsewhere, and that a later one is
/// accepted.
fn assert_void_after(servers: &[Server; 2], move_slot: impl Fn(&Server, &Server)) {
    let [here, there] = servers;
    let [mut client, mut other] = servers.each_ref().map(Server::connect);
    for client in [&mut client, &mut other] {
        // Otherwise a node without slots becomes a replica of the one that has them.
        assert_eq!(client.run("CONFIG SET cluster-allow-replica-migration no"), ok());
    }
    for has_filter in [false, true, false] {
        client.run("DEL {f} {f}:42");
        if has_filter {
            assert!(client.run("BF.ADD {f} 42").truth());
        }
        let token = load(&mut client);
        move_slot(here, there);
        for _ in 0..2 {
            assert!(!other.run(CHANGED).is_error());
        }
        move_slot(there, here);
        assert_eq!(fill(&mut client, &token), nil(2), "filter: {has_filter}");
        let token = load(&mut client);
        assert_eq!(fill(&mut client, &token), ok(), "filter: {has_filter}");
    }
}

#[test]
fn a_lease_is_void_after_its_slot_was_away() {
    on_every_server(|program| {
        let servers = pair(program, |builder| builder);
        assert_void_after(&servers, move_slot);
    });
}

#[test]
#[ignore = "needs CLUSTER MIGRATESLOTS, of Valkey 9"]
fn a_lease_is_void_after_an_atomic_migration_of_its_slot() {
    let has_it = |program: &Path| Version::of(program).migrates_slots();
    on_servers_with("CLUSTER MIGRATESLOTS (Valkey 9)", has_it, |program| {
        let servers = pair(program, |builder| builder);
        let slot = slot("{f}");
        assert_void_after(&servers, |from, to| migrate(from, to, slot, slot));
    });
}

/// Leases that a caller and a waiter got without a filter stay valid as long as no slot migrates.
#[test]
fn a_lease_without_a_filter_is_filled_in_a_cluster() {
    on_every_server(|program| {
        let servers = pair(program, |builder| builder);
        let [mut client, mut waiter] = [(); 2].map(|()| servers[0].connect());
        for _ in 0..3 {
            let token = load(&mut client);
            waiter.send(&format!("{FETCH} WAIT 1000000000").split(' ').collect::<Vec<_>>()).unwrap();
            eventually("the client to wait", || client.info_number("bf_bloom_waiting") == 1);
            assert_eq!(client.run(&format!("BF.FILL {{f}} 42 {{f}}:42 {token} GIVEUP")), ok());
            let token = granted(&waiter.receive().unwrap());
            assert_eq!(fill(&mut client, &token), ok());
            client.run("DEL {f}:42");
        }
    });
}
