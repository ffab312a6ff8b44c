//! What an operator can set: what a filter gets that a client did not ask for, whose layout it has, and how large it may
//! become.
//!
//! The load-time words of `loadmodule` give the defaults; redis.conf and CONFIG SET come after them. Names of
//! RedisBloom's and valkey-bloom's that mean the same as one of ours set the same value, so that a redis.conf of theirs
//! starts the server. valkey-bloom's ratio and seed hold for filters of its layout; the others are kept and have no effect.
//!
//! CONFIG GET shows a value under the name by which it was set, and the default under its other names. So CONFIG REWRITE
//! writes one line, and whoever edits that line later is not beaten by another one.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_longlong, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU64, AtomicUsize, Ordering::Relaxed};

use bloomgate_filter::Scaling;
use bloomgate_filter::kinds::native::taken_rate;
use bloomgate_filter::kinds::{Defaults, HashName, LayoutName};
use bloomgate_filter::words::load_time::{self, LoadTime};
use bloomgate_filter::words::numbers;
use redis_module::{RedisString, raw};

use super::args::Args;
use super::context::{Context, ERR, LogLevel, OK};
use super::text::Text;
use super::version;

static ERROR_RATE: Fraction = Fraction::new(0.01, Some(taken_rate));
static INITIAL_SIZE: Number = Number::new(100, 1, load_time::INITIAL_SIZE_MAX, raw::REDISMODULE_CONFIG_DEFAULT);
static EXPANSION_FACTOR: Number = Number::new(2, 0, numbers::EXPANSION_MAX as i64, raw::REDISMODULE_CONFIG_DEFAULT);
static MAX_FILTER_BYTES: Number = Number::new(0, 0, i64::MAX, raw::REDISMODULE_CONFIG_MEMORY);
static MAX_LEASES: Number = Number::new(65536, 1, 1 << 24, raw::REDISMODULE_CONFIG_DEFAULT);
static LAYOUT: Choice<LayoutName> =
    Choice::new([(c"native", LayoutName::Native), (c"redisbloom", LayoutName::RedisBloom)]);
static HASH: Choice<HashName> = Choice::new([(c"murmur3", HashName::Murmur3), (c"siphash", HashName::SipHash)]);
static TIGHTENING_RATIO: Fraction = Fraction::new(0.5, None);
/// RedisBloom's, for its filters of other kinds: kept, without effect.
static CUCKOO: [Number; 5] = [
    Number::new(1024, i64::MIN, i64::MAX, raw::REDISMODULE_CONFIG_DEFAULT),
    Number::new(2, i64::MIN, i64::MAX, raw::REDISMODULE_CONFIG_DEFAULT),
    Number::new(20, i64::MIN, i64::MAX, raw::REDISMODULE_CONFIG_DEFAULT),
    Number::new(1, i64::MIN, i64::MAX, raw::REDISMODULE_CONFIG_DEFAULT),
    Number::new(32, i64::MIN, i64::MAX, raw::REDISMODULE_CONFIG_DEFAULT),
];
static USE_RANDOM_SEED: Switch = Switch(AtomicBool::new(true));
static DEFRAG_ENABLED: Switch = Switch(AtomicBool::new(true));
static AUTO_CREATE: Switch = Switch(AtomicBool::new(true));

/// After the module's prefix: `bf.error-rate`.
static FRACTIONS: [(&CStr, &Fraction); 3] =
    [(c"error-rate", &ERROR_RATE), (c"bloom-fp-rate", &ERROR_RATE), (c"bloom-tightening-ratio", &TIGHTENING_RATIO)];
static NUMBERS: [(&CStr, &Number); 7] = [
    (c"initial-size", &INITIAL_SIZE),
    (c"expansion-factor", &EXPANSION_FACTOR),
    (c"max-filter-bytes", &MAX_FILTER_BYTES),
    (c"max-leases", &MAX_LEASES),
    (c"bloom-capacity", &INITIAL_SIZE),
    (c"bloom-expansion", &EXPANSION_FACTOR),
    (c"bloom-memory-usage-limit", &MAX_FILTER_BYTES),
];
static SWITCHES: [(&CStr, &Switch); 3] = [
    (c"auto-create", &AUTO_CREATE),
    (c"bloom-use-random-seed", &USE_RANDOM_SEED),
    (c"bloom-defrag-enabled", &DEFRAG_ENABLED),
];

