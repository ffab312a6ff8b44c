//! Payloads of valkey-bloom's formats that somebody made up, each with one number that cannot be, by RESTORE, by
//! BF.LOAD and in a snapshot: an error that says so, and no memory asked for that no data follows.

use std::fs;

use super::model::{Field, Model, dump_of, goldens, load, unpacked};
use crate::hostile_payloads::{is_restored, start};
use testing::{Connection, Reply, Server, error, integer, is_accepted, on_every_server, restore, with_fixed_checksum};

/// What stands in front of a value in a DUMP: that it is a module's, and which module's.
const HEAD: usize = 10;

/// Filters small enough to damage byte by byte: fixed, growing, grown.
pub fn victims() -> Vec<Model> {
    [(5, 0.1, 0.5, 0, 5), (10, 0.01, 0.5, 2, 4), (2, 0.2, 0.7, 1, 6), (1, 0.3, 0.5, 4, 5)]
        .into_iter()
        .map(|(capacity, rate, tightening, expansion, items)| {
            let mut model = Model::new(capacity, rate, tightening, expansion, [0x5a; 32]);
            model.add_all((0..items).map(|number| number.to_string()));
            model
        })
        .collect()
}

/// BF.LOAD at `k`; whether it was accepted.
fn is_loaded(client: &mut Connection, payload: &[u8]) -> bool {
    let reply = load(client, "k", payload);
    is_accepted(client, &reply)
}

/// How much the server holds and the most that it held.
fn memory(client: &mut Connection) -> (i64, i64) {
    (client.info_number("used_memory"), client.info_number("used_memory_peak"))
}

