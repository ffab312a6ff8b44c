//! `backup` and `restore`: every kind of filter, filters that change during the dump, full disks, clusters, RedisBloom.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use testing::{Builder, Connection, Reply, Server, integer, ok, on_every_server};

use crate::running::{
    Ended, Files, command, on_redisblooms, run, run_with, send, start, three_nodes, url, with_files, with_servers,
};

/// A filter of every kind: its key, and the arguments of BF.RESERVE or, with ITEMS, of BF.INSERT.
pub const KINDS: [(&str, &str); 14] = [
    ("empty", "0.01 1000"),
    ("grown", "0.01 100"),
    ("fixed", "0.001 5000 NONSCALING"),
    ("sparse", "0.01 5000000 NONSCALING"),
    ("keyed", "0.01 1000 HASH siphash"),
    ("windowed", "0.01 1000 WINDOW 1000000"),
    ("sliding", "0.01 1000 WINDOW 1000000 SLIDING HASH siphash BUCKETS 5"),
    ("rolling", "0.01 1500 ROLLING"),
    ("counting", "0.01 5000 COUNTING"),
    ("redisbloom", "0.01 1000 LAYOUT redisbloom"),
    ("redisbloom-fixed", "0.01 3000 LAYOUT redisbloom NONSCALING"),
    ("valkey", "CAPACITY 1000 TIGHTENING 0.5 ITEMS first"),
    ("expiring", "0.01 1000 EX 100000"),
    ("{tag}key", "0.01 1000 NONSCALING"),
];

pub struct EveryFilter {
    items: Vec<String>,
}

impl EveryFilter {
    pub fn build(client: &mut Connection) -> Self {
        let items: Vec<String> = (0..3000).map(|number| format!("item {number}")).collect();
        for (key, words) in KINDS {
            let command = if words.contains("ITEMS") { "BF.INSERT" } else { "BF.RESERVE" };
            assert!(!client.run(&format!("{command} {key} {words}")).is_error(), "{key}");
            // A fixed filter has no room for all items.
            let count = if key == "empty" || key == "{tag}key" { 0 } else { 2000 };
            client.batched(&[b"BF.MADD", key.as_bytes()], &items[..count]);
        }
        for key in ["keyed", "counting", "sliding"] {
            client.batched(&[b"BF.MDEL", key.as_bytes()], &items[..100]);
        }
        Self { items }
    }

    /// Returns everything that a client sees of all filters.
    fn view(&self, client: &mut Connection) -> Vec<(String, Vec<bool>, Reply, Reply, Reply)> {
        let view = |(key, _): (&str, &str)| {
            let answers = client.batched(&[b"BF.MEXISTS", key.as_bytes()], &self.items);
            let mut ask = |command: &str| client.run(&format!("{command} {key}"));
            (key.to_owned(), answers, ask("BF.INFO"), ask("BF.CARD"), ask("DEBUG DIGEST-VALUE"))
        };
        KINDS.map(view).to_vec()
    }
}

pub fn backup(server: &Server, words: &[&str], file: &Path) -> Ended {
    run([&["backup", "--url", &url(server)], words, &["-o", file.to_str().unwrap()]].concat())
}

pub fn restore(server: &Server, words: &[&str], file: &Path) -> Ended {
    run([&["restore", "--url", &url(server)], words, &[file.to_str().unwrap()]].concat())
}

pub fn keys(client: &mut Connection) -> usize {
    client.run("DBSIZE").number() as usize
}

#[test]
fn a_backup_restores_every_kind_unchanged() {
    on_every_server(|program| {
        let (server, other, files) = (Server::start(program), Server::start(program), Files::new());
        let (mut client, mut there) = (server.connect(), other.connect());
        let filters = EveryFilter::build(&mut client);
        assert_eq!(client.run("SET string 1"), ok());
        let before = filters.view(&mut client);
        for (name, words) in [("plain", vec!["--all", "--verify"]), ("packed", vec!["--match", "*", "--compress"])] {
            let file = files.path(name);
            let text = backup(&server, &words, &file).success().text();
            assert!(text.contains(&format!("{} filters in", KINDS.len())), "{text}");
            let listed = run(["restore", "--dry-run", file.to_str().unwrap()]).success().text();
            assert!(
                KINDS.iter().all(|(key, _)| listed.contains(key)) && listed.contains("nothing is damaged"),
                "{listed}"
            );
            there.run("FLUSHALL");
            let text = restore(&other, &[], &file).success().text();
            assert!(text.contains(&format!("{} filters restored", KINDS.len())), "{text}");
            assert!(filters.view(&mut there) == before, "{name}");
            assert_eq!(keys(&mut there), KINDS.len());
            assert!((99_000..=100_000).contains(&there.run("TTL expiring").number()));
            assert_eq!(there.run("TTL grown"), integer(-1));
        }
        let size = |name| fs::metadata(files.path(name)).unwrap().len();
        assert!(size("packed") < size("plain") / 2);
        assert_eq!(files.names().len(), 2);
    });
}

