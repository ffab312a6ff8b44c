//! MariaDB or MySQL as a source: its binary log is read as a replica reads it, from a GTID on. A second session sees which transactions are
//! visible.

mod binlog;
mod catalogue;
mod gtid;
mod rows;
mod session;
mod statements;

use std::collections::VecDeque;
use std::fmt::{self, Display};
use std::str::FromStr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, bail, ensure};
use bytes::Bytes;
use mysql_async::{Opts, Value};

use self::binlog::{Arrival, Reader, bytes_between, place};
use self::gtid::{Gtid, Gtids};
use self::session::{LogStream, Session, TIMEOUT, UNANSWERED, naming_privilege, number};
use crate::config::{self, Config, Mode};
use crate::fill::BATCH;
use crate::follower::{Followed, Follower, Source, WAIT};
use crate::log::Lsn;
use crate::metrics::{Metrics, State};
use crate::store::{Position, Store, Unlogged};
use crate::table::{Arrived, Step, Table, Transaction, templates};
use crate::template::Field;

/// How often a standby tries to take the lock.
const STANDBY_INTERVAL: Duration = Duration::from_millis(500);
/// A standby ends the other follower's session after it has shown no sign of life for this long.
const TAKEOVER: Duration = Duration::from_secs(10);
/// The most events that are read before the loop goes on: those of other tables may never end.
const BURST: u32 = 10_000;
/// The numbers of errors: a table is locked, its definition has changed since the snapshot, and the log cannot be read from there on.
const LOCKED: [u16; 2] = [1205, 1412];
const LOG_UNREADABLE: u16 = 1236;
/// The number of the error that ends the older one of two streams with the same id.
const SAME_ID: u16 = 4052;

const VARIABLES: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('log_bin', 'binlog_format', 'binlog_row_image', \
    'binlog_row_value_options', 'read_only', 'log_slave_updates', 'log_replica_updates', 'lower_case_table_names', 'gtid_mode', 'wsrep_on', \
    'innodb_flush_log_at_trx_commit'); SHOW GLOBAL STATUS WHERE Variable_name IN ('Slaves_running', 'Com_reset')";

/// Whose log it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Brand {
    MariaDb,
    /// From version 8.4 on.
    MySql,
}

/// The log, and a session beside it.
pub struct Binlog {
    brand: Brand,
    options: Opts,
    slot: String,
    session: Session,
    /// `None` until it is known from where on.
    log: Option<LogStream>,
    reader: Reader,
    /// The databases and filters of the tables, in the order of the reader's.
    followed: Vec<String>,
    /// After the last transaction that has arrived.
    gtids: Gtids,
    /// What the log was read from, and the transactions since that are not confirmed, with the last one that is.
    begin: String,
    stops: VecDeque<(Lsn, Stop)>,
    confirmed: Lsn,
    /// How many RESETs the server had counted when this began.
    resets: Option<String>,
    /// How long the log has been silent.
    silence: Duration,
    burst: u32,
}

/// A transaction after which a follower can go on. The log is read from the one before: a server that was put back to a backup has given the
/// number to another one.
#[derive(Clone, Debug, PartialEq)]
struct Stop {
    before: Gtids,
    gtid: Gtid,
    time: u64,
    checksum: u32,
}

impl Display for Stop {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "{};{};{};{:08x}", self.before, self.gtid, self.time, self.checksum)
    }
}

impl FromStr for Stop {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts: Vec<_> = text.split(';').collect();
        let [before, gtid, time, checksum] = parts.as_slice() else { bail!("`{text}` names no transaction") };
        let checksum = u32::from_str_radix(checksum, 16)?;
        Ok(Self { before: before.parse()?, gtid: gtid.parse()?, time: time.parse()?, checksum })
    }
}

impl Source for Binlog {
    /// Whether the process has stood by.
    type Memory = bool;

