//! The publication, and what the catalogue says about a table and its place there. DDL is not in the log, so the follower compares
//! this *definition* before each heartbeat with the one that the filter was filled for.

use anyhow::{Context, Result};
use postgres::{Client, Statement};

use super::config;
use super::lsn::Lsn;

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

/// The publication whose changes the stream contains.
pub struct Publication {
    pub name: String,
    /// The query of a table's definition.
    definition: Statement,
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
        let schemas = if version.parse::<u32>()? < SCHEMAS_SINCE { "''" } else { SCHEMAS };
        let definition = client.prepare(&DEFINITION.replace("SCHEMAS", schemas))?;
        Ok(Self { name: name.to_owned(), definition })
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
