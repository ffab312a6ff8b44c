//! `shards`: a sharded filter in a cluster of six nodes, while slots move and a primary is killed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::running::{Ended, run, run_while, run_with, send, start, url};
use testing::nodes::{Cluster, id, slot};
use testing::{Connection, Server, eventually, figures, integer, ok, on_every_server};

/// The arguments with which every command line begins.
fn cluster_words<'a>(words: &[&'a str], url: &'a str) -> Vec<&'a str> {
    [&["--cluster", "--url", url], words].concat()
}

fn shards(url: &str, words: &[&str]) -> Ended {
    run(cluster_words(&[&["shards"], words].concat(), url))
}

fn info(url: &str, name: &str) -> Vec<Value> {
    let text = shards(url, &["info", name, "--json"]).success().text();
    serde_json::from_str::<Value>(&text).unwrap()["shards"].as_array().unwrap().clone()
}

fn items(url: &str, name: &str) -> u64 {
    info(url, name).iter().map(|shard| shard["items"].as_u64().unwrap()).sum()
}

fn lines(numbers: std::ops::Range<u32>) -> String {
    numbers.map(|number| format!("https://example.org/{number}\n")).collect()
}

/// Returns the lines that are in the filter.
fn found(words: &[&str], name: &str, input: &str) -> usize {
    let words = [words, &["dedup", "--key", name, "--shards", "--lookup", "--seen"]].concat();
    run_with(words, input).success().text().lines().count()
}

#[test]
fn a_sharded_filter_is_created_filled_merged_copied_and_deleted() {
    on_every_server(|program| {
        let cluster = Cluster::start(program);
        let single = Server::start(program);
        let (url, there) = (url(&cluster.servers[0]), url(&single));
        shards(&url, &["create", "seen", "0.0001", "20000", "--shards", "12", "--", "SEED", "700"]).success();
        shards(&url, &["create", "seen", "0.0001", "20000", "--shards", "12"]).refused("already");
        let nodes: std::collections::HashSet<_> =
            info(&url, "seen").iter().map(|shard| shard["node"].to_string()).collect();
        assert_eq!(nodes.len(), 3, "{nodes:?}");

        let input = lines(0..10_000);
        let words = cluster_words(&["dedup", "--key", "seen", "--shards"], &url);
        let new = run_with(words.clone(), input.clone()).success().text();
        let distinct = items(&url, "seen");
        assert_eq!(new.lines().count() as u64, distinct);
        assert!(distinct > 9_980, "{distinct}");
        assert_eq!(run_with(words, input.clone()).success().text(), "");
        let ask = ["--cluster", "--url", &url];
        assert_eq!(found(&ask, "seen", &input), 10_000);
        assert!(found(&ask, "seen", &lines(10_000..20_000)) < 20);

        // After doubling, the shards have the same items.
        shards(&url, &["double", "seen"]).success();
        assert_eq!(info(&url, "seen").len(), 24);
        assert_eq!(found(&ask, "seen", &input), 10_000);

        shards(&url, &["create", "more", "0.0001", "20000", "--shards", "12", "--", "SEED", "700"]).success();
        shards(&url, &["double", "more"]).success();
        run_with(cluster_words(&["dedup", "--key", "more", "--shards"], &url), lines(10_000..11_000)).success();
        shards(&url, &["merge", "union", "seen", "more"]).success();
        assert_eq!(found(&ask, "union", &lines(0..11_000)), 11_000);
        shards(&url, &["create", "other", "0.0001", "20000", "--shards", "7"]).success();
        shards(&url, &["merge", "union", "other"]).refused("24");

        shards(&url, &["copy", "union", "--to", &there]).success();
        assert_eq!(found(&["--url", &there], "union", &lines(0..11_000)), 11_000);
        shards(&url, &["copy", "union", "--to", &there]).refused("already");

        // A missing shard is an error, not an empty shard.
        assert_eq!(client_of(&cluster, "union:{3}").run("DEL union:{3}").number(), 1);
        shards(&url, &["info", "union"]).refused("union:{3}");
        run_with(cluster_words(&["dedup", "--key", "union", "--shards"], &url), "a\n").refused("union:{3}");
        shards(&url, &["delete", "union"]).success();
        shards(&url, &["info", "union"]).refused("union:shards");
        assert_eq!(client_of(&cluster, "union:{4}").run("EXISTS union:{4}").number(), 0);
    });
}

/// Returns a client of the primary that holds the key.
fn client_of(cluster: &Cluster, key: &str) -> Connection {
    cluster.servers[primary_of(cluster, slot(key))].connect()
}

