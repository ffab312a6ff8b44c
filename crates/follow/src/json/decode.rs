//! Decodes the changes of followed tables in the JSON of Debezium, Canal and Maxwell. An object of an unknown shape is an error that
//! quotes it, because skipping it could lose a change.
//!
//! Debezium's format is documented under "Data change events" of each connector and "New Record State Extraction", Canal's by its
//! `FlatMessage`, and Maxwell's under "Data format". The files in `fixtures` were recorded: Debezium 3.6.1, Canal 1.1.8 and Maxwell 1.44.1
//! read the log of one MySQL 9.7, were killed after they had written the delete of row 1, and started again at the place before it. The
//! files omit all but one of Debezium's heartbeats, its snapshot of other tables, and Maxwell's own tables in the output of Debezium and
//! Canal. Canal's `QUERY` is from MariaDB 10.11. `debezium-postgres.jsonl` is from PostgreSQL 15, at the end with REPLICA IDENTITY FULL.

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use serde_json::{Map, Value};

use crate::config::Format;
use crate::sql;
use crate::template::{Column, Field, Texts};

/// A followed table. `is_identity` of a column: whether it belongs to the primary key.
pub struct Wanted {
    /// `DATABASE.TABLE`, for PostgreSQL `SCHEMA.TABLE`, for SQL Server `DATABASE.SCHEMA.TABLE`.
    pub name: String,
    pub columns: Vec<Column>,
}

/// The contents of one object.
#[derive(Debug, Default, PartialEq)]
pub struct Event {
    /// The changes in order, each with the index of its table.
    pub changes: Vec<(usize, Happened)>,
    /// A time of the database, in milliseconds since 1970. Everything that was committed before it is earlier in the stream.
    pub time_ms: Option<u64>,
    /// The place in the database's log, as the tool reports it.
    pub place: String,
    /// Equal for all events of one transaction: its id if the tool reports it, otherwise its time.
    pub transaction: String,
}

/// The kind of change.
#[derive(Debug, PartialEq)]
pub enum Happened {
    /// `old` is missing for an insert, and for an update that did not change the key. `new` is missing for a delete.
    Row {
        old: Option<Vec<Field>>,
        new: Option<Vec<Field>>,
    },
    Truncated,
    /// A statement after which rows may have other keys, or may have been added without events.
    Altered(String),
}

/// Debezium's text for a large value that an update did not change.
const UNAVAILABLE: &str = "__debezium_unavailable_value";

/// Decodes one object. `null` is a tombstone of Debezium; its Redis sink writes `default`.
pub fn decode(format: Format, text: &[u8], tables: &[Wanted]) -> Result<Event> {
    if format == Format::Debezium && text == b"default" {
        return Ok(Event::default());
    }
    let value: Value = serde_json::from_slice(text).context("it is not JSON")?;
    match (format, value) {
        (Format::Debezium, Value::Null) => Ok(Event::default()),
        (Format::Debezium, Value::Object(object)) => match (object.get("schema"), object.get("payload")) {
            // A flattened row may have columns of these names among others.
            (Some(schema), Some(payload)) if object.len() == 2 => match payload {
                Value::Null => Ok(Event::default()),
                Value::Object(payload) => debezium(payload, Some(schema), tables),
                _ => bail!("its `payload` is not an object"),
            },
            _ => debezium(&object, None, tables),
        },
        (Format::Canal, Value::Object(object)) => canal(&object, tables),
        (Format::Maxwell, Value::Object(object)) => maxwell(&object, tables),
        _ => bail!("it is not an object"),
    }
}

type Object = Map<String, Value>;

/// Returns the name of an object's table, if it has one.
pub fn table_name(text: &[u8]) -> Option<String> {
    let value: Value = serde_json::from_slice(text).ok()?;
    let object = value.get("payload").unwrap_or(&value);
    let source = object.get("source").unwrap_or(object);
    let text = |names: &[&str]| names.iter().find_map(|name| source.get(name)?.as_str());
    let schema = text(&["schema", "__schema", "db", "__db", "database"])?;
    Some(format!("{schema}.{}", text(&["table", "__table"])?))
}

// Debezium, with or without `schema` and `payload`, unchanged or flattened by ExtractNewRecordState.

