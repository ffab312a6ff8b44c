//! Replicas of RedisBloom with our module, and replicas of ours with RedisBloom: equal to the byte after the full
//! synchronisation, after the stream, after links that were cut, and when the two change places.

use super::stream::Stream;
use super::view::View;
use super::{Peer, Side, beside_redisbloom, beside_releases};
use crate::fleet::{catch_up, follow};
use crate::reliability::scaled;
use testing::{Connection, Server, error, integer, servers};

/// How many commands there are between two comparisons.
const COMMANDS: usize = 300;

fn assert_equal(occasion: &str, stream: &Stream, primary: &mut Connection, replica: &mut Connection) {
    catch_up(primary, replica);
    View::of(primary).assert_same(&View::of(replica), occasion);
    stream.assert_found(replica, occasion);
}

/// A server with one module follows one with the other, takes its place, and is followed by it.
fn follow_and_change_places(peer: &Peer, first: Side) {
    let name = format!("{first:?} of {} as the first primary", peer.major);
    let backlog = ["repl-backlog-size 256mb"];
    let (one, other) = (peer.start(first, &backlog), peer.start(first.other(), &backlog));
    let (mut primary, mut replica) = (one.connect(), other.connect());
    let mut stream = Stream::new(&name);
    stream.write(&mut [&mut primary], scaled(COMMANDS));
    follow(&mut replica, one.port);
    assert_equal(&format!("{name}: a full synchronisation"), &stream, &mut primary, &mut replica);
    for _ in 0..3 {
        stream.write(&mut [&mut primary], scaled(COMMANDS));
        primary.run("CLIENT KILL TYPE replica");
        stream.write(&mut [&mut primary], scaled(COMMANDS));
        assert_equal(&format!("{name}: the stream"), &stream, &mut primary, &mut replica);
    }
    assert_eq!(primary.info_number("sync_full"), 1, "{name}: the rest came as a stream");
    if first == Side::Ours {
        assert!(!other.log().contains("== CRITICAL =="), "{name}: RedisBloom was sent what it refuses");
    }
    // The replica takes over, and the primary follows it.
    replica.run("REPLICAOF NO ONE");
    follow(&mut primary, other.port);
    for _ in 0..2 {
        stream.write(&mut [&mut replica], scaled(COMMANDS));
        assert_equal(&format!("{name}: the places changed"), &stream, &mut replica, &mut primary);
    }
    // A third one learns of all that by a full synchronisation only.
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

/// The server carries COPY by itself, and RedisBloom's type has none. While replicas have RedisBloom, nobody may copy.
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

/// The way to a newer server, or to Valkey, with the module changed on the way.
#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn ours_in_any_server_follows_redisbloom() {
    // Payloads of newer servers are not read by others; those of Redis 7 are.
    beside_releases(
        |major| major < 8,
        |peer| {
            for program in servers() {
                let name = format!("{} follows {}", program.display(), peer.major);
                let (one, other) = (peer.start(Side::Theirs, &[]), Server::with(&program).start());
                let (mut primary, mut replica) = (one.connect(), other.connect());
                let mut stream = Stream::new(&name);
                stream.write(&mut [&mut primary], scaled(COMMANDS));
                follow(&mut replica, one.port);
                assert_equal(&format!("{name}: a full synchronisation"), &stream, &mut primary, &mut replica);
                stream.write(&mut [&mut primary], scaled(COMMANDS));
                assert_equal(&format!("{name}: the stream"), &stream, &mut primary, &mut replica);
            }
        },
    );
}
