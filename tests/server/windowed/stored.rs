//! What time does to a stored ring: buckets that end while it is dumped or while the server is down.

use std::thread;
use std::time::Duration;

use super::{make_rings, two_buckets};
use testing::{
    Server, Stop, digest, eventually, lines, load_record, load_records, next_record, ok, on_every_server, records,
    with_append_only_file,
};

#[test]
fn a_bucket_that_passed_while_the_server_was_down_is_forgotten() {
    on_every_server(|program| {
        let mut server = Server::with(program).start();
        let mut client = server.connect();
        client.run("BF.RESERVE k 0.0001 100 WINDOW 1 BUCKETS 3");
        client.run("BF.RESERVE long 0.0001 100 WINDOW 1000 BUCKETS 3");
        client.run("BF.ADD k x");
        client.run("BF.ADD long x");
        server.stop(Stop::Save);
        thread::sleep(Duration::from_millis(1600));
        server.start_again();
        let mut client = server.connect();
        assert!(!client.run("BF.EXISTS k x").truth() && client.run("BF.EXISTS long x").truth());
        assert!(client.run("BF.ADD k x").truth() && !client.run("BF.ADD long x").truth());
    });
}

#[test]
fn a_dump_leaves_out_what_went_and_a_copy_refuses_what_it_dropped() {
    on_every_server(|program| {
        let server = with_append_only_file(program);
        let mut client = server.connect();
        for key in make_rings(&mut client) {
            let records = records(&mut client, &key);
            load_records(&mut client, "copy", &records);
            // Once its bucket is dropped, nobody can tell whether a record came.
            (0..9).for_each(|_| _ = client.run("BF.ROTATE copy"));
            let before = digest(&mut client, "copy");
            for record in &records {
                assert!(load_record(&mut client, "copy", record).is_error(), "{key}");
            }
            assert_eq!(digest(&mut client, "copy"), before);
            client.run("DEL copy");
        }
        // All four buckets are dropped during the dump.
        let (mut iterator, mut count) = (0, 0);
        while let Some(record) = next_record(&mut client, "fixed", iterator) {
            assert_eq!(load_record(&mut client, "late", &record), ok());
            (0..5).for_each(|_| _ = client.run("BF.ROTATE fixed"));
            (iterator, count) = (record.0, count + 1);
        }
        assert_eq!(count, 5);
        assert!(client.run("BF.ADD late new").truth());
        for way in ["DEBUG RELOAD", "DEBUG LOADAOF"] {
            let digest = client.run("DEBUG DIGEST");
            assert_eq!(client.run(way), ok(), "{way}");
            assert_eq!(client.run("DEBUG DIGEST"), digest, "{way}");
        }
    });
}

#[test]
fn the_buckets_that_went_are_given_back() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("BF.RESERVE k 0.01 30000000 NONSCALING WINDOW 1000 BUCKETS 3");
        (0..10).for_each(|_| _ = client.run("BF.ROTATE k"));
        client.wait_for_frees();
        let size = client.run("BF.INFO k SIZE").elements()[0].number();
        assert_eq!(client.gauge("total_memory_bytes"), size);
        client.run("DEL k");
        client.wait_for_frees();
        eventually("the memory to be given back", || client.gauge("total_memory_bytes") == 0);
    });
}

#[test]
fn a_writer_that_is_obeyed_finds_a_ring_that_is_due_and_leaves_it() {
    on_every_server(|program| {
        // The file says what its writer's clock said: nothing begins while it is loaded.
        let (server, _) = two_buckets(program, "EXPANSION 2 WINDOW 1000");
        let mut client = server.connect();
        assert_eq!(lines(&server), Vec::<String>::new());
        let digest = client.run("DEBUG DIGEST-VALUE k");
        assert_eq!(client.run("DEBUG RELOAD"), ok());
        assert_eq!(client.run("DEBUG DIGEST-VALUE k"), digest);
        assert!(client.run("BF.EXISTS k middle").truth() && !client.run("BF.EXISTS k old").truth());
    });
}
