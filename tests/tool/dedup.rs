//! `dedup`: prints each line once, whatever the form of the input and even if the server fails meanwhile.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::thread;

use crate::running::{Ended, Files, collect, command, run, run_with, send, start, url, with_servers};
use testing::{Rng, Server, Stop, eventually, on_every_server};

/// Options for a filter without false positives among some thousand lines.
const EXACT: [&str; 3] = ["--create", "1e-9", "200000"];

/// The arguments of a run with a filter without false positives.
fn words<'a>(url: &'a str, key: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    ["dedup", "--url", url, "--key", key].iter().chain(more).copied().collect()
}

/// Lines of arbitrary bytes, many of which occur twice.
fn binary_lines(count: usize) -> Vec<u8> {
    let mut rng = Rng::new(7);
    let mut text = Vec::new();
    for _ in 0..count {
        let number = rng.below(count as u64 / 2);
        let mut line_rng = Rng::new(number);
        for _ in 0..number % 40 {
            let byte = line_rng.below(256) as u8;
            text.push(if matches!(byte, b'\n' | b'\r') { 0 } else { byte });
        }
        text.push(b'\n');
    }
    text
}

/// The first occurrence of each line, according to a set.
fn first_of_each(text: &[u8]) -> Vec<u8> {
    let mut seen = HashSet::new();
    text.split_inclusive(|byte| *byte == b'\n').filter(|line| seen.insert(line.to_vec())).flatten().copied().collect()
}

#[test]
fn each_line_is_printed_once_and_in_order() {
    with_servers(|server| {
        let url = url(&server);
        let text = binary_lines(60_000);
        let once = first_of_each(&text);
        assert!(once.len() < text.len() / 3 * 2);
        assert!(run_with(words(&url, "seen", &EXACT), text.clone()).success().stdout == once);
        // A second run has seen all of them.
        assert_eq!(run_with(words(&url, "seen", &[]), text.clone()).success().stdout, b"");
        let seen = run_with(words(&url, "seen", &["--seen"]), text.clone()).success().stdout;
        assert!(seen == text);
        // --dry-run adds nothing.
        let more = "new\n\r\nnew\r\nlast";
        for _ in 0..2 {
            let asked = run_with(words(&url, "seen", &["--dry-run"]), more).success();
            assert_eq!((asked.text(), asked.stderr), ("new\nnew\r\nlast\n".to_owned(), String::new()));
        }
        let added = run_with(words(&url, "seen", &["--verbose"]), more).success();
        assert_eq!(added.text(), "new\nlast\n");
        assert!(added.stderr.starts_with("4 lines, 2 of them new, "), "{}", added.stderr);
        let summary = run_with(words(&url, "seen", &["--summary-json"]), more).success().stderr;
        let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
        assert_eq!((summary["lines"].as_u64(), summary["new"].as_u64()), (Some(4), Some(0)));
        assert!(summary["seconds"].as_f64().unwrap() < 3600.0);
    });
}

#[test]
fn a_filter_of_any_kind_is_created() {
    with_servers(|server| {
        let url = url(&server);
        for (key, kind) in [("window", "WINDOW 60 HASH siphash"), ("valkey", "TIGHTENING 0.5")] {
            let create = ["--create", "0.001", "100", "--"];
            let words = words(&url, key, &create).into_iter().chain(kind.split(' '));
            assert_eq!(run_with(words, "a\na\n").success().text(), "a\n");
        }
        let stats = server.connect().run("BF.STATS window");
        assert_eq!((stats.field("Kind").text(), stats.field("Hash").text()), ("window".into(), "siphash".into()));
        assert_eq!(server.connect().run("BF.STATS valkey").field("Layout").text(), "valkey-bloom");
    });
}

#[test]
fn a_closed_output_is_not_an_error() {
    with_servers(|server| {
        let url = url(&server);
        let mut child = start(words(&url, "seen", &EXACT));
        let mut stdin = child.stdin.take().unwrap();
        let writer = thread::spawn(move || {
            let text: String = (0..100_000).map(|number| format!("{number} and some more\n")).collect();
            // The tool may exit before it has read the whole input.
            _ = stdin.write_all(text.as_bytes());
        });
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let ended = Ended::from(child.wait_with_output().unwrap()).success();
        writer.join().unwrap();
        assert_eq!((first.as_str(), ended.stderr.as_str()), ("0 and some more\n", ""));
    });
}

