//! A replica has the same bits as its primary: after a full synchronisation, after a partial one, behind another
//! replica, and whatever its own configuration says.

use std::path::Path;

use crate::harness::{Builder, Connection, Server, catch_up, eventually, follow, integer, ok, on_every_server, simple};
use crate::zoo::{Zoo, assert_same};

/// A replica whose own settings are as far from the primary's as they can be.
fn contrary(program: &Path) -> Builder {
    Server::with(program)
        .module_words("ERROR_RATE 0.2 INITIAL_SIZE 7")
        .line("bf.expansion-factor 0")
        .line("bf.max-filter-bytes 500")
}

/// Adds of every kind: creations with defaults, growth, a fixed filter that fills up, a script, a transaction.
fn write_some(primary: &mut Connection, round: usize) {
    let items: Vec<String> = (0..2000).map(|number| format!("round {round} item {number}")).collect();
    for key in ["defaults", "grown"] {
        primary.batched(&[b"BF.MADD", key.as_bytes()], &items);
    }
    primary.run(&format!("BF.ADD single-{round} x"));
    primary.run(&format!("BF.MADD several-{round} x y x"));
    primary.run(&format!("BF.INSERT inserted-{round} CAPACITY 3 EXPANSION 1 ITEMS a b c d e f g h"));
    primary.run(&format!("BF.INSERT filled-{round} CAPACITY 3 NONSCALING ITEMS a b c d e f g h"));
    primary.run(&format!("BF.RESERVE reserved-{round} 0.001 1000 EXPANSION 3"));
    primary.call(&["EVAL", "redis.call('BF.MADD', KEYS[1], 'a', 'b', 'a')", "1", &format!("script-{round}")]);
    primary.pipeline(&["MULTI", &format!("BF.ADD multi-{round} a"), &format!("BF.MADD multi-{round} a b"), "EXEC"]);
    primary.run(&format!("COPY multi-{round} copied-{round}"));
    primary.run(&format!("RENAME single-{round} renamed-{round}"));
    let payload = primary.run("DUMP grown");
    let words =
        ["RESTORE".as_bytes(), &format!("restored-{round}").into_bytes(), b"0", payload.bytes()].map(<[u8]>::to_vec);
    assert_eq!(primary.call(&words), ok());
}

/// Compares every filter by what it holds, bit for bit.
fn assert_equal_keys(occasion: &str, primary: &mut Connection, replica: &mut Connection) {
    let keys = primary.run("KEYS *");
    assert_eq!(replica.run("DBSIZE"), integer(keys.elements().len() as i64), "{occasion}");
    for key in keys.elements() {
        let words: [&[u8]; 3] = [b"DEBUG", b"DIGEST-VALUE", key.bytes()];
        assert_eq!(replica.call(&words), primary.call(&words), "{occasion}: {key:?}");
        let words: [&[u8]; 2] = [b"BF.INFO", key.bytes()];
        let (here, there) = (replica.call(&words), primary.call(&words));
        assert_eq!(here.field("Number of filters"), there.field("Number of filters"), "{occasion}: {key:?}");
        assert_eq!(here.field("Expansion rate"), there.field("Expansion rate"), "{occasion}: {key:?}");
    }
    assert_eq!(replica.run("DEBUG DIGEST"), primary.run("DEBUG DIGEST"), "{occasion}");
}

#[test]
fn a_full_synchronisation_brings_everything() {
    on_every_server(|program| {
        for (diskless, load) in [("no", "disabled"), ("yes", "swapdb")] {
            let server = Server::with(program).line(&format!("repl-diskless-sync {diskless}")).start();
            let mut primary = server.connect();
            let zoo = Zoo::build(&mut primary);
            let before = zoo.view(&mut primary);
            let other = contrary(program).line(&format!("repl-diskless-load {load}")).start();
            let mut replica = other.connect();
            replica.run("BF.ADD of-its-own x");
            follow(&mut replica, &server);
            assert_eq!(primary.info_number("sync_full"), 1);
            assert_same(&format!("diskless {diskless}, load {load}"), &before, &zoo.view(&mut replica));
            assert_eq!(replica.run("EXISTS of-its-own"), integer(0));

            // What was loaded goes on as the primary's does.
            for key in ["grown", "empty", "grown-fast"] {
                let items: Vec<String> = (0..3000).map(|number| format!("new/{number}")).collect();
                primary.batched(&[b"BF.MADD", key.as_bytes()], &items);
            }
            catch_up(&mut primary, &mut replica);
            assert_same("adds after it", &zoo.view(&mut primary), &zoo.view(&mut replica));
        }
    });
}