#[test]
fn a_failed_backup_leaves_no_file() {
    with_files(|server, client, files| {
        let file = files.path("file");
        client.run("BF.RESERVE one 0.01 1000000");
        client.batched(&[b"BF.MADD", b"one"], &(0..20_000).map(|number| number.to_string()).collect::<Vec<_>>());
        client.run("SET string 1");
        let ended = backup(server, &["one"], Path::new("/dev/full")).refused("cannot write /dev/full: No space left");
        assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
        assert!(!fs::metadata("/dev/full").unwrap().is_file());
        // Files are limited to 100 KiB.
        let words = ["backup", "--url", &url(server), "one", "-o", file.to_str().unwrap()];
        let limited = command(words);
        let mut shell = Command::new("sh");
        shell
            .args(["-c", "trap '' XFSZ; ulimit -f 100; exec \"$0\" \"$@\""])
            .arg(limited.get_program())
            .args(limited.get_args());
        Ended::from(shell.output().unwrap()).refused("cannot write");
        backup(server, &["one", "two"], &file).refused("there is no key `two`");
        backup(server, &["string"], &file).refused("the key `string` has type string, not a filter");
        backup(server, &["one"], &files.path("no/file")).refused("cannot write");
        assert_eq!(files.names().len(), 0);
        // The old file stays until the new one is complete.
        backup(server, &["one"], &file).success();
        let before = fs::read(&file).unwrap();
        backup(server, &["one", "two"], &file).refused("there is no key `two`");
        assert!(fs::read(&file).unwrap() == before);
    });
}

/// Items are added and filters are replaced while they are dumped.
#[test]
fn the_copy_of_a_changing_filter_has_every_earlier_item() {
    on_every_server(|program| {
        let (server, files) = (Server::start(program), Files::new());
        let (mut client, file) = (server.connect(), files.path("file"));
        let items: Vec<String> = (0..20_000).map(|number| format!("before {number}")).collect();
        for (key, words) in
            [("grows", "0.01 10000"), ("large", "0.01 10000000 NONSCALING"), ("windowed", "0.01 100000 WINDOW 100000")]
        {
            client.run(&format!("BF.RESERVE {key} {words}"));
            client.batched(&[b"BF.MADD", key.as_bytes()], &items);
        }
        let child = start(["backup", "--url", &url(&server), "--all", "-o", file.to_str().unwrap()]);
        for number in 0..20 {
            for key in ["grows", "large", "windowed"] {
                let more: Vec<String> = (0..500).map(|item| format!("meanwhile {number} {item}")).collect();
                client.batched(&[b"BF.MADD", key.as_bytes()], &more);
            }
        }
        Ended::from(child.wait_with_output().unwrap()).success();
        let other = Server::start(program);
        restore(&other, &[], &file).success();
        let mut there = other.connect();
        for key in ["grows", "large", "windowed"] {
            assert!(there.batched(&[b"BF.MEXISTS", key.as_bytes()], &items).iter().all(|is_in| *is_in), "{key}");
        }
    });
}

/// A filter that is replaced during every attempt is an error; a filter that is deleted or still being loaded is reported.
#[test]
fn a_filter_that_is_constantly_replaced_fails_the_backup() {
    with_files(|server, client, files| {
        let file = files.path("file");
        client.run("BF.RESERVE large 0.01 80000000 NONSCALING");
        client.run("BF.RESERVE whole 0.01 2000000 NONSCALING");
        let mut child = command(["backup", "--url", &url(server), "large", "-o", file.to_str().unwrap()])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        while child.try_wait().unwrap().is_none() {
            client.run("BF.CLEAR large");
        }
        let ended = Ended::from(child.wait_with_output().unwrap());
        // On a busy machine, a dump may succeed between two replacements.
        if ended.status == Some(0) {
            run(["restore", "--dry-run", file.to_str().unwrap()]).success();
        } else {
            ended.refused("the filter `large` was replaced 5 times while it was dumped");
            assert_eq!(files.names().len(), 0);
        }
        client.run("DEL large");
        let record = client.run("BF.SCANDUMP whole 0");
        let [iterator, data] = record.elements() else { panic!("{record:?}") };
        let iterator = iterator.number().to_string();
        assert_eq!(client.call(&[b"BF.LOADCHUNK", &b"half"[..], iterator.as_bytes(), data.bytes()]), ok());
        let ended = backup(server, &["--all"], &file).success();
        assert!(
            ended.stderr.contains("skipped the filter `half`") && ended.text().contains("1 filter in"),
            "{ended:?}"
        );
        backup(server, &["whole", "half"], &file).refused("the filter `half` is still being loaded");
    });
}

