//! Adds that are pending while a child of the server is running: they are found, saved, copied and replicated as if they were in the bits,
//! and are flushed afterwards, whatever happens to the child and to the filter.

mod children;
mod failover;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use testing::{
    Connection, Server, defragments, dump, eventually, integer, load_records, ok, on_every_server, on_servers_with,
    records, restore, simple, with_client,
};

/// 4.8 MB of bits, enough for adds to be pending.
const RESERVE: &str = "0.01 3500000 NONSCALING SEED 7";

pub fn reserve(client: &mut Connection, key: &str) {
    assert_eq!(client.run(&format!("BF.RESERVE {key} {RESERVE}")), ok());
}

fn items(numbers: std::ops::Range<u32>) -> Vec<String> {
    numbers.map(|number| format!("item {number}")).collect()
}

/// Adds items. Returns how many were new.
pub fn add(client: &mut Connection, key: &str, numbers: std::ops::Range<u32>) -> usize {
    client.batched(&[b"BF.MADD", key.as_bytes()], &items(numbers)).into_iter().filter(|is_new| *is_new).count()
}

pub fn assert_has(client: &mut Connection, key: &str, numbers: std::ops::Range<u32>) {
    let answers = client.batched(&[b"BF.MEXISTS", key.as_bytes()], &items(numbers));
    assert!(answers.iter().all(|found| *found), "all of {key} is found");
}

/// Bytes of pending adds in all filters.
pub fn pending(client: &mut Connection) -> i64 {
    client.gauge("pending_bytes")
}

/// Waits until the timer has flushed all pending adds.
pub fn all_written(client: &mut Connection) {
    eventually("pending adds to be flushed", || pending(client) == 0);
}

fn digest(client: &mut Connection) -> String {
    client.run("DEBUG DIGEST").text()
}

/// Begins a save whose child runs until it is killed, because it sleeps after each key. There is one key.
pub fn begin_endless_save(client: &mut Connection) {
    assert_eq!(client.run("CONFIG SET rdb-key-save-delay 2000000000"), ok());
    assert_eq!(client.run("BGSAVE"), simple("Background saving started"));
    assert_eq!(client.info_number("rdb_bgsave_in_progress"), 1);
}

/// A stopped child, which continues when this is dropped.
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
    // A delay after each key, so that the child is usually stopped before it ends; on a busy machine it may end first.
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

/// Kills the saving child, and waits until the server has noticed.
pub fn kill_child(server: &Server, client: &mut Connection) {
    kill(&children(server));
    no_child(client);
}

pub fn kill(children: &[String]) {
    signal("-KILL", children);
}

fn signal(signal: &str, children: &[String]) {
    for child in children {
        // It may have exited meanwhile.
        let _ = Command::new("kill").args([signal, child]).output().expect("kill runs");
    }
}

pub fn no_child(client: &mut Connection) {
    eventually("the end of the child", || !client.has_rewrite() && client.info_number("rdb_bgsave_in_progress") == 0);
}

/// The number of pending adds in a listed filter, for which the timer needs several steps.
const ADDS: u32 = 20_000;

/// A server whose module is loaded by the fault module.
fn start_with_faults(program: &Path) -> (Server, Connection) {
    let server = Server::with(program).with_faults("").line("lazyfree-lazy-expire yes").start();
    let client = server.connect();
    (server, client)
}

/// Creates pending adds in filters, which the module lists in this order. Afterwards no child is running, and the timer that flushes the
/// adds does not start before FAULTS.HOLD 0.
fn list(server: &Server, client: &mut Connection, keys: &[String], adds: u32) {
    begin_endless_save(client);
    for key in keys {
        add(client, key, 0..adds);
    }
    client.run("FAULTS.HOLD 1");
    kill_child(server, client);
    assert!(pending(client) > 0);
}

