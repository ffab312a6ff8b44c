//! BF.PLAN: what a filter would take.

use testing::{Connection, Reply, Server, error, integer, on_every_server};

/// Adds new items until there are so many.
fn fill(client: &mut Connection, key: &str, items: i64) {
    let mut next = 0;
    loop {
        let lacking = items - client.run(&format!("BF.CARD {key}")).number();
        if lacking <= 0 {
            return;
        }
        let more: Vec<String> = (next..next + lacking).map(|number| number.to_string()).collect();
        next += lacking;
        client.batched(&[b"BF.MADD", key.as_bytes()], &more);
    }
}

fn layers(reply: &Reply) -> Vec<[i64; 3]> {
    let layers = reply.field("Layers").elements().iter();
    layers.map(|layer| ["Capacity", "Size", "Hashes"].map(|name| layer.field(name).number())).collect()
}

#[test]
fn the_filter_then_has_these_numbers() {
    on_every_server(|program| {
        let server = Server::start(program);
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            client.run("FLUSHALL");
            for (words, items) in [
                ("0.01 1000", vec![0, 1, 1000, 1001, 20_000]),
                ("0.0001 500 EXPANSION 1", vec![500, 5001]),
                ("0.01 1000 NONSCALING", vec![1000]),
                ("0.01 1000 HASH siphash EXPANSION 3 SEED 00000000000000000000000000000001", vec![5000]),
                ("0.9 1000 SEED 5", vec![3000]),
                ("0.01 1000 LAYOUT redisbloom", vec![0, 1, 1000, 20_000]),
                ("0.01 1000 ROLLING BUCKETS 5", vec![0, 1, 250, 251, 1000, 1250]),
                ("0.01 1000 WINDOW 3600", vec![]),
                ("0.01 1000 TIGHTENING 0.7 EXPANSION 4", vec![1000, 20_000]),
            ] {
                let (rate, rest) = words.split_once(' ').unwrap();
                let creation = if words.contains("TIGHTENING") {
                    let (capacity, rest) = rest.split_once(' ').unwrap();
                    format!("BF.INSERT k ERROR {rate} CAPACITY {capacity} {rest}")
                } else {
                    format!("BF.RESERVE k {words}")
                };
                assert!(!client.run(&creation).is_error(), "{creation}");
                let is_ring = words.contains("ROLLING") || words.contains("WINDOW");
                let new = client.run(&format!("BF.PLAN {words}"));
                assert_eq!(matches!(new, Reply::Map(_)), protocol == 3);
                if words.contains("WINDOW") {
                    // The whole ring: eight buckets, as if each were the newest.
                    let stats = client.run("BF.STATS k");
                    assert_eq!(layers(&new), vec![layers(&stats)[0]; 8]);
                    assert_eq!(new.field("Size"), &integer(stats.field("Size").number() * 8));
                } else if !is_ring {
                    compare(&mut client, &new, words);
                }
                for items in items {
                    fill(&mut client, "k", items);
                    let plan = client.run(&format!("BF.PLAN {words} ITEMS {items}"));
                    compare(&mut client, &plan, &format!("{words}, {items} items"));
                }
                client.run("DEL k");
            }
            assert_eq!(client.run("DBSIZE"), integer(0), "nothing is made");
        }
    });
}

fn compare(client: &mut Connection, plan: &Reply, words: &str) {
    let stats = client.run("BF.STATS k");
    for name in ["Kind", "Layout", "Hash", "Error rate", "Capacity", "Size"] {
        assert_eq!(plan.field(name), stats.field(name), "{words}: {name}");
    }
    assert_eq!(layers(plan), layers(&stats), "{words}");
    let bits = match plan.field("Bits per item") {
        Reply::Double(text) => text.clone(),
        other => other.text(),
    };
    let expected = plan.field("Size").number() as f64 * 8.0 / plan.field("Capacity").number() as f64;
    assert!((bits.parse::<f64>().unwrap() - expected).abs() < 1e-9, "{words}: {bits}");
}

#[test]
fn it_answers_whatever_the_memory_is() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("CONFIG SET bf.max-filter-bytes 1");
        client.run("CONFIG SET maxmemory 1");
        let plan = client.run("BF.PLAN 0.000001 1000000000000");
        assert!(plan.field("Size").number() > 1 << 40);
        let plan = client.run("BF.PLAN 0.01 100 ITEMS 1000000000000");
        assert!(plan.field("Capacity").number() >= 1_000_000_000_000);
        assert_eq!(
            client.run("BF.PLAN 0.01 1 EXPANSION 1 ITEMS 9223372036854775807"),
            error("ERR filter cannot grow: it has as many layers as a filter can have")
        );
    });
}

/// A reply's integers are signed.
#[test]
fn every_number_of_a_plan_is_the_right_one() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        let plan = client.run("BF.PLAN 0.25 4611686018427387904 NONSCALING");
        assert_eq!(plan.field("Capacity"), &integer(1 << 62));
        let bits = plan.field("Size").number() as f64 * 8.0 / (1u64 << 62) as f64;
        assert!((2.9..3.3).contains(&bits), "{bits}");
        for (words, text) in [
            (
                "0.25 4611686018427387904 EXPANSION 1 ITEMS 9223372036854775807",
                "ERR filter cannot grow: the capacity does not fit 64 bits",
            ),
            ("0.01 9223372036854775807", crate::reserve::NO_MACHINE),
            ("0.01 4611686018427387904 WINDOW 60 BUCKETS 64", crate::reserve::NO_MACHINE),
            ("0.01 4611686018427387904 COUNTING", crate::reserve::NO_MACHINE),
        ] {
            assert_eq!(client.run(&format!("BF.PLAN {words}")), error(text), "{words}");
        }
    });
}

#[test]
fn what_is_no_filter_is_no_plan() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for line in ["BF.PLAN", "BF.PLAN 0.01"] {
            assert_eq!(client.run(line), error("ERR wrong number of arguments for 'bf.plan' command"));
        }
        for (words, text) in [
            ("x 100", "ERR bad error rate"),
            ("0 100", "ERR error rate must be in the range (0.000000, 1.000000)"),
            ("0.01 x", "ERR bad capacity"),
            ("0.01 0", "ERR capacity must be in the range [1, 1073741824]"),
            ("0.01 100 ITEMS", "ERR no items"),
            ("0.01 100 ITEMS -1", "ERR bad items"),
            ("0.01 100 ITEMS 5 ITEMS 7", "ERR syntax error"),
            ("0.01 100 FROBNICATE", "ERR syntax error"),
            ("0.01 100 NONSCALING ITEMS 101", "ERR non scaling filter is full"),
            ("0.01 100 WINDOW 60 ROLLING", "ERR ROLLING and WINDOW exclude each other"),
            ("0.01 100 BUCKETS 5", "ERR BUCKETS needs WINDOW or ROLLING"),
            ("0.01 100 SEED", "ERR no seed"),
        ] {
            assert_eq!(client.run(&format!("BF.PLAN {words}")), error(text), "{words}");
        }
        assert_eq!(client.run("COMMAND GETKEYS BF.PLAN 0.01 100"), error("ERR The command has no key arguments"));
    });
}
