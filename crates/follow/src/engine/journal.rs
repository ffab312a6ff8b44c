//! The journal of a table: its cache keys with a write in flight. It is the hash that readers pass to UNLESS, so it outlives the
//! follower. Each field is a cache key; its value contains the last transaction that wrote it, and that transaction's items.

use std::collections::{BTreeMap, BTreeSet, btree_map};

use anyhow::{Context, Result};
use redis::{Cmd, cmd};

use super::events::{Step, Transaction};
use super::position::Place;
pub use crate::config::EVERY_KEY;
use crate::table::Change;

/// A group with more cache keys is announced as [`EVERY_KEY`].
pub const MANY: usize = 10_000;

/// The value of a field.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// The place after the transaction's commit record, and its 64-bit id.
    pub end: Place,
    pub id: u64,
    /// Items, each with whether its row was deleted.
    items: Vec<(Vec<u8>, bool)>,
    /// Whether `items` contains every item that was announced with this key since its last release.
    is_complete: bool,
}

/// The entries of a table, equal to those in the server.
#[derive(Debug, Default)]
pub struct Journal {
    entries: BTreeMap<Vec<u8>, Entry>,
    /// Cache keys by the end of a transaction. Some may have a later entry by now.
    by_end: BTreeMap<Place, Vec<Vec<u8>>>,
    /// Items whose row was deleted, by the end of the deleting transaction. A later row with the same item removes it.
    gone: BTreeMap<Vec<u8>, Place>,
}

/// The records and items that a release removes.
#[derive(Debug, Default, PartialEq)]
pub struct ReleaseSet {
    /// Cache keys, each with an item.
    pub keys: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether [`EVERY_KEY`] is among them.
    pub is_every: bool,
    pub gone: Vec<Vec<u8>>,
}

impl Entry {
    /// Returns an entry of [`EVERY_KEY`].
    pub fn without_items(end: Place, id: u64) -> Self {
        Self { end, id, ..Self::default() }
    }

    /// Returns the value of the field: `16/B374D848 1234 =` or, if items are missing, `16/B374D848 1234 ~`, and for each item `+2:42` or, if its
    /// row was deleted, `-2:42`.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{} {} {}", self.end, self.id, if self.is_complete { '=' } else { '~' }).into_bytes();
        for (item, is_gone) in &self.items {
            bytes.extend(format!("{}{}:", if *is_gone { '-' } else { '+' }, item.len()).as_bytes());
            bytes.extend(item);
        }
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut parts = bytes.splitn(3, |byte| *byte == b' ');
        let mut text = || std::str::from_utf8(parts.next()?).ok();
        let (end, id) = (text()?.parse().ok()?, text()?.parse().ok()?);
        let (mark, mut rest) = parts.next()?.split_first()?;
        let mut items = Vec::new();
        while let Some((sign, tail)) = rest.split_first() {
            let colon = tail.iter().position(|byte| *byte == b':')?;
            let length: usize = std::str::from_utf8(tail.get(..colon)?).ok()?.parse().ok()?;
            let start = colon + 1;
            let stop = start.checked_add(length)?;
            items.push((tail.get(start..stop)?.to_vec(), *sign == b'-'));
            rest = tail.get(stop..)?;
        }
        Some(Self { end, id, items, is_complete: *mark == b'=' })
    }
}