// Values with pending adds that are moved, freed, renamed or replaced while the module lists their keys. `tests/fault_module` holds the
// timer that flushes them, and overwrites freed blocks, so that a stale pointer cannot go unnoticed.

/// A server with listed filters.
fn with_listed_filters(program: &Path, keys: &[&str]) -> (Server, Connection) {
    let (server, mut client) = start_with_faults(program);
    let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
    keys.iter().for_each(|key| reserve(&mut client, key));
    list(&server, &mut client, &keys, ADDS);
    (server, client)
}

/// Makes the server's defragmenter move every value that it can.
fn defragment(client: &mut Connection) {
    let settings = "active-defrag-ignore-bytes 1 active-defrag-threshold-lower 0 active-defrag-cycle-min 50";
    assert_eq!(client.run(&format!("CONFIG SET {settings}")), ok());
}

/// Flushes the pending adds, and compares the filter with a filter that never had pending adds.
fn assert_flushed(client: &mut Connection, key: &str) {
    client.run("FAULTS.HOLD 0");
    all_written(client);
    assert_has(client, key, 0..ADDS);
    reserve(client, "expected");
    add(client, "expected", 0..ADDS);
    let digest = |client: &mut Connection, key: &str| client.run(&format!("DEBUG DIGEST-VALUE {key}"));
    assert_eq!(digest(client, key), digest(client, "expected"));
    assert_eq!(client.run("DEL expected"), integer(1));
}

#[test]
fn a_value_that_has_moved_is_flushed_by_the_timer() {
    on_every_server(|program| {
        let (_server, mut client) = with_listed_filters(program, &["k", "other"]);
        for key in ["k", "other"] {
            assert!(client.run(&format!("FAULTS.MOVE {key}")).number() > 0);
        }
        assert_flushed(&mut client, "k");
        assert_has(&mut client, "other", 0..ADDS);
    });
}

/// The defragmenter stops after each layer; the next call continues with the next layer.
#[test]
fn a_value_is_moved_layer_by_layer() {
    on_every_server(|program| {
        let (_server, mut client) = start_with_faults(program);
        assert_eq!(client.run("BF.RESERVE k 0.01 100 EXPANSION 1"), ok());
        assert!(add(&mut client, "k", 0..1000) > 900);
        let layers = client.run("BF.STATS k").field("Layers").elements().len();
        let before = client.run("DEBUG DIGEST-VALUE k");
        assert_eq!(client.run("FAULTS.MOVE k"), integer(i64::try_from(layers).expect("a few layers")));
        assert_eq!(client.run("DEBUG DIGEST-VALUE k"), before);
        assert_has(&mut client, "k", 0..1000);
        assert!(layers > 5);
    });
}

/// The server's own defragmenter moves values while they are listed.
#[test]
#[ignore = "needs a server with active defragmentation"]
fn values_that_the_server_defragments_keep_their_adds() {
    on_servers_with("active defragmentation", defragments, |program| {
        let (server, mut client) = start_with_faults(program);
        // Between these filters are small ones, which are deleted: each is nearly alone in its page.
        let keys: Vec<String> = (0..30).map(|number| format!("k{number}")).collect();
        for key in &keys {
            reserve(&mut client, key);
            for number in 0..100 {
                client.run(&format!("BF.RESERVE {key}-{number} 0.01 100"));
            }
        }
        list(&server, &mut client, &keys, 2000);
        for key in &keys {
            for number in 0..100 {
                client.run(&format!("DEL {key}-{number}"));
            }
        }
        assert_eq!(client.run("CONFIG SET activedefrag yes"), ok());
        defragment(&mut client);
        eventually("the defragmenter", || client.run("FAULTS.MOVED").number() > 0);
        client.run("FAULTS.HOLD 0");
        all_written(&mut client);
        keys.iter().for_each(|key| assert_has(&mut client, key, 0..2000));
    });
}

