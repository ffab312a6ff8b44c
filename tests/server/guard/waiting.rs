//! Clients that wait for a value that another caller loads, and their replies.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use super::{
    FETCH, INVENTED, LONG, UNLESS, WHILE, absent, fill, hears_everything, hit, lasting, load, token, wait_of,
    wait_with, waiters, waiting, with_filter, word,
};
use testing::{
    Connection, Server, array, bulk, error, eventually, integer, load_records, nil, ok, on_every_server, records,
    with_client,
};

/// The server's number of a client that is blocked.
fn id_of(watcher: &mut Connection, client: &Connection) -> String {
    let address = client.address();
    let list = watcher.run("CLIENT LIST").text();
    let line = list.lines().find(|line| line.contains(&format!(" addr={address} "))).unwrap();
    line.split(' ').next().unwrap().strip_prefix("id=").unwrap().to_owned()
}

#[test]
fn a_waiter_whose_time_has_expired_is_told_to_ask_again() {
    with_client(|server, client| {
        with_filter(client);
        load(client, FETCH);
        let mut other = server.connect();
        assert!(wait_of(&other.run(&format!("{FETCH} WAIT 50"))) > 90_000);
        assert!(wait_of(&other.run(&format!("{FETCH} WAIT 0"))) > 90_000);
        let mut clients = [(); 3].map(|()| server.connect());
        for client in &mut clients {
            client.send(&format!("{FETCH} WAIT 300").split(' ').collect::<Vec<_>>()).unwrap();
        }
        assert!(clients.iter_mut().all(|client| wait_of(&client.receive().unwrap()) > 90_000));
        assert_eq!(client.info_number("bf_bloom_fetches_wait"), 5);
    });
}

#[test]
fn the_next_waiter_loads_if_the_first_is_killed_or_unblocked_as_the_lease_ends() {
    with_client(|server, client| {
        with_filter(client);
        for how in ["CLIENT KILL ID", "CLIENT UNBLOCK"] {
            let lease = load(client, FETCH);
            let mut clients = waiting(server, 2);
            let id = id_of(client, &clients[0]);
            // One command of the transaction ends the lease, the next removes the first waiter.
            client.run("MULTI");
            client.run(&format!("BF.FILL {{f}} 42 {{f}}:42 {lease} GIVEUP"));
            client.run(&format!("{how} {id}"));
            let replies = client.run("EXEC");
            assert_eq!(replies.elements()[1].number(), 1, "{how}");
            if how == "CLIENT UNBLOCK" {
                wait_of(&clients[0].receive().unwrap());
                assert_eq!(clients[0].run("PING").text(), "PONG");
            }
            let lease = token(&clients[1].receive().unwrap());
            assert_eq!(fill(client, &lease, "GIVEUP"), ok(), "{how}");
            assert_eq!(client.info_number("bf_bloom_waiting"), 0);
        }
    });
}

#[test]
fn a_waiter_can_be_unblocked_by_hand() {
    with_client(|server, client| {
        with_filter(client);
        let lease = load(client, FETCH);
        let mut clients = waiting(server, 3);
        for (index, how) in [(0, "TIMEOUT"), (1, "ERROR")] {
            let id = id_of(client, &clients[index]);
            assert_eq!(client.run(&format!("CLIENT UNBLOCK {id} {how}")).number(), 1);
        }
        assert!(wait_of(&clients[0].receive().unwrap()) > 90_000);
        assert_eq!(clients[1].receive().unwrap(), error("UNBLOCKED client unblocked via CLIENT UNBLOCK"));
        assert_eq!(client.info_number("bf_bloom_waiting"), 1);
        assert_eq!(fill(client, &lease, "VALUE row"), ok());
        assert_eq!(clients[2].receive().unwrap(), hit("row"));
        for client in &mut clients {
            assert_eq!(client.run("PING").text(), "PONG");
        }
    });
}