#[test]
fn filters_return_to_their_databases() {
    on_every_server(|program| {
        let (server, other, files) = (Server::start(program), Server::start(program), Files::new());
        let (mut client, mut there) = (server.connect(), other.connect());
        client.pipeline(&["BF.ADD seen zero", "SELECT 3", "BF.ADD seen three", "SET text 1", "SELECT 5"]);
        client.call(&[&b"BF.ADD"[..], b"\xff\nkey", b"five"]);
        let sharded = ["shards", "create", "spread", "0.01", "100", "--shards", "2", "-p", &server.port.to_string()];
        run([&sharded[..], &["-n", "3"]].concat()).success();
        let (all, first) = (files.path("all"), files.path("first"));
        let text = backup(&server, &["--all", "--verify"], &all).success().text();
        assert!(text.contains("5 filters in") && text.contains("database 5\n"), "{text}");
        let text = run(["restore", "--dry-run", all.to_str().unwrap()]).success().text();
        assert_eq!(text.matches("   database 3\n").count(), 3, "{text}");
        restore(&other, &[], &all).success();
        let exists = |client: &mut Connection, database: u32, key: &[u8], item: &str| {
            client.run(&format!("SELECT {database}"));
            client.call(&[b"BF.EXISTS", key, item.as_bytes()]) == integer(1)
        };
        assert!(exists(&mut there, 0, b"seen", "zero") && !exists(&mut there, 0, b"seen", "three"));
        assert!(exists(&mut there, 3, b"seen", "three") && exists(&mut there, 5, b"\xff\nkey", "five"));
        there.run("SELECT 3");
        assert_eq!((keys(&mut there), there.run("GET spread:shards").text()), (4, "2".to_owned()));
        let url_of = |database: &str| format!("{}/{database}", url(&other));
        // Existing keys are found in each database.
        let ended = restore(&other, &[], &all).refused("the server already has `seen`, `");
        assert!(ended.stderr.contains("` in database 3"), "{ended:?}");
        // All filters go to the named database. `seen` exists twice in the file.
        let into = |database: &str, file: &Path, words: &[&str]| {
            run([&["restore", "--url", &url_of(database), file.to_str().unwrap()], words].concat())
        };
        into("7", &all, &[]).refused("two filters would be restored to the key `seen` in database 7");
        into("7", &all, &["--key", "spread=moved"]).success();
        there.run("SELECT 7");
        assert_eq!((keys(&mut there), there.run("GET moved:shards").text()), (3, "2".to_owned()));
        // A key is restored from every database that has it.
        let text = restore(&other, &["--key", "seen=copy"], &all).success().text();
        assert!(text.contains("2 filters restored"), "{text}");
        assert!(exists(&mut there, 0, b"copy", "zero") && exists(&mut there, 3, b"copy", "three"));
        // One database, by its number.
        let words = ["backup", "--url", &format!("{}/0", url(&server)), "--all", "-o", first.to_str().unwrap()];
        assert!(run(words).success().text().contains("1 filter in"));
        into("9", &first, &[]).success();
        assert!(exists(&mut there, 9, b"seen", "zero"));
        backup(&server, &["text"], &files.path("none")).refused("there is no key `text`, and");
        // A server with fewer databases: nothing is written.
        let small = Server::with(program).line("databases 4").start();
        let ended = restore(&small, &[], &all).refused("nothing was restored (with -n NUMBER all filters go to one");
        assert!(ended.stderr.contains("cannot use database 5"), "{ended:?}");
        assert_eq!(small.connect().run("INFO keyspace").text().lines().count(), 1);
    });
}

#[test]
fn a_backup_of_a_cluster_restores_into_a_cluster_and_a_server() {
    on_every_server(|program| {
        let (nodes, files) = (three_nodes(program), Files::new());
        let words = ["--url", &url(&nodes[0])].map(str::to_owned);
        let tags: Vec<String> =
            (0..30).map(|number| format!("filter {number}")).chain(["a{b}c".to_owned(), "{}x".to_owned()]).collect();
        let mut clients = nodes.each_ref().map(Server::connect);
        for tag in &tags {
            let node = clients.iter_mut().find_map(|client| {
                let reply = client.call(&["BF.ADD", tag, "item"]);
                (!reply.is_error()).then_some(reply)
            });
            assert_eq!(node, Some(integer(1)), "{tag}");
        }
        let file = files.path("file");
        let backed = ["backup", "--all", "-o", file.to_str().unwrap()].map(str::to_owned);
        let text = run(words.iter().chain(&backed)).success().text();
        assert!(text.contains("32 filters in"), "{text}");
        let text = run(["survey", "--url", &url(&nodes[1])]).success().text();
        assert!(text.lines().any(|line| line.starts_with("bloomgate ") && line.contains(" 32 ")), "{text}");
        let json = run(["survey", "--json", "--beside", &url(&nodes[2]), "--url", &url(&nodes[1])]).success().text();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&json["types"][0]["type"], &json["types"][0]["keys"]), (&"bloomgate".into(), &32.into()), "{json}");
        assert_eq!((&json["other_keys"], &json["compared"]["filters"]), (&0.into(), &32.into()), "{json}");
        assert_eq!(json["compared"]["differing"].as_array().unwrap().len(), 0, "{json}");
        for client in &mut clients {
            assert_ne!(client.run("DBSIZE"), integer(0));
            client.run("FLUSHALL");
        }
        let restored = ["restore", file.to_str().unwrap()].map(str::to_owned);
        run(words.iter().chain(&restored)).success();
        let count: usize = clients.iter_mut().map(keys).sum();
        assert_eq!(count, tags.len());
        for tag in &tags {
            assert!(clients.iter_mut().any(|client| client.call(&["BF.EXISTS", tag, "item"]) == integer(1)), "{tag}");
        }
        let alone = Server::start(program);
        restore(&alone, &[], &file).success();
        assert_eq!(keys(&mut alone.connect()), tags.len());
    });
}

// Cuckoo filters, which have commands of their own.

