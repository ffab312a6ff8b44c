//! Several servers: replicas under load, changes of role, a cluster, and filters that move from one server to another.
//! `BLOOMGATE_EFFORT` (default 1) multiplies the work of these tests.

mod cluster;

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use cluster::migrate;

use testing::nodes::{id, pair, slot, state};
use testing::{
    Builder, Connection, Reply, Rng, Server, Stop, Version, error, eventually, figures, integer, load_record, nil, ok,
    on_every_server, on_servers_with, records,
};

/// Every layout, hash and kind that forgets nothing during a test: a name for keys, and the options with which BF.INSERT
/// creates such a filter, following options that they override. The window is longer than any test, and counting filters have
/// room for all items.
const LAYOUTS: [(&str, &[&str]); 6] = [
    ("native", &[]),
    ("redisbloom", &["LAYOUT", "redisbloom"]),
    ("valkey", &["TIGHTENING", "0.5"]),
    ("keyed", &["HASH", "siphash"]),
    ("windowed", &["WINDOW", "100000000"]),
    ("counting", &["CAPACITY", "20000", "COUNTING"]),
];

/// The number of the first of these that grow without limit.
const GROWING: usize = 5;

/// Returns `count` times `BLOOMGATE_EFFORT`, at least 1.
pub fn effort(count: usize) -> usize {
    let factor = std::env::var("BLOOMGATE_EFFORT").map_or(1.0, |text| text.parse::<f64>().expect("a factor"));
    ((count as f64 * factor).round() as usize).max(1)
}

/// Stops the writers of a test, even if the test fails before it does so itself.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Starts a server whose settings for new filters all differ from the defaults.
fn contrary(program: &Path) -> Builder {
    Server::with(program)
        .module_words("ERROR_RATE 0.2 INITIAL_SIZE 7")
        .line("bf.expansion-factor 0")
        .line("bf.layout redisbloom")
        .line("bf.max-filter-bytes 500")
}

/// Makes a server a replica of another, even if it is one already. A server that is loading refuses this, so it is retried.
pub fn follow(replica: &mut Connection, port: u16) {
    eventually("REPLICAOF to be taken", || !replica.run(&format!("REPLICAOF 127.0.0.1 {port}")).is_error());
}

/// Waits until the replica has the primary's replication ID and offset.
pub fn catch_up(primary: &mut Connection, replica: &mut Connection) {
    eventually("the replica to have everything", || {
        replica.info("role") == "slave"
            && replica.info("master_link_status") == "up"
            && replica.info("master_replid") == primary.info("master_replid")
            && replica.info_number("slave_repl_offset") >= primary.info_number("master_repl_offset")
    });
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

// The load under which links are cut: everything that an application does with filters, in random order.

/// Errors that are expected because the order is random.
const EXPECTED: [&str; 12] = [
    "ERR not found",
    "ERR no such key",
    "ERR item exists",
    "ERR non scaling filter is full",
    "ERR source and destination objects are the same",
    "ERR this filter cannot delete",
    "ERR this filter cannot be merged",
    "ERR this filter has no WINDOW",
    "ERR no room for more deleted items",
    "ERR filters differ in what made them",
    "ERR the union would hold about",
    "ERR this filter has no COUNTING",
];

const KEYS: u64 = 6;

/// Writes until `stop`. Returns the number of commands.
pub fn write_until(server: &Server, seed: u64, stop: &AtomicBool) -> usize {
    let mut client = server.connect();
    let mut rng = Rng::new(seed);
    let mut commands = 0;
    while !stop.load(Ordering::Relaxed) {
        write(&mut client, &mut rng);
        commands += 1;
    }
    commands
}

/// The kinds to create, including those that forget or have a fixed size.
const FORGETFUL: [(&str, &[&str]); 2] =
    [("rolling", &["ROLLING", "HASH", "siphash"]), ("sliding", &["WINDOW", "100000000", "SLIDING", "HASH", "siphash"])];

fn key(rng: &mut Rng) -> (String, &'static [&'static str]) {
    let number = rng.below((LAYOUTS.len() + FORGETFUL.len()) as u64) as usize;
    let (name, words) = *LAYOUTS.iter().chain(&FORGETFUL).nth(number).expect("a kind");
    (format!("{name}-{}", rng.below(KEYS)), words)
}

