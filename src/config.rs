//! The settings: defaults of new filters, their layout and hash, and how large a filter may become.
//!
//! The arguments of `loadmodule` set the defaults; redis.conf and CONFIG SET come after them. Names of RedisBloom and valkey-bloom
//! that mean the same as one of ours set the same value, so a redis.conf written for them starts the server. valkey-bloom's ratio and
//! seed apply to filters of its layout; RedisBloom's settings of cuckoo filters have no effect.
//!
//! CONFIG GET shows a value under each of its names, and CONFIG REWRITE writes a line for each.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_longlong, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU64, Ordering::Relaxed};

use bloomgate_filter::Scaling;
use bloomgate_filter::arguments::load_time::{self, LoadTime};
use bloomgate_filter::arguments::numbers;
use bloomgate_filter::hash::{Hasher, ItemHash};
use bloomgate_filter::kinds::native::taken_rate;
use bloomgate_filter::kinds::{Defaults, HashName, LayoutName};
use redis_module::{RedisString, raw};

use crate::api;
use crate::args::Args;
use crate::context::{Context, ERR, LogLevel, OK, Text};
use crate::information::{is_valkey, server_version};

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
/// The error is a line for the log that says which argument is wrong, and why.
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
/// The error is a line for the log.
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
    if server_version() >= UNPREFIXED_FROM && !is_valkey(context) {
        let unprefixed = raw::REDISMODULE_CONFIG_UNPREFIXED;
        Fraction::register(&UNPREFIXED_FRACTION, context, unprefixed);
        for named in &UNPREFIXED_NUMBERS {
            Number::register(named, context, unprefixed);
        }
    }
    LOADING.store(true, Relaxed);
    let loaded = api::load_settings(context) == OK;
    LOADING.store(false, Relaxed);
    if loaded { Ok(()) } else { Err("a configuration of the module in redis.conf is refused".to_owned()) }
}

/// Frees the strings that CONFIG GET got, for a module that is not loaded after all. The server copies what it gets, so it no longer
/// reads them.
pub fn forget_strings() {
    FRACTIONS.iter().for_each(|(_, fraction)| fraction.keep_string(null_mut()));
}

// The types of settings, and what the server calls to read and to set them.
//
// A setting may have several names: each is registered with the server, with a pointer to the name and the setting as its data.
// Every name shows the setting's value. Before the server carries out a CONFIG SET, it reads what each name shows, and sets that again
// if one of the values is refused.

/// One name of a setting, without the module's prefix, and the setting.
pub type Named<T> = (&'static CStr, &'static T);

/// Whether the server is loading redis.conf. It then sets every name that is not in the file to its default, which must not
/// overwrite a value that the file gives under another name.
static LOADING: AtomicBool = AtomicBool::new(false);

/// The data of a registration.
const fn data<T>(registered: &'static T) -> *mut c_void {
    std::ptr::from_ref(registered).cast_mut().cast()
}

/// Whether redis.conf gives a setting a value.
struct Given(AtomicBool);

impl Given {
    const fn not_yet() -> Self {
        Self(AtomicBool::new(false))
    }

    /// The setting is set by this name. If redis.conf gives another value under another name, the log says which one takes effect.
    fn set(&self, name: &CStr, is_another_value: bool) {
        if LOADING.load(Relaxed) && self.0.swap(true, Relaxed) && is_another_value {
            let name = name.to_string_lossy();
            let line =
                format_args!("bloomgate: redis.conf sets one setting under several names; '{name}' takes effect");
            Context::new(null_mut()).log(LogLevel::Warning, line);
        }
    }
}

/// A whole number. The server checks its range.
pub struct Number {
    value: AtomicI64,
    default: AtomicI64,
    given: Given,
    min: i64,
    max: i64,
    flags: u32,
}

impl Number {
    /// A number with its default and its range.
    pub const fn new(value: i64, min: i64, max: i64) -> Self {
        let flags = raw::REDISMODULE_CONFIG_DEFAULT;
        Self { value: AtomicI64::new(value), default: AtomicI64::new(value), given: Given::not_yet(), min, max, flags }
    }

    /// A number of bytes, which may have a unit: `100mb`.
    pub const fn memory(value: i64, min: i64, max: i64) -> Self {
        Self { flags: raw::REDISMODULE_CONFIG_MEMORY, ..Self::new(value, min, max) }
    }

