//! `backup` and `restore` of sharded filters: one command copies the whole filter.

use crate::backup::{Files, backup, keys, restore};
use crate::cluster::three_nodes;
use crate::running::{run, run_with, url};
use testing::{Connection, Server, integer, ok, on_every_server};

const COUNT: usize = 5000;

fn lines() -> String {
    (0..COUNT).map(|number| format!("{number}\n")).collect()
}

/// Creates the filter `name` and adds all lines.
fn fill(reach: &[&str], name: &str, shards: &str) {
    run([&["shards"], reach, &["create", name, "1e-9", "10000", "--shards", shards]].concat()).success();
    run_with([&["dedup", "--key", name, "--shards"], reach].concat(), lines()).success();
}

/// Asserts that the filter can be opened and has all lines.
#[track_caller]
fn is_whole(reach: &[&str], name: &str) {
    let words = [&["dedup", "--key", name, "--shards", "--seen", "--dry-run"], reach].concat();
    assert!(run_with(words, lines()).success().text() == lines(), "{name}");
}

#[test]
fn a_sharded_filter_is_backed_up_whole_by_name_and_by_pattern() {
    on_every_server(|program| {
        let (nodes, files) = (three_nodes(program), Files::new());
        let (url, file) = (url(&nodes[0]), files.path("file").display().to_string());
        let reach = ["--cluster", "--url", &url];
        for words in [vec!["seen"], vec!["--match", "seen:*"], vec!["--all"]] {
            fill(&reach, "seen", "6");
            let backed = run([&["backup", "-o", &file], &words[..], &reach].concat()).success().text();
            assert!(backed.contains("seen is complete: 6 shards") && backed.contains("6 filters in"), "{backed}");
            let mut clients = nodes.each_ref().map(Server::connect);
            clients.iter_mut().for_each(|client| assert_eq!(client.run("FLUSHALL"), ok()));
            let restored = run([&["restore", &file], &reach[..]].concat()).success().text();
            assert!(restored.contains("seen is complete: 6 shards"), "{restored}");
            is_whole(&reach, "seen");
            assert_eq!(clients.iter_mut().map(keys).sum::<usize>(), 7);
            clients.iter_mut().for_each(|client| assert_eq!(client.run("FLUSHALL"), ok()));
        }
    });
}

#[test]
fn a_sharded_filter_is_selected_renamed_and_listed_as_one() {
    on_every_server(|program| {
        let (server, files) = (Server::start(program), Files::new());
        let (mut client, file, url) = (server.connect(), files.path("file"), url(&server));
        let reach = ["--url", &*url];
        fill(&reach, "seen", "3");
        client.run("BF.ADD plain a");
        client.run("SET clock:shards 5");
        client.run("SET other:shards text");
        client.run("EXPIRE seen:shards 100000");
        backup(&server, &["--all", "--verify"], &file).success();
        let listed = run(["restore", "--dry-run", "--json", file.to_str().unwrap()]).success().text();
        let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
        assert_eq!(listed["sharded"], serde_json::json!([{ "name": "seen", "shards": 3 }]));
        assert_eq!(listed["filters"].as_array().unwrap().len(), 4);
        restore(&server, &["--key", "seen=old=er"], &file).success();
        is_whole(&reach, "old=er");
        assert!((99_000..=100_000).contains(&client.run("TTL old=er:shards").number()));
        restore(&server, &["--key", "seen"], &file).refused("`seen:{0}`");
        restore(&server, &["--key", "seen:shards"], &file).refused("has no filter `seen:shards`");
        // A single shard is restored like any other filter.
        restore(&server, &["--key", "seen:{1}=one"], &file).success();
        assert_eq!(client.run("BF.CARD one"), client.run("BF.CARD seen:{1}"));
        restore(&server, &["--replace"], &file).success();
        is_whole(&reach, "seen");
    });
}

#[test]
fn a_filter_with_a_different_number_of_shards_is_not_replaced() {
    on_every_server(|program| {
        let (server, files) = (Server::start(program), Files::new());
        let (mut client, file, url) = (server.connect(), files.path("file"), url(&server));
        let reach = ["--url", &*url];
        fill(&reach, "seen", "2");
        backup(&server, &["seen"], &file).success();
        run([&["shards"], &reach[..], &["double", "seen"]].concat()).success();
        let cards = |client: &mut Connection| {
            (0..4).map(|shard| client.run(&format!("BF.CARD seen:{{{shard}}}"))).collect::<Vec<_>>()
        };
        let before = cards(&mut client);
        restore(&server, &["--replace"], &file).refused("`seen:shards` on the server holds `4`, the file has 2 shards");
        assert_eq!(cards(&mut client), before);
        is_whole(&reach, "seen");
        restore(&server, &["--key", "seen=old"], &file).success();
        is_whole(&reach, "old");
    });
}

#[test]
fn an_incomplete_sharded_filter_is_refused_or_reported() {
    on_every_server(|program| {
        let (server, files) = (Server::start(program), Files::new());
        let (mut client, file, url) = (server.connect(), files.path("file"), url(&server));
        let reach = ["--url", &*url];
        fill(&reach, "seen", "3");
        client.run("DEL seen:{1}");
        backup(&server, &["seen"], &file)
            .refused("the sharded filter `seen` is incomplete: its shard `seen:{1}` is missing");
        assert!(files.names().is_empty());
        let all = backup(&server, &["--all"], &file).success();
        assert!(all.stderr.contains("skipped `seen:shards`, because the sharded filter is incomplete"), "{all:?}");
        assert!(all.text().contains("2 filters in") && !all.text().contains("is complete"), "{all:?}");
        client.run("SET seen:{1} text");
        backup(&server, &["seen"], &file).refused("its shard `seen:{1}` has type ");
        client.run("SET seen:shards 0");
        backup(&server, &["seen"], &file).refused("the key `seen:shards` holds `0`, not a number of shards");
        client.run("DEL seen:shards");
        backup(&server, &["seen"], &file).refused("there is no key `seen`, and no sharded filter of that name");
        // If a filter has the same name, that filter is meant.
        fill(&reach, "two", "2");
        client.run("BF.ADD two a");
        let text = backup(&server, &["two"], &file).success().text();
        assert!(text.contains("1 filter in"), "{text}");
        assert_eq!(client.run("BF.CARD two"), integer(1));
    });
}
