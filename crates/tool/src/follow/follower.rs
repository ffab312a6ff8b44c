//! The follower's loop: it receives transactions, waits until other sessions can see them, applies them to the filters and cached
//! values, stores the position, and confirms it to PostgreSQL.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use postgres::{Client, NoTls};
use redis::{Cmd, Value, cmd};

use super::config::Config;
use super::fill::fill;
use super::lsn::Lsn;
use super::pgoutput;
use super::store::{Position, Replaced, Store};
use super::stream::{Arrived, Step, Transaction};
use super::table::{Table, check_publication};
use super::visibility::Snapshot;
use super::wire::{Event, Refused, TEXT_SETTINGS, Wire};
use crate::report::counted;
use crate::server::Lost;

/// SQLSTATE of a slot that another process uses.
const OBJECT_IN_USE: &str = "55006";
/// How often a standby tries to take the slot.
const STANDBY_INTERVAL: Duration = Duration::from_millis(500);
/// A standby terminates the other follower's connection after the heartbeat was missing for this long.
const TAKEOVER: Duration = Duration::from_secs(10);
/// How often the list of running transactions is read while transactions wait.
const VISIBILITY_INTERVAL: Duration = Duration::from_millis(1);
/// The longest wait for the stream, so that a signal is noticed.
const WAIT: Duration = Duration::from_millis(100);
/// The most steps that wait in memory before the stream is read on.
const STEPS: usize = 50_000;
/// Pairs in one BF.MCHANGED, and items in one BF.MDEL.
const PAIRS: usize = 1000;

/// A follower that holds the slot.
pub struct Follower {
    database: Client,
    wire: Wire,
    store: Store,
    tables: Vec<Table>,
    /// For each table.
    epochs: Vec<u64>,
    positions: Vec<Lsn>,
    /// PostgreSQL's system identifier and timeline.
    system: String,
    arrived: Arrived,
    /// What is confirmed to PostgreSQL.
    confirmed: Lsn,
    beat: Beat,
}

/// The heartbeat.
struct Beat {
    interval: Duration,
    next: Instant,
    /// A position in the log, and the servers' times (in milliseconds, for each table) before it was read.
    pending: Option<(Lsn, Vec<u64>)>,
}

impl Follower {
    /// Connects, takes the slot, and fills the filters that need it. Waits while another follower has the slot.
    ///
    /// # Errors
    /// The configuration does not fit the database; a lost connection. `None` after a signal.
    pub fn start(config: &Config, stopping: &AtomicBool) -> Result<Option<Self>> {
        let settings = config.settings()?;
        let mut database = connect(&settings)?;
        let level: String = database.query_one("SHOW wal_level", &[])?.try_get(0)?;
        ensure!(level == "logical", "PostgreSQL's wal_level is {level}: set wal_level = logical and restart it");
        let tables =
            config.tables.iter().map(|table| Table::of_catalogue(&mut database, table)).collect::<Result<Vec<_>>>()?;
        check_publication(&mut database, config.publication(), &tables)?;
        let mut store = Store::connect(&config.server, config.cluster)?;
        let mut wire = Wire::connect(&settings)?;
        let system = wire.query("IDENTIFY_SYSTEM")?;
        let (Some(system_id), Some(timeline)) = (system.first(), system.get(1)) else {
            bail!("IDENTIFY_SYSTEM has no reply")
        };
        let system = format!("{system_id} {timeline}");
        ensure_slot(&mut database, &mut wire, &config.slot)?;
        if !take_slot(config, &mut database, &mut wire, &mut store, &tables, stopping)? {
            return Ok(None);
        }
        let epochs = tables.iter().map(|table| store.raise_epoch(&table.keys)).collect::<Result<Vec<_>>>()?;
        let confirmed: String = database
            .query_one(
                "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1",
                &[&config.slot],
            )?
            .try_get(0)?;
        let interval = tables.iter().map(|table| table.config.max_lag).min().unwrap_or(WAIT) / 4;
        let arrived = Arrived::of_tables(&tables);
        let beat = Beat { interval, next: Instant::now(), pending: None };
        let (confirmed, positions) = (confirmed.parse()?, Vec::new());
        let mut follower = Self { database, wire, store, tables, epochs, positions, system, arrived, confirmed, beat };
        for index in 0..follower.tables.len() {
            let position = follower.check_position(index)?;
            follower.positions.push(position);
        }
        Ok(Some(follower))
    }

