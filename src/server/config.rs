//! What an operator can set: what a filter gets that a client did not ask for, and how large a filter may become.
//!
//! The load-time words of `loadmodule` give the defaults; redis.conf and CONFIG SET come after them.

use std::ffi::{CStr, CString, c_char, c_int, c_longlong, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use redis_module::{RedisString, raw};

use super::args::{self, Args, Creation};
use super::context::{Context, ERR, LogLevel, OK, c_text};
use crate::bloom::Scaling;

/// Capacity, in items, that a client's CONFIG SET may choose for new filters: RedisBloom's range.
const INITIAL_SIZE_MAX: i64 = 1 << 30;

static ERROR_RATE: AtomicU64 = AtomicU64::new(0.01f64.to_bits());
static INITIAL_SIZE: AtomicU64 = AtomicU64::new(100);
static EXPANSION_FACTOR: AtomicU32 = AtomicU32::new(2);
static MAX_FILTER_BYTES: AtomicU64 = AtomicU64::new(0);
/// The text that CONFIG GET error-rate answers; the server has no configuration of fractions.
static ERROR_RATE_TEXT: AtomicPtr<raw::RedisModuleString> = AtomicPtr::new(null_mut());

/// What a filter is that a client did not describe.
pub fn creation() -> Creation {
    Creation {
        rate: f64::from_bits(ERROR_RATE.load(Ordering::Relaxed)),
        capacity: INITIAL_SIZE.load(Ordering::Relaxed),
        scaling: Scaling::from_expansion(EXPANSION_FACTOR.load(Ordering::Relaxed)),
        seed: None,
    }
}

/// The ceiling of one filter, in bytes; 0: automatic.
pub fn max_filter_bytes() -> u64 {
    MAX_FILTER_BYTES.load(Ordering::Relaxed)
}

/// RedisBloom's words for filters of other kinds, which its users may have in their configuration.
const WORDS_WITHOUT_EFFECT: [&str; 4] = ["CF_INITIAL_SIZE", "CF_BUCKET_SIZE", "CF_MAX_ITERATIONS", "CF_MAX_EXPANSIONS"];

/// Takes the words behind the path in `loadmodule`, in pairs: they become the defaults of what is registered after.
///
/// # Errors
/// A line for the log that says which word is wrong, and how.
pub fn take_load_words(context: Context, words: Args<'_>) -> Result<(), String> {
    let words = words.rest(0).unwrap_or_default();
    for pair in words.chunks(2) {
        let name = pair.first().map(|name| name.bytes()).unwrap_or_default();
        let shown = String::from_utf8_lossy(name);
        let Some(value) = pair.get(1).map(|value| value.bytes()) else {
            return Err(format!("load-time words come in pairs, '{shown}' has no value"));
        };
        let wrong = |range: &str| format!("bad value '{}' for {shown}: {range}", String::from_utf8_lossy(value));
        if args::is(name, "ERROR_RATE") {
            let rate = args::float(value).filter(|rate| args::is_rate(*rate));
            store_rate(context, rate.ok_or_else(|| wrong("a number inside (0, 1) is expected"))?);
        } else if args::is(name, "INITIAL_SIZE") {
            let size = args::integer(value).filter(|size| (1..=INITIAL_SIZE_MAX).contains(size));
            let size = size.ok_or_else(|| wrong("a whole number from 1 to 1073741824 is expected"))?;
            INITIAL_SIZE.store(size.cast_unsigned(), Ordering::Relaxed);
        } else if WORDS_WITHOUT_EFFECT.iter().any(|other| args::is(name, other)) {
            context.log(LogLevel::Warning, &format!("bloomgate: {shown} has no effect, there are no cuckoo filters"));
        } else {
            return Err(format!("unknown load-time word '{shown}'"));
        }
    }
    Ok(())
}

/// Registers the configurations, with what they are now as defaults, and loads what redis.conf says of them.
///
/// # Errors
/// A line for the log.
pub fn register(context: Context) -> Result<(), String> {
    let rate = c_text(&creation().rate.to_string());
    let integer = |name, default: u64, flags, min, max, get, set| {
        let default = i64::try_from(default).unwrap_or(i64::MAX);
        // SAFETY: the names are C strings; the callbacks are functions.
        let registered = unsafe {
            raw::RedisModule_RegisterNumericConfig.map(|register| {
                let name: &CStr = name;
                register(context.raw, name.as_ptr(), default, flags, min, max, get, set, None, null_mut())
            })
        };
        registered == Some(OK)
    };
    let default = raw::REDISMODULE_CONFIG_DEFAULT;
    let memory = raw::REDISMODULE_CONFIG_MEMORY;
    let expansion = u64::from(creation().scaling.expansion());
    // SAFETY: the name and the default are C strings; the callbacks are functions.
    let rate_registered = unsafe {
        raw::RedisModule_RegisterStringConfig.map(|register| {
            let (get, set) = (Some(get_rate as _), Some(set_rate as _));
            register(context.raw, c"error-rate".as_ptr(), rate.as_ptr(), default, get, set, None, null_mut())
        })
    };
    let registered = rate_registered == Some(OK)
        && integer(
            c"initial-size",
            creation().capacity,
            default,
            1,
            INITIAL_SIZE_MAX,
            Some(get_initial_size),
            Some(set_initial_size),
        )
        && integer(
            c"expansion-factor",
            expansion,
            default,
            0,
            args::EXPANSION_MAX.into(),
            Some(get_expansion),
            Some(set_expansion),
        )
        && integer(
            c"max-filter-bytes",
            max_filter_bytes(),
            memory,
            0,
            i64::MAX,
            Some(get_max_bytes),
            Some(set_max_bytes),
        );
    if !registered {
        return Err("the server refuses the configurations".to_owned());
    }
    // SAFETY: the context is that of OnLoad, where configurations are loaded.
    match unsafe { raw::RedisModule_LoadConfigs.map(|load| load(context.raw)) } {
        Some(OK) => Ok(()),
        _ => Err("a configuration of the module in redis.conf is refused".to_owned()),
    }
}

/// Stores a rate inside (0, 1), as far as filters can have it.
fn store_rate(context: Context, asked: f64) {
    let (rate, changed) = args::taken_rate(asked);
    if changed {
        context.log(LogLevel::Warning, &format!("bloomgate: error rate {asked} is taken as {rate}"));
    }
    ERROR_RATE.store(rate.to_bits(), Ordering::Relaxed);
}

unsafe extern "C" fn get_rate(_name: *const c_char, _data: *mut c_void) -> *mut raw::RedisModuleString {
    let text = creation().rate.to_string();
    // SAFETY: the pointer and the length are those of the text; the string before is ours and nobody reads it any more:
    // the server has copied it.
    unsafe {
        let string = raw::RedisModule_CreateString.map(|create| create(null_mut(), text.as_ptr().cast(), text.len()));
        let string = string.unwrap_or(null_mut());
        let before = ERROR_RATE_TEXT.swap(string, Ordering::Relaxed);
        if let Some(free) = raw::RedisModule_FreeString
            && !before.is_null()
        {
            free(null_mut(), before);
        }
        string
    }
}

unsafe extern "C" fn set_rate(
    _name: *const c_char,
    value: *mut raw::RedisModuleString,
    _data: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    let rate = args::float(RedisString::string_as_slice(value)).filter(|rate| args::is_rate(*rate));
    if let Some(rate) = rate {
        store_rate(Context::new(null_mut()), rate);
        return OK;
    }
    let text: CString = c_text("error rate must be a number inside (0, 1)");
    // SAFETY: the server passes the place for a string, which it frees.
    unsafe {
        if let Some(create) = raw::RedisModule_CreateString
            && !error.is_null()
        {
            *error = create(null_mut(), text.as_ptr(), text.as_bytes().len());
        }
    }
    ERR
}

/// The two callbacks of a whole number. Its range is checked by the server.
macro_rules! integer_callbacks {
    ($get:ident, $set:ident, $value:ident) => {
        unsafe extern "C" fn $get(_name: *const c_char, _data: *mut c_void) -> c_longlong {
            c_longlong::try_from($value.load(Ordering::Relaxed)).unwrap_or(c_longlong::MAX)
        }

        unsafe extern "C" fn $set(
            _name: *const c_char,
            value: c_longlong,
            _data: *mut c_void,
            _error: *mut *mut raw::RedisModuleString,
        ) -> c_int {
            match value.try_into() {
                Ok(value) => $value.store(value, Ordering::Relaxed),
                Err(_) => return ERR,
            }
            OK
        }
    };
}

integer_callbacks!(get_initial_size, set_initial_size, INITIAL_SIZE);
integer_callbacks!(get_expansion, set_expansion, EXPANSION_FACTOR);
integer_callbacks!(get_max_bytes, set_max_bytes, MAX_FILTER_BYTES);
