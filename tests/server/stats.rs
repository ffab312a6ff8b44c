//! BF.STATS: what a filter is and how full it is.

use testing::{Connection, Reply, Server, error, integer, on_every_server};

fn fill(client: &mut Connection, key: &str, items: std::ops::Range<u32>) {
    let items: Vec<String> = items.map(|number| number.to_string()).collect();
    client.batched(&[b"BF.MADD", key.as_bytes()], &items);
}

/// The number in a double, whichever way it came.
fn fraction(reply: &Reply) -> f64 {
    let text = match reply {
        Reply::Double(text) => text.clone(),
        other => other.text(),
    };
    text.parse().unwrap_or_else(|_| panic!("not a number: {text}"))
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
fn every_kind_tells_what_it_has() {
    on_every_server(|program| {
        let server = Server::start(program);
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            client.run("FLUSHALL");
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
                (
                    "BF.INSERT k ERROR 0.01 CAPACITY 20000 TIGHTENING 0.5",
                    "scaling",
                    "valkey-bloom",
                    "siphash13",
                    vec![],
                ),
            ] {
                assert!(!client.run(creation).is_error(), "{creation}");
                fill(&mut client, "k", 0..50_000);
                let stats = client.run("BF.STATS k");
                assert_eq!(matches!(stats, Reply::Map(_)), protocol == 3);
                for (name, text) in [("Kind", kind), ("Layout", layout), ("Hash", hash)] {
                    assert_eq!(stats.field(name).text(), text, "{creation}");
                }
                let mut told = names(&stats);
                told.sort_unstable();
                let mut expected: Vec<&str> = ALL.into_iter().chain(more).collect();
                expected.sort_unstable();
                assert_eq!(told, expected, "{creation}");

                let items = client.run("BF.CARD k").number();
                assert_eq!(stats.field("Number of items inserted"), &integer(items));
                let estimated = stats.field("Number of items estimated").number();
                assert!(estimated.abs_diff(items) < items.unsigned_abs() / 50, "{creation}: {estimated} of {items}");
                assert_eq!(fraction(stats.field("Error rate")), 0.01);
                assert_eq!(matches!(stats.field("Error rate now"), Reply::Double(_)), protocol == 3);
                let absent: Vec<String> = (0..50_000).map(|number| format!("absent {number}")).collect();
                let wrong = client.batched(&[b"BF.MEXISTS", b"k"], &absent).into_iter().filter(|found| *found).count();
                let expected = fraction(stats.field("Error rate now")) * 50_000.0;
                let deviation = (wrong as f64 - expected).abs();
                assert!(deviation < 5.0 * expected.sqrt() + 0.1 * expected, "{creation}: {wrong} for {expected}");
                for (name, info) in [("Capacity", "Capacity"), ("Size", "Size")] {
                    assert_eq!(stats.field(name), client.run("BF.INFO k").field(info), "{creation}");
                }
                layers(&stats, client.run("BF.DEBUG k").elements().len() - 1, creation);
                client.run("DEL k");
            }
        }
    });
}

fn layers(stats: &Reply, count: usize, creation: &str) {
    let layers = stats.field("Layers").elements();
    assert_eq!(layers.len(), count, "{creation}");
    for layer in layers {
        assert_eq!(names(layer), ["Capacity", "Number of items inserted", "Size", "Hashes", "Fill"]);
        let full = layer.field("Number of items inserted").number() as f64 / layer.field("Capacity").number() as f64;
        let fill = fraction(layer.field("Fill"));
        assert!((0.0..0.6).contains(&fill) && (full < 0.9 || fill > 0.4), "{creation}: {fill} where {full}");
    }
    let sum = |name: &str| layers.iter().map(|layer| layer.field(name).number()).sum::<i64>();
    assert_eq!(stats.field("Capacity"), &integer(sum("Capacity")), "{creation}");
    assert_eq!(stats.field("Number of items inserted"), &integer(sum("Number of items inserted")), "{creation}");
    assert!(sum("Size") < stats.field("Size").number());
}

#[test]
fn a_ring_tells_of_its_buckets() {
    on_every_server(|program| {
        let server = Server::start(program);
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            client.run("FLUSHALL");
            client.run("BF.RESERVE w 0.01 1000 SEED 1 WINDOW 3600 BUCKETS 4");
            fill(&mut client, "w", 0..100);
            client.run("BF.ROTATE w");
            fill(&mut client, "w", 100..150);
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
            fill(&mut client, "r", 0..250);
            let stats = client.run("BF.STATS r");
            let buckets = stats.field("Buckets").elements();
            assert_eq!(
                buckets.iter().map(|bucket| names(bucket).join(" ")).collect::<Vec<_>>(),
                vec!["Slot Number of items inserted"; 3]
            );
        }
    });
}

#[test]
fn it_looks_and_changes_nothing() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("SET string x");
        assert_eq!(client.run("BF.STATS missing"), error("ERR not found"));
        assert!(client.run("BF.STATS string").error_text().starts_with("WRONGTYPE"));
        for line in ["BF.STATS", "BF.STATS a b"] {
            assert_eq!(client.run(line), error("ERR wrong number of arguments for 'bf.stats' command"));
        }
        client.run("BF.RESERVE empty 0.01 100000000");
        let stats = client.run("BF.STATS empty");
        assert_eq!(stats.field("Number of items estimated"), &integer(0));
        assert_eq!(fraction(stats.field("Error rate now")), 0.0);
        let before = (client.run("DEBUG DIGEST"), client.info_number("rdb_changes_since_last_save"));
        client.run("BF.STATS empty");
        assert_eq!((client.run("DEBUG DIGEST"), client.info_number("rdb_changes_since_last_save")), before);
        client.run("CONFIG SET maxmemory 1");
        assert!(!client.run("BF.STATS empty").is_error());
    });
}
