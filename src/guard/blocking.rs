//! Blocked clients. The reply is written first, and the client is unblocked after that: no server lets a module block a client
//! again in the callback of an unblocked one, so a waiter that was woken too early could not go on waiting.
//!
//! Waiters are served from a timer, after the command or transaction that ended a lease. So their answer is what it left
//! behind, and not a value that it deletes at once. The server runs a timer of 0 ms in the same iteration of its event loop.
//! WAIT is kept by that timer, too, and not by the server's timeout: that timeout drops a reply that was written a moment
//! before.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

use bloomgate_filter::words::fetch::Fetch;
use redis_module::raw;

use super::alarm::Due;
use super::changes::Stamp;
use super::ids::KeyId;
use super::queues::{Left, WaiterId};
use super::state::Instant;
use super::{act, now, row, with};
use crate::args::Arg;
use crate::context::Context;
use crate::keys::Keyspace;

/// The server's timer: the time it is set to, and its number. The server calls nothing of ours when a timer is set or stopped,
/// so this lock may be held across those calls.
static TIMER: Mutex<Option<(Instant, raw::RedisModuleTimerID)>> = Mutex::new(None);

/// The longest period of the timer, in milliseconds. It is set again for what is due later.
const TIMER_MAX: i64 = 60 * 60 * 1000;

/// What a client asks with BF.FETCH.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// The filter's key.
    pub filter: Arg<'a>,
    /// The item.
    pub item: Arg<'a>,
    /// The cache key.
    pub cache_key: Arg<'a>,
    /// The reply is `absent` only while this key exists.
    pub while_key: Option<Arg<'a>>,
    /// The hash of the cache keys that have a write in flight.
    pub unless_key: Option<Arg<'a>>,
    /// The options.
    pub options: Fetch,
}

/// Why BF.FETCH has no answer yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Another caller loads the value, for this many milliseconds more.
    Leased(u64),
    /// The cache key has a write in flight.
    Held,
}

/// The result of looking for an answer to a waiter's question.
pub enum Answer {
    /// There is no answer yet. Nothing was replied.
    NotYet(Pause),
    /// The reply is written. It grants a lease if there is a stamp.
    Given(Option<Stamp>),
}

/// Looks for the answer to a waiter's question, and replies. The last argument says whether its WAIT has expired: then it gets
/// an answer in any case.
pub type Answerer = fn(Context, &mut Keyspace, Question<'_>, bool) -> Answer;

/// The question of a waiter. It outlives the command, so it holds references to the command's words.
pub struct Asked {
    filter: HeldString,
    item: HeldString,
    cache_key: HeldString,
    while_key: Option<HeldString>,
    unless_key: Option<HeldString>,
    options: Fetch,
    answerer: Answerer,
}

impl Asked {
    fn hold(question: Question<'_>, answerer: Answerer) -> Option<Self> {
        Some(Self {
            filter: HeldString::of(question.filter)?,
            item: HeldString::of(question.item)?,
            cache_key: HeldString::of(question.cache_key)?,
            while_key: HeldString::of_any(question.while_key)?,
            unless_key: HeldString::of_any(question.unless_key)?,
            options: question.options,
            answerer,
        })
    }

    /// Whether this is the key of UNLESS.
    fn names_in_unless(&self, hash: Arg<'_>) -> bool {
        self.unless_key.as_ref().is_some_and(|own| own.arg().bytes() == hash.bytes())
    }

    fn question(&self) -> Question<'_> {
        Question {
            filter: self.filter.arg(),
            item: self.item.arg(),
            cache_key: self.cache_key.arg(),
            while_key: self.while_key.as_ref().map(HeldString::arg),
            unless_key: self.unless_key.as_ref().map(HeldString::arg),
            options: self.options,
        }
    }
}

/// A counted reference to a string of the server.
struct HeldString(*mut raw::RedisModuleString);

// SAFETY: the server counts references without atomics. The reference is taken, read and released by the thread that holds the
// server's lock: in commands, in callbacks of the server, and in its timers.
unsafe impl Send for HeldString {}

impl HeldString {
    fn of(word: Arg<'_>) -> Option<Self> {
        // SAFETY: the word is valid; without a context the string is ours until it is freed.
        let held = unsafe { raw::RedisModule_HoldString.map(|hold| hold(null_mut(), word.raw))? };
        Some(Self(held))
    }

