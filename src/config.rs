//! The settings: defaults of new filters, their layout and hash, and how large a filter may become.
//!
//! The arguments of `loadmodule` set the defaults; redis.conf and CONFIG SET override them. Names of RedisBloom and valkey-bloom that mean
//! the same as one of ours set the same value, so a redis.conf written for those modules still works. valkey-bloom's ratio and seed apply
//! to filters of its layout.
//!
//! CONFIG GET shows a value, and CONFIG REWRITE writes it, under one of its names: the name in redis.conf, if there is one.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_longlong, c_void};
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use bloomgate_filter::arguments::cuckoo::{BUCKET_SIZE_DEFAULT, CuckooDefaults, ITERATIONS_DEFAULT};
use bloomgate_filter::arguments::load_time::{self, LoadTime};
use bloomgate_filter::arguments::numbers;
use bloomgate_filter::hash::{Hasher, ItemHash};
use bloomgate_filter::kinds::{
    Defaults, HashName, LayoutName, NativeSpec, RedisBloomCuckooSpec, clamp_rate, redisbloom_cuckoo,
};
use bloomgate_filter::{Scaling, Spec};
use redis_module::{RedisString, raw};

use crate::api;
use crate::args::Args;
use crate::context::{Context, ERR, LogLevel, OK, Origin, Text};
use crate::server_info::{is_valkey, server_version};

static ERROR_RATE: Shared = Shared::new(Format::Rate, 0.01_f64.to_bits());
static INITIAL_SIZE: Shared =
    Shared::new(Format::Number { min: 1, max: load_time::INITIAL_SIZE_MAX.unsigned_abs() }, 100);
static EXPANSION_FACTOR: Shared = Shared::new(Format::Number { min: 0, max: numbers::EXPANSION_MAX as u64 }, 2);
static MAX_FILTER_BYTES: Shared = Shared::new(Format::Bytes, 0);
static TIGHTENING_RATIO: Shared = Shared::new(Format::Ratio, 0.5_f64.to_bits());
static MAX_LEASES: Number = Number::new(65536, 1, 1 << 24);
static LAYOUT: Choice<LayoutName> =
    Choice::new([(c"native", LayoutName::Native), (c"redisbloom", LayoutName::RedisBloom)]);
static HASH: Choice<HashName> = Choice::new([(c"murmur3", HashName::Murmur3), (c"siphash", HashName::SipHash)]);
/// The defaults of cuckoo filters: initial size, bucket size, iterations, expansion factor; and the number of expansions.
static CUCKOO: [Shared; 5] = [
    Shared::new(Format::Number { min: 2, max: redisbloom_cuckoo::CAPACITY_MAX }, 1024),
    Shared::new(Format::Number { min: 1, max: redisbloom_cuckoo::BUCKET_SIZE_MAX }, BUCKET_SIZE_DEFAULT),
    Shared::new(Format::Number { min: 1, max: redisbloom_cuckoo::ITERATIONS_MAX }, ITERATIONS_DEFAULT),
    Shared::new(Format::Number { min: 0, max: redisbloom_cuckoo::EXPANSION_MAX }, 1),
    Shared::new(Format::Number { min: 1, max: 65536 }, 32),
];
static USE_RANDOM_SEED: Switch = Switch::new(true);
static DEFRAG_ENABLED: Switch = Switch::new(true);
static AUTO_CREATE: Switch = Switch::new(true);
static HUGE_PAGES: Switch = Switch::new(true);

/// The settings by their names, which the server shows with the module's prefix: `bf.error-rate`. Our name of a setting comes first.
static NAMES: [Name; 14] = [
    Name::new(c"error-rate", &ERROR_RATE),
    Name::new(c"initial-size", &INITIAL_SIZE),
    Name::new(c"expansion-factor", &EXPANSION_FACTOR),
    Name::new(c"max-filter-bytes", &MAX_FILTER_BYTES),
    Name::new(c"cf-initial-size", &CUCKOO[0]),
    Name::new(c"cf-bucket-size", &CUCKOO[1]),
    Name::new(c"cf-max-iterations", &CUCKOO[2]),
    Name::new(c"cf-expansion-factor", &CUCKOO[3]),
    Name::new(c"cf-max-expansions", &CUCKOO[4]),
    Name::new(c"bloom-fp-rate", &ERROR_RATE),
    Name::new(c"bloom-capacity", &INITIAL_SIZE),
    Name::new(c"bloom-expansion", &EXPANSION_FACTOR),
    Name::new(c"bloom-memory-usage-limit", &MAX_FILTER_BYTES),
    Name::new(c"bloom-tightening-ratio", &TIGHTENING_RATIO),
];
static SWITCHES: [(&CStr, &Switch); 4] = [
    (c"auto-create", &AUTO_CREATE),
    (c"huge-pages", &HUGE_PAGES),
    (c"bloom-use-random-seed", &USE_RANDOM_SEED),
    (c"bloom-defrag-enabled", &DEFRAG_ENABLED),
];

