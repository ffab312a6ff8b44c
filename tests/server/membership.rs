//! The fundamental law: an added item is never reported absent. Compares random batches with an exact set.

use std::collections::HashSet;

use testing::{
    Connection, Rng, Server, array, digest, error, in_both_protocols, integer, nil, ok, on_every_server, with_client,
};

/// Adds random batches by random commands, and checks each answer against a set.
struct Crawl {
    rng: Rng,
    added: HashSet<Vec<u8>>,
    new: usize,
    /// The number of false positives.
    wrongly_known: usize,
}

impl Crawl {
    fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed), added: HashSet::new(), new: 0, wrongly_known: 0 }
    }

    /// Runs one command that adds up to `longest` items, about a third of which are already in the filter.
    fn step(&mut self, client: &mut Connection, key: &[u8], longest: u64) {
        let count = 1 + self.rng.below(longest);
        let batch: Vec<Vec<u8>> = (0..count).map(|_| self.item()).collect();
        let (head, batch): (Vec<&[u8]>, &[Vec<u8>]) = match self.rng.below(4) {
            0 => (vec![b"BF.ADD", key], &batch[..1]),
            1 => (vec![b"BF.INSERT", key, b"ITEMS"], &batch),
            2 => (vec![b"BF.INSERT", key, b"NOCREATE", b"ITEMS"], &batch),
            _ => (vec![b"BF.MADD", key], &batch),
        };
        let words: Vec<&[u8]> = head.iter().copied().chain(batch.iter().map(Vec::as_slice)).collect();
        let reply = client.call(&words);
        let answers = if head[0] == b"BF.ADD" { std::slice::from_ref(&reply) } else { reply.elements() };
        assert_eq!(answers.len(), batch.len());
        for (item, answer) in batch.iter().zip(answers) {
            let first = self.added.insert(item.clone());
            assert!(first || !answer.truth(), "{} was added twice", item.escape_ascii());
            self.new += usize::from(answer.truth());
            self.wrongly_known += usize::from(first && !answer.truth());
        }
    }

    fn item(&mut self) -> Vec<u8> {
        match self.rng.below(3) {
            0 => self.rng.below(5000).to_string().into_bytes(),
            1 => self.rng.bytes(200),
            _ => format!("https://example.org/{:x}", self.rng.number()).into_bytes(),
        }
    }

    fn check(&self, client: &mut Connection, key: &[u8], rate: f64) {
        let items: Vec<&Vec<u8>> = self.added.iter().collect();
        let found = client.batched(&[b"BF.MEXISTS", key], &items);
        let lost: Vec<_> = items.iter().zip(found).filter(|(_, present)| !present).map(|(item, _)| item).collect();
        assert!(lost.is_empty(), "{} of {} items were lost, such as {:?}", lost.len(), items.len(), lost[0]);
        assert_eq!(client.call(&[b"BF.CARD", key]), integer(self.new as i64));
        // Far above random variation, because this is not a measurement of the rate.
        let bound = 10.0 + 2.0 * rate * items.len() as f64;
        assert!(self.wrongly_known as f64 <= bound, "{} of {} wrong", self.wrongly_known, items.len());
    }
}

#[test]
fn added_items_are_always_found() {
    with_client(|_, client| {
        for (round, (words, rate, steps, longest)) in [
            ("0.01 100", 0.01, 300, 200),
            ("0.001 1 EXPANSION 1", 0.001, 60, 10),
            ("0.0001 3 EXPANSION 3", 0.0001, 200, 300),
            ("0.25 1000 EXPANSION 4", 0.25, 300, 100),
            ("1e-9 50", 1e-9, 200, 150),
            ("0.01 100000 NONSCALING", 0.01, 200, 400),
            ("0.02 3000000", 0.02, 100, 1000),
        ]
        .into_iter()
        .enumerate()
        {
            let key = format!("round {round}");
            let mut command = vec!["BF.RESERVE", &key];
            command.extend(words.split(' '));
            assert_eq!(client.call(&command), ok(), "{words}");
            let mut crawl = Crawl::new(round as u64);
            for _ in 0..steps {
                crawl.step(client, key.as_bytes(), longest);
            }
            crawl.check(client, key.as_bytes(), rate);
        }
    });
}

// BF.EXISTS, BF.MEXISTS and BF.CARD, which change nothing.