    /// Holds a word if there is one. `None` if it cannot be held.
    fn of_any(word: Option<Arg<'_>>) -> Option<Option<Self>> {
        word.map_or(Some(None), |word| Self::of(word).map(Some))
    }

    fn arg(&self) -> Arg<'_> {
        // SAFETY: the string lives as long as this.
        unsafe { Arg::of(&self.0) }
    }
}

impl Drop for HeldString {
    fn drop(&mut self) {
        // SAFETY: the string is held once and freed once.
        unsafe {
            if let Some(free) = raw::RedisModule_FreeString {
                free(null_mut(), self.0);
            }
        }
    }
}

/// A context in which the reply to a blocked client is written.
struct ReplyContext(*mut raw::RedisModuleCtx);

impl ReplyContext {
    fn of(waiter: WaiterId) -> Option<Self> {
        // SAFETY: the handle is that of a blocked client which was not given back. This thread has the server's lock.
        let context = unsafe { raw::RedisModule_GetThreadSafeContext.map(|get| get(handle(waiter)))? };
        (!context.is_null()).then_some(Self(context))
    }
}

impl Drop for ReplyContext {
    fn drop(&mut self) {
        // SAFETY: the context is freed once, before the client is given back.
        unsafe {
            if let Some(free) = raw::RedisModule_FreeThreadSafeContext {
                free(self.0);
            }
        }
    }
}

/// Blocks the client until `answerer` has an answer, or until WAIT expires. CLIENT UNBLOCK calls `unblocked` instead. Returns
/// whether the client is blocked: it is not if memory is refused.
pub fn wait(
    context: Context,
    question: Question<'_>,
    pause: Pause,
    answerer: Answerer,
    unblocked: raw::RedisModuleCmdFunc,
) -> bool {
    let Some(asked) = Asked::hold(question, answerer) else { return false };
    // SAFETY: the context is that of a client's command, outside of MULTI and scripts; the callbacks are functions.
    let client = unsafe {
        let Some(block) = raw::RedisModule_BlockClient else { return false };
        block(context.raw, None, unblocked, Some(delivered), 0)
    };
    if client.is_null() {
        return false;
    }
    let now = now();
    // The clock counts whole milliseconds: without one more, WAIT would be up to a millisecond short.
    let deadline = now.saturating_add(question.options.wait).saturating_add(1);
    let row = row(context, question.filter, None, [question.item, question.cache_key]);
    let (waiter, is_held) = (client as WaiterId, pause == Pause::Held);
    let refused = act(context, |guard| guard.join(&row, waiter, asked, is_held, (now, deadline))).err();
    // SAFETY: the client was blocked a moment ago. If it could not join, nothing else has its handle.
    unsafe {
        if refused.is_some() {
            if let Some(abort) = raw::RedisModule_AbortBlock {
                abort(client);
            }
        } else if let Some(set) = raw::RedisModule_SetDisconnectCallback {
            set(client, Some(disconnected));
        }
    }
    refused.is_none()
}

/// Removes the client of this context, which CLIENT UNBLOCK unblocked, from its queue. Returns what it waited for.
pub fn leave(context: Context) -> Pause {
    // SAFETY: the context is that of a callback of a blocked client.
    let client = unsafe { raw::RedisModule_GetBlockedClientHandle.map(|handle| handle(context.raw)) };
    let Some(waiter) = client.map(|client| client as WaiterId) else { return Pause::Leased(1) };
    let now = now();
    // The answer of a client that was served already is dropped.
    let Some(Left { cache_key, is_held, question }) = with(|guard| guard.leave(waiter)) else {
        return Pause::Leased(1);
    };
    drop(question);
    give_back(waiter, null_mut());
    if is_held { Pause::Held } else { Pause::Leased(with(|guard| guard.lease_left(cache_key, now))) }
}

/// The server calls this when a waiting client disconnects.
unsafe extern "C" fn disconnected(_: *mut raw::RedisModuleCtx, client: *mut raw::RedisModuleBlockedClient) {
    let waiter = client as WaiterId;
    // The handle of a client that is answered was given back already: the server calls `delivered` next.
    if let Some(left) = with(|guard| guard.leave(waiter)) {
        drop(left);
        give_back(waiter, null_mut());
    }
}

