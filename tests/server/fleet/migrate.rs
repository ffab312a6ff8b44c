//! Filters that are too large for MIGRATE, and the alternative: BF.SCANDUMP on the source and BF.LOADCHUNK on the target.

use super::{denied, effort, load_chunk, scan_dump};
use testing::{Connection, Server, error, integer, ok, on_every_server, simple};

/// Copies a filter record by record. Returns the number of records and of bytes.
fn carry(from: &mut Connection, to: &mut Connection, key: &str) -> (usize, usize) {
    let mut bytes = 0;
    let records = scan_dump(from, key, |_, iterator, data| {
        bytes += data.len();
        load_chunk(to, key, iterator, data);
    });
    (records, bytes)
}

fn items(name: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{name}/{number}")).collect()
}

#[test]
fn a_filter_too_large_to_migrate_is_refused_and_stays() {
    on_every_server(|program| {
        // Without compression the bytes on the wire are those of the filter.
        let source = Server::with(program).line("rdbcompression no").start();
        // BF.LOADCHUNK's longest data, 16 MiB, is below this limit; the filters are above it.
        let target = Server::with(program).line("proto-max-bulk-len 20mb").start();
        let (mut here, mut there) = (source.connect(), target.connect());
        let members = items("member", 5000);
        here.run("BF.RESERVE native 0.01 30000000 NONSCALING");
        here.run("BF.RESERVE redisbloom 0.01 30000000 NONSCALING LAYOUT redisbloom");
        here.run("BF.INSERT valkey CAPACITY 30000000 NONSCALING TIGHTENING 0.5");
        let port = target.port.to_string();
        for key in ["native", "redisbloom", "valkey"] {
            here.batched(&[b"BF.MADD", key.as_bytes()], &members);
            let digest = here.run(&format!("DEBUG DIGEST-VALUE {key}"));
            for _ in 0..effort(2) {
                let words = ["MIGRATE", "127.0.0.1", &port, key, "0", "60000"];
                let reply = here.call(&words);
                assert!(reply.is_error(), "{key}: {reply:?}");
                assert_eq!(there.run(&format!("EXISTS {key}")), integer(0), "{key}");
                assert_eq!(here.run(&format!("DEBUG DIGEST-VALUE {key}")), digest, "{key} stays as it was");
            }
            // Redis does the same with a string of that length.
            let mut string = here.run("SETRANGE string 30000000 x");
            assert_eq!(string, integer(30_000_001));
            string = here.call(&["MIGRATE", "127.0.0.1", &port, "string", "0", "60000"]);
            assert!(string.is_error(), "{string:?}");

            if key == "valkey" {
                // Its dump cannot be split, and the error says so; a server that accepts the length accepts the filter.
                assert!(here.run("BF.SCANDUMP valkey 0").is_error());
                assert_eq!(there.run("CONFIG SET proto-max-bulk-len 512mb"), ok());
                assert_eq!(here.call(&["MIGRATE", "127.0.0.1", &port, key, "0", "60000"]), ok());
                assert_eq!(here.run("EXISTS valkey"), integer(0));
            } else {
                let (records, bytes) = carry(&mut here, &mut there, key);
                eprintln!("{key}: refused in one piece, carried in {records} records with {bytes} bytes of data");
                assert!(bytes > 20 << 20, "{key}: {bytes} bytes");
            }
            assert_eq!(there.run(&format!("DEBUG DIGEST-VALUE {key}")), digest, "{key}");
            assert_eq!(denied(&mut there, key, &members), 0, "{key}");
        }
    });
}

