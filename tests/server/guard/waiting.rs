//! Clients that wait for a value which another caller loads, and what each of them is told.

use std::thread::sleep;
use std::time::Duration;

use super::{FETCH, LONG, absent, fill, hit, load, token, wait_of, wait_with, waiters, waiting, with_filter, word};
use testing::{Connection, Server, array, bulk, error, eventually, nil, ok, on_every_server};

/// The server's number of a client that is blocked.
fn id_of(watcher: &mut Connection, client: &Connection) -> String {
    let address = client.address();
    let list = watcher.run("CLIENT LIST").text();
    let line = list.lines().find(|line| line.contains(&format!(" addr={address} "))).unwrap();
    line.split(' ').next().unwrap().strip_prefix("id=").unwrap().to_owned()
}

#[test]
fn all_waiters_get_the_value() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        let lease = load(&mut client, FETCH);
        let mut clients = waiting(&server, 5);
        assert_eq!(client.info_number("blocked_clients"), 5);
        assert_eq!(fill(&mut client, &lease, "VALUE row"), ok());
        for client in &mut clients {
            assert_eq!(client.receive().unwrap(), hit("row"));
            assert_eq!(client.run("PING").text(), "PONG");
        }
        assert_eq!(client.info_number("bf_bloom_waiting"), 0);

        // A plain SET has the same effect, and so has NONE.
        client.run("BF.CHANGED {f} 42 {f}:42");
        load(&mut client, FETCH);
        let mut clients = waiting(&server, 3);
        client.run("SET {f}:42 other");
        clients.iter_mut().for_each(|client| assert_eq!(client.receive().unwrap(), hit("other")));
        client.run("BF.CHANGED {f} 42 {f}:42");
        let lease = load(&mut client, FETCH);
        let mut clients = waiting(&server, 3);
        assert_eq!(fill(&mut client, &lease, "NONE EX 100"), ok());
        clients.iter_mut().for_each(|client| assert_eq!(client.receive().unwrap(), absent()));
    });
}

#[test]
fn when_a_lease_ends_the_next_waiter_loads() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        let lease = load(&mut client, FETCH);
        let mut clients = waiting(&server, 4);
        // The leases are given up, voided, and expire.
        assert_eq!(fill(&mut client, &lease, "GIVEUP"), ok());
        let second = token(&clients[0].receive().unwrap());
        wait_of(&client.run(FETCH));
        client.run("BF.CHANGED {f} 42 {f}:42");
        assert_eq!(fill(&mut client, &second, "VALUE v"), nil(2));
        let third = token(&clients[1].receive().unwrap());
        client.run("BF.ADD {f} 42");
        let fourth = token(&clients[2].receive().unwrap());
        assert_ne!(third, fourth);
        assert_eq!(client.info_number("bf_bloom_waiting"), 1);
        assert_eq!(fill(&mut client, &fourth, "VALUE row"), ok());
        assert_eq!(clients[3].receive().unwrap(), hit("row"));

        // The lease that expires is one that a waiter gets, so that the others certainly wait by then.
        client.run("DEL {f}:42");
        let lease = load(&mut client, FETCH);
        let mut clients = vec![wait_with(&server, &format!("{FETCH} LEASE 1"))];
        clients.extend(waiting(&server, 2));
        assert_eq!(fill(&mut client, &lease, "GIVEUP"), ok());
        token(&clients[0].receive().unwrap());
        let lease = token(&clients[1].receive().unwrap());
        assert_eq!(fill(&mut client, &lease, "VALUE again"), ok());
        assert_eq!(clients[2].receive().unwrap(), hit("again"));
    });
}

#[test]
fn a_waiter_whose_time_is_up_is_told_to_come_again() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        load(&mut client, FETCH);
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
fn a_waiter_that_disconnects_gets_no_lease() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        let lease = load(&mut client, FETCH);
        let mut clients = waiting(&server, 4);
        drop(clients.remove(0));
        eventually("one waiter to be gone", || client.info_number("bf_bloom_waiting") == 3);
        let id = id_of(&mut client, &clients[0]);
        assert_eq!(client.run(&format!("CLIENT KILL ID {id}")).number(), 1);
        eventually("two waiters to be gone", || client.info_number("bf_bloom_waiting") == 2);
        assert_eq!(fill(&mut client, &lease, "GIVEUP"), ok());
        let lease = token(&clients[1].receive().unwrap());
        assert_eq!(fill(&mut client, &lease, "VALUE row"), ok());
        assert_eq!(clients[2].receive().unwrap(), hit("row"));
    });
}

#[test]
fn a_waiter_that_is_killed_or_unblocked_as_its_lease_ends_leaves_that_to_the_next() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        for how in ["CLIENT KILL ID", "CLIENT UNBLOCK"] {
            let lease = load(&mut client, FETCH);
            let mut clients = waiting(&server, 2);
            let id = id_of(&mut client, &clients[0]);
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
            assert_eq!(fill(&mut client, &lease, "GIVEUP"), ok(), "{how}");
            assert_eq!(client.info_number("bf_bloom_waiting"), 0);
        }
    });
}

#[test]
fn a_waiter_can_be_unblocked_by_hand() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        let lease = load(&mut client, FETCH);
        let mut clients = waiting(&server, 3);
        for (index, how) in [(0, "TIMEOUT"), (1, "ERROR")] {
            let id = id_of(&mut client, &clients[index]);
            assert_eq!(client.run(&format!("CLIENT UNBLOCK {id} {how}")).number(), 1);
        }
        assert!(wait_of(&clients[0].receive().unwrap()) > 90_000);
        assert_eq!(clients[1].receive().unwrap(), error("UNBLOCKED client unblocked via CLIENT UNBLOCK"));
        assert_eq!(client.info_number("bf_bloom_waiting"), 1);
        assert_eq!(fill(&mut client, &lease, "VALUE row"), ok());
        assert_eq!(clients[2].receive().unwrap(), hit("row"));
        for client in &mut clients {
            assert_eq!(client.run("PING").text(), "PONG");
        }
    });
}