#[test]
fn every_command_reports_a_missing_key() {
    in_both_protocols(|client, _| {
        let (no, none, not_found) = (client.answer(false), client.answers([0, 0]), error("ERR not found"));
        for (line, missing) in [
            ("BF.EXISTS $ a", &no),
            ("BF.MEXISTS $ a b", &none),
            ("BF.DEL $ a", &no),
            ("BF.MDEL $ a b", &none),
            ("BF.CARD $", &integer(0)),
            ("BF.COUNT $ a", &integer(0)),
            ("BF.INFO $", &not_found),
            ("BF.INFO $ SIZE", &not_found),
            ("BF.STATS $", &not_found),
            ("BF.DEBUG $", &not_found),
            ("BF.SCANDUMP $ 0", &not_found),
            ("BF.ROTATE $", &not_found),
            ("BF.CLEAR $", &not_found),
            ("BF.MERGE $ $", &not_found),
        ] {
            assert_eq!(&client.run(&line.replace('$', "missing")), missing, "{line}");
        }
        assert_eq!(client.run("EXISTS missing"), integer(0), "none of them creates a filter");
    });
}

#[test]
fn an_expired_key_holds_nothing() {
    with_client(|_, client| {
        client.run("BF.ADD k a");
        client.run("DEBUG SET-ACTIVE-EXPIRE 0");
        client.run("PEXPIRE k 1");
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(client.run("BF.EXISTS k a"), integer(0));
        assert_eq!(client.run("BF.CARD k"), integer(0));
        assert_eq!(client.run("BF.ADD k a"), integer(1));
        assert_eq!(client.run("TTL k"), integer(-1));
    });
}

#[test]
fn a_batch_answers_as_its_items_would_one_by_one() {
    with_client(|_, client| {
        // Enough to cross batches of 32, from one layer and from many.
        client.run("BF.RESERVE one 0.01 100000 SEED 1");
        client.run("BF.RESERVE many 0.01 20 SEED 1");
        let items: Vec<String> = (0..3000).map(|number| format!("https://example.org/page/{number}")).collect();
        for key in ["one", "many"] {
            client.batched(&[b"BF.MADD", key.as_bytes()], &items[..1500]);
            let together = client.batched(&[b"BF.MEXISTS", key.as_bytes()], &items);
            for (item, &answer) in items.iter().zip(&together) {
                assert_eq!(client.call(&["BF.EXISTS", key, item]).truth(), answer, "{item} in {key}");
            }
            assert!(together[..1500].iter().all(|&answer| answer));
            assert!(!together[1500..].iter().all(|&answer| answer));
            // One batch that ends in the middle.
            for length in [1, 31, 32, 33, 63, 64, 65, 100] {
                let mut words = vec!["BF.MEXISTS", key];
                words.extend(items[..length].iter().map(String::as_str));
                assert_eq!(client.call(&words), array(vec![integer(1); length]));
            }
        }
    });
}

// BF.ADD and BF.MADD: the answers for a new item, for a member, and for an item that does not fit.

const FULL: &str = "ERR non scaling filter is full";

/// The command that creates a filter of each kind that does not count equal items; empty if an add creates it.
const CREATIONS: [&str; 7] = [
    "",
    "BF.RESERVE k 0.0001 100 HASH siphash",
    "BF.RESERVE k 0.0001 100 NONSCALING",
    "BF.RESERVE k 0.0001 100 WINDOW 1000",
    "BF.RESERVE k 0.0001 100 ROLLING",
    "BF.RESERVE k 0.0001 100 LAYOUT redisbloom",
    "BF.INSERT k ERROR 0.0001 CAPACITY 100 TIGHTENING 0.5",
];

#[test]
fn an_add_says_whether_the_item_was_new_and_a_lookup_whether_it_is_present() {
    in_both_protocols(|client, _| {
        for creation in CREATIONS {
            client.run("FLUSHALL");
            if !creation.is_empty() {
                client.run(creation);
            }
            assert_eq!(client.run("BF.ADD k a"), client.answer(true), "{creation}");
            assert_eq!(client.run("BF.ADD k a"), client.answer(false), "{creation}");
            assert_eq!(client.run("bf.add k A"), client.answer(true), "items are bytes: case counts");
            assert_eq!(client.run("BF.MADD k a b c"), client.answers([0, 1, 1]), "{creation}");
            assert_eq!(client.run("BF.MADD k a"), client.answers([0]), "{creation}");
            assert_eq!(client.run("BF.MADD k x a x"), client.answers([1, 0, 0]), "{creation}");
            assert_eq!(client.run("BF.INSERT k ITEMS b d"), client.answers([0, 1]), "{creation}");
            assert_eq!(client.run("BF.EXISTS k a"), client.answer(true), "{creation}");
            assert_eq!(client.run("bf.exists k z"), client.answer(false), "{creation}");
            assert_eq!(client.run("BF.MEXISTS k a z b a"), client.answers([1, 0, 1, 1]), "{creation}");
            assert_eq!(client.run("BF.MEXISTS k z"), client.answers([0]), "{creation}");
            assert_eq!(client.run("BF.CARD k"), integer(6), "{creation}");
            let empty: [&[u8]; 3] = [b"BF.ADD", b"k", b""];
            assert_eq!(client.call(&empty), client.answer(true), "{creation}");
            assert_eq!(client.call(&empty), client.answer(false), "{creation}");
            assert_eq!(client.run("BF.MADD fresh x"), client.answers([1]));
        }
    });
}