#[test]
fn a_line_is_printed_while_the_input_pauses() {
    with_servers(|server| {
        let url = url(&server);
        let mut child =
            command(words(&url, "seen", &EXACT)).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for (written, line) in [("one\n", "one"), ("one\ntwo\nthr", "two"), ("ee\none\n", "three")] {
            stdin.write_all(written.as_bytes()).unwrap();
            // The next line is written only after this line was printed.
            assert_eq!(lines.next().unwrap().unwrap(), line);
        }
        drop(stdin);
        assert!(lines.next().is_none());
        assert!(child.wait().unwrap().success());
    });
}

/// `input` tests compressed files.
#[test]
fn files_are_read_in_order() {
    with_servers(|server| {
        let (url, files) = (url(&server), Files::new());
        let (one, other) = (files.write("one", "a\nb"), files.write("other", "b\nc\n"));
        let mut all = words(&url, "seen", &EXACT);
        all.extend([&*one, "-", &other]);
        assert_eq!(run_with(&all, "x\na\n").success().text(), "a\nb\nx\nc\n");
        all.push("/nowhere/file");
        assert_eq!(run(&all).refused("cannot read /nowhere/file").text(), "");
    });
}

#[test]
fn a_json_field_is_the_item_and_the_whole_line_is_printed() {
    with_servers(|server| {
        let url = url(&server);
        let tsv = [&EXACT[..], &["--tsv", "--column", "2"]].concat();
        let text = "1\ta\tx\r\n2\tb\n3\ta\n\tb\ty\n5\tc";
        assert_eq!(run_with(words(&url, "tsv", &tsv), text).success().text(), "1\ta\tx\r\n2\tb\n5\tc\n");
        let json = [&EXACT[..], &["--json", "/user/id"]].concat();
        let text = r#"{"user":{"id":7,"name":"a"}}
{"user": {"id": "7"}, "more": [1]}
{"user":{"id":"\u0038"}}
{"user":{"id":8}}
"#;
        let once: String = text.split_inclusive('\n').step_by(2).collect();
        assert_eq!(run_with(words(&url, "json", &json), text).success().text(), once);

        // A line without the field ends the run after all earlier lines were printed.
        let bad = run_with(words(&url, "json", &["--json", "id"]), "{\"id\":1}\n{\"id\":2}\n{}\n{\"id\":3}\n");
        assert_eq!(bad.refused("cannot read -: line 3: there is no `id`").text(), "{\"id\":1}\n{\"id\":2}\n");
        let torn = run_with(words(&url, "json", &["--json", "id"]), "{\"id\":1}\n{\"id\":\n");
        torn.refused("cannot read -: line 2: invalid JSON: EOF while parsing a value at column 6");
        let words = words(&url, "json", &["--json", "id", "--skip-bad"]);
        let skipped = run_with(&words, "{}\n{\"id\":1}\nnot json\n{\"id\":3}\n\n").success();
        assert_eq!(skipped.text(), "{\"id\":3}\n");
        assert!(skipped.stderr.contains("skipped 3 lines without the field"), "{}", skipped.stderr);
        assert_eq!(run_with(&words, "{}\n").success().text(), "");
    });
}

