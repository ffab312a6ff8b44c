//! Reads rows of a PostgreSQL server by COPY, which streams them without buffering the whole result.

use std::io::{BufRead, Read};

use anyhow::{Context, Result, bail, ensure};
use postgres::Client;
use postgres::types::Type;

use super::rows::{Position, Rows, Sink};
use crate::database;

/// The file header of binary COPY: a signature, flags, and the length of an extension.
const SIGNATURE: &[u8; 11] = b"PGCOPY\n\xff\r\n\0";

/// Reads the rows: `bytea` as bytes, other types as PostgreSQL's text, without NULLs. With `is_ordered` they come in the order
/// of the column, from the given position.
pub fn read(url: &str, rows: &Rows, is_ordered: bool, from: &Position, sink: &mut Sink) -> Result<()> {
    let mut client = connect(url)?;
    let (text, kind) = select(&mut client, rows)?;
    let is_bytes = kind == Type::BYTEA;
    let item = if is_bytes { "item" } else { "item::text" };
    let mut query = format!("SELECT {item} FROM ({text}) AS source (item) WHERE item IS NOT NULL");
    if is_ordered {
        if let Some(last) = &from.last {
            query += &format!(" AND item >= {}", literal(last, is_bytes));
        }
        query += " ORDER BY source.item";
    }
    let mut reader = client.copy_out(&format!("COPY ({query}) TO STDOUT (FORMAT BINARY)")).context(ASKING)?;
    let mut signature = [0; 11];
    reader.read_exact(&mut signature).context(READING)?;
    ensure!(&signature == SIGNATURE, "PostgreSQL sent COPY data in an unknown format");
    number(&mut reader)?;
    let extension = number(&mut reader)?;
    std::io::copy(&mut reader.by_ref().take(u64::try_from(extension)?), &mut std::io::sink()).context(READING)?;
    let mut item = Vec::new();
    loop {
        let mut columns = [0; 2];
        reader.read_exact(&mut columns).context(READING)?;
        match i16::from_be_bytes(columns) {
            -1 => return Ok(()),
            1 => {}
            _ => bail!("PostgreSQL sent COPY data in an unknown format"),
        }
        let length = usize::try_from(number(&mut reader)?)?;
        // Most items are completely in the reader's buffer.
        let buffered = reader.fill_buf().context(READING)?;
        if let Some(bytes) = buffered.get(..length) {
            sink(Some(bytes))?;
            reader.consume(length);
            continue;
        }
        item.resize(length, 0);
        reader.read_exact(&mut item).context(READING)?;
        sink(Some(&item))?;
    }
}

/// Counts the rows with an item.
pub fn count(url: &str, rows: &Rows) -> Result<u64> {
    let mut client = connect(url)?;
    let (text, _) = select(&mut client, rows)?;
    let row = client.query_one(&format!("SELECT COUNT(item) FROM ({text}) AS source (item)"), &[]).context(ASKING)?;
    Ok(u64::try_from(row.try_get::<_, i64>(0)?)?)
}

const ASKING: &str = "PostgreSQL rejected the query";
const READING: &str = "lost the PostgreSQL server";

fn connect(url: &str) -> Result<Client> {
    database::connect(database::parse(url)?.application_name("bloomgate"))
}

/// Returns a query with only the column of items, and the column's type.
fn select(client: &mut Client, rows: &Rows) -> Result<(String, Type)> {
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

fn number(reader: &mut impl Read) -> Result<i32> {
    let mut bytes = [0; 4];
    reader.read_exact(&mut bytes).context(READING)?;
    Ok(i32::from_be_bytes(bytes))
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Returns an item as an SQL literal that does not depend on the server's settings.
fn literal(item: &[u8], is_bytes: bool) -> String {
    if is_bytes {
        let digits: String = item.iter().map(|byte| format!("{byte:02x}")).collect();
        return format!("E'\\\\x{digits}'");
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
