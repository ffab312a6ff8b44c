//! BF.MFETCH and BF.MCHANGED: the commands of the guard for many rows at once.

use super::{FETCH, absent, fill, hears_everything, hit, load, ok_if, token, wait_of, with_filter, word};
use testing::{
    Connection, Reply, Server, array, error, in_both_protocols, integer, lines, nil, ok, on_every_server,
    with_append_only_client, with_client,
};
use testing::{catch_up, digest, follow};

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn a_batch_of_changes_is_one_change_for_each_pair() {
    in_both_protocols(|client, protocol| {
        let batches = client.info_number("bf_bloom_batches");
        let line = "BF.MCHANGED {f} ITEMS 42 {f}:42 1 {f}:1 1 {f}:one 2 {f}:list";
        client.run("SET {f}:1 v");
        let none = array([nil(protocol), nil(protocol), nil(protocol), nil(protocol)]);
        assert_eq!(client.run(line), none, "it creates no filter");
        assert_eq!(client.run("EXISTS {f} {f}:1").number(), 0);

        with_filter(client);
        client.run("SET {f}:1 v");
        client.run("SET {f}:one v");
        client.run("RPUSH {f}:list x");
        let lease = load(client, FETCH);
        assert_eq!(client.run(line), client.answers([0, 1, 0, 1]), "42 was in, and 1 is named twice");
        assert_eq!(client.run("EXISTS {f}:1 {f}:one {f}:list").number(), 1, "a key of another type stays");
        assert_eq!(client.run("BF.MEXISTS {f} 42 1 2"), client.answers([1, 1, 1]));
        assert_eq!(fill(client, &lease, "VALUE old"), nil(protocol), "its lease is over");
        assert_eq!(client.info_number("bf_bloom_batches"), batches + 2);
    });
}

#[test]
fn an_item_that_is_refused_is_an_error_in_its_place() {
    with_client(|_, client| {
        let full = error("ERR non scaling filter is full");
        client.run("BF.INSERT {f} CAPACITY 2 NONSCALING SEED 1 ITEMS a");
        client.run("MSET {f}:a v {f}:b v {f}:c v {f}:d v");
        let reply = client.run("BF.MCHANGED {f} ITEMS b {f}:b c {f}:c a {f}:a d {f}:d b {f}:b");
        assert_eq!(reply, array([integer(1), full.clone(), integer(0), full, integer(0)]));
        assert_eq!(client.run("EXISTS {f}:a {f}:b {f}:c {f}:d").number(), 0, "their values are deleted nevertheless");
        // If the filter cannot add any items, the reply is a single error.
        client.run("BF.RESERVE {f}counting 0.01 100 COUNTING");
        client.run("RPUSH {f}:list x");
        for (filter, text) in
            [("{f}counting", "ERR a CUCKOO or COUNTING filter cannot guard"), ("{f}:list", WRONG_TYPE)]
        {
            client.run("SET {f}:a v");
            assert_eq!(client.run(&format!("BF.MCHANGED {filter} ITEMS a {{f}}:a b {{f}}:b")), error(text));
            assert_eq!(client.run("EXISTS {f}:a").number(), 0);
        }
        assert_eq!(client.run("BF.COUNT {f}counting a").number(), 0);
    });
}

#[test]
fn a_batch_of_a_thousand_pairs_answers_like_a_thousand_commands() {
    with_client(|_, client| {
        client.run("BF.RESERVE {f} 0.01 100");
        client.run("BF.RESERVE {g} 0.01 100 SEED 500");
        client.run("DEL {f}");
        client.run("BF.RESERVE {f} 0.01 100 SEED 500");
        let mut words = vec!["BF.MCHANGED".to_owned(), "{f}".to_owned(), "ITEMS".to_owned()];
        let mut single = Vec::new();
        for number in 0..1000 {
            let item = number * 7 % 611;
            words.extend([item.to_string(), format!("{{f}}:{item}")]);
            single.push(client.run(&format!("BF.CHANGED {{g}} {item} {{g}}:{item}")));
        }
        assert_eq!(client.call(&words), array(single));
    });
}