    /// The value.
    pub fn get(&self) -> i64 {
        self.value.load(Relaxed)
    }

    /// Sets the value that will be the default.
    pub fn preset(&self, value: i64) {
        self.value.store(value, Relaxed);
    }

    /// Registers a name, with the present value as its default. Returns whether the server accepts it.
    pub fn register(named: &'static Named<Self>, context: Context, flags: u32) -> bool {
        let (name, number) = named;
        let default = number.get();
        number.default.store(default, Relaxed);
        let (get, set) = (Some(get_number as _), Some(set_number as _));
        let (flags, min, max) = (number.flags | flags, number.min, number.max);
        // SAFETY: the callbacks get a pointer to `named`, which lives for good.
        unsafe { api::register_number(context, name, default, flags, min, max, get, set, data(named)) == OK }
    }
}

unsafe extern "C" fn get_number(_name: *const c_char, data: *mut c_void) -> c_longlong {
    // SAFETY: `data` is what was registered.
    unsafe { data.cast::<Named<Number>>().as_ref() }.map_or(0, |(_, number)| number.get())
}

unsafe extern "C" fn set_number(
    _name: *const c_char,
    value: c_longlong,
    data: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: `data` is what was registered.
    if let Some((name, number)) = unsafe { data.cast::<Named<Number>>().as_ref() }
        && !(LOADING.load(Relaxed) && value == number.default.load(Relaxed))
    {
        number.given.set(name, value != number.get());
        number.value.store(value, Relaxed);
    }
    OK
}

/// A number inside (0, 1). The server has no configurations of fractions: to it, this is a string.
pub struct Fraction {
    bits: AtomicU64,
    default: AtomicU64,
    given: Given,
    /// Returns the nearest number in range.
    nearest: Option<fn(f64) -> f64>,
    /// The string that the server got last.
    string: AtomicPtr<raw::RedisModuleString>,
}

impl Fraction {
    /// A fraction with its default. A number out of range is set to the `nearest` in range.
    pub const fn new(value: f64, nearest: Option<fn(f64) -> f64>) -> Self {
        let (bits, default) = (AtomicU64::new(value.to_bits()), AtomicU64::new(value.to_bits()));
        Self { bits, default, given: Given::not_yet(), nearest, string: AtomicPtr::new(null_mut()) }
    }

    /// The value.
    pub fn get(&self) -> f64 {
        f64::from_bits(self.bits.load(Relaxed))
    }

    /// Sets the value that will be the default.
    pub fn preset(&self, requested: f64, context: Context) {
        self.bits.store(self.in_range(requested, context).to_bits(), Relaxed);
    }

    fn set(&self, requested: f64, name: &CStr, context: Context) {
        let bits = self.in_range(requested, context).to_bits();
        if !(LOADING.load(Relaxed) && bits == self.default.load(Relaxed)) {
            self.given.set(name, bits != self.bits.load(Relaxed));
            self.bits.store(bits, Relaxed);
        }
    }

    fn in_range(&self, requested: f64, context: Context) -> f64 {
        let value = self.nearest.map_or(requested, |nearest| nearest(requested));
        if value.to_bits() != requested.to_bits() {
            context.log(
                LogLevel::Warning,
                format_args!("bloomgate: error rate {requested:?} is out of range: using {value:?}"),
            );
        }
        value
    }

    /// Keeps the string that the server gets, and frees the one before.
    fn keep_string(&self, string: *mut raw::RedisModuleString) {
        let before = self.string.swap(string, Relaxed);
        if !before.is_null() {
            // SAFETY: the string before is ours and is freed once.
            unsafe { api::free_string(before) };
        }
    }

    /// Registers a name, with the present value as its default. Returns whether the server accepts it.
    pub fn register(named: &'static Named<Self>, context: Context, flags: u32) -> bool {
        let (name, fraction) = named;
        fraction.default.store(fraction.bits.load(Relaxed), Relaxed);
        let default = Text::of(fraction.get());
        let (get, set) = (Some(get_fraction as _), Some(set_fraction as _));
        // SAFETY: the callbacks get a pointer to `named`, which lives for good.
        unsafe { api::register_string(context, name, default.as_c_str(), flags, get, set, data(named)) == OK }
    }
}

