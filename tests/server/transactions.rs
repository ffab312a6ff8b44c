//! The commands inside MULTI, in scripts and functions, and with WATCH, and their keyspace events.

use std::path::Path;

use testing::{Server, array, error, in_both_protocols, integer, nil, ok, on_every_server, simple, with_client};

#[test]
fn a_transaction_answers_each_command_as_it_would_alone() {
    in_both_protocols(|client, _| {
        client.run("SET string x");
        client.run("MULTI");
        for line in [
            "BF.RESERVE k 0.0001 2 NONSCALING SEED 1",
            "BF.RESERVE k 0.01 100",
            "BF.RESERVE k 0.0001 2 NONSCALING SEED 1 EXIST_OK",
            "BF.ADD k a",
            "BF.MADD k a b c",
            "BF.EXISTS k b",
            "BF.ADD string x",
            "BF.INSERT k NOCREATE ITEMS a",
            "BF.INSERT k FROBNICATE ITEMS a",
            "BF.CARD k",
        ] {
            assert_eq!(client.run(line), simple("QUEUED"), "{line}");
        }
        let yes = client.answer(true);
        let no = client.answer(false);
        let expected = array([
            ok(),
            error("ERR item exists"),
            ok(),
            yes.clone(),
            array([no.clone(), yes.clone(), error("ERR non scaling filter is full")]),
            yes,
            error("WRONGTYPE Operation against a key holding the wrong kind of value"),
            array([no]),
            error("Unknown argument received"),
            integer(2),
        ]);
        assert_eq!(client.run("EXEC"), expected);

        client.run("MULTI");
        assert!(client.run("BF.ADD k").is_error());
        assert!(client.run("EXEC").error_text().starts_with("EXECABORT"));
    });
}

#[test]
fn an_add_of_nothing_new_does_not_break_a_watch() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut other = server.connect();
        other.run("BF.RESERVE full 0.0001 1 NONSCALING SEED 1");
        other.run("BF.ADD full a");
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            other.run("DEL k");
            for line in [
                "BF.RESERVE k 0.01 100 SEED 7",
                "BF.MADD k a b",
                "BF.INSERT keyed HASH siphash ITEMS a b",
                "BF.RESERVE counting 0.01 100 COUNTING",
                "BF.RESERVE ring 0.01 100 WINDOW 1000",
            ] {
                assert!(!other.run(line).is_error(), "{line}");
            }
            for line in [
                "BF.ADD k a",
                "BF.MADD k a b a",
                "BF.INSERT k ITEMS b",
                "BF.INSERT k NOCREATE CAPACITY 9 ITEMS b",
                "BF.EXISTS k a",
                "BF.MEXISTS k z",
                "BF.CARD k",
                "BF.INFO k",
                "BF.INFO k ITEMS",
                "BF.DEBUG k",
                "BF.SCANDUMP k 0",
                "BF.RESERVE k 0.01 100",
                "BF.RESERVE k 0.01 100 EXIST_OK",
                "BF.RESERVE k 0.01 200 EXIST_OK",
                "BF.RESERVE ring 0.01 100 WINDOW 1000 EXIST_OK",
                "BF.INSERT k CAPACITY 0 ITEMS z",
                "BF.ADD full z",
                "BF.MADD full z a",
                "BF.EXISTS missing a",
                "BF.INSERT missing NOCREATE ITEMS a",
                "BF.INSERT missing CAPACITY x ITEMS a",
                "BF.LOADCHUNK missing 2 rubbish",
                "BF.DEL keyed absent",
                "BF.MDEL keyed absent absent",
                "BF.COUNT counting a",
            ] {
                client.run("WATCH k full missing keyed counting ring");
                other.run(line);
                client.run("MULTI");
                client.run("PING");
                assert_eq!(client.run("EXEC"), array([simple("PONG")]), "{line}");
            }
            for line in [
                "BF.ADD k c",
                "BF.MADD k a d",
                "BF.INSERT k ITEMS e",
                "BF.ADD missing x",
                "BF.RESERVE r 0.01 100 SEED 7",
                "BF.INSERT new CAPACITY 9 ITEMS a",
                "BF.MDEL keyed b absent",
                "BF.DEL keyed a",
                "BF.ADD counting a",
                "BF.ADD counting a",
                "BF.ROTATE ring",
                "BF.MERGE k r",
                "BF.CLEAR k",
            ] {
                client.run("WATCH k missing r new keyed counting ring");
                other.run(line);
                client.run("MULTI");
                client.run("PING");
                let aborted = if protocol == 3 { nil(3) } else { testing::Reply::NullArray };
                assert_eq!(client.run("EXEC"), aborted, "{line}");
            }
            other.run("DEL missing r new keyed counting ring");
        }
    });
}

