//! The JSON changes that Debezium, Canal or Maxwell write, as a source.
//!
//! Such a stream contains neither the rows of a table nor the end of the database's log. `bloomgate load` fills the filter, from rows that
//! are newer than the beginning of the stream. Applying a change twice is harmless, because the stream has the order of the log. A time of
//! the database in an event determines the progress of the stream: everything that was committed before it has been applied. The heartbeat
//! expires `max-lag` after the newest time, and ends as soon as a tool repeats itself, because a repeated delete may remove the item of a
//! row that was inserted again since.

mod decode;
mod input;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Error, Result};

use self::decode::{Event, Happened, Wanted, decode, table_name};
use self::input::{Batch, Entry, Input, Lines, StreamPlace};
use crate::config::{self, Config, Format, KeyType, Log, Mode, Table as TableConfig};
use crate::engine::events::{Sink, Step, Transaction};
use crate::engine::position::{Place, Position};
use crate::engine::{LogEnd, NoRows, Source, Time};
use crate::names::shown;
use crate::server::ConnectionLost;
use crate::table::{Change, Facts, Table};
use crate::template::{Column, Texts};

/// The text of the place before the first entry.
const NOWHERE: &str = "-";
/// The pause in the stream after which a transaction counts as ended. Its entries follow each other in the log without a pause.
const PAUSE: Duration = Duration::from_secs(1);
/// The maximum number of tables reported as not followed.
const OTHERS: usize = 20;

/// The source of a tool's changes.
pub struct Json {
    format: Format,
    wanted: Vec<Wanted>,
    input: Input,
    /// The last entry that has arrived. Entries have the numbers of their stream.
    last: Place,
    confirmed: Place,
    /// The texts of places from the last confirmed one on, and the text of the last entry.
    texts: VecDeque<(Place, String)>,
    text: Option<String>,
    /// The changes that standard input must repeat before there is a heartbeat. Until then, changes may be missing.
    awaited: BTreeSet<String>,
    /// The newest time of the database.
    newest_ms: u64,
    /// Whether the last time was older than the newest.
    is_behind: bool,
    /// The newest time, until the heartbeat includes it.
    reached_ms: Option<u64>,
    /// The transaction of the last entry, the time of that entry, and the items that the transaction has deleted so far, by their tables.
    /// They are removed from the filter after its last entry, because until then it may insert them again.
    transaction: String,
    arrived_at: Instant,
    held: BTreeSet<(usize, Vec<u8>)>,
    /// The tables without a change so far, and the names of tables that are not followed.
    unseen: BTreeSet<usize>,
    others: BTreeSet<String>,
    /// The entry that cannot be followed.
    fault: Option<Error>,
    has_ended: bool,
}

impl Source for Json {
    /// Standard input.
    type Memory = Rc<RefCell<Lines>>;
    type Copier = NoRows;
    const HAS_ROWS: bool = false;

    fn connect(config: &Config, lines: &Rc<RefCell<Lines>>) -> Result<Self> {
        let Log::Json(source) = config.log() else { anyhow::bail!("there is no [source]") };
        let url = source.server.as_deref().unwrap_or(&config.server);
        let input = match &source.stream {
            Some(key) => Input::stream(key, url, config.cluster && source.server.is_none())?,
            None => Input::Lines(Rc::clone(lines)),
        };
        Ok(Self {
            format: source.format,
            wanted: Vec::new(),
            input,
            last: Place(0),
            confirmed: Place(0),
            texts: VecDeque::new(),
            text: None,
            awaited: BTreeSet::new(),
            newest_ms: 0,
            is_behind: false,
            reached_ms: None,
            transaction: String::new(),
            arrived_at: Instant::now(),
            held: BTreeSet::new(),
            unseen: (0..config.tables.len()).collect(),
            others: BTreeSet::new(),
            fault: None,
            has_ended: false,
        })
    }

    fn describe(&mut self, tables: &[config::Table]) -> Result<Vec<Table>> {
        let described = tables.iter().map(describe).collect::<Result<Vec<_>>>()?;
        self.wanted = described.iter().map(wanted).collect();
        Ok(described)
    }

    fn is_final(error: &Error) -> bool {
        !error.is::<ConnectionLost>()
    }

    fn print_status(_: &Config) -> Result<bool> {
        // A follower of JSON changes is visible only by its heartbeat.
        Ok(true)
    }

