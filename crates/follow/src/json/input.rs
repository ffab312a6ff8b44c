//! Where the JSON objects come from: the lines of standard input, or the entries of a Redis stream.

use std::collections::HashMap;
use std::io::BufRead;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;
use std::{fmt, io, mem, thread};

use anyhow::{Context, Result, bail};
use redis::{Pipeline, Value, from_redis_value};

use super::NOWHERE;
use crate::server::{Options, Server, shown};

/// The most objects that are read at once.
const MOST: usize = 1000;

/// An object, and its place in the stream.
pub struct Entry {
    pub json: Vec<u8>,
    /// Lines have no place.
    pub place: Option<Place>,
}

/// A place in a stream: the id of an entry, and how many entries had been added until then.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    id: (u64, u64),
    added: u64,
}

/// What has been read.
pub struct Batch {
    pub entries: Vec<Entry>,
    /// Whether there was nothing else at that time.
    pub is_last: bool,
    /// Whether nothing else will come.
    pub is_end: bool,
    /// The end of the stream, if entries were removed before they were read.
    pub gap: Option<Place>,
}

pub enum Input {
    Lines(Lines),
    Stream(Box<Stream>),
}

impl Input {
    /// Opens standard input, or the stream of this key on the server of the URL.
    pub fn open(stream: Option<&str>, url: &str, is_cluster: bool) -> Result<Self> {
        let Some(key) = stream else { return Ok(Self::Lines(Lines::default())) };
        let server = Server::connect(&Options::of_url(url).with_cluster(is_cluster))?;
        Ok(Self::Stream(Box::new(Stream { server, key: key.to_owned(), after: None })))
    }

    /// Reads what has come, or waits for it.
    pub fn receive(&mut self, timeout: Duration) -> Result<Batch> {
        match self {
            Self::Lines(lines) => lines.receive(timeout),
            Self::Stream(stream) => stream.receive(timeout),
        }
    }

    /// Keeps what could not be applied. A stream has it still.
    pub fn keep(&mut self, batch: Batch) {
        if let Self::Lines(lines) = self {
            lines.kept = batch.entries;
        }
    }

    /// Notes the last change of standard input that has been applied.
    pub fn note_applied(&mut self, place: Option<String>) {
        if let Self::Lines(lines) = self {
            lines.applied = place;
        }
    }

    /// Returns the last change of standard input that this process has applied.
    pub const fn applied(&self) -> Option<&String> {
        match self {
            Self::Lines(lines) => lines.applied.as_ref(),
            Self::Stream(_) => None,
        }
    }
}

/// Standard input. A thread reads it, so that the follower can do something else meanwhile.
#[derive(Default)]
pub struct Lines {
    /// None until the first look: nothing may be read before a position is stored.
    input: Option<Receiver<io::Result<Vec<u8>>>>,
    kept: Vec<Entry>,
    applied: Option<String>,
}

impl Lines {
    fn open() -> Receiver<io::Result<Vec<u8>>> {
        let (lines, input) = sync_channel(MOST);
        thread::spawn(move || io::stdin().lock().split(b'\n').try_for_each(|line| lines.send(line)));
        input
    }

    fn receive(&mut self, timeout: Duration) -> Result<Batch> {
        let input = self.input.get_or_insert_with(Self::open);
        let mut batch = Batch { entries: mem::take(&mut self.kept), is_last: true, is_end: false, gap: None };
        while batch.entries.len() < MOST {
            let wait = if batch.entries.is_empty() { timeout } else { Duration::ZERO };
            match input.recv_timeout(wait) {
                Ok(line) => {
                    let json = line.context("cannot read standard input")?.trim_ascii().to_vec();
                    if !json.is_empty() {
                        batch.entries.push(Entry { json, place: None });
                    }
                }
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => {
                    batch.is_end = true;
                    break;
                }
            }
        }
        Ok(batch)
    }
}

/// A Redis stream. It is read with XREAD from a place that the follower stores after the changes, and not with a consumer group:
/// two followers of a group take entries from each other, and what one of them has not acknowledged comes again after later entries.
pub struct Stream {
    server: Server,
    key: String,
    /// What was read last; at first the beginning of the stream.
    after: Option<Place>,
}

