//! The guard in front of a database: leases, clients that wait for them, tokens, and NONEs, the items that are known to have no row.
//!
//! All of it is in the memory of this server: it is neither saved nor replicated. It is global and has a lock of its own,
//! because the server raises events in the middle of our commands, and in the threads of other modules. That lock is never
//! held across a call that may raise an event.
//!
//! The guard subscribes to keyspace events with the first lease: without it they cost nothing.

mod alarm;
mod blocking;
mod changes;
mod cluster;
mod events;
mod ids;
#[cfg(test)]
mod model;
mod queues;
mod records;
mod state;
#[cfg(test)]
mod tidying;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};
use std::time;

use bloomgate_filter::hash::siphash::{self, siphash24_128};
use redis_module::raw;

pub use blocking::{Answer, Pause, Question, leave, wait};
use changes::Stamp;
use ids::{KeyId, Row, What};
use state::Instant;
pub use state::{Asker, Standing};

use super::args::Arg;
use super::config;
use super::context::{Context, LogLevel};

/// The guard's state, with the questions of the waiters.
type Guard = state::Guard<blocking::Asked>;

static GUARD: LazyLock<Mutex<Guard>> = LazyLock::new(Mutex::default);
/// Whether there is a token or a waiter.
static IS_BUSY: AtomicBool = AtomicBool::new(false);
/// When the log last reported that a filter or a key of WHILE is missing.
static LAST_SAID: AtomicU64 = AtomicU64::new(0);
/// The least time between two such reports, in milliseconds.
const SAID_EVERY: Instant = 60_000;
/// The most bytes of a key's name that the log shows.
const NAME_SHOWN: usize = 100;

/// Runs `work` on the guard's state. It must not make a call that may raise an event.
fn with<T>(work: impl FnOnce(&mut Guard) -> T) -> T {
    let mut guard = GUARD.lock().unwrap_or_else(PoisonError::into_inner);
    let done = work(&mut guard);
    IS_BUSY.store(!guard.is_idle(), Relaxed);
    done
}

/// [`with`], for work that may schedule something: sets the timer, too.
fn act<T>(context: Context, work: impl FnOnce(&mut Guard) -> T) -> T {
    let (done, due) = with(|guard| (work(guard), guard.next_due()));
    if let Some(at) = due {
        blocking::set_timer(context, at);
    }
    done
}

/// Whether there is no token and no waiter, so that whatever changes is of no interest. Costs one load from memory.
#[inline]
pub fn is_idle() -> bool {
    !IS_BUSY.load(Relaxed)
}

/// Milliseconds since the guard was first asked for the time.
fn now() -> Instant {
    static BEGIN: OnceLock<time::Instant> = OnceLock::new();
    u64::try_from(BEGIN.get_or_init(time::Instant::now).elapsed().as_millis()).unwrap_or(Instant::MAX)
}

/// The hash of a name, an item or a token, under a key of this process. It is the life of the server: a token of another process has
/// another hash.
fn hash(context: Context, bytes: &[u8]) -> [u64; 2] {
    static KEY: OnceLock<siphash::Key> = OnceLock::new();
    siphash24_128(bytes, *KEY.get_or_init(|| context.random_bytes()))
}

/// The id of a key of the selected database.
fn key_id(context: Context, name: Arg<'_>) -> KeyId {
    // SAFETY: the context is valid while the command or the callback runs.
    let database = unsafe { raw::RedisModule_GetSelectedDb.map_or(0, |selected| selected(context.raw)) };
    KeyId(hash(context, name.bytes()).map(|half| half ^ u64::from(database.cast_unsigned())))
}

/// The id of an item of a filter.
fn item_id(context: Context, filter: What, item: Arg<'_>) -> What {
    let [half, _] = hash(context, item.bytes());
    half ^ filter
}

/// A row: an item of a filter, which is given by its name and its instance, and a cache key. A filter that is missing, or whose chunks
/// are still arriving, has no instance.
fn row(context: Context, filter: Arg<'_>, instance: Option<u64>, [item, cache_key]: [Arg<'_>; 2]) -> Row {
    let filter = key_id(context, filter).filter();
    let (key, item) = (key_id(context, cache_key), item_id(context, filter, item));
    Row { key, filter, item, instance: instance.unwrap_or(0) }
}

/// What a caller shows to BF.FILL: the stamp, and a hash of the stamp and the row, so that the token is good for no other row, filter
/// or server.
pub type Token = u128;

fn token(context: Context, row: &Row, stamp: Stamp) -> Token {
    let Row { key: KeyId([first, second]), item, instance, .. } = *row;
    let bytes = [stamp, first, second, item, instance].map(u64::to_le_bytes);
    let [tag, _] = hash(context, bytes.as_flattened());
    Token::from(stamp) << u64::BITS | Token::from(tag)
}

const fn stamp(token: Token) -> Stamp {
    (token >> u64::BITS) as Stamp
}

/// The row that a command of the guard names, with what the guard does about it.
pub struct Guarded {
    context: Context,
    row: Row,
}