/// Sends one command, or a transaction.
fn write(client: &mut Connection, rng: &mut Rng) {
    let (key, layout) = key(rng);
    let other = self::key(rng).0;
    let items: Vec<String> = (0..1 + rng.below(30)).map(|_| format!("item/{}", rng.below(100_000))).collect();
    let mut line = match rng.below(120) {
        0..40 => {
            let mut growth = ["EXPANSION 1", "EXPANSION 2", "EXPANSION 4", "NONSCALING"][rng.below(4) as usize];
            if layout.contains(&"ROLLING") || layout.contains(&"COUNTING") {
                growth = "";
            }
            let made = format!("CAPACITY {} {growth}", 20 + rng.below(40));
            ["BF.INSERT", &key, &made, &layout.join(" "), "ITEMS", &items.join(" ")].join(" ")
        }
        40..60 => format!("BF.MADD {key} {}", items.join(" ")),
        60..75 => format!("BF.ADD {key} {}", items[0]),
        75..77 => format!("DEL {key}"),
        77..79 => format!("UNLINK {key}"),
        79..82 => format!("RENAME {key} {other}"),
        82..84 => format!("COPY {key} {other} REPLACE"),
        84..88 => format!("PEXPIRE {key} {}", 1 + rng.below(200)),
        88..90 => format!("PERSIST {key}"),
        90..92 => format!("BF.RESERVE {key} 0.001 100"),
        92..94 => {
            let script = "redis.call('BF.ADD', KEYS[1], ARGV[1]) return redis.call('BF.MADD', KEYS[1], ARGV[2], 'x')";
            check(&client.call(&["EVAL", script, "1", &key, &items[0], &other]));
            return;
        }
        100..106 => format!("BF.MDEL {key} {}", items.join(" ")),
        106..108 => format!("BF.DEL {key} {}", items[0]),
        // Merges are mostly possible for copies, so the second filter is sometimes copied from the first.
        108..113 => {
            let words = format!("BF.MERGE {other} {key}");
            if rng.below(2) == 0 {
                check(&client.run(&format!("COPY {key} {other} REPLACE")));
                check(&client.run(&format!("BF.MADD {other} {}", items.join(" "))));
            }
            words
        }
        113..115 => format!("BF.CLEAR {key}"),
        115..118 => format!("BF.ROTATE {key}"),
        118..120 => format!("BF.COUNT {key} {}", items[0]),
        94..97 => {
            let add = format!("BF.MADD {key} {}", items.join(" "));
            client.pipeline(&["MULTI", &add, &format!("BF.ADD {other} x"), "EXEC"]).iter().for_each(check);
            return;
        }
        _ => {
            if let Reply::Bulk(payload) = client.run(&format!("DUMP {key}")) {
                let words: [&[u8]; 5] = [b"RESTORE", other.as_bytes(), b"0", &payload, b"REPLACE"];
                check(&client.call(&words));
            }
            return;
        }
    };
    while line.contains("  ") {
        line = line.replace("  ", " "); // A native filter has no words for its layout, others none for their growth.
    }
    check(&client.run(&line));
}

fn check(reply: &Reply) {
    match reply {
        Reply::Error(text) => assert!(EXPECTED.iter().any(|expected| text.starts_with(expected)), "{text}"),
        Reply::Array(elements) => elements.iter().for_each(check),
        _ => {}
    }
}

/// Waits until the last key with a short time to live has expired.
pub fn wait_for_expiries(client: &mut Connection) {
    client.run("SET anchor x");
    eventually("the expiries", || client.info("db0").contains("expires=0"));
}

// Replicas under load: links are cut and restored, with full and partial synchronisations, and in the end all servers have
// the same filters bit for bit.

/// More bytes than a backlog of 128 KiB holds, written while a link is cut.
fn cut_and_flood(primary: &mut Connection, name: &str) {
    let script = "for i = 1, 8000 do redis.call('BF.ADD', KEYS[1], ARGV[1] .. i) end";
    assert_eq!(primary.run("MULTI"), ok());
    primary.run("CLIENT KILL TYPE replica");
    primary.call(&["EVAL", script, "1", "flood", name]);
    let reply = primary.run("EXEC");
    assert!(!reply.elements()[1].is_error(), "{reply:?}");
}

/// A fault on the link between a server and its replica.
fn disturb(rng: &mut Rng, upstream: &Server, replica: &Server, writable: bool) {
    let (mut above, mut below) = (upstream.connect(), replica.connect());
    match rng.below(6) {
        0 => drop(above.run("CLIENT KILL TYPE replica")),
        1 => drop(below.run("CLIENT KILL TYPE master")),
        2 => {
            eventually("REPLICAOF to be taken", || below.run("REPLICAOF NO ONE") == ok());
            below.run("CONFIG SET bf.max-filter-bytes 0");
            below.run("BF.ADD of-its-own x");
            thread::sleep(Duration::from_millis(rng.below(50)));
            follow(&mut below, upstream.port);
        }
        3 => drop(below.run(&format!("DEBUG SLEEP 0.{}", rng.below(3)))),
        4 if writable => cut_and_flood(&mut above, &rng.number().to_string()),
        _ => {
            let diskless = ["yes", "no"][rng.below(2) as usize];
            above.run(&format!("CONFIG SET repl-diskless-sync {diskless}"));
            above.run("CLIENT KILL TYPE replica");
        }
    }
    thread::sleep(Duration::from_millis(rng.below(150)));
}