#[test]
fn a_batch_of_changes_propagates_its_effects() {
    with_append_only_client(|server, client| {
        with_filter(client);
        client.run("RPUSH {f}:list x");
        let begin = lines(server).len();
        client.run("BF.MCHANGED {f} ITEMS 42 {f}:42 43 {f}:43 44 {f}:list");
        client.run("BF.MCHANGED {f} ITEMS 42 {f}:list 45 {f}:list");
        client.run("BF.MCHANGED {f}missing ITEMS 42 {f}:42");
        let carried = lines(server).split_off(begin);
        let carried: Vec<&str> =
            carried.iter().map(String::as_str).filter(|line| !["MULTI", "EXEC"].contains(line)).collect();
        let expected = [
            "DEL {f}:42",
            "DEL {f}:43",
            "BF.MADD {f} 43 44",
            "BF.INSERT {f} NOCREATE SYNC ITEMS 42",
            "BF.MADD {f} 45",
            "DEL {f}:42",
        ];
        assert_eq!(carried, expected);
    });
}

#[test]
fn a_batch_of_fetches_is_one_fetch_for_each_pair() {
    on_every_server(|program| {
        let server = Server::start(program);
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            client.run("FLUSHALL");
            with_filter(&mut client);
            client.run("BF.MADD {f} 43 44 45 46");
            client.run("SET {f}:43 row PX 50000");
            client.run("RPUSH {f}:44 x");
            client.run("SET {f}:45 lasting");
            let lease = load(&mut client, "BF.FETCH {f} 46 {f}:46");
            let before = ["absent", "hit", "stale", "load", "wait"].map(|answer| count(&mut client, answer));
            let lookups = client.info_number("bf_bloom_lookups");
            let pairs = "ITEMS never {f}:never 42 {f}:42 43 {f}:43 44 {f}:44 45 {f}:45 46 {f}:46";
            let reply = client.run(&format!("BF.MFETCH {{f}} STALE 60000 LEASE 1000000 {pairs}"));
            let [never, first, stale, other_type, lasting, leased] = reply.elements() else { panic!("{reply:?}") };
            assert_eq!((never, other_type, lasting), (&absent(), &error(WRONG_TYPE), &hit("lasting")));
            assert_eq!((word(stale), stale.elements()[1].text()), ("stale".to_owned(), "row".to_owned()));
            assert!(wait_of(leased) > 1);
            assert_eq!(fill(&mut client, &token(first), "VALUE one"), ok());
            let line = format!("BF.FILL {{f}} 43 {{f}}:43 {} VALUE two", token(stale));
            assert_eq!(client.run(&line), ok());
            assert_eq!(client.run(&format!("BF.FILL {{f}} 46 {{f}}:46 {lease} NONE EX 100")), ok());
            let reply = client.run("BF.MFETCH {f} ITEMS 42 {f}:42 43 {f}:43 46 {f}:46");
            assert_eq!(reply, array([hit("one"), hit("two"), absent()]));
            let after = ["absent", "hit", "stale", "load", "wait"].map(|answer| count(&mut client, answer));
            let counted: Vec<i64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
            assert_eq!(counted, [2, 3, 1, 1, 1]);
            assert_eq!(client.info_number("bf_bloom_lookups"), lookups + 9);
        }
        assert_eq!(server.connect().info_number("bf_bloom_batches"), 4);
    });
}

/// Returns the number of fetches with this answer in INFO.
fn count(client: &mut Connection, answer: &str) -> i64 {
    client.info_number(&format!("bf_bloom_fetches_{answer}"))
}

