//! The effects on replicas and in append-only files, and effects that cannot be applied. `transfer` tests that replicas have their
//! primary's filters; `fleet` tests cut links and changes of role.

use std::path::Path;

use crate::every_filter::{EveryFilter, assert_same};
use crate::fleet::assert_equal;
use crate::payload::{Field, fields_of_payload, payload_of_type};
use crate::redisbloom::golden::{TODAY, snapshot};
use crate::redisbloom::hostile::sound;
use crate::redisbloom::words::{TheirPrimary, following};
use bloomgate_filter::Spec;
use bloomgate_filter::kinds::NativeSpec;
use testing::{
    Connection, FOOTER, LAST_WORDS, Reply, Server, Stop, append_only_commands, catch_up, dump, encode, eventually,
    follow, integer, load_records, module_of_other_processor, ok, on_every_server, records, restore,
    server_of_other_processor, simple, start_on_commands, stopped_on_commands, with_append_only_client,
    with_append_only_file, with_client, with_fixed_checksum, words,
};

/// The options that create a filter of each kind.
const KINDS: [(&str, &str); 9] = [
    ("native", ""),
    ("keyed", " HASH siphash"),
    ("windowed", " WINDOW 100000000"),
    ("sliding", " WINDOW 100000000 SLIDING HASH siphash"),
    ("rolling", " ROLLING"),
    ("counting", " COUNTING"),
    ("cuckoo", " CUCKOO"),
    ("redisbloom", " LAYOUT redisbloom"),
    ("valkey-bloom", " TIGHTENING 0.7"),
];

/// Creates filters of each kind by every command that creates one, alone, in a transaction and in a script.
pub fn write_some(primary: &mut Connection, round: usize) {
    for (kind, words) in KINDS {
        let key = |name: &str| format!("{kind}-{name}-{round}");
        for (name, more) in [("made", ""), ("grown", " EXPANSION 1"), ("full", " NONSCALING")] {
            primary.run(&format!("BF.INSERT {} CAPACITY 3{more}{words} ITEMS a b a c d e f g h", key(name)));
        }
        primary.run(&format!("BF.RESERVE {} 0.001 1000{words}", key("reserved")));
        primary.run(&format!("BF.INSERT {}{words} CAPACITY 10", key("empty")));
        let insert = format!("BF.INSERT {}{words} ITEMS a", key("multi"));
        primary.pipeline(&["MULTI", &insert, &format!("BF.MADD {} a b", key("multi")), "EXEC"]);
        let script = "redis.call('BF.INSERT', KEYS[1], unpack(ARGV)); redis.call('BF.MADD', KEYS[1], 'a', 'b', 'c')";
        let script_key = key("script");
        let arguments = ["EVAL", script, "1", &script_key].into_iter().chain(words.split(' ').skip(1));
        primary.call(&arguments.chain(["ITEMS", "a", "b", "a"]).collect::<Vec<_>>());
        assert_eq!(primary.run(&format!("COPY {} {}", key("multi"), key("copied"))), integer(1));
        assert_eq!(primary.run(&format!("RENAME {} {}", key("script"), key("renamed"))), ok());
        let payload = dump(primary, key("made"));
        assert_eq!(restore(primary, key("restored"), &payload), ok());
        primary.run(&format!("BF.MADD {} d e", key("copied")));
        for union in ["multi", "united"] {
            let reply = primary.run(&format!("BF.MERGE {} {} {}", key(union), key("multi"), key("copied")));
            assert_eq!(reply == ok(), ["native", "keyed"].contains(&kind), "{kind}: {reply:?}");
        }
        if kind != "valkey-bloom" {
            let records = records(primary, key("multi"));
            load_records(primary, key("loaded"), &records);
        }
        assert_eq!(primary.run(&format!("BF.CLEAR {}", key("renamed"))), ok());
        primary.run(&format!("BF.MADD {} c d", key("renamed")));
    }
    for layout in ["redisbloom", "native"] {
        let key = |name: &str| format!("{layout}-{name}-by-default-{round}");
        assert_eq!(primary.run(&format!("CONFIG SET bf.layout {layout}")), ok());
        primary.run(&format!("BF.ADD {} x", key("add")));
        primary.run(&format!("BF.MADD {} x y x", key("madd")));
        primary.call(&["EVAL", "redis.call('BF.MADD', KEYS[1], 'a', 'b', 'a')", "1", &key("script")]);
        primary.pipeline(&["MULTI", &format!("BF.ADD {} a", key("multi")), "EXEC"]);
        let items: Vec<String> = (0..2000).map(|number| format!("round {round} item {number}")).collect();
        primary.batched(&[b"BF.MADD", format!("{layout}-grown-by-default").as_bytes()], &items);
    }
}

