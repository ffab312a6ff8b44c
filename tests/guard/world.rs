//! A run: fills the filter, runs readers and writers while the test injects faults into the servers, looks up every row of the table
//! at the end, and reports. Readers and writers share the database, the model, the settings and the counts; each has a client, whose
//! connection follows the primary across failovers.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU16, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use testing::database::{Database, Pool};
use testing::{Connection, Reply, Rng, eventually, figures, integer, ok};

use crate::model::Model;
use crate::{readers, writers};

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
#[derive(Debug, Default)]
pub struct Counts {
    pub lookups: AtomicU64,
    pub round_trips: AtomicU64,
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

/// The filter, and its temporary name while it is being refilled.
pub const FILTER: &str = "rows";
pub const FILLING: &str = "rows:filling";

/// The cached value of a row: its id and its version, padded to the length of a row.
pub fn encode_value(id: u64, version: u64) -> String {
    format!("{id}:{version}:{}", "x".repeat(64))
}

/// Returns the version in a cached value; panics if it is the value of another id.
pub fn version_in(id: u64, value: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(value);
    let mut parts = text.split(':');
    let mut number = || parts.next().and_then(|part| part.parse::<u64>().ok());
    let (of, version) = (number(), number());
    assert_eq!(of, Some(id), "the cache has {text:?} for {id}");
    version.expect("a version")
}

/// The key of a row in the cache.
pub fn cache_key(id: u64) -> String {
    format!("row:{id}")
}

/// The reply to BF.FETCH.
pub enum Fetched {
    Absent,
    Hit(Vec<u8>),
    Stale(Vec<u8>, String),
    Load(String),
    Wait(u64),
}

/// Why there is no reply: the connection broke, or the server refused.
#[derive(Debug)]
pub enum ClientError {
    Gone,
    Refused(String),
}

/// The port of the current primary.
pub struct Primary(AtomicU16);

impl Primary {
    pub fn new(port: u16) -> Self {
        Self(AtomicU16::new(port))
    }

    pub fn set(&self, port: u16) {
        self.0.store(port, Ordering::SeqCst);
    }

    pub fn port(&self) -> u16 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A connection to the current primary, opened when it is needed.
pub struct Client<'a> {
    primary: &'a Primary,
    connection: Option<(u16, Connection)>,
    /// The number of round trips.
    pub round_trips: u64,
}

impl<'a> Client<'a> {
    pub fn new(primary: &'a Primary) -> Self {
        Self { primary, connection: None, round_trips: 0 }
    }

    fn connection(&mut self) -> Result<&mut Connection, ClientError> {
        let port = self.primary.port();
        let connection = match self.connection.take() {
            Some((at, connection)) if at == port => connection,
            _ => Connection::open(port).map_err(|_| ClientError::Gone)?,
        };
        Ok(&mut self.connection.insert((port, connection)).1)
    }

    /// Sends any command. The caller handles errors of the server and lost connections.
    pub fn ask(&mut self, words: &[&str]) -> Result<Reply, ClientError> {
        self.round_trips += 1;
        match self.connection()?.try_call(words) {
            Ok(Reply::Error(text)) => Err(ClientError::Refused(text)),
            Ok(reply) => Ok(reply),
            Err(_) => {
                self.connection = None;
                Err(ClientError::Gone)
            }
        }
    }

    /// Sends a command and disconnects without reading the reply.
    pub fn send_and_disconnect(&mut self, words: &[&str]) {
        if let Ok(connection) = self.connection() {
            let _ = connection.send(words);
        }
        self.disconnect();
    }

    /// Closes the connection.
    pub fn disconnect(&mut self) {
        self.connection = None;
    }

