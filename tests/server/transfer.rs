//! A filter of any kind is the same at another key, in another database and on another server.

use std::path::Path;
use std::slice;

use crate::zoo::{EXPIRES_AT_MS, Zoo, assert_same};
use testing::{
    Connection, Reply, Server, digest, dump, error, integer, load_record, load_records, ok, on_every_server, records,
    simple,
};

fn server_with_zoo(program: &Path) -> (Server, Connection, Zoo) {
    let server = Server::start(program);
    let mut client = server.connect();
    let zoo = Zoo::build(&mut client);
    (server, client, zoo)
}

#[test]
fn dump_and_restore_give_the_same_filter() {
    on_every_server(|program| {
        let (_server, mut client, zoo) = server_with_zoo(program);
        let elsewhere = Server::start(program);
        let mut far = elsewhere.connect();
        let before = zoo.view(&mut client);
        for (key, before) in zoo.keys().zip(before) {
            let payload = dump(&mut client, key);
            let expires = client.call(&[b"PEXPIRETIME", key]).number().max(0).to_string();
            let words: [&[u8]; 6] = [b"RESTORE", b"restored", expires.as_bytes(), &payload, b"ABSTTL", b"REPLACE"];
            assert_eq!(client.call(&words), ok());
            let here = zoo.view_of(&mut client, key, b"restored");
            assert_same("RESTORE", slice::from_ref(&before), &[here]);
            assert!(dump(&mut client, "restored") == payload, "the same payload comes out again");
            assert_is_on_its_own(&mut client, key, "restored");

            let words: [&[u8]; 5] = [b"RESTORE", key, expires.as_bytes(), &payload, b"ABSTTL"];
            assert_eq!(far.call(&words), ok());
            let there = zoo.view_of(&mut far, key, key);
            assert_same("RESTORE on a second server", &[before], &[there]);
        }
    });
}

#[test]
fn copy_gives_an_equal_filter_of_its_own() {
    on_every_server(|program| {
        let (_server, mut client, zoo) = server_with_zoo(program);
        let before = zoo.view(&mut client);
        for (key, before) in zoo.keys().zip(&before) {
            let words: [&[u8]; 4] = [b"COPY", key, b"copied", b"REPLACE"];
            assert_eq!(client.call(&words), integer(1));
            let copied = zoo.view_of(&mut client, key, b"copied");
            assert_same("COPY", slice::from_ref(before), &[copied]);
            assert_is_on_its_own(&mut client, key, "copied");
        }
        client.run("COPY grown other DB 3");
        client.run("SELECT 3");
        let there = zoo.view_of(&mut client, b"grown", b"other");
        client.run("SELECT 0");
        assert_same("COPY to another database", &[zoo.view_of(&mut client, b"grown", b"grown")], &[there]);

        assert_same("the originals after all copies", &before, &zoo.view(&mut client));
    });
}

/// A change to a copy does not change its original.
fn assert_is_on_its_own(client: &mut Connection, key: &[u8], copy: &str) {
    let before = digest(client, key);
    let items: Vec<String> = (0..400).map(|number| format!("only in the copy/{number}")).collect();
    let words: Vec<&str> = ["BF.MADD", copy].into_iter().chain(items.iter().map(String::as_str)).collect();
    let reply = client.call(&words);
    let is_full = reply.elements().last().is_some_and(Reply::is_error);
    assert!(is_full || digest(client, copy) != before, "{}: nothing was added", key.escape_ascii());
    assert_eq!(digest(client, key), before, "{}: the original changed", key.escape_ascii());
}

#[test]
fn records_give_the_same_filter_when_each_comes_twice() {
    on_every_server(|program| {
        let (_server, mut client, zoo) = server_with_zoo(program);
        let elsewhere = Server::start(program);
        let mut far = elsewhere.connect();
        client.run("PERSIST with-ttl");
        for (key, before) in zoo.keys().zip(zoo.view(&mut client)) {
            if client.call(&[b"TYPE", key]).text() == "bloomfltr" {
                let expected = "ERR BF.SCANDUMP cannot dump a filter of valkey-bloom's layout, DUMP can";
                for iterator in [b"0", b"1"] {
                    assert_eq!(client.call(&[b"BF.SCANDUMP", key, iterator]), error(expected));
                }
                continue;
            }
            let records = records(&mut client, key);
            assert!(records.len() >= 2, "a header and bits");
            let (last, others) = records.split_last().unwrap();
            for record in others {
                load_records(&mut far, key, &[record.clone(), record.clone()]);
            }
            load_records(&mut far, key, slice::from_ref(last));
            // RedisBloom's records cannot be told from those of another dump.
            let again = load_record(&mut far, key, last);
            assert!(again == ok() || client.call(&[b"TYPE", key]).text() == "MBbloom--", "{again:?}");
            assert_same("BF.LOADCHUNK", &[before], &[zoo.view_of(&mut far, key, key)]);
        }
    });
}

