//! A ring of chains with a clock, for filters that forget: each chain is a bucket, new items go into the newest bucket, and the
//! oldest bucket is dropped as a whole.
//!
//! Callers pass the time with each call. Lookups skip expired buckets, which are dropped when the next bucket begins. That is a
//! change that the server replicates, so the caller of an add checks for it first ([`Ring::turn_due`]) and begins the bucket.

mod adding;
mod deleting;
mod turns;

pub(crate) use turns::Schedule;

use std::collections::VecDeque;
use std::fmt::Debug;

use crate::ceiling::{Ceiling, Unlimited};
use crate::cells::{Mover, relocate_boxed};
use crate::chain::{Chain, ChainSpec, Contents, LAYERS_MAX, Layer, Rules};
use crate::clock::Moment;
use crate::error::Error;
use crate::geometry::Geometry;
use crate::hash::{HashBatch, Hasher, ItemHash};
use crate::memory::reserve;

/// The most buckets.
pub const BUCKETS_MAX: u32 = 64;
/// The number of layers of a whole ring above which no bucket grows: each bucket may begin with one layer.
const RING_LAYERS_MAX: usize = LAYERS_MAX - BUCKETS_MAX as usize;

/// When a ring forgets an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgets {
    /// After a window of time.
    After {
        /// Its length, 1 to [`SECONDS_MAX`](crate::kinds::windowed::SECONDS_MAX).
        seconds: u64,
        /// Whether adding a present item restarts its window.
        is_sliding: bool,
    },
    /// After a number of other new items.
    Rolling,
}

/// What defines a ring: its schedule and its buckets.
pub trait RingRules: Copy + PartialEq + Debug {
    /// What defines a bucket.
    type Bucket: ChainSpec<Rules = Self::Bucket> + Rules<Geometry: Geometry<Hash = ItemHash>>;

    /// Whether such a ring can exist.
    fn is_sound(&self) -> bool;
    /// When it forgets an item.
    fn forgets(&self) -> Forgets;
    /// How it hashes.
    fn hasher(&self) -> Hasher;
    /// The most live buckets, up to [`BUCKETS_MAX`].
    fn buckets(&self) -> u32;
    /// The capacity of a bucket if none before it took more items.
    fn bucket_capacity(&self) -> u64;
    /// Returns the definition of a bucket of this capacity.
    fn bucket(&self, capacity: u64) -> Self::Bucket;

    /// How long a bucket takes items, in milliseconds; 0 for a rolling ring, whose buckets end when they are full.
    fn span(&self) -> u64 {
        match self.forgets() {
            Forgets::After { seconds, .. } => {
                let buckets = u64::from(self.buckets().saturating_sub(1)).max(1);
                seconds.saturating_mul(1000).div_ceil(buckets)
            }
            Forgets::Rolling => 0,
        }
    }

    /// Whether adding a present item restarts its window.
    fn is_sliding(&self) -> bool {
        matches!(self.forgets(), Forgets::After { is_sliding: true, .. })
    }

    /// Whether new adds may be pending. A replica decides again which buckets a delete changes, and which bucket had an item that is
    /// added again, and has every add in its bits. So the primary must see the same bits.
    fn pends(&self) -> bool {
        !self.hasher().is_keyed() && !self.is_sliding()
    }
}

/// A bucket of a ring.
#[derive(Debug, PartialEq)]
pub struct Bucket<R: Rules> {
    /// Its number on the grid of time; in a rolling ring, the number of buckets before it.
    pub slot: u64,
    /// When it began; 0 in a rolling ring.
    pub begin: Moment,
    /// When it ends; 0 in a rolling ring.
    pub end: Moment,
    /// The items added to it.
    pub filter: Chain<R>,
    /// The number of its items that a newer bucket also has. With SLIDING, adding a present item copies it to the newest bucket.
    pub(crate) renewed: u64,
    /// Whether a dump omitted its records: it is dropped once the dump is complete.
    pub(crate) is_omitted: bool,
}

/// A bucket of a ring with these rules.
pub type BucketOf<S> = Bucket<<S as RingRules>::Bucket>;

impl<R: Rules> Bucket<R> {
    /// Counts its items, except those renewed in a newer bucket.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.filter.items().saturating_sub(self.renewed)
    }

    fn contents(&self) -> Contents {
        Contents { items: self.items(), ..self.filter.contents() }
    }
}

/// The beginning of a bucket, as it is replicated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Its number on the grid of time.
    pub slot: u64,
    /// When it begins.
    pub begin: Moment,
    /// When it ends.
    pub end: Moment,
    /// Its capacity, at least 1.
    pub capacity: u64,
}

