//! Follows the JSON changes that Debezium, Canal or Maxwell write.
//!
//! Such a stream has neither the rows of a table nor the end of the database's log, so this follower does less than the one of a
//! database. `bloomgate load` fills the filter, from rows that are newer than the beginning of the stream. What is applied twice does no
//! harm, because the stream has the order of the log. A time of the database in an event tells how far the stream is: whatever was
//! committed before it has been applied. The heartbeat lives until `max-lag` after the newest time, and ends as soon as a tool repeats
//! itself: a repeated delete may remove the item of a row that was inserted again since.

mod decode;
mod input;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use redis::{Cmd, Value, cmd};

use self::decode::{Event, Happened, Wanted, decode};
use self::input::{Batch, Input};
use crate::config::{Config, Format, JsonSource, KeyType, Keys, Table as TableConfig};
use crate::journal::{Work, chunked};
use crate::log::{Lsn, Mark};
use crate::metrics::{Metrics, State};
use crate::names::shown;
use crate::server::Lost;
use crate::store::{Position, Refused, Store, has_filter};
use crate::table::{Facts, Step, Table, Transaction};
use crate::template::{Column, Texts};

/// The longest wait for the next change, so that a signal is noticed.
const WAIT: Duration = Duration::from_millis(100);
/// The pause before another attempt after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// The place before the first entry.
const NOWHERE: &str = "-";
/// The most commands in one transaction of the server.
const COMMANDS: usize = 10;

/// Follows until a signal, or until standard input ends.
pub fn run(config: &Config, source: &JsonSource, stopping: &AtomicBool, metrics: &Arc<Metrics>) -> Result<()> {
    let tables = config.tables.iter().map(describe).collect::<Result<Vec<_>>>()?;
    let url = source.server.as_deref().unwrap_or(&config.server);
    let mut input = Input::open(source.stream.as_deref(), url, config.cluster && source.server.is_none())?;
    let mut has_run = false;
    while !stopping.load(Relaxed) {
        metrics.enter(State::Connecting);
        let result = Follower::start(config, source.format, &tables, &mut input, metrics).and_then(|mut follower| {
            has_run = true;
            follower.run(&mut input, stopping)
        });
        match result {
            Err(error) if has_run && error.is::<Lost>() => {
                metrics.count_failure();
                eprintln!("bloomgate: {error:#}; trying again");
            }
            result => return result,
        }
        thread::sleep(RETRY_INTERVAL);
    }
    Ok(())
}

/// Describes a table by its configuration. The stream has no description.
fn describe(config: &TableConfig) -> Result<Table> {
    let name = config.name.split_once('.').with_context(|| format!("`{}` is not DATABASE.TABLE", config.name))?;
    ensure!(!config.key.is_empty(), "the table {} has no `key`: the columns of its primary key", config.name);
    let mut kinds: BTreeMap<&str, Texts> = BTreeMap::new();
    for text in config.cache_key.iter().chain([&config.item]) {
        let names = text.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0));
        kinds.extend(names.filter(|name| *name != config.tag()).map(|name| (name, Texts::Any)));
    }
    kinds.extend(config.key.iter().map(|(name, kind)| {
        let texts = match kind {
            KeyType::Integer => Texts::Integer,
            KeyType::Unsigned => Texts::Unsigned,
            KeyType::Uuid => Texts::Uuid,
            KeyType::Text => Texts::Any,
        };
        (name.as_str(), texts)
    }));
    let (columns, facts): (Vec<_>, Vec<_>) = kinds
        .into_iter()
        .map(|(name, texts)| {
            let is_key = config.key.contains_key(name);
            let column = Column { name: name.to_owned(), type_id: 0, texts, is_hex: false, is_identity: true };
            (column, Facts { is_key, is_exact: true, type_name: String::new() })
        })
        .unzip();
    let name = (name.0.to_owned(), name.1.to_owned());
    let definition = format!("{:08x}", crc32fast::hash(config.contents().as_bytes()));
    Table::new(config, ("json".to_owned(), name, String::new(), definition), (columns, &facts), true)
}

