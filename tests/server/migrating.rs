//! The ways of MIGRATING.md, walked with data that RedisBloom made: replicating and handing over, single keys by every means,
//! a native filter filled alongside, and the look before the move.

use std::process::Command;

use crate::redisbloom::golden::{TODAY, filters, snapshot};
use testing::{Server, array, eventually, integer, ok, on_every_server, simple, start_on_snapshot, tool};

/// A replica of a server, with all of its data.
fn follow(replica: &Server, primary: &Server) {
    let mut client = replica.connect();
    assert_eq!(client.run(&format!("REPLICAOF 127.0.0.1 {}", primary.port)), ok());
    eventually("the replica has the primary's data", || client.info("master_link_status") == "up");
}

fn digest(server: &Server) -> String {
    server.connect().run("DEBUG DIGEST").text()
}

#[test]
fn a_server_that_follows_takes_over_with_every_filter() {
    on_every_server(|program| {
        let old = start_on_snapshot(program, &[], &snapshot(TODAY));
        let new = Server::with(program).line("repl-diskless-load swapdb").start();
        follow(&new, &old);
        assert_eq!(digest(&new), digest(&old));
        for golden in filters(TODAY) {
            golden.check(&new, &golden.key);
        }

        // What the old one creates while it is followed has RedisBloom's layout there, too.
        let mut client = old.connect();
        client.run("CONFIG SET bf.layout redisbloom");
        client.run("BF.MADD created a b c");
        assert_eq!(client.run("WAIT 1 10000"), integer(1));
        assert_eq!(new.connect().run("TYPE created"), simple("MBbloom--"));

        assert_eq!(client.run("FAILOVER"), ok());
        eventually("the replica has become the primary", || new.connect().info("role") == "master");
        eventually("the primary has become a replica", || old.connect().info("master_link_status") == "up");
        let mut client = new.connect();
        client.run("CONFIG SET bf.layout redisbloom");
        assert_eq!(client.run("BF.MADD large new1 new2"), array([integer(1), integer(1)]));
        assert_eq!(client.run("BF.ADD younger a"), integer(1));
        eventually("the old one has it all", || digest(&old) == digest(&new));
        assert_eq!(old.connect().run("TYPE younger"), simple("MBbloom--"));
    });
}

#[test]
fn a_native_filter_filled_alongside_takes_over_without_an_item_twice_or_lost() {
    on_every_server(|program| {
        let server = start_on_snapshot(program, &[], &snapshot(TODAY));
        let mut client = server.connect();
        client.run("RENAME large seen");
        let members: Vec<String> = (0..2000).map(|number| format!("item:{number}")).collect();
        assert_eq!(client.run("BF.RESERVE seen.new 0.0001 10000"), ok());

        // A crawl: known links come by again, and new ones between them.
        let mut first_time = |item: &str| {
            let known = client.call(&["BF.EXISTS", "seen", item]).truth();
            client.call(&["BF.ADD", "seen.new", item]).truth() && !known
        };
        let mut new = 0;
        for (number, item) in members.iter().enumerate() {
            assert!(!first_time(item), "{item} was known");
            new += usize::from(first_time(&format!("new:{number}")));
            assert!(!first_time(&format!("new:{number}")), "it is known now");
        }
        assert!(new > 1990, "the rates of both, and no more: {new} of 2000");

        assert_eq!(client.run("RENAME seen.new seen"), ok());
        assert_eq!(client.run("TYPE seen"), simple("bloomgate"));
        assert!(client.batched(&[b"BF.MEXISTS", b"seen"], &members).iter().all(|known| *known));
    });
}

#[test]
fn a_survey_lists_filters_and_what_stays_behind_and_compares_two_servers() {
    let survey = |words: &[&str]| {
        let output = Command::new(tool()).arg("survey").args(words).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    };
    on_every_server(|program| {
        let old = start_on_snapshot(program, &[], &snapshot(TODAY));
        let new = Server::start(program);
        let urls = [&old, &new].map(|server| format!("redis://127.0.0.1:{}", server.port));
        old.connect().run("SET greeting hello");
        let (fine, text) = survey(&["--url", &urls[0]]);
        assert!(fine, "{text}");
        assert!(text.contains("MBbloom--               8") && text.contains("other                   1"), "{text}");

        let (fine, text) = survey(&["--url", &urls[0], "--beside", &urls[1]]);
        assert!(!fine && text.contains("compared 8 filters: 8 differ"), "{text}");
        follow(&new, &old);
        let (fine, text) = survey(&["--url", &urls[0], "--beside", &urls[1]]);
        assert!(fine && text.contains("compared 8 filters: 0 differ"), "{text}");
        old.connect().run("BF.ADD tiny another");
        new.connect().run("REPLICAOF NO ONE");
        new.connect().run("BF.ADD tiny third");
        new.connect().run("BF.ADD tiny fourth");
        let (fine, text) = survey(&["--url", &urls[0], "--beside", &urls[1]]);
        assert!(!fine && text.contains("these filters differ: tiny"), "{text}");
    });
}