impl Stream {
    /// Continues after the earliest of the stored places of all tables, on a new connection.
    pub fn resume<'p>(&mut self, stored: impl Iterator<Item = &'p str>) -> Result<()> {
        self.server.reconnect(Duration::ZERO)?;
        let places = stored.map(|place| if place == NOWHERE { Ok(None) } else { Place::parse(place).map(Some) });
        // None is before all others.
        self.after = places.collect::<Result<Vec<_>>>()?.into_iter().min().flatten();
        Ok(())
    }

    fn receive(&mut self, timeout: Duration) -> Result<Batch> {
        let after = self.after.as_ref().map_or("0".to_owned(), Place::id);
        let mut commands = Pipeline::new();
        commands.cmd("XINFO").arg("STREAM").arg(&self.key);
        commands.cmd("XREAD").arg("COUNT").arg(MOST).arg("BLOCK").arg(timeout.as_millis().max(1).to_string());
        commands.arg("STREAMS").arg(&self.key).arg(after);
        let mut replies = self.server.replies(&mut commands, &self.key)?.into_iter();
        let (Some(info), Some(read)) = (replies.next(), replies.next()) else { bail!("the server sent no reply") };
        let (end, length) = self.end(info)?;
        let begin = self.after.clone().unwrap_or(Place { id: (0, 0), added: end.added.saturating_sub(length) });
        let read: Option<Streams> = from_redis_value(self.server.checked(read, &self.key)?)?;
        let (mut entries, mut last) = (Vec::new(), begin.clone());
        for (id, fields) in read.into_iter().flatten().flat_map(|(_, entries)| entries) {
            last = Place { id: parse_id(&id)?, added: last.added + 1 };
            let json = json_of(fields).with_context(|| format!("the entry {id} of the stream {}", self.key))?;
            entries.push(Entry { json, place: Some(last.clone()) });
        }
        let is_last = entries.len() < MOST;
        // If an entry was trimmed before it was read, fewer have come than were added. Or it is another stream.
        let has_gap = end.added < begin.added || (is_last && last.added < end.added);
        if has_gap {
            (entries, last) = (Vec::new(), end);
        }
        self.after = Some(last.clone());
        Ok(Batch { entries, is_last, is_end: false, gap: has_gap.then_some(last) })
    }

    /// Returns the end of the stream, and its length.
    fn end(&self, info: Value) -> Result<(Place, u64)> {
        if let Value::ServerError(error) = &info
            && error.details() == Some("no such key")
        {
            return Ok((Place { id: (0, 0), added: 0 }, 0));
        }
        let info: HashMap<String, Value> = from_redis_value(self.server.checked(info, &self.key)?)?;
        let field = |name: &str| info.get(name).cloned().with_context(|| format!("XINFO STREAM does not tell {name}"));
        let id: String = from_redis_value(field("last-generated-id")?)?;
        let place = Place { id: parse_id(&id)?, added: from_redis_value(field("entries-added")?)? };
        Ok((place, from_redis_value(field("length")?)?))
    }
}

/// XREAD's reply: streams, with the ids and the fields of their entries.
type Streams = Vec<(String, Vec<(String, Vec<Vec<u8>>)>)>;

/// Returns the JSON of an entry: the value of its only field, or of its field `value`, as Debezium's extended format has it.
fn json_of(fields: Vec<Vec<u8>>) -> Result<Vec<u8>> {
    let (names, values): (Vec<_>, Vec<_>) =
        fields.chunks(2).filter_map(|pair| Some((pair.first()?, pair.get(1)?))).unzip();
    let at = if names.len() == 1 { Some(0) } else { names.iter().position(|name| *name == b"value") };
    let names = || names.iter().map(shown).collect::<Vec<_>>().join(", ");
    let value =
        at.and_then(|at| values.get(at)).with_context(|| format!("it has no field `value`, but {}", names()))?;
    Ok((*value).clone())
}

fn parse_id(id: &str) -> Result<(u64, u64)> {
    let parts = id.split_once('-').and_then(|(ms, number)| Some((ms.parse().ok()?, number.parse().ok()?)));
    parts.with_context(|| format!("`{id}` is not the id of an entry of a stream"))
}

impl Place {
    /// Parses a stored place.
    pub fn parse(text: &str) -> Result<Self> {
        let (id, added) = text.split_once('/').with_context(|| format!("`{text}` is not a place in a stream"))?;
        Ok(Self { id: parse_id(id)?, added: added.parse()? })
    }

    fn id(&self) -> String {
        format!("{}-{}", self.id.0, self.id.1)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "{}/{}", self.id(), self.added)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_ordered_and_can_be_stored() {
        let place = |text: &str| Place::parse(text).unwrap();
        assert_eq!(place("1764230000000-7/42").to_string(), "1764230000000-7/42");
        assert!(place("9-1/1") < place("10-0/2") && place("10-2/3") < place("10-10/4"));
        for text in ["", "-", "1-1", "1/1", "1-x/1", "a5b6c7d8"] {
            assert!(Place::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_entry_has_its_json_in_the_only_field_or_in_value() {
        let json = |words: &[&str]| json_of(words.iter().map(|word| word.as_bytes().to_vec()).collect());
        assert_eq!(json(&["{\"id\":1}", "{}"]).unwrap(), b"{}");
        assert_eq!(json(&["key", "k", "value", "{}", "__OP", "c"]).unwrap(), b"{}");
        assert!(json(&["key", "k", "data", "{}"]).unwrap_err().to_string().ends_with("`value`, but key, data"));
        assert!(json(&[]).is_err());
    }
}
