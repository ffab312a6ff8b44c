//! The input of JSON objects: the lines of standard input, or the entries of a Redis stream.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io::BufRead;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;
use std::{fmt, io, thread};

use anyhow::{Context, Result, bail};
use redis::{Pipeline, Value, cmd, from_redis_value};

use crate::engine::position::Place;
use crate::server::{Options, Server, shown};

/// The maximum number of objects read at once.
const MOST: usize = 1000;

/// An object, and its place in the stream.
pub struct Entry {
    pub json: Vec<u8>,
    /// Lines have no place.
    pub place: Option<StreamPlace>,
}

/// The entries that have been read.
pub struct Batch {
    pub entries: Vec<Entry>,
    /// Whether this is the end of the input.
    pub is_end: bool,
    /// The end of the stream, if entries were removed before they were read.
    pub gap: Option<StreamPlace>,
}

pub enum Input {
    Lines(Rc<RefCell<Lines>>),
    Stream(Box<Stream>),
}

impl Input {
    /// Opens the stream of this key on the server of the URL.
    pub fn stream(key: &str, url: &str, is_cluster: bool) -> Result<Self> {
        let server = Server::connect(&Options::of_url(url).with_cluster(is_cluster))?;
        Ok(Self::Stream(Box::new(Stream { server, key: key.to_owned(), replid: String::new(), after: None })))
    }

    /// Reads the entries after the last one, or waits for them.
    pub fn receive(&mut self, last: Place, timeout: Duration) -> Result<Batch> {
        match self {
            Self::Lines(lines) => lines.borrow_mut().receive(last, timeout),
            Self::Stream(stream) => stream.receive(timeout),
        }
    }
}

/// Standard input. A separate thread reads it, so that the follower is never blocked on input.
#[derive(Default)]
pub struct Lines {
    /// `None` until the first call of `receive`, because nothing may be read before a position is stored.
    input: Option<Receiver<io::Result<Vec<u8>>>>,
    /// The lines that are not confirmed. A follower that reconnects to its server begins with them.
    kept: VecDeque<Vec<u8>>,
    /// The number of the last confirmed line.
    pub confirmed: Place,
    /// The last change that this process has applied.
    pub applied: Option<String>,
}

impl Lines {
    fn open() -> Receiver<io::Result<Vec<u8>>> {
        let (lines, input) = sync_channel(MOST);
        thread::spawn(move || io::stdin().lock().split(b'\n').try_for_each(|line| lines.send(line)));
        input
    }

    /// Removes the lines up to a number. `applied`: the last change among them, if no change can be missing before it.
    pub fn confirm(&mut self, last: Place, applied: Option<String>) {
        let count = usize::try_from(last.0 - self.confirmed.0).unwrap_or(usize::MAX).min(self.kept.len());
        self.kept.drain(..count);
        (self.confirmed, self.applied) = (last, applied);
    }

    fn receive(&mut self, last: Place, timeout: Duration) -> Result<Batch> {
        let input = self.input.get_or_insert_with(Self::open);
        let entry = |json: &Vec<u8>| Entry { json: json.clone(), place: None };
        let known = usize::try_from(last.0 - self.confirmed.0)?;
        let mut entries: Vec<_> = self.kept.iter().skip(known).map(entry).collect();
        // The first change is applied alone, because a follower that is killed before its position is stored cannot determine what it has
        // applied.
        let most = if last == Place(0) { 1 } else { MOST };
        let mut is_end = false;
        while entries.len() < most {
            let wait = if entries.is_empty() { timeout } else { Duration::ZERO };
            match input.recv_timeout(wait) {
                Ok(line) => {
                    let json = line.context("cannot read standard input")?.trim_ascii().to_vec();
                    if !json.is_empty() {
                        entries.push(entry(&json));
                        self.kept.push_back(json);
                    }
                }
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => {
                    is_end = true;
                    break;
                }
            }
        }
        Ok(Batch { entries, is_end, gap: None })
    }
}

/// A Redis stream. It is read with XREAD from a place that the follower stores after the changes, and not with a consumer group:
/// followers of a group would split the entries among themselves, and unacknowledged entries would be redelivered after later ones.
pub struct Stream {
    server: Server,
    key: String,
    /// The replication id of the server. It changes after a failover, or if the server is restarted without its data.
    replid: String,
    /// The last entry that was read; initially the beginning of the stream.
    after: Option<StreamPlace>,
}

/// A place in a stream: the id of an entry, how many entries had been added until then, and the replication id of the server that had it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamPlace {
    id: (u64, u64),
    pub added: u64,
    replid: String,
}

