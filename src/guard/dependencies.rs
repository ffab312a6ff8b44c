//! The filters and items that the guard's records depend on, each with the stamp of its last change. Nothing else is remembered: a
//! change of anything that no record depends on costs one lookup and leaves no trace, so unrelated traffic voids no token.

use std::collections::TryReserveError;
use std::collections::hash_map::Entry;

use super::row::{ByHash, DependencyId, Row, Stamp};

/// A filter or an item.
#[derive(Default)]
struct Dependency {
    /// The number of records that depend on it, at least 1.
    records: u32,
    /// The stamp of its last change since the first of them was inserted; 0 if it has not changed.
    changed: Stamp,
}

/// The dependencies of all records.
#[derive(Default)]
pub struct Dependencies {
    known: ByHash<DependencyId, Dependency>,
}

impl Dependencies {
    /// Reserves memory for the dependencies of one more row.
    pub fn reserve(&mut self) -> Result<(), TryReserveError> {
        self.known.try_reserve(2)
    }

    /// Counts a record of a row. Memory for it must be reserved.
    pub fn add(&mut self, row: &Row) {
        for id in row.dependencies() {
            self.known.entry(id).or_default().records += 1;
        }
    }

    /// Uncounts a record of a row. What no record depends on is forgotten.
    pub fn remove(&mut self, row: &Row) {
        for id in row.dependencies() {
            if let Entry::Occupied(mut entry) = self.known.entry(id) {
                entry.get_mut().records -= 1;
                if entry.get().records == 0 {
                    entry.remove();
                }
            }
        }
    }

    /// Whether a record depends on a filter or an item.
    #[inline]
    pub fn has(&self, id: DependencyId) -> bool {
        self.known.contains_key(&id)
    }

    /// Records that a filter or an item has changed.
    #[inline]
    pub fn change(&mut self, id: DependencyId, stamp: Stamp) {
        if let Some(dependency) = self.known.get_mut(&id) {
            dependency.changed = stamp;
        }
    }

    /// Whether neither the filter nor the item of a row has changed since a stamp. The row must be that of a record.
    pub fn are_unchanged(&self, row: &Row, stamp: Stamp) -> bool {
        let is_unchanged = |id: &DependencyId| self.known.get(id).is_some_and(|found| found.changed <= stamp);
        row.dependencies().iter().all(is_unchanged)
    }
}
