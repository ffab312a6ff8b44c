//! Clients that wait for a value which somebody else loads.

use std::thread::sleep;
use std::time::Duration;

use super::{FETCH, absent, fill, hit, load, token, wait_of, with_filter, word};
use crate::harness::{Connection, Server, array, bulk, error, eventually, nil, ok, on_every_server};

/// So many clients that wait, in the order in which they came.
fn waiting(server: &Server, clients: usize, milliseconds: u64) -> Vec<Connection> {
    let mut watcher = server.connect();
    let before = watcher.info_number("bf_bloom_waiting");
    (1..=clients as i64)
        .map(|number| {
            let mut client = server.connect();
            let line = format!("{FETCH} WAIT {milliseconds}");
            client.send(&line.split(' ').collect::<Vec<_>>()).unwrap();
            eventually("the client to wait", || watcher.info_number("bf_bloom_waiting") == before + number);
            client
        })
        .collect()
}

/// The server's number of a client that cannot be asked.
fn id_of(watcher: &mut Connection, client: &Connection) -> String {
    let address = client.address();
    let list = watcher.run("CLIENT LIST").text();
    let line = list.lines().find(|line| line.contains(&format!(" addr={address} "))).unwrap();
    line.split(' ').next().unwrap().strip_prefix("id=").unwrap().to_owned()
}

#[test]
fn all_who_wait_get_the_value() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        let lease = load(&mut client, FETCH);
        let mut clients = waiting(&server, 5, 100_000);
        assert_eq!(client.info_number("blocked_clients"), 5);
        assert_eq!(fill(&mut client, &lease, "VALUE row"), ok());
        for client in &mut clients {
            assert_eq!(client.receive().unwrap(), hit("row"));
            assert_eq!(client.run("PING").text(), "PONG");
        }
        assert_eq!(client.info_number("bf_bloom_waiting"), 0);

        // By whoever writes it, and where there is no row.
        client.run("BF.CHANGED {f} 42 {f}:42");
        load(&mut client, FETCH);
        let mut clients = waiting(&server, 3, 100_000);
        client.run("SET {f}:42 other");
        clients.iter_mut().for_each(|client| assert_eq!(client.receive().unwrap(), hit("other")));
        client.run("BF.CHANGED {f} 42 {f}:42");
        let lease = load(&mut client, FETCH);
        let mut clients = waiting(&server, 3, 100_000);
        assert_eq!(fill(&mut client, &lease, "NONE EX 100"), ok());
        clients.iter_mut().for_each(|client| assert_eq!(client.receive().unwrap(), absent()));
    });
}

#[test]
fn when_a_lease_ends_the_next_in_line_loads() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        let lease = load(&mut client, FETCH);
        let mut clients = waiting(&server, 4, 100_000);
        // Given up, voided, over.
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
        // The lease of the third came with the default of 3 seconds.
        assert_eq!(fill(&mut client, &fourth, "VALUE row"), ok());
        assert_eq!(clients[3].receive().unwrap(), hit("row"));

        client.run("DEL {f}:42");
        load(&mut client, &format!("{FETCH} LEASE 100"));
        let mut clients = waiting(&server, 2, 100_000);
        let lease = token(&clients[0].receive().unwrap());
        assert_eq!(fill(&mut client, &lease, "VALUE again"), ok());
        assert_eq!(clients[1].receive().unwrap(), hit("again"));
    });
}

#[test]
fn who_waited_long_enough_is_told_so() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        load(&mut client, &format!("{FETCH} LEASE 100000"));
        let mut other = server.connect();
        assert!(wait_of(&other.run(&format!("{FETCH} WAIT 50"))) > 90_000);
        assert!(wait_of(&other.run(&format!("{FETCH} WAIT 0"))) > 90_000);
        let mut clients = waiting(&server, 3, 300);
        assert!(clients.iter_mut().all(|client| wait_of(&client.receive().unwrap()) > 90_000));
        assert_eq!(client.info_number("bf_bloom_fetches_wait"), 5);
    });
}