/// The first server that accepts setting names without a prefix, such as RedisBloom's: Redis 8.
const UNPREFIXED_FROM: c_int = 0x0008_0000;
static UNPREFIXED_NAMES: [Name; 8] = [
    Name::new(c"bf-error-rate", &ERROR_RATE),
    Name::new(c"bf-initial-size", &INITIAL_SIZE),
    Name::new(c"bf-expansion-factor", &EXPANSION_FACTOR),
    Name::new(c"cf-initial-size", &CUCKOO[0]),
    Name::new(c"cf-bucket-size", &CUCKOO[1]),
    Name::new(c"cf-max-iterations", &CUCKOO[2]),
    Name::new(c"cf-expansion-factor", &CUCKOO[3]),
    Name::new(c"cf-max-expansions", &CUCKOO[4]),
];
thread_local! {
    /// Random bytes for the seed of the next filter, derived when a command needs them, and how many more seeds of four bytes there are.
    static ENTROPY: Cell<Option<([u8; 32], u8)>> = const { Cell::new(None) };
    /// The secret key of [`ENTROPY`], and the number of 16-byte blocks derived from it so far.
    static DERIVING: Cell<Option<([u8; 16], u64)>> = const { Cell::new(None) };
}

/// The number of seeds of four bytes that follow the first. The 16 bytes after the last but one are left for a SipHash key, which is secret.
const MORE_SEEDS: u8 = 4;

/// Returns random bytes for a seed. The server's own function computes SHA-256 for every call, 18,400 instructions: a quarter of a BF.MADD
/// of 20 items that creates its filter. So it is called once, for a key, and the bytes are SipHash-2-4 of a counter under that key. Known
/// seeds reveal nothing about other filters' seeds.
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

/// The defaults of options that a command omits.
pub fn defaults(context: Context, origin: Origin) -> Defaults {
    let expansion = u32::try_from(EXPANSION_FACTOR.number()).unwrap_or(0);
    let (entropy, more_seeds) = ENTROPY.get().unwrap_or_else(|| (fresh_entropy(context), MORE_SEEDS));
    ENTROPY.set(Some((entropy, more_seeds)));
    Defaults {
        rate: ERROR_RATE.fraction(),
        capacity: INITIAL_SIZE.number(),
        scaling: Scaling::from_expansion(expansion),
        layout: LAYOUT.get(),
        hash: HASH.get(),
        tightening: TIGHTENING_RATIO.fraction(),
        entropy,
        has_random_seeds: USE_RANDOM_SEED.is_on(),
        must_obey: origin.is_effect(),
    }
}

/// The defaults of options that a command for a cuckoo filter omits. A capacity below two buckets is raised to it.
pub fn cuckoo_defaults(context: Context, origin: Origin) -> CuckooDefaults {
    let [capacity, bucket_size, iterations, expansion, _] = CUCKOO.each_ref().map(Shared::number);
    let capacity = capacity.max(bucket_size * 2);
    let redisbloom = RedisBloomCuckooSpec { capacity, bucket_size, iterations, expansion };
    CuckooDefaults { redisbloom, own: defaults(context, origin) }
}

/// The number of sub-filters from which on a cuckoo filter refuses all adds of clients.
pub fn cuckoo_expansions() -> u64 {
    let [.., expansions] = &CUCKOO;
    expansions.number()
}

/// Discards the random bytes with which a filter was created: a seed of four, or all.
pub fn renew_entropy(spec: &Spec) {
    let takes_four = matches!(spec, Spec::Native(NativeSpec { hasher: Hasher::Murmur3 { .. }, .. }));
    let left = ENTROPY.get().filter(|(_, more_seeds)| takes_four && *more_seeds > 0);
    ENTROPY.set(left.map(|(mut entropy, more_seeds)| {
        entropy.rotate_left(4);
        (entropy, more_seeds - 1)
    }));
}

