//! Flushes pending adds. `server/fork.rs` decides when adds may be pending: while a forked child of the server is running. After the child
//! has exited, a timer flushes them into the bits, for a tenth of every millisecond. New adds are written to the bits from then on.
//!
//! The timer opens each key by its name, so a value may be moved, replaced or freed at any time, by any thread. The list of names may lack
//! a value: RENAME, MOVE or SWAPDB has moved it, or memory for its name ran out. If the list is empty and adds are pending, the timer
//! visits all keys in order to find them, in steps of the same length.
//!
//! A new primary answers 0 for an item whose bits all belong to other items, and replicates nothing. The old primary finds that item
//! only after it has flushed the other items. So a replica flushes even while a child is running, and a server that becomes a primary
//! flushes the rest at once, for ten seconds at most.

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bloomgate_filter::Value;
use redis_module::raw;

use super::key::{Keyspace, Pass, WriteKey};
use super::stored::{Stored, list_pending, take_pending};
use crate::api;
use crate::context::Context;
use crate::metrics;
use crate::server::timer::{self, Milliseconds, Timer};

/// How long the timer flushes at a time.
const STEP: Duration = Duration::from_micros(100);
/// How many adds the timer flushes before it reads the clock again: 10 to 75 microseconds.
const STEP_ADDS: usize = 32;
/// The time between two steps, in milliseconds.
const PERIOD: Milliseconds = 1;
/// The time to the next step if no key with pending adds is found: the server is still freeing the value, or does not open its key.
const IDLE_PERIOD: Milliseconds = 100;
/// How long a server that becomes a primary may flush before it answers commands; the timer flushes the rest. By default, Sentinel waits 30
/// s for a server that does not answer, and a cluster 15 s.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The timer.
pub static TIMER: Timer = Timer::new(Some(tick));

/// Finds the values that are not listed. Only the thread that has the server's lock uses it.
static PASS: Mutex<Pass> = Mutex::new(Pass::new());

fn pass() -> MutexGuard<'static, Pass> {
    PASS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the timer, unless nothing is pending.
pub fn start_timer(context: Context) {
    start_timer_in(context, PERIOD);
}

fn start_timer_in(context: Context, period: Milliseconds) {
    if metrics::PENDING.get() > 0 {
        TIMER.set(context, timer::now() + period);
    }
}

unsafe extern "C" fn tick(context: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    let context = Context::new(context);
    TIMER.has_fired();
    // While a child is running, only a replica flushes, although every page that it writes is copied. On a primary, the timer is started
    // again when the child exits.
    if !context.has_child() || !context.is_primary() {
        // SAFETY: the server calls this between commands. No key is open.
        let mut keys = unsafe { Keyspace::new(context) };
        let has_more = flush_for(&mut keys, STEP);
        start_timer_in(context, if has_more { PERIOD } else { IDLE_PERIOD });
    }
}

/// Flushes all pending adds before this server answers its first command as a primary. There are none unless it was a primary a moment ago,
/// too. On a busy machine with two processors this takes a second per million adds, and a second per million keys if values are not listed.
pub fn flush_all(context: Context) {
    if metrics::PENDING.get() == 0 {
        return;
    }
    pass().restart();
    let database = context.database();
    // SAFETY: the server changes its role outside of our commands. No key is open.
    let mut keys = unsafe { Keyspace::new(context) };
    flush_for(&mut keys, LONGEST_PAUSE);
    api::select_database(context, database);
}

/// Flushes pending adds for about this time. Returns whether to continue soon: false if no more are found.
fn flush_for(keys: &mut Keyspace, time: Duration) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < time {
        let Some((database, name)) = take_pending() else {
            if metrics::PENDING.get() == 0 || !pass().step(keys, list_if_pending) {
                return false;
            }
            continue;
        };
        let flush = |key: &mut WriteKey<'_>| {
            // A missing key, a key of another type, and a filter that is still arriving have no pending adds.
            let Ok(Some(mut writer)) = key.writer() else { return };
            let Value::Filter(filter) = &mut *writer else { return };
            while filter.flush_pending(STEP_ADDS) > 0 && begin.elapsed() < time {}
            // Dropping the writer lists the key again if adds remain.
        };
        if WriteKey::with_named(keys, database, &name, flush).is_err() {
            // The server refuses writes to the key now.
            list_pending(database, &name);
            break;
        }
    }
    true
}

fn list_if_pending(database: c_int, name: &[u8], stored: &Stored) {
    if stored.value.contents().pending_bytes > 0 {
        list_pending(database, name);
    }
}
