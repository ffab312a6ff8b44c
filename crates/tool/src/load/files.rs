//! Files of lines, and of columns: CSV (RFC 4180) and TSV, plain or compressed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, anyhow};
use csv::{ByteRecord, ReaderBuilder};

use super::rows::Sink;
use crate::stream::Column;
use crate::stream::input::{self, BytesRead};
use crate::stream::reader::without_end;

/// Bytes per read.
const BUFFER_BYTES: usize = 1 << 17;

/// Reads the lines of a file without their ends: the byte `end`, and a carriage return before a line feed. Empty lines have no
/// item.
pub fn lines(path: &Path, end: u8, bytes_read: &BytesRead, sink: &mut Sink) -> Result<()> {
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, input::open(path, bytes_read)?);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.read_until(end, &mut line).with_context(|| format!("cannot read {}", path.display()))? == 0 {
            return Ok(());
        }
        let item = without_end(line.strip_suffix(&[end]).unwrap_or(&line), end);
        sink(Some(item).filter(|item| !item.is_empty()))?;
    }
}

/// Reads a column of a file. Lines without it are counted in `skipped`, or an error without that counter. Quotes have no meaning in
/// tab-separated columns.
pub fn columns(
    path: &Path,
    delimiter: u8,
    column: &Column,
    skipped: Option<&AtomicU64>,
    bytes_read: &BytesRead,
    sink: &mut Sink,
) -> Result<()> {
    let source = input::open(path, bytes_read)?;
    let mut reader = ReaderBuilder::new()
        .delimiter(delimiter)
        .quoting(delimiter != b'\t')
        .has_headers(column.has_header())
        .flexible(true)
        .buffer_capacity(BUFFER_BYTES)
        .from_reader(source);
    let cannot_read = || format!("cannot read {}", path.display());
    let place = match column {
        Column::Place { place, .. } => *place,
        Column::Name(_) => {
            column.place(reader.byte_headers().with_context(cannot_read)?.iter()).with_context(cannot_read)?
        }
    };
    let mut record = ByteRecord::new();
    while reader.read_byte_record(&mut record).with_context(cannot_read)? {
        match (record.get(place), skipped) {
            (Some(item), _) => sink(Some(item))?,
            (None, Some(skipped)) => {
                skipped.fetch_add(1, Ordering::Relaxed);
                sink(None)?;
            }
            (None, None) => {
                let line = record.position().map_or(0, csv::Position::line);
                return Err(anyhow!("line {line}: there is no column {}", place + 1)).with_context(cannot_read);
            }
        }
    }
    Ok(())
}
