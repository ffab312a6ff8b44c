//! A cluster of three primaries and three replicas under load: slots move back and forth, a primary is killed and its replica
//! takes over, and no add that a replica confirmed is lost.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::{LAYOUTS, StopAtEnd, assert_equal, catch_up, effort};
use testing::nodes::{Client, Cluster, PATIENT, slot};
use testing::{Connection, Reply, Rng, Stop, eventually, figures, integer, ok, on_every_server};

/// The number of slots that one `redis-cli --cluster reshard` moves.
const RESHARDED: u16 = 200;

/// Keys in all parts of the slot range, and some in the slots that a reshard moves first.
fn keys() -> Vec<(String, usize)> {
    let mut keys = Vec::new();
    for (layout, (name, _)) in LAYOUTS.iter().enumerate() {
        keys.extend((0..30).map(|number| (format!("{name}:{number}"), layout)));
        let low = (30..).map(|number| format!("{name}:{number}")).filter(|key| slot(key) < RESHARDED);
        keys.extend(low.take(4).map(|key| (key, layout)));
    }
    keys
}

/// The results of a writer: the confirmed items of each key, and the redirections and errors it met.
#[derive(Default)]
struct Work {
    confirmed: HashMap<String, Vec<String>>,
    unconfirmed: usize,
    moved: usize,
    again: usize,
}

/// Adds to filters all over the cluster until `stop`, confirming each add with WAIT if possible.
fn add_until_stopped(mut client: Client, name: &str, stop: &AtomicBool, confirmations: &Mutex<usize>) -> Work {
    let keys = keys();
    let mut rng = Rng::new(name.len() as u64 + u64::from(name.as_bytes()[0]));
    let mut work = Work::default();
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let (key, layout) = &keys[rng.below(keys.len() as u64) as usize];
        let items: Vec<String> = (0..1 + rng.below(10)).map(|item| format!("{name}/{number}/{item}")).collect();
        let mut words = vec!["BF.INSERT", key, "CAPACITY", "100"];
        words.extend(LAYOUTS[*layout].1.iter().chain(&["ITEMS"]));
        words.extend(items.iter().map(String::as_str));
        let (reply, port) = client.call(key, &words);
        // If nothing was new (the reply was lost, but not the add), WAIT has nothing to wait for.
        let new = reply.elements().iter().any(Reply::truth);
        let confirmed = client.try_on(port, false, &["WAIT", "1", "500"]);
        if new && matches!(confirmed, Ok(Reply::Integer(1..))) {
            work.confirmed.entry(key.clone()).or_default().extend(items);
            *confirmations.lock().unwrap() += 1;
        } else {
            work.unconfirmed += items.len();
        }
    }
    (work.moved, work.again) = (client.moved, client.again);
    work
}

