//! PostgreSQL as a source: a logical replication slot is read with the output plugin `pgoutput`.

mod catalogue;
mod locate;
mod pgoutput;
mod rows;
mod session;
mod slot;
mod synchronous;
mod wire;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, bail, ensure};

use self::catalogue::{check_publication, column, describe, texts};
use self::pgoutput::{Message, Relation};
use self::rows::{copy, flush, is_locked};
use self::session::{Client, Publication, Snapshot};
use self::slot::{Known, StoodBy, Unreadable, abandon, ensure_slot, is_busy, mark_unreadable, take_slot};
use self::wire::{Event, TEXT_SETTINGS, Wire, unanswered};
use crate::config::{self, Config, Mode};
use crate::follower::{Followed, Follower, PULSE, Source};
use crate::log::Lsn;
use crate::metrics::Metrics;
use crate::names::counted;
use crate::store::{Position, Store};
use crate::table::{Arrived, Change, Step, Table, Transaction};

/// How long an answer may be on its way that PostgreSQL has sent.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// VACUUM FULL of `pg_class` waits in its COMMIT for the follower, which the locked catalogue keeps from reading the log.
const CATALOGUE_LOCKED: &str = "PostgreSQL's catalogue is locked, by VACUUM FULL for instance. If that waits for this follower in COMMIT \
    (SyncRep), nobody can connect: end its wait with kill -INT and its process id";

/// A slot of PostgreSQL, and a session beside it.
pub struct Postgres {
    slot: String,
    publication: Publication,
    settings: tokio_postgres::Config,
    database: Client,
    wire: Wire,
    /// PostgreSQL's system identifier and timeline.
    system: String,
    /// The followed tables by their object ids. One may have several filters.
    tables: HashMap<u32, Vec<usize>>,
    /// What is confirmed to PostgreSQL. In synchronous mode it is announced as well.
    confirmed: Lsn,
    /// The end of the log when it was last read.
    log_end: Lsn,
    /// Announced transactions that are not released: their ends and 64-bit ids.
    announced: BTreeMap<Lsn, u64>,
    /// The last one, and when it was taken.
    snapshot: Snapshot,
    last_look: Instant,
    /// When the server last refused the memory for a filter that would replace a worn one.
    refused: Option<Instant>,
}

impl Source for Postgres {
    type Memory = Known;

    fn connect(config: &Config) -> Result<Self> {
        let settings = config.settings()?;
        let mut database = connect(&settings)?;
        check_settings(config, &mut database)?;
        let publication = Publication::named(&mut database, config.publication())?;
        let mut wire = Wire::connect(&settings)?;
        let system = wire.query("IDENTIFY_SYSTEM", unanswered)?;
        let (Some(system_id), Some(timeline)) = (system.first(), system.get(1)) else {
            bail!("IDENTIFY_SYSTEM has no reply")
        };
        Ok(Self {
            slot: config.slot.clone(),
            publication,
            snapshot: Snapshot::take(&mut database)?,
            last_look: Instant::now(),
            system: format!("{system_id} {timeline}"),
            settings,
            database,
            wire,
            tables: HashMap::new(),
            confirmed: Lsn(0),
            log_end: Lsn(0),
            announced: BTreeMap::new(),
            refused: None,
        })
    }

    fn describe(&mut self, tables: &[config::Table]) -> Result<Vec<Table>> {
        let read = |table| describe(&mut self.database, table, &self.publication);
        let described = tables.iter().map(read).collect::<Result<Vec<_>>>()?;
        check_publication(&mut self.database, &self.publication, &described)?;
        Ok(described.into_iter().map(|described| described.table).collect())
    }

    fn take(
        &mut self,
        config: &Config,
        store: &mut Store,
        tables: &[Table],
        known: &mut Known,
        stopping: &AtomicBool,
        metrics: &Metrics,
    ) -> Result<bool> {
        let Self { database, wire, slot, .. } = self;
        ensure_slot(database, wire, store, tables, slot, known, stopping)?;
        if !take_slot(config, database, wire, store, tables, stopping, metrics)? {
            return Ok(false);
        }
        let query = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1";
        self.confirmed = self.database.query_one(query, &[&self.slot])?.try_get::<_, &str>(0)?.parse()?;
        self.tables.clear();
        for (index, table) in tables.iter().enumerate() {
            self.tables.entry(table.id.parse()?).or_default().push(index);
        }
        self.snapshot = Snapshot::take(&mut self.database)?;
        Ok(true)
    }

