//! Payloads and headers of RedisBloom's format with numbers that no filter has, above all those that brought other programs
//! down: an error, a line in the log, and the server goes on with the memory that it had.

use super::golden::{TODAY, snapshot};
use super::model::{FORCE_64, Field, Layer, Model, fields_of, payload_of};
use super::words::{TheirPrimary, assert_ends_the_server, encode, encode_chunk, following};
use testing::{
    Connection, Server, Stop, array, dump, error, eventually, integer, ok, on_every_server, simple, start_on_commands,
    with_client, with_fixed_checksum,
};

/// A sound filter of two small layers.
pub fn sound() -> Model {
    let mut model = Model::reserve(0.2, 10, 2);
    for number in 0..15 {
        model.add(format!("item:{number}").as_bytes());
    }
    assert_eq!(model.layers.len(), 2);
    model
}

/// Its payload in an encoding.
pub fn sound_payload(encoding: u64) -> Vec<u8> {
    let mut model = sound();
    if encoding == 0 {
        model.options &= !FORCE_64;
    }
    model.payload(encoding)
}

fn try_payload(client: &mut Connection, payload: &[u8]) -> testing::Reply {
    let words: [&[u8]; 5] = [b"RESTORE", b"k", b"0", payload, b"REPLACE"];
    client.call(&words)
}

fn try_header(client: &mut Connection, header: &[u8]) -> testing::Reply {
    let words: [&[u8]; 4] = [b"BF.LOADCHUNK", b"k", b"1", header];
    client.call(&words)
}

/// What was sent is refused in both forms, and nothing is left of it.
fn refuse(server: &Server, what: &str, payload: &[u8]) {
    let mut client = server.connect();
    let log_start = server.log().len();
    assert_eq!(try_payload(&mut client, payload), error("ERR Bad data format"), "{what}");
    assert_eq!(client.run("EXISTS k"), integer(0), "{what}");
    let log = server.log().split_off(log_start);
    assert!(log.contains("bloomgate: cannot load a filter:"), "{what}: the log says {log:?}");
}

fn refuse_header(server: &Server, what: &str, header: &[u8]) {
    let mut client = server.connect();
    let reply = try_header(&mut client, header);
    assert!(reply.error_text().starts_with("ERR "), "{what}: {reply:?}");
    assert_eq!(client.run("EXISTS k"), integer(0), "{what}");
}

fn peak(server: &Server) -> i64 {
    server.connect().info_number("used_memory_peak")
}

