//! CLUSTER MIGRATESLOTS of Valkey 9: a child of the source sends the keys as commands, the target executes them while it
//! serves clients, and takes over the slots once it has everything. A node takes part only if each of its modules declares
//! support.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::{LAYOUTS, StopAtEnd, catch_up, effort, load_chunk, scan_dump};
use testing::nodes::{Client, SLOTS, add_replica, id, pair, slot, state};
use testing::{
    Connection, Server, Stop, Version, array, error, eventually, figures, integer, ok, on_every_server, on_servers_with,
};

const WHAT: &str = "CLUSTER MIGRATESLOTS (Valkey 9)";

fn has_it(program: &Path) -> bool {
    Version::of(program).migrates_slots()
}

/// The hash tag in the names of all keys here, so that they share a slot.
const TAG: &str = "{moved}";

/// Migrates slots to another node and waits until that is done.
pub fn migrate(from: &Server, to: &Server, first: u16, last: u16) {
    let mut source = from.connect();
    let line = format!("CLUSTER MIGRATESLOTS SLOTSRANGE {first} {last} NODE {}", id(to));
    assert_eq!(source.run(&line), ok());
    // The target declares itself the owner first, and may accept writes before the source knows.
    for mut client in [source, to.connect()] {
        eventually("the slots to be taken over", || {
            let reply = client.run("CLUSTER GETSLOTMIGRATIONS");
            // The newest migration is listed first.
            let state = reply.elements()[0].field("state").text();
            assert!(!["failed", "cancelled"].contains(&state.as_str()), "{reply:?}");
            state == "success"
        });
    }
}

/// Creates a filter of each layout with several layers, and a partly loaded filter. Returns the remaining records of the
/// latter.
fn make_filters(client: &mut Connection) -> (Vec<String>, Vec<(String, Vec<u8>)>) {
    let mut keys = Vec::new();
    for (name, words) in LAYOUTS {
        let key = format!("{name}{TAG}");
        let items: Vec<String> = (0..5000).map(|number| format!("{name}/{number}")).collect();
        let mut head = vec!["BF.INSERT", &key, "CAPACITY", "500"];
        head.extend(words.iter().chain(&["ITEMS"]));
        client.batched(&head.iter().map(|word| word.as_bytes()).collect::<Vec<_>>(), &items);
        keys.push(key);
    }
    let (whole, arriving) = (format!("whole{TAG}"), format!("arriving{TAG}"));
    client.run(&format!("BF.RESERVE {whole} 0.01 3000000"));
    let items: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
    client.batched(&[b"BF.MADD", whole.as_bytes()], &items);
    let mut records = Vec::new();
    scan_dump(client, &whole, |_, iterator, data| records.push((iterator.to_owned(), data.to_vec())));
    assert!(records.len() > 3, "{} records", records.len());
    let rest = records.split_off(2);
    for (iterator, data) in &records {
        load_chunk(client, &arriving, iterator, data);
    }
    let (ring, rolling) = (format!("ring{TAG}"), format!("rolling{TAG}"));
    client.run(&format!("BF.RESERVE {ring} 0.01 1000 WINDOW 10000 SLIDING"));
    client.run(&format!("BF.RESERVE {rolling} 0.01 700 ROLLING HASH siphash"));
    for _ in 0..3 {
        client.run(&format!("BF.ROTATE {ring}"));
        for key in [&ring, &rolling] {
            client.batched(&[b"BF.MADD", key.as_bytes()], &items);
        }
    }
    keys.extend([whole, ring, rolling, arriving]);
    for key in &keys {
        assert_eq!(client.run(&format!("EXPIRE {key} 5000")), integer(1));
    }
    (keys, rest)
}

#[test]
fn only_valkey_nodes_with_the_module_take_part_in_slot_migrations() {
    on_every_server(|program| {
        let server = Server::start(program);
        let text = server.connect().run("INFO modules").text();
        let line = text.lines().find(|line| line.starts_with("module:name=bf,")).expect("the module's line");
        let (_, options) = line.split_once("options=[").expect("its options");
        let mut expected = "handle-io-errors|handle-repl-async-load|no-implicit-signal-modified".to_owned();
        if Version::of(program).migrates_slots() {
            expected += "|handle-atomic-slot-migration";
        }
        // If a bit had another meaning for a server, its name would be here.
        assert_eq!(options.trim_end_matches(']'), expected);
    });
}

