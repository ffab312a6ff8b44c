//! MariaDB or MySQL as a source: its binary log is read like by a replica, from a GTID on. A second session determines which transactions
//! are visible.

mod binlog;
mod catalogue;
mod copy;
mod gtid;
mod rows;
mod session;
mod statements;

use std::collections::VecDeque;
use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Error, Result, bail, ensure};
use mysql_async::Opts;

use self::binlog::{Arrival, Reader, bytes_between, place};
use self::gtid::{Gtid, Gtids};
use self::session::{LogStream, Session, TIMEOUT, UNANSWERED, naming_privilege, number};
use crate::config::{self, Config, Mode};
use crate::engine::events::{Arrived, Sink, Transaction};
use crate::engine::position::{Place, Position};
use crate::engine::store::IncompleteLog;
use crate::engine::{LogEnd, Source, Time, WAIT};
use crate::table::Table;

/// The maximum number of events read in one iteration of the loop, because events of other tables may never end.
const BURST: u32 = 10_000;
/// The numbers of errors: a table is locked, its definition has changed since the snapshot, and the log cannot be read from a position.
const LOCKED: [u16; 2] = [1205, 1412];
const LOG_UNREADABLE: u16 = 1236;
/// The number of the error that ends the older of two streams with the same id.
const SAME_ID: u16 = 4052;

const VARIABLES: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('log_bin', 'binlog_format', 'binlog_row_image', \
    'binlog_row_value_options', 'read_only', 'log_slave_updates', 'log_replica_updates', 'lower_case_table_names', 'gtid_mode', 'wsrep_on', \
    'innodb_flush_log_at_trx_commit', 'group_replication_single_primary_mode'); SHOW GLOBAL STATUS WHERE Variable_name IN ('Slaves_running', 'Com_reset')";

/// The kind of server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flavor {
    MariaDb,
    /// From version 8.4 on.
    MySql,
}

/// The log, and a session.
pub struct Binlog {
    flavor: Flavor,
    options: Opts,
    slot: String,
    session: Session,
    /// `None` until its start is known.
    log: Option<LogStream>,
    reader: Reader,
    /// The databases and filters of the tables, in the order of the log reader.
    followed: Vec<String>,
    /// The GTIDs after the last transaction that has arrived.
    gtids: Gtids,
    /// The GTIDs from which the log was read; the last confirmed transaction, and the later ones.
    begin: String,
    stops: VecDeque<(Place, Stop)>,
    confirmed: Place,
    /// The server's count of RESETs at the beginning.
    resets: Option<String>,
    /// How long the log has been silent.
    silence: Duration,
    burst: u32,
}

