//! Extreme rates, capacities, item sizes and numbers of items. What is impossible is refused with a clear error, everything
//! else works, and the server keeps running.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use super::{available_megabytes, hits, most_hits, need_megabytes, rate_of, scaled};
use testing::{Connection, Rng, Server, figures, ok, on_every_server};

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
            for (key, line) in super::LAYOUTS {
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
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for (key, line) in super::LAYOUTS {
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

/// COUNTING filters have a fixed size, so they are not among the layouts that grow. The filter is filled, then half of its
/// items are replaced repeatedly: counters that deletes leave behind must not raise the rate.
#[test]
fn a_counting_filter_keeps_its_rate_while_items_come_and_go() {
    on_every_server(|program| {
        const CAPACITY: usize = 20_000;
        let server = Server::start(program);
        let mut client = server.connect();
        assert_eq!(client.run(&format!("BF.RESERVE counting 0.01 {CAPACITY} COUNTING SEED 500")), ok());
        let strangers: Vec<String> = (0..scaled(100_000)).map(|number| format!("stranger {number}")).collect();
        let items = |from: usize, to: usize| (from..to).map(|number| format!("item {number}")).collect::<Vec<_>>();
        client.batched(&[b"BF.MADD", b"counting"], &items(0, CAPACITY));
        for round in 0..5 {
            let first = round * CAPACITY / 2;
            let members = items(first, first + CAPACITY);
            assert_eq!(client.run("BF.CARD counting").number(), CAPACITY as i64);
            assert_eq!(hits(&mut client, "counting", &members), CAPACITY, "round {round}");
            let wrong = hits(&mut client, "counting", &strangers);
            // A filter that lost its members would pass, too, so some absent items must be hits.
            assert!(wrong > strangers.len() / 1000, "round {round}: {wrong} of {} strangers", strangers.len());
            assert!(wrong <= most_hits(strangers.len(), 0.01), "round {round}: {wrong} of {}", strangers.len());
            eprintln!("counting, round {round}: {wrong} of {} strangers", strangers.len());
            client.batched(&[b"BF.MDEL", b"counting"], &members[..CAPACITY / 2]);
            client.batched(&[b"BF.MADD", b"counting"], &items(first + CAPACITY, first + CAPACITY * 3 / 2));
        }
    });
}

/// Adds until there is an error. Returns its text and the items that were added.
fn grow_to_the_end(client: &mut Connection, key: &str) -> (String, Vec<String>) {
    let mut items = Vec::new();
    for batch in 0..20 {
        let words: Vec<String> = (0..1000).map(|number| format!("item {batch}/{number}")).collect();
        let head = ["BF.MADD".to_owned(), key.to_owned()];
        let reply = client.call(&head.into_iter().chain(words.iter().cloned()).collect::<Vec<_>>());
        let answers = reply.elements();
        if let Some(last) = answers.last().filter(|last| last.is_error()) {
            items.extend_from_slice(&words[..answers.len() - 1]);
            return (last.error_text().to_owned(), items);
        }
        items.extend(words);
    }
    panic!("{key}: 20000 items in layers of 1");
}

#[test]
fn a_layer_beyond_the_limit_is_a_clear_error_and_the_filter_still_answers() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        let mut rng = Rng::new(4);
        for (key, line) in [
            ("native", "BF.RESERVE native 0.01 1 EXPANSION 1"),
            ("redisbloom", "BF.RESERVE redisbloom 0.01 1 EXPANSION 1 LAYOUT redisbloom"),
            ("valkey-bloom", "BF.INSERT valkey-bloom ERROR 0.01 CAPACITY 1 EXPANSION 1 TIGHTENING 0.5"),
        ] {
            client.run(line);
            let (text, items) = grow_to_the_end(&mut client, key);
            assert_clear(&text, line);
            let digest = client.run(&format!("DEBUG DIGEST-VALUE {key}"));
            let layers = client.run(&format!("BF.INFO {key}")).field("Number of filters").number();
            eprintln!("{key}: {layers} layers, {} items, then {text:?}", items.len());
            assert!(layers > 100, "{key}: {layers} layers");
            for _ in 0..10 {
                let stranger = format!("stranger {}", rng.number());
                let again = client.run(&format!("BF.CARD {key}"));
                let reply = client.call(&["BF.ADD", key, &stranger]);
                assert!(!reply.is_error() || reply.error_text() == text, "{key}: {reply:?}");
                assert_eq!(client.run(&format!("BF.CARD {key}")), again, "{key}");
            }
            assert_eq!(hits(&mut client, key, &items), items.len(), "{key}");
            assert_eq!(client.run(&format!("DEBUG DIGEST-VALUE {key}")), digest, "{key}");
        }
        let whole = client.run("DEBUG DIGEST");
        assert_eq!(client.run("DEBUG RELOAD"), ok());
        assert_eq!(client.run("DEBUG DIGEST"), whole);
    });
}
