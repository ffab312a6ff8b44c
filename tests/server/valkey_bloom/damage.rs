//! Payloads of valkey-bloom's formats that somebody cut, changed or mixed, by RESTORE and by BF.LOAD. The answer is
//! an error or a filter that works like any other, and the server stays up.

use super::golden::{body, goldens, load, restore};
use super::model::{Model, dump_of};
use crate::harness::{Connection, Rng, is_accepted, on_every_server, with_fixed_checksum};
use crate::hostile_payloads::start;

/// What stands in front of a value in a DUMP: that it is a module's, and which module's.
const HEAD: usize = 10;
/// After the value: two bytes of version, eight of checksum.
const FOOTER: usize = 10;

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

/// RESTORE at `k`; whether it was accepted.
pub fn is_restored(client: &mut Connection, payload: &[u8]) -> bool {
    let reply = restore(client, "k", payload);
    is_accepted(client, &reply)
}

/// BF.LOAD at `k`; whether it was accepted.
pub fn is_loaded(client: &mut Connection, payload: &[u8]) -> bool {
    let reply = load(client, "k", payload);
    is_accepted(client, &reply)
}

/// How much the server holds and the most that it held.
pub fn memory(client: &mut Connection) -> (i64, i64) {
    (client.info_number("used_memory"), client.info_number("used_memory_peak"))
}

#[test]
fn what_the_model_spells_is_accepted() {
    on_every_server(|program| {
        let (_server, mut client) = start(program);
        for model in victims() {
            assert!(is_restored(&mut client, &model.dump()));
            assert!(is_loaded(&mut client, &model.payload()));
        }
    });
}

/// CVE-2026-21864: a payload that was too short ended the server, for the module had not said that it handles errors.
#[test]
fn a_short_restore_payload_is_an_error() {
    on_every_server(|program| {
        let (_server, mut client) = start(program);
        let mut payloads: Vec<Vec<u8>> = victims().iter().map(Model::dump).collect();
        payloads.extend(goldens().iter().filter(|golden| golden.dump.len() < 200).map(|golden| golden.dump.clone()));
        for payload in payloads {
            let (body, footer) = payload.split_at(payload.len() - FOOTER);
            for length in 1..body.len() {
                let cut = with_fixed_checksum([&body[..length], footer].concat());
                let accepted = is_restored(&mut client, &cut);
                // The server lets a value be read on into the footer, so only a larger cut is sure to be noticed.
                assert!(!accepted || body.len() - length <= FOOTER, "{length} of {} bytes", body.len());
            }
        }
        // Values left out, at every place, with the mark of the end after what is left.
        for model in victims() {
            let fields = model.fields();
            for length in 0..fields.len() {
                assert!(!is_restored(&mut client, &dump_of(&fields[..length])), "{length} of {} values", fields.len());
            }
        }
    });
}

#[test]
fn a_short_record_is_an_error() {
    on_every_server(|program| {
        let (_server, mut client) = start(program);
        for model in victims() {
            let payload = model.payload();
            for length in 0..payload.len() {
                assert!(!is_loaded(&mut client, &payload[..length]), "{length} of {} bytes", payload.len());
            }
        }
        for golden in goldens() {
            let length = golden.payload.len();
            for cut in [1, 2, 8, 16, 17, length / 2, length - 40] {
                assert!(!is_loaded(&mut client, &golden.payload[..length - cut]), "{}: {cut} missing", golden.key);
            }
        }
    });
}

#[test]
fn every_byte_may_be_anything() {
    on_every_server(|program| {
        let (_server, mut client) = start(program);
        let before = memory(&mut client).0;
        for model in victims() {
            let (dump, record) = (model.dump(), model.payload());
            let (mut accepted, mut tried) = (0, 0);
            for mask in [0x01, 0x02, 0x10, 0x40, 0x80, 0xff] {
                for place in 1..dump.len() - FOOTER {
                    let mut damaged = dump.clone();
                    damaged[place] ^= mask;
                    accepted += usize::from(is_restored(&mut client, &with_fixed_checksum(damaged)));
                    tried += 1;
                }
                for place in 0..record.len() {
                    let mut damaged = record.clone();
                    damaged[place] ^= mask;
                    accepted += usize::from(is_loaded(&mut client, &damaged));
                    tried += 1;
                }
            }
            eprintln!("{accepted} of {tried} damaged payloads were accepted");
        }
        let grown = memory(&mut client).0 - before;
        assert!(grown < 8 << 20, "{grown} bytes more in use");
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
fn bytes_may_be_missing_doubled_or_foreign() {
    on_every_server(|program| {
        let (_server, mut client) = start(program);
        let mut rng = Rng::new(2);
        let records: Vec<Vec<u8>> = victims().iter().map(Model::payload).collect();
        let dumps: Vec<Vec<u8>> = victims().iter().map(|model| body(&model.dump()).to_vec()).collect();
        for round in 0..2000 {
            let is_dump = round % 2 == 0;
            let (all, fixed) = if is_dump { (&dumps, HEAD) } else { (&records, 1) };
            let mut bytes = all[round / 2 % all.len()].clone();
            for _ in 0..=rng.below(3) {
                let place = fixed + rng.below((bytes.len() - fixed) as u64) as usize;
                match rng.below(4) {
                    0 => drop(bytes.remove(place)),
                    1 => bytes.insert(place, rng.number() as u8),
                    2 => {
                        let other = &all[rng.below(all.len() as u64) as usize];
                        let from = fixed + rng.below((other.len() - fixed) as u64) as usize;
                        bytes.truncate(place);
                        bytes.extend_from_slice(&other[from..]);
                    }
                    _ => bytes[place] = [0, 0x7f, 0x80, 0x81, 0xff][rng.below(5) as usize],
                }
                if bytes.len() <= fixed {
                    break;
                }
            }
            if is_dump {
                bytes.extend([10, 0]);
                bytes.extend([0; 8]);
                is_restored(&mut client, &with_fixed_checksum(bytes));
            } else {
                is_loaded(&mut client, &bytes);
            }
        }
        assert_eq!(client.run("PING").text(), "PONG");
    });
}
