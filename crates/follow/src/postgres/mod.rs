//! PostgreSQL as a source: a logical replication slot is read with the output plugin `pgoutput`.

mod catalogue;
mod locate;
mod pgoutput;
mod rows;
mod session;
mod slot;
mod wire;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Error, Result, bail, ensure};

use self::catalogue::{check_publication, column, describe, texts};
use self::pgoutput::{Message, Relation};
use self::rows::is_locked;
use self::session::{Client, Publication, Snapshot, unfinished};
use self::slot::{Known, Unreadable, abandon, ensure_slot, is_busy, is_in_use, mark_unreadable};
use self::wire::{Event, TEXT_SETTINGS, Wire, unanswered};
use crate::config::{self, Config, Mode};
use crate::engine::events::{Sink, Step};
use crate::engine::position::{Place, Position};
use crate::engine::{LogEnd, Source, Time};
use crate::names::counted;
use crate::table::Table;
use crate::template::Field;

/// How long an answer of PostgreSQL may be in transit.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// VACUUM FULL of `pg_class` waits in its COMMIT for the follower, which cannot read the log because the catalogue is locked.
const CATALOGUE_LOCKED: &str = "PostgreSQL's catalogue is locked, by VACUUM FULL for instance. If that waits for this follower in COMMIT \
    (SyncRep), nobody can connect: end its wait with kill -INT and its process id";

/// A slot of PostgreSQL, and a session.
pub struct Postgres {
    slot: String,
    publication: Publication,
    settings: tokio_postgres::Config,
    database: Client,
    wire: Wire,
    /// PostgreSQL's system identifier and timeline.
    system: String,
    /// The followed tables by their object ids. A table may have several filters.
    tables: HashMap<u32, Vec<usize>>,
    /// The place that is confirmed to PostgreSQL. In synchronous mode, everything before it is announced.
    confirmed: Place,
    /// The end of the log when it was last read.
    log_end: Place,
    /// The last snapshot that was taken.
    snapshot: Snapshot,
}

impl Source for Postgres {
    type Memory = Known;
    type Copier = Client;

