//! Limits at which a filter may not be created or grow: the ceiling, maxmemory, the number of layers. The command gets an error, and
//! existing filters stay unchanged.

use crate::reserve::sizes_of_a_refusal;
use testing::{Connection, Reply, Server, Stop, array, error, integer, ok, on_every_server, with_client};

/// Everything about a filter that a failed add must not change.
fn state(client: &mut Connection, key: &str) -> Vec<Reply> {
    [format!("BF.INFO {key}"), format!("BF.CARD {key}"), format!("DEBUG DIGEST-VALUE {key}")]
        .iter()
        .map(|line| client.run(line))
        .collect()
}

/// Adds numbered items in one command until one is refused. Returns the items in the filter and the error.
fn fill(client: &mut Connection, key: &str, count: usize) -> (Vec<String>, Reply) {
    let mut words = vec!["BF.MADD".to_owned(), key.to_owned()];
    words.extend((0..count).map(|number| format!("item {number}")));
    let reply = client.call(&words);
    let (last, answers) = reply.elements().split_last().expect("an answer");
    assert!(last.is_error(), "{count} items went into {key}: {last:?}");
    (words[2..2 + answers.len()].to_vec(), last.clone())
}

#[test]
fn the_ceiling_binds_creation() {
    with_client(|_, client| {
        assert_eq!(client.run("CONFIG SET bf.max-filter-bytes 10000"), ok());
        for line in
            ["BF.RESERVE k 0.01 100000", "BF.INSERT k CAPACITY 100000 ITEMS a", "BF.RESERVE k 0.01 100000 NONSCALING"]
        {
            let (asked, available) = sizes_of_a_refusal(&client.run(line));
            assert_eq!(available, 10_000, "{line}");
            assert!((100_000..200_000).contains(&asked), "{line}: {asked} bytes asked");
        }
        assert_eq!(client.run("EXISTS k"), integer(0));
        assert_eq!(client.run("BF.RESERVE k 0.01 1000"), ok());
        // Lower than the size of a default filter.
        client.run("CONFIG SET bf.max-filter-bytes 1");
        sizes_of_a_refusal(&client.run("BF.ADD new a"));
        sizes_of_a_refusal(&client.run("BF.MADD new a b"));
        assert_eq!(client.run("EXISTS new"), integer(0));
        client.run("CONFIG SET bf.max-filter-bytes 0");
        assert_eq!(client.run("BF.RESERVE large 0.01 1000000"), ok());
    });
}

#[test]
fn the_ceiling_binds_growth_and_keeps_the_filter_unchanged() {
    on_every_server(|program| {
        let mut server = Server::with(program).line("appendonly yes").start();
        let kinds = [
            ("native", "BF.RESERVE native 0.01 500 SEED 1"),
            ("keyed", "BF.RESERVE keyed 0.01 500 HASH siphash"),
            ("redisbloom", "BF.RESERVE redisbloom 0.01 500 LAYOUT redisbloom"),
            ("valkey-bloom", "BF.INSERT valkey-bloom CAPACITY 500 TIGHTENING 0.5"),
        ];
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            client.run("FLUSHALL");
            for (key, creation) in kinds {
                client.run("CONFIG SET bf.max-filter-bytes 4000");
                client.run(creation);
                let (known, refusal) = fill(&mut client, key, 10_000);
                assert!(known.len() >= 500, "{key}: {} items", known.len());
                let (asked, available) = sizes_of_a_refusal(&refusal);
                assert!(asked > available && available < 4000, "{key}: {asked} asked, {available} available");
                assert!(client.run(&format!("BF.INFO {key}")).field("Size").number() <= 4000);
                let before = state(&mut client, key);
                // A full filter reports one new item in a hundred as present.
                let mut is_absent =
                    |item: &String| client.run(&format!("BF.EXISTS {key} {item}")) == client.answer(false);
                let new = (0..100).map(|number| format!("new-{number}")).find(|item| is_absent(item)).unwrap();
                sizes_of_a_refusal(&client.run(&format!("BF.ADD {key} {new}")));
                for command in [format!("BF.INSERT {key} ITEMS"), format!("BF.MADD {key}")] {
                    let words: Vec<&str> = command.split(' ').chain([known[0].as_str(), new.as_str(), "x"]).collect();
                    let reply = client.call(&words);
                    assert_eq!((reply.elements().len(), &reply.elements()[0]), (2, &client.answer(false)), "{key}");
                    sizes_of_a_refusal(&reply.elements()[1]);
                }
                assert_eq!(state(&mut client, key), before, "{key}");
                assert!(client.batched(&[b"BF.MEXISTS", key.as_bytes()], &known).iter().all(|&present| present));
                assert!(!client.batched(&[b"BF.MADD", key.as_bytes()], &known).iter().any(|&new| new));
                assert_eq!(client.run(&format!("BF.EXISTS {key} {new}")), client.answer(false));
                // With a higher ceiling it grows.
                client.run("CONFIG SET bf.max-filter-bytes 0");
                let layers = client.run(&format!("BF.INFO {key}")).field("Number of filters").number();
                assert_eq!(client.run(&format!("BF.ADD {key} {new}")), client.answer(true));
                let info = client.run(&format!("BF.INFO {key}"));
                assert_eq!(info.field("Number of filters"), &integer(layers + 1), "{key}");
                assert!(info.field("Size").number() > 4000, "{key}");
            }
        }
        // The ceiling applies to clients, not to existing data: the file has filters above it.
        let mut client = server.connect();
        client.run("CONFIG SET bf.max-filter-bytes 4000");
        client.run("CONFIG REWRITE");
        let before = client.run("DEBUG DIGEST");
        server.restart(Stop::Kill);
        let mut client = server.connect();
        assert_eq!(client.run("CONFIG GET bf.max-filter-bytes").elements()[1].text(), "4000");
        assert_eq!(client.run("DEBUG DIGEST"), before);
    });
}

