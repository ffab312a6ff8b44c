//! The guard in front of a database: leases, clients that wait for them, tokens, and NONEs, the items that are known to have no row.
//!
//! All of it is in the memory of this server: it is neither saved nor replicated. It is global and has a lock of its own,
//! because the server raises events in the middle of our commands, and in the threads of other modules. That lock is never
//! held across a call that may raise an event.
//!
//! The guard subscribes to keyspace events with a lease, and where the server can, unsubscribes when it has no record and no waiter. It
//! subscribes to those of hashes with the first waiter that names one in UNLESS.

pub mod arguments;
mod dependencies;
mod loads;
#[cfg(test)]
mod model;
mod queues;
mod records;
mod row;
mod state;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::hash::{BuildHasher, Hasher};
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use arguments::Fetch;
use bloomgate_filter::hash::siphash::{self, siphash24_128};
use foldhash::quality::FixedState;
use loads::Tick;
use queues::{RemovedWaiter, WaiterId};
use redis_module::raw;
use row::{DependencyId, KeyId, Row, Stamp};
use state::{Epochs, Instant, TimerEvent};

use crate::api::{self, OwnedString, Reply};
use crate::args::Arg;
use crate::config;
use crate::context::{Context, LogLevel, OK};
use crate::keys::Keyspace;
use crate::server::role;
use crate::server::timer::{Timer, now};
use crate::server_info::valkey_version;
pub use state::{Asker, RowState, Trust};

/// The guard's state, with the questions of the waiters.
type Guard = state::Guard<WaiterQuestion>;

static GUARD: LazyLock<Mutex<Guard>> = LazyLock::new(Mutex::default);
/// Whether there is a record or a waiter.
static IS_BUSY: AtomicBool = AtomicBool::new(false);
/// Whether a waiter is held.
static HAS_HELD: AtomicBool = AtomicBool::new(false);
/// When the log last reported that a filter or a key of WHILE is missing.
static LAST_WARNED: AtomicU64 = AtomicU64::new(0);
/// The least time between two such reports, in milliseconds.
const WARN_INTERVAL: Instant = 60_000;
/// The most bytes of a key's name that the log shows.
const NAME_SHOWN: usize = 100;

/// Runs `work` on the guard's state. It must not make a call that may raise an event.
fn with<T>(work: impl FnOnce(&mut Guard) -> T) -> T {
    let mut guard = GUARD.lock().unwrap_or_else(PoisonError::into_inner);
    let done = work(&mut guard);
    IS_BUSY.store(!guard.is_idle(), Relaxed);
    HAS_HELD.store(guard.has_held(), Relaxed);
    done
}

/// [`with`], for work that may schedule something: sets the timer, too.
fn with_guard<T>(context: Context, work: impl FnOnce(&mut Guard) -> T) -> T {
    let (done, due) = with(|guard| (work(guard), guard.next_due()));
    if let Some(at) = due {
        TIMER.set(context, at);
    }
    done
}

/// Whether there is no record and no waiter, so that no change matters. Costs one load from memory.
#[inline]
pub fn is_idle() -> bool {
    !IS_BUSY.load(Relaxed)
}

/// The hash of a name, an item or a token, under a key of this process. It is the life of the server: a token of another process has
/// another hash.
fn hash(context: Context, bytes: &[u8]) -> [u64; 2] {
    static KEY: OnceLock<siphash::Key> = OnceLock::new();
    siphash24_128(bytes, *KEY.get_or_init(|| context.random_bytes()))
}

/// A hash for tables, under a seed of this process. It is much faster than [`hash`], but not safe against a client that constructs two
/// names with one hash.
#[inline]
fn table_hash(context: Context, bytes: &[u8]) -> u64 {
    static STATE: OnceLock<FixedState> = OnceLock::new();
    let state = STATE.get_or_init(|| FixedState::with_seed(u64::from_le_bytes(context.random_bytes())));
    let mut hasher = state.build_hasher();
    hasher.write(bytes);
    hasher.finish()
}

/// The table hash of a key of the selected database.
fn table_hash_of_key(context: Context, name: Arg<'_>) -> u64 {
    table_hash(context, name.bytes()) ^ u64::from(context.database().cast_unsigned())
}