/// Returns what the decoder needs of a table.
fn wanted(table: &Table) -> Wanted {
    let column =
        |column: &Column| Column { is_identity: table.config.key.contains_key(&column.name), ..column.clone() };
    Wanted { name: table.config.name.clone(), columns: table.columns.iter().map(column).collect() }
}

struct Follower<'a> {
    format: Format,
    wanted: Vec<Wanted>,
    store: Store,
    tables: Vec<Followed>,
    metrics: &'a Metrics,
}

/// A table, and how far this follower has come with it.
struct Followed {
    table: Table,
    epoch: u64,
    /// Whether the items of deleted rows leave the filter.
    deletes: bool,
    /// The place of the last entry that is applied: that in a stream, or the digest of a change.
    place: String,
    /// The change that standard input must repeat before there is a heartbeat. Until then, changes may be missing.
    awaited: Option<String>,
    /// The newest time of the database.
    newest_ms: u64,
    /// Whether the last time was older.
    is_behind: bool,
    /// The newest time, until the heartbeat has it.
    reached_ms: Option<u64>,
}

impl Followed {
    fn stored(&self) -> Position {
        let origin = format!("{} {}", self.table.id, self.table.definition);
        let last = Mark { end: Lsn(0), xid: 0, time: self.newest_ms };
        Position { origin, place: self.place.clone(), last }
    }
}

impl<'a> Follower<'a> {
    /// Connects, and continues where the last follower ended.
    fn start(
        config: &Config,
        format: Format,
        tables: &[Table],
        input: &mut Input,
        metrics: &'a Metrics,
    ) -> Result<Self> {
        let mut store = Store::connect(config)?;
        let followed = tables.iter().map(|table| resume(&mut store, table, input)).collect::<Result<Vec<_>>>()?;
        if let Input::Stream(stream) = input {
            stream.resume(followed.iter().map(|table| table.place.as_str()))?;
        }
        metrics.enter(State::Following);
        Ok(Self { format, wanted: tables.iter().map(wanted).collect(), store, tables: followed, metrics })
    }

    /// Applies what comes until a signal or the end of the input.
    fn run(&mut self, input: &mut Input, stopping: &AtomicBool) -> Result<()> {
        input.note_applied(self.place());
        loop {
            if stopping.load(Relaxed) {
                eprintln!("bloomgate: stopped");
                return Ok(());
            }
            let batch = input.receive(WAIT)?;
            let is_end = batch.is_end;
            match self.take(&batch) {
                Ok(()) => input.note_applied(self.place()),
                Err(error) => {
                    input.keep(batch);
                    return Err(error);
                }
            }
            if is_end {
                eprintln!("bloomgate: the input has ended");
                return Ok(());
            }
        }
    }

    /// Returns the place of the last entry that is applied, unless changes may be missing before it.
    fn place(&self) -> Option<String> {
        self.tables.first().filter(|table| table.awaited.is_none()).map(|table| table.place.clone())
    }

    /// Applies a batch up to the first entry that cannot be applied, and fails then.
    fn take(&mut self, batch: &Batch) -> Result<()> {
        let (mut events, mut place, mut fault) = (Vec::new(), None, None);
        if let Some(end) = &batch.gap {
            let altered = || Happened::Altered("entries of the stream were removed before they were read".to_owned());
            events.push(Event {
                changes: (0..self.tables.len()).map(|table| (table, altered())).collect(),
                ..Event::default()
            });
            place = Some(end.to_string());
        }
        for entry in &batch.entries {
            let event = match decode(self.format, &entry.json, &self.wanted) {
                Ok(event) => event,
                Err(error) => {
                    fault = Some(error.context(format!("cannot follow {}", shown(&entry.json))));
                    break;
                }
            };
            match &entry.place {
                Some(entry) => place = Some(entry.to_string()),
                None if has_digest(&event) => place = Some(digest(&event)),
                None => {}
            }
            events.push(event);
            if events.last().and_then(altered).is_some() {
                break;
            }
        }
        if let Some(first) = events.iter().find(|event| has_digest(event))
            && batch.entries.first().is_some_and(|entry| entry.place.is_none())
        {
            self.begin(&digest(first))?;
        }
        for index in 0..self.tables.len() {
            self.apply(index, &events, place.as_deref(), batch.is_last)?;
        }
        self.metrics.count_transactions(events.len(), events.iter().map(|event| event.changes.len()).sum());
        if let Some((index, reason)) = events.last().and_then(altered) {
            let table = &self.tables.get(index).context("a table")?.table;
            bail!(
                "{}: {reason}: the filter {} is deleted: fill it again with `bloomgate load`, then start the follower",
                table.config.name,
                table.keys.filter
            );
        }
        fault.map_or(Ok(()), Err)
    }

