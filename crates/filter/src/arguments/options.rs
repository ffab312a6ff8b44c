//! The options of BF.RESERVE, BF.INSERT and BF.PLAN, one row each.
//!
//! The parsers, COMMAND DOCS and the tables of `docs/commands.md` are all derived from [`OPTIONS`]. A new option is
//!
//! - a row of [`OPTIONS`], whose function stores the value in a field of `Given`;
//! - a case of `Given::check` for each option that it excludes;
//! - if it changes the filter, a field of [`Request`], which `Given::apply` sets, and of the kind's spec: `of` in
//!   `kinds/native.rs` reads it, `encode_args` replicates it.

use std::ffi::CStr;

use Value::{Double, Flag, Integer, Rest, Text};

use super::numbers::Range;
use super::{Refusal, is, numbers, word};
use crate::geometry::sizing::{Policy, Scaling};
use crate::kinds::windowed::{BUCKETS_MAX, BUCKETS_MIN, SECONDS_MAX};
use crate::kinds::{Defaults, HashName, LayoutName, Request, Retention, Seed, Spec};

/// A command that describes a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// BF.RESERVE.
    Reserve,
    /// BF.INSERT.
    Insert,
    /// BF.PLAN. It also accepts and ignores the options of BF.RESERVE that are not documented for it: EX, PX and EXIST_OK.
    Plan,
}

/// The type of an option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// None: the name stands alone.
    Flag,
    /// A whole number.
    Integer,
    /// A number with a fraction.
    Double,
    /// Any bytes.
    Text,
    /// All remaining words of the command, at least one.
    Rest,
}

/// Checks a value and stores it, or returns the refusal if the value is invalid.
type Read = fn(&mut Given, &[u8], Refusal) -> Result<(), Refusal>;

/// An option of a command.
pub struct CommandOption {
    /// The name, in capitals.
    pub name: &'static CStr,
    /// The name of the value; of a flag, the name in lower case.
    pub argument: &'static CStr,
    /// The type of the value.
    pub value: Value,
    /// The commands that document the option.
    pub commands: &'static [Command],
    /// The effect of the option, for `docs/commands.md`.
    pub meaning: &'static str,
    /// Whether the option is Bloomgate's own, rather than RedisBloom's or valkey-bloom's.
    pub is_extension: bool,
    /// The name of the value in error texts.
    noun: &'static str,
    read: Read,
}

/// The prefixes by which RedisBloom tells the options of BF.INSERT apart, in the order in which it tries them.
const PREFIXES: [(&str, &str); 6] =
    [("C", "CAPACITY"), ("ER", "ERROR"), ("E", "EXPANSION"), ("NOC", "NOCREATE"), ("N", "NONSCALING"), ("I", "ITEMS")];

impl Command {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Reserve, Self::Insert, Self::Plan];

    /// The name, in capitals.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reserve => "BF.RESERVE",
            Self::Insert => "BF.INSERT",
            Self::Plan => "BF.PLAN",
        }
    }

    /// The position of the first option; the command's name is word 0.
    pub(super) const fn first_option(self) -> usize {
        match self {
            Self::Reserve => 4,
            Self::Insert => 2,
            Self::Plan => 3,
        }
    }

    /// The documented options, in the order of the documentation.
    pub fn options(self) -> impl Iterator<Item = &'static CommandOption> {
        OPTIONS.iter().filter(move |option| option.commands.contains(&self))
    }

    /// Returns the option that a word names, in any case. Clients must write names in full. In BF.INSERT, a primary and the AOF carry words
    /// that RedisBloom identifies by their prefixes, so there EX is an expansion.
    pub(super) fn option(self, word: &[u8], must_obey: bool) -> Option<&'static CommandOption> {
        let accepts = |of: &[Self]| of.contains(&self) || self == Self::Plan && of.contains(&Self::Reserve);
        let named = |name: &[u8]| {
            let is_named = |option: &&CommandOption| name.eq_ignore_ascii_case(option.name.to_bytes());
            OPTIONS.iter().find(|option| is_named(option) && accepts(option.commands))
        };
        let is_prefixed = must_obey && self == Self::Insert;
        let whole = named(word).filter(|_| !(is_prefixed && (is(word, "EX") || is(word, "PX"))));
        whole.or_else(|| {
            let begins = |prefix: &str| word.get(..prefix.len()).is_some_and(|begin| is(begin, prefix));
            let (_, name) = PREFIXES.into_iter().find(|(prefix, _)| is_prefixed && begins(prefix))?;
            named(name.as_bytes())
        })
    }

    /// Reads the options of the command up to its items, which it returns as well.
    pub(super) fn read<W: AsRef<[u8]>>(self, words: &[W], must_obey: bool) -> Result<(Given, &[W]), Refusal> {
        let is_insert = self == Self::Insert;
        let mut given = Given { must_obey, ..Given::default() };
        let mut words = words.get(self.first_option()..).unwrap_or_default().iter();
        while let Some(word) = words.next() {
            let unknown = if is_insert { Refusal::InsertUnknown } else { Refusal::Syntax };
            let option = self.option(word.as_ref(), must_obey).ok_or(unknown)?;
            let noun = option.noun;
            let missing = if is_insert { Refusal::Arity } else { Refusal::No(noun) };
            let bad = if is_insert && !option.is_extension { Refusal::InsertBad(noun) } else { Refusal::Bad(noun) };
            let value = match option.value {
                Flag => &[],
                Rest if words.len() == 0 => return Err(missing),
                Rest => return Ok((given, words.as_slice())),
                _ => words.next().ok_or(missing)?.as_ref(),
            };
            given.has_extension |= option.is_extension;
            (option.read)(&mut given, value, bad)?;
        }
        Ok((given, &[]))
    }
}