/// The id of a key of the selected database.
fn key_id(context: Context, name: Arg<'_>) -> KeyId {
    let [half, _] = hash(context, name.bytes());
    KeyId([table_hash_of_key(context, name), half ^ u64::from(context.database().cast_unsigned())])
}

/// The id of an item of a filter. Two items with one id are harmless: an add of either voids the tokens of both.
fn item_id(context: Context, filter: DependencyId, item: Arg<'_>) -> DependencyId {
    table_hash(context, item.bytes()) ^ filter
}

/// What a caller shows to BF.FILL: the stamp, and a hash of the stamp and the row, so that the token is good for no other row, filter
/// or server.
pub type Token = u128;

/// The bits of a stamp in a token, which are enough for years. The time of the grant is above them.
const STAMP_BITS: u32 = 48;

fn token(context: Context, row: &Row, stamp: Stamp, granted: Tick) -> Token {
    let Row { key: KeyId([first, second]), item, instance, .. } = *row;
    let stamp = stamp | u64::from(granted) << STAMP_BITS;
    let bytes = [stamp, first, second, item, instance].map(u64::to_le_bytes);
    let [tag, _] = hash(context, bytes.as_flattened());
    Token::from(stamp) << u64::BITS | Token::from(tag)
}

const fn stamp(token: Token) -> Stamp {
    (token >> u64::BITS) as Stamp & ((1 << STAMP_BITS) - 1)
}

/// The time of the grant.
const fn granted(token: Token) -> Tick {
    (token >> (u64::BITS + STAMP_BITS)) as Tick
}

/// Whether a value that expires in `left` milliseconds is renewed before STALE, by RENEW. A hit takes no lock for this.
#[inline]
pub fn renews(context: Context, instance: Option<u64>, options: Fetch, left: u64) -> bool {
    static DRAWS: AtomicU64 = AtomicU64::new(0);
    let draw = || {
        let number = DRAWS.load(Relaxed).wrapping_add(1);
        DRAWS.store(number, Relaxed);
        table_hash(context, &number.to_le_bytes())
    };
    options.renew > 0 && loads::is_due(instance.unwrap_or(0), options.renew, left.saturating_sub(options.stale), draw)
}

/// The row that a command of the guard names, with what the guard does about it.
pub struct Guarded {
    context: Context,
    row: Row,
}

