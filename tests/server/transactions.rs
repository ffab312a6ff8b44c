//! The commands inside MULTI, in scripts and functions, and with WATCH, and their keyspace events.

use std::path::Path;

use testing::{
    Connection, Reply, Server, append_only_length, array, error, in_both_protocols, integer, ok, on_every_server,
    simple, with_append_only_client, with_client,
};

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

/// Commands that change nothing, on the filters `k` with the items a, b and c, `full`, `keyed`, `counting` and `ring`, and on `string`.
const UNCHANGED: [&str; 34] = [
    "BF.ADD k a",
    "BF.MADD k a b c a",
    "BF.INSERT k ITEMS a b",
    "BF.INSERT k NOCREATE CAPACITY 9 ITEMS b",
    "BF.INSERT k SEED 5 CAPACITY 9 ITEMS c",
    "BF.INSERT k SEED 5",
    "BF.INSERT k CAPACITY 0 ITEMS z",
    "BF.EXISTS k a",
    "BF.MEXISTS k a z",
    "BF.EXISTS missing a",
    "BF.CARD k",
    "BF.INFO k",
    "BF.INFO k ITEMS",
    "BF.DEBUG k",
    "BF.SCANDUMP k 0",
    "BF.RESERVE k 0.01 100",
    "BF.RESERVE k 0.01 100 EXIST_OK",
    "BF.RESERVE k 0.01 200 EXIST_OK",
    "BF.RESERVE string 0.01 100 EXIST_OK",
    "BF.RESERVE full 0.0001 1 NONSCALING EX 60 EXIST_OK",
    "BF.RESERVE ring 0.01 100 WINDOW 1000 EXIST_OK",
    "BF.RESERVE missing 0.01 1000000000000000000",
    "BF.INSERT missing NOCREATE ITEMS a",
    "BF.INSERT missing CAPACITY 1000000000000000000 ITEMS a",
    "BF.ADD string a",
    "BF.ADD full b",
    "BF.MADD full b a",
    "BF.INSERT full ITEMS a b",
    "BF.LOAD full x",
    "BF.LOAD missing x",
    "BF.LOADCHUNK missing 2 rubbish",
    "BF.DEL keyed absent",
    "BF.MDEL keyed absent absent",
    "BF.COUNT counting a",
];

/// Commands that change these filters, in order.
const CHANGED: [&str; 13] = [
    "BF.ADD k d",
    "BF.MADD k a e",
    "BF.INSERT k ITEMS f",
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
];

/// A command without an effect writes nothing to the append-only file, is no change since the last save, and breaks no WATCH.
#[test]
fn only_commands_with_an_effect_are_replicated_and_break_a_watch() {
    with_append_only_client(|server, other| {
        for line in [
            "SET string x",
            "BF.INSERT full ERROR 0.0001 CAPACITY 1 NONSCALING SEED 1 ITEMS a",
            "BF.RESERVE k 0.01 100 SEED 7",
            "BF.MADD k a b c",
            "BF.INSERT keyed HASH siphash ITEMS a b",
            "BF.RESERVE counting 0.01 100 COUNTING",
            "BF.RESERVE ring 0.01 100 WINDOW 1000",
        ] {
            assert!(!other.run(line).is_error(), "{line}");
        }
        let mut client = server.connect();
        let mut has_effect = |line: &str| {
            let state =
                |other: &mut Connection| (append_only_length(server), other.info_number("rdb_changes_since_last_save"));
            let before = state(other);
            client.run("WATCH k full keyed counting ring string missing r new");
            other.run(line);
            let is_broken = client.pipeline(&["MULTI", "PING", "EXEC"])[2] == Reply::NullArray;
            let after = state(other);
            assert_eq!(
                (after.0 > before.0, after.1 > before.1),
                (is_broken, is_broken),
                "{line}: {before:?}, {after:?}"
            );
            is_broken
        };
        UNCHANGED.iter().for_each(|line| assert!(!has_effect(line), "{line}"));
        CHANGED.iter().for_each(|line| assert!(has_effect(line), "{line}"));
        let length = append_only_length(server);
        client.pipeline(&["MULTI", "BF.ADD new a", "BF.MADD new a a", "EXEC"]);
        client.call(&["EVAL", "return redis.call('BF.MADD', KEYS[1], 'a', 'a')", "1", "new"]);
        assert_eq!(append_only_length(server), length);
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
