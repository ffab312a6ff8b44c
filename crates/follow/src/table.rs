//! A followed table: what the catalogue says about it, and what a change of a row means for its filter and cache keys.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::{Deref, DerefMut};

use anyhow::{Context, Result, bail, ensure};

use crate::config::{self, EVERY_KEY, Keys};
use crate::pgoutput::{Column, Field, Lsn, Mark, Message, Relation};
use crate::session::{Client, Publication};
use crate::template::Template;

/// Types whose equal values have equal texts: bool, bytea, "char", name, int8, int2, int4, text, oid, cidr, inet, varchar, date, time,
/// timestamp, timestamptz, uuid. Enums, and numbers with a scale, are like them.
const EXACT_TYPES: [u32; 17] = [16, 17, 18, 19, 20, 21, 23, 25, 26, 650, 869, 1043, 1082, 1083, 1114, 1184, 2950];
const NUMERIC: u32 = 1700;

/// A followed table.
#[derive(Clone)]
pub struct Table {
    pub config: config::Table,
    pub keys: Keys,
    pub oid: u32,
    /// The schema and the name.
    pub name: (String, String),
    /// The quoted name, for SQL.
    pub quoted: String,
    /// Whether it has partitions, whose changes the stream shows as those of this table.
    pub is_partitioned: bool,
    /// What the catalogue said when the columns were read. See [`Publication::definition`].
    pub definition: String,
    pub columns: Vec<Column>,
    /// The types below the domains of the columns, by object ids.
    domains: BTreeMap<u32, u32>,
    item: Template,
    cache_keys: Vec<Template>,
    /// Whether the replica identity has lost a column of the templates, or a row could have a cache key that the follower needs. In the first
    /// case an update or a delete does not tell which cached values it concerns. Any change counts as [`Step::Altered`].
    ///
    /// [`Step::Altered`]: crate::table::Step::Altered
    pub is_weak: bool,
    /// The columns of the templates whose equal values may have different texts, with their types.
    pub inexact: Vec<String>,
    /// Whether the items of deleted rows may leave the filter: no other row can have the same item.
    pub deletes: bool,
}

/// What a change of one row means.
#[derive(Debug, Default, PartialEq)]
pub struct Change {
    /// Items, each with a cache key whose value may be wrong.
    pub pairs: Vec<(Vec<u8>, Vec<u8>)>,
    /// The item that has a row now.
    pub put: Option<Vec<u8>>,
    /// The item that no longer has a row.
    pub gone: Option<Vec<u8>>,
}

impl Table {
    pub fn of_catalogue(client: &mut Client, config: &config::Table, publication: &Publication) -> Result<Self> {
        let name = &config.name;
        // First: a change while the rest is read is noticed later.
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
        let (mut columns, mut unique, mut exact, mut described) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut domains, mut generated_key) = (BTreeMap::new(), None);
        for row in rows {
            let column = Column { name: row.try_get(0)?, type_oid: row.try_get(1)?, is_identity: row.try_get(2)? };
            let is_key: bool = row.try_get(3)?;
            if row.try_get(5)? {
                // The stream does not contain it.
                generated_key = generated_key.or(is_key.then_some(column.name));
                continue;
            }
            unique.push(is_key);
            let base: u32 = row.try_get(6)?;
            domains.insert(column.type_oid, base);
            let (is_enum, modifier): (bool, i32) = (row.try_get(7)?, row.try_get(8)?);
            let is_exact_type = EXACT_TYPES.contains(&base) || is_enum || (base == NUMERIC && modifier >= 0);
            exact.push(row.try_get::<_, bool>(4)? && is_exact_type);
            described.push(format!("{} ({})", column.name, row.try_get::<_, &str>(9)?));
            columns.push(column);
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
        let mut parsed = templates(config, &columns, &domains);
        if is_partitioned {
            parsed = parsed.with_context(|| format!("{name} is partitioned: only its primary key can be in templates"));
        }
        let (item, cache_keys) = parsed?;
        check_reserved(config, &cache_keys)?;
        let is_key = unique.contains(&true)
            && generated_key.is_none()
            && unique
                .iter()
                .enumerate()
                .filter(|(_, is_key)| **is_key)
                .all(|(index, _)| item.columns().any(|c| c == index));
        let is_exact = item.columns().all(|index| exact.get(index) == Some(&true));
        let used: BTreeSet<_> = cache_keys.iter().chain([&item]).flat_map(Template::columns).collect();
        let is_inexact = |index: &usize| exact.get(*index) == Some(&false);
        let inexact = used.into_iter().filter(is_inexact).filter_map(|index| described.get(index).cloned()).collect();
        let deletes = config.can_delete() && is_key && is_exact && item.is_injective();
        Ok(Self {
            config: config.clone(),
            keys: config.keys(),
            oid,
            name: full_name,
            quoted,
            is_partitioned,
            definition,
            columns,
            domains,
            item,
            cache_keys,
            is_weak: false,
            inexact,
            deletes,
        })
    }