#[test]
fn both_protocols_wait_alike() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect_speaking(3);
        with_filter(&mut client);
        let lease = load(&mut client, FETCH);
        let mut other = server.connect_speaking(3);
        wait_of(&other.run(&format!("{FETCH} WAIT 20")));
        other.send(&format!("{FETCH} WAIT {LONG}").split(' ').collect::<Vec<_>>()).unwrap();
        // The server runs this command when the client is unblocked.
        other.send(&["PING"]).unwrap();
        eventually("the client to wait", || client.info_number("bf_bloom_waiting") == 1);
        sleep(Duration::from_millis(20));
        assert_eq!(fill(&mut client, &lease, "VALUE row"), ok());
        assert_eq!(other.receive().unwrap(), hit("row"));
        assert_eq!(other.receive().unwrap().text(), "PONG");
    });
}

/// A transaction that fills and deletes leaves no value: waiters must not get the value, and must keep waiting.
#[test]
fn a_value_that_does_not_stay_answers_no_waiter() {
    with_client(|server, client| {
        with_filter(client);
        for line in ["BF.CHANGED {f} 42 {f}:42", "DEL {f}:42", "BF.ADD {f} 42"] {
            let lease = load(client, FETCH);
            let mut clients = waiting(server, 5);
            client.run("MULTI");
            client.run(&format!("BF.FILL {{f}} 42 {{f}}:42 {lease} VALUE row"));
            client.run("DEL {f}:42");
            client.run(line);
            assert_eq!(client.run("EXEC").elements()[0], ok(), "{line}");
            let lease = token(&clients[0].receive().unwrap());
            assert_eq!(waiters(client), 4, "{line}: the others wait for the second load");
            assert_eq!(fill(client, &lease, "VALUE row"), ok());
            clients[1..].iter_mut().for_each(|client| assert_eq!(client.receive().unwrap(), hit("row")));
            client.run("DEL {f}:42");
        }
    });
}

/// A lease applies to every item with its cache key, also for waiters.
#[test]
fn waiters_of_two_items_share_a_lease() {
    with_client(|server, client| {
        with_filter(client);
        client.run("BF.ADD {f} 43");
        let fetch = |item: u32| format!("BF.FETCH {{f}} {item} {{f}}:42");
        let first = load(client, &fetch(42));
        let mut one = wait_with(server, &fetch(42));
        let mut two = wait_with(server, &fetch(43));
        assert_eq!(fill(client, &first, "GIVEUP"), ok());
        let lease = token(&one.receive().unwrap());
        assert_eq!(waiters(client), 1, "the other one waits for the same lease");
        assert_eq!(fill(client, &lease, "VALUE row"), ok());
        assert_eq!(two.receive().unwrap(), hit("row"));
    });
}

/// A waiter's value is read by GET. Reading a value in place would convert it to a longer encoding.
#[test]
fn the_value_of_a_waiter_keeps_its_encoding() {
    with_client(|server, client| {
        with_filter(client);
        for value in ["17", "short"] {
            let lease = load(client, FETCH);
            let mut clients = waiting(server, 2);
            let mut stale = wait_with(server, &format!("{FETCH} STALE 1000000"));
            assert_eq!(fill(client, &lease, &format!("VALUE {value} PX 2000000")), ok());
            for client in clients.iter_mut().chain([&mut stale]) {
                assert_eq!(client.receive().unwrap(), hit(value));
            }
            assert_ne!(client.run("OBJECT ENCODING {f}:42"), bulk("raw"), "{value}");
            client.run("BF.CHANGED {f} 42 {f}:42");
        }
        // A waiter may get the lease to refresh the value.
        let lease = load(client, FETCH);
        let mut stale = wait_with(server, &format!("{FETCH} STALE 1000000"));
        assert_eq!(fill(client, &lease, "VALUE 17 PX 500000"), ok());
        let reply = stale.receive().unwrap();
        assert_eq!((word(&reply).as_str(), reply.elements()[1].text().as_str()), ("stale", "17"));
        assert_eq!(fill(client, &token(&reply), "VALUE 18"), ok());
    });
}

