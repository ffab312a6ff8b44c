//! Extreme rates, capacities, item sizes and numbers of items. Impossible requests get a clear error, all others work, and the server keeps
//! running.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use super::{LAYOUTS, available_megabytes, hits, most_hits, need_megabytes, rate_of, scaled};
use crate::golden::as_commands;
use testing::{
    Connection, Reply, Rng, Server, eventually, figures, integer, ok, on_every_server, records, with_client, words,
};

const RATES: [&str; 16] = [
    "0",
    "-0",
    "1e-400",
    "4.9e-324",
    "1e-323",
    "2.2250738585072014e-308",
    "1e-300",
    "1e-20",
    "1e-12",
    "0.01",
    "0.25",
    "0.999999",
    "0.99999999999999999",
    "1",
    "nan",
    "inf",
];

const CAPACITIES: [&str; 12] = [
    "0",
    "1",
    "2",
    "1000000",
    "1073741824",
    "4294967296",
    "1152921504606846976",
    "4611686018427387904",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
];

const EXPANSIONS: [&str; 4] = [" NONSCALING", " EXPANSION 1", " EXPANSION 32768", " EXPANSION 9223372036854775807"];

const LAYOUT_WORDS: [&str; 3] = ["", " LAYOUT redisbloom", " TIGHTENING 0.5"];

/// The allowed reply to an extreme value: a filter, or an error that begins with one of these texts.
const REFUSALS: [&str; 12] = [
    "ERR bad error rate",
    "ERR error rate must be",
    "ERR bad capacity",
    "ERR capacity must be",
    "ERR bad expansion",
    "ERR expansion must be",
    "ERR the error rate of the filter or of its next layer is too low",
    "Bad error rate",
    "Bad capacity",
    "Bad expansion",
    "ERR Insufficient memory to create filter",
    "ERR filter cannot grow",
];

fn assert_clear(text: &str, line: &str) {
    assert!(REFUSALS.iter().any(|refusal| text.starts_with(refusal)), "{line}: {text}");
}

#[test]
fn every_extreme_rate_and_capacity_works_or_is_a_clear_error() {
    on_every_server(|program| {
        let server = Server::with(program).line("bf.max-filter-bytes 16000000").start();
        let mut client = server.connect();
        let (mut made, mut refused) = (0, 0);
        for layout in LAYOUT_WORDS {
            for (rate, capacity) in RATES.iter().flat_map(|rate| CAPACITIES.map(|capacity| (*rate, capacity))) {
                for expansion in EXPANSIONS {
                    let insert = format!("BF.INSERT k CAPACITY {capacity} ERROR {rate}{expansion}{layout} ITEMS a b c");
                    let reserve = format!("BF.RESERVE k {rate} {capacity}{expansion}{layout}");
                    for line in [insert, reserve] {
                        if line.starts_with("BF.RESERVE") && layout.contains("TIGHTENING") {
                            continue;
                        }
                        let reply = client.run(&line);
                        if reply.is_error() {
                            assert_clear(reply.error_text(), &line);
                            assert_eq!(client.run("EXISTS k").number(), 0, "{line}");
                            refused += 1;
                            continue;
                        }
                        made += 1;
                        // The filter is used like any other: items that were added are found, even if not all fitted.
                        let answers = client.run("BF.MADD k a b c d");
                        for (item, answer) in ["a", "b", "c", "d"].iter().zip(answers.elements()) {
                            if answer.is_error() {
                                assert!(answer.error_text().starts_with("ERR "), "{line}: {answer:?}");
                            } else {
                                assert!(client.run(&format!("BF.EXISTS k {item}")).truth(), "{line}");
                            }
                        }
                        assert!(client.run("BF.INFO k").field("Size").number() <= 16_000_000, "{line}");
                        assert_eq!(client.run("UNLINK k").number(), 1);
                    }
                }
            }
        }
        assert!(made > 100 && refused > 100);
        assert_eq!(client.gauge("num_objects"), 0);
        figures(&format!(
            "sizes: {} executions at the edges, {made} made a filter, {refused} were refused",
            made + refused
        ));
    });
}

