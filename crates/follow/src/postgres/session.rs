//! A session of PostgreSQL whose server must answer in time. The `postgres` crate waits forever on a dead connection, for example one
//! that a firewall has dropped, or whose server has lost power.

use std::collections::HashSet;
use std::future::Future;
use std::io::{self, BufRead, ErrorKind, Read};
use std::pin::Pin;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::{Buf, Bytes};
use futures_util::StreamExt;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Config, CopyOutStream, NoTls, Row, Statement, ToStatement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::wire::{TIMEOUT, UNANSWERED};
use crate::config;
use crate::database;

/// How long a reader of COPY waits before it fails with [`ErrorKind::TimedOut`]. It can then continue to read.
const COPY_TIMEOUT: Duration = Duration::from_secs(1);

/// A session.
pub struct Client {
    runtime: Runtime,
    client: tokio_postgres::Client,
    /// Whether the server has timed out.
    is_dark: bool,
}

type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

impl Client {
    /// Opens a session.
    pub fn connect(config: &Config) -> Result<Self> {
        let mut config = config.clone();
        // These limits are for a COPY, which may be silent while the server is alive.
        config.connect_timeout(TIMEOUT).tcp_user_timeout(TIMEOUT);
        config.keepalives_idle(TIMEOUT / 2).keepalives_interval(TIMEOUT / 5).keepalives_retries(3);
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let connect = async {
            Ok::<_, anyhow::Error>(match database::tls(&config)? {
                Some(tls) => {
                    let (client, connection) = config.connect(MakeRustlsConnect::new(tls)).await?;
                    tokio::spawn(async { _ = connection.await });
                    client
                }
                None => {
                    let (client, connection) = config.connect(NoTls).await?;
                    tokio::spawn(async { _ = connection.await });
                    client
                }
            })
        };
        let client = runtime
            .block_on(async { timeout(TIMEOUT, connect).await })
            .unwrap_or_else(|_| bail!(UNANSWERED))
            .with_context(|| database::unreachable(&config))?;
        Ok(Self { runtime, client, is_dark: false })
    }

    pub fn query<T: ?Sized + ToStatement>(&mut self, text: &T, parameters: Parameters) -> Result<Vec<Row>> {
        self.answer(async |client| client.query(text, parameters).await)
    }

    pub fn query_one<T: ?Sized + ToStatement>(&mut self, text: &T, parameters: Parameters) -> Result<Row> {
        self.answer(async |client| client.query_one(text, parameters).await)
    }

    pub fn query_opt<T: ?Sized + ToStatement>(&mut self, text: &T, parameters: Parameters) -> Result<Option<Row>> {
        self.answer(async |client| client.query_opt(text, parameters).await)
    }

    pub fn execute<T: ?Sized + ToStatement>(&mut self, text: &T, parameters: Parameters) -> Result<u64> {
        self.answer(async |client| client.execute(text, parameters).await)
    }

    pub fn batch_execute(&mut self, text: &str) -> Result<()> {
        self.answer(async |client| client.batch_execute(text).await)
    }

    pub fn prepare(&mut self, text: &str) -> Result<Statement> {
        self.answer(async |client| client.prepare(text).await)
    }

    /// Begins a COPY to the client.
    pub fn copy_out(&mut self, text: &str) -> Result<CopyReader<'_>> {
        let stream = Box::pin(self.answer(async |client| client.copy_out(text).await)?);
        Ok(CopyReader { runtime: &self.runtime, stream, bytes: Bytes::new() })
    }

    /// Whether the connection has ended or is dead.
    pub fn is_closed(&self) -> bool {
        self.is_dark || self.client.is_closed()
    }

    fn answer<'a, T, F>(&'a mut self, ask: impl FnOnce(&'a tokio_postgres::Client) -> F) -> Result<T>
    where
        F: Future<Output = Result<T, tokio_postgres::Error>>,
    {
        if self.is_dark {
            bail!(UNANSWERED);
        }
        let reply = ask(&self.client);
        match self.runtime.block_on(async { timeout(TIMEOUT, reply).await }) {
            Ok(result) => Ok(result?),
            Err(_) => {
                self.is_dark = true;
                bail!(UNANSWERED)
            }
        }
    }
}

/// Reads the data of a COPY.
pub struct CopyReader<'a> {
    runtime: &'a Runtime,
    stream: Pin<Box<CopyOutStream>>,
    bytes: Bytes,
}

