//! The guard in front of a database: leases, clients that wait for them, tokens, and NONEs (items known to have no row).
//!
//! All of it is in the memory of this server: it is neither saved nor replicated. It is global and has its own lock, because the server
//! raises events during our commands, and in threads of other modules. That lock is never held across a call that may raise an event.
//!
//! The guard subscribes to keyspace events with the first lease and, if the server supports that, unsubscribes when it has no record and no
//! waiter. It subscribes to events of hashes with the first waiter that names one in UNLESS.

pub mod arguments;
mod cluster_epochs;
mod dependencies;
mod invalidation;
mod load_times;
#[cfg(test)]
mod model;
mod queues;
mod records;
mod row;
mod state;
mod tokens;
mod waiters;

use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};

use arguments::Fetch;
use bloomgate_filter::hash::siphash::{self, siphash24_128};
use cluster_epochs::{check_epochs, knows_epochs};
use foldhash::quality::FixedState;
use invalidation::{keeps_clients, subscribe};
use row::{DependencyId, KeyId, Row, Stamp};
use state::Instant;
use tokens::{granted, stamp, token};
use waiters::WaiterQuestion;

use crate::args::Arg;
use crate::config;
use crate::context::{Context, LogLevel};
use crate::server::timer::now;
use crate::server_info::ServerInfo;
pub use state::{Asker, RowState, Trust};
pub use tokens::Token;
pub use waiters::{Answer, Pause, Question, Shared, TIMER, leave, wait};

/// The guard's state, with the questions of the waiters.
type Guard = state::Guard<WaiterQuestion>;

static GUARD: LazyLock<Mutex<Guard>> = LazyLock::new(Mutex::default);
/// Whether there is a record or a waiter.
static IS_BUSY: AtomicBool = AtomicBool::new(false);
/// Whether a waiter is held.
static HAS_HELD: AtomicBool = AtomicBool::new(false);
/// The time of the last warning about a missing filter or key of WHILE.
static LAST_WARNED: AtomicU64 = AtomicU64::new(0);
/// The minimum interval of such warnings, in milliseconds.
const WARN_INTERVAL: Instant = 60_000;
/// Whether the next grant checks the replicas and their settings. The first grant does.
static CHECKS_REPLICAS: AtomicBool = AtomicBool::new(true);
/// The maximum length of a key's name in the log, in bytes.
const NAME_SHOWN: usize = 100;

/// Runs `work` on the guard's state. It must not make a call that may raise an event.
fn with<T>(work: impl FnOnce(&mut Guard) -> T) -> T {
    let mut guard = GUARD.lock().unwrap_or_else(PoisonError::into_inner);
    let done = work(&mut guard);
    IS_BUSY.store(!guard.is_idle(), Relaxed);
    HAS_HELD.store(guard.has_held(), Relaxed);
    done
}

/// [`with`], for work that may schedule timer events: sets the timer, too.
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

/// The hash of a name, an item or a token, under a key of this process. The key is fixed for the life of the server, so a token of another
/// process has another hash.
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

