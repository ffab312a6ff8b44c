//! The guard in front of a database: who loads which value, who waits for it, and what is known to have no row.
//!
//! All of it is in the memory of this server alone: it is neither saved nor replicated. It is global and under the server's
//! lock, for the server tells of changed keys under the threads of other modules, too; and in the middle of our own
//! commands, so it is never locked across a call of the server.
//!
//! Who does not use the guard does not pay for it: the server's events are subscribed to with the first lease.

mod alarm;
mod blocking;
mod events;
mod table;
mod waiting;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time;

use bloomgate_filter::hash::siphash::{self, siphash24_128};
use redis_module::raw;

use alarm::{Alarm, Due};
pub use blocking::{wait, waiter_left, wake_all};
pub use table::{CacheKeyId, ItemId};
use table::{Instant, Known, Table};
use waiting::Queues;

use super::args::Arg;
use super::config;
use super::context::{Context, LogLevel};

/// Everything that the guard holds.
#[derive(Default)]
struct Guard {
    table: Table,
    queues: Queues,
    alarm: Alarm,
    /// Whether the alarm has a sweep.
    has_sweep: bool,
}

impl Guard {
    /// Drops what is over some time after that, and every second while there is more. Without memory for it the next lease
    /// does.
    fn sweep_after(&mut self, end: Instant) {
        if !self.has_sweep && !self.table.is_empty() {
            self.has_sweep = self.alarm.push(end.saturating_add(SWEPT_EVERY), Due::Sweep).is_ok();
        }
    }

    /// Drops what is over.
    fn sweep(&mut self, now: Instant) {
        self.has_sweep = false;
        self.table.drop_ended(now, SWEPT_AT_ONCE);
        self.sweep_after(now);
    }

    /// Takes out of the alarm what is no longer waited for, once that may be the most.
    fn tidy_alarm(&mut self, now: Instant) {
        let (queues, table) = (&self.queues, &self.table);
        self.alarm.tidy(2 * queues.len(), |at, due| match due {
            Due::Sweep => true,
            Due::Lease(key) => queues.has(key) && table.lease_end(key, now) == Some(at),
            Due::Waiter(waiter, ticket) => queues.waits(waiter, ticket),
        });
    }
}

static GUARD: LazyLock<Mutex<Guard>> = LazyLock::new(Mutex::default);
/// Whether there is a record, or somebody who waits.
static IS_BUSY: AtomicBool = AtomicBool::new(false);
/// Records that are over are dropped once in so many milliseconds, so many of each sort at once.
const SWEPT_EVERY: Instant = 1000;
const SWEPT_AT_ONCE: usize = 4096;
/// When the log said last that a filter is missing.
static LAST_SAID: AtomicU64 = AtomicU64::new(0);
/// The log says it once in so many milliseconds.
const SAID_EVERY: Instant = 60_000;

/// The most bytes of a filter's name that the log shows.
const NAME_SHOWN: usize = 100;

/// What a cache key is known for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing: whoever comes may take the lease.
    Free,
    /// There is no row.
    NoRow,
    /// Somebody loads the value, for so many milliseconds more.
    Leased(u64),
}

/// Does something with what the guard holds. It must not call the server.
fn with<T>(work: impl FnOnce(&mut Guard) -> T) -> T {
    let mut guard: MutexGuard<'_, Guard> = GUARD.lock().unwrap_or_else(PoisonError::into_inner);
    let done = work(&mut guard);
    IS_BUSY.store(!guard.table.is_empty() || guard.queues.len() > 0, Relaxed);
    done
}

/// Whether there is no record and nobody waits: one load from memory.
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

/// A cache key of the selected database.
pub fn key_id(context: Context, name: Arg<'_>) -> CacheKeyId {
    // SAFETY: the context is valid while the command or the callback runs.
    let database = unsafe { raw::RedisModule_GetSelectedDb.map_or(0, |selected| selected(context.raw)) };
    CacheKeyId { database, name: hash(context, name.bytes()) }
}

/// An item of a filter's instance; 0 where there is no filter.
pub fn item_id(context: Context, filter: u64, item: Arg<'_>) -> ItemId {
    ItemId { filter, item: hash(context, item.bytes()) }
}

/// How a cache key stands. Somebody who waited for it and is about to look again holds it, too, but for itself.
pub fn standing(key: CacheKeyId, item: impl FnOnce() -> ItemId, has_turn: bool) -> Standing {
    if !with(|guard| guard.table.has(key) || guard.queues.has_turn(key)) {
        return Standing::Free;
    }
    let (now, item) = (now(), item());
    with(|guard| match guard.table.known(key, item, now) {
        Some((Known::NoRow, _)) if item.filter != 0 => Standing::NoRow,
        Some((Known::Lease(_), end)) => Standing::Leased((end - now).max(1)),
        _ if guard.queues.has_turn(key) && !has_turn => Standing::Leased(1),
        _ => Standing::Free,
    })
}

