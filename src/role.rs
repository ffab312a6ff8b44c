//! Whether this server is a primary, and whether commands may come from its primary or its AOF, without asking it each time: its
//! answer about a context takes as long as half a lookup. The server's events say when that changes.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bloomgate_filter::kinds::Origin;
use redis_module::raw;

use super::context::{Context, OK};
use super::{guard, pending};

/// Whether the server tells of changes.
static IS_FOLLOWED: AtomicBool = AtomicBool::new(false);
/// Where it does not, it counts as no primary.
static IS_PRIMARY: AtomicBool = AtomicBool::new(false);
/// Whether this server is a replica, or loads, or does not tell.
static MAY_OBEY: AtomicBool = AtomicBool::new(true);

/// Takes note of the role, and begins to follow it, and when the server loads.
pub fn register(context: Context) {
    let follows = |id, callback| {
        let event = raw::RedisModuleEvent { id, dataver: 1 };
        // SAFETY: the context is that of OnLoad; the callbacks are functions of the expected type.
        unsafe {
            raw::RedisModule_SubscribeToServerEvent.is_some_and(|follow| follow(context.raw, event, callback) == OK)
        }
    };
    let follows_role = follows(raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, Some(role_changed));
    let follows_loading = follows(raw::REDISMODULE_EVENT_LOADING, Some(loads));
    IS_FOLLOWED.store(follows_role && follows_loading, Relaxed);
    if is_followed() {
        IS_PRIMARY.store(context.is_primary(), Relaxed);
        look(context);
    }
}

/// Whether the server tells when its role changes, and when it loads.
pub fn is_followed() -> bool {
    IS_FOLLOWED.load(Relaxed)
}

/// Whether this server is a primary.
#[inline]
pub fn is_primary() -> bool {
    IS_PRIMARY.load(Relaxed)
}

/// Where a command comes from that adds items.
#[inline]
pub fn origin(context: Context) -> Origin {
    if MAY_OBEY.load(Relaxed) { context.origin() } else { Origin::Client }
}

/// A node of a cluster may take over slots, and what another node's clients do to them meanwhile.
fn look(context: Context) {
    MAY_OBEY.store(!context.is_primary() || context.is_loading() || context.is_in_cluster(), Relaxed);
}

unsafe extern "C" fn role_changed(
    context: *mut raw::RedisModuleCtx,
    _: raw::RedisModuleEvent,
    role: u64,
    _: *mut c_void,
) {
    let context = Context::new(context);
    let is_primary = role == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER;
    IS_PRIMARY.store(is_primary, Relaxed);
    guard::end_all(context);
    if is_primary {
        look(context);
    } else {
        MAY_OBEY.store(true, Relaxed);
        pending::became_replica(context);
    }
}

unsafe extern "C" fn loads(context: *mut raw::RedisModuleCtx, _: raw::RedisModuleEvent, stage: u64, _: *mut c_void) {
    let context = Context::new(context);
    guard::end_all(context);
    match stage {
        raw::REDISMODULE_SUBEVENT_LOADING_ENDED | raw::REDISMODULE_SUBEVENT_LOADING_FAILED => look(context),
        _ => MAY_OBEY.store(true, Relaxed),
    }
}
