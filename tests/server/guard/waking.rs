//! What ends a lease that clients wait for: one of them loads then, long before the lease would have expired.

use super::{FETCH, absent, fill, hit, load, token, wait_with, waiters, waiting, with_filter, word};
use testing::{Connection, Server, eventually, integer, nil, ok, on_every_server};

#[test]
fn another_filter_at_the_key_lets_one_waiter_load() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for line in [
            "RENAME {f}other {f}",
            "COPY {f}other {f} REPLACE",
            "DEL {f}",
            "UNLINK {f}",
            "PEXPIRE {f} 1",
            "RENAME {f} {f}gone",
            "FLUSHALL",
        ] {
            client.run("FLUSHALL");
            with_filter(&mut client);
            client.run("BF.ADD {f}other 42");
            let lease = load(&mut client, FETCH);
            let mut clients = waiting(&server, 3);
            assert!(!client.run(line).is_error(), "{line}");
            let next = token(&clients[0].receive().unwrap());
            assert_eq!(waiters(&mut client), 2, "{line}: the others wait for that one");
            assert_eq!(fill(&mut client, &lease, "VALUE late"), nil(2), "{line}");
            assert_eq!(fill(&mut client, &next, "VALUE row"), ok(), "{line}");
            clients[1..].iter_mut().for_each(|client| assert_eq!(client.receive().unwrap(), hit("row"), "{line}"));
        }
        assert_eq!(client.info_number("bf_bloom_fetches_wait"), 0);
    });
}

#[test]
fn a_filter_that_lacks_the_item_answers_all_waiters() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for line in ["BF.CLEAR {f}", "RENAME {f}empty {f}"] {
            client.run("FLUSHALL");
            with_filter(&mut client);
            client.run("BF.RESERVE {f}empty 0.01 100");
            load(&mut client, FETCH);
            let mut clients = waiting(&server, 3);
            assert_eq!(client.run(line), ok());
            clients.iter_mut().for_each(|client| assert_eq!(client.receive().unwrap(), absent(), "{line}"));
        }
        // A new filter is empty.
        client.run("FLUSHALL");
        load(&mut client, FETCH);
        let mut clients = waiting(&server, 3);
        assert_eq!(client.run("BF.RESERVE {f} 0.01 100"), ok());
        clients.iter_mut().for_each(|client| assert_eq!(client.receive().unwrap(), absent()));
    });
}

/// The filter stays what it is: the lease of another item holds, and its waiters go on waiting.
#[test]
fn a_command_that_adds_another_item_disturbs_no_waiter() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        let lease = load(&mut client, FETCH);
        let mut clients = waiting(&server, 2);
        for line in ["BF.ADD {f} 43", "BF.CHANGED {f} 44 {f}:44", "BF.MADD {f} 45 46", "EXPIRE {f} 1000"] {
            assert!(!client.run(line).is_error(), "{line}");
        }
        assert_eq!(waiters(&mut client), 2);
        assert_eq!(fill(&mut client, &lease, "VALUE row"), ok());
        clients.iter_mut().for_each(|client| assert_eq!(client.receive().unwrap(), hit("row")));
    });
}

#[test]
fn a_filter_that_is_evicted_lets_one_waiter_load() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        load(&mut client, FETCH);
        let mut clients = waiting(&server, 2);
        client.run("CONFIG SET maxmemory-policy allkeys-random");
        client.run("CONFIG SET maxmemory 1");
        eventually("the filter to be evicted", || {
            client.run("SET x y");
            client.run("EXISTS {f}") == integer(0)
        });
        token(&clients[0].receive().unwrap());
        assert_eq!(waiters(&mut client), 1);
        assert_eq!(client.run("SELECT 0"), ok());
    });
}