#[test]
fn an_extreme_configuration_is_accepted_or_refused_and_the_next_filter_works() {
    on_every_server(|program| {
        let server = Server::with(program).line("maxmemory 200mb").start();
        let mut client = server.connect();
        let names = ["error-rate", "initial-size", "expansion-factor", "max-filter-bytes", "bloom-tightening-ratio"];
        let (mut taken, mut refused) = (0, 0);
        for name in names {
            let usual = client.run(&format!("CONFIG GET bf.{name}")).elements()[1].text();
            for value in RATES.iter().chain(&CAPACITIES).chain(&["", "-1", "-9223372036854775808", "32768", "32769"]) {
                for layout in ["native", "redisbloom"] {
                    client.run(&format!("CONFIG SET bf.layout {layout}"));
                    let reply = client.run(&format!("CONFIG SET bf.{name} {value}"));
                    if reply.is_error() {
                        refused += 1;
                        assert!(reply.error_text().contains(&format!("bf.{name}")), "{name} {value}: {reply:?}");
                    } else {
                        taken += 1;
                    }
                    let reply = client.run("BF.ADD k a");
                    if reply.is_error() {
                        assert_clear(reply.error_text(), &format!("bf.{name} {value}"));
                    } else {
                        assert!(client.run("BF.EXISTS k a").truth());
                        client.run("UNLINK k");
                    }
                }
            }
            assert_eq!(client.run(&format!("CONFIG SET bf.{name} {usual}")), ok());
        }
        figures(&format!("settings: {} executions at the edges, {refused} were refused", taken + refused));
        assert!(taken > 0 && refused > 0);
    });
}

/// Sends a command with one huge item and reads the first line of the reply. The client does not hold the item in memory.
fn with_huge_item(port: u16, command: &str, key: &str, length: usize, last: u8) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let head = format!("*3\r\n${}\r\n{command}\r\n${}\r\n{key}\r\n${length}\r\n", command.len(), key.len());
    stream.write_all(head.as_bytes()).unwrap();
    let piece: Vec<u8> = (0..1 << 20).map(|byte| (byte % 251) as u8).collect();
    std::io::copy(&mut piece.chain(RepeatPiece(&piece)).take(length as u64 - 1), &mut stream).unwrap();
    stream.write_all(&[last, b'\r', b'\n']).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// Produces the same bytes repeatedly.
struct RepeatPiece<'a>(&'a [u8]);

impl Read for RepeatPiece<'_> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let length = to.len().min(self.0.len());
        to[..length].copy_from_slice(&self.0[..length]);
        Ok(length)
    }
}

#[test]
fn an_item_as_large_as_the_server_allows_is_accepted() {
    on_every_server(|program| {
        need_megabytes(3000);
        let server = Server::start(program);
        let mut client = server.connect();
        let mut lengths = vec![(536_870_911, "512mb")];
        if scaled(1) > 1 {
            lengths.push((900 << 20, "1000mb"));
        }
        if scaled(1) > 1 && available_megabytes().is_some_and(|available| available > 14_000) {
            // A length above 32 bits. The server must be configured to accept it.
            assert_eq!(client.run("CONFIG SET client-query-buffer-limit 16gb"), ok());
            lengths.push(((4 << 30) + 5, "6gb"));
        }
        for (length, limit) in lengths {
            assert_eq!(client.run(&format!("CONFIG SET proto-max-bulk-len {limit}")), ok());
            for (key, line) in LAYOUTS {
                client.run(line);
                let ask = |command: &str, last| with_huge_item(server.port, command, key, length, last);
                assert_eq!(ask("BF.ADD", 1), ":1", "{key}");
                assert_eq!(ask("BF.EXISTS", 1), ":1", "{key}");
                assert_eq!(ask("BF.EXISTS", 2), ":0", "{key}");
                client.run(&format!("DEL {key}"));
            }
            eprintln!("an item of {length} bytes was added and found in three layouts");
        }
    });
}

