//! The words of commands: every option, every limit of a number and every refusal, each as a named input with its outcome.

use std::num::NonZeroUsize;

use bloomgate_filter::arguments::load_time::LoadTime;
use bloomgate_filter::arguments::options::{BUCKETS, EX, PLANNED_ITEMS, POLICY, PX, WINDOW};
use bloomgate_filter::arguments::plan::Asked;
use bloomgate_filter::arguments::{Creation, Refusal};
use bloomgate_filter::hash::Hasher;
use bloomgate_filter::kinds::info::Field;
use bloomgate_filter::kinds::valkey_bloom::{FIXED_SEED, ValkeyBloom};
use bloomgate_filter::kinds::{BucketStart, CountingSpec, NativeSpec, RedisBloomSpec, ValkeyBloomSpec};
use bloomgate_filter::{Moment, Policy, Scaling, Spec};

use super::Inputs;
use super::targets::guard_arguments::{BACKOFF, FRESH, Fetch, Fill, LEASE, RENEW, STALE, WAIT};
use super::targets::words::{NAME, NATIVE_SEED, Parsed, check, parse};

const CLIENT: u8 = b'0';
const PRIMARY: u8 = b'1';
const REDISBLOOM: u8 = b'2';

/// Generates an input with this name from words separated by single spaces, with its outcome.
#[track_caller]
fn outcome(all: &Inputs, name: &str, asking: u8, words: &str) -> Parsed {
    let data = [&[asking], words.replace(' ', "\n").as_bytes()].concat();
    all.take(NAME, name, &data);
    check(&data);
    parse(&data)
}

#[track_caller]
fn refused(all: &Inputs, refusal: Refusal, name: &str, asking: u8, words: &str) {
    assert_eq!(outcome(all, name, asking, words), Parsed::Refused(refusal), "{words}");
}

#[track_caller]
fn creates(all: &Inputs, creation: Creation, name: &str, asking: u8, words: &str) {
    match outcome(all, name, asking, words) {
        Parsed::Reserve(made) | Parsed::Insert(Some(made), _) => assert_eq!(made, creation, "{words}"),
        other => panic!("{words}: {other:?}"),
    }
}

/// Returns the definition of such a filter for the requested rate.
fn creation(spec: Spec) -> Creation {
    Creation { spec, asked_rate: spec.rate(), scale_to: None, expires: None }
}

fn seeded(rate: f64, capacity: u64, expansion: u32, seed: u32) -> Creation {
    creation(Spec::Native(NativeSpec::murmur3(rate, capacity, Scaling::from_expansion(expansion), seed)))
}

fn native(rate: f64, capacity: u64, expansion: u32) -> Creation {
    seeded(rate, capacity, expansion, NATIVE_SEED)
}

fn redisbloom(rate: f64, capacity: u64, expansion: u32) -> Creation {
    creation(Spec::RedisBloom(RedisBloomSpec { rate, capacity, scaling: Scaling::from_expansion(expansion) }))
}

pub fn reservations(all: &Inputs) {
    let client = |made, name: &str, words: &str| creates(all, made, &format!("reserve-{name}"), CLIENT, words);
    client(native(0.01, 100, 2), "plain", "BF.RESERVE k 0.01 100");
    client(native(0.01, 100, 4), "expansion", "bf.reserve k 1e-2 100 expansion 4");
    client(native(0.01, 100, 0), "expansion-0", "BF.RESERVE k 0.01 100 EXPANSION 0 NONSCALING");
    client(native(0.01, 1, 32768), "expansion-largest", "BF.RESERVE k 0.01 1 EXPANSION 1 EXPANSION 32768");
    // An unsupported rate becomes the nearest supported one.
    let highest = Creation { asked_rate: 0.5, ..seeded(0.25, 7, 0, u32::MAX) };
    client(highest, "seed", "BF.RESERVE k 0.5 7 NONSCALING SEED 4294967295 LAYOUT Native");
    client(native(0.01, 1 << 62, 2), "capacity-large", "BF.RESERVE k .01 4611686018427387904");
    let lowest = Creation { asked_rate: f64::from_bits(1), ..native(1e-12, i64::MAX as u64, 2) };
    client(lowest, "rate-subnormal", "BF.RESERVE k 5e-324 9223372036854775807");
    let highest = Creation { asked_rate: 0.9, ..redisbloom(0.25, 3, 2) };
    client(highest, "layout", "BF.RESERVE k 0.9 3 LAYOUT REDISBLOOM");
    let words = "BF.RESERVE k 0.01 3";
    creates(all, redisbloom(0.01, 3, 2), "reserve-redisbloom-by-configuration", REDISBLOOM, words);
}

