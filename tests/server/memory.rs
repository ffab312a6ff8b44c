//! The memory of a filter: as reported by MEMORY USAGE, and as measured by the system.

use std::fs;
use std::process::Command;

use crate::reserve::sizes_of_a_refusal;
use testing::{
    Connection, Reply, Server, eventually, integer, load_records, ok, on_every_server, records, with_client,
};

fn memory_usage(client: &mut Connection, key: &str) -> i64 {
    client.run(&format!("MEMORY USAGE {key}")).number()
}

/// The size without the allocator's rounding.
fn size(client: &mut Connection, key: &str) -> i64 {
    client.run(&format!("BF.INFO {key}")).field("Size").number()
}

#[test]
fn a_reserved_filter_is_no_larger_than_redisblooms() {
    with_client(|_, client| {
        for (key, rate, most_bits) in [("percent", "0.01", 11.03), ("permille", "0.001", 15.85)] {
            client.run(&format!("BF.RESERVE {key} {rate} 1000000"));
            let bytes = size(client, key);
            let bits = bytes as f64 * 8.0 / 1e6;
            eprintln!("1,000,000 items at {rate}: {bytes} bytes, {bits:.3} bits an item");
            assert!(bits <= most_bits, "{rate}: {bits} bits an item");
        }
    });
}

#[test]
fn a_small_empty_filter_takes_440_bytes_at_most() {
    with_client(|_, client| {
        client.run("BF.RESERVE k 0.01 100");
        let bytes = memory_usage(client, "k");
        eprintln!("an empty default filter: {bytes} bytes");
        assert!(bytes <= 440 + client.alignment_bytes(bytes), "{bytes} bytes");
    });
}

#[test]
fn a_filter_that_grew_to_ten_million_items_takes_22_bits_an_item_at_most() {
    with_client(|_, client| {
        // The seed is fixed: the rate of a grown filter varies with its first 100 items, and with it the number of items sent.
        assert_eq!(client.run("BF.RESERVE k 0.01 100 SEED 500"), ok());
        // Enough items that ten million are new, in batches of 1000, with several batches in flight.
        let mut sent = 0;
        while client.run("BF.CARD k").number() < 10_000_000 {
            let missing = 10_000_000 - client.run("BF.CARD k").number();
            let batches = (missing / 1000).clamp(1, 200);
            for _ in 0..batches {
                let mut words = vec!["BF.MADD".to_owned(), "k".to_owned()];
                words.extend((0..missing.min(1000)).map(|number| (sent + number).to_string()));
                sent += missing.min(1000);
                client.send(&words).expect("the server takes it");
            }
            for _ in 0..batches {
                assert!(!client.receive().expect("a reply").is_error());
            }
        }
        assert_eq!(client.run("BF.CARD k"), integer(10_000_000));
        let bytes = size(client, "k");
        let bits = bytes as f64 * 8.0 / 1e7;
        let layers = client.run("BF.INFO k").field("Number of filters").number();
        eprintln!("grown to 10,000,000 items: {bytes} bytes, {layers} layers, {bits:.3} bits an item");
        assert!(bits <= 22.0, "{bits} bits an item");
        let wrong = sent - 10_000_000;
        assert!(wrong as f64 <= sent as f64 * 0.01, "{wrong} of {sent} new items were called known");
    });
}

#[test]
fn ten_gibibytes_take_no_memory_until_they_are_used() {
    with_client(|server, client| {
        client.run("BF.RESERVE warm-up 0.01 100");
        let before = resident_bytes(server);
        let capacity = reserve_about_ten_gibibytes(client);
        let size = size(client, "k");
        let grown = resident_bytes(server) - before;
        eprintln!("{capacity} items: {size} bytes, resident memory grew by {grown}");
        eprintln!("{}", client.info("cmdstat_bf.reserve"));
        assert!(size > capacity, "{size} bytes for {capacity} items");
        assert!(grown < 8 << 20, "resident memory grew by {grown} bytes");

        // The filter works like any other.
        assert_eq!(client.run("BF.ADD k a"), integer(1));
        assert_eq!(client.run("BF.EXISTS k a"), integer(1));
        assert_eq!(client.run("BF.EXISTS k b"), integer(0));
        let grown = resident_bytes(server) - before;
        assert!(grown < 8 << 20, "resident memory grew by {grown} bytes");
        assert_eq!(client.run("UNLINK k"), integer(1));
        eventually("the memory to be given back", || client.info_number("used_memory") < 100 << 20);
    });
}

/// A chunk with a single bit touches a single page.
#[test]
fn a_sparse_filter_stays_sparse_when_it_is_loaded() {
    with_client(|server, client| {
        client.run("BF.RESERVE bits 0.01 100000000 NONSCALING");
        client.run("BF.RESERVE counters 0.01 20000000 NONSCALING COUNTING");
        client.run("BF.RESERVE windowed 0.01 100000000 WINDOW 3600 BUCKETS 3");
        client.run("BF.RESERVE redisbloom 0.01 100000000 NONSCALING LAYOUT redisbloom");
        client.run("BF.RESERVE valkey-bloom 0.01 50000000 TIGHTENING 0.5 NONSCALING");
        let items: Vec<String> = (0..500).map(|number| format!("item {number}")).collect();
        let keys = ["bits", "counters", "windowed", "redisbloom"];
        for key in keys.iter().chain(&["valkey-bloom"]) {
            client.batched(&[b"BF.MADD", key.as_bytes()], &items);
        }
        let before = resident_bytes(server);
        let expect_sparse = |after: &str| {
            let grown = resident_bytes(server) - before;
            eprintln!("{grown} more bytes are resident after {after}");
            assert!(grown < 64 << 20, "{grown} more bytes are resident after {after}");
        };
        for key in keys {
            let records = records(client, key);
            client.run(&format!("DEL {key}"));
            load_records(client, key, &records);
            expect_sparse(key);
        }
        // The server reads a layer of another module's layout as one string, whose memory it may keep for later allocations.
        assert_eq!(client.run("DEBUG RELOAD"), ok());
        client.run("MEMORY PURGE");
        expect_sparse("DEBUG RELOAD");
        for key in ["redisbloom", "valkey-bloom"] {
            assert!(client.batched(&[b"BF.MEXISTS", key.as_bytes()], &items).iter().all(|found| *found), "{key}");
        }
    });
}

