//! Blocked clients: they are answered from a timer. The reply is written first, and the client is unblocked after that: no server allows a
//! module to block a client again in its unblock callback, so a waiter that was woken too early could not wait again.
//!
//! The timer runs after the command or transaction that ended a lease. So the answers reflect the state after it, and never contain a value
//! that it deletes later. The server runs a timer of 0 ms in the same iteration of its event loop. The timer also ends WAIT. The server's
//! own timeout is not used, because it drops a reply that was written just before.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::time::Duration;

use redis_module::raw;

use super::arguments::Fetch;
use super::invalidation::{subscribe_to_hashes, unsubscribe_if_idle};
use super::queues::{RemovedWaiter, WaiterId};
use super::row::{DependencyId, KeyId, Stamp};
use super::state::{Instant, TimerEvent};
use super::{Guard, Guarded, key_id, with, with_guard};
use crate::api::{self, OwnedString};
use crate::args::Arg;
use crate::context::Context;
use crate::keys::Keyspace;
use crate::server::timer::{Timer, now};

/// The timer, set to the time of the next entry.
pub static TIMER: Timer = Timer::new(Some(on_timer));

/// A question of a client, from BF.FETCH.
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

/// The reason why BF.FETCH has no answer yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Another caller loads the value, for this many milliseconds more.
    Leased(u64),
    /// The cache key has a write in flight.
    Held,
    /// Every cache key has a write in flight, according to this hash of UNLESS.
    AllHeld,
}

impl Pause {
    fn is_held(self) -> bool {
        matches!(self, Self::Held | Self::AllHeld)
    }
}

/// The result of looking for an answer to a question.
pub enum Answer {
    /// There is no answer yet. Nothing was replied.
    NotYet(Pause),
    /// The reply is written. It grants a lease if there is a stamp.
    Given(Option<Stamp>),
    /// The reply is written. It is also the answer to each equal question, until the next command.
    Shared(Shared),
}

/// An answer for all waiters with equal questions.
pub enum Shared {
    /// The item has no row.
    Absent,
    /// The value.
    Hit(Vec<u8>),
}

/// Looks for the answer to a waiter's question, and replies. The flag is set if the WAIT has expired, which forces an answer. The last
/// argument is the answer to an equal question, if known, which spares a lookup.
pub type Answerer = fn(Context, &mut Keyspace, Question<'_>, bool, Option<&Shared>) -> Answer;

/// The question of a waiter. It outlives the command, so it holds references to the command's words.
pub struct WaiterQuestion {
    filter: OwnedString,
    item: OwnedString,
    cache_key: OwnedString,
    while_key: Option<OwnedString>,
    unless_key: Option<OwnedString>,
    /// The id of the hash of UNLESS.
    unless_id: Option<DependencyId>,
    options: Fetch,
    answerer: Answerer,
}

impl WaiterQuestion {
    fn hold(context: Context, question: Question<'_>, answerer: Answerer) -> Option<Self> {
        Some(Self {
            filter: OwnedString::hold(question.filter)?,
            item: OwnedString::hold(question.item)?,
            cache_key: OwnedString::hold(question.cache_key)?,
            while_key: hold_any(question.while_key)?,
            unless_key: hold_any(question.unless_key)?,
            unless_id: question.unless_key.map(|hash| key_id(context, hash).name_hash()),
            options: question.options,
            answerer,
        })
    }

    /// Whether another waiter asks the same question. WAIT is ignored, and so is the length of a lease, because an answer that grants a
    /// lease is not shared.
    fn equals(&self, other: &Self) -> bool {
        let options = |asked: &Self| {
            let Fetch { stale, fresh, replaces, .. } = asked.options;
            (asked.unless_id, stale, fresh, replaces)
        };
        self.words() == other.words() && options(self) == options(other)
    }

    fn words(&self) -> [Option<&[u8]>; 4] {
        let words = [Some(&self.filter), Some(&self.item), Some(&self.cache_key), self.while_key.as_ref()];
        words.map(|word| word.map(|word| word.arg().bytes()))
    }

    fn question(&self) -> Question<'_> {
        Question {
            filter: self.filter.arg(),
            item: self.item.arg(),
            cache_key: self.cache_key.arg(),
            while_key: self.while_key.as_ref().map(OwnedString::arg),
            unless_key: self.unless_key.as_ref().map(OwnedString::arg),
            options: self.options,
        }
    }
}