#[test]
fn no_line_is_lost_while_slots_move_and_a_primary_is_killed() {
    on_every_server(|program| {
        let mut cluster = Cluster::start(program);
        let url = url(&cluster.servers[0]);
        shards(&url, &["create", "seen", "0.0001", "400000", "--shards", "16"]).success();
        let input = lines(0..300_000);
        let is_killed = Arc::new(AtomicBool::new(false));
        let stream = {
            let (input, is_killed) = (input.clone(), Arc::clone(&is_killed));
            let words = cluster_words(&["dedup", "--key", "seen", "--shards"], &url);
            let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
            thread::spawn(move || run_while(&words, &input, &is_killed))
        };
        eventually("the first lines", || items(&url, "seen") > 0);
        let mut moved = 0;
        for shard in 0..8 {
            moved += move_slot(&cluster, slot(&format!("{{{shard}}}")));
        }
        assert!(moved >= 8, "{moved} keys were moved");
        // Its replica takes over, and must have the shards that have just migrated.
        let victim = primary_of(&cluster, slot("{9}"));
        let mut client = cluster.servers[victim].connect();
        assert_eq!(client.run("SET {9}:mark 1"), ok());
        assert_eq!(client.run("WAIT 1 60000"), integer(1));
        cluster.set_node_timeout(Duration::from_millis(1500));
        cluster.servers[victim].stop(testing::Stop::Kill);
        is_killed.store(true, SeqCst);
        let ended = stream.join().unwrap().success();
        let mut written: HashMap<&str, u32> = HashMap::new();
        let text = ended.text();
        text.lines().for_each(|line| *written.entry(line).or_default() += 1);
        let lost = input.lines().filter(|line| !written.contains_key(line)).count();
        // The remaining lines are false positives.
        assert!(lost < 100, "{lost} of 300000 lines did not come out");
        let twice = written.values().filter(|times| **times > 1).count();
        figures(&format!("{moved} keys moved and a primary killed: {lost} lines taken for seen, {twice} out twice"));
    });
}

/// Returns the index of the server that is the primary of a slot.
fn primary_of(cluster: &Cluster, slot: u16) -> usize {
    let mut found = None;
    eventually("a slot to have a primary", || {
        found = (0..cluster.servers.len()).find(|number| {
            let mut client = cluster.servers[*number].connect();
            let reply = client.run("CLUSTER SLOTS");
            let own = i64::from(cluster.servers[*number].port);
            client.info("role") == "master"
                && reply.elements().iter().any(|run| {
                    let run = run.elements();
                    let holds = (run[0].number()..=run[1].number()).contains(&i64::from(slot));
                    holds && run[2].elements()[1].number() == own
                })
        });
        found.is_some()
    });
    found.unwrap()
}

/// Moves a slot with its keys to the next primary. Returns the number of keys.
fn move_slot(cluster: &Cluster, slot: u16) -> usize {
    let primaries: Vec<usize> = [0, 5461, 10_923].map(|slot| primary_of(cluster, slot)).to_vec();
    let from = primary_of(cluster, slot);
    let to = *primaries.iter().find(|number| **number != from).unwrap();
    let (mut source, mut target) = (cluster.servers[from].connect(), cluster.servers[to].connect());
    let (from_id, to_id) = (id(&cluster.servers[from]), id(&cluster.servers[to]));
    assert_eq!(target.run(&format!("CLUSTER SETSLOT {slot} IMPORTING {from_id}")), ok());
    assert_eq!(source.run(&format!("CLUSTER SETSLOT {slot} MIGRATING {to_id}")), ok());
    let mut moved = 0;
    loop {
        let reply = source.run(&format!("CLUSTER GETKEYSINSLOT {slot} 1"));
        let [key] = reply.elements() else { break };
        let port = cluster.servers[to].port.to_string();
        let words: [&[u8]; 6] = [b"MIGRATE", b"127.0.0.1", port.as_bytes(), key.bytes(), b"0", b"60000"];
        assert_eq!(source.call(&words), ok());
        moved += 1;
    }
    thread::sleep(Duration::from_millis(50));
    for client in [&mut target, &mut source] {
        assert_eq!(client.run(&format!("CLUSTER SETSLOT {slot} NODE {to_id}")), ok());
    }
    moved
}

/// Without the clean-up, the next copy would be refused, because the name is taken.
#[test]
fn a_signal_undoes_a_copy() {
    on_every_server(|program| {
        let (from, to) = (Server::start(program), Server::start(program));
        let (from_url, to_url) = (url(&from), url(&to));
        run(["shards", "create", "many", "0.01", "1000", "--shards", "3", "--url", &from_url]).success();
        let mut there = to.connect();
        there.run("CLIENT PAUSE 100000 WRITE");
        let words = ["shards", "copy", "many", "--to", &to_url, "--url", &from_url];
        let child = start(words);
        // It has finished its reads, and waits to claim the name.
        eventually("the claim", || there.run("CLIENT LIST").text().contains("cmd=set"));
        send("STOP", from.process_id());
        there.run("CLIENT UNPAUSE");
        eventually("the name", || there.run("EXISTS many:shards").number() == 1);
        send("INT", child.id());
        send("CONT", from.process_id());
        Ended::from(child.wait_with_output().unwrap()).interrupted("INT", "what was done is undone");
        assert_eq!(there.run("DBSIZE").number(), 0);
        run(words).success();
    });
}
