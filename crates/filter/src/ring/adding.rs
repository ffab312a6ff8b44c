//! Lookups in a ring, and adds to its newest bucket. None of them is inlined, so that their code takes no registers from the other
//! kinds, which share a match with the ring.

use super::turns::Schedule as _;
use super::{BesideBuckets, Bucket, Forgets, Ring, RingRules, contents_of};
use crate::ceiling::Ceiling;
use crate::chain::{Added, Origin, Outcome, Probes, Rules, WhenFull};
use crate::clock::Moment;
use crate::error::Error;
use crate::geometry::Geometry;
use crate::hash::ItemHash;
use crate::mask::Mask;

/// Returns the items of the mask `wanted` that any of these buckets, newest first, contains. Prefetches the first line of the next
/// bucket while it tests one.
///
/// 100 absent items in 8 full buckets for a total of a million items took 5.9 us, and 6.7 without [`Probes`]. For 100 million
/// items they took 21 us with or without; a single filter of that capacity took 5. Memory latency dominates. Prefetching two
/// buckets ahead was not faster.
fn contained_in<'a, R>(buckets: impl Iterator<Item = &'a Bucket<R>>, hashes: &[ItemHash], wanted: Mask) -> Mask
where
    R: Rules<Geometry: Geometry<Hash = ItemHash>> + 'a,
{
    let mut probes = Probes::new(hashes);
    let mut buckets = buckets.map(|bucket| &bucket.filter).peekable();
    if let Some(first) = buckets.peek() {
        first.prefetch_first(&mut probes, wanted);
    }
    let mut found = Mask::NONE;
    while let Some(bucket) = buckets.next().filter(|_| found != wanted) {
        let open = wanted - found;
        if let Some(next) = buckets.peek() {
            next.prefetch_first(&mut probes, open);
        }
        found |= bucket.contains_prefetched(&mut probes, open);
    }
    found
}

impl<S: RingRules> Ring<S> {
    /// Whether an item may be in a live bucket; `false` is certain.
    #[inline(never)]
    #[must_use]
    pub fn contains(&self, item: &[u8], now: Moment) -> bool {
        let hash = self.spec.hasher().hash(item);
        self.live(now).rev().any(|bucket| bucket.filter.contains_hash(hash))
    }

    /// Looks up a batch. Returns the items that may be in a live bucket.
    #[inline(never)]
    pub(crate) fn contains_batch(&self, hashes: &[ItemHash], now: Moment) -> Mask {
        contained_in(self.live(now).rev(), hashes, Mask::first(hashes.len()))
    }

    /// Adds an item. With `renews`, or if the window slides, the newest bucket gets it even if an older one has it.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::TooManyLayers`], [`Error::CapacityOutOfRange`], [`Error::AboveCeiling`],
    /// [`Error::OutOfMemory`]. The filter is unchanged then.
    #[inline(never)]
    pub(crate) fn add(
        &mut self,
        item: &[u8],
        renews: bool,
        origin: Origin,
        now: Moment,
        ceiling: &impl Ceiling,
    ) -> Result<Outcome, Error> {
        let added = self.add_batch(&[self.spec.hasher().hash(item)], renews, origin, now, ceiling);
        match added.error {
            Some(error) => Err(error),
            None if added.new.contains(0) => Ok(Outcome::New),
            None if added.effect.contains(0) => Ok(Outcome::Renewed),
            None => Ok(Outcome::Known),
        }
    }

    /// Adds the items of a batch, in order, with the answers of adding them one by one; see [`add`](Self::add) for `renews`. If
    /// the newest bucket of a rolling ring is full, begins the next one and continues.
    #[inline(never)]
    pub(crate) fn add_batch(
        &mut self,
        hashes: &[ItemHash],
        renews: bool,
        origin: Origin,
        now: Moment,
        ceiling: &impl Ceiling,
    ) -> Added {
        let is_rolling = self.spec.forgets() == Forgets::Rolling;
        let mut total = Added::NONE;
        loop {
            let all = Mask::first(hashes.len()) - Mask::first(total.done);
            let found = match origin {
                // The primary found it in no bucket that was live by the primary's clock.
                Origin::Effect => Mask::NONE,
                Origin::Client => {
                    let older = self.buckets.range(..self.buckets.len().saturating_sub(1)).rev();
                    contained_in(older.filter(|bucket| !self.spec.is_past(bucket.begin, now)), hashes, all)
                }
            };
            let known = if renews || self.spec.is_sliding() { Mask::NONE } else { found };
            let added = self.add_to_newest(hashes, origin, known | Mask::first(total.done), ceiling);
            if self.spec.is_sliding() {
                // If no live bucket contains a client's item, only expired ones can.
                let absent = if origin == Origin::Client { all - found } else { Mask::NONE };
                self.count_renewed(hashes, added.effect, absent, now);
            }
            total.new |= added.new - found;
            total.effect |= added.effect;
            (total.done, total.error) = (added.done, added.error);
            if added.error != Some(Error::Full) || !is_rolling {
                return total;
            }
            total.error = self.turn(self.turn_now(now), ceiling).err();
            if total.error.is_some() {
                return total;
            }
        }
    }

    /// Adds a batch to the newest bucket, except the `known` items.
    fn add_to_newest(&mut self, hashes: &[ItemHash], origin: Origin, known: Mask, ceiling: &impl Ceiling) -> Added {
        // Every copy of a rolling ring begins its buckets at the same counts.
        let when_full = if self.spec.forgets() == Forgets::Rolling { WhenFull::Refuse } else { WhenFull::Insert };
        let pends = self.spec.pends();
        let Some((newest, older)) = self.newest_and_older() else {
            return Added { error: Some(Error::Unsound), ..Added::NONE };
        };
        let beside = BesideBuckets { ceiling, others: || contents_of(&*older), pends };
        match origin {
            Origin::Client => newest.filter.add_absent_batch(hashes, known, &beside),
            Origin::Effect => newest.filter.insert_batch(hashes, known, when_full, &beside),
        }
    }

    /// Counts the items of the mask `taken`, which the newest bucket has just taken, as renewed in the newest older bucket that has
    /// them. Live buckets have none of `absent`. Expired buckets count too, so the result does not depend on the clock.
    fn count_renewed(&mut self, hashes: &[ItemHash], taken: Mask, absent: Mask, now: Moment) {
        let spec = self.spec;
        let Some((_, older)) = self.newest_and_older() else { return };
        let mut open = taken;
        for bucket in older.iter_mut().rev() {
            let wanted = if spec.is_past(bucket.begin, now) { open } else { open - absent };
            let renewed = contained_in(std::iter::once(&*bucket), hashes, wanted);
            bucket.renewed = bucket.renewed.saturating_add(renewed.len().into()).min(bucket.filter.items_added());
            open = open - renewed;
        }
    }
}