    /// BF.FETCH with its options.
    pub fn fetch(&mut self, id: u64, options: &[String]) -> Result<Fetched, ClientError> {
        let (item, key) = (id.to_string(), cache_key(id));
        let mut words = vec!["BF.FETCH", FILTER, &item, &key];
        words.extend(options.iter().map(String::as_str));
        let reply = self.ask(&words)?;
        let parts = reply.elements();
        let bytes = |index: usize| match &parts[index] {
            Reply::Bulk(bytes) => bytes.clone(),
            other => panic!("not a bulk string: {other:?} in {reply:?}"),
        };
        let token = |index| String::from_utf8_lossy(&bytes(index)).into_owned();
        Ok(match (bytes(0).as_slice(), parts.len()) {
            (b"absent", 1) => Fetched::Absent,
            (b"hit", 2) => Fetched::Hit(bytes(1)),
            (b"stale", 3) => Fetched::Stale(bytes(1), token(2)),
            (b"load", 2) => Fetched::Load(token(1)),
            (b"wait", 2) => Fetched::Wait(parts[1].number() as u64),
            _ => panic!("BF.FETCH answered {reply:?}"),
        })
    }

    /// BF.FILL with a value or NONE. Returns whether the token was accepted.
    pub fn fill(&mut self, id: u64, token: &str, version: Option<u64>, ttl_ms: u64) -> Result<bool, ClientError> {
        let ttl = ttl_ms.to_string();
        match version {
            Some(version) => self.end_lease(id, token, &["VALUE", &encode_value(id, version), "PX", &ttl]),
            None => self.end_lease(id, token, &["NONE", "PX", &ttl]),
        }
    }

    /// BF.FILL GIVEUP.
    pub fn give_up(&mut self, id: u64, token: &str) -> Result<bool, ClientError> {
        self.end_lease(id, token, &["GIVEUP"])
    }

    fn end_lease(&mut self, id: u64, token: &str, words: &[&str]) -> Result<bool, ClientError> {
        let (item, key) = (id.to_string(), cache_key(id));
        let mut line = vec!["BF.FILL", FILTER, &item, &key, token];
        line.extend(words);
        match self.ask(&line)? {
            Reply::Simple(text) if text == "OK" => Ok(true),
            Reply::NullBulk => Ok(false),
            other => panic!("BF.FILL answered {other:?}"),
        }
    }