/// RedisBloom's own names, without a prefix, which only Redis 8 can give a module.
const UNPREFIXED_FROM: c_int = 0x0008_0000;
static UNPREFIXED_FRACTION: (&CStr, &Fraction) = (c"bf-error-rate", &ERROR_RATE);
static UNPREFIXED_NUMBERS: [(&CStr, &Number); 7] = [
    (c"bf-initial-size", &INITIAL_SIZE),
    (c"bf-expansion-factor", &EXPANSION_FACTOR),
    (c"cf-initial-size", &CUCKOO[0]),
    (c"cf-bucket-size", &CUCKOO[1]),
    (c"cf-max-iterations", &CUCKOO[2]),
    (c"cf-expansion-factor", &CUCKOO[3]),
    (c"cf-max-expansions", &CUCKOO[4]),
];

/// While the server loads redis.conf it sets every name that is not in it to its default. Of a value with several names
/// one may be there: what is the default is then left alone.
static LOADING: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Random bytes for the seed of the next filter, drawn when they are asked for.
    static ENTROPY: Cell<Option<[u8; 32]>> = const { Cell::new(None) };
}

/// What a command goes by where its words say nothing.
pub fn defaults(context: Context) -> Defaults {
    let expansion = u32::try_from(EXPANSION_FACTOR.value.load(Relaxed)).unwrap_or(0);
    let entropy = ENTROPY.get().unwrap_or_else(|| context.random_bytes());
    ENTROPY.set(Some(entropy));
    Defaults {
        rate: ERROR_RATE.get(),
        capacity: INITIAL_SIZE.value.load(Relaxed).unsigned_abs(),
        scaling: Scaling::from_expansion(expansion),
        layout: LAYOUT.get(),
        hash: HASH.get(),
        tightening: TIGHTENING_RATIO.get(),
        entropy,
        has_random_seeds: USE_RANDOM_SEED.0.load(Relaxed),
        must_obey: context.must_obey(),
    }
}

/// Draws other random bytes for the next filter: one was made of those that were there.
pub fn renew_entropy() {
    ENTROPY.set(None);
}

/// Whether the server's defragmenter may move filters.
pub fn defrag_enabled() -> bool {
    DEFRAG_ENABLED.0.load(Relaxed)
}

/// Whether BF.ADD and BF.MADD create a filter where there is none.
pub fn auto_creates() -> bool {
    AUTO_CREATE.0.load(Relaxed)
}

/// How many leases the guard has at most, and how many NONEs.
pub fn max_leases() -> usize {
    usize::try_from(MAX_LEASES.value.load(Relaxed)).unwrap_or(usize::MAX)
}

/// The ceiling of one filter, in bytes; 0: automatic.
pub fn max_filter_bytes() -> u64 {
    MAX_FILTER_BYTES.value.load(Relaxed).unsigned_abs()
}

/// Takes the words after the path in `loadmodule`: they become the defaults of what is registered after.
///
/// # Errors
/// A line for the log that says which word is wrong, and how.
pub fn take_load_words(context: Context, words: Args<'_>) -> Result<(), String> {
    let LoadTime { rate, initial_size, expansion, without_effect } = load_time::parse(words.words())?;
    if let Some(rate) = rate {
        ERROR_RATE.set(rate, c"", context);
    }
    if let Some(size) = initial_size {
        INITIAL_SIZE.value.store(size, Relaxed);
    }
    if let Some(expansion) = expansion {
        EXPANSION_FACTOR.value.store(expansion, Relaxed);
    }
    for name in without_effect {
        context.log(LogLevel::Warning, format_args!("bloomgate: {name} has no effect, there are no cuckoo filters"));
    }
    Ok(())
}