    fn connect(config: &Config) -> Result<Self> {
        ensure!(
            config.mode == Mode::Eventual,
            "COMMIT of MariaDB and MySQL cannot wait for a follower: set mode = \"eventual\""
        );
        let options =
            session::parse(&config.database).context("`database` is not the URL of a MariaDB or MySQL server")?;
        let mut session = Session::connect(&options)?;
        let mut source = Self {
            brand: brand(&mut session)?,
            session,
            options,
            slot: config.slot.clone(),
            log: None,
            reader: Reader::default(),
            followed: Vec::new(),
            gtids: Gtids::default(),
            begin: String::new(),
            stops: VecDeque::new(),
            confirmed: Lsn(0),
            resets: None,
            silence: Duration::ZERO,
            burst: 0,
        };
        let (_, objection) = source.look(config.mode)?;
        objection.map_or(Ok(source), |objection| bail!(objection))
    }

    fn describe(&mut self, tables: &[config::Table]) -> Result<Vec<Table>> {
        let default = self.database();
        let mut described = Vec::new();
        for config in tables {
            let (table, columns) = catalogue::describe(&mut self.session, config, &default)?;
            match self.followed.iter().position(|filter| *filter == config.filter) {
                Some(index) => *self.reader.tables.get_mut(index).context("a table")? = columns,
                None => {
                    self.reader.tables.push(columns);
                    self.followed.push(config.filter.clone());
                }
            }
            described.push(table);
        }
        let (_, objection) = self.look(Mode::Eventual)?;
        objection.map_or(Ok(described), |objection| bail!(objection))
    }

    fn take(
        &mut self,
        _: &Config,
        store: &mut Store,
        tables: &[Table],
        has_stood_by: &mut bool,
        stopping: &AtomicBool,
        metrics: &Metrics,
    ) -> Result<bool> {
        let first = tables.first().context("a table")?;
        let mut last_sign = Instant::now();
        while !self.take_lock()? {
            if !*has_stood_by {
                metrics.enter(State::Standby);
                eprintln!("bloomgate: another follower has the slot {}: standing by", self.slot);
                *has_stood_by = true;
            }
            thread::sleep(STANDBY_INTERVAL);
            if stopping.load(Relaxed) {
                return Ok(false);
            }
            if store.is_alive(&first.keys)? {
                last_sign = Instant::now();
            }
            if last_sign.elapsed() >= TAKEOVER {
                eprintln!(
                    "bloomgate: the other follower has shown no sign of life for {} s: taking over",
                    TAKEOVER.as_secs()
                );
                if let Some(connection) = self.holder()? {
                    self.session.query(&format!("KILL {connection}"))?;
                }
                last_sign = Instant::now();
            }
        }
        Ok(true)
    }

    fn may_recover(has_stood_by: &mut bool, error: &Error) -> bool {
        *has_stood_by || Self::is_locked(error)
    }

    fn print_status(config: &Config) -> Result<bool> {
        let holder = Self::connect(config)?.holder()?;
        let connected = holder.as_ref().map_or("no follower is connected".to_owned(), |connection| {
            format!("a follower is connected (connection {connection})")
        });
        println!("slot {}: {connected}", config.slot);
        Ok(holder.is_some())
    }

