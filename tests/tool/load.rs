//! `load`: fills a filter from files, SQLite and PostgreSQL, and replaces the existing one.

use std::process::{Child, Stdio};

use std::io::Write;

use crate::running::{Ended, Files, run, run_with, send, start, url, with_files, with_servers};
use testing::database::Database;
use testing::{Connection, Server, Stop, eventually, nil, on_every_server};

fn load(server: &Server, more: &[&str]) -> Ended {
    run(words(server, more))
}

fn words(server: &Server, more: &[&str]) -> Vec<String> {
    let url = url(server);
    ["load", "--url", &url].iter().chain(more).map(|word| (*word).to_owned()).collect()
}

/// Returns which of these items are in the filter.
fn found<'i>(client: &mut Connection, key: &str, items: &[&'i str]) -> Vec<&'i str> {
    let answers = client.batched(&[b"BF.MEXISTS", key.as_bytes()], items);
    items.iter().zip(answers).filter(|(_, answer)| *answer).map(|(item, _)| *item).collect()
}

/// Asserts that a load left only its filter.
fn is_alone(client: &mut Connection, key: &str) {
    assert_eq!(client.run("DBSIZE").number(), 1);
    assert_eq!(client.run(&format!("EXISTS {key}")).number(), 1);
}

#[test]
fn a_load_replaces_the_existing_filter() {
    with_files(|server, client, files| {
        let path = files.write("lines", "a\nb\r\n\nc d\nlast");
        client.run("BF.ADD seen old");
        let text = load(server, &[&path, "--key", "seen", "--create", "1e-9"]).success().text();
        assert!(
            text.starts_with("5 rows, 4 of them new, in ") && text.contains("a second; the filter takes"),
            "{text}"
        );
        assert_eq!(found(client, "seen", &["a", "b", "c d", "last", "old", "", "b\r"]), ["a", "b", "c d", "last"]);
        assert_eq!(client.run("BF.INFO seen CAPACITY").elements()[0].number(), 4);
        is_alone(client, "seen");

        // With --in-place the items are added to the existing filter.
        let more = run_with(words(server, &["-", "--key", "seen", "--in-place"]), "more\n").success().text();
        assert!(more.starts_with("1 row, 1 of them new"), "{more}");
        assert_eq!(found(client, "seen", &["a", "more"]), ["a", "more"]);
        is_alone(client, "seen");
    });
}

#[test]
fn a_failed_load_keeps_the_existing_filter() {
    with_files(|server, client, files| {
        let path = files.write("table.csv", "id,name\n1,a\n2\n3,c\n");
        client.run("BF.ADD seen old");
        let create = ["--key", "seen", "--create", "0.001", "100"];
        load(server, &[&[&*path, "--column", "name"], &create[..]].concat()).refused("line 3: there is no column 2");
        load(server, &[&[&*path, "--column", "none"], &create[..]].concat())
            .refused("no column in the first line is named `none`");
        load(server, &[&["/nowhere"], &create[..]].concat()).refused("cannot read /nowhere");
        assert_eq!(found(client, "seen", &["a", "old"]), ["old"]);
        is_alone(client, "seen");
        let ended = load(server, &[&[&*path, "--column", "name", "--skip-bad"], &create[..]].concat()).success();
        assert_eq!(ended.stderr, "bloomgate: skipped 1 line without the column\n");
        assert_eq!(found(client, "seen", &["a", "c", "name", "old"]), ["a", "c"]);

        client.run("SET text x");
        load(server, &[&path, "--key", "text", "--create", "0.1"]).refused("a value that is not a filter");
        load(server, &[&path, "--key", "none", "--in-place"]).refused("there is no filter `none`");
        client.run("BF.RESERVE full 0.001 1 NONSCALING");
        load(server, &[&path, "--key", "full", "--in-place"]).refused("is full");
        load(server, &["-", "--key", "none"]).refused("there is no filter `none`: create it with --create");
    });
}

