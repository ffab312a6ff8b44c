//! A set of hashes in the order of its segments: a range of `h1`, and gradual removal. A separate file because only pending adds
//! need it.

use super::segment::Segment;
use super::{HashSet, place};
use crate::hash::ItemHash;
use crate::mask::Mask;

impl HashSet {
    /// Returns the hashes whose `h1` is from `first` to `last`, inclusive; unordered within a segment. Reads only the segments that
    /// can have such hashes, each at most 62 KiB.
    pub(crate) fn between(&self, first: u64, last: u64) -> impl Iterator<Item = ItemHash> {
        let at = |h1| place(ItemHash { h1, h2: 0 }, self.depth);
        let numbers = self.directory.get(at(first)..=at(last)).unwrap_or_default();
        let mut before = None;
        // The directory elements of a segment are consecutive.
        let new = numbers.iter().filter(move |number| before.replace(**number) != Some(**number));
        let segments = new.filter_map(|number| self.segments.get(usize::try_from(*number).ok()?));
        let hashes = self.few.iter().copied().chain(segments.flat_map(Segment::hashes));
        hashes.filter(move |hash| (first..=last).contains(&hash.h1))
    }

    /// Removes hashes of one segment, up to the length of `taken`, and returns their number; 0 if the set is empty. Takes the
    /// first nonempty segment at or after `h1` = `from`, cyclically.
    pub(crate) fn take_some(&mut self, from: u64, taken: &mut [ItemHash]) -> usize {
        let start = place(ItemHash { h1: from, h2: 0 }, self.depth).min(self.directory.len());
        let (before, after) = self.directory.split_at(start);
        let segments =
            after.iter().chain(before).filter_map(|number| self.segments.get(usize::try_from(*number).ok()?));
        let segment = segments.into_iter().find(|segment| segment.entries() > 0);
        let hashes = self.few.iter().copied().chain(segment.into_iter().flat_map(Segment::hashes));
        let mut count = 0;
        for (place, hash) in taken.iter_mut().zip(hashes) {
            *place = hash;
            count += 1;
        }
        taken.iter().take(count).for_each(|hash| _ = self.remove(*hash));
        count
    }

    /// Prefetches the memory that a lookup or an insert of the hashes of the mask `wanted` reads.
    #[inline]
    pub(crate) fn prefetch(&self, hashes: &[ItemHash], wanted: Mask) {
        for (_, hash) in wanted.each_of(hashes) {
            if let Some(segment) = self.segment_of(hash) {
                let _ = segment.fetch(hash);
            }
        }
    }
}
