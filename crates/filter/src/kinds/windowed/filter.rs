//! A filter that forgets: adds, lookups, deletes over the buckets of its ring.
//!
//! Time comes from outside, with each call. A lookup passes over buckets whose time is past; they go when the next begins. That
//! is for whoever writes to ask for first ([`WindowedFilter::turn_due`]), for it has to be carried.

use super::ring::{BesideBuckets, Bucket, Ring, Turn, contents_of, is_past};
use super::{Forgets, WindowedSpec};
use crate::ceiling::{Ceiling, Unlimited};
use crate::cells::{Mover, relocate_boxed};
use crate::chain::{Added, Contents, Layer, Origin, Outcome, Probes, Removed, WhenFull};
use crate::clock::Moment;
use crate::error::Error;
use crate::geometry::BlockedBits;
use crate::hash::{HashBatch, ItemHash};
use crate::kinds::native::BloomFilter;
use crate::kinds::stats::{BucketStats, Measured};
use crate::mask::Mask;
use crate::memory::{reserve, try_box};

/// A filter that forgets. Its fields are larger than those of other kinds, which need not pay for that.
#[derive(Debug)]
pub struct WindowedFilter {
    state: Box<State>,
}

#[derive(Debug)]
struct State {
    spec: WindowedSpec,
    ring: Ring,
    /// Buckets that went: to be freed where that holds nobody up.
    retired: Vec<BloomFilter>,
}

impl WindowedFilter {
    /// An empty filter. A rolling one has its first bucket; that of the others begins with their first turn.
    ///
    /// # Errors
    /// [`Error::Unsound`] for what no filter can be, [`Error::AboveCeiling`], [`Error::OutOfMemory`],
    /// [`Error::SizeOverflow`].
    pub fn with_spec(spec: WindowedSpec, ceiling: &impl Ceiling) -> Result<Self, Error> {
        let mut filter = Self::without_buckets(spec)?;
        // So that a filter whose buckets cannot be is refused before there is one.
        let first = filter.state.ring.turn_now(&spec, Moment(0));
        if spec.forgets == Forgets::Rolling {
            filter.turn(first, ceiling)?;
        } else {
            BloomFilter::part(&spec.bucket(first.capacity), ceiling)?;
        }
        Ok(filter)
    }

    /// A filter with no bucket at all.
    ///
    /// # Errors
    /// [`Error::Unsound`] for what no filter can be, [`Error::OutOfMemory`].
    pub(super) fn without_buckets(spec: WindowedSpec) -> Result<Self, Error> {
        if !spec.is_sound() {
            return Err(Error::Unsound);
        }
        let state = State { spec, ring: Ring::with_room(&spec)?, retired: Vec::new() };
        Ok(Self { state: try_box(state)? })
    }

    /// A filter with the same fields and bits.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where the allocator refuses.
    pub fn try_clone(&self) -> Result<Self, Error> {
        let mut copy = Self::without_buckets(self.state.spec)?;
        for bucket in self.buckets() {
            copy.push_bucket(Bucket { filter: bucket.filter.try_clone()?, ..*bucket });
        }
        Ok(copy)
    }

    /// Adds a bucket after the others, for which there is room.
    pub(super) fn push_bucket(&mut self, bucket: Bucket) {
        self.state.ring.buckets.push_back(bucket);
    }

    /// What made it.
    #[must_use]
    pub const fn spec(&self) -> WindowedSpec {
        self.state.spec
    }

    /// All buckets, oldest first, those whose time is past included.
    pub fn buckets(&self) -> impl DoubleEndedIterator<Item = &Bucket> + ExactSizeIterator {
        self.state.ring.buckets.iter()
    }

    pub(in crate::kinds) fn bucket(&self, index: usize) -> Option<&Bucket> {
        self.state.ring.buckets.get(index)
    }

    pub(in crate::kinds) fn bucket_mut(&mut self, index: usize) -> Option<&mut Bucket> {
        self.state.ring.buckets.get_mut(index)
    }

    /// Buckets whose time is not past, oldest first.
    pub fn live(&self, now: Moment) -> impl DoubleEndedIterator<Item = &Bucket> {
        self.state.ring.live(&self.state.spec, now)
    }

    /// What there is to count of the buckets whose time is not past.
    #[must_use]
    pub fn live_contents(&self, now: Moment) -> Contents {
        contents_of(self.live(now))
    }