    /// Takes over a description from the stream.
    pub fn redefine(&mut self, relation: Relation) {
        if relation.columns == self.columns {
            return;
        }
        self.columns = relation.columns;
        self.is_weak = true;
        // A template whose column is gone is not rendered until the catalogue has it again.
        if let Ok((item, cache_keys)) = templates(&self.config, &self.columns, &self.domains) {
            self.is_weak = check_reserved(&self.config, &cache_keys).is_err();
            (self.item, self.cache_keys) = (item, cache_keys);
        }
    }

    /// Returns the item of a row, or `None` if one of its columns is NULL.
    pub fn item(&self, row: &[Field]) -> Result<Option<Vec<u8>>> {
        self.item.render(row, None)
    }

    /// Returns what it means that `old` became `new`. `old` may hold the replica identity only, and is missing for an insert and
    /// for an update that left the replica identity as it was; `new` is missing for a delete.
    pub fn change(&self, old: Option<&[Field]>, new: Option<&[Field]>) -> Result<Change> {
        let mut change = Change::default();
        if let Some(row) = new {
            change.put = self.add_pairs(row, old, &mut change.pairs)?;
        }
        if let Some(row) = old {
            let item = self.add_pairs(row, None, &mut change.pairs)?;
            change.gone = item.filter(|item| change.put.as_ref() != Some(item));
        }
        change.pairs.sort();
        change.pairs.dedup();
        // The first push has made room for four.
        change.pairs.shrink_to_fit();
        Ok(change)
    }

    fn add_pairs(
        &self,
        row: &[Field],
        old: Option<&[Field]>,
        pairs: &mut Vec<(Vec<u8>, Vec<u8>)>,
    ) -> Result<Option<Vec<u8>>> {
        let Some(item) = self.item.render(row, old)? else { return Ok(None) };
        let mut has_key = false;
        for template in &self.cache_keys {
            if let Some(key) = template.render(row, old)? {
                pairs.push((item.clone(), key));
                has_key = true;
            }
        }
        if !has_key {
            // Each needs a column that is NULL. The item has to enter the filter and the journal all the same.
            pairs.push((item.clone(), [self.keys.null.as_bytes(), &item].concat()));
        }
        Ok(Some(item))
    }

    /// Returns patterns for SCAN that match all cache keys of the table, and others.
    pub fn patterns(&self) -> impl Iterator<Item = String> {
        self.cache_keys.iter().map(Template::pattern)
    }

    /// Whether a row can have this cache key.
    pub fn has_key(&self, key: &[u8]) -> bool {
        let is_reserved = |key: &[u8]| self.config.reserved.iter().any(|reserved| reserved.as_bytes() == key);
        self.cache_keys.iter().any(|template| template.matches(key)) && !is_reserved(key)
    }
}

/// Checks that the changes of each partition are in the log, with the primary key of the old row.
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

/// Parses the templates of a table.
fn templates(
    config: &config::Table,
    columns: &[Column],
    domains: &BTreeMap<u32, u32>,
) -> Result<(Template, Vec<Template>)> {
    let parse = |text: &str| Template::parse(text, columns, domains, config.tag());
    let parse_key = |text: &String| {
        let template = parse(text)?;
        ensure!(
            template.has_prefix(),
            "`{text}` begins with a column, so a fill might delete any key of the server: let it begin with text"
        );
        Ok(template)
    };
    let item = parse(&config.item).with_context(|| format!("item of {}", config.name))?;
    let keys = config.cache_key.iter().map(parse_key).collect::<Result<_>>();
    Ok((item, keys.with_context(|| format!("cache-key of {}", config.name))?))
}

/// Checks that no row can have a cache key that a follower needs for itself.
fn check_reserved(config: &config::Table, cache_keys: &[Template]) -> Result<()> {
    for (text, template) in config.cache_key.iter().zip(cache_keys) {
        let mut reserved = config.reserved.iter().map(String::as_bytes).chain([EVERY_KEY]);
        if let Some(key) = reserved.find(|key| template.matches(key)) {
            bail!(
                "cache-key of {}: `{text}`: a row could have the key {}, which the follower needs for itself: put other text before the \
                 columns",
                config.name,
                String::from_utf8_lossy(key)
            );
        }
    }
    Ok(())
}