    fn system(&self) -> &'static str {
        // A failover to another server of the same GTIDs goes on.
        match self.brand {
            Brand::MariaDb => "mariadb",
            Brand::MySql => "mysql",
        }
    }

    fn text_of(&self, place: Lsn) -> String {
        let stop = self.stops.iter().rev().find(|(end, _)| *end <= place);
        stop.map_or_else(|| self.begin.clone(), |(_, stop)| stop.to_string())
    }

    fn confirmed(&self) -> Lsn {
        self.confirmed
    }

    fn bytes_between(begin: Lsn, end: Lsn) -> u64 {
        bytes_between(begin, end)
    }

    fn confirm(&mut self, place: Lsn) -> Result<()> {
        self.confirmed = self.confirmed.max(place);
        while self.stops.get(1).is_some_and(|(end, _)| *end <= self.confirmed) {
            self.stops.pop_front();
        }
        Ok(())
    }

    fn sign(&mut self) -> Result<()> {
        // The lock ends with its session, which the database ends if it is idle.
        self.session.query("DO 0").map(drop)
    }

    fn receive(&mut self, arrived: &mut Arrived, tables: &mut [Followed], timeout: Duration) -> Result<bool> {
        let log = self.log.as_mut().context("the log has not begun")?;
        let next = log.next(timeout).map_err(|error| match number(&error) {
            Some(SAME_ID) => error.context("another follower or replica has the same server id: name another `slot`"),
            _ => error,
        });
        let Some(event) = next? else {
            // The server tells several times a second that there is nothing new.
            self.silence += timeout;
            ensure!(self.silence < TIMEOUT, UNANSWERED);
            self.burst = 0;
            return Ok(false);
        };
        (self.silence, self.burst) = (Duration::ZERO, (self.burst + 1) % BURST);
        let render = |index: usize, old: Option<&[Field]>, new: Option<&[Field]>| {
            Ok(Step::Change(tables.get(index).context("a table")?.change(old, new)?))
        };
        match self.reader.take(&event, &render)? {
            Arrival::Nothing => {}
            Arrival::Place(place) => arrived.keepalive(place),
            Arrival::Transaction(transaction) => {
                let binlog::Transaction { gtid, time, checksum, end, steps } = transaction;
                arrived.add(Transaction { xid: checksum, time, end, steps });
                let before = self.gtids.clone();
                self.gtids.add(&gtid);
                self.stops.push_back((end, Stop { before, gtid, time, checksum }));
            }
        }
        Ok(true)
    }

    fn has_event(&self) -> bool {
        self.burst != 0
    }

    fn count_visible(&mut self, waiting: &VecDeque<Transaction>) -> Result<usize> {
        if self.brand == Brand::MariaDb {
            let (visible, _) = self.snapshot()?;
            return Ok(waiting.iter().take_while(|transaction| transaction.end <= visible).count());
        }
        let visible = self.executed()?;
        let first = waiting.front().map(|transaction| transaction.end).unwrap_or_default();
        let arrived = self.stops.iter().skip_while(|(end, _)| *end < first);
        Ok(arrived.take_while(|(_, stop)| visible.contains(&stop.gtid)).count())
    }

    fn copy(&mut self, table: &Table, pass: &mut dyn FnMut(&[Vec<u8>]) -> Result<()>) -> Result<u64> {
        let (item, _) = templates(&table.config, &table.columns)?;
        let places: Vec<usize> = item.columns().collect();
        let names =
            places.iter().filter_map(|index| table.columns.get(*index)).map(|column| format!("`{}`", column.name));
        let query = format!("SELECT {} FROM {}", names.collect::<Vec<_>>().join(", "), table.from);
        let (mut rows, mut items) = (0, Vec::with_capacity(BATCH));
        let mut row = vec![Field::Null; table.columns.len()];
        self.session.each_row(&query, |values| {
            let Some(values) = values else { return pass(&[]) };
            for (place, value) in places.iter().zip(values) {
                let field = row.get_mut(*place).context("a column")?;
                *field = match value {
                    Value::Bytes(text) => Field::Text(Bytes::from(text)),
                    _ => Field::Null,
                };
            }
            items.extend(table.item(&row)?);
            rows += 1;
            if items.len() == BATCH {
                pass(&items)?;
                items.clear();
            }
            Ok(())
        })?;
        pass(&items)?;
        Ok(rows)
    }

    fn is_locked(error: &Error) -> bool {
        number(error).is_some_and(|number| LOCKED.contains(&number))
    }

    fn definitions(&mut self, tables: &[Followed]) -> Result<Vec<Option<String>>> {
        let default = self.database();
        tables.iter().map(|table| catalogue::definition(&mut self.session, &table.config, &default)).collect()
    }

    fn look(&mut self, _: Mode) -> Result<(Lsn, Option<String>)> {
        let (status, privilege) = match self.brand {
            Brand::MariaDb => ("SHOW MASTER STATUS", "BINLOG MONITOR ON *.*"),
            Brand::MySql => ("SHOW BINARY LOG STATUS", "REPLICATION CLIENT ON *.*"),
        };
        let rows = self.session.texts(&format!("{VARIABLES}; {status}"));
        let rows = rows.map_err(|error| naming_privilege(error, privilege))?;
        let (mut objection, mut end, mut logs_replicated) = (None, None, true);
        for row in rows {
            let row: Vec<_> = row.into_iter().map(Option::unwrap_or_default).collect();
            match row.as_slice() {
                [name, value] if name == "log_slave_updates" => logs_replicated = value == "ON",
                [name, value]
                    if !logs_replicated
                        && ((name == "Slaves_running" && value != "0") || (name == "wsrep_on" && value == "ON")) =>
                {
                    let reason =
                        "the log lacks what the database replicates: set log_slave_updates = ON and restart it";
                    return Err(Unlogged(reason.to_owned()).into());
                }
                // RESET MASTER begins the log anew. The stream may stay, and wait at a place that the new log has, too.
                [name, value] if name == "Com_reset" => {
                    ensure!(self.resets.get_or_insert(value.clone()) == value, "the log was reset");
                }
                [name, value] => match object(name, value) {
                    Some(reason) if matches!(name.as_str(), "log_bin" | "log_replica_updates") => {
                        return Err(Unlogged(reason).into());
                    }
                    reason => objection = objection.or(reason),
                },
                [file, offset, done, ignored, ..] => {
                    end = Some(place(file, offset.parse()?)?);
                    let mut schemas = self.reader.tables.iter().map(|table| table.schema.as_str());
                    let contains = |list: &str, schema: &str| list.split(',').any(|name| name == schema);
                    let is_left_out =
                        |schema: &&str| contains(ignored, schema) || (!done.is_empty() && !contains(done, schema));
                    if let Some(schema) = schemas.find(is_left_out) {
                        let remedy = "change binlog_do_db or binlog_ignore_db";
                        return Err(Unlogged(format!("the log leaves out the database {schema}: {remedy}")).into());
                    }
                }
                _ => {}
            }
        }
        // A server that cannot write its log may go on without it, and log_bin stays ON.
        let end =
            end.ok_or_else(|| Unlogged("the database has closed its binary log: its error log says why".to_owned()))?;
        Ok((end, objection))
    }

    fn is_closed(&self) -> bool {
        self.session.is_closed()
    }

    fn locate(follower: &mut Follower<Self>, stored: &[Option<Position>]) -> Result<Vec<Result<Lsn, &'static str>>> {
        let stops: Vec<Option<Stop>> =
            stored.iter().map(|stored| stored.as_ref().and_then(|stored| stored.place.parse().ok())).collect();
        let found = match find(follower, &stops) {
            Err(error) if number(&error) == Some(LOG_UNREADABLE) => {
                eprintln!("bloomgate: {error:#}");
                stops.iter().map(|_| None).collect()
            }
            found => found?,
        };
        if found.iter().all(Option::is_none) {
            follower.arrived = Arrived::default();
            follower.source.begin_anew()?;
        } else {
            let source = &mut follower.source;
            source.confirmed = found.iter().flatten().min().copied().unwrap_or(source.confirmed);
        }
        let why = |(stop, found): (&Option<Stop>, Option<Lsn>)| match stop {
            Some(_) => {
                found.ok_or("the log does not have its last transaction: it is another log, or a part was removed")
            }
            None => Err("no transaction has followed since it was filled"),
        };
        Ok(stops.iter().zip(found).map(why).collect())
    }

    fn settle(follower: &mut Follower<Self>, fills: bool) -> Result<Lsn> {
        let source = &mut follower.source;
        // MySQL does not tell the place of a snapshot. What the fill has seen already is applied again.
        Ok(match source.brand {
            Brand::MariaDb if fills => source.snapshot()?.0.max(source.confirmed),
            _ => source.confirmed,
        })
    }
}