#[test]
fn a_million_items_in_one_command() {
    with_client(|_, client| {
        for (key, line) in LAYOUTS {
            // The chains of the other layouts take too long to fill in an ordinary run.
            let count = if key == "native" { 1_000_000 } else { scaled(200_000).min(1_000_000) };
            client.run(line);
            let mut words = vec!["BF.MADD".to_owned(), key.to_owned()];
            words.extend((0..count).map(|number| number.to_string()));
            let reply = client.call(&words);
            assert_eq!(reply.elements().len(), count);
            let new = reply.elements().iter().filter(|answer| answer.truth()).count();
            assert_eq!(client.run(&format!("BF.CARD {key}")).number(), new as i64);
            assert!(count - new <= most_hits(count, rate_of(key)), "{key}: {new} of {count} were new");
            words[0] = "BF.MEXISTS".to_owned();
            assert!(client.call(&words).elements().iter().all(|answer| answer.truth()), "{key}");
            eprintln!("{key}: {count} items in one BF.MADD, {new} new, all found by one BF.MEXISTS");
        }
    });
}

// An attacker who tries to pass a filter with ids found on a filter of their own, or with ids constructed from a member. A separate random
// seed per filter prevents the former. The latter cannot be prevented, because the hash has collisions that hold for every seed, as the
// README says. Filters with HASH siphash and those of valkey-bloom's layout have a keyed hash without such collisions: an attacker who
// knows the code, the members and all answers, but not the key, passes no more often than the false positive rate.

const CAPACITY: usize = 10_000;
const RATE: f64 = 0.01;

fn members() -> Vec<String> {
    (0..CAPACITY).map(|number| format!("user:{number}")).collect()
}

fn filled(client: &mut Connection, key: &str, words: &str) {
    assert_eq!(client.run(&format!("BF.RESERVE {key} {RATE} {CAPACITY} NONSCALING{words}")), ok());
    let answers = client.batched(&[b"BF.MADD", key.as_bytes()], &members());
    assert_eq!(answers.len(), CAPACITY);
}

/// Returns ids that are not members but pass the filter.
fn picked(client: &mut Connection, key: &str, tries: usize) -> Vec<String> {
    let ids: Vec<String> = (0..tries).map(|number| format!("forged:{number}")).collect();
    let passed = client.batched(&[b"BF.MEXISTS", key.as_bytes()], &ids);
    ids.into_iter().zip(passed).filter_map(|(id, passed)| passed.then_some(id)).collect()
}

#[test]
fn ids_picked_in_advance_pass_another_seed_no_more_often_than_the_rate() {
    with_client(|_, client| {
        filled(client, "rehearsal", "");
        let forged = picked(client, "rehearsal", scaled(300_000).clamp(200_000, 5_000_000));
        assert!(forged.len() > 1000, "{} ids pass the filter on which they were picked", forged.len());
        let filters = scaled(20).min(200);
        let mut passed = 0;
        for number in 0..filters {
            let key = format!("victim-{number}");
            filled(client, &key, "");
            passed += hits(client, &key, &forged);
            client.run(&format!("DEL {key}"));
        }
        let trials = forged.len() * filters;
        eprintln!("random seeds: {passed} of {trials} picked ids pass, {:.4}", passed as f64 / trials as f64);
        assert!(passed <= most_hits(trials, RATE), "{passed} of {trials} picked ids pass");
    });
}

/// The constants of MurmurHash3_x64_128, and their inverses modulo 2^64.
const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

fn inverse(odd: u64) -> u64 {
    // Newton's iteration doubles the number of correct bits; the first three are correct from the start.
    (0..5).fold(odd, |x, _| x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x))))
}

/// Returns the word whose mix is that of `word` XOR `difference`. The mix is multiply, rotate, multiply.
fn changed(word: &[u8], first: u64, rotation: u32, second: u64, difference: u64) -> [u8; 8] {
    let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
    let mixed = word.wrapping_mul(first).rotate_left(rotation).wrapping_mul(second) ^ difference;
    mixed.wrapping_mul(inverse(second)).rotate_right(rotation).wrapping_mul(inverse(first)).to_le_bytes()
}