    /// Returns the position of a table's filter, after a fill if it needs one.
    fn check_position(&mut self, index: usize) -> Result<Lsn> {
        let table = self.tables.get(index).context("a table")?;
        let (position, exists) = self.store.state(&table.keys)?;
        let reason = match position {
            _ if !exists => "there is no filter",
            None => "it has no position",
            Some(position) if position.origin != origin(&self.system, table) => {
                "it belongs to another database, timeline or table"
            }
            Some(position) if position.lsn < self.confirmed => "it is older than the slot: the server has lost data",
            Some(position) => {
                eprintln!("bloomgate: {} continues at {}", table.config.name, position.lsn);
                return Ok(position.lsn);
            }
        };
        eprintln!("bloomgate: filling {} from {}: {reason}", table.config.filter, table.config.name);
        self.fill(index)
    }

    fn fill(&mut self, index: usize) -> Result<Lsn> {
        let (table, epoch) = self.tables.get(index).zip(self.epochs.get(index)).context("a table")?;
        let position = Position { origin: origin(&self.system, table), lsn: self.confirmed };
        let (begin, wire, confirmed) = (Instant::now(), &mut self.wire, self.confirmed);
        // PostgreSQL ends a stream whose client is silent.
        let meanwhile = || wire.confirm(confirmed, false);
        let rows = fill(&mut self.database, &mut self.store, table, *epoch, &position, meanwhile)?;
        eprintln!(
            "bloomgate: {} has {} ({:.1} s)",
            table.config.filter,
            counted(rows, "row"),
            begin.elapsed().as_secs_f64()
        );
        if !table.deletes {
            eprintln!(
                "bloomgate: items of deleted rows stay in {}: {}",
                table.config.filter,
                if table.config.can_delete() {
                    "other rows might have the same item"
                } else {
                    "only HASH siphash can delete"
                }
            );
        }
        Ok(confirmed)
    }

    /// Follows the log until a signal.
    ///
    /// # Errors
    /// A lost connection; [`Replaced`]; a filter that cannot be filled.
    pub fn run(&mut self, stopping: &AtomicBool) -> Result<()> {
        loop {
            let is_stopping = stopping.load(Relaxed);
            self.receive()?;
            self.apply_visible()?;
            self.beat()?;
            if is_stopping && self.arrived.waiting.is_empty() {
                return self.wire.confirm(self.confirmed, false);
            }
        }
    }

    /// Reads what has arrived, or waits for it.
    fn receive(&mut self) -> Result<()> {
        let mut timeout = match (self.arrived.waiting.is_empty(), &self.beat.pending) {
            (false, _) => VISIBILITY_INTERVAL,
            (true, Some(_)) => WAIT,
            (true, None) => self.beat.next.saturating_duration_since(Instant::now()).min(WAIT),
        };
        while self.arrived.steps < STEPS {
            let Some(event) = self.wire.next(timeout)? else { return Ok(()) };
            match event {
                Event::Data(bytes) => self.arrived.take(pgoutput::parse(bytes)?, &mut self.tables)?,
                Event::Keepalive { end, must_reply } => {
                    self.arrived.keepalive(end);
                    if must_reply {
                        self.wire.confirm(self.confirmed, false)?;
                    }
                }
            }
            if !self.wire.has_event() {
                return Ok(());
            }
            timeout = Duration::ZERO;
        }
        Ok(())
    }

    /// Applies the transactions that other sessions can see, in the order of the log.
    fn apply_visible(&mut self) -> Result<()> {
        if self.arrived.waiting.is_empty() {
            return Ok(());
        }
        let snapshot = Snapshot::take(&mut self.database)?;
        let mut group = Vec::new();
        while self.arrived.waiting.front().is_some_and(|transaction| snapshot.shows(transaction.xid)) {
            group.extend(self.arrived.pop());
        }
        let Some(last) = group.last() else { return Ok(()) };
        let end = last.end;
        for index in 0..self.tables.len() {
            if let Err(error) = self.apply(index, &group, end) {
                if error.is::<Lost>() || error.is::<Replaced>() {
                    return Err(error);
                }
                // The filter is missing or full.
                eprintln!("bloomgate: {error:#}");
                let position = self.fill(index)?;
                if let Some(stored) = self.positions.get_mut(index) {
                    *stored = position;
                }
                self.apply(index, &group, end)?;
            }
        }
        self.confirm(end)
    }