impl Journal {
    /// Reads the journal that an earlier follower left.
    pub fn of_fields(fields: Vec<(Vec<u8>, Vec<u8>)>) -> Result<Self> {
        let mut entries = Vec::new();
        for (key, value) in fields {
            let shown =
                || format!("the journal has an invalid entry for the cache key {}", String::from_utf8_lossy(&key));
            let entry = Entry::parse(&value).with_context(shown)?;
            entries.push((key, entry));
        }
        let mut journal = Self::default();
        // If items are missing, a deleted item might have a row again. It stays in the filter as a false positive.
        if entries.iter().all(|(_, entry)| entry.is_complete) {
            let mut last: BTreeMap<&[u8], (Place, bool)> = BTreeMap::new();
            for (_, entry) in &entries {
                for (item, is_gone) in &entry.items {
                    let latest = last.entry(item).or_default();
                    *latest = (*latest).max((entry.end, *is_gone));
                }
            }
            let gone = last.into_iter().filter(|(_, (_, is_gone))| *is_gone);
            journal.gone = gone.map(|(item, (end, _))| (item.to_vec(), end)).collect();
        }
        journal.insert(entries);
        Ok(journal)
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the transactions that have entries: the ends and the 64-bit ids.
    pub fn transactions(&self) -> impl Iterator<Item = (Place, u64)> {
        self.entries.values().map(|entry| (entry.end, entry.id))
    }

    /// Returns the entries that announce a group.
    pub fn entries(&self, effects: &GroupEffects) -> Vec<(Vec<u8>, Entry)> {
        let last = effects.keys.values().map(|changed| (changed.end, changed.id)).max();
        let is_many = effects.keys.len() > MANY;
        let every = if is_many { effects.truncated.max(last) } else { effects.truncated };
        let mut entries = Vec::new();
        if let Some((end, id)) = every {
            entries.push((EVERY_KEY.to_vec(), Entry::without_items(end, id)));
        }
        if is_many {
            return entries;
        }
        for (key, changed) in &effects.keys {
            let is_gone = |item: &Vec<u8>| matches!(effects.items.get(item), Some((false, _)));
            let items = changed.items().map(|item| (item.clone(), is_gone(item))).collect();
            let is_complete = self
                .entries
                .get(*key)
                .is_none_or(|old| old.is_complete && old.items.iter().all(|(item, _)| changed.has(item)));
            entries.push((key.to_vec(), Entry { end: changed.end, id: changed.id, items, is_complete }));
        }
        entries
    }

    /// Records an announced group.
    pub fn announce(&mut self, entries: Vec<(Vec<u8>, Entry)>, effects: &GroupEffects) {
        for (item, (has_row, end)) in &effects.items {
            if *has_row {
                self.gone.remove(*item);
            } else {
                self.gone.insert(item.to_vec(), *end);
            }
        }
        self.insert(entries);
    }

    fn insert(&mut self, entries: Vec<(Vec<u8>, Entry)>) {
        for (key, entry) in entries {
            self.by_end.entry(entry.end).or_default().push(key.clone());
            self.entries.insert(key, entry);
        }
    }

    /// Returns what can be released once all transactions up to `end` are visible: the cache keys without a later entry.
    pub fn due(&self, end: Place) -> ReleaseSet {
        let mut due = ReleaseSet::default();
        for key in self.by_end.range(..=end).flat_map(|(_, keys)| keys) {
            let Some(entry) = self.entries.get(key).filter(|entry| entry.end <= end) else { continue };
            if key == EVERY_KEY {
                due.is_every = true;
            } else {
                due.keys.push((key.clone(), entry.items.first().map(|(item, _)| item.clone()).unwrap_or_default()));
            }
        }
        due.keys.sort();
        due.keys.dedup();
        due.gone = self.gone.iter().filter(|(_, at)| **at <= end).map(|(item, _)| item.clone()).collect();
        due
    }

    /// Records a release.
    pub fn release(&mut self, end: Place) {
        let later = self.by_end.split_off(&Place(end.0 + 1));
        for key in std::mem::replace(&mut self.by_end, later).into_values().flatten() {
            if self.entries.get(&key).is_some_and(|entry| entry.end <= end) {
                self.entries.remove(&key);
            }
        }
        self.gone.retain(|_, at| *at > end);
    }
}

// The effects of a group of transactions on one table, and the commands for them.

/// Pairs in one BF.MCHANGED, items in one BF.MDEL, and fields in one HSET or HDEL.
pub const CHUNK: usize = 1000;

/// The effects of a group on one table. The last operation on an item determines its effect.
#[derive(Default)]
pub struct GroupEffects<'a> {
    pub keys: BTreeMap<&'a Vec<u8>, ChangedKey<'a>>,
    /// For each item, whether it has a row at the end, and the end of the transaction that determined this.
    pub items: BTreeMap<&'a Vec<u8>, (bool, Place)>,
    /// The last transaction that invalidates all earlier rows: it truncated the table, or any row may have changed.
    pub truncated: Option<(Place, u64)>,
    /// Whether any row may have changed.
    pub is_altered: bool,
}

/// A cache key whose value may be wrong.
pub struct ChangedKey<'a> {
    /// Nearly always the only item. A set with one element would take 280 bytes.
    first: &'a Vec<u8>,
    others: BTreeSet<&'a Vec<u8>>,
    /// The last transaction with this key.
    pub end: Place,
    pub id: u64,
}

