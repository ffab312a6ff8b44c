//! `survey`: the keys of all databases, and the comparison of two servers filter by filter.

use serde_json::Value;

use testing::{Connection, Server, catch_up, eventually, follow, on_every_server};

use crate::backup::{CUCKOO, EveryFilter, build_cuckoo};
use crate::running::{Ended, on_redisblooms, run, url, with_servers};

/// Compares the filters of two servers.
fn compare(server: &Server, other: &Server) -> Ended {
    run(["survey", "--url", &url(server), "--beside", &url(other)])
}

/// Returns the lines of the table's rows: type, database and number of keys.
fn rows(text: &str) -> Vec<(String, String, String)> {
    let words = text.lines().skip(1).map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    words.map(|words| (words[0].clone(), words[1].clone(), words[2].clone())).collect()
}

#[test]
fn all_databases_are_searched_unless_one_is_named() {
    with_servers(|server| {
        let mut client = server.connect();
        client.pipeline(&["BF.ADD zero x", "SET text 1", "SELECT 3", "BF.ADD three x", "BF.ADD more x", "SET text 1"]);
        client.pipeline(&["SELECT 11", "SET text 1"]);
        let (address, port) = (url(&server), server.port.to_string());
        let row = |(name, database, keys): (&str, &str, &str)| (name.to_owned(), database.to_owned(), keys.to_owned());
        let all = [
            ("bloomgate", "0", "1"),
            ("bloomgate", "3", "2"),
            ("other", "0", "1"),
            ("other", "3", "1"),
            ("other", "11", "1"),
        ];
        assert_eq!(rows(&run(["survey", "--url", &address]).success().text()), all.map(row));
        let in_three = [("bloomgate", "3", "2"), ("other", "3", "1")].map(row);
        assert_eq!(rows(&run(["survey", "--url", &format!("{address}/3")]).success().text()), in_three);
        assert_eq!(rows(&run(["survey", "-p", &port, "-n", "3"]).success().text()), in_three);
        let in_zero = [("bloomgate", "0", "1"), ("other", "0", "1")].map(row);
        assert_eq!(rows(&run(["survey", "--url", &format!("{address}/0")]).success().text()), in_zero);
        assert_eq!(rows(&run(["survey", "-p", &port, "-n", "0"]).success().text()), in_zero);
        let json: Value = serde_json::from_str(&run(["survey", "--json", "--url", &address]).success().text()).unwrap();
        assert_eq!(json["databases"], serde_json::json!([0, 3, 11]), "{json}");
        assert_eq!((&json["types"][1]["database"], &json["types"][1]["keys"]), (&3.into(), &2.into()), "{json}");
        // Without permission for INFO, it suggests an option that does not need it.
        client.run("ACL SETUSER few on >few ~* +@all -info");
        let few = address.replace("redis://", "redis://few:few@");
        run(["survey", "--url", &few]).refused("cannot list the databases (-n NUMBER names one)");
        run(["survey", "--url", &format!("{few}/3")]).success();
    });
}

