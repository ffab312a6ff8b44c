//! Reads and checks a whole file, and lists its contents.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};

use anyhow::{Context, Result, bail, ensure};
use indicatif::{BinaryBytes, HumanCount};
use serde_json::{Value, json};

use crate::archive::{Contents, Event, Head, ReadMode, Reader};
use crate::names::counted;
use crate::names::escaped;
use crate::server::shown;
use crate::target::{parse_shards, shard_keys, sharded_name};

/// A complete filter in the file.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The record at its beginning.
    pub head: Head,
    /// Its BF.INFO at the end of the dump.
    pub after: Contents,
    /// Its number in the file, counting void filters.
    pub number: u64,
    /// The size of its data.
    pub bytes: u64,
    /// The number of shards, if this is the `NAME:shards` key of a sharded filter.
    pub shards: Option<u32>,
}

/// The contents of a file.
#[derive(Debug)]
pub struct Catalogue {
    /// The filters, in the order of the file.
    pub entries: Vec<Entry>,
    /// The time of creation, in milliseconds since 1970.
    pub made_at_ms: u64,
    pub made_by: String,
    /// Its length, in bytes.
    pub file_bytes: u64,
}

impl Catalogue {
    /// Reads a whole file and checks every byte of it.
    pub fn of(source: impl Read) -> Result<Self> {
        let mut reader = Reader::begin(source)?;
        let mut entries = Vec::new();
        // The keys of each database.
        let mut keys = BTreeMap::new();
        let mut open: Option<(Head, u64, Option<u32>)> = None;
        loop {
            match reader.next()? {
                Event::Filter(head) => open = Some((head, 0, None)),
                Event::Part(_, data) => {
                    if let Some((head, bytes, shards)) = &mut open {
                        *bytes += data.len() as u64;
                        *shards = if head.mode == ReadMode::Shards { parse_shards(&data) } else { None };
                    }
                }
                Event::FilterVoid => open = None,
                Event::FilterEnd(after) => {
                    let Some((head, bytes, shards)) = open.take() else { continue };
                    let keys: &mut BTreeSet<_> = keys.entry(head.database).or_default();
                    if head.mode == ReadMode::Shards {
                        ensure_whole(&head.key, shards, keys)?;
                    }
                    ensure!(keys.insert(head.key.clone()), "damaged: the key `{}` occurs twice", shown(&head.key));
                    entries.push(Entry { head, after, number: reader.filters(), bytes, shards });
                }
                Event::End => break,
            }
        }
        let (made_at_ms, made_by) = reader.origin();
        Ok(Self { entries, made_at_ms, made_by: made_by.to_owned(), file_bytes: reader.position() })
    }
}

/// Checks that all shards of a sharded filter precede their number.
fn ensure_whole(key: &[u8], shards: Option<u32>, keys: &BTreeSet<Vec<u8>>) -> Result<()> {
    let (name, shards) = sharded_name(key)
        .zip(shards)
        .with_context(|| format!("damaged: `{}` is not a number of shards", shown(key)))?;
    let missing = shard_keys(name, 0..shards).into_iter().find(|shard| !keys.contains(shard));
    missing.map_or(Ok(()), |shard| bail!("damaged: the shard `{}` is missing", shown(shard)))
}

// Prints the filters of a run as a table or as JSON.

/// The maximum number of rows, unless all are requested.
const ROWS_SHOWN: usize = 100;

/// Longer keys are cut, because they would break the table.
const KEY_CHARACTERS_SHOWN: usize = 60;

pub struct Row {
    pub database: u32,
    /// The key; the server's key if it differs from the key in the file.
    pub key: Vec<u8>,
    pub kind: String,
    pub contents: Contents,
    pub ttl_ms: Option<u64>,
    /// A remark, which may be empty.
    pub remark: String,
}