/// Cuckoo filters of RedisBloom's layout: the key, the arguments of CF.RESERVE, and the number of items.
pub const CUCKOO: [(&str, &str, usize); 5] = [
    ("cf:empty", "100 BUCKETSIZE 2", 0),
    ("cf:default", "1024 MAXITERATIONS 20", 500),
    ("cf:grown", "100 BUCKETSIZE 2 EXPANSION 1", 2000),
    ("cf:wide", "2000 BUCKETSIZE 4 MAXITERATIONS 7 EXPANSION 2", 3000),
    ("cf:expiring", "100 BUCKETSIZE 2", 10),
];

pub fn build_cuckoo(client: &mut Connection) {
    for (key, words, items) in CUCKOO {
        assert_eq!(client.run(&format!("CF.RESERVE {key} {words}")), ok());
        for item in 0..items {
            assert_eq!(client.run(&format!("CF.ADD {key} {item}")), integer(1));
        }
        for item in (0..items).step_by(20) {
            assert_eq!(client.run(&format!("CF.DEL {key} {item}")), integer(1));
        }
    }
    client.run("EXPIRE cf:expiring 100000");
}

/// Returns everything that a client sees of them.
fn cuckoo_view(client: &mut Connection) -> Vec<Reply> {
    let commands = ["TYPE", "CF.INFO", "CF.DEBUG", "DUMP"];
    let lines = CUCKOO.iter().flat_map(|(key, ..)| commands.map(|command| format!("{command} {key}")));
    lines.map(|line| client.run(&line)).collect()
}

#[test]
fn cuckoo_filters_are_restored_unchanged_and_compared() {
    on_every_server(|program| {
        let (server, other, files) = (Server::start(program), Server::start(program), Files::new());
        let (mut here, mut there, file) = (server.connect(), other.connect(), files.path("file"));
        build_cuckoo(&mut here);
        here.run("BF.ADD bloom x");
        let text = backup(&server, &["--all", "--verify"], &file).success().text();
        assert!(text.contains("6 filters in"), "{text}");
        let listed = run(["restore", "--dry-run", "--json", file.to_str().unwrap()]).success().text();
        let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
        let filters = listed["filters"].as_array().unwrap();
        let grown = filters.iter().find(|filter| filter["key"] == "cf:grown").unwrap();
        let info = here.run("CF.INFO cf:grown");
        assert_eq!((&grown["kind"], &grown["items"]), (&"redisbloom-cuckoo".into(), &1900.into()), "{listed}");
        assert_eq!(grown["layers"], info.field("Number of filters").number(), "{listed}");
        // A slot is a byte, and the first layer has 128.
        assert_eq!(grown["capacity"], 128 * info.field("Number of filters").number(), "{listed}");
        restore(&other, &[], &file).success();
        assert_eq!(cuckoo_view(&mut here), cuckoo_view(&mut there));
        assert_eq!(keys(&mut there), CUCKOO.len() + 1);
        assert!((99_000..=100_000).contains(&there.run("TTL cf:expiring").number()));
        // The servers diverge.
        let compare = || run(["survey", "--url", &url(&server), "--beside", &url(&other)]);
        assert!(compare().success().text().ends_with("compared 6 filters: 0 differ\n"));
        there.pipeline(&[
            "CF.DEL cf:default 1",
            "CF.ADD cf:default x",
            "CF.ADD cf:wide x",
            "DEL cf:empty",
            "CF.RESERVE cf:empty 100 BUCKETSIZE 2 EXPANSION 4",
        ]);
        there.pipeline(&["DEL cf:grown", "CF.ADD new x"]);
        let text = compare().refused("the two servers differ in 5 filters").text();
        for line in [
            "cf:default: deletes: 25 on ",
            "cf:empty: equal counts, but not equal bits",
            "cf:wide: items: 2,850 on ",
            "cf:grown: only on ",
            "new: only on ",
        ] {
            assert!(text.contains(&format!("\n{line}")), "{line}: {text}");
        }
        // As for Bloom filters: other types are kept, and so are items.
        restore(&other, &[], &file).refused("the server already has ");
        there.run("CF.ADD cf:empty x");
        restore(&other, &["--replace"], &file).refused("`cf:empty` is empty in the file and has 1");
        restore(&other, &["--replace", "--allow-empty"], &file).success();
        there.run("DEL new");
        assert_eq!(cuckoo_view(&mut here), cuckoo_view(&mut there));
        // A Bloom filter and a cuckoo filter replace each other.
        restore(&other, &["--replace", "--key", "bloom=cf:grown"], &file).success();
        restore(&other, &["--replace", "--key", "cf:wide=bloom"], &file).success();
        assert_eq!((there.run("BF.CARD cf:grown"), there.run("CF.EXISTS bloom 1")), (integer(1), integer(1)));
    });
}

/// Each server has its own version of the payloads of DUMP, which copies these filters.
#[test]
fn every_server_restores_the_dumps_of_every_other() {
    on_every_server(|program| {
        let (server, files) = (Server::start(program), Files::new());
        server
            .connect()
            .pipeline(&["CF.RESERVE empty 100 BUCKETSIZE 2", "BF.INSERT valkey TIGHTENING 0.5 CAPACITY 100 ITEMS a b"]);
        backup(&server, &["--all"], &files.path("file")).success();
        on_every_server(|program| {
            let other = Server::start(program);
            restore(&other, &[], &files.path("file")).success();
            let mut there = other.connect();
            assert_eq!((there.run("BF.CARD valkey"), there.run("CF.EXISTS empty a")), (integer(2), integer(0)));
        });
    });
}

