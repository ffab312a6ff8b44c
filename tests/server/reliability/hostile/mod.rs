//! Untrusted bytes through every command that takes them: RESTORE, BF.LOADCHUNK, BF.LOAD, and random command lines. The server
//! keeps running. Each input is refused or creates a filter that works, and deleting that filter releases its memory. While a
//! payload is refused, no more memory becomes resident than its length justifies.
//!
//! Everything is drawn from a seed (`BLOOMGATE_SEED`, default 1), so that a failure can be reproduced.

mod command_lines;
mod damage;
mod records;
mod values;

use std::path::Path;

use super::scaled;
use damage::damaged;
use testing::{
    Connection, Resident, Rng, Server, eventually, figures, integer, on_every_server, restore_by_law, use_and_delete,
};
use values::Seed;

/// The limits of the servers: none, a ceiling for each filter, `maxmemory`.
const LIMITS: [(&str, &[&str]); 3] = [
    ("no limit", &[]),
    ("bf.max-filter-bytes 2mb", &["bf.max-filter-bytes 2mb"]),
    ("maxmemory 64mb", &["maxmemory 64mb"]),
];

/// How much used memory may differ between before and after.
const SLACK_BYTES: i64 = 128 << 10;
/// How much more memory may be resident, because the allocator keeps partly used pages.
const RESIDENT_SLACK_BYTES: i64 = 8 << 20;
fn start(program: &Path, lines: &[&str]) -> Server {
    // Strings are not compressed, so that tests can change their bytes.
    lines.iter().fold(Server::with(program).line("rdbcompression no"), |builder, line| builder.line(line)).start()
}

/// Returns a random generator with a different seed for each of [`LIMITS`].
fn rng(limits: &str) -> Rng {
    let seed: u64 = std::env::var("BLOOMGATE_SEED").map_or(1, |text| text.parse().expect("a number"));
    Rng::new(limits.bytes().fold(seed, |seed, letter| seed.wrapping_mul(31).wrapping_add(letter.into())))
}

/// The outcome of an input.
#[derive(Default)]
struct Counts {
    tried: usize,
    accepted: usize,
    refused: usize,
}

/// Runs `one` this many times, and compares the memory before and after.
fn in_flat_memory(server: &Server, tries: usize, mut one: impl FnMut(&mut Connection, &mut Counts)) -> Counts {
    let mut client = server.connect();
    let mut counts = Counts::default();
    // Warms up.
    (0..tries / 5).for_each(|_| one(&mut client, &mut counts));
    client.run("MEMORY PURGE");
    let (used, resident) = (client.info_number("used_memory"), Resident::of(server));
    (0..tries).for_each(|_| one(&mut client, &mut counts));
    let mut now = 0;
    eventually("memory to be as before", || {
        client.run("MEMORY PURGE");
        now = client.info_number("used_memory");
        (now - used).abs() <= SLACK_BYTES
    });
    // libc's malloc keeps freed blocks of up to 32 MiB, and nothing makes it return them.
    let returns_pages = client.info("mem_allocator").starts_with("jemalloc");
    if let (true, Some(before), Some(after)) = (returns_pages, resident, Resident::of(server)) {
        assert!(after.now <= before.now + RESIDENT_SLACK_BYTES, "{} bytes resident, {} before", after.now, before.now);
    }
    assert_eq!(client.gauge("num_objects"), 0);
    counts
}

/// Calls [`restore_by_law`] and counts the outcome.
fn restore(server: &Server, client: &mut Connection, payload: &[u8], counts: &mut Counts) -> bool {
    let accepted = restore_by_law(server, client, payload);
    counts.tried += 1;
    counts.accepted += usize::from(accepted);
    counts.refused += usize::from(!accepted);
    accepted
}

