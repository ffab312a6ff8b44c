//! The server's events, and its requests for INFO. The server keeps one listener per module and event, the last that subscribed. So this
//! file subscribes to all events and calls every part of the module that an event concerns; those parts do not depend on this file.

use std::ffi::{CStr, c_int, c_void};

use redis_module::raw;

use super::api;
use super::context::{Context, OK};
use super::keys::{pending, snapshot};
use super::server::{ceiling, fork, huge_pages, role};
use super::{config, guard, metrics};

/// The events that the module follows.
const EVENTS: [u64; 10] = [
    raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
    raw::REDISMODULE_EVENT_REPLICA_CHANGE,
    raw::REDISMODULE_EVENT_LOADING,
    raw::REDISMODULE_EVENT_FLUSHDB,
    raw::REDISMODULE_EVENT_SWAPDB,
    raw::REDISMODULE_EVENT_REPL_ASYNC_LOAD,
    raw::REDISMODULE_EVENT_FORK_CHILD,
    raw::REDISMODULE_EVENT_PERSISTENCE,
    raw::REDISMODULE_EVENT_CONFIG,
    raw::REDISMODULE_EVENT_CRON_LOOP,
];

/// Subscribes to the requests for INFO and to the events. If the server refuses one of the events, the module assumes that any command may
/// come from a primary, and the guard grants no leases.
pub fn subscribe(context: Context) {
    api::register_info(context, Some(write_info));
    let subscribed = |id: &u64| {
        let event = raw::RedisModuleEvent { id: *id, dataver: 1 };
        api::subscribe_to_event(context, event, Some(on_server_event)) == OK
    };
    if EVENTS.iter().all(subscribed) {
        role::follow(context);
    }
}

/// The server calls this for each event, with a number for the change.
unsafe extern "C" fn on_server_event(
    context: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    change: u64,
    _data: *mut c_void,
) {
    let context = Context::new(context);
    match event.id {
        raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED => {
            let is_primary = change == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER;
            role::changed(context, is_primary);
            guard::end_all(context);
            // A replica's bits must contain every item that its primary has reported as added. So a replica flushes even while a child is
            // running, and flushes the rest when it becomes a primary.
            if is_primary {
                pending::flush_all(context);
            } else {
                pending::start_timer(context);
            }
        }
        raw::REDISMODULE_EVENT_REPLICA_CHANGE => guard::replication_changed(),
        raw::REDISMODULE_EVENT_LOADING => {
            let has_ended =
                change == raw::REDISMODULE_SUBEVENT_LOADING_ENDED || change == raw::REDISMODULE_SUBEVENT_LOADING_FAILED;
            role::loading_changed(context, !has_ended);
            guard::end_all(context);
        }
        // A database was emptied, two were swapped, or a new data set was loaded while the old one was served.
        raw::REDISMODULE_EVENT_FLUSHDB | raw::REDISMODULE_EVENT_SWAPDB | raw::REDISMODULE_EVENT_REPL_ASYNC_LOAD => {
            guard::end_all(context)
        }
        raw::REDISMODULE_EVENT_FORK_CHILD => {
            let child_lives = fork::child_changed(context);
            if !child_lives {
                pending::start_timer(context);
                huge_pages::child_has_exited();
            }
        }
        raw::REDISMODULE_EVENT_PERSISTENCE => {
            let in_foreground = change == raw::REDISMODULE_SUBEVENT_PERSISTENCE_SYNC_RDB_START
                || change == raw::REDISMODULE_SUBEVENT_PERSISTENCE_SYNC_AOF_START;
            snapshot::foreground_save_changed(in_foreground);
        }
        raw::REDISMODULE_EVENT_CONFIG => {
            ceiling::settings_changed(context);
            guard::replication_changed();
        }
        raw::REDISMODULE_EVENT_CRON_LOOP => {
            [&guard::TIMER, &pending::TIMER].iter().for_each(|timer| timer.restart_if_late(context));
        }
        _ => {}
    }
}

/// Writes the section of INFO. Crash reports omit it, because the crashed thread may hold the guard's lock.
unsafe extern "C" fn write_info(info: *mut raw::RedisModuleInfoCtx, for_crash_report: c_int) {
    if for_crash_report != 0 {
        return;
    }
    const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => c"",
    };
    let counts = guard::counts();
    let [_, negative_entries, _] = counts;
    let others = [c"bloom_leases", c"bloom_negative_entries", c"bloom_waiting"].into_iter().zip(counts);
    let others = others.chain([
        (c"bloom_max_filter_bytes", config::max_filter_bytes()),
        // The former names of two fields, for one release.
        (c"bloom_nones", negative_entries),
        (c"bloom_fetches_held", metrics::FETCHES_WAITING.get()),
    ]);
    // SAFETY: the server passes the section that the fields are added to.
    unsafe {
        api::add_info_section(info);
        api::add_info_text(info, c"version", VERSION);
        metrics::fields().chain(others).for_each(|(name, value)| api::add_info_number(info, name, value));
    }
}
