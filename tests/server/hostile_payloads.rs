//! RESTORE of payloads that somebody damaged or made up. The server answers, stays up, and whatever it took for a filter
//! can be used like one.

use std::path::Path;

use crate::harness::{Connection, Rng, Server, figures, is_accepted, ok, on_every_server, with_fixed_checksum};

/// The first byte names the server's own kind of value. Damage there is the server's matter, not the module's.
const SERVERS_OWN: usize = 1;
/// After the value: two bytes of version, eight of checksum.
const FOOTER: usize = 10;

/// Filters whose payloads are small enough to damage byte by byte.
const FILTERS: [(&str, usize); 5] = [
    ("0.01 10 NONSCALING SEED 1", 5),
    ("0.01 100 SEED 1", 0),
    ("0.01 2 EXPANSION 1 SEED 1", 7),
    ("1e-12 3 EXPANSION 32768 SEED 1", 3),
    ("0.25 1 NONSCALING SEED 4294967295", 1),
];

/// A server that checks payloads itself too, with a ceiling that keeps the machine usable.
pub fn start(program: &Path) -> (Server, Connection) {
    let server = Server::with(program).line("sanitize-dump-payload yes").line("maxmemory 1gb").start();
    let client = server.connect();
    (server, client)
}

fn payload(client: &mut Connection, words: &str, items: usize) -> Vec<u8> {
    client.run("DEL source");
    // Large filters that payloads made may be on their way out, and count until they are freed.
    client.wait_for_frees();
    assert_eq!(client.run(&format!("BF.RESERVE source {words}")), ok());
    for number in 0..items {
        client.run(&format!("BF.ADD source {number}"));
    }
    client.run("DUMP source").bytes().to_vec()
}

/// Restores a payload, uses the filter if it was accepted, and says whether it was.
fn try_to_restore(client: &mut Connection, payload: &[u8]) -> bool {
    let words: [&[u8]; 5] = [b"RESTORE", b"k", b"0", payload, b"REPLACE"];
    let reply = client.call(&words);
    is_accepted(client, &reply)
}

#[test]
fn a_payload_is_what_it_is() {
    on_every_server(|program| {
        let (_server, mut client) = start(program);
        for (words, items) in FILTERS {
            let payload = payload(&mut client, words, items);
            assert_eq!(with_fixed_checksum(payload.clone()), payload, "the checksum is the server's");
            assert!(try_to_restore(&mut client, &payload), "an undamaged payload is accepted");
            // Without its checksum put right, damage does not reach the module.
            let mut damaged = payload;
            damaged[12] ^= 1;
            assert!(!try_to_restore(&mut client, &damaged));
        }
    });
}

#[test]
fn every_byte_may_be_anything() {
    on_every_server(|program| {
        let (_server, mut client) = start(program);
        for (words, items) in FILTERS {
            let payload = payload(&mut client, words, items);
            let mut accepted = 0;
            let mut tried = 0;
            for place in SERVERS_OWN..payload.len() - FOOTER {
                for mask in [0x01, 0x02, 0x10, 0x40, 0x80, 0xff, payload[place]] {
                    let mut damaged = payload.clone();
                    damaged[place] ^= mask;
                    accepted += usize::from(try_to_restore(&mut client, &with_fixed_checksum(damaged)));
                    tried += 1;
                }
            }
            figures(&format!("damaged payloads: {tried} executions, {accepted} were accepted, {words}"));
        }
    });
}

#[test]
fn a_payload_may_end_anywhere() {
    on_every_server(|program| {
        let (_server, mut client) = start(program);
        for (words, items) in FILTERS {
            let payload = payload(&mut client, words, items);
            let (body, footer) = payload.split_at(payload.len() - FOOTER);
            for length in SERVERS_OWN..body.len() {
                let cut = [&body[..length], footer].concat();
                let accepted = try_to_restore(&mut client, &with_fixed_checksum(cut));
                // The server lets a value be read on into the footer, so only a larger cut is sure to be noticed.
                assert!(!accepted || body.len() - length <= FOOTER, "{length} of {} bytes", body.len());
            }
        }
    });
}

#[test]
fn bytes_may_be_missing_doubled_or_foreign() {
    on_every_server(|program| {
        let (_server, mut client) = start(program);
        let mut rng = Rng::new(1);
        let payloads: Vec<Vec<u8>> = FILTERS.iter().map(|(words, items)| payload(&mut client, words, *items)).collect();
        for round in 0..3000 {
            let base = &payloads[round % payloads.len()];
            let (body, footer) = base.split_at(base.len() - FOOTER);
            let mut body = body.to_vec();
            for _ in 0..=rng.below(3) {
                // The first ten bytes say that a module's value follows and which module's.
                let place = 10 + rng.below(body.len() as u64 - 10) as usize;
                match rng.below(4) {
                    0 => drop(body.remove(place)),
                    1 => body.insert(place, rng.number() as u8),
                    2 => {
                        let other = &payloads[rng.below(payloads.len() as u64) as usize];
                        let from = 10 + rng.below(other.len() as u64 - FOOTER as u64 - 10) as usize;
                        body.truncate(place);
                        body.extend_from_slice(&other[from..other.len() - FOOTER]);
                    }
                    _ => body[place] = [0, 0x7f, 0x80, 0x81, 0xff][rng.below(5) as usize],
                }
                if body.len() <= 10 {
                    break;
                }
            }
            try_to_restore(&mut client, &with_fixed_checksum([&body, footer].concat()));
        }
        assert_eq!(client.run("PING").text(), "PONG");
    });
}

#[test]
fn a_filter_without_the_memory_for_it_is_refused() {
    on_every_server(|program| {
        let (_server, mut client) = start(program);
        // More than a hundred megabytes in a few hundred bytes of payload.
        client.run("BF.RESERVE source 0.01 100000000 NONSCALING");
        let payload = client.run("DUMP source").bytes().to_vec();
        assert!(payload.len() < 4096, "{} bytes", payload.len());
        assert!(try_to_restore(&mut client, &payload));
        client.run("DEL source");
        client.run("CONFIG SET maxmemory 100mb");
        assert!(!try_to_restore(&mut client, &payload), "RESTORE is a client's request and maxmemory binds it");
        client.run("CONFIG SET maxmemory 0");
        client.run("CONFIG SET bf.max-filter-bytes 100000");
        assert!(!try_to_restore(&mut client, &payload), "the ceiling binds it too");
        client.run("CONFIG SET bf.max-filter-bytes 0");
        assert!(try_to_restore(&mut client, &payload));
    });
}