#[test]
fn migrate_moves_a_filter_to_another_server() {
    on_every_server(|program| {
        let (_server, mut client, zoo) = server_with_zoo(program);
        let elsewhere = Server::start(program);
        let mut far = elsewhere.connect();
        let before = zoo.view(&mut client);
        let port = elsewhere.port.to_string();
        for key in zoo.keys().filter(|key| !key.is_empty()) {
            let words: [&[u8]; 6] = [b"MIGRATE", b"127.0.0.1", port.as_bytes(), key, b"0", b"60000"];
            assert_eq!(client.call(&words), ok());
            assert_eq!(client.call(&[b"EXISTS", key]), integer(0));
        }
        // MIGRATE reads an empty key as "see KEYS"; it is moved under another name.
        let empty: [&[u8]; 3] = [b"RENAME", b"", b"the-empty-key"];
        assert_eq!(client.call(&empty), ok());
        let words = ["MIGRATE", "127.0.0.1", &port, "", "0", "60000", "KEYS", "the-empty-key"];
        assert_eq!(client.call(&words), ok());
        let back: [&[u8]; 3] = [b"RENAME", b"the-empty-key", b""];
        assert_eq!(far.call(&back), ok());
        // MIGRATE carries the time that is left, so what the move took is added at the other end.
        let expires = far.run("PEXPIRETIME with-ttl").number();
        assert!((EXPIRES_AT_MS..EXPIRES_AT_MS + 600_000).contains(&expires), "{expires}");
        far.run(&format!("PEXPIREAT with-ttl {EXPIRES_AT_MS}"));
        assert_same("MIGRATE", &before, &zoo.view(&mut far));

        client.run("BF.ADD grown replaced");
        let words = ["MIGRATE", "127.0.0.1", &port, "grown", "0", "60000"];
        assert!(client.call(&words).error_text().contains("BUSYKEY"));
        let words = ["MIGRATE", "127.0.0.1", &port, "grown", "0", "60000", "COPY", "REPLACE"];
        assert_eq!(client.call(&words), ok());
        assert_eq!(far.run("BF.CARD grown"), integer(1));
        assert_eq!(far.run("DEBUG DIGEST-VALUE grown"), client.run("DEBUG DIGEST-VALUE grown"));
    });
}

#[test]
fn renaming_and_moving_keep_the_filter() {
    on_every_server(|program| {
        let (_server, mut client, zoo) = server_with_zoo(program);
        let before = zoo.view(&mut client);
        client.run("SWAPDB 0 5");
        assert_eq!(client.run("DBSIZE"), integer(0));
        client.run("SELECT 5");
        assert_same("SWAPDB", &before, &zoo.view(&mut client));
        for key in zoo.keys() {
            let words: [&[u8]; 3] = [b"MOVE", key, b"7"];
            assert_eq!(client.call(&words), integer(1));
        }
        client.run("SELECT 7");
        assert_same("MOVE", &before, &zoo.view(&mut client));
        for key in zoo.keys() {
            assert_eq!(client.call(&[b"RENAME".as_slice(), key, b"new name"]), ok());
            assert_eq!(client.call(&[b"RENAME".as_slice(), b"new name", key]), ok());
        }
        assert_same("RENAME", &before, &zoo.view(&mut client));
        assert_eq!(client.run("RENAMENX grown fixed"), integer(0));
        assert_eq!(client.run("COPY grown fixed"), integer(0));
        assert_eq!(client.run("RENAME missing grown"), error("ERR no such key"));
        assert_eq!(client.run("TYPE grown"), simple("bloomgate"));
    });
}
