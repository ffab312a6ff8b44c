//! Tables of deleted items in files, copies, payloads and dumps.

use super::{FILTERS, assert_written, call, numbered, reserve_all, write_some};
use crate::harness::{
    Connection, Reply, Server, Stop, catch_up, digest, follow, integer, ok, on_every_server, rewritten_commands,
    with_append_only_file,
};
use crate::persistence::rewrite_append_only_file;

#[test]
fn a_restart_brings_everything_back() {
    on_every_server(|program| {
        let mut server = with_append_only_file(program);
        let mut client = server.connect();
        reserve_all(&mut client);
        write_some(&mut client);
        assert_written(&mut client);
        let digests = |client: &mut Connection| FILTERS.map(|(key, _)| digest(client, key));
        let before = digests(&mut client);
        server.restart(Stop::Kill);
        client = server.connect();
        assert_eq!(digests(&mut client), before, "the file as it grew");

        rewrite_append_only_file(&mut client);
        assert!(rewritten_commands(&server).iter().any(|words| words[0] == b"BF.LOADCHUNK"));
        for (key, _) in FILTERS {
            call(&mut client, &format!("BF.MDEL {key}"), &numbered(20..25));
            call(&mut client, &format!("BF.MADD {key}"), &numbered(20..25));
        }
        assert_eq!(digests(&mut client)[..2], before[..2], "what was deleted and added again is as it was");
        let before = digests(&mut client);
        server.restart(Stop::Kill);
        client = server.connect();
        assert_eq!(digests(&mut client), before, "the rewritten file, and what came after it");
        assert_written(&mut client);

        assert_eq!(client.run("CONFIG SET appendonly no"), ok());
        assert_eq!(client.run("SAVE"), ok());
        assert_eq!(client.run("DEBUG RELOAD"), ok());
        assert_eq!(digests(&mut client), before, "a snapshot");
        assert_written(&mut client);
    });
}

#[test]
fn copies_payloads_and_dumps_have_the_entries() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        reserve_all(&mut client);
        write_some(&mut client);
        for (key, _) in FILTERS {
            let before = digest(&mut client, key);
            assert_eq!(client.run(&format!("COPY {key} copy")), integer(1));
            assert_eq!(digest(&mut client, "copy"), before);
            let payload = client.run(&format!("DUMP {key}"));
            assert_eq!(client.call(&[b"RESTORE".as_slice(), b"restored", b"0", payload.bytes()]), ok());
            assert_eq!(digest(&mut client, "restored"), before);
            dump(&mut client, key, |_| {});
            assert_eq!(digest(&mut client, "loaded"), before);
            // The table changed since: what was deleted is a maybe in the copy.
            dump(&mut client, key, |client| _ = call(client, &format!("BF.DEL {key}"), &numbered(20..21)));
            let found = client.batched(&[b"BF.MEXISTS", b"loaded"], &numbered(100..120));
            assert_eq!(found.iter().all(|present| *present), digest(&mut client, key) != before);
            client.run("DEL copy restored loaded");
        }
    });
}

/// Loads a dump of a filter; something is done after its first record.
fn dump(client: &mut Connection, key: &str, then: impl Fn(&mut Connection)) {
    client.run("DEL loaded");
    let mut iterator = 0;
    loop {
        let record = client.run(&format!("BF.SCANDUMP {key} {iterator}"));
        iterator = record.elements()[0].number();
        if iterator == 0 {
            return;
        }
        let text = iterator.to_string();
        let words = [b"BF.LOADCHUNK".as_slice(), b"loaded", text.as_bytes(), record.elements()[1].bytes()];
        assert_eq!(client.call(&words), ok(), "{key}");
        then(client);
    }
}

/// What else is equal wherever a filter is: the digest, and how many more deletes it takes.
fn digest_and_room(client: &mut Connection, key: &str) -> (Reply, Reply) {
    let room = client.run(&format!("BF.STATS {key}")).field("Room for items deleted").clone();
    (digest(client, key), room)
}

