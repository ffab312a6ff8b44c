//! BF.INFO: all fields in order, or one field, in the form that clients parse.

use testing::{
    Connection, Reply, Server, Stop, array, error, eventually, in_both_protocols, integer, nil, ok, on_every_server,
    simple, with_client,
};

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
fn one_field_is_returned_alone() {
    in_both_protocols(|client, protocol| {
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
    });
}

#[test]
fn bad_questions_are_errors() {
    in_both_protocols(|client, _| {
        client.run("BF.ADD k a");
        let unknown = error("Invalid information value");
        for field in ["FROBNICATE", "", "CAP", "CAPACITYX", "Number"] {
            assert_eq!(client.call(&["BF.INFO", "k", field]), unknown, "{field:?}");
        }
    });
}

#[test]
fn size_grows_with_the_filter_and_is_part_of_memory_usage() {
    with_client(|_, client| {
        let mut last = 0;
        for capacity in [100, 10_000, 1_000_000, 100_000_000] {
            let key = format!("k{capacity}");
            client.run(&format!("BF.RESERVE {key} 0.01 {capacity}"));
            let size = client.run(&format!("BF.INFO {key} SIZE")).elements()[0].number();
            let usage = client.run(&format!("MEMORY USAGE {key}")).number();
            assert!(size > last && size > capacity, "{size} bytes for {capacity} items");
            // Beside the value, MEMORY USAGE counts the key's entry in the server's table, and what the allocator adds to the bits: up to
            // a quarter. A small filter has fewer bytes of fields than Size counts.
            assert!((size - 56..size + size / 4 + 300).contains(&usage), "MEMORY USAGE {usage}, Size {size}");
            last = size;
        }
    });
}

/// The size counts the parts of a filter, not the allocator's blocks: with 16-byte alignment, equal filters may have blocks of different
/// sizes.
#[test]
fn equal_filters_have_the_same_size_wherever_they_lie() {
    on_every_server(|program| {
        const TOTAL: &str = "bf_bloom_total_memory_bytes";
        /// The fields as the first release had them, and three blocks.
        const FRESH: i64 = 120 + 192;
        let mut server = Server::start(program);
        let mut client = server.connect();
        let size = |client: &mut Connection, key: &str| client.run(&format!("BF.INFO {key}")).field("Size").number();
        client.run("BF.RESERVE fresh 0.01 100");
        assert_eq!(size(&mut client, "fresh"), FRESH);
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
                    // The allocation in between has another size each time.
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
            // Earlier data may be freed in the background.
            eventually("INFO to tell what was loaded", || client.info_number(TOTAL) == sum);
            let names: Vec<String> = (0..40).map(|number| format!("copy-{number}")).collect();
            client.call(&[&["DEL".to_owned(), "k".to_owned()], &names[..]].concat());
        }
        server.restart(Stop::Save);
        let mut client = server.connect();
        assert_eq!(size(&mut client, "fresh"), FRESH);
        assert_eq!(client.info_number(TOTAL), FRESH);
    });
}

