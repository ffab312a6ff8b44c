//! Adds that pend while a child of the server lives: when they may, and who writes them into the bits afterwards.
//!
//! A child shares the server's memory until one of both writes to a page. So from the server's event on that a child was born,
//! new adds to large layers wait in sets of their own. When it has died, a timer writes them into the bits, in steps of a
//! quarter of a millisecond, and every write to such a filter writes some more.
//!
//! The timer reaches values by a list, under a lock: a value is freed by any thread, and leaves the list before. In a child
//! nothing here is touched: the lock may be held there for ever.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bloomgate_filter::{Filter, Value};
use redis_module::raw;

use super::context::Context;
use super::freeing;
use super::stored::{Stored, Writer};

/// Layers from this size on let adds pend: smaller ones have few pages to be copied.
const FROM_BYTES: u64 = 4 << 20;
/// How long the timer writes at a time.
const STEP: Duration = Duration::from_micros(250);
/// How many adds it writes before it looks at the time: 20 to 150 microseconds.
const STEP_ADDS: usize = 64;
/// From one of its steps to the next, in milliseconds.
const PERIOD: raw::mstime_t = 1;
/// As many adds as a command adds itself does it write besides, within these bounds: 2 to 500 microseconds.
const BESIDE_MIN: usize = 2;
const BESIDE_MAX: usize = 512;

/// Whether a child lives. The event that one was born comes for the debugger of scripts, too, whose children end without one:
/// so it is no number.
static CHILD_LIVES: AtomicBool = AtomicBool::new(false);
/// Whether the timer runs.
static TIMER_RUNS: AtomicBool = AtomicBool::new(false);

/// Begins to follow the server's children.
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
    change: u64,
    _data: *mut c_void,
) {
    let context = Context::new(context);
    let lives = change == raw::REDISMODULE_SUBEVENT_FORK_CHILD_BORN && context.has_child();
    CHILD_LIVES.store(lives, Relaxed);
    if !lives {
        start_timer(context);
    }
}

/// A replica has in its bits what its primary says was added: it finds all that the primary finds.
pub fn became_replica(context: Context) {
    start_timer(context);
}

/// From how many bytes on a layer may let adds of a command pend; nothing where they are written. They are where the server is
/// above its limit, so that it does not evict for their sake.
#[inline]
pub fn from_bytes(context: Context) -> Option<u64> {
    let may_pend = CHILD_LIVES.load(Relaxed) && context.may_pend() && !freeing::is_above_maxmemory();
    may_pend.then_some(FROM_BYTES)
}

/// Whether what pends may be written: the first write to a page would copy it while a child lives.
fn may_merge(context: Context) -> bool {
    !freeing::is_child() && (!context.has_child() || !context.is_primary())
}

/// Writes some of what pends in a filter, when a command has written so many items to it.
#[inline]
pub fn merge_beside(context: Context, filter: &mut Filter, items: usize) {
    if filter.pends() && may_merge(context) {
        filter.merge_pending(items.clamp(BESIDE_MIN, BESIDE_MAX));
    }
}

/// Where a value is in the list.
pub struct Listed(AtomicU32);

impl Listed {
    const NOWHERE: u32 = u32::MAX;

    /// Of a value that is not in it.
    pub const fn none() -> Self {
        Self(AtomicU32::new(Self::NOWHERE))
    }

    fn place(&self) -> Option<usize> {
        let place = self.0.load(Relaxed);
        if place == Self::NOWHERE { None } else { usize::try_from(place).ok() }
    }

    fn set(&self, place: usize) {
        self.0.store(u32::try_from(place).unwrap_or(Self::NOWHERE), Relaxed);
    }
}

/// The values in which adds pend, or did not long ago.
struct List(Vec<NonNull<Stored>>);

// SAFETY: whoever has the lock may follow the pointers: each value leaves the list before it is freed, under the lock.
unsafe impl Send for List {}

static LIST: Mutex<List> = Mutex::new(List(Vec::new()));

impl List {
    /// The list, which no child of the server may touch.
    fn lock() -> MutexGuard<'static, Self> {
        LIST.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes out what is in a place; the last comes there.
    fn remove(&mut self, place: usize) {
        if place < self.0.len() {
            self.listed(place).set(usize::MAX);
            self.0.swap_remove(place);
        }
        if place < self.0.len() {
            self.listed(place).set(place);
        }
    }

    fn listed(&self, place: usize) -> &Listed {
        static NOBODY: Listed = Listed::none();
        // SAFETY: the value lives; its place is an atomic, which nobody borrows to change.
        self.0.get(place).map_or(&NOBODY, |value| unsafe { &(*value.as_ptr()).listed })
    }
}

/// Puts a value into the list. Where there is no memory for that, only its own writes write what pends in it.
#[cold]
pub fn list(value: NonNull<Stored>, listed: &Listed) {
    if listed.place().is_some() || freeing::is_child() {
        return;
    }
    let mut list = List::lock();
    if list.0.try_reserve(1).is_ok() {
        listed.set(list.0.len());
        list.0.push(value);
    }
}

/// Takes a value out of the list, if it is there: it may be freed then.
#[inline]
pub fn unlist(listed: &Listed) {
    if listed.place().is_some() && !freeing::is_child() {
        let mut list = List::lock();
        if let Some(place) = listed.place() {
            list.remove(place);
        }
    }
}

/// Takes note of where a value is that was moved.
pub fn moved(value: NonNull<Stored>) {
    // SAFETY: the caller has just moved it.
    if let Some(place) = unsafe { value.as_ref() }.listed.place()
        && let Some(place) = List::lock().0.get_mut(place)
    {
        *place = value;
    }
}

fn start_timer(context: Context) {
    if List::lock().0.is_empty() || TIMER_RUNS.swap(true, Relaxed) {
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
    // A child that was born meanwhile starts it again when it dies.
    if may_merge(context) {
        merge_for(STEP);
        start_timer(context);
    }
}

/// Writes what pends, as long as that.
fn merge_for(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        let mut list = List::lock();
        let Some(last) = list.0.len().checked_sub(1) else { return };
        let Some(value) = list.0.get(last).copied() else { return };
        // SAFETY: the value lives as long as it is in the list, which is locked. This is the thread of the commands, and none of
        // them is running.
        let mut writer = unsafe { Writer::new(value) };
        let merged = match &mut *writer {
            Value::Filter(filter) => filter.merge_pending(STEP_ADDS),
            Value::Arriving(_) => 0,
        };
        drop(writer);
        if merged == 0 {
            list.remove(last);
        }
    }
}