/// RedisBloom ignores many words, and its primaries replicate them. An explicit layout is used.
pub fn reservations_of_a_primary(all: &Inputs) {
    let primary = |made, name: &str, words: &str| creates(all, made, &format!("reserve-primary{name}"), PRIMARY, words);
    let theirs = |expansion| redisbloom(0.01, 3, expansion);
    let words = "BF.RESERVE k 0.01 1152921504606846976 EXPANSION 4294967295 whatever";
    primary(redisbloom(0.01, 1 << 60, u32::MAX), "", words);
    let words = "BF.RESERVE k 0x1.8P-4 3 expansion 4 EXPANSION";
    primary(redisbloom(0.09375, 3, 4), "-hexadecimal", words);
    primary(theirs(1), "-expansion-33-bits", "BF.RESERVE k 0.01 3 whatever EXPANSION 4294967297");
    primary(theirs(5), "-seed-none", "BF.RESERVE k 0.01 3 SEED EXPANSION 5");
    primary(theirs(2), "-layout-none", "BF.RESERVE k 0.01 3 LAYOUT LAYOUT of-another");
    primary(theirs(2), "-layouts-mixed", "BF.RESERVE k 0.01 3 SEED 1 LAYOUT redisbloom");
    primary(theirs(0), "-key-nonscaling", "BF.RESERVE NonScaling 0.01 3");
    primary(theirs(2), "-key-nonscaling-effect", "BF.RESERVE NONSCALING 0.01 3 EXPANSION 2");
    primary(seeded(0.01, 300, 2, 7), "-seed", "BF.RESERVE k 0.01 300 SEED 7");
    let refusals = [
        (Refusal::No("expansion"), "-no-expansion", "EXPANSION"),
        (Refusal::Bad("expansion"), "-bad-expansion", "EXPANSION EXPANSION 5"),
        (Refusal::FixedExpansion, "-fixed-expansion", "NONSCALING EXPANSION 5"),
    ];
    for (refusal, name, options) in refusals {
        let words = format!("BF.RESERVE k 0.01 3 {options}");
        refused(all, refusal, &format!("reserve-primary{name}"), PRIMARY, &words);
    }
}

pub fn reservations_that_are_refused(all: &Inputs) {
    let client = |refusal, name: &str, words: &str| refused(all, refusal, &format!("reserve-{name}"), CLIENT, words);
    client(Refusal::Arity, "no-words", "BF.RESERVE");
    client(Refusal::Arity, "no-capacity", "BF.RESERVE k 0.01");
    client(Refusal::Arity, "too-many-words", "BF.RESERVE k 0.01 3 EXPANSION 1 EXPANSION 1 EXPANSION 1 EXPANSION 1");
    for (name, rate) in [("nan", "nan"), ("empty", ""), ("hexadecimal", "0x1p-3"), ("comma", "0,1"), ("nul", "0.1\0")] {
        client(Refusal::Bad("error rate"), &format!("rate-{name}"), &format!("BF.RESERVE k {rate} 3"));
    }
    for (name, rate) in [("0", "-0"), ("1", "1.0"), ("infinity", "inf"), ("too-small", "1e-400"), ("minus", "-1e-9")] {
        client(Refusal::RateRange, &format!("rate-{name}"), &format!("BF.RESERVE k {rate} 3"));
    }
    for (name, capacity) in [("64-bits", "9223372036854775808"), ("plus", "+1"), ("zeros", "01"), ("minus-0", "-0")] {
        client(Refusal::Bad("capacity"), &format!("capacity-{name}"), &format!("BF.RESERVE k 0.01 {capacity}"));
    }
    for (name, capacity) in [("0", "0"), ("minus-1", "-1"), ("least", "-9223372036854775808")] {
        client(Refusal::CapacityRange, &format!("capacity-{name}"), &format!("BF.RESERVE k 0.01 {capacity}"));
    }
    let beyond = "BF.RESERVE k 0.01 9223372036854775807 LAYOUT redisbloom";
    client(Refusal::CapacityRange, "redisbloom-capacity", beyond);
    let with = |refusal, name: &str, options: &str| client(refusal, name, &format!("BF.RESERVE k 0.01 3 {options}"));
    with(Refusal::No("expansion"), "no-expansion", "EXPANSION");
    with(Refusal::Bad("expansion"), "bad-expansion", "EXPANSION 2.0");
    with(Refusal::ExpansionRange, "expansion-32769", "EXPANSION 32769");
    with(Refusal::ExpansionRange, "expansion-minus-1", "EXPANSION -1");
    with(Refusal::FixedExpansion, "fixed-expansion", "NONSCALING EXPANSION 1");
    with(Refusal::No("seed"), "no-seed", "SEED");
    with(Refusal::Bad("seed"), "seed-33-bits", "SEED 4294967296");
    with(Refusal::No("layout"), "no-layout", "LAYOUT");
    with(Refusal::Bad("layout"), "bad-layout", "LAYOUT valkey");
    with(Refusal::LayoutMismatch, "seed-of-another-layout", "SEED 1 LAYOUT redisbloom");
    with(Refusal::Syntax, "unknown-option", "ERROR 0.1");
}

