//! The arguments of commands, and their laws: nothing panics, each argument is read once, accepted values are in range, and a refusal has
//! one of the texts of its command. Options are not case-sensitive; a primary may send everything that a client may send; and the command
//! that replicates a filter creates the same filter.
//!
//! An input is a byte with the sender and the settings, and the arguments, one per line:
//!
//! ```text
//! u8     asking    1: a primary or the AOF; 2: bf.layout is redisbloom; 4: filters are fixed by default; 8: seeds of
//!                  valkey-bloom's layout are random
//! words            the first is the command, or MODULE for the arguments after the path in loadmodule
//! ```

use std::cell::Cell;

use bloomgate_filter::arguments::insert::Insert;
use bloomgate_filter::arguments::options::{EX, PX};
use bloomgate_filter::arguments::{
    Command, Creation, Refusal, info, insert, iterators, key_position, load_time, plan, reserve, rotate,
};
use bloomgate_filter::hash::Hasher;
use bloomgate_filter::kinds::effect::WORDS_MAX;
use bloomgate_filter::kinds::info::Field;
use bloomgate_filter::kinds::redisbloom::CAPACITY_MAX;
use bloomgate_filter::kinds::valkey_bloom::ValkeyBloom;
use bloomgate_filter::kinds::{
    BucketStart, CountingSpec, CuckooSpec, Defaults, HashName, LayoutName, NativeSpec, RedisBloomSpec, ValkeyBloomSpec,
    WindowedSpec,
};
use bloomgate_filter::{Policy, RATE_MAX, RATE_MIN, Scaling, Spec};

use super::guard_arguments::{self, BACKOFF, FRESH, Fetch, Fill, LEASE, RENEW, STALE, WAIT};
use super::guarding;

/// The name of the target.
pub const NAME: &str = "command_words";

const MUST_OBEY: u8 = 1;
const REDISBLOOM: u8 = 2;
const FIXED: u8 = 4;
const RANDOM_SEEDS: u8 = 8;
const KEYED: u8 = 128;

/// The seed of a native filter that a client creates without one.
pub const NATIVE_SEED: u32 = 0x0403_0201;

/// The server's state that the parsers use.
fn defaults(asking: u8) -> Defaults {
    let mut entropy = [9; 32];
    entropy[..4].copy_from_slice(&NATIVE_SEED.to_le_bytes());
    Defaults {
        rate: 0.01,
        capacity: 100,
        scaling: Scaling::from_expansion(if asking & FIXED == 0 { 2 } else { 0 }),
        layout: if asking & REDISBLOOM == 0 { LayoutName::Native } else { LayoutName::RedisBloom },
        hash: if asking & KEYED == 0 { HashName::Murmur3 } else { HashName::SipHash },
        tightening: 0.5,
        entropy,
        has_random_seeds: asking & RANDOM_SEEDS != 0,
        must_obey: asking & MUST_OBEY != 0,
    }
}

/// The outcome of parsing.
#[derive(Clone, Debug, PartialEq)]
pub enum Parsed {
    /// BF.RESERVE.
    Reserve(Creation),
    /// BF.INSERT: the creation, if any, and the number of items.
    Insert(Option<Creation>, usize),
    /// BF.INFO.
    Info(Option<Field>),
    /// BF.SCANDUMP: the iterator.
    Scandump(i64),
    /// BF.LOADCHUNK: the iterator, and the length of the data.
    Loadchunk(u64, usize),
    /// BF.FETCH.
    Fetch(Fetch),
    /// BF.MFETCH: the options, and the position of the first item.
    FetchMany(Fetch, usize),
    /// BF.MCHANGED: the position of the first item.
    ChangedMany(usize),
    /// BF.FILL: its token, and its value.
    Fill(Option<u128>, Fill),
    /// BF.PLAN.
    Plan(plan::Asked),
    /// BF.ROTATE: the stated bucket.
    Rotate(Option<BucketStart>),
    /// The arguments of `loadmodule`.
    LoadTime(load_time::LoadTime),
    /// A refusal.
    Refused(Refusal),
    /// The line of the log with the reason for a refusal.
    LoadTimeRefused(String),
    /// Not a command that is parsed.
    NoCommand,
}

/// The sender and the arguments.
#[must_use]
pub fn of(input: &[u8]) -> (Defaults, Vec<&[u8]>) {
    let (asking, words) = input.split_first().unwrap_or((&0, &[]));
    (defaults(*asking), words.split(|byte| *byte == b'\n').collect())
}