/// Answers are shared only among waiters with equal questions.
#[test]
fn waiters_of_a_row_with_other_options_get_their_own_answers() {
    with_client(|server, client| {
        with_filter(client);
        let stale = format!("{FETCH} STALE 1000000");
        let lines = [FETCH, FETCH, &stale, FETCH, &stale, FETCH];
        let lease = load(client, FETCH);
        let mut clients = lines.map(|line| wait_with(server, line));
        assert_eq!(fill(client, &lease, "VALUE row PX 500000"), ok());
        let words = clients.each_mut().map(|client| word(&client.receive().unwrap()));
        assert_eq!(words, ["hit", "hit", "stale", "hit", "hit", "hit"]);

        client.run("BF.CHANGED {f} 42 {f}:42");
        load(client, FETCH);
        let mut clients = [FETCH, FETCH, WHILE, FETCH].map(|line| wait_with(server, line));
        // Without the key of WHILE nothing is absent.
        assert_eq!(client.run("BF.CLEAR {f}"), ok());
        let words = clients.each_mut().map(|client| word(&client.receive().unwrap()));
        assert_eq!(words, ["absent", "absent", "load", "absent"]);
        assert_eq!(client.info_number("bf_bloom_fetches_absent"), 3);
    });
}

// Events that end a lease before it expires, so that one of its waiters loads at once.

/// The effect of a command on the waiters of a row.
#[derive(Clone, Copy, PartialEq)]
enum Serves {
    /// One of them loads, and the others wait for it. The earlier lease is void.
    One,
    /// The row is absent.
    All,
    None,
}

#[test]
fn each_change_of_a_filter_serves_the_waiters_whom_it_concerns() {
    with_client(|server, client| {
        for (line, serves) in [
            ("RENAME {f}other {f}", Serves::One),
            ("COPY {f}other {f} REPLACE", Serves::One),
            ("DEL {f}", Serves::One),
            ("UNLINK {f}", Serves::One),
            ("PEXPIRE {f} 1", Serves::One),
            ("RENAME {f} {f}gone", Serves::One),
            ("FLUSHALL", Serves::One),
            ("SWAPDB 0 1", Serves::One),
            ("DEBUG RELOAD", Serves::One),
            ("BF.CLEAR {f}", Serves::All),
            ("RENAME {f}empty {f}", Serves::All),
            ("BF.ADD {f} 43", Serves::None),
            ("BF.CHANGED {f} 44 {f}:44", Serves::None),
            ("BF.MADD {f} 45 46", Serves::None),
            ("EXPIRE {f} 1000", Serves::None),
        ] {
            if serves != Serves::None && !hears_everything(client) {
                continue; // The waiters wait until the lease ends.
            }
            client.run("FLUSHALL");
            with_filter(client);
            client.run("BF.ADD {f}other 42");
            client.run("BF.RESERVE {f}empty 0.01 100");
            let mut lease = load(client, FETCH);
            let mut clients = waiting(server, 3);
            assert!(!client.run(line).is_error(), "{line}");
            let mut rest = &mut clients[..];
            if serves == Serves::One {
                let next = token(&rest[0].receive().unwrap());
                assert_eq!(fill(client, &lease, "VALUE late"), nil(2), "{line}");
                (lease, rest) = (next, &mut clients[1..]);
            }
            if serves != Serves::All {
                assert_eq!(waiters(client), rest.len() as i64, "{line}: the others wait");
                assert_eq!(fill(client, &lease, "VALUE row"), ok(), "{line}");
            }
            let answer = if serves == Serves::All { absent() } else { hit("row") };
            rest.iter_mut().for_each(|client| assert_eq!(client.receive().unwrap(), answer, "{line}"));
        }
    });
}

