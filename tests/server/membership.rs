//! Adds and lookups: their answers, on filters of each kind. `chaos` tests the fundamental law, that an added item is never reported absent,
//! with random batches.

use testing::{array, digest, error, in_both_protocols, integer, nil, ok, with_client};

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