/// The replica loads the primary's snapshot and its writes. After its promotion it computes the same writes itself.
#[test]
#[ignore = "needs BLOOMGATE_OTHER_SERVER"]
fn a_replica_on_another_processor_has_the_same_filters() {
    on_every_server(|program| {
        let server = Server::start(program);
        let other = Server::with(&server_of_other_processor()).module(&module_of_other_processor()).start();
        let (mut primary, mut replica) = (server.connect(), other.connect());
        let filters = EveryFilter::build(&mut primary);
        follow(&mut replica, &server);
        assert_same("snapshot", &filters.view(&mut primary), &filters.view(&mut replica));
        filters.write(&mut primary, 0);
        write_some(&mut primary, 0);
        catch_up(&mut primary, &mut replica);
        assert_same("replicated writes", &filters.view(&mut primary), &filters.view(&mut replica));
        assert_equal("replicated writes", &mut primary, &mut replica);
        assert_eq!(replica.run("REPLICAOF NO ONE"), ok());
        // A filter that rotates records the time, so here both only add items.
        let items: Vec<String> = (0..500).map(|number| format!("added on each/{number}")).collect();
        for key in filters.keys() {
            let words: Vec<&[u8]> =
                [b"BF.MADD".as_slice(), key].into_iter().chain(items.iter().map(String::as_bytes)).collect();
            assert_eq!(primary.call(&words), replica.call(&words), "{}", key.escape_ascii());
        }
        assert_same("writes on each", &filters.view(&mut primary), &filters.view(&mut replica));
    });
}

/// While a replica loads a snapshot and keeps its old data, it serves its clients, which may write if it is writable. Limits apply to them
/// as to all clients, and a refusal does not end the server.
#[test]
fn limits_apply_to_clients_of_a_loading_replica() {
    on_every_server(|program| {
        let server = Server::with(program).line("repl-diskless-sync yes").line("repl-backlog-size 16kb").start();
        let mut primary = server.connect();
        for number in 0..300 {
            primary.call(&[b"SET".as_slice(), format!("k{number}").as_bytes(), &[number as u8; 2000]]);
        }
        // It serves its clients after every key. Loading is slowed down once it has synchronised.
        let other = Server::with(program).line("repl-diskless-load swapdb").line("replica-read-only no");
        let other = other.line("loading-process-events-interval-bytes 1024").start();
        let mut replica = other.connect();
        follow(&mut replica, &server);
        assert_eq!(replica.run("CONFIG SET key-load-delay 10000"), ok());
        // The link breaks, and more bytes are written than the backlog holds before it is back: another full synchronisation, with the same
        // primary.
        primary.pipeline(&["CLIENT KILL TYPE replica", &format!("SET noise {}", "x".repeat(100_000))]);
        eventually("the replica to load beside its data", || replica.info("async_loading") == "1");
        let refused = replica.run("BF.RESERVE k 0.01 100000000000000000");
        assert!(refused.error_text().starts_with("ERR Insufficient memory to create filter"), "{refused:?}");
        assert_eq!(replica.run("BF.ADD a-client-s x"), integer(1));
        assert_eq!(replica.run("TYPE a-client-s"), simple("bloomgate"));
        assert_eq!(replica.info("async_loading"), "1", "it was over before it was looked at");
        eventually("the end of it", || {
            replica.info("async_loading") == "0" && replica.info("master_link_status") == "up"
        });
        assert_eq!(replica.run("EXISTS noise"), integer(1));
        assert_eq!(primary.info_number("sync_full"), 2);
        assert!(!other.log().contains("cannot apply an effect"));
    });
}

// The effects in the append-only file, which a replica gets as well: a creation with everything that defines the filter, and the items that
// were new. A command without an effect writes nothing.

/// An effect as text, with a definition as the options that state it: `BF.INSERT key AS [CAPACITY 100 ERROR 0.01 ...] item`.
pub fn effect_text(words: &[Vec<u8>]) -> String {
    let mut words = words.to_vec();
    if words.get(2).is_some_and(|word| word == b"AS") {
        let spec = Spec::Native(NativeSpec::from_word(&words[3]).expect("a definition"));
        let mut options = Vec::new();
        spec.encode_args(|word| {
            options.push(b' ');
            word.write_to(&mut options).expect("a list takes all");
        });
        words[3] = [b"[", &options[1..], b"]"].concat();
    }
    String::from_utf8_lossy(&words.join(&b' ')).into_owned()
}

/// The effects in the append-only file, as text.
pub fn effects(server: &Server) -> Vec<String> {
    let lines = append_only_commands(server);
    lines.iter().map(|words| effect_text(words)).filter(|line| line != "MULTI" && line != "EXEC").collect()
}

/// Splits the line that creates a filter into the text before the seed, the seed, and the text after it.
fn around_the_seed(line: &str) -> (String, u32, String) {
    let (before, rest) = line.split_once(" SEED ").unwrap_or_else(|| panic!("no SEED in {line:?}"));
    let (seed, after) = rest.split_once([' ', ']']).unwrap_or((rest, ""));
    (before.to_owned(), seed.parse().unwrap_or_else(|_| panic!("not a seed in {line:?}")), after.to_owned())
}