impl<'a> ChangedKey<'a> {
    /// Returns the items of the rows with this cache key.
    pub fn items(&self) -> impl Iterator<Item = &'a Vec<u8>> {
        std::iter::once(self.first).chain(self.others.iter().copied())
    }

    /// Whether a row with this item has this cache key.
    pub fn has(&self, item: &Vec<u8>) -> bool {
        self.first == item || self.others.contains(item)
    }
}

impl<'a> GroupEffects<'a> {
    /// Combines steps. `deletes`: whether the items of deleted rows are removed from the filter.
    pub fn of(steps: impl Iterator<Item = (&'a Transaction, &'a Step)>, deletes: bool) -> Self {
        let mut effects = Self::default();
        for (transaction, step) in steps {
            if let Step::Change(change) = step {
                effects.add(change, transaction, deletes);
            } else {
                let is_altered = effects.is_altered || matches!(step, Step::Altered);
                effects = Self { truncated: Some((transaction.end, transaction.id)), is_altered, ..Self::default() };
            }
        }
        effects
    }

    fn add(&mut self, change: &'a Change, transaction: &Transaction, deletes: bool) {
        for (item, key) in &change.pairs {
            let Transaction { end, id, .. } = *transaction;
            match self.keys.entry(key) {
                btree_map::Entry::Vacant(place) => {
                    place.insert(ChangedKey { first: item, others: BTreeSet::new(), end, id });
                }
                btree_map::Entry::Occupied(mut place) => {
                    let changed = place.get_mut();
                    if changed.first != item {
                        changed.others.insert(item);
                    }
                    (changed.end, changed.id) = (end, id);
                }
            }
        }
        if deletes {
            self.items.extend(change.gone.iter().map(|item| (item, (false, transaction.end))));
            self.items.extend(change.put.iter().map(|item| (item, (true, transaction.end))));
        }
    }

    /// Returns the items that have no row at the end.
    pub fn gone(&self) -> impl Iterator<Item = &'a Vec<u8>> {
        self.items.iter().filter(|(_, (has_row, _))| !has_row).map(|(item, _)| *item)
    }

    /// Returns the commands that add the items, delete the cached values and end their leases.
    pub fn changes(&self, filter: &str) -> Vec<Cmd> {
        changes(filter, self.keys.iter().flat_map(|(key, changed)| changed.items().map(move |item| (item, *key))))
    }
}

/// Returns the steps of a group after a position in one table.
pub fn steps(group: &[Transaction], position: Place, table: usize) -> impl Iterator<Item = (&Transaction, &Step)> {
    group
        .iter()
        .filter(move |transaction| transaction.end > position)
        .flat_map(|transaction| transaction.steps.iter().map(move |(at, step)| (transaction, at, step)))
        .filter(move |(_, at, _)| **at == table)
        .map(|(transaction, _, step)| (transaction, step))
}

/// Returns BF.MCHANGED for pairs of items and cache keys.
pub fn changes<'a>(filter: &str, pairs: impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>) -> Vec<Cmd> {
    let pairs: Vec<_> = pairs.collect();
    let command = |chunk: &[(&Vec<u8>, &Vec<u8>)]| {
        let mut command = cmd("BF.MCHANGED");
        command.arg(filter).arg("ITEMS");
        for (item, key) in chunk {
            command.arg(item).arg(key);
        }
        command
    };
    pairs.chunks(CHUNK).map(command).collect()
}