/// A transaction after which a follower can resume. The log is read from the transaction before it, because a server that was restored from a
/// backup may have assigned its number to another transaction.
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
    type Memory = ();
    type Copier = Session;

    fn connect(config: &Config, (): &()) -> Result<Self> {
        ensure!(
            config.mode == Mode::Eventual,
            "COMMIT of MariaDB and MySQL cannot wait for a follower: set mode = \"eventual\""
        );
        let options =
            session::parse(&config.database).context("`database` is not the URL of a MariaDB or MySQL server")?;
        let mut session = Session::connect(&options)?;
        let mut source = Self {
            flavor: flavor(&mut session)?,
            session,
            options,
            slot: config.slot.clone(),
            log: None,
            reader: Reader::default(),
            followed: Vec::new(),
            gtids: Gtids::default(),
            begin: String::new(),
            stops: VecDeque::new(),
            confirmed: Place(0),
            resets: None,
            silence: Duration::ZERO,
            burst: 0,
        };
        let LogEnd { objection, .. } = source.read_log_end(config.mode)?;
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
        let LogEnd { objection, .. } = self.read_log_end(Mode::Eventual)?;
        objection.map_or(Ok(described), |objection| bail!(objection))
    }

    fn acquire_stream(&mut self) -> Result<bool> {
        // Only one follower of this name can hold the lock, which ends with its session.
        Ok(self.session.value(&format!("SELECT GET_LOCK('{}', 0)", self.lock()))?.as_deref() == Some("1"))
    }

    fn end_other(&mut self) -> Result<()> {
        let Some(connection) = self.holder()? else { return Ok(()) };
        self.session.query(&format!("KILL {connection}")).map(drop)
    }

    fn print_status(config: &Config) -> Result<bool> {
        let holder = Self::connect(config, &())?.holder()?;
        let connected = holder.as_ref().map_or("no follower is connected".to_owned(), |connection| {
            format!("a follower is connected (connection {connection})")
        });
        println!("slot {}: {connected}", config.slot);
        Ok(holder.is_some())
    }

    fn system(&self) -> &'static str {
        // After a failover, the log continues on a server with the same GTIDs.
        match self.flavor {
            Flavor::MariaDb => "mariadb",
            Flavor::MySql => "mysql",
        }
    }

    fn text_of(&self, place: Place) -> String {
        let stop = self.stops.iter().rev().find(|(end, _)| *end <= place);
        stop.map_or_else(|| self.begin.clone(), |(_, stop)| stop.to_string())
    }

    fn confirmed(&self) -> Place {
        self.confirmed
    }

    fn bytes_between(begin: Place, end: Place) -> u64 {
        bytes_between(begin, end)
    }

    fn confirm(&mut self, place: Place) -> Result<()> {
        self.confirmed = self.confirmed.max(place);
        while self.stops.get(1).is_some_and(|(end, _)| *end <= self.confirmed) {
            self.stops.pop_front();
        }
        Ok(())
    }

    fn keep_alive(&mut self) -> Result<()> {
        // The lock ends with its session, which the database closes if it is idle.
        self.session.query("DO 0").map(drop)
    }

    fn next(&mut self, sink: &mut Sink, timeout: Duration) -> Result<bool> {
        let log = self.log.as_mut().context("the log has not begun")?;
        let next = log.next(timeout).map_err(|error| match number(&error) {
            Some(SAME_ID) => error.context("another follower or replica has the same server id: name another `slot`"),
            _ => error,
        });
        let Some(event) = next? else {
            // The server reports several times a second that there is nothing new.
            self.silence += timeout;
            ensure!(self.silence < TIMEOUT, UNANSWERED);
            self.burst = 0;
            return Ok(false);
        };
        (self.silence, self.burst) = (Duration::ZERO, (self.burst + 1) % BURST);
        match self.reader.take(&event, &|index, old, new| sink.step(index, old, new))? {
            Arrival::Nothing => {}
            Arrival::Place(place) => sink.arrived.reach(place),
            Arrival::Transaction(transaction) => {
                let binlog::Transaction { gtid, time, checksum, end, steps } = transaction;
                sink.arrived.add(Transaction { id: checksum.into(), time, end, steps });
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

    fn count_visible(&mut self, waiting: &mut dyn Iterator<Item = (Place, u64)>) -> Result<usize> {
        if self.flavor == Flavor::MariaDb {
            let (visible, _) = self.visible()?;
            return Ok(waiting.take_while(|(end, _)| *end <= visible).count());
        }
        let visible = self.executed()?;
        let first = waiting.next().map(|(end, _)| end).unwrap_or_default();
        let arrived = self.stops.iter().skip_while(|(end, _)| *end < first);
        Ok(arrived.take_while(|(_, stop)| visible.contains(&stop.gtid)).count())
    }

    fn snapshot(&mut self) -> Result<Option<Place>> {
        Ok(match self.flavor {
            Flavor::MariaDb => Some(self.visible()?.0),
            // MySQL does not report the place of a snapshot. Changes that the fill has already read are applied again.
            Flavor::MySql => None,
        })
    }

    fn copier(&self) -> Result<Session> {
        let mut session = Session::connect(&self.options)?;
        flavor(&mut session)?;
        Ok(session)
    }

    fn is_locked(error: &Error) -> bool {
        number(error).is_some_and(|number| LOCKED.contains(&number))
    }

    fn definitions(&mut self, tables: &mut dyn Iterator<Item = &Table>) -> Result<Vec<Option<String>>> {
        let default = self.database();
        tables.map(|table| catalogue::definition(&mut self.session, &table.config, &default)).collect()
    }

    fn read_log_end(&mut self, _: Mode) -> Result<LogEnd> {
        let (status, privilege) = match self.flavor {
            Flavor::MariaDb => ("SHOW MASTER STATUS", "BINLOG MONITOR ON *.*"),
            Flavor::MySql => ("SHOW BINARY LOG STATUS", "REPLICATION CLIENT ON *.*"),
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
                    return Err(IncompleteLog(reason.to_owned()).into());
                }
                // RESET MASTER starts a new log. The stream may stay open, and wait at a place that also exists in the new log.
                [name, value] if name == "Com_reset" => {
                    ensure!(self.resets.get_or_insert(value.clone()) == value, "the log was reset");
                }
                [name, value] => match object(name, value) {
                    Some(reason) if matches!(name.as_str(), "log_bin" | "log_replica_updates") => {
                        return Err(IncompleteLog(reason).into());
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
                        return Err(IncompleteLog(format!("the log leaves out the database {schema}: {remedy}")).into());
                    }
                }
                _ => {}
            }
        }
        if objection.is_none() {
            objection = self.upstream()?;
        }
        // A server that cannot write its log may continue without it, although log_bin stays ON.
        let end = end.ok_or_else(|| {
            IncompleteLog("the database has closed its binary log: its error log says why".to_owned())
        })?;
        Ok(LogEnd { end, time: Time::Asked, objection })
    }

    fn is_closed(&self) -> bool {
        self.session.is_closed()
    }

    fn locate(
        &mut self,
        stored: &[Option<Position>],
        sink: &mut Sink,
        meanwhile: &mut dyn FnMut() -> Result<bool>,
    ) -> Result<Vec<Result<Place, &'static str>>> {
        let stops: Vec<Option<Stop>> =
            stored.iter().map(|stored| stored.as_ref().and_then(|stored| stored.place.parse().ok())).collect();
        let found = match self.find(&stops, sink, meanwhile) {
            Err(error) if number(&error) == Some(LOG_UNREADABLE) => {
                eprintln!("bloomgate: {error:#}");
                stops.iter().map(|_| None).collect()
            }
            found => found?,
        };
        if found.iter().all(Option::is_none) {
            *sink.arrived = Arrived::default();
            self.begin_anew()?;
        } else {
            self.confirmed = found.iter().flatten().min().copied().unwrap_or(self.confirmed);
        }
        let why = |((stored, stop), found): ((&Option<Position>, &Option<Stop>), Option<Place>)| match (stored, stop) {
            (None, _) => Err("no position in the log is stored for it"),
            (_, None) => Err("no transaction has followed since it was filled"),
            _ => found.ok_or("the log does not have its last transaction: it is another log, or a part was removed"),
        };
        Ok(stored.iter().zip(&stops).zip(found).map(why).collect())
    }
}