fn debezium(object: &Object, schema: Option<&Value>, tables: &[Wanted]) -> Result<Event> {
    if object.contains_key("__op") {
        return flattened(object, schema, tables);
    }
    let Some(source) = object.get("source").and_then(Value::as_object) else {
        // A heartbeat contains the time at which it was sent, not the time of the log. BEGIN and END of a transaction have no rows.
        let is_heartbeat = object.contains_key("ts_ms") && object.keys().all(|name| name.starts_with("ts_"));
        let is_boundary = matches!(string(object, "status"), Ok("BEGIN" | "END")) && object.contains_key("id");
        ensure!(
            is_heartbeat || is_boundary,
            "it has no `source`, nor `__op`: {}. Flattened events need add.fields=op,db,schema,table,source.ts_ms",
            names(object)
        );
        return Ok(Event::default());
    };
    let is_snapshot = !matches!(source.get("snapshot"), None | Some(Value::Null | Value::Bool(false)))
        && source.get("snapshot").and_then(Value::as_str) != Some("false");
    let mut event = Event { place: place(source, &PLACES), ..Event::default() };
    let id = object.get("transaction").and_then(|transaction| transaction.get("id")).map(Value::to_string);
    event.transaction = id.unwrap_or_else(|| first(source, &TRANSACTIONS));
    if object.contains_key("ddl") {
        if !is_snapshot {
            event.changes = altered(string(object, "ddl")?, source.get("db").and_then(Value::as_str), tables);
        }
        return Ok(event);
    }
    let operation = string(object, "op")?;
    if operation == "m" {
        return Ok(event);
    }
    if !is_snapshot {
        event.time_ms = Some(number(source, "ts_ms")?);
    }
    for (index, table) in debezium_tables(source, "", tables)? {
        let row = |name: &str| match object.get(name) {
            Some(Value::Object(row)) => {
                fields(table, |column| row.get(column), |column| by_schema(schema, column)).map(Some)
            }
            None | Some(Value::Null) => Ok(None),
            Some(_) => bail!("its `{name}` is not an object"),
        };
        let missing = |name: &str| format!("`{operation}` of {} has no `{name}`", table.name);
        let happened = match operation {
            "c" | "r" => Happened::Row { old: None, new: Some(row("after")?.with_context(|| missing("after"))?) },
            "u" => {
                let old = row("before")?;
                if old.is_none() {
                    check_keys(table)?;
                }
                Happened::Row { old, new: Some(row("after")?.with_context(|| missing("after"))?) }
            }
            "d" => Happened::Row { old: Some(row("before")?.with_context(|| missing("before"))?), new: None },
            "t" => Happened::Truncated,
            other => bail!("its `op` is `{other}`"),
        };
        event.changes.push((index, happened));
    }
    Ok(event)
}

/// The fields that distinguish places in the logs of databases.
const PLACES: [&str; 9] =
    ["file", "pos", "row", "lsn", "txId", "commit_lsn", "change_lsn", "event_serial_no", "commit_scn"];

/// The fields that distinguish transactions, in order of preference.
const TRANSACTIONS: [&str; 5] = ["gtid", "txId", "commit_lsn", "commit_scn", "ts_ms"];

/// The new row, or the deleted one, with metadata among its columns.
fn flattened(object: &Object, schema: Option<&Value>, tables: &[Wanted]) -> Result<Event> {
    let operation = string(object, "__op")?;
    let names = |names: &[&str], prefix: &str| names.iter().map(|name| format!("{prefix}{name}")).collect::<Vec<_>>();
    let mut event = Event { place: place(object, &names(&PLACES, "__")), ..Event::default() };
    event.transaction = first(object, &[names(&TRANSACTIONS, "__"), names(&TRANSACTIONS, "__source_")].concat());
    if operation != "r" {
        let time =
            object.get("__source_ts_ms").context("it has no `__source_ts_ms`: add source.ts_ms to add.fields")?;
        event.time_ms = Some(time.as_u64().context("its `__source_ts_ms` is not a number")?);
    }
    for (index, table) in debezium_tables(object, "__", tables)? {
        check_keys(table)?;
        let row = || fields(table, |column| object.get(column), |column| by_schema(schema, column)).map(Some);
        let is_deleted = match object.get("__deleted") {
            Some(Value::Bool(is_deleted)) => *is_deleted,
            Some(Value::String(text)) => text == "true",
            _ => bail!("it has no `__deleted`: set delete.tombstone.handling.mode=rewrite"),
        };
        let happened = match (operation, is_deleted) {
            ("c" | "u" | "r", false) => Happened::Row { old: None, new: row()? },
            ("d", true) => Happened::Row { old: row()?, new: None },
            ("t", _) => Happened::Truncated,
            (other, _) => bail!("its `__op` is `{other}`"),
        };
        event.changes.push((index, happened));
    }
    Ok(event)
}

/// Returns the followed tables that an event concerns. A stream of SQL Server may have tables of the same schema and name in several databases.
fn debezium_tables<'t>(object: &Object, prefix: &str, tables: &'t [Wanted]) -> Result<Vec<(usize, &'t Wanted)>> {
    let get = |name: &str| object.get(&format!("{prefix}{name}")).and_then(Value::as_str);
    let table = get("table").with_context(|| format!("it has no `{prefix}table`"))?;
    let schema = get("schema").or_else(|| get("db")).with_context(|| format!("it has no `{prefix}db`"))?;
    let (short, database) = (format!("{schema}.{table}"), get("db").unwrap_or_default());
    let full = format!("{database}.{short}");
    ensure!(
        get("connector") != Some("sqlserver") || named(tables, &short).next().is_none(),
        "the stream of SQL Server may have {short} of several databases: set the name of the table to {full}"
    );
    Ok(named(tables, &short).chain(named(tables, &full)).collect())
}