/// Runs commands one after another and compares what each wrote to the append-only file. An effect that ends in `*` is the beginning of a
/// line; MULTI and EXEC are compared only if expected.
fn assert_effects(program: &Path, commands: &[(&str, &[&str])]) {
    let server = with_append_only_file(program);
    let mut client = server.connect();
    for (command, expected) in commands {
        let before = append_only_commands(&server).len();
        client.run(command);
        let words = append_only_commands(&server).split_off(before);
        let mut carried: Vec<String> = words.iter().map(|words| effect_text(words)).collect();
        if !expected.contains(&"MULTI") {
            carried.retain(|line| line != "MULTI" && line != "EXEC");
        }
        let is_same = |(line, expected): (&String, &&str)| match expected.strip_suffix('*') {
            Some(start) => line.starts_with(start),
            None => line == expected,
        };
        let are_same = carried.len() == expected.len() && carried.iter().zip(*expected).all(is_same);
        assert!(are_same, "{command} was carried as {carried:?}");
    }
    let digest = client.run("DEBUG DIGEST");
    assert_eq!(client.run("DEBUG LOADAOF"), ok());
    assert_eq!(client.run("DEBUG DIGEST"), digest);
}

/// A creation is propagated with every parameter.
const CREATIONS: &[(&str, &[&str])] = &[
    ("BF.RESERVE a 0.01 129 SEED 5", &["BF.INSERT a AS [CAPACITY 129 ERROR 0.01 EXPANSION 2 SEED 5]"]),
    // For a small first layer, the sizing rules are stated unless they are the first ones: at 0.01% and more.
    ("BF.RESERVE aa 0.01 100 SEED 5", &["BF.INSERT aa AS [CAPACITY 100 ERROR 0.01 EXPANSION 2 SEED 5 POLICY 3]"]),
    (
        "BF.RESERVE ab 0.01 100 HASH siphash SEED 000102030405060708090a0b0c0d0e0f",
        &["BF.INSERT ab CAPACITY 100 ERROR 0.01 EXPANSION 2 HASH siphash \
                       SEED 000102030405060708090a0b0c0d0e0f POLICY 3"],
    ),
    ("bf.reserve b 1e-2 77 nonscaling seed 0", &["BF.INSERT b AS [CAPACITY 77 ERROR 0.01 NONSCALING SEED 0]"]),
    ("BF.RESERVE c 0.0001 5 EXPANSION 0 SEED 1", &["BF.INSERT c AS [CAPACITY 5 ERROR 0.0001 NONSCALING SEED 1]"]),
    (
        "BF.RESERVE d 0.9 5 EXPANSION 32768 SEED 4294967295",
        &["BF.INSERT d AS [CAPACITY 5 ERROR 0.25 EXPANSION 32768 SEED 4294967295 POLICY 3]"],
    ),
    (
        "BF.RESERVE e 0.0001 1 EXPANSION 1 SEED 1",
        &["BF.INSERT e AS [CAPACITY 1 ERROR 0.0001 EXPANSION 1 SEED 1 POLICY 3]"],
    ),
    (
        "BF.RESERVE low 0.00009 1 EXPANSION 1 SEED 1",
        &["BF.INSERT low AS [CAPACITY 1 ERROR 0.00009 EXPANSION 1 SEED 1 POLICY 3]"],
    ),
    (
        "BF.INSERT f CAPACITY 9 SEED 1 ITEMS x",
        &["BF.INSERT f AS [CAPACITY 9 ERROR 0.01 EXPANSION 2 SEED 1 POLICY 3] x"],
    ),
    (
        "BF.INSERT g ERROR 0.3 SEED 2 ITEMS x x y x",
        &["BF.INSERT g AS [CAPACITY 100 ERROR 0.25 EXPANSION 2 SEED 2 POLICY 3] x y"],
    ),
    (
        "BF.INSERT h NONSCALING CAPACITY 2 ERROR 0.001 SEED 1 ITEMS x y z",
        &["BF.INSERT h AS [CAPACITY 2 ERROR 0.001 NONSCALING SEED 1] x y"],
    ),
    ("BF.INSERT i SEED 1", &["BF.INSERT i AS [CAPACITY 100 ERROR 0.01 EXPANSION 2 SEED 1 POLICY 3]"]),
    (
        "BF.INSERT j ERROR 0.123456789 SEED 1 ITEMS x",
        &["BF.INSERT j AS [CAPACITY 100 ERROR 0.123456789 EXPANSION 2 SEED 1 POLICY 3] x"],
    ),
    // A ring's first bucket begins with it.
    (
        "BF.RESERVE k 0.01 100 WINDOW 60 SLIDING BUCKETS 4 SEED 5",
        &["BF.INSERT k CAPACITY 100 ERROR 0.01 EXPANSION 2 WINDOW 60 SLIDING BUCKETS 4 SEED 5", "BF.ROTATE k 0 *"],
    ),
    (
        "BF.INSERT l NONSCALING CAPACITY 9 WINDOW 60 SEED 5 ITEMS x y x",
        &[
            "BF.INSERT l CAPACITY 9 ERROR 0.01 NONSCALING WINDOW 60 BUCKETS 8 SEED 5",
            "BF.ROTATE l 0 *",
            "BF.MADD l x y",
        ],
    ),
    (
        "BF.INSERT m CAPACITY 9 ROLLING SEED 5 ITEMS x y x",
        &["BF.INSERT m CAPACITY 9 ERROR 0.01 ROLLING BUCKETS 8 SEED 5", "BF.MADD m x y"],
    ),
];

