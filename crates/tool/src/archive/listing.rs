//! Prints the filters of a run as a table or as JSON.

use std::io::{self, Write};

use anyhow::Result;
use indicatif::{BinaryBytes, HumanCount};
use serde_json::{Value, json};

use super::Contents;
use crate::names::escaped;
use crate::report::counted;
use crate::server::shown;

/// The maximum number of rows, unless all are requested.
const ROWS_SHOWN: usize = 100;

/// Longer keys are cut, because they would break the table.
const KEY_CHARACTERS_SHOWN: usize = 60;

/// A filter of a run.
pub struct Row {
    /// The key; if the server's key differs from that in the file, the server's.
    pub key: Vec<u8>,
    /// The kind of filter.
    pub kind: String,
    /// The figures of the filter.
    pub contents: Contents,
    /// The time to live in milliseconds.
    pub ttl_ms: Option<u64>,
    /// A remark, which may be empty.
    pub remark: String,
}

/// The filters of a run, and facts about the whole run.
#[derive(Default)]
pub struct Listing {
    /// One row per filter.
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
    ///
    /// # Errors
    /// The output cannot be written. A closed pipe is not an error.
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
            line([&short(&row.key), &row.kind, &items, &memory, &ttl, &row.remark]);
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
    fn json(&self) -> Value {
        let Contents { capacity, layers, items, bytes } = self.contents;
        json!({
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
    use super::*;

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