/// Whether a value that expires in `left` milliseconds is renewed before STALE, by RENEW. A hit takes no lock for this.
#[inline]
pub fn renews(context: Context, instance: Option<u64>, options: Fetch, left: u64) -> bool {
    static DRAWS: AtomicU64 = AtomicU64::new(0);
    let draw = || {
        let number = DRAWS.load(Relaxed).wrapping_add(1);
        DRAWS.store(number, Relaxed);
        table_hash(context, &number.to_le_bytes())
    };
    options.renew > 0
        && load_times::is_due(instance.unwrap_or(0), options.renew, left.saturating_sub(options.stale), draw)
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

    /// Grants the lease for a number of milliseconds; with `fresh`, for at most that number, during which a fill is valid without the key
    /// of WHILE. Returns the token, and its stamp. BF.FILL will refuse it if memory is short, the server does not raise the events that the
    /// row needs, or the epochs of its cluster cannot be read.
    pub fn grant(&self, milliseconds: u64, fresh: Option<u64>) -> (Token, Stamp) {
        if CHECKS_REPLICAS.load(Relaxed) {
            warn_unfenced(self.context);
        }
        let (mut stamp, now) = (0, now());
        if subscribe(self.context) && (!self.row.is_unguarded() || knows_epochs(self.context)) {
            let end = now.saturating_add(fresh.map_or(milliseconds, |fresh| fresh.min(milliseconds)));
            let fresh_until = fresh.map(|fresh| now.saturating_add(fresh));
            stamp =
                with_guard(self.context, |guard| guard.grant(self.row, (now, end), fresh_until, config::max_leases()));
            // If the server does not report DEL and RENAME, a filter may be created and deleted unseen.
            if self.row.is_unguarded() && !keeps_clients(self.context) {
                with(|guard| guard.void_tokens(self.row.key));
            }
        }
        (token(self.context, &self.row, stamp, load_times::tick(now)), stamp)
    }

    /// Whether a token is safe: its caller's value may be cached.
    pub fn accepts(&self, given: Token) -> bool {
        !is_idle()
            && given == token(self.context, &self.row, stamp(given), granted(given))
            && (!self.row.is_unguarded() || check_epochs(self.context))
            && with_guard(self.context, |guard| guard.accepts(&self.row, stamp(given)))
    }

    /// The time until which a fill with an accepted token is valid without the key of WHILE, if any. Call it before the value is stored,
    /// which ends the lease with this time.
    pub fn fresh_until(&self, given: Token) -> Option<Instant> {
        let now = now();
        with(|guard| guard.fresh_until(self.row.key, stamp(given), now))
    }

    /// Ends the lease if a token holds it. Returns whether the lease had not expired.
    pub fn give_up(&self, given: Token) -> bool {
        let now = now();
        with_guard(self.context, |guard| guard.give_up(self.row.key, stamp(given), now))
    }

    /// Ends the lease, and grants no other one for a number of milliseconds, until [`changed`] is called; without a number, for twice the
    /// last back-off. Its waiters are served.
    pub fn back_off(&self, milliseconds: Option<u64>) {
        let now = now();
        with_guard(self.context, |guard| guard.back_off(self.row.key, now, milliseconds, config::max_leases()));
    }

    /// The holder of an accepted token has loaded the row, or found none: RENEW needs the time that this took.
    pub fn loaded(&self, given: Token) {
        load_times::count(self.row.instance, granted(given), now());
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

/// Voids the tokens of a cache key, ends its record, and schedules its waiters. Called before and after a write of its row.
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

/// Voids the tokens of a filter that one of our commands created, replaced, emptied or merged into.
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

/// Logs that no item is reported `absent`, because the key of WHILE is `missing`, or otherwise the filter.
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

/// A replica has connected or left, or a setting of the server was changed.
pub fn replication_changed() {
    CHECKS_REPLICAS.store(true, Relaxed);
}

/// Logs, once, that the server has replicas but accepts writes without them: after a failover such a primary keeps answering.
fn warn_unfenced(context: Context) {
    static HAS_WARNED: AtomicBool = AtomicBool::new(false);
    CHECKS_REPLICAS.store(false, Relaxed);
    let Some(info) = ServerInfo::of(context, c"replication") else { return };
    let replicas = info.number(c"connected_slaves").unwrap_or(0);
    // The server counts its good replicas only if both settings are above 0.
    if replicas > 0 && info.number(c"min_slaves_good_slaves").is_none() && !HAS_WARNED.swap(true, Relaxed) {
        let line = format_args!(
            "bloomgate: this server has {replicas} replica(s), and min-replicas-to-write or min-replicas-max-lag is 0: after a failover \
             the old primary keeps serving old rows, and reports new rows absent, until it becomes a replica. Set \
             min-replicas-to-write 1 in the configuration file"
        );
        context.log(LogLevel::Warning, line);
    }
}

/// For INFO: the numbers of leases, of NONEs and of waiting clients.
pub fn counts() -> [u64; 3] {
    let (leases, no_rows, waiting) = if is_idle() { (0, 0, 0) } else { with(|guard| guard.counts()) };
    [leases, no_rows, waiting].map(|count| count as u64)
}