/// What is changed, and how.
type Change = (&'static str, fn(&mut Model));

/// valkey-bloom's issue 90: a loaded double out of range hit an assertion.
#[test]
fn a_double_out_of_range_is_an_error() {
    on_every_server(|program| {
        let (server, mut client) = start(program);
        let unsound = [
            0.0,
            -0.0,
            1.0,
            1.5,
            -0.01,
            -1.0,
            1e300,
            -1e300,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            -f64::NAN,
            f64::from_bits(0x7ff0_0000_0000_0001),
        ];
        for model in victims() {
            for value in unsound {
                for is_rate in [true, false] {
                    let mut damaged = model.clone();
                    *(if is_rate { &mut damaged.rate } else { &mut damaged.tightening }) = value;
                    assert_refused(&mut client, &damaged, &format!("{value}, rate: {is_rate}"));
                }
            }
        }
        assert!(server.log().contains("bloomgate: cannot load a filter:"), "the log says why");
    });
}

/// Both ways in refuse it, with their own words.
fn assert_refused(client: &mut Connection, model: &Model, what: &str) {
    assert_eq!(restore(client, "k", &model.dump()), error("ERR Bad data format"), "RESTORE: {what}");
    let expected = error("ERR bloom object decoding failed");
    assert_eq!(load(client, "k", &model.payload()), expected, "BF.LOAD: {what}");
    assert_eq!(client.run("EXISTS k"), integer(0), "{what}");
}

#[test]
fn a_filter_that_cannot_be_is_an_error() {
    on_every_server(|program| {
        let (server, mut client) = start(program);
        let changes: [Change; 14] = [
            ("no sub-filter", |model| model.layers.clear()),
            ("capacity 0", |model| model.layers[0].capacity = 0),
            ("capacity 0 at the end", |model| model.layers.last_mut().unwrap().capacity = 0),
            ("capacity -1", |model| model.layers[0].capacity = -1),
            ("capacity i64::MIN", |model| model.layers.last_mut().unwrap().capacity = i64::MIN),
            ("items -1", |model| model.layers.last_mut().unwrap().items = -1),
            ("hashes 0", |model| model.layers[0].hashes = 0),
            ("hashes 2^31", |model| model.layers[0].hashes = 1 << 31),
            ("hashes 2^32 - 1", |model| model.layers.last_mut().unwrap().hashes = u32::MAX),
            ("hashes 2^31 - 1", |model| model.layers.last_mut().unwrap().hashes = (1 << 31) - 1),
            ("no bits", |model| model.layers[0].bits.clear()),
            ("no bits at the end", |model| model.layers.last_mut().unwrap().bits.clear()),
            ("seed flag 2", |model| model.is_seed_random = 2),
            ("seed flag 255", |model| model.is_seed_random = 255),
        ];
        for model in victims() {
            for (what, change) in changes {
                let mut damaged = model.clone();
                change(&mut damaged);
                assert_refused(&mut client, &damaged, what);
            }
        }
        assert!(server.log().contains("bloomgate: cannot load a filter:"), "the log says why");
    });
}

/// A snapshot has the count of the last sub-filter only.
#[test]
fn a_record_whose_earlier_sub_filters_are_not_full_is_an_error() {
    on_every_server(|program| {
        let (_server, mut client) = start(program);
        for model in victims().iter().filter(|model| model.layers.len() > 1) {
            for difference in [-1, 1] {
                let mut damaged = model.clone();
                damaged.layers[0].items += difference;
                let reply = load(&mut client, "k", &damaged.payload());
                assert_eq!(reply, error("ERR bloom object decoding failed"), "{difference}");
            }
        }
    });
}

#[test]
fn sub_filters_of_different_seeds_are_an_error() {
    on_every_server(|program| {
        let (_server, mut client) = start(program);
        for model in victims().iter().filter(|model| model.layers.len() > 1) {
            let mut fields = model.fields();
            let Some(Field::Text(bitmap)) = fields.last_mut() else { panic!("a bitmap is last") };
            bitmap[13] ^= 1;
            assert_eq!(restore(&mut client, "k", &dump_of(&fields)), error("ERR Bad data format"));
            // In a record the seed of the last bitmap stands before its bits, two integers and the end.
            let mut record = model.payload();
            let place = record.len() - 16 - model.layers.last().unwrap().bits.len() - 1;
            record[place] ^= 0x80;
            assert_eq!(load(&mut client, "k", &record), error("ERR bloom object decoding failed"));
        }
    });
}

#[test]
fn lengths_and_counts_that_lie_ask_for_no_memory() {
    on_every_server(|program| {
        let (_server, mut client) = start(program);
        // Three sub-filters, the first of 24 bytes of bits and a bitmap of 69.
        let mut model = Model::new(20, 0.01, 0.5, 2, [0x5a; 32]);
        model.add_all((0..100).map(|number| number.to_string()));
        let (used, peak) = memory(&mut client);
        let lies = [0, 1, 2, 100, 65_536, 1 << 31, 1 << 32, 1 << 40, 1 << 62, 1 << 63, u64::MAX - 7, u64::MAX];
        for lie in lies {
            // The number of sub-filters.
            let mut fields = model.fields();
            fields[0] = Field::Integer(lie);
            assert!(!is_restored(&mut client, &dump_of(&fields)), "{lie} sub-filters");
            let mut record = model.payload();
            record[22..30].copy_from_slice(&lie.to_le_bytes());
            let reply = load(&mut client, "k", &record);
            // Fewer than there are: what is left stands after the end.
            assert_eq!(is_accepted(&mut client, &reply), (1..model.layers.len() as u64).contains(&lie), "{lie}");
            // The length of a bitmap in a record, and in the bitmap itself its number of bytes.
            for place in [30, 39] {
                let mut record = model.payload();
                record[place..place + 8].copy_from_slice(&lie.to_le_bytes());
                assert_eq!(load(&mut client, "k", &record), error("ERR bloom object decoding failed"), "{lie}");
            }
            let mut fields = model.fields();
            let Field::Text(bitmap) = &mut fields[6] else { panic!("the first bitmap is here") };
            assert_ne!(bitmap[1..9], lie.to_le_bytes());
            bitmap[1..9].copy_from_slice(&lie.to_le_bytes());
            assert_eq!(restore(&mut client, "k", &dump_of(&fields)), error("ERR Bad data format"), "{lie}");
        }
        // A bitmap without its header, with a part of it, of another version.
        let changes: [fn(&mut Vec<u8>); 3] = [Vec::clear, |bitmap| bitmap.truncate(44), |bitmap| bitmap[0] = 2];
        for change in changes {
            let mut fields = model.fields();
            let Some(Field::Text(bitmap)) = fields.last_mut() else { panic!("a bitmap is last") };
            change(bitmap);
            assert_eq!(restore(&mut client, "k", &dump_of(&fields)), error("ERR Bad data format"));
        }
        let (used_now, peak_now) = memory(&mut client);
        assert!(used_now - used < 8 << 20, "{} bytes more in use", used_now - used);
        assert!(peak_now - peak < 32 << 20, "{} bytes more at the peak", peak_now - peak);
    });
}

#[test]
fn numbers_beyond_what_a_filter_has_do_not_end_the_server() {
    on_every_server(|program| {
        let (_server, mut client) = start(program);
        for model in victims() {
            let fields = model.fields();
            for place in 0..fields.len() {
                for number in [0, 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 53) + 1, 1 << 63, u64::MAX] {
                    let mut damaged = fields.clone();
                    damaged[place] = Field::Integer(number);
                    is_restored(&mut client, &dump_of(&damaged));
                }
                for other in
                    [Field::Double(0.5), Field::Double(f64::NAN), Field::Text(vec![]), Field::Text(vec![0; 60])]
                {
                    let mut damaged = fields.clone();
                    damaged[place] = other;
                    is_restored(&mut client, &dump_of(&damaged));
                }
            }
        }
        assert_eq!(client.run("PING").text(), "PONG");
    });
}