impl CommandOption {
    const fn means(self, meaning: &'static str) -> Self {
        Self { meaning, ..self }
    }
}

/// An option of RedisBloom or valkey-bloom.
const fn standard(
    name: &'static CStr,
    argument: &'static CStr,
    value: Value,
    commands: &'static [Command],
    read: Read,
) -> CommandOption {
    let noun = match (argument.to_bytes(), argument.to_str()) {
        (b"error", _) => "error rate",
        (b"tightening", _) => "tightening ratio",
        (b"seconds" | b"milliseconds", _) => "expire time",
        (_, Ok(argument)) => argument,
        (_, Err(_)) => "",
    };
    CommandOption { name, argument, value, commands, meaning: "", is_extension: false, noun, read }
}

/// An option of Bloomgate's own.
const fn extension(
    name: &'static CStr,
    argument: &'static CStr,
    value: Value,
    commands: &'static [Command],
    read: Read,
) -> CommandOption {
    CommandOption { is_extension: true, ..standard(name, argument, value, commands, read) }
}

/// Returns the value with a name, in any case.
fn named<T: Copy>(word: &[u8], names: [(&str, T); 2]) -> Option<T> {
    names.into_iter().find(|(name, _)| is(word, name)).map(|(_, value)| value)
}

/// Returns the layout that a word names.
pub(super) fn layout(word: &[u8]) -> Option<LayoutName> {
    named(word, [("native", LayoutName::Native), ("redisbloom", LayoutName::RedisBloom)])
}

/// Returns the hash that a word names.
fn hash(word: &[u8]) -> Option<HashName> {
    named(word, [("murmur3", HashName::Murmur3), ("siphash", HashName::SipHash)])
}

/// Reads a seed: a decimal number, or 32 raw bytes.
fn seed(word: &[u8]) -> Option<Seed> {
    word.try_into().map(Seed::Bytes).ok().or_else(|| numbers::seed(word).map(Seed::Number))
}

/// Stores a value, or refuses it.
fn store<T>(place: &mut Option<T>, value: Option<T>, bad: Refusal) -> Result<(), Refusal> {
    *place = Some(value.ok_or(bad)?);
    Ok(())
}

/// Stores that a flag was given.
const fn raise(flag: &mut bool) -> Result<(), Refusal> {
    *flag = true;
    Ok(())
}

/// The length of a window in seconds.
pub static WINDOW: Range = Range::new("WINDOW", 1, SECONDS_MAX);
/// The maximum number of buckets of a filter that forgets.
pub static BUCKETS: Range = Range::new("BUCKETS", BUCKETS_MIN as u64, BUCKETS_MAX as u64);
/// The sizing rules of a native filter.
pub static POLICY: Range = Range::new("POLICY", Policy::One as u64, Policy::NEWEST as u64);
/// The items that a planned filter holds.
pub static PLANNED_ITEMS: Range = Range::new("ITEMS", 0, i64::MAX as u64);
/// A time to live in seconds. As milliseconds it is in the range of [`PX`].
pub static EX: Range = Range::new("EX", 1, EXPIRES_MAX / 1000);
/// A time to live in milliseconds.
pub static PX: Range = Range::new("PX", 1, EXPIRES_MAX);