#[test]
fn a_stream_of_adds_makes_the_same_filters_under_any_configuration() {
    on_every_server(|program| {
        let server = Server::start(program);
        let other = contrary(program).start();
        let (mut primary, mut replica) = (server.connect(), other.connect());
        follow(&mut replica, &server);
        for round in 0..3 {
            write_some(&mut primary, round);
        }
        catch_up(&mut primary, &mut replica);
        assert_equal_keys("live stream", &mut primary, &mut replica);
        assert!(replica.run("BF.ADD defaults x").error_text().starts_with("READONLY"));
        assert!(replica.run("BF.EXISTS renamed-0 x").truth());
        assert!(!other.log().contains("== CRITICAL =="), "the replica met a command that failed");
        assert_eq!(primary.info_number("sync_full"), 1);
    });
}

#[test]
fn a_partial_synchronisation_brings_what_was_missed() {
    on_every_server(|program| {
        let server = Server::start(program);
        let other = contrary(program).start();
        let (mut primary, mut replica) = (server.connect(), other.connect());
        write_some(&mut primary, 0);
        follow(&mut replica, &server);
        for round in 1..4 {
            write_some(&mut primary, round);
            let killed = primary.pipeline(&["CLIENT KILL TYPE replica", "BF.ADD missed a", "BF.MADD missed a b c"]);
            assert_eq!(killed[0], integer(1));
            write_some(&mut primary, round + 10);
            eventually("the replica to come back", || primary.info_number("connected_slaves") == 1);
            catch_up(&mut primary, &mut replica);
            assert_equal_keys("after a cut", &mut primary, &mut replica);
            assert_eq!(primary.info_number("sync_partial_ok"), round as i64);
            assert_eq!(primary.info_number("sync_full"), 1);
        }
    });
}

#[test]
fn a_replica_of_a_replica_is_equal_too() {
    on_every_server(|program| {
        let servers = [Server::start(program), contrary(program).start(), Server::start(program)];
        let [mut first, mut second, mut third] = servers.each_ref().map(Server::connect);
        write_some(&mut first, 0);
        follow(&mut second, &servers[0]);
        follow(&mut third, &servers[1]);
        write_some(&mut first, 1);
        catch_up(&mut first, &mut second);
        catch_up(&mut first, &mut third);
        assert_equal_keys("second", &mut first, &mut second);
        assert_equal_keys("third", &mut first, &mut third);
    });
}

#[test]
fn a_promoted_replica_goes_on_by_itself() {
    on_every_server(|program| {
        let server = Server::start(program);
        let other = Server::start(program);
        let (mut primary, mut replica) = (server.connect(), other.connect());
        follow(&mut replica, &server);
        write_some(&mut primary, 0);
        catch_up(&mut primary, &mut replica);
        replica.run("REPLICAOF NO ONE");
        write_some(&mut replica, 1);
        // The former primary follows: first it has fewer filters, then the same.
        follow(&mut primary, &other);
        catch_up(&mut replica, &mut primary);
        assert_equal_keys("after the change of roles", &mut replica, &mut primary);
    });
}

/// While a replica loads a snapshot beside what it has, its clients are served, and may write where it is writable. They are
/// clients: limits bind them, and a refusal does not end the server.
#[test]
fn a_client_of_a_replica_that_loads_is_a_client() {
    on_every_server(|program| {
        let server = Server::with(program).line("repl-diskless-sync yes").line("repl-backlog-size 16kb").start();
        let mut primary = server.connect();
        for number in 0..300 {
            primary.call(&[b"SET".as_slice(), format!("k{number}").as_bytes(), &[number as u8; 2000]]);
        }
        // It looks at its clients after every key, and takes its time from then on.
        let other = Server::with(program).line("repl-diskless-load swapdb").line("replica-read-only no");
        let other = other.line("loading-process-events-interval-bytes 1024").start();
        let mut replica = other.connect();
        follow(&mut replica, &server);
        assert_eq!(replica.run("CONFIG SET key-load-delay 10000"), ok());
        // The link breaks, and before it is back there is more than the backlog holds: another full synchronisation, with
        // the primary that it knows.
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