    fn connect(config: &Config, _: &Known) -> Result<Self> {
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
            system: format!("{system_id} {timeline}"),
            settings,
            database,
            wire,
            tables: HashMap::new(),
            confirmed: Place(0),
            log_end: Place(0),
        })
    }

    fn describe(&mut self, tables: &[config::Table]) -> Result<Vec<Table>> {
        let read = |table| describe(&mut self.database, table, &self.publication);
        let described = tables.iter().map(read).collect::<Result<Vec<_>>>()?;
        check_publication(&mut self.database, &self.publication, &described)?;
        Ok(described.into_iter().map(|described| described.table).collect())
    }

    fn prepare(
        &mut self,
        tables: &[Table],
        known: &mut Known,
        begins_anew: &mut dyn FnMut() -> Result<()>,
        stopping: &AtomicBool,
    ) -> Result<()> {
        for (index, table) in tables.iter().enumerate() {
            self.tables.entry(table.id.parse()?).or_default().push(index);
        }
        ensure_slot(&mut self.database, &mut self.wire, tables, &self.slot, known, begins_anew, stopping)
    }

    fn acquire_stream(&mut self) -> Result<bool> {
        match self.wire.start_stream(&self.slot, Place(0), &self.publication.name) {
            Err(error) if is_in_use(&error) => return Ok(false),
            result => result?,
        }
        let query = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1";
        self.confirmed = self.database.query_one(query, &[&self.slot])?.try_get::<_, &str>(0)?.parse()?;
        self.snapshot = Snapshot::take(&mut self.database)?;
        Ok(true)
    }

    fn end_other(&mut self) -> Result<()> {
        let text = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1";
        self.database.execute(text, &[&self.slot]).map(drop)
    }

    fn may_recover(known: &mut Known, error: &Error) -> bool {
        known.is_unreadable |= error.is::<Unreadable>();
        known.is_unreadable
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

    fn confirmed(&self) -> Place {
        self.confirmed
    }

    fn confirm(&mut self, place: Place) -> Result<()> {
        self.confirmed = self.confirmed.max(place);
        self.keep_alive()
    }

    fn keep_alive(&mut self) -> Result<()> {
        self.wire.confirm(self.confirmed, false)
    }

    fn next(&mut self, sink: &mut Sink, timeout: Duration) -> Result<bool> {
        let mut next = self.wire.next(timeout).map_err(mark_unreadable)?;
        // During a large transaction of other tables, PostgreSQL is busy and sends nothing.
        if next.is_none() && self.wire.was_silent() && !is_busy(&mut self.database, &self.slot)? {
            next = self.wire.next(LAST_WAIT).map_err(mark_unreadable)?;
            if next.is_none() {
                unanswered()?;
            }
        }
        let Some(event) = next else { return Ok(false) };
        match event {
            Event::Data(bytes) => self.take_message(pgoutput::parse(bytes)?, sink)?,
            Event::Keepalive { end, must_reply } => {
                sink.arrived.reach(end);
                if must_reply {
                    self.keep_alive()?;
                }
            }
        }
        Ok(true)
    }

    fn has_event(&self) -> bool {
        self.wire.has_event()
    }

    fn count_visible(&mut self, waiting: &mut dyn Iterator<Item = (Place, u64)>) -> Result<usize> {
        self.snapshot = Snapshot::take(&mut self.database)?;
        Ok(waiting.take_while(|(_, id)| self.snapshot.shows(*id)).count())
    }

    fn unfinished(&mut self) -> Result<HashSet<String>> {
        unfinished(&mut self.database)
    }

    fn snapshot(&mut self) -> Result<Option<Place>> {
        let row = self.database.query_one("SELECT pg_current_wal_insert_lsn()::text", &[])?;
        Ok(Some(row.try_get::<_, &str>(0)?.parse()?))
    }

    fn copier(&self) -> Result<Client> {
        connect(&self.settings)
    }

    fn is_locked(error: &Error) -> bool {
        is_locked(error)
    }

    fn definitions(&mut self, tables: &mut dyn Iterator<Item = &Table>) -> Result<Vec<Option<String>>> {
        let read = |table: &Table| self.publication.definition(&mut self.database, &table.config);
        let definitions: Result<_> = tables.map(read).collect();
        definitions.map_err(|error| if is_locked(&error) { error.context(CATALOGUE_LOCKED) } else { error })
    }

    fn read_log_end(&mut self, mode: Mode) -> Result<LogEnd> {
        let row = self.database.query_one(
            "SELECT pg_current_wal_insert_lsn()::text, pg_current_snapshot()::text,
             current_setting('synchronous_standby_names'), current_setting('wal_sender_timeout'),
             pg_current_wal_flush_lsn()::text",
            &[],
        )?;
        let end: Place = row.try_get::<_, &str>(0)?.parse()?;
        let flushed: Place = row.try_get::<_, &str>(4)?.parse()?;
        if flushed < std::mem::replace(&mut self.log_end, end) {
            // PostgreSQL sends only flushed records, and flushes the records of an open transaction after up to 15 s unless another session
            // commits. Without permission for this function, the heartbeat waits for that flush.
            _ = self.database.batch_execute("SELECT pg_logical_emit_message(true, 'bloomgate', '')");
        }
        self.snapshot = Snapshot::parse(row.try_get(1)?)?;
        // The keepalive shows whether the stream has reached the end of the log.
        self.wire.confirm(self.confirmed, true)?;
        let objection = match mode {
            Mode::Eventual => None,
            Mode::Synchronous => self.demand_objection(row.try_get(2)?, row.try_get(3)?)?,
        };
        Ok(LogEnd { end, time: Time::Asked, objection })
    }

    fn is_closed(&self) -> bool {
        self.database.is_closed()
    }

    fn exceptions(&mut self) -> Result<Option<String>> {
        session::unsynchronous(&mut self.database)
    }

    fn locate(
        &mut self,
        stored: &[Option<Position>],
        sink: &mut Sink,
        meanwhile: &mut dyn FnMut() -> Result<bool>,
    ) -> Result<Vec<Result<Place, &'static str>>> {
        self.find(stored, sink, meanwhile)
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

    fn take_message(&self, message: Message, sink: &mut Sink) -> Result<()> {
        match message {
            Message::Begin { xid, time } => sink.arrived.begin(self.snapshot.full(xid), time),
            Message::Commit { end } => sink.arrived.commit(end)?,
            Message::Relation(relation) => self.define(&relation, sink)?,
            Message::Insert { relation, new } => self.step(sink, relation, None, Some(&new))?,
            Message::Update { relation, old, new } => self.step(sink, relation, old.as_deref(), Some(&new))?,
            Message::Delete { relation, old } => self.step(sink, relation, Some(&old), None)?,
            Message::Truncate { relations } => {
                let indexes = relations.iter().flat_map(|relation| self.indexes(*relation));
                indexes.for_each(|index| sink.arrived.push(*index, Step::Truncate));
            }
            Message::Other => {}
        }
        Ok(())
    }

    fn indexes(&self, relation: u32) -> &[usize] {
        self.tables.get(&relation).map(Vec::as_slice).unwrap_or_default()
    }

    /// Applies the stream's description of a table.
    fn define(&self, relation: &Relation, sink: &mut Sink) -> Result<()> {
        for index in self.indexes(relation.oid) {
            let table = sink.table(*index)?;
            let columns = relation.columns.iter().map(|new| {
                // A domain has the texts of its base type.
                let old = table.columns.iter().find(|old| old.type_id == new.type_oid);
                let texts = old.map_or(texts(new.type_oid), |old| old.texts);
                column(new.name.clone(), new.type_oid, new.is_identity, texts)
            });
            let columns = columns.collect();
            sink.redefine(*index, columns)?;
        }
        let has_name = |table: &Table| table.name.0 == relation.schema && table.name.1 == relation.name;
        match sink.find(has_name) {
            Some(table) if !self.tables.contains_key(&relation.oid) => {
                bail!("the table {} was dropped and created again", table.config.name)
            }
            _ => Ok(()),
        }
    }

    fn step(&self, sink: &mut Sink, relation: u32, old: Option<&[Field]>, new: Option<&[Field]>) -> Result<()> {
        for index in self.indexes(relation) {
            let step = sink.step(*index, old, new)?;
            sink.arrived.push(*index, step);
        }
        Ok(())
    }
}

/// Opens a session whose values have the same texts as the stream.
pub fn connect(settings: &tokio_postgres::Config) -> Result<Client> {
    let mut database = Client::connect(settings)?;
    let text: Vec<_> = TEXT_SETTINGS.iter().map(|(name, value)| format!("SET {name} = '{value}'")).collect();
    database.batch_execute(&text.join(";"))?;
    // Otherwise this session would wait for itself if the follower is a synchronous standby.
    database.batch_execute("SET synchronous_commit = local")?;
    // These limits are meant for applications. A COPY must not have a time limit.
    database.batch_execute(
        "SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN \
         ('statement_timeout', 'transaction_timeout', 'idle_session_timeout', 'idle_in_transaction_session_timeout')",
    )?;
    database.batch_execute(
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE, NOT DEFERRABLE",
    )?;
    // The follower must continue while a table is locked, because the session that has locked it may wait for the follower.
    database.batch_execute("SET lock_timeout = '1s'")?;
    // COPY of a table then fails if a policy would hide rows, which would be reported absent.
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