    /// The bucket that begins before anything is added now; nothing while the newest takes items.
    #[must_use]
    pub fn turn_due(&self, now: Moment) -> Option<Turn> {
        self.state.ring.turn_due(&self.state.spec, now)
    }

    /// The bucket that begins where somebody asks for the next.
    #[must_use]
    pub fn turn_now(&self, now: Moment) -> Turn {
        self.state.ring.turn_now(&self.state.spec, now)
    }

    /// Begins a bucket. Returns the number of items that were forgotten with the buckets it displaced.
    ///
    /// # Errors
    /// [`Error::AboveCeiling`], [`Error::OutOfMemory`]. Nothing has changed then.
    pub fn turn(&mut self, turn: Turn, ceiling: &impl Ceiling) -> Result<u64, Error> {
        let State { spec, ring, retired } = &mut *self.state;
        ring.begin(spec, turn, retired, ceiling)
    }

    /// Takes the buckets out that went.
    pub fn take_retired(&mut self) -> Vec<BloomFilter> {
        std::mem::take(&mut self.state.retired)
    }

    /// Takes all buckets out: it holds nothing then.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]. Nothing has changed then.
    pub fn clear(&mut self) -> Result<(), Error> {
        let State { ring, retired, .. } = &mut *self.state;
        reserve(retired, ring.buckets.len())?;
        retired.extend(ring.buckets.drain(..).map(|bucket| bucket.filter));
        Ok(())
    }

    /// Takes the buckets out that a dump left out. Where it left all of them out, the newest stays, with what came of it: a
    /// ring that is stored has a bucket.
    pub(in crate::kinds) fn drop_left_out(&mut self) {
        let buckets = &mut self.state.ring.buckets;
        if buckets.iter().all(|bucket| bucket.is_left_out)
            && let Some(newest) = buckets.back_mut()
        {
            newest.is_left_out = false;
        }
        buckets.retain(|bucket| !bucket.is_left_out);
    }

    fn is_sliding(&self) -> bool {
        matches!(self.state.spec.forgets, Forgets::After { is_sliding: true, .. })
    }

    /// Which items of the mask `wanted` are in a bucket of these, which come newest first. What the next is asked first is on
    /// its way into the cache before one is looked at.
    ///
    /// 100 absent items in 8 full buckets for a million items in all took 5.9 us, and 6.7 without [`Probes`]; for 100 million
    /// 21 us, with either, where a plain filter of as many took 5: it is the memory that takes the time. To have two buckets on
    /// their way rather than one took as long or longer.
    fn found_in<'a>(buckets: impl Iterator<Item = &'a Bucket>, hashes: &[ItemHash], wanted: Mask) -> Mask {
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

    /// Adds a batch to the newest bucket, but what is known to be in an older one, or done.
    fn add_to_newest(&mut self, hashes: &[ItemHash], origin: Origin, known: Mask, ceiling: &impl Ceiling) -> Added {
        let is_rolling = self.state.spec.forgets == Forgets::Rolling;
        let Some((newest, older)) = self.state.ring.newest_and_older() else {
            return Added { error: Some(Error::Unsound), ..Added::NONE };
        };
        let beside = BesideBuckets { ceiling, others: || contents_of(&*older) };
        match origin {
            Origin::Client => newest.filter.add_absent_batch(hashes, known, &beside),
            // A rolling ring begins its buckets by the same counts everywhere.
            Origin::Effect => {
                let when_full = if is_rolling { WhenFull::Refuse } else { WhenFull::Insert };
                newest.filter.insert_batch(hashes, known, when_full, &beside)
            }
        }
    }

    /// Counts the items of the mask `taken`, which the newest bucket has just taken, as renewed in the newest older bucket that has
    /// them. Live buckets have none of `absent`. Expired buckets count too, so the result does not depend on the clock.
    fn count_renewed(&mut self, hashes: &[ItemHash], taken: Mask, absent: Mask, now: Moment) {
        let State { spec, ring, .. } = &mut *self.state;
        let Some((_, older)) = ring.newest_and_older() else { return };
        let mut open = taken;
        for bucket in older.iter_mut().rev() {
            let asked = if is_past(bucket, spec, now) { open } else { open - absent };
            let renewed = Self::found_in(std::iter::once(&*bucket), hashes, asked);
            bucket.renewed = bucket.renewed.saturating_add(renewed.len().into()).min(bucket.filter.items_added());
            open = open - renewed;
        }
    }

    /// Adds an item as a filter with SLIDING does: into the newest bucket unless that finds it.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub(crate) fn renew(
        &mut self,
        item: &[u8],
        origin: Origin,
        now: Moment,
        ceiling: &impl Ceiling,
    ) -> Result<Outcome, Error> {
        let hash = self.state.spec.hasher.hash(item);
        outcome_of(self.add_hashes(&[hash], true, origin, now, ceiling))
    }

    /// [`renew`](Self::renew) for a batch, in order.
    pub(crate) fn renew_batch(
        &mut self,
        hashes: &[ItemHash],
        origin: Origin,
        now: Moment,
        ceiling: &impl Ceiling,
    ) -> Added {
        self.add_hashes(hashes, true, origin, now, ceiling)
    }

    /// Adds a batch; with `renews` into the newest bucket also where older ones have an item. A rolling ring begins the next
    /// bucket where the newest is full, and goes on.
    fn add_hashes(
        &mut self,
        hashes: &[ItemHash],
        renews: bool,
        origin: Origin,
        now: Moment,
        ceiling: &impl Ceiling,
    ) -> Added {
        let mut total = Added::NONE;
        loop {
            let all = Mask::first(hashes.len()) - Mask::first(total.done);
            let found = match origin {
                // The primary found it in none of those that were live by its clock.
                Origin::Effect => Mask::NONE,
                Origin::Client => Self::found_in(self.state.ring.live_older(&self.state.spec, now).rev(), hashes, all),
            };
            let known = if renews { Mask::NONE } else { found };
            let added = self.add_to_newest(hashes, origin, known | Mask::first(total.done), ceiling);
            if self.is_sliding() {
                // A client's item that no live bucket has can only be in an expired one.
                let absent = if origin == Origin::Client { all - found } else { Mask::NONE };
                self.count_renewed(hashes, added.effect, absent, now);
            }
            total.new |= added.new - found;
            total.effect |= added.effect;
            (total.done, total.error) = (added.done, added.error);
            if added.error != Some(Error::Full) || self.state.spec.forgets != Forgets::Rolling {
                return total;
            }
            total.error = self.turn(self.turn_now(now), ceiling).err();
            if total.error.is_some() {
                return total;
            }
        }
    }
}