#[test]
fn a_filter_that_is_evicted_lets_one_waiter_load() {
    with_client(|server, client| {
        if !hears_everything(client) {
            return; // The waiters wait until the lease ends.
        }
        with_filter(client);
        load(client, FETCH);
        let mut clients = waiting(server, 2);
        client.run("CONFIG SET maxmemory-policy allkeys-random");
        client.run("CONFIG SET maxmemory 1");
        eventually("the filter to be evicted", || {
            client.run("SET x y");
            client.run("EXISTS {f}") == integer(0)
        });
        token(&clients[0].receive().unwrap());
        assert_eq!(waiters(client), 1);
        assert_eq!(client.run("SELECT 0"), ok());
    });
}

#[test]
fn a_filter_that_appears_lets_one_waiter_load() {
    with_client(|server, client| {
        if !hears_everything(client) {
            return; // The waiters wait until the lease ends.
        }
        client.run("BF.RESERVE {f}other 0.01 100");
        client.run("BF.ADD {f}other 42");
        let payload = client.run("DUMP {f}other");
        let restore: [&[u8]; 4] = [b"RESTORE", b"{f}", b"0", payload.bytes()];
        let records = records(client, "{f}other");
        let make: [&dyn Fn(&mut Connection); 4] = [
            &|client| _ = client.run("BF.INSERT {f} ITEMS 42"),
            &|client| _ = client.run("COPY {f}other {f}"),
            &|client| _ = client.call(&restore),
            &|client| load_records(client, "{f}", &records),
        ];
        // A new filter that lacks the item.
        load(client, FETCH);
        let mut clients = waiting(server, 3);
        assert_eq!(client.run("BF.RESERVE {f} 0.01 100"), ok());
        clients.iter_mut().for_each(|client| assert_eq!(client.receive().unwrap(), absent()));
        for (number, make) in make.iter().enumerate() {
            client.run("DEL {f} {f}:42");
            client.run("BF.CHANGED {f} 42 {f}:42");
            let lease = load(client, FETCH);
            let mut clients = waiting(server, 2);
            make(client);
            assert!(client.run("BF.EXISTS {f} 42").truth());
            let next = token(&clients[0].receive().unwrap());
            assert_eq!(waiters(client), 1, "way {number}");
            assert_eq!(fill(client, &lease, "VALUE late"), nil(2), "way {number}: it was for no filter");
            assert_eq!(fill(client, &next, "VALUE row"), ok(), "way {number}");
            assert_eq!(clients[1].receive().unwrap(), hit("row"));
        }
    });
}

#[test]
fn leases_are_filled_while_the_filter_arrives() {
    with_client(|_, client| {
        if !hears_everything(client) {
            return; // Nothing is cached without a filter.
        }
        client.run("BF.RESERVE {f}other 0.01 100");
        client.run("BF.ADD {f}other 42");
        let records = records(client, "{f}other");
        let before = load(client, FETCH);
        load_records(client, "{f}", &records[..1]);
        assert!(client.run("BF.EXISTS {f} 42").is_error(), "it is arriving");
        assert_eq!(fill(client, &before, "VALUE before"), ok(), "it was missing, and is not there yet");
        assert_eq!(client.run(FETCH), hit("before"));
        client.run("DEL {f}:42");
        let during = load(client, FETCH);
        assert_eq!(fill(client, &during, "NONE EX 100"), ok());
        let during = load(client, FETCH);
        // An add counts as a change of the item, whatever its reply.
        assert!(client.run("BF.ADD {f} 42").is_error());
        assert_eq!(fill(client, &during, "VALUE v"), nil(2));
        let during = load(client, FETCH);
        load_records(client, "{f}", &records[1..]);
        assert_eq!(fill(client, &during, "VALUE v"), nil(2), "it is there");
        load(client, FETCH);
    });
}

