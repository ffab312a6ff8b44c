//! The definition of a followed table in PostgreSQL's catalogue, and whether the publication includes its changes.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};

use super::session::{Client, Publication};
use crate::config;
use crate::table::{Facts, Table, templates};
use crate::template::{Column, Texts};

/// Types whose equal values have equal texts: bool, bytea, "char", name, int8, int2, int4, text, oid, cidr, inet, varchar, date, time,
/// timestamp, timestamptz, uuid. The same is true for enums, and for numbers with a scale.
const EXACT_TYPES: [u32; 17] = [16, 17, 18, 19, 20, 21, 23, 25, 26, 650, 869, 1043, 1082, 1083, 1114, 1184, 2950];
const NUMERIC: u32 = 1700;

/// The object id of the type `bytea`.
const BYTEA: u32 = 17;

/// A table, with properties that only PostgreSQL needs.
pub struct Described {
    pub table: Table,
    pub oid: u32,
    /// The quoted name, for SQL.
    pub quoted: String,
    /// Whether it has partitions. The stream reports their changes for this table.
    pub is_partitioned: bool,
}

/// Returns a column. `texts` are the texts of its type, or of the type below a domain.
pub fn column(name: String, type_oid: u32, is_identity: bool, texts: Texts) -> Column {
    Column { name, type_id: type_oid, texts, is_hex: type_oid == BYTEA, is_identity }
}

/// Returns the texts of a type, by its object id.
pub fn texts(type_oid: u32) -> Texts {
    match type_oid {
        16 => Texts::Boolean,
        20 | 21 | 23 | 26 => Texts::Integer,
        700 | 701 | 1700 => Texts::Number,
        1082 | 1114 | 1184 => Texts::Date,
        2950 => Texts::Uuid,
        _ => Texts::Any,
    }
}

/// Reads a table's description from the catalogue.
pub fn describe(client: &mut Client, config: &config::Table, publication: &Publication) -> Result<Described> {
    let name = &config.name;
    // The definition is read first, so that a change while the rest is read is noticed later.
    let definition = publication.definition(client, config)?.unwrap_or_default();
    let row = client
        .query_opt(
            "SELECT c.oid, relkind::text, relpersistence::text, relreplident::text, c.oid::regclass::text, \
                    nspname::text, relname::text, row_security_active(c.oid), quote_ident(current_user), \
                    EXISTS (SELECT FROM pg_index WHERE indrelid = c.oid AND indisprimary AND NOT indimmediate), \
                    (SELECT min(inhrelid::regclass::text) FROM pg_inherits WHERE inhparent = c.oid AND relkind = 'r') \
             FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE c.oid = to_regclass($1)",
            &[name],
        )
        .context("PostgreSQL rejected a query of its catalogue")?
        .with_context(|| format!("there is no table {name}"))?;
    let (oid, kind): (u32, String) = (row.try_get(0)?, row.try_get(1)?);
    let (persistence, identity): (String, String) = (row.try_get(2)?, row.try_get(3)?);
    let is_partitioned = kind == "p";
    ensure!(kind == "r" || is_partitioned, "{name} is not a table");
    ensure!(persistence == "p", "{name} is unlogged or temporary: its changes are not in PostgreSQL's log");
    ensure!(identity != "n", "{name} has no replica identity: ALTER TABLE {name} REPLICA IDENTITY ...");
    if is_partitioned {
        ensure!(
            matches!(identity.as_str(), "d" | "f"),
            "{name} is partitioned: ALTER TABLE {name} REPLICA IDENTITY DEFAULT"
        );
        check_partitions(client, oid)?;
    }
    let quoted: String = row.try_get(4)?;
    let full_name = (row.try_get(5)?, row.try_get(6)?);
    ensure!(
        !row.try_get::<_, bool>(7)?,
        "row-level security hides rows of {name} from the role {role}: ALTER ROLE {role} BYPASSRLS",
        role = row.try_get::<_, &str>(8)?
    );
    let has_deferrable_key: bool = row.try_get(9)?;
    if let Some(heir) = row.try_get::<_, Option<&str>>(10)? {
        bail!(
            "{heir} inherits from {name}, so SELECT finds its rows there, and the stream does not: use partitions instead"
        );
    }
    // The columns after INCLUDE belong to the index and not to its key, and a deferrable key identifies no row.
    let rows = client.query(
        "SELECT a.attname::text, a.atttypid, c.relkind = 'r' AND c.relreplident = 'f' OR k.is_key, k.is_key, \
                coalesce(l.collisdeterministic, true), a.attgenerated <> '', b.oid, b.typtype = 'e', b.typmod, \
                format_type(a.atttypid, a.atttypmod) || CASE WHEN NOT l.collisdeterministic THEN ' COLLATE ' || quote_ident(l.collname) ELSE '' END \
         FROM pg_class c \
         JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped \
         LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indimmediate \
             AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END \
         CROSS JOIN LATERAL (SELECT coalesce(a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]), false)) k (is_key) \
         LEFT JOIN pg_collation l ON l.oid = a.attcollation \
         CROSS JOIN LATERAL (WITH RECURSIVE types AS ( \
             SELECT t.oid, t.typbasetype, t.typtype, CASE t.typbasetype WHEN 0 THEN a.atttypmod ELSE t.typtypmod END AS typmod \
             FROM pg_type t WHERE t.oid = a.atttypid \
             UNION ALL SELECT t.oid, t.typbasetype, t.typtype, CASE t.typbasetype WHEN 0 THEN types.typmod ELSE t.typtypmod END \
             FROM types JOIN pg_type t ON t.oid = types.typbasetype) \
             SELECT oid, typtype, typmod FROM types WHERE typbasetype = 0) b \
         WHERE c.oid = $1 ORDER BY a.attnum",
        &[&oid],
    )?;
    let (mut columns, mut facts, mut generated_key) = (Vec::new(), Vec::new(), None);
    for row in rows {
        let (name, type_oid, is_key): (String, _, bool) = (row.try_get(0)?, row.try_get(1)?, row.try_get(3)?);
        if row.try_get(5)? {
            // The stream does not contain generated columns.
            generated_key = generated_key.or(is_key.then_some(name));
            continue;
        }
        let base: u32 = row.try_get(6)?;
        let (is_enum, modifier): (bool, i32) = (row.try_get(7)?, row.try_get(8)?);
        let is_exact_type = EXACT_TYPES.contains(&base) || is_enum || (base == NUMERIC && modifier >= 0);
        let is_exact = row.try_get::<_, bool>(4)? && is_exact_type;
        facts.push(Facts { is_key, is_exact, type_name: row.try_get(9)? });
        columns.push(column(name, type_oid, row.try_get(2)?, texts(base)));
    }
    if !columns.iter().any(|column| column.is_identity) {
        // Partitions may have their own replica identity, but each contains the primary key.
        let remedy = if is_partitioned { "" } else { ", or ALTER TABLE ... REPLICA IDENTITY FULL" };
        if let Some(column) = &generated_key {
            bail!(
                "the stream lacks the primary key of {name}, because its column {column} is generated: add another column to it{remedy}"
            );
        }
        ensure!(
            !has_deferrable_key,
            "the primary key of {name} is DEFERRABLE, so it identifies no row: make it NOT DEFERRABLE{remedy}"
        );
        bail!("{name} has no primary key: give it one{remedy}");
    }
    if is_partitioned {
        templates(config, &columns)
            .with_context(|| format!("{name} is partitioned: only its primary key can be in templates"))?;
    }
    // Tables that only inherit from this one are separate tables.
    let from = if is_partitioned { quoted.clone() } else { format!("ONLY {quoted}") };
    let names = (oid.to_string(), full_name, from, definition);
    let table = Table::new(config, names, (columns, &facts), generated_key.is_none())?;
    Ok(Described { table, oid, quoted, is_partitioned })
}

