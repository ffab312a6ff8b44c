//! When adds may be pending, and the timer that flushes them.
//!
//! A forked child of the server shares the server's memory: the first write to a page after the fork copies the page. So while a
//! child lives, new adds to large layers go into a set beside the layer instead of its bits. After the child has died, a timer
//! flushes them into the bits in steps of a quarter of a millisecond, and every write to such a filter flushes some more.
//!
//! All of this runs on the thread of the commands. The list through which the timer finds the values is in `stored.rs`: other
//! threads free values.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bloomgate_filter::Filter;
use redis_module::raw;

use super::context::Context;
use super::freeing;
use super::stored;

/// Adds to layers of this size or more may be pending. Smaller layers have few pages to copy.
const FROM_BYTES: u64 = 4 << 20;
/// How long the timer flushes at a time.
const STEP: Duration = Duration::from_micros(250);
/// How many adds the timer flushes before it reads the clock again: 20 to 150 microseconds.
const STEP_ADDS: usize = 64;
/// The time between two steps, in milliseconds.
const PERIOD: raw::mstime_t = 1;
/// A command that writes `n` items flushes `n` pending adds as well, within these bounds: 2 to 500 microseconds.
const BESIDE_MIN: usize = 2;
const BESIDE_MAX: usize = 512;

/// Whether a child lives. Not a count: the script debugger's children raise an event when they are born, but none when they die.
static CHILD_LIVES: AtomicBool = AtomicBool::new(false);
/// Whether the timer is set.
static TIMER_RUNS: AtomicBool = AtomicBool::new(false);

/// Subscribes to the births and deaths of the server's children.
pub fn register(context: Context) {
    let event = raw::RedisModuleEvent { id: raw::REDISMODULE_EVENT_FORK_CHILD, dataver: 1 };
    // SAFETY: the context is that of OnLoad; the callback is a function of the expected type.
    unsafe {
        if let Some(subscribe) = raw::RedisModule_SubscribeToServerEvent {
            subscribe(context.raw, event, Some(child_changed));
        }
    }
}

unsafe extern "C" fn child_changed(
    context: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _change: u64,
    _data: *mut c_void,
) {
    let context = Context::new(context);
    let lives = context.has_child();
    CHILD_LIVES.store(lives, Relaxed);
    if !lives {
        start_timer(context);
    }
}

/// Starts to flush, even while a child lives: a replica has in its bits whatever its primary says was added, so that it finds
/// all that the primary finds.
pub fn became_replica(context: Context) {
    start_timer(context);
}

/// The layer size in bytes from which adds of a command may be pending; `None` if the command writes all of its adds to the
/// bits. That includes a server above maxmemory, which would otherwise evict keys to make room for pending adds.
#[inline]
pub fn from_bytes(context: Context) -> Option<u64> {
    let may_pend = CHILD_LIVES.load(Relaxed) && context.may_pend() && !freeing::is_above_maxmemory();
    may_pend.then_some(FROM_BYTES)
}

/// Whether pending adds may be flushed. While a child lives only a replica flushes, though every page that it writes is copied.
fn may_flush(context: Context) -> bool {
    !context.has_child() || !context.is_primary()
}

/// Flushes some pending adds of a filter to which a command has written `items` items.
#[inline]
pub fn flush_beside(context: Context, filter: &mut Filter, items: usize) {
    if filter.pends() && may_flush(context) {
        filter.merge_pending(items.clamp(BESIDE_MIN, BESIDE_MAX));
    }
}

fn start_timer(context: Context) {
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
    // If a child was born meanwhile, its death starts the timer again.
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
