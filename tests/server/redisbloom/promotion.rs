//! A replica that is promoted: the layout of the filters that its clients create from then on. Its former primary and the other replicas may
//! have RedisBloom, which cannot read native filters.

use std::path::Path;

use super::golden::{TODAY, snapshot};
use super::words::TheirPrimary;
use testing::{
    Connection, Server, Stop, catch_up, eventually, follow, integer, load_records, ok, on_every_server, records,
};

const LINE: &str = "bloomgate: promoted with filters of RedisBloom's layout only: bf.layout is now redisbloom";

fn layout(client: &mut Connection) -> String {
    client.run("CONFIG GET bf.layout").elements()[1].text()
}

/// The type of a filter that a client creates now.
fn type_of_new(client: &mut Connection) -> String {
    assert_eq!(client.run("BF.ADD new x"), integer(1));
    let name = client.run("TYPE new").text();
    assert_eq!(client.run("DEL new"), integer(1));
    name
}

/// Makes a server a replica of RedisBloom, with the link up and one command applied.
fn follow_theirs(client: &mut Connection, primary: &TheirPrimary) {
    assert_eq!(client.run(&format!("REPLICAOF 127.0.0.1 {}", primary.port)), ok());
    eventually("the snapshot", || client.info("master_link_status") == "up");
    primary.send(&["SELECT 0", "BF.ADD streamed x"]);
    eventually("the stream", || client.run("EXISTS streamed") == integer(1));
}

#[test]
fn a_promoted_replica_of_redisbloom_keeps_the_layout_until_it_is_set() {
    on_every_server(|program| {
        let primary = TheirPrimary::start(snapshot(TODAY));
        let mut server = Server::start(program);
        let mut client = server.connect();
        follow_theirs(&mut client, &primary);
        assert_eq!(layout(&mut client), "native", "not promoted yet");
        assert_eq!(client.run("REPLICAOF NO ONE"), ok());
        assert_eq!(layout(&mut client), "redisbloom");
        assert_eq!(type_of_new(&mut client), "MBbloom--");
        assert_eq!(server.log().matches(LINE).count(), 1, "{}", server.log());

        // CONFIG REWRITE, which Sentinel sends after a promotion, keeps it.
        assert_eq!(client.run("CONFIG REWRITE"), ok());
        server.restart(Stop::Save);
        let mut client = server.connect();
        assert_eq!(type_of_new(&mut client), "MBbloom--");

        assert_eq!(client.run("CONFIG SET bf.layout native"), ok());
        assert_eq!(type_of_new(&mut client), "bloomgate");
        promote_again(&mut client);
        assert_eq!(type_of_new(&mut client), "bloomgate", "set explicitly");
        assert_eq!(client.run("CONFIG REWRITE"), ok());
        server.restart(Stop::Save);
        let mut client = server.connect();
        promote_again(&mut client);
        assert_eq!(type_of_new(&mut client), "bloomgate", "set explicitly, and kept by CONFIG REWRITE");
        assert_eq!(server.log().matches(LINE).count(), 1, "{}", server.log());
    });
}

/// Makes the server a replica of an unreachable primary, and promotes it again.
fn promote_again(client: &mut Connection) {
    assert_eq!(client.run("REPLICAOF 127.0.0.1 1"), ok());
    assert_eq!(client.run("REPLICAOF NO ONE"), ok());
}

#[test]
fn a_replica_that_is_restarted_before_its_promotion_keeps_the_layout() {
    on_every_server(|program| {
        let primary = TheirPrimary::start(snapshot(TODAY));
        let mut server = Server::start(program);
        follow_theirs(&mut server.connect(), &primary);
        server.restart(Stop::Save);
        let mut client = server.connect();
        assert_eq!(type_of_new(&mut client), "bloomgate", "a server that starts as a primary is not promoted");
        promote_again(&mut client);
        assert_eq!(type_of_new(&mut client), "MBbloom--");
    });
}

/// Promotes a replica of one of our servers, which has run the commands. Returns the type of a filter that it then creates.
fn type_after_promotion(program: &Path, lines: &[&str], commands: &[&str]) -> String {
    let primary = Server::start(program);
    let replica = lines.iter().fold(Server::with(program), |builder, line| builder.line(line)).start();
    let (mut one, mut other) = (primary.connect(), replica.connect());
    for command in commands {
        assert!(!one.run(command).is_error(), "{command}");
    }
    follow(&mut other, &primary);
    catch_up(&mut one, &mut other);
    assert_eq!(other.run("REPLICAOF NO ONE"), ok());
    let name = type_of_new(&mut other);
    let is_logged = name == "MBbloom--" && !lines.contains(&"bf.layout redisbloom");
    assert_eq!(replica.log().contains(LINE), is_logged, "{lines:?} {commands:?}");
    name
}

