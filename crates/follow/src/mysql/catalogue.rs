//! The definition of a table in MariaDB's catalogue, and the conditions under which the log contains all changes of its rows.

use anyhow::{Context, Result, bail, ensure};

use super::binlog::Columns;
use super::rows::Kind;
use super::session::{Session, naming_privilege};
use crate::config;
use crate::sql;
use crate::table::{Facts, Table, templates};
use crate::template::{Column, Texts};

/// Returns the schema and the name of a table in the configuration.
fn parse_name(name: &str, default: &str) -> Result<(String, String)> {
    let (schema, table) = name.split_once('.').unwrap_or((default, name));
    let [schema, table] = [schema, table].map(|part| part.trim_matches('`').to_owned());
    // DDL is recognised by these names in the statement's text, which is in the client's character set.
    let is_plain = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '-'))
    };
    ensure!(is_plain(&schema) && is_plain(&table), "`{name}` is not a name of ASCII letters, digits, `_`, `$` and `-`");
    Ok((schema, table))
}

/// A row of the catalogue's columns.
struct Described {
    name: String,
    data_type: String,
    /// The type with its length and attributes.
    column_type: String,
    charset: String,
    collation: String,
    is_key: bool,
    extra: String,
}

/// The definition of a table in the catalogue.
struct Entry {
    schema: String,
    name: String,
    kind: String,
    engine: String,
    columns: Vec<Described>,
    /// The foreign keys in the form of SHOW CREATE TABLE.
    references: Vec<String>,
    /// The number of additional columns at the end of the rows in the log, which the catalogue does not show.
    hidden: usize,
}

/// Returns a text that determines the items of the rows; `None` if no table has this name.
pub fn definition(session: &mut Session, config: &config::Table, default: &str) -> Result<Option<String>> {
    Ok(entry(session, config, default)?.map(|entry| entry.definition(config)))
}

impl Entry {
    fn definition(&self, config: &config::Table) -> String {
        let mut text = format!("{} {} {} {}\n", self.schema, self.name, self.kind, self.engine);
        for column in &self.columns {
            let Described { name, column_type, charset, collation, is_key, extra, .. } = column;
            text += &format!("{name} {column_type} {charset} {collation} {is_key} {extra}\n");
        }
        text += &self.references.join("\n");
        if self.hidden > 0 {
            text += &format!("\n{} hidden\n", self.hidden);
        }
        text += &config.contents();
        format!("{:08x}", crc32fast::hash(text.as_bytes()))
    }
}

fn entry(session: &mut Session, config: &config::Table, default: &str) -> Result<Option<Entry>> {
    let (schema, name) = parse_name(&config.name, default)?;
    let place = format!("WHERE TABLE_SCHEMA = '{schema}' AND TABLE_NAME = '{name}'");
    let row = session.texts(&format!(
        "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE FROM information_schema.TABLES {place}"
    ))?;
    let Some(row) = row.into_iter().next() else { return Ok(None) };
    let mut parts = row.into_iter().map(Option::unwrap_or_default);
    let mut next = || parts.next().unwrap_or_default();
    let (schema, name, kind, engine) = (next(), next(), next(), next());
    let rows = session.texts(&format!(
        "SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, CHARACTER_SET_NAME, COLLATION_NAME, COLUMN_KEY, EXTRA \
         FROM information_schema.COLUMNS {place} ORDER BY ORDINAL_POSITION"
    ))?;
    let describe = |row: Vec<Option<String>>| {
        let mut parts = row.into_iter().map(Option::unwrap_or_default);
        let mut next = || parts.next().unwrap_or_default();
        let (name, data_type, column_type, charset) = (next(), next().to_lowercase(), next(), next());
        Described { name, data_type, column_type, charset, collation: next(), is_key: next() == "PRI", extra: next() }
    };
    let columns = rows.into_iter().map(describe).collect();
    if kind != "BASE TABLE" {
        return Ok(Some(Entry { schema, name, kind, engine, columns, references: Vec::new(), hidden: 0 }));
    }
    let created = session.texts(&format!("SHOW CREATE TABLE `{schema}`.`{name}`"));
    let created = created.map_err(|error| naming_privilege(error, &format!("SELECT ON {schema}.{name}")))?;
    let text = created.into_iter().next().and_then(|row| row.into_iter().nth(1).flatten()).unwrap_or_default();
    let is_reference = |line: &&str| line.trim_start().starts_with("CONSTRAINT") && line.contains(" FOREIGN KEY ");
    let references = text.lines().filter(is_reference).map(|line| line.trim().to_owned()).collect();
    // MariaDB stores the hash of such a key in a separate column.
    let has_hash = |line: &&str| {
        let tokens = sql::tokens(line);
        tokens.first().is_some_and(|first| first.is("UNIQUE"))
            && tokens.windows(2).any(|pair| matches!(pair, [using, hash] if using.is("USING") && hash.is("HASH")))
    };
    let hidden = text.lines().filter(has_hash).count();
    Ok(Some(Entry { schema, name, kind, engine, columns, references, hidden }))
}