/// What there is of it.
impl WindowedFilter {
    /// Number of layers of all buckets.
    #[must_use]
    pub fn layer_count(&self) -> usize {
        self.buckets().map(|bucket| bucket.filter.layers().len()).sum()
    }

    /// A layer, counted from the oldest of the oldest bucket.
    pub(crate) fn layer(&self, index: usize) -> Option<&Layer<BlockedBits>> {
        self.buckets().flat_map(|bucket| bucket.filter.layers()).nth(index)
    }

    /// What there is to count of all buckets.
    pub(crate) fn contents(&self) -> Contents {
        contents_of(self.buckets())
    }

    /// The number of items that the newest bucket takes before it is full or grows.
    pub(crate) fn remaining_capacity(&self) -> u64 {
        self.state.ring.newest().map_or(0, |newest| newest.filter.remaining_capacity())
    }

    /// Bytes that were asked of the allocator, the filter's own fields included. Visits every layer.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        let places = self.state.ring.buckets.capacity() * size_of::<Bucket>();
        let fields = (size_of::<Self>()
            + size_of::<State>()
            + places
            + self.state.retired.capacity() * size_of::<BloomFilter>()) as u64;
        let inside = |filter: &BloomFilter| filter.allocated_bytes().saturating_sub(size_of::<BloomFilter>() as u64);
        let buckets = self.buckets().map(|bucket| &bucket.filter).chain(&self.state.retired);
        buckets.fold(fields, |sum, filter| sum.saturating_add(inside(filter)))
    }

    /// Lets the mover move its memory; see [`Chain::relocate`](crate::chain::Chain::relocate).
    pub(crate) fn relocate(&mut self, first: usize, mover: &mut impl Mover) -> Option<usize> {
        let mut before = 0;
        if first == 0 {
            relocate_boxed(&mut self.state, mover);
        }
        for bucket in &mut self.state.ring.buckets {
            let places = bucket.filter.places();
            if first < before + places {
                // One bucket at a time: the next call goes on with the one after.
                if let Some(next) = bucket.filter.relocate(first.saturating_sub(before), mover) {
                    return Some(before + next);
                }
                if mover.has_done_enough() {
                    return Some(before + places);
                }
            }
            before += places;
        }
        None
    }

    /// Whether any bucket has pending adds.
    pub(crate) fn pends(&self) -> bool {
        self.buckets().any(|bucket| bucket.filter.pends())
    }

    /// Flushes up to `most` pending adds; see [`Filter::merge_pending`](crate::Filter::merge_pending).
    pub(crate) fn merge_pending(&mut self, most: usize) -> usize {
        let buckets = self.state.ring.buckets.iter_mut();
        buckets.fold(0, |merged, bucket| merged + bucket.filter.merge_pending(most - merged))
    }

    /// A filter as this one was created, without an item. Only a rolling one has a bucket then.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn emptied(&self) -> Result<Self, Error> {
        let mut empty = Self::without_buckets(self.state.spec)?;
        if self.state.spec.forgets == Forgets::Rolling {
            empty.turn(empty.turn_now(Moment(0)), &Unlimited)?;
        }
        Ok(empty)
    }

    /// Measures the live buckets.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn measure(&self, now: Moment, measured: &mut Measured) -> Result<(), Error> {
        for bucket in self.live(now) {
            let Bucket { slot, begin, end, ref filter, renewed, .. } = *bucket;
            measured.add_bucket(BucketStats { slot, begin, end, items: filter.items() }, renewed)?;
            measured.add_chain(filter)?;
        }
        Ok(())
    }
}