/// A table of several thousand entries, from which others were taken on the way.
#[test]
fn a_large_table_is_the_same_wherever_it_is() {
    on_every_server(|program| {
        let (mut server, other) = (with_append_only_file(program), Server::start(program));
        let (mut client, mut replica) = (server.connect(), other.connect());
        client.run("BF.RESERVE k 0.01 100000 HASH siphash");
        client.batched(&[b"BF.MADD", b"k"], &numbered(0..20_000));
        for items in [0..4000, 4000..5000] {
            client.batched(&[b"BF.MDEL", b"k"], &numbered(items));
        }
        client.batched(&[b"BF.MADD", b"k"], &numbered(500..4500));
        // The replica's table is made of the entries that are left, then both get more.
        follow(&mut replica, &server);
        catch_up(&mut client, &mut replica);
        client.batched(&[b"BF.MDEL", b"k"], &numbered(1000..3000));
        catch_up(&mut client, &mut replica);
        let expected = digest_and_room(&mut client, "k");
        assert_eq!(digest_and_room(&mut replica, "k"), expected, "a replica");
        assert_eq!(client.run("COPY k copy"), integer(1));
        let payload = client.run("DUMP k");
        assert_eq!(client.call(&[b"RESTORE".as_slice(), b"restored", b"0", payload.bytes()]), ok());
        assert!(client.run("DUMP restored").bytes() == payload.bytes());
        dump(&mut client, "k", |_| {});
        for key in ["copy", "restored", "loaded"] {
            assert_eq!(digest_and_room(&mut client, key), expected, "{key}");
        }
        server.restart(Stop::Kill);
        client = server.connect();
        assert_eq!(digest_and_room(&mut client, "k"), expected, "the append-only file");
        assert_eq!(client.run("CONFIG SET appendonly no"), ok());
        assert_eq!(client.run("SAVE"), ok());
        assert_eq!(client.run("DEBUG RELOAD"), ok());
        assert_eq!(digest_and_room(&mut client, "k"), expected, "a snapshot");
    });
}

/// A client cannot bring more with a table than it could make here.
#[test]
fn the_ceiling_binds_what_comes_with_a_table() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("BF.RESERVE k 0.01 1000 HASH siphash");
        call(&mut client, "BF.MADD k", &numbered(0..900));
        call(&mut client, "BF.MDEL k", &numbered(0..30));
        let size = client.run("BF.INFO k SIZE").elements()[0].number();
        let payload = client.run("DUMP k");
        let restore = [b"RESTORE".as_slice(), b"copy", b"0", payload.bytes()];
        let mut records = Vec::new();
        let mut iterator = 0;
        loop {
            let record = client.run(&format!("BF.SCANDUMP k {iterator}"));
            iterator = record.elements()[0].number();
            if iterator == 0 {
                break;
            }
            records.push((iterator, record.elements()[1].bytes().to_vec()));
        }
        let (last, others) = records.split_last().unwrap();
        let load = |client: &mut Connection, (iterator, data): &(i64, Vec<u8>)| {
            client.call(&[b"BF.LOADCHUNK".as_slice(), b"loaded", iterator.to_string().as_bytes(), data.as_slice()])
        };
        client.run(&format!("CONFIG SET bf.max-filter-bytes {}", size - 1));
        assert!(client.call(&restore).is_error());
        assert_eq!(client.run("EXISTS copy"), integer(0));
        others.iter().for_each(|record| assert_eq!(load(&mut client, record), ok()));
        let refused = load(&mut client, last);
        assert!(refused.error_text().contains("ERR Insufficient memory"), "{refused:?}");
        client.run(&format!("CONFIG SET bf.max-filter-bytes {size}"));
        assert_eq!(client.call(&restore), ok());
        assert_eq!(load(&mut client, last), ok(), "the dump goes on where it was");
        for copy in ["copy", "loaded"] {
            assert_eq!(digest(&mut client, copy), digest(&mut client, "k"), "{copy}");
        }
    });
}