/// Parses the arguments in an input.
#[must_use]
pub fn parse(input: &[u8]) -> Parsed {
    let (defaults, words) = of(input);
    parsed(&words, &defaults)
}

/// Parses arguments.
#[must_use]
pub fn parsed<W: AsRef<[u8]>>(words: &[W], defaults: &Defaults) -> Parsed {
    let (name, after) = words.split_first().map_or((&[][..], words), |(name, rest)| (name.as_ref(), rest));
    let result = match name.to_ascii_uppercase().as_slice() {
        b"BF.RESERVE" => reserve::parse(words, defaults).map(|reserve| Parsed::Reserve(reserve.creation)),
        b"BF.INSERT" => {
            insert::parse(words, defaults).map(|Insert { creation, items, .. }| Parsed::Insert(creation, items.len()))
        }
        b"BF.INFO" => info::parse(words).map(Parsed::Info),
        b"BF.SCANDUMP" => iterators::scandump(words).map(Parsed::Scandump),
        b"BF.LOADCHUNK" => iterators::loadchunk(words).map(|(at, data)| Parsed::Loadchunk(at, data.len())),
        b"BF.PLAN" => plan::parse(words, defaults).map(Parsed::Plan),
        b"BF.FETCH" => guard_arguments::fetch(words).map(Parsed::Fetch),
        b"BF.MFETCH" => guard_arguments::mfetch(words).map(|(fetch, first)| Parsed::FetchMany(fetch, first)),
        b"BF.MCHANGED" => guard_arguments::mchanged(words).map(Parsed::ChangedMany),
        b"BF.FILL" => guard_arguments::fill(words).and_then(|(token, fill)| Ok(Parsed::Fill(token, fill?))),
        b"BF.ROTATE" => rotate::parse(words).map(Parsed::Rotate),
        b"MODULE" => return load_time::parse(after).map_or_else(Parsed::LoadTimeRefused, Parsed::LoadTime),
        _ => return Parsed::NoCommand,
    };
    result.unwrap_or_else(Parsed::Refused)
}

/// Parses an input and checks the laws for the result; panics if one is violated.
pub fn check(input: &[u8]) {
    let (defaults, words) = of(input);
    let parsed = parsed(&words, &defaults);
    match &parsed {
        Parsed::Reserve(creation) => of_creation(creation, &defaults),
        Parsed::Insert(creation, items) => {
            assert!(*items < words.len());
            creation.iter().for_each(|creation| of_creation(creation, &defaults));
        }
        Parsed::Info(field) => {
            let named = field.map_or("", |field| field.words().0);
            assert!(named.as_bytes().eq_ignore_ascii_case(words.get(2).copied().unwrap_or_default()));
        }
        Parsed::Scandump(iterator) => assert_eq!(iterator.to_string().as_bytes(), words[2]),
        Parsed::Loadchunk(iterator, length) => {
            assert_eq!((iterator.to_string().as_bytes(), *length), (words[2], words[3].len()));
        }
        Parsed::Plan(asked) => of_plan(*asked, &defaults),
        Parsed::Fetch(fetch) => guarding::of_fetch(*fetch, &words, 4..words.len()),
        Parsed::FetchMany(fetch, first) => {
            assert_eq!(fetch.wait, 0, "BF.MFETCH never waits");
            guarding::of_fetch(*fetch, &words, 2..first - 1);
            guarding::of_pairs(&words, *first);
        }
        Parsed::ChangedMany(first) => guarding::of_pairs(&words, *first),
        Parsed::Fill(token, fill) => guarding::of_fill(*token, *fill, &words),
        Parsed::Rotate(start) => of_bucket_start(*start, words.len()),
        Parsed::LoadTime(load_time) => {
            assert!(load_time.rate.is_none_or(is_rate));
            assert!(load_time.initial_size.is_none_or(|size| (1..=load_time::INITIAL_SIZE_MAX).contains(&size)));
            assert!(words.len() % 2 == 1 && load_time.cuckoo.iter().flatten().all(|number| *number <= 1 << 30));
        }
        Parsed::Refused(refusal) => of_refusal(&words, *refusal),
        Parsed::LoadTimeRefused(line) => assert!(!line.is_empty() && line.len() <= 3 * input.len() + 100, "{line}"),
        Parsed::NoCommand => {}
    }
    if let Some(position) = key_position(Command::Insert, &words) {
        assert!(words[position - 1].eq_ignore_ascii_case(b"SEED"), "{words:?}: a key at {position}");
    }
    each_word_is_read_once(&words, &defaults);
    letters_of_any_case(&words, &defaults, &parsed);
    if !defaults.must_obey {
        a_primary_may_say_what_a_client_may(&words, &defaults, &parsed);
    }
}