/// Options of BF.RESERVE whose kind a load must keep.
const KINDS: [&str; 6] = [
    "LAYOUT native HASH siphash",
    "NONSCALING HASH siphash SEED 000102030405060708090a0b0c0d0e0f",
    "EXPANSION 4 SEED 700",
    "COUNTING",
    "LAYOUT redisbloom EXPANSION 1",
    "LAYOUT redisbloom NONSCALING",
];

/// Returns the options of a filter that its kind determines.
fn options(client: &mut Connection, key: &str) -> Vec<String> {
    let stats = client.run(&format!("BF.STATS {key}"));
    let words = ["Kind", "Layout", "Hash", "Error rate"].map(|name| stats.field(name).text());
    let more = ["EXPANSION", "TIGHTENING"].map(|name| format!("{:?}", client.run(&format!("BF.INFO {key} {name}"))));
    words.into_iter().chain(more).collect()
}

#[test]
fn the_new_filter_has_the_kind_of_the_existing_one() {
    with_files(|server, client, files| {
        let path = files.write("lines", "a\nb\nc\n");
        let kinds = KINDS.map(|words| format!("BF.RESERVE KEY 0.02 50 {words}"));
        let forgetting = ["WINDOW 3600 BUCKETS 5 SLIDING", "ROLLING BUCKETS 4"];
        let forgetting = forgetting.map(|words| format!("BF.RESERVE KEY 0.02 50 {words}"));
        let valkey = ["EXPANSION 2", "EXPANSION 3", "NONSCALING"];
        let valkey = valkey.map(|words| format!("BF.INSERT KEY TIGHTENING 0.4 ERROR 0.02 CAPACITY 50 {words}"));
        for (reserve, is_derived) in
            kinds.iter().chain(&valkey).map(|kind| (kind, true)).chain(forgetting.iter().map(|kind| (kind, false)))
        {
            client.run("FLUSHALL");
            let reply = client.run(&reserve.replace("KEY", "seen"));
            assert!(!reply.is_error(), "{reserve}: {reply:?}");
            let expected = options(client, "seen");
            client.run("BF.INSERT seen ITEMS old");
            client.run("EXPIRE seen 1000");
            load(server, &[&path, "--key", "seen"]).success();
            assert_eq!(options(client, "seen"), expected, "{reserve}");
            assert_eq!(found(client, "seen", &["a", "b", "c", "old"]), ["a", "b", "c"], "{reserve}");
            assert_eq!(client.run("TTL seen").number(), -1);
            is_alone(client, "seen");

            // A load with another size keeps the kind.
            let resized = load(server, &[&path, "--key", "seen", "--create", "0.02", "700"]);
            if is_derived {
                resized.success();
                assert_eq!(options(client, "seen"), expected, "{reserve}");
            } else {
                resized.refused("forgets items");
            }
            assert_eq!(found(client, "seen", &["a", "b", "c"]).len(), 3);
            is_alone(client, "seen");
        }
        // Options after `--` replace those of the existing filter, if there is one.
        for before in ["BF.RESERVE seen 0.02 50 ROLLING", "DEL seen"] {
            client.run(before);
            let window = ["--key", "seen", "--create", "0.02", "50", "--", "WINDOW", "60", "HASH", "siphash"];
            load(server, &[&[&*path], &window[..]].concat()).success();
            let stats = client.run("BF.STATS seen");
            let kind = (stats.field("Kind").text(), stats.field("Window").number(), stats.field("Hash").text());
            assert_eq!(kind, ("window".to_owned(), 60, "siphash".to_owned()), "{before}");
        }
        load(server, &[&path, "--key", "seen", "--create", "0.02", "50", "--", "HASH", "md5"]).refused("hash");
        assert_eq!(found(client, "seen", &["a", "b", "c"]).len(), 3);
        is_alone(client, "seen");
    });
}

/// A load that keeps all options keeps the seed, so the old filter merges with the new one.
#[test]
fn the_new_filter_has_the_seed_of_the_existing_one() {
    with_files(|server, client, files| {
        let path = files.write("lines", "new\n");
        client.run("BF.RESERVE seen 0.001 1000 HASH siphash");
        client.run("BF.ADD seen old");
        client.run("COPY seen before");
        load(server, &[&path, "--key", "seen"]).success();
        assert_eq!(client.run("BF.MERGE both before seen").text(), "OK");
        assert_eq!(found(client, "both", &["old", "new", "x"]), ["old", "new"]);
    });
}

