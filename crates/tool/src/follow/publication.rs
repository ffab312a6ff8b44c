//! The publication, and what the catalogue says about a table and its place there. DDL is not in the log, so the follower compares
//! this *definition* before each heartbeat with the one that the filter was filled for.

use anyhow::{Context, Result};
use tokio_postgres::Statement;

use super::config;
use super::lsn::Lsn;
use super::session::Client;

/// Reads the definition of a table: a hash that changes with its object id, columns, storage, partitions, replica identity, publication,
/// whether row-level security hides rows from the follower, and whether tables inherit from it, and
/// with its templates and the words of BF.RESERVE. Any DDL that rewrites the rows gives them another file node. It takes no lock: DDL may wait for this follower while it has the table
/// locked.
const DEFINITION: &str = "
    SELECT md5(concat_ws(' ', c.oid, c.relfilenode, c.relkind, c.relpersistence, c.relnatts, c.relreplident, i.indkey,
        (SELECT string_agg(concat_ws(' ', a.attnum, a.attname, a.atttypid, a.atttypmod, a.attcollation, a.attgenerated), ','
                           ORDER BY a.attnum)
         FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
        c.relnamespace,
        (WITH RECURSIVE parts (oid) AS (
             SELECT c.oid WHERE c.relkind = 'p'
             UNION ALL SELECT i.inhrelid FROM parts JOIN pg_inherits i ON i.inhparent = parts.oid)
         SELECT string_agg(concat_ws(' ', l.oid, l.relfilenode, l.relkind, l.relpersistence, l.relreplident), ',' ORDER BY l.oid)
         FROM parts JOIN pg_class l ON l.oid = parts.oid),
        (SELECT concat_ws(' ', p.oid, p.xmin, r.oid, r.xmin, SCHEMAS)
         FROM pg_publication p LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid WHERE p.pubname = $2),
        CASE WHEN row_security_active(c.oid) THEN 'hidden' END,
        CASE WHEN c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid) THEN 'inherited' END, $3::text))
    FROM pg_class c
    LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indimmediate AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END
    WHERE c.oid = to_regclass($1)";
/// The schemas of a publication, which PostgreSQL 15 introduced.
const SCHEMAS: &str = "(SELECT string_agg(concat_ws(' ', s.oid, s.pnnspid), ',' ORDER BY s.oid) FROM pg_publication_namespace s WHERE s.pnpubid = p.oid)";
const SCHEMAS_SINCE: u32 = 150_000;

/// Finds a table and those that it is a partition of in a publication. The view `pg_publication_tables` would lock the table, from PostgreSQL
/// 16 on: see [`DEFINITION`].
const COVERS: &str = "
    WITH RECURSIVE ancestors (oid) AS (
        SELECT $2::oid
        UNION ALL SELECT i.inhparent
        FROM ancestors JOIN pg_class c ON c.oid = ancestors.oid AND c.relispartition JOIN pg_inherits i ON i.inhrelid = c.oid),
    published AS (
        SELECT c.oid = $2 AS is_own, p.pubviaroot,
            CASE WHEN p.puballtables OR IN_SCHEMA THEN NULL ELSE to_jsonb(r) ->> 'prqual' END AS filter
        FROM ancestors JOIN pg_class c ON c.oid = ancestors.oid JOIN pg_publication p ON p.pubname = $1
        LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid
        WHERE p.puballtables OR r.oid IS NOT NULL OR IN_SCHEMA)
    SELECT coalesce(bool_and(is_own OR NOT pubviaroot), false), coalesce(bool_or(is_own AND filter IS NOT NULL), false) FROM published";
const IN_SCHEMA: &str =
    "EXISTS (SELECT FROM pg_publication_namespace s WHERE s.pnpubid = p.oid AND s.pnnspid = c.relnamespace)";

/// The publication whose changes the stream contains.
pub struct Publication {
    pub name: String,
    /// The query of a table's definition.
    definition: Statement,
    /// The query of [`Self::covers`].
    covers: Statement,
}

/// A change of a table's definition.
pub struct Altered {
    /// The end of the log when the definition was read. The DDL is before it.
    pub end: Lsn,
    /// The new definition, or `None` if no table has the name.
    pub definition: Option<String>,
}

impl Publication {
    /// Returns the publication with this name, whether or not it exists. Its definitions are read with the same client.
    ///
    /// # Errors
    /// A lost connection.
    pub fn named(client: &mut Client, name: &str) -> Result<Self> {
        let version: String = client.query_one("SHOW server_version_num", &[])?.try_get(0)?;
        let has_schemas = version.parse::<u32>()? >= SCHEMAS_SINCE;
        let definition = client.prepare(&DEFINITION.replace("SCHEMAS", if has_schemas { SCHEMAS } else { "''" }))?;
        let covers = client.prepare(&COVERS.replace("IN_SCHEMA", if has_schemas { IN_SCHEMA } else { "false" }))?;
        Ok(Self { name: name.to_owned(), definition, covers })
    }

    /// Returns whether the stream shows the changes of a table as its own, and whether it leaves out rows.
    ///
    /// # Errors
    /// A lost connection.
    pub fn covers(&self, client: &mut Client, table_oid: u32) -> Result<(bool, bool)> {
        let row = client.query_one(&self.covers, &[&self.name, &table_oid])?;
        Ok((row.try_get(0)?, row.try_get(1)?))
    }

    /// Reads the definition of a table, or `None` if no table has this name.
    ///
    /// # Errors
    /// A lost connection.
    pub fn definition(&self, client: &mut Client, table: &config::Table) -> Result<Option<String>> {
        let row = client
            .query_opt(&self.definition, &[&table.name, &self.name, &table.contents()])
            .context("PostgreSQL rejected a query of its catalogue")?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }
}