/// Whether a rate is inside (0, 1). Written out here, so that the law does not depend on the tested code.
fn is_rate(rate: f64) -> bool {
    rate > 0.0 && rate < 1.0
}

/// The creation is in range, and its replicated form means the same.
fn of_creation(creation: &Creation, defaults: &Defaults) {
    let Creation { spec, asked_rate, scale_to, expires } = *creation;
    assert!(expires != Some(0));
    let (capacity, scaling) = match spec {
        Spec::Native(NativeSpec { capacity, scaling, .. }) => (capacity, scaling),
        Spec::Windowed(WindowedSpec { capacity, scaling, .. }) => (capacity, scaling),
        Spec::Counting(CountingSpec { capacity, .. }) => (capacity, Scaling::Fixed),
        Spec::Cuckoo(CuckooSpec { capacity, scaling, .. }) => (capacity, scaling),
        Spec::RedisBloom(RedisBloomSpec { capacity, scaling, .. }) => (capacity, scaling),
        Spec::ValkeyBloom(ValkeyBloomSpec { capacity, rules }) => (capacity, rules.scaling),
    };
    assert!(is_rate(asked_rate) && capacity >= 1 && capacity <= i64::MAX.cast_unsigned(), "{creation:?}");
    assert!(defaults.must_obey || scaling.expansion() <= 32768, "{creation:?}");
    assert!(scale_to.is_none_or(|items| items >= 1 && scaling != Scaling::Fixed), "{creation:?}");
    // RedisBloom accepts any low rate, valkey-bloom any rate.
    let nearest = match spec {
        Spec::Native(_) | Spec::Windowed(_) | Spec::Counting(_) | Spec::Cuckoo(_) => {
            asked_rate.clamp(RATE_MIN, RATE_MAX)
        }
        Spec::RedisBloom(_) => asked_rate.min(RATE_MAX),
        Spec::ValkeyBloom(_) => asked_rate,
    };
    assert_eq!(spec.rate().to_bits(), nearest.to_bits(), "{creation:?}");
    match spec {
        Spec::Native(_) | Spec::Counting(_) => {}
        Spec::Cuckoo(spec) => assert!(spec.scaling == Scaling::Fixed || spec.scaling.expansion().is_power_of_two()),
        Spec::Windowed(spec) => assert!(spec.is_sound(), "{creation:?}"),
        Spec::RedisBloom(_) => assert!(defaults.must_obey || capacity <= CAPACITY_MAX, "{creation:?}"),
        Spec::ValkeyBloom(spec) => assert!(is_rate(spec.rules.tightening), "{creation:?}"),
    }
    of_effect(spec);
}

/// Planning the filter succeeds or gives a reason, for every request.
fn of_plan(plan::Asked { spec, items }: plan::Asked, defaults: &Defaults) {
    let creation = Creation { spec, asked_rate: spec.rate(), scale_to: None, expires: None };
    of_creation(&creation, &Defaults { must_obey: false, ..*defaults });
    if let Ok(plan) = spec.plan(items) {
        assert!(!plan.layers.is_empty() && plan.size_bytes >= 1, "{spec:?}: {plan:?}");
        let forgets = matches!(spec, Spec::Windowed(_));
        assert!(forgets || plan.capacity >= items.unwrap_or(1), "{spec:?}: {plan:?}");
    }
}

/// A stated bucket has a valid time range and capacity.
fn of_bucket_start(start: Option<BucketStart>, words: usize) {
    assert_eq!(words, if start.is_some() { 6 } else { 2 });
    if let Some(start) = start {
        assert!(start.begin <= start.end && start.capacity >= 1, "{start:?}");
    }
}