/// A filter that forgets: a ring of buckets.
#[derive(Debug)]
pub struct Ring<S: RingRules> {
    spec: S,
    /// Oldest first.
    buckets: VecDeque<BucketOf<S>>,
    /// Dropped buckets, which the caller frees without delaying commands.
    retired: Vec<Chain<S::Bucket>>,
}

impl<S: RingRules> Ring<S> {
    /// Creates an empty filter. A rolling ring begins with a bucket; the others get their first one with their first turn.
    ///
    /// # Errors
    /// [`Error::Unsound`] for a ring that cannot exist, [`Error::AboveCeiling`], [`Error::OutOfMemory`],
    /// [`Error::SizeOverflow`].
    pub fn with_spec(spec: S, ceiling: &impl Ceiling) -> Result<Self, Error> {
        let mut ring = Self::without_buckets(spec)?;
        let first = ring.turn_now(Moment(0));
        if spec.forgets() == Forgets::Rolling {
            ring.turn(first, ceiling)?;
        } else {
            // Refuses a ring whose buckets cannot exist.
            Chain::part(&spec.bucket(first.capacity), ceiling)?;
        }
        Ok(ring)
    }

    /// Creates a ring without buckets.
    ///
    /// # Errors
    /// [`Error::Unsound`] for a ring that cannot exist, [`Error::OutOfMemory`].
    pub(crate) fn without_buckets(spec: S) -> Result<Self, Error> {
        if !spec.is_sound() {
            return Err(Error::Unsound);
        }
        let room = spec.buckets() as usize;
        let mut buckets = VecDeque::new();
        let asked_bytes = (room * size_of::<BucketOf<S>>()) as u64;
        buckets.try_reserve_exact(room).map_err(|_| Error::OutOfMemory { asked_bytes })?;
        Ok(Self { spec, buckets, retired: Vec::new() })
    }

