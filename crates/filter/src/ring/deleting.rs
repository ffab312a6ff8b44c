//! Deletes from a ring: a deleted item gets an entry in every bucket that contains it, or in none.

use super::turns::Schedule as _;
use super::{BUCKETS_MAX, BesideBuckets, Ring, RingRules, contents_of};
use crate::ceiling::Ceiling;
use crate::chain::{Contents, Origin, Removed};
use crate::clock::Moment;
use crate::error::Error;
use crate::hash::{HashBatch, ItemHash};
use crate::mask::Mask;

/// The items of a batch that each bucket contains, oldest bucket first.
type FoundIn = [Mask; BUCKETS_MAX as usize];

impl<S: RingRules> Ring<S> {
    /// Deletes the items of a batch, in order, with the answers of deleting them one by one; see
    /// [`Filter::remove_batch`](crate::Filter::remove_batch).
    ///
    /// An item is found if a live bucket contains it. It then gets an entry in expired buckets too, so that a replica with
    /// another clock does the same.
    #[inline(never)]
    pub(crate) fn remove_batch(
        &mut self,
        hashes: &HashBatch,
        origin: Origin,
        now: Moment,
        ceiling: &impl Ceiling,
    ) -> Removed {
        if !self.spec.hasher().is_keyed() {
            return Removed::REFUSED;
        }
        let (mut found_in, mut found): (FoundIn, _) = ([Mask::NONE; BUCKETS_MAX as usize], Mask::NONE);
        for (found_here, bucket) in found_in.iter_mut().zip(&self.buckets) {
            *found_here = bucket.filter.contains_batch(hashes);
            let counts = origin == Origin::Effect || !self.spec.is_past(bucket.begin, now);
            found |= found_here.only_if(counts);
        }
        Removed::each(hashes.len(), found, |index| {
            hashes.get(index).map_or(Ok(false), |hash| self.delete(*hash, index, &found_in, origin, ceiling))
        })
    }

    /// Deletes an item of a batch from the buckets that contain it. Returns whether it was in any of them: an item that occurs
    /// twice in the batch is found once.
    fn delete(
        &mut self,
        hash: ItemHash,
        index: usize,
        found_in: &FoundIn,
        origin: Origin,
        ceiling: &impl Ceiling,
    ) -> Result<bool, Error> {
        // A bit for each bucket that got an entry.
        let mut entered = 0_u64;
        for (number, _) in found_in.iter().enumerate().filter(|(_, found)| found.contains(index)) {
            let all = contents_of(&self.buckets);
            let Some(bucket) = self.buckets.get_mut(number) else { break };
            let size_bytes = all.size_bytes.saturating_sub(bucket.filter.size_bytes());
            let beside = BesideBuckets { ceiling, others: || Contents { size_bytes, ..all }, pends: false };
            match bucket.filter.delete(hash, origin, &beside) {
                Ok(is_new) => entered |= u64::from(is_new) << number,
                Err(refused) => {
                    for (number, bucket) in self.buckets.iter_mut().enumerate() {
                        if entered >> number & 1 == 1 {
                            bucket.filter.restore(hash);
                        }
                    }
                    return Err(refused);
                }
            }
        }
        let newest = entered.checked_ilog2().unwrap_or(0) as usize;
        for (number, bucket) in self.buckets.iter_mut().enumerate().take(newest) {
            // A newer bucket contained the item, and no longer does.
            bucket.renewed = bucket.renewed.saturating_sub(entered >> number & 1);
        }
        Ok(entered != 0)
    }
}