impl Binlog {
    /// Returns the database for names without one.
    fn database(&self) -> String {
        self.options.db_name().unwrap_or_default().to_owned()
    }

    /// Returns an objection if the server replicates from another server, whose changes it gets late or not at all. Servers that
    /// replicate from each other are accepted.
    fn upstream(&mut self) -> Result<Option<String>> {
        let (sources, id, host, right) = match self.flavor {
            Flavor::MariaDb => ("SHOW ALL SLAVES STATUS", "Master_Server_Id", "Master_Host", "REPLICA MONITOR ON *.*"),
            Flavor::MySql => ("SHOW REPLICA STATUS", "Source_Server_Id", "Source_Host", "REPLICATION CLIENT ON *.*"),
        };
        let sources = self.session.fields(sources, &[id, host]).map_err(|error| naming_privilege(error, right))?;
        if sources.is_empty() {
            return Ok(None);
        }
        let replicas = match self.flavor {
            Flavor::MariaDb => "SHOW SLAVE HOSTS",
            Flavor::MySql => "SHOW REPLICAS",
        };
        // Without the required privilege, the server counts as a replica.
        let replicas = self.session.fields(replicas, &["Server_id"]).unwrap_or_default();
        let one_way = sources.iter().find(|source| !replicas.iter().flatten().any(|id| Some(id) == source.first()));
        Ok(one_way.map(|source| {
            let host = source.get(1).map(String::as_str).unwrap_or_default();
            let remedy = match self.flavor {
                Flavor::MariaDb => " (of two servers that replicate from each other, the account needs GRANT REPLICATION MASTER ADMIN ON *.*)",
                Flavor::MySql => "",
            };
            format!("the database replicates from {host}: follow the primary instead of its replica{remedy}")
        }))
    }

    /// Returns the connection that holds the lock.
    fn holder(&mut self) -> Result<Option<String>> {
        self.session.value(&format!("SELECT IS_USED_LOCK('{}')", self.lock()))
    }

    fn lock(&self) -> String {
        // A lock's name has at most 64 characters.
        format!(".{}", self.slot)
    }

    /// Returns the transactions that every new reader of MySQL sees.
    fn executed(&mut self) -> Result<Gtids> {
        self.session.value("SELECT @@GLOBAL.gtid_executed")?.unwrap_or_default().parse()
    }