/// The steps of docs/jobs.md.
#[test]
fn a_loaded_blacklist_allows_deletes() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/jobs.md")).unwrap();
    let recipe = page.split_once("\n## A blacklist\n").unwrap().1;
    let after = |begin: &str| {
        let rest = recipe.split_once(begin).unwrap_or_else(|| panic!("{begin} is not on the page")).1;
        rest.split(['`', ')']).next().unwrap().to_owned()
    };
    let reserve = after("client.execute_command(\"BF.RESERVE\", ").replace(['"', ','], "").replace("_0", "0");
    let command = after("`bloomgate load ");
    with_files(|server, client, files| {
        let path = files.write("addresses.gz", "win@example.com\noffer@example.com\n");
        assert_eq!(client.run(&format!("BF.RESERVE {reserve}")).text(), "OK");
        let words: Vec<_> = command.split(' ').map(|word| if word == "addresses.gz" { &*path } else { word }).collect();
        load(server, &words).success();
        load(server, &[&path, "--key", "spam", "--create", "0.001", "1000"]).success();
        assert_eq!(client.run("BF.DEL spam offer@example.com").number(), 1);
        assert_eq!(found(client, "spam", &["win@example.com", "offer@example.com"]), ["win@example.com"]);
    });
}

#[test]
fn sqlite_tables_and_queries_are_loaded() {
    with_files(|server, client, files| {
        let path = files.write("data.db", "");
        let database = rusqlite::Connection::open(&path).unwrap();
        database
            .execute_batch(
                "CREATE TABLE \"my rows\" (id INTEGER, name, other);
                 INSERT INTO \"my rows\" VALUES (1, 'a', 1), (2, x'00ff', 2), (3, NULL, 3), (-4, 7, 4), (5, 1.5, 5)",
            )
            .unwrap();
        let of = ["--sqlite", &path];
        let create = ["--key", "rows", "--create", "1e-9"];
        let table = ["--table", "my rows", "--column", "name"];
        let text = load(server, &[&of[..], &table, &create].concat()).success().text();
        assert!(text.starts_with("5 rows, 4 of them new"), "{text}");
        assert_eq!(found(client, "rows", &["a", "7", "1.5", "NULL", "", "1"]), ["a", "7", "1.5"]);
        assert_eq!(client.call(&[b"BF.EXISTS".as_slice(), b"rows", b"\x00\xff"]).number(), 1);
        assert_eq!(client.run("BF.INFO rows CAPACITY").elements()[0].number(), 4);
        let query = ["--query", "SELECT * FROM \"my rows\" WHERE id < 3;", "--column", "id"];
        load(server, &[&of[..], &query, &create].concat()).success();
        assert_eq!(found(client, "rows", &["1", "2", "5"]), ["1", "2"]);
        for (wrong, part) in [
            (["--table", "my rows", "--column", "none"], "no such column"),
            (["--table", "none", "--column", "id"], "no such table"),
            (["--query", "SELECT id FROM \"my rows\"", "--column", "none"], "none"),
        ] {
            load(server, &[&of[..], &wrong, &create].concat()).refused(part);
        }
        load(server, &[&of[..], &["--query", "SELECT * FROM \"my rows\""], &create].concat())
            .refused("several columns");
    });
}