const ALL: &[Command] = &Command::ALL;
const CREATING: &[Command] = &[Command::Reserve, Command::Insert];
const INSERT: &[Command] = &[Command::Insert];

/// All options, in the order of the documentation.
pub static OPTIONS: [CommandOption; 24] = [
    standard(c"CAPACITY", c"capacity", Integer, INSERT, |given, word, bad| {
        let number = numbers::integer(word).filter(|number| given.must_obey || *number > 0);
        store(&mut given.capacity, number, bad)
    })
    .means(
        "The capacity of the first layer: 1 or more, at most 2^30 with `LAYOUT redisbloom`. Default: \
         `bf.initial-size`.",
    ),
    standard(c"ERROR", c"error", Double, INSERT, |given, word, bad| {
        let rate = numbers::float(word, given.must_obey);
        store(&mut given.rate, rate.filter(|rate| given.must_obey || numbers::is_rate(*rate)), bad)
    })
    .means(
        "The false positive rate, inside (0, 1). Above 0.25 it is lowered to 0.25, below 1e-12 raised to 1e-12. \
         Default: `bf.error-rate`.",
    ),
    standard(c"EXPANSION", c"expansion", Integer, ALL, |given, word, bad| {
        let number = numbers::integer(word);
        let is_in_range = |number| given.must_obey || numbers::expansion(number, false).is_some();
        let bad = match (number, bad) {
            (Some(_), Refusal::Bad(_)) => Refusal::ExpansionRange,
            _ => bad,
        };
        store(&mut given.expansion, number.filter(|number| is_in_range(*number)), bad)
    })
    .means(
        "The factor from the capacity of one layer to the next: 0 to 32768. 0 means `NONSCALING`. Default: \
         `bf.expansion-factor`.",
    ),
    standard(c"NOCREATE", c"nocreate", Flag, INSERT, |given, _, _| raise(&mut given.has_nocreate))
        .means("Returns an error if the key is missing, instead of creating the filter."),
    standard(c"NONSCALING", c"nonscaling", Flag, ALL, |given, _, _| raise(&mut given.is_fixed)).means(
        "The filter does not grow: once full, it refuses new items. With an `EXPANSION` above 0, `BF.RESERVE` and \
         `BF.PLAN` return an error, and `BF.INSERT` ignores `EXPANSION`.",
    ),
    standard(c"SEED", c"seed", Text, ALL, |given, word, bad| store(&mut given.seed, seed(word), bad)).means(
        "The seed of the hash, 0 to 2^32 - 1: filters with equal seeds, sizes and items are equal bit for bit. \
         With `HASH siphash` it is the secret key, 32 hexadecimal digits. In `BF.INSERT` and `BF.PLAN`, 32 raw \
         bytes select valkey-bloom's layout. Default: random.",
    ),
    standard(c"TIGHTENING", c"tightening", Double, &[Command::Insert, Command::Plan], |given, word, bad| {
        store(&mut given.tightening, numbers::fraction(word, given.must_obey), bad)
    })
    .means(
        "Selects valkey-bloom's layout. The value is the factor from the rate of one layer to the next, inside \
         (0, 1).",
    ),
    standard(c"LAYOUT", c"layout", Text, ALL, |given, word, bad| store(&mut given.layout, layout(word), bad))
        .means("`native`, or `redisbloom` for a filter that RedisBloom can read. Default: `bf.layout`."),
    standard(c"VALIDATESCALETO", c"validatescaleto", Integer, INSERT, |given, word, bad| {
        store(&mut given.scale_to, numbers::capacity(word), bad)
    })
    .means("Refuses to create a filter that could not grow to this number of items."),
    extension(c"HASH", c"hash", Text, ALL, |given, word, bad| store(&mut given.hash, hash(word), bad)).means(
        "`murmur3`, or `siphash` for a 128-bit hash under a secret key, which also allows \
         [deletes](kinds.md#deleting). SLOWLOG and MONITOR omit the key; dumps, the server's files and the \
         replicas contain it. Default: `bf.hash`.",
    ),
    extension(c"WINDOW", c"window", Integer, ALL, |given, word, bad| {
        store(&mut given.window, Some(WINDOW.parse(word)?), bad)
    })
    .means(
        "Forgets each item after this many seconds, 1 to 10^10. With `n` buckets, an item is found for at most `n \
         / (n - 1)` times as long.",
    ),
    extension(c"ROLLING", c"rolling", Flag, ALL, |given, _, _| raise(&mut given.is_rolling))
        .means("Forgets the oldest items. At least the last `capacity` new items are found."),
    extension(c"BUCKETS", c"buckets", Integer, ALL, |given, word, bad| {
        store(&mut given.buckets, u32::try_from(BUCKETS.parse(word)?).ok(), bad)
    })
    .means("With `WINDOW` or `ROLLING`: the maximum number of buckets, 3 to 64. Default: 8."),
    extension(c"SLIDING", c"sliding", Flag, ALL, |given, _, _| raise(&mut given.is_sliding))
        .means("With `WINDOW`: adding an item again restarts its window. `BF.CARD` counts the item once."),
    extension(c"COUNTING", c"counting", Flag, ALL, |given, _, _| raise(&mut given.is_counting)).means(
        "Uses counters instead of bits, in four times the memory. Items can be deleted without limit; the filter \
         does not grow.",
    ),
    extension(c"CUCKOO", c"cuckoo", Flag, ALL, |given, _, _| raise(&mut given.is_cuckoo)).means(
        "A cuckoo filter: items can be deleted without limit, in little more memory than bits. Every add stores a \
         copy of the item, up to 4. `EXPANSION` is rounded up to a power of two.",
    ),
    extension(c"EX", c"seconds", Integer, CREATING, |given, word, bad| {
        store(&mut given.ex, Some(EX.parse(word)? * 1000), bad)
    })
    .means("The time to live of the key in seconds, set only if this command creates the filter."),
    extension(c"PX", c"milliseconds", Integer, CREATING, |given, word, bad| {
        store(&mut given.px, Some(PX.parse(word)?), bad)
    })
    .means("The same in milliseconds."),
    extension(c"EXIST_OK", c"exist_ok", Flag, &[Command::Reserve], |given, _, _| raise(&mut given.exist_ok)).means(
        "Returns OK if the key already holds an equal filter, and [an error](#exist_ok) if it holds another one.",
    ),
    extension(c"POLICY", c"policy", Integer, INSERT, |given, word, bad| {
        let number = u32::try_from(POLICY.parse(word)?).ok();
        store(&mut given.policy, number.and_then(Policy::from_number), bad)
    })
    .means(
        "The sizing rules of a native filter, 1 to 3, for replays of the AOF. Default: the newest rules that \
         apply to the filter.",
    ),
    standard(c"SYNC", c"sync", Flag, INSERT, |given, _, _| raise(&mut given.is_sync))
        .means("Also replicates items that were not new, so that a following `WAIT` or `WAITAOF` confirms them."),
    extension(c"RENEW", c"renew", Flag, INSERT, |given, _, _| raise(&mut given.renews))
        .means("With `WINDOW` or `ROLLING`: adds items to the newest bucket even if an older one contains them."),
    standard(c"ITEMS", c"item", Rest, INSERT, |_, _, _| Ok(())).means(
        "All words after it are items. It is optional after `SEED`, `TIGHTENING` or `VALIDATESCALETO`: without \
         items, the reply is an empty array.",
    ),
    standard(c"ITEMS", c"items", Integer, &[Command::Plan], |given, word, bad| {
        let is_repeated = given.items.is_some();
        store(&mut given.items, Some(PLANNED_ITEMS.parse(word)?), bad)?;
        if is_repeated { Err(Refusal::Syntax) } else { Ok(()) }
    })
    .means("The number of items in the planned filter. Default: 0."),
];

