//! Numbers at the edges of what the format can say. A payload with such a number may be refused or taken; what was
//! taken answers, grows or refuses to, is saved as itself and leaves no trace in the counters.

use super::model::Model;
use super::payload::{Field, fields_of, payload_of};
use testing::{Connection, Server, eventually, integer, ok, on_every_server, with_fixed_checksum};

const EDGES: [u64; 11] =
    [0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 1 << 32, 1 << 53, i64::MAX as u64, 1 << 63, u64::MAX - 1, u64::MAX];

const RATES: [f64; 12] = [
    0.0,
    -0.0,
    5e-324,
    f64::MIN_POSITIVE,
    1e-300,
    0.5,
    0.999_999_999_999_999_9,
    1.0,
    f64::MAX,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
];

fn start(program: &std::path::Path) -> (Server, Connection) {
    let server = Server::with(program).line("sanitize-dump-payload yes").line("bf.max-filter-bytes 1000000").start();
    let client = server.connect();
    (server, client)
}

/// Two layers, the newer one full, so that the next item needs a third.
fn full() -> Model {
    let mut model = Model::reserve(0.2, 10, 2);
    let mut number = 0;
    while model.items < 30 {
        model.add(format!("item:{number}").as_bytes());
        number += 1;
    }
    assert_eq!(model.layers.len(), 2);
    model
}

/// Restores a payload; whether it was taken for a filter. Then there is a second one of it, too: sums go over both.
fn try_it(client: &mut Connection, what: &str, payload: &[u8]) -> bool {
    let restore = |client: &mut Connection, key: &str, payload: &[u8]| {
        let words: [&[u8]; 5] = [b"RESTORE", key.as_bytes(), b"0", payload, b"REPLACE"];
        client.call(&words)
    };
    if restore(client, "k", payload).is_error() {
        assert_eq!(client.run("EXISTS k"), integer(0), "{what}");
        return false;
    }
    assert_eq!(restore(client, "twin", payload), ok(), "{what}");
    for line in ["BF.INFO k", "BF.CARD k", "BF.DEBUG k", "BF.MEXISTS k a b", "MEMORY USAGE k", "INFO bf", "DUMP k"] {
        assert!(!client.run(line).is_error(), "{what}: {line}");
    }
    let digest = client.run("DEBUG DIGEST-VALUE k");
    assert_eq!(client.run("DEBUG RELOAD"), ok(), "{what}");
    assert_eq!(client.run("DEBUG DIGEST-VALUE k"), digest, "{what}");
    for number in 0..40 {
        // It may refuse to grow, but it answers, and what it took is in.
        if !client.run(&format!("BF.ADD k new/{number}")).is_error() {
            assert_eq!(client.run(&format!("BF.EXISTS k new/{number}")), integer(1), "{what}");
        }
    }
    let layers = client.run("BF.INFO k FILTERS").elements()[0].number();
    assert!(layers < 60, "{what}: {layers} layers");
    assert!(client.run("MEMORY USAGE k").number() < 2_000_000, "{what}");
    client.run("BF.SCANDUMP k 0");
    client.run("COPY k copy REPLACE");
    assert_eq!(client.run("DEL k twin copy"), integer(3), "{what}");
    for name in ["num_objects", "num_filters_across_objects", "num_items_across_objects", "capacity_across_objects"] {
        assert_eq!(client.gauge(name), 0, "{what}: {name}");
    }
    eventually("the memory to be given back", || client.gauge("total_memory_bytes") == 0);
    true
}

#[test]
fn every_number_may_be_at_an_edge() {
    on_every_server(|program| {
        let (_server, mut client) = start(program);
        let fields = fields_of(&full(), 4);
        let mut taken = 0;
        for place in 0..fields.len() {
            let others: Vec<Field> = match fields[place] {
                Field::Uint(_) => EDGES.map(Field::Uint).to_vec(),
                Field::Double(_) => RATES.map(Field::Double).to_vec(),
                Field::Text(_) => continue,
            };
            for other in others {
                let mut extreme = fields.clone();
                extreme[place] = other.clone();
                let what = format!("field {place}: {other:?}");
                taken += usize::from(try_it(&mut client, &what, &payload_of("MBbloom--", 4, &extreme)));
            }
        }
        eprintln!("{taken} were taken");
    });
}

#[test]
fn pairs_of_numbers_may_be_at_an_edge() {
    on_every_server(|program| {
        let (_server, mut client) = start(program);
        for edge in EDGES {
            for growth in EDGES {
                for count in [0, 10, edge] {
                    let mut model = full();
                    model.growth = growth;
                    model.items = count;
                    for layer in &mut model.layers {
                        (layer.entries, layer.items) = (edge, count);
                    }
                    let what = format!("capacity {edge}, growth {growth}, {count} items");
                    try_it(&mut client, &what, &model.payload(4));
                }
            }
        }
    });
}