/// Returns another id of the same length with the same hash for every seed (Aumasson and Bernstein, 2012, in the paper on
/// SipHash). A block mixes its words into the state h1, h2 as `h1 = (rotl(h1 ^ k1, 27) + h2) * 5 + c` and `h2 = (rotl(h2 ^ k2,
/// 31) + h1) * 5 + c`. Flipping bit 36 of the first mixed word flips bit 63 of h1, where neither carries nor the odd factor
/// spread it. Flipping bit 32 of the second flips bit 63 of h2 just before h1 is added, so the two cancel. The remaining
/// difference is bit 63 of h1, which bit 63 of the third word cancels. So from 24 bytes on, no state depends on the
/// difference.
fn twin(member: &[u8]) -> Vec<u8> {
    let mut twin = member.to_vec();
    twin[..8].copy_from_slice(&changed(&member[..8], C1, 31, C2, 1 << 36));
    twin[8..16].copy_from_slice(&changed(&member[8..16], C2, 33, C1, 1 << 32));
    twin[16..24].copy_from_slice(&changed(&member[16..24], C1, 31, C2, 1 << 63));
    twin
}

#[test]
fn an_id_constructed_from_a_member_passes_every_native_filter_with_that_member() {
    with_client(|_, client| {
        let members: Vec<String> = (0..2000).map(|number| format!("session:{number:020}")).collect();
        let twins: Vec<Vec<u8>> = members.iter().map(|member| twin(member.as_bytes())).collect();
        let filters = scaled(20).min(500);
        for number in 0..filters {
            let rate = ["0.01", "1e-6", "1e-12"][number % 3];
            assert_eq!(client.run(&format!("BF.RESERVE native {rate} 500")), ok());
            client.batched(&[b"BF.MADD", b"native"], &members);
            assert_eq!(hits(client, "native", &twins), twins.len(), "{rate}");
            assert_eq!(client.run("DEL native"), integer(1));
        }
        // Checking the format of an id before the lookup rejects them: a constructed id does not have the application's format.
        let formed = twins.iter().filter(|twin| twin.starts_with(b"session:") && twin.is_ascii()).count();
        assert_eq!(formed, 0);
        // Filters with another hash do not report these colliding ids.
        client.run("BF.RESERVE redisbloom 1e-6 2000 LAYOUT redisbloom");
        let valkey_bloom = "TIGHTENING 0.5 SEED 0123456789abcdefghijklmnopqrstuv";
        let made = client.run(&format!("BF.INSERT valkey-bloom ERROR 1e-6 CAPACITY 2000 NONSCALING {valkey_bloom}"));
        assert_eq!(made, Reply::Array(Vec::new()));
        for key in ["redisbloom", "valkey-bloom"] {
            client.batched(&[b"BF.MADD", key.as_bytes()], &members);
            assert_eq!(hits(client, key, &members), members.len());
            let passed = hits(client, key, &twins);
            assert!(passed <= 1, "{key}: {passed} twins pass");
        }
        eprintln!("{} built ids passed each of {filters} native filters, 0 or 1 of other layouts", twins.len());
    });
}

/// Inverts the mix of a word: see [`unmix`].
fn unshift(word: u64) -> u64 {
    // The upper 31 bits are unchanged and determine the lower ones.
    let upper = word ^ (word >> 33);
    word ^ (upper >> 33)
}

/// Inverts the end of the hash, fmix64.
fn unmix(word: u64) -> u64 {
    let word = unshift(word).wrapping_mul(inverse(0xc4ce_b9fe_1a85_ec53));
    unshift(unshift(word).wrapping_mul(inverse(0xff51_afd7_ed55_8ccd)))
}