impl Binlog {
    /// Returns the database of the names that have none.
    fn database(&self) -> String {
        self.options.db_name().unwrap_or_default().to_owned()
    }

    /// Takes the lock that one follower of this name can have, and that ends with its session.
    fn take_lock(&mut self) -> Result<bool> {
        let reply = self.session.texts(&format!("SELECT GET_LOCK('{}', 0)", self.lock()))?;
        Ok(reply.into_iter().flatten().next().flatten().as_deref() == Some("1"))
    }

    /// Returns the connection that has the lock.
    fn holder(&mut self) -> Result<Option<String>> {
        let reply = self.session.texts(&format!("SELECT IS_USED_LOCK('{}')", self.lock()))?;
        Ok(reply.into_iter().flatten().next().flatten())
    }

    fn lock(&self) -> String {
        // At most 64 characters.
        format!(".{}", self.slot)
    }

    /// Returns what every new reader of MySQL sees.
    fn executed(&mut self) -> Result<Gtids> {
        let reply = self.session.texts("SELECT @@GLOBAL.gtid_executed")?;
        reply.into_iter().flatten().next().flatten().unwrap_or_default().parse()
    }

    /// Returns the place up to which every new reader of MariaDB sees all transactions, and its file and offset for SQL.
    fn snapshot(&mut self) -> Result<(Lsn, String)> {
        let rows = self
            .session
            .texts("START TRANSACTION WITH CONSISTENT SNAPSHOT; SHOW STATUS LIKE 'binlog_snapshot_%'; COMMIT")?;
        let value = |wanted: &str| {
            let row =
                rows.iter().find(|row| matches!(row.as_slice(), [Some(name), _] if name.eq_ignore_ascii_case(wanted)));
            row.and_then(|row| row.get(1).cloned().flatten()).with_context(|| format!("MariaDB has no {wanted}"))
        };
        let (file, offset) = (value("binlog_snapshot_file")?, value("binlog_snapshot_position")?);
        Ok((place(&file, offset.parse()?)?, format!("'{file}', {offset}")))
    }