impl Stream {
    /// Continues after a place, on a new connection.
    pub fn resume(&mut self, after: Option<StreamPlace>) -> Result<()> {
        self.server.reconnect(Duration::ZERO)?;
        let info: String = from_redis_value(self.server.ask(cmd("INFO").arg("replication"), &self.key)?)?;
        let replid = info.lines().find_map(|line| line.strip_prefix("master_replid:"));
        replid.context("INFO lacks master_replid")?.trim().clone_into(&mut self.replid);
        self.after = after;
        Ok(())
    }

    /// Whether the server may have lost entries that were not read: it was restarted, or another one became the primary.
    fn has_lost(&self) -> bool {
        self.after.as_ref().is_some_and(|after| !after.replid.is_empty() && after.replid != self.replid)
    }

    fn receive(&mut self, timeout: Duration) -> Result<Batch> {
        let after = self.after.as_ref().map_or("0".to_owned(), StreamPlace::id);
        let mut commands = Pipeline::new();
        commands.cmd("XINFO").arg("STREAM").arg(&self.key);
        commands.cmd("XREAD").arg("COUNT").arg(MOST).arg("BLOCK").arg(timeout.as_millis().max(1).to_string());
        commands.arg("STREAMS").arg(&self.key).arg(after);
        let mut replies = self.server.replies(&commands, &self.key)?.into_iter();
        let (Some(info), Some(read)) = (replies.next(), replies.next()) else { bail!("the server sent no reply") };
        let (end, length) = self.end(info)?;
        let begin = self.after.clone().unwrap_or_else(|| self.place((0, 0), end.added.saturating_sub(length)));
        let read: Option<Streams> = from_redis_value(self.server.checked(read, &self.key)?)?;
        let (mut entries, mut last) = (Vec::new(), begin.clone());
        for (id, fields) in read.into_iter().flatten().flat_map(|(_, entries)| entries) {
            last = self.place(parse_id(&id)?, last.added + 1);
            let json = json_of(fields).with_context(|| format!("the entry {id} of the stream {}", self.key))?;
            entries.push(Entry { json, place: Some(last.clone()) });
        }
        let is_last = entries.len() < MOST;
        // If an entry was trimmed before it was read, fewer entries were read than added. Or it is another stream.
        let has_gap = self.has_lost() || end.added < begin.added || (is_last && last.added < end.added);
        if has_gap {
            (entries, last) = (Vec::new(), end);
        }
        self.after = Some(last.clone());
        Ok(Batch { entries, is_end: false, gap: has_gap.then_some(last) })
    }

    fn place(&self, id: (u64, u64), added: u64) -> StreamPlace {
        StreamPlace { id, added, replid: self.replid.clone() }
    }

    /// Returns the end of the stream, and its length.
    fn end(&self, info: Value) -> Result<(StreamPlace, u64)> {
        if let Value::ServerError(error) = &info
            && error.details() == Some("no such key")
        {
            return Ok((self.place((0, 0), 0), 0));
        }
        let info: HashMap<String, Value> = from_redis_value(self.server.checked(info, &self.key)?)?;
        let field = |name: &str| info.get(name).cloned().with_context(|| format!("XINFO STREAM lacks {name}"));
        let id: String = from_redis_value(field("last-generated-id")?)?;
        let place = self.place(parse_id(&id)?, from_redis_value(field("entries-added")?)?);
        Ok((place, from_redis_value(field("length")?)?))
    }
}

/// XREAD's reply: streams, with the ids and the fields of their entries.
type Streams = Vec<(String, Vec<(String, Vec<Vec<u8>>)>)>;

/// Returns the JSON of an entry: the value of its only field, or of its field `value` in Debezium's extended format.
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

impl StreamPlace {
    /// Parses a stored place.
    pub fn parse(text: &str) -> Result<Self> {
        // Version 0.3.0 did not store the replication id.
        let (replid, rest) = text.split_once('@').unwrap_or(("", text));
        let (id, added) = rest.split_once('/').with_context(|| format!("`{text}` is not a place in a stream"))?;
        Ok(Self { id: parse_id(id)?, added: added.parse()?, replid: replid.to_owned() })
    }

    fn id(&self) -> String {
        format!("{}-{}", self.id.0, self.id.1)
    }
}

impl fmt::Display for StreamPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "{}@{}/{}", self.replid, self.id(), self.added)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_ordered_and_can_be_stored() {
        let place = |text: &str| StreamPlace::parse(text).unwrap();
        assert_eq!(place("1764230000000-7/42").to_string(), "@1764230000000-7/42");
        assert_eq!(place("75cd@1764230000000-7/42").to_string(), "75cd@1764230000000-7/42");
        assert!(place("9-1/1") < place("10-0/2") && place("10-2/3") < place("10-10/4"));
        for text in ["", "-", "1-1", "1/1", "1-x/1", "a5b6c7d8"] {
            assert!(StreamPlace::parse(text).is_err(), "{text}");
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
