//! Shared by all sources of rows: the selection of rows, the position in a source, and the receiver of the items.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use postgres::Client;
use postgres::binary_copy::BinaryCopyOutIter;
use postgres::fallible_iterator::FallibleIterator;
use postgres::types::Type;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Statement};

use crate::database;
use crate::names::hex;
use crate::server::usage;

/// Rows of a database.
#[derive(Clone, Debug)]
pub enum Rows {
    Table { table: String, column: String },
    Query { query: String, column: Option<String> },
}

impl Rows {
    /// Combines the options of the command line.
    pub fn of(table: Option<&String>, column: Option<&String>, query: Option<&String>) -> Result<Self> {
        match (table, column, query) {
            (Some(table), Some(column), None) => Ok(Self::Table { table: table.clone(), column: column.clone() }),
            (None, column, Some(query)) => {
                let query = query.trim().trim_end_matches(';').to_owned();
                Ok(Self::Query { query, column: column.cloned() })
            }
            _ => Err(usage("say which rows to load: --table TABLE --column COLUMN, or --query SQL")),
        }
    }
}

/// A position in a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Rows read so far, with or without an item.
    pub rows: u64,
    /// The last item, if there was any.
    pub last: Option<Vec<u8>>,
    /// The number of consecutive rows with that item, up to here.
    pub repeats: u64,
}

/// Receives the item of each row, or `None` for a row without one.
pub type Sink<'a> = dyn FnMut(Option<&[u8]>) -> Result<()> + 'a;

// Reads rows of a SQLite database file without changing it.

/// Reads the rows: texts and blobs as bytes, numbers in decimal, and no item for NULL.
pub fn read_sqlite(path: &Path, rows: &Rows, sink: &mut Sink) -> Result<()> {
    let connection = open_sqlite(path)?;
    let (mut statement, column) = select_sqlite(&connection, rows).with_context(|| cannot_read(path))?;
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
pub fn count_sqlite(path: &Path, rows: &Rows) -> Result<u64> {
    let connection = open_sqlite(path)?;
    let text = match rows {
        Rows::Table { table, column } => {
            format!("SELECT COUNT({0}.{1}) FROM {0}", quoted(table), quoted(column))
        }
        Rows::Query { query, .. } => format!("SELECT COUNT(*) FROM ({query})"),
    };
    let count: i64 = connection.query_row(&text, [], |row| row.get(0)).with_context(|| cannot_read(path))?;
    Ok(u64::try_from(count)?)
}

fn open_sqlite(path: &Path) -> Result<Connection> {
    Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .with_context(|| cannot_read(path))
}

/// Returns the statement and the index of the column with the items.
fn select_sqlite<'c>(connection: &'c Connection, rows: &Rows) -> Result<(Statement<'c>, usize)> {
    let (query, column) = match rows {
        // Without the table's name, SQLite interprets the name of a missing column as a string.
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

fn cannot_read(path: &Path) -> String {
    format!("cannot read {}", path.display())
}

// Reads rows of a PostgreSQL server by COPY, which streams them without buffering the whole result.

/// Reads the rows: `bytea` as bytes, other types as PostgreSQL's text, without NULLs. With `is_ordered`, rows are in the order of the
/// column and begin at the given position.
pub fn read_postgres(url: &str, rows: &Rows, is_ordered: bool, from: &Position, sink: &mut Sink) -> Result<()> {
    let mut client = connect(url)?;
    let (text, kind) = select_postgres(&mut client, rows)?;
    let is_bytes = kind == Type::BYTEA;
    let item = if is_bytes { "item" } else { "item::text" };
    let mut query = format!("SELECT {item} FROM ({text}) AS source (item) WHERE item IS NOT NULL");
    if is_ordered {
        if let Some(last) = &from.last {
            query += &format!(" AND item >= {}", literal(last, is_bytes));
        }
        query += " ORDER BY source.item";
    }
    let reader = client.copy_out(&format!("COPY ({query}) TO STDOUT (FORMAT BINARY)")).context(ASKING)?;
    // The binary format of a text is the text itself.
    let mut rows = BinaryCopyOutIter::new(reader, &[Type::BYTEA]);
    while let Some(row) = rows.next().context(READING)? {
        sink(Some(row.try_get(0)?))?;
    }
    Ok(())
}

/// Counts the rows with an item.
pub fn count_postgres(url: &str, rows: &Rows) -> Result<u64> {
    let mut client = connect(url)?;
    let (text, _) = select_postgres(&mut client, rows)?;
    let row = client.query_one(&format!("SELECT COUNT(item) FROM ({text}) AS source (item)"), &[]).context(ASKING)?;
    Ok(u64::try_from(row.try_get::<_, i64>(0)?)?)
}

const ASKING: &str = "PostgreSQL rejected the query";
const READING: &str = "lost the PostgreSQL server";

fn connect(url: &str) -> Result<Client> {
    database::connect(database::parse(url)?.application_name("bloomgate"))
}

/// Returns a query with only the column of items, and the column's type.
fn select_postgres(client: &mut Client, rows: &Rows) -> Result<(String, Type)> {
    let (text, column) = match rows {
        Rows::Table { table, column } => {
            let table: Vec<_> = table.split('.').map(quoted).collect();
            (format!("SELECT {} FROM {}", quoted(column), table.join(".")), None)
        }
        Rows::Query { query, column } => (query.clone(), column.as_ref()),
    };
    let statement = client.prepare(&text).context(ASKING)?;
    let columns = statement.columns();
    let chosen = match column {
        Some(name) => columns.iter().find(|column| column.name() == name),
        None => columns.first().filter(|_| columns.len() == 1),
    };
    let chosen = chosen.context("the query has several columns, or none of that name: choose one with --column")?;
    let text =
        if columns.len() == 1 { text } else { format!("SELECT {} FROM ({text}) AS rows", quoted(chosen.name())) };
    Ok((text, chosen.type_().clone()))
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Returns an item as an SQL literal that does not depend on the server's settings.
fn literal(item: &[u8], is_bytes: bool) -> String {
    if is_bytes {
        return format!("E'\\\\x{}'", hex(item));
    }
    format!("E'{}'", String::from_utf8_lossy(item).replace('\\', "\\\\").replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_item_can_be_a_literal() {
        assert_eq!(literal(b"it's a \\", false), r"E'it''s a \\'");
        assert_eq!(literal(b"\0\xff'", true), r"E'\\x00ff27'");
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
    }
}