/// Describes a table for the follower and for the log.
pub fn describe(session: &mut Session, config: &config::Table, default: &str) -> Result<(Table, Columns)> {
    let entry = entry(session, config, default)?.with_context(|| {
        format!("there is no table {0}, or it is being altered, or the account needs GRANT SELECT ON {0}", config.name)
    })?;
    let (name, definition) = (&config.name, entry.definition(config));
    let Entry { schema, name: table_name, kind, engine, .. } = &entry;
    ensure!(kind != "SYSTEM VERSIONED", "{name} has system versioning, whose log also has the rows of its history");
    ensure!(kind == "BASE TABLE", "{name} is not a table, but {}", kind.to_lowercase());
    ensure!(
        engine == "InnoDB",
        "{name} has the engine {engine}, which has no transactions: ALTER TABLE {name} ENGINE = InnoDB"
    );
    let changes = |reference: &&String| {
        ["CASCADE", "SET NULL", "SET DEFAULT"].iter().any(|action| {
            reference.contains(&format!("ON DELETE {action}")) || reference.contains(&format!("ON UPDATE {action}"))
        })
    };
    if let Some(reference) = entry.references.iter().find(changes) {
        bail!(
            "the log lacks the rows of {name} that a foreign key deletes or changes: {}: make it RESTRICT, and let the \
             application change the rows",
            reference.trim_end_matches(',')
        );
    }
    let mut kinds: Vec<_> = entry.columns.iter().map(kind_of).collect();
    let columns: Vec<_> = entry.columns.iter().zip(&kinds).map(|(column, kind)| column.of_kind(kind)).collect();
    let facts: Vec<_> = entry.columns.iter().map(facts).collect();
    // The log does not contain the lengths of its values.
    if let Some(column) = entry.columns.iter().find(|column| column.column_type.contains("mariadb-5.3")) {
        bail!(
            "the column {} of {name} has a temporal type in the format of MySQL 5.5 and MariaDB 5.3: convert it with ALTER TABLE {name} FORCE",
            column.name
        );
    }
    let (item, cache_keys) = templates(config, &columns)?;
    let used = |index: usize| cache_keys.iter().chain([&item]).any(|template| template.columns().any(|at| at == index));
    let mut needed: Vec<_> = (0..columns.len()).map(used).collect();
    for ((column, kind), _) in entry.columns.iter().zip(&kinds).zip(&needed).filter(|(_, needed)| **needed) {
        ensure!(
            *kind != Kind::Other,
            "{name}: a template cannot contain the column {}, whose type is {}{}",
            column.name,
            column.column_type,
            if column.charset.is_empty() { String::new() } else { format!(" in {}", column.charset) }
        );
    }
    kinds.resize(kinds.len() + entry.hidden, Kind::Other);
    needed.resize(kinds.len(), false);
    // Without permission to read all columns, the catalogue does not show them.
    let from = format!("`{schema}`.`{table_name}`");
    let read = session.query(&format!("SELECT * FROM {from} LIMIT 0"));
    let read = read.map_err(|error| naming_privilege(error, &format!("SELECT ON {schema}.{table_name}")));
    read.with_context(|| format!("cannot read {name}"))?;
    let full_name = (schema.clone(), table_name.clone());
    let id = format!("{schema}.{table_name}");
    let table = Table::new(config, (id, full_name, from, definition), (columns, &facts), true)?;
    Ok((table, Columns { schema: schema.clone(), name: table_name.clone(), kinds, needed }))
}