/// A change to a field that makes nonsense of a filter; the header says the same with its fields.
type Damage = (&'static str, fn(&mut Model));

const DAMAGES: [Damage; 22] = [
    ("more bits than bytes", |model| model.layers[0].bits += 1),
    ("far more bits than bytes", |model| model.layers[1].bits = 1 << 40),
    ("all bits there can be", |model| model.layers[0].bits = u64::MAX),
    ("no bits", |model| model.layers[1].bits = 0),
    ("a power of two beyond the bytes", |model| model.layers[0].log2_bits = 7),
    ("a large power of two", |model| model.layers[0].log2_bits = 31),
    ("a power of two at the edge", |model| model.layers[0].log2_bits = 63),
    ("a power of two that is none", |model| model.layers[0].log2_bits = 64),
    ("a power of two far off", |model| model.layers[1].log2_bits = 255),
    ("an empty bit array", |model| model.layers[0].bytes.clear()),
    ("an empty bit array and no bits", |model| (model.layers[1].bytes, model.layers[1].bits) = (Vec::new(), 0)),
    ("a bit array that is too short", |model| model.layers[1].bytes.truncate(7)),
    ("no hash", |model| model.layers[0].hashes = 0),
    ("1101 hashes", |model| model.layers[0].hashes = 1101),
    ("hashes near 2^31", |model| model.layers[1].hashes = (1 << 31) - 1),
    ("hashes at 2^32", |model| model.layers[1].hashes = u64::from(u32::MAX)),
    ("a rate that is no number", |model| model.layers[0].error = f64::NAN),
    ("an infinite rate", |model| model.layers[1].error = f64::INFINITY),
    ("a negative rate", |model| model.layers[1].error = -0.01),
    ("a rate above one", |model| model.layers[0].error = 2.0),
    ("bits per entry that are no number", |model| model.layers[0].bits_per_entry = f64::NAN),
    ("infinite bits per entry", |model| model.layers[1].bits_per_entry = f64::NEG_INFINITY),
];

#[test]
fn a_field_out_of_its_range_is_refused() {
    on_every_server(|program| {
        let server = Server::with(program).line("sanitize-dump-payload yes").start();
        let before = peak(&server);
        for (what, damage) in DAMAGES {
            let mut model = sound();
            damage(&mut model);
            refuse(&server, what, &model.payload(4));
            refuse_header(&server, what, &model.header());
        }
        // The sound filter is taken, so it was the damage that was refused.
        let mut client = server.connect();
        assert!(!try_payload(&mut client, &sound().payload(4)).is_error());
        client.run("DEL k");
        assert!(!try_header(&mut client, &sound().header()).is_error());
        assert!(peak(&server) < before + (4 << 20), "memory grew to {}", peak(&server));
    });
}

#[test]
fn old_encodings_are_checked_as_todays() {
    on_every_server(|program| {
        let server = Server::with(program).line("sanitize-dump-payload yes").start();
        for encoding in 1..=3 {
            for (what, damage) in DAMAGES {
                let mut model = sound();
                damage(&mut model);
                refuse(&server, &format!("encoding {encoding}: {what}"), &model.payload(encoding));
                if what != "hashes at 2^32" {
                    refuse_header(&server, what, &model.header_of_2018());
                }
            }
        }
        // Encoding 0 says nothing of bits: they follow from the capacity, and the array has to hold them.
        for entries in [1000, 1 << 40, u64::MAX] {
            let mut model = sound();
            model.layers[0].entries = entries;
            refuse(&server, "encoding 0: a capacity beyond the bytes", &model.payload(0));
        }
        let mut model = sound();
        model.layers[0].entries = 0;
        refuse(&server, "encoding 0: no bits", &model.payload(0));
        refuse(&server, "encoding 5", &payload_of("MBbloom--", 5, &fields_of(&sound(), 4)));
        refuse(&server, "encoding 1023", &payload_of("MBbloom--", 1023, &fields_of(&sound(), 4)));
    });
}

#[test]
fn a_count_of_layers_that_do_not_follow_is_refused() {
    on_every_server(|program| {
        let server = Server::with(program).line("sanitize-dump-payload yes").start();
        let before = peak(&server);
        for count in [0, 1, 3, 1000, u64::from(u32::MAX), 1 << 32, 1 << 61, u64::MAX] {
            let mut fields = fields_of(&sound(), 4);
            fields[1] = Field::Uint(count);
            // One layer fewer than there is: the server itself finds something after the end.
            if count == 1 {
                let mut client = server.connect();
                assert!(try_payload(&mut client, &payload_of("MBbloom--", 4, &fields)).is_error());
                continue;
            }
            refuse(&server, &format!("{count} layers"), &payload_of("MBbloom--", 4, &fields));
            let mut header = sound().header();
            header[8..12].copy_from_slice(&(count as u32).to_le_bytes());
            refuse_header(&server, &format!("{count} layers"), &header);
            refuse_header(&server, "nothing after the count", &header[..20]);
        }
        assert!(peak(&server) < before + (4 << 20), "memory grew to {}", peak(&server));
    });
}

#[test]
fn sizes_that_overflow_are_refused() {
    on_every_server(|program| {
        let server = Server::start(program);
        let before = peak(&server);
        let sizes = [1 << 61, (1 << 61) + 8, 1 << 63, u64::MAX, u64::MAX - 7, 1 << 48];
        for first in sizes {
            for second in [8, 1 << 61, u64::MAX, 1 << 63] {
                let mut header = sound().header();
                for (layer, size) in [first, second].into_iter().enumerate() {
                    let at = 20 + 53 * layer;
                    header[at..at + 8].copy_from_slice(&size.to_le_bytes());
                    header[at + 8..at + 16].copy_from_slice(&size.wrapping_mul(8).to_le_bytes());
                }
                refuse_header(&server, &format!("{first} and {second} bytes"), &header);
                for at in [28, 81] {
                    header[at..at + 8].copy_from_slice(&64_u64.to_le_bytes());
                }
                refuse_header(&server, &format!("{first} and {second} bytes, few bits"), &header);
            }
        }
        assert!(peak(&server) < before + (4 << 20), "memory grew to {}", peak(&server));
    });
}

#[test]
fn fields_of_another_kind_are_refused() {
    on_every_server(|program| {
        let server = Server::with(program).line("sanitize-dump-payload yes").start();
        let fields = fields_of(&sound(), 4);
        for place in 0..fields.len() {
            for other in [Field::Uint(3), Field::Double(0.5), Field::Text(b"12345678".to_vec())] {
                if std::mem::discriminant(&other) == std::mem::discriminant(&fields[place]) {
                    continue;
                }
                let mut mixed = fields.clone();
                mixed[place] = other;
                refuse(&server, &format!("field {place}: {:?}", mixed[place]), &payload_of("MBbloom--", 4, &mixed));
            }
        }
    });
}

// Numbers at the edges of what the format can say. A payload with such a number may be refused or taken; what was
// taken answers, grows or refuses to, is saved as itself and leaves no trace in the counters.

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
    with_client(|_, client| {
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

// What RedisBloom carries although it could not do it, for want of memory: a reservation (release 2.6), an item for which a
// filter would have to grow (all releases). A replica and the reader of its append-only file go on; where they could lack
// an item, they end.

/// More than a server gets for one filter, and what no machine has.
const RESERVATIONS: [&str; 3] = [
    "BF.RESERVE large 0.01 100000000000000",
    "BF.RESERVE huge 0.01 1000000000000000000",
    "BF.RESERVE huge 0.01 1600000000000000000 NONSCALING",
];

/// What clients of the primary did with those keys, and with filters of release 2.6 whose size wraps to nothing.
const AFTERWARDS: [&str; 7] = [
    "BF.ADD huge a",
    "BF.INSERT huge NOCREATE ITEMS b",
    "BF.INSERT wrapped CAPACITY 9223372036854775807 ITEMS a b",
    "BF.RESERVE wrapped-too 1e-300 1700000000000000000",
    "BF.ADD wrapped-too a",
    "BF.MADD full present new",
    "SET the-end x",
];

/// A header and a chunk, as a client of the primary sent them: a filter that is full at 2^50 items.
fn full_primary() -> Vec<u8> {
    let mut header = Vec::new();
    let items = 1u64 << 50;
    header.extend(items.to_le_bytes());
    [1u32, 5, 2].iter().for_each(|field| header.extend(field.to_le_bytes()));
    let Layer { hashes, bits_per_entry, bits, bytes, .. } = with_present().layers.remove(0);
    [bits / 8, bits, items].iter().for_each(|field| header.extend(field.to_le_bytes()));
    [0.005, bits_per_entry].iter().for_each(|field| header.extend(field.to_le_bytes()));
    header.extend((hashes as u32).to_le_bytes());
    header.extend(items.to_le_bytes());
    header.push(0);
    [encode_chunk("full", 1, &header), encode_chunk("full", 1 + bytes.len() as i64, &bytes)].concat()
}

fn with_present() -> Model {
    let mut model = Model::reserve(0.01, 100, 2);
    model.add(b"present");
    model
}

fn assert_went_on(server: &Server) {
    let mut client = server.connect();
    eventually("the end of the stream", || client.run("EXISTS the-end") == integer(1));
    // A filter by default, as on the primary.
    let model = Model::of_payload(&dump(&mut client, "huge")).1;
    let mut expected = Model::reserve(0.01, 100, 2);
    assert_eq!((expected.add(b"a"), expected.add(b"b")), (Some(true), Some(true)));
    assert_eq!(model, expected);
    assert_wrapped(&mut client, "wrapped", "a b", i64::MAX, 2);
    assert_wrapped(&mut client, "wrapped-too", "a", 1_700_000_000_000_000_000, 1);
    assert_eq!(client.run("BF.MEXISTS full present new"), array([1, 0].map(integer)));
    assert_eq!(client.run("BF.CARD full"), integer(1 << 50));
    let log = server.log();
    assert!(log.contains("bloomgate: ignoring a reservation larger than this machine's memory: "), "{log}");
    assert!(log.contains("bloomgate: an item needs a layer larger than any machine's memory: "), "{log}");
}

/// 2.6 makes it with 64 bits, on x86-64.
fn assert_wrapped(client: &mut Connection, key: &str, items: &str, capacity: i64, card: i64) {
    assert_eq!(client.run(&format!("TYPE {key}")), simple("MBbloom--"));
    assert_eq!(client.run(&format!("BF.INFO {key} CAPACITY")), array([integer(capacity)]));
    assert_eq!(Model::of_payload(&dump(client, key)).1.layers[0].bytes.len(), 8);
    for item in items.split(' ') {
        assert_eq!(client.run(&format!("BF.EXISTS {key} {item}")), integer(1));
    }
    assert_eq!(client.run(&format!("BF.CARD {key}")), integer(card));
}

#[test]
fn what_no_machine_could_hold_is_passed_over() {
    on_every_server(|program| {
        let primary = TheirPrimary::start(snapshot(TODAY));
        let replica = following(program, &primary);
        primary.send(&RESERVATIONS);
        primary.send_bytes(full_primary());
        primary.send(&AFTERWARDS);
        assert_went_on(&replica);

        let commands = [encode(&RESERVATIONS), full_primary(), encode(&AFTERWARDS)].concat();
        let mut server = start_on_commands(program, &[], &commands);
        assert_went_on(&server);
        server.restart(Stop::Kill);
        assert_went_on(&server);
    });
}

#[test]
fn what_holds_items_or_is_ours_is_never_passed_over() {
    on_every_server(|program| {
        for line in [
            "BF.INSERT k CAPACITY 1000000000000000000 ITEMS a",
            "BF.INSERT k CAPACITY 1000000000000000000 ERROR 0.01 EXPANSION 2 SEED 7",
        ] {
            assert_ends_the_server(program, line);
        }
    });
}