/// A counting filter propagates every item, in order, because each changes the filter; deletes only what they found.
const COUNTS: &[(&str, &[&str])] = &[
    ("BF.RESERVE a 1e-2 6 counting seed 7", &["BF.INSERT a CAPACITY 6 ERROR 0.01 COUNTING SEED 7"]),
    ("BF.MADD a x y x x", &["BF.MADD a x y x x"]),
    ("BF.ADD a x", &["BF.ADD a x"]),
    ("BF.INSERT a NOCREATE ITEMS y", &["BF.MADD a y"]),
    ("BF.ADD a x", &[]),
    (
        "BF.INSERT b CAPACITY 2 HASH siphash COUNTING SEED 000102030405060708090a0b0c0d0e0f ITEMS x x x",
        &["BF.INSERT b CAPACITY 2 ERROR 0.01 COUNTING HASH siphash SEED 000102030405060708090a0b0c0d0e0f \
                       ITEMS x x"],
    ),
    ("BF.MADD b x", &[]),
    ("BF.INSERT c COUNTING SEED 1 ERROR 0.3 CAPACITY 9", &["BF.INSERT c CAPACITY 9 ERROR 0.25 COUNTING SEED 1"]),
    ("BF.INSERT c SYNC ITEMS x x", &["BF.MADD c x x"]),
    ("BF.COUNT c x", &[]),
    ("BF.RESERVE d 0.01 5 COUNTING EX 1000", &["BF.INSERT d CAPACITY 5 ERROR 0.01 COUNTING SEED *", "PEXPIREAT d *"]),
    (
        "BF.INSERT k CAPACITY 9 COUNTING SEED 1 ITEMS a a b",
        &["BF.INSERT k CAPACITY 9 ERROR 0.01 COUNTING SEED 1 ITEMS a a b"],
    ),
    ("BF.MDEL k never a b", &["BF.MDEL k a b"]),
    ("BF.DEL k never", &[]),
    ("BF.DEL k a", &["BF.DEL k a"]),
];

/// Merges and clears are propagated verbatim.
const MERGES: &[(&str, &[&str])] = &[
    ("BF.INSERT a CAPACITY 100 SEED 7 ITEMS x", &["BF.INSERT a *"]),
    ("BF.INSERT b CAPACITY 100 SEED 7 ITEMS y", &["BF.INSERT b *"]),
    ("BF.MERGE a b", &["BF.MERGE a b"]),
    ("BF.MERGE new b a", &["BF.MERGE new b a"]),
    ("BF.MERGE a missing", &[]),
    ("BF.CLEAR a", &["BF.CLEAR a"]),
    ("BF.INSERT ring CAPACITY 9 WINDOW 60 SEED 5", &["BF.INSERT ring *", "BF.ROTATE ring 0 *"]),
    ("BF.CLEAR ring", &["BF.CLEAR ring", "BF.ROTATE ring 0 *"]),
    ("BF.CLEAR missing", &[]),
];

/// Effects on RedisBloom's layout use RedisBloom's options.
const REDISBLOOM: &[(&str, &[&str])] = &[
    ("BF.RESERVE k 0.01 100 LAYOUT redisbloom", &["BF.RESERVE k 0.01 100 EXPANSION 2"]),
    ("BF.RESERVE fixed 0.01 3 LAYOUT redisbloom NONSCALING", &["BF.RESERVE fixed 0.01 3 NONSCALING"]),
    ("BF.RESERVE four 0.001 7 EXPANSION 4 LAYOUT redisbloom", &["BF.RESERVE four 0.001 7 EXPANSION 4"]),
    ("BF.ADD k a", &["BF.ADD k a"]),
    ("BF.ADD k a", &[]),
    ("BF.MADD k a b c b", &["BF.MADD k b c"]),
    ("BF.MADD k a b", &[]),
    ("BF.INSERT k NOCREATE ITEMS a d e", &["BF.MADD k d e"]),
    ("BF.INSERT k LAYOUT redisbloom CAPACITY 5 ITEMS a", &[]),
    ("BF.MADD fixed a b a c d e", &["BF.MADD fixed a b c"]),
    ("BF.ADD fixed z", &[]),
    ("BF.RESERVE k 0.01 100 LAYOUT redisbloom", &[]),
    (
        "BF.INSERT new CAPACITY 9 EXPANSION 1 ERROR 0.001 LAYOUT redisbloom ITEMS a b a",
        &["MULTI", "BF.RESERVE new 0.001 9 EXPANSION 1", "BF.MADD new a b", "EXEC"],
    ),
    ("CONFIG SET bf.layout redisbloom", &[]),
    ("BF.ADD add x", &["MULTI", "BF.RESERVE add 0.01 100 EXPANSION 2", "BF.MADD add x", "EXEC"]),
    ("BF.MADD madd x y x", &["MULTI", "BF.RESERVE madd 0.01 100 EXPANSION 2", "BF.MADD madd x y", "EXEC"]),
    ("BF.RESERVE plain 0.02 50", &["BF.RESERVE plain 0.02 50 EXPANSION 2"]),
    (
        "EVAL redis.call('BF.MADD',KEYS[1],'a','b','a') 1 script",
        &["MULTI", "BF.RESERVE script 0.01 100 EXPANSION 2", "BF.MADD script a b", "EXEC"],
    ),
];