impl Guarded {
    /// An item of a filter, which is given by its name and its instance, and a cache key. A filter that is missing, or whose chunks
    /// are still arriving, has no instance.
    pub fn new(context: Context, filter: Arg<'_>, instance: Option<u64>, [item, cache_key]: [Arg<'_>; 2]) -> Self {
        let filter = key_id(context, filter).filter();
        let (key, item) = (key_id(context, cache_key), item_id(context, filter, item));
        Self { context, row: Row { key, filter, item, instance: instance.unwrap_or(0) } }
    }

    /// Decides what BF.FETCH may do about the row.
    pub fn row_state(&self, asker: Asker, trust: Trust) -> RowState {
        let now = now();
        with_guard(self.context, |guard| guard.row_state(&self.row, asker, trust, now))
    }

    /// Grants the lease for a number of milliseconds; with `fresh`, for at most that number, in which a fill is believed without the key
    /// of WHILE. Returns the token, and its stamp. BF.FILL will refuse it if memory is short,
    /// the server does not raise the events that the row needs, or the epochs of its cluster cannot be read.
    pub fn grant(&self, milliseconds: u64, fresh: Option<u64>) -> (Token, Stamp) {
        let (mut stamp, now) = (0, now());
        if subscribe(self.context) && (!self.row.is_unguarded() || knows_epochs(self.context)) {
            let end = now.saturating_add(fresh.map_or(milliseconds, |fresh| fresh.min(milliseconds)));
            let fresh_until = fresh.map(|fresh| now.saturating_add(fresh));
            stamp =
                with_guard(self.context, |guard| guard.grant(self.row, (now, end), fresh_until, config::max_leases()));
            // A missing filter may come and go unseen where the server does not report DEL and RENAME.
            if self.row.is_unguarded() && !keeps_clients(self.context) {
                with(|guard| guard.void_tokens(self.row.key));
            }
        }
        (token(self.context, &self.row, stamp, loads::tick(now)), stamp)
    }

    /// Whether a token is safe: what its caller has read may be cached.
    pub fn accepts(&self, given: Token) -> bool {
        !is_idle()
            && given == token(self.context, &self.row, stamp(given), granted(given))
            && (!self.row.is_unguarded() || check_epochs(self.context))
            && with_guard(self.context, |guard| guard.accepts(&self.row, stamp(given)))
    }

    /// Until when what is filled in with an accepted token is believed without the key of WHILE, if it is. Storing the value ends the
    /// lease that knows it.
    pub fn fresh_until(&self, given: Token) -> Option<Instant> {
        let now = now();
        with(|guard| guard.fresh_until(self.row.key, stamp(given), now))
    }

    /// Ends the lease if a token has it. Returns whether it did.
    pub fn give_up(&self, given: Token) -> bool {
        let now = now();
        with_guard(self.context, |guard| guard.give_up(self.row.key, stamp(given), now))
    }

    /// Ends the lease, and grants no other one for a number of milliseconds, until [`changed`] is called; without a number, for twice as
    /// long as the last time. Its waiters are served.
    pub fn back_off(&self, milliseconds: Option<u64>) {
        let now = now();
        with_guard(self.context, |guard| guard.back_off(self.row.key, now, milliseconds, config::max_leases()));
    }

    /// The holder of an accepted token has loaded the row, or found none: RENEW needs to know how long that took.
    pub fn loaded(&self, given: Token) {
        loads::count(self.row.instance, granted(given), now());
    }

    /// The value was stored: ends the lease, and schedules the waiters.
    pub fn filled(&self, fresh_until: Option<Instant>) {
        let now = now();
        with_guard(self.context, |guard| guard.filled(self.row, now, fresh_until, config::max_leases()));
    }

    /// Records for a number of milliseconds that the item has no row. The lease ends, and the waiters are served.
    pub fn note_no_row(&self, milliseconds: u64, fresh_until: Option<Instant>) {
        let now = now();
        let end = now.saturating_add(milliseconds);
        with_guard(self.context, |guard| guard.note_no_row(self.row, (now, end), fresh_until, config::max_leases()));
    }
}

/// Voids the tokens of a cache key whose row is about to be written, or was, ends what is known of it, and schedules its waiters.
pub fn changed(context: Context, name: Arg<'_>) {
    if !is_idle() {
        let key = key_id(context, name);
        with_guard(context, |guard| guard.row_changed(key));
    }
}

/// Voids the tokens of items that a command adds to a filter, even if the filter refuses them, is missing, or is still arriving.
pub fn items_added(context: Context, filter: Arg<'_>, items: &[Arg<'_>]) {
    if is_idle() {
        return;
    }
    let filter = table_hash_of_key(context, filter);
    let mut ids = items.iter().map(|item| item_id(context, filter, *item));
    if with(|guard| guard.is_guarded(filter) && ids.any(|id| guard.is_guarded(id))) {
        let ids = items.iter().map(|item| item_id(context, filter, *item));
        with_guard(context, |guard| ids.for_each(|id| guard.filter_changed(id)));
    }
}

/// Voids the tokens of a filter that a command of ours has created, replaced, emptied or merged into.
pub fn filter_replaced(context: Context, filter: Arg<'_>) {
    if !is_idle() {
        let filter = table_hash_of_key(context, filter);
        with_guard(context, |guard| guard.filter_changed(filter));
    }
}

/// Voids all tokens, and ends all leases and NONEs: the data set was replaced, or the server's role has changed.
pub fn end_all(context: Context) {
    if !is_idle() {
        with_guard(context, Guard::all_changed);
    }
}

/// Reports in the log that nothing is `absent`, because the key of WHILE is `missing`, or else the filter.
pub fn warn_unguarded(context: Context, filter: Arg<'_>, missing: Option<Arg<'_>>) {
    let now = now().saturating_add(WARN_INTERVAL);
    if now - LAST_WARNED.load(Relaxed) >= WARN_INTERVAL {
        LAST_WARNED.store(now, Relaxed);
        let (what, key) = missing.map_or(("filter", filter), |key| ("key of WHILE", key));
        let name = key.bytes();
        let name = name.get(..NAME_SHOWN).unwrap_or(name).escape_ascii();
        let line =
            format_args!("bloomgate: no {what} at '{name}': BF.FETCH answers from the cache and the leases alone");
        context.log(LogLevel::Warning, line);
    }
}