/// Deletes compact a cuckoo filter: its newest items move to older layers, which a dump reads first.
#[test]
fn the_copy_of_a_changing_cuckoo_filter_has_every_member() {
    on_every_server(|program| {
        let (server, other) = (Server::start(program), Server::start(program));
        let mut client = server.connect();
        // With one slot for each bucket and few attempts to move, a layer of 1 MiB is full early.
        client.run("CF.RESERVE busy 1048576 BUCKETSIZE 1 MAXITERATIONS 1");
        let items: Vec<String> = (0..100_000).map(|number| number.to_string()).collect();
        client.batched(&[b"CF.INSERT", b"busy", b"ITEMS"], &items);
        let layers = |client: &mut Connection| client.run("CF.INFO busy").field("Number of filters").number();
        assert!(layers(&mut client) > 1);
        let mut words = command(["backup", "--url", &url(&server), "busy", "-o", "-"]);
        let mut child = words.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // The backup is blocked in writing the first layer.
        let mut file = vec![0; 100_000];
        child.stdout.as_mut().unwrap().read_exact(&mut file).unwrap();
        for item in &items[..90_000] {
            client.run(&format!("CF.DEL busy {item}"));
        }
        assert_eq!(layers(&mut client), 1);
        let ended = Ended::from(child.wait_with_output().unwrap()).success();
        file.extend(ended.stdout);
        run_with(["restore", "--url", &url(&other), "-"], file).success();
        let found = other.connect().batched(&[b"CF.MEXISTS", b"busy"], &items[90_000..]);
        assert_eq!(found.iter().filter(|found| !**found).count(), 0);
    });
}

/// Runs with each RedisBloom library in `BLOOMGATE_PEERS`, on the servers that load it.
#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn filters_move_between_redisbloom_itself_and_bloomgate() {
    on_redisblooms(|program, library| {
        let theirs = Server::with(program).module(library).start();
        let (ours, files) = (Server::start(program), Files::new());
        let (mut there, mut here) = (theirs.connect(), ours.connect());
        let items: Vec<String> = (0..5000).map(|number| format!("item {number}")).collect();
        for (key, words) in [("grown", "0.01 100"), ("fixed", "0.001 5000 NONSCALING"), ("empty", "0.01 9")] {
            assert_eq!(there.run(&format!("BF.RESERVE {key} {words}")), ok());
            if key != "empty" {
                there.batched(&[b"BF.MADD", key.as_bytes()], &items[..2500]);
            }
        }
        build_cuckoo(&mut there);
        let view = |client: &mut Connection| {
            let bloom = ["grown", "fixed", "empty"].map(|key| {
                let info = client.run(&format!("BF.INFO {key}"));
                let counts =
                    ["Capacity", "Number of filters", "Number of items inserted"].map(|name| info.field(name).clone());
                (client.batched(&[b"BF.MEXISTS", key.as_bytes()], &items), counts)
            });
            (bloom, cuckoo_view(client))
        };
        let before = view(&mut there);
        backup(&theirs, &["--all"], &files.path("file")).success();
        restore(&ours, &[], &files.path("file")).success();
        assert!(view(&mut here) == before);
        there.run("FLUSHALL");
        backup(&ours, &["--all"], &files.path("file")).success();
        restore(&theirs, &[], &files.path("file")).success();
        assert!(view(&mut there) == before);
        // Kinds that RedisBloom lacks are refused, and leave no keys.
        here.run("BF.RESERVE native 0.01 100");
        backup(&ours, &["native"], &files.path("file")).success();
        restore(&theirs, &[], &files.path("file")).refused("cannot restore `native`");
        assert_eq!(keys(&mut there), 3 + CUCKOO.len());
    });
}

// `restore`: damaged files, existing keys, servers that refuse a filter or are killed.

#[test]
fn selected_filters_are_renamed_and_read_from_a_pipe() {
    with_servers(|server| {
        let mut client = server.connect();
        client.run("BF.MADD one a b");
        client.run("BF.MADD a=b c");
        client.run("BF.ADD three d");
        let piped = run(["backup", "--url", &url(&server), "one", "a=b", "one", "-o", "-"]).success();
        assert!(piped.stderr.contains("2 filters in the standard output"), "{piped:?}");
        let words = ["restore", "--url", &url(&server), "-", "--key", "one=uno", "--key", "a=b=c", "--json"];
        let json: serde_json::Value = serde_json::from_str(&run_with(words, piped.stdout).success().text()).unwrap();
        assert_eq!(json["filters"][0]["key"], "uno");
        assert_eq!(json["filters"][0]["items"], 2);
        assert_eq!(client.run("BF.EXISTS uno b"), integer(1));
        assert_eq!(client.run("BF.EXISTS c c"), integer(1));
        assert_eq!(keys(&mut client), 5);
    });
}

