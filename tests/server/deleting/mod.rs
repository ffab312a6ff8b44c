//! BF.DEL and BF.MDEL on filters with HASH siphash: what they answer, what they refuse, what is carried, saved and dumped.

mod answers;
mod carried;
mod stored;

use testing::{Connection, Reply, ok};

fn numbered(numbers: std::ops::Range<u32>) -> Vec<String> {
    numbers.map(|number| format!("item {number}")).collect()
}

/// A command with many items.
fn call(client: &mut Connection, head: &str, items: &[String]) -> Reply {
    let words: Vec<&str> = head.split(' ').chain(items.iter().map(String::as_str)).collect();
    client.call(&words)
}

/// The options of a filter that can delete. The key is fixed, so that the same items are false positives in every run.
const KEYED: &str = "HASH siphash SEED 000102030405060708090a0b0c0d0e0f";

/// The filters that can delete: a fixed one, one that grew, three that forget.
const FILTERS: [(&str, &str); 5] = [
    ("fixed", "0.01 5000 NONSCALING"),
    ("grown", "0.01 10 EXPANSION 2"),
    ("windowed", "0.01 20000 WINDOW 3600"),
    ("sliding", "0.01 20000 WINDOW 3600 SLIDING BUCKETS 3"),
    ("rolling", "0.01 20000 ROLLING"),
];

fn reserve_all(client: &mut Connection) {
    for (key, words) in FILTERS {
        assert_eq!(client.run(&format!("BF.RESERVE {key} {words} {KEYED}")), ok(), "{key}");
    }
}

/// Adds, turns, deletes, adds again; of every filter something is deleted in the end.
fn write_some(client: &mut Connection) {
    for (key, _) in FILTERS {
        call(client, &format!("BF.MADD {key}"), &numbered(0..200));
        if ["fixed", "grown"].contains(&key) {
            call(client, &format!("BF.MADD {key}"), &numbered(5000..7000));
        } else {
            client.run(&format!("BF.ROTATE {key}"));
            call(client, &format!("BF.MADD {key}"), &numbered(150..250));
        }
        call(client, &format!("BF.MDEL {key}"), &numbered(100..200));
        call(client, &format!("BF.MDEL {key} absent"), &numbered(90..110));
        call(client, &format!("BF.DEL {key}"), &numbered(1..2));
        call(client, &format!("BF.DEL {key}"), &numbered(2..3));
        call(client, &format!("BF.ADD {key}"), &numbered(120..121));
        call(client, &format!("BF.MADD {key}"), &numbered(180..190));
        client.pipeline(&["MULTI", &format!("BF.DEL {key} absent"), &format!("BF.MDEL {key} absent a"), "EXEC"]);
        client.call(&["EVAL", "return redis.call('BF.MDEL', KEYS[1], 'item 5', 'absent', 'item 5')", "1", key]);
    }
}

fn assert_written(client: &mut Connection) {
    for (key, _) in FILTERS {
        for (items, expected) in
            [(90..100, false), (100..120, false), (120..121, true), (180..190, true), (20..60, true)]
        {
            let found = client.batched(&[b"BF.MEXISTS", key.as_bytes()], &numbered(items.clone()));
            assert!(found.iter().all(|present| *present == expected), "{key}: {items:?}");
        }
    }
}
