//! Clients that wait: they are blocked and woken by the server. Their time is kept by a timer of ours, not by the server's
//! time-out: that one leaves a client without an answer that was woken a moment before.

use std::collections::TryReserveError;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

use redis_module::raw;

use super::alarm::Due;
use super::table::{CacheKeyId, Instant};
use super::waiting::{Left, Waiter};
use super::{now, with};
use crate::context::Context;

/// The server's timer for the alarm: when it goes off, and its number. To set and to stop a timer calls nothing of ours, so
/// this lock may be held meanwhile.
static TIMER: Mutex<Option<(Instant, raw::RedisModuleTimerID)>> = Mutex::new(None);

/// Blocks the client until it is woken, which is after so many milliseconds at the latest; then the server calls `again`, with
/// the words of the command. `unblocked` is called instead where somebody unblocks it by hand. Answers whether it is blocked:
/// not where there is no memory for that.
pub fn wait(
    context: Context,
    key: CacheKeyId,
    milliseconds: u64,
    again: raw::RedisModuleCmdFunc,
    unblocked: raw::RedisModuleCmdFunc,
) -> bool {
    // SAFETY: the context is that of a client's command, outside of MULTI and scripts; the callbacks are functions.
    let client = unsafe {
        let Some(block) = raw::RedisModule_BlockClient else { return false };
        block(context.raw, again, unblocked, None, 0)
    };
    if client.is_null() {
        return false;
    }
    let now = now();
    let end = now.saturating_add(milliseconds);
    let joined = with(|guard| {
        let is_first = !guard.queues.has(key);
        let ticket = guard.queues.join(key, client as Waiter)?;
        if is_first && let Some(end) = guard.table.lease_end(key, now) {
            guard.alarm.push(end, Due::Lease(key))?;
        }
        guard.alarm.push(end, Due::Waiter(client as Waiter, ticket))?;
        guard.tidy_alarm(now);
        Ok::<_, TryReserveError>(())
    });
    if joined.is_err() {
        with(|guard| guard.queues.leave(client as Waiter));
        // SAFETY: the client was blocked a moment ago, and nobody else knows of it.
        unsafe {
            if let Some(abort) = raw::RedisModule_AbortBlock {
                abort(client);
            }
        }
        return false;
    }
    // SAFETY: the client is blocked.
    unsafe {
        if let Some(set) = raw::RedisModule_SetDisconnectCallback {
            set(client, Some(disconnected));
        }
    }
    set_alarm(context);
    true
}

/// The client of this context, which is blocked no longer, leaves its queue.
pub fn waiter_left(context: Context) -> Option<Left> {
    // SAFETY: the context is that of a callback of a blocked client.
    let client = unsafe { raw::RedisModule_GetBlockedClientHandle.map(|handle| handle(context.raw))? };
    let left = with(|guard| guard.queues.leave(client as Waiter))?;
    if !left.was_woken {
        wake(client as Waiter);
    }
    Some(left)
}

/// A client that waits has gone.
unsafe extern "C" fn disconnected(_: *mut raw::RedisModuleCtx, client: *mut raw::RedisModuleBlockedClient) {
    let Some(left) = with(|guard| guard.queues.leave(client as Waiter)) else { return };
    if !left.was_woken {
        wake(client as Waiter);
    }
    if left.had_turn {
        give_turn(left.key);
    }
}

/// Gives the server a blocked client back. It calls what is to be called then, if the client is still there.
fn wake(waiter: Waiter) {
    // SAFETY: the handle is that of a blocked client which was not given back before: who is woken is marked so.
    unsafe {
        if let Some(unblock) = raw::RedisModule_UnblockClient {
            unblock(waiter as *mut raw::RedisModuleBlockedClient, null_mut());
        }
    }
}

/// Wakes the one who waited longest for a cache key, to load its value; not where somebody has been woken for that.
pub fn give_turn(key: CacheKeyId) {
    if let Some(waiter) = with(|guard| guard.queues.give_turn(key)) {
        wake(waiter);
    }
}

/// Wakes all who wait for a cache key.
pub fn wake_all(key: CacheKeyId) {
    while let Some(waiter) = with(|guard| guard.queues.wake_next(key)) {
        wake(waiter);
    }
}

/// Sets the timer for what is due next, where it is not set for that or for something before.
pub fn set_alarm(context: Context) {
    let Some(at) = with(|guard| guard.alarm.next()) else { return };
    let mut timer = TIMER.lock().unwrap_or_else(PoisonError::into_inner);
    if timer.is_some_and(|(set, _)| set <= at) {
        return;
    }
    // SAFETY: the timer is ours and has not gone off: that takes it out. The callback is a function.
    unsafe {
        if let (Some((_, number)), Some(stop)) = (timer.take(), raw::RedisModule_StopTimer) {
            stop(context.raw, number, null_mut());
        }
        if let Some(create) = raw::RedisModule_CreateTimer {
            let period = i64::try_from(at.saturating_sub(now())).unwrap_or(i64::MAX).min(TIMER_MAX);
            *timer = Some((at, create(context.raw, period, Some(went_off), null_mut())));
        }
    }
}

/// The longest that the timer is set for, in milliseconds; then it is set again.
const TIMER_MAX: i64 = 60 * 60 * 1000;

/// What is due is done, and the timer set for the next.
unsafe extern "C" fn went_off(context: *mut raw::RedisModuleCtx, _: *mut c_void) {
    *TIMER.lock().unwrap_or_else(PoisonError::into_inner) = None;
    let now = now();
    while let Some(due) = with(|guard| guard.alarm.take(now)) {
        match due {
            Due::Sweep => with(|guard| guard.sweep(now)),
            Due::Lease(key) if with(|guard| guard.table.lease_end(key, now).is_none()) => give_turn(key),
            Due::Lease(_) => {}
            Due::Waiter(waiter, ticket) if with(|guard| guard.queues.wake_late(waiter, ticket)) => wake(waiter),
            Due::Waiter(..) => {}
        }
    }
    set_alarm(Context::new(context));
}