// Reads the options of BF.RESERVE, BF.INSERT and BF.PLAN and turns them into the description of a filter.

/// The longest time to live, in milliseconds: the server can add it to the current time without an overflow.
pub const EXPIRES_MAX: u64 = 1 << 61;

/// A new filter, and further requests of the command that creates it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Creation {
    /// The description of the filter.
    pub spec: Spec,
    /// The requested false positive rate, inside (0, 1). The rate of `spec` is the nearest supported one.
    pub asked_rate: f64,
    /// The number of items that the filter must be able to grow to, if one was given.
    pub scale_to: Option<u64>,
    /// The key's time to live in milliseconds, if one was given.
    pub expires: Option<u64>,
}

impl Creation {
    /// Describes the filter of a request.
    pub(super) fn of(request: &Request, scale_to: Option<u64>, defaults: &Defaults) -> Result<Self, Refusal> {
        let spec = Spec::of(request, defaults).ok_or(Refusal::LayoutMismatch)?;
        Ok(Self { spec, asked_rate: request.rate, scale_to, expires: None })
    }

    /// Describes the filter that is created without any options.
    pub fn by_default(defaults: &Defaults) -> Result<Self, Refusal> {
        Self::of(&Request::new(defaults), None, defaults)
    }
}

/// The options that a command gave. The last value of a repeated option counts.
#[derive(Default)]
pub(super) struct Given {
    pub(super) must_obey: bool,
    pub(super) has_extension: bool,
    pub(super) capacity: Option<i64>,
    pub(super) rate: Option<f64>,
    pub(super) expansion: Option<i64>,
    pub(super) is_fixed: bool,
    pub(super) has_nocreate: bool,
    pub(super) seed: Option<Seed>,
    pub(super) tightening: Option<f64>,
    pub(super) layout: Option<LayoutName>,
    pub(super) scale_to: Option<u64>,
    pub(super) hash: Option<HashName>,
    pub(super) window: Option<u64>,
    pub(super) is_rolling: bool,
    pub(super) buckets: Option<u32>,
    pub(super) is_sliding: bool,
    pub(super) is_counting: bool,
    pub(super) is_cuckoo: bool,
    pub(super) ex: Option<u64>,
    pub(super) px: Option<u64>,
    pub(super) exist_ok: bool,
    pub(super) is_sync: bool,
    pub(super) renews: bool,
    pub(super) items: Option<u64>,
    pub(super) policy: Option<Policy>,
}

