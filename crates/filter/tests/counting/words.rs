//! The options of counting filters, contradictory options, and the commands that replicate a creation.

use bloomgate_filter::hash::Hasher;
use bloomgate_filter::kinds::{CountingSpec, Defaults, HashName, LayoutName};
use bloomgate_filter::words::{Refusal, insert, reserve};
use bloomgate_filter::{Scaling, Spec};

const DEFAULTS: Defaults = Defaults {
    rate: 0.02,
    capacity: 77,
    scaling: Scaling::from_expansion(2),
    layout: LayoutName::RedisBloom,
    hash: HashName::Murmur3,
    tightening: 0.5,
    entropy: [9; 32],
    has_random_seeds: true,
    must_obey: false,
};
const DIGITS: &str = "000102030405060708090a0b0c0d0eff";
const KEY: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255];

fn reserved(words: &str, defaults: &Defaults) -> Result<Spec, Refusal> {
    let line = format!("BF.RESERVE k 0.01 100 {words}");
    reserve::parse(&line.split_whitespace().collect::<Vec<_>>(), defaults).map(|creation| creation.spec)
}

fn inserted(words: &str, defaults: &Defaults) -> Result<Spec, Refusal> {
    let line = format!("BF.INSERT k ERROR 0.01 CAPACITY 100 {words} ITEMS a");
    let words: Vec<_> = line.split_whitespace().collect();
    insert::parse(&words, defaults).map(|insert| insert.creation.unwrap().spec)
}

#[test]
fn counting_goes_with_a_hash_and_a_seed() {
    let random = u32::from_le_bytes([9; 4]);
    for (words, hasher) in [
        ("COUNTING", Hasher::murmur3(random)),
        ("counting NONSCALING", Hasher::murmur3(random)),
        ("SEED 5 COUNTING LAYOUT native", Hasher::murmur3(5)),
        ("COUNTING HASH murmur3 SEED 0", Hasher::murmur3(0)),
        ("HASH siphash COUNTING COUNTING", Hasher::SipHash { key: [9; 16] }),
        (&format!("COUNTING SEED {DIGITS} HASH siphash EX 5"), Hasher::SipHash { key: KEY }),
    ] {
        let expected = Ok(Spec::Counting(CountingSpec { rate: 0.01, capacity: 100, hasher }));
        assert_eq!(reserved(words, &DEFAULTS), expected, "{words}");
        assert_eq!(inserted(words, &DEFAULTS), expected, "{words}");
    }
}

#[test]
fn options_that_contradict_counting_are_refused() {
    let raw_seed = format!("SEED {DIGITS} COUNTING");
    for (words, other) in [
        ("COUNTING EXPANSION 2", "EXPANSION"),
        ("WINDOW 60 COUNTING", "WINDOW"),
        ("COUNTING ROLLING", "ROLLING"),
        ("COUNTING LAYOUT redisbloom", "LAYOUT redisbloom"),
        (raw_seed.as_str(), "a SEED of 32 bytes"),
    ] {
        let refusal = Refusal::Exclude("COUNTING", other);
        let refused = Err(refusal);
        assert_eq!(reserved(words, &DEFAULTS), refused, "{words}");
        assert_eq!(inserted(words, &DEFAULTS), refused, "{words}");
        assert_eq!(refusal.to_string(), format!("ERR COUNTING and {other} exclude each other"));
    }
    for (words, other) in [("COUNTING TIGHTENING 0.5", "TIGHTENING"), ("VALIDATESCALETO 9 COUNTING", "VALIDATESCALETO")]
    {
        assert_eq!(inserted(words, &DEFAULTS), Err(Refusal::Exclude("COUNTING", other)), "{words}");
    }
    for words in ["COUNTING SLIDING", "COUNTING BUCKETS 5"] {
        assert!(matches!(reserved(words, &DEFAULTS), Err(Refusal::Needs(..))), "{words}");
    }
}

#[test]
fn the_replicated_command_creates_the_same_filter() {
    let follower = Defaults { must_obey: true, ..DEFAULTS };
    for (hasher, words) in [
        (Hasher::murmur3(7), "CAPACITY 12 ERROR 0.000001 COUNTING SEED 7".to_owned()),
        (Hasher::SipHash { key: KEY }, format!("CAPACITY 12 ERROR 0.000001 COUNTING HASH siphash SEED {DIGITS}")),
    ] {
        let spec = Spec::Counting(CountingSpec { rate: 1e-6, capacity: 12, hasher });
        let mut spelled = vec!["BF.INSERT".to_owned(), "k".to_owned()];
        let name = spec.spell(|word| {
            let mut bytes = Vec::new();
            word.write_to(&mut bytes).unwrap();
            spelled.push(String::from_utf8(bytes).unwrap());
        });
        assert_eq!((name, &spelled[2..].join(" ")), (c"BF.INSERT", &words));
        assert!(spec.takes_items());
        let followed = insert::parse(&spelled, &follower).unwrap().creation.unwrap();
        assert_eq!(followed.spec, spec);
        spelled.extend(["ITEMS".to_owned(), "a".to_owned(), "a".to_owned()]);
        assert_eq!(insert::parse(&spelled, &follower).unwrap().items.len(), 2);
    }
}