/// The timer finds no value under the listed name, and visits the keys of all databases.
#[test]
fn a_filter_with_another_name_is_flushed_by_the_timer() {
    on_every_server(|program| {
        for (line, database, name) in [("RENAME k renamed", 0, "renamed"), ("MOVE k 3", 3, "k"), ("SWAPDB 0 5", 5, "k")]
        {
            let (_server, mut client) = with_listed_filters(program, &["k"]);
            let before = client.run("DEBUG DIGEST-VALUE k");
            for database in [0, 3, 15] {
                client.run(&format!("SELECT {database}"));
                client.run("DEBUG POPULATE 3000");
            }
            client.run("SELECT 0");
            assert!(!client.run(line).is_error(), "{line}");
            client.run("FAULTS.HOLD 0");
            all_written(&mut client);
            client.run(&format!("SELECT {database}"));
            assert_has(&mut client, name, 0..ADDS);
            assert_eq!(client.run(&format!("DEBUG DIGEST-VALUE {name}")), before);
        }
    });
}

/// The timer may look up each name at the wrong time.
#[test]
fn a_filter_that_is_renamed_again_and_again_is_flushed_by_the_timer() {
    on_every_server(|program| {
        let (_server, mut client) = with_listed_filters(program, &["k"]);
        client.run("DEBUG POPULATE 20000");
        client.run("FAULTS.HOLD 0");
        let deadline = Instant::now() + Duration::from_secs(60);
        while pending(&mut client) > 0 {
            assert!(Instant::now() < deadline, "the timer does not find the filter");
            for line in ["RENAME k other", "RENAME other k"] {
                assert_eq!(client.run(line), ok());
            }
        }
        assert_has(&mut client, "k", 0..ADDS);
    });
}

/// Another value under the listed name has no pending adds, or its own are flushed.
#[test]
fn another_value_under_the_listed_name_stays_as_it_is() {
    on_every_server(|program| {
        let (_server, mut client) = with_listed_filters(program, &["k", "other"]);
        assert_eq!(client.run("RENAME k renamed"), ok());
        reserve(&mut client, "k");
        add(&mut client, "k", 0..10);
        assert_eq!(client.run("RENAME other gone"), ok());
        client.run("SET other string");
        let digests = "DEBUG DIGEST-VALUE k other renamed gone";
        let before = client.run(digests);
        client.run("FAULTS.HOLD 0");
        all_written(&mut client);
        assert_eq!(client.run(digests), before);
        ["renamed", "gone"].iter().for_each(|key| assert_has(&mut client, key, 0..ADDS));
    });
}

/// The timer's access leaves no trace: it does not update a filter's access time, and does not prevent it from expiring.
#[test]
fn the_timer_does_not_count_as_a_use_of_the_filter() {
    on_every_server(|program| {
        let (_server, mut client) = with_listed_filters(program, &["k", "short"]);
        thread::sleep(Duration::from_millis(2100));
        assert_eq!(client.run("PEXPIRE short 1"), integer(1));
        let idle = client.run("OBJECT IDLETIME k").number();
        assert!(idle >= 2, "{idle} seconds");
        client.run("FAULTS.HOLD 0");
        eventually("the end of the key", || client.run("EXISTS short") == integer(0));
        all_written(&mut client);
        assert!(client.run("OBJECT IDLETIME k").number() >= idle);
    });
}

/// The timer does not follow a pointer to a value that was freed, whichever thread freed it.
#[test]
fn a_value_that_was_freed_is_not_flushed() {
    on_every_server(|program| {
        for end in ["UNLINK freed", "DEL freed", "PEXPIRE freed 1", "SET freed x", "RENAME string freed"] {
            let (_server, mut client) = with_listed_filters(program, &["first", "freed", "last"]);
            client.run("SET string x");
            assert!(!client.run(end).is_error(), "{end}");
            eventually("the key to go", || {
                client.run("EXISTS freed");
                client.gauge("num_objects") == 2
            });
            client.wait_for_frees();
            assert_flushed(&mut client, "first");
            assert_has(&mut client, "last", 0..ADDS);
        }
    });
}

