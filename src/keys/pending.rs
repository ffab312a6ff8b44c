//! Flushes pending adds. `children.rs` says when adds may be pending: while a forked child of the server is running. After the child
//! has exited, a timer flushes them into the bits, a tenth of a millisecond in each millisecond. New adds go to the bits then.
//!
//! All of this runs on the thread of the commands. The list through which the timer finds the values is in `stored.rs`: other
//! threads free values.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use redis_module::raw;

use super::stored;
use crate::context::Context;

/// How long the timer flushes at a time.
const STEP: Duration = Duration::from_micros(100);
/// How many adds the timer flushes before it reads the clock again: 10 to 75 microseconds.
const STEP_ADDS: usize = 32;
/// The time between two steps, in milliseconds.
const PERIOD: raw::mstime_t = 1;
/// Whether the timer is set.
static TIMER_RUNS: AtomicBool = AtomicBool::new(false);

/// Whether pending adds may be flushed. While a child is running only a replica flushes, although every page it writes is copied.
fn may_flush(context: Context) -> bool {
    !context.has_child() || !context.is_primary()
}

/// Starts the timer, unless nothing is pending or it is set already.
pub fn start_timer(context: Context) {
    if !stored::has_pending() || TIMER_RUNS.swap(true, Relaxed) {
        return;
    }
    // SAFETY: the context is one of the module's; the callback is a function of the expected type and takes no data.
    unsafe {
        if let Some(create) = raw::RedisModule_CreateTimer {
            create(context.raw, PERIOD, Some(tick), null_mut());
        }
    }
}

unsafe extern "C" fn tick(context: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    let context = Context::new(context);
    TIMER_RUNS.store(false, Relaxed);
    // If a child started meanwhile, its exit starts the timer again.
    if may_flush(context) {
        flush_for(STEP);
        start_timer(context);
    }
}

/// Flushes pending adds for about that long.
fn flush_for(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time && stored::flush_last(STEP_ADDS) {}
}