pub fn insertions(all: &Inputs) {
    let client = |made, name: &str, words: &str| creates(all, made, &format!("insert-{name}"), CLIENT, words);
    client(native(0.01, 100, 2), "plain", "BF.INSERT k ITEMS a");
    client(native(0.02, 7, 0), "all", "BF.INSERT k CAPACITY 7 ERROR 0.02 EXPANSION 3 NONSCALING ITEMS a b");
    client(native(0.01, 9, 2), "the-last-counts", "BF.INSERT k CAPACITY 7 capacity 9 ITEMS ITEMS ITEMS");
    client(seeded(0.01, 100, 2, 0), "seed", "BF.INSERT k SEED 0");
    let valkey = |tightening, seed: [u8; 32]| {
        let rules = ValkeyBloom::new(0.01, tightening, Scaling::from_expansion(2), seed);
        creation(Spec::ValkeyBloom(ValkeyBloomSpec { rules, capacity: 100 }))
    };
    client(valkey(0.25, FIXED_SEED), "tightening", "BF.INSERT k TIGHTENING 0.25");
    let seed = "\u{1}bytes-that-are-no-number-at-all";
    let raw = seed.as_bytes().try_into().unwrap();
    client(valkey(0.5, raw), "raw-seed", &format!("BF.INSERT k SEED {seed} ITEMS a"));
    let scaled = Creation { scale_to: Some(1 << 40), ..native(0.01, 100, 2) };
    client(scaled, "validatescaleto", "BF.INSERT k VALIDATESCALETO 1099511627776");
    assert_eq!(outcome(all, "insert-nocreate", CLIENT, "BF.INSERT k NOCREATE ITEMS  "), Parsed::Insert(None, 2));
    let primary = |made, name: &str, words: &str| creates(all, made, &format!("insert-primary-{name}"), PRIMARY, words);
    primary(redisbloom(0.02, 7, 5), "short-words", "BF.INSERT k c 7 err 0.02 ex 5 it a");
    primary(redisbloom(0.01, 100, 0), "no-items", "BF.INSERT k EXTRA 3 NONSENSE");
    primary(redisbloom(0.01, 100, 5), "e", "BF.INSERT k e 5 i a");
    primary(redisbloom(0.01, 100, 0), "n", "BF.INSERT k N e 0 Nothing I a");
    primary(redisbloom(0.0625, 100, 0), "numbers", "BF.INSERT k er 0X.1 Ex 4294967296 I a");
    primary(seeded(0.01, 700, 2, 9), "seed", "BF.INSERT k C 700 SEED 9 ITEMS a");
    let words = "BF.INSERT k C -1 ER 5 E -1 C 7 ER 0.1 E 3 I a";
    primary(redisbloom(0.1, 7, 3), "the-last-counts", words);
    assert_eq!(outcome(all, "insert-primary-noc", PRIMARY, "BF.INSERT k noCx ITEMS a"), Parsed::Insert(None, 1));
    for (refusal, name, option) in [
        (Refusal::InsertBad("error rate"), "rate", "ER 0.1 ER 1"),
        (Refusal::InsertBad("capacity"), "capacity", "C 7 C 0"),
        (Refusal::InsertUnknown, "unknown", "X 5"),
        (Refusal::InsertBad("expansion"), "minus", "E -1"),
    ] {
        refused(all, refusal, &format!("insert-primary-{name}"), PRIMARY, &format!("BF.INSERT k {option} ITEMS a"));
    }
}

/// The sizing rules of a filter. Without the option, a client gets the newest rules, and an effect gets the rules of 0.2.
pub fn policies(all: &Inputs) {
    let with = |policy, creation: Creation| match creation.spec {
        Spec::Native(spec) => Creation { spec: Spec::Native(NativeSpec { policy, ..spec }), ..creation },
        spec => panic!("{spec:?}"),
    };
    let seeded = seeded(0.01, 100, 2, 700);
    let words = "BF.INSERT k CAPACITY 100 ERROR 0.01 EXPANSION 2 SEED 700";
    creates(all, with(Policy::NEWEST, seeded), "insert-policy", CLIENT, words);
    creates(all, with(Policy::One, seeded), "insert-primary-policy", PRIMARY, words);
    for (policy, number) in [(Policy::One, 1), (Policy::Two, 2), (Policy::Three, 3)] {
        let words = format!("{words} POLICY {number} ITEMS a");
        creates(all, with(policy, seeded), &format!("insert-primary-policy-{number}"), PRIMARY, &words);
        creates(all, with(policy, seeded), &format!("insert-policy-{number}"), CLIENT, &words);
    }
    creates(all, native(0.01, 100, 2), "insert-policy-without-seed", CLIENT, "BF.INSERT k POLICY 3 ITEMS a");
    for (refusal, name, options) in [
        (Refusal::Range(&POLICY), "0", "SEED 7 POLICY 0"),
        (Refusal::Range(&POLICY), "4", "SEED 7 POLICY 4"),
        (Refusal::LayoutMismatch, "fixed", "SEED 7 NONSCALING POLICY 2"),
        (Refusal::LayoutMismatch, "large", "SEED 7 CAPACITY 129 POLICY 2"),
        (Refusal::LayoutMismatch, "window", "SEED 7 WINDOW 60 POLICY 2"),
        (Refusal::LayoutMismatch, "redisbloom", "POLICY 2"),
    ] {
        let words = format!("BF.INSERT k {options} ITEMS a");
        refused(all, refusal, &format!("insert-primary-policy-{name}"), PRIMARY, &words);
    }
}