// When pending adds are flushed: by a timer. The fault module holds the timer.

/// Starts the held timers. Returns their number.
fn held_timers(client: &mut Connection) -> i64 {
    client.run("FAULTS.HOLD 0").number()
}

/// Creates `adds` pending adds in the filter `k`, and holds the timer.
fn hold(server: &Server, client: &mut Connection, adds: u32) {
    list(server, client, &["k".to_owned()], adds);
}

/// Only the timer flushes, so commands are not delayed. Their own items are written to the bits.
#[test]
fn commands_leave_pending_adds_to_the_timer() {
    on_every_server(|program| {
        let (server, mut client) = start_with_faults(program);
        assert_eq!(client.run("BF.RESERVE k 0.01 3500000 HASH siphash"), ok());
        hold(&server, &mut client, ADDS);
        let before = pending(&mut client);
        assert!(before > 0);
        assert_eq!(add(&mut client, "k", ADDS..ADDS + 100), 100);
        assert_eq!(client.run("BF.ADD k another"), integer(1));
        assert_eq!(client.run("BF.DEL k another"), integer(1));
        assert_eq!(client.run("BF.EXISTS k absent"), integer(0));
        assert_eq!(pending(&mut client), before);
        assert_eq!(held_timers(&mut client), 1);
        all_written(&mut client);
        assert_has(&mut client, "k", 0..ADDS + 100);
    });
}

#[test]
fn there_is_one_timer_and_only_while_adds_are_pending() {
    on_every_server(|program| {
        let (server, mut client) = start_with_faults(program);
        reserve(&mut client, "k");
        client.run("FAULTS.HOLD 1");
        begin_endless_save(&mut client);
        kill_child(&server, &mut client);
        assert_eq!(held_timers(&mut client), 0, "nothing is pending");
        hold(&server, &mut client, ADDS);
        begin_endless_save(&mut client);
        kill_child(&server, &mut client);
        assert_eq!(held_timers(&mut client), 1);
        all_written(&mut client);
        client.run("FAULTS.HOLD 1");
        tick(&mut client);
        assert_eq!(held_timers(&mut client), 0, "nothing is pending any more");
    });
}

/// Waits until a timer that is due in a millisecond has fired.
fn tick(client: &mut Connection) {
    client.run("DEBUG SLEEP 0.005");
    client.run("PING");
}

#[test]
fn a_child_that_is_born_while_the_timer_runs_stops_it() {
    on_every_server(|program| {
        let (server, mut client) = start_with_faults(program);
        reserve(&mut client, "k");
        hold(&server, &mut client, ADDS);
        begin_endless_save(&mut client);
        let before = pending(&mut client);
        assert_eq!(held_timers(&mut client), 1);
        client.run("FAULTS.HOLD 1");
        tick(&mut client);
        assert_eq!(held_timers(&mut client), 0, "a child lives");
        assert_eq!(client.run("BF.ADD k known"), integer(1));
        assert!(pending(&mut client) >= before, "a child lives");
        kill_child(&server, &mut client);
        all_written(&mut client);
        assert_has(&mut client, "k", 0..ADDS);
    });
}

// Changes to a filter while it has pending adds, and while the timer flushes them.

/// Enough adds to keep the timer busy for a while.
const MANY: u32 = 30_000;

/// Runs an action on a server with a filter `k` that has pending adds, while the child is running or after it has exited.
fn each_time(what: impl Fn(&Server, &mut Connection)) {
    on_every_server(|program| {
        for is_over in [false, true] {
            let server = Server::with(program).line("activerehashing no").start();
            let mut client = server.connect();
            reserve(&mut client, "k");
            begin_endless_save(&mut client);
            add(&mut client, "k", 0..MANY);
            assert!(pending(&mut client) > 0);
            if is_over {
                kill_child(&server, &mut client);
            }
            what(&server, &mut client);
            if !is_over {
                kill_child(&server, &mut client);
            }
            all_written(&mut client);
            assert_eq!(client.run("PING"), simple("PONG"));
        }
    });
}

