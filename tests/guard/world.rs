//! The state that readers and writers of a run share: the database, the model, the settings and the counts.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::client::{Client, ClientError, Primary};
use crate::model::Model;
use testing::Rng;
use testing::database::{Database, Pool};

/// The first ids of the table are read and changed most often, and the very first of them by everyone.
pub const HEADLINES: u64 = 5;
pub const HOT: u64 = 300;
/// Ids that are inserted and deleted repeatedly.
pub const RETURNING: u64 = 1 << 40;
pub const RETURNING_IDS: u64 = 200;
/// Ids that never exist and are requested repeatedly; ids that were never requested before begin at [`NOVEL`].
pub const ABSENT: u64 = 1 << 41;
pub const ABSENT_IDS: u64 = 2000;
pub const NOVEL: u64 = 1 << 42;
/// The added duration of a reader's query, as for a database across a network.
pub const QUERY: Duration = Duration::from_millis(2);
/// The ranges of leases, and of the times to live of values and NONEs, in milliseconds.
pub const LEASE_MS: (u64, u64) = (20, 300);
pub const VALUE_MS: (u64, u64) = (100, 900);
pub const NONE_MS: (u64, u64) = (50, 600);

/// The way in which the database is guarded.
#[derive(Clone, Copy, PartialEq)]
pub enum Way {
    /// BF.FETCH, BF.FILL, BF.CHANGED.
    Guard,
    /// BF.EXISTS, then GET and SET; BF.ADD before the commit, DEL after it.
    FilterAndCache,
    /// GET and SET; DEL after the commit.
    Cache,
}

/// The settings of a run.
#[derive(Clone, Copy)]
pub struct Settings {
    pub rows: u64,
    pub readers: usize,
    pub writers: usize,
    /// Database sessions, shared by all clients.
    pub sessions: usize,
    pub way: Way,
    /// Whether readers and writers die, hold tokens too long, forge tokens and use them twice.
    pub mischief: bool,
    /// Which of the two calls of BF.CHANGED writers make. Omitting one shows that the model detects it.
    pub first_call: bool,
    pub second_call: bool,
    /// Whether the first call is always made inside the transaction, after its first write. This is needed if filters are
    /// refilled.
    pub first_call_inside: bool,
    /// Whether writers wait until a replica confirms each announcement.
    pub confirm: bool,
}

impl Settings {
    /// Two hundred clients in front of a hundred thousand rows.
    pub fn full() -> Self {
        Self {
            rows: 100_000,
            readers: 170,
            writers: 30,
            sessions: 40,
            way: Way::Guard,
            mischief: true,
            first_call: true,
            second_call: true,
            first_call_inside: false,
            confirm: false,
        }
    }
}

/// The counts of a run.
#[derive(Default)]
pub struct Counts {
    pub lookups: AtomicU64,
    pub round_trips: AtomicU64,
    pub without_row: AtomicU64,
    pub absent: AtomicU64,
    pub hits: AtomicU64,
    pub stale: AtomicU64,
    pub outdated_stale: AtomicU64,
    pub loads: AtomicU64,
    pub waits: AtomicU64,
    /// Reads of a row by readers.
    pub queries: AtomicU64,
    pub fills: AtomicU64,
    pub refused_fills: AtomicU64,
    /// Readers that disconnected with a token, or while they waited.
    pub left: AtomicU64,
    pub troubles: AtomicU64,
    pub denied: AtomicU64,
    pub outdated: AtomicU64,
    pub inserted: AtomicU64,
    pub changed: AtomicU64,
    pub deleted: AtomicU64,
    pub rolled_back: AtomicU64,
    pub died: AtomicU64,
}

/// Adds one to a count.
pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Returns a count.
pub fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// A version that a writer committed before it died. Once the loads that were under way have ended, and everything that they have
/// filled in has expired, it counts as announced.
struct Orphan {
    /// The number of the first load that began later.
    load: u64,
    /// When everything has expired, once the loads have ended.
    due: Option<Instant>,
    id: u64,
    version: u64,
}

