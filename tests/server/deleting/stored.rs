//! Tables of deleted items in files, copies, payloads and dumps.

use super::{FILTERS, call, numbered, reserve_all, write_some};
use testing::{
    Connection, Reply, Server, catch_up, digest, dump, follow, integer, load_record, load_records, next_record, ok,
    on_every_server, records, restore,
};

/// A dump is a copy of the table as it was: once the table has changed, a deleted item may be present in the copy.
#[test]
fn a_table_that_changed_is_left_out_of_the_dump() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        reserve_all(&mut client);
        write_some(&mut client);
        for (key, _) in FILTERS {
            let mut iterator = 0;
            while let Some(record) = next_record(&mut client, key, iterator) {
                assert_eq!(load_record(&mut client, "loaded", &record), ok(), "{key}");
                iterator = record.0;
                call(&mut client, &format!("BF.DEL {key}"), &numbered(20..21));
            }
            let found = client.batched(&[b"BF.MEXISTS", b"loaded"], &numbered(100..120));
            assert!(found.iter().all(|present| *present), "{key}");
            client.run("DEL loaded");
        }
    });
}

/// What else is equal wherever a filter is: the digest, and how many more deletes it takes.
fn digest_and_room(client: &mut Connection, key: &str) -> (Reply, Reply) {
    let room = client.run(&format!("BF.STATS {key}")).field("Room for items deleted").clone();
    (digest(client, key), room)
}

/// The replica's table is built from the entries that are left, and both get more entries afterwards.
#[test]
fn a_large_table_is_the_same_on_a_replica_that_joined_in_the_middle() {
    on_every_server(|program| {
        let (server, other) = (Server::start(program), Server::start(program));
        let (mut client, mut replica) = (server.connect(), other.connect());
        client.run("BF.RESERVE k 0.01 100000 HASH siphash");
        client.batched(&[b"BF.MADD", b"k"], &numbered(0..20_000));
        client.batched(&[b"BF.MDEL", b"k"], &numbered(0..5000));
        client.batched(&[b"BF.MADD", b"k"], &numbered(500..4500));
        follow(&mut replica, &server);
        catch_up(&mut client, &mut replica);
        client.batched(&[b"BF.MDEL", b"k"], &numbered(1000..3000));
        catch_up(&mut client, &mut replica);
        assert_eq!(digest_and_room(&mut replica, "k"), digest_and_room(&mut client, "k"));
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
        let payload = dump(&mut client, "k");
        let records = records(&mut client, "k");
        let (last, others) = records.split_last().unwrap();
        client.run(&format!("CONFIG SET bf.max-filter-bytes {}", size - 1));
        assert!(restore(&mut client, "copy", &payload).is_error());
        assert_eq!(client.run("EXISTS copy"), integer(0));
        load_records(&mut client, "loaded", others);
        let refused = load_record(&mut client, "loaded", last);
        assert!(refused.error_text().contains("ERR Insufficient memory"), "{refused:?}");
        client.run(&format!("CONFIG SET bf.max-filter-bytes {size}"));
        assert_eq!(restore(&mut client, "copy", &payload), ok());
        assert_eq!(load_record(&mut client, "loaded", last), ok(), "the dump goes on where it was");
        for copy in ["copy", "loaded"] {
            assert_eq!(digest(&mut client, copy), digest(&mut client, "k"), "{copy}");
        }
    });
}