/// Registers the configurations, with what they are now as defaults, and loads what redis.conf says of them.
///
/// # Errors
/// A line for the log.
pub fn register(context: Context) -> Result<(), String> {
    let default = raw::REDISMODULE_CONFIG_DEFAULT;
    let registered = FRACTIONS.iter().all(|(name, fraction)| fraction.register(context, name, default))
        && NUMBERS.iter().all(|(name, number)| number.register(context, name, number.flags))
        && SWITCHES.iter().all(|(name, switch)| switch.register(context, name))
        && LAYOUT.register(context, c"layout")
        && HASH.register(context, c"hash");
    if !registered {
        return Err("the server refuses the configurations".to_owned());
    }
    // Valkey has no such names: it would put its prefix before them, or log a warning for each.
    if version::server_version() >= Some(UNPREFIXED_FROM) && !version::is_valkey(context) {
        let (name, fraction) = UNPREFIXED_FRACTION;
        fraction.register(context, name, raw::REDISMODULE_CONFIG_UNPREFIXED);
        for (name, number) in &UNPREFIXED_NUMBERS {
            number.register(context, name, raw::REDISMODULE_CONFIG_UNPREFIXED | number.flags);
        }
    }
    LOADING.store(true, Relaxed);
    // SAFETY: the context is that of OnLoad, where configurations are loaded.
    let loaded = unsafe { raw::RedisModule_LoadConfigs.map(|load| load(context.raw)) };
    LOADING.store(false, Relaxed);
    if loaded == Some(OK) { Ok(()) } else { Err("a configuration of the module in redis.conf is refused".to_owned()) }
}

/// The name by which a setting with several names was set last.
struct SaidBy(AtomicUsize);

impl SaidBy {
    const fn nobody() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Where a name stands among all of them, from 1 on.
    fn number(name: &CStr) -> usize {
        let fractions = FRACTIONS.iter().chain([&UNPREFIXED_FRACTION]).map(|(name, _)| *name);
        let numbers = NUMBERS.iter().chain(&UNPREFIXED_NUMBERS).map(|(name, _)| *name);
        fractions.chain(numbers).position(|known| known == name).map_or(0, |place| place + 1)
    }

    /// Whether the setting was set by this name, or by none.
    fn is_by(&self, name: &CStr) -> bool {
        let said = self.0.load(Relaxed);
        said == 0 || said == Self::number(name)
    }

    /// It is set by this name. Where redis.conf says another value under another name, the log says which one holds.
    fn now(&self, name: &CStr, is_another_value: bool) {
        let before = self.0.swap(Self::number(name), Relaxed);
        if LOADING.load(Relaxed) && before != 0 && is_another_value {
            let name = name.to_string_lossy();
            let line = format_args!("bloomgate: redis.conf has several names of one setting, that of '{name}' holds");
            Context::new(null_mut()).log(LogLevel::Warning, line);
        }
    }
}

/// A name as it was registered: servers give it with the module's prefix or without.
///
/// # Safety
/// `name` must be a C string that lives as long as `'a`.
unsafe fn name_of<'a>(name: *const c_char) -> &'a CStr {
    const PREFIX: &[u8] = b"bf.";
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    let bare = name.to_bytes_with_nul().strip_prefix(PREFIX);
    bare.and_then(|bare| CStr::from_bytes_with_nul(bare).ok()).unwrap_or(name)
}

/// A whole number. Its range is checked by the server.
struct Number {
    value: AtomicI64,
    default: AtomicI64,
    said: SaidBy,
    min: i64,
    max: i64,
    flags: u32,
}

impl Number {
    const fn new(value: i64, min: i64, max: i64, flags: u32) -> Self {
        Self { value: AtomicI64::new(value), default: AtomicI64::new(value), said: SaidBy::nobody(), min, max, flags }
    }

