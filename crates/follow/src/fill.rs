//! Fills a filter with the items of all rows. It is built under another key and renamed, so that no reader asks a partial filter.

use std::io::{BufRead, ErrorKind};

use anyhow::{Context, Error, Result, bail};
use bytes::Bytes;
use postgres::error::SqlState;
use redis::{Pipeline, cmd};

use super::pgoutput::Field;
use super::session::Client;
use super::store::{Position, Store, reserve};
use super::table::Table;

/// Items in one BF.MADD, and commands in one pipeline.
const ITEMS: usize = 1000;
const COMMANDS: usize = 32;

/// Fills the filter of a table from what is visible now, and stores the position. The caller holds a stream whose confirmed
/// position is `position`, and every transaction up to there is visible, so those that this cannot see are still to come. The
/// heartbeat and all cached values are deleted: the values may be older than what the stream still brings.
///
/// Calls `meanwhile` after each batch of rows. Returns the number of rows.
pub fn fill(
    client: &mut Client,
    store: &mut Store,
    table: &Table,
    epoch: u64,
    position: &Position,
    meanwhile: &mut impl FnMut(&mut Store) -> Result<()>,
) -> Result<u64> {
    let keys = &table.keys;
    let begin = [
        cmd("DEL").arg(&keys.feed).arg(&keys.position).arg(&keys.filling).to_owned(),
        reserve(&table.config, &keys.filling),
    ];
    store
        .transact(keys, epoch, &begin)
        .with_context(|| format!("cannot create the filter of {}", table.config.name))?;
    let rows = copy(client, table, |items| {
        add(store, &keys.filling, items)?;
        meanwhile(store)
    })?;
    flush(client)?;
    // The leases that were granted without this filter end here. Otherwise a reader that has read an old row could fill it in after
    // the scan.
    store.transact(keys, epoch, &[cmd("RENAME").arg(&keys.filling).arg(&keys.filter).to_owned()])?;
    store.delete_values(table, &mut *meanwhile)?;
    store.transact(keys, epoch, &[position.store(keys)])?;
    Ok(rows)
}

/// Copies the items of all rows that are visible, and passes them on in batches, and none while PostgreSQL
/// is silent. Returns the number of rows.
pub fn copy(client: &mut Client, table: &Table, mut pass: impl FnMut(&[Vec<u8>]) -> Result<()>) -> Result<u64> {
    let identity: Vec<_> =
        table.columns.iter().enumerate().filter(|(_, column)| column.is_identity).map(|(index, _)| index).collect();
    let query = format!("COPY ({}) TO STDOUT", select(table));
    // COPY takes its snapshot before it waits for a lock. With a snapshot from before an ALTER TABLE that rewrites the rows, the table
    // is empty. Its definition is then another one than before, and the filter is filled again.
    let mut reader = client.copy_out(&query).context("PostgreSQL rejected COPY")?;
    let mut rows = 0;
    let (mut line, mut items, mut row) =
        (Vec::new(), Vec::with_capacity(ITEMS * COMMANDS), vec![Field::Null; table.columns.len()]);
    loop {
        match reader.read_until(b'\n', &mut line) {
            // The server may find no row for a long time. What it has sent of a line stays.
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
        if items.len() == ITEMS * COMMANDS || (is_end && !items.is_empty()) {
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
    // Tables that only inherit from this one are others.
    let only = if table.is_partitioned { "" } else { "ONLY " };
    format!("SELECT {} FROM {only}{}", names.join(", "), table.quoted)
}

/// Fails if the role may not read the rows.
pub fn check_readable(client: &mut Client, table: &Table) -> Result<()> {
    match client.batch_execute(&format!("{} LIMIT 0", select(table))) {
        Err(error) if is_locked(&error) => Ok(()),
        result => result.with_context(|| format!("cannot read {}", table.config.name)),
    }
}

/// Waits until everything that was visible until now is on PostgreSQL's disk. A writer with `synchronous_commit = off` does not wait, so a
/// crash of PostgreSQL could bring back rows that were deleted when they were copied, and reuse positions of the log.
pub fn flush(client: &mut Client) -> Result<()> {
    // The COMMIT of a transaction with a record in the log writes the log up to there to the disk.
    client
        .batch_execute("SELECT pg_logical_emit_message(true, 'bloomgate', '')")
        .context("cannot write to PostgreSQL's log")
}

/// Whether the table was locked for longer than the session waits.
pub fn is_locked(error: &Error) -> bool {
    let code = error.chain().find_map(|cause| cause.downcast_ref::<postgres::Error>()).and_then(postgres::Error::code);
    code == Some(&SqlState::LOCK_NOT_AVAILABLE)
}

/// Adds items to a filter that exists.
pub fn add(store: &mut Store, key: &str, items: &[Vec<u8>]) -> Result<()> {
    if items.is_empty() {
        return Ok(());
    }
    let mut commands = Pipeline::new();
    for chunk in items.chunks(ITEMS) {
        commands.cmd("BF.INSERT").arg(key).arg("NOCREATE").arg("ITEMS").arg(chunk);
    }
    for reply in store.send(&commands, key)? {
        let redis::Value::Array(replies) = reply else { bail!("the server's reply to BF.INSERT is not an array") };
        if let Some(redis::Value::ServerError(error)) =
            replies.iter().find(|reply| matches!(reply, redis::Value::ServerError(_)))
        {
            bail!("the filter refuses an item: {}", error.details().unwrap_or_default());
        }
    }
    Ok(())
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
