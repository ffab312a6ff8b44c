//! Timers of the module that keep to the monotonic clock, and that clock.
//!
//! The server's timers follow its wall clock. After that is set back by an hour, for instance on a resumed virtual machine, a timer set for
//! a millisecond fires an hour late. So `events.rs` checks every timer ten times a second, as often as the server raises the event of its
//! cron, and restarts those that are late. After a step forward a timer fires early: its callback finds nothing due and sets it again.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use redis_module::raw;

use crate::api;
use crate::context::Context;

/// A time of the monotonic clock, in milliseconds since the first call of [`now`].
pub type Milliseconds = u64;

/// The longest period of a timer, in milliseconds. Redis 7.0 counts the microseconds in 32 bits: with a timer of 36 minutes its event loop
/// never sleeps.
const PERIOD_MAX: Milliseconds = 30 * 60 * 1000;
const _: () = assert!(PERIOD_MAX * 1000 <= i32::MAX as u64, "Redis 7.0 takes this for a time in the past");

/// The time.
pub fn now() -> Milliseconds {
    static BEGIN: OnceLock<std::time::Instant> = OnceLock::new();
    u64::try_from(BEGIN.get_or_init(std::time::Instant::now).elapsed().as_millis()).unwrap_or(Milliseconds::MAX)
}

/// The time for which a timer is set, and the server's id of it.
type Setting = (Milliseconds, raw::RedisModuleTimerID);

/// A timer of the server. The server calls nothing of the module when a timer is set or stopped, so the lock may be held across those
/// calls.
pub struct Timer {
    callback: raw::RedisModuleTimerProc,
    setting: Mutex<Option<Setting>>,
}

impl Timer {
    /// A timer that is not set. The callback must call [`has_fired`](Self::has_fired) first.
    pub const fn new(callback: raw::RedisModuleTimerProc) -> Self {
        Self { callback, setting: Mutex::new(None) }
    }

    /// Sets the timer to a time, unless it is already set to an earlier one. If the time is more than half an hour away, the timer fires
    /// earlier.
    pub fn set(&self, context: Context, at: Milliseconds) {
        let mut setting = self.lock();
        if setting.is_none_or(|(earlier, _)| earlier > at) {
            self.start(context, &mut setting, at);
        }
    }

    /// Restarts the timer if it is late. A timer without a number was not started by the server.
    pub fn restart_if_late(&self, context: Context) {
        let (mut setting, now) = (self.lock(), now());
        if setting.is_some_and(|(at, number)| at < now && number != 0) {
            self.start(context, &mut setting, now);
        }
    }

    /// Records that the timer has fired and is no longer set.
    pub fn has_fired(&self) {
        *self.lock() = None;
    }

    fn start(&self, context: Context, setting: &mut Option<Setting>, at: Milliseconds) {
        if let Some((_, number)) = setting.take() {
            api::stop_timer(context, number);
        }
        let now = now();
        let period = at.saturating_sub(now).min(PERIOD_MAX);
        let number = api::create_timer(context, period.cast_signed(), self.callback);
        *setting = Some((now.saturating_add(period), number));
    }

    fn lock(&self) -> MutexGuard<'_, Option<Setting>> {
        self.setting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