#[test]
fn growth_of_a_filter_with_numbers_at_the_edge_is_refused_by_an_error() {
    on_every_server(|program| {
        let (_server, mut client) = start(program);
        for (capacity, expansion) in [(i64::MAX, 2), (i64::MAX / 2, u32::MAX), (1 << 40, 1 << 20), (3, u32::MAX)] {
            let mut model = Model::new(1, 0.5, 0.5, expansion, [1; 32]);
            model.layers[0].capacity = capacity;
            model.layers[0].items = capacity;
            for reply in [load(&mut client, "k", &model.payload()), restore(&mut client, "k2", &model.dump())] {
                eprintln!("capacity {capacity}, expansion {expansion}: {reply:?}");
            }
            for key in ["k", "k2"] {
                if client.run(&format!("EXISTS {key}")) == integer(1) {
                    let new = ["a", "b", "c", "d", "e"].map(|item| client.run(&format!("BF.ADD {key} {item}")));
                    assert!(new.iter().any(Reply::is_error), "{key}: {new:?}");
                    assert_eq!(client.run(&format!("DEL {key}")), integer(1));
                }
            }
        }
    });
}

#[test]
fn a_damaged_snapshot_is_refused_with_a_reason() {
    on_every_server(|program| {
        let sound = unpacked("snapshot.rdb.gz");
        // The number of the type, as it stands in front of every value.
        let type_number = &goldens()[0].dump[1..HEAD];
        let value = sound.windows(type_number.len()).position(|window| window == type_number).unwrap() + HEAD - 1;
        // After it and the server's marks: sub-filters, expansion, rate, tightening, where the seed came from.
        for (place, byte) in [(1, 0), (1, 40), (12, 0x7f), (12, 0xff), (21, 0x7f), (21, 0xbf), (23, 7)] {
            let mut snapshot = sound.clone();
            assert_ne!(snapshot[value + place], byte);
            snapshot[value + place] = byte;
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("dump.rdb"), snapshot).unwrap();
            let log = Server::with(program)
                .line(&format!("dir {}", folder.path().display()))
                .line("rdbchecksum no")
                .refuses_to_start();
            assert!(log.contains("bloomgate: cannot load a filter:"), "byte {place} = {byte}: {log}");
            assert!(!log.contains("panicked at") && !log.contains("BUG REPORT"), "{log}");
        }
    });
}

#[test]
fn every_byte_before_the_bits_of_a_real_filter_may_be_anything() {
    on_every_server(|program| {
        let (_server, mut client) = start(program);
        for golden in goldens().iter().filter(|golden| golden.payload.len() < 6000) {
            // After the head of the filter and of its first sub-filter only bits and further sub-filters follow.
            for place in 0..30 + 8 + 45 {
                for mask in [0x01, 0x80, 0xff] {
                    let mut damaged = golden.payload.clone();
                    damaged[place] ^= mask;
                    is_loaded(&mut client, &damaged);
                    let mut damaged = golden.dump_uncompressed.clone();
                    damaged[HEAD + place] ^= mask;
                    is_restored(&mut client, &with_fixed_checksum(damaged));
                }
            }
        }
        assert_eq!(client.run("PING").text(), "PONG");
    });
}

#[test]
fn values_that_are_left_out_are_an_error() {
    on_every_server(|program| {
        let (_server, mut client) = start(program);
        for model in victims() {
            let fields = model.fields();
            for length in 0..fields.len() {
                assert!(!is_restored(&mut client, &dump_of(&fields[..length])), "{length} of {} values", fields.len());
            }
        }
    });
}
