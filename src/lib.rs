//! A Bloom filter gate inside Redis and Valkey: a module that gives any client the BF.* commands.
//!
//! This crate is the only place that names the server's API. It turns a command's words into calls of the filter, which is
//! the crate [`bloomgate_filter`], and the answers into replies; it carries effects to replicas and the AOF, and gives the
//! filter its memory. A command's own file in `commands` reads as its story.

mod alloc;
mod args;
mod cache_key;
mod ceiling;
mod clock;
mod commands;
mod config;
mod context;
mod data_type;
mod defrag;
mod freeing;
mod guard;
mod information;
#[cfg(test)]
mod interleavings;
mod key;
mod machine;
mod metrics;
mod payload;
mod pending;
mod pending_list;
mod registration;
mod replicate;
mod reply;
mod rewrite;
mod role;
mod snapshot;
mod stored;
mod text;

use std::ffi::{CStr, c_char, c_int};

use bloomgate_filter::hash::murmur3;
use redis_module::raw;

use args::Args;
use context::{Context, ERR, LogLevel, OK};

/// The locks and atomics of [`pending_list`], in whose place its tests put those of a model checker.
mod sync {
    pub use std::sync::atomic::{AtomicU32, Ordering};
    pub use std::sync::{Mutex, MutexGuard, PoisonError};
}

/// The name under which clients find the module: RedisBloom's, so that those that look for it find it.
const NAME: &CStr = c"bf";
/// The level of commands that we match, RedisBloom's 8.0.0: clients gate features on it. Our own version is in the log.
const LEVEL: c_int = 80000;
/// The oldest server: 7.0.0, the first with configurations of modules.
const SERVER_MIN: c_int = 0x0007_0000;

/// Valkey's module option by which a module says that CLUSTER MIGRATESLOTS may carry its keys: it waits for no event of
/// its own when slots come or go. Without it a node with the module takes part in no such migration. To Redis the bit
/// means something else, or nothing.
const VALKEY_HANDLES_ATOMIC_SLOT_MIGRATION: u32 = 1 << 5;

/// What the server calls when it loads the module.
///
/// # Safety
/// Only the server may call it, with its context and the words after the path in `loadmodule`.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the server looks for this name")]
pub unsafe extern "C" fn RedisModule_OnLoad(
    raw: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    let context = Context::new(raw);
    // SAFETY: the server's context, as the caller promises. It fills in the server's functions, before anything of ours
    // is allocated.
    let named = unsafe {
        raw::Export_RedisModule_InitAPI(raw);
        raw::Export_RedisModule_Init(
            raw,
            NAME.as_ptr().cast::<c_char>(),
            LEVEL,
            raw::REDISMODULE_APIVER_1.cast_signed(),
        )
    };
    // SAFETY: the caller's promise.
    let words = unsafe { Args::new(argv, argc) };
    let loaded = if named == OK {
        load(context, words)
    } else {
        Err("another module with the name 'bf' is loaded (RedisBloom? valkey-bloom?): load one of them only".to_owned())
    };
    match loaded {
        Ok(()) => {
            let version = env!("CARGO_PKG_VERSION");
            context.log(LogLevel::Notice, format_args!("bloomgate {version}: Bloom filters are ready, BF.* commands"));
            OK
        }
        Err(reason) => {
            config::forget_texts();
            context.log(LogLevel::Warning, format_args!("bloomgate is not loaded: {reason}"));
            ERR
        }
    }
}

fn load(context: Context, words: Args<'_>) -> Result<(), String> {
    check_server()?;
    if !murmur3::equals_the_crate() {
        return Err("the hash comes out wrong on this machine: filters would deny what is in them".to_owned());
    }
    let mut options = raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS
        | raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD
        | raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED;
    if is_valkey(context) {
        options |= VALKEY_HANDLES_ATOMIC_SLOT_MIGRATION;
    }
    // SAFETY: the context is that of OnLoad.
    unsafe {
        if let Some(set) = raw::RedisModule_SetModuleOptions {
            set(context.raw, options.cast_signed());
        }
    }
    config::take_load_words(context, words)?;
    data_type::register(context)?;
    let has_category = registration::add_category(context);
    for command in commands::COMMANDS {
        registration::register(context, command, has_category)?;
    }
    freeing::register();
    stored::begin_generations(context);
    ceiling::count_databases(context);
    metrics::register(context);
    payload::register(context);
    pending::register(context);
    role::register(context);
    config::register(context)
}

/// Whether the server is Valkey.
pub(crate) fn is_valkey(context: Context) -> bool {
    valkey_version(context).is_some()
}

/// The version of a Valkey server, which calls itself Redis 7.2.4 to modules: it alone has `valkey_version` in INFO. The
/// server writes a section of INFO for this: it is for the start, not for every command.
pub(crate) fn valkey_version(context: Context) -> Option<[u32; 3]> {
    // SAFETY: the names are C strings; what the server gives is read while it is there and freed once.
    unsafe {
        let info = raw::RedisModule_GetServerInfo.map(|info| info(context.raw, c"server".as_ptr()))?;
        let text = raw::RedisModule_ServerInfoGetFieldC.map(|read| read(info, c"valkey_version".as_ptr()));
        let version = text.filter(|text| !text.is_null()).map(|text| numbers(CStr::from_ptr(text).to_bytes()));
        if let Some(free) = raw::RedisModule_FreeServerInfo {
            free(context.raw, info);
        }
        version
    }
}

/// The numbers of a version such as `8.1.8`; 0 for what is missing or no number.
fn numbers(version: &[u8]) -> [u32; 3] {
    let mut parts = version.split(|byte| *byte == b'.').map(|part| std::str::from_utf8(part).ok()?.parse().ok());
    [(); 3].map(|()| parts.next().flatten().unwrap_or(0))
}

fn check_server() -> Result<(), String> {
    // SAFETY: the function takes nothing.
    new_enough(unsafe { raw::RedisModule_GetServerVersion.map(|version| version()) })
}

fn new_enough(version: Option<c_int>) -> Result<(), String> {
    match version {
        Some(version) if version >= SERVER_MIN => Ok(()),
        Some(version) => {
            let [_, major, minor, patch] = version.to_be_bytes();
            Err(format!("Redis 7.0 or Valkey is needed, this server is {major}.{minor}.{patch}"))
        }
        None => Err("Redis 7.0 or Valkey is needed, this server is older than 6.2".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::{new_enough, numbers};

    #[test]
    fn a_version_is_read() {
        assert_eq!(numbers(b"8.1.8"), [8, 1, 8]);
        assert_eq!(numbers(b"10.0"), [10, 0, 0]);
        assert_eq!(numbers(b"9.1.x"), [9, 1, 0]);
    }

    #[test]
    fn servers_below_7_are_refused_with_their_version() {
        for version in [0x0007_0000, 0x0007_000f, 0x0007_0204, 0x0008_0001, 0x0009_0000] {
            assert_eq!(new_enough(Some(version)), Ok(()));
        }
        for (version, shown) in [(0x0006_020e, "6.2.14"), (0x0006_0009, "6.0.9")] {
            let refusal = new_enough(Some(version)).unwrap_err();
            assert_eq!(refusal, format!("Redis 7.0 or Valkey is needed, this server is {shown}"));
        }
        assert!(new_enough(None).unwrap_err().contains("Redis 7.0 or Valkey is needed"));
    }
}