/// The command that replicates a filter creates the same filter.
fn of_effect(spec: Spec) {
    let mut spelled = Vec::new();
    let name = spec.encode_args(|word| {
        let mut bytes = Vec::new();
        word.write_to(&mut bytes).expect("a list takes all");
        spelled.push(bytes);
    });
    assert!(spelled.len() <= WORDS_MAX);
    assert_eq!(spec.takes_items(), name == c"BF.INSERT" && !matches!(spec, Spec::Windowed(_)));
    let options = [&[name.to_bytes().to_vec(), b"key".to_vec()], &spelled[..]].concat();
    follows(spec, &options);
    if let Some(word) = spec.to_word() {
        follows(spec, &[b"BF.INSERT".to_vec(), b"key".to_vec(), b"AS".to_vec(), word.to_vec()]);
    }
}

/// A replica and a client create this filter from these words.
fn follows(spec: Spec, words: &[Vec<u8>]) {
    let expected = Creation { spec, asked_rate: spec.rate(), scale_to: None, expires: None };
    // A replica may have any settings.
    for asking in [MUST_OBEY, MUST_OBEY | REDISBLOOM | FIXED | RANDOM_SEEDS] {
        let followed = match parsed(words, &defaults(asking)) {
            Parsed::Reserve(creation) | Parsed::Insert(Some(creation), 0) => creation,
            other => panic!("{spec:?} is spelled {words:?}, which is {other:?}"),
        };
        let has_same_rate = followed.spec.rate().to_bits() == spec.rate().to_bits();
        assert!(followed == expected && has_same_rate, "{spec:?}, {followed:?}");
    }
    // A client that sends the same command creates the same filter, within its limits, if filters without a seed are RedisBloom's.
    for asking in [REDISBLOOM, REDISBLOOM | FIXED | RANDOM_SEEDS | KEYED] {
        match parsed(words, &defaults(asking)) {
            Parsed::Reserve(creation) | Parsed::Insert(Some(creation), 0) => {
                assert_eq!(creation, expected, "{words:?}")
            }
            Parsed::Refused(
                Refusal::ExpansionRange
                | Refusal::CapacityRange
                | Refusal::InsertBad("expansion" | "capacity")
                | Refusal::Bad("definition"),
            ) => assert!(is_beyond_clients(spec), "{words:?}"),
            other => panic!("{spec:?} is spelled {words:?}, which is {other:?} to a client"),
        }
    }
}

/// Whether clients may not create this filter.
fn is_beyond_clients(spec: Spec) -> bool {
    let scaling = match spec {
        Spec::Native(spec) => spec.scaling,
        Spec::Windowed(spec) => spec.scaling,
        Spec::Counting(_) => Scaling::Fixed,
        Spec::Cuckoo(spec) => spec.scaling,
        Spec::RedisBloom(spec) => spec.scaling,
        Spec::ValkeyBloom(spec) => spec.rules.scaling,
    };
    scaling.expansion() > 32768 || spec.is_beyond_redisbloom()
}

/// The refusals of a command, besides a wrong number of arguments.
#[must_use]
pub fn refusals_of(command: &[u8]) -> &'static [Refusal] {
    use Refusal::{
        Bad, BadData, BadDumpIterator, BadLoadIterator, CapacityRange, Exclude, ExpansionRange, FixedExpansion,
        FixedScaleTo, InfoField, InsertBad, InsertUnknown, LayoutMismatch, Needs, No, Range, RateRange, Syntax,
    };
    const MFETCH: [Refusal; 8] = [
        Range(&LEASE),
        Range(&STALE),
        Range(&RENEW),
        Range(&FRESH),
        Needs("FRESH", "WHILE"),
        Exclude("PEEK", "REPLACE"),
        No("key"),
        Syntax,
    ];
    const FETCH: &[Refusal] = &{
        let [lease, stale, renew, fresh, needs, replace, key, syntax] = MFETCH;
        [lease, stale, renew, fresh, needs, replace, key, syntax, Range(&WAIT), Exclude("PEEK", "WAIT")]
    };
    const FILL: &[Refusal] = &[No("expire time"), Range(&EX), Range(&PX), Range(&BACKOFF), Syntax];
    match command.to_ascii_uppercase().as_slice() {
        b"BF.RESERVE" | b"BF.PLAN" => &[
            Bad("error rate"),
            RateRange,
            Bad("capacity"),
            CapacityRange,
            No("expansion"),
            Bad("expansion"),
            ExpansionRange,
            FixedExpansion,
            No("seed"),
            Bad("seed"),
            No("layout"),
            Bad("layout"),
            LayoutMismatch,
            Syntax,
        ],
        b"BF.INSERT" => &[
            InsertBad("error rate"),
            InsertBad("capacity"),
            InsertBad("expansion"),
            InsertBad("seed"),
            InsertBad("layout"),
            InsertBad("tightening ratio"),
            InsertBad("validatescaleto"),
            FixedScaleTo,
            InsertUnknown,
            LayoutMismatch,
            Bad("definition"),
        ],
        b"BF.ROTATE" => &[BadData],
        b"BF.FETCH" => FETCH,
        b"BF.MFETCH" => &MFETCH,
        b"BF.MCHANGED" => &[Syntax],
        b"BF.FILL" => FILL,
        b"BF.INFO" => &[InfoField],
        b"BF.SCANDUMP" => &[BadDumpIterator],
        b"BF.LOADCHUNK" => &[BadLoadIterator, BadData],
        _ => &[],
    }
}