/// Checks that the templates contain only columns of the key, because the event does not contain the old values of other columns.
fn check_keys(table: &Wanted) -> Result<()> {
    let Some(other) = table.columns.iter().find(|column| !column.is_identity) else { return Ok(()) };
    bail!(
        "an update of {} does not contain the row before it, so the old {} is unknown: the database must log whole rows (PostgreSQL: \
         REPLICA IDENTITY FULL), and events must not be flattened",
        table.name,
        other.name
    )
}

/// Returns why a column's values differ from SQL's texts, according to the event's schema.
fn by_schema(schema: Option<&Value>, column: &str) -> Option<String> {
    let named = |fields: &Value, name: &str| {
        fields.as_array()?.iter().find(|field| field.get("field").and_then(Value::as_str) == Some(name)).cloned()
    };
    let fields = schema?.get("fields")?;
    let row = named(fields, "after").or_else(|| named(fields, "before"));
    let field = named(row.as_ref().map_or(Some(fields), |row| row.get("fields"))?, column)?;
    let kind = field.get("type").and_then(Value::as_str)?;
    let meaning = field.get("name").and_then(Value::as_str);
    let is_text = kind == "string" || (kind.starts_with("int") && meaning.is_none());
    (!is_text).then(|| meaning.unwrap_or(kind).to_owned())
}

// Canal. A message has the rows of one event of the binlog. All values are texts.

fn canal(object: &Object, tables: &[Wanted]) -> Result<Event> {
    let kind = string(object, "type")?;
    let mut event = Event { place: place(object, &["es", "gtid"]), ..Event::default() };
    event.transaction = first(object, &["gtid", "es"]);
    match kind {
        "INSERT" | "UPDATE" | "DELETE" => {}
        // The text of a statement whose rows follow, which MariaDB logs by default.
        "QUERY" if object.get("isDdl") == Some(&Value::Bool(false)) => return Ok(event),
        "CREATE" | "ALTER" | "ERASE" | "QUERY" | "TRUNCATE" | "RENAME" | "CINDEX" | "DINDEX" => {
            event.changes = altered(string(object, "sql")?, object.get("database").and_then(Value::as_str), tables);
            return Ok(event);
        }
        // The rows of an XA transaction arrived when it was prepared, and may be rolled back now.
        "XACOMMIT" | "XAROLLBACK" => {
            let altered = |index| (index, Happened::Altered(format!("the end of an XA transaction ({kind})")));
            event.changes = (0..tables.len()).map(altered).collect();
            return Ok(event);
        }
        "GTID" | "MHEARTBEAT" => return Ok(event),
        other => bail!("its `type` is `{other}`"),
    }
    event.time_ms = Some(number(object, "es")?);
    let name = format!("{}.{}", string(object, "database")?, string(object, "table")?);
    let Some(rows) = object.get("data").and_then(Value::as_array) else {
        bail!("{kind} of {name} has no `data`: the binlog must have rows, binlog_format=ROW")
    };
    let by_type = |column: &str| {
        let text = object.get("mysqlType")?.get(column)?.as_str()?.to_ascii_lowercase();
        // An ENUM or SET appears as its number.
        let others = ["float", "double", "real", "bit", "enum", "set"];
        let is_other = others.iter().any(|name| text.starts_with(name)) || text.contains("blob");
        (is_other || text.contains("binary")).then_some(text)
    };
    let before = object.get("old").and_then(Value::as_array);
    let named = named(tables, &name).flat_map(|table| rows.iter().enumerate().map(move |row| (table, row)));
    for ((index, table), (at, row)) in named {
        let row = row.as_object().context("its `data` has a row that is not an object")?;
        let fields = |old: Option<&Object>| {
            let value = |column: &str| old.and_then(|old| old.get(column)).or_else(|| row.get(column));
            // Canal decodes every text as UTF-8.
            let is_broken = |column: &str| {
                value(column)?.as_str()?.contains('\u{fffd}').then(|| "text that is not UTF-8".to_owned())
            };
            fields(table, value, |column| by_type(column).or_else(|| is_broken(column))).map(Some)
        };
        let happened = match kind {
            "INSERT" => Happened::Row { old: None, new: fields(None)? },
            "DELETE" => Happened::Row { old: fields(None)?, new: None },
            _ => {
                let before = before.filter(|before| before.len() == rows.len()).and_then(|before| before.get(at));
                let before =
                    before.and_then(Value::as_object).context("its `old` does not have as many rows as `data`")?;
                Happened::Row { old: fields(Some(before))?, new: fields(None)? }
            }
        };
        event.changes.push((index, happened));
    }
    Ok(event)
}

// Maxwell. `old` contains the columns that an update has changed.