/// The form of a primary, whose definition is 2, 16 + 2, 2, 100 and 7: the policy, the rate 1 / 10^2, the expansion, the capacity and the
/// seed.
pub fn definitions(all: &Inputs) {
    let word = "\u{2}\u{12}\u{2}d\u{7}";
    let spec = NativeSpec { policy: Policy::Two, ..NativeSpec::murmur3(0.01, 100, Scaling::from_expansion(2), 7) };
    let stated = creation(Spec::Native(spec));
    for (name, asking) in [("insert-definition", CLIENT), ("insert-primary-definition", PRIMARY)] {
        creates(all, stated, name, asking, &format!("BF.INSERT k AS {word} ITEMS a"));
        let parsed = outcome(all, &format!("{name}-items"), asking, &format!("bf.insert k as {word} ITEMS a"));
        assert_eq!(parsed, Parsed::Insert(Some(stated), 2));
        for (of, word) in [("policy", "\u{7e}\u{12}\u{2}d\u{7}"), ("rate", "\u{2}\u{2}\u{2}d\u{7}"), ("empty", "")] {
            refused(
                all,
                Refusal::Bad("definition"),
                &format!("{name}-{of}"),
                asking,
                &format!("BF.INSERT k AS {word} a"),
            );
        }
        refused(all, Refusal::InsertUnknown, &format!("{name}-missing"), asking, "BF.INSERT k AS");
    }
}

pub fn insertions_that_are_refused(all: &Inputs) {
    let client = |refusal, name: &str, words: &str| refused(all, refusal, &format!("insert-{name}"), CLIENT, words);
    client(Refusal::Arity, "no-words", "BF.INSERT");
    client(Refusal::Arity, "no-items", "BF.INSERT k CAPACITY 3");
    client(Refusal::Arity, "nothing-after-items", "BF.INSERT k ITEMS");
    client(Refusal::Arity, "nothing-after-error", "BF.INSERT k ERROR");
    client(Refusal::InsertUnknown, "short-words", "BF.INSERT k cap 7 ITEMS a");
    client(Refusal::InsertBad("error rate"), "rate-1", "BF.INSERT k ERROR 1 ITEMS a");
    client(Refusal::InsertBad("capacity"), "capacity-0", "BF.INSERT k CAPACITY 0 ITEMS a");
    client(
        Refusal::InsertBad("capacity"),
        "redisbloom-capacity",
        "BF.INSERT k CAPACITY 1152921504606846976 LAYOUT redisbloom ITEMS a",
    );
    client(Refusal::InsertBad("expansion"), "expansion-32769", "BF.INSERT k EXPANSION 32769 ITEMS a");
    client(Refusal::InsertBad("seed"), "seed-31-bytes", "BF.INSERT k SEED 0000000000000000000000000000001 ITEMS a");
    client(Refusal::InsertBad("tightening ratio"), "tightening-1", "BF.INSERT k TIGHTENING 1 ITEMS a");
    client(Refusal::InsertBad("layout"), "layout", "BF.INSERT k LAYOUT 1 ITEMS a");
    client(Refusal::InsertBad("validatescaleto"), "validatescaleto-0", "BF.INSERT k VALIDATESCALETO 0");
    client(Refusal::FixedScaleTo, "fixed-validatescaleto", "BF.INSERT k NONSCALING VALIDATESCALETO 9");
    client(Refusal::LayoutMismatch, "number-and-tightening", "BF.INSERT k SEED 1 TIGHTENING 0.5 ITEMS a");
}

pub fn fields_and_records(all: &Inputs) {
    let parsed = |name: &str, words: &str| outcome(all, name, CLIENT, words);
    assert_eq!(parsed("info", "BF.INFO k"), Parsed::Info(None));
    assert_eq!(parsed("info-field", "BF.INFO k maxScaledCapacity"), Parsed::Info(Some(Field::MaxScaledCapacity)));
    refused(all, Refusal::InfoField, "info-no-field", CLIENT, "BF.INFO k SIZES");
    refused(all, Refusal::Arity, "info-two-fields", CLIENT, "BF.INFO k SIZE ITEMS");
    assert_eq!(parsed("scandump-least", "BF.SCANDUMP k -9223372036854775808"), Parsed::Scandump(i64::MIN));
    refused(all, Refusal::BadDumpIterator, "scandump-no-number", CLIENT, "BF.SCANDUMP k 1.");
    assert_eq!(parsed("loadchunk", "BF.LOADCHUNK k 9223372036854775807 data"), Parsed::Loadchunk(i64::MAX as u64, 4));
    assert_eq!(parsed("loadchunk-nothing", "BF.LOADCHUNK k 1 "), Parsed::Loadchunk(1, 0));
    refused(all, Refusal::BadData, "loadchunk-minus-1", CLIENT, "BF.LOADCHUNK k -1 data");
    refused(all, Refusal::BadLoadIterator, "loadchunk-no-number", CLIENT, "BF.LOADCHUNK k 1e1 data");
}