impl Given {
    /// The time to live, in milliseconds.
    pub(super) fn expires(&self) -> Option<u64> {
        self.ex.or(self.px)
    }

    /// The scaling of BF.RESERVE and BF.PLAN, which refuse NONSCALING with an expansion.
    pub(super) fn scaling(&self, defaults: &Defaults) -> Result<Scaling, Refusal> {
        let expansion = self.expansion.and_then(|number| numbers::expansion(number, self.must_obey));
        match (expansion, self.is_fixed) {
            (Some(1..), true) => Err(Refusal::FixedExpansion),
            (_, true) => Ok(Scaling::Fixed),
            (Some(expansion), false) => Ok(Scaling::from_expansion(expansion)),
            (None, false) => Ok(defaults.scaling),
        }
    }

    /// Adds the options to a request that has a rate, a capacity and a scaling.
    pub(super) fn apply(&self, request: Request, bad_seed: Refusal) -> Result<Request, Refusal> {
        let is_keyed = self.hash == Some(HashName::SipHash);
        let seed = match self.seed {
            Some(Seed::Bytes(digits)) if is_keyed => Some(Seed::Key(key_of(&digits).ok_or(bad_seed)?)),
            seed => seed,
        };
        self.check(seed)?;
        if is_keyed && matches!(seed, Some(Seed::Number(_))) {
            return Err(bad_seed);
        }
        let window = self.window.map(|seconds| Retention::After { seconds, is_sliding: self.is_sliding });
        let forgets = window.or(if self.is_rolling { Some(Retention::Rolling) } else { None });
        let Self { hash, buckets, is_counting, is_cuckoo, tightening, layout, policy, .. } = *self;
        Ok(Request { seed, tightening, layout, hash, forgets, buckets, is_counting, is_cuckoo, policy, ..request })
    }