#[test]
fn a_server_that_is_killed_loses_no_line() {
    on_every_server(|program| {
        let mut server = Server::with(program).line("appendonly yes").start();
        let url = url(&server);
        let mut child = start(words(&url, "seen", &EXACT));
        let mut stdin = child.stdin.take().unwrap();
        let count = 60_000;
        let writer = thread::spawn(move || {
            for part in 0..count / 100 {
                let lines: String =
                    (part * 100..part * 100 + 100).map(|number| format!("{number}\n{number}\n")).collect();
                stdin.write_all(lines.as_bytes()).unwrap();
            }
        });
        let mut stdout = child.stdout.take().unwrap();
        let reader = thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).unwrap();
            text
        });
        for number in 1..=3 {
            let mut client = server.connect();
            eventually("lines are added", || client.run("BF.CARD seen").number() > number * 5000);
            server.restart(Stop::Kill);
        }
        let ended = Ended::from(child.wait_with_output().unwrap()).success();
        writer.join().unwrap();
        let text = reader.join().unwrap();
        let lines: HashSet<_> = text.lines().collect();
        assert_eq!(lines.len(), count, "{}", ended.stderr);
        // Only lines in flight were printed twice, and their number is reported.
        let twice = text.lines().count() - count;
        assert!(twice == 0 || ended.stderr.contains("that may not be new"), "{twice}: {}", ended.stderr);
        assert!(twice <= 3 * 8 * 1024, "{twice}");
    });
}

#[test]
fn a_full_filter_is_an_error() {
    with_servers(|server| {
        let url = url(&server);
        server.connect().run("BF.RESERVE small 1e-12 1000 NONSCALING");
        let text: String = (0..50_000).map(|number| format!("{number}\n")).collect();
        let ended = run_with(words(&url, "small", &[]), text.clone()).refused("is full");
        let lines: Vec<_> = text.lines().take(1000).collect();
        assert_eq!(ended.text().lines().collect::<Vec<_>>(), lines);
        assert_eq!(server.connect().run("BF.CARD small").number(), 1000);
    });
}

#[test]
fn a_missing_filter_is_an_error_without_create() {
    with_servers(|server| {
        let url = url(&server);
        run_with(words(&url, "seen", &[]), "a\n").refused("no filter `seen`: create it with --create RATE CAPACITY");
        assert_eq!(server.connect().run("EXISTS seen").number(), 0);
        run_with(words(&url, "seen", &EXACT), "a\n").success();
        assert_eq!(run_with(words(&url, "seen", &EXACT), "a\nb\n").success().text(), "b\n");
        assert_eq!(server.connect().run("BF.INFO seen CAPACITY").elements()[0].number(), 200_000);
        server.connect().run("SET text x");
        run_with(words(&url, "text", &[]), "a\n").refused("a value that is not a filter");
        run_with(words(&url, "text", &EXACT), "a\n").refused("a value that is not a filter");
    });
}

#[test]
fn a_sharded_filter_is_used_as_one_filter() {
    with_servers(|server| {
        let url = url(&server);
        let mut client = server.connect();
        run_with(words(&url, "many", &["--shards"]), "a\n").refused("its key `many:shards` is missing");
        client.run("SET many:shards 5");
        for shard in 0..4 {
            client.run(&format!("BF.RESERVE many:{{{shard}}} 1e-9 20000"));
        }
        run_with(words(&url, "many", &["--shards"]), "a\n")
            .refused("the shard `many:{4}` of the filter `many` is missing");
        client.run("BF.RESERVE many:{4} 1e-9 20000");
        let text = binary_lines(20_000);
        let once = first_of_each(&text);
        assert!(run_with(words(&url, "many", &["--shards", "--dry-run"]), text.clone()).success().stdout == text);
        assert!(run_with(words(&url, "many", &["--shards"]), text.clone()).success().stdout == once);
        assert_eq!(run_with(words(&url, "many", &["--shards", "--dry-run"]), text.clone()).success().stdout, b"");
        let lines = once.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        for line in lines.step_by(101) {
            let key = format!("many:{{{}}}", crc32fast::hash(line) % 5);
            assert_eq!(client.call(&[b"BF.EXISTS", key.as_bytes(), line]).number(), 1);
        }
        client.run("SET many:shards x");
        run_with(words(&url, "many", &["--shards"]), "a\n").refused("not a number of shards");
    });
}

#[test]
fn an_interrupted_run_prints_what_it_sent() {
    with_servers(|server| {
        let url = url(&server);
        for signal in ["INT", "TERM"] {
            let mut child = start(words(&url, signal, &EXACT));
            let mut stdin = child.stdin.take().unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            stdin.write_all(b"one\ntwo\n").unwrap();
            assert_eq!(lines.next().unwrap().unwrap(), "one");
            send(signal, child.id());
            let rest: Vec<_> = lines.map(Result::unwrap).collect();
            Ended::from(child.wait_with_output().unwrap()).interrupted(signal, "are printed");
            assert_eq!(
                (rest, server.connect().run(&format!("BF.CARD {signal}")).number()),
                (vec!["two".to_owned()], 2)
            );
        }
    });
}