#[test]
fn a_new_caller_does_not_overtake_the_waiters() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        let lease = load(&mut client, FETCH);
        let mut clients = waiting(&server, 1);
        client.run("MULTI");
        client.run(&format!("BF.FILL {{f}} 42 {{f}}:42 {lease} GIVEUP"));
        client.run(FETCH);
        let replies = client.run("EXEC");
        wait_of(&replies.elements()[1]);
        token(&clients[0].receive().unwrap());
    });
}

#[test]
fn whatever_becomes_of_the_keys_answers_the_waiters() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for line in ["FLUSHALL", "SWAPDB 0 1", "RPUSH {f}:42 x", "SET {f}:42 v PX 1", "DEBUG RELOAD NOSAVE"] {
            client.run("DEL {f}:42 {f}");
            with_filter(&mut client);
            client.run("SAVE");
            load(&mut client, FETCH);
            let mut clients = waiting(&server, 2);
            assert!(!client.run(line).is_error(), "{line}");
            let first = clients[0].receive().unwrap();
            let second = if first.is_error() { clients[1].receive().unwrap() } else { array([bulk("other")]) };
            if line.starts_with("RPUSH") {
                assert!(first.error_text().starts_with("WRONGTYPE") && second.is_error());
            } else {
                assert!(["load", "hit"].contains(&word(&first).as_str()), "{line}: {first:?}");
            }
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

/// A transaction that fills and deletes leaves no value: no waiter may be told of it, and none is sent away.
#[test]
fn a_value_that_does_not_stay_answers_no_waiter() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        for line in ["BF.CHANGED {f} 42 {f}:42", "DEL {f}:42", "BF.ADD {f} 42"] {
            let lease = load(&mut client, FETCH);
            let mut clients = waiting(&server, 5);
            client.run("MULTI");
            client.run(&format!("BF.FILL {{f}} 42 {{f}}:42 {lease} VALUE row"));
            client.run("DEL {f}:42");
            client.run(line);
            assert_eq!(client.run("EXEC").elements()[0], ok(), "{line}");
            let lease = token(&clients[0].receive().unwrap());
            assert_eq!(waiters(&mut client), 4, "{line}: the others wait for the second load");
            assert_eq!(fill(&mut client, &lease, "VALUE row"), ok());
            clients[1..].iter_mut().for_each(|client| assert_eq!(client.receive().unwrap(), hit("row")));
            client.run("DEL {f}:42");
        }
    });
}

/// A NONE needs a filter to apply: without one, each waiter loads in its turn, and the others go on waiting.
#[test]
fn without_a_filter_one_waiter_loads_at_a_time() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        let mut lease = load(&mut client, FETCH);
        let mut clients = waiting(&server, 20);
        for (number, waiter) in clients.iter_mut().enumerate() {
            let line = format!("BF.FILL {{f}} 42 {{f}}:42 {lease} NONE EX 100");
            assert_eq!(client.run(&line), ok());
            lease = token(&waiter.receive().unwrap());
            assert_eq!(waiters(&mut client), 19 - number as i64, "the others go on waiting");
        }
        assert_eq!(client.info_number("bf_bloom_fetches_wait"), 0);
        assert_eq!(client.info_number("bf_bloom_fetches_unguarded"), 21, "each command counts once");
    });
}

/// A lease is for every item of its cache key, also for those who wait.
#[test]
fn waiters_of_two_items_share_a_lease() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        client.run("BF.ADD {f} 43");
        let fetch = |item: u32| format!("BF.FETCH {{f}} {item} {{f}}:42");
        let first = load(&mut client, &fetch(42));
        let mut one = wait_with(&server, &fetch(42));
        let mut two = wait_with(&server, &fetch(43));
        assert_eq!(fill(&mut client, &first, "GIVEUP"), ok());
        let lease = token(&one.receive().unwrap());
        assert_eq!(waiters(&mut client), 1, "the other one waits for the same lease");
        assert_eq!(fill(&mut client, &lease, "VALUE row"), ok());
        assert_eq!(two.receive().unwrap(), hit("row"));
    });
}

/// What a waiter gets is read by GET. A value that is read in place is stored in the form of a longer string afterwards.
#[test]
fn the_value_of_a_waiter_is_left_as_it_is() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        for value in ["17", "short"] {
            let lease = load(&mut client, FETCH);
            let mut clients = waiting(&server, 2);
            let mut stale = wait_with(&server, &format!("{FETCH} STALE 1000000"));
            assert_eq!(fill(&mut client, &lease, &format!("VALUE {value} PX 2000000")), ok());
            for client in clients.iter_mut().chain([&mut stale]) {
                assert_eq!(client.receive().unwrap(), hit(value));
            }
            assert_ne!(client.run("OBJECT ENCODING {f}:42"), bulk("raw"), "{value}");
            client.run("BF.CHANGED {f} 42 {f}:42");
        }
        // A waiter may be the one that refreshes the value.
        let lease = load(&mut client, FETCH);
        let mut stale = wait_with(&server, &format!("{FETCH} STALE 1000000"));
        assert_eq!(fill(&mut client, &lease, "VALUE 17 PX 500000"), ok());
        let reply = stale.receive().unwrap();
        assert_eq!((word(&reply).as_str(), reply.elements()[1].text().as_str()), ("stale", "17"));
        assert_eq!(fill(&mut client, &token(&reply), "VALUE 18"), ok());
    });
}