    fn may_recover(known: &mut Known, error: &Error) -> bool {
        known.is_unreadable |= error.is::<Unreadable>();
        known.is_unreadable || error.is::<StoodBy>()
    }

    fn abandon(config: &Config, known: &Known) {
        if known.is_new
            && let Err(reason) = config
                .settings()
                .and_then(|settings| connect(&settings))
                .and_then(|mut database| abandon(&mut database, &config.slot))
        {
            eprintln!("bloomgate: the replication slot {} stays, and keeps the log: {reason:#}", config.slot);
        }
    }

    fn print_status(config: &Config) -> Result<bool> {
        let row = connect(&config.settings()?)?.query_opt(
            "SELECT active_pid, wal_status, pg_wal_lsn_diff(pg_current_wal_insert_lsn(), confirmed_flush_lsn)::bigint
             FROM pg_replication_slots WHERE slot_name = $1",
            &[&config.slot],
        )?;
        let Some(row) = row else {
            println!("slot {}: it does not exist", config.slot);
            return Ok(false);
        };
        let (pid, log): (Option<i32>, Option<String>) = (row.try_get(0)?, row.try_get(1)?);
        let connected =
            pid.map_or("no follower is connected".to_owned(), |pid| format!("a follower is connected (pid {pid})"));
        let behind = match row.try_get::<_, Option<i64>>(2)? {
            _ if log.as_deref() == Some("lost") => "PostgreSQL has removed the log that it needs".to_owned(),
            Some(bytes) => {
                format!("{} of the log are not confirmed", counted(u64::try_from(bytes).unwrap_or(0), "byte"))
            }
            None => "nothing is confirmed yet".to_owned(),
        };
        println!("slot {}: {connected}, {behind}", config.slot);
        Ok(pid.is_some())
    }

    fn system(&self) -> &str {
        &self.system
    }

    fn confirmed(&self) -> Lsn {
        self.confirmed
    }

    fn confirm(&mut self, place: Lsn) -> Result<()> {
        self.confirmed = self.confirmed.max(place);
        self.sign()
    }

    fn sign(&mut self) -> Result<()> {
        self.wire.confirm(self.confirmed, false)
    }

    fn receive(&mut self, arrived: &mut Arrived, tables: &mut [Followed], timeout: Duration) -> Result<bool> {
        let mut next = self.wire.next(timeout).map_err(mark_unreadable)?;
        // A large transaction of other tables keeps PostgreSQL busy without a word.
        if next.is_none() && self.wire.was_silent() && !is_busy(&mut self.database, &self.slot)? {
            next = self.wire.next(LAST_WAIT).map_err(mark_unreadable)?;
            if next.is_none() {
                unanswered()?;
            }
        }
        let Some(event) = next else { return Ok(false) };
        match event {
            Event::Data(bytes) => self.take_message(pgoutput::parse(bytes)?, arrived, tables)?,
            Event::Keepalive { end, must_reply } => {
                arrived.keepalive(end);
                if must_reply {
                    self.sign()?;
                }
            }
        }
        Ok(true)
    }

    fn has_event(&self) -> bool {
        self.wire.has_event()
    }

    fn count_visible(&mut self, waiting: &VecDeque<Transaction>) -> Result<usize> {
        let snapshot = Snapshot::take(&mut self.database)?;
        Ok(waiting.iter().take_while(|transaction| snapshot.shows(transaction.xid)).count())
    }

    fn copy(&mut self, table: &Table, pass: &mut dyn FnMut(&[Vec<u8>]) -> Result<()>) -> Result<u64> {
        let mut signed = Instant::now();
        let rows = copy(&mut self.database, table, |items| {
            if signed.elapsed() >= PULSE {
                signed = Instant::now();
                self.wire.confirm(self.confirmed, false)?;
            }
            pass(items)
        })?;
        flush(&mut self.database)?;
        Ok(rows)
    }

    fn is_locked(error: &Error) -> bool {
        is_locked(error)
    }

    fn definitions(&mut self, tables: &[Followed]) -> Result<Vec<Option<String>>> {
        let read = |table: &Followed| self.publication.definition(&mut self.database, &table.config);
        let definitions: Result<_> = tables.iter().map(read).collect();
        definitions.map_err(|error| if is_locked(&error) { error.context(CATALOGUE_LOCKED) } else { error })
    }