#[test]
fn a_missing_filter_is_created_with_the_defaults() {
    with_client(|_, client| {
        for line in ["BF.ADD added x", "BF.MADD madded x y", "BF.INSERT inserted ITEMS x"] {
            client.run(line);
            let info = client.run(&format!("BF.INFO {}", line.split(' ').nth(1).unwrap()));
            assert_eq!(info.field("Capacity"), &integer(100), "{line}");
            assert_eq!(info.field("Expansion rate"), &integer(2), "{line}");
            assert_eq!(info.field("Number of filters"), &integer(1), "{line}");
        }
    });
}

#[test]
fn equal_items_within_one_command_count_once() {
    in_both_protocols(|client, _| {
        assert_eq!(client.run("BF.MADD k a a b a b"), client.answers([1, 0, 1, 0, 0]));
        assert_eq!(client.run("BF.CARD k"), integer(2));
        // Across the end of a batch of 32 as well.
        client.run("BF.RESERVE many 0.01 100 SEED 1");
        let mut words = vec!["BF.MADD".to_owned(), "many".to_owned()];
        words.extend((0..200).map(|number| format!("item-{}", number % 50)));
        let reply = client.call(&words);
        for (number, answer) in reply.elements().iter().enumerate() {
            assert_eq!(answer, &client.answer(number < 50), "item {number}");
        }
        assert_eq!(client.run("BF.CARD many"), integer(50));
    });
}

#[test]
fn keys_and_items_are_any_bytes() {
    with_client(|_, client| {
        let long = vec![b'x'; 100_000];
        let every_byte: Vec<u8> = (0..=255).collect();
        let words: [&[u8]; 9] =
            [b"", b"\0", b"\0\0", b"\r\n", b"a\0b", b"\xff\xfe", "\u{1f338} \u{44f}".as_bytes(), &every_byte, &long];
        for key in words {
            for (number, item) in words.iter().enumerate() {
                assert_eq!(client.call(&[b"BF.EXISTS", key, item]), integer(0), "{number}");
                assert_eq!(client.call(&[b"BF.ADD", key, item]), integer(1), "{number}");
                assert_eq!(client.call(&[b"BF.ADD", key, item]), integer(0), "{number}");
                assert_eq!(client.call(&[b"BF.EXISTS", key, item]), integer(1), "{number}");
            }
            assert_eq!(client.call(&[b"BF.CARD", key]), integer(9));
            assert_eq!(client.call(&[b"DEL", key]), integer(1));
            let mut command: Vec<&[u8]> = vec![b"BF.MADD", key];
            command.extend(words);
            assert_eq!(client.call(&command), array(vec![integer(1); 9]));
            command[0] = b"BF.MEXISTS";
            assert_eq!(client.call(&command), array(vec![integer(1); 9]));
            assert_eq!(client.call(&[b"DEL", key]), integer(1));
            let mut command: Vec<&[u8]> = vec![b"BF.INSERT", key, b"ITEMS"];
            command.extend(words);
            assert_eq!(client.call(&command), array(vec![integer(1); 9]));
            assert_eq!(client.call(&[b"BF.INFO", key, b"ITEMS"]), array([integer(9)]));
        }
        assert_eq!(client.call(&[b"BF.RESERVE".as_slice(), b"\0reserved\xff", b"0.01", b"100"]), ok());
        assert_eq!(client.call(&[b"EXISTS".as_slice(), b"\0reserved\xff"]), integer(1));
    });
}