fn facts(column: &Described) -> Facts {
    // Other binary collations ignore spaces at the end.
    let is_exact = matches!(column.collation.as_str(), "" | "binary")
        || column.collation.ends_with("_nopad_bin")
        || column.collation == "utf8mb4_0900_bin";
    let type_name = match column.collation.as_str() {
        "" => column.column_type.clone(),
        collation => format!("{} COLLATE {collation}", column.column_type),
    };
    Facts { is_key: column.is_key, is_exact, type_name }
}

impl Described {
    fn of_kind(&self, kind: &Kind) -> Column {
        let texts = match kind {
            Kind::Integer { .. } | Kind::Year => Texts::Integer,
            Kind::Decimal => Texts::Number,
            Kind::Date | Kind::DateTime | Kind::Timestamp => Texts::Date,
            Kind::Uuid => Texts::Uuid,
            _ => Texts::Any,
        };
        Column { name: self.name.clone(), type_id: 0, texts, is_hex: false, is_identity: true }
    }
}

/// Returns the meaning of a column's values.
fn kind_of(column: &Described) -> Kind {
    let column_type = column.column_type.as_str();
    let length = || {
        let (_, rest) = column_type.split_once('(')?;
        rest.split_once(')')?.0.parse::<usize>().ok()
    };
    let is_zerofill = column_type.contains("zerofill");
    if column.extra.contains("VIRTUAL") || column_type.contains("COMPRESSED") {
        return Kind::Other;
    }
    match column.data_type.as_str() {
        "tinyint" | "smallint" | "mediumint" | "int" | "bigint" => Kind::Integer {
            is_unsigned: column_type.contains("unsigned"),
            zeros: length().filter(|_| is_zerofill).unwrap_or(0),
        },
        "decimal" if !is_zerofill => Kind::Decimal,
        "year" if column_type != "year(2)" => Kind::Year,
        "date" => Kind::Date,
        "time" => Kind::Time,
        "datetime" => Kind::DateTime,
        "timestamp" => Kind::Timestamp,
        "char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" => match column.charset.as_str() {
            "utf8mb4" | "utf8mb3" | "utf8" | "ascii" => Kind::Text,
            "latin1" => Kind::Latin1,
            _ => Kind::Other,
        },
        "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" => Kind::Text,
        "binary" => Kind::Binary(length().unwrap_or(1)),
        "bit" => Kind::Bit,
        "enum" => Kind::Enum(names(column_type)),
        "set" => Kind::Set(names(column_type)),
        "uuid" => Kind::Uuid,
        "inet6" => Kind::Inet6,
        "inet4" => Kind::Inet4,
        _ => Kind::Other,
    }
}

/// Returns the quoted names in the type of an ENUM or a SET.
fn names(column_type: &str) -> Vec<String> {
    let (mut names, mut rest) = (Vec::new(), column_type);
    while let Some((_, after)) = rest.split_once('\'') {
        let (mut name, mut after) = (String::new(), after);
        while let Some((part, next)) = after.split_once('\'') {
            name += part;
            after = next;
            // A quote in a name is doubled.
            let Some(next) = after.strip_prefix('\'') else { break };
            name.push('\'');
            after = next;
        }
        names.push(name);
        rest = after;
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_an_enumeration_may_contain_anything() {
        assert_eq!(names("enum('a','b''c','','d,e')"), ["a", "b'c", "", "d,e"]);
        assert!(names("int(11)").is_empty());
    }

    #[test]
    fn names_of_tables_are_plain() {
        let pair = |schema: &str, name: &str| (schema.to_owned(), name.to_owned());
        assert_eq!(parse_name("users", "shop").unwrap(), pair("shop", "users"));
        assert_eq!(parse_name("`shop-2`.`users`", "").unwrap(), pair("shop-2", "users"));
        for name in ["", "a.b.c", "us`ers", "us'ers", "größe"] {
            assert!(parse_name(name, "shop").is_err(), "{name}");
        }
    }
}