    /// Returns a copy with the same fields and bits.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn try_clone(&self) -> Result<Self, Error> {
        let mut copy = Self::without_buckets(self.spec)?;
        for bucket in &self.buckets {
            copy.push_bucket(Bucket { filter: bucket.filter.try_clone()?, ..*bucket });
        }
        Ok(copy)
    }

    /// Returns an empty filter with the same definition. Only a rolling ring then has a bucket.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn emptied(&self) -> Result<Self, Error> {
        let mut empty = Self::without_buckets(self.spec)?;
        if self.spec.forgets() == Forgets::Rolling {
            empty.turn(empty.turn_now(Moment(0)), &Unlimited)?;
        }
        Ok(empty)
    }

    /// Appends a bucket. There is room for it.
    pub(crate) fn push_bucket(&mut self, bucket: BucketOf<S>) {
        self.buckets.push_back(bucket);
    }

    /// Takes the dropped buckets out.
    pub fn take_retired(&mut self) -> Vec<Chain<S::Bucket>> {
        std::mem::take(&mut self.retired)
    }

    /// Drops all buckets.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]. Nothing has changed then.
    pub fn clear(&mut self) -> Result<(), Error> {
        reserve(&mut self.retired, self.buckets.len())?;
        self.retired.extend(self.buckets.drain(..).map(|bucket| bucket.filter));
        Ok(())
    }

    /// Drops the buckets that a dump omitted. If it omitted all of them, keeps the newest with what arrived of it, because a
    /// stored ring has at least one bucket.
    pub(crate) fn drop_omitted(&mut self) {
        if self.buckets.iter().all(|bucket| bucket.is_omitted)
            && let Some(newest) = self.buckets.back_mut()
        {
            newest.is_omitted = false;
        }
        self.buckets.retain(|bucket| !bucket.is_omitted);
    }

    /// Its definition.
    #[must_use]
    pub const fn spec(&self) -> S {
        self.spec
    }

    /// All buckets, oldest first, including expired ones.
    pub fn buckets(&self) -> impl DoubleEndedIterator<Item = &BucketOf<S>> + ExactSizeIterator {
        self.buckets.iter()
    }

    pub(crate) fn bucket(&self, index: usize) -> Option<&BucketOf<S>> {
        self.buckets.get(index)
    }

    pub(crate) fn bucket_mut(&mut self, index: usize) -> Option<&mut BucketOf<S>> {
        self.buckets.get_mut(index)
    }

    /// The newest bucket, which takes new items, and the others.
    fn newest_and_older(&mut self) -> Option<(&mut BucketOf<S>, &mut [BucketOf<S>])> {
        self.buckets.make_contiguous().split_last_mut()
    }

    /// The buckets that have not expired, oldest first.
    pub fn live(&self, now: Moment) -> impl DoubleEndedIterator<Item = &BucketOf<S>> {
        self.buckets.iter().filter(move |bucket| !self.spec.is_past(bucket.begin, now))
    }

    /// The number of layers of all buckets.
    #[must_use]
    pub fn layer_count(&self) -> usize {
        self.buckets.iter().map(|bucket| bucket.filter.layers().len()).sum()
    }

    /// Returns a layer, counted from the oldest of the oldest bucket.
    pub(crate) fn layer(&self, index: usize) -> Option<&Layer<<S::Bucket as Rules>::Geometry>> {
        self.buckets.iter().flat_map(|bucket| bucket.filter.layers()).nth(index)
    }

    /// The counts of all buckets together.
    #[inline(never)]
    pub(crate) fn contents(&self) -> Contents {
        contents_of(&self.buckets)
    }

    /// The counts of the live buckets together.
    #[must_use]
    pub fn live_contents(&self, now: Moment) -> Contents {
        contents_of(self.live(now))
    }

    /// The number of items that the newest bucket can take before it is full or grows.
    pub(crate) fn remaining_capacity(&self) -> u64 {
        self.buckets.back().map_or(0, |newest| newest.filter.remaining_capacity())
    }

    /// The number of bytes requested from the allocator, including its own fields. Visits every layer.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        let places = self.buckets.capacity() * size_of::<BucketOf<S>>();
        let retired = self.retired.capacity() * size_of::<Chain<S::Bucket>>();
        let fields = (size_of::<Self>() + places + retired) as u64;
        let chains = self.buckets.iter().map(|bucket| &bucket.filter).chain(&self.retired);
        let inside = chains.map(|chain| chain.allocated_bytes().saturating_sub(size_of_val(chain) as u64));
        inside.fold(fields, u64::saturating_add)
    }

    /// Lets the mover move its memory; see [`Chain::relocate`].
    pub(crate) fn relocate(self: &mut Box<Self>, first: usize, mover: &mut impl Mover) -> Option<usize> {
        let mut before = 0;
        if first == 0 {
            relocate_boxed(self, mover);
        }
        for bucket in &mut self.buckets {
            let places = bucket.filter.places();
            if first < before + places {
                // One bucket at a time: the next call continues with the one after.
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

    /// Flushes up to `most` pending adds; see [`Filter::flush_pending`](crate::Filter::flush_pending).
    pub(crate) fn flush_pending(&mut self, most: usize) -> usize {
        self.buckets.iter_mut().fold(0, |merged, bucket| merged + bucket.filter.flush_pending(most - merged))
    }

    /// Hashes the next items, up to [`BATCH`](crate::BATCH).
    pub(crate) fn hash_batch<'a>(&self, items: impl IntoIterator<Item = &'a [u8]>) -> HashBatch {
        self.spec.hasher().hash_batch(items)
    }
}

/// Equal in every logical field, in every bit and in the deleted items.
impl<S: RingRules> PartialEq for Ring<S> {
    fn eq(&self, other: &Self) -> bool {
        self.spec == other.spec && self.buckets == other.buckets
    }
}

/// Adds up the counts of buckets.
fn contents_of<'a, R: Rules + 'a>(buckets: impl IntoIterator<Item = &'a Bucket<R>>) -> Contents {
    buckets.into_iter().fold(Contents::default(), |sum, bucket| sum.and(bucket.contents()))
}

/// The ceiling of one bucket. `others` returns the counts of the buckets beside it.
pub(crate) struct BesideBuckets<'a, C, F> {
    pub(crate) ceiling: &'a C,
    pub(crate) others: F,
    /// Whether new adds may be pending.
    pub(crate) pends: bool,
}

impl<C: Ceiling, F: Fn() -> Contents> Ceiling for BesideBuckets<'_, C, F> {
    fn available_bytes(&self, filter_bytes: u64, asked_bytes: u64) -> u64 {
        self.ceiling.available_bytes((self.others)().size_bytes.saturating_add(filter_bytes), asked_bytes)
    }

    /// Limits the layers of all buckets together: a lookup visits them, and a dump numbers them.
    fn layers_max(&self) -> usize {
        let others = usize::try_from((self.others)().layers).unwrap_or(usize::MAX);
        self.ceiling.layers_max().min(RING_LAYERS_MAX).saturating_sub(others).max(1)
    }

    fn pending_from_bytes(&self) -> Option<u64> {
        if self.pends { self.ceiling.pending_from_bytes() } else { None }
    }

    fn has_room_to_pend(&self, more_bytes: u64) -> bool {
        self.ceiling.has_room_to_pend(more_bytes)
    }
}
