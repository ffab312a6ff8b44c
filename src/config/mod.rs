//! The settings: defaults of new filters, their layout and hash, and how large a filter may become.
//!
//! The arguments of `loadmodule` set the defaults; redis.conf and CONFIG SET come after them. Names of RedisBloom and valkey-bloom
//! that mean the same as one of ours set the same value, so a redis.conf written for them starts the server. valkey-bloom's ratio and
//! seed apply to filters of its layout; RedisBloom's settings of cuckoo filters have no effect.
//!
//! CONFIG GET shows a value under each of its names, and CONFIG REWRITE writes a line for each.

mod setting;

use std::cell::Cell;
use std::ffi::c_int;

use bloomgate_filter::Scaling;
use bloomgate_filter::hash::{Hasher, ItemHash};
use bloomgate_filter::kinds::native::taken_rate;
use bloomgate_filter::kinds::{Defaults, HashName, LayoutName};
use bloomgate_filter::words::load_time::{self, LoadTime};
use bloomgate_filter::words::numbers;
use redis_module::raw;

use super::args::Args;
use super::context::{Context, LogLevel};
use super::version;
use setting::{Choice, Fraction, Named, Number, Switch};

static ERROR_RATE: Fraction = Fraction::new(0.01, Some(taken_rate));
static INITIAL_SIZE: Number = Number::new(100, 1, load_time::INITIAL_SIZE_MAX);
static EXPANSION_FACTOR: Number = Number::new(2, 0, numbers::EXPANSION_MAX as i64);
static MAX_FILTER_BYTES: Number = Number::memory(0, 0, i64::MAX);
static MAX_LEASES: Number = Number::new(65536, 1, 1 << 24);
static LAYOUT: Choice<LayoutName> =
    Choice::new([(c"native", LayoutName::Native), (c"redisbloom", LayoutName::RedisBloom)]);
static HASH: Choice<HashName> = Choice::new([(c"murmur3", HashName::Murmur3), (c"siphash", HashName::SipHash)]);
static TIGHTENING_RATIO: Fraction = Fraction::new(0.5, None);
/// RedisBloom's settings of cuckoo filters, which have no effect.
static CUCKOO: [Number; 5] = [
    Number::new(1024, i64::MIN, i64::MAX),
    Number::new(2, i64::MIN, i64::MAX),
    Number::new(20, i64::MIN, i64::MAX),
    Number::new(1, i64::MIN, i64::MAX),
    Number::new(32, i64::MIN, i64::MAX),
];
static USE_RANDOM_SEED: Switch = Switch::new(true);
static DEFRAG_ENABLED: Switch = Switch::new(true);
static AUTO_CREATE: Switch = Switch::new(true);
static HUGE_PAGES: Switch = Switch::new(true);

/// The settings by their names, which the server shows with the module's prefix: `bf.error-rate`.
static FRACTIONS: [Named<Fraction>; 3] =
    [(c"error-rate", &ERROR_RATE), (c"bloom-fp-rate", &ERROR_RATE), (c"bloom-tightening-ratio", &TIGHTENING_RATIO)];
static NUMBERS: [Named<Number>; 7] = [
    (c"initial-size", &INITIAL_SIZE),
    (c"expansion-factor", &EXPANSION_FACTOR),
    (c"max-filter-bytes", &MAX_FILTER_BYTES),
    (c"max-leases", &MAX_LEASES),
    (c"bloom-capacity", &INITIAL_SIZE),
    (c"bloom-expansion", &EXPANSION_FACTOR),
    (c"bloom-memory-usage-limit", &MAX_FILTER_BYTES),
];
static SWITCHES: [Named<Switch>; 4] = [
    (c"auto-create", &AUTO_CREATE),
    (c"huge-pages", &HUGE_PAGES),
    (c"bloom-use-random-seed", &USE_RANDOM_SEED),
    (c"bloom-defrag-enabled", &DEFRAG_ENABLED),
];

/// The first server that lets a module have names without a prefix, as RedisBloom's are: Redis 8.
const UNPREFIXED_FROM: c_int = 0x0008_0000;
static UNPREFIXED_FRACTION: Named<Fraction> = (c"bf-error-rate", &ERROR_RATE);
static UNPREFIXED_NUMBERS: [Named<Number>; 7] = [
    (c"bf-initial-size", &INITIAL_SIZE),
    (c"bf-expansion-factor", &EXPANSION_FACTOR),
    (c"cf-initial-size", &CUCKOO[0]),
    (c"cf-bucket-size", &CUCKOO[1]),
    (c"cf-max-iterations", &CUCKOO[2]),
    (c"cf-expansion-factor", &CUCKOO[3]),
    (c"cf-max-expansions", &CUCKOO[4]),
];

thread_local! {
    /// Random bytes for the seed of the next filter, derived when a command needs them.
    static ENTROPY: Cell<Option<[u8; 32]>> = const { Cell::new(None) };
    /// The secret key from which they are derived, and how many blocks of 16 bytes have been.
    static DERIVING: Cell<Option<([u8; 16], u64)>> = const { Cell::new(None) };
}