    fn system(&self) -> &'static str {
        "json"
    }

    fn text_of(&self, place: Place) -> String {
        let text = self.texts.iter().rev().find(|(at, _)| *at <= place);
        text.map_or_else(|| NOWHERE.to_owned(), |(_, text)| text.clone())
    }

    fn confirmed(&self) -> Place {
        self.confirmed
    }

    fn confirm(&mut self, place: Place) -> Result<()> {
        self.confirmed = self.confirmed.max(place);
        while self.texts.get(1).is_some_and(|(at, _)| *at <= self.confirmed) {
            self.texts.pop_front();
        }
        let applied = self.awaited.is_empty().then(|| self.text_of(self.confirmed));
        if let Input::Lines(lines) = &self.input {
            lines.borrow_mut().confirm(self.confirmed, applied);
        }
        Ok(())
    }

    fn locate(
        &mut self,
        stored: &[Option<Position>],
        _: &mut Sink,
        _: &mut dyn FnMut() -> Result<bool>,
    ) -> Result<Vec<Result<Place, &'static str>>> {
        let texts = || stored.iter().flatten().map(|stored| stored.place.as_str()).filter(|text| *text != NOWHERE);
        self.newest_ms = stored.iter().flatten().map(|stored| stored.last.time).max().unwrap_or_default();
        match &mut self.input {
            Input::Lines(lines) => {
                let lines = lines.borrow();
                (self.last, self.confirmed) = (lines.confirmed, lines.confirmed);
                self.awaited =
                    texts().filter(|text| lines.applied.as_deref() != Some(text)).map(str::to_owned).collect();
                self.texts = texts().map(|text| (lines.confirmed, text.to_owned())).take(1).collect();
                let is_sure = |stored: &Option<Position>| match stored {
                    // A follower that was killed, or whose server has lost data, may have missed lines.
                    Some(stored) => stored.place != NOWHERE || lines.applied.is_some(),
                    None => lines.applied.is_none(),
                };
                let place = |stored| if is_sure(stored) { Ok(lines.confirmed) } else { Err(UNKNOWN) };
                Ok(stored.iter().map(place).collect())
            }
            Input::Stream(stream) => {
                let mut places = stored
                    .iter()
                    .map(|stored| match stored {
                        Some(stored) if stored.place != NOWHERE => StreamPlace::parse(&stored.place).map(Some),
                        _ => Ok(None),
                    })
                    .collect::<Result<Vec<_>>>()?;
                let numbers =
                    places.iter().map(|place| Ok(Place(place.as_ref().map_or(0, |place| place.added)))).collect();
                places.sort();
                places.dedup();
                self.texts = places.iter().flatten().map(|place| (Place(place.added), place.to_string())).collect();
                // `None` sorts before all others.
                let first = places.into_iter().next().flatten();
                self.last = Place(first.as_ref().map_or(0, |place| place.added));
                self.confirmed = self.last;
                stream.resume(first)?;
                Ok(numbers)
            }
        }
    }

    fn next(&mut self, sink: &mut Sink, timeout: Duration) -> Result<bool> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        let Batch { entries, is_end, gap } = self.input.receive(self.last, timeout)?;
        self.has_ended = is_end;
        if let Some(end) = gap {
            eprintln!(
                "bloomgate: entries of the stream were removed before they were read, or its server was restarted or failed over and may have \
                 lost some"
            );
            self.last = Place(end.added.max(self.last.0 + 1));
            self.texts.push_back((self.last, end.to_string()));
            let steps = (0..self.wanted.len()).map(|table| (table, Step::Altered)).collect();
            sink.arrived.add(Transaction { id: 0, time: self.newest_ms, end: self.last, steps });
            return Ok(true);
        }
        let has_some = !entries.is_empty();
        if !has_some && !self.held.is_empty() && (is_end || self.arrived_at.elapsed() >= PAUSE) {
            let steps = self.release();
            self.last.0 += 1;
            self.texts.extend(self.text.clone().filter(|_| self.awaited.is_empty()).map(|text| (self.last, text)));
            sink.arrived.add(Transaction { id: 0, time: self.newest_ms, end: self.last, steps });
            return Ok(true);
        }
        for entry in entries {
            if let Err(error) = self.take(&entry, sink) {
                self.fault = Some(error.context(format!("cannot follow {}", shown(&entry.json))));
                break;
            }
        }
        Ok(has_some)
    }

    fn has_event(&self) -> bool {
        false
    }

    fn has_ended(&self) -> bool {
        self.has_ended && self.fault.is_none() && self.held.is_empty()
    }

    fn doubt(&self) -> Option<String> {
        if !self.awaited.is_empty() {
            return Some("the input has not repeated the change that was applied last".to_owned());
        }
        self.is_behind.then(|| "the input has times from before the last one: it repeats changes".to_owned())
    }

    fn count_visible(&mut self, waiting: &mut dyn Iterator<Item = (Place, u64)>) -> Result<usize> {
        Ok(waiting.count())
    }

    fn copier(&self) -> Result<NoRows> {
        Ok(NoRows)
    }

    fn definitions(&mut self, tables: &mut dyn Iterator<Item = &Table>) -> Result<Vec<Option<String>>> {
        Ok(tables.map(|table| Some(table.definition.clone())).collect())
    }

    fn read_log_end(&mut self, _: Mode) -> Result<LogEnd> {
        let time = self.reached_ms.take().map_or(Time::Unknown, Time::At);
        Ok(LogEnd { end: self.last, time, objection: self.doubt() })
    }
}