    /// BF.CHANGED of a filter. Any reply except an error is accepted.
    pub fn changed(&mut self, filter: &str, id: u64) -> Result<(), ClientError> {
        match self.ask(&["BF.CHANGED", filter, &id.to_string(), &cache_key(id)])? {
            Reply::Integer(0 | 1) | Reply::NullBulk => Ok(()),
            other => panic!("BF.CHANGED answered {other:?}"),
        }
    }
}

/// Rows per query of the final check.
const BATCH: usize = 500;

/// Stops readers and writers, even if the test fails before it does so itself.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Creates the filter and adds the ids of the table. Its capacity exceeds the rows of every test, and it allows deletes.
pub fn make_filter(client: &mut Connection, rows: u64) {
    assert_eq!(client.run(&format!("BF.RESERVE {FILTER} 0.01 {} HASH siphash", rows * 2)), ok());
    let ids: Vec<String> = (0..rows).map(|id| id.to_string()).collect();
    client.batched(&[b"BF.MADD", FILTER.as_bytes()], &ids);
}

/// Runs readers and writers while `meanwhile` runs. Returns the duration.
pub fn run(world: &World, meanwhile: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    thread::scope(|scope| {
        let stop = StopAtEnd(&world.stop);
        for number in 0..world.settings.readers {
            scope.spawn(move || readers::run(world, 1 + number as u64));
        }
        for number in 0..world.settings.writers {
            scope.spawn(move || writers::run(world, 1_000_001 + number as u64));
        }
        meanwhile();
        drop(stop);
    });
    begun.elapsed()
}

/// Looks up every row of the table when the servers are idle: none may be reported absent or have another version. Returns the
/// number of rows.
pub fn look_up_every_row(world: &World) -> usize {
    while world.adopt() > 0 {
        thread::sleep(Duration::from_millis(20));
    }
    let rows = world.pool.take().client.query("SELECT id, version FROM rows", &[]).expect("SELECT");
    let rows: Vec<(u64, u64)> =
        rows.iter().map(|row| (row.get::<_, i64>(0) as u64, row.get::<_, i64>(1) as u64)).collect();
    let mut client = Connection::open(world.primary.port()).expect("the server accepts a connection");
    for batch in rows.chunks(BATCH) {
        let lines: Vec<String> =
            batch.iter().map(|(id, _)| format!("BF.FETCH {FILTER} {id} {} LEASE 1", cache_key(*id))).collect();
        let replies = client.pipeline(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        for (&(id, version), reply) in batch.iter().zip(&replies) {
            let parts = reply.elements();
            match (parts[0].text().as_str(), parts.get(1)) {
                ("hit", Some(Reply::Bulk(value))) => {
                    let cached = version_in(id, value);
                    let what = || format!("at the end: {id} is cached in version {cached}, the row has {version}");
                    world.model.expect(cached == version, what);
                }
                ("load" | "wait", Some(_)) => (),
                _ => world.model.expect(false, || format!("at the end: {id} exists, BF.FETCH answered {reply:?}")),
            }
        }
    }
    let ids: Vec<String> = rows.iter().map(|(id, _)| id.to_string()).collect();
    let denied = client.batched(&[b"BF.MEXISTS", FILTER.as_bytes()], &ids).iter().filter(|&&found| !found).count();
    world.model.expect(denied == 0, || format!("at the end: the filter denies {denied} rows"));
    assert_eq!(client.run(&format!("EXISTS {FILTER}")), integer(1));
    rows.len()
}

/// Prints the counts of a run.
pub fn report(name: &str, world: &World, time: Duration, rows: usize) {
    eprintln!("  {name}, {:.1} s, {} readers: {:?}", time.as_secs_f64(), world.settings.readers, world.counts);
    let (lookups, (faults, _)) = (read(&world.counts.lookups), world.model.faults());
    figures(&format!("guard {name}: {lookups} lookups verified, {rows} rows verified at the end, {faults} faults"));
}

/// Fails the test if a promise was broken.
pub fn assert_promises(world: &World) {
    let (faults, first) = world.model.faults();
    assert_eq!(faults, 0, "promises were broken; the first of them:\n{}", first.join("\n"));
    if let Some(text) = world.first_refusal() {
        eprintln!("    the first refusal: {text}");
    }
}

/// Lets a run continue until everything has happened, because less would prove nothing. On a busy machine a few seconds may be
/// too short.
pub fn wait_for_all(world: &World) {
    let counts = &world.counts;
    for (name, counter) in [
        ("absent", &counts.absent),
        ("hits", &counts.hits),
        ("loads", &counts.loads),
        ("fills", &counts.fills),
        ("refused fills", &counts.refused_fills),
        ("inserted", &counts.inserted),
        ("changed", &counts.changed),
        ("deleted", &counts.deleted),
    ] {
        eventually(name, || read(counter) > 0);
    }
}

/// Prints the ways side by side.
pub fn compare(worlds: &[World]) {
    eprintln!("  {:<22} lookups   queries  a 1000 lookups  round trips each  outdated", "way");
    for world in worlds {
        let [lookups, queries, round_trips, outdated] = {
            let counts = &world.counts;
            [&counts.lookups, &counts.queries, &counts.round_trips, &counts.outdated].map(read)
        };
        let name = match world.settings.way {
            Way::Cache => "GET and SET",
            Way::FilterAndCache => "BF.EXISTS, GET and SET",
            Way::Guard => "the guard",
        };
        let each = |number: u64| number as f64 / lookups.max(1) as f64;
        let (in_1000, trips) = (1000.0 * each(queries), each(round_trips));
        eprintln!("  {name:<22} {lookups:>7} {queries:>9} {in_1000:>15.1} {trips:>17.2} {outdated:>9}");
    }
}