#[test]
fn existing_keys_are_refused_before_anything_is_written() {
    with_files(|server, client, files| {
        let file = files.path("file");
        client.run("BF.MADD one a");
        client.run("BF.MADD two b");
        backup(server, &["--all"], &file).success();
        client.run("DEL one");
        client.run("BF.ADD two c");
        restore(server, &[], &file).refused("the server already has `two`");
        assert_eq!(keys(client), 1);
        // A value of another type is never replaced.
        client.run("SET one 1");
        restore(server, &["--replace"], &file).refused("the key `one` on the server has type ");
        assert_eq!(client.run("BF.EXISTS two c"), integer(1));
        client.run("DEL one");
        restore(server, &["--replace"], &file).success();
        assert_eq!(client.run("BF.EXISTS two c"), integer(0));
        assert_eq!(client.run("BF.EXISTS one a"), integer(1));
        // A temporary key of a run that was killed or is still running.
        client.run("DEL one two");
        client.run("BF.ADD {one}:restoring x");
        restore(server, &[], &file).refused("another restore is going on");
        restore(server, &["--replace"], &file).success();
        assert_eq!(keys(client), 2);
    });
}

#[test]
fn a_damaged_file_changes_nothing_on_the_server() {
    with_files(|server, client, files| {
        let (file, torn) = (files.path("file"), files.path("torn"));
        client.run("BF.MADD one a b c");
        client.run("BF.INSERT two TIGHTENING 0.5 ITEMS 1");
        client.run("BF.INSERT three LAYOUT redisbloom ITEMS 1");
        for words in [vec!["--all"], vec!["--all", "--compress"]] {
            backup(server, &words, &file).success();
            client.run("FLUSHALL");
            let bytes = fs::read(&file).unwrap();
            for position in (0..bytes.len()).step_by(bytes.len() / 40 + 1) {
                let mut damaged = bytes.clone();
                damaged[position] ^= 0x10;
                fs::write(&torn, &damaged).unwrap();
                let ended = restore(server, &["--replace"], &torn).refused("torn: ");
                assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
                fs::write(&torn, &bytes[..position]).unwrap();
                restore(server, &["--replace"], &torn).refused("torn: ");
            }
            fs::write(&torn, [&*bytes, b"\0"].concat()).unwrap();
            restore(server, &[], &torn).refused("data follows its end");
            assert_eq!(keys(client), 0);
            restore(server, &[], &file).success();
        }
        fs::write(&torn, b"REDIS0011").unwrap();
        restore(server, &[], &torn).refused("not a file of `bloomgate backup`");
        let mut later = fs::read(&file).unwrap();
        later[8] = 2;
        let checksum = crc32fast::hash(&later[..12]);
        later[12..16].copy_from_slice(&checksum.to_le_bytes());
        fs::write(&torn, later).unwrap();
        restore(server, &["--replace"], &torn).refused("format version 2");
        restore(server, &[], &files.path("none")).refused("cannot read");
        restore(server, &["--key", "four"], &file).refused("has no filter `four`");
        assert_eq!(keys(client), 3);
    });
}

/// A server without room for the filter refuses its first record or a later one.
#[test]
fn a_refused_filter_leaves_no_keys() {
    on_every_server(|program| {
        let (server, files) = (Server::start(program), Files::new());
        let (mut client, file) = (server.connect(), files.path("file"));
        client.run("BF.ADD before a");
        client.run("BF.RESERVE large 0.01 1000000 NONSCALING");
        client.run("BF.ADD large a");
        backup(&server, &["before", "large"], &file).success();
        let small = Server::with(program).line("bf.max-filter-bytes 100000").start();
        restore(&small, &[], &file).refused("1 of 2 filters restored before an error: cannot restore `large`");
        let mut there = small.connect();
        assert_eq!((keys(&mut there), there.run("BF.CARD before")), (1, integer(1)));
        let bare = Server::with(program).without_module().start();
        restore(&bare, &[], &file).refused("has not loaded the module: start it with");
        assert_eq!(keys(&mut bare.connect()), 0);
    });
}

/// Restores a filter of a hundred records with the program that `start` starts, and sends it SIGTERM during the first record.
fn interrupted_during_a_restore(start: impl Fn(Command) -> Child) {
    with_files(|server, client, files| {
        let file = files.path("file");
        client.run("BF.RESERVE large 0.01 84000000 NONSCALING");
        backup(server, &["large"], &file).success();
        client.run("FLUSHALL");
        client.run("CLIENT PAUSE 100000 WRITE");
        let mut tool = command(["restore", "--url", &url(server), file.to_str().unwrap()]);
        tool.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = start(tool);
        testing::eventually("the first record", || client.run("CLIENT LIST").text().contains("cmd=bf.loadchunk"));
        send("TERM", child.id());
        client.run("CLIENT UNPAUSE");
        Ended::from(child.wait_with_output().unwrap()).interrupted("TERM", "cannot restore `large`: interrupted");
        assert_eq!(keys(client), 0);
    });
}

#[test]
fn a_restore_that_a_signal_ends_leaves_no_keys() {
    interrupted_during_a_restore(|mut tool| tool.spawn().unwrap());
}