/// Returns the command `name key argument...`, several times where there are many arguments.
pub fn chunked<'a>(name: &str, key: &str, arguments: impl Iterator<Item = &'a Vec<u8>>) -> Vec<Cmd> {
    let arguments: Vec<_> = arguments.collect();
    arguments.chunks(CHUNK).map(|chunk| cmd(name).arg(key).arg(chunk).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(changes: &[(u64, &str, &str, bool)]) -> Vec<Transaction> {
        let transaction = |(end, item, key, is_gone): &(u64, &str, &str, bool)| {
            let [item, key] = [item, key].map(|text| text.as_bytes().to_vec());
            let (put, gone) = if *is_gone { (None, Some(item.clone())) } else { (Some(item.clone()), None) };
            let steps = vec![(0, Step::Change(Change { pairs: vec![(item, key)], put, gone }))];
            Transaction { id: *end, time: 0, end: Place(*end), steps }
        };
        changes.iter().map(transaction).collect()
    }

    fn announce(journal: &mut Journal, changes: &[(u64, &str, &str, bool)]) {
        let group = group(changes);
        let effects = GroupEffects::of(steps(&group, Place(0), 0), true);
        let entries = journal.entries(&effects);
        journal.announce(entries, &effects);
    }

    /// Returns the entries that a follower would read at its start.
    fn read(journal: &Journal) -> Journal {
        let fields = journal.entries.iter().map(|(key, entry)| (key.clone(), entry.to_bytes())).collect();
        Journal::of_fields(fields).unwrap()
    }

    fn names(due: &ReleaseSet) -> (Vec<&str>, Vec<&str>) {
        let text = |bytes: &'_ Vec<u8>| -> &'static str { String::from_utf8(bytes.clone()).unwrap().leak() };
        (due.keys.iter().map(|(key, _)| text(key)).collect(), due.gone.iter().map(text).collect())
    }

    #[test]
    fn values_keep_every_item() {
        let items = vec![(b"a b:1".to_vec(), false), (Vec::new(), true), (vec![0, 255, b'\n'], true)];
        let entry = Entry { end: Place(1 << 40), id: u64::MAX, items, is_complete: true };
        let bytes = entry.to_bytes();
        assert_eq!(Entry::parse(&bytes), Some(entry));
        for length in 1..3 {
            assert_eq!(Entry::parse(&bytes[..bytes.len() - length]), None);
        }
        assert!(Journal::of_fields(vec![(b"key".to_vec(), b"1".to_vec())]).is_err());
    }

    #[test]
    fn a_key_is_released_by_its_last_transaction() {
        let mut journal = Journal::default();
        announce(&mut journal, &[(1, "1", "k1", false), (1, "2", "k2", true)]);
        announce(&mut journal, &[(2, "1", "k1", true), (3, "3", "k3", false)]);
        for journal in [&journal, &read(&journal)] {
            assert_eq!(names(&journal.due(Place(1))), (vec!["k2"], vec!["2"]));
            assert_eq!(names(&journal.due(Place(2))), (vec!["k1", "k2"], vec!["1", "2"]));
        }
        journal.release(Place(2));
        assert_eq!(names(&journal.due(Place(9))), (vec!["k3"], vec![]));
        assert_eq!(journal.transactions().collect::<Vec<_>>(), [(Place(3), 3)]);
    }

    #[test]
    fn an_item_with_a_row_again_is_not_deleted() {
        let mut journal = Journal::default();
        announce(&mut journal, &[(1, "1", "old", true)]);
        announce(&mut journal, &[(2, "1", "new", false)]);
        for journal in [&journal, &read(&journal)] {
            assert_eq!(names(&journal.due(Place(1))), (vec!["old"], vec![]));
        }
        // Another row takes over the cache key of that row, so the journal no longer contains that item 1 has a row.
        announce(&mut journal, &[(3, "2", "new", false)]);
        assert_eq!(names(&read(&journal).due(Place(9))), (vec!["new", "old"], vec![]));
    }

    #[test]
    fn large_groups_and_truncations_block_every_key() {
        let mut journal = Journal::default();
        let rows: Vec<_> = (0..=MANY).map(|row| (row as u64 + 1, format!("{row}"))).collect();
        let changes: Vec<_> = rows.iter().map(|(end, key)| (*end, key.as_str(), key.as_str(), true)).collect();
        announce(&mut journal, &changes);
        assert_eq!(journal.entries.len(), 1);
        assert!(!journal.due(Place(MANY as u64)).is_every);
        let due = journal.due(Place(MANY as u64 + 1));
        assert_eq!((due.is_every, due.keys.len(), due.gone.len()), (true, 0, MANY + 1));
        // A follower that reads the journal cannot see the items.
        assert_eq!(read(&journal).due(Place(u64::MAX)).gone.len(), 0);
        let mut group = group(&[(6, "2", "k2", false), (7, "", "", false), (8, "1", "k1", false)]);
        group[1].steps = vec![(0, Step::Truncate)];
        let entries = journal.entries(&GroupEffects::of(steps(&group, Place(0), 0), true));
        assert_eq!(
            entries.iter().map(|(key, entry)| (&key[..], entry.id)).collect::<Vec<_>>(),
            [(EVERY_KEY, 7), (b"k1", 8)]
        );
    }
}