impl BufRead for CopyReader<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.bytes.is_empty() {
            let next = self.stream.next();
            match self.runtime.block_on(async { timeout(COPY_TIMEOUT, next).await }) {
                Ok(Some(Ok(bytes))) => self.bytes = bytes,
                Ok(Some(Err(error))) => return Err(io::Error::other(error)),
                Ok(None) => break,
                Err(_) => return Err(ErrorKind::TimedOut.into()),
            }
        }
        Ok(&self.bytes)
    }

    fn consume(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

impl Read for CopyReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}

// Determines which transactions other sessions can see. The log contains 32 bits of a transaction's id, a snapshot all 64.

/// A snapshot of PostgreSQL's list of running transactions: `pg_current_snapshot()`.
#[derive(Debug)]
pub struct Snapshot {
    /// All transactions with smaller ids have ended.
    xmin: u64,
    /// Transactions with this or a larger id have not begun.
    xmax: u64,
    running: Vec<u64>,
}

impl Snapshot {
    /// Takes a snapshot.
    pub fn take(client: &mut Client) -> Result<Self> {
        let row = client.query_one("SELECT pg_current_snapshot()::text", &[]).context("lost the PostgreSQL server")?;
        Self::parse(row.try_get(0)?)
    }

    /// Parses PostgreSQL's text for a snapshot.
    pub fn parse(text: &str) -> Result<Self> {
        let mut parts = text.splitn(3, ':');
        let mut number = || parts.next().and_then(|part| part.parse().ok());
        let (xmin, xmax) = number().zip(number()).with_context(|| format!("`{text}` is not a snapshot"))?;
        let running = parts.next().unwrap_or_default();
        let running = running.split(',').filter(|xid| !xid.is_empty()).map(str::parse).collect::<Result<_, _>>()?;
        Ok(Self { xmin, xmax, running })
    }

    /// Whether a transaction that the log shows as committed has become visible to new snapshots.
    pub fn shows(&self, xid: u64) -> bool {
        xid < self.xmin || (xid < self.xmax && !self.running.contains(&xid))
    }

    /// Returns the 64-bit id with these low bits that is nearest to `xmax`.
    pub fn full(&self, xid: u32) -> u64 {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_possible_wrap,
            reason = "the low bits, and their distance"
        )]
        let distance = xid.wrapping_sub(self.xmax as u32) as i32;
        self.xmax.wrapping_add_signed(distance.into())
    }
}

