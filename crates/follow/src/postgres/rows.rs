//! Copies the rows of a table.

use std::io::{BufRead, ErrorKind};

use anyhow::{Context, Error, Result, bail};
use bytes::Bytes;
use postgres::error::SqlState;

use super::session::Client;
use crate::engine::{BATCH, Copier};
use crate::table::Table;
use crate::template::Field;

impl Copier for Client {
    fn copy(&mut self, table: &Table, pass: &mut dyn FnMut(&[Vec<u8>]) -> Result<()>) -> Result<u64> {
        let rows = copy(self, table, pass)?;
        flush(self)?;
        Ok(rows)
    }
}

fn copy(client: &mut Client, table: &Table, pass: &mut dyn FnMut(&[Vec<u8>]) -> Result<()>) -> Result<u64> {
    let identity: Vec<_> =
        table.columns.iter().enumerate().filter(|(_, column)| column.is_identity).map(|(index, _)| index).collect();
    let query = format!("COPY ({}) TO STDOUT", select(table));
    // COPY takes its snapshot before it waits for a lock. With a snapshot from before an ALTER TABLE that rewrites the rows, the table is
    // empty. Its definition then differs from the earlier one, and the filter is filled again.
    let mut reader = client.copy_out(&query).context("PostgreSQL rejected COPY")?;
    let mut rows = 0;
    let (mut line, mut items, mut row) =
        (Vec::new(), Vec::with_capacity(BATCH), vec![Field::Null; table.columns.len()]);
    loop {
        match reader.read_until(b'\n', &mut line) {
            // The server may send no row for a long time. The received part of a line is kept.
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                pass(&[])?;
                continue;
            }
            result => result.context("lost the PostgreSQL server")?,
        };
        let is_end = line.is_empty();
        if !is_end {
            parse_line(&line, &identity, &mut row)?;
            items.extend(table.item(&row)?);
            rows += 1;
        }
        if items.len() == BATCH || (is_end && !items.is_empty()) {
            pass(&items)?;
            items.clear();
        }
        if is_end {
            break;
        }
        line.clear();
    }
    Ok(rows)
}

/// Returns the query of the columns of all items.
fn select(table: &Table) -> String {
    let names: Vec<_> = table
        .columns
        .iter()
        .filter(|column| column.is_identity)
        .map(|column| format!("\"{}\"", column.name.replace('"', "\"\"")))
        .collect();
    format!("SELECT {} FROM {}", names.join(", "), table.from)
}

/// Fails if the role may not read the rows.
pub fn check_readable(client: &mut Client, table: &Table) -> Result<()> {
    match client.batch_execute(&format!("{} LIMIT 0", select(table))) {
        Err(error) if is_locked(&error) => Ok(()),
        result => result.with_context(|| format!("cannot read {}", table.config.name)),
    }
}

/// Waits until everything that was visible until now is on PostgreSQL's disk. A writer with `synchronous_commit = off` does not wait for
/// the disk, so after a crash, rows that were already deleted when the table was copied could reappear, and positions of the log could be
/// reused.
fn flush(client: &mut Client) -> Result<()> {
    // The COMMIT of a transaction with a record in the log flushes the log up to there.
    client
        .batch_execute("SELECT pg_logical_emit_message(true, 'bloomgate', '')")
        .context("cannot write to PostgreSQL's log")
}

/// Whether the table was locked for longer than the session waits.
pub fn is_locked(error: &Error) -> bool {
    let code = error.chain().find_map(|cause| cause.downcast_ref::<postgres::Error>()).and_then(postgres::Error::code);
    code == Some(&SqlState::LOCK_NOT_AVAILABLE)
}

/// Parses a line of COPY's text format into the fields of a row.
fn parse_line(line: &[u8], places: &[usize], row: &mut [Field]) -> Result<()> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let mut values = line.split(|byte| *byte == b'\t');
    for place in places {
        let (Some(value), Some(field)) = (values.next(), row.get_mut(*place)) else {
            bail!("PostgreSQL sent a row with too few columns");
        };
        *field = if value == b"\\N" { Field::Null } else { Field::Text(unescape(value)) };
    }
    Ok(())
}

fn unescape(value: &[u8]) -> Bytes {
    if !value.contains(&b'\\') {
        return Bytes::copy_from_slice(value);
    }
    let (mut text, mut bytes) = (Vec::with_capacity(value.len()), value.iter());
    while let Some(&byte) = bytes.next() {
        text.push(match (byte, byte == b'\\') {
            (_, true) => match bytes.next() {
                Some(b'b') => 8,
                Some(b'f') => 12,
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                Some(b't') => b'\t',
                Some(b'v') => 11,
                Some(other) => *other,
                None => b'\\',
            },
            (byte, false) => byte,
        });
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_copy_are_the_values_that_were_stored() {
        let mut row = vec![Field::Null; 4];
        parse_line(b"7\t\\N\ta\\tb\\\\\\n\\\\x00\n", &[0, 1, 3], &mut row).unwrap();
        let text = |text: &'static str| Field::Text(Bytes::from_static(text.as_bytes()));
        assert_eq!(row, [text("7"), Field::Null, Field::Null, text("a\tb\\\n\\x00")]);
        assert!(parse_line(b"7\n", &[0, 1], &mut row).is_err());
    }
}