/// Checks that the log contains the changes of each partition, with the primary key of the old row.
fn check_partitions(client: &mut Client, oid: u32) -> Result<()> {
    let row = client.query_opt(
        "WITH RECURSIVE parts (oid) AS (
             SELECT $1::oid UNION ALL SELECT i.inhrelid FROM parts JOIN pg_inherits i ON i.inhparent = parts.oid)
         SELECT c.oid::regclass::text, c.relkind <> 'r' OR c.relpersistence <> 'p'
         FROM parts JOIN pg_class c ON c.oid = parts.oid
         WHERE c.relkind <> 'p' AND (c.relkind <> 'r' OR c.relpersistence <> 'p' OR c.relreplident NOT IN ('d', 'f'))
         LIMIT 1",
        &[&oid],
    )?;
    let Some(row) = row else { return Ok(()) };
    let name: &str = row.try_get(0)?;
    ensure!(
        !row.try_get::<_, bool>(1)?,
        "the partition {name} is foreign, unlogged or temporary: its changes are not in PostgreSQL's log"
    );
    bail!("the partition {name} has another replica identity: ALTER TABLE {name} REPLICA IDENTITY DEFAULT")
}

/// Checks that the publication covers all rows of the tables and every kind of change.
/// The error contains the SQL that creates or completes it.
pub fn check_publication(client: &mut Client, publication: &Publication, tables: &[Described]) -> Result<()> {
    let publication_name = &publication.name;
    let row = client.query_opt(
        "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate, pubviaroot FROM pg_publication WHERE pubname = $1",
        &[publication_name],
    )?;
    // A table may have several filters.
    let names: BTreeSet<_> = tables.iter().map(|table| table.quoted.as_str()).collect();
    let Some(row) = row else {
        bail!(
            "there is no publication {publication_name}; as the tables' owner: CREATE PUBLICATION {publication_name} FOR TABLE {}",
            names.into_iter().collect::<Vec<_>>().join(", ")
        );
    };
    ensure!(
        row.try_get::<_, bool>(0)?,
        "the publication {publication_name} leaves out some kinds of changes: ALTER PUBLICATION {publication_name} \
         SET (publish = 'insert, update, delete, truncate')"
    );
    let is_via_root: bool = row.try_get(1)?;
    for table in tables {
        let name = &table.quoted;
        ensure!(
            is_via_root || !table.is_partitioned,
            "the publication {publication_name} shows changes of {name} as those of its partitions: ALTER PUBLICATION {publication_name} \
             SET (publish_via_partition_root = true)"
        );
        let (is_covered, leaves_out) = publication.covers(client, table.oid)?;
        ensure!(
            is_covered,
            "the publication {publication_name} lacks the table {name}, or shows its changes as those of a table that it is a partition of: \
             ALTER PUBLICATION {publication_name} ADD TABLE {name}"
        );
        ensure!(
            !leaves_out,
            "the publication {publication_name} leaves out rows of the table {name}: remove its WHERE clause"
        );
    }
    Ok(())
}
