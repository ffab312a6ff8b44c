//! What RedisBloom carries to its replicas and its append-only file: commands as they came, in all the spellings that it
//! takes from its clients, those that it refused too. Who follows it has to understand them as it does.

use super::view::View;
use super::{Peer, Side, beside_redisbloom, beside_releases};
use crate::fleet::{catch_up, follow};
use testing::records as records_of;
use testing::{Connection, Reply, Server, Stop, array, integer, ok};

/// BF.INSERT's options by their first letters. `key` stands for a key of its own.
const FIRST_LETTERS: [&str; 14] = [
    "BF.INSERT key I a b",
    "BF.INSERT key itemize a b",
    "BF.INSERT key ITEMS ITEMS ITEMS",
    "BF.INSERT key C 10 ITEMS a",
    "BF.INSERT key capacitor 10 ITEMS a",
    "BF.INSERT key E 3 ITEMS a",
    "BF.INSERT key EX 3 ITEMS a",
    "BF.INSERT key ER 0.1 ITEMS a",
    "BF.INSERT key errand 0.1 ITEMS a",
    "BF.INSERT key N ITEMS a",
    "BF.INSERT key NO ITEMS a",
    "BF.INSERT key NONE ITEMS a",
    "BF.INSERT key n er 0.1 c 5 i a b c d e f",
    "BF.INSERT key CAPACITY 5 CAPACITY 7 ERROR 0.1 ERROR 0.2 ITEMS a",
];

/// Numbers as the C library reads them.
const NUMBERS: [&str; 7] = [
    "BF.RESERVE key 0x1p-7 100",
    "BF.RESERVE key 0x.1 100",
    "BF.RESERVE key +.01 100",
    "BF.RESERVE key 1E-2 100",
    "BF.RESERVE key 1e-300 10",
    "BF.INSERT key ERROR 0x.1 ITEMS a",
    "BF.INSERT key ERROR 0X1P-3 ITEMS a",
];

/// Words of BF.RESERVE that RedisBloom passes over, and a key that it takes for an option. It also passes over SEED and LAYOUT, which
/// our own primaries send.
const PASSED_OVER: [&str; 10] = [
    "BF.RESERVE key 0.01 100 FOO",
    "BF.RESERVE key 0.01 100 NONSCALING FOO",
    "BF.RESERVE key 0.01 100 FOO NONSCALING",
    "BF.RESERVE key 0.01 100 FOO EXPANSION 3",
    "BF.RESERVE key 0.01 100 EXPANSION 3 FOO",
    "BF.RESERVE key 0.01 100 expansion 3",
    "BF.RESERVE key 0.01 100 NONSCALING NONSCALING NONSCALING",
    "BF.RESERVE key 0.01 100 EXPANSION 3 EXPANSION",
    "BF.RESERVE nonscaling 0.01 10",
    "BF.RESERVE NonScaling 0.01 10",
];

/// The expansion of a fixed filter is stored, too: theirs is the configured one, ours is always 2, because it has no effect.
const FIXED: [&str; 2] = ["BF.RESERVE key 0.01 100 NONSCALING", "BF.INSERT key NONSCALING ITEMS a"];

/// Releases before 8 have no limit for expansions, and store 32 bits.
const EXPANSIONS_OF_2: [&str; 3] = [
    "BF.RESERVE key 0.01 10 EXPANSION 40000",
    "BF.RESERVE key 0.01 10 EXPANSION 4294967298",
    "BF.INSERT key EXPANSION 4294967298 ITEMS a",
];

/// RedisBloom 8 takes these as 0.25. Releases before 8 take them as they are, which a replica cannot know.
const LOOSE_RATES: [&str; 3] =
    ["BF.RESERVE key 0.5 100", "BF.RESERVE key 0.9 100 NONSCALING", "BF.INSERT key ERROR 0.3 ITEMS a"];

/// A server with RedisBloom and an append-only file, and one with our module that follows it.
struct Pair {
    primary: Server,
    replica: Server,
}

impl Pair {
    fn start(peer: &Peer) -> Self {
        let lines = ["appendonly yes", "appendfsync no", "aof-use-rdb-preamble no"];
        let pair = Self { primary: peer.start(Side::Theirs, &lines), replica: peer.start(Side::Ours, &[]) };
        let mut replica = pair.replica.connect();
        follow(&mut replica, pair.primary.port);
        catch_up(&mut pair.primary.connect(), &mut replica);
        pair
    }