#[test]
fn a_promoted_replica_creates_redisblooms_layout_if_all_its_filters_have_it() {
    const THEIRS: &str = "BF.RESERVE theirs 0.01 100 LAYOUT redisbloom";
    on_every_server(|program| {
        for (lines, commands, expected) in [
            ([].as_slice(), [].as_slice(), "bloomgate"),
            (&[], &["SET text x"], "bloomgate"),
            (&[], &["CF.ADD cuckoo x"], "bloomgate"),
            (&[], &["CF.RESERVE cuckoo 100 BUCKETSIZE 4"], "MBbloom--"),
            (&[], &[THEIRS], "MBbloom--"),
            (&[], &[THEIRS, "SET text x", "BF.ADD ours x", "DEL ours"], "MBbloom--"),
            (&[], &["CONFIG SET bf.layout redisbloom", "BF.ADD theirs x", "BF.CLEAR theirs"], "MBbloom--"),
            (&[], &[THEIRS, "BF.ADD ours x"], "bloomgate"),
            (&[], &[THEIRS, "BF.INSERT ring ROLLING ITEMS x"], "bloomgate"),
            (&[], &[THEIRS, "BF.INSERT valkey TIGHTENING 0.5 ITEMS x"], "bloomgate"),
            (&[], &["BF.INSERT valkey TIGHTENING 0.5 ITEMS x"], "bloomgate"),
            (&["bf.layout native"], &[THEIRS], "bloomgate"),
            (&["bf.layout redisbloom"], &["BF.ADD ours x"], "MBbloom--"),
            (&["bf.hash siphash"], &[THEIRS], "bloomgate"),
            (&["bf.hash murmur3"], &[THEIRS], "MBbloom--"),
        ] {
            let found = type_after_promotion(program, lines, commands);
            assert_eq!(found, expected, "{lines:?} {commands:?}");
        }
    });
}

/// The server ignores commands of RedisBloom's other types, while the link stays up. It counts them, or exits if configured to.
#[test]
fn commands_of_redisblooms_other_types_are_counted_and_end_a_replica_configured_to_exit() {
    on_every_server(|program| {
        let primary = TheirPrimary::start(snapshot(TODAY));
        let mut server = Server::start(program);
        let mut client = server.connect();
        follow_theirs(&mut client, &primary);
        let others = ["CMS.INITBYDIM sketch 9 9", "TOPK.RESERVE top 5", "TDIGEST.CREATE digest"];
        primary.send(&others);
        primary.send(&["SET the-end x"]);
        eventually("the end of the stream", || client.run("EXISTS the-end") == integer(1));
        assert_eq!(client.info_number("unexpected_error_replies"), 3);
        assert_eq!(client.info("master_link_status"), "up");
        assert_eq!(server.log().matches("== CRITICAL == This replica is sending an error to its").count(), 3);

        assert_eq!(client.run("CONFIG SET propagation-error-behavior panic"), ok());
        primary.send(&["BF.RESERVE fixed 0.1 1 NONSCALING", "BF.MADD fixed a b c", "SET still x"]);
        eventually("the replica to skip what RedisBloom refused", || client.run("EXISTS still") == integer(1));
        primary.send(&others);
        eventually("the replica to exit", || server.log().contains("This replica panicked sending an error to its"));
        server.end();
    });
}

/// A filter that arrives in chunks counts by the layout that it will have, before and after the last chunk.
#[test]
fn a_filter_that_arrives_counts_by_its_layout() {
    on_every_server(|program| {
        let source = Server::start(program);
        for (layout, expected) in [("redisbloom", "MBbloom--"), ("native", "bloomgate")] {
            source.connect().run(&format!("BF.RESERVE {layout} 0.01 100 LAYOUT {layout}"));
            let records = records(&mut source.connect(), layout);
            for arrived in 1..=records.len() {
                let server = Server::start(program);
                let mut client = server.connect();
                client.run("BF.RESERVE theirs 0.01 100 LAYOUT redisbloom");
                load_records(&mut client, "arriving", &records[..arrived]);
                assert_eq!(client.run("BF.EXISTS arriving x").is_error(), arrived < records.len());
                promote_again(&mut client);
                assert_eq!(type_of_new(&mut client), expected, "{layout}, {arrived} of {} records", records.len());
            }
        }
    });
}