/// For INFO: the numbers of leases, of NONEs and of waiting clients.
pub fn counts() -> [u64; 3] {
    let (leases, no_rows, waiting) = if is_idle() { (0, 0, 0) } else { with(|guard| guard.counts()) };
    [leases, no_rows, waiting].map(|count| count as u64)
}

// Blocked clients. The reply is written first, and the client is unblocked after that: no server lets a module block a client
// again in the callback of an unblocked one, so a waiter that was woken too early could not go on waiting.
//
// Waiters are served from a timer, after the command or transaction that ended a lease. So their answer is what it left
// behind, and not a value that it deletes at once. The server runs a timer of 0 ms in the same iteration of its event loop.
// WAIT is kept by that timer, too, and not by the server's timeout: that timeout drops a reply that was written a moment
// before.

/// The timer, which is set to the time of the next entry that is due.
pub static TIMER: Timer = Timer::new(Some(on_timer));

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
    /// Every cache key has, for a caller with this hash of UNLESS.
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

/// Looks for the answer to a waiter's question, and replies. The flag says whether its WAIT has expired: then it gets an answer in
/// any case. The last argument is the answer to an equal question, if there is one: it replies the same without looking.
pub type Answerer = fn(Context, &mut Keyspace, Question<'_>, bool, Option<&Shared>) -> Answer;

/// The question of a waiter. It outlives the command, so it holds references to the command's words.
struct WaiterQuestion {
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

    /// Whether another waiter asks the same. WAIT does not matter, and neither does the length of a lease: an answer that grants one is
    /// not shared.
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

/// Holds a word if there is one. `None` if it cannot be held.
fn hold_any(word: Option<Arg<'_>>) -> Option<Option<OwnedString>> {
    word.map_or(Some(None), |word| OwnedString::hold(word).map(Some))
}

/// A context in which the reply to a blocked client is written.
struct ReplyContext(*mut raw::RedisModuleCtx);

impl ReplyContext {
    fn of(waiter: WaiterId) -> Option<Self> {
        // SAFETY: the handle is that of a blocked client which was not given back. This thread has the server's lock.
        let context = unsafe { api::reply_context(handle(waiter)) };
        (!context.is_null()).then_some(Self(context))
    }
}

impl Drop for ReplyContext {
    fn drop(&mut self) {
        // SAFETY: the context is freed once, before the client is given back.
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
    // SAFETY: the client was blocked a moment ago. If it could not join, nothing else has its handle.
    unsafe {
        if refused.is_some() {
            api::abort_block(client);
        } else {
            api::when_disconnected(client, Some(disconnected));
        }
    }
    refused.is_none()
}

/// Removes the client of this context, which CLIENT UNBLOCK unblocked, from its queue. Returns what it waited for.
pub fn leave(context: Context) -> Pause {
    let waiter = api::blocked_client(context) as WaiterId;
    let now = now();
    // The answer of a client that was served already is dropped.
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
    // The handle of a client that is answered was given back already: the server calls `delivered` next.
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

/// Gives the handle of a blocked client back to the server, which unblocks it and calls [`delivered`] with `answered`, unless
/// that is null.
fn give_back(waiter: WaiterId, answered: *mut c_void) {
    // SAFETY: the handle is given back once: the waiter was removed from its queue, or marked as answered, right before.
    unsafe { api::unblock(handle(waiter), answered) };
}

/// A waiter's question, with the answer that each equal one gets.
type KnownAnswer = (WaiterQuestion, Shared);

/// The result of serving a waiter.
enum Served {
    /// It is answered. Its question comes back with an answer that can be shared.
    Answered(Option<KnownAnswer>),
    /// There is no answer yet.
    Paused(WaiterQuestion, Pause),
}

/// Answers a waiter.
fn answer(waiter: WaiterId, asked: WaiterQuestion, is_last: bool, known: Option<&KnownAnswer>) -> Served {
    let Some(reply) = ReplyContext::of(waiter) else { return Served::Paused(asked, Pause::Leased(1)) };
    let context = Context::new(reply.0);
    // SAFETY: the timer opens no key itself, and answers one waiter at a time: no other keyspace is in use.
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
/// How many it answers at most: the server then unblocks each and writes its reply, which takes 10 to 60 microseconds.
const RUN_ANSWERS_MAX: u32 = 32;

/// A run of the timer.
struct TimerRun {
    begin: std::time::Instant,
    /// The guard's time at its begin.
    now: Instant,
    /// How many waiters were answered.
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

/// Answers the waiters of a cache key in their order, up to the first that has to wait for a lease: those behind it ask the
/// same, or wait for the same lease. A held waiter stops no other, since not all need name the same hash. Those that name the
/// same hash as the last held one are held, too, and are not looked at again; equal questions get equal answers. If the run ends
/// before, the others are answered in a later one. Returns the hash that holds every cache key, if the last held waiter names one.
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

/// Looks at one cache key that a hash of UNLESS has held, and then at the others, unless the hash holds every cache key.
fn release(hash: DependencyId, run: &mut TimerRun) {
    if let Some(key) = with(|guard| guard.held_by(hash))
        && serve(key, run) != Some(hash)
    {
        with(|guard| guard.release(hash));
    }
}

/// Does what is due, until the run ends, and sets the timer for the next entry.
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

// The keyspace events that may make a cached value, a value that is being loaded, or a NONE outdated.

/// The classes of events that the guard listens to: changes of strings, which cached values are, and of any key as a whole; expiry and
/// eviction. A key of another type can take the place of a cached value without one of these, but no token can be filled until it is
/// deleted, which is one. Each event costs its command 400 to 710 instructions
/// (`scripts/bench --only instructions`).
const CLASSES: c_int = raw::REDISMODULE_NOTIFY_GENERIC
    | raw::REDISMODULE_NOTIFY_STRING
    | raw::REDISMODULE_NOTIFY_MODULE
    | raw::REDISMODULE_NOTIFY_EXPIRED
    | raw::REDISMODULE_NOTIFY_EVICTED;

/// The versions of Valkey that leave a client in the database of the last event that a module has listened to (valkey#4024): 8.1.8 does,
/// 9.1.2 does not. After MOVE, COPY with DB, or an expiry on the way, the client's commands go to the wrong database, on replicas and in
/// the AOF, too. Events of strings are always of the client's own database.
const MOVES_CLIENTS: Range<[u32; 3]> = [8, 1, 0]..[9, 1, 2];

/// Whether events of other databases than the client's are safe.
fn keeps_clients(context: Context) -> bool {
    static KEEPS: OnceLock<bool> = OnceLock::new();
    *KEEPS.get_or_init(|| valkey_version(context).is_none_or(|version| !MOVES_CLIENTS.contains(&version)))
}

fn classes(context: Context) -> c_int {
    if keeps_clients(context) { CLASSES } else { raw::REDISMODULE_NOTIFY_STRING }
}

/// What an event says of the key that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Invalidation {
    /// If the key is a cache key, a client has changed its value.
    value: bool,
    /// If the key is a filter's, there may be another filter now, or none, or more items in it.
    filter: bool,
}

impl Invalidation {
    /// The meaning of an event, by its name. `by_deletion`: the running command deletes keys.
    fn of(event: &[u8], by_deletion: bool) -> Self {
        let (value, filter) = match event {
            b"expire" | b"persist" => (false, false),
            // A value that expires or is evicted was not outdated. But Valkey also raises `expired` when a client sets an
            // expiry time in the past (PEXPIREAT, GETEX, SET). It rewrites such a command to DEL or UNLINK first.
            b"expired" => (by_deletion, true),
            b"evicted" => (false, true),
            // Our own commands report their changes themselves.
            event => [!event.starts_with(b"bloom."); 2].into(),
        };
        Self { value, filter }
    }
}

/// Whether the guard listens to the server's events.
static IS_SUBSCRIBED: AtomicBool = AtomicBool::new(false);

/// Subscribes with a lease. Returns whether the server will raise the events.
fn subscribe(context: Context) -> bool {
    static HAS_WARNED: AtomicBool = AtomicBool::new(false);
    if IS_SUBSCRIBED.load(Relaxed) {
        return true;
    }
    if !role::is_followed() {
        return false;
    }
    let is_subscribed = api::subscribe_to_keys(context, classes(context), Some(on_key_event)) == OK;
    IS_SUBSCRIBED.store(is_subscribed, Relaxed);
    if is_subscribed && !keeps_clients(context) && !HAS_WARNED.swap(true, Relaxed) {
        let line = "bloomgate: because of a bug of this server (valkey#4024) the guard does not listen to DEL, RENAME, COPY and \
                    RESTORE of cache keys: use BF.CHANGED. It caches nothing while its filter is missing";
        context.log(LogLevel::Warning, line);
    }
    is_subscribed
}

/// Unsubscribes while there is no record and no waiter, if the server can: writes then cost what they cost without the guard.
fn unsubscribe_if_idle(context: Context) {
    if is_idle() && IS_SUBSCRIBED.load(Relaxed) {
        let is_subscribed = api::unsubscribe_from_keys(context, classes(context), Some(on_key_event)) != OK;
        IS_SUBSCRIBED.store(is_subscribed, Relaxed);
    }
}

unsafe extern "C" fn on_key_event(
    context: *mut raw::RedisModuleCtx,
    _: c_int,
    event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    if is_idle() {
        return OK;
    }
    let context = Context::new(context);
    // SAFETY: the key's name lives until this returns.
    let name = unsafe { Arg::of(&key) };
    // Most events are of keys that concern no row: this is all that they cost.
    let table_hash = table_hash_of_key(context, name);
    if !with(|guard| guard.concerns(table_hash)) {
        return OK;
    }
    // SAFETY: the event is a C string.
    let event = unsafe { CStr::from_ptr(event) }.to_bytes();
    let changed = Invalidation::of(event, event == b"expired" && deletes(context));
    let key = key_id(context, name);
    with_guard(context, |guard| {
        if changed.value {
            guard.value_changed(key);
        }
        if changed.filter {
            guard.filter_changed(key.filter());
        }
    });
    OK
}

/// Whether the running command deletes keys. Only Valkey, from 8.1 on, lets a listener see the command.
fn deletes(context: Context) -> bool {
    // SAFETY: the name is a C string of the server's, or null.
    unsafe {
        let name = api::current_command(context);
        !name.is_null() && [c"del", c"unlink"].contains(&CStr::from_ptr(name))
    }
}

// The hashes of UNLESS: a waiter that one of them holds is served when it loses the field, or is deleted, expires, or is evicted.

/// The classes of the events that name a hash. HASH has those of commands that write fields, and of fields that expire.
const HASH_CLASSES: c_int = raw::REDISMODULE_NOTIFY_HASH
    | raw::REDISMODULE_NOTIFY_GENERIC
    | raw::REDISMODULE_NOTIFY_EXPIRED
    | raw::REDISMODULE_NOTIFY_EVICTED;

fn hash_classes(context: Context) -> c_int {
    if keeps_clients(context) { HASH_CLASSES } else { raw::REDISMODULE_NOTIFY_HASH }
}

/// Subscribes to the events of hashes with the first waiter that names one: without any, HSET costs no more than without the module. If
/// the server refuses, held waiters wait for BF.CHANGED.
fn subscribe_to_hashes(context: Context) {
    static IS_SUBSCRIBED: AtomicBool = AtomicBool::new(false);
    if !IS_SUBSCRIBED.load(Relaxed) && subscribe(context) {
        IS_SUBSCRIBED.store(api::subscribe_to_keys(context, hash_classes(context), Some(on_hash_event)) == OK, Relaxed);
    }
}

unsafe extern "C" fn on_hash_event(
    context: *mut raw::RedisModuleCtx,
    _: c_int,
    event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the event is a C string.
    if HAS_HELD.load(Relaxed) && frees_fields(unsafe { CStr::from_ptr(event) }.to_bytes()) {
        let context = Context::new(context);
        // SAFETY: the key's name lives until this returns.
        let hash = key_id(context, unsafe { Arg::of(&key) }).name_hash();
        with_guard(context, |guard| guard.hash_changed(hash));
    }
    OK
}

/// Whether a hash may have fewer fields after an event: `hdel`, `hexpired`, `del`, `expired`, `evicted`, `rename_from`, and any that is not
/// known.
fn frees_fields(event: &[u8]) -> bool {
    ![&b"hset"[..], b"hincrby", b"hincrbyfloat", b"hexpire", b"hpersist", b"expire", b"persist"].contains(&event)
}

// Whether slots may have left this node and come back.
//
// While another node owns a slot, rows of that slot change unseen by this node. A filter migrates with its slot and comes back
// as another instance, which voids its tokens. A missing filter leaves no such trace, and the server does not tell modules
// about slots. But a node that imports a slot takes a new epoch, unless it has the highest one. So a slot that leaves and
// comes back changes the cluster's epoch, or this node's own.

/// The lines of CLUSTER INFO with the epochs.
const EPOCH_LINES: [&[u8]; 2] = [b"cluster_current_epoch:", b"cluster_my_epoch:"];

/// When the epochs were last read.
static EPOCHS_READ: AtomicU64 = AtomicU64::new(0);
/// A grant reads the epochs if they were read longer ago than this, in milliseconds.
const EPOCHS_FRESH: Instant = 100;

/// Voids all tokens, leases and NONEs if the epochs have changed since the last call. Returns whether they could be read. CLUSTER INFO
/// takes the time of several lookups, so only rows without a filter need this: a filter comes back as another instance.
fn check_epochs(context: Context) -> bool {
    if !context.is_in_cluster() {
        return true;
    }
    let Some(epochs) = read_epochs(context) else { return false };
    EPOCHS_READ.store(now(), Relaxed);
    with_guard(context, |guard| guard.check_epochs(epochs));
    true
}

/// Whether the epochs are known as they were at the time of a grant, or before. A fill that finds the same epochs then knows that they
/// have not changed since the grant, because an epoch never returns. If they change between this reading and the grant, one fill is
/// refused without need: so they are read again from time to time.
fn knows_epochs(context: Context) -> bool {
    let read = EPOCHS_READ.load(Relaxed);
    (read > 0 && now() - read < EPOCHS_FRESH) || check_epochs(context)
}

fn read_epochs(context: Context) -> Option<Epochs> {
    epochs_in(Reply::to_cluster_info(context)?.bytes())
}

fn epochs_in(text: &[u8]) -> Option<Epochs> {
    let [current, own] = EPOCH_LINES.map(|name| {
        let digits = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name))?;
        std::str::from_utf8(digits).ok()?.trim_end().parse().ok()
    });
    Some([current?, own?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_changes_a_value_or_a_filter() {
        for (event, value, filter) in [
            ("set", true, true),
            ("del", true, true),
            ("rename_to", true, true),
            ("expire", false, false),
            ("persist", false, false),
            ("expired", false, true),
            ("evicted", false, true),
            ("bloom.add", false, false),
            ("bloom.reserve", false, false),
        ] {
            assert_eq!(Invalidation::of(event.as_bytes(), false), Invalidation { value, filter }, "{event}");
        }
        assert!(Invalidation::of(b"expired", true).value);
    }

    #[test]
    fn an_event_frees_fields_unless_it_is_known_to_free_none() {
        for event in ["hdel", "hexpired", "del", "unlink", "expired", "evicted", "rename_from", "rename_to", "new"] {
            assert!(frees_fields(event.as_bytes()), "{event}");
        }
        assert!(!frees_fields(b"hset") && !frees_fields(b"expire"));
    }

    #[test]
    fn epochs_are_read_from_cluster_info() {
        let text = "cluster_state:ok\r\ncluster_current_epoch:12\r\ncluster_my_epoch:7\r\ntotal_cluster_links:4\r\n";
        assert_eq!(epochs_in(text.as_bytes()), Some([12, 7]));
        assert_eq!(epochs_in(text.replace("my_epoch:7", "my_epoch:x").as_bytes()), None);
        assert_eq!(epochs_in(b"ERR This instance has cluster support disabled"), None);
    }
}