/// Returns the ids of all transactions that have not ended. A snapshot does not contain them all, because its `xmax` is the id after the
/// last transaction that ended.
pub fn unfinished(client: &mut Client) -> Result<HashSet<String>> {
    let query = "SELECT transactionid::text FROM pg_locks WHERE locktype = 'transactionid' AND granted";
    let rows = client.query(query, &[]).context("lost the PostgreSQL server")?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

// Whether every COMMIT waits for this follower: the setting `synchronous_standby_names`, the standbys that are connected, and
// `synchronous_commit`.

/// The setting, parsed: how many of the named standbys a COMMIT waits for.
#[derive(Debug, PartialEq)]
struct Demand {
    count: usize,
    names: Vec<String>,
}

/// Whether the setting lists a name.
pub fn lists(setting: &str, name: &str) -> bool {
    parse(setting).is_some_and(|demand| demand.names.iter().any(|listed| listed.eq_ignore_ascii_case(name)))
}

/// Returns why the setting does not make every COMMIT wait for a standby of this name, or `None` if it does. The text contains the SQL
/// statement that changes it.
pub fn objection(setting: &str, name: &str) -> Option<String> {
    let demand = parse(setting);
    let (count, mut names) = demand.map_or((0, Vec::new()), |demand| (demand.count, demand.names));
    let has_name = names.iter().any(|listed| listed.eq_ignore_ascii_case(name));
    let has_star = names.iter().any(|listed| listed == "*");
    let reason = match (has_name, has_star) {
        (true, false) if count == names.len() => return None,
        (_, true) => "accepts any standby".to_owned(),
        (true, _) => format!("demands {count} of {} standbys", names.len()),
        (false, _) => format!("does not list {name}"),
    };
    names.retain(|listed| listed != "*");
    if !has_name {
        names.push(name.to_owned());
    }
    let list: Vec<_> = names.iter().map(|listed| quoted(listed)).collect();
    Some(format!(
        "synchronous_standby_names = '{setting}' {reason}, so COMMIT does not wait for this follower; as a superuser: ALTER SYSTEM SET \
         synchronous_standby_names = 'FIRST {} ({})'; SELECT pg_reload_conf()",
        list.len(),
        list.join(", ")
    ))
}

/// Returns why COMMIT may wait for another standby of this name, or `None`. A standby follower has a session but no slot; PostgreSQL does
/// not wait for it.
pub fn duplicate(client: &mut Client, name: &str) -> Result<Option<String>> {
    let row = client.query_opt(
        "SELECT r.pid FROM pg_stat_replication r JOIN pg_stat_activity a USING (pid) \
         LEFT JOIN pg_replication_slots s ON s.active_pid = r.pid \
         WHERE lower(r.application_name) = lower($1::text) AND (a.datid IS NULL OR s.slot_name::text <> $1::text) LIMIT 1",
        &[&name],
    )?;
    row.map(|row| {
        let pid: i32 = row.try_get(0)?;
        Ok(format!(
            "COMMIT may wait for another standby with the application_name {name} (pid {pid}): give that one another name"
        ))
    })
    .transpose()
}

/// Returns the roles, the database or the server for which `synchronous_commit` is `off` or `local` by default.
pub fn unsynchronous(client: &mut Client) -> Result<Option<String>> {
    // The setting of this session's role does not concern writers, and hides the server's setting.
    let row = client.query_one(
        "WITH given AS (
             SELECT s.setrole, s.setdatabase, substr(line, 20) ~* '^(off|local|false|no|0)$' AS is_weak
             FROM pg_db_role_setting s, unnest(s.setconfig) line
             WHERE line ILIKE 'synchronous_commit=%'
               AND s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))),
         own AS (SELECT oid FROM pg_roles WHERE rolname = session_user)
         SELECT string_agg(name, ', ' ORDER BY name) FROM (
             SELECT concat_ws(' in ', CASE WHEN setrole <> 0 THEN 'the role ' || r.rolname WHEN setdatabase = 0 THEN 'all roles' END,
                              CASE WHEN setdatabase <> 0 THEN 'the database ' || current_database() END) AS name
             FROM given LEFT JOIN pg_roles r ON r.oid = setrole
             WHERE is_weak AND setrole NOT IN (SELECT oid FROM own)
             UNION ALL
             SELECT 'the server' FROM pg_settings
             WHERE name = 'synchronous_commit' AND reset_val IN ('off', 'local')
               AND NOT EXISTS (SELECT FROM given WHERE setrole = 0 OR setrole IN (SELECT oid FROM own))) weak",
        &[],
    )?;
    Ok(row.try_get(0)?)
}

/// Quotes a name unless it is an identifier.
fn quoted(name: &str) -> String {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && !["first", "any"].iter().any(|word| name.eq_ignore_ascii_case(word));
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// Parses `FIRST n (names)`, `ANY n (names)`, `n (names)`, or a list of names, one of which is required.
fn parse(setting: &str) -> Option<Demand> {
    let text = setting.trim();
    let word = text.split(|character: char| !character.is_ascii_alphabetic()).next().unwrap_or_default();
    let has_word = ["first", "any"].iter().any(|keyword| word.eq_ignore_ascii_case(keyword));
    let rest = if has_word { text.get(word.len()..)?.trim_start() } else { text };
    let digits = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
    let (number, list) = rest.split_at(digits);
    let list = list.trim();
    let inner = list.strip_prefix('(').and_then(|list| list.strip_suffix(')'));
    let (count, list) = match (number.parse(), inner) {
        (Ok(count), Some(inner)) => (count, inner),
        _ => (1, text),
    };
    let names = split(list);
    (!names.is_empty()).then_some(Demand { count, names })
}

/// Splits a list at the commas outside double quotes, and removes the quotes.
fn split(list: &str) -> Vec<String> {
    let (mut names, mut name, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut characters = list.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if is_quoted && characters.next_if_eq(&'"').is_some() => name.push('"'),
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => names.push(std::mem::take(&mut name)),
            _ if !is_quoted && character.is_whitespace() => {}
            _ => name.push(character),
        }
    }
    names.push(name);
    names.retain(|name| !name.is_empty());
    names
}

