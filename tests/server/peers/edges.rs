//! Where numbers and memory end: what is refused there, and in which words.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::{Peer, Side, beside_redisbloom, beside_releases};
use testing::{Connection, Reply, array, error, integer, ok};

const NO_MEMORY: &str = "ERR Insufficient memory to create filter";
/// RedisBloom's answer for an item that wants a layer which cannot be made.
const NOT_INSERTED: &str = "ERR problem inserting into filter";

/// The same peer in a server that gets 3 GB at most. The folder has to stay as long as servers are started.
fn with_little_memory(peer: &Peer) -> (tempfile::TempDir, Peer) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let program = folder.path().join("redis-server");
    fs::write(&program, format!("#!/bin/sh\nulimit -v 3000000\nexec '{}' \"$@\"\n", peer.program.display()))
        .expect("a script");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it may be run");
    (folder, Peer { major: peer.major, library: peer.library.clone(), program })
}

/// Ours says what RedisBloom 8 says, and the bytes.
fn assert_says_bytes(reply: &Reply, line: &str) {
    let numbers = reply.error_text().strip_prefix(NO_MEMORY).and_then(|rest| rest.strip_prefix(": "));
    let asked = numbers.and_then(|numbers| numbers.split(' ').next()?.parse::<u64>().ok());
    assert!(asked.is_some_and(|asked| asked > 3_000_000_000), "{line}: {reply:?}");
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn want_of_memory_is_said_in_the_same_words_and_with_the_bytes() {
    beside_redisbloom(|peer| {
        let (_folder, peer) = with_little_memory(peer);
        let [ours, theirs] = Side::BOTH.map(|side| peer.start(side, &[]));
        let (mut ours, mut theirs) = (ours.connect(), theirs.connect());
        let refusal = if peer.major < 8 { "ERR could not create filter" } else { NO_MEMORY };
        for line in ["BF.RESERVE k 1e-9 1073741824", "BF.INSERT k ERROR 1e-9 CAPACITY 1073741824 ITEMS a b"] {
            assert_says_bytes(&ours.run(line), line);
            assert_eq!(theirs.run(line), error(refusal), "{line}");
        }
        if peer.major >= 8 {
            for line in
                ["CONFIG SET bf-error-rate 0.000000001 bf-initial-size 1073741824", "CONFIG GET bf-initial-size"]
            {
                assert_eq!(ours.run(line), theirs.run(line), "{line}");
            }
            for line in ["BF.ADD k a", "BF.MADD k a b", "BF.INSERT k ITEMS a"] {
                assert_says_bytes(&ours.run(line), line);
                assert_eq!(theirs.run(line), error(refusal), "{line}");
            }
        }
        assert_eq!([ours.run("EXISTS k"), theirs.run("EXISTS k")], [integer(0), integer(0)]);
    });
}

/// Fills a filter whose next layer cannot be made.
fn fill(client: &mut Connection) {
    assert_eq!(client.run("BF.RESERVE full 1e-9 32768 EXPANSION 32768"), ok());
    let items: Vec<String> = (0..32768).map(|number| number.to_string()).collect();
    assert!(client.batched(&[b"BF.MADD", b"full"], &items).iter().all(|&new| new));
}

/// With us the reply ends at the first item that is not taken, as it does when a fixed filter is full, and says why.
/// RedisBloom goes on, and answers known items.
#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn a_layer_that_cannot_be_had_ends_the_reply() {
    beside_redisbloom(|peer| {
        let (_folder, peer) = with_little_memory(peer);
        let [ours, theirs] = Side::BOTH.map(|side| peer.start(side, &[]));
        let (mut ours, mut theirs) = (ours.connect(), theirs.connect());
        fill(&mut ours);
        fill(&mut theirs);
        let reply = ours.run("BF.MADD full 1 new newer 2");
        assert_eq!(reply.elements().len(), 2);
        assert_eq!(reply.elements()[0], integer(0));
        assert_says_bytes(&reply.elements()[1], "BF.MADD");
        let refused = error(NOT_INSERTED);
        let expected = array([integer(0), refused.clone(), refused.clone(), integer(0)]);
        assert_eq!(theirs.run("BF.MADD full 1 new newer 2"), expected);
        assert_says_bytes(&ours.run("BF.ADD full new"), "BF.ADD");
        assert_eq!(theirs.run("BF.ADD full new"), refused);
        for line in ["BF.CARD full", "BF.INFO full", "BF.DEBUG full", "BF.MEXISTS full 1 new newer"] {
            assert_eq!(ours.run(line), theirs.run(line), "{line}");
        }
    });
}

/// Half of the least number that is not zero is zero.
#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn rates_come_to_an_end() {
    const TOO_LOW: &str = "ERR the error rate of the filter or of its next layer is too low";
    beside_redisbloom(|peer| {
        let [ours, theirs] = Side::BOTH.map(|side| peer.start(side, &[]));
        let (mut ours, mut theirs) = (ours.connect(), theirs.connect());
        for line in ["BF.RESERVE fixed 5e-324 1 NONSCALING", "BF.RESERVE k 1e-323 1", "BF.ADD k a", "BF.ADD k a"] {
            assert_eq!(ours.run(line), theirs.run(line), "{line}");
        }
        let differs = |ours: Reply, theirs: Reply, expected: &str| {
            assert_eq!((ours, theirs), (error(TOO_LOW), error(expected)));
        };
        let line = "BF.RESERVE growing 5e-324 1";
        differs(ours.run(line), theirs.run(line), "ERR could not create filter");
        differs(ours.run("BF.ADD k b"), theirs.run("BF.ADD k b"), NOT_INSERTED);
    });
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn capacities_end_at_two_to_the_thirty() {
    beside_releases(
        |major| major >= 8,
        |peer| {
            let [ours, theirs] = Side::BOTH.map(|side| peer.start(side, &[]));
            let (mut ours, mut theirs) = (ours.connect(), theirs.connect());
            for line in [
                "BF.RESERVE k 0.25 1073741824 NONSCALING",
                "BF.INFO k",
                "BF.DEBUG k",
                "DEL k",
                "BF.INSERT k ERROR 0.25 CAPACITY 1073741824 NONSCALING ITEMS a a",
                "BF.INFO k",
                "DEL k",
                "BF.RESERVE k 0.25 1073741825",
                "BF.INSERT k CAPACITY 1073741825 ITEMS a",
                "BF.RESERVE k 0.25 4294967296",
                "BF.RESERVE k 0.25 9223372036854775807",
                "BF.INSERT k CAPACITY 9223372036854775807 ITEMS a",
                "EXISTS k",
            ] {
                assert_eq!(ours.run(line), theirs.run(line), "{line}");
            }
        },
    );
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn capacities_of_2_x_have_no_upper_limit() {
    beside_releases(
        |major| major < 8,
        |peer| {
            let [ours, theirs] = Side::BOTH.map(|side| peer.start(side, &[]));
            let line = "BF.RESERVE k 0.25 1073741825 NONSCALING";
            assert_eq!(theirs.connect().run(line), ok());
            assert_eq!(ours.connect().run(line), error("ERR capacity must be in the range [1, 1073741824]"));
        },
    );
}
