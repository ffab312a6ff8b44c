//! The Redis and Valkey module: Bloom filters for any client, by the BF.* commands.
//!
//! Only this crate uses the server's API. It parses commands, calls the filter (the crate [`bloomgate_filter`]) and replies, propagates
//! effects to replicas and the AOF, stores filters in keys, and allocates from the server's allocator. Each group of
//! commands has a file in `commands`.

mod alloc;
mod api;
mod args;
mod commands;
mod config;
mod context;
mod events;
mod guard;
mod keys;
mod metrics;
mod registration;
mod replicate;
mod reply;
mod server;
mod server_info;

use std::ffi::{CStr, c_char, c_int};

use args::Args;
use bloomgate_filter::hash::murmur3;
use context::{Context, ERR, LogLevel, OK};
use keys::data_type;
use redis_module::raw;
use server::{ceiling, duplicate, freeing};

/// The module's name: RedisBloom's, because clients look for it.
const NAME: &CStr = c"bf";
/// The version that clients see, by which they choose features: 8.0.0, the RedisBloom whose commands the module matches. Our own version is
/// in the log.
const LEVEL: c_int = 80000;

/// Valkey's option for modules whose keys CLUSTER MIGRATESLOTS may move. A node with a module that does not set it cannot take part in
/// such a migration. In Redis the bit has another meaning, or none.
const VALKEY_HANDLES_ATOMIC_SLOT_MIGRATION: u32 = 1 << 5;

/// The server calls this when it loads the module.
///
/// # Safety
/// Only the server may call it, with its context and the arguments after the path in `loadmodule`.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the server looks for this name")]
pub unsafe extern "C" fn RedisModule_OnLoad(
    raw: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    let context = Context::new(raw);
    // SAFETY: the server's context, as the caller promises. The calls fill in the server's functions, before this
    // module allocates anything.
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
    let loaded = if named == OK { load(context, words) } else { duplicate::ignore(context, NAME, LEVEL, words) };
    match loaded {
        Ok(()) => OK,
        Err(reason) => {
            context.log(LogLevel::Warning, format_args!("bloomgate is not loaded: {reason}"));
            ERR
        }
    }
}

/// Registers the module with the server.
fn load(context: Context, words: Args<'_>) -> Result<(), String> {
    register(context, words).inspect_err(|_| config::forget_strings())?;
    duplicate::record_load();
    let version = env!("CARGO_PKG_VERSION");
    context.log(LogLevel::Notice, format_args!("bloomgate {version}: Bloom filters are ready, BF.* commands"));
    Ok(())
}

fn register(context: Context, words: Args<'_>) -> Result<(), String> {
    server_info::check_version()?;
    if !murmur3::equals_the_crate() {
        return Err("the hash function returns wrong values on this machine: filters would report added items absent"
            .to_owned());
    }
    let mut options = raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS
        | raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD
        | raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED;
    if server_info::is_valkey(context) {
        options |= VALKEY_HANDLES_ATOMIC_SLOT_MIGRATION;
    }
    api::set_options(context, options.cast_signed());
    config::take_load_words(context, words)?;
    data_type::register(context)?;
    registration::register(context, commands::COMMANDS)?;
    freeing::register();
    keys::begin_generations(context);
    ceiling::settings_changed(context);
    events::subscribe(context);
    config::register(context)
}

/// Tests of the borrow rules: no key is written to while another is read, and no argument is used after it was replaced.
///
/// This module is public only for these examples, which are compiled as another crate and never run. Each example that must not compile has
/// the same lines as one that compiles, in another order.
///
/// Several keys may be open for reading together, and one for writing after them:
/// ```no_run
/// use bloomgate::borrows::{Arg, Keyspace, ReadKey, WriteKey};
///
/// fn command(keys: &mut Keyspace, one: Arg<'_>, other: Arg<'_>) {
///     let read = (ReadKey::open(keys, one), ReadKey::open(keys, other));
///     drop(read);
///     let written = WriteKey::open(keys, one);
///     drop(written);
/// }
/// ```
/// A key is not opened for writing while another one is open for reading:
/// ```compile_fail,E0502
/// use bloomgate::borrows::{Arg, Keyspace, ReadKey, WriteKey};
///
/// fn command(keys: &mut Keyspace, one: Arg<'_>, other: Arg<'_>) {
///     let read = (ReadKey::open(keys, one), ReadKey::open(keys, other));
///     let written = WriteKey::open(keys, one);
///     drop(read);
///     drop(written);
/// }
/// ```
/// Nor is a key opened for reading while one is open for writing:
/// ```compile_fail,E0502
/// use bloomgate::borrows::{Arg, Keyspace, ReadKey, WriteKey};
///
/// fn command(keys: &mut Keyspace, one: Arg<'_>, other: Arg<'_>) {
///     let written = WriteKey::open(keys, one);
///     let read = (ReadKey::open(keys, one), ReadKey::open(keys, other));
///     drop(read);
///     drop(written);
/// }
/// ```
/// An argument is used before the server replaces one:
/// ```no_run
/// use bloomgate::borrows::{Args, Context};
///
/// fn command(context: Context, mut args: Args<'_>) {
///     let length = args.arg(1).map_or(0, |word| word.bytes().len());
///     args.redact(context, length);
/// }
/// ```
/// It is not used after that:
/// ```compile_fail,E0502
/// use bloomgate::borrows::{Args, Context};
///
/// fn command(context: Context, mut args: Args<'_>) {
///     let word = args.arg(1);
///     args.redact(context, 1);
///     let length = word.map_or(0, |word| word.bytes().len());
/// }
/// ```
#[doc(hidden)]
pub mod borrows {
    pub use crate::args::{Arg, Args};
    pub use crate::context::Context;
    pub use crate::keys::{Keyspace, ReadKey, WriteKey};
}