    /// Applies a group to one table, and stores the position.
    fn apply(&mut self, index: usize, group: &[Transaction], end: Lsn) -> Result<()> {
        let table = self.tables.get(index).context("a table")?;
        let position = self.positions.get_mut(index).context("a table")?;
        let epoch = *self.epochs.get(index).context("a table")?;
        let mut work = Work::default();
        for (_, step) in group
            .iter()
            .filter(|transaction| transaction.end > *position)
            .flat_map(|t| &t.steps)
            .filter(|(at, _)| *at == index)
        {
            match step {
                Step::Change(change) => work.add(change, table.deletes),
                Step::Truncate => {
                    // First the leases, so that a reader that has read an old row cannot fill it in after the scan.
                    self.store.transact(&table.keys, epoch, &[cmd("BF.CLEAR").arg(&table.keys.filter).to_owned()])?;
                    for pattern in table.patterns() {
                        self.store.delete_values(&pattern, |key| table.keys.contains(key))?;
                    }
                    work = Work::default();
                }
            }
        }
        let mut commands = work.into_commands(&table.keys.filter);
        let stored = Position { origin: origin(&self.system, table), lsn: end.max(*position) };
        commands.push(cmd("SET").arg(&table.keys.position).arg(stored.to_string()).to_owned());
        let replies = self.store.transact(&table.keys, epoch, &commands)?;
        // Without its filter BF.MCHANGED still deletes the values, and announces nothing.
        let is_missing = |reply: &Value| {
            matches!(reply, Value::Nil) || matches!(reply, Value::Array(all) if all.contains(&Value::Nil))
        };
        ensure!(!replies.iter().any(is_missing), "the filter {} is missing", table.keys.filter);
        *position = stored.lsn;
        Ok(())
    }

    fn confirm(&mut self, position: Lsn) -> Result<()> {
        self.confirmed = self.confirmed.max(position);
        self.wire.confirm(self.confirmed, false)
    }

    /// Extends the heartbeat once the log is applied up to a position that was read after the server's time.
    fn beat(&mut self) -> Result<()> {
        let applied = self.arrived.idle_position(self.confirmed);
        if let Some((wanted, times)) = self.beat.pending.take_if(|(wanted, _)| *wanted <= applied) {
            for (index, time_ms) in times.into_iter().enumerate() {
                let table = self.tables.get(index).context("a table")?;
                let (epoch, position) = self.epochs.get(index).zip(self.positions.get_mut(index)).context("a table")?;
                *position = (*position).max(applied);
                let stored = Position { origin: origin(&self.system, table), lsn: *position };
                let expires_ms = time_ms + u64::try_from(table.config.max_lag.as_millis())?;
                let commands = [
                    cmd("SET").arg(&table.keys.position).arg(stored.to_string()).to_owned(),
                    cmd("SET").arg(&table.keys.feed).arg(wanted.to_string()).arg("PXAT").arg(expires_ms).to_owned(),
                ];
                self.store.transact(&table.keys, *epoch, &commands)?;
            }
            self.confirm(applied)?;
        }
        if self.beat.pending.is_none() && Instant::now() >= self.beat.next {
            self.beat.next = Instant::now() + self.beat.interval;
            let times = self.tables.iter().map(|table| self.store.time_ms(&table.keys)).collect::<Result<_>>()?;
            let wanted: String =
                self.database.query_one("SELECT pg_current_wal_insert_lsn()::text", &[])?.try_get(0)?;
            self.beat.pending = Some((wanted.parse()?, times));
            self.wire.confirm(self.confirmed, true)?;
        }
        Ok(())
    }
}

/// Returns what a position belongs to: a system, a timeline, and a table. One that was dropped and created again is another.
fn origin(system: &str, table: &Table) -> String {
    format!("{system} {}", table.oid)
}

/// What a group of transactions does to one table. The last operation on an item decides.
#[derive(Default)]
struct Work {
    pairs: BTreeSet<(Vec<u8>, Vec<u8>)>,
    /// Whether the item has a row at the end.
    items: BTreeMap<Vec<u8>, bool>,
}

