//! The filters and items that the guard's records depend on, each with the stamp of its last change. Other changes are not recorded: they
//! cost one lookup and have no effect, so unrelated traffic voids no tokens.

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

/// The length of [`Dependencies::marks`]: 64 KiB, which fit in a processor's cache.
const MARK_WORDS: usize = 1 << 13;
/// The bitmap is rebuilt once it may have this many bits of removed ids.
const STALE_MARKS: usize = 1 << 14;

/// The dependencies of all records.
#[derive(Default)]
pub struct Dependencies {
    known: ByHash<DependencyId, Dependency>,
    /// Bitmap of the ids in `known`. Ids share bits, and removed ids keep theirs until the bitmap is rebuilt. Most added items have no bit,
    /// and need no lookup. Empty without records.
    marks: Vec<u64>,
    /// The number of bits set since the marks were built.
    marked: usize,
}

impl Dependencies {
    /// Reserves memory for the dependencies of one more row.
    pub fn reserve(&mut self) -> Result<(), TryReserveError> {
        if self.marks.is_empty() {
            self.marks.try_reserve_exact(MARK_WORDS)?;
            self.marks.resize(MARK_WORDS, 0);
        }
        self.known.try_reserve(2)
    }

    /// Counts a record of a row. Memory for it must be reserved.
    pub fn add(&mut self, row: &Row) {
        let Self { known, marks, marked } = self;
        for id in row.dependencies() {
            known.entry(id).or_default().records += 1;
            mark(marks, id);
        }
        *marked += row.dependencies().len();
        if *marked > 2 * known.len() + STALE_MARKS {
            marks.fill(0);
            known.keys().for_each(|id| mark(marks, *id));
            *marked = known.len();
        }
    }

    /// Uncounts a record of a row. Removes dependencies without records.
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
        let (word, bit) = place(id);
        self.marks.get(word).is_some_and(|bits| bits & bit != 0) && self.known.contains_key(&id)
    }

    /// Records that a filter or an item has changed.
    #[inline]
    pub fn change(&mut self, id: DependencyId, stamp: Stamp) {
        if let Some(dependency) = self.known.get_mut(&id) {
            dependency.changed = stamp;
        }
    }

    /// Whether neither the filter nor the item of a row has changed since a stamp. A record must have this row.
    pub fn are_unchanged(&self, row: &Row, stamp: Stamp) -> bool {
        let is_unchanged = |id: &DependencyId| self.known.get(id).is_some_and(|found| found.changed <= stamp);
        row.dependencies().iter().all(is_unchanged)
    }
}

fn mark(marks: &mut [u64], id: DependencyId) {
    let (word, bit) = place(id);
    marks.get_mut(word).into_iter().for_each(|bits| *bits |= bit);
}

/// The word and the bit of an id in the marks.
#[inline]
fn place(id: DependencyId) -> (usize, u64) {
    let word = usize::try_from(id >> 6 & (MARK_WORDS as u64 - 1)).unwrap_or(0);
    (word, 1 << (id & 63))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::guard::row::KeyId;

    #[test]
    fn what_records_depend_on_is_known_however_many_there_were() {
        let mut rng = fastrand::Rng::with_seed(1);
        let (mut dependencies, mut rows) = (Dependencies::default(), Vec::new());
        let mut counts: HashMap<DependencyId, u32> = HashMap::new();
        for round in 0..200_000 {
            if rows.len() < 1000 {
                let row = Row { filter: rng.u64(..10), item: rng.u64(..), ..Row::of(KeyId([round, 1])) };
                dependencies.reserve().unwrap();
                dependencies.add(&row);
                row.dependencies().iter().for_each(|id| *counts.entry(*id).or_default() += 1);
                rows.push(row);
            } else {
                let row: Row = rows.swap_remove(rng.usize(..rows.len()));
                dependencies.remove(&row);
                row.dependencies().iter().for_each(|id| *counts.get_mut(id).unwrap() -= 1);
            }
            let id = rows.get(rng.usize(..rows.len())).map_or(0, |row| row.item);
            assert!(dependencies.has(id) && !dependencies.has(rng.u64(..)));
        }
        assert!((0..10).all(|id| dependencies.has(id) == (counts[&id] > 0)));
        rows.iter().for_each(|row| dependencies.remove(row));
        assert!((0..10).all(|id| !dependencies.has(id)));
    }
}