    fn register(&'static self, context: Context, name: &CStr, flags: u32) -> bool {
        let default = self.value.load(Relaxed);
        self.default.store(default, Relaxed);
        let data = std::ptr::from_ref(self).cast_mut().cast();
        // SAFETY: the name is a C string; the callbacks get a pointer to a `Number` that lives for good.
        let registered = unsafe {
            raw::RedisModule_RegisterNumericConfig.map(|register| {
                let (get, set) = (Some(get_number as _), Some(set_number as _));
                register(context.raw, name.as_ptr(), default, flags, self.min, self.max, get, set, None, data)
            })
        };
        registered == Some(OK)
    }
}

unsafe extern "C" fn get_number(name: *const c_char, data: *mut c_void) -> c_longlong {
    // SAFETY: `data` is the `Number` that was registered; the name is a C string.
    let (Some(number), name) = (unsafe { (data.cast::<Number>().as_ref(), name_of(name)) }) else { return 0 };
    let shown = if number.said.is_by(name) { &number.value } else { &number.default };
    shown.load(Relaxed)
}

unsafe extern "C" fn set_number(
    name: *const c_char,
    value: c_longlong,
    data: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: `data` is the `Number` that was registered; the name is a C string.
    if let (Some(number), name) = unsafe { (data.cast::<Number>().as_ref(), name_of(name)) }
        && !(LOADING.load(Relaxed) && value == number.default.load(Relaxed))
    {
        number.said.now(name, value != number.value.load(Relaxed));
        number.value.store(value, Relaxed);
    }
    OK
}

/// A number inside (0, 1). The server has no configuration of fractions: to it, this is a text.
struct Fraction {
    bits: AtomicU64,
    default: AtomicU64,
    said: SaidBy,
    /// What is taken for a number.
    taken: Option<fn(f64) -> f64>,
    /// The text that was last given to the server.
    text: AtomicPtr<raw::RedisModuleString>,
}

impl Fraction {
    const fn new(value: f64, taken: Option<fn(f64) -> f64>) -> Self {
        let (bits, default) = (AtomicU64::new(value.to_bits()), AtomicU64::new(value.to_bits()));
        Self { bits, default, said: SaidBy::nobody(), taken, text: AtomicPtr::new(null_mut()) }
    }

    fn get(&self) -> f64 {
        f64::from_bits(self.bits.load(Relaxed))
    }

    fn set(&self, asked: f64, name: &CStr, context: Context) {
        let value = self.taken.map_or(asked, |taken| taken(asked));
        if value.to_bits() != asked.to_bits() {
            context.log(LogLevel::Warning, format_args!("bloomgate: error rate {asked:?} is taken as {value:?}"));
        }
        if !(LOADING.load(Relaxed) && value.to_bits() == self.default.load(Relaxed)) {
            self.said.now(name, value.to_bits() != self.bits.load(Relaxed));
            self.bits.store(value.to_bits(), Relaxed);
        }
    }

    /// Keeps the text that CONFIG GET was given until the next, and gives the one before back: the server, which copies
    /// what it gets, does not read it any more.
    fn keep_text(&self, text: *mut raw::RedisModuleString) {
        let before = self.text.swap(text, Relaxed);
        // SAFETY: the text before is ours and is given back once.
        unsafe {
            if let Some(free) = raw::RedisModule_FreeString
                && !before.is_null()
            {
                free(null_mut(), before);
            }
        }
    }

    fn register(&'static self, context: Context, name: &CStr, flags: u32) -> bool {
        self.default.store(self.bits.load(Relaxed), Relaxed);
        let default = Text::of(self.get());
        let data = std::ptr::from_ref(self).cast_mut().cast();
        // SAFETY: the name and the default are C strings; the callbacks get a pointer to a `Fraction` that lives for
        // good.
        let registered = unsafe {
            raw::RedisModule_RegisterStringConfig.map(|register| {
                let (get, set) = (Some(get_fraction as _), Some(set_fraction as _));
                register(context.raw, name.as_ptr(), default.as_ptr(), flags, get, set, None, data)
            })
        };
        registered == Some(OK)
    }
}

/// Gives back what is kept for CONFIG GET: for a module that is not loaded after all.
pub fn forget_texts() {
    FRACTIONS.iter().for_each(|(_, fraction)| fraction.keep_text(null_mut()));
}