#[test]
fn postgresql_tables_and_queries_are_loaded() {
    let database = Database::with_rows(3000);
    let mut session = database.connect().unwrap();
    session
        .batch_execute(
            "CREATE SCHEMA other; CREATE TABLE other.\"My\" (a text, b bytea, c uuid);
             INSERT INTO other.\"My\" VALUES
               ('it''s a \\', '\\x00ff', '00000000-0000-0000-0000-00000000000A'), (NULL, NULL, NULL), ('', '', NULL)",
        )
        .unwrap();
    let url = database.url();
    with_servers(|server| {
        let mut client = server.connect();
        let create = ["--postgres", &url, "--key", "rows", "--create", "1e-9"];
        for more in [&[][..], &["--resume"]] {
            let table = [&create[..], &["--table", "rows", "--column", "id"], more].concat();
            let text = load(&server, &table).success().text();
            assert!(text.starts_with("3,000 rows, 3,000 of them new"), "{text}");
            assert_eq!(found(&mut client, "rows", &["0", "2999", "3000", "-1"]), ["0", "2999"]);
            assert_eq!(client.run("BF.INFO rows CAPACITY").elements()[0].number(), 3000);
            is_alone(&mut client, "rows");
            let other = [&create[..], &["--table", "other.My"], more, &["--column"]].concat();
            load(&server, &[&other[..], &["a"]].concat()).success();
            assert_eq!(found(&mut client, "rows", &["it's a \\", "", "x"]), ["it's a \\", ""]);
            load(&server, &[&other[..], &["b"]].concat()).success();
            assert_eq!(client.call(&[b"BF.EXISTS".as_slice(), b"rows", b"\x00\xff"]).number(), 1);
            load(&server, &[&other[..], &["c"]].concat()).success();
            let id = "00000000-0000-0000-0000-00000000000a";
            assert_eq!(found(&mut client, "rows", &[id]), [id]);
        }
        let query = [&create[..], &["--query", "SELECT id, version FROM rows WHERE id < 10;"]].concat();
        load(&server, &query).refused("choose one with --column");
        load(&server, &[&query[..], &["--column", "id"]].concat()).success();
        assert_eq!(found(&mut client, "rows", &["9", "10"]), ["9"]);
        load(&server, &[&create[..], &["--table", "none", "--column", "id"]].concat())
            .refused("\"none\" does not exist");
        let nobody = ["--postgres", "postgres://guard@127.0.0.1:1/x", "--key", "rows", "--create", "0.1"];
        load(&server, &[&nobody[..], &["--query", "SELECT 1"]].concat()).refused("cannot reach the PostgreSQL server");
        is_alone(&mut client, "rows");
    });
}

/// Starts a load, and waits for its first checkpoint.
fn begun(server: &Server, words: &[String]) -> Child {
    let child = start(words);
    let mut client = server.connect();
    eventually("a checkpoint", || {
        let checkpoint = client.run("GET {seen}:loading:checkpoint");
        checkpoint != nil(2) && !checkpoint.text().contains("\"rows\":0,")
    });
    child
}

/// Starts a load and ends it by a signal after its first checkpoint.
fn interrupted(server: &Server, words: &[String], signal: &str) -> Ended {
    let child = begun(server, words);
    let mut client = server.connect();
    client.run("CLIENT PAUSE 100000 WRITE");
    send(signal, child.id());
    client.run("CLIENT UNPAUSE");
    let ended = Ended::from(child.wait_with_output().unwrap());
    assert_eq!(client.run("EXISTS seen {seen}:loading").number(), 1);
    ended
}

/// Returns the times to live of an interrupted load's keys, in seconds.
fn times_to_live(client: &mut Connection) -> [i64; 2] {
    ["{seen}:loading", "{seen}:loading:checkpoint"].map(|key| client.run(&format!("TTL {key}")).number())
}

const COUNT: usize = 1_000_000;

fn numbers(files: &Files) -> String {
    files.write("numbers", (0..COUNT).map(|number| format!("{number}\n")).collect::<String>())
}

/// Asserts that all items are in the filter.
fn are_all_in(server: &Server) {
    let numbers: Vec<_> = (0..COUNT).map(|number| number.to_string()).collect();
    let mut client = server.connect();
    for part in numbers.chunks(10_000) {
        assert!(client.batched(&[b"BF.MEXISTS", b"seen"], part).into_iter().all(|answer| answer));
    }
    is_alone(&mut client, "seen");
}