/// Adds, lookups and deletes.
impl WindowedFilter {
    /// Hashes the next items, up to [`BATCH`](crate::BATCH).
    pub(crate) fn hash_batch<'a>(&self, items: impl IntoIterator<Item = &'a [u8]>) -> HashBatch {
        self.state.spec.hasher.hash_batch(items)
    }

    /// Whether an item may be in a live bucket; `false` is certain.
    #[must_use]
    pub fn contains(&self, item: &[u8], now: Moment) -> bool {
        let hash = self.state.spec.hasher.hash(item);
        self.live(now).rev().any(|bucket| bucket.filter.contains_hash(hash))
    }

    /// Looks the items of a batch up together. Returns those that may be in a live bucket.
    pub(crate) fn contains_batch(&self, hashes: &HashBatch, now: Moment) -> Mask {
        Self::found_in(self.live(now).rev(), hashes, Mask::first(hashes.len()))
    }

    /// Adds an item.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::TooManyLayers`], [`Error::CapacityOutOfRange`], [`Error::AboveCeiling`],
    /// [`Error::OutOfMemory`]. The filter is unchanged then.
    pub(crate) fn add(
        &mut self,
        item: &[u8],
        origin: Origin,
        now: Moment,
        ceiling: &impl Ceiling,
    ) -> Result<Outcome, Error> {
        let hash = self.state.spec.hasher.hash(item);
        outcome_of(self.add_batch(&[hash], origin, now, ceiling))
    }

    /// Adds the items of a batch, in order: the answers are those of adding them one by one.
    pub(crate) fn add_batch(
        &mut self,
        hashes: &[ItemHash],
        origin: Origin,
        now: Moment,
        ceiling: &impl Ceiling,
    ) -> Added {
        self.add_hashes(hashes, self.is_sliding(), origin, now, ceiling)
    }

    /// Deletes the items of a batch, in order; see [`Filter::remove_batch`](crate::Filter::remove_batch).
    pub(crate) fn remove_batch(
        &mut self,
        hashes: &HashBatch,
        origin: Origin,
        now: Moment,
        ceiling: &impl Ceiling,
    ) -> Removed {
        if !self.state.spec.hasher.is_keyed() {
            return Removed::REFUSED;
        }
        self.state.ring.delete_batch(&self.state.spec, hashes, origin, now, ceiling)
    }
}

/// What became of the only item of a batch.
const fn outcome_of(added: Added) -> Result<Outcome, Error> {
    match added.error {
        Some(error) => Err(error),
        None if added.new.contains(0) => Ok(Outcome::New),
        None if added.effect.contains(0) => Ok(Outcome::Renewed),
        None => Ok(Outcome::Known),
    }
}

/// Equal in every logical field, in every bit and in what was deleted.
impl PartialEq for WindowedFilter {
    fn eq(&self, other: &Self) -> bool {
        self.state.spec == other.state.spec && self.state.ring == other.state.ring
    }
}