#[test]
fn maxmemory_binds_creation_and_growth() {
    with_client(|_, client| {
        client.run("BF.RESERVE k 0.01 1000000 SEED 1");
        let room = 1_500_000;
        let limit = client.info_number("used_memory") + room;
        assert_eq!(client.run(&format!("CONFIG SET maxmemory {limit}")), ok());

        let (asked, available) = sizes_of_a_refusal(&client.run("BF.RESERVE new 0.01 10000000"));
        assert!(asked > 10_000_000 && available <= room as u128, "{asked} asked, {available} available");
        sizes_of_a_refusal(&client.run("BF.INSERT new CAPACITY 10000000 ITEMS a"));
        assert_eq!(client.run("EXISTS new"), integer(0));
        assert_eq!(client.run("BF.RESERVE small 0.01 10000"), ok());

        // The next layer of k has twice its capacity and does not fit; filling it needs no memory.
        let items: Vec<String> = (0..999_000).map(|number| format!("item {number}")).collect();
        client.batched(&[b"BF.MADD", b"k"], &items);
        let mut number = items.len();
        let refusal = loop {
            let reply = client.run(&format!("BF.ADD k {number}"));
            if reply.is_error() {
                break reply;
            }
            number += 1;
        };
        sizes_of_a_refusal(&refusal);
        assert_eq!(client.run("BF.CARD k"), integer(1_000_000));
        let before = state(client, "k");
        sizes_of_a_refusal(&client.run(&format!("BF.ADD k {number}")));
        assert_eq!(state(client, "k"), before);
        assert_eq!(client.run("BF.ADD k 999000"), integer(0), "an item that is in needs no room");
        assert!(client.batched(&[b"BF.MEXISTS", b"k"], &items).iter().all(|&present| present));

        // Above maxmemory the server itself refuses every command that may allocate; lookups are answered.
        client.run("CONFIG SET maxmemory 1");
        for line in ["BF.RESERVE x 0.01 1", "BF.ADD k a", "BF.MADD k a", "BF.INSERT k ITEMS a", "BF.LOADCHUNK k 1 x"] {
            assert!(client.run(line).error_text().starts_with("OOM"), "{line}");
        }
        for line in ["BF.MEXISTS k 999000", "BF.INFO k", "BF.DEBUG k", "BF.SCANDUMP k 0"] {
            assert!(!client.run(line).is_error(), "{line}");
        }
        assert_eq!(client.run("BF.EXISTS k 999000"), integer(1));
        assert_eq!(client.run("BF.CARD k"), integer(1_000_000));
        client.run("CONFIG SET maxmemory 0");
        assert_eq!(client.run(&format!("BF.ADD k {number}")), integer(1));
    });
}

/// The server checks `maxmemory` when a script begins, so only the module's ceiling refuses the filters that it creates.
#[test]
fn maxmemory_binds_many_creations_in_a_moment() {
    with_client(|_, client| {
        let room = 64 << 20;
        let limit = client.info_number("used_memory") + room;
        assert_eq!(client.run(&format!("CONFIG SET maxmemory {limit}")), ok());
        let script = "local created = 0
            for i = 1, 200 do
                local reply = redis.pcall('BF.RESERVE', KEYS[1] .. i, '0.01', '800000')
                if not reply.err then created = created + 1 end
            end
            return created";
        let created = client.call(&["EVAL", script, "1", "{k}"]).number();
        assert!((40..64).contains(&created), "{created} filters of 1 MiB in {room} bytes");
        // The script, and what the server allocates after its end, take some KiB.
        let used = client.info_number("used_memory");
        assert!(used <= limit + (1 << 20), "{used} bytes of {limit}");
    });
}

const NOT_COPIED: &str = "ERR module key failed to copy";