#[test]
fn leases_that_a_lower_limit_evicts_let_a_waiter_load_each() {
    with_client(|server, client| {
        with_filter(client);
        let fetch = |number: usize| format!("BF.FETCH {{f}} 42 {{f}}:{number}");
        let mut clients: Vec<Connection> = (0..20)
            .map(|number| {
                load(client, &fetch(number));
                wait_with(server, &fetch(number))
            })
            .collect();
        assert_eq!(client.run("CONFIG SET bf.max-leases 1"), ok());
        load(client, &fetch(20));
        for waiter in &mut clients {
            assert_eq!(word(&waiter.receive().unwrap()), "load");
        }
        assert_eq!((waiters(client), client.info_number("bf_bloom_leases")), (0, 1));
    });
}

// GIVEUP with BACKOFF: a failing database is queried once per back-off.

/// Acquires the lease of the usual cache key, and gives it up. Returns its token, which stays safe.
fn back_off(client: &mut Connection, milliseconds: u64) -> String {
    let lease = load(client, FETCH);
    assert_eq!(fill(client, &lease, &format!("GIVEUP BACKOFF {milliseconds}")), ok());
    lease
}

#[test]
fn no_token_is_granted_until_the_time_is_over() {
    on_every_server(|program| {
        let server = Server::start(program);
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            client.run("FLUSHALL");
            with_filter(&mut client);
            client.run("BF.ADD {f} 43");
            let lease = load(&mut client, FETCH);
            assert_eq!(fill(&mut client, &lease, "GIVEUP BACKOFF 50000"), ok());
            assert_eq!(fill(&mut client, &lease, "GIVEUP"), nil(protocol), "the lease is over");
            // The reply comes at once, for every item and option.
            let other = "BF.FETCH {f} 43 {f}:42";
            for line in [FETCH, UNLESS, other, "BF.FETCH {f} 42 {f}:42 WHILE {f}:feed LEASE 5 WAIT 100000000"] {
                let left = wait_of(&client.run(line));
                assert!((40_000..=50_000).contains(&left), "{line}: {left}");
            }
            let reply = client.run("BF.MFETCH {f} ITEMS 42 {f}:42 43 {f}:43 never {f}:42");
            let [backed_off, other, never] = reply.elements() else { panic!("{reply:?}") };
            assert!(wait_of(backed_off) > 40_000);
            assert_eq!((word(other).as_str(), never), ("load", &absent()));
            // A cached value is served, without a lease to refresh it.
            client.run("SET {f}:42 old PX 1000000");
            assert_eq!(client.run(&format!("{FETCH} STALE 2000000")), hit("old"));
            client.run("DEL {f}:42");

            back_off_ends_after(&mut client);
        }
        assert_eq!(server.connect().info_number("bf_bloom_backoffs"), 4);
    });
}

/// A short back-off of another cache key ends by itself.
fn back_off_ends_after(client: &mut Connection) {
    let line = "BF.FETCH {f} 43 {f}:short";
    let lease = load(client, line);
    assert_eq!(client.run(&format!("BF.FILL {{f}} 43 {{f}}:short {lease} GIVEUP BACKOFF 30")), ok());
    eventually("the back-off to end", || word(&client.run(line)) == "load");
}