unsafe extern "C" fn get_fraction(_name: *const c_char, data: *mut c_void) -> *mut raw::RedisModuleString {
    // SAFETY: `data` is what was registered.
    let Some((_, fraction)) = (unsafe { data.cast::<Named<Fraction>>().as_ref() }) else { return null_mut() };
    let string = api::create_string(Text::of(fraction.get()).bytes());
    fraction.keep_string(string);
    string
}

unsafe extern "C" fn set_fraction(
    _name: *const c_char,
    value: *mut raw::RedisModuleString,
    data: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    let value = numbers::fraction(RedisString::string_as_slice(value), false);
    // SAFETY: `data` is what was registered; `error` is a place for a string, which the server frees.
    unsafe {
        let Some((name, fraction)) = data.cast::<Named<Fraction>>().as_ref() else { return ERR };
        if let Some(value) = value {
            fraction.set(value, name, Context::new(null_mut()));
            return OK;
        }
        if let Some(error) = error.as_mut() {
            // RedisBloom's words.
            let name = name.to_str().unwrap_or_default();
            let text = Text::of(format_args!("Value for `{name}` must be in the range (0.000000, 1.000000)"));
            *error = api::create_string(text.bytes());
        }
    }
    ERR
}

/// Yes or no.
pub struct Switch(AtomicBool);

impl Switch {
    /// A switch with its default.
    pub const fn new(is_on: bool) -> Self {
        Self(AtomicBool::new(is_on))
    }

    /// The value.
    pub fn is_on(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Registers a name, with the present value as its default. Returns whether the server accepts it.
    pub fn register(&'static self, context: Context, name: &CStr) -> bool {
        let (get, set) = (Some(get_switch as _), Some(set_switch as _));
        let (default, flags) = (self.is_on().into(), raw::REDISMODULE_CONFIG_DEFAULT);
        // SAFETY: the callbacks get a pointer to a `Switch` that lives for good.
        unsafe { api::register_switch(context, name, default, flags, get, set, data(self)) == OK }
    }
}

unsafe extern "C" fn get_switch(_name: *const c_char, data: *mut c_void) -> c_int {
    // SAFETY: `data` is the `Switch` that was registered.
    unsafe { data.cast::<Switch>().as_ref() }.is_some_and(Switch::is_on).into()
}

unsafe extern "C" fn set_switch(
    _name: *const c_char,
    value: c_int,
    data: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: `data` is the `Switch` that was registered.
    if let Some(switch) = unsafe { data.cast::<Switch>().as_ref() } {
        switch.0.store(value != 0, Relaxed);
    }
    OK
}

/// One of two names.
pub struct Choice<T: 'static> {
    chosen: AtomicI32,
    names: [(&'static CStr, T); 2],
}

impl<T: Copy> Choice<T> {
    /// The first name is the default.
    pub const fn new(names: [(&'static CStr, T); 2]) -> Self {
        Self { chosen: AtomicI32::new(0), names }
    }

    /// The value.
    pub fn get(&self) -> T {
        let [(_, first), (_, second)] = self.names;
        if self.chosen.load(Relaxed) == 0 { first } else { second }
    }

    /// Registers a name, with the present value as its default. Returns whether the server accepts it.
    pub fn register(&'static self, context: Context, name: &CStr) -> bool {
        let mut names = self.names.each_ref().map(|(name, _)| name.as_ptr());
        let (get, set, data) = (Some(get_choice as _), Some(set_choice as _), data(&self.chosen));
        let (default, flags) = (self.chosen.load(Relaxed), raw::REDISMODULE_CONFIG_DEFAULT);
        // SAFETY: the names are C strings, which the server copies; the callbacks get a pointer to a number that lives for good.
        unsafe { api::register_choice(context, name, default, flags, &mut names, &[0, 1], get, set, data) == OK }
    }
}

unsafe extern "C" fn get_choice(_name: *const c_char, data: *mut c_void) -> c_int {
    // SAFETY: `data` is the number of the `Choice` that was registered.
    unsafe { data.cast::<AtomicI32>().as_ref() }.map_or(0, |chosen| chosen.load(Relaxed))
}

unsafe extern "C" fn set_choice(
    _name: *const c_char,
    value: c_int,
    data: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: `data` is the number of the `Choice` that was registered.
    if let Some(chosen) = unsafe { data.cast::<AtomicI32>().as_ref() } {
        chosen.store(value, Relaxed);
    }
    OK
}