/// Returns an id of 16 bytes with a chosen hash under a known seed, by running the hash backwards.
fn inverted(h1: u64, h2: u64, seed: u32) -> [u8; 16] {
    let seed = u64::from(seed);
    // The last sums, the mixes, the first sums, the length; then the single block.
    let (b, a) = (h2.wrapping_sub(h1), h1.wrapping_sub(h2.wrapping_sub(h1)));
    let (a, b) = (unmix(a), unmix(b));
    let (b, a) = (b.wrapping_sub(a), a.wrapping_sub(b.wrapping_sub(a)));
    let (a, b) = (a ^ 16, b ^ 16);
    let undone = |state: u64, constant: u64| state.wrapping_sub(constant).wrapping_mul(inverse(5));
    let k2 = undone(b, 0x3849_5ab5).wrapping_sub(a).rotate_right(31) ^ seed;
    let k1 = undone(a, 0x52dc_e729).wrapping_sub(seed).rotate_right(27) ^ seed;
    let first = k1.wrapping_mul(inverse(C2)).rotate_right(31).wrapping_mul(inverse(C1));
    let second = k2.wrapping_mul(inverse(C1)).rotate_right(33).wrapping_mul(inverse(C2));
    let mut id = [0; 16];
    id[..8].copy_from_slice(&first.to_le_bytes());
    id[8..].copy_from_slice(&second.to_le_bytes());
    id
}

/// Ids that fill one block of a filter with a known seed, and pass it, have neither effect on a filter with a secret key.
#[test]
fn knowing_the_hash_function_gives_no_advantage_against_a_keyed_filter() {
    with_client(|_, client| {
        // All in the first group, whatever the second half of the hash.
        let mut rng = Rng::new(4096);
        let mut crowd = |count: usize| -> Vec<Vec<u8>> {
            (0..count).map(|_| inverted(rng.number() >> 24, rng.number(), 42).to_vec()).collect()
        };
        let (crowded, strangers) = (crowd(4000), crowd(40_000));
        for (key, words) in [("known", " SEED 42"), ("keyed", " HASH siphash")] {
            filled(client, key, words);
            client.run(&format!("BF.RESERVE {key}:crowd {RATE} 100000 NONSCALING{words}"));
            client.batched(&[b"BF.MADD", format!("{key}:crowd").as_bytes()], &crowded);
        }
        let passed = hits(client, "known:crowd", &strangers);
        assert!(passed > strangers.len() / 2, "a crowd of {} of 100000 saturates a group: {passed}", crowded.len());
        let passed = hits(client, "keyed:crowd", &strangers);
        eprintln!("saturation of one group: {passed} of {} pass a filter with a key", strangers.len());
        assert!(passed <= most_hits(strangers.len(), RATE), "{passed}");
        // Colliding ids of members.
        let members: Vec<String> = (0..2000).map(|number| format!("session:{number:020}")).collect();
        let twins: Vec<Vec<u8>> = members.iter().map(|member| twin(member.as_bytes())).collect();
        client.run(&format!("BF.RESERVE twins {RATE} 2000 NONSCALING HASH siphash"));
        client.batched(&[b"BF.MADD", b"twins"], &members);
        let passed = hits(client, "twins", &twins);
        assert!(passed <= most_hits(twins.len(), RATE), "{passed} twins pass");
        // Ids that passed one filter pass another, with its own key, no more often than other ids.
        let forged = picked(client, "keyed", 200_000);
        filled(client, "second", " HASH siphash");
        let passed = hits(client, "second", &forged);
        assert!(forged.len() > 1000 && passed <= most_hits(forged.len(), RATE), "{passed} of {}", forged.len());
        // On the same filter they pass permanently, which cannot be prevented. After a delete they no longer pass, and all members are
        // still found.
        assert_eq!(hits(client, "keyed", &forged), forged.len());
        let replayed = &forged[..300];
        assert!(client.batched(&[b"BF.MDEL", b"keyed"], replayed).iter().all(|deleted| *deleted));
        assert_eq!(hits(client, "keyed", replayed), 0);
        assert_eq!(hits(client, "keyed", &self::members()), CAPACITY);
    });
}