#[test]
fn a_change_or_a_fill_ends_a_back_off_and_nothing_else_does() {
    with_client(|_, client| {
        for (line, is_over) in [
            ("BF.CHANGED {f} 42 {f}:42", true),
            ("BF.CHANGED {f} other {f}:42", true),
            ("BF.MCHANGED {f} ITEMS 1 {f}:1 42 {f}:42", true),
            ("FLUSHALL", true),
            ("BF.FILL {f} 42 {f}:42 TOKEN VALUE row", true),
            ("BF.FILL {f} 42 {f}:42 TOKEN NONE EX 100", true),
            ("BF.CHANGED {f} 42 {f}:other", false),
            ("BF.ADD {f} 42", false),
            ("BF.ADD {f} new", false),
            ("SET {f}:42 v", false),
            ("DEL {f}", false),
            ("BF.CLEAR {f}", false),
            ("BF.MERGE {f} {f}", false),
        ] {
            client.run("FLUSHALL");
            with_filter(client);
            let token = back_off(client, 100_000);
            let reply = client.run(&line.replace("TOKEN", &token));
            assert!(!reply.is_error() && reply != nil(2), "{line}: {reply:?}");
            client.run("DEL {f}:42");
            client.run("DEL {f}");
            let reply = client.run(FETCH);
            assert_eq!(word(&reply), if is_over { "load" } else { "wait" }, "{line}");
        }
        // After it, another lease is granted and given up as usual.
        client.run("BF.CHANGED {f} 42 {f}:42");
        with_filter(client);
        let lease = load(client, FETCH);
        assert_eq!(fill(client, &lease, "GIVEUP BACKOFF 0"), ok(), "0 is none");
        let lease = load(client, FETCH);
        assert_eq!(fill(client, &lease, "GIVEUP"), ok());
        load(client, FETCH);
    });
}

#[test]
fn a_held_client_keeps_waiting_during_a_back_off() {
    with_client(|server, client| {
        with_filter(client);
        client.run("HSET {f}:open {f}:42 x");
        let mut held = wait_with(server, UNLESS);
        back_off(client, 100_000);
        assert_eq!(waiters(client), 1);
        client.run("DEL {f}");
        assert!(wait_of(&client.run(FETCH)) > 1, "replacing a filter with waiters does not end a back-off");
        // One transaction, as a write ends: between the two commands the back-off would answer the client.
        client.run("MULTI");
        client.run("HDEL {f}:open {f}:42");
        client.run("BF.CHANGED {f} 42 {f}:42");
        client.run("EXEC");
        token(&held.receive().unwrap());
    });
}

#[test]
fn a_fill_that_is_refused_ends_the_lease() {
    with_client(|server, client| {
        for (what, text) in [
            ("VALUE v PX 0", "ERR PX is a whole number from 1 to 2305843009213693952"),
            ("NONE", "ERR no expire time"),
            ("NOTHING", "ERR syntax error"),
            ("GIVEUP BACKOFF -1", "ERR BACKOFF is a whole number from 0 to 2305843009213693952"),
            ("VALUE v", "OOM command not allowed when used memory > 'maxmemory'."),
            ("VALUE v", "WRONGTYPE Operation against a key holding the wrong kind of value"),
            ("NONE PX 1000", "WRONGTYPE Operation against a key holding the wrong kind of value"),
        ] {
            client.run("FLUSHALL");
            with_filter(client);
            let lease = load(client, FETCH);
            fill(client, INVENTED, what);
            assert!(wait_of(&client.run(FETCH)) > 90_000, "{what}: it was of no lease");
            let mut waiter = wait_with(server, FETCH);
            let line = format!("BF.FILL {{f}} 42 {{f}}:42 {lease} {what}");
            let refused = if text.starts_with("WRONGTYPE") {
                // The waiter must not find the list.
                let replies = client.pipeline(&["MULTI", "LPUSH {f}:42 x", &line, "DEL {f}:42", "EXEC"]);
                replies[4].elements()[1].clone()
            } else {
                client.run(if text.starts_with("OOM") { "CONFIG SET maxmemory 1" } else { "PING" });
                client.run(&line)
            };
            client.run("CONFIG SET maxmemory 0");
            assert_eq!(refused, error(text), "{what}");
            let taken = token(&waiter.receive().unwrap());
            assert_eq!(fill(client, &taken, "VALUE row"), ok(), "{what}");
        }
    });
}