    /// Stores the first change of standard input before it is applied: after a kill, the input has to repeat it.
    fn begin(&mut self, first: &str) -> Result<()> {
        for followed in &mut self.tables {
            if followed.place == NOWHERE && followed.awaited.is_none() {
                first.clone_into(&mut followed.place);
                let keys = &followed.table.keys;
                self.store.transact(keys, followed.epoch, &[followed.stored().store(keys)])?;
            }
        }
        Ok(())
    }

    /// Applies events to one table, stores the place, and sets or deletes the heartbeat.
    fn apply(&mut self, index: usize, events: &[Event], place: Option<&str>, is_last: bool) -> Result<()> {
        let Self { store, tables, metrics, .. } = self;
        let followed = tables.get_mut(index).context("a table")?;
        if place.is_none() && followed.reached_ms.is_none() {
            return Ok(());
        }
        let keys = followed.table.keys.clone();
        let now_ms = store.time_ms(&keys)?;
        let mut steps = Vec::new();
        for event in events {
            if let Some(time_ms) = event.time_ms.map(|time_ms| time_ms.min(now_ms)) {
                followed.is_behind = time_ms < followed.newest_ms;
                followed.newest_ms = followed.newest_ms.max(time_ms);
                followed.reached_ms = (!followed.is_behind).then_some(time_ms);
            }
            followed.awaited.take_if(|awaited| digest(event) == *awaited);
            for (_, happened) in event.changes.iter().filter(|(table, _)| *table == index) {
                steps.push(match happened {
                    Happened::Row { old, new } => Step::Change(followed.table.change(old.as_deref(), new.as_deref())?),
                    Happened::Truncated => Step::Truncate,
                    Happened::Altered(_) => Step::Altered,
                });
            }
        }
        let work = Work::of(steps.iter().map(|step| (&UNNAMED, step)), followed.deletes);
        let is_altered = work.is_altered;
        let no_heartbeat = (followed.is_behind || is_altered).then(|| cmd("DEL").arg(&keys.feed).to_owned());
        let changes = work.changes(&keys.filter);
        let mut commands: Vec<_> = no_heartbeat.into_iter().collect();
        if work.truncated.is_some() {
            // As after a TRUNCATE in PostgreSQL's log: BF.CLEAR ends the leases, so that nobody fills an old row in after the scan.
            commands.push(cmd("BF.CLEAR").arg(&keys.filter).to_owned());
            commands.extend(changes.iter().cloned());
            followed.write(store, &commands)?;
            store.delete_values(&followed.table, |_| Ok(()))?;
            commands.clear();
        }
        commands.extend(changes);
        for commands in commands.chunks(COMMANDS) {
            followed.write(store, commands)?;
        }
        followed.delete_items(store, &work)?;

        if let Some(place) = place.filter(|_| followed.awaited.is_none()) {
            place.clone_into(&mut followed.place);
        }
        let mut end = vec![followed.stored().store(&keys)];
        if is_altered {
            end.push(cmd("DEL").arg(&keys.filter).to_owned());
        } else if is_last
            && followed.awaited.is_none()
            && let Some(time_ms) = followed.reached_ms.take()
        {
            let expires_ms = time_ms + u64::try_from(followed.table.config.max_lag.as_millis())?;
            if expires_ms > now_ms {
                end.push(cmd("SET").arg(&keys.feed).arg(time_ms).arg("PXAT").arg(expires_ms).to_owned());
                metrics.applied(time_ms);
            }
            end.push(cmd("EXISTS").arg(&keys.filter).to_owned());
        }
        let replies = store.transact(&keys, followed.epoch, &end)?;
        ensure!(is_altered || replies.last() != Some(&Value::Int(0)), missing(&keys));
        Ok(())
    }
}