/// Applies load to the first server and faults to the links `(upstream, replica)`, waits until all is idle, and compares all
/// servers.
fn stay_equal_under_load(what: &str, servers: &[Server], links: &[(usize, usize)], seed: u64) {
    for &(above, below) in links {
        follow(&mut servers[below].connect(), servers[above].port);
    }
    let stop = AtomicBool::new(false);
    let faults = effort(20);
    let commands: usize = thread::scope(|scope| {
        let stop = &stop;
        let writers: Vec<_> =
            (0..3).map(|worker| scope.spawn(move || write_until(&servers[0], seed * 100 + worker, stop))).collect();
        let end = StopAtEnd(stop);
        let mut rng = Rng::new(seed);
        for _ in 0..faults {
            let (above, below) = links[rng.below(links.len() as u64) as usize];
            disturb(&mut rng, &servers[above], &servers[below], above == 0);
        }
        drop(end);
        writers.into_iter().map(|writer| writer.join().expect("a writer without a fault")).sum()
    });

    let mut primary = servers[0].connect();
    // A cut of each kind is certain to occur: one that the backlog covers, and one that it does not.
    wait_for_expiries(&mut primary);
    for partial in [true, false] {
        for &(_, below) in links {
            catch_up(&mut primary, &mut servers[below].connect());
        }
        if partial {
            primary.pipeline(&["CLIENT KILL TYPE replica", "BF.ADD native-0 missed"]);
        } else {
            cut_and_flood(&mut primary, "last");
        }
    }
    for &(_, below) in links {
        let mut replica = servers[below].connect();
        catch_up(&mut primary, &mut replica);
        assert_equal(&format!("{what}, server {below}"), &mut primary, &mut replica);
        assert!(!servers[below].log().contains("== CRITICAL =="), "server {below} met a command that failed");
    }
    let [mut whole, mut partial] = [0, 0];
    for server in servers {
        let mut client = server.connect();
        whole += client.info_number("sync_full");
        partial += client.info_number("sync_partial_ok");
    }
    figures(&format!(
        "{what}: {commands} commands, {faults} faults injected, {whole} full and {partial} partial synchronisations"
    ));
    assert!(commands > 0 && whole > links.len() as i64 && partial > 0);
}

fn primary(program: &Path) -> Server {
    Server::with(program).line("repl-backlog-size 128kb").line("repl-diskless-sync yes").start()
}

#[test]
fn two_replicas_under_load_stay_equal() {
    on_every_server(|program| {
        let servers = [
            primary(program),
            contrary(program).line("repl-diskless-load swapdb").start(),
            contrary(program).line("bf.layout native").line("repl-diskless-load disabled").start(),
        ];
        stay_equal_under_load("side by side", &servers, &[(0, 1), (0, 2)], 1);
    });
}

#[test]
fn a_chain_of_replicas_under_load_stays_equal() {
    on_every_server(|program| {
        let servers = [
            primary(program),
            contrary(program).line("repl-backlog-size 128kb").line("repl-diskless-load swapdb").start(),
            contrary(program).line("repl-diskless-load swapdb").start(),
        ];
        stay_equal_under_load("in a chain", &servers, &[(0, 1), (1, 2)], 2);
    });
}