#[test]
fn a_filter_that_appears_lets_one_waiter_load() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("BF.RESERVE {f}other 0.01 100");
        client.run("BF.ADD {f}other 42");
        let payload = client.run("DUMP {f}other");
        let restore: [&[u8]; 4] = [b"RESTORE", b"{f}", b"0", payload.bytes()];
        let records = dump(&mut client, "{f}other");
        let make: [&dyn Fn(&mut Connection); 4] = [
            &|client| _ = client.run("BF.INSERT {f} ITEMS 42"),
            &|client| _ = client.run("COPY {f}other {f}"),
            &|client| _ = client.call(&restore),
            &|client| records.iter().for_each(|record| load_chunk(client, "{f}", record)),
        ];
        for (number, make) in make.iter().enumerate() {
            client.run("DEL {f} {f}:42");
            client.run("BF.CHANGED {f} 42 {f}:42");
            let lease = load(&mut client, FETCH);
            let mut clients = waiting(&server, 2);
            make(&mut client);
            assert!(client.run("BF.EXISTS {f} 42").truth());
            let next = token(&clients[0].receive().unwrap());
            assert_eq!(waiters(&mut client), 1, "way {number}");
            assert_eq!(fill(&mut client, &lease, "VALUE late"), nil(2), "way {number}: it was for no filter");
            assert_eq!(fill(&mut client, &next, "VALUE row"), ok(), "way {number}");
            assert_eq!(clients[1].receive().unwrap(), hit("row"));
        }
    });
}

/// The iterators and the data of BF.SCANDUMP.
fn dump(client: &mut Connection, key: &str) -> Vec<(String, Vec<u8>)> {
    let mut records = vec![("0".to_owned(), Vec::new())];
    loop {
        let reply = client.run(&format!("BF.SCANDUMP {key} {}", records.last().unwrap().0));
        let [iterator, data] = reply.elements() else { panic!("{reply:?}") };
        if iterator.number() == 0 {
            return records.split_off(1);
        }
        records.push((iterator.number().to_string(), data.bytes().to_vec()));
    }
}

fn load_chunk(client: &mut Connection, key: &str, (iterator, data): &(String, Vec<u8>)) {
    assert_eq!(client.call(&[b"BF.LOADCHUNK", key.as_bytes(), iterator.as_bytes(), data]), ok());
}

#[test]
fn leases_are_filled_while_the_filter_arrives() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("BF.RESERVE {f}other 0.01 100");
        client.run("BF.ADD {f}other 42");
        let records = dump(&mut client, "{f}other");
        let before = load(&mut client, FETCH);
        load_chunk(&mut client, "{f}", &records[0]);
        assert!(client.run("BF.EXISTS {f} 42").is_error(), "it is arriving");
        assert_eq!(fill(&mut client, &before, "VALUE before"), ok(), "it was missing, and is not there yet");
        assert_eq!(client.run(FETCH), hit("before"));
        client.run("DEL {f}:42");
        let during = load(&mut client, FETCH);
        assert_eq!(fill(&mut client, &during, "NONE EX 100"), ok());
        let during = load(&mut client, FETCH);
        // An add names the item, whatever it answers.
        assert!(client.run("BF.ADD {f} 42").is_error());
        assert_eq!(fill(&mut client, &during, "VALUE v"), nil(2));
        let during = load(&mut client, FETCH);
        records[1..].iter().for_each(|record| load_chunk(&mut client, "{f}", record));
        assert_eq!(fill(&mut client, &during, "VALUE v"), nil(2), "it is there");
        load(&mut client, FETCH);
    });
}

#[test]
fn leases_that_a_lower_limit_evicts_let_a_waiter_load_each() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        let fetch = |number: usize| format!("BF.FETCH {{f}} 42 {{f}}:{number}");
        let mut clients: Vec<Connection> = (0..20)
            .map(|number| {
                load(&mut client, &fetch(number));
                wait_with(&server, &fetch(number))
            })
            .collect();
        assert_eq!(client.run("CONFIG SET bf.max-leases 1"), ok());
        load(&mut client, &fetch(20));
        for waiter in &mut clients {
            assert_eq!(word(&waiter.receive().unwrap()), "load");
        }
        assert_eq!((waiters(&mut client), client.info_number("bf_bloom_leases")), (0, 1));
    });
}