impl Work {
    fn add(&mut self, change: &super::table::Change, deletes: bool) {
        self.pairs.extend(change.pairs.iter().cloned());
        if deletes {
            self.items.extend(change.gone.iter().map(|item| (item.clone(), false)));
            self.items.extend(change.put.iter().map(|item| (item.clone(), true)));
        }
    }

    fn into_commands(self, filter: &str) -> Vec<Cmd> {
        let mut commands = Vec::new();
        let pairs: Vec<_> = self.pairs.into_iter().collect();
        for chunk in pairs.chunks(PAIRS) {
            let mut command = cmd("BF.MCHANGED");
            command.arg(filter).arg("ITEMS");
            for (item, key) in chunk {
                command.arg(item).arg(key);
            }
            commands.push(command);
        }
        let gone: Vec<_> = self.items.into_iter().filter(|(_, has_row)| !has_row).map(|(item, _)| item).collect();
        for chunk in gone.chunks(PAIRS) {
            commands.push(cmd("BF.MDEL").arg(filter).arg(chunk).to_owned());
        }
        commands
    }
}

/// Opens a session in PostgreSQL.
///
/// # Errors
/// It cannot be reached.
pub fn connect(settings: &postgres::Config) -> Result<Client> {
    let mut database = settings.connect(NoTls).context("cannot reach the PostgreSQL server")?;
    let text: Vec<_> = TEXT_SETTINGS.iter().map(|(name, value)| format!("SET {name} = '{value}'")).collect();
    database.batch_execute(&text.join(";"))?;
    // Else this session would wait for itself where the follower is a synchronous standby.
    database.batch_execute("SET synchronous_commit = local")?;
    Ok(database)
}

/// Creates the slot if it is missing, or if PostgreSQL has removed the log that it needs.
fn ensure_slot(database: &mut Client, wire: &mut Wire, name: &str) -> Result<()> {
    let row = database.query_opt(
        "SELECT plugin::text, database = current_database(), wal_status FROM pg_replication_slots WHERE slot_name = $1",
        &[&name],
    )?;
    if let Some(row) = row {
        let (plugin, is_here): (Option<String>, Option<bool>) = (row.try_get(0)?, row.try_get(1)?);
        ensure!(
            plugin.as_deref() == Some("pgoutput") && is_here == Some(true),
            "the replication slot {name} belongs to something else: name another `slot`"
        );
        if row.try_get::<_, Option<String>>(2)?.as_deref() != Some("lost") {
            return Ok(());
        }
        eprintln!("bloomgate: PostgreSQL has removed the log that the slot {name} needs: making the slot again");
        database.execute("SELECT pg_drop_replication_slot($1)", &[&name])?;
    }
    eprintln!("bloomgate: creating the replication slot {name}; this waits for running transactions");
    wire.query(&format!("CREATE_REPLICATION_SLOT {name} LOGICAL pgoutput NOEXPORT_SNAPSHOT"))?;
    Ok(())
}

/// Starts the stream. While another follower has the slot, waits for that one to end or to fail. Returns false after a signal.
fn take_slot(
    config: &Config,
    database: &mut Client,
    wire: &mut Wire,
    store: &mut Store,
    tables: &[Table],
    stopping: &AtomicBool,
) -> Result<bool> {
    let (mut is_told, mut last_sign) = (false, Instant::now());
    while !stopping.load(Relaxed) {
        match wire.start_stream(&config.slot, Lsn(0), config.publication()) {
            Ok(()) => return Ok(true),
            Err(error) if error.downcast_ref::<Refused>().is_some_and(|refused| refused.code == OBJECT_IN_USE) => {}
            Err(error) => return Err(error),
        }
        if !is_told {
            eprintln!("bloomgate: another follower has the slot {}: standing by", config.slot);
            is_told = true;
        }
        if let Some(table) = tables.first()
            && store.has_heartbeat(&table.keys)?
        {
            last_sign = Instant::now();
        }
        if last_sign.elapsed() >= TAKEOVER {
            eprintln!("bloomgate: there was no heartbeat for {} s: taking over", TAKEOVER.as_secs());
            let text = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1";
            database.execute(text, &[&config.slot])?;
            last_sign = Instant::now();
        }
        thread::sleep(STANDBY_INTERVAL);
    }
    Ok(false)
}
