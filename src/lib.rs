//! A Bloom filter gate inside Redis and Valkey: a module that gives any client the BF.* commands.
//!
//! This crate is the only place that names the server's API. It turns a command's words into calls of the filter, which is
//! the crate [`bloomgate_filter`], and the answers into replies; it carries effects to replicas and the AOF, and gives the
//! filter its memory. A command's own file in `commands` reads as its story.

mod alloc;
mod args;
mod clock;
mod commands;
mod config;
mod context;
mod events;
mod guard;
mod info_section;
mod information;
mod keys;
mod metrics;
mod registration;
mod replicate;
mod reply;
mod server;
mod text;
mod version;

use std::ffi::{CStr, c_char, c_int};

use bloomgate_filter::hash::murmur3;
use redis_module::raw;

use args::Args;
use context::{Context, ERR, LogLevel, OK};
use keys::data_type;
use server::{ceiling, freeing};

/// The name under which clients find the module: RedisBloom's, so that those that look for it find it.
const NAME: &CStr = c"bf";
/// The level of commands that we match, RedisBloom's 8.0.0: clients gate features on it. Our own version is in the log.
const LEVEL: c_int = 80000;

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
        Err("another module named 'bf' is already loaded (RedisBloom or valkey-bloom?): load only one".to_owned())
    };
    match loaded {
        Ok(()) => {
            let version = env!("CARGO_PKG_VERSION");
            context.log(LogLevel::Notice, format_args!("bloomgate {version}: Bloom filters are ready, BF.* commands"));
            OK
        }
        Err(reason) => {
            config::forget_strings();
            context.log(LogLevel::Warning, format_args!("bloomgate is not loaded: {reason}"));
            ERR
        }
    }
}

fn load(context: Context, words: Args<'_>) -> Result<(), String> {
    version::check()?;
    if !murmur3::equals_the_crate() {
        return Err("the hash comes out wrong on this machine: filters would deny what is in them".to_owned());
    }
    let mut options = raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS
        | raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD
        | raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED;
    if version::is_valkey(context) {
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
    keys::begin_generations(context);
    ceiling::count_databases(context);
    info_section::register(context);
    events::subscribe(context);
    config::register(context)
}