    /// Refuses incompatible options. At least one of them is always an extension.
    fn check(&self, seed: Option<Seed>) -> Result<(), Refusal> {
        if !self.has_extension {
            return Ok(());
        }
        let hash = ("HASH", self.hash.is_some());
        let window = ("WINDOW", self.window.is_some());
        let rolling = ("ROLLING", self.is_rolling);
        let counting = ("COUNTING", self.is_counting);
        let cuckoo = ("CUCKOO", self.is_cuckoo);
        let expansion = ("EXPANSION", self.expansion.is_some());
        let scale_to = ("VALIDATESCALETO", self.scale_to.is_some());
        let own = [
            (counting, expansion),
            (counting, cuckoo),
            (cuckoo, window),
            (cuckoo, rolling),
            (counting, window),
            (counting, rolling),
            (rolling, window),
            (rolling, expansion),
            (counting, scale_to),
            (window, scale_to),
            (rolling, scale_to),
            (("EX", self.ex.is_some()), ("PX", self.px.is_some())),
        ];
        let foreign = [
            ("LAYOUT redisbloom", self.layout == Some(LayoutName::RedisBloom)),
            ("TIGHTENING", self.tightening.is_some()),
            ("a SEED of 32 bytes", matches!(seed, Some(Seed::Bytes(_)))),
        ];
        let foreign =
            [hash, window, rolling, counting, cuckoo].into_iter().flat_map(|one| foreign.map(|other| (one, other)));
        let both = own.into_iter().chain(foreign).find(|((_, one), (_, other))| *one && *other);
        if let Some(((one, _), (other, _))) = both {
            return Err(Refusal::Exclude(one, other));
        }
        if self.is_sliding && self.window.is_none() {
            return Err(Refusal::Needs("SLIDING", "WINDOW"));
        }
        if self.buckets.is_some() && self.window.is_none() && !self.is_rolling {
            return Err(Refusal::Needs("BUCKETS", "WINDOW or ROLLING"));
        }
        Ok(())
    }
}

/// Reads the rate and the capacity, the two words before the options of BF.RESERVE and BF.PLAN.
pub(super) fn rate_and_capacity<W: AsRef<[u8]>>(
    command: Command,
    words: &[W],
    defaults: &Defaults,
) -> Result<Request, Refusal> {
    let index = command.first_option() - 2;
    let rate = numbers::float(word(words, index)?, defaults.must_obey).ok_or(Refusal::Bad("error rate"))?;
    if !numbers::is_rate(rate) {
        return Err(Refusal::RateRange);
    }
    let capacity = numbers::integer(word(words, index + 1)?).ok_or(Refusal::Bad("capacity"))?;
    let capacity = u64::try_from(capacity).ok().filter(|capacity| *capacity > 0).ok_or(Refusal::CapacityRange)?;
    Ok(Request { rate, capacity, ..Request::new(defaults) })
}

/// Reads a key of 32 hexadecimal digits.
fn key_of(digits: &[u8; 32]) -> Option<[u8; 16]> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut key = [0; 16];
    for (byte, pair) in key.iter_mut().zip(digits.as_chunks::<2>().0) {
        let [high, low] = pair.map(digit);
        *byte = high? << 4 | low?;
    }
    Some(key)
}

/// Returns the position of the secret key of a filter, which must not appear in logs: the word after SEED, if HASH siphash is given.
/// Commands that are refused must not reveal the key either, so any word before the items may be the option's name.
pub fn key_position<W: AsRef<[u8]>>(command: Command, words: &[W]) -> Option<usize> {
    let options = words.iter().map(AsRef::as_ref).enumerate().skip(command.first_option());
    let options = options.take_while(|(_, word)| command != Command::Insert || !is(word, "ITEMS"));
    let (mut before, mut is_keyed, mut position) = (&[][..], false, None);
    for (index, word) in options {
        is_keyed |= is(before, "HASH") && is(word, "siphash");
        if is(before, "SEED") {
            position = Some(index);
        }
        before = word;
    }
    position.filter(|_| is_keyed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_key_is_found_in_front_of_the_items() {
        for (command, line, position) in [
            (Command::Reserve, "BF.RESERVE k 0.01 100 HASH siphash SEED key", Some(7)),
            (Command::Reserve, "BF.RESERVE k 0.01 100 seed key hash SipHash", Some(5)),
            (Command::Reserve, "BF.RESERVE k 0.01 100 HASH murmur3 SEED key", None),
            (Command::Reserve, "BF.RESERVE SEED 0.01 100 HASH siphash", None),
            (Command::Reserve, "BF.RESERVE k 0.01 100 WINDOW SEED key HASH siphash", Some(6)),
            (Command::Insert, "BF.INSERT k HASH siphash SEED key ITEMS SEED item", Some(5)),
            (Command::Insert, "BF.INSERT k ITEMS HASH siphash SEED item", None),
            (Command::Plan, "BF.PLAN 0.01 100 ITEMS 5 HASH siphash SEED key", Some(8)),
        ] {
            let words: Vec<_> = line.split(' ').collect();
            assert_eq!(key_position(command, &words), position, "{line}");
        }
    }
}
