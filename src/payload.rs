//! Warns of a DUMP, and so of a MIGRATE, that no server takes: a payload that is larger than an argument may be is refused
//! by RESTORE, after both servers have worked on it for many seconds. The callback that saves a filter cannot refuse, so it
//! says in the log what to do instead.
//!
//! The server calls it for snapshots as well, in a child or, for SAVE and SHUTDOWN, itself. What it writes neither in a child
//! nor between the beginning and the end of a snapshot is a payload.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use redis_module::raw;

use super::context::{Context, LogLevel};

/// What a server takes as one argument by default (proto-max-bulk-len), in bytes.
const ARGUMENT_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// Whether the server writes a snapshot itself.
static WRITES_SNAPSHOT: AtomicBool = AtomicBool::new(false);

/// Begins to follow what the server writes.
pub fn register(context: Context) {
    let event = raw::RedisModuleEvent { id: raw::REDISMODULE_EVENT_PERSISTENCE, dataver: 1 };
    // SAFETY: the context is that of OnLoad; the callback is a function of the expected type.
    unsafe {
        if let Some(subscribe) = raw::RedisModule_SubscribeToServerEvent {
            subscribe(context.raw, event, Some(follow));
        }
    }
}

unsafe extern "C" fn follow(
    _context: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    stage: u64,
    _data: *mut c_void,
) {
    let begins = stage == raw::REDISMODULE_SUBEVENT_PERSISTENCE_SYNC_RDB_START
        || stage == raw::REDISMODULE_SUBEVENT_PERSISTENCE_SYNC_AOF_START;
    WRITES_SNAPSHOT.store(begins, Relaxed);
}

/// Takes note of a value that was saved in so many bytes.
pub fn saved(bytes: u64) {
    let context = Context::new(std::ptr::null_mut());
    if bytes > ARGUMENT_BYTES_MAX && !WRITES_SNAPSHOT.load(Relaxed) && !context.is_in_child() {
        context.log(
            LogLevel::Warning,
            format_args!(
                "bloomgate: DUMP or MIGRATE of a filter with {bytes} bytes to save may give more than RESTORE takes \
                 (proto-max-bulk-len, {ARGUMENT_BYTES_MAX} by default): replication, or BF.SCANDUMP and BF.LOADCHUNK, \
                 copy it in pieces"
            ),
        );
    }
}