/// A server that hangs keeps its connections.
#[test]
fn a_server_that_hangs_is_reported_and_loses_no_line() {
    with_servers(|server| {
        let url = url(&server);
        let mut child = start(words(&url, "seen", &EXACT));
        let errors = collect(child.stderr.take().unwrap());
        let mut stdin = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        stdin.write_all(b"one\n").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "one");
        send("STOP", server.process_id());
        stdin.write_all(b"two\n").unwrap();
        eventually("the report", || errors.lock().unwrap().contains("no answer for 10 s; waiting for it"));
        send("CONT", server.process_id());
        assert_eq!(lines.next().unwrap().unwrap(), "two");
        drop(stdin);
        assert!(lines.next().is_none() && child.wait().unwrap().success());
    });
}

/// The limit of the file size acts like a full disk: only part of the lines are written.
#[test]
fn lines_that_a_full_disk_costs_are_counted() {
    with_servers(|server| {
        let url = url(&server);
        let folder = tempfile::tempdir().unwrap();
        let (input, output) = (folder.path().join("in"), folder.path().join("out"));
        let text: String = (0..50_000).map(|number| format!("{number}\n")).collect();
        std::fs::write(&input, text).unwrap();
        for (key, limit) in [("some", 90), ("none", 0)] {
            let line = format!("ulimit -f {limit}; trap '' XFSZ; exec \"$@\" > '{}'", output.display());
            let words = words(&url, key, &["--create", "1e-9", "200000", input.to_str().unwrap()]);
            let tool = testing::tool();
            let shell = std::process::Command::new("sh")
                .args(["-c", &line, "sh", tool.to_str().unwrap()])
                .args(words)
                .output()
                .unwrap();
            let ended = Ended::from(shell).refused("not printed, although the filter has them: cannot write");
            let printed = std::fs::read_to_string(&output).unwrap().matches('\n').count();
            assert_eq!(printed > 0, limit > 0);
            let added = server.connect().run(&format!("BF.CARD {key}")).number();
            let lost = ended.stderr.lines().last().unwrap().split(" line").next().unwrap();
            let lost: String = lost.chars().filter(char::is_ascii_digit).collect();
            let lost: i64 = lost.parse().unwrap();
            assert_eq!(printed as i64 + lost, added, "{ended:?}");
        }
    });
}

#[test]
fn dedup_works_in_a_cluster() {
    on_every_server(|program| {
        let server = Server::with(program).line("cluster-enabled yes").line("cluster-require-full-coverage no").start();
        let url = url(&server);
        let mut client = server.connect();
        client.run("CLUSTER ADDSLOTSRANGE 0 16383");
        eventually("the cluster is up", || client.run("CLUSTER INFO").text().contains("cluster_state:ok"));
        let text = binary_lines(20_000);
        let once = first_of_each(&text);
        let cluster = [&EXACT[..], &["--cluster"]].concat();
        assert!(run_with(words(&url, "seen", &cluster), text.clone()).success().stdout == once);
        client.run("SET many:shards 7");
        for shard in 0..7 {
            client.run(&format!("BF.RESERVE many:{{{shard}}} 1e-9 20000"));
        }
        assert!(run_with(words(&url, "many", &["--cluster", "--shards"]), text.clone()).success().stdout == once);
        // The filter is built in the slot of its key.
        let loaded =
            run_with(["load", "-", "--url", &url, "--cluster", "--key", "seen", "--create", "1e-9", "100"], "new\n");
        assert!(loaded.success().text().starts_with("1 row, 1 of them new"));
        assert_eq!(client.run("BF.CARD seen").number(), 1);
        let braces = ["load", "-", "--url", &url, "--cluster", "--key", "a}b", "--create", "1e-9", "100"];
        run_with(braces, "new\n").refused("use --in-place");
    });
}