// The publication, and the definition of a table. DDL is not in the log, so before each heartbeat the follower compares the *definition*
// with the one for which the filter was filled.

/// Reads the definition of a table: a hash of its object id, columns, storage, partitions, replica identity, publication, whether row-level
/// security hides rows from the follower, whether tables inherit from it, its templates and the arguments of BF.RESERVE. Any DDL that rewrites
/// the rows changes their file node. The query takes no lock, because DDL that has locked the table may wait for this follower.
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

/// Finds a table and its partitioned parents in a publication. The view `pg_publication_tables` would lock the table, from PostgreSQL 16
/// on: see [`DEFINITION`].
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

impl Publication {
    /// Returns the publication with this name, whether or not it exists. Its definitions are read with the same client.
    pub fn named(client: &mut Client, name: &str) -> Result<Self> {
        let version: String = client.query_one("SHOW server_version_num", &[])?.try_get(0)?;
        let has_schemas = version.parse::<u32>()? >= SCHEMAS_SINCE;
        let definition = client.prepare(&DEFINITION.replace("SCHEMAS", if has_schemas { SCHEMAS } else { "''" }))?;
        let covers = client.prepare(&COVERS.replace("IN_SCHEMA", if has_schemas { IN_SCHEMA } else { "false" }))?;
        Ok(Self { name: name.to_owned(), definition, covers })
    }

    /// Returns whether the stream reports the changes of a table under the table itself, and whether it omits rows.
    pub fn covers(&self, client: &mut Client, table_oid: u32) -> Result<(bool, bool)> {
        let row = client.query_one(&self.covers, &[&self.name, &table_oid])?;
        Ok((row.try_get(0)?, row.try_get(1)?))
    }

    /// Reads the definition of a table, or `None` if no table has this name.
    pub fn definition(&self, client: &mut Client, table: &config::Table) -> Result<Option<String>> {
        let row = client
            .query_opt(&self.definition, &[&table.name, &self.name, &table.contents()])
            .context("PostgreSQL rejected a query of its catalogue")?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_are_visible_once_they_are_not_in_the_list() {
        let snapshot = Snapshot::parse("10:20:12,15").unwrap();
        let shown: Vec<u64> = (5..25).filter(|xid| snapshot.shows(*xid)).collect();
        assert_eq!(shown, [5, 6, 7, 8, 9, 10, 11, 13, 14, 16, 17, 18, 19]);
        assert!(Snapshot::parse("10:20:").unwrap().shows(19));
        assert!(Snapshot::parse("x").is_err());
    }

    #[test]
    fn ids_are_extended_across_the_wrap() {
        let wrap = 1_u64 << 32;
        let snapshot = Snapshot { xmin: wrap + 1, xmax: wrap + 5, running: vec![wrap + 2] };
        assert_eq!([snapshot.full(u32::MAX), snapshot.full(4), snapshot.full(9)], [wrap - 1, wrap + 4, wrap + 9]);
        assert_eq!(
            [u32::MAX, 1, 2, 4, 5].map(|xid| snapshot.shows(snapshot.full(xid))),
            [true, true, false, true, false]
        );
    }

    #[test]
    fn every_listed_standby_must_be_required() {
        for setting in
            ["gate", " Gate ", "FIRST 1 (gate)", "first 2 (gate, other)", "2(a , \"gate\")", "ANY 2 (gate,\"b,c\")"]
        {
            assert_eq!(objection(setting, "gate"), None, "{setting}");
        }
        for (setting, part) in [
            ("", "does not list gate"),
            ("other", "'FIRST 2 (other, gate)'"),
            ("gate, other", "demands 1 of 2"),
            ("ANY 1 (gate, other)", "demands 1 of 2"),
            ("1 (other, gate)", "demands 1 of 2"),
            ("*", "accepts any standby"),
            ("FIRST 2 (gate, *)", "'FIRST 1 (gate)'"),
            ("\"a \"\"b\"", "'FIRST 2 (\"a \"\"b\", gate)'"),
            ("gates", "does not list gate"),
        ] {
            let objection = objection(setting, "gate").unwrap_or_default();
            assert!(objection.contains(part), "{setting}: {objection}");
        }
        assert!(lists("a, gate", "gate") && !lists("gated", "gate") && !lists("", "gate"));
    }
}