/// Adds a reference to an argument, if there is one. `None` if the server refuses.
fn hold_any(word: Option<Arg<'_>>) -> Option<Option<OwnedString>> {
    word.map_or(Some(None), |word| OwnedString::hold(word).map(Some))
}

/// A context in which the reply to a blocked client is written.
struct ReplyContext(*mut raw::RedisModuleCtx);

impl ReplyContext {
    fn of(waiter: WaiterId) -> Option<Self> {
        // SAFETY: the handle belongs to a blocked client that has not been unblocked. This thread holds the server's lock.
        let context = unsafe { api::reply_context(handle(waiter)) };
        (!context.is_null()).then_some(Self(context))
    }
}

impl Drop for ReplyContext {
    fn drop(&mut self) {
        // SAFETY: the context is freed once, before the client is unblocked.
        unsafe { api::free_reply_context(self.0) };
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
    let Some(asked) = WaiterQuestion::hold(context, question, answerer) else { return false };
    let client = api::block_client(context, unblocked, Some(delivered));
    if client.is_null() {
        return false;
    }
    let now = now();
    // The clock counts whole milliseconds: without one more, WAIT would be up to a millisecond short.
    let deadline = now.saturating_add(question.options.wait).saturating_add(1);
    let Guarded { row, .. } = Guarded::new(context, question.filter, None, [question.item, question.cache_key]);
    let (waiter, is_held, unless) = (client as WaiterId, pause.is_held(), asked.unless_id);
    if unless.is_some() {
        subscribe_to_hashes(context);
    }
    let refused = with_guard(context, |guard| guard.join(&row, unless, waiter, asked, is_held, (now, deadline))).err();
    // SAFETY: the client was just blocked. If it could not join the queue, nothing else has its handle.
    unsafe {
        if refused.is_some() {
            api::abort_block(client);
        } else {
            api::when_disconnected(client, Some(disconnected));
        }
    }
    refused.is_none()
}

/// Removes a client that CLIENT UNBLOCK unblocked, the client of this context, from its queue. Returns the reason for its wait.
pub fn leave(context: Context) -> Pause {
    let waiter = api::blocked_client(context) as WaiterId;
    let now = now();
    // The answer to a client that was already served is dropped.
    let Some(RemovedWaiter { cache_key, is_held, question }) = with(|guard| guard.leave(waiter)) else {
        return Pause::Leased(1);
    };
    drop(question);
    give_back(waiter, null_mut());
    if is_held { Pause::Held } else { Pause::Leased(with(|guard| guard.remaining_lease(cache_key, now))) }
}

/// The server calls this when a waiting client disconnects.
unsafe extern "C" fn disconnected(_: *mut raw::RedisModuleCtx, client: *mut raw::RedisModuleBlockedClient) {
    let waiter = client as WaiterId;
    // The handle of an answered client was already released: the server calls `delivered` next.
    if let Some(left) = with(|guard| guard.leave(waiter)) {
        drop(left);
        give_back(waiter, null_mut());
    }
}

/// The server calls this when it has unblocked a client that was answered. If the client has disconnected, the answer was not
/// sent.
unsafe extern "C" fn delivered(context: *mut raw::RedisModuleCtx, waiter: *mut c_void) {
    let context = Context::new(context);
    let is_gone = api::has_disconnected(context) != 0;
    with_guard(context, |guard| guard.finish(waiter as WaiterId, is_gone));
}

const fn handle(waiter: WaiterId) -> *mut raw::RedisModuleBlockedClient {
    waiter as *mut raw::RedisModuleBlockedClient
}

/// Releases the handle of a blocked client to the server, which unblocks the client and calls [`delivered`] with `answered`, unless
/// `answered` is null.
fn give_back(waiter: WaiterId, answered: *mut c_void) {
    // SAFETY: the handle is released once: the waiter was just removed from its queue, or marked as answered.
    unsafe { api::unblock(handle(waiter), answered) };
}

/// A waiter's question, and the answer to all equal questions.
type KnownAnswer = (WaiterQuestion, Shared);

/// The result of serving a waiter.
enum Served {
    /// It is answered. The question is returned with the answer, if that can be shared.
    Answered(Option<KnownAnswer>),
    /// There is no answer yet.
    Paused(WaiterQuestion, Pause),
}

/// Answers a waiter.
fn answer(waiter: WaiterId, asked: WaiterQuestion, is_last: bool, known: Option<&KnownAnswer>) -> Served {
    let Some(reply) = ReplyContext::of(waiter) else { return Served::Paused(asked, Pause::Leased(1)) };
    let context = Context::new(reply.0);
    // SAFETY: the timer opens no key itself and answers one waiter at a time, so no other keyspace is in use.
    let mut keys = unsafe { Keyspace::new(context) };
    let shared = known.filter(|(other, _)| other.equals(&asked)).map(|(_, shared)| shared);
    let (stamp, shared) = match (asked.answerer)(context, &mut keys, asked.question(), is_last, shared) {
        Answer::NotYet(pause) => return Served::Paused(asked, pause),
        Answer::Given(stamp) => (stamp, None),
        Answer::Shared(shared) => (None, Some(shared)),
    };
    drop(reply);
    if with(|guard| guard.answered(waiter, stamp)) {
        give_back(waiter, handle(waiter).cast());
    }
    Served::Answered(shared.map(|shared| (asked, shared)))
}

/// How long the timer serves waiters before commands of other clients run.
const RUN_TIME: Duration = Duration::from_millis(1);
/// The maximum number of answers: the server then unblocks each and writes its reply, which takes 10 to 60 microseconds.
const RUN_ANSWERS_MAX: u32 = 32;

/// A run of the timer.
struct TimerRun {
    begin: std::time::Instant,
    /// The guard's time when it began.
    now: Instant,
    /// The number of answered waiters.
    answers: u32,
}

impl TimerRun {
    fn begin() -> Self {
        Self { begin: std::time::Instant::now(), now: now(), answers: 0 }
    }