/// The size of a filter whose cells take 17 MiB: jemalloc rounds them up to 20.
const ROUNDED_UP: &str = "0.01 14700000 NONSCALING";

/// If the size of the cells is exactly a size class of the allocator, padding for alignment would need the next class.
#[test]
fn alignment_takes_no_larger_size() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        let (mut low, mut high) = (1_600_000, 1_800_000);
        while high - low > 1 {
            let capacity = i64::midpoint(low, high);
            let before = client.info_number("used_memory");
            assert_eq!(client.run(&format!("BF.RESERVE k 0.01 {capacity} NONSCALING")), ok());
            let taken = client.info_number("used_memory") - before;
            let size = size(&mut client, "k");
            client.run("DEL k");
            client.wait_for_frees();
            if size <= (2 << 20) + 1024 {
                low = capacity;
                assert!(taken < 2200 << 10, "{taken} bytes for {size}");
            } else {
                high = capacity;
            }
        }
    });
}

/// How far a filter can grow depends on the memory that the allocator takes, not on the size of the layers.
#[test]
fn max_scaled_capacity_counts_the_allocators_rounding() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        let rounds = client.info("mem_allocator").contains("jemalloc");
        assert_eq!(client.run("BF.RESERVE k 0.01 10000000 EXPANSION 1"), ok());
        // The next layer has 17.4 MiB, which jemalloc rounds up to 20.
        for (room, grows) in [(16, false), (19, !rounds), (22, true)] {
            let limit = client.info_number("used_memory") + (room << 20);
            assert_eq!(client.run(&format!("CONFIG SET maxmemory {limit}")), ok());
            let reach = client.run("BF.INFO k MAXSCALEDCAPACITY").number();
            assert_eq!(reach, if grows { 20_000_000 } else { 10_000_000 }, "with room for {room} MiB");
        }
    });
}

#[test]
fn the_ceiling_counts_the_allocators_rounding() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        assert_eq!(client.run(&format!("BF.RESERVE k {ROUNDED_UP}")), ok());
        let (size, usage) = (size(&mut client, "k"), memory_usage(&mut client, "k"));
        let rounds = client.info("mem_allocator").contains("jemalloc");
        assert_eq!(usage - size > 2 << 20, rounds, "{size} bytes take {usage}");
        let payload = client.run("DUMP k").bytes().to_vec();
        let reserve = format!("BF.RESERVE new {ROUNDED_UP}");
        for (room, is_refused) in [(size + (1 << 20), rounds), (usage + (1 << 20), false)] {
            for command in [&reserve, "COPY k new", "BF.MERGE new k", "RESTORE new 0"] {
                let limit = client.info_number("used_memory") + room;
                assert_eq!(client.run(&format!("CONFIG SET maxmemory {limit}")), ok());
                let mut words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
                if command.starts_with("RESTORE") {
                    words.push(&payload);
                }
                let reply = client.call(&words);
                assert_eq!(reply.is_error(), is_refused, "{command} with room for {room} bytes: {reply:?}");
                assert_eq!(client.run("SET a write"), ok(), "after {command} with room for {room} bytes");
                client.run("CONFIG SET maxmemory 0");
                assert_eq!(client.run("UNLINK new"), integer((!is_refused).into()));
                client.wait_for_frees();
            }
        }
    });
}

/// Reserves 10 GiB, or half of the memory that the server reports if that is less. Returns the capacity.
fn reserve_about_ten_gibibytes(client: &mut Connection) -> i64 {
    let capacity = 8_870_000_000;
    match client.run(&format!("BF.RESERVE k 0.01 {capacity} NONSCALING")) {
        Reply::Simple(_) => capacity,
        refusal => {
            let available = sizes_of_a_refusal(&refusal).1;
            let capacity = (available * 8 / 2 / 11) as i64;
            eprintln!("this machine has {available} bytes; {capacity} items instead");
            assert_eq!(client.run(&format!("BF.RESERVE k 0.01 {capacity} NONSCALING")), ok());
            capacity
        }
    }
}

/// The resident memory of the server's process.
fn resident_bytes(server: &Server) -> i64 {
    let id = server.process_id();
    let kibibytes = match fs::read_to_string(format!("/proc/{id}/status")) {
        Ok(status) => status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS").replace("kB", ""),
        Err(_) => {
            let output = Command::new("ps").args(["-o", "rss=", "-p", &id.to_string()]).output().expect("ps");
            String::from_utf8_lossy(&output.stdout).into_owned()
        }
    };
    kibibytes.trim().parse::<i64>().expect("a number of KiB") * 1024
}