pub fn plans(all: &Inputs) {
    let asked = |name: &str, asking, words: &str| match outcome(all, &format!("plan-{name}"), asking, words) {
        Parsed::Plan(asked) => asked,
        other => panic!("{words}: {other:?}"),
    };
    let plain = Asked { spec: native(0.01, 100, 2).spec, items: None };
    assert_eq!(asked("plain", CLIENT, "BF.PLAN 0.01 100"), plain);
    // The command is parsed as a client's, whatever its origin.
    assert_eq!(asked("primary", PRIMARY, "BF.PLAN 0.01 100"), plain);
    let many = asked("items", CLIENT, "BF.PLAN 0.01 100 EXPANSION 1 ITEMS 9223372036854775807");
    assert_eq!(many.items, Some(i64::MAX as u64));
    for (name, words) in [
        ("window", "WINDOW 60 SLIDING BUCKETS 64 HASH siphash"),
        ("rolling", "ROLLING BUCKETS 3 ITEMS 1000"),
        ("counting", "COUNTING EX 5"),
        ("tightening", "TIGHTENING 0.5 ITEMS 100000"),
        ("redisbloom", "LAYOUT redisbloom ITEMS 100000"),
    ] {
        let words = format!("BF.PLAN 0.01 100 {words}");
        let kind = asked(name, CLIENT, &words).spec.names().kind.to_str().unwrap();
        assert!(kind == name || kind == "scaling", "{words}: {kind}");
    }
    assert_eq!(asked("items-0", CLIENT, "BF.PLAN 0.01 100 ITEMS 0").items, Some(0));
    for (refusal, name, words) in [
        (Refusal::Arity, "no-capacity", "0.01"),
        (Refusal::Bad("error rate"), "bad-rate", "x 100"),
        (Refusal::RateRange, "rate-1", "1 100"),
        (Refusal::Bad("capacity"), "bad-capacity", "0.01 x"),
        (Refusal::CapacityRange, "capacity-0", "0.01 0"),
        (Refusal::CapacityRange, "redisbloom-capacity", "0.01 1073741825 LAYOUT redisbloom"),
        (Refusal::No("items"), "no-items", "0.01 100 ITEMS"),
        (Refusal::Range(&PLANNED_ITEMS), "items-minus-1", "0.01 100 ITEMS -1"),
        (Refusal::Syntax, "items-twice", "0.01 100 ITEMS 5 items 5"),
        (Refusal::Bad("tightening ratio"), "tightening-1", "0.01 100 TIGHTENING 1"),
        (Refusal::Needs("SLIDING", "WINDOW"), "sliding", "0.01 100 SLIDING"),
        (Refusal::Exclude("WINDOW", "TIGHTENING"), "window-tightening", "0.01 100 WINDOW 5 TIGHTENING 0.5"),
        (Refusal::FixedExpansion, "fixed-expansion", "0.01 100 EXPANSION 2 NONSCALING"),
        (Refusal::Syntax, "unknown-option", "0.01 100 more"),
    ] {
        refused(all, refusal, &format!("plan-{name}"), CLIENT, &format!("BF.PLAN {words}"));
    }
}

pub fn words_of_new_kinds(all: &Inputs) {
    for (name, words) in [
        ("keyed", "HASH siphash SEED 000102030405060708090a0b0c0d0e0F"),
        ("window", "WINDOW 60 EXPANSION 4"),
        ("sliding", "window 1 sliding buckets 3 HASH siphash"),
        ("rolling", "ROLLING BUCKETS 64"),
        ("counting", "COUNTING PX 1"),
    ] {
        for (command, rest) in [("reserve", "0.01 100"), ("insert", "ERROR 0.01 CAPACITY 100")] {
            let (upper, items) = (command.to_uppercase(), if command == "insert" { " ITEMS a" } else { "" });
            let words = format!("BF.{upper} k {rest} {words}{items}");
            let outcome = outcome(all, &format!("{command}-{name}"), CLIENT, &words);
            assert!(matches!(outcome, Parsed::Reserve(_) | Parsed::Insert(Some(_), 1)), "{words}: {outcome:?}");
        }
    }
    let with = |refusal, name: &str, options: &str| {
        refused(all, refusal, &format!("reserve-{name}"), CLIENT, &format!("BF.RESERVE k 0.01 3 {options}"));
    };
    with(Refusal::No("hash"), "no-hash", "HASH");
    with(Refusal::Bad("hash"), "bad-hash", "HASH md5");
    with(Refusal::Bad("seed"), "key-31-digits", "HASH siphash SEED 0102030405060708090a0b0c0d0e0f0");
    with(Refusal::Range(&WINDOW), "window-0", "WINDOW 0");
    with(Refusal::Range(&BUCKETS), "buckets-65", "WINDOW 60 BUCKETS 65");
    with(Refusal::Range(&PX), "expire-time-0", "PX 0");
    with(Refusal::Exclude("COUNTING", "WINDOW"), "counting-window", "WINDOW 5 COUNTING");
    with(Refusal::Exclude("EX", "PX"), "ex-px", "EX 5 PX 5");
    with(Refusal::Needs("BUCKETS", "WINDOW or ROLLING"), "buckets-alone", "BUCKETS 5");
}

