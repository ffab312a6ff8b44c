//! `build`: filters built without a server equal a server's filters.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use flate2::{Compression, write::GzEncoder};

use crate::running::{Running, command, run, run_with, send, url, with_servers};
use testing::{eventually, integer};

/// Options of `build` after the rate and the capacity, and the same options of BF.RESERVE.
const SPECS: [(&str, &str, &str); 8] = [
    ("0.01 30000", "--seed 700 --nonscaling", "SEED 700 NONSCALING"),
    ("0.01 100", "--seed 700", "SEED 700"),
    ("0.001 1000", "--seed 7 --expansion 1", "SEED 7 EXPANSION 1"),
    ("1e-6 500", "--seed 0 --expansion 4", "SEED 0 EXPANSION 4"),
    (
        "0.01 5000",
        "--hash siphash --seed 000102030405060708090a0b0c0d0e0f",
        "HASH siphash SEED 000102030405060708090a0b0c0d0e0f",
    ),
    ("0.01 1000", "--layout redisbloom", "LAYOUT redisbloom"),
    ("0.01 30000", "--counting --seed 12345", "COUNTING SEED 12345"),
    ("0.01 3000000", "--seed 700", "SEED 700"),
];

/// Lines, some of which occur twice.
fn items() -> Vec<String> {
    (0..30_000_u32).map(|number| format!("item {}", number % 20_000)).collect()
}

#[test]
fn a_built_filter_equals_a_servers() {
    with_servers(|server| {
        let mut client = server.connect();
        let (folder, items) = (tempfile::tempdir().unwrap(), items());
        let path = |name: &str| folder.path().join(name).display().to_string();
        fs::write(path("input"), items.join("\n")).unwrap();
        let mut packed = GzEncoder::new(fs::File::create(path("input.gz")).unwrap(), Compression::fast());
        packed.write_all(items.join("\n").as_bytes()).unwrap();
        packed.finish().unwrap();
        for (number, (spec, words, reserve)) in SPECS.into_iter().enumerate() {
            client.run(&format!("BF.RESERVE made {spec} {reserve}"));
            let new = client.batched(&[b"BF.MADD", b"made"], &items).into_iter().filter(|is_new| *is_new).count();
            let (threads, input) = ([1, 2, 5][number % 3].to_string(), ["input", "input.gz"][number % 2]);
            let out = path("out");
            let mut line = vec!["build"];
            line.extend(spec.split(' ').chain(words.split(' ')));
            let input = path(input);
            line.extend([&*input, "--threads", &threads, "-o", &out, "--key", "built", "--verify", "--json"]);
            let json: serde_json::Value = serde_json::from_str(&run(line).success().text()).unwrap();
            assert_eq!(
                (json["lines"].as_u64(), json["new"].as_u64()),
                (Some(30_000), Some(new as u64)),
                "{spec} {words}"
            );
            run(["restore", "--url", &url(&server), &out]).success();
            for ask in ["DEBUG DIGEST-VALUE", "BF.INFO", "BF.CARD"] {
                assert_eq!(client.run(&format!("{ask} built")), client.run(&format!("{ask} made")), "{spec} {words}");
            }
            client.run("DEL built made");
        }
    });
}

#[test]
fn the_standard_input_is_built_with_a_random_seed() {
    with_servers(|server| {
        let built = run_with(["build", "0.5", "10", "-o", "-"], "a\r\n\nb").success();
        assert!(
            built.stderr.contains("with a rate of 0.25") && built.stderr.contains("2 lines, 2 of them new"),
            "{built:?}"
        );
        run_with(["restore", "--url", &url(&server), "-", "--key", "filter=seen"], built.stdout).success();
        let mut client = server.connect();
        assert_eq!(client.run("BF.MEXISTS seen a b"), client.run("BF.MEXISTS seen b a"));
        assert_eq!(client.run("BF.EXISTS seen a"), integer(1));
        assert_eq!(client.run("BF.CARD seen"), integer(2));
    });
}

#[test]
fn a_failed_build_prints_one_line_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out").display().to_string();
    let refused = |words: &[&str], part: &str| {
        let ended = run([&["build"], words, &["-o", &out]].concat()).refused(part);
        assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    };
    refused(&["0.01", "9223372036854775807"], "cannot create the filter");
    refused(&["0.01", "10", "/nowhere"], "cannot read /nowhere");
    for threads in ["1", "2", "5"] {
        let words = ["build", "0.01", "10000", "--nonscaling", "--threads", threads, "-o", &out];
        let lines: String = (0..100_000).map(|number| format!("{number}\n")).collect();
        let ended = run_with(words, lines).refused("non scaling filter is full");
        assert!(ended.stderr.contains("lines: line 10,"), "{ended:?}");
        // The gzip file was truncated.
        run_with(["build", "0.01", "10", "--threads", threads, "-o", &out], &b"\x1f\x8b\x08\0\0"[..])
            .refused("cannot read -");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
    run(["build", "0.01", "10", "/dev/null", "--allow-empty", "-o", "/dev/full"]).refused("cannot write /dev/full");
}

#[test]
fn a_signal_stops_a_build_and_removes_the_partial_file() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out").display().to_string();
    let words = ["build", "0.01", "1000", "-o", &out];
    run_with(words, "a\n").success();
    let before = fs::read(&out).unwrap();
    for signal in ["INT", "TERM"] {
        // The build waits for its input, which does not end.
        let mut running = Running(command(words).stdin(Stdio::piped()).spawn().unwrap());
        // Waiting for a process closes its input, unless the input is moved out first.
        let _input = running.0.stdin.take();
        let partial = folder.path().join("out.partial");
        eventually("the partial file", || partial.exists());
        send(signal, running.0.id());
        let status = running.0.wait().unwrap();
        assert_eq!(status.code(), None, "{signal}: {status}");
        assert!(!partial.exists() && fs::read(&out).unwrap() == before, "{signal}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