    fn is_over(&self) -> bool {
        self.answers >= RUN_ANSWERS_MAX || self.begin.elapsed() >= RUN_TIME
    }
}

/// Answers the waiters of a cache key in order, up to the first that must wait for a lease: the waiters behind it have the same question,
/// or wait for the same lease. A held waiter does not stop the others, which may name other hashes. Waiters that name the same hash as the
/// last held waiter are held as well, without a lookup; equal questions get equal answers. If the run ends early, a later run answers the
/// rest. Returns the hash that holds every cache key, if the last held waiter names one.
fn serve(key: KeyId, run: &mut TimerRun) -> Option<DependencyId> {
    let mut from = with(|guard| guard.serve_from(key));
    let mut held_by: Option<(DependencyId, Pause)> = None;
    let mut answered: Option<KnownAnswer> = None;
    while let Some((waiter, ticket, asked)) = with(|guard| guard.next(key, from)) {
        from = ticket + 1;
        let unless = asked.unless_id;
        let served = match held_by.filter(|(hash, _)| Some(*hash) == unless) {
            Some((_, pause)) => Served::Paused(asked, pause),
            None => answer(waiter, asked, false, answered.as_ref()),
        };
        match served {
            Served::Answered(known) => {
                answered = known.or(answered);
                run.answers += 1;
            }
            Served::Paused(asked, pause) => {
                let gone = with(|guard| guard.put_back(waiter, asked, pause.is_held()));
                drop(gone);
                if !pause.is_held() {
                    break;
                }
                held_by = unless.map(|hash| (hash, pause));
            }
        }
        if run.is_over() {
            with(|guard| guard.serve_on(key, from, run.now));
            break;
        }
    }
    held_by.filter(|(_, pause)| *pause == Pause::AllHeld).map(|(hash, _)| hash)
}

/// Serves one of the cache keys whose waiters name a hash of UNLESS, and then schedules the others, unless the hash holds every cache key.
fn release(hash: DependencyId, run: &mut TimerRun) {
    if let Some(key) = with(|guard| guard.held_by(hash))
        && serve(key, run) != Some(hash)
    {
        with(|guard| guard.release(hash));
    }
}

/// Handles due entries until the run ends, and sets the timer for the next entry.
unsafe extern "C" fn on_timer(context: *mut raw::RedisModuleCtx, _: *mut c_void) {
    TIMER.has_fired();
    let mut run = TimerRun::begin();
    while let Some(due) = with(|guard| guard.take_event(run.now)) {
        match due {
            TimerEvent::Serve(key) => _ = serve(key, &mut run),
            TimerEvent::Release => with(Guard::take_released).into_iter().for_each(|hash| release(hash, &mut run)),
            TimerEvent::Deadline(waiter, ticket) => {
                if let Some(asked) = with(|guard| guard.take(waiter, ticket)) {
                    _ = answer(waiter, asked, true, None);
                    run.answers += 1;
                }
            }
            TimerEvent::Sweep => {}
        }
        if run.is_over() {
            break;
        }
    }
    with_guard(Context::new(context), |_| ());
    unsubscribe_if_idle(Context::new(context));
}