/// Sets the layout of new filters to RedisBloom's, unless `bf.layout` was set before, or `bf.hash` names a hash that only native filters
/// have. Returns whether it did.
pub fn adopt_redisbloom_layout() -> bool {
    HASH.get() == HashName::Murmur3 && LAYOUT.replace_default_by_second()
}

/// Whether the server's defragmenter may move filters.
pub fn defrag_enabled() -> bool {
    DEFRAG_ENABLED.is_on()
}

/// Whether BF.ADD and BF.MADD create a missing filter.
pub fn auto_creates() -> bool {
    AUTO_CREATE.is_on()
}

/// Whether newly allocated large layers are put into huge pages.
pub fn has_huge_pages() -> bool {
    HUGE_PAGES.is_on()
}

/// The maximum number of records that the guard holds: leases, NONEs and back-offs.
pub fn max_leases() -> usize {
    usize::try_from(MAX_LEASES.get()).unwrap_or(usize::MAX)
}

/// The maximum size of one filter, in bytes; 0: automatic.
pub fn max_filter_bytes() -> u64 {
    MAX_FILTER_BYTES.number()
}

/// Applies the arguments of `loadmodule`: they become the defaults of the settings that are registered next.
/// The error is a line for the log with the wrong argument and the reason.
pub fn take_load_words(context: Context, words: Args<'_>) -> Result<(), String> {
    let LoadTime { rate, initial_size, expansion, unless_loaded: _, cuckoo } = load_time::parse(words.words())?;
    if let Some(rate) = rate {
        ERROR_RATE.preset(clamped(rate, context).to_bits());
    }
    if let Some(size) = initial_size {
        INITIAL_SIZE.preset(size.unsigned_abs());
    }
    if let Some(expansion) = expansion {
        EXPANSION_FACTOR.preset(expansion.unsigned_abs());
    }
    for (setting, value) in CUCKOO.iter().zip(cuckoo) {
        value.into_iter().for_each(|value| setting.preset(value));
    }
    Ok(())
}

/// Registers the settings, with their present values as defaults, and loads the values of redis.conf.
/// The error is a line for the log.
pub fn register(context: Context) -> Result<(), String> {
    let default = raw::REDISMODULE_CONFIG_DEFAULT;
    let registered = NAMES.iter().all(|name| name.register(context, default))
        && MAX_LEASES.register(context, c"max-leases", default)
        && SWITCHES.iter().all(|(name, switch)| switch.register(context, name))
        && LAYOUT.register(context, c"layout")
        && HASH.register(context, c"hash");
    if !registered {
        return Err("the server refused the settings".to_owned());
    }
    // Valkey has no such names: it would put its prefix before them, or log a warning for each.
    if server_version() >= UNPREFIXED_FROM && !is_valkey(context) {
        let unprefixed = raw::REDISMODULE_CONFIG_UNPREFIXED;
        UNPREFIXED_NAMES.iter().for_each(|name| _ = name.register(context, unprefixed));
    }
    LOADING.store(true, Relaxed);
    let loaded = api::load_settings(context) == OK;
    LOADING.store(false, Relaxed);
    if loaded { Ok(()) } else { Err("a configuration of the module in redis.conf is refused".to_owned()) }
}

/// Frees the strings returned for CONFIG GET, if loading the module fails. The server has copied them and does not read them again.
pub fn forget_strings() {
    NAMES.iter().for_each(|name| name.setting.keep_string(null_mut()));
}

// The types of settings, and the callbacks by which the server reads and sets them.

/// Whether the server is loading redis.conf. It then reads and sets every name in the file, and sets all other names to their defaults.
static LOADING: AtomicBool = AtomicBool::new(false);

/// Returns the data of a registration: a pointer that the server passes to the callbacks.
const fn data<T>(registered: &'static T) -> *mut c_void {
    std::ptr::from_ref(registered).cast_mut().cast()
}

/// Returns the value that was registered with [`data`], in a callback of that registration.
const fn registered<T>(data: *mut c_void) -> Option<&'static T> {
    // SAFETY: the server passes the pointer that was registered with the callback, which is to a static `T`.
    unsafe { data.cast::<T>().as_ref() }
}

/// A setting with one or more names, one of which is the holder of its text.
///
/// CONFIG REWRITE writes every name whose text is not its default, and a module cannot distinguish it from CONFIG GET. If every name had
/// the value, the file would get a line for each, and a line that an operator edits would be overridden by another. So only the holder has
/// a text, unless the value is the default, and the server removes the lines of the other names. A setting of the server's type "string"
/// may have no text, a number always has a value: so all these settings are strings.
struct Shared {
    format: Format,
    /// The value: a whole number, or the bits of a fraction.
    value: AtomicU64,
    default: AtomicU64,
    /// The index of the holder in [`NAMES`] followed by [`UNPREFIXED_NAMES`].
    holder: AtomicUsize,
    /// Whether redis.conf sets the value. The name in the file then stays the holder.
    is_in_file: AtomicBool,
    /// The string last returned to the server.
    string: AtomicPtr<raw::RedisModuleString>,
}