#[test]
fn the_ceiling_binds_a_copy() {
    on_every_server(|program| {
        let mut server = Server::start(program);
        let mut client = server.connect();
        for line in ["BF.RESERVE k 0.01 100000", "BF.RESERVE theirs 0.01 100000 LAYOUT redisbloom"] {
            assert_eq!(client.run(line), ok());
        }
        for key in ["k", "theirs"] {
            let size = client.run(&format!("BF.INFO {key}")).field("Size").number();
            client.run(&format!("CONFIG SET bf.max-filter-bytes {size}"));
            assert_eq!(client.run(&format!("COPY {key} copied")), integer(1));
            client.run("DEL copied");
            client.run(&format!("CONFIG SET bf.max-filter-bytes {}", size - 1));
            let before = state(&mut client, key);
            assert_eq!(client.run(&format!("COPY {key} copied")), error(NOT_COPIED));
            assert_eq!(client.run("EXISTS copied"), integer(0));
            assert_eq!(state(&mut client, key), before);
            let reason = format!("cannot copy a filter: Insufficient memory to create filter: {size} bytes asked");
            assert!(server.log().contains(&reason), "the log says why");
        }
        // A snapshot contains a filter above the ceiling.
        client.run("CONFIG SET bf.max-filter-bytes 500");
        assert_eq!(client.run("CONFIG REWRITE"), ok());
        server.restart(Stop::Save);
        let mut client = server.connect();
        assert_eq!(client.run("BF.EXISTS k a"), integer(0));
        assert_eq!(client.run("COPY k copied"), error(NOT_COPIED));
        assert_eq!(client.run("COPY k copied DB 3"), error(NOT_COPIED));
        assert_eq!(client.run("EXISTS copied"), integer(0));
    });
}

#[test]
fn maxmemory_binds_a_copy() {
    with_client(|_, client| {
        assert_eq!(client.run("BF.RESERVE k 0.01 4000000"), ok());
        assert_eq!(client.run("BF.RESERVE small 0.01 10000"), ok());
        let header = client.run("BF.SCANDUMP k 0");
        let iterator = header.elements()[0].number().to_string();
        let words = [b"BF.LOADCHUNK".as_slice(), b"arriving", iterator.as_bytes(), header.elements()[1].bytes()];
        assert_eq!(client.call(&words), ok());
        let limit = client.info_number("used_memory") + 2_000_000;
        assert_eq!(client.run(&format!("CONFIG SET maxmemory {limit}")), ok());
        for key in ["k", "arriving"] {
            assert_eq!(client.run(&format!("COPY {key} copied")), error(NOT_COPIED), "{key}");
        }
        assert!(client.info_number("used_memory") < limit);
        assert_eq!(client.run("COPY small copied"), integer(1));
        assert_eq!(client.run("CONFIG SET maxmemory 0"), ok());
        assert_eq!(client.run("COPY k large"), integer(1));
        assert_eq!(client.run("DEBUG DIGEST-VALUE large"), client.run("DEBUG DIGEST-VALUE k"));
    });
}

#[test]
fn a_full_cache_that_evicts_makes_room_for_a_filter() {
    with_client(|_, client| {
        client.run("CONFIG SET maxmemory 20mb");
        client.run("CONFIG SET maxmemory-policy allkeys-lru");
        client.run("DEBUG POPULATE 40000 cached 500");
        client.run("SET one more");
        assert!(client.info_number("evicted_keys") > 0, "the cache is full");
        // The server's LRU clock counts seconds: only after that is the filter newer than all other keys.
        std::thread::sleep(std::time::Duration::from_millis(1500));

        assert_eq!(client.run("BF.RESERVE seen 0.01 300000"), ok());
        assert_eq!(client.run("BF.ADD seen a"), integer(1));
        let (asked, available) = sizes_of_a_refusal(&client.run("BF.RESERVE large 0.01 20000000"));
        assert!(asked > 20 << 20 && available < 20 << 20, "all filters together stay below maxmemory");
        assert_eq!(client.run("BF.EXISTS seen a"), integer(1));
    });
}

#[test]
fn a_capacity_above_32_bits_is_created_if_it_fits() {
    with_client(|_, client| {
        // 2^40 items at 1% take about 1.4 TiB: refused for lack of memory if the machine has less, created if it has more.
        match client.run("BF.RESERVE k 0.01 1099511627776 NONSCALING") {
            Reply::Error(text) => {
                let (asked, available) = sizes_of_a_refusal(&Reply::Error(text));
                assert!(asked > 1 << 40 && available < asked, "{asked} asked, {available} available");
                assert_eq!(client.run("EXISTS k"), integer(0));
            }
            reply => assert_eq!(reply, ok()),
        }
        // 2^32 + 1 items at the highest rate take about 1.5 GiB.
        let reply = client.run("BF.RESERVE large 0.25 4294967297 NONSCALING");
        assert_eq!(reply, ok(), "this test needs 1.6 GB of memory");
        assert_eq!(client.run("BF.INFO large CAPACITY"), array([integer(4_294_967_297)]));
        assert_eq!(client.run("BF.MADD large a b a"), array([integer(1), integer(1), integer(0)]));
        assert_eq!(client.run("BF.MEXISTS large a b"), array([integer(1), integer(1)]));
    });
}