#[test]
fn a_string_that_promises_more_than_comes_is_refused() {
    on_every_server(|program| {
        let (server, mut client) = start(program);
        let before = client.info_number("used_memory_peak");
        let payload = full().payload(4);
        let fields = fields_of(&full(), 4);
        let Field::Text(bits) = &fields[10] else { panic!("field 10 is the first layer's bits") };
        let mark = [&[5, bits.len() as u8], bits.as_slice()].concat();
        let place = payload.windows(mark.len()).position(|window| window == mark).expect("the first bit array");
        for length in [1 << 10, 1 << 20, 1 << 24, 1 << 48, 1 << 62, u64::MAX] {
            let mut longer = payload[..=place].to_vec();
            longer.push(0x81);
            longer.extend(length.to_be_bytes());
            longer.extend(&payload[place + 2..]);
            assert!(!try_it(&mut client, &format!("a string of {length} bytes"), &with_fixed_checksum(longer)));
        }
        let peak = server.connect().info_number("used_memory_peak");
        assert!(peak < before + (40 << 20), "memory grew to {peak}");
    });
}

/// A header may announce far more than will ever come: it costs what has come.
#[test]
fn a_header_that_announces_much_costs_little() {
    on_every_server(|program| {
        let server = Server::with(program).line("bf.max-filter-bytes 3000000000").start();
        let mut client = server.connect();
        let mut header = full().header();
        header[20..28].copy_from_slice(&2_000_000_000_u64.to_le_bytes());
        let words: [&[u8]; 4] = [b"BF.LOADCHUNK", b"k", b"1", &header];
        assert_eq!(client.call(&words), ok());
        let words: [&[u8]; 4] = [b"BF.LOADCHUNK", b"k", b"1001", &[7; 1000]];
        assert_eq!(client.call(&words), ok());
        let resident = || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", server.process_id()));
            let line = status.ok()?.lines().find(|line| line.starts_with("VmHWM"))?.to_owned();
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        };
        // Only Linux says.
        if let Some(kilobytes) = resident() {
            assert!(kilobytes < 100_000, "{kilobytes} kB were resident");
        }
        assert_eq!(client.run("DEL k"), integer(1));
        for name in ["num_objects", "num_filters_across_objects", "total_memory_bytes"] {
            assert_eq!(client.gauge(name), 0, "{name}");
        }
    });
}

/// A rate halves from layer to layer. There is an end to that, and to the hashes: 998 at 1e-300, and 1100 are allowed.
#[test]
fn a_filter_that_cannot_get_more_exact_stays_as_it_was() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("BF.RESERVE k 1e-300 1 EXPANSION 1 LAYOUT redisbloom");
        let mut members = Vec::new();
        let refused = (0..1000).find(|number| {
            let reply = client.run(&format!("BF.ADD k {number}"));
            if !reply.is_error() {
                members.push(*number);
            }
            reply.is_error()
        });
        assert!(refused.is_some_and(|number| (50..200).contains(&number)), "refused: {refused:?}");
        let digest = client.run("DEBUG DIGEST-VALUE k");
        assert!(client.run("BF.ADD k one-more").is_error());
        assert_eq!(client.run("DEBUG DIGEST-VALUE k"), digest);
        for number in members {
            assert_eq!(client.run(&format!("BF.EXISTS k {number}")), integer(1));
        }
        assert_eq!(client.run("DEBUG RELOAD").text(), "OK");
        assert_eq!(client.run("DEBUG DIGEST-VALUE k"), digest);
    });
}

#[test]
fn a_capacity_that_outgrows_every_number_is_refused() {
    on_every_server(|program| {
        let server = Server::with(program).line("bf.max-filter-bytes 100000000").start();
        let mut client = server.connect();
        assert_eq!(client.run("BF.RESERVE k 0.1 1 EXPANSION 32768 LAYOUT redisbloom"), ok());
        let items: Vec<String> = (0..40_000).map(|number| number.to_string()).collect();
        let mut added = 0;
        for batch in items.chunks(1000) {
            let words: Vec<&str> = ["BF.MADD", "k"].into_iter().chain(batch.iter().map(String::as_str)).collect();
            let reply = client.call(&words);
            added += reply.elements().iter().filter(|answer| !answer.is_error() && answer.truth()).count() as i64;
        }
        // One item, then 32768, and the third layer would have 2^30.
        assert_eq!(client.run("BF.CARD k"), integer(added));
        assert_eq!(added, 32_769);
    });
}