/// The shared state of a run.
pub struct World {
    pub settings: Settings,
    pub pool: Pool,
    pub primary: Primary,
    pub model: Model,
    pub counts: Counts,
    /// Makes readers and writers stop.
    pub stop: AtomicBool,
    /// The remaining lookups, if the run has a fixed number of them.
    pub lookups_left: AtomicI64,
    /// The next id that has never been inserted.
    pub next_id: AtomicU64,
    /// Whether writers also announce to the filter that is being filled.
    pub filling: AtomicBool,
    /// Ids that were deleted recently.
    pub gone: Mutex<Vec<u64>>,
    orphans: Mutex<Vec<Orphan>>,
    /// The number of the next load, and the loads that are under way.
    loads: Mutex<(u64, BTreeSet<u64>)>,
    first_refusal: Mutex<Option<String>>,
}

impl World {
    pub fn new(settings: Settings, database: &Database, port: u16) -> Self {
        Self {
            settings,
            pool: database.pool(settings.sessions),
            primary: Primary::new(port),
            model: Model::new(settings.rows),
            counts: Counts::default(),
            stop: AtomicBool::new(false),
            lookups_left: AtomicI64::new(i64::MAX),
            next_id: AtomicU64::new(settings.rows),
            filling: AtomicBool::new(false),
            gone: Mutex::default(),
            orphans: Mutex::default(),
            loads: Mutex::default(),
            first_refusal: Mutex::default(),
        }
    }

    /// Whether readers and writers continue.
    pub fn is_running(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// Returns a client of the current primary.
    pub fn client(&self) -> Client<'_> {
        Client::new(&self.primary)
    }

    /// Records an error or a lost connection.
    pub fn record_error(&self, error: ClientError) {
        count(&self.counts.troubles);
        if let ClientError::Refused(text) = error {
            self.first_refusal.lock().unwrap().get_or_insert(text);
        }
    }

    /// The first error that a server returned.
    pub fn first_refusal(&self) -> Option<String> {
        self.first_refusal.lock().unwrap().clone()
    }

    /// Records a writer that dies after its commit and before its second call.
    pub fn orphaned(&self, id: u64, version: u64) {
        let load = self.loads.lock().unwrap().0;
        self.orphans.lock().unwrap().push(Orphan { load, due: None, id, version });
    }

    /// Looks a row up, and perhaps loads it.
    pub fn while_loading(&self, look_up: impl FnOnce()) {
        let number = {
            let (next, under_way) = &mut *self.loads.lock().unwrap();
            *next += 1;
            under_way.insert(*next - 1);
            *next - 1
        };
        look_up();
        self.loads.lock().unwrap().1.remove(&number);
    }

    /// Announces the versions of dead writers that are due. Returns the number of those that are not due yet.
    pub fn adopt(&self) -> usize {
        let now = Instant::now();
        let oldest_load = self.loads.lock().unwrap().1.first().copied().unwrap_or(u64::MAX);
        // The longest value, and a second for coarse clocks.
        let expired = now + Duration::from_millis(VALUE_MS.1.max(NONE_MS.1) + 1000);
        let mut orphans = self.orphans.lock().unwrap();
        orphans.retain_mut(|orphan| {
            if oldest_load >= orphan.load {
                orphan.due.get_or_insert(expired);
            }
            let is_due = orphan.due.is_some_and(|due| due <= now);
            if is_due {
                self.model.announced(orphan.id, orphan.version, true);
            }
            !is_due
        });
        orphans.len()
    }
}

/// Returns a random number in the range, both ends included.
pub fn between(rng: &mut Rng, (least, most): (u64, u64)) -> u64 {
    least + rng.below(most - least + 1)
}

/// Returns true with a probability of `percent`.
pub fn chance(rng: &mut Rng, percent: u64) -> bool {
    rng.below(100) < percent
}