/// Adds propagate only new items.
const ADDS: &[(&str, &[&str])] = &[
    ("BF.RESERVE k 0.0001 1000 SEED 1", &["BF.INSERT k *"]),
    ("BF.ADD k a", &["BF.ADD k a"]),
    ("BF.MADD k a b c b", &["BF.MADD k b c"]),
    ("BF.MADD k c d", &["BF.MADD k d"]),
    ("BF.INSERT k ITEMS e a f f", &["BF.MADD k e f"]),
    ("BF.INSERT k NOCREATE ITEMS g", &["BF.MADD k g"]),
    ("BF.INSERT k CAPACITY 5 ERROR 0.1 SEED 9 NONSCALING ITEMS h a", &["BF.MADD k h"]),
];

#[test]
fn each_command_is_propagated_as_its_effect() {
    on_every_server(|program| {
        [CREATIONS, COUNTS, MERGES, REDISBLOOM, ADDS].iter().for_each(|commands| assert_effects(program, commands));
    });
}

#[test]
fn a_creation_is_propagated_with_its_random_seed() {
    with_append_only_client(|server, client| {
        for (command, before, after) in [
            ("BF.ADD a x", "BF.INSERT a AS [CAPACITY 100 ERROR 0.01 EXPANSION 2", "POLICY 3] x"),
            ("BF.MADD b x y x", "BF.INSERT b AS [CAPACITY 100 ERROR 0.01 EXPANSION 2", "POLICY 3] x y"),
            ("BF.INSERT c ITEMS x", "BF.INSERT c AS [CAPACITY 100 ERROR 0.01 EXPANSION 2", "POLICY 3] x"),
            ("BF.RESERVE d 0.001 100", "BF.INSERT d AS [CAPACITY 100 ERROR 0.001 EXPANSION 2", "POLICY 3]"),
        ] {
            client.run(command);
            let (found_before, _, found_after) = around_the_seed(effects(server).last().unwrap());
            assert_eq!((found_before.as_str(), found_after.as_str()), (before, after), "{command}");
        }
        client.run("CONFIG SET bf.error-rate 0.002 bf.initial-size 33 bf.expansion-factor 0");
        client.run("BF.ADD e x");
        let (before, _, after) = around_the_seed(effects(server).last().unwrap());
        assert_eq!(before, "BF.INSERT e AS [CAPACITY 33 ERROR 0.002 NONSCALING");
        assert_eq!(after, " x");
    });
}

/// Growth is not propagated separately.
#[test]
fn items_are_propagated_byte_for_byte() {
    with_append_only_client(|server, client| {
        client.run("BF.RESERVE grown 0.0001 2 SEED 1");
        client.call(&[b"BF.MADD".as_slice(), b"grown", b"\0\xff", b"", b"\r\n", b"x y"]);
        let words = append_only_commands(server).pop().unwrap();
        assert_eq!(words[1..], [b"grown".as_slice(), b"\0\xff", b"", b"\r\n", b"x y"]);
    });
}

/// The strings of an effect's arguments are kept for the next effect, which may have other words and numbers at the same positions.
#[test]
fn the_arguments_of_an_effect_do_not_depend_on_the_previous_one() {
    with_append_only_client(|server, client| {
        for round in 0..3 {
            for (number, (words, expected)) in [
                ("0.01 100 LAYOUT redisbloom", "BF.RESERVE KEY 0.01 100 EXPANSION 2"),
                ("0.01 100 COUNTING SEED 5", "BF.INSERT KEY CAPACITY 100 ERROR 0.01 COUNTING SEED 5"),
                ("0.01 100 LAYOUT redisbloom", "BF.RESERVE KEY 0.01 100 EXPANSION 2"),
                ("0.02 100 LAYOUT redisbloom", "BF.RESERVE KEY 0.02 100 EXPANSION 2"),
                ("0.01 101 COUNTING SEED 5", "BF.INSERT KEY CAPACITY 101 ERROR 0.01 COUNTING SEED 5"),
                ("0.01 101 SEED 5", "BF.INSERT KEY AS [CAPACITY 101 ERROR 0.01 EXPANSION 2 SEED 5 POLICY 3]"),
                ("0.001 100 COUNTING SEED 6", "BF.INSERT KEY CAPACITY 100 ERROR 0.001 COUNTING SEED 6"),
            ]
            .into_iter()
            .enumerate()
            {
                let key = format!("k{round}.{number}");
                assert_eq!(client.run(&format!("BF.RESERVE {key} {words}")), ok());
                assert_eq!(effects(server).last(), Some(&expected.replace("KEY", &key)));
            }
        }
    });
}

