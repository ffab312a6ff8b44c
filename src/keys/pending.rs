//! Flushes pending adds. `role.rs` says when adds may be pending: while a forked child of the server is running. After the child
//! has exited, a timer flushes them into the bits, a tenth of a millisecond in each millisecond. New adds go to the bits then.
//!
//! The timer opens each key by its name, so a value may be moved, replaced or freed at any time, by any thread. A value that is not
//! found under its listed name is flushed once it is written to: the timer runs as long as anything is pending.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bloomgate_filter::Value;
use redis_module::raw;

use super::key::{Keyspace, WriteKey};
use super::stored::{list_pending, take_pending};
use crate::api;
use crate::context::Context;
use crate::metrics;

/// How long the timer flushes at a time.
const STEP: Duration = Duration::from_micros(100);
/// How many adds the timer flushes before it reads the clock again: 10 to 75 microseconds.
const STEP_ADDS: usize = 32;
/// The time between two steps, in milliseconds.
const PERIOD: raw::mstime_t = 1;
/// The time to the next step if no key is listed.
const IDLE_PERIOD: raw::mstime_t = 100;
/// Whether the timer is set.
static TIMER_RUNS: AtomicBool = AtomicBool::new(false);

/// Starts the timer, unless nothing is pending or it is set already.
pub fn start_timer(context: Context) {
    start_timer_in(context, PERIOD);
}

fn start_timer_in(context: Context, period: raw::mstime_t) {
    if metrics::PENDING.get() == 0 || TIMER_RUNS.swap(true, Relaxed) {
        return;
    }
    api::create_timer(context, period, Some(tick));
}

unsafe extern "C" fn tick(context: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    let context = Context::new(context);
    TIMER_RUNS.store(false, Relaxed);
    // While a child is running only a replica flushes, although every page that it writes is copied. Otherwise the exit of a child that
    // started meanwhile starts the timer again.
    if !context.has_child() || !context.is_primary() {
        // SAFETY: the server calls this between commands. No key is open.
        let mut keys = unsafe { Keyspace::new(context) };
        let has_more = flush_for(&mut keys, STEP);
        start_timer_in(context, if has_more { PERIOD } else { IDLE_PERIOD });
    }
}

/// Flushes the pending adds of the listed keys for about that long. Returns whether a key is listed.
fn flush_for(keys: &mut Keyspace, time: Duration) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < time {
        let Some((database, name)) = take_pending() else { return false };
        let flush = |key: &mut WriteKey<'_>| {
            // A missing key, one of another type, and one whose filter is still arriving have none.
            let Ok(Some(mut writer)) = key.writer() else { return };
            let Value::Filter(filter) = &mut *writer else { return };
            while filter.flush_pending(STEP_ADDS) > 0 && begin.elapsed() < time {}
            // Dropping the writer lists the key again if adds are left.
        };
        if WriteKey::with_named(keys, database, &name, flush).is_err() {
            // The server does not let the key be written now.
            list_pending(database, &name);
            break;
        }
    }
    true
}
