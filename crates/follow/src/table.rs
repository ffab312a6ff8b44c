//! A followed table: its description from the catalogue, and the effect of a changed row on its filter and cache keys.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};

use crate::config::{self, EVERY_KEY, Keys};
use crate::template::{Column, Field, Template};

/// A followed table.
#[derive(Clone)]
pub struct Table {
    pub config: config::Table,
    pub keys: Keys,
    /// PostgreSQL's object id, which distinguishes it from another table of the same name.
    pub id: String,
    /// The schema and the name.
    pub name: (String, String),
    /// The FROM clause that selects its rows.
    pub from: String,
    /// The definition from which columns and their texts were derived. If it changes, the filter must be filled again.
    pub definition: String,
    pub columns: Vec<Column>,
    item: Template,
    cache_keys: Vec<Template>,
    /// Whether the replica identity has lost a column of the templates, or a row could have a cache key that is reserved for the follower. In
    /// the first case, an update or a delete does not identify the affected cached values. Any change then counts as an alteration.
    pub is_weak: bool,
    /// The columns of the templates whose equal values may have different texts, with their types.
    pub inexact: Vec<String>,
    /// Whether all rows have different items.
    pub has_unique_items: bool,
}

/// A column, except for the format of its values.
pub struct Facts {
    /// Whether the column is part of a unique key.
    pub is_key: bool,
    /// Whether equal values have equal texts.
    pub is_exact: bool,
    /// The readable name of the type.
    pub type_name: String,
}

/// The effect of a change of one row.
#[derive(Debug, Default, PartialEq)]
pub struct Change {
    /// Items, each with a cache key whose value may be wrong.
    pub pairs: Vec<(Vec<u8>, Vec<u8>)>,
    /// The item that now has a row.
    pub put: Option<Vec<u8>>,
    /// The item that no longer has a row.
    pub gone: Option<Vec<u8>>,
}

impl Table {
    /// Describes a table. `has_key`: whether the columns contain its whole key.
    /// Fails if a template does not fit the columns.
    pub fn new(
        config: &config::Table,
        (id, name, from, definition): (String, (String, String), String, String),
        (columns, facts): (Vec<Column>, &[Facts]),
        has_key: bool,
    ) -> Result<Self> {
        let (item, cache_keys) = templates(config, &columns)?;
        check_reserved(config, &cache_keys)?;
        let is_in_item = |index: usize| item.columns().any(|column| column == index);
        let is_key = has_key
            && facts.iter().any(|column| column.is_key)
            && facts.iter().enumerate().all(|(index, column)| !column.is_key || is_in_item(index));
        let is_exact = |index: usize| facts.get(index).is_some_and(|column| column.is_exact);
        let used: BTreeSet<_> = cache_keys.iter().chain([&item]).flat_map(Template::columns).collect();
        let describe = |index: usize| Some(format!("{} ({})", columns.get(index)?.name, facts.get(index)?.type_name));
        let inexact = used.into_iter().filter(|index| !is_exact(*index)).filter_map(describe).collect();
        let has_unique_items = is_key && item.columns().all(is_exact) && item.is_injective();
        let (config, keys) = (config.clone(), config.keys());
        Ok(Self {
            config,
            keys,
            id,
            name,
            from,
            definition,
            columns,
            item,
            cache_keys,
            is_weak: false,
            inexact,
            has_unique_items,
        })
    }

    /// Switches to the columns that the stream has from now on. Until the filter is filled again, any change may count as an alteration.
    pub fn redefine(&mut self, columns: Vec<Column>) {
        if columns == self.columns {
            return;
        }
        self.columns = columns;
        self.is_weak = true;
        // A template whose column was dropped is not rendered until the column exists again.
        if let Ok((item, cache_keys)) = templates(&self.config, &self.columns) {
            self.is_weak = check_reserved(&self.config, &cache_keys).is_err();
            (self.item, self.cache_keys) = (item, cache_keys);
        }
    }

    /// Returns the item of a row, or `None` if one of its columns is NULL.
    pub fn item(&self, row: &[Field]) -> Result<Option<Vec<u8>>> {
        self.item.render(row, None)
    }

    /// Returns the effect of a change from `old` to `new`. `old` may contain only the replica identity, and is missing for an insert and
    /// for an update that did not change the replica identity; `new` is missing for a delete.
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
        // The first push has allocated space for four.
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
            // Every cache-key template uses a NULL column, so the row has no cache key. Its item must still be added to the filter and
            // the journal.
            pairs.push((item.clone(), [self.keys.null.as_bytes(), &item].concat()));
        }
        Ok(Some(item))
    }

    /// Returns a line for each template of the cache keys, for the module: see `is_followed` there. Empty if a template has a line break.
    pub fn rules(&self) -> String {
        let rules: Vec<_> = self.cache_keys.iter().map(|template| template.rule(&self.item)).collect();
        if rules.iter().any(|rule| rule.contains('\n')) { String::new() } else { format!("\n{}", rules.join("\n")) }
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

/// Parses the templates of a table.
pub fn templates(config: &config::Table, columns: &[Column]) -> Result<(Template, Vec<Template>)> {
    let parse = |text: &str| Template::parse(text, columns, config.tag());
    let parse_key = |text: &String| {
        let template = parse(text)?;
        ensure!(
            template.has_prefix(),
            "`{text}` begins with a column, so a fill might delete any key of the server: begin it with text"
        );
        Ok(template)
    };
    let item = parse(&config.item).with_context(|| format!("item of {}", config.name))?;
    let keys = config.cache_key.iter().map(parse_key).collect::<Result<_>>();
    Ok((item, keys.with_context(|| format!("cache-key of {}", config.name))?))
}

/// Checks that no row can have a cache key that is reserved for the follower.
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
