//! The sources of `load`, and the thread that reads them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::UNIX_EPOCH;
use std::{fs, thread};

use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};

use crate::input::BytesRead;
use crate::load::rows::{self, Position, Rows, Sink};
use crate::stream::reader::Reading;
use crate::stream::{Batch, Field};

/// The maximum number of items and bytes in a batch.
const ITEMS_AT_ONCE: usize = 1024;
const BYTES_AT_ONCE: usize = 1 << 17;
/// The maximum number of queued batches. If the queue is full, the reader waits.
const WAITING: usize = 16;

/// The number of lines that were skipped because they lack the column.
pub type Skipped = Arc<AtomicU64>;

/// A source of rows.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file, and how to extract items from it.
    File { path: PathBuf, reading: Reading },
    /// A SQLite database file.
    Sqlite { path: PathBuf, rows: Rows },
    /// A PostgreSQL server.
    Postgres { url: String, rows: Rows, is_ordered: bool },
}

/// A batch of items.
#[derive(Default)]
pub struct Items {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// The position after them.
    pub after: Position,
}

impl Batch for Items {
    fn items(&self) -> Vec<&[u8]> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| self.bytes.get(start..*end).unwrap_or_default()).collect()
    }
}

impl Source {
    /// Starts a thread that reads the rows after `from`. The last message may be an error.
    pub fn start(&self, from: Position, bytes_read: BytesRead, skipped: Skipped) -> Receiver<Result<Items>> {
        let (sender, receiver) = sync_channel(WAITING);
        let source = self.clone();
        thread::spawn(move || {
            let mut gathering = Gathering { items: Items::default(), sender, position: from.clone() };
            // PostgreSQL starts at the last item, which several rows may have. Other sources start at their first row.
            let seeks = matches!(source, Self::Postgres { .. });
            let mut known = if seeks { from.repeats } else { from.rows };
            let result = source.read(&from, &bytes_read, &skipped, &mut |item| {
                if known > 0 && (!seeks || item == from.last.as_deref()) {
                    known -= 1;
                    return Ok(());
                }
                gathering.add(item)
            });
            let result = result.and_then(|()| gathering.hand_over());
            if let Err(error) = result {
                // If the receiver was dropped, the error is irrelevant.
                _ = gathering.sender.send(Err(error));
            }
        });
        receiver
    }

    fn read(&self, from: &Position, bytes_read: &BytesRead, skipped: &Skipped, sink: &mut Sink) -> Result<()> {
        match self {
            Self::File { reading, .. } => read_file(reading, bytes_read, skipped, sink),
            Self::Sqlite { path, rows } => rows::read_sqlite(path, rows, sink),
            Self::Postgres { url, rows, is_ordered } => rows::read_postgres(url, rows, *is_ordered, from, sink),
        }
    }

    /// Counts the items, for which it reads a file once. This would consume a [stream](Self::is_stream).
    pub fn count(&self) -> Result<u64> {
        match self {
            Self::Sqlite { path, rows } => return rows::count_sqlite(path, rows),
            Self::Postgres { url, rows, .. } => return rows::count_postgres(url, rows),
            Self::File { .. } => {}
        }
        let mut count = 0;
        self.read(&Position::default(), &BytesRead::default(), &Skipped::default(), &mut |item| {
            count += u64::from(item.is_some());
            Ok(())
        })?;
        Ok(count)
    }

    /// Returns the size of a file for the progress, if it is known.
    pub fn size_bytes(&self) -> Option<u64> {
        match self {
            Self::File { path, .. } => {
                fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|metadata| metadata.len())
            }
            _ => None,
        }
    }

    /// Whether a second read returns the same rows in the same order.
    pub const fn is_ordered(&self) -> bool {
        matches!(self, Self::File { .. } | Self::Sqlite { .. } | Self::Postgres { is_ordered: true, .. })
    }

    /// Whether the source can be read only once, such as the standard input or a pipe.
    pub fn is_stream(&self) -> bool {
        match self {
            Self::File { path, .. } => {
                let is_stream = |metadata: fs::Metadata| !metadata.is_file() && !metadata.is_dir();
                path == Path::new("-") || fs::metadata(path).is_ok_and(is_stream)
            }
            _ => false,
        }
    }

    /// Returns a value that identifies the source and its state. Changes in a PostgreSQL database are not detected.
    pub fn fingerprint(&self) -> Result<Value> {
        Ok(match self {
            Self::File { path, reading: Reading { field, end, skip_bad, .. } } => {
                json!(["file", format!("{field:?}"), end, skip_bad, state(path)?])
            }
            Self::Sqlite { path, rows } => {
                let mut log = path.clone().into_os_string();
                log.push("-wal");
                let log = state(Path::new(&log)).ok().filter(|(size, _)| *size > 0);
                json!(["sqlite", format!("{rows:?}"), state(path)?, log])
            }
            Self::Postgres { rows, is_ordered, .. } => json!(["postgres", format!("{rows:?}"), is_ordered]),
        })
    }
}

/// Returns the size and the modification time of a file.
fn state(path: &Path) -> Result<(u64, u64)> {
    let metadata = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    let since = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok((metadata.len(), u64::try_from(since.as_micros()).unwrap_or(u64::MAX)))
}

/// Collects rows into batches.
struct Gathering {
    items: Items,
    sender: SyncSender<Result<Items>>,
    position: Position,
}

impl Gathering {
    fn add(&mut self, item: Option<&[u8]>) -> Result<()> {
        self.position.rows += 1;
        let Some(item) = item else { return Ok(()) };
        self.items.bytes.extend_from_slice(item);
        self.items.ends.push(self.items.bytes.len());
        if self.items.ends.len() == ITEMS_AT_ONCE || self.items.bytes.len() >= BYTES_AT_ONCE {
            self.hand_over()?;
        }
        Ok(())
    }

    fn hand_over(&mut self) -> Result<()> {
        let mut items = std::mem::take(&mut self.items);
        let all = items.items();
        if let Some(last) = all.last() {
            let repeats = all.iter().rev().take_while(|item| *item == last).count();
            let goes_on = repeats == all.len() && self.position.last.as_deref() == Some(*last);
            self.position.repeats = if goes_on { self.position.repeats } else { 0 } + repeats as u64;
            self.position.last = Some(last.to_vec());
        }
        items.after = self.position.clone();
        self.sender.send(Ok(items)).map_err(|_| anyhow!("the load has ended"))
    }
}

/// Reads the items of a file. Lines without the column are counted in `skipped`, if they are not an error. Empty lines have no item.
fn read_file(reading: &Reading, bytes_read: &BytesRead, skipped: &Skipped, sink: &mut Sink) -> Result<()> {
    let is_lines = matches!(reading.field, Field::Line);
    for lines in reading.clone().start(bytes_read.clone()) {
        let lines = lines?;
        skipped.fetch_add(lines.bad, Ordering::Relaxed);
        for item in lines.items() {
            sink(Some(item).filter(|item| !is_lines || !item.is_empty()))?;
        }
    }
    Ok(())
}