#[test]
#[ignore = "needs CLUSTER MIGRATESLOTS, of Valkey 9"]
fn slot_migration_copies_every_filter_and_partly_loaded_ones() {
    on_servers_with(WHAT, has_it, |program| {
        // The target has other settings, and a limit for its clients below every filter here.
        let mut servers = pair(program, |target| {
            target
                .module_words("ERROR_RATE 0.2 INITIAL_SIZE 7")
                .line("bf.expansion-factor 0")
                .line("bf.layout redisbloom")
                .line("bf.max-filter-bytes 500")
                .line("appendonly yes")
        });
        let replica = add_replica(program, &servers[1]);
        let [mut here, mut there] = servers.each_ref().map(Server::connect);
        let (keys, rest) = make_filters(&mut here);
        let shown = |client: &mut Connection, key: &str| {
            [format!("DEBUG DIGEST-VALUE {key}"), format!("TYPE {key}"), format!("BF.CARD {key}")]
                .map(|line| client.run(&line))
        };
        let objects = here.gauge("num_objects");
        let before: Vec<_> = keys.iter().map(|key| shown(&mut here, key)).collect();

        let slot = slot(TAG);
        migrate(&servers[0], &servers[1], slot, slot);
        for (key, before) in keys.iter().zip(&before) {
            let after = shown(&mut there, key);
            assert_eq!(&after, before, "{key}");
            let left = there.run(&format!("TTL {key}")).number();
            assert!((1..=5000).contains(&left), "{key} lives for {left} s");
            assert!(here.run(&format!("BF.CARD {key}")).error_text().starts_with("MOVED "));
        }
        eventually("the source to have freed its filters", || here.gauge("num_objects") == 0);
        assert_eq!(there.gauge("num_objects"), objects);

        // The target's replica and its append-only file get the filters from it.
        let mut follower = replica.connect();
        follower.run("READONLY");
        catch_up(&mut there, &mut follower);
        for (key, before) in keys.iter().zip(&before) {
            assert_eq!(&shown(&mut follower, key), before, "{key} on the replica");
        }
        servers[1].restart(Stop::Kill);
        let mut there = servers[1].connect();
        eventually("the target to serve again", || state(&mut there, "cluster_state") == "ok");
        for (key, before) in keys.iter().zip(&before) {
            assert_eq!(&shown(&mut there, key), before, "{key} after a restart");
        }

        let arriving = keys.last().expect("keys");
        assert_eq!(there.run(&format!("BF.ADD {arriving} x")), error("ERR filter is still being loaded"));
        for (iterator, data) in &rest {
            load_chunk(&mut there, arriving, iterator, data);
        }
        assert_eq!(shown(&mut there, arriving)[0], before[LAYOUTS.len()][0], "the whole, of which it is a dump");
        let left = there.run(&format!("TTL {arriving}")).number();
        assert!((1..=5000).contains(&left), "{arriving} lives for {left} s");
    });
}

#[test]
#[ignore = "needs CLUSTER MIGRATESLOTS, of Valkey 9"]
fn no_add_is_lost_while_slots_migrate() {
    on_servers_with(WHAT, has_it, |program| {
        let servers = pair(program, |target| target);
        for server in &servers {
            // Otherwise a node without slots becomes a replica of the one that has them.
            assert_eq!(server.connect().run("CONFIG SET cluster-allow-replica-migration no"), ok());
        }
        let mut client = servers[0].connect();
        for (name, words) in LAYOUTS {
            // Megabytes, so that the source takes a while to send them and adds arrive meanwhile.
            let line = format!("BF.INSERT {name}{TAG} CAPACITY 3000000 {} ITEMS first", words.join(" "));
            assert_eq!(client.run(&line.replace("  ", " ")), array([integer(1)]));
        }
        let stop = AtomicBool::new(false);
        let (count, rounds) = (AtomicUsize::new(0), effort(6));
        let works: Vec<(Vec<String>, usize)> = thread::scope(|scope| {
            let workers: Vec<_> = (0..2)
                .map(|worker| {
                    let (servers, stop, count) = (&servers, &stop, &count);
                    scope.spawn(move || add_until_stopped(Client::of(servers), worker, stop, count))
                })
                .collect();
            let end = StopAtEnd(&stop);
            for round in 0..rounds {
                let (from, to) = (&servers[round % 2], &servers[1 - round % 2]);
                migrate(from, to, 0, SLOTS - 1);
                let before = count.load(Ordering::Relaxed);
                eventually("adds to go on", || count.load(Ordering::Relaxed) > before + 100);
            }
            drop(end);
            workers.into_iter().map(|worker| worker.join().expect("a writer without a fault")).collect()
        });
        let mut client = servers[rounds % 2].connect();
        let items: Vec<&String> = works.iter().flat_map(|(items, _)| items).collect();
        for (name, _) in LAYOUTS {
            let found = client.batched(&[b"BF.MEXISTS", format!("{name}{TAG}").as_bytes()], &items);
            let lost = found.iter().filter(|&&present| !present).count();
            assert_eq!(lost, 0, "{name} lost some of {}", items.len());
        }
        let moved: usize = works.iter().map(|(_, moved)| moved).sum();
        assert!(moved > 0, "no writer was sent on");
        let verified = 3 * items.len();
        figures(&format!("slot migration: {rounds} migrations, {verified} adds verified, {moved} MOVED"));
    });
}

/// Adds items to a filter of each layout, wherever it is. Returns the replies and the number of redirections.
fn add_until_stopped(
    mut client: Client,
    worker: usize,
    stop: &AtomicBool,
    count: &AtomicUsize,
) -> (Vec<String>, usize) {
    let mut items = Vec::new();
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let item = format!("{worker}/{number}");
        for (name, _) in LAYOUTS {
            let key = format!("{name}{TAG}");
            let (reply, _) = client.call(&key, &["BF.ADD", &key, &item]);
            assert!(!reply.is_error(), "{reply:?}");
        }
        items.push(item);
        count.fetch_add(1, Ordering::Relaxed);
    }
    (items, client.moved)
}