/// The main thread handles signals, and blocks them while it creates the thread that works. On a busy machine that thread can send its
/// commands before the main thread runs again, which strace delays here. If the working thread gets the signal, its read of a reply fails.
#[test]
#[cfg(target_os = "linux")]
fn a_signal_while_the_main_thread_is_delayed_ends_a_restore() {
    interrupted_during_a_restore(|tool| {
        let mut strace = Command::new("strace");
        // -D: the tool is the child of the test.
        strace.args(["-D", "-f", "-o", "/dev/null", "-e", "trace=clone,clone3"]);
        strace.args(["-e", "inject=clone,clone3:delay_exit=3000000"]).arg(tool.get_program()).args(tool.get_args());
        let strace = strace.env_remove("REDISCLI_AUTH").stdout(Stdio::piped()).stderr(Stdio::piped());
        strace.spawn().expect("strace, which scripts/setup --test installs")
    });
}

/// The server or the tool is killed during a restore: the key then holds the complete filter, or does not exist.
#[test]
fn a_kill_leaves_no_partial_filter() {
    on_every_server(|program| {
        let (server, files) = (Server::start(program), Files::new());
        let (mut client, file) = (server.connect(), files.path("file"));
        // A hundred records that are not all zeros.
        client.run("BF.RESERVE large 0.01 84000000 NONSCALING");
        client.batched(&[b"BF.MADD", b"large"], &(0..20_000).map(|number| number.to_string()).collect::<Vec<_>>());
        backup(&server, &["large"], &file).success();
        let digest = client.run("DEBUG DIGEST-VALUE large").elements()[0].text();
        for kills_server in [false, true] {
            let builder = |builder: Builder| builder.line("appendonly yes");
            let mut other = builder(Server::with(program)).start();
            let mut child = command(["restore", "--url", &url(&other), file.to_str().unwrap()])
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut there = other.connect();
            testing::eventually("the filter to come", || there.run("DBSIZE") != integer(0));
            if kills_server {
                other.stop(testing::Stop::Kill);
                let ended = Ended::from(child.wait_with_output().unwrap());
                assert!(ended.status == Some(0) || ended.status == Some(1), "{ended:?}");
                other.start_again();
            } else {
                _ = child.kill();
                child.wait().unwrap();
            }
            let mut there = other.connect();
            if there.run("EXISTS large") == integer(1) {
                assert_eq!(there.run("DEBUG DIGEST-VALUE large").elements()[0].text(), digest);
            } else {
                // The temporary key expires, and the tool recognises it.
                assert!((1..=600).contains(&there.run("TTL {large}:restoring").number()));
                restore(&other, &[], &file).refused("another restore");
            }
            restore(&other, &["--replace"], &file).success();
            assert_eq!(there.run("DEBUG DIGEST-VALUE large").elements()[0].text(), digest);
            assert_eq!(keys(&mut there), 1);
        }
    });
}

// `backup` and `restore` of sharded filters: one command copies the whole filter.

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
        let (url, file) = (url(&nodes[0]), files.name("file"));
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
    with_files(|server, client, files| {
        let (file, url) = (files.path("file"), url(server));
        let reach = ["--url", &*url];
        fill(&reach, "seen", "3");
        client.run("BF.ADD plain a");
        client.run("SET clock:shards 5");
        client.run("SET other:shards text");
        client.run("EXPIRE seen:shards 100000");
        backup(server, &["--all", "--verify"], &file).success();
        let listed = run(["restore", "--dry-run", "--json", file.to_str().unwrap()]).success().text();
        let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
        assert_eq!(listed["sharded"], serde_json::json!([{ "name": "seen", "shards": 3 }]));
        assert_eq!(listed["filters"].as_array().unwrap().len(), 4);
        restore(server, &["--key", "seen=old=er"], &file).success();
        is_whole(&reach, "old=er");
        assert!((99_000..=100_000).contains(&client.run("TTL old=er:shards").number()));
        restore(server, &["--key", "seen"], &file).refused("`seen:{0}`");
        restore(server, &["--key", "seen:shards"], &file).refused("has no filter `seen:shards`");
        // A single shard is restored like any other filter.
        restore(server, &["--key", "seen:{1}=one"], &file).success();
        assert_eq!(client.run("BF.CARD one"), client.run("BF.CARD seen:{1}"));
        restore(server, &["--replace"], &file).success();
        is_whole(&reach, "seen");
    });
}

#[test]
fn a_filter_with_a_different_number_of_shards_is_not_replaced() {
    with_files(|server, client, files| {
        let (file, url) = (files.path("file"), url(server));
        let reach = ["--url", &*url];
        fill(&reach, "seen", "2");
        backup(server, &["seen"], &file).success();
        run([&["shards"], &reach[..], &["double", "seen"]].concat()).success();
        let cards = |client: &mut Connection| {
            (0..4).map(|shard| client.run(&format!("BF.CARD seen:{{{shard}}}"))).collect::<Vec<_>>()
        };
        let before = cards(client);
        restore(server, &["--replace"], &file).refused("`seen:shards` on the server holds `4`, the file has 2 shards");
        assert_eq!(cards(client), before);
        is_whole(&reach, "seen");
        restore(server, &["--key", "seen=old"], &file).success();
        is_whole(&reach, "old");
    });
}