impl Shared {
    const fn new(format: Format, value: u64) -> Self {
        Self {
            format,
            value: AtomicU64::new(value),
            default: AtomicU64::new(value),
            holder: AtomicUsize::new(usize::MAX),
            is_in_file: AtomicBool::new(false),
            string: AtomicPtr::new(null_mut()),
        }
    }

    fn number(&self) -> u64 {
        self.value.load(Relaxed)
    }

    fn fraction(&self) -> f64 {
        f64::from_bits(self.number())
    }

    /// Sets the value that will be the default.
    fn preset(&self, value: u64) {
        self.value.store(value, Relaxed);
        self.default.store(value, Relaxed);
    }

    fn text(&self, value: u64) -> Text {
        match self.format {
            Format::Number { .. } | Format::Bytes => Text::of(value),
            Format::Rate | Format::Ratio => Text::of(f64::from_bits(value)),
        }
    }

    /// Keeps the string that is returned to the server, and frees the previous one.
    fn keep_string(&self, string: *mut raw::RedisModuleString) {
        let before = self.string.swap(string, Relaxed);
        if !before.is_null() {
            // SAFETY: the previous string is the module's and is freed once.
            unsafe { api::free_string(before) };
        }
    }
}

/// The type of a setting's text.
enum Format {
    Number {
        min: u64,
        max: u64,
    },
    /// A number of bytes, which may have a unit: `100mb`.
    Bytes,
    /// A fraction inside (0, 1), as a filter's rate can be: see [`clamped`].
    Rate,
    /// A fraction inside (0, 1).
    Ratio,
}

impl Format {
    fn parse(&self, text: &[u8]) -> Option<u64> {
        match *self {
            Self::Number { min, max } => numbers::unsigned(text).filter(|number| (min..=max).contains(number)),
            Self::Bytes => bytes(text),
            Self::Rate => numbers::fraction(text, false).map(|rate| clamped(rate, Context::new(null_mut())).to_bits()),
            Self::Ratio => numbers::fraction(text, false).map(f64::to_bits),
        }
    }

    /// The error for a refused text, worded as the server or RedisBloom words it.
    fn refusal(&self, name: &CStr) -> Text {
        match *self {
            Self::Number { min, max } => Text::of(format_args!("argument must be between {min} and {max} inclusive")),
            Self::Bytes => Text::of("argument must be a memory value"),
            Self::Rate | Self::Ratio => {
                let name = name.to_str().unwrap_or_default();
                Text::of(format_args!("Value for `{name}` must be in the range (0.000000, 1.000000)"))
            }
        }
    }
}

/// Parses a number of bytes with a unit, as the server does.
fn bytes(text: &[u8]) -> Option<u64> {
    let (digits, unit) = text.split_at(text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len()));
    let factor = match unit.to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    let bytes = std::str::from_utf8(digits).ok()?.parse::<u64>().ok()?.checked_mul(factor)?;
    (bytes <= i64::MAX.unsigned_abs()).then_some(bytes)
}

/// Returns the nearest rate that a filter can have, and logs a line if it differs from `rate`.
fn clamped(rate: f64, context: Context) -> f64 {
    let taken = clamp_rate(rate);
    if taken.to_bits() != rate.to_bits() {
        let line = format_args!("bloomgate: error rate {rate:?} is out of range: using {taken:?}");
        context.log(LogLevel::Warning, line);
    }
    taken
}

/// One name of a setting, without the module's prefix.
struct Name {
    name: &'static CStr,
    setting: &'static Shared,
    is_in_file: AtomicBool,
    /// The value and the holder before the name was set last, accepted or not.
    before: (AtomicU64, AtomicUsize),
    /// The value afterwards.
    after: AtomicU64,
    /// How often the server has read the name since it was set.
    reads: AtomicU32,
}