/// Gives the caller the lease of a cache key, for so many milliseconds, and answers with its token. Where that cannot be noted,
/// for want of memory, the token is one that is refused.
pub fn lease(context: Context, key: CacheKeyId, item: ItemId, milliseconds: u64) -> u64 {
    let token = u64::from_le_bytes(context.random_bytes());
    if !events::subscribe(context) {
        return token;
    }
    let now = now();
    let end = now.saturating_add(milliseconds);
    let dropped = with(|guard| {
        let dropped = guard.table.note(key, item, Known::Lease(token), (now, end), config::max_leases());
        guard.sweep_after(end);
        if guard.queues.has(key) {
            // Without memory for it, those who wait do so until their own time is over.
            _ = guard.alarm.push(end, Due::Lease(key));
            guard.tidy_alarm(now);
        }
        dropped.ok().flatten()
    });
    if let Some(dropped) = dropped {
        blocking::give_turn(dropped);
    }
    blocking::set_alarm(context);
    token
}

/// How long the lease of a cache key has to go, whoever's it is, in milliseconds; 1 where it has none.
pub fn lease_left(key: CacheKeyId) -> u64 {
    let now = now();
    with(|guard| guard.table.lease_end(key, now)).map_or(1, |end| end - now)
}

/// Whether the token is that of the lease of a cache key.
pub fn holds(key: CacheKeyId, item: ItemId, token: u64) -> bool {
    let now = now();
    with(|guard| matches!(guard.table.known(key, item, now), Some((Known::Lease(held), _)) if held == token))
}

/// There is no row, for so many milliseconds. Where there is no memory to take note of it, the next caller loads again.
pub fn note_no_row(key: CacheKeyId, item: ItemId, milliseconds: u64) {
    let now = now();
    let end = now.saturating_add(milliseconds);
    with(|guard| {
        _ = guard.table.note(key, item, Known::NoRow, (now, end), config::max_leases());
        guard.sweep_after(end);
    });
    wake_all(key);
}

/// The value of a cache key is there: its lease ends, and those who wait are woken.
pub fn filled(key: CacheKeyId) {
    with(|guard| guard.table.void(key));
    wake_all(key);
}

/// Drops what is known of a cache key; one of those who wait for it may load.
pub fn void(key: CacheKeyId) {
    if with(|guard| guard.table.void(key)) {
        blocking::give_turn(key);
    }
}

/// A command added these items to a filter, whatever it answered: what is known of them is void.
pub fn added(context: Context, filter: u64, items: &[Arg<'_>]) {
    for item in items {
        let item = item_id(context, filter, *item);
        while let Some(key) = with(|guard| guard.table.key_of(item)) {
            void(key);
        }
    }
}

/// Other filters' items came to a filter: none of its items is known to have no row.
pub fn merged(filter: u64) {
    if !is_idle() {
        with(|guard| guard.table.void_nones_of(filter));
    }
}

/// The keys are others now, or this server is not what it was: everything is void.
pub fn void_all() {
    if is_idle() {
        return;
    }
    let keys = with(|guard| {
        guard.table.clear();
        guard.queues.cache_keys()
    });
    keys.into_iter().for_each(blocking::give_turn);
}

/// Says once a minute that a filter is not there, so that nothing is guarded by it.
pub fn say_unguarded(context: Context, filter: Arg<'_>) {
    let now = now().saturating_add(SAID_EVERY);
    if now - LAST_SAID.load(Relaxed) >= SAID_EVERY {
        LAST_SAID.store(now, Relaxed);
        let name = filter.bytes();
        let name = name.get(..NAME_SHOWN).unwrap_or(name).escape_ascii();
        let line =
            format_args!("bloomgate: no filter at '{name}': BF.FETCH answers from the cache and the leases alone");
        context.log(LogLevel::Warning, line);
    }
}

/// What INFO shows: the numbers of leases, of NONEs and of clients that wait.
pub fn counts() -> (u64, u64, u64) {
    if is_idle() {
        return (0, 0, 0);
    }
    let now = now();
    with(|guard| {
        let (leases, nones) = guard.table.counts(now);
        (leases, nones, guard.queues.len() as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_is_swept_until_nothing_is_left() {
        let mut guard = Guard::default();
        for (number, end) in [(1, 10), (2, 5000)] {
            let item = ItemId { filter: 1, item: [number, 0] };
            let key = CacheKeyId { database: 0, name: [number, 0] };
            guard.table.note(key, item, Known::NoRow, (0, end), 10).unwrap();
            guard.sweep_after(end);
        }
        let mut sweeps = 0;
        while let Some(at) = guard.alarm.next() {
            assert_eq!(guard.alarm.take(at), Some(Due::Sweep));
            guard.sweep(at);
            sweeps += 1;
        }
        assert!(guard.table.is_empty() && !guard.has_sweep);
        assert!((2..10).contains(&sweeps), "{sweeps}");
    }
}