#[test]
fn an_interrupted_load_resumes() {
    with_files(|server, client, files| {
        let path = numbers(files);
        let words = words(server, &[&path, "--key", "seen", "--create", "0.001", "1000000", "--resume"]);
        for signal in ["KILL", "INT"] {
            let ended = interrupted(server, &words, signal);
            if signal == "INT" {
                let ended = ended.interrupted(signal, "the same command resumes");
                assert_eq!(ended.stdout, b"");
                let left = times_to_live(client);
                assert!(left.iter().all(|left| (3600..=86_400).contains(left)), "{left:?}");
            }
            let ended = run(&words).success();
            let rows = ended.stderr.split_once("resuming after ").unwrap_or_else(|| panic!("{}", ended.stderr)).1;
            assert!(!rows.starts_with("0 "), "{rows}");
            assert!(ended.text().starts_with("1,000,000 rows, "), "{}", ended.text());
            assert_eq!(client.run("TTL seen").number(), -1);
            are_all_in(server);
            assert!(run(&words).success().stderr.contains("no interrupted load of this source"));
            client.run("DEL seen");
        }
    });
}

/// Each item is in three rows, so the resumed load begins in the middle of an item's rows.
#[test]
fn a_resumed_postgresql_load_counts_each_row_once() {
    let database = Database::with_rows(0);
    let mut session = database.connect().unwrap();
    let rows = format!("CREATE TABLE thrice AS SELECT id / 3 AS id FROM generate_series(0, {COUNT} - 1) AS id");
    session.batch_execute(&format!("{rows}; CREATE INDEX ON thrice (id)")).unwrap();
    let url = database.url();
    with_servers(|server| {
        let table = ["--postgres", &url, "--table", "thrice", "--column", "id", "--key", "seen"];
        let words = words(&server, &[&table[..], &["--create", "1e-9", "1000000", "--resume"]].concat());
        interrupted(&server, &words, "KILL");
        let ended = run(&words).success();
        assert!(ended.stderr.contains("resuming after "), "{ended:?}");
        assert!(ended.text().starts_with("1,000,000 rows, "), "{}", ended.text());
        assert_eq!(server.connect().run("BF.CARD seen").number(), COUNT as i64 / 3 + 1);
    });
}

#[test]
fn a_load_continues_after_a_server_restart() {
    on_every_server(|program| {
        let mut server = Server::with(program).line("appendonly yes").start();
        let files = Files::new();
        let path = numbers(&files);
        let child = begun(&server, &words(&server, &[&path, "--key", "seen", "--create", "0.001"]));
        server.restart(Stop::Kill);
        let ended = Ended::from(child.wait_with_output().unwrap()).success();
        assert!(ended.text().starts_with("1,000,000 rows, "), "{ended:?}");
        are_all_in(&server);
    });
}

/// Starts a load of the standard input, and waits until it owns the checkpoint.
fn begun_from_pipe(server: &Server, words: &[&str]) -> Child {
    let mut client = server.connect();
    let before = client.run("GET {seen}:loading:checkpoint");
    let words = self::words(server, &[&["-", "--key", "seen"], words].concat());
    let child = start(words);
    eventually("it has begun", || {
        client.run("GET {seen}:loading:checkpoint") != before && client.run("EXISTS {seen}:loading").number() == 1
    });
    child
}

/// Writes the rest of the standard input, and waits for the end.
fn ended_after(mut child: Child, input: &str) -> Ended {
    // A load that has ended reads no input.
    _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    Ended::from(child.wait_with_output().unwrap())
}

#[test]
fn the_later_of_two_loads_wins() {
    with_servers(|server| {
        let mut client = server.connect();
        let create = ["--create", "1e-9", "10000"];
        let first = begun_from_pipe(&server, &create);
        let second = begun_from_pipe(&server, &create);
        // The filter under construction is that of the second load.
        let lines: String = (0..5000).map(|number| format!("{number} of the first\n")).collect();
        ended_after(first, &lines).refused("another load of the same key has started");
        assert_eq!(client.run("BF.CARD {seen}:loading").number(), 0);
        ended_after(second, "of the second\n").success();
        assert_eq!(client.run("BF.CARD seen").number(), 1);
        assert_eq!(found(&mut client, "seen", &["0 of the first", "of the second"]), ["of the second"]);
        is_alone(&mut client, "seen");
    });
}