fn maxwell(object: &Object, tables: &[Wanted]) -> Result<Event> {
    let kind = string(object, "type")?;
    let mut event = Event { place: place(object, &["position", "xid", "xoffset", "ts"]), ..Event::default() };
    event.transaction = first(object, &["xid", "ts"]);
    match kind {
        "insert" | "update" | "delete" => event.time_ms = Some(number(object, "ts")?.saturating_mul(1000)),
        "bootstrap-insert" => {}
        "bootstrap-start" | "bootstrap-complete" => return Ok(event),
        "table-create" | "table-alter" | "table-drop" | "database-create" | "database-alter" | "database-drop" => {
            event.changes = altered(string(object, "sql")?, object.get("database").and_then(Value::as_str), tables);
            return Ok(event);
        }
        other => bail!("its `type` is `{other}`"),
    }
    let name = format!("{}.{}", string(object, "database")?, string(object, "table")?);
    for (index, table) in named(tables, &name) {
        let row = object.get("data").and_then(Value::as_object).context("it has no `data`")?;
        let fields = |old: Option<&Object>| {
            let value = |column: &str| old.and_then(|old| old.get(column)).or_else(|| row.get(column));
            fields(table, value, |_| None).map(Some)
        };
        let happened = match kind {
            "update" => {
                let old = object.get("old").and_then(Value::as_object).context("its update has no `old`")?;
                Happened::Row { old: fields(Some(old))?, new: fields(None)? }
            }
            "delete" => Happened::Row { old: fields(None)?, new: None },
            _ => Happened::Row { old: None, new: fields(None)? },
        };
        event.changes.push((index, happened));
    }
    Ok(event)
}

// Values of columns in the form of SQL's texts.

/// Returns the values of a table's columns. `refusal` returns why a column's values differ from SQL's texts.
fn fields<'v>(
    table: &Wanted,
    value: impl Fn(&str) -> Option<&'v Value>,
    refusal: impl Fn(&str) -> Option<String>,
) -> Result<Vec<Field>> {
    let field = |column: &Column| {
        let name = &column.name;
        let value = value(name).with_context(|| format!("{} has no column {name}", table.name))?;
        if let Some(kind) = refusal(name) {
            bail!("the column {name} of {} is of the type {kind}, whose text in JSON is not SQL's", table.name);
        }
        // Debezium writes NULL for a value that it cannot convert.
        ensure!(!column.is_identity || !value.is_null(), "the column {name} of the key of {} is NULL", table.name);
        field(value, column.texts).with_context(|| format!("the column {name} of {} is {value}", table.name))
    };
    table.columns.iter().map(field).collect()
}

fn field(value: &Value, texts: Texts) -> Result<Field> {
    let text = match value {
        Value::Null => return Ok(Field::Null),
        Value::Number(number) => {
            ensure!(number.is_u64() || number.is_i64(), "the text of a number that is not a 64-bit integer is lost");
            match number.as_i64() {
                // Debezium writes a BIGINT UNSIGNED as a signed integer.
                Some(signed) if texts == Texts::Unsigned => signed.cast_unsigned().to_string(),
                _ => number.to_string(),
            }
        }
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => bail!("it is neither a text nor an integer"),
    };
    let is_fit = match texts {
        Texts::Integer => is_integer(&text),
        Texts::Unsigned => is_integer(&text) && !text.starts_with('-'),
        Texts::Uuid => value.is_string() && is_uuid(&text),
        _ => text != UNAVAILABLE,
    };
    ensure!(is_fit, "it is not of the type that `key` of the table says");
    Ok(Field::Text(Bytes::from(text)))
}

/// Whether it is an integer in SQL's form, without leading zeros.
fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) && (!digits.starts_with('0') || text == "0")
}

/// Whether it is a UUID in lower case.
fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        })
}

// DDL. All three tools forward the statement.

/// The first words of statements that do not change the rows of a table.
const HARMLESS: [&str; 6] = ["ANALYZE", "OPTIMIZE", "CHECK", "GRANT", "REVOKE", "LOCK"];
/// Words of ALTER TABLE that may add or remove rows, even of another table in the statement.
const SWAPS: [&str; 2] = ["RENAME", "EXCHANGE"];
/// Words of ALTER TABLE that may add or remove rows, or change the key.
const REWRITES: [&str; 4] = ["PARTITION", "TABLESPACE", "PRIMARY", "CONVERT"];
/// Words of ALTER TABLE that change a column.
const CHANGES: [&str; 3] = ["MODIFY", "CHANGE", "DROP"];