fn assert_gone(client: &mut Connection) {
    for gauge in ["num_objects", "total_memory_bytes", "pending_bytes"] {
        assert_eq!(client.gauge(gauge), 0, "{gauge}");
    }
}

#[test]
fn a_deleted_filter_frees_its_pending_adds() {
    for end in
        ["DEL k", "UNLINK k", "SET k x", "FLUSHALL SYNC", "FLUSHALL ASYNC", "FLUSHDB", "PEXPIRE k 1", "RENAME other k"]
    {
        each_time(|_, client| {
            client.run("SET other x");
            assert!(!client.run(end).is_error(), "{end}");
            eventually("the key to go", || client.gauge("num_objects") == 0);
            assert_gone(client);
            // A new filter under the same key.
            client.run("DEL k");
            reserve(client, "k");
            assert_eq!(add(client, "k", 0..100), 100, "{end}");
        });
    }
}

#[test]
fn copies_and_payloads_have_the_pending_adds() {
    each_time(|_, client| {
        let digest = client.run("DEBUG DIGEST-VALUE k");
        assert_eq!(client.run("COPY k copy"), integer(1));
        let (payload, records) = (dump(client, "k"), records(client, "k"));
        assert_eq!(restore(client, "restored", &payload), ok());
        load_records(client, "loaded", &records);
        reserve(client, "union");
        assert_eq!(client.run("BF.MERGE union k"), ok());
        assert_eq!(client.run("BF.MERGE new k"), ok());
        for key in ["copy", "restored", "loaded", "union", "new"] {
            assert_eq!(client.run(&format!("DEBUG DIGEST-VALUE {key}")), digest, "{key}");
            assert_has(client, key, 0..MANY);
        }
        assert_eq!(client.run("DEBUG DIGEST-VALUE k"), digest);
    });
}

#[test]
fn an_emptied_filter_has_no_pending_adds() {
    each_time(|_, client| {
        assert_eq!(client.run("BF.CLEAR k"), ok());
        assert_eq!(client.gauge("pending_bytes"), 0);
        assert_eq!(client.run("BF.CARD k"), integer(0));
        assert_eq!(client.run("BF.EXISTS k item"), integer(0));
        assert_eq!(add(client, "k", 0..1000), 1000);
        assert_has(client, "k", 0..1000);
    });
}

#[test]
fn writes_continue_while_the_timer_flushes() {
    with_client(|server, client| {
        // Two filters, so that one remains when the other is flushed. The set of one is full.
        for key in ["k", "other"] {
            assert_eq!(client.run(&format!("BF.RESERVE {key} {} HASH siphash", RESERVE.replace(" SEED 7", ""))), ok());
        }
        begin_endless_save(client);
        add(client, "k", 0..MANY);
        add(client, "other", 0..1000);
        let full = pending(client);
        assert!(full < 4_900_000 / 8 * 2);
        kill_child(server, client);
        let mut next = MANY;
        while pending(client) > 0 {
            assert_eq!(client.run(&format!("BF.DEL k item_{next}")), integer(0));
            add(client, "k", next..next + 50);
            let (first, last) = (format!("item {}", next - 20), format!("item {next}"));
            assert_eq!(client.call(&["BF.DEL", "k", &first]), integer(1));
            assert_eq!(client.call(&["BF.EXISTS", "k", &last]), integer(1));
            next += 50;
        }
        let found = client.batched(&[b"BF.MEXISTS", b"k"], &items(0..next));
        let absent = found.iter().filter(|found| !**found).count();
        assert_eq!(absent, ((next - MANY) / 50) as usize);
    });
}
