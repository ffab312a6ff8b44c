//! The server's events that may make a cached value, a value that is being loaded, or a NONE outdated.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use redis_module::raw;

use super::{end, end_all, is_idle, key_id};
use crate::args::Arg;
use crate::context::{Context, OK};
use crate::role;

/// Everything that clients do to keys. Not among it: that a key expired or was evicted, was asked for in vain, was loaded.
const CHANGES: c_int = raw::REDISMODULE_NOTIFY_GENERIC
    | raw::REDISMODULE_NOTIFY_STRING
    | raw::REDISMODULE_NOTIFY_LIST
    | raw::REDISMODULE_NOTIFY_SET
    | raw::REDISMODULE_NOTIFY_HASH
    | raw::REDISMODULE_NOTIFY_ZSET
    | raw::REDISMODULE_NOTIFY_STREAM
    | raw::REDISMODULE_NOTIFY_MODULE;

/// Emptied databases, swapped databases, a new data set beside the old one. A change of role and a new data set are told by
/// [`role`]: of an event a module has one listener, the last.
const EVENTS: [u64; 3] =
    [raw::REDISMODULE_EVENT_FLUSHDB, raw::REDISMODULE_EVENT_SWAPDB, raw::REDISMODULE_EVENT_REPL_ASYNC_LOAD];

/// Subscribes with the first lease. Answers whether the server tells what it has to.
pub fn subscribe(context: Context) -> bool {
    static IS_SUBSCRIBED: AtomicBool = AtomicBool::new(false);
    if IS_SUBSCRIBED.load(Relaxed) {
        return true;
    }
    if !role::is_followed() {
        return false;
    }
    // SAFETY: the callbacks are functions; the context is valid while the command runs.
    let subscribed = unsafe {
        let (Some(keys), Some(server)) =
            (raw::RedisModule_SubscribeToKeyspaceEvents, raw::RedisModule_SubscribeToServerEvent)
        else {
            return false;
        };
        EVENTS.iter().all(|id| {
            let event = raw::RedisModuleEvent { id: *id, dataver: 1 };
            server(context.raw, event, Some(server_changed)) == OK
        }) && keys(context.raw, CHANGES, Some(key_changed)) == OK
    };
    IS_SUBSCRIBED.store(subscribed, Relaxed);
    subscribed
}

unsafe extern "C" fn key_changed(
    context: *mut raw::RedisModuleCtx,
    _: c_int,
    event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the event is a C string.
    if !is_idle() && unsafe { CStr::from_ptr(event) } != c"expire" {
        // SAFETY: the key's name lives until this returns.
        let name = unsafe { Arg::of(&key) };
        let context = Context::new(context);
        end(context, key_id(context, name));
    }
    OK
}

unsafe extern "C" fn server_changed(
    context: *mut raw::RedisModuleCtx,
    _: raw::RedisModuleEvent,
    _: u64,
    _: *mut c_void,
) {
    end_all(Context::new(context));
}
