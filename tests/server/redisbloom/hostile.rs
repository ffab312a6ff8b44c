//! Payloads and headers of RedisBloom's format with numbers that no filter has, above all those that brought other programs
//! down: an error, a line in the log, and the server goes on with the memory that it had.

use super::model::{FORCE_64, Model};
use super::payload::{Field, fields_of, payload_of};
use testing::{Connection, Server, error, integer, on_every_server};

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