/// COUNTING can be combined with a hash and a seed, and with few other options.
pub fn counting(all: &Inputs) {
    let digits = "000102030405060708090a0b0c0d0eff";
    let key = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255];
    let random = *b"\x01\x02\x03\x04\t\t\t\t\t\t\t\t\t\t\t\t";
    for (name, options, hasher) in [
        ("plain", "COUNTING", Hasher::murmur3(NATIVE_SEED)),
        ("fixed", "counting NONSCALING", Hasher::murmur3(NATIVE_SEED)),
        ("seed", "SEED 5 COUNTING LAYOUT native", Hasher::murmur3(5)),
        ("hash", "COUNTING HASH murmur3 SEED 0", Hasher::murmur3(0)),
        ("random-key", "HASH siphash COUNTING COUNTING", Hasher::SipHash { key: random }),
        ("key", &format!("COUNTING SEED {digits} HASH siphash EX 5"), Hasher::SipHash { key }),
    ] {
        let spec = Spec::Counting(CountingSpec { rate: 0.01, capacity: 100, hasher });
        let made = Creation { expires: options.ends_with("EX 5").then_some(5000), ..creation(spec) };
        let words = format!("BF.RESERVE k 0.01 100 {options}");
        creates(all, made, &format!("reserve-counting-{name}"), CLIENT, &words);
        creates(all, made, &format!("insert-counting-{name}"), CLIENT, &format!("BF.INSERT k {options} ITEMS a"));
    }
    for (name, options, other) in [
        ("expansion", "COUNTING EXPANSION 2", "EXPANSION"),
        ("window", "WINDOW 60 COUNTING", "WINDOW"),
        ("rolling", "COUNTING ROLLING", "ROLLING"),
        ("layout", "COUNTING LAYOUT redisbloom", "LAYOUT redisbloom"),
        ("raw-seed", &format!("SEED {digits} COUNTING"), "a SEED of 32 bytes"),
        ("tightening", "COUNTING TIGHTENING 0.5", "TIGHTENING"),
        ("validatescaleto", "VALIDATESCALETO 9 COUNTING", "VALIDATESCALETO"),
    ] {
        let refusal = Refusal::Exclude("COUNTING", other);
        assert_eq!(refusal.to_string(), format!("ERR COUNTING and {other} exclude each other"));
        let words = format!("BF.INSERT k {options} ITEMS a");
        refused(all, refusal, &format!("insert-counting-and-{name}"), CLIENT, &words);
        if !matches!(name, "tightening" | "validatescaleto") {
            let words = format!("BF.RESERVE k 0.01 100 {options}");
            refused(all, refusal, &format!("reserve-counting-and-{name}"), CLIENT, &words);
        }
    }
    for (options, needed) in [("SLIDING", "WINDOW"), ("BUCKETS 5", "WINDOW or ROLLING")] {
        let (option, words) = (options.split(' ').next().unwrap(), format!("BF.RESERVE k 0.01 100 COUNTING {options}"));
        let refusal = Refusal::Needs(if option == "SLIDING" { "SLIDING" } else { "BUCKETS" }, needed);
        refused(all, refusal, &format!("reserve-counting-and-{option}"), CLIENT, &words);
    }
}