/// The server calls this when it has unblocked a client that was answered. If the client has disconnected, the answer was not
/// sent.
unsafe extern "C" fn delivered(context: *mut raw::RedisModuleCtx, waiter: *mut c_void) {
    // SAFETY: the context is that of this callback.
    let is_gone = unsafe { raw::RedisModule_BlockedClientDisconnected.is_some_and(|is_gone| is_gone(context) != 0) };
    act(Context::new(context), |guard| guard.finish(waiter as WaiterId, is_gone));
}

const fn handle(waiter: WaiterId) -> *mut raw::RedisModuleBlockedClient {
    waiter as *mut raw::RedisModuleBlockedClient
}

/// Gives the handle of a blocked client back to the server, which unblocks it and calls [`delivered`] with `answered`, unless
/// that is null.
fn give_back(waiter: WaiterId, answered: *mut c_void) {
    // SAFETY: the handle is given back once: the waiter was removed from its queue, or marked as answered, right before.
    unsafe {
        if let Some(unblock) = raw::RedisModule_UnblockClient {
            unblock(handle(waiter), answered);
        }
    }
}

/// Answers a waiter. Returns its question if there is no answer yet, and why.
fn answer(waiter: WaiterId, asked: Asked, is_last: bool) -> Option<(Asked, Pause)> {
    let Some(reply) = ReplyContext::of(waiter) else { return Some((asked, Pause::Leased(1))) };
    let context = Context::new(reply.0);
    // SAFETY: the timer opens no key itself, and answers one waiter at a time: no other keyspace is in use.
    let mut keys = unsafe { Keyspace::new(context) };
    let stamp = match (asked.answerer)(context, &mut keys, asked.question(), is_last) {
        Answer::NotYet(pause) => return Some((asked, pause)),
        Answer::Given(stamp) => stamp,
    };
    drop(reply);
    if with(|guard| guard.answered(waiter, stamp)) {
        give_back(waiter, handle(waiter).cast());
    }
    None
}

/// Answers the waiters of a cache key in their order, up to the first that has to wait for a lease: those behind it ask the
/// same, or wait for the same lease. A held waiter stops no other, since not all need name the same hash. Those that name the
/// same hash as the last held one are held, too, and are not looked at again.
fn serve(key: KeyId) {
    let mut from = 0;
    let mut held_by: Option<HeldString> = None;
    while let Some((waiter, ticket, asked)) = with(|guard| guard.next(key, from)) {
        let is_known = held_by.as_ref().is_some_and(|hash| asked.names_in_unless(hash.arg()));
        let paused = if is_known { Some((asked, Pause::Held)) } else { answer(waiter, asked, false) };
        if let Some((asked, pause)) = paused {
            let is_held = pause == Pause::Held;
            if is_held && !is_known {
                held_by = asked.unless_key.as_ref().and_then(|hash| HeldString::of(hash.arg()));
            }
            let gone = with(|guard| guard.put_back(waiter, asked, is_held));
            drop(gone);
            if !is_held {
                return;
            }
            from = ticket + 1;
        }
    }
}

/// Does everything that is due, and sets the timer for the next entry.
unsafe extern "C" fn went_off(context: *mut raw::RedisModuleCtx, _: *mut c_void) {
    *TIMER.lock().unwrap_or_else(PoisonError::into_inner) = None;
    let now = now();
    while let Some(due) = with(|guard| guard.take_due(now)) {
        match due {
            Due::Serve(key) => serve(key),
            Due::Deadline(waiter, ticket) => {
                if let Some(asked) = with(|guard| guard.take(waiter, ticket)) {
                    answer(waiter, asked, true);
                }
            }
            Due::Sweep => {}
        }
    }
    act(Context::new(context), |_| ());
}

/// Sets the timer to this time, unless it is set to an earlier one.
pub fn set_timer(context: Context, at: Instant) {
    let mut timer = TIMER.lock().unwrap_or_else(PoisonError::into_inner);
    if timer.is_some_and(|(set, _)| set <= at) {
        return;
    }
    // SAFETY: the timer is ours and has not gone off: `went_off` clears it first. The callback is a function.
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