#[test]
fn a_load_that_cannot_stop_an_earlier_one_does_not_begin() {
    with_servers(|server| {
        let mut client = server.connect();
        let first = begun_from_pipe(&server, &["--create", "1e-9", "100"]);
        client.run("ACL SETUSER default -client|kill");
        run_with(words(&server, &["-", "--key", "seen", "--create", "1e-9", "100"]), "of the second\n")
            .refused("an earlier load of this key may still run");
        ended_after(first, "of the first\n").success();
        assert_eq!(found(&mut client, "seen", &["of the first", "of the second"]), ["of the first"]);
        is_alone(&mut client, "seen");
    });
}

#[test]
fn a_signal_ends_a_load_and_deletes_its_filter() {
    with_servers(|server| {
        let mut client = server.connect();
        client.run("BF.ADD seen old");
        for signal in ["INT", "TERM"] {
            let mut child = begun_from_pipe(&server, &["--create", "1e-9", "100"]);
            // It waits for more input.
            let _input = child.stdin.take();
            send(signal, child.id());
            Ended::from(child.wait_with_output().unwrap()).interrupted(signal, "`seen` is unchanged");
            assert_eq!(found(&mut client, "seen", &["old"]), ["old"]);
            is_alone(&mut client, "seen");
        }
    });
}

#[test]
fn the_keys_of_a_killed_load_expire() {
    with_servers(|server| {
        let mut client = server.connect();
        let mut child = begun_from_pipe(&server, &["--create", "1e-9", "100"]);
        child.kill().unwrap();
        child.wait().unwrap();
        let left = times_to_live(&mut client);
        assert!(left.iter().all(|left| (1..=600).contains(left)), "{left:?}");
    });
}

/// The lines before the bad one are many batches. Their replies must not be mistaken for the replies to the clean-up commands.
#[test]
fn a_load_that_fails_late_leaves_nothing() {
    with_files(|server, client, files| {
        let lines: String = (0..50_000).map(|number| format!("{number},x\n")).collect();
        let path = files.write("t.csv", format!("{lines}last\n"));
        client.run("BF.ADD seen old");
        load(server, &[&path, "--column", "2", "--key", "seen", "--create", "0.01", "50000"])
            .refused("line 50001: there is no column 2");
        assert_eq!(found(client, "seen", &["x", "old"]), ["old"]);
        is_alone(client, "seen");
    });
}

#[test]
fn the_examples_in_the_help_are_valid_command_lines() {
    for subcommand in ["load", "dedup"] {
        let help = run([subcommand, "--help"]).success().text().replace("\\\n", "");
        let examples: Vec<_> = help
            .lines()
            .filter(|line| !line.starts_with("Usage"))
            .filter_map(|line| line.trim().split_once("bloomgate "))
            .collect();
        assert!(examples.len() > 3, "{help}");
        for (_, example) in examples {
            let example = example.split(['<', '>']).next().unwrap().strip_prefix(subcommand).unwrap();
            // No server is running there, so a valid command line fails to connect.
            let line = format!("'{}' {subcommand} -p 1 {example}", testing::tool().display());
            let output = std::process::Command::new("sh").args(["-c", &line]).stdin(Stdio::null()).output().unwrap();
            let ended = Ended::from(output).refused("cannot reach");
            assert!(ended.stdout.is_empty(), "{example}");
        }
    }
}

#[test]
fn shards_are_filled_in_place() {
    with_servers(|server| {
        let mut client = server.connect();
        client.run("SET many:shards 3");
        for shard in 0..3 {
            client.run(&format!("BF.RESERVE many:{{{shard}}} 1e-9 1000"));
        }
        let files = Files::new();
        let path = files.write("lines", (0..2000).map(|number| format!("{number}\n")).collect::<String>());
        let text = load(&server, &[&path, "--key", "many", "--shards", "--in-place"]).success().text();
        assert!(text.starts_with("2,000 rows, 2,000 of them new"), "{text}");
        let cards = (0..3).map(|shard| client.run(&format!("BF.CARD many:{{{shard}}}")).number());
        assert_eq!(cards.sum::<i64>(), 2000);
    });
}