/// The filters of a run, and facts about the whole run.
#[derive(Default)]
pub struct Listing {
    pub rows: Vec<Row>,
    /// Sharded filters with all their shards among the rows: their names and numbers of shards.
    pub sharded: Vec<(Vec<u8>, u32)>,
    /// Members of the outermost JSON object.
    pub facts: Vec<(&'static str, Value)>,
    /// Whether all rows are printed, however many there are.
    pub is_whole: bool,
}

impl Listing {
    /// Prints a table followed by `last`, or JSON.
    /// A closed pipe is not an error.
    pub fn print(&self, as_json: bool, to_stderr: bool, last: &str) -> Result<()> {
        let text = if as_json { format!("{:#}\n", self.json()) } else { format!("{}{last}\n", self.table()) };
        let written = if to_stderr {
            io::stderr().lock().write_all(text.as_bytes())
        } else {
            io::stdout().lock().write_all(text.as_bytes())
        };
        match written {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn table(&self) -> String {
        let shown_rows = if self.is_whole { self.rows.len() } else { ROWS_SHOWN };
        let widest = self.rows.iter().take(shown_rows).map(|row| short(&row.key).len()).max().unwrap_or(0).max(3);
        let mut text = String::new();
        let mut line = |words: [&str; 6]| {
            let [key, kind, items, memory, ttl, remark] = words;
            let line = format!("{key:<widest$}  {kind:<12} {items:>14} {memory:>12} {ttl:>12}   {remark}");
            text.push_str(line.trim_end());
            text.push('\n');
        };
        if !self.rows.is_empty() {
            line(["key", "kind", "items", "memory", "time to live", ""]);
        }
        for row in self.rows.iter().take(shown_rows) {
            let items = HumanCount(row.contents.items).to_string();
            let memory = BinaryBytes(row.contents.bytes).to_string();
            let ttl = row.ttl_ms.map_or_else(|| "none".to_owned(), time);
            line([&short(&row.key), &row.kind, &items, &memory, &ttl, &row.remark()]);
        }
        let more = self.rows.len().saturating_sub(shown_rows);
        if more > 0 {
            text.push_str(&format!("... and {} more: --json lists all\n", HumanCount(more as u64)));
        }
        for (name, shards) in &self.sharded {
            text.push_str(&format!("{} is complete: {}\n", short(name), counted((*shards).into(), "shard")));
        }
        text
    }

    fn json(&self) -> Value {
        let filters: Vec<Value> = self.rows.iter().map(Row::json).collect();
        let sharded = self.sharded.iter().map(|(name, shards)| json!({ "name": escaped(name), "shards": shards }));
        let mut all = json!({ "filters": filters, "sharded": sharded.collect::<Vec<_>>() });
        if let Value::Object(fields) = &mut all {
            fields.extend(self.facts.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        }
        all
    }
}

impl Row {
    /// Returns the remark of the table, which has no column for the database.
    fn remark(&self) -> String {
        let database = (self.database != 0).then(|| format!("database {}", self.database));
        let remark = (!self.remark.is_empty()).then(|| self.remark.clone());
        database.into_iter().chain(remark).collect::<Vec<_>>().join(", ")
    }

    fn json(&self) -> Value {
        let Contents { capacity, layers, items, bytes, .. } = self.contents;
        json!({
            "database": self.database,
            "key": escaped(&self.key),
            "kind": self.kind,
            "items": items,
            "capacity": capacity,
            "layers": layers,
            "bytes": bytes,
            "ttl_ms": self.ttl_ms,
            "remark": self.remark,
        })
    }
}

/// Returns a key, cut to the width of the table's column.
fn short(key: &[u8]) -> String {
    let key = shown(key);
    // Every character is ASCII, so a byte is a character.
    key.get(..KEY_CHARACTERS_SHOWN)
        .filter(|begin| begin.len() < key.len())
        .map_or(key.clone(), |begin| format!("{begin}..."))
}

/// Formats a duration in the largest unit of which it has at least two.
fn time(milliseconds: u64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")];
    let unit = units.into_iter().find(|(unit, _)| milliseconds >= 2 * unit);
    unit.map_or_else(|| format!("{milliseconds} ms"), |(unit, name)| format!("{} {name}", milliseconds / unit))
}

#[cfg(test)]
mod tests {
    use crate::archive::Writer;

    use super::*;

    fn file(packs: bool) -> Vec<u8> {
        let mut writer = Writer::begin(Vec::new(), packs, 7).unwrap();
        let head = |key: &[u8], mode| Head {
            // The keys `void` and `one` are in another database than the last key.
            database: if mode == ReadMode::Dump { 3 } else { 0 },
            key: key.to_vec(),
            type_name: "bloomgate".to_owned(),
            kind: "native".to_owned(),
            mode,
            ttl_ms: if mode == ReadMode::Dump { Some(5) } else { None },
            before: Contents { capacity: 1, layers: 2, items: 3, bytes: 4, deletes: 0 },
        };
        writer.filter(&head(b"void", ReadMode::Records)).unwrap();
        writer.part(1, b"of no use").unwrap();
        writer.filter_void().unwrap();
        for (key, mode) in [(&b"one"[..], ReadMode::Records), (b"\xff\0", ReadMode::Dump)] {
            writer.filter(&head(key, mode)).unwrap();
            writer.part(1, &[b'x'; 100]).unwrap();
            writer.part(u64::MAX, b"").unwrap();
            writer.filter_end(Contents::default()).unwrap();
        }
        let (file, bytes) = writer.finish().unwrap();
        assert_eq!(file.len() as u64, bytes);
        file
    }

    #[test]
    fn all_damage_is_detected() {
        for file in [file(false), file(true)] {
            for length in 0..file.len() {
                assert!(Catalogue::of(&file[..length]).is_err(), "{length}");
            }
            for position in 0..file.len() {
                for flip in [1, 0x80, 0xff] {
                    let mut torn = file.clone();
                    torn[position] ^= flip;
                    assert!(Catalogue::of(&*torn).is_err(), "{position}");
                }
            }
            let longer = [&*file, b"\0"].concat();
            assert!(Catalogue::of(&*longer).unwrap_err().to_string().contains("data follows its end"));
        }
    }

    #[test]
    fn a_missing_or_repeated_record_is_detected() {
        let file = file(false);
        // The parts of the filter `one`, found by their bodies.
        let part = file.windows(100).position(|bytes| bytes == [b'x'; 100]).unwrap();
        let (begin, end) = (part - 18, part + 104);
        let lost = [&file[..begin], &file[end..]].concat();
        let twice = [&file[..end], &file[begin..]].concat();
        for torn in [lost, twice] {
            assert!(Catalogue::of(&*torn).unwrap_err().to_string().contains("checksum"));
        }
    }

    #[test]
    fn a_file_with_an_incomplete_sharded_filter_is_damaged() {
        let of = |keys: &[&str], shards: &str| {
            let mut writer = Writer::begin(Vec::new(), false, 7).unwrap();
            for key in keys {
                let mode = if key.ends_with("shards") { ReadMode::Shards } else { ReadMode::Records };
                let (type_name, kind) = (String::new(), String::new());
                let (database, key) = key.split_once('/').unwrap_or(("0", key));
                let database = database.parse().unwrap();
                let head = Head {
                    database,
                    key: key.into(),
                    type_name,
                    kind,
                    mode,
                    ttl_ms: None,
                    before: Contents::default(),
                };
                writer.filter(&head).unwrap();
                writer.part(1, shards.as_bytes()).unwrap();
                writer.filter_end(Contents::default()).unwrap();
            }
            Catalogue::of(&*writer.finish().unwrap().0)
        };
        let whole = of(&["3/seen:{0}", "seen:{0}", "seen:{1}", "seen:shards"], "2").unwrap();
        assert_eq!(whole.entries.iter().map(|entry| entry.shards).collect::<Vec<_>>(), [None, None, None, Some(2)]);
        for (keys, shards, part) in [
            (&["seen:{0}", "seen:shards"][..], "2", "the shard `seen:{1}` is missing"),
            (&["seen:{0}", "seen:shards", "seen:{1}"], "2", "the shard `seen:{1}` is missing"),
            (&["3/seen:{0}", "seen:{1}", "seen:shards"], "2", "the shard `seen:{0}` is missing"),
            (&["seen:{0}", "seen:shards"], "x", "is not a number of shards"),
            (&["seen:{0}", "seen:shards"], "0", "is not a number of shards"),
            (&["shards"], "1", "is not a number of shards"),
        ] {
            assert!(of(keys, shards).unwrap_err().to_string().contains(part), "{keys:?}");
        }
    }

    #[test]
    fn times_and_keys_are_short() {
        assert_eq!(short(b"seen"), "seen");
        assert_eq!(short(&[0; 60]).len(), 63);
        let times = [(0, "0 ms"), (1999, "1999 ms"), (2000, "2 s"), (7_200_000, "2 h"), (172_800_000, "2 d")];
        for (milliseconds, text) in times {
            assert_eq!(time(milliseconds), text);
        }
    }
}