    /// Reads the log from what is visible now.
    fn begin_anew(&mut self) -> Result<()> {
        if self.brand == Brand::MySql {
            self.confirmed = Lsn(0);
            let gtids = self.executed()?;
            return self.read_from(&gtids);
        }
        let (visible, position) = self.snapshot()?;
        let reply = self.session.texts(&format!("SELECT BINLOG_GTID_POS({position})"))?;
        let gtids = reply.into_iter().flatten().next().flatten().context("MariaDB has removed its log")?;
        self.confirmed = visible;
        self.read_from(&gtids.parse()?)
    }

    /// Reads the log after these transactions.
    fn read_from(&mut self, gtids: &Gtids) -> Result<()> {
        // The id of a replica is its own. One with the same id would end this stream.
        let server_id = 0x4000_0000 | crc32fast::hash(self.slot.as_bytes()) & 0x3fff_ffff;
        let mut session = Session::connect(&self.options)?;
        // In nanoseconds.
        let period = WAIT.as_nanos();
        self.log = Some(match self.brand {
            Brand::MariaDb => {
                session.query(&format!(
                    "SET @mariadb_slave_capability = 4, @slave_connect_state = '{gtids}', @slave_gtid_strict_mode = 1, \
                     @slave_gtid_ignore_duplicates = 0, @master_heartbeat_period = {period}"
                ))?;
                session.into_log(server_id, None)?
            }
            Brand::MySql => {
                session.query(&format!("SET @source_heartbeat_period = {period}"))?;
                session.into_log(server_id, Some(&gtids.to_string()))?
            }
        });
        (self.gtids, self.begin, self.silence) = (gtids.clone(), gtids.to_string(), Duration::ZERO);
        self.reader.restart();
        self.stops.clear();
        Ok(())
    }
}

