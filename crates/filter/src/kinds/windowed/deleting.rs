//! Deletes from a ring: an item gets an entry in each bucket that has its bits, in all of them or in none.

use super::ring::{BesideBuckets, Bucket, Ring, contents_of, is_past};
use super::{BUCKETS_MAX, WindowedSpec};
use crate::ceiling::Ceiling;
use crate::chain::{Contents, Origin, Removed};
use crate::clock::Moment;
use crate::error::Error;
use crate::hash::{HashBatch, ItemHash};
use crate::mask::Mask;

/// The items of a batch that each bucket finds, oldest first.
type FoundIn = [Mask; BUCKETS_MAX as usize];

impl Ring {
    /// Deletes the items of a batch, in order: the answers are those of deleting them one by one. An item is found
    /// where a live bucket finds it; then those whose time is past get its entry, too, so that whoever follows, by another
    /// clock, does the same.
    pub(super) fn delete_batch(
        &mut self,
        spec: &WindowedSpec,
        hashes: &HashBatch,
        origin: Origin,
        now: Moment,
        ceiling: &impl Ceiling,
    ) -> Removed {
        let (mut found_in, mut found): (FoundIn, _) = ([Mask::NONE; BUCKETS_MAX as usize], Mask::NONE);
        for (found_here, bucket) in found_in.iter_mut().zip(&self.buckets) {
            *found_here = bucket.filter.contains_batch(hashes);
            let counts = origin == Origin::Effect || !is_past(bucket, spec, now);
            found |= found_here.only_if(counts);
        }
        Removed::each(hashes.len(), found, |index| {
            hashes.get(index).map_or(Ok(false), |hash| self.delete(*hash, index, &found_in, origin, ceiling))
        })
    }

    /// Deletes an item of a batch from the buckets that find it. Answers whether any did still: an item that comes twice is
    /// found once.
    fn delete(
        &mut self,
        hash: ItemHash,
        index: usize,
        found_in: &FoundIn,
        origin: Origin,
        ceiling: &impl Ceiling,
    ) -> Result<bool, Error> {
        let mut is_made = [false; BUCKETS_MAX as usize];
        let mut refused = None;
        for (number, is_made) in is_made.iter_mut().enumerate() {
            if !found_in.get(number).is_some_and(|found| found.contains(index)) {
                continue;
            }
            match self.delete_from(number, hash, origin, ceiling) {
                Ok(is_new) => *is_made = is_new,
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        let Some(refused) = refused else {
            let newest = is_made.iter().rposition(|is_made| *is_made);
            for (bucket, _) in
                self.buckets.iter_mut().zip(is_made).take(newest.unwrap_or(0)).filter(|(_, is_made)| *is_made)
            {
                // A newer bucket had the item, and does not have it any more.
                bucket.renewed = bucket.renewed.saturating_sub(1);
            }
            return Ok(newest.is_some());
        };
        for (bucket, _) in self.buckets.iter_mut().zip(is_made).filter(|(_, is_made)| *is_made) {
            bucket.filter.restore(hash);
        }
        Err(refused)
    }

    fn delete_from(
        &mut self,
        number: usize,
        hash: ItemHash,
        origin: Origin,
        ceiling: &impl Ceiling,
    ) -> Result<bool, Error> {
        let all = contents_of(&self.buckets);
        let Some(Bucket { filter, .. }) = self.buckets.get_mut(number) else { return Ok(false) };
        let others = Contents { size_bytes: all.size_bytes.saturating_sub(filter.size_bytes()), ..all };
        filter.delete(hash, origin, &BesideBuckets { ceiling, others: || others })
    }
}