/// A refusal is one of the command's refusals.
fn of_refusal(words: &[&[u8]], refusal: Refusal) {
    let is_of = |names: &[&str]| names.iter().any(|name| words[0].eq_ignore_ascii_case(name.as_bytes()));
    let is_known = match refusal {
        Refusal::Arity => true,
        Refusal::Exclude(one, _) | Refusal::Needs(one, _) if !["PEEK", "FRESH"].contains(&one) => {
            is_of(&["BF.RESERVE", "BF.INSERT", "BF.PLAN"])
        }
        Refusal::Range(range) if ["EX", "PX"].contains(&range.option) => {
            is_of(&["BF.RESERVE", "BF.INSERT", "BF.PLAN", "BF.FILL"])
        }
        Refusal::Range(range) if ["WINDOW", "BUCKETS"].contains(&range.option) => {
            is_of(&["BF.RESERVE", "BF.INSERT", "BF.PLAN"])
        }
        Refusal::Range(range) if range.option == "POLICY" => is_of(&["BF.INSERT"]),
        Refusal::Range(range) if range.option == "ITEMS" => is_of(&["BF.PLAN"]),
        // BF.INSERT reports a missing value as a wrong number of arguments.
        Refusal::No("hash" | "window" | "buckets") => is_of(&["BF.RESERVE", "BF.PLAN"]),
        Refusal::Bad("hash") => is_of(&["BF.RESERVE", "BF.INSERT", "BF.PLAN"]),
        Refusal::No("tightening ratio" | "items") | Refusal::Bad("tightening ratio") => is_of(&["BF.PLAN"]),
        Refusal::No("expire time") => is_of(&["BF.RESERVE", "BF.PLAN", "BF.FILL"]),
        _ => refusals_of(words[0]).contains(&refusal),
    };
    assert!(is_known, "{words:?}: {refusal:?}");
    let text = refusal.to_string();
    assert!(!text.is_empty() && text.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{text}");
}

/// An argument that counts how often it is read.
struct Counted<'a> {
    word: &'a [u8],
    reads: Cell<u8>,
}

impl AsRef<[u8]> for Counted<'_> {
    fn as_ref(&self) -> &[u8] {
        self.reads.set(self.reads.get() + 1);
        self.word
    }
}

/// The work is bounded by reading each argument once, and no item. With many arguments, BF.RESERVE also counts its options.
/// BF.MFETCH compares each option with ITEMS and WAIT before it reads it as an option, BF.INSERT its first one with AS.
fn each_word_is_read_once(words: &[&[u8]], defaults: &Defaults) {
    let counted: Vec<_> = words.iter().map(|word| Counted { word, reads: Cell::new(0) }).collect();
    let outcome = parsed(&counted, defaults);
    let is_of = |name: &[u8]| words[0].eq_ignore_ascii_case(name);
    let most = match () {
        () if is_of(b"BF.RESERVE") && words.len() > 11 || is_of(b"BF.INSERT") => 2,
        () if is_of(b"BF.MFETCH") => 3,
        () => 1,
    };
    assert!(counted.iter().all(|word| word.reads.get() <= most), "{words:?}");
    let items = match outcome {
        Parsed::Insert(_, items) => items,
        Parsed::FetchMany(_, first) | Parsed::ChangedMany(first) => words.len() - first,
        _ => 0,
    };
    assert!(counted[counted.len() - items..].iter().all(|item| item.reads.get() == 0), "an item was read");
}