/// Checks that the publication covers all rows of the tables and every kind of change.
/// The error contains the SQL that creates or completes it.
pub fn check_publication(client: &mut Client, publication: &Publication, tables: &[Table]) -> Result<()> {
    let publication_name = &publication.name;
    let row = client.query_opt(
        "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate, pubviaroot FROM pg_publication WHERE pubname = $1",
        &[publication_name],
    )?;
    let names: Vec<_> = tables.iter().map(|table| table.quoted.as_str()).collect();
    let Some(row) = row else {
        bail!(
            "there is no publication {publication_name}; as the tables' owner: CREATE PUBLICATION {publication_name} FOR TABLE {}",
            names.join(", ")
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

// Collects the stream's messages into transactions of followed tables.

/// What a transaction did to one table.
#[derive(Debug)]
pub enum Step {
    Change(Change),
    Truncate,
    /// Any row may have changed: the filter is lost.
    Altered,
}

/// A committed transaction.
#[derive(Debug)]
pub struct Transaction {
    pub xid: u32,
    /// The time of its commit.
    pub time: u64,
    /// The position after its commit record.
    pub end: Lsn,
    /// Indexes of tables, with what happened to them, in order.
    pub steps: Vec<(usize, Step)>,
}

impl Transaction {
    /// Returns what tells it from the transactions of other logs.
    pub const fn mark(&self) -> Mark {
        Mark { end: self.end, xid: self.xid, time: self.time }
    }
}

/// The transactions that have arrived and are not applied yet.
#[derive(Default)]
pub struct Arrived {
    /// Complete transactions in the order of their commits.
    pub waiting: VecDeque<Transaction>,
    pub steps: usize,
    current: Option<Transaction>,
    /// The followed tables by their object ids.
    tables: HashMap<u32, usize>,
    /// The end of the log that the last keepalive told, once everything before it had arrived.
    told: Lsn,
}

impl Arrived {
    /// Creates an empty collection for a new stream.
    pub fn of_tables(tables: &[Table]) -> Self {
        let tables = tables.iter().enumerate().map(|(index, table)| (table.oid, index)).collect();
        Self { tables, ..Self::default() }
    }

    /// Returns the end of the log, as far as PostgreSQL has told it.
    pub fn end(&self) -> Lsn {
        self.waiting.back().map_or(self.told, |last| last.end.max(self.told))
    }

    pub fn take(&mut self, message: Message, tables: &mut [impl DerefMut<Target = Table>]) -> Result<()> {
        match message {
            Message::Begin { xid, time } => {
                self.current = Some(Transaction { xid, time, end: Lsn(0), steps: Vec::new() });
            }
            Message::Commit { end } => {
                let mut transaction =
                    self.current.take().context("PostgreSQL's stream has a commit without a beginning")?;
                transaction.end = end;
                self.steps += transaction.steps.len();
                self.waiting.push_back(transaction);
            }
            Message::Relation(relation) => self.define(relation, tables)?,
            Message::Insert { relation, new } => {
                self.step(relation, tables, |table| table.change(None, Some(&new)))?;
            }
            Message::Update { relation, old, new } => {
                self.step(relation, tables, |table| table.change(old.as_deref(), Some(&new)))?;
            }
            Message::Delete { relation, old } => self.step(relation, tables, |table| table.change(Some(&old), None))?,
            Message::Truncate { relations } => {
                relations.into_iter().for_each(|relation| self.push(relation, Step::Truncate));
            }
            Message::Other => {}
        }
        Ok(())
    }

    /// Takes a keepalive: everything before `end` has arrived. One in the middle of a transaction tells nothing.
    pub fn keepalive(&mut self, end: Lsn) {
        if self.current.is_none() {
            self.told = self.told.max(end);
        }
    }

    /// Removes the first transaction.
    pub fn pop(&mut self) -> Option<Transaction> {
        let transaction = self.waiting.pop_front()?;
        self.steps -= transaction.steps.len();
        Some(transaction)
    }

    /// Returns the position before which everything is applied, if that is known: `applied` or what a keepalive told since.
    pub fn idle_position(&self, applied: Lsn) -> Lsn {
        if self.waiting.is_empty() { applied.max(self.told) } else { applied }
    }

    /// Takes over the description of a table.
    fn define(&mut self, relation: Relation, tables: &mut [impl DerefMut<Target = Table>]) -> Result<()> {
        if let Some(table) = tables.iter_mut().find(|table| table.oid == relation.oid) {
            table.redefine(relation);
            return Ok(());
        }
        let again = tables.iter().find(|table| table.name.0 == relation.schema && table.name.1 == relation.name);
        again.map_or(Ok(()), |table| bail!("the table {} was dropped and created again", table.config.name))
    }

    fn step(
        &mut self,
        relation: u32,
        tables: &[impl Deref<Target = Table>],
        change: impl FnOnce(&Table) -> Result<Change>,
    ) -> Result<()> {
        let Some(table) = self.tables.get(&relation).and_then(|index| tables.get(*index)) else { return Ok(()) };
        let step = if table.is_weak { Step::Altered } else { Step::Change(change(table)?) };
        self.push(relation, step);
        Ok(())
    }

    /// Adds a step of a followed table to the current transaction.
    fn push(&mut self, relation: u32, step: Step) {
        if let (Some(&index), Some(current)) = (self.tables.get(&relation), &mut self.current) {
            current.steps.push((index, step));
        }
    }
}