#[test]
fn an_incomplete_sharded_filter_is_refused_or_reported() {
    with_files(|server, client, files| {
        let (file, url) = (files.path("file"), url(server));
        let reach = ["--url", &*url];
        fill(&reach, "seen", "3");
        client.run("DEL seen:{1}");
        backup(server, &["seen"], &file)
            .refused("the sharded filter `seen` is incomplete: its shard `seen:{1}` is missing");
        assert!(files.names().is_empty());
        let all = backup(server, &["--all"], &file).success();
        assert!(all.stderr.contains("skipped `seen:shards`, because the sharded filter is incomplete"), "{all:?}");
        assert!(all.text().contains("2 filters in") && !all.text().contains("is complete"), "{all:?}");
        client.run("SET seen:{1} text");
        backup(server, &["seen"], &file).refused("its shard `seen:{1}` has type ");
        client.run("SET seen:shards 0");
        backup(server, &["seen"], &file).refused("the key `seen:shards` holds `0`, not a number of shards");
        client.run("DEL seen:shards");
        backup(server, &["seen"], &file).refused("there is no key `seen`, and no sharded filter of that name");
        // A filter with the same name takes precedence.
        fill(&reach, "two", "2");
        client.run("BF.ADD two a");
        let text = backup(server, &["two"], &file).success().text();
        assert!(text.contains("1 filter in"), "{text}");
        assert_eq!(client.run("BF.CARD two"), integer(1));
    });
}

// Sources without items never replace a filter, unless `--allow-empty` is given.

#[test]
fn a_load_without_items_keeps_the_existing_filter() {
    with_files(|server, client, files| {
        let url = url(server);
        client.run("BF.MADD seen a b c");
        let (empty, blank) = (files.write("empty", ""), files.write("blank", "\n\r\n\n"));
        let (header, data) = (files.write("header.csv", "id,name\n"), files.name("data.db"));
        let database = rusqlite::Connection::open(&data).unwrap();
        database.execute_batch("CREATE TABLE rows (id); INSERT INTO rows VALUES (NULL)").unwrap();
        let sources = [
            vec![&*empty],
            vec![&blank],
            vec!["-"],
            vec![&header, "--column", "name"],
            vec!["--sqlite", &data, "--table", "rows", "--column", "id"],
            vec![&empty, "--resume"],
        ];
        let load = |source: &[&str], more: &[&str]| {
            let words = ["load", "--url", &url, "--key", "seen", "--create", "0.01", "100"];
            run_with([&words, source, more].concat(), "")
        };
        for source in &sources {
            load(source, &[]).refused("the source has no items: `seen` is unchanged");
            assert_eq!(client.run("BF.CARD seen"), integer(3), "{source:?}");
            assert_eq!(client.run("DBSIZE"), integer(1), "{source:?}");
        }
        // A load in place does not replace a filter.
        run_with(["load", "--url", &url, "-", "--key", "seen", "--in-place"], "").success();
        for source in &sources {
            client.run("BF.ADD seen a");
            load(source, &["--allow-empty"]).success();
            assert_eq!(client.run("BF.CARD seen"), integer(0), "{source:?}");
            assert_eq!(client.run("DBSIZE"), integer(1), "{source:?}");
        }
    });
}

#[test]
fn a_backup_without_filters_keeps_the_existing_file() {
    with_files(|server, client, files| {
        let file = files.path("file");
        client.run("BF.MADD seen a b c");
        backup(server, &["--all"], &file).success();
        let before = fs::read(&file).unwrap();
        backup(server, &["--match", "nothing:*"], &file).refused("no filter was found, so no file was written");
        client.run("FLUSHALL");
        backup(server, &["--all"], &file).refused("use --allow-empty");
        assert_eq!((fs::read(&file).unwrap() == before, files.names().len()), (true, 1));
        let text = backup(server, &["--all", "--allow-empty"], &file).success().text();
        assert!(text.starts_with("0 filters in "), "{text}");
        restore(server, &[], &file).refused("has no filters");
        restore(server, &["--allow-empty"], &file).success();
        run(["restore", "--dry-run", file.to_str().unwrap()]).success();
    });
}

#[test]
fn an_empty_filter_does_not_replace_one_with_items() {
    with_files(|server, client, files| {
        let file = files.path("file");
        client.run("BF.RESERVE seen 0.01 100");
        client.run("BF.MADD other a b");
        backup(server, &["--all"], &file).success();
        // An empty filter may be replaced, and a filter with items by one with fewer items.
        client.run("BF.ADD other c");
        restore(server, &["--replace"], &file).success();
        assert_eq!(client.run("BF.CARD other"), integer(2));
        client.run("BF.MADD seen a b c");
        client.run("BF.ADD other c");
        restore(server, &["--replace"], &file).refused("`seen` is empty in the file and has 3");
        // The error is found before anything is written.
        assert_eq!([client.run("BF.CARD seen"), client.run("BF.CARD other")], [integer(3), integer(3)]);
        restore(server, &["--replace", "--allow-empty"], &file).success();
        assert_eq!(client.run("BF.CARD seen"), integer(0));
    });
}

#[test]
fn a_build_without_lines_keeps_the_existing_file() {
    let files = Files::new();
    let out = files.name("out");
    let words = ["build", "0.01", "100", "-o", &out];
    run_with(words, "a\n").success();
    let before = fs::read(&out).unwrap();
    for input in ["", "\n\n"] {
        run_with(words, input).refused("the input has no lines, so no file was written");
        assert_eq!((fs::read(&out).unwrap() == before, files.names().len()), (true, 1));
    }
    run_with([&words[..], &["--allow-empty"]].concat(), "").success();
    assert!(fs::read(&out).unwrap() != before);
}