/// Returns the effect of a statement on followed tables. If in doubt, this is [`Happened::Altered`].
fn altered(sql: &str, database: Option<&str>, tables: &[Wanted]) -> Vec<(usize, Happened)> {
    let (tokens, database) = (sql::tokens(sql), database.unwrap_or_default());
    let is_verb = |verb: &str| tokens.first().is_some_and(|first| first.is(verb));
    let object = sql::object(&tokens);
    let is_about = |kinds: &[&str]| object.first().is_some_and(|kind| kind.is_one_of(kinds));
    let happened = |table: &Wanted| {
        let (schema, name) = table.name.split_once('.').unwrap_or(("", &table.name));
        if is_verb("DROP") && is_about(&["DATABASE", "SCHEMA"]) {
            let is_dropped = sql::names_database(&tokens, database, schema);
            return is_dropped.then(|| Happened::Altered(sql.to_owned()));
        }
        if !sql::names(&tokens, database, schema, name) {
            return None;
        }
        if is_verb("TRUNCATE") {
            return Some(Happened::Truncated);
        }
        let has_one = |list: &[&str]| tokens.iter().any(|token| token.is_one_of(list));
        let is_altered = if is_verb("CREATE") {
            tokens.get(1).is_some_and(|second| second.is("OR")) && is_about(&["TABLE"])
        } else if is_verb("DROP") {
            is_about(&["TABLE", "TABLES"])
        } else if is_verb("ALTER") {
            let has_column =
                || tokens.iter().any(|token| table.columns.iter().any(|column| token.is_name(&column.name)));
            // The statement may name other tables, as in REFERENCES.
            let subject = match object.get(1..).unwrap_or_default() {
                [first, second, rest @ ..] if first.is("IF") && second.is("EXISTS") => rest,
                rest => rest,
            };
            let is_subject = sql::after_name(subject, database, schema, name).is_some();
            has_one(&SWAPS) || (is_subject && (has_one(&REWRITES) || (has_one(&CHANGES) && has_column())))
        } else {
            !tokens.first().is_some_and(|first| first.is_one_of(&HARMLESS))
        };
        is_altered.then(|| Happened::Altered(sql.to_owned()))
    };
    tables.iter().enumerate().filter_map(|(index, table)| Some((index, happened(table)?))).collect()
}

// Parts of objects.

/// Returns the followed tables with a name: one for each of its filters.
fn named<'t>(tables: &'t [Wanted], name: &str) -> impl Iterator<Item = (usize, &'t Wanted)> {
    tables.iter().enumerate().filter(move |(_, table)| table.name == name)
}

fn string<'v>(object: &'v Object, name: &str) -> Result<&'v str> {
    let value = object.get(name).with_context(|| format!("it has no `{name}`: {}", names(object)))?;
    value.as_str().with_context(|| format!("its `{name}` is not a text"))
}

fn number(object: &Object, name: &str) -> Result<u64> {
    object.get(name).and_then(Value::as_u64).with_context(|| format!("its `{name}` is not a time"))
}

/// Returns the names in an object, for an error.
fn names(object: &Object) -> String {
    let names: Vec<_> = object.keys().map(String::as_str).collect();
    format!("it has {}", names.join(", "))
}

/// Returns the value of the first name that has one.
fn first(object: &Object, names: &[impl AsRef<str>]) -> String {
    let mut values = names.iter().filter_map(|name| object.get(name.as_ref()));
    let value = values.find(|value| !value.is_null() && value.as_str() != Some(""));
    value.map(Value::to_string).unwrap_or_default()
}

