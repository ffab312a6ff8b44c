//! `backup` and `restore`: every kind of filter, filters that change during the dump, full disks, clusters, RedisBloom.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::cluster::three_nodes;
use crate::running::{Ended, command, run, url};
use testing::{Connection, Reply, Server, integer, ok, on_every_server, on_servers_with};

/// A filter of every kind: its key, and the arguments of BF.RESERVE or, with ITEMS, of BF.INSERT.
const KINDS: [(&str, &str); 14] = [
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

struct Zoo {
    items: Vec<String>,
}

impl Zoo {
    fn build(client: &mut Connection) -> Self {
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

/// Returns a temporary folder.
pub struct Files(TempDir);

impl Files {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn names(&self) -> Vec<String> {
        let names = fs::read_dir(self.0.path()).unwrap();
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
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
        let zoo = Zoo::build(&mut client);
        assert_eq!(client.run("SET string 1"), ok());
        let before = zoo.view(&mut client);
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
            assert!(zoo.view(&mut there) == before, "{name}");
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
    on_every_server(|program| {
        let (server, files) = (Server::start(program), Files::new());
        let (mut client, file) = (server.connect(), files.path("file"));
        client.run("BF.RESERVE one 0.01 1000000");
        client.batched(&[b"BF.MADD", b"one"], &(0..20_000).map(|number| number.to_string()).collect::<Vec<_>>());
        client.run("SET string 1");
        let ended = backup(&server, &["one"], Path::new("/dev/full")).refused("cannot write /dev/full: No space left");
        assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
        assert!(!fs::metadata("/dev/full").unwrap().is_file());
        // No file may become larger than 100 KiB.
        let words = ["backup", "--url", &url(&server), "one", "-o", file.to_str().unwrap()];
        let limited = command(words);
        let mut shell = std::process::Command::new("sh");
        shell
            .args(["-c", "trap '' XFSZ; ulimit -f 100; exec \"$0\" \"$@\""])
            .arg(limited.get_program())
            .args(limited.get_args());
        Ended::from(shell.output().unwrap()).refused("cannot write");
        backup(&server, &["one", "two"], &file).refused("there is no key `two`");
        backup(&server, &["string"], &file).refused("the key `string` has type string, not a filter");
        backup(&server, &["one"], &files.path("no/file")).refused("cannot write");
        assert_eq!(files.names().len(), 0);
        // The old file stays until the new one is complete.
        backup(&server, &["one"], &file).success();
        let before = fs::read(&file).unwrap();
        backup(&server, &["one", "two"], &file).refused("there is no key `two`");
        assert!(fs::read(&file).unwrap() == before);
        assert_eq!(run(["backup", "-o", "file"]).status, Some(2));
        assert_eq!(run(["backup", "one", "--all", "-o", "file"]).status, Some(2));
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
        let child = command(["backup", "--url", &url(&server), "--all", "-o", file.to_str().unwrap()])
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
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

/// A filter that is replaced during every attempt is an error; one that is deleted or still being loaded is reported.
#[test]
fn a_filter_that_is_constantly_replaced_fails_the_backup() {
    on_every_server(|program| {
        let (server, files) = (Server::start(program), Files::new());
        let (mut client, file) = (server.connect(), files.path("file"));
        client.run("BF.RESERVE large 0.01 80000000 NONSCALING");
        client.run("BF.RESERVE whole 0.01 2000000 NONSCALING");
        let mut child = command(["backup", "--url", &url(&server), "large", "-o", file.to_str().unwrap()])
            .stderr(std::process::Stdio::piped())
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
        let ended = backup(&server, &["--all"], &file).success();
        assert!(
            ended.stderr.contains("skipped the filter `half`") && ended.text().contains("1 filter in"),
            "{ended:?}"
        );
        backup(&server, &["whole", "half"], &file).refused("the filter `half` is still being loaded");
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

/// Runs with each RedisBloom library in `BLOOMGATE_PEERS`, on the servers that load it.
#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn filters_move_between_redisbloom_itself_and_bloomgate() {
    let folder =
        std::env::var_os("BLOOMGATE_PEERS").expect("BLOOMGATE_PEERS names a folder with RedisBloom's libraries");
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path().canonicalize().unwrap());
    let libraries: Vec<_> = names.filter(|path| path.extension().is_some_and(|extension| extension == "so")).collect();
    assert!(!libraries.is_empty(), "the folder of BLOOMGATE_PEERS has no library");
    for library in libraries {
        let what = format!("what {} needs", library.display());
        let loads = |program: &Path| Server::with(program).module(&library).try_start().is_ok();
        on_servers_with(&what, loads, |program| {
            let theirs = Server::with(program).module(&library).start();
            eprintln!("{}", library.display());
            let (ours, files) = (Server::start(program), Files::new());
            let (mut there, mut here) = (theirs.connect(), ours.connect());
            let items: Vec<String> = (0..5000).map(|number| format!("item {number}")).collect();
            for (key, words) in [("grown", "0.01 100"), ("fixed", "0.001 5000 NONSCALING"), ("empty", "0.01 9")] {
                assert_eq!(there.run(&format!("BF.RESERVE {key} {words}")), ok());
                if key != "empty" {
                    there.batched(&[b"BF.MADD", key.as_bytes()], &items[..2500]);
                }
            }
            let view = |client: &mut Connection| {
                ["grown", "fixed", "empty"].map(|key| {
                    let info = client.run(&format!("BF.INFO {key}"));
                    let counts = ["Capacity", "Number of filters", "Number of items inserted"]
                        .map(|name| info.field(name).clone());
                    (client.batched(&[b"BF.MEXISTS", key.as_bytes()], &items), counts)
                })
            };
            let before = view(&mut there);
            backup(&theirs, &["--all"], &files.path("file")).success();
            restore(&ours, &[], &files.path("file")).success();
            assert!(view(&mut here) == before);
            there.run("FLUSHALL");
            backup(&ours, &["--all"], &files.path("file")).success();
            restore(&theirs, &[], &files.path("file")).success();
            assert!(view(&mut there) == before);
            // Kinds that RedisBloom does not have are refused, and nothing is left of them.
            here.run("BF.RESERVE native 0.01 100");
            backup(&ours, &["native"], &files.path("file")).success();
            restore(&theirs, &[], &files.path("file")).refused("cannot restore `native`");
            assert_eq!(keys(&mut there), 3);
        });
    }
}