impl Name {
    const fn new(name: &'static CStr, setting: &'static Shared) -> Self {
        let before = (AtomicU64::new(0), AtomicUsize::new(usize::MAX));
        let (is_in_file, after, reads) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU32::new(0));
        Self { name, setting, is_in_file, before, after, reads }
    }

    fn all() -> impl Iterator<Item = &'static Self> {
        NAMES.iter().chain(&UNPREFIXED_NAMES)
    }

    fn place(&'static self) -> usize {
        Self::all().position(|name| std::ptr::eq(name, self)).unwrap_or(usize::MAX)
    }

    /// Registers the name, with the present value as its default. Returns whether the server accepts it.
    fn register(&'static self, context: Context, flags: u32) -> bool {
        let default = self.setting.text(self.setting.number());
        _ = self.setting.holder.compare_exchange(usize::MAX, self.place(), Relaxed, Relaxed);
        let (get, set) = (Some(get_text as _), Some(set_text as _));
        // SAFETY: the callbacks get a pointer to the name, which is never freed.
        unsafe { api::register_string(context, self.name, default.as_c_str(), flags, get, set, data(self)) == OK }
    }

    /// The text that the server shows and writes.
    fn text(&'static self) -> Option<Text> {
        let setting = self.setting;
        self.reads.fetch_add(1, Relaxed);
        if LOADING.load(Relaxed) {
            // The server skips a value that equals the text it has read, so the name has no text until the file is loaded.
            self.is_in_file.store(true, Relaxed);
            return None;
        }
        let is_holder = setting.holder.load(Relaxed) == self.place();
        let is_default = setting.number() == setting.default.load(Relaxed);
        (is_holder || is_default && !self.is_in_file.load(Relaxed)).then(|| setting.text(setting.number()))
    }

    /// Sets the value. Returns whether the text is accepted.
    fn set(&'static self, text: &[u8]) -> bool {
        let (setting, is_loading) = (self.setting, LOADING.load(Relaxed));
        let (before, holder) = (setting.number(), setting.holder.load(Relaxed));
        if is_loading && !self.is_in_file.load(Relaxed) {
            return true;
        }
        // If CONFIG SET fails, the server sets each name back to its former text, which is empty unless the name was the holder. It reads
        // the name once before it does that, and twice before it sets the name for a client.
        if text.is_empty() && !is_loading && self.reads.load(Relaxed) == 1 {
            // Otherwise another name in the same command has already been set back.
            if before == self.after.load(Relaxed) {
                setting.value.store(self.before.0.load(Relaxed), Relaxed);
                setting.holder.store(self.before.1.load(Relaxed), Relaxed);
            }
            return true;
        }
        self.before.0.store(before, Relaxed);
        self.before.1.store(holder, Relaxed);
        self.after.store(before, Relaxed);
        self.reads.store(0, Relaxed);
        let Some(value) = setting.format.parse(text) else { return false };
        if is_loading && setting.is_in_file.swap(true, Relaxed) && value != before {
            self.warn_of_two_names(holder);
        }
        if is_loading || !setting.is_in_file.load(Relaxed) {
            setting.holder.store(self.place(), Relaxed);
        }
        setting.value.store(value, Relaxed);
        self.after.store(value, Relaxed);
        true
    }

    fn warn_of_two_names(&self, other: usize) {
        let other = Self::all().nth(other).map_or(c"", |name| name.name);
        let [name, other] = [self.name, other].map(CStr::to_string_lossy);
        let line = format_args!(
            "bloomgate: redis.conf sets one setting under two names; '{name}' takes effect, '{other}' does not"
        );
        Context::new(null_mut()).log(LogLevel::Warning, line);
    }
}

unsafe extern "C" fn get_text(_name: *const c_char, data: *mut c_void) -> *mut raw::RedisModuleString {
    let Some(name) = registered::<Name>(data) else { return null_mut() };
    let string = name.text().map_or(null_mut(), |text| api::create_string(text.bytes()));
    name.setting.keep_string(string);
    string
}

unsafe extern "C" fn set_text(
    _name: *const c_char,
    value: *mut raw::RedisModuleString,
    data: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    let Some(name) = registered::<Name>(data) else { return ERR };
    if name.set(RedisString::string_as_slice(value)) {
        return OK;
    }
    // SAFETY: `error` points to a string pointer; the server frees the string.
    if let Some(error) = unsafe { error.as_mut() } {
        *error = api::create_string(name.setting.format.refusal(name.name).bytes());
    }
    ERR
}

/// The value of a setting with one name. `T` is the server's integer type for it.
struct Setting<T> {
    value: AtomicI64,
    server_type: PhantomData<fn(T) -> T>,
}