/// Swapping the case of letters changes nothing, except in a seed of 32 raw bytes and in a definition.
fn letters_of_any_case(words: &[&[u8]], defaults: &Defaults, outcome: &Parsed) {
    if words.get(2).is_some_and(|option| option.eq_ignore_ascii_case(b"AS")) {
        return;
    }
    let swap = |byte: &u8| if byte.is_ascii_alphabetic() { byte ^ 0x20 } else { *byte };
    let swapped: Vec<Vec<u8>> = words.iter().map(|word| word.iter().map(swap).collect()).collect();
    let without_names = |parsed: Parsed| match parsed {
        Parsed::Reserve(creation) => Parsed::Reserve(without_raw_seed(creation)),
        Parsed::Insert(creation, items) => Parsed::Insert(creation.map(without_raw_seed), items),
        Parsed::Plan(asked) => Parsed::Plan(plan::Asked { spec: without_raw_seed_in(asked.spec), ..asked }),
        // The log line contains the argument.
        Parsed::LoadTimeRefused(_) => Parsed::LoadTimeRefused(String::new()),
        other => other,
    };
    same(&without_names(parsed(&swapped, defaults)), &without_names(outcome.clone()), words);
}

fn without_raw_seed(creation: Creation) -> Creation {
    Creation { spec: without_raw_seed_in(creation.spec), ..creation }
}

fn without_raw_seed_in(spec: Spec) -> Spec {
    match spec {
        Spec::ValkeyBloom(ValkeyBloomSpec { rules, capacity }) => {
            let rules = ValkeyBloom { seed: [0; 32], is_seed_random: false, ..rules };
            Spec::ValkeyBloom(ValkeyBloomSpec { rules, capacity })
        }
        spec => spec,
    }
}

/// Arguments accepted from a client are accepted from a primary or the AOF with the same meaning, except that their default layout is
/// RedisBloom's. In a reservation RedisBloom also looks for options in the key.
fn a_primary_may_say_what_a_client_may(words: &[&[u8]], defaults: &Defaults, outcome: &Parsed) {
    let key_is_word = words.get(1).is_some_and(|key| key.eq_ignore_ascii_case(b"NONSCALING"));
    if matches!(outcome, Parsed::Refused(_)) || matches!(outcome, Parsed::Reserve(_)) && key_is_word {
        return;
    }
    // Our primaries replicate options that RedisBloom lacks in another form.
    let is_beyond = |creation: &Creation| {
        let is_keyed = matches!(creation.spec, Spec::Native(spec) if spec.hasher.is_keyed());
        is_keyed
            || matches!(creation.spec, Spec::Windowed(_) | Spec::Counting(_) | Spec::Cuckoo(_))
            || creation.expires.is_some()
    };
    if let Parsed::Reserve(creation) | Parsed::Insert(Some(creation), _) = outcome
        && is_beyond(creation)
    {
        return;
    }
    let from_primary = parsed(words, &Defaults { must_obey: true, ..*defaults });
    // With POLICY a primary of ours also states the seed, without which an effect has RedisBloom's layout.
    let is_native = |creation: &Option<Creation>| matches!(creation, Some(Creation { spec: Spec::Native(_), .. }));
    let lacks_seed = from_primary == Parsed::Refused(Refusal::LayoutMismatch)
        && matches!(outcome, Parsed::Insert(creation, _) if is_native(creation));
    if from_primary == *outcome || lacks_seed {
        return;
    }
    // An omitted seed from a primary is 0, unless LAYOUT is native. An omitted policy from a primary is the first.
    let as_redisbloom = |creation: Creation| match creation.spec {
        Spec::Native(NativeSpec { capacity, scaling, hasher, .. })
            if [0, NATIVE_SEED].map(Hasher::murmur3).contains(&hasher) =>
        {
            let rate = creation.asked_rate.min(RATE_MAX);
            Creation { spec: Spec::RedisBloom(RedisBloomSpec { rate, capacity, scaling }), ..creation }
        }
        Spec::Native(spec) => Creation { spec: Spec::Native(NativeSpec { policy: Policy::One, ..spec }), ..creation },
        _ => creation,
    };
    let of_any_layout = |parsed: Parsed| match parsed {
        Parsed::Reserve(creation) => Parsed::Reserve(as_redisbloom(creation)),
        Parsed::Insert(creation, items) => Parsed::Insert(creation.map(as_redisbloom), items),
        other => other,
    };
    same(&of_any_layout(from_primary), &of_any_layout(outcome.clone()), words);
}

fn same(one: &Parsed, other: &Parsed, words: &[&[u8]]) {
    assert!(one == other, "{words:?}: {one:?} is not {other:?}");
}
