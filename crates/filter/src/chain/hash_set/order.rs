//! A set of hashes in the order of its parts: a range of `h1`, and gradual removal. A separate file because only pending adds
//! need it.

use super::part::Part;
use super::{HashSet, place};
use crate::hash::ItemHash;
use crate::mask::Mask;

impl HashSet {
    /// Returns the hashes whose `h1` is from `first` to `last`, inclusive; within a part in no order. Reads only the parts that
    /// can have such hashes, each at most 62 KiB.
    pub fn between(&self, first: u64, last: u64) -> impl Iterator<Item = ItemHash> {
        let at = |h1| place(ItemHash { h1, h2: 0 }, self.depth);
        let numbers = self.directory.get(at(first)..=at(last)).unwrap_or_default();
        let mut before = None;
        // The directory elements of a part are consecutive.
        let new = numbers.iter().filter(move |number| before.replace(**number) != Some(**number));
        let parts = new.filter_map(|number| self.parts.get(usize::try_from(*number).ok()?));
        let hashes = self.few.iter().copied().chain(parts.flat_map(Part::hashes));
        hashes.filter(move |hash| (first..=last).contains(&hash.h1))
    }

    /// Removes hashes of one part, up to the length of `taken`, and returns their number; 0 if the set is empty. Takes the
    /// first nonempty part at or after `h1` = `from`, cyclically.
    pub fn take_some(&mut self, from: u64, taken: &mut [ItemHash]) -> usize {
        let start = place(ItemHash { h1: from, h2: 0 }, self.depth).min(self.directory.len());
        let (before, after) = self.directory.split_at(start);
        let parts = after.iter().chain(before).filter_map(|number| self.parts.get(usize::try_from(*number).ok()?));
        let part = parts.into_iter().find(|part| part.entries() > 0);
        let hashes = self.few.iter().copied().chain(part.into_iter().flat_map(Part::hashes));
        let mut count = 0;
        for (place, hash) in taken.iter_mut().zip(hashes) {
            *place = hash;
            count += 1;
        }
        taken.iter().take(count).for_each(|hash| _ = self.remove(*hash));
        count
    }

    /// Prefetches what a lookup or an insert of the hashes of the mask `wanted` reads.
    #[inline]
    pub fn prefetch(&self, hashes: &[ItemHash], wanted: Mask) {
        for (_, hash) in wanted.each_of(hashes) {
            if let Some(part) = self.part_of(hash) {
                let _ = part.fetch(hash);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(count: u64) -> Vec<ItemHash> {
        (0..count).map(|number| ItemHash::of(&number.to_le_bytes(), 9)).collect()
    }

    fn set_of(hashes: &[ItemHash]) -> HashSet {
        let mut set = HashSet::new();
        hashes.iter().for_each(|hash| assert_eq!(set.insert(*hash), Ok(true)));
        set
    }

    /// A number of hashes that needs many parts; under miri, which is slow, one part.
    const MANY: u64 = if cfg!(miri) { 300 } else { 50_000 };

    #[test]
    fn a_range_has_all_hashes_in_it_and_no_other() {
        let mut all = hashes(MANY);
        let set = set_of(&all);
        all.sort_unstable();
        let at = |part: u64| u64::MAX / 100 * part;
        let edges = all[all.len() / 3].h1;
        for (first, last) in [(0, u64::MAX), (at(3), at(4)), (at(50), at(99)), (0, 0), (edges, edges), (at(9), at(8))] {
            let mut found: Vec<_> = set.between(first, last).collect();
            found.sort_unstable();
            let expected: Vec<_> = all.iter().copied().filter(|hash| hash.h1 >= first && hash.h1 <= last).collect();
            assert!(found == expected, "{first} {last}: {} {}", found.len(), expected.len());
        }
        assert_eq!(HashSet::new().between(0, u64::MAX).count(), 0);
    }

    #[test]
    fn a_set_is_taken_apart_while_it_grows() {
        let all = hashes(MANY);
        let (first, later) = all.split_at(all.len() / 2);
        let mut set = set_of(first);
        let (mut taken, mut from, mut come) = ([ItemHash::default(); 48], u64::MAX / 3, Vec::new());
        let mut later = later.iter();
        loop {
            later.by_ref().take(30).for_each(|hash| _ = set.insert(*hash).unwrap());
            let count = set.take_some(from, &mut taken);
            if count == 0 {
                break;
            }
            from = taken[0].h1;
            assert!(taken[..count].iter().all(|hash| !set.contains(*hash)));
            come.extend_from_slice(&taken[..count]);
            assert_eq!(set.len(), (all.len() - later.len() - come.len()) as u64);
        }
        come.sort_unstable();
        let mut all = all;
        all.sort_unstable();
        assert!(come == all && set.is_empty() && set.allocated_bytes() == 0);
    }
}