/// Returns the values of those names that are in the object.
fn place(object: &Object, names: &[impl AsRef<str>]) -> String {
    let values = names.iter().filter_map(|name| object.get(name.as_ref())).filter(|value| !value.is_null());
    values.map(Value::to_string).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, texts: Texts, is_identity: bool) -> Column {
        Column { name: name.to_owned(), type_id: 0, texts, is_hex: false, is_identity }
    }

    fn users() -> Vec<Wanted> {
        let columns = vec![column("id", Texts::Integer, true), column("mail", Texts::Any, false)];
        vec![Wanted { name: "shop.users".to_owned(), columns }]
    }

    /// Like `users`, with templates that contain only the key.
    fn ids(texts: Texts) -> Vec<Wanted> {
        vec![Wanted { name: "shop.users".to_owned(), columns: vec![column("id", texts, true)] }]
    }

    /// Returns a short form of an event.
    fn told(event: &Event) -> String {
        let field = |field: &Field| match field {
            Field::Text(text) => String::from_utf8_lossy(text).into_owned(),
            _ => "NULL".to_owned(),
        };
        let row = |row: &Option<Vec<Field>>| match row {
            Some(fields) => fields.iter().map(field).collect::<Vec<_>>().join(","),
            None => "-".to_owned(),
        };
        let change = |(_, happened): &(usize, Happened)| match happened {
            Happened::Row { old, new } => format!(" {}>{}", row(old), row(new)),
            Happened::Truncated => " truncated".to_owned(),
            Happened::Altered(_) => " altered".to_owned(),
        };
        let time = event.time_ms.map_or("-".to_owned(), |time| format!("{}.{:03}", time / 1000 % 100, time % 1000));
        time + &event.changes.iter().map(change).collect::<String>()
    }

    fn story(format: Format, lines: &str) -> Vec<String> {
        lines.lines().map(|line| told(&decode(format, line.as_bytes(), &users()).unwrap())).collect()
    }

    fn refused(format: Format, text: &str, tables: &[Wanted], part: &str) {
        let error = format!("{:#}", decode(format, text.as_bytes(), tables).unwrap_err());
        assert!(error.contains(part), "{text}: {error}");
    }

    #[test]
    fn debezium_is_understood() {
        let story = story(Format::Debezium, include_str!("fixtures/debezium.jsonl"));
        let expected = [
            "-",
            "- ->1,ada@x",
            "-",
            "26.579 ->2,grace@x",
            "27.821 2,grace@x>2,hopper@x",
            "29.062 2,hopper@x>-",
            "-",
            "29.062 ->3,hopper@x",
            "33.166 ->4,NULL",
            "33.166 ->5,joan@x",
            "34.781 4,NULL>4,mail@x",
            "34.781 5,joan@x>5,mail@x",
            "34.781 4,mail@x>-",
            "-",
            "34.781 5,mail@x>-",
            "-",
            "41.039 1,ada@x>-",
            "-",
            "41.039 1,ada@x>-",
            "-",
            "-",
            "59.523 truncated",
            "60.792",
            "- altered",
        ];
        assert_eq!(story, expected);
    }

    #[test]
    fn debezium_of_postgresql_is_understood() {
        let tables = [Wanted { name: "public.users".to_owned(), columns: vec![column("id", Texts::Uuid, true)] }];
        let lines = include_str!("fixtures/debezium-postgres.jsonl").lines();
        let story: Vec<_> =
            lines.map(|line| told(&decode(Format::Debezium, line.as_bytes(), &tables).unwrap())).collect();
        let [two, three, six] = ["2", "3", "6"].map(|end| format!("0193a1b2-0000-7000-8000-00000000000{end}"));
        let expected = [
            "1.422".to_owned(),
            format!("1.665 ->{two}"),
            format!("1.671 ->{two}"),
            format!("1.675 {two}>-"),
            "-".to_owned(),
            format!("1.675 ->{three}"),
            "1.699 truncated".to_owned(),
            format!("1.715 {six}>{six}"),
            "-".to_owned(),
        ];
        assert_eq!(story, expected);
    }

    #[test]
    fn canal_is_understood() {
        let story = story(Format::Canal, include_str!("fixtures/canal.jsonl"));
        let expected = [
            "3.000 ->1,ada@x",
            "26.000 ->2,grace@x",
            "27.000 2,grace@x>2,hopper@x",
            "29.000 2,hopper@x>3,hopper@x",
            "33.000 ->4,NULL ->5,joan@x",
            "34.000 4,NULL>4,mail@x 5,joan@x>5,mail@x",
            "34.000 4,mail@x>- 5,mail@x>-",
            "41.000 1,ada@x>-",
            "41.000 1,ada@x>-",
            "-",
            "-",
            "- truncated",
            "60.000",
            "- altered",
        ];
        assert_eq!(story, expected);
    }

    #[test]
    fn maxwell_is_understood() {
        let story = story(Format::Maxwell, include_str!("fixtures/maxwell.jsonl"));
        let expected = [
            "21.000",
            "-",
            "- ->1,ada@x",
            "-",
            "26.000 ->2,grace@x",
            "27.000 2,grace@x>2,hopper@x",
            "29.000 2,hopper@x>3,hopper@x",
            "33.000 ->4,NULL",
            "33.000 ->5,joan@x",
            "34.000 4,NULL>4,mail@x",
            "34.000 5,joan@x>5,mail@x",
            "34.000 4,mail@x>-",
            "34.000 5,mail@x>-",
            "41.000 1,ada@x>-",
            "41.000 1,ada@x>-",
            "-",
            "60.000",
            "- altered",
        ];
        assert_eq!(story, expected);
    }

    #[test]
    fn a_repeated_event_has_the_same_place_and_another_event_does_not() {
        for (format, lines) in [
            (Format::Debezium, include_str!("fixtures/debezium.jsonl")),
            (Format::Canal, include_str!("fixtures/canal.jsonl")),
            (Format::Maxwell, include_str!("fixtures/maxwell.jsonl")),
        ] {
            let events: Vec<_> = lines.lines().map(|line| decode(format, line.as_bytes(), &users()).unwrap()).collect();
            let changes: Vec<_> = events.iter().filter(|event| !event.changes.is_empty()).collect();
            let repeated = changes.windows(2).filter(|pair| pair[0] == pair[1]).count();
            assert_eq!(repeated, 1, "{format:?}");
            let places: std::collections::BTreeSet<_> = changes.iter().map(|event| format!("{event:?}")).collect();
            assert_eq!(places.len(), changes.len() - 1, "{format:?}");
        }
    }

    #[test]
    fn debezium_may_have_schemas_or_be_flattened() {
        let row = r#"{"before":null,"after":{"id":7},"source":{"ts_ms":5000,"schema":"shop","db":"x","table":"users"},"op":"u"}"#;
        let schema = |fields: &str| {
            format!(r#"{{"schema":{{"fields":[{{"field":"after","fields":[{fields}]}}]}},"payload":{row}}}"#)
        };
        let told = |text: &str| told(&decode(Format::Debezium, text.as_bytes(), &ids(Texts::Integer)).unwrap());
        assert_eq!(told(row), "5.000 ->7");
        assert_eq!(told(&schema(r#"{"field":"id","type":"int64"}"#)), "5.000 ->7");
        assert_eq!(told(r#"{"schema":null,"payload":null}"#), "-");
        for (field, part) in [
            (r#"{"field":"id","type":"int32","name":"io.debezium.time.Date"}"#, "of the type io.debezium.time.Date"),
            (r#"{"field":"id","type":"bytes","name":"org.apache.kafka.connect.data.Decimal"}"#, "data.Decimal"),
            (r#"{"field":"id","type":"double"}"#, "of the type double"),
        ] {
            refused(Format::Debezium, &schema(field), &ids(Texts::Any), part);
        }
        let flat = |op: &str, deleted: &str| {
            format!(
                r#"{{"id":7,"payload":1,"schema":2,"__op":"{op}","__db":"shop","__table":"users","__source_ts_ms":5000{deleted}}}"#
            )
        };
        assert_eq!(told(&flat("c", r#","__deleted":"false""#)), "5.000 ->7");
        assert_eq!(told(&flat("d", r#","__deleted":"true""#)), "5.000 7>-");
        assert_eq!(told(&flat("r", r#","__deleted":false"#)), "- ->7");
        refused(Format::Debezium, &flat("d", ""), &ids(Texts::Integer), "delete.tombstone.handling.mode=rewrite");
        refused(Format::Debezium, &flat("u", r#","__deleted":"false""#), &users(), "the old mail is unknown");
        refused(Format::Debezium, row, &users(), "REPLICA IDENTITY FULL");
    }

    #[test]
    fn an_unknown_shape_is_refused_with_its_names() {
        for (format, text, part) in [
            (Format::Debezium, "{", "not JSON"),
            (Format::Debezium, r#"{"id":7,"name":"x"}"#, "it has id, name. Flattened events need add.fields="),
            (Format::Debezium, r#"{"op":"x","source":{"ts_ms":1,"db":"shop","table":"users"}}"#, "its `op` is `x`"),
            (Format::Debezium, r#"{"op":"c","source":{"db":"shop","table":"users"}}"#, "`ts_ms` is not a time"),
            (Format::Debezium, r#"{"op":"d","source":{"ts_ms":1,"db":"shop","table":"users"}}"#, "has no `before`"),
            (Format::Debezium, "7", "not an object"),
            (Format::Canal, "null", "not an object"),
            (Format::Canal, r#"{"type":"MERGE"}"#, "its `type` is `MERGE`"),
            (Format::Canal, r#"{"kind":"INSERT"}"#, "it has no `type`: it has kind"),
            (Format::Canal, r#"{"type":"INSERT","database":"a","table":"b","es":1,"data":null}"#, "binlog_format=ROW"),
            (
                Format::Canal,
                r#"{"type":"UPDATE","database":"shop","table":"users","es":1,"data":[{"id":"1","mail":"a"}],"old":[]}"#,
                "as many rows",
            ),
            (Format::Maxwell, r#"{"type":"upsert"}"#, "its `type` is `upsert`"),
            (Format::Maxwell, r#"{"type":"insert","ts":1,"database":"shop","table":"users"}"#, "no `data`"),
            (
                Format::Maxwell,
                r#"{"type":"insert","ts":1,"database":"shop","table":"users","data":{"id":1}}"#,
                "shop.users has no column mail",
            ),
        ] {
            refused(format, text, &users(), part);
        }
    }

    #[test]
    fn values_are_the_texts_of_sql_or_are_refused() {
        let insert =
            |id: &str| format!(r#"{{"type":"insert","ts":1,"database":"shop","table":"users","data":{{"id":{id}}}}}"#);
        for (texts, id, text) in [
            (Texts::Integer, "18446744073709551615", "18446744073709551615"),
            (Texts::Integer, "-9223372036854775808", "-9223372036854775808"),
            (Texts::Integer, "\"42\"", "42"),
            (Texts::Unsigned, "-1", "18446744073709551615"),
            (Texts::Unsigned, "-9223372036854775808", "9223372036854775808"),
            (Texts::Unsigned, "9223372036854775807", "9223372036854775807"),
            (Texts::Unsigned, "\"18446744073709551615\"", "18446744073709551615"),
            (Texts::Any, "\"\\u00fc\\n 007\"", "ü\n 007"),
            (Texts::Any, "2026", "2026"),
            (Texts::Uuid, "\"0193a1b2-0000-7000-8000-00000000000f\"", "0193a1b2-0000-7000-8000-00000000000f"),
        ] {
            let event = decode(Format::Maxwell, insert(id).as_bytes(), &ids(texts)).unwrap();
            assert_eq!(told(&event), format!("1.000 ->{text}"));
        }
        let mut tables = ids(Texts::Integer);
        refused(Format::Maxwell, &insert("null"), &tables, "the column id of the key of shop.users is NULL");
        tables[0].columns[0].is_identity = false;
        let null = decode(Format::Maxwell, insert("null").as_bytes(), &tables).unwrap();
        assert_eq!(null.changes, [(0, Happened::Row { old: None, new: Some(vec![Field::Null]) })]);
        for (texts, id, part) in [
            (Texts::Integer, "18446744073709551616", "not a 64-bit integer"),
            (Texts::Any, "1.0", "not a 64-bit integer"),
            (Texts::Integer, "1e3", "not a 64-bit integer"),
            (Texts::Integer, "\"007\"", "the type that `key` of the table says"),
            (Texts::Integer, "\"dzWUAA==\"", "`key`"),
            (Texts::Integer, "\"\"", "`key`"),
            (Texts::Unsigned, "\"-1\"", "`key`"),
            (Texts::Unsigned, "\"AP//////////\"", "`key`"),
            (Texts::Uuid, "\"0193A1B2-0000-7000-8000-00000000000F\"", "`key`"),
            (Texts::Any, "\"__debezium_unavailable_value\"", "`key`"),
            (Texts::Any, "true", "neither a text nor an integer"),
            (Texts::Any, "{\"scale\":2,\"value\":\"dzU=\"}", "neither a text nor an integer"),
            (Texts::Any, "[\"a\"]", "the column id of shop.users is [\"a\"]"),
        ] {
            refused(Format::Maxwell, &insert(id), &ids(texts), part);
        }
        for (id, kind, part) in [
            ("a", "varbinary(9)", "of the type varbinary(9)"),
            ("2", "enum('red','green')", "of the type enum('red','green')"),
            ("5", "set('a','b','c')", "of the type set('a','b','c')"),
            ("Zo\u{fffd}", "varchar(50)", "of the type text that is not UTF-8"),
        ] {
            let row = format!(
                r#"{{"type":"INSERT","database":"shop","table":"users","es":1,"data":[{{"id":"{id}"}}],"mysqlType":{{"id":"{kind}"}}}}"#
            );
            refused(Format::Canal, &row, &ids(Texts::Any), part);
        }
    }

    #[test]
    fn a_table_of_sql_server_belongs_to_one_database() {
        let event = |database: &str| {
            let source = format!(
                r#"{{"connector":"sqlserver","ts_ms":1,"snapshot":"false","db":"{database}","schema":"dbo","table":"users"}}"#
            );
            format!(r#"{{"before":null,"after":{{"id":1}},"source":{source},"op":"c"}}"#)
        };
        let named = |name: &str| vec![Wanted { name: name.to_owned(), ..ids(Texts::Integer).remove(0) }];
        let changes = |database| {
            let event = decode(Format::Debezium, event(database).as_bytes(), &named("shop.dbo.users")).unwrap();
            event.changes.len()
        };
        assert_eq!([changes("shop"), changes("other")], [1, 0]);
        refused(Format::Debezium, &event("shop"), &named("dbo.users"), "set the name of the table to shop.dbo.users");
    }

    #[test]
    fn the_end_of_an_xa_transaction_may_alter_every_table() {
        for kind in ["XACOMMIT", "XAROLLBACK"] {
            let object = format!(r#"{{"type":"{kind}","database":"","table":"","es":1,"data":null}}"#);
            assert_eq!(told(&decode(Format::Canal, object.as_bytes(), &users()).unwrap()), "- altered");
        }
    }

    #[test]
    fn statements_that_change_rows_or_keys_are_recognised() {
        let told = |sql: &str, database: &str| {
            let altered = altered(sql, Some(database), &users());
            altered.first().map_or("-", |(_, happened)| match happened {
                Happened::Truncated => "truncated",
                _ => "altered",
            })
        };
        for sql in [
            "ALTER TABLE `users` MODIFY `mail` varchar(9)",
            "alter table shop.users drop primary key, add primary key (mail)",
            "/* hint */ ALTER TABLE IF EXISTS users CHANGE id number bigint",
            "ALTER TABLE users TRUNCATE PARTITION p0",
            "ALTER TABLE spare EXCHANGE PARTITION p0 WITH TABLE users",
            "ALTER TABLE users IMPORT TABLESPACE",
            "RENAME TABLE `users` TO `_users_del`, `_users_gho` TO `users`",
            "ALTER TABLE _users_new RENAME TO users",
            "DROP TABLE IF EXISTS a, users",
            "DROP DATABASE shop",
            "CREATE OR REPLACE TABLE users (id bigint)",
            "LOAD DATA INFILE 'x' INTO TABLE users",
        ] {
            assert_eq!(told(sql, "shop"), "altered", "{sql}");
        }
        assert_eq!(told("TRUNCATE TABLE users", "shop"), "truncated");
        assert_eq!(told("truncate shop.users", "other"), "truncated");
        for sql in [
            "ALTER TABLE users ADD COLUMN nick text, ADD INDEX (mail)",
            "ALTER TABLE orders ADD CONSTRAINT f FOREIGN KEY (u) REFERENCES users (id), DROP COLUMN id",
            "CREATE TABLE users_copy LIKE users",
            "CREATE INDEX i ON users (mail)",
            "DROP INDEX i ON users",
            "OPTIMIZE TABLE users",
            "TRUNCATE TABLE users_archive",
            "TRUNCATE TABLE `users-old`",
            "TRUNCATE TABLE `shop-test`.users",
            "DROP DATABASE `shop-test`",
            "DROP TABLE `users`.shop",
            "DROP TABLE /* users */ other",
        ] {
            assert_eq!(told(sql, "shop"), "-", "{sql}");
        }
        assert_eq!(told("TRUNCATE TABLE users", "other"), "-");
        let quoted = [Wanted { name: "shop.my-users".to_owned(), columns: Vec::new() }];
        assert_eq!(altered("TRUNCATE TABLE `my-users`", Some("shop"), &quoted), [(0, Happened::Truncated)]);
    }
}