/// The server holds the arguments of effects until EXEC, while the next creation replaces the kept strings.
#[test]
fn creations_in_a_transaction_are_propagated_with_their_own_options() {
    with_append_only_client(|server, client| {
        let creations = [
            "BF.RESERVE a 0.01 200 COUNTING SEED 1",
            "BF.RESERVE b 0.001 300 COUNTING SEED 2",
            "BF.RESERVE c 0.01 300 EXPANSION 4 SEED 3 EX 100",
            "BF.INSERT d CAPACITY 200 ERROR 0.01 SEED 4 ITEMS x",
        ];
        client.pipeline(&[&["MULTI"][..], &creations, &["EXEC"]].concat());
        let carried = effects(server);
        for expected in [
            "BF.INSERT a CAPACITY 200 ERROR 0.01 COUNTING SEED 1",
            "BF.INSERT b CAPACITY 300 ERROR 0.001 COUNTING SEED 2",
            "BF.INSERT c AS [CAPACITY 300 ERROR 0.01 EXPANSION 4 SEED 3]",
            "BF.INSERT d AS [CAPACITY 200 ERROR 0.01 EXPANSION 2 SEED 4] x",
        ] {
            assert!(carried.iter().any(|line| line == expected), "{expected} is not in {carried:?}");
        }
    });
}

// Effects that cannot be applied. The primary, or the server that wrote the AOF, has already made these changes. A server that continued
// without one would lack a filter or items, and its next rewrite would make the loss permanent. So it exits and logs the reason. Commands
// that RedisBloom refused but still propagates are ignored: see `redisbloom/words.rs` and `redisbloom/hostile.rs`.

/// Commands that are applied, a command that cannot be applied, and its log line. Words are separated by spaces.
const LINES: [(&str, &str, &str); 34] = [
    ("SET k x", "BF.RESERVE k 0.01 100", "BF.RESERVE k: WRONGTYPE"),
    ("", "BF.RESERVE k x 100", "BF.RESERVE k: ERR bad error rate"),
    ("", "BF.RESERVE k 0.01 0", "BF.RESERVE k: ERR capacity"),
    ("", "BF.RESERVE k 0.01 100 EXPANSION", "BF.RESERVE k: ERR no expansion"),
    ("SET k x", "BF.ADD k a", "BF.ADD k: WRONGTYPE"),
    ("SET k x", "BF.MADD k a b", "BF.MADD k: WRONGTYPE"),
    ("SET k x", "BF.INSERT k ITEMS a", "BF.INSERT k: WRONGTYPE"),
    ("", "BF.INSERT k CAPACITY x ITEMS a", "BF.INSERT k: Bad capacity"),
    // A filter that a later version creates without items: later adds would create a different filter.
    ("", "BF.INSERT k CAPACITY 100 ERROR 0.01 EXPANSION 2 SEED 7 HASH md5", "BF.INSERT k: ERR bad hash"),
    (
        "",
        "BF.INSERT k CAPACITY 100 ERROR 0.01 EXPANSION 2 SEED 7 POLICY 99",
        "BF.INSERT k: ERR POLICY is a whole number from 1 to 3",
    ),
    ("", "BF.INSERT k AS unknown a", "BF.INSERT k: ERR bad definition"),
    ("", "BF.INSERT k WHATEVER 5 SEED 7", "BF.INSERT k: Unknown argument received"),
    ("BF.INSERT k CAPACITY 1 ERROR 0.01 COUNTING SEED 7", "BF.MADD k a b", "ERR non scaling filter is full"),
    ("", "BF.DEL k a", "BF.DEL k: ERR not found"),
    ("", "BF.MDEL k a b", "BF.MDEL k: ERR not found"),
    ("SET k x", "BF.DEL k a", "BF.DEL k: WRONGTYPE"),
    ("BF.INSERT k SEED 7 ITEMS a", "BF.DEL k a", "BF.DEL k: ERR this filter cannot delete"),
    ("", "BF.CLEAR k", "BF.CLEAR k: ERR not found"),
    ("SET k x", "BF.CLEAR k", "BF.CLEAR k: WRONGTYPE"),
    ("", "BF.ROTATE k", "BF.ROTATE k: ERR not found"),
    ("", "BF.ROTATE k 0 1000 2000 5", "BF.ROTATE k: ERR not found"),
    ("BF.INSERT k SEED 7", "BF.ROTATE k 0 1000 2000 5", "BF.ROTATE k: ERR this filter has no WINDOW"),
    ("BF.INSERT k SEED 7 WINDOW 60", "BF.ROTATE k 0 2000 1000 5", "BF.ROTATE k: ERR received bad data"),
    ("BF.INSERT k SEED 7 WINDOW 60", "BF.ROTATE k 0 0 2000000 5", "BF.ROTATE k: ERR received bad data"),
    ("BF.INSERT k SEED 7 WINDOW 60", "BF.ROTATE k 0 1000 2000", "BF.ROTATE k: ERR wrong number of arguments"),
    (
        "BF.INSERT k SEED 7 WINDOW 60|BF.ROTATE k 5 1000 2000 5|BF.MADD k a",
        "BF.ROTATE k 5 1000 2000 5",
        "BF.ROTATE k: ERR received bad data",
    ),
    ("", "BF.MERGE k from", "BF.MERGE k: ERR not found"),
    ("BF.INSERT k SEED 7|BF.INSERT from SEED 8", "BF.MERGE k from", "BF.MERGE k: ERR"),
    ("", "BF.LOAD k abc", "BF.LOAD k: ERR bloom object decoding failed"),
    ("SET k x", "BF.LOAD k abc", "BF.LOAD k: WRONGTYPE"),
    ("", "BF.LOADCHUNK k x abc", "BF.LOADCHUNK k: ERR Second argument must be numeric"),
    ("", "BF.LOADCHUNK k 0 abc", "BF.LOADCHUNK k: ERR not found"),
    ("", "BF.LOADCHUNK k 1 abc", "BF.LOADCHUNK k: ERR received bad data"),
    ("", "BF.LOADCHUNK k 17 0123456789abcdef", "BF.LOADCHUNK k: ERR not found"),
];

