//! Data that one module writes and the other reads: append-only files, the replication stream, snapshots and payloads.

use std::collections::BTreeMap;

use super::{Peer, Side, Stream, View, beside_redisbloom, beside_releases, extremes};
use crate::fleet::follow;
use crate::persistence::rewrite_append_only_file;
use crate::redisbloom::golden::{self, OF_ENCODING_3, filters, of_encoding_3};
use crate::reliability::scaled;
use testing::{
    Connection, FOOTER, Server, Stop, catch_up, dump, error, integer, load_record, ok, records, restore,
    rewritten_commands, servers,
};

// Append-only files that one module wrote and the other reads: original commands, the snapshot or the commands of a rewrite, and later
// commands. Both modules' rewrites have byte-identical records for each filter.

/// The number of random commands between two changes of the module.
const REWRITTEN_AFTER: usize = 200;

/// The data must survive the process, not the machine.
fn start(peer: &Peer, side: Side, preamble: &str) -> Server {
    let preamble = format!("aof-use-rdb-preamble {preamble}");
    peer.start(side, &["appendonly yes", "appendfsync no", "auto-aof-rewrite-percentage 0", &preamble])
}

/// The modules alternate on one file. Each reads the other's data, appends commands, and sometimes rewrites the file.
fn take_turns(peer: &Peer, first: Side, preamble: &str) {
    let name = format!("{first:?} of {} first, preamble {preamble}", peer.major);
    let mut server = start(peer, first, preamble);
    let mut stream = Stream::new(&name);
    extremes::make_extremes(&mut server.connect());
    let mut side = first;
    for turn in [["commands"].as_slice(), &["commands", "rewrite"], &["commands", "rewrite", "commands"]] {
        let mut client = server.connect();
        for part in turn {
            match *part {
                "rewrite" => rewrite_append_only_file(&mut client),
                _ => stream.write(&mut [&mut client], scaled(REWRITTEN_AFTER)),
            }
        }
        let (before, answers) = (View::of(&mut client), extremes::answers(&mut client));
        side = side.other();
        peer.restart_with(side, &mut server, Stop::Kill);
        let occasion = format!("{name}, {}", turn.join(", "));
        let mut client = server.connect();
        View::of(&mut client).assert_same(&before, &occasion);
        stream.assert_found(&mut client, &occasion);
        assert!(extremes::answers(&mut client) == answers, "{occasion}: the answers differ");
    }
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn files_of_commands_change_sides() {
    beside_redisbloom(|peer| Side::BOTH.into_iter().for_each(|first| take_turns(peer, first, "no")));
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn files_with_a_snapshot_change_sides() {
    beside_redisbloom(|peer| Side::BOTH.into_iter().for_each(|first| take_turns(peer, first, "yes")));
}

/// The commands of a rewrite, by key. Keys come in any order.
fn rewritten_by_key(server: &Server) -> BTreeMap<Vec<u8>, Vec<Vec<Vec<u8>>>> {
    let mut commands: BTreeMap<Vec<u8>, Vec<Vec<Vec<u8>>>> = BTreeMap::new();
    for command in rewritten_commands(server) {
        commands.entry(command[1].clone()).or_default().push(command);
    }
    commands
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn a_rewrite_gives_the_same_records() {
    beside_redisbloom(|peer| {
        let mut stream = Stream::new("rewrite");
        let servers = Side::BOTH.map(|side| start(peer, side, "no"));
        let [mut ours, mut theirs] = [&servers[0], &servers[1]].map(Server::connect);
        stream.write(&mut [&mut ours, &mut theirs], scaled(REWRITTEN_AFTER));
        extremes::make_extremes(&mut ours);
        extremes::make_extremes(&mut theirs);
        rewrite_append_only_file(&mut ours);
        rewrite_append_only_file(&mut theirs);
        let [ours, theirs] = [&servers[0], &servers[1]].map(rewritten_by_key);
        assert!(ours.keys().eq(theirs.keys()));
        for (key, commands) in &ours {
            assert!(commands == &theirs[key], "the records of {} differ", key.escape_ascii());
        }
    });
}

// Replicas of RedisBloom with our module, and replicas of ours with RedisBloom: byte-identical after the full synchronisation, after the
// stream, after links were cut, and after the two have exchanged roles.

/// The number of commands between two comparisons.
const STREAMED: usize = 300;

fn assert_equal(occasion: &str, stream: &Stream, primary: &mut Connection, replica: &mut Connection) {
    catch_up(primary, replica);
    View::of(primary).assert_same(&View::of(replica), occasion);
    stream.assert_found(replica, occasion);
}

/// A server with one module replicates a server with the other, replaces it as primary, and is replicated by it.
fn follow_and_change_places(peer: &Peer, first: Side) {
    let name = format!("{first:?} of {} as the first primary", peer.major);
    // A replica exits if a replicated command fails.
    let lines = ["repl-backlog-size 256mb", "propagation-error-behavior panic"];
    let (one, other) = (peer.start(first, &lines), peer.start(first.other(), &lines));
    let (mut primary, mut replica) = (one.connect(), other.connect());
    let mut stream = Stream::new(&name);
    stream.write(&mut [&mut primary], scaled(STREAMED));
    follow(&mut replica, one.port);
    assert_equal(&format!("{name}: a full synchronisation"), &stream, &mut primary, &mut replica);
    for _ in 0..3 {
        stream.write(&mut [&mut primary], scaled(STREAMED));
        primary.run("CLIENT KILL TYPE replica");
        stream.write(&mut [&mut primary], scaled(STREAMED));
        assert_equal(&format!("{name}: the stream"), &stream, &mut primary, &mut replica);
    }
    assert_eq!(primary.info_number("sync_full"), 1, "{name}: the rest came as a stream");
    if first == Side::Ours {
        assert!(!other.log().contains("== CRITICAL =="), "{name}: RedisBloom was sent what it refuses");
    }
    // The replica is promoted, and the primary becomes its replica.
    replica.run("REPLICAOF NO ONE");
    follow(&mut primary, other.port);
    for _ in 0..2 {
        stream.write(&mut [&mut replica], scaled(STREAMED));
        assert_equal(&format!("{name}: the places changed"), &stream, &mut replica, &mut primary);
    }
    // A third server gets all of it by a full synchronisation only.
    let third = peer.start(first, &[]);
    let mut late = third.connect();
    follow(&mut late, other.port);
    assert_equal(&format!("{name}: one that came late"), &stream, &mut replica, &mut late);
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn ours_follows_redisbloom_and_takes_over() {
    beside_redisbloom(|peer| follow_and_change_places(peer, Side::Theirs));
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn redisbloom_follows_ours_and_takes_over() {
    beside_redisbloom(|peer| follow_and_change_places(peer, Side::Ours));
}

/// The server itself replicates COPY, which RedisBloom's type does not support. While replicas have RedisBloom, COPY must not be used.
#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn a_copy_does_not_reach_a_replica_with_redisbloom() {
    const REFUSAL: &str = "not supported for this module key";
    beside_redisbloom(|peer| {
        let (one, other) = (peer.start(Side::Ours, &[]), peer.start(Side::Theirs, &[]));
        let (mut primary, mut replica) = (one.connect(), other.connect());
        assert_eq!(replica.run("BF.ADD k a"), integer(1));
        assert_eq!(replica.run("COPY k copy"), error(&format!("ERR {REFUSAL}")));
        follow(&mut replica, one.port);
        catch_up(&mut primary, &mut replica);
        assert_eq!(primary.run("BF.ADD k b"), integer(1));
        assert_eq!(primary.run("COPY k copy"), integer(1));
        catch_up(&mut primary, &mut replica);
        assert_eq!(replica.run("BF.EXISTS k b"), integer(1));
        assert_eq!(replica.run("EXISTS copy"), integer(0));
        assert!(other.log().contains(REFUSAL));
    });
}

/// Migration to a newer server, or to Valkey, with a change of the module.
#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn ours_in_any_server_follows_redisbloom() {
    // Other servers do not read payloads of newer servers, but do read those of Redis 7.
    beside_releases(
        |major| major < 8,
        |peer| {
            for program in servers() {
                let name = format!("{} follows {}", program.display(), peer.major);
                let (one, other) = (peer.start(Side::Theirs, &[]), Server::with(&program).start());
                let (mut primary, mut replica) = (one.connect(), other.connect());
                let mut stream = Stream::new(&name);
                stream.write(&mut [&mut primary], scaled(STREAMED));
                follow(&mut replica, one.port);
                assert_equal(&format!("{name}: a full synchronisation"), &stream, &mut primary, &mut replica);
                stream.write(&mut [&mut primary], scaled(STREAMED));
                assert_equal(&format!("{name}: the stream"), &stream, &mut primary, &mut replica);
            }
        },
    );
}

// Snapshots and payloads that one module writes and the other reads and rewrites: equal bytes, equal answers, and equal filters after
// further commands.

/// The number of random commands that create filters.
const COMMANDS: usize = 400;

/// One module writes a snapshot, the other reads it and writes its own, which the first one reads. Each time, everything that clients can
/// see is equal.
fn there_and_back(peer: &Peer, first: Side, compression: &str) {
    let name = format!("{first:?} of {} first, compression {compression}", peer.major);
    let mut server = peer.start(first, &[&format!("rdbcompression {compression}")]);
    let mut stream = Stream::new(&name);
    stream.write(&mut [&mut server.connect()], scaled(COMMANDS));
    extremes::make_extremes(&mut server.connect());
    let before = View::of(&mut server.connect());
    let answers = extremes::answers(&mut server.connect());
    for (way, side) in [("there", first.other()), ("back", first), ("and there again", first.other())] {
        peer.restart_with(side, &mut server, Stop::Save);
        let occasion = format!("{name}, {way}");
        View::of(&mut server.connect()).assert_same(&before, &occasion);
        stream.assert_found(&mut server.connect(), &occasion);
        assert!(extremes::answers(&mut server.connect()) == answers, "{occasion}: the answers differ");
    }
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn a_snapshot_of_redisbloom_goes_through_ours_and_back() {
    beside_redisbloom(|peer| there_and_back(peer, Side::Theirs, "yes"));
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn a_snapshot_of_ours_goes_through_redisbloom_and_back() {
    beside_redisbloom(|peer| there_and_back(peer, Side::Ours, "no"));
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn filters_that_were_loaded_go_on_alike() {
    beside_redisbloom(|peer| {
        for first in Side::BOTH {
            let name = format!("{first:?} of {} loaded", peer.major);
            let mut server = peer.start(first, &[]);
            let mut stream = Stream::new(&name);
            stream.write(&mut [&mut server.connect()], scaled(COMMANDS));
            extremes::make_extremes(&mut server.connect());
            // Each payload goes to a server with the other module, the snapshot to the first module again.
            let other = peer.start(first.other(), &[]);
            restore_all(&server, &other);
            server.restart(Stop::Save);
            if first == Side::Ours {
                server.connect().run("CONFIG SET bf.layout redisbloom");
            }
            let (mut one, mut other) = (server.connect(), other.connect());
            View::of(&mut one).assert_same(&View::of(&mut other), &name);
            stream.write(&mut [&mut one, &mut other], scaled(COMMANDS));
            extremes::go_on_alike(&mut one, &mut other, &name);
            View::of(&mut one).assert_same(&View::of(&mut other), &format!("{name}, gone on"));
            stream.assert_found(&mut other, &name);
        }
    });
}

/// Copies every key by DUMP and RESTORE. The other server then returns an identical payload, including the version and the checksum.
fn restore_all(from: &Server, to: &Server) {
    let (mut from, mut to) = (from.connect(), to.connect());
    for key in from.run("KEYS *").elements() {
        let payload = dump(&mut from, key.bytes());
        let expires = from.call(&[b"PEXPIRETIME", key.bytes()]).number().max(0).to_string();
        let words: [&[u8]; 5] = [b"RESTORE", key.bytes(), expires.as_bytes(), &payload, b"ABSTTL"];
        assert_eq!(to.call(&words), ok(), "RESTORE {key:?}");
        let again = dump(&mut to, key.bytes());
        assert!(again == payload, "{key:?}: {} bytes, {} with {FOOTER} at the end", again.len(), payload.len());
    }
}

/// RedisBloom hashes with seeds of 64 bits. If the width of the seeds is not recorded, it must refuse the filter rather than report members
/// absent. The hash of 1.0.0 is known.
#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn redisbloom_gets_no_filter_that_it_would_hash_differently() {
    beside_redisbloom(|peer| {
        let (ours, theirs) = (peer.start(Side::Ours, &[]), peer.start(Side::Theirs, &[]));
        let (mut from, mut to) = (ours.connect(), theirs.connect());
        for release in OF_ENCODING_3 {
            golden::restore(&ours, release, &of_encoding_3(release).0.payload);
            from.run(&format!("BF.MADD {release} more:1 more:2"));
            let payload = dump(&mut from, release);
            assert!(restore(&mut to, release, &payload).is_error(), "{release}");
            let header = &records(&mut from, release)[0];
            assert!(load_record(&mut to, release, header).is_error(), "{release}");
            assert_eq!(to.run(&format!("EXISTS {release}")), integer(0));
        }
        for filter in filters("1.0.0") {
            golden::restore(&ours, &filter.key, &filter.payload);
            let payload = dump(&mut from, &filter.key);
            assert_eq!(restore(&mut to, &filter.key, &payload), ok(), "{}", filter.key);
            let found = to.batched(&[b"BF.MEXISTS", filter.key.as_bytes()], &golden::items(0, filter.offered));
            assert!(!found.contains(&false), "{}", filter.key);
        }
    });
}
