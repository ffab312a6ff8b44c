//! Whether this server is a primary, without asking it each time: its answer about a context takes as long as half a lookup.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use redis_module::raw;

use super::context::{Context, OK};

static IS_PRIMARY: AtomicBool = AtomicBool::new(false);

/// Takes note of the role, and begins to follow it. Where the server does not tell of changes, it counts as no primary.
pub fn register(context: Context) {
    let event = raw::RedisModuleEvent { id: raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, dataver: 1 };
    // SAFETY: the context is that of OnLoad; the callback is a function of the expected type.
    let follows = unsafe {
        raw::RedisModule_SubscribeToServerEvent.is_some_and(|follow| follow(context.raw, event, Some(changed)) == OK)
    };
    IS_PRIMARY.store(follows && context.is_primary(), Relaxed);
}

/// Whether this server is a primary.
#[inline]
pub fn is_primary() -> bool {
    IS_PRIMARY.load(Relaxed)
}

unsafe extern "C" fn changed(_: *mut raw::RedisModuleCtx, _: raw::RedisModuleEvent, role: u64, _: *mut c_void) {
    IS_PRIMARY.store(role == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER, Relaxed);
}