#[test]
fn a_full_fixed_filter_takes_nothing_new() {
    in_both_protocols(|client, protocol| {
        let (yes, no) = (client.answer(true), client.answer(false));
        // With a random seed, one item in a hundred would be a false positive, because the filter in valkey-bloom's layout is so small.
        let valkey_bloom = "TIGHTENING 0.5 SEED 00000000000000000000000000000007";
        let keyed = "HASH siphash SEED 00000000000000000000000000000007";
        for words in ["SEED 1", keyed, "LAYOUT redisbloom", valkey_bloom] {
            client.run("FLUSHALL");
            // A filter that is created and filled by one command.
            let line = format!("BF.INSERT new CAPACITY 2 ERROR 0.0001 NONSCALING {words} ITEMS a b a c b");
            assert_eq!(client.run(&line), array([yes.clone(), yes.clone(), no.clone(), error(FULL)]), "{words}");
            assert_eq!(client.run("BF.INFO new").field("Expansion rate"), &nil(protocol), "{words}");
            client.run(&format!("BF.INSERT k CAPACITY 2 ERROR 0.0001 NONSCALING {words} ITEMS a"));
            // The first item that does not fit ends the answers, however many items remain.
            assert_eq!(client.run("BF.MADD k a b c d e"), array([no.clone(), yes.clone(), error(FULL)]), "{words}");
            let before = digest(client, "k");
            assert_eq!(client.run("BF.ADD k c"), error(FULL), "{words}");
            assert_eq!(client.run("BF.ADD k a"), no, "{words}");
            assert_eq!(client.run("BF.ADD k b"), no, "{words}");
            assert_eq!(client.run("BF.MADD k b a"), array([no.clone(), no.clone()]), "{words}");
            assert_eq!(client.run("BF.MADD k b c a"), array([no.clone(), error(FULL)]), "{words}");
            assert_eq!(client.run("BF.MADD k c"), array([error(FULL)]), "{words}");
            assert_eq!(client.run("BF.INSERT k ITEMS b c a"), array([no.clone(), error(FULL)]), "{words}");
            assert_eq!(client.run("BF.INSERT k NOCREATE ITEMS c"), array([error(FULL)]), "{words}");
            assert_eq!(client.run("BF.MEXISTS k a b c d e"), client.answers([1, 1, 0, 0, 0]), "{words}");
            assert_eq!(client.run("BF.CARD k"), integer(2), "{words}");
            assert_eq!(client.run("BF.INFO k").field("Number of filters"), &integer(1), "{words}");
            assert_eq!(digest(client, "k"), before, "{words}");
        }
    });
}

#[test]
fn a_large_fixed_filter_fills_up_to_its_capacity() {
    with_client(|_, client| {
        client.run("BF.RESERVE k 0.001 1000 NONSCALING SEED 3");
        let items: Vec<String> = (0..2000).map(|number| format!("https://example.org/{number}")).collect();
        let mut words = vec!["BF.MADD".to_owned(), "k".to_owned()];
        words.extend(items);
        let reply = client.call(&words);
        let answers = reply.elements();
        let (last, rest) = answers.split_last().unwrap();
        assert_eq!(last, &error(FULL));
        assert_eq!(rest.iter().filter(|answer| answer.truth()).count(), 1000);
        assert_eq!(client.run("BF.CARD k"), integer(1000));
        let known: Vec<&String> = words[2..].iter().take(rest.len()).collect();
        assert!(client.batched(&[b"BF.MEXISTS", b"k"], &known).iter().all(|&present| present));
    });
}

#[test]
fn a_growing_filter_adds_a_layer_when_the_newest_is_full() {
    on_every_server(|program| {
        let server = Server::start(program);
        for (expansion, capacities) in [(1, [10, 20, 30]), (2, [10, 30, 70]), (4, [10, 50, 210])] {
            let mut client = server.connect();
            client.run("FLUSHALL");
            client.run(&format!("BF.RESERVE k 0.0001 10 EXPANSION {expansion} SEED 5"));
            let mut number = 0;
            for (layers, capacity) in (1..).zip(capacities) {
                while client.run("BF.CARD k").number() < capacity {
                    assert!(client.run(&format!("BF.ADD k {number}")).truth(), "no clash at this rate and seed");
                    number += 1;
                }
                let info = client.run("BF.INFO k");
                assert_eq!(info.field("Number of filters"), &integer(layers), "expansion {expansion}");
                assert_eq!(info.field("Capacity"), &integer(capacity), "expansion {expansion}");
                assert_eq!(info.field("Number of items inserted"), &integer(capacity), "expansion {expansion}");
            }
            for known in 0..number {
                assert!(client.run(&format!("BF.EXISTS k {known}")).truth());
                assert!(!client.run(&format!("BF.ADD k {known}")).truth(), "an old layer's item is not added again");
            }
        }
    });
}