    fn look(&mut self, mode: Mode) -> Result<(Lsn, Option<String>)> {
        let row = self.database.query_one(
            "SELECT pg_current_wal_insert_lsn()::text, pg_current_snapshot()::text,
             current_setting('synchronous_standby_names'), current_setting('wal_sender_timeout'),
             pg_current_wal_flush_lsn()::text",
            &[],
        )?;
        let end: Lsn = row.try_get::<_, &str>(0)?.parse()?;
        let flushed: Lsn = row.try_get::<_, &str>(4)?.parse()?;
        if flushed < std::mem::replace(&mut self.log_end, end) {
            // PostgreSQL sends only what is flushed, and flushes what an open transaction has written after up to 15 s, if nobody
            // commits. Without the permission for this the heartbeat waits for that.
            _ = self.database.batch_execute("SELECT pg_logical_emit_message(true, 'bloomgate', '')");
        }
        self.snapshot = Snapshot::parse(row.try_get(1)?)?;
        // The keepalive tells whether the stream has reached the end of the log.
        self.wire.confirm(self.confirmed, true)?;
        let objection = match mode {
            Mode::Eventual => None,
            Mode::Synchronous => self.demand_objection(row.try_get(2)?, row.try_get(3)?)?,
        };
        Ok((end, objection))
    }

    fn is_closed(&self) -> bool {
        self.database.is_closed()
    }

    fn exceptions(&mut self) -> Result<Option<String>> {
        session::unsynchronous(&mut self.database)
    }

    fn locate(follower: &mut Follower<Self>, stored: &[Option<Position>]) -> Result<Vec<Result<Lsn, &'static str>>> {
        follower.places(stored)
    }

    fn settle(follower: &mut Follower<Self>, fills: bool) -> Result<Lsn> {
        let confirmed = follower.source.confirmed;
        // A transaction that is confirmed and not visible yet would be missing in a filter that is filled now.
        follower.release_up_to(confirmed)?;
        if follower.mode == Mode::Synchronous || !fills {
            return Ok(confirmed);
        }
        // The rows may have been rewritten since the confirmed position. What the log has until here is in the rows that are copied, and is
        // skipped.
        let text = "SELECT pg_current_wal_insert_lsn()::text";
        let end: Lsn = follower.source.database.query_one(text, &[])?.try_get::<_, &str>(0)?.parse()?;
        follower.await_running(|_| Ok(()))?;
        Ok(end.max(confirmed))
    }

    fn resumed(follower: &mut Follower<Self>) -> Result<()> {
        match follower.mode {
            Mode::Eventual => follower.release_up_to(Lsn(u64::MAX)),
            Mode::Synchronous => Ok(()),
        }
    }

    fn advance(follower: &mut Follower<Self>, is_stopping: bool) -> Result<()> {
        match follower.mode {
            Mode::Eventual => follower.apply_visible(),
            Mode::Synchronous => {
                follower.announce()?;
                follower.release()?;
                if is_stopping { Ok(()) } else { follower.fill_due() }
            }
        }
    }

    fn settled(follower: &Follower<Self>) -> Lsn {
        let Self { confirmed, announced, .. } = &follower.source;
        match follower.mode {
            Mode::Eventual => follower.arrived.idle_position(*confirmed),
            Mode::Synchronous => {
                announced.first_key_value().map_or(*confirmed, |(first, _)| (*confirmed).min(Lsn(first.0 - 1)))
            }
        }
    }

    fn fill_again(follower: &mut Follower<Self>, index: usize, settled: Lsn) -> Result<()> {
        match follower.mode {
            Mode::Eventual => follower.refill(index, settled),
            // COMMITs go on, and it is filled later.
            Mode::Synchronous => follower.lose_filter(index),
        }
    }

    fn finish(follower: &mut Follower<Self>) -> Result<()> {
        follower.release_at_end()
    }
}

impl Postgres {
    /// Returns why COMMIT may not wait for this follower, or `None`.
    fn demand_objection(&mut self, names: &str, timeout: &str) -> Result<Option<String>> {
        let mut objection = session::objection(names, &self.slot);
        if timeout == "0" {
            objection.get_or_insert("wal_sender_timeout = 0 lets COMMIT wait for a broken connection".to_owned());
        }
        if objection.is_some() { Ok(objection) } else { session::duplicate(&mut self.database, &self.slot) }
    }

