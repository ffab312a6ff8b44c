//! Reads rows of a SQLite database file without changing it.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Statement};

use super::rows::{Rows, Sink};

/// Reads the rows: texts and blobs as bytes, numbers in decimal, and no item for NULL.
pub fn read(path: &Path, rows: &Rows, sink: &mut Sink) -> Result<()> {
    let connection = open(path)?;
    let (mut statement, column) = select(&connection, rows).with_context(|| cannot_read(path))?;
    let mut rows = statement.query([]).with_context(|| cannot_read(path))?;
    while let Some(row) = rows.next().with_context(|| cannot_read(path))? {
        match row.get_ref(column).with_context(|| cannot_read(path))? {
            ValueRef::Null => sink(None)?,
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => sink(Some(bytes))?,
            ValueRef::Integer(number) => sink(Some(number.to_string().as_bytes()))?,
            ValueRef::Real(number) => sink(Some(format!("{number:?}").as_bytes()))?,
        }
    }
    Ok(())
}

/// Counts the rows with an item.
pub fn count(path: &Path, rows: &Rows) -> Result<u64> {
    let connection = open(path)?;
    let text = match rows {
        Rows::Table { table, column } => {
            format!("SELECT COUNT({0}.{1}) FROM {0}", quoted(table), quoted(column))
        }
        Rows::Query { query, .. } => format!("SELECT COUNT(*) FROM ({query})"),
    };
    let count: i64 = connection.query_row(&text, [], |row| row.get(0)).with_context(|| cannot_read(path))?;
    Ok(u64::try_from(count)?)
}

fn open(path: &Path) -> Result<Connection> {
    Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .with_context(|| cannot_read(path))
}

/// Returns the statement and the index of the column with the items.
fn select<'c>(connection: &'c Connection, rows: &Rows) -> Result<(Statement<'c>, usize)> {
    let (query, column) = match rows {
        // Without the table's name, SQLite reads the name of a missing column as a string.
        Rows::Table { table, column } => (format!("SELECT {0}.{1} FROM {0}", quoted(table), quoted(column)), None),
        Rows::Query { query, column } => (query.clone(), column.as_ref()),
    };
    let statement = connection.prepare(&query)?;
    let place = match column {
        Some(column) => statement.column_index(column)?,
        None => {
            ensure!(statement.column_count() == 1, "the query has several columns: choose one with --column");
            0
        }
    };
    Ok((statement, place))
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn cannot_read(path: &Path) -> String {
    format!("cannot read {}", path.display())
}