#[test]
fn who_goes_away_leaves_its_turn_to_the_next() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        let lease = load(&mut client, &format!("{FETCH} LEASE 100000"));
        let mut clients = waiting(&server, 4, 100_000);
        drop(clients.remove(0));
        eventually("one to be gone", || client.info_number("bf_bloom_waiting") == 3);
        let id = id_of(&mut client, &clients[0]);
        assert_eq!(client.run(&format!("CLIENT KILL ID {id}")).number(), 1);
        eventually("two to be gone", || client.info_number("bf_bloom_waiting") == 2);
        assert_eq!(fill(&mut client, &lease, "GIVEUP"), ok());
        let lease = token(&clients[1].receive().unwrap());
        assert_eq!(fill(&mut client, &lease, "VALUE row"), ok());
        assert_eq!(clients[2].receive().unwrap(), hit("row"));
    });
}

#[test]
fn the_turn_of_a_client_that_is_killed_when_it_is_woken_goes_on() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        for how in ["CLIENT KILL ID", "CLIENT UNBLOCK"] {
            let lease = load(&mut client, &format!("{FETCH} LEASE 100000"));
            let mut clients = waiting(&server, 2, 100_000);
            let id = id_of(&mut client, &clients[0]);
            // The first is woken by one command of the transaction and gone by the next, before it can look.
            client.run("MULTI");
            client.run(&format!("BF.FILL {{f}} 42 {{f}}:42 {lease} GIVEUP"));
            client.run(&format!("{how} {id}"));
            client.run("EXEC");
            let lease = token(&clients[1].receive().unwrap());
            assert_eq!(fill(&mut client, &lease, "GIVEUP"), ok(), "{how}");
            assert_eq!(client.info_number("bf_bloom_waiting"), 0);
        }
    });
}

#[test]
fn a_client_can_be_unblocked_by_hand() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        let lease = load(&mut client, &format!("{FETCH} LEASE 100000"));
        let mut clients = waiting(&server, 3, 100_000);
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
fn who_comes_while_another_has_the_turn_does_not_take_it() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        let lease = load(&mut client, &format!("{FETCH} LEASE 100000"));
        let mut clients = waiting(&server, 1, 100_000);
        client.run("MULTI");
        client.run(&format!("BF.FILL {{f}} 42 {{f}}:42 {lease} GIVEUP"));
        client.run(FETCH);
        let replies = client.run("EXEC");
        wait_of(&replies.elements()[1]);
        token(&clients[0].receive().unwrap());
    });
}

#[test]
fn who_waits_is_woken_by_whatever_becomes_of_the_keys() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for line in ["FLUSHALL", "SWAPDB 0 1", "RPUSH {f}:42 x", "SET {f}:42 v PX 1", "DEBUG RELOAD NOSAVE"] {
            client.run("DEL {f}:42 {f}");
            with_filter(&mut client);
            client.run("SAVE");
            load(&mut client, &format!("{FETCH} LEASE 100000"));
            let mut clients = waiting(&server, 2, 2000);
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
        let lease = load(&mut client, &format!("{FETCH} LEASE 100000"));
        let mut other = server.connect_speaking(3);
        wait_of(&other.run(&format!("{FETCH} WAIT 20")));
        other.send(&format!("{FETCH} WAIT 100000").split(' ').collect::<Vec<_>>()).unwrap();
        // It goes on with what it sent meanwhile only then.
        other.send(&["PING"]).unwrap();
        eventually("the client to wait", || client.info_number("bf_bloom_waiting") == 1);
        sleep(Duration::from_millis(20));
        assert_eq!(fill(&mut client, &lease, "VALUE row"), ok());
        assert_eq!(other.receive().unwrap(), hit("row"));
        assert_eq!(other.receive().unwrap().text(), "PONG");
    });
}