    fn take_message(&self, message: Message, arrived: &mut Arrived, tables: &mut [Followed]) -> Result<()> {
        match message {
            Message::Begin { xid, time } => arrived.begin(xid, time),
            Message::Commit { end } => arrived.commit(end)?,
            Message::Relation(relation) => self.define(&relation, tables)?,
            Message::Insert { relation, new } => {
                self.step(arrived, relation, tables, |table| table.change(None, Some(&new)))?;
            }
            Message::Update { relation, old, new } => {
                self.step(arrived, relation, tables, |table| table.change(old.as_deref(), Some(&new)))?;
            }
            Message::Delete { relation, old } => {
                self.step(arrived, relation, tables, |table| table.change(Some(&old), None))?;
            }
            Message::Truncate { relations } => {
                let indexes = relations.iter().filter_map(|relation| self.tables.get(relation)).flatten();
                indexes.for_each(|index| arrived.push(*index, Step::Truncate));
            }
            Message::Other => {}
        }
        Ok(())
    }

    /// Takes over the description of a table.
    fn define(&self, relation: &Relation, tables: &mut [Followed]) -> Result<()> {
        if let Some(indexes) = self.tables.get(&relation.oid) {
            for index in indexes {
                let table = tables.get_mut(*index).context("a table")?;
                let columns = relation.columns.iter().map(|new| {
                    // A domain has the texts of the type below it.
                    let old = table.columns.iter().find(|old| old.type_id == new.type_oid);
                    let texts = old.map_or(texts(new.type_oid), |old| old.texts);
                    column(new.name.clone(), new.type_oid, new.is_identity, texts)
                });
                let columns = columns.collect();
                table.redefine(columns);
            }
            return Ok(());
        }
        let again = tables.iter().find(|table| table.name.0 == relation.schema && table.name.1 == relation.name);
        again.map_or(Ok(()), |table| bail!("the table {} was dropped and created again", table.config.name))
    }

    fn step(
        &self,
        arrived: &mut Arrived,
        relation: u32,
        tables: &[Followed],
        change: impl Fn(&Table) -> Result<Change>,
    ) -> Result<()> {
        for index in self.tables.get(&relation).into_iter().flatten() {
            let table = tables.get(*index).context("a table")?;
            arrived.push(*index, if table.is_weak { Step::Altered } else { Step::Change(change(table)?) });
        }
        Ok(())
    }
}

/// Opens a session whose values have the same texts as those of the stream.
pub fn connect(settings: &tokio_postgres::Config) -> Result<Client> {
    let mut database = Client::connect(settings)?;
    let text: Vec<_> = TEXT_SETTINGS.iter().map(|(name, value)| format!("SET {name} = '{value}'")).collect();
    database.batch_execute(&text.join(";"))?;
    // Else this session would wait for itself where the follower is a synchronous standby.
    database.batch_execute("SET synchronous_commit = local")?;
    // These are for the sessions of applications. A COPY takes as long as it takes.
    database.batch_execute(
        "SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN \
         ('statement_timeout', 'transaction_timeout', 'idle_session_timeout', 'idle_in_transaction_session_timeout')",
    )?;
    database.batch_execute(
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE, NOT DEFERRABLE",
    )?;
    // The follower must go on while a table is locked: the one that has locked it may wait for the follower.
    database.batch_execute("SET lock_timeout = '1s'")?;
    // COPY of a table fails where a policy would leave out rows, which would be reported absent.
    database.batch_execute("SET row_security = off")?;
    Ok(database)
}

fn check_settings(config: &Config, database: &mut Client) -> Result<()> {
    let row =
        database.query_one("SELECT current_setting('wal_level'), current_setting('synchronous_standby_names')", &[])?;
    let (level, names): (&str, &str) = (row.try_get(0)?, row.try_get(1)?);
    ensure!(level == "logical", "PostgreSQL's wal_level is {level}: set wal_level = logical and restart it");
    let is_listed = session::lists(names, &config.slot) || session::lists(names, "*");
    ensure!(
        config.mode == Mode::Synchronous || !is_listed,
        "synchronous_standby_names = '{names}' lets COMMIT wait for {}, which applies a transaction after its COMMIT: remove the name, or set \
         mode = \"synchronous\"",
        config.slot
    );
    Ok(())
}
