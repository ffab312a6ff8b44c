//! What a group of transactions does to one table, and the commands that do it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use redis::{Cmd, cmd};

use super::lsn::Lsn;
use super::stream::{Step, Transaction};
use super::table::Change;

/// Pairs in one BF.MCHANGED, items in one BF.MDEL, and fields in one HSET or HDEL.
pub const CHUNK: usize = 1000;

/// The effects of a group on one table. The last operation on an item decides.
#[derive(Default)]
pub struct Work {
    pub keys: BTreeMap<Vec<u8>, Touched>,
    /// For each item, whether it has a row at the end, and the end of the transaction that decided.
    pub items: BTreeMap<Vec<u8>, (bool, Lsn)>,
}

/// A cache key whose value may be wrong.
pub struct Touched {
    /// Nearly always its only item. A set of one would take 280 bytes.
    first: Vec<u8>,
    others: BTreeSet<Vec<u8>>,
    /// The last transaction that named it.
    pub end: Lsn,
    pub xid: u32,
}

impl Touched {
    /// Returns the items of the rows with this cache key.
    pub fn items(&self) -> impl Iterator<Item = &Vec<u8>> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Whether a row with this item has this cache key.
    pub fn has(&self, item: &Vec<u8>) -> bool {
        self.first == *item || self.others.contains(item)
    }
}

impl Work {
    /// Adds a change of a row. `deletes`: whether the items of deleted rows leave the filter.
    pub fn add(&mut self, change: &Change, transaction: &Transaction, deletes: bool) {
        for (item, key) in &change.pairs {
            let Transaction { end, xid, .. } = *transaction;
            match self.keys.entry(key.clone()) {
                Entry::Vacant(place) => {
                    place.insert(Touched { first: item.clone(), others: BTreeSet::new(), end, xid });
                }
                Entry::Occupied(mut place) => {
                    let touched = place.get_mut();
                    if touched.first != *item {
                        touched.others.insert(item.clone());
                    }
                    (touched.end, touched.xid) = (end, xid);
                }
            }
        }
        if deletes {
            self.items.extend(change.gone.iter().map(|item| (item.clone(), (false, transaction.end))));
            self.items.extend(change.put.iter().map(|item| (item.clone(), (true, transaction.end))));
        }
    }

    /// Returns the items that have no row at the end.
    pub fn gone(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.items.iter().filter(|(_, (has_row, _))| !has_row).map(|(item, _)| item)
    }

    /// Returns the commands that add the items, delete the cached values and end their leases.
    pub fn changes(&self, filter: &str) -> Vec<Cmd> {
        changes(filter, self.keys.iter().flat_map(|(key, touched)| touched.items().map(move |item| (item, key))))
    }
}

/// Returns the steps of a group after a position in one table.
pub fn steps(group: &[Transaction], position: Lsn, table: usize) -> impl Iterator<Item = (&Transaction, &Step)> {
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
