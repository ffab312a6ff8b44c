//! `restore`: damaged files, existing keys, servers that refuse a filter or are killed.

use std::fs;

use crate::backup::{Files, backup, keys, restore};
use crate::running::{Ended, command, run, run_with, send, url};
use testing::{Builder, Server, integer, on_every_server};

#[test]
fn selected_filters_are_renamed_and_read_from_a_pipe() {
    on_every_server(|program| {
        let server = Server::start(program);
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
    on_every_server(|program| {
        let (server, files) = (Server::start(program), Files::new());
        let (mut client, file) = (server.connect(), files.path("file"));
        client.run("BF.MADD one a");
        client.run("BF.MADD two b");
        backup(&server, &["--all"], &file).success();
        client.run("DEL one");
        client.run("BF.ADD two c");
        restore(&server, &[], &file).refused("the server already has `two`");
        assert_eq!(keys(&mut client), 1);
        // A value of another type is never replaced.
        client.run("SET one 1");
        restore(&server, &["--replace"], &file).refused("the key `one` on the server has type ");
        assert_eq!(client.run("BF.EXISTS two c"), integer(1));
        client.run("DEL one");
        restore(&server, &["--replace"], &file).success();
        assert_eq!(client.run("BF.EXISTS two c"), integer(0));
        assert_eq!(client.run("BF.EXISTS one a"), integer(1));
        // A temporary key of a run that was killed or is still running.
        client.run("DEL one two");
        client.run("BF.ADD {one}:restoring x");
        restore(&server, &[], &file).refused("another restore is going on");
        restore(&server, &["--replace"], &file).success();
        assert_eq!(keys(&mut client), 2);
    });
}

#[test]
fn a_damaged_file_changes_nothing_on_the_server() {
    on_every_server(|program| {
        let (server, files) = (Server::start(program), Files::new());
        let (mut client, file, torn) = (server.connect(), files.path("file"), files.path("torn"));
        client.run("BF.MADD one a b c");
        client.run("BF.INSERT two TIGHTENING 0.5 ITEMS 1");
        client.run("BF.INSERT three LAYOUT redisbloom ITEMS 1");
        for words in [vec!["--all"], vec!["--all", "--compress"]] {
            backup(&server, &words, &file).success();
            client.run("FLUSHALL");
            let bytes = fs::read(&file).unwrap();
            for position in (0..bytes.len()).step_by(bytes.len() / 40 + 1) {
                let mut damaged = bytes.clone();
                damaged[position] ^= 0x10;
                fs::write(&torn, &damaged).unwrap();
                let ended = restore(&server, &["--replace"], &torn).refused("torn: ");
                assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
                fs::write(&torn, &bytes[..position]).unwrap();
                restore(&server, &["--replace"], &torn).refused("torn: ");
            }
            fs::write(&torn, [&*bytes, b"\0"].concat()).unwrap();
            restore(&server, &[], &torn).refused("data follows its end");
            assert_eq!(keys(&mut client), 0);
            restore(&server, &[], &file).success();
        }
        fs::write(&torn, b"REDIS0011").unwrap();
        restore(&server, &[], &torn).refused("not a file of `bloomgate backup`");
        let mut later = fs::read(&file).unwrap();
        later[8] = 2;
        let checksum = crc32fast::hash(&later[..12]);
        later[12..16].copy_from_slice(&checksum.to_le_bytes());
        fs::write(&torn, later).unwrap();
        restore(&server, &["--replace"], &torn).refused("format version 2");
        restore(&server, &[], &files.path("none")).refused("cannot read");
        restore(&server, &["--key", "four"], &file).refused("has no filter `four`");
        assert_eq!(keys(&mut client), 3);
    });
}

/// A server without room for the filter refuses it at its first record or in the middle.
#[test]
fn nothing_is_left_of_a_refused_filter() {
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

#[test]
fn nothing_is_left_of_a_filter_whose_restore_a_signal_ends() {
    on_every_server(|program| {
        let (server, files) = (Server::start(program), Files::new());
        let (mut client, file) = (server.connect(), files.path("file"));
        // A hundred records.
        client.run("BF.RESERVE large 0.01 84000000 NONSCALING");
        backup(&server, &["large"], &file).success();
        client.run("FLUSHALL");
        client.run("CLIENT PAUSE 100000 WRITE");
        let child = command(["restore", "--url", &url(&server), file.to_str().unwrap()])
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        testing::eventually("the first record", || client.run("CLIENT LIST").text().contains("cmd=bf.loadchunk"));
        send("TERM", child.id());
        client.run("CLIENT UNPAUSE");
        Ended::from(child.wait_with_output().unwrap()).interrupted("TERM", "cannot restore `large`: interrupted");
        assert_eq!(keys(&mut client), 0);
    });
}

/// The server or the tool is killed during a restore: the key then holds the complete filter or nothing.
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
                .stderr(std::process::Stdio::piped())
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
                // The temporary key expires, and is recognised as such.
                assert!((1..=600).contains(&there.run("TTL {large}:restoring").number()));
                restore(&other, &[], &file).refused("another restore");
            }
            restore(&other, &["--replace"], &file).success();
            assert_eq!(there.run("DEBUG DIGEST-VALUE large").elements()[0].text(), digest);
            assert_eq!(keys(&mut there), 1);
        }
    });
}