/// Reads the log from the first of the stored transactions on, and returns for each the place where this log has it.
fn find(follower: &mut Follower<Binlog>, stops: &[Option<Stop>]) -> Result<Vec<Option<Lsn>>> {
    let mut found: Vec<Option<Lsn>> = stops.iter().map(|_| None).collect();
    let mut wanted: Vec<(usize, &Stop)> =
        stops.iter().enumerate().filter_map(|(index, stop)| Some((index, stop.as_ref()?))).collect();
    // A domain that one of them lacks is read from its beginning.
    let first = wanted.iter().map(|(_, stop)| stop.before.clone()).reduce(|one, other| one.common(&other));
    let Some(first) = first else { return Ok(found) };
    let (end, _) = follower.source.look(Mode::Eventual)?;
    follower.source.read_from(&first)?;
    let mut checked = 0;
    while !wanted.is_empty() && (follower.arrived.end() < end || checked < follower.source.stops.len()) {
        follower.pulse.ensure_running()?;
        follower.pulse()?;
        follower.receive_event(WAIT)?;
        for (place, stop) in follower.source.stops.iter().skip(checked) {
            wanted.retain(|(index, wanted)| {
                if let Some(found) = found.get_mut(*index).filter(|_| stop.gtid == wanted.gtid) {
                    *found = Some(*place).filter(|_| (stop.time, stop.checksum) == (wanted.time, wanted.checksum));
                }
                !stop.gtid.reaches(&wanted.gtid)
            });
        }
        checked = follower.source.stops.len();
    }
    Ok(found)
}

/// Returns whose server it is.
fn brand(session: &mut Session) -> Result<Brand> {
    let reply = session.texts("SELECT VERSION()")?;
    let version = reply.into_iter().flatten().next().flatten().unwrap_or_default();
    if version.contains("MariaDB") {
        let galera = "SHOW GLOBAL VARIABLES WHERE Variable_name = 'wsrep_on' AND Value = 'ON'";
        if !session.query(galera)?.is_empty() {
            // COMMIT returns on another node before this one has applied the transaction. SHOW waits for that, so a heartbeat is about all nodes.
            session.query("SET SESSION wsrep_sync_wait = 8")?;
        }
        return Ok(Brand::MariaDb);
    }
    let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
    ensure!(
        (numbers.next(), numbers.next()) >= (Some(8), Some(4)),
        "the database is MySQL {version}: MySQL can be followed from version 8.4 on"
    );
    Ok(Brand::MySql)
}

/// Returns why a setting lets the log lack changes, or `None`.
fn object(name: &str, value: &str) -> Option<String> {
    let (is_right, remedy) = match name.to_ascii_lowercase().as_str() {
        "log_bin" => (value == "ON", "set log_bin and restart the server"),
        "binlog_format" => (value == "ROW", "SET GLOBAL binlog_format = ROW, also for the sessions that are open"),
        "binlog_row_image" => {
            (value == "FULL", "SET GLOBAL binlog_row_image = FULL, also for the sessions that are open")
        }
        "binlog_row_value_options" => (value.is_empty(), "SET GLOBAL binlog_row_value_options = ''"),
        "gtid_mode" => (value == "ON", "set it to ON, and enforce_gtid_consistency, too"),
        "log_replica_updates" => (value == "ON", "set it to ON and restart MySQL"),
        "read_only" => (value == "OFF", "follow the primary instead of its replica"),
        "lower_case_table_names" => (value != "2", "the log has other names of tables than the catalogue"),
        "innodb_flush_log_at_trx_commit" => (value != "0", "a crash loses commits that the log has: set it to 1"),
        _ => (true, ""),
    };
    (!is_right).then(|| format!("the database's {name} is {value}: {remedy}"))
}