/// The bytes of a payload before the module's fields: a byte for a module's value, and the number of its type.
const TYPE_BYTES: usize = 10;

fn says(log: &str, reason: &str) -> bool {
    log.lines().any(|line| line.contains(LAST_WORDS) && line.contains(reason))
}

/// Asserts that a server that reads the commands from its AOF exits with this log line.
fn assert_file_ends(program: &Path, commands: &[Vec<Vec<u8>>], reason: &str) {
    let log = stopped_on_commands(program, &[], &encode(commands)).refuses_to_start_again();
    assert!(says(&log, reason), "{reason}:\n{log}");
}

/// Asserts the same, also for a replica whose primary sends the commands.
fn assert_ends(program: &Path, commands: &[Vec<Vec<u8>>], reason: &str) {
    assert_file_ends(program, commands, reason);
    let primary = TheirPrimary::start(snapshot(TODAY));
    let mut replica = following(program, &primary);
    primary.send_bytes(encode(commands));
    eventually("the replica to end", || replica.log().contains(LAST_WORDS));
    assert!(says(&replica.log(), reason), "{reason}:\n{}", replica.log());
    replica.stop(Stop::Kill);
}

#[test]
fn an_effect_that_cannot_be_applied_ends_the_server() {
    on_every_server(|program| {
        for (before, line, reason) in LINES {
            let mut commands: Vec<Vec<Vec<u8>>> = before.split_terminator('|').map(words).collect();
            commands.push(words(line));
            assert_ends(program, &commands, reason);
        }
    });
}

/// Records and payloads.
#[test]
fn data_that_cannot_be_applied_ends_the_server() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("BF.RESERVE native 0.01 1000");
        client.run("BF.MADD native a b c");
        let load = |(iterator, data): &(i64, Vec<u8>)| {
            vec![b"BF.LOADCHUNK".to_vec(), b"k".to_vec(), iterator.to_string().into_bytes(), data.clone()]
        };
        let records = records(&mut client, "native");
        // An item for a missing filter, which our primaries refuse.
        let add = words("BF.ADD k a");
        assert_ends(program, &[load(&records[0]), add.clone()], "BF.ADD k: ERR filter is still being loaded");
        let (iterator, mut damaged) = records[1].clone();
        damaged[20] ^= 1;
        assert_ends(program, &[load(&records[0]), load(&(iterator, damaged))], "BF.LOADCHUNK k: ERR received bad data");
        // RedisBloom's records that the primary could not have accepted.
        let chunks = sound().chunks;
        let beyond = (1 << 20, vec![0; 16]);
        assert_ends(program, &[load(&chunks[0]), load(&beyond)], "BF.LOADCHUNK k: ERR invalid offset");
        let mut header = chunks[0].clone();
        header.1[28] += 1;
        assert_ends(program, &[load(&header)], "BF.LOADCHUNK k: ERR received bad data");

        // A payload that this version cannot read. The server only replies with an error.
        let (type_number, mut fields) = fields_of_payload(&sound().payload).expect("a module's value");
        let Field::Uint(bits) = &mut fields[8] else { panic!("{fields:?}") };
        *bits += 1;
        let payload = payload_of_type(type_number, &fields);
        assert!(
            restore(&mut client, "k", &payload).is_error(),
            "a client's payload is refused, and the server keeps running"
        );
        let restoring = |payload| vec![b"RESTORE".to_vec(), b"k".to_vec(), b"0".to_vec(), payload];
        assert_ends(
            program,
            &[restoring(payload)],
            "the filter at 'k': the filter is refused: no filter can have this description",
        );
        // A truncated payload. On a replica, the primary may have disconnected.
        let mut cut = dump(&mut client, "native");
        cut.drain(TYPE_BYTES..cut.len() - FOOTER);
        let cut = with_fixed_checksum(cut);
        assert_file_ends(program, &[restoring(cut)], "the filter at 'k': ");
    });
}