#[test]
fn a_filter_of_600_mb_is_copied_record_by_record() {
    on_every_server(|program| {
        let (source, target) = (Server::start(program), Server::start(program));
        let (mut here, mut there) = (source.connect(), target.connect());
        let members = items("member", 50);
        // RedisBloom's chunks do not compress zeros: all of its bytes are transferred.
        let theirs = if effort(1) > 1 { 500_000_000 } else { 170_000_000 };
        here.run("BF.RESERVE native 0.01 500000000 NONSCALING");
        here.run(&format!("BF.RESERVE redisbloom 0.01 {theirs} NONSCALING LAYOUT redisbloom"));
        for (key, least) in [("native", 600_000_000), ("redisbloom", theirs * 6 / 5 - 10_000_000)] {
            here.batched(&[b"BF.MADD", key.as_bytes()], &members);
            let size = here.run(&format!("BF.INFO {key} SIZE")).elements()[0].number();
            assert!(size >= least, "{key} has {size} bytes");
            let (records, bytes) = carry(&mut here, &mut there, key);
            let digest = here.run(&format!("DEBUG DIGEST-VALUE {key}"));
            assert_eq!(there.run(&format!("DEBUG DIGEST-VALUE {key}")), digest, "{key}");
            assert_eq!(denied(&mut there, key, &members), 0, "{key}");
            assert!(!there.run(&format!("BF.ADD {key} more")).is_error());
            eprintln!("{key}: {size} bytes went over in {records} records with {bytes} bytes of data");
            here.run(&format!("UNLINK {key}"));
            there.run(&format!("UNLINK {key}"));
        }
    });
}

#[test]
fn adds_during_a_dump_cause_no_false_negatives_in_the_copy() {
    on_every_server(|program| {
        let (source, target) = (Server::start(program), Server::start(program));
        let (mut here, mut there) = (source.connect(), target.connect());
        for round in 0..effort(5) {
            let key = format!("k{round}");
            // The first layers have room for 3 MiB of bits; the second round outgrows them in the middle of the dump. In the
            // fifth round the newest layer receives twice as many items during the dump as it had.
            here.run(&format!("BF.RESERVE {key} 0.01 {} EXPANSION 2", 2_000_000 / (1 + round * 4)));
            let before = items(&format!("{round}/before"), 200_000);
            here.batched(&[b"BF.MADD", key.as_bytes()], &before);
            let (mut during, mut records) = (Vec::new(), 0);
            scan_dump(&mut here, &key, |here, iterator, data| {
                load_chunk(&mut there, &key, iterator, data);
                let some = items(&format!("{round}/during/{records}"), 100_000);
                here.batched(&[b"BF.MADD", key.as_bytes()], &some);
                during.extend(some);
                records += 1;
            });
            assert!(records >= 2);
            assert_eq!(denied(&mut there, &key, &before), 0, "what was there when the dump began is in the copy");
            assert_eq!(denied(&mut here, &key, &during), 0);
            let missing = denied(&mut there, &key, &during);

            // The copy is an ordinary filter: after the late items are added again, it has everything.
            there.batched(&[b"BF.MADD", key.as_bytes()], &during);
            assert_eq!(denied(&mut there, &key, &during), 0);
            assert_eq!(denied(&mut there, &key, &before), 0);
            let absent = items(&format!("{round}/absent"), 50_000);
            let wrong = absent.len() - denied(&mut there, &key, &absent);
            // 500 expected at 1%, with a standard deviation of 22.
            assert!(wrong < 700, "{wrong} of {} absent items are called present", absent.len());
            let late = during.len();
            eprintln!("dump under adds: {records} records, {late} added meanwhile, {missing} of them not in the copy");
            here.run(&format!("DEL {key}"));
            there.run(&format!("DEL {key}"));
        }
    });
}

#[test]
fn a_dump_never_mixes_a_filter_with_its_replacement() {
    on_every_server(|program| {
        let (source, target) = (Server::start(program), Server::start(program));
        let (mut here, mut there) = (source.connect(), target.connect());
        let members = items("member", 1000);
        let make = |client: &mut Connection| {
            client.run("BF.RESERVE k 0.01 3000000");
            client.batched(&[b"BF.MADD", b"k"], &members);
        };
        make(&mut here);
        let reply = here.run("BF.SCANDUMP k 0");
        let iterator = reply.elements()[0].number().to_string();
        load_chunk(&mut there, "k", &iterator, reply.elements()[1].bytes());
        here.run("DEL k");
        make(&mut here);
        assert!(here.run(&format!("BF.SCANDUMP k {iterator}")).is_error());
        assert_eq!(there.run("BF.EXISTS k member/1"), error("ERR filter is still being loaded"));
        // The partial copy is deleted, and the dump starts again.
        assert_eq!(there.run("DEL k"), integer(1));
        carry(&mut here, &mut there, "k");
        assert_eq!(there.run("DEBUG DIGEST-VALUE k"), here.run("DEBUG DIGEST-VALUE k"));
        assert_eq!(there.run("TYPE k"), simple("bloomgate"));
    });
}