    /// Sends lines to the primary. Says for which of them the replica, and our module on
    /// the primary's append-only file, have another filter than RedisBloom.
    fn misunderstood(mut self, peer: &Peer, lines: &[&str]) -> Vec<String> {
        let (mut primary, mut replica) = (self.primary.connect(), self.replica.connect());
        let mut expected = Vec::new();
        for (number, line) in lines.iter().enumerate() {
            let line = line.replacen(" key ", &format!(" {number} "), 1);
            assert!(!primary.run(&line).is_error(), "{line}");
            let key = line.split(' ').nth(1).unwrap_or_default().to_owned();
            // What was made grows, too.
            for item in 0..30 {
                primary.run(&format!("BF.ADD {key} {item}"));
            }
            let debug = primary.run(&format!("BF.DEBUG {key}"));
            expected.push(Expected { debug, records: records_of(&mut primary, &key), line, key });
        }
        catch_up(&mut primary, &mut replica);
        let mut wrong = misunderstood_by(&mut replica, &expected, "a replica");
        peer.restart_with(Side::Ours, &mut self.primary, Stop::Kill);
        wrong.extend(misunderstood_by(&mut self.primary.connect(), &expected, "the append-only file"));
        wrong
    }
}

/// A filter as RedisBloom made it.
struct Expected {
    line: String,
    key: String,
    debug: Reply,
    records: Vec<(i64, Vec<u8>)>,
}

fn misunderstood_by(client: &mut Connection, expected: &[Expected], who: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for Expected { line, key, debug, records } in expected {
        let ours = client.run(&format!("BF.DEBUG {key}"));
        if ours != *debug {
            wrong.push(format!("{line}, {who}:\n  ours   {ours:?}\n  theirs {debug:?}"));
        } else if records_of(client, key) != *records {
            wrong.push(format!("{line}, {who}: the records differ"));
        }
    }
    wrong
}

fn assert_understood(peer: &Peer, lines: &[&str]) {
    let wrong = Pair::start(peer).misunderstood(peer, lines);
    assert!(
        wrong.is_empty(),
        "{} of {} commands are misunderstood:\n{}",
        wrong.len(),
        2 * lines.len(),
        wrong.join("\n")
    );
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn options_by_their_first_letters_are_understood() {
    beside_redisbloom(|peer| assert_understood(peer, &FIRST_LETTERS));
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn numbers_of_the_c_library_are_understood() {
    beside_redisbloom(|peer| assert_understood(peer, &NUMBERS));
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn words_that_are_passed_over_are_passed_over() {
    beside_redisbloom(|peer| assert_understood(peer, &PASSED_OVER));
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn the_default_expansion_of_a_fixed_filter_is_stored() {
    beside_redisbloom(|peer| assert_understood(peer, &FIXED));
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn expansions_without_a_limit_are_understood() {
    beside_releases(|major| major < 8, |peer| assert_understood(peer, &EXPANSIONS_OF_2));
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn loose_rates_of_8_are_understood() {
    beside_releases(|major| major >= 8, |peer| assert_understood(peer, &LOOSE_RATES));
}

/// Loads a dump in an order of its own, with adds in between, and compares the replica when all of it has come.
fn assert_loads_alike(peer: &Peer, order: &[usize], add: bool) {
    let pair = Pair::start(peer);
    let (mut primary, mut replica) = (pair.primary.connect(), pair.replica.connect());
    assert_eq!(primary.run("BF.RESERVE from 0.01 10"), ok());
    for item in 0..60 {
        primary.run(&format!("BF.ADD from {item}"));
    }
    let records = records_of(&mut primary, "from");
    assert_eq!(records.len(), 4, "a header and three layers");
    for &place in order {
        let (iterator, data) = (records[place].0.to_string(), &records[place].1);
        let words: [&[u8]; 4] = [b"BF.LOADCHUNK", b"to", iterator.as_bytes(), data];
        assert_eq!(primary.call(&words), ok());
        if add {
            primary.run(&format!("BF.ADD to in-between-{place}"));
        }
    }
    primary.run("BF.ADD to afterwards");
    catch_up(&mut primary, &mut replica);
    View::of(&mut replica).assert_same(&View::of(&mut primary), &format!("records in the order {order:?}"));
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn a_dump_in_its_order_is_loaded() {
    beside_redisbloom(|peer| assert_loads_alike(peer, &[0, 1, 2, 3], false));
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn a_dump_in_another_order_is_loaded() {
    beside_redisbloom(|peer| assert_loads_alike(peer, &[0, 3, 1, 2], false));
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn records_that_come_again_are_loaded() {
    beside_redisbloom(|peer| assert_loads_alike(peer, &[0, 1, 1, 2, 3, 2], false));
}

/// RedisBloom's filter is live from its header on.
#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn adds_between_the_records_are_kept() {
    beside_redisbloom(|peer| assert_loads_alike(peer, &[0, 1, 2, 3], true));
}

/// 2.x carries a command that it refused for want of memory.
#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn a_refusal_that_was_carried_is_refused_again() {
    beside_redisbloom(|peer| {
        let pair = Pair::start(peer);
        let (mut primary, mut replica) = (pair.primary.connect(), pair.replica.connect());
        assert!(primary.run("BF.RESERVE k 0.01 99999999999999").is_error());
        assert_eq!(primary.run("BF.MADD other a b"), array([integer(1), integer(1)]));
        catch_up(&mut primary, &mut replica);
        View::of(&mut replica).assert_same(&View::of(&mut primary), "after a refusal");
    });
}
