//! BF.INFO: all fields in their order, or one of them, in the shape that clients parse.

use testing::{Connection, Reply, Server, Stop, array, error, eventually, integer, nil, ok, on_every_server, simple};

const NAMES: [&str; 5] = ["Capacity", "Size", "Number of filters", "Number of items inserted", "Expansion rate"];
const WORDS: [&str; 5] = ["CAPACITY", "SIZE", "FILTERS", "ITEMS", "EXPANSION"];

#[test]
fn the_whole_is_five_named_fields() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("BF.RESERVE k 0.01 100 EXPANSION 3");
        client.run("BF.MADD k a b");
        let reply = client.run("BF.INFO k");
        let size = reply.elements()[3].clone();
        assert!(size.number() > 0);
        let values = [integer(100), size, integer(1), integer(2), integer(3)];
        let flat: Vec<Reply> =
            NAMES.iter().zip(&values).flat_map(|(name, value)| [simple(name), value.clone()]).collect();
        assert_eq!(reply, array(flat));

        let mut client = server.connect_speaking(3);
        let pairs = NAMES.iter().zip(values).map(|(name, value)| (simple(name), value)).collect();
        assert_eq!(client.run("bf.info k"), Reply::Map(pairs));
    });
}

#[test]
fn one_field_comes_alone() {
    on_every_server(|program| {
        let server = Server::start(program);
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            client.run("FLUSHALL");
            client.run("BF.RESERVE growing 0.01 100");
            client.run("BF.RESERVE fixed 0.01 100 NONSCALING");
            for key in ["growing", "fixed"] {
                let whole = client.run(&format!("BF.INFO {key}"));
                for (name, word) in NAMES.iter().zip(WORDS) {
                    let value = whole.field(name).clone();
                    let expected = match protocol {
                        2 => array([value]),
                        _ => Reply::Map(vec![(simple(name), value)]),
                    };
                    assert_eq!(client.run(&format!("BF.INFO {key} {word}")), expected);
                    assert_eq!(client.run(&format!("BF.INFO {key} {}", word.to_lowercase())), expected);
                }
            }
            assert_eq!(client.run("BF.INFO fixed").field("Expansion rate"), &nil(protocol));
        }
    });
}

#[test]
fn bad_questions_are_errors() {
    on_every_server(|program| {
        let server = Server::start(program);
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            client.run("FLUSHALL");
            client.run("BF.ADD k a");
            client.run("SET string x");
            let unknown = error("Invalid information value");
            for field in ["FROBNICATE", "", "CAP", "CAPACITYX", "Number"] {
                assert_eq!(client.call(&["BF.INFO", "k", field]), unknown, "{field:?}");
            }
            assert_eq!(client.run("BF.INFO missing"), error("ERR not found"));
            assert_eq!(client.run("BF.INFO missing SIZE"), error("ERR not found"));
        }
    });
}

#[test]
fn size_grows_with_the_filter_and_is_part_of_memory_usage() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        let mut last = 0;
        for capacity in [100, 10_000, 1_000_000, 100_000_000] {
            let key = format!("k{capacity}");
            client.run(&format!("BF.RESERVE {key} 0.01 {capacity}"));
            let size = client.run(&format!("BF.INFO {key} SIZE")).elements()[0].number();
            let usage = client.run(&format!("MEMORY USAGE {key}")).number();
            assert!(size > last && size > capacity, "{size} bytes for {capacity} items");
            // Beside the value, MEMORY USAGE counts the key's entry in the server's table, and what the bits needed on top to
            // begin at a cache line or a page.
            let aligned = if size < 256 << 10 { 63 } else { 4095 };
            assert!((size..size + aligned + 200).contains(&usage), "MEMORY USAGE {usage}, Size {size}");
            last = size;
        }
    });
}

/// What a filter is made of, not what the allocator gave for it: where that aligns to 16 bytes only, equal filters lie in
/// blocks of different sizes.
#[test]
fn equal_filters_have_the_same_size_wherever_they_lie() {
    on_every_server(|program| {
        const TOTAL: &str = "bf_bloom_total_memory_bytes";
        let mut server = Server::start(program);
        let mut client = server.connect();
        let size = |client: &mut Connection, key: &str| client.run(&format!("BF.INFO {key}")).field("Size").number();
        client.run("BF.RESERVE fresh 0.01 100");
        assert_eq!(size(&mut client, "fresh"), 248, "the number that it had on the servers that align by themselves");
        let lines = [
            "BF.RESERVE k 0.01 100 SEED 1",
            "BF.RESERVE k 0.001 5000 SEED 1",
            "BF.RESERVE k 0.01 1000000 SEED 1",
            "BF.INSERT k CAPACITY 10 SEED 1 ITEMS 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25",
            "BF.INSERT k CAPACITY 10 LAYOUT redisbloom ITEMS 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21",
            "BF.INSERT k CAPACITY 10 TIGHTENING 0.5 ITEMS 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22",
        ];
        for line in lines {
            client.run(line);
            let expected = size(&mut client, "k");
            let sizes: Vec<i64> = (0..40)
                .map(|number| {
                    // What lies between is of another size each time.
                    client.run(&format!("SET between-{number} {}", "x".repeat(number * 7 + 1)));
                    assert_eq!(client.run(&format!("COPY k copy-{number}")), integer(1));
                    size(&mut client, &format!("copy-{number}"))
                })
                .collect();
            assert!(sizes.iter().all(|size| *size == expected), "{line}: {expected} and {sizes:?}");
            let sum = expected * 41 + size(&mut client, "fresh");
            eventually("INFO to tell all of them together", || client.info_number(TOTAL) == sum);
            assert_eq!(client.run("DEBUG RELOAD"), ok());
            assert_eq!(size(&mut client, "k"), expected, "{line}: loaded");
            // What was there before may be freed in the background.
            eventually("INFO to tell what was loaded", || client.info_number(TOTAL) == sum);
            let names: Vec<String> = (0..40).map(|number| format!("copy-{number}")).collect();
            client.call(&[&["DEL".to_owned(), "k".to_owned()], &names[..]].concat());
        }
        server.restart(Stop::Save);
        let mut client = server.connect();
        assert_eq!(size(&mut client, "fresh"), 248);
        assert_eq!(client.info_number(TOTAL), 248);
    });
}

/// As in RedisBloom.
#[test]
fn the_key_is_looked_at_before_the_field_or_the_iterator() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("SET text x");
        for line in ["BF.INFO none nonsense", "BF.SCANDUMP none nonsense"] {
            assert_eq!(client.run(line), error("ERR not found"), "{line}");
        }
        for line in ["BF.INFO text nonsense", "BF.SCANDUMP text nonsense"] {
            assert!(client.run(line).error_text().starts_with("WRONGTYPE"), "{line}");
        }
        assert!(client.run("BF.INFO none SIZE more").error_text().contains("wrong number of arguments"));
    });
}
