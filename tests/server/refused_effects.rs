//! Effects that cannot be applied. A primary, or the server that wrote the AOF, has done what it says; a server that went on
//! without it would lack a filter or items, and its next rewrite would lose them for good. So it ends, and says why. What
//! RedisBloom carries although it refused it is passed over: see `redisbloom/words.rs` and `redisbloom/impossible.rs`.

use std::path::Path;

use crate::redisbloom::golden::{TODAY, snapshot};
use crate::redisbloom::hostile::sound;
use crate::redisbloom::their_primary::TheirPrimary;
use crate::redisbloom::words::following;
use testing::{
    FOOTER, LAST_WORDS, Reply, Server, Stop, dump, encode, eventually, integer, on_every_server, records, restore,
    start_on_commands, stopped_on_commands, with_fixed_checksum,
};

/// Commands that are applied, then one that cannot be, and what the log says about it. Words are told apart by spaces.
const LINES: [(&str, &str, &str); 33] = [
    ("SET k x", "BF.RESERVE k 0.01 100", "BF.RESERVE k: WRONGTYPE"),
    ("", "BF.RESERVE k x 100", "BF.RESERVE k: ERR bad error rate"),
    ("", "BF.RESERVE k 0.01 0", "BF.RESERVE k: ERR capacity"),
    ("", "BF.RESERVE k 0.01 100 EXPANSION", "BF.RESERVE k: ERR no expansion"),
    ("SET k x", "BF.ADD k a", "BF.ADD k: WRONGTYPE"),
    ("SET k x", "BF.MADD k a b", "BF.MADD k: WRONGTYPE"),
    ("SET k x", "BF.INSERT k ITEMS a", "BF.INSERT k: WRONGTYPE"),
    ("", "BF.INSERT k CAPACITY x ITEMS a", "BF.INSERT k: Bad capacity"),
    // A filter that is created without items, by a version to come: later adds would make another one.
    ("", "BF.INSERT k CAPACITY 100 ERROR 0.01 EXPANSION 2 SEED 7 HASH md5", "BF.INSERT k: ERR bad hash"),
    ("", "BF.INSERT k CAPACITY 100 ERROR 0.01 EXPANSION 2 SEED 7 POLICY 99", "BF.INSERT k: ERR bad policy"),
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

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// The bytes of a payload before the module's fields: a byte for a module's value, and the number of its type.
const TYPE_BYTES: usize = 10;

fn says(log: &str, reason: &str) -> bool {
    log.lines().any(|line| line.contains(LAST_WORDS) && line.contains(reason))
}

/// A server that reads the commands from its AOF ends with these words.
fn assert_file_ends(program: &Path, commands: &[Vec<Vec<u8>>], reason: &str) {
    let log = stopped_on_commands(program, &[], &encode(commands)).refuses_to_start_again();
    assert!(says(&log, reason), "{reason}:\n{log}");
}

/// So does a replica whose primary sends them.
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
        // An item for a filter that is not there yet: our primaries refuse it.
        let add = words("BF.ADD k a");
        assert_ends(program, &[load(&records[0]), add.clone()], "BF.ADD k: ERR filter is still being loaded");
        let (iterator, mut damaged) = records[1].clone();
        damaged[20] ^= 1;
        assert_ends(program, &[load(&records[0]), load(&(iterator, damaged))], "BF.LOADCHUNK k: ERR received bad data");
        // RedisBloom's, where the primary could not have taken it.
        let chunks = sound().chunks(sound().header());
        let beyond = (1 << 20, vec![0; 16]);
        assert_ends(program, &[load(&chunks[0]), load(&beyond)], "BF.LOADCHUNK k: ERR invalid offset");
        let mut unsound = sound();
        unsound.layers[0].bits += 1;
        let header = (1, unsound.header());
        assert_ends(program, &[load(&header)], "BF.LOADCHUNK k: ERR received bad data");

        // A payload that this version cannot read. The server only replies with an error.
        let payload = unsound.payload(4);
        assert!(
            restore(&mut client, "k", &payload).is_error(),
            "a client's payload is refused, and the server goes on"
        );
        let restoring = |payload| vec![b"RESTORE".to_vec(), b"k".to_vec(), b"0".to_vec(), payload];
        assert_ends(program, &[restoring(payload)], "the filter at 'k': the filter is refused: Unsound");
        // One that ends too early. On a replica the primary may have hung up.
        let mut cut = dump(&mut client, "native");
        cut.drain(TYPE_BYTES..cut.len() - FOOTER);
        let cut = with_fixed_checksum(cut);
        assert_file_ends(program, &[restoring(cut)], "the filter at 'k': ");
    });
}

/// The reader of the AOF and a replica see a key until its DEL arrives, whatever the clock says.
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

/// Clients may say all of that.
#[test]
fn a_client_is_refused_and_the_server_goes_on() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
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

/// What RedisBloom and valkey-bloom carry although they refused it.
#[test]
fn what_was_refused_there_is_passed_over() {
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
        };
        check(&start_on_commands(program, &[], &encode(&commands)));
        let primary = TheirPrimary::start(snapshot(TODAY));
        let replica = following(program, &primary);
        primary.send_bytes(encode(&commands));
        check(&replica);
    });
}