unsafe extern "C" fn get_fraction(name: *const c_char, data: *mut c_void) -> *mut raw::RedisModuleString {
    // SAFETY: `data` is the `Fraction` that was registered; the name is a C string.
    let (Some(fraction), name) = (unsafe { (data.cast::<Fraction>().as_ref(), name_of(name)) }) else {
        return null_mut();
    };
    let default = f64::from_bits(fraction.default.load(Relaxed));
    let string = string(Text::of(if fraction.said.is_by(name) { fraction.get() } else { default }).as_str());
    fraction.keep_text(string);
    string
}

unsafe extern "C" fn set_fraction(
    name: *const c_char,
    value: *mut raw::RedisModuleString,
    data: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    let value = numbers::fraction(RedisString::string_as_slice(value), false);
    // SAFETY: `data` is the `Fraction` that was registered; `error` is a place for a string, which the server frees.
    unsafe {
        if let (Some(value), Some(fraction)) = (value, data.cast::<Fraction>().as_ref()) {
            fraction.set(value, name_of(name), Context::new(null_mut()));
            return OK;
        }
        if let Some(error) = error.as_mut() {
            *error = string("a number inside (0, 1) is expected");
        }
    }
    ERR
}

/// Yes or no.
struct Switch(AtomicBool);

impl Switch {
    fn register(&'static self, context: Context, name: &CStr) -> bool {
        let data = std::ptr::from_ref(self).cast_mut().cast();
        // SAFETY: the name is a C string; the callbacks get a pointer to a `Switch` that lives for good.
        let registered = unsafe {
            raw::RedisModule_RegisterBoolConfig.map(|register| {
                let (get, set) = (Some(get_switch as _), Some(set_switch as _));
                let (default, flags) = (self.0.load(Relaxed).into(), raw::REDISMODULE_CONFIG_DEFAULT);
                register(context.raw, name.as_ptr(), default, flags, get, set, None, data)
            })
        };
        registered == Some(OK)
    }
}

unsafe extern "C" fn get_switch(_name: *const c_char, data: *mut c_void) -> c_int {
    // SAFETY: `data` is the `Switch` that was registered.
    unsafe { data.cast::<Switch>().as_ref() }.is_some_and(|switch| switch.0.load(Relaxed)).into()
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
struct Choice<T: 'static> {
    chosen: AtomicI32,
    names: [(&'static CStr, T); 2],
}

impl<T: Copy> Choice<T> {
    /// The first name is the default.
    const fn new(names: [(&'static CStr, T); 2]) -> Self {
        Self { chosen: AtomicI32::new(0), names }
    }

    fn get(&self) -> T {
        let [(_, first), (_, second)] = self.names;
        if self.chosen.load(Relaxed) == 0 { first } else { second }
    }

    fn register(&'static self, context: Context, name: &CStr) -> bool {
        let mut names = self.names.each_ref().map(|(name, _)| name.as_ptr());
        let numbers = [0, 1];
        let data = std::ptr::from_ref(&self.chosen).cast_mut().cast();
        // SAFETY: the names are C strings, two as there are numbers, all copied by the server; the callbacks get a pointer
        // to a number that lives for good.
        let registered = unsafe {
            raw::RedisModule_RegisterEnumConfig.map(|register| {
                let (get, set) = (Some(get_choice as _), Some(set_choice as _));
                let (default, flags) = (self.chosen.load(Relaxed), raw::REDISMODULE_CONFIG_DEFAULT);
                let (name, names) = (name.as_ptr(), names.as_mut_ptr());
                register(context.raw, name, default, flags, names, numbers.as_ptr(), 2, get, set, None, data)
            })
        };
        registered == Some(OK)
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

/// A text as a string of the server's.
fn string(text: &str) -> *mut raw::RedisModuleString {
    // SAFETY: the pointer and the length are those of the text, which the server copies.
    let string =
        unsafe { raw::RedisModule_CreateString.map(|create| create(null_mut(), text.as_ptr().cast(), text.len())) };
    string.unwrap_or(null_mut())
}