impl<T: Into<i64> + TryFrom<i64> + Default + 'static> Setting<T> {
    /// Sets the default.
    const fn new(value: i64) -> Self {
        Self { value: AtomicI64::new(value), server_type: PhantomData }
    }

    fn get(&self) -> i64 {
        self.value.load(Relaxed)
    }

    unsafe extern "C" fn read(_name: *const c_char, data: *mut c_void) -> T {
        registered::<Self>(data).and_then(|setting| T::try_from(setting.get()).ok()).unwrap_or_default()
    }

    unsafe extern "C" fn write(
        _name: *const c_char,
        value: T,
        data: *mut c_void,
        _error: *mut *mut raw::RedisModuleString,
    ) -> c_int {
        if let Some(setting) = registered::<Self>(data) {
            setting.value.store(value.into(), Relaxed);
        }
        OK
    }
}

/// A whole number with one name. The server checks its range.
struct Number {
    setting: Setting<c_longlong>,
    range: (i64, i64),
}

impl Number {
    /// A number with its default and its range.
    const fn new(value: i64, min: i64, max: i64) -> Self {
        Self { setting: Setting::new(value), range: (min, max) }
    }

    fn get(&self) -> i64 {
        self.setting.get()
    }

    /// Registers the name, with the present value as its default. Returns whether the server accepts it.
    fn register(&'static self, context: Context, name: &CStr, flags: u32) -> bool {
        let (min, max) = self.range;
        let (get, set) = (Some(Setting::<c_longlong>::read as _), Some(Setting::<c_longlong>::write as _));
        // SAFETY: the callbacks get a pointer to the setting, which is never freed.
        unsafe { api::register_number(context, name, self.get(), flags, min, max, get, set, data(&self.setting)) == OK }
    }
}

/// Yes or no.
struct Switch(Setting<c_int>);

impl Switch {
    /// A switch with its default.
    const fn new(is_on: bool) -> Self {
        Self(Setting::new(is_on as i64))
    }

    fn is_on(&self) -> bool {
        self.0.get() != 0
    }

    /// Registers a name, with the present value as its default. Returns whether the server accepts it.
    fn register(&'static self, context: Context, name: &CStr) -> bool {
        let (get, set) = (Some(Setting::<c_int>::read as _), Some(Setting::<c_int>::write as _));
        let (default, flags) = (self.is_on().into(), raw::REDISMODULE_CONFIG_DEFAULT);
        // SAFETY: the callbacks get a pointer to the setting, which is never freed.
        unsafe { api::register_switch(context, name, default, flags, get, set, data(&self.0)) == OK }
    }
}

/// One of two names. The default is a third value, which is shown as the first name: it distinguishes a setting that was never set from one
/// that was set to its default, and CONFIG REWRITE writes only the latter.
struct Choice<T: 'static> {
    chosen: Setting<c_int>,
    names: [(&'static CStr, T); 2],
}

/// If two values have the same name, some servers use the first, others both, combined by OR. Both give `FIRST`, which is registered first:
/// `FIRST | DEFAULT` is `FIRST`.
const DEFAULT: c_int = 0;
const SECOND: c_int = 1;
const FIRST: c_int = 2;

impl<T: Copy> Choice<T> {
    /// The first name is the default.
    const fn new(names: [(&'static CStr, T); 2]) -> Self {
        Self { chosen: Setting::new(DEFAULT as i64), names }
    }

    fn get(&self) -> T {
        let [(_, first), (_, second)] = self.names;
        if self.chosen.get() == SECOND.into() { second } else { first }
    }

    /// Chooses the second name, unless a name was set. Returns whether it did.
    fn replace_default_by_second(&self) -> bool {
        self.chosen.value.compare_exchange(DEFAULT.into(), SECOND.into(), Relaxed, Relaxed).is_ok()
    }

    /// Registers a name. Returns whether the server accepts it.
    fn register(&'static self, context: Context, name: &CStr) -> bool {
        let [(first, _), (second, _)] = &self.names;
        let mut names = [first, second, first].map(|name| name.as_ptr());
        let values = [FIRST, SECOND, DEFAULT];
        let (get, set) = (Some(Setting::<c_int>::read as _), Some(Setting::<c_int>::write as _));
        let flags = raw::REDISMODULE_CONFIG_DEFAULT;
        // SAFETY: the names are C strings, which the server copies; the callbacks get a pointer to the setting, which is never freed.
        unsafe {
            api::register_choice(context, name, DEFAULT, flags, &mut names, &values, get, set, data(&self.chosen)) == OK
        }
    }
}