// Memory leaks: filters that are created and deleted, refused payloads and abandoned loads leave nothing behind in the
// server's memory or in the figures of INFO.

/// The allowed difference of used memory before and after.
const SLACK_BYTES: i64 = 64 << 10;

/// Sends commands in pipelines over another connection. Returns the number of that client.
fn in_pipelines(server: &Server, rounds: usize, commands: &[Vec<Vec<u8>>]) -> i64 {
    let mut client = server.connect();
    let id = client.run("CLIENT ID").number();
    for begin in (0..rounds).step_by(100) {
        let sent = commands.len() * (rounds - begin).min(100);
        let mut batch = commands.iter().cycle().take(sent);
        batch.by_ref().for_each(|words| client.send(words).expect("the server takes it"));
        for _ in 0..sent {
            let reply = client.receive().expect("a reply");
            assert!(!reply.is_error(), "{reply:?}");
        }
    }
    id
}

/// Runs the commands a few times to warm up, then many times, and compares the memory.
fn assert_flat(server: &Server, name: &str, rounds: usize, commands: &[Vec<Vec<u8>>]) {
    let mut control = server.connect();
    let client = in_pipelines(server, 1000, commands);
    settle(&mut control, client);
    let before = control.info_number("used_memory");
    let rounds = scaled(rounds);
    let client = in_pipelines(server, rounds, commands);
    settle(&mut control, client);
    let mut after = 0;
    let what = format!("memory to be {before} bytes again, {SLACK_BYTES} more or less, after {name}");
    eventually(&what, || {
        after = control.info_number("used_memory");
        (after - before).abs() <= SLACK_BYTES
    });
    figures(&format!("leaks: {rounds} executions of {name}: used memory {before} before and {after} after"));
}

/// Waits until a client is disconnected and nothing is left to free, and checks that no filter is counted any more.
fn settle(control: &mut Connection, client: i64) {
    let list = format!("CLIENT LIST ID {client}");
    eventually("the other client to be gone", || control.run(&list).text().trim().is_empty());
    eventually("the background to be idle", || control.info_number("lazyfree_pending_objects") == 0);
    assert_eq!(control.run("DBSIZE").number(), 0);
    control.assert_no_filters();
}

#[test]
fn deleted_filters_and_abandoned_loads_leave_nothing() {
    on_every_server(|program| {
        // No slow log, because its entries take memory: on a busy machine any command can be slow.
        let server = Server::with(program).line("slowlog-log-slower-than -1").line("sanitize-dump-payload yes").start();
        let mut control = server.connect();
        for (name, line) in LAYOUTS {
            for end in ["DEL", "UNLINK"] {
                let commands = [words(line), words(&format!("BF.ADD {name} x")), words(&format!("{end} {name}"))];
                let rounds = if name == "native" && end == "DEL" { 100_000 } else { 10_000 };
                assert_flat(&server, &format!("{name}, {end}"), rounds, &commands);
            }
            if name == "valkey-bloom" {
                continue;
            }
            control.run(line);
            let items: Vec<String> = (0..300).map(|item| item.to_string()).collect();
            control.batched(&[b"BF.MADD", name.as_bytes()], &items);
            let load = as_commands("k", &records(&mut control, name));
            control.run(&format!("DEL {name}"));
            for (what, count) in [("headers", 1), ("headers and a chunk", load.len() - 1), ("dumps", load.len())] {
                let commands = [&load[..count], &[words("DEL k")]].concat();
                let rounds = if count == 1 { 100_000 } else { 10_000 };
                assert_flat(&server, &format!("{name}: {what} begun"), rounds, &commands);
            }
        }
        // Filters that grew, whose layers are freed separately: 20 items in layers of 1.
        let grown = [
            words("BF.RESERVE k 0.01 1 EXPANSION 1"),
            words(&format!("BF.MADD k{}", (0..20).map(|item| format!(" {item}")).collect::<String>())),
            words("COPY k twin"),
            words("DEL k twin"),
        ];
        assert_flat(&server, "grown and copied", 5000, &grown);
    });
}