/// Moves a slot with all its keys from one primary to another, following the cluster's documentation. Writers get ASK
/// meanwhile.
fn move_slot(cluster: &Cluster, slot: u16, from: usize, to: usize) -> usize {
    let mut clients: Vec<Connection> = cluster.primaries().iter().map(|&n| cluster.servers[n].connect()).collect();
    let (mut source, mut target) = (cluster.servers[from].connect(), cluster.servers[to].connect());
    let ids = [&mut source, &mut target].map(|client| client.run("CLUSTER MYID").text());
    assert_eq!(target.run(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", ids[0])), ok());
    assert_eq!(source.run(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", ids[1])), ok());
    let port = cluster.servers[to].port.to_string();
    let mut moved = 0;
    loop {
        let reply = source.run(&format!("CLUSTER GETKEYSINSLOT {slot} 1"));
        let [key] = reply.elements() else { break };
        let words: [&[u8]; 6] = [b"MIGRATE", b"127.0.0.1", port.as_bytes(), key.bytes(), b"0", b"60000"];
        assert_eq!(source.call(&words), ok());
        moved += 1;
    }
    let before = cluster.asked.load(Ordering::Relaxed);
    eventually("a writer to be sent on", || cluster.asked.load(Ordering::Relaxed) > before);
    assert_eq!(target.run(&format!("CLUSTER SETSLOT {slot} NODE {}", ids[1])), ok());
    for client in &mut clients {
        assert_eq!(client.run(&format!("CLUSTER SETSLOT {slot} NODE {}", ids[1])), ok());
    }
    moved
}

/// Returns the index of the primary that owns the slot.
fn owner(cluster: &Cluster, slot: u16) -> usize {
    let reply = cluster.servers[cluster.primaries()[0]].connect().run("CLUSTER SLOTS");
    let range = reply.elements().iter().find(|range| {
        let [from, to, ..] = range.elements() else { panic!("{range:?}") };
        (from.number()..=to.number()).contains(&i64::from(slot))
    });
    let port = range.expect("a range with the slot").elements()[2].elements()[1].number();
    cluster.servers.iter().position(|server| i64::from(server.port) == port).expect("a server of ours")
}

/// Moves slots back and forth: single slots that hold filters, and many at once with the server's own tool.
fn move_slots(cluster: &Cluster, round: usize) -> (usize, usize) {
    let (mut slots, mut filters) = (0, 0);
    for (key, _) in keys().iter().skip(round % 5).step_by(9) {
        let (slot, primaries) = (slot(key), cluster.primaries());
        let from = owner(cluster, slot);
        let to = *primaries.iter().find(|&&number| number != from).unwrap();
        filters += move_slot(cluster, slot, from, to);
        filters += move_slot(cluster, slot, to, from);
        slots += 2;
    }
    let low = keys().into_iter().map(|(key, _)| slot(&key)).filter(|&slot| slot < RESHARDED).min().unwrap();
    let from = owner(cluster, low);
    let to = *cluster.primaries().iter().find(|&&number| number != from).unwrap();
    let ids = [from, to].map(|number| cluster.servers[number].connect().run("CLUSTER MYID").text());
    let entry = format!("127.0.0.1:{}", cluster.servers[from].port);
    for [from, to] in [[&ids[0], &ids[1]], [&ids[1], &ids[0]]] {
        cluster.wait_for_agreement();
        let many = RESHARDED.to_string();
        cluster.manage(&["reshard", &entry, "--cluster-from", from, "--cluster-to", to, "--cluster-slots", &many]);
        slots += usize::from(RESHARDED);
    }
    (slots, filters)
}

/// Kills a primary whose replica is up to date, and restarts it as a replica.
fn fail_over(cluster: &mut Cluster, victim: usize, confirmations: &Mutex<usize>) {
    for primary in cluster.primaries() {
        // Keys moved by MIGRATE were confirmed on the source; here they must first reach the replica.
        let replica = cluster.replica_of(primary);
        let goal = cluster.servers[primary].connect().info_number("master_repl_offset");
        let mut replica = cluster.servers[replica].connect();
        eventually("the replica to have what was moved", || replica.info_number("slave_repl_offset") >= goal);
    }
    let replica = cluster.replica_of(victim);
    cluster.set_node_timeout(Duration::from_secs(2));
    cluster.servers[victim].stop(Stop::Kill);
    let mut heir = cluster.servers[replica].connect();
    eventually("the replica to take over", || heir.info("role") == "master");
    cluster.set_node_timeout(PATIENT);
    let before = *confirmations.lock().unwrap();
    eventually("adds to be confirmed again", || *confirmations.lock().unwrap() > before);
    cluster.servers[victim].start_again();
    let mut former = cluster.servers[victim].connect();
    eventually("the former primary to follow", || {
        former.info("role") == "slave" && former.info("master_link_status") == "up"
    });
    cluster.wait_for_agreement();
}

#[test]
fn slot_moves_and_kills_lose_no_confirmed_add() {
    on_every_server(|program| {
        let mut cluster = Cluster::start(program);
        let (stop, confirmations) = (AtomicBool::new(false), Mutex::new(0));
        let (mut slots, mut filters) = (0, 0);
        let kills = effort(1);
        let works: Vec<Work> = thread::scope(|scope| {
            let workers: Vec<_> = ["a", "b", "c"]
                .into_iter()
                .map(|name| {
                    let (client, stop, confirmations) = (cluster.client(), &stop, &confirmations);
                    scope.spawn(move || add_until_stopped(client, name, stop, confirmations))
                })
                .collect();
            let end = StopAtEnd(&stop);
            for round in 0..kills {
                let moved = move_slots(&cluster, round);
                (slots, filters) = (slots + moved.0, filters + moved.1);
                let primaries = cluster.primaries();
                fail_over(&mut cluster, primaries[round % primaries.len()], &confirmations);
            }
            let moved = move_slots(&cluster, kills);
            (slots, filters) = (slots + moved.0, filters + moved.1);
            drop(end);
            workers.into_iter().map(|worker| worker.join().expect("a writer without a fault")).collect()
        });

        let mut client = cluster.client();
        let (mut verified, mut lost) = (0, Vec::new());
        for (key, items) in works.iter().flat_map(|work| &work.confirmed) {
            for some in items.chunks(500) {
                let words: Vec<&str> = ["BF.MEXISTS", key].into_iter().chain(some.iter().map(String::as_str)).collect();
                let reply = client.call(key, &words).0;
                let absent = some.iter().zip(reply.elements()).filter(|(_, answer)| !answer.truth());
                lost.extend(absent.map(|(item, _)| (key.clone(), item.clone())));
                verified += some.len();
            }
        }
        let sum = |count: fn(&Work) -> usize| works.iter().map(count).sum::<usize>();
        let (moved, again) = (sum(|work| work.moved), sum(|work| work.again));
        let asked = cluster.asked.load(Ordering::Relaxed);
        let unconfirmed = sum(|work| work.unconfirmed);
        figures(&format!(
            "cluster: {kills} kills survived, {slots} slots moved, {filters} filters in those that were moved one by \
             one, {verified} adds verified, {unconfirmed} unconfirmed, {moved} MOVED, {asked} ASK, {again} again"
        ));
        assert!(lost.is_empty(), "{} lost, such as {:?}", lost.len(), lost[0]);
        assert!(verified > 0 && filters > 0 && moved > 0 && asked > 0);

        let mut total = 0;
        for number in cluster.primaries() {
            let mut primary = cluster.servers[number].connect();
            let mut replica = cluster.servers[cluster.replica_of(number)].connect();
            catch_up(&mut primary, &mut replica);
            assert_eq!(replica.run("READONLY"), ok(), "else it sends readers to its primary");
            assert_equal(&format!("server {number}"), &mut primary, &mut replica);
            total += primary.run("DBSIZE").number();
        }
        assert_eq!(integer(total), integer(keys().len() as i64), "each filter is in one place");
    });
}