impl Guarded {
    /// An item of a filter, which is given by its name and its instance, and a cache key. A filter that is missing, or whose chunks
    /// are still arriving, has no instance.
    pub fn new(context: Context, filter: Arg<'_>, instance: Option<u64>, names: [Arg<'_>; 2]) -> Self {
        Self { context, row: row(context, filter, instance, names) }
    }

    /// Decides what BF.FETCH may do about the row. With `denies`, a NONE applies; without, it is ignored.
    pub fn standing(&self, asker: Asker, denies: bool) -> Standing {
        let now = now();
        act(self.context, |guard| guard.standing(&self.row, asker, denies, now))
    }

    /// Grants the lease for a number of milliseconds. Returns the token, and its stamp. BF.FILL will refuse it if memory is short,
    /// the server raises no events, or the epochs of its cluster cannot be read.
    pub fn grant(&self, milliseconds: u64) -> (Token, Stamp) {
        let mut stamp = 0;
        if events::subscribe(self.context) && self.sees_slots() {
            let now = now();
            let end = now.saturating_add(milliseconds);
            stamp = act(self.context, |guard| guard.grant(self.row, (now, end), config::max_leases()));
        }
        (token(self.context, &self.row, stamp), stamp)
    }

    /// Whether a token is safe: what its caller has read may be cached.
    pub fn accepts(&self, given: Token) -> bool {
        !is_idle()
            && self.sees_slots()
            && given == token(self.context, &self.row, stamp(given))
            && act(self.context, |guard| guard.accepts(&self.row, stamp(given)))
    }

    /// Ends the lease if a token has it. Returns whether it did.
    pub fn give_up(&self, given: Token) -> bool {
        let now = now();
        act(self.context, |guard| guard.give_up(self.row.key, stamp(given), now))
    }

    /// Ends the lease, and grants no other one for a number of milliseconds, until [`changed`] is called. Its waiters are served.
    pub fn back_off(&self, milliseconds: u64) {
        let now = now();
        let end = now.saturating_add(milliseconds);
        act(self.context, |guard| guard.back_off(self.row.key, (now, end), config::max_leases()));
    }

    /// The value was stored: ends the lease, and schedules the waiters.
    pub fn filled(&self) {
        act(self.context, |guard| guard.row_changed(self.row.key));
    }

    /// Records for a number of milliseconds that the item has no row. The lease ends, and the waiters are served.
    pub fn note_no_row(&self, milliseconds: u64) {
        let now = now();
        let end = now.saturating_add(milliseconds);
        act(self.context, |guard| guard.note_no_row(self.row, (now, end), config::max_leases()));
    }

    /// Whether this server knows what became of the row: with a filter always, because it comes back as another instance.
    fn sees_slots(&self) -> bool {
        !self.row.is_unguarded() || cluster::look(self.context)
    }
}

/// Voids the tokens of a cache key whose row is about to be written, or was, ends what is known of it, and schedules its waiters.
pub fn changed(context: Context, name: Arg<'_>) {
    if !is_idle() {
        let key = key_id(context, name);
        act(context, |guard| guard.row_changed(key));
    }
}

/// Voids the tokens of items that a command adds to a filter, even if the filter refuses them, is missing, or is still arriving.
pub fn items_added(context: Context, filter: Arg<'_>, items: &[Arg<'_>]) {
    if is_idle() {
        return;
    }
    let filter = key_id(context, filter).filter();
    if with(|guard| guard.is_guarded(filter)) {
        let ids = items.iter().map(|item| item_id(context, filter, *item));
        act(context, |guard| ids.for_each(|id| guard.filter_changed(id)));
    }
}

/// Voids the tokens of a filter that was replaced without an event of the server.
pub fn filter_replaced(context: Context, filter: Arg<'_>) {
    if !is_idle() {
        key_event(context, filter, events::Meaning { value: false, filter: true });
    }
}

/// Applies an event of the server to the key that it names.
fn key_event(context: Context, name: Arg<'_>, changed: events::Meaning) {
    let key = key_id(context, name);
    act(context, |guard| {
        if changed.value {
            guard.value_changed(key);
        }
        if changed.filter && guard.is_guarded(key.filter()) {
            guard.filter_changed(key.filter());
        }
    });
}

/// Voids all tokens, and ends all leases and NONEs: the data set was replaced, or the server's role has changed.
pub fn end_all(context: Context) {
    if !is_idle() {
        act(context, Guard::all_changed);
    }
}

/// Reports in the log that a key is missing, so that nothing is `absent`. `what` says which key of BF.FETCH that is.
pub fn say_unguarded(context: Context, what: &str, key: Arg<'_>) {
    let now = now().saturating_add(SAID_EVERY);
    if now - LAST_SAID.load(Relaxed) >= SAID_EVERY {
        LAST_SAID.store(now, Relaxed);
        let name = key.bytes();
        let name = name.get(..NAME_SHOWN).unwrap_or(name).escape_ascii();
        let line =
            format_args!("bloomgate: no {what} at '{name}': BF.FETCH answers from the cache and the leases alone");
        context.log(LogLevel::Warning, line);
    }
}

/// For INFO: the numbers of leases, of NONEs and of waiting clients.
pub fn counts() -> (u64, u64, u64) {
    if is_idle() {
        return (0, 0, 0);
    }
    let now = now();
    with(|guard| guard.counts(now))
}