#[test]
fn a_damaged_payload_is_refused_or_a_valid_filter_and_its_memory_is_released() {
    on_every_server(|program| {
        for (name, lines) in LIMITS {
            let server = start(program, lines);
            let seeds = values::seeds(&server);
            let mut rng = rng(name);
            let counts = in_flat_memory(&server, scaled(1500), |client, counts| {
                let payload = damaged(&mut rng, &seeds);
                restore(&server, client, &payload, counts);
            });
            let Counts { tried, accepted, refused } = counts;
            figures(&format!("RESTORE, {name}: {tried} executions, {accepted} accepted, {refused} refused"));
            assert!(accepted > tried / 100 && refused > tried / 100, "both happen");
        }
    });
}

#[test]
fn every_kept_input_of_the_fuzzer_is_refused_or_a_valid_filter() {
    on_every_server(|program| {
        for (name, lines) in LIMITS {
            let server = start(program, lines);
            let mut client = server.connect();
            let mut counts = Counts::default();
            for Seed { payload, .. } in values::kept_inputs() {
                restore(&server, &mut client, &payload, &mut counts);
            }
            let Counts { tried, accepted, .. } = counts;
            figures(&format!("RESTORE of kept inputs, {name}: {tried} executions, {accepted} accepted"));
            assert!(accepted > 30 && accepted < tried, "{accepted}");
        }
    });
}

#[test]
fn a_payload_with_a_wrong_checksum_is_refused() {
    on_every_server(|program| {
        let server = start(program, &[]);
        let seeds = values::seeds(&server);
        let mut rng = rng("");
        let counts = in_flat_memory(&server, scaled(500), |client, counts| {
            let mut payload = damaged(&mut rng, &seeds);
            let place = payload.len() - 1 - rng.below(8) as usize;
            payload[place] ^= 1 << rng.below(8);
            assert!(!restore(&server, client, &payload, counts));
        });
        figures(&format!("RESTORE, wrong checksums: {} executions", counts.tried));
    });
}

#[test]
fn a_damaged_record_is_refused_or_a_valid_filter_and_its_memory_is_released() {
    on_every_server(|program| {
        for (name, lines) in LIMITS {
            let server = start(program, lines);
            let (dumps, loads) = (records::dumps(&server), records::loads());
            let mut rng = rng(name);
            let (mut sent, mut taken) = (0, 0);
            let counts = in_flat_memory(&server, scaled(800), |client, counts| {
                let commands = if rng.below(3) == 0 {
                    records::damaged_load(&mut rng, &loads)
                } else {
                    records::damaged_dump(&mut rng, &dumps)
                };
                let bytes: usize = commands.iter().flatten().map(Vec::len).sum();
                let here = Resident::bounded(&server, client, |client| {
                    client.run("DEL k");
                    let accepted = commands.iter().filter(|words| !client.call(words).is_error()).count();
                    (accepted, Some(bytes))
                });
                (sent, taken) = (sent + commands.len(), taken + here);
                counts.tried += 1;
                counts.accepted += usize::from(use_and_delete(client));
                assert_eq!(client.run("DBSIZE"), integer(0));
            });
            let Counts { tried, accepted, .. } = counts;
            figures(&format!(
                "records, {name}: {sent} executions, {tried} dumps, {taken} accepted, {accepted} filters"
            ));
            assert!(accepted > tried / 100 && taken < sent, "both happen");
        }
    });
}

#[test]
fn every_random_command_is_answered_and_a_refused_one_changes_nothing() {
    on_every_server(|program| {
        for (name, lines) in LIMITS {
            let server = start(program, lines);
            let mut rng = rng(name);
            let counts = in_flat_memory(&server, scaled(200), |client, counts| {
                client.run(&format!("SET {} x", command_lines::TEXT_KEY));
                command_lines::round(&mut rng, client, counts);
                assert_eq!(client.run(&format!("GET {}", command_lines::TEXT_KEY)).text(), "x");
                client.run("FLUSHALL");
            });
            let Counts { tried, accepted, refused } = counts;
            figures(&format!("command lines, {name}: {tried} executions, {accepted} done, {refused} refused"));
            assert!(accepted > tried / 20 && refused > tried / 20, "both happen");
            assert!(server.connect().gauge("fills") > 0, "some fills are accepted");
        }
    });
}