    /// Returns the place up to which every new reader of MariaDB sees all transactions, and its file and offset for SQL.
    fn visible(&mut self) -> Result<(Place, String)> {
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

    /// Reads the log from the currently visible changes on.
    fn begin_anew(&mut self) -> Result<()> {
        if self.flavor == Flavor::MySql {
            self.confirmed = Place(0);
            let gtids = self.executed()?;
            return self.read_from(&gtids);
        }
        let (visible, position) = self.visible()?;
        let gtids = self.session.value(&format!("SELECT BINLOG_GTID_POS({position})"))?;
        let gtids = gtids.context("MariaDB has removed its log")?;
        self.confirmed = visible;
        self.read_from(&gtids.parse()?)
    }

    /// Reads the log after these transactions.
    fn read_from(&mut self, gtids: &Gtids) -> Result<()> {
        // The id of a replica must be unique: another replica with the same id would end this stream.
        let server_id = 0x4000_0000 | crc32fast::hash(self.slot.as_bytes()) & 0x3fff_ffff;
        let mut session = Session::connect(&self.options)?;
        // The period is in nanoseconds.
        let period = WAIT.as_nanos();
        self.log = Some(match self.flavor {
            Flavor::MariaDb => {
                session.query(&format!(
                    "SET @mariadb_slave_capability = 4, @slave_connect_state = '{gtids}', @slave_gtid_strict_mode = 1, \
                     @slave_gtid_ignore_duplicates = 0, @master_heartbeat_period = {period}"
                ))?;
                session.into_log(server_id, None)?
            }
            Flavor::MySql => {
                session.query(&format!("SET @source_heartbeat_period = {period}"))?;
                session.into_log(server_id, Some(&gtids.to_string()))?
            }
        });
        (self.gtids, self.begin, self.silence) = (gtids.clone(), gtids.to_string(), Duration::ZERO);
        self.reader.restart();
        self.stops.clear();
        Ok(())
    }

    /// Reads the log from the first of the stored transactions on, and returns the place of each in this log.
    fn find(
        &mut self,
        stops: &[Option<Stop>],
        sink: &mut Sink,
        meanwhile: &mut dyn FnMut() -> Result<bool>,
    ) -> Result<Vec<Option<Place>>> {
        let mut found: Vec<Option<Place>> = stops.iter().map(|_| None).collect();
        let mut wanted: Vec<(usize, &Stop)> =
            stops.iter().enumerate().filter_map(|(index, stop)| Some((index, stop.as_ref()?))).collect();
        // A domain that is missing from one of them is read from its beginning.
        let first = wanted.iter().map(|(_, stop)| stop.before.clone()).reduce(|one, other| one.common(&other));
        let Some(first) = first else { return Ok(found) };
        let LogEnd { end, .. } = self.read_log_end(Mode::Eventual)?;
        self.read_from(&first)?;
        let mut checked = 0;
        while !wanted.is_empty() && (sink.arrived.end() < end || checked < self.stops.len()) {
            if meanwhile()? {
                self.keep_alive()?;
            }
            self.next(sink, WAIT)?;
            for (place, stop) in self.stops.iter().skip(checked) {
                wanted.retain(|(index, wanted)| {
                    if let Some(found) = found.get_mut(*index).filter(|_| stop.gtid == wanted.gtid) {
                        *found = Some(*place).filter(|_| (stop.time, stop.checksum) == (wanted.time, wanted.checksum));
                    }
                    !stop.gtid.reaches(&wanted.gtid)
                });
            }
            checked = self.stops.len();
        }
        Ok(found)
    }
}

/// Returns the kind of server.
fn flavor(session: &mut Session) -> Result<Flavor> {
    let version = session.value("SELECT VERSION()")?.unwrap_or_default();
    if version.contains("MariaDB") {
        let galera = "SHOW GLOBAL VARIABLES WHERE Variable_name = 'wsrep_on' AND Value = 'ON'";
        if !session.query(galera)?.is_empty() {
            // COMMIT on another node returns before this node has applied the transaction. SHOW waits for that, so a heartbeat covers all nodes.
            session.query("SET SESSION wsrep_sync_wait = 8")?;
        }
        return Ok(Flavor::MariaDb);
    }
    let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
    ensure!(
        (numbers.next(), numbers.next()) >= (Some(8), Some(4)),
        "the database is MySQL {version}: MySQL can be followed from version 8.4 on"
    );
    Ok(Flavor::MySql)
}

/// Returns why a setting may cause changes to be missing from the log, or `None`.
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
        "group_replication_single_primary_mode" => (
            value == "ON",
            "COMMIT returns on one primary before the others have the transaction: \
             SELECT group_replication_switch_to_single_primary_mode()",
        ),
        "innodb_flush_log_at_trx_commit" => (value != "0", "a crash loses commits that the log has: set it to 1"),
        _ => (true, ""),
    };
    (!is_right).then(|| format!("the database's {name} is {value}: {remedy}"))
}
