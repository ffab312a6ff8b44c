//! Section 2 of MIGRATING.md: a server with RedisBloom is replaced by its replica with bloomgate while clients write, and later replaces
//! it.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::{Peer, Side, beside_redisbloom};
use crate::fleet::{StopAtEnd, follow};
use testing::{Connection, Reply, Server, catch_up, eventually, figures, integer, ok};

/// The acknowledged items of each filter.
type Kept = Mutex<BTreeMap<String, Vec<String>>>;

/// Adds to whichever server accepts writes, often to a filter that is missing.
fn add_until_stopped(servers: [&Server; 2], name: usize, stop: &AtomicBool, refused: &AtomicUsize, kept: &Kept) {
    let mut clients = servers.map(Server::connect);
    let mut current = 0;
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let key = if number % 2 == 0 { "common".to_owned() } else { format!("{name}/{}", number / 20) };
        let items: Vec<String> = (0..=number % 4).map(|item| format!("{name}/{number}/{item}")).collect();
        let command = if items.len() == 1 { "BF.ADD" } else { "BF.MADD" };
        let words: Vec<&str> = [command, &key].into_iter().chain(items.iter().map(String::as_str)).collect();
        while let Reply::Error(text) = clients[current].call(&words) {
            assert!(text.starts_with("READONLY"), "{text}");
            refused.fetch_add(1, Ordering::Relaxed);
            current = 1 - current;
        }
        kept.lock().unwrap().entry(key).or_default().extend(items);
    }
}

fn assert_nothing_lost(occasion: &str, client: &mut Connection, kept: &Kept) -> usize {
    let kept = kept.lock().unwrap();
    for (key, items) in kept.iter() {
        let found = client.batched(&[b"BF.MEXISTS", key.as_bytes()], items);
        assert!(!found.contains(&false), "{occasion}: {key} lost some of {} items", items.len());
    }
    kept.values().map(Vec::len).sum()
}

fn fail_over(from: &mut Connection, to: &mut Connection, port: u16) {
    eventually("the replica to be online", || from.run("INFO replication").text().contains("state=online"));
    assert_eq!(from.run(&format!("FAILOVER TO 127.0.0.1 {port} TIMEOUT 10000")), ok());
    eventually("the roles to change", || {
        to.info("role") == "master" && from.info("role") == "slave" && from.info("master_link_status") == "up"
    });
}

/// Migrates from RedisBloom to bloomgate and back, while clients write. `lines` are in the new server's configuration.
fn move_there_and_back(peer: &Peer, lines: &[&str]) {
    let (old, new) = (peer.with(Side::Theirs).start(), peer.with(Side::Ours).line("propagation-error-behavior panic"));
    let new = lines.iter().fold(new, |builder, line| builder.line(line)).start();
    let (mut theirs, mut ours) = (old.connect(), new.connect());
    let (stop, refused, kept) = (AtomicBool::new(false), AtomicUsize::new(0), Kept::default());
    thread::scope(|scope| {
        for name in 0..3 {
            let (servers, stop, refused, kept) = ([&old, &new], &stop, &refused, &kept);
            scope.spawn(move || add_until_stopped(servers, name, stop, refused, kept));
        }
        let _end = StopAtEnd(&stop);
        follow(&mut ours, old.port);
        for turn in 0..3 {
            let before = refused.load(Ordering::Relaxed);
            if turn % 2 == 0 {
                fail_over(&mut theirs, &mut ours, new.port);
            } else {
                fail_over(&mut ours, &mut theirs, old.port);
            }
            eventually("a writer to follow", || refused.load(Ordering::Relaxed) > before);
            thread::sleep(Duration::from_millis(100));
        }
    });
    catch_up(&mut ours, &mut theirs);
    let occasion = format!("RedisBloom {}, {lines:?}", peer.major);
    let checked = assert_nothing_lost(&format!("{occasion}: the new server"), &mut ours, &kept);
    assert_nothing_lost(&format!("{occasion}: the old server"), &mut theirs, &kept);
    assert_eq!(theirs.info_number("unexpected_error_replies"), 0, "{occasion}");
    figures(&format!("move from RedisBloom {}: 3 failovers, {checked} adds verified", peer.major));
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn a_move_from_redisbloom_and_back_loses_no_acknowledged_add() {
    beside_redisbloom(|peer| {
        move_there_and_back(peer, &["bf.layout redisbloom"]);
        move_there_and_back(peer, &[]);
    });
}

/// Keys of RedisBloom's other types that are created after the replica has synchronised.
#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn a_replica_exits_rather_than_drop_keys_of_redisblooms_other_types() {
    beside_redisbloom(|peer| {
        for line in ["CMS.INITBYDIM k 9 9", "TOPK.RESERVE k 5", "TDIGEST.CREATE k"] {
            let old = peer.with(Side::Theirs).start();
            let mut new = peer.with(Side::Ours).line("propagation-error-behavior panic").start();
            let mut client = old.connect();
            // Without permission, no such key is created.
            let commands = client.run("COMMAND LIST FILTERBY MODULE bf");
            let rules = commands
                .elements()
                .iter()
                .map(Reply::text)
                .filter(|name| !name.starts_with("bf.") && !name.starts_with("cf."));
            let rules: Vec<String> = rules.map(|name| format!("-{name}")).collect();
            assert_eq!(client.run(&format!("ACL SETUSER default {}", rules.join(" "))), ok());
            assert!(client.run(line).error_text().starts_with("NOPERM"), "{line}");
            assert_eq!(client.run("BF.ADD filter x"), integer(1));
            assert_eq!(client.run(&format!("ACL SETUSER default {}", rules.join(" ").replace('-', "+"))), ok());

            let mut replica = new.connect();
            follow(&mut replica, old.port);
            catch_up(&mut client, &mut replica);
            assert!(!client.run(line).is_error(), "{line}");
            eventually("the replica to exit", || new.log().contains("This replica panicked sending an error to its"));
            new.end();
        }
    });
}
