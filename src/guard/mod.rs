//! The guard in front of a database: leases, clients that wait for them, and NONEs, the items that are known to have no row.
//!
//! All of it is in the memory of this server: it is neither saved nor replicated. It is global and has a lock of its own,
//! because the server raises events in the middle of our commands, and in the threads of other modules. That lock is never
//! held across a call that may raise an event.
//!
//! The guard subscribes to keyspace events with the first lease: without it they cost nothing.

mod alarm;
mod blocking;
mod cluster;
mod events;
mod ids;
#[cfg(test)]
mod model;
mod queues;
mod records;
mod state;
mod table;
#[cfg(test)]
mod tidying;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};
use std::time;

use bloomgate_filter::hash::siphash::{self, siphash24_128};
use redis_module::raw;

pub use blocking::{Answer, Pause, Question, leave, wait};
use ids::FilterId;
pub use ids::{CacheKeyId, Granted, ItemId};
pub use state::{Asker, Standing};
use table::Instant;

use super::args::Arg;
use super::config;
use super::context::{Context, LogLevel};

/// The guard's state, with the questions of the waiters.
type Guard = state::Guard<blocking::Asked>;

static GUARD: LazyLock<Mutex<Guard>> = LazyLock::new(Mutex::default);
/// Whether there is a lease, a NONE or a waiter.
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

/// Whether there is no lease, no NONE and no waiter. Costs one load from memory.
#[inline]
pub fn is_idle() -> bool {
    !IS_BUSY.load(Relaxed)
}

/// Milliseconds since the guard was first asked for the time.
fn now() -> Instant {
    static BEGIN: OnceLock<time::Instant> = OnceLock::new();
    u64::try_from(BEGIN.get_or_init(time::Instant::now).elapsed().as_millis()).unwrap_or(Instant::MAX)
}

/// The hash of a name or an item, under a key of this process.
fn hash(context: Context, bytes: &[u8]) -> [u64; 2] {
    static KEY: OnceLock<siphash::Key> = OnceLock::new();
    siphash24_128(bytes, *KEY.get_or_init(|| context.random_bytes()))
}

/// The id of a key of the selected database.
pub fn key_id(context: Context, name: Arg<'_>) -> CacheKeyId {
    // SAFETY: the context is valid while the command or the callback runs.
    let database = unsafe { raw::RedisModule_GetSelectedDb.map_or(0, |selected| selected(context.raw)) };
    CacheKeyId { database, name: hash(context, name.bytes()) }
}

/// The id of an item of a filter, which is given by its name and its instance. A filter that is missing, or whose chunks are
/// still arriving, has no instance.
pub fn item_id(context: Context, filter: Arg<'_>, instance: Option<u64>, item: Arg<'_>) -> ItemId {
    let filter = match instance {
        Some(instance) => FilterId::existing(instance),
        None => FilterId::missing(key_id(context, filter)),
    };
    ItemId { filter, item: hash(context, item.bytes()) }
}

/// Decides what BF.FETCH may do about a cache key. With `denies`, a NONE applies; without, it is ignored. Calls `item` only if
/// the cache key has a record or a waiter.
pub fn standing(
    context: Context,
    key: CacheKeyId,
    item: impl FnOnce() -> ItemId,
    asker: Asker,
    denies: bool,
) -> Standing {
    if !with(|guard| guard.knows(key)) {
        return Standing::Free;
    }
    let (item, now) = (item(), now());
    act(context, |guard| guard.standing(key, item, asker, denies, now))
}

/// Grants the lease of a cache key for a number of milliseconds. Returns its token. If the lease cannot be recorded, BF.FILL
/// will refuse the token: memory is short, the server raises no events, or the epochs of its cluster cannot be read.
pub fn grant(context: Context, key: CacheKeyId, item: ItemId, milliseconds: u64) -> u64 {
    let token = u64::from_le_bytes(context.random_bytes());
    if events::subscribe(context) && (!item.filter.is_missing() || cluster::look(context)) {
        let now = now();
        let end = now.saturating_add(milliseconds);
        act(context, |guard| _ = guard.grant(key, item, token, (now, end), config::max_leases()));
    }
    token
}

/// Whether the live lease of a cache key is for this item and has this token.
pub fn holds(context: Context, key: CacheKeyId, item: ItemId, token: u64) -> bool {
    if is_idle() || (item.filter.is_missing() && !cluster::look(context)) {
        return false;
    }
    let now = now();
    with(|guard| guard.holds(key, item, token, now))
}

/// Records for a number of milliseconds that an item has no row. Its lease ends, and its waiters are served.
pub fn note_no_row(context: Context, key: CacheKeyId, item: ItemId, milliseconds: u64) {
    let now = now();
    let end = now.saturating_add(milliseconds);
    act(context, |guard| guard.note_no_row(key, item, (now, end), config::max_leases()));
}

/// Ends the lease of a cache key, and grants no other one for a number of milliseconds, until [`end`] is called. Its waiters are
/// served.
pub fn back_off(context: Context, key: CacheKeyId, milliseconds: u64) {
    let now = now();
    let end = now.saturating_add(milliseconds);
    act(context, |guard| guard.back_off(key, (now, end), config::max_leases()));
}

/// Ends the lease, the NONE or the back-off of a cache key, and schedules its waiters: they get the value, or one of them gets the
/// lease.
pub fn end(context: Context, key: CacheKeyId) {
    act(context, |guard| guard.end(key));
}

/// Ends the leases and NONEs of items that a command adds to a filter, even if the filter refuses them, is missing, or is still
/// arriving: it has an instance then, and the leases are those of a missing one.
pub fn end_items(context: Context, filter: Arg<'_>, instance: Option<u64>, items: &[Arg<'_>]) {
    if is_idle() {
        return;
    }
    let missing = FilterId::missing(key_id(context, filter));
    let filters = [Some(missing), instance.map(FilterId::existing)];
    for item in items {
        let item = hash(context, item.bytes());
        let ids = filters.into_iter().flatten().map(|filter| ItemId { filter, item });
        act(context, |guard| ids.for_each(|id| guard.end_item(id)));
    }
}

/// Ends the NONEs of a filter into which other filters were merged.
pub fn end_nones_of(instance: u64) {
    if !is_idle() {
        with(|guard| guard.end_nones_of(FilterId::existing(instance)));
    }
}

/// Ends the leases of a filter that was replaced without an event of the server.
pub fn filter_replaced(context: Context, filter: Arg<'_>) {
    if !is_idle() {
        let filter = key_id(context, filter);
        act(context, |guard| guard.filter_replaced(filter));
    }
}

/// Applies an event of the server to the key that it names.
fn key_event(context: Context, name: Arg<'_>, meaning: events::Meaning) {
    let key = key_id(context, name);
    act(context, |guard| {
        if meaning.voids {
            guard.void(key);
        }
        if meaning.replaces {
            guard.filter_replaced(key);
        }
    });
}

/// Ends all leases and NONEs: the data set was replaced, or the server's role has changed.
pub fn end_all(context: Context) {
    if !is_idle() {
        act(context, Guard::end_all);
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