/// Changes of JSON belong to no transaction that must be told from others.
static UNNAMED: Transaction = Transaction { xid: 0, time: 0, end: Lsn(0), steps: Vec::new() };

impl Followed {
    /// Executes commands that change the filter.
    fn write(&self, store: &mut Store, commands: &[Cmd]) -> Result<()> {
        let replies = store.transact(&self.table.keys, self.epoch, commands)?;
        ensure!(has_filter(&replies), missing(&self.table.keys));
        Ok(())
    }

    /// Removes the items of deleted rows from the filter. Once that has no room for more, they stay.
    fn delete_items(&mut self, store: &mut Store, work: &Work) -> Result<()> {
        for command in chunked("BF.MDEL", &self.table.keys.filter, work.gone()) {
            match store.transact(&self.table.keys, self.epoch, &[command]) {
                Err(error) if error.is::<Refused>() => {
                    self.deletes = false;
                    let filter = &self.table.keys.filter;
                    eprintln!("bloomgate: {error:#}: items of deleted rows stay in {filter} until it is filled again");
                    break;
                }
                result => drop(result?),
            }
        }
        Ok(())
    }
}

fn missing(keys: &Keys) -> String {
    format!("there is no filter {}: fill it with `bloomgate load`", keys.filter)
}

/// Reads how far a table is, and begins an epoch.
fn resume(store: &mut Store, table: &Table, input: &Input) -> Result<Followed> {
    let (config, keys) = (&table.config, &table.keys);
    let epoch = store.begin_epoch(keys)?;
    let (stored, exists) = store.state(keys)?;
    ensure!(exists, missing(keys));
    let deletes = store.can_delete(&keys.filter)?;
    if !deletes {
        eprintln!("bloomgate: items of deleted rows stay in {}: only HASH siphash can delete", keys.filter);
    }
    let (table, place, awaited) = (table.clone(), NOWHERE.to_owned(), None);
    let deletes = deletes && table.has_unique_items;
    let mut followed =
        Followed { table, epoch, deletes, place, awaited, newest_ms: 0, is_behind: false, reached_ms: None };
    let is_known = stored.is_some();
    let Some(stored) = stored.filter(|stored| stored.place != NOWHERE) else {
        // A follower of standard input that was killed, or whose server has lost data, may have missed lines.
        let is_sure = matches!(input, Input::Stream(_)) || is_known == input.applied().is_some();
        ensure!(
            is_sure,
            "it is unknown which changes {} has: fill it again with `bloomgate load`, and delete {}",
            keys.filter,
            keys.position
        );
        // Cached values may be older than the beginning of the stream.
        store.delete_values(&followed.table, |_| Ok(()))?;
        store.transact(keys, epoch, &[followed.stored().store(keys)])?;
        eprintln!("bloomgate: {} begins with the first change that comes", config.name);
        return Ok(followed);
    };
    ensure!(
        stored.origin == followed.stored().origin,
        "{} has the position of another source or of other templates: fill {} again with `bloomgate load`, and delete {}",
        config.name,
        keys.filter,
        keys.position
    );
    (followed.place, followed.newest_ms) = (stored.place, stored.last.time);
    let is_repeated = matches!(input, Input::Lines(_)) && input.applied() != Some(&followed.place);
    followed.awaited = is_repeated.then(|| followed.place.clone());
    let note =
        if is_repeated { "; no heartbeat before the input repeats the change that was applied last" } else { "" };
    eprintln!("bloomgate: {} continues at {}{note}", config.name, followed.place);
    Ok(followed)
}

/// Whether [`digest`] tells an event from most others.
const fn has_digest(event: &Event) -> bool {
    event.time_ms.is_some() || !event.changes.is_empty()
}

/// Returns what tells an event from others, whenever the tool writes it.
fn digest(event: &Event) -> String {
    format!("{:08x}", crc32fast::hash(format!("{event:?}").as_bytes()))
}

/// Returns the first table that an event has altered, and why.
fn altered(event: &Event) -> Option<(usize, &str)> {
    event.changes.iter().find_map(|(table, happened)| match happened {
        Happened::Altered(reason) => Some((*table, reason.as_str())),
        _ => None,
    })
}
