//! Files of lines, and of columns: CSV (RFC 4180) and TSV, plain or compressed.

use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use csv::{ByteRecord, Reader, ReaderBuilder};

use super::source::Sink;
use crate::stream::input::{self, BytesRead};
use crate::usage::usage;

/// Bytes that are read at once.
const BUFFER_BYTES: usize = 1 << 17;

/// Which column of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Column {
    /// By its name in the first line.
    Name(String),
    /// By its place; the first is 0. The first line may be one of names.
    Place { place: usize, has_header: bool },
}

impl Column {
    /// A number is a place, from 1 on; all else is a name.
    ///
    /// # Errors
    /// The number 0.
    pub fn of(text: &str, has_header: bool) -> Result<Self> {
        match text.parse::<usize>() {
            Ok(0) => Err(usage("--column: columns are counted from 1")),
            Ok(number) => Ok(Self::Place { place: number - 1, has_header }),
            Err(_) => Ok(Self::Name(text.to_owned())),
        }
    }
}

/// The lines of a file, without their ends; an empty one is no item.
pub fn lines(path: &Path, bytes_read: &BytesRead, sink: &mut Sink) -> Result<()> {
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, input::open(path, bytes_read)?);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line).with_context(|| format!("cannot read {}", path.display()))? == 0 {
            return Ok(());
        }
        let item = line.strip_suffix(b"\n").unwrap_or(&line);
        let item = item.strip_suffix(b"\r").unwrap_or(item);
        sink(Some(item).filter(|item| !item.is_empty()))?;
    }
}

/// A column of a file. Between tabs quotes are like any other character.
pub fn columns(
    path: &Path,
    delimiter: u8,
    column: &Column,
    skip_bad: bool,
    bytes_read: &BytesRead,
    sink: &mut Sink,
) -> Result<()> {
    let source = input::open(path, bytes_read)?;
    let mut reader = ReaderBuilder::new()
        .delimiter(delimiter)
        .quoting(delimiter != b'\t')
        .has_headers(!matches!(column, Column::Place { has_header: false, .. }))
        .flexible(true)
        .buffer_capacity(BUFFER_BYTES)
        .from_reader(source);
    let told = || format!("cannot read {}", path.display());
    let place = place(&mut reader, column).with_context(told)?;
    let mut record = ByteRecord::new();
    while reader.read_byte_record(&mut record).with_context(told)? {
        match record.get(place) {
            Some(item) => sink(Some(item))?,
            None if skip_bad => sink(None)?,
            None => {
                let line = record.position().map_or(0, csv::Position::line);
                return Err(anyhow!("line {line}: it has no column {}", place + 1)).with_context(told);
            }
        }
    }
    Ok(())
}

fn place<R: std::io::Read>(reader: &mut Reader<R>, column: &Column) -> Result<usize> {
    let name = match column {
        Column::Place { place, .. } => return Ok(*place),
        Column::Name(name) => name,
    };
    let names = reader.byte_headers()?;
    let place = names.iter().position(|other| other.strip_prefix(b"\xef\xbb\xbf").unwrap_or(other) == name.as_bytes());
    place.with_context(|| {
        let names: Vec<_> = names.iter().map(String::from_utf8_lossy).collect();
        format!("no column is named `{name}` in its first line: {}", names.join(", "))
    })
}