pub fn guarding(all: &Inputs) {
    let parsed = |name: &str, words: &str| outcome(all, name, CLIENT, words);
    let fetch = Fetch {
        lease: 1,
        stale: 2,
        wait: 3,
        renew: 0,
        fresh: 0,
        replaces: false,
        peeks: false,
        tells_failures: false,
        while_key: None,
        unless_key: None,
    };
    assert_eq!(parsed("fetch", "BF.FETCH f i c wait 3 LEASE 1 STALE 2"), Parsed::Fetch(fetch));
    let flags = Fetch { replaces: true, tells_failures: true, ..fetch };
    assert_eq!(parsed("fetch-flags", "BF.FETCH f i c wait 3 BackOff LEASE 1 replace STALE 2"), Parsed::Fetch(flags));
    let peek = Fetch { wait: 0, peeks: true, ..fetch };
    assert_eq!(parsed("fetch-peek", "BF.FETCH f i c LEASE 1 STALE 2 Peek"), Parsed::Fetch(peek));
    let token = Some(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
    for (name, rest, fill) in [
        ("fill-value", "VALUE v EX 1", Fill::Value(6, Some(1000))),
        ("fill-value-for-ever", "value v", Fill::Value(6, None)),
        ("fill-none", "NONE PX 5", Fill::None(5)),
        ("fill-giveup", "GIVEUP", Fill::GiveUp),
        ("fill-backoff", "giveup BACKOFF 2305843009213693952", Fill::BackOff(Some(1 << 61))),
        ("fill-backoff-0", "GIVEUP BACKOFF 0", Fill::GiveUp),
        ("fill-backoff-that-doubles", "GIVEUP BACKOFF", Fill::BackOff(None)),
    ] {
        assert_eq!(
            parsed(name, &format!("BF.FILL f i c 0123456789abcdef0123456789ABCDEF {rest}")),
            Parsed::Fill(token, fill)
        );
    }
    let digits = "0123456789abcdef0123456789abcdef";
    for (name, word) in [
        ("short", &digits[1..]),
        ("long", &format!("{digits}0")),
        ("sign", &format!("+{}", &digits[1..])),
        ("letter", &format!("{}g", &digits[1..])),
    ] {
        let words = format!("BF.FILL f i c {word} GIVEUP");
        assert_eq!(parsed(&format!("fill-no-token-{name}"), &words), Parsed::Fill(None, Fill::GiveUp));
    }
    let plain = Fetch { lease: 3000, stale: 0, wait: 0, ..fetch };
    assert_eq!(parsed("fetch-plain", "BF.FETCH f i c"), Parsed::Fetch(plain));
    assert_eq!(parsed("fetch-zeros", "BF.FETCH f i c STALE 0 WAIT 0"), Parsed::Fetch(plain));
    let all_options =
        "UNLESS WHILE BACKOFF fresh 7 renew 100 REPLACE STALE 2305843009213693952 while unless LEASE 3600000";
    let fetch = Fetch { lease: LEASE.most, stale: 1 << 61, ..fetch };
    let flags = Fetch { wait: 0, renew: 100, fresh: 7, replaces: true, tells_failures: true, ..fetch };
    let many = Fetch { while_key: NonZeroUsize::new(13), unless_key: NonZeroUsize::new(3), ..flags };
    let items = "ITEMS ITEMS ITEMS i c";
    assert_eq!(parsed("mfetch", &format!("BF.MFETCH f {all_options} {items}")), Parsed::FetchMany(many, 17));
    assert_eq!(parsed("mchanged", &format!("BF.MCHANGED f {items}")), Parsed::ChangedMany(3));
    let single = Fetch { wait: 3, while_key: NonZeroUsize::new(15), unless_key: NonZeroUsize::new(5), ..many };
    assert_eq!(parsed("fetch-all", &format!("BF.FETCH f i c {all_options} WAIT 3")), Parsed::Fetch(single));
}

pub fn guarding_that_is_refused(all: &Inputs) {
    let client = |refusal, name: &str, words: &str| refused(all, refusal, name, CLIENT, words);
    let options = [(&LEASE, "lease"), (&STALE, "stale"), (&RENEW, "renew"), (&FRESH, "fresh"), (&WAIT, "wait")];
    for (range, name) in options {
        let (refusal, option) = (Refusal::Range(range), range.option);
        client(refusal, &format!("fetch-no-{name}"), &format!("BF.FETCH f i c {option}"));
        client(refusal, &format!("fetch-bad-{name}"), &format!("BF.FETCH f i c {option} {}", range.most + 1));
    }
    for (range, name) in options.into_iter().take(4) {
        let (refusal, option) = (Refusal::Range(range), range.option);
        client(refusal, &format!("mfetch-no-{name}"), &format!("BF.MFETCH f {option}"));
        client(refusal, &format!("mfetch-bad-{name}"), &format!("BF.MFETCH f {option} -1 ITEMS i c"));
    }
    for option in ["WHILE", "UNLESS"] {
        client(Refusal::No("key"), &format!("fetch-{option}"), &format!("BF.FETCH f i c {option}"));
        client(Refusal::No("key"), &format!("mfetch-{option}"), &format!("BF.MFETCH f {option}"));
        let twice = format!("{option} a {option} a");
        client(Refusal::Syntax, &format!("fetch-twice-{option}"), &format!("BF.FETCH f i c {twice}"));
        client(Refusal::Syntax, &format!("mfetch-twice-{option}"), &format!("BF.MFETCH f {twice} ITEMS i c"));
    }
    for (number, words) in ["", "LEASE 5", "ITEMS", "ITEMS 1 a 2"].into_iter().enumerate() {
        client(Refusal::Arity, &format!("mfetch-arity-{number}"), format!("BF.MFETCH f {words}").trim_end());
        let refusal = if words == "LEASE 5" { Refusal::Syntax } else { Refusal::Arity };
        client(refusal, &format!("mchanged-arity-{number}"), format!("BF.MCHANGED f {words}").trim_end());
    }
    client(Refusal::Syntax, "mfetch-no-items", "BF.MFETCH f 1 a");
    client(Refusal::Range(&LEASE), "mfetch-lease-items", "BF.MFETCH f LEASE ITEMS 1 a");
    for (other, command) in [("REPLACE", "BF.FETCH f i c"), ("WAIT", "BF.FETCH f i c"), ("REPLACE", "BF.MFETCH f")] {
        let (value, items) =
            (if other == "WAIT" { " 0" } else { "" }, if command.len() == 11 { " ITEMS i c" } else { "" });
        let name = format!("peek-and-{other}-{}", command.len());
        client(Refusal::Exclude("PEEK", other), &name, &format!("{command} {other}{value} PEEK{items}"));
    }
    for option in ["BACKOFF", "PEEK", "REPLACE"] {
        client(Refusal::Syntax, &format!("fetch-twice-{option}"), &format!("BF.FETCH f i c {option} {option}"));
        client(Refusal::Syntax, &format!("mfetch-twice-{option}"), &format!("BF.MFETCH f {option} {option} ITEMS i c"));
        client(Refusal::Syntax, &format!("fetch-value-{option}"), &format!("BF.FETCH f i c {option} 1"));
    }
    client(Refusal::Needs("FRESH", "WHILE"), "fetch-fresh-alone", "BF.FETCH f i c FRESH 1");
    client(Refusal::Needs("FRESH", "WHILE"), "mfetch-fresh-alone", "BF.MFETCH f FRESH 1 UNLESS k ITEMS i c");
    client(Refusal::Range(&FRESH), "fetch-fresh-0", "BF.FETCH f i c WHILE k FRESH 0");
    client(Refusal::Syntax, "fetch-fresh-twice", "BF.FETCH f i c WHILE k FRESH 1 FRESH 1");
    client(Refusal::Arity, "fetch-no-cache-key", "BF.FETCH f i");
    client(Refusal::Syntax, "fetch-unknown", "BF.FETCH f i c ITEMS");
    client(Refusal::Range(&WAIT), "fetch-wait-minus-1", "BF.FETCH f i c WAIT -1");
    client(Refusal::Range(&LEASE), "fetch-lease-0", "BF.FETCH f i c LEASE 0");
    client(Refusal::Syntax, "fetch-twice", "BF.FETCH f i c WAIT 1 WAIT 1");
    client(Refusal::Syntax, "mfetch-wait", "BF.MFETCH f WAIT 1 ITEMS i c");
    client(Refusal::Arity, "mfetch-half-a-pair", "BF.MFETCH f ITEMS i");
    client(Refusal::Arity, "mchanged-no-pair", "BF.MCHANGED f ITEMS");
    client(Refusal::Syntax, "mchanged-lease", "BF.MCHANGED f LEASE 1 ITEMS i c");
    let fill = |refusal, name: &str, rest: &str| client(refusal, name, &format!("BF.FILL f i c 0 {rest}"));
    fill(Refusal::Range(&EX), "fill-expire-time-0", "NONE EX 0");
    fill(Refusal::Range(&PX), "fill-px-0", "NONE PX 0");
    fill(Refusal::No("expire time"), "fill-none-for-ever", "NONE");
    fill(Refusal::Range(&EX), "fill-no-expire-time", "NONE EX");
    fill(Refusal::Arity, "fill-no-value", "VALUE");
    for (name, rest) in [("giveup-ex", "GIVEUP EX 1"), ("twice", "VALUE v EX 1 PX 1"), ("keepttl", "VALUE v KEEPTTL")] {
        fill(Refusal::Syntax, &format!("fill-{name}"), rest);
    }
    fill(Refusal::Syntax, "fill-nothing", "NOTHING");
    fill(Refusal::Range(&BACKOFF), "fill-bad-backoff", "GIVEUP BACKOFF 2305843009213693953");
    fill(Refusal::Syntax, "fill-backoff-twice", "GIVEUP BACKOFF 1 BACKOFF 1");
}

pub fn turns(all: &Inputs) {
    let parsed = |name: &str, asking, words: &str| outcome(all, &format!("rotate-{name}"), asking, words);
    assert_eq!(parsed("client", CLIENT, "BF.ROTATE k"), Parsed::Rotate(None));
    let start = BucketStart { slot: 7, begin: Moment(1), end: Moment(1), capacity: 1 };
    assert_eq!(parsed("primary", PRIMARY, "BF.ROTATE k 7 1 1 1"), Parsed::Rotate(Some(start)));
    assert_eq!(parsed("client-says-which", CLIENT, "BF.ROTATE k 7 1 1 1"), Parsed::Rotate(Some(start)));
    for (name, numbers) in [("capacity-0", "7 1 1 0"), ("ends-before", "7 2 1 1"), ("minus", "-7 1 1 1")] {
        let words = format!("BF.ROTATE k {numbers}");
        refused(all, Refusal::BadData, &format!("rotate-primary-{name}"), PRIMARY, &words);
    }
}

pub fn load_time_words(all: &Inputs) {
    let parsed = |name: &str, words: &str| outcome(all, &format!("load-time-{name}"), CLIENT, words);
    assert_eq!(parsed("nothing", "MODULE"), Parsed::LoadTime(LoadTime::default()));
    let all = LoadTime {
        rate: Some(0.1),
        initial_size: Some(1 << 30),
        expansion: None,
        unless_loaded: false,
        cuckoo: [None, Some(255), None, None, Some(65536)],
    };
    let names = LoadTime {
        rate: Some(0.02),
        initial_size: Some(200),
        expansion: Some(0),
        unless_loaded: false,
        cuckoo: [None, Some(4), None, None, None],
    };
    let words = "MODULE bf-error-rate 0.02 BF-initial-size 200 bf-expansion-factor 0 cf-bucket-size 4";
    assert_eq!(parsed("names-of-settings", words), Parsed::LoadTime(names));
    let words =
        "MODULE error_rate 0.5 ERROR_RATE 0.1 INITIAL_SIZE 1073741824 cf_bucket_size 255 CF_MAX_EXPANSIONS 65536";
    assert_eq!(parsed("all", words), Parsed::LoadTime(all));
    for (name, words, line) in [
        ("no-value", "MODULE ERROR_RATE", "load-time words come in pairs, 'ERROR_RATE' has no value"),
        ("rate-0", "MODULE ERROR_RATE 0", "bad value '0' for ERROR_RATE: a number inside (0, 1) is expected"),
        (
            "size-0",
            "MODULE INITIAL_SIZE 0",
            "bad value '0' for INITIAL_SIZE: a whole number from 1 to 1073741824 is expected",
        ),
        (
            "expansion-too-large",
            "MODULE bf-expansion-factor 32769",
            "bad value '32769' for bf-expansion-factor: a whole number from 0 to 32768 is expected",
        ),
        (
            "bucket-size-too-large",
            "MODULE CF_BUCKET_SIZE 256",
            "bad value '256' for CF_BUCKET_SIZE: a whole number from 1 to 255 is expected",
        ),
        ("unknown", "MODULE MAXDOUBLE 1", "unknown load-time word 'MAXDOUBLE'"),
    ] {
        assert_eq!(parsed(name, words), Parsed::LoadTimeRefused(line.to_owned()));
    }
}