/// As in RedisBloom.
#[test]
fn the_key_is_checked_before_the_field_or_the_iterator() {
    with_client(|_, client| {
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

// BF.STATS: the kind of a filter and how full it is.

fn fill(client: &mut Connection, key: &str, items: std::ops::Range<u32>) {
    let items: Vec<String> = items.map(|number| number.to_string()).collect();
    client.batched(&[b"BF.MADD", key.as_bytes()], &items);
}

fn names(reply: &Reply) -> Vec<String> {
    match reply {
        Reply::Map(pairs) => pairs.iter().map(|(name, _)| name.text()).collect(),
        flat => flat.elements().chunks(2).map(|pair| pair[0].text()).collect(),
    }
}

const ALL: [&str; 11] = [
    "Kind",
    "Layout",
    "Hash",
    "Error rate",
    "Error rate now",
    "Number of items inserted",
    "Number of items estimated",
    "Capacity",
    "Size",
    "Size of pending adds",
    "Layers",
];

#[test]
fn bf_info_describes_every_kind() {
    in_both_protocols(|client, protocol| {
        for (creation, kind, layout, hash, more) in [
            ("BF.RESERVE k 0.01 20000", "scaling", "native", "murmur3", vec![]),
            ("BF.RESERVE k 0.01 60000 NONSCALING", "nonscaling", "native", "murmur3", vec![]),
            (
                "BF.RESERVE k 0.01 20000 HASH siphash",
                "scaling",
                "native",
                "siphash",
                vec!["Number of items deleted", "Room for items deleted"],
            ),
            ("BF.RESERVE k 0.01 60000 ROLLING", "rolling", "native", "murmur3", vec!["Buckets"]),
            (
                "BF.RESERVE k 0.01 20000 WINDOW 3600 SLIDING",
                "window",
                "native",
                "murmur3",
                vec!["Window", "Sliding", "Buckets"],
            ),
            ("BF.RESERVE k 0.01 20000 LAYOUT redisbloom", "scaling", "redisbloom", "murmur2", vec![]),
            ("BF.INSERT k ERROR 0.01 CAPACITY 20000 TIGHTENING 0.5", "scaling", "valkey-bloom", "siphash13", vec![]),
        ] {
            assert!(!client.run(creation).is_error(), "{creation}");
            fill(client, "k", 0..50_000);
            let stats = client.run("BF.STATS k");
            assert_eq!(matches!(stats, Reply::Map(_)), protocol == 3);
            for (name, text) in [("Kind", kind), ("Layout", layout), ("Hash", hash)] {
                assert_eq!(stats.field(name).text(), text, "{creation}");
            }
            let mut reported = names(&stats);
            reported.sort_unstable();
            let mut expected: Vec<&str> = ALL.into_iter().chain(more).collect();
            expected.sort_unstable();
            assert_eq!(reported, expected, "{creation}");

            let items = client.run("BF.CARD k").number();
            assert_eq!(stats.field("Number of items inserted"), &integer(items));
            let estimated = stats.field("Number of items estimated").number();
            assert!(estimated.abs_diff(items) < items.unsigned_abs() / 50, "{creation}: {estimated} of {items}");
            assert_eq!(stats.field("Error rate").fraction(), 0.01);
            assert_eq!(matches!(stats.field("Error rate now"), Reply::Double(_)), protocol == 3);
            let absent: Vec<String> = (0..50_000).map(|number| format!("absent {number}")).collect();
            let wrong = client.batched(&[b"BF.MEXISTS", b"k"], &absent).into_iter().filter(|found| *found).count();
            let expected = stats.field("Error rate now").fraction() * 50_000.0;
            let deviation = (wrong as f64 - expected).abs();
            assert!(deviation < 5.0 * expected.sqrt() + 0.1 * expected, "{creation}: {wrong} for {expected}");
            for (name, info) in [("Capacity", "Capacity"), ("Size", "Size")] {
                assert_eq!(stats.field(name), client.run("BF.INFO k").field(info), "{creation}");
            }
            layers(&stats, client.run("BF.DEBUG k").elements().len() - 1, creation);
            client.run("DEL k");
        }
    });
}

fn layers(stats: &Reply, count: usize, creation: &str) {
    let layers = stats.field("Layers").elements();
    assert_eq!(layers.len(), count, "{creation}");
    for layer in layers {
        assert_eq!(names(layer), ["Capacity", "Number of items inserted", "Size", "Hashes", "Fill"]);
        let full = layer.field("Number of items inserted").number() as f64 / layer.field("Capacity").number() as f64;
        let fill = layer.field("Fill").fraction();
        assert!((0.0..0.6).contains(&fill) && (full < 0.9 || fill > 0.4), "{creation}: {fill} where {full}");
    }
    let sum = |name: &str| layers.iter().map(|layer| layer.field(name).number()).sum::<i64>();
    assert_eq!(stats.field("Capacity"), &integer(sum("Capacity")), "{creation}");
    assert_eq!(stats.field("Number of items inserted"), &integer(sum("Number of items inserted")), "{creation}");
    assert!(sum("Size") < stats.field("Size").number());
}

#[test]
fn bf_info_describes_the_buckets_of_a_ring() {
    in_both_protocols(|client, _| {
        client.run("BF.RESERVE w 0.01 1000 SEED 1 WINDOW 3600 BUCKETS 4");
        fill(client, "w", 0..100);
        client.run("BF.ROTATE w");
        fill(client, "w", 100..150);
        let stats = client.run("BF.STATS w");
        assert_eq!(stats.field("Window"), &integer(3600));
        assert_eq!(stats.field("Sliding"), &client.answer(false));
        let buckets = stats.field("Buckets").elements();
        let numbers = |name: &str| buckets.iter().map(|bucket| bucket.field(name).number()).collect::<Vec<_>>();
        assert_eq!(numbers("Slot"), [0, 1]);
        assert_eq!(numbers("Number of items inserted"), [100, 50]);
        let (begins, ends) = (numbers("Begin"), numbers("End"));
        assert_eq!(ends[0], begins[1]);
        assert_eq!(ends[1] - begins[1], 1_200_000);

        client.run("BF.RESERVE r 0.001 300 ROLLING BUCKETS 4");
        fill(client, "r", 0..250);
        let stats = client.run("BF.STATS r");
        let buckets = stats.field("Buckets").elements();
        assert_eq!(
            buckets.iter().map(|bucket| names(bucket).join(" ")).collect::<Vec<_>>(),
            vec!["Slot Number of items inserted"; 3]
        );
    });
}

#[test]
fn bf_stats_changes_nothing() {
    with_client(|_, client| {
        for line in ["BF.STATS", "BF.STATS a b"] {
            assert_eq!(client.run(line), error("ERR wrong number of arguments for 'bf.stats' command"));
        }
        client.run("BF.RESERVE empty 0.01 100000000");
        let stats = client.run("BF.STATS empty");
        assert_eq!(stats.field("Number of items estimated"), &integer(0));
        assert_eq!(stats.field("Error rate now").fraction(), 0.0);
        let before = (client.run("DEBUG DIGEST"), client.info_number("rdb_changes_since_last_save"));
        client.run("BF.STATS empty");
        assert_eq!((client.run("DEBUG DIGEST"), client.info_number("rdb_changes_since_last_save")), before);
        client.run("CONFIG SET maxmemory 1");
        assert!(!client.run("BF.STATS empty").is_error());
    });
}

// For operators: the section of INFO.

fn metric(client: &mut Connection, name: &str) -> u64 {
    client.wait_for_frees();
    let info = client.run("INFO bf").text();
    let line = info.lines().find_map(|line| line.strip_prefix(&format!("bf_{name}:")).map(str::to_owned));
    line.unwrap_or_else(|| panic!("no {name} in {info}")).trim().parse().unwrap()
}

#[test]
fn info_counts_filters_adds_and_lookups() {
    on_every_server(|program| {
        let mut server = Server::start(program);
        let mut client = server.connect();
        assert!(client.run("INFO bf").text().contains(&format!("bf_version:{}", env!("CARGO_PKG_VERSION"))));
        client.run("BF.RESERVE a 0.000001 1000");
        client.run("BF.RESERVE b 0.000001 2 EXPANSION 2 SEED 1");
        client.run("BF.MADD b 1 2 3 4 5 6 7 1");
        client.run("BF.MEXISTS b 1 2 absent");
        client.run("BF.EXISTS b 3");
        let expected = [
            ("bloom_num_objects", 2),
            ("bloom_num_filters_across_objects", 4),
            ("bloom_num_items_across_objects", 7),
            ("bloom_capacity_across_objects", 1000 + 2 + 4 + 8),
            ("bloom_adds", 8),
            ("bloom_new_items", 7),
            ("bloom_lookups", 4),
            ("bloom_positives", 3),
        ];
        for (name, number) in expected {
            assert_eq!(metric(&mut client, name), number, "{name}");
        }
        let sizes = ["a", "b"].map(|key| client.run(&format!("BF.INFO {key} SIZE")).elements()[0].number() as u64);
        let bytes = metric(&mut client, "bloom_total_memory_bytes");
        assert_eq!(bytes, sizes[0] + sizes[1], "{sizes:?}");

        client.run("COPY b c");
        assert_eq!(metric(&mut client, "bloom_num_items_across_objects"), 14);
        client.run("DEL b c");
        assert_eq!(metric(&mut client, "bloom_num_items_across_objects"), 0);
        client.run("BF.ADD a x");
        server.restart(Stop::Save);
        let mut client = server.connect();
        assert_eq!(metric(&mut client, "bloom_num_objects"), 1);
        assert_eq!(metric(&mut client, "bloom_num_items_across_objects"), 1);
        client.run("FLUSHALL");
        for name in ["bloom_num_objects", "bloom_total_memory_bytes", "bloom_capacity_across_objects"] {
            // Some servers free in the background.
            eventually(name, || metric(&mut client, name) == 0);
        }
    });
}

#[test]
fn info_counts_items_that_find_no_room() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("CONFIG SET bf.max-filter-bytes 100kb");
        for (line, refused, deletes_refused) in [
            // The refused item and the items after it in its command, unless each item has its own reply.
            ("BF.RESERVE fixed 0.000001 2 NONSCALING", 0, 0),
            ("BF.MADD fixed a b c d e", 3, 0),
            ("BF.ADD fixed f", 1, 0),
            ("BF.MADD fixed a b", 0, 0),
            ("BF.INSERT fixed ITEMS a f g", 2, 0),
            ("BF.CHANGED fixed f cached", 1, 0),
            ("BF.MCHANGED fixed ITEMS a 1 f 2 b 3 g 4", 2, 0),
            ("BF.RESERVE counting 0.01 1 COUNTING", 0, 0),
            ("BF.MADD counting a a", 1, 0),
            ("BF.RESERVE growing 0.000001 2 EXPANSION 32768 HASH siphash", 0, 0),
            ("BF.MADD growing a b c d", 2, 0),
            ("BF.RESERVE foreign 0.01 1 NONSCALING LAYOUT redisbloom", 0, 0),
            ("BF.MADD foreign a b c", 2, 0),
            ("CONFIG SET bf.max-filter-bytes 1", 0, 0),
            ("BF.ADD new a", 1, 0),
            ("BF.INSERT new ITEMS a b", 2, 0),
            ("BF.MDEL growing a b", 0, 2),
            ("BF.DEL growing b", 0, 1),
            // Refused for other reasons.
            ("BF.RESERVE new 0.01 1000", 0, 0),
            ("SET string x", 0, 0),
            ("BF.ADD string a", 0, 0),
            ("BF.CHANGED foreign a cached", 0, 0),
            ("BF.DEL fixed a", 0, 0),
        ] {
            let before = ["bloom_refused", "bloom_deletes_refused"].map(|name| metric(&mut client, name));
            let reply = client.run(line);
            let after = ["bloom_refused", "bloom_deletes_refused"].map(|name| metric(&mut client, name));
            assert_eq!([after[0] - before[0], after[1] - before[1]], [refused, deletes_refused], "{line}: {reply:?}");
        }

        assert_eq!(metric(&mut client, "bloom_max_filter_bytes"), 1);
        client.run("CONFIG SET bf.max-filter-bytes 0");
        client.run("BF.RESERVE long 0.01 1 EXPANSION 1");
        let before = metric(&mut client, "bloom_refused");
        let items: Vec<String> = (0..2000).map(|number| number.to_string()).collect();
        let words: Vec<&str> = ["BF.MADD", "long"].into_iter().chain(items.iter().map(String::as_str)).collect();
        let answered = client.call(&words).elements().len() as u64;
        assert_eq!(metric(&mut client, "bloom_refused") - before, 2001 - answered, "the limit of layers");
    });
}