const UNKNOWN: &str = "it is unknown which changes it has";

impl Json {
    /// Processes an entry. Its changes are a separate transaction.
    fn take(&mut self, entry: &Entry, sink: &mut Sink) -> Result<()> {
        let event = decode(self.format, &entry.json, &self.wanted)?;
        let is_next = event.transaction != self.transaction;
        let mut steps = if is_next { self.release() } else { Vec::new() };
        (self.transaction, self.arrived_at) = (event.transaction.clone(), Instant::now());
        for (index, happened) in &event.changes {
            self.unseen.remove(index);
            let step = match happened {
                Happened::Row { old, new } => sink.step(*index, old.as_deref(), new.as_deref())?,
                Happened::Truncated => Step::Truncate,
                Happened::Altered(reason) => {
                    eprintln!("bloomgate: {}: {reason}", sink.table(*index)?.config.name);
                    Step::Altered
                }
            };
            steps.push((*index, self.hold(*index, step)));
        }
        if let Some(time_ms) = event.time_ms {
            let now_ms = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?;
            // The clock of the database may be ahead.
            let time_ms = time_ms.min(now_ms);
            self.is_behind = time_ms < self.newest_ms;
            self.newest_ms = self.newest_ms.max(time_ms);
            self.reached_ms = (!self.is_behind).then_some(time_ms);
            if event.changes.is_empty() {
                self.note_other(&entry.json);
            }
        }
        self.last = Place(entry.place.as_ref().map_or(0, |place| place.added).max(self.last.0 + 1));
        let text = match &entry.place {
            Some(place) => Some(place.to_string()),
            None => has_digest(&event).then(|| digest(&event)),
        };
        let before = self.text.clone();
        if let Some(text) = text {
            self.awaited.remove(&text);
            self.text = Some(text);
        }
        // A follower that resumed in the middle of a transaction would not know the held-back items.
        let text = if self.held.is_empty() { self.text.clone() } else { before.filter(|_| is_next) };
        self.texts.extend(text.filter(|_| self.awaited.is_empty()).map(|text| (self.last, text)));
        sink.arrived.add(Transaction { id: 0, time: self.newest_ms, end: self.last, steps });
        Ok(())
    }

    /// Holds back the item that a step deletes.
    fn hold(&mut self, table: usize, step: Step) -> Step {
        match step {
            Step::Change(mut change) => {
                if let Some(item) = &change.put {
                    self.held.remove(&(table, item.clone()));
                }
                self.held.extend(change.gone.take().map(|item| (table, item)));
                Step::Change(change)
            }
            other => {
                self.held.retain(|(of, _)| *of != table);
                other
            }
        }
    }

    /// Returns steps that delete the held-back items.
    fn release(&mut self) -> Vec<(usize, Step)> {
        let held = std::mem::take(&mut self.held).into_iter();
        held.map(|(table, item)| (table, Step::Change(Change { gone: Some(item), ..Change::default() }))).collect()
    }

    /// Reports a table that is not followed while a followed one has no change, because its name may be misspelt.
    fn note_other(&mut self, json: &[u8]) {
        if self.unseen.is_empty() || self.others.len() >= OTHERS {
            return;
        }
        let Some(name) = table_name(json) else { return };
        if self.others.insert(name.clone()) {
            let unseen = self.unseen.iter().filter_map(|index| self.wanted.get(*index));
            let unseen: Vec<_> = unseen.map(|table| table.name.as_str()).collect();
            eprintln!("bloomgate: {name} is not followed, and no change of {} has arrived yet", unseen.join(", "));
        }
    }
}

/// Describes a table by its configuration, because the stream has no description.
fn describe(config: &TableConfig) -> Result<Table> {
    let name = config.name.split_once('.').with_context(|| format!("`{}` is not DATABASE.TABLE", config.name))?;
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
    Table::new(config, (String::new(), name, String::new(), definition), (columns, &facts), true)
}

/// Returns the decoder's description of a table.
fn wanted(table: &Table) -> Wanted {
    let column =
        |column: &Column| Column { is_identity: table.config.key.contains_key(&column.name), ..column.clone() };
    Wanted { name: table.config.name.clone(), columns: table.columns.iter().map(column).collect() }
}

/// Whether [`digest`] distinguishes an event from most others.
const fn has_digest(event: &Event) -> bool {
    event.time_ms.is_some() || !event.changes.is_empty()
}

/// Returns a text that identifies an event, and is equal whenever the tool writes the event again.
fn digest(event: &Event) -> String {
    let Event { changes, time_ms, place, .. } = event;
    let text = format!("Event {{ changes: {changes:?}, time_ms: {time_ms:?}, place: {place:?} }}");
    format!("{:08x}", crc32fast::hash(text.as_bytes()))
}