/// Returns random bytes for a seed. The server's own function computes SHA-256 for every call, 18,400 instructions: a quarter of a
/// BF.MADD of 20 items that creates its filter. So it is asked once, for a key, and the bytes are SipHash-2-4 of a counter under that
/// key. The seeds of some filters reveal nothing about the others'.
fn fresh_entropy(context: Context) -> [u8; 32] {
    let (key, count) = DERIVING.get().unwrap_or_else(|| (context.random_bytes(), 0));
    DERIVING.set(Some((key, count.wrapping_add(2))));
    let block = |number: u64| {
        let ItemHash { h1, h2 } = Hasher::SipHash { key }.hash(&number.to_le_bytes());
        [h1.to_le_bytes(), h2.to_le_bytes()]
    };
    let blocks = [block(count), block(count.wrapping_add(1))];
    let mut entropy = [0; 32];
    entropy.iter_mut().zip(blocks.as_flattened().as_flattened()).for_each(|(to, from)| *to = *from);
    entropy
}

/// What a command uses for options that it does not have.
pub fn defaults(context: Context) -> Defaults {
    let expansion = u32::try_from(EXPANSION_FACTOR.get()).unwrap_or(0);
    let entropy = ENTROPY.get().unwrap_or_else(|| fresh_entropy(context));
    ENTROPY.set(Some(entropy));
    Defaults {
        rate: ERROR_RATE.get(),
        capacity: INITIAL_SIZE.get().unsigned_abs(),
        scaling: Scaling::from_expansion(expansion),
        layout: LAYOUT.get(),
        hash: HASH.get(),
        tightening: TIGHTENING_RATIO.get(),
        entropy,
        has_random_seeds: USE_RANDOM_SEED.is_on(),
        must_obey: context.must_obey(),
    }
}

/// Has new random bytes derived for the next filter: a filter was created with the present ones.
pub fn renew_entropy() {
    ENTROPY.set(None);
}

/// Whether the server's defragmenter may move filters.
pub fn defrag_enabled() -> bool {
    DEFRAG_ENABLED.is_on()
}

/// Whether BF.ADD and BF.MADD create a missing filter.
pub fn auto_creates() -> bool {
    AUTO_CREATE.is_on()
}

/// Whether large layers that are allocated now are put into huge pages.
pub fn has_huge_pages() -> bool {
    HUGE_PAGES.is_on()
}

/// The maximum number of records that the guard holds: leases, NONEs and back-offs.
pub fn max_leases() -> usize {
    usize::try_from(MAX_LEASES.get()).unwrap_or(usize::MAX)
}

/// The ceiling of one filter, in bytes; 0: automatic.
pub fn max_filter_bytes() -> u64 {
    MAX_FILTER_BYTES.get().unsigned_abs()
}

/// Applies the arguments of `loadmodule`: they become the defaults of the settings that are registered next.
///
/// # Errors
/// A line for the log that says which argument is wrong, and why.
pub fn take_load_words(context: Context, words: Args<'_>) -> Result<(), String> {
    let LoadTime { rate, initial_size, expansion, without_effect } = load_time::parse(words.words())?;
    if let Some(rate) = rate {
        ERROR_RATE.preset(rate, context);
    }
    if let Some(size) = initial_size {
        INITIAL_SIZE.preset(size);
    }
    if let Some(expansion) = expansion {
        EXPANSION_FACTOR.preset(expansion);
    }
    for name in without_effect {
        context
            .log(LogLevel::Warning, format_args!("bloomgate: {name} has no effect: cuckoo filters are not supported"));
    }
    Ok(())
}

/// Registers the settings, with their present values as defaults, and loads those of redis.conf.
///
/// # Errors
/// A line for the log.
pub fn register(context: Context) -> Result<(), String> {
    let default = raw::REDISMODULE_CONFIG_DEFAULT;
    let registered = FRACTIONS.iter().all(|named| Fraction::register(named, context, default))
        && NUMBERS.iter().all(|named| Number::register(named, context, default))
        && SWITCHES.iter().all(|(name, switch)| switch.register(context, name))
        && LAYOUT.register(context, c"layout")
        && HASH.register(context, c"hash");
    if !registered {
        return Err("the server refuses the configurations".to_owned());
    }
    // Valkey has no such names: it would put its prefix before them, or log a warning for each.
    if version::server_version() >= Some(UNPREFIXED_FROM) && !version::is_valkey(context) {
        let unprefixed = raw::REDISMODULE_CONFIG_UNPREFIXED;
        Fraction::register(&UNPREFIXED_FRACTION, context, unprefixed);
        for named in &UNPREFIXED_NUMBERS {
            Number::register(named, context, unprefixed);
        }
    }
    if setting::load(context) {
        Ok(())
    } else {
        Err("a configuration of the module in redis.conf is refused".to_owned())
    }
}

/// Frees the strings that CONFIG GET got: for a module that is not loaded after all.
pub fn forget_strings() {
    FRACTIONS.iter().for_each(|(_, fraction)| fraction.forget_string());
}