#[test]
fn a_script_gets_numbers_or_booleans_by_its_own_protocol() {
    in_both_protocols(|client, _| {
        let mut script = |body: &str| client.call(&["EVAL", body, "1", "k", "a", "b"]);
        assert_eq!(script("return redis.call('BF.ADD', KEYS[1], ARGV[1])"), integer(1));
        assert_eq!(script("return redis.call('BF.ADD', KEYS[1], ARGV[1])"), integer(0));
        let madd = "return redis.call('BF.MADD', KEYS[1], ARGV[1], ARGV[2], ARGV[2])";
        assert_eq!(script(madd), array([integer(0), integer(1), integer(0)]));
        assert_eq!(script("return redis.call('BF.EXISTS', KEYS[1], 'z')"), integer(0));
        assert_eq!(script("return redis.call('BF.CARD', KEYS[1])"), integer(2));
        let kind = "redis.setresp(3); return type(redis.call('BF.EXISTS', KEYS[1], ARGV[1]))";
        assert_eq!(script(kind).text(), "boolean");
        let kind = "redis.setresp(3); return type(redis.call('BF.INFO', KEYS[1])['map'])";
        assert_eq!(script(kind).text(), "table");
        assert_eq!(script("return redis.call('BF.INFO', KEYS[1], 'ITEMS')"), array([integer(2)]));
        assert_eq!(script("return redis.pcall('BF.RESERVE', KEYS[1], 0.01, 100)"), error("ERR item exists"));
        assert_eq!(script("return redis.call('BF.RESERVE', KEYS[1], 0.01, 100, 'EXIST_OK')"), ok());
        assert_eq!(
            script("return redis.pcall('BF.INSERT', KEYS[1], 'FROBNICATE', 'ITEMS', 'a').err"),
            testing::bulk("Unknown argument received")
        );
        assert!(script("return redis.call('BF.ADD', KEYS[1])").is_error());
    });
}

#[test]
fn a_reading_script_cannot_add() {
    with_client(|_, client| {
        client.run("BF.ADD k a");
        assert_eq!(client.call(&["EVAL_RO", "return redis.call('BF.EXISTS', KEYS[1], 'a')", "1", "k"]), integer(1));
        let reply = client.call(&["EVAL_RO", "return redis.call('BF.ADD', KEYS[1], 'b')", "1", "k"]);
        assert!(reply.is_error());
        assert_eq!(client.run("BF.CARD k"), integer(1));
    });
}

/// The keyspace events of commands, each with its key.
fn events_of(program: &Path, lines: &[&str]) -> Vec<String> {
    let server = Server::with(program).line("notify-keyspace-events KEA").start();
    let (mut client, mut listener) = (server.connect(), server.connect());
    listener.run("PSUBSCRIBE __keyevent@0__:*");
    for line in lines {
        client.run(line);
    }
    client.run("SET end x");
    let mut events = Vec::new();
    loop {
        let message = listener.receive().expect("an event");
        let [.., channel, key] = message.elements() else { panic!("{message:?}") };
        let name = channel.text().replace("__keyevent@0__:", "");
        if name == "set" {
            return events;
        }
        if name.starts_with("bloom.") || name == "del" {
            events.push(format!("{name} {}", key.text()));
        }
    }
}

#[test]
fn a_change_of_any_filter_is_announced_and_a_question_is_not() {
    on_every_server(|program| {
        for (lines, expected) in [
            (
                vec![
                    "BF.RESERVE k 0.0001 4 SEED 1 WINDOW 1000 BUCKETS 3",
                    "BF.ADD k a",
                    "BF.ROTATE k",
                    "BF.MADD k b c d",
                    "BF.EXISTS k a",
                    "BF.RESERVE r 0.0001 4 SEED 1 ROLLING BUCKETS 3",
                    "BF.MADD r a b",
                    "BF.MADD r c d e f g h",
                ],
                "reserve k, add k, rotate k, scale k, add k, reserve r, add r, rotate r, add r",
            ),
            (
                vec![
                    "BF.RESERVE k 0.01 100 HASH siphash",
                    "BF.MADD k a b c",
                    "BF.DEL k absent",
                    "BF.MDEL k absent absent",
                    "BF.DEL k a",
                    "BF.MDEL k a b absent",
                ],
                "reserve k, add k, del k, del k",
            ),
            (
                vec!["BF.RESERVE k 0.01 3 COUNTING SEED 1", "BF.MADD k a a a", "BF.ADD k a", "BF.COUNT k a"],
                "reserve k, add k, full k",
            ),
            (
                vec!["BF.RESERVE a 0.01 9 SEED 7", "BF.RESERVE b 0.01 9 SEED 7", "BF.ADD b x", "BF.MERGE a b"],
                "reserve a, reserve b, add b, merge a",
            ),
            (vec!["BF.ADD a x", "BF.MERGE new a", "BF.CLEAR a"], "reserve a, add a, reserve new, merge new, clear a"),
        ] {
            let expected: Vec<String> = expected.split(", ").map(|event| format!("bloom.{event}")).collect();
            assert_eq!(events_of(program, &lines), expected, "{lines:?}");
        }
    });
}

#[test]
fn a_filter_of_redisblooms_layout_sends_the_same_events_as_a_native_one() {
    on_every_server(|program| {
        let [native, theirs] = ["CONFIG SET bf.layout native", "CONFIG SET bf.layout redisbloom"].map(|setting| {
            let lines = [
                setting,
                "BF.RESERVE k 1e-12 2 EXPANSION 1",
                "BF.ADD k a",
                "BF.ADD k a",
                "BF.MADD k a b c d e",
                "BF.MADD k a b",
                "BF.INSERT k ITEMS e f",
                "BF.ADD new a",
                "DEL k",
            ];
            events_of(program, &lines)
        });
        assert_eq!(theirs, native);
        for name in ["bloom.reserve k", "bloom.add k", "bloom.scale k", "bloom.add new", "del k"] {
            assert!(native.iter().any(|event| event == name), "{name} is not among {native:?}");
        }
    });
}