#[test]
fn a_back_off_without_a_time_doubles_and_is_reported_as_a_failure() {
    with_client(|server, client| {
        with_filter(client);
        client.run("SET {f}:42 old PX 1000000");
        let fetch = format!("{FETCH} STALE 2000000 BACKOFF");
        // Each failure comes from another client. The time since the previous command is short and unknown.
        let mut most = 100;
        for _ in 0..5 {
            let mut client = server.connect();
            let mut lease = None;
            eventually("the back-off to end", || {
                lease = Some(client.run(&lasting(&fetch))).filter(|reply| *reply != hit("old"));
                lease.is_some()
            });
            assert_eq!(fill(&mut client, &token(&lease.unwrap()), "GIVEUP BACKOFF"), ok());
            client.run("MULTI");
            client.run("DEL {f}:42");
            client.run(&format!("BF.FETCH {{f}} 42 {{f}}:42 BACKOFF WAIT {LONG}"));
            client.run("BF.MFETCH {f} BACKOFF ITEMS 42 {f}:42");
            client.run(FETCH);
            client.run("SET {f}:42 old PX 1000000");
            let replies = client.run("EXEC");
            let [_, single, many, wait, _] = replies.elements() else { panic!("{replies:?}") };
            for reply in [single, &many.elements()[0]] {
                let left = reply.elements()[1].number();
                assert!(word(reply) == "failed" && (1..=most).contains(&left), "{reply:?} of {most}");
            }
            assert!((1..=most).contains(&wait_of(wait)), "an older client");
            most = (2 * most).min(10_000);
        }
        assert_eq!((client.info_number("bf_bloom_fetches_failed"), client.info_number("bf_bloom_backoffs")), (10, 5));
    });
}

#[test]
fn back_offs_are_limited_in_number_and_in_time() {
    with_client(|_, client| {
        if !hears_everything(client) {
            return; // Nothing is cached without a filter.
        }
        client.run("CONFIG SET bf.max-leases 2");
        let fetch = |client: &mut Connection, number: u64| {
            client.run(&format!("BF.FETCH {{f}} 42 {{f}}:{number} LEASE 1000000"))
        };
        for number in 1..=3 {
            let lease = token(&fetch(client, number));
            let line = format!("BF.FILL {{f}} 42 {{f}}:{number} {lease} GIVEUP BACKOFF {number}00000");
            assert_eq!(client.run(&line), ok());
        }
        let words = [3, 2, 1].map(|number| word(&fetch(client, number)));
        assert_eq!(words, ["wait", "wait", "load"], "the one that would have ended first is gone");
        // Back-offs are neither replicated nor saved.
        client.run("DEBUG RELOAD");
        assert_eq!(word(&fetch(client, 3)), "load");
        assert_eq!(client.run("BF.MCHANGED {f} ITEMS 1 {f}:1"), array([nil(2)]));
        assert_eq!(client.run("DBSIZE"), integer(0));
    });
}

// Many clients, many leases, little memory.

/// Clients that wait at once.
const CROWD: usize = 2_000;

#[test]
fn a_crowd_is_answered_by_one_load() {
    on_every_server(|program| {
        let server = Server::with(program).line("maxclients 12000").start();
        let mut client = server.connect();
        with_filter(&mut client);
        let lease = load(&mut client, FETCH);
        let crowd: usize = std::env::var("BLOOMGATE_CROWD").map_or(CROWD, |crowd| crowd.parse().unwrap());
        let line = format!("{FETCH} WAIT {LONG}");
        let words: Vec<&str> = line.split(' ').collect();
        let mut clients: Vec<Connection> = (0..crowd).map(|_| server.connect()).collect();
        clients.iter_mut().for_each(|client| client.send(&words).unwrap());
        eventually("all to wait", || client.info_number("bf_bloom_waiting") == crowd as i64);
        // A third of them disconnects.
        clients.truncate(crowd - crowd / 3);
        eventually("some to be gone", || client.info_number("bf_bloom_waiting") == clients.len() as i64);
        assert_eq!(fill(&mut client, &lease, "VALUE row"), ok());
        clients.iter_mut().for_each(|client| assert_eq!(client.receive().unwrap(), hit("row")));
        assert_eq!(client.info_number("bf_bloom_fetches_load"), 1);
        assert_eq!(client.info_number("blocked_clients"), 0);
    });
}