#[test]
fn a_partly_loaded_filter_is_replicated_across_cuts_of_every_kind() {
    on_every_server(|program| {
        let source = Server::start(program);
        let mut client = source.connect();
        let items: Vec<String> = (0..3000).map(|number| format!("item/{number}")).collect();
        client.run("BF.INSERT native CAPACITY 1000 EXPANSION 4000 ITEMS x");
        client.run("BF.INSERT redisbloom CAPACITY 10 EXPANSION 2 LAYOUT redisbloom ITEMS x");
        let mut cuts = 0;
        for key in ["native", "redisbloom"] {
            client.batched(&[b"BF.MADD", key.as_bytes()], &items);
            let records = records(&mut client, key);
            let digest = client.run(&format!("DEBUG DIGEST-VALUE {key}"));
            assert!(records.len() > 5, "{key}: {} records", records.len());
            for load in ["disabled", "swapdb"] {
                let server = primary(program);
                let other = contrary(program).line(&format!("repl-diskless-load {load}")).start();
                let (mut primary, mut replica) = (server.connect(), other.connect());
                follow(&mut replica, server.port);
                for (number, record) in records.iter().enumerate() {
                    assert_eq!(load_record(&mut primary, key, record), ok());
                    if number == records.len() - 1 {
                        break;
                    }
                    match number % 3 {
                        0 => drop(primary.run("CLIENT KILL TYPE replica")),
                        1 => cut_and_flood(&mut primary, &record.0.to_string()),
                        _ => continue,
                    }
                    cuts += 1;
                    catch_up(&mut primary, &mut replica);
                    assert_equal(key, &mut primary, &mut replica);
                    let reply = replica.run(&format!("BF.EXISTS {key} item/1"));
                    assert_eq!(reply, error("ERR filter is still being loaded"));
                }
                // The replica takes over with the complete filter.
                catch_up(&mut primary, &mut replica);
                assert_equal(key, &mut primary, &mut replica);
                assert_eq!(replica.run(&format!("DEBUG DIGEST-VALUE {key}")), digest);
                assert_eq!(replica.run("REPLICAOF NO ONE"), ok());
                assert_eq!(denied(&mut replica, key, &items), 0);
            }
        }
        figures(&format!("half a filter: {cuts} faults injected, cuts in the middle of a load"));
    });
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
        while rounds < effort(3) || while_loading == 0 {
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

// Changes of role: a killed primary, a failover on request under load, and a former primary that rejoins. The new primary has
// everything that WAIT confirmed.

/// The items of each layout's filter that must be found from now on.
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

/// Adds items and waits for the replica's confirmation until the server is gone.
fn add_until_killed(mut client: Connection, name: &str, kept: &Kept) {
    for number in 0.. {
        let layout = number % GROWING;
        let items: Vec<String> = (0..number % 20 + 1).map(|item| format!("{name}/{number}/{item}")).collect();
        let new = match client.try_call(&add(layout, &items)) {
            Ok(Reply::Array(answers)) => answers.iter().any(Reply::truth),
            Ok(other) => panic!("an add answered {other:?}"),
            Err(_) => return,
        };
        // If nothing was new, nothing was sent to the replica, and WAIT has nothing to wait for.
        if let Ok(Reply::Integer(1..)) = client.try_call(&["WAIT", "1", "1000"])
            && new
        {
            kept[layout].lock().unwrap().extend(items);
        }
    }
}

#[test]
fn adds_confirmed_by_wait_survive_a_killed_primary() {
    on_every_server(|program| {
        let mut servers = [Server::start(program), Server::start(program)];
        let kept = Kept::default();
        let mut rng = Rng::new(4);
        let (kills, mut checked) = (effort(8), 0);
        for round in 0..kills {
            let (first, second) = servers.split_at_mut(1);
            let (old, new) =
                if round % 2 == 0 { (&mut first[0], &mut second[0]) } else { (&mut second[0], &mut first[0]) };
            let mut replica = new.connect();
            // Before the first replica's link is up, WAIT may confirm writes that no replica has: the server starts counting with
            // its first replica.
            follow(&mut replica, old.port);
            catch_up(&mut old.connect(), &mut replica);
            let before: usize = kept.iter().map(|items| items.lock().unwrap().len()).sum();
            thread::scope(|scope| {
                for worker in 0..3 {
                    let (client, kept) = (old.connect(), &kept);
                    scope.spawn(move || add_until_killed(client, &format!("{round}/{worker}"), kept));
                }
                // The kill happens in the middle of a stream that a replica follows.
                let confirmed = || kept.iter().map(|items| items.lock().unwrap().len()).sum::<usize>();
                eventually("something to be confirmed", || confirmed() > before);
                thread::sleep(Duration::from_millis(rng.below(300)));
                old.stop(Stop::Kill);
            });
            assert_eq!(replica.run("REPLICAOF NO ONE"), ok());
            checked = assert_nothing_lost(&format!("round {round}"), &mut replica, &kept);

            // The former primary restarts empty, synchronises, and is promoted next.
            old.start_again();
            let mut former = old.connect();
            follow(&mut former, new.port);
            catch_up(&mut replica, &mut former);
            assert_equal("the former primary", &mut replica, &mut former);
        }
        figures(&format!("failover: {kills} kills survived, {checked} adds verified after the last"));
    });
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
        let hand_overs = effort(8);
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

// Leases of the guard on a node whose slots leave and come back. Rows that changed meanwhile on another node void them,
// whether the filter exists or not.

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
    let epoch = state(&mut target, "cluster_current_epoch");
    eventually("the source to know the epoch", || state(&mut source, "cluster_current_epoch") == epoch);
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
