//! What readers and writers of one run share: the database, the model, the settings, and what is counted.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::client::{Client, Primary, Trouble};
use crate::database::{Database, Pool};
use crate::harness::Rng;
use crate::model::Model;

/// The first ids of the table are asked for and changed most, and the very first of them by everybody.
pub const HEADLINES: u64 = 5;
pub const HOT: u64 = 300;
/// Ids that are inserted and deleted again and again.
pub const RETURNING: u64 = 1 << 40;
pub const RETURNING_IDS: u64 = 200;
/// Ids that never exist and are asked for again and again; an id that nobody asked for before begins at [`NOVEL`].
pub const ABSENT: u64 = 1 << 41;
pub const ABSENT_IDS: u64 = 2000;
pub const NOVEL: u64 = 1 << 42;
/// How much longer a reader's query takes than in a database beside it: as in one over the network.
pub const QUERY: Duration = Duration::from_millis(2);
/// A lease in milliseconds, and the times to live of values and of NONEs, are drawn from these.
pub const LEASE_MS: (u64, u64) = (20, 300);
pub const VALUE_MS: (u64, u64) = (100, 900);
pub const NONE_MS: (u64, u64) = (50, 600);

/// How the database is guarded.
#[derive(Clone, Copy, PartialEq)]
pub enum Way {
    /// BF.FETCH, BF.FILL, BF.CHANGED.
    Guard,
    /// BF.EXISTS, then GET and SET; BF.ADD before the commit, DEL after it.
    FilterAndCache,
    /// GET and SET; DEL after the commit.
    Cache,
}

/// What a run is made of.
#[derive(Clone, Copy)]
pub struct Settings {
    pub rows: u64,
    pub readers: usize,
    pub writers: usize,
    /// Sessions of the database, for all of them together.
    pub sessions: usize,
    pub way: Way,
    /// Whether readers and writers die in the middle, hold tokens too long, forge them and use them twice.
    pub mischief: bool,
    /// The two calls of BF.CHANGED. A writer that leaves one out is there to show that the model notices.
    pub first_call: bool,
    pub second_call: bool,
    /// Whether the first call is always made in the transaction, after its first write: where filters are filled again.
    pub first_call_inside: bool,
    /// Whether writers wait for a replica to confirm each announcement.
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

/// What is counted in a run.
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
    /// Readers that left with a token, or while they were waiting.
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

/// Adds one.
pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// What was counted.
pub fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// A version that a writer committed before it died, and when it is announced at the latest: what was cached or leased
/// before has ended by then.
struct Orphan {
    due: Instant,
    id: u64,
    version: u64,
}

/// All that a run shares.
pub struct World {
    pub settings: Settings,
    pub pool: Pool,
    pub primary: Primary,
    pub model: Model,
    pub counts: Counts,
    /// Tells readers and writers to end.
    pub stop: AtomicBool,
    /// Lookups that are still to be made, where a run has a number of them.
    pub lookups_left: AtomicI64,
    /// The next id that is inserted and never was before.
    pub next_id: AtomicU64,
    /// Whether writers announce to the filter that is being filled, too.
    pub filling: AtomicBool,
    /// Ids that were deleted a while ago.
    pub gone: Mutex<Vec<u64>>,
    orphans: Mutex<Vec<Orphan>>,
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
            first_refusal: Mutex::default(),
        }
    }

    /// Whether readers and writers go on.
    pub fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// A client of the server that is primary.
    pub fn client(&self) -> Client<'_> {
        Client::new(&self.primary)
    }

    /// There was no answer, or an error.
    pub fn trouble(&self, trouble: Trouble) {
        count(&self.counts.troubles);
        if let Trouble::Refused(text) = trouble {
            self.first_refusal.lock().unwrap().get_or_insert(text);
        }
    }

    /// The first error that a server answered.
    pub fn first_refusal(&self) -> Option<String> {
        self.first_refusal.lock().unwrap().clone()
    }

    /// A writer dies after its commit and before its second call.
    pub fn orphaned(&self, id: u64, version: u64) {
        // A lease that was there, what it filled, and a second for clocks that are read coarsely.
        let most = LEASE_MS.1 + VALUE_MS.1.max(NONE_MS.1) + 1000;
        let due = Instant::now() + Duration::from_millis(most);
        self.orphans.lock().unwrap().push(Orphan { due, id, version });
    }

    /// Holds readers to the versions of dead writers whose time has come; the number of those that are still to come.
    pub fn adopt(&self) -> usize {
        let now = Instant::now();
        let mut orphans = self.orphans.lock().unwrap();
        orphans.retain(|orphan| {
            if orphan.due <= now {
                self.model.announced(orphan.id, orphan.version, true);
            }
            orphan.due > now
        });
        orphans.len()
    }
}

/// A number from the pair's first to its last.
pub fn between(rng: &mut Rng, (least, most): (u64, u64)) -> u64 {
    least + rng.below(most - least + 1)
}

/// Whether something happens that does so in `percent` of all cases.
pub fn chance(rng: &mut Rng, percent: u64) -> bool {
    rng.below(100) < percent
}