#[test]
fn a_replica_equals_its_primary_and_every_difference_is_named() {
    on_every_server(|program| {
        let (primary, replica) = (Server::start(program), Server::start(program));
        let (mut here, mut there) = (primary.connect(), replica.connect());
        EveryFilter::build(&mut here);
        // At this rate there are no false positives.
        here.pipeline(&["BF.RESERVE exact 1e-9 100", "BF.INSERT tight ERROR 1e-9 TIGHTENING 0.5 ITEMS x"]);
        here.run("BF.RESERVE fewer 1e-9 100");
        follow(&mut there, &primary);
        here.pipeline(&["SELECT 3", "BF.ADD three x", "BF.ADD seen x"]);
        here.call(&[&b"BF.ADD"[..], b"\xff\nkey", b"x"]);
        catch_up(&mut here, &mut there);
        let filters = crate::backup::KINDS.len() + 6;
        let text = compare(&primary, &replica).success().text();
        assert!(text.ends_with(&format!("compared {filters} filters: 0 differ\n")), "{text}");
        // The servers diverge. Each line is a command on one of them.
        there.run("REPLICAOF NO ONE");
        here.pipeline(&["SELECT 0", "BF.ADD new:here x", "BF.ADD exact x", "BF.ADD tight y"]);
        there.pipeline(&["BF.ADD exact y", "BF.ADD tight z", "BF.MADD fewer x y", "PERSIST expiring", "DEL empty"]);
        there.pipeline(&[
            "SET keyed 1",
            "DEL redisbloom",
            "BF.ADD redisbloom x",
            "SELECT 3",
            "DEL three",
            "SELECT 7",
            "BF.ADD seven x",
        ]);
        let ended = compare(&primary, &replica).refused("the two servers differ in 10 filters");
        let text = ended.text();
        let [here, there] = [&primary, &replica].map(|server| format!("127.0.0.1:{}", server.port));
        for line in [
            format!("new:here: only on {here}"),
            format!("empty: only on {here}"),
            format!("three in database 3: only on {here}"),
            format!("seven in database 7: only on {there}"),
            format!("expiring: expires: yes on {here}, no on {there}"),
            format!("keyed: a filter on {here}, type string on {there}"),
            format!("redisbloom: type: MBbloom-- on {here}, bloomgate on {there}"),
            format!("fewer: items: 0 on {here}, 2 on {there}"),
            "exact: equal counts, but not equal bits".to_owned(),
            "tight: equal counts, but not equal bits".to_owned(),
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        // The comparison also works in the other direction.
        let text = compare(&replica, &primary).refused("the two servers differ in 10 filters").text();
        assert!(text.contains(&format!("\nnew:here: only on {here}\n")), "{text}");
        // One database of each, with different numbers.
        let words = ["survey", "--url", &format!("{}/7", url(&replica)), "--beside", &format!("{}/3", url(&primary))];
        let text = run(words).refused("differ in 4 filters").text();
        assert!(text.contains(&format!("seven in database 7: only on {there}/7\n")), "{text}");
    });
}

/// During a save, large filters have pending adds, which the records of a dump include.
#[test]
fn pending_adds_do_not_count_as_a_difference() {
    on_every_server(|program| {
        let (primary, replica) = (Server::start(program), Server::start(program));
        let (mut here, mut there) = (primary.connect(), replica.connect());
        follow(&mut there, &primary);
        here.run("BF.RESERVE large 0.001 4000000");
        here.run("CONFIG SET rdb-key-save-delay 10000000");
        here.pipeline(&["SET a 1", "SET b 1"]);
        // The server may not have reaped the child of the synchronisation yet.
        eventually("a save to begin", || !here.run("BGSAVE").is_error());
        let items: Vec<String> = (0..20_000).map(|number| number.to_string()).collect();
        here.batched(&[b"BF.MADD", b"large"], &items);
        assert!(here.info_number("bf_bloom_pending_bytes") > 0);
        catch_up(&mut here, &mut there);
        compare(&primary, &replica).success();
        assert!(here.info_number("bf_bloom_pending_bytes") > 0);
    });
}

/// Runs with each RedisBloom library in `BLOOMGATE_PEERS`, on the servers that load it.
#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn filters_of_redisbloom_itself_equal_their_replicas() {
    on_redisblooms(|program, library| {
        let theirs = Server::with(program).module(library).start();
        let mut there = theirs.connect();
        let items: Vec<String> = (0..5000).map(|number| format!("item {number}")).collect();
        let add = |client: &mut Connection, key: &str| client.batched(&[b"BF.MADD", key.as_bytes()], &items[..2500]);
        for words in ["grown 0.01 100", "fixed 0.001 5000 NONSCALING", "large 0.001 20000000"] {
            there.run(&format!("BF.RESERVE {words}"));
            add(&mut there, words.split(' ').next().unwrap());
        }
        build_cuckoo(&mut there);
        there.pipeline(&["BF.ADD untouched x", "SELECT 3", "BF.ADD three x"]);
        assert!(run(["survey", "--url", &url(&theirs)]).success().text().contains("cuckoo filters of RedisBloom"));
        there.run("CMS.INITBYDIM sketch 9 9");
        let ended = run(["survey", "--url", &url(&theirs)]).refused("move or delete them first");
        assert!(ended.text().contains("CMSk-TYPE in database 3: sketch\n"), "{ended:?}");
        there.pipeline(&["DEL sketch", "SELECT 0"]);
        let ours = Server::start(program);
        let mut here = ours.connect();
        follow(&mut here, &theirs);
        // Both servers add the same items to a filter that grows.
        there.batched(&[b"BF.MADD", b"grown"], &items[2500..]);
        catch_up(&mut there, &mut here);
        let text = compare(&theirs, &ours).success().text();
        assert!(text.ends_with(&format!("compared {} filters: 0 differ\n", 5 + CUCKOO.len())), "{text}");
        here.pipeline(&["REPLICAOF NO ONE", "BF.ADD untouched y", "BF.ADD new x", "CF.ADD cf:wide x"]);
        there.pipeline(&["BF.ADD untouched z", "CF.ADD cf:wide y"]);
        let text = compare(&theirs, &ours).refused("the two servers differ in 3 filters").text();
        for key in ["untouched", "cf:wide"] {
            assert!(text.contains(&format!("\n{key}: equal counts, but not equal bits\n")), "{text}");
        }
        assert!(text.contains(&format!("\nnew: only on 127.0.0.1:{}\n", ours.port)), "{text}");
    });
}