#[test]
fn endless_leases_take_bounded_memory() {
    on_every_server(|program| {
        let server = Server::with(program).line("bf.max-leases 1000").start();
        let mut client = server.connect();
        with_filter(&mut client);
        let mut take = |from: u32, to: u32| {
            for number in from..to {
                load(&mut client, &format!("BF.FETCH {{f}} 42 {{f}}:{number}"));
            }
            client.info_number("used_memory")
        };
        let before = take(0, 20_000);
        let after = take(20_000, 40_000);
        assert!(after - before < 200_000, "{before} and then {after}");
        assert_eq!(client.info_number("bf_bloom_leases"), 1000);
        // All leases are for one item, so adding it ends them.
        client.run("BF.ADD {f} 42");
        eventually("they are swept", || client.info_number("bf_bloom_leases") == 0);
    });
}

#[test]
fn above_maxmemory_only_values_are_refused() {
    with_client(|_, client| {
        with_filter(client);
        let lease = load(client, FETCH);
        client.run("CONFIG SET maxmemory 1");
        let refused = fill(client, &lease, "VALUE row");
        assert!(refused.error_text().starts_with("OOM"), "{refused:?}");
        // The lease has ended.
        load(client, FETCH);
        assert_eq!(client.run("BF.CHANGED {f} 42 {f}:42"), client.answer(false));
        let lease = load(client, FETCH);
        assert_eq!(fill(client, &lease, "NONE EX 100"), ok());
        client.run("BF.CHANGED {f} 42 {f}:42");
        let lease = load(client, FETCH);
        assert_eq!(fill(client, &lease, "GIVEUP"), ok());
        client.run("CONFIG SET maxmemory 0");
        let lease = load(client, FETCH);
        assert_eq!(fill(client, &lease, "VALUE row"), ok());
    });
}

#[test]
fn an_eviction_takes_values_and_no_lease() {
    with_client(|_, client| {
        with_filter(client);
        let value = "v".repeat(20_000);
        let lease = load(client, "BF.FETCH {f} 42 {f}:kept");
        let used = client.info_number("used_memory");
        client.run("CONFIG SET maxmemory-policy volatile-lru");
        client.run(&format!("CONFIG SET maxmemory {}", used + 1_000_000));
        for number in 0..200 {
            let token = load(client, &format!("BF.FETCH {{f}} 42 {{f}}:{number}"));
            assert_eq!(client.run(&format!("BF.FILL {{f}} 42 {{f}}:{number} {token} VALUE {value} EX 1000")), ok());
        }
        assert!(client.info_number("evicted_keys") > 100);
        assert_eq!(client.run(&format!("BF.FILL {{f}} 42 {{f}}:kept {lease} VALUE row EX 1000")), ok());
        assert_eq!(client.run("BF.FETCH {f} 42 {f}:kept"), hit("row"));
    });
}

/// Redis 7.0 treats a timer of 36 minutes as one in the past, and its event loop then never sleeps.
#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "needs /proc")]
fn a_server_whose_leases_have_ended_sleeps() {
    with_client(|server, client| {
        with_filter(client);
        load(client, &format!("{FETCH} LEASE 20"));
        eventually("the lease to be swept", || client.info_number("bf_bloom_leases") == 0);
        let status = format!("/proc/{}/status", server.process_id());
        let sleeps = || {
            let text = fs::read_to_string(&status).expect("the status of the server");
            let count = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            count.and_then(|count| count.trim().parse::<u64>().ok()).expect("a number")
        };
        let before = sleeps();
        eventually("the server to sleep", || sleeps() >= before + 20);
    });
}