#[test]
fn a_cache_key_that_is_named_twice_gets_one_token() {
    with_client(|_, client| {
        with_filter(client);
        client.run("BF.ADD {f} 43");
        let names = |reply: &Reply| reply.elements().iter().map(word).collect::<Vec<_>>().join(" ");
        // For the same item and for another one, in one batch of the filter and in two.
        let filler = " never {f}:never".repeat(40);
        for filler in ["", &filler] {
            let line = format!("BF.MFETCH {{f}} LEASE 1000000 ITEMS 42 {{f}}:42{filler} 42 {{f}}:42 43 {{f}}:42");
            let reply = client.run(&line);
            let [first, .., second, third] = reply.elements() else { panic!("{reply:?}") };
            assert!(wait_of(second) <= 1_000_000 && wait_of(third) <= 1_000_000);
            assert_eq!(fill(client, &token(first), "GIVEUP"), ok(), "the first token is good");
        }
        client.run("SET {f}:42 row PX 50000");
        let reply = client.run("BF.MFETCH {f} STALE 60000 LEASE 1000000 ITEMS 42 {f}:42 43 {f}:42 42 {f}:42");
        assert_eq!(names(&reply), "stale hit hit");
        assert_eq!(fill(client, &token(&reply.elements()[0]), "VALUE new"), ok());
        // Fewer leases than cache keys, so the first lease may be evicted, which voids its token.
        client.run("CONFIG SET bf.max-leases 1");
        client.run("DEL {f}:42");
        let reply = client.run("BF.MFETCH {f} ITEMS 42 {f}:42 43 {f}:43 42 {f}:42");
        assert_eq!(names(&reply), "load load load");
        assert_eq!(fill(client, &token(&reply.elements()[0]), "VALUE row"), nil(2));
        assert_eq!(fill(client, &token(&reply.elements()[2]), "VALUE row"), ok());
    });
}

#[test]
fn a_batch_of_fetches_takes_while_and_unless() {
    with_client(|_, client| {
        with_filter(client);
        let names = |client: &mut Connection, options: &str| {
            let reply = client.run(&format!(
                "BF.MFETCH {{f}} {options} LEASE 1000000 ITEMS never {{f}}:never 42 {{f}}:42 43 {{f}}:43"
            ));
            assert!(!reply.is_error(), "{options}: {reply:?}");
            client.run("BF.MCHANGED {f} ITEMS 42 {f}:42 forgotten {f}:never");
            reply.elements().iter().map(word).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(client, "WHILE {f}:feed"), "load load load");
        assert_eq!(count(client, "unguarded"), 3);
        client.run("SET {f}:feed x");
        assert_eq!(names(client, "WHILE {f}:feed"), "absent load absent");
        client.run("HSET {f}:open {f}:43 x {f}:never x");
        assert_eq!(names(client, "UNLESS {f}:open WHILE {f}:feed"), "wait load wait");
        assert_eq!(count(client, "held"), 2);
        client.run("HSET {f}:open * x");
        assert_eq!(names(client, "UNLESS {f}:open"), "wait wait wait");
        client.run("DEL {f}:open {f}:feed");
        assert_eq!(names(client, "UNLESS {f}:open WHILE {f}:feed"), "load load wait", "43 has a lease");
        client.run("RPUSH {f}:open x");
        let reply = client.run("BF.MFETCH {f} UNLESS {f}:open ITEMS 42 {f}:42");
        assert_eq!(reply, error(WRONG_TYPE));
        // A missing filter never answers `absent`.
        let reply = client.run("BF.MFETCH {f}none LEASE 1000000 ITEMS a {f}:a b {f}:b");
        assert_eq!(reply.elements().iter().map(word).collect::<Vec<_>>(), ["load", "load"]);
        let line = format!("BF.FILL {{f}}none a {{f}}:a {} VALUE v", token(&reply.elements()[0]));
        let is_filled = hears_everything(client);
        assert_eq!(client.run(&line), ok_if(is_filled));
    });
}

#[test]
fn a_replica_gets_the_changes_of_a_batch_and_refuses_fetches() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        let replica = Server::start(program);
        let mut other = replica.connect();
        follow(&mut other, &server);
        catch_up(&mut client, &mut other);
        other.run("CONFIG SET replica-read-only no");
        assert!(other.run("BF.MFETCH {f} ITEMS 42 {f}:42").error_text().starts_with("READONLY"));
        // The changes of a batch are on the replica.
        client.run("SET {f}:43 v");
        client.run("BF.MCHANGED {f} ITEMS 43 {f}:43 44 {f}:44");
        catch_up(&mut client, &mut other);
        assert_eq!(other.run("BF.MEXISTS {f} 43 44"), array([integer(1), integer(1)]));
        assert_eq!(other.run("EXISTS {f}:43").number(), 0);
        assert_eq!(digest(&mut other, "{f}"), digest(&mut client, "{f}"));
    });
}