/// The reader of the AOF and a replica see a key until its DEL arrives, even if it has expired.
#[test]
fn an_effect_on_an_expired_key_is_applied() {
    on_every_server(|program| {
        let mut lines = Vec::new();
        for (key, words) in [
            ("keyed", "HASH siphash SEED 000102030405060708090a0b0c0d0e0f"),
            ("ring", "WINDOW 60 SEED 7"),
            ("counting", "COUNTING SEED 7"),
        ] {
            lines.push(format!("BF.INSERT {key} CAPACITY 100 ERROR 0.01 {words}"));
            lines.push(format!("PEXPIREAT {key} 1000"));
        }
        lines.extend(
            [
                "BF.ROTATE ring 0 1000 2000 50",
                "BF.MADD keyed a b",
                "BF.MDEL keyed a",
                "BF.MADD ring a",
                "BF.ROTATE ring 1 2000 3000 50",
            ]
            .map(str::to_owned),
        );
        lines.extend(
            ["BF.ADD counting a", "BF.DEL counting a", "BF.CLEAR keyed", "BF.CLEAR counting"].map(str::to_owned),
        );
        lines.extend(["DEL keyed ring counting", "SET the-end x"].map(str::to_owned));
        let commands: Vec<Vec<Vec<u8>>> = lines.iter().map(|line| words(line)).collect();
        let check = |server: &Server| {
            let mut client = server.connect();
            eventually("the end of the stream", || client.run("EXISTS the-end") == integer(1));
            assert_eq!(client.run("EXISTS keyed ring counting"), integer(0));
        };
        check(&start_on_commands(program, &[], &encode(&commands)));
        let primary = TheirPrimary::start(snapshot(TODAY));
        let replica = following(program, &primary);
        primary.send_bytes(encode(&commands));
        check(&replica);
    });
}

/// Clients may send all of these.
#[test]
fn a_client_is_refused_and_the_server_keeps_running() {
    with_client(|_, client| {
        for (before, line, reason) in LINES {
            client.run("FLUSHALL");
            before.split_terminator('|').for_each(|line| drop(client.call(&words(line))));
            let reply = client.call(&words(line));
            let is_refused = reply.is_error() || matches!(&reply, Reply::Array(all) if all.iter().any(Reply::is_error));
            // A missing filter has no items. The bucket has begun.
            let is_fine = before.is_empty() && line.contains("DEL") || before.contains("ROTATE");
            assert_eq!(is_refused, !is_fine, "{before}; {line}: {reply:?}");
            assert_eq!(client.run("PING").text(), "PONG", "{reason}");
        }
    });
}

/// Commands that RedisBloom and valkey-bloom refused but still propagate. The server must not count them as errors, because a counted error
/// means lost data.
#[test]
fn effects_of_filters_that_the_replica_refused_are_skipped() {
    on_every_server(|program| {
        let lines = [
            "BF.RESERVE twice 0.01 100",
            "BF.RESERVE twice 0.01 100",
            "BF.RESERVE fixed 0.1 1 NONSCALING",
            "BF.MADD fixed a",
            "BF.ADD fixed b",
            "BF.MADD fixed b c",
            "BF.INSERT fixed NOCREATE ITEMS b",
            "BF.INSERT valkey CAPACITY 1 ERROR 0.01 TIGHTENING 0.5 NONSCALING ITEMS a",
            "BF.MADD valkey a b",
            "SET the-end x",
        ];
        let commands: Vec<Vec<Vec<u8>>> = lines.iter().map(|line| words(line)).collect();
        let check = |server: &Server| {
            let mut client = server.connect();
            eventually("the end of the stream", || client.run("EXISTS the-end") == integer(1));
            for key in ["fixed", "valkey"] {
                assert_eq!(client.run(&format!("BF.EXISTS {key} a")), integer(1));
                assert_eq!(client.run(&format!("BF.CARD {key}")), integer(1));
            }
            assert_eq!(client.info_number("unexpected_error_replies"), 0);
        };
        check(&start_on_commands(program, &[], &encode(&commands)));
        let primary = TheirPrimary::start(snapshot(TODAY));
        let replica = following(program, &primary);
        primary.send_bytes(encode(&commands));
        check(&replica);
    });
}
