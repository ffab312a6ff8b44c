//! Filters that forget: a ring of native chains with a clock. Each chain is a bucket. New items are added to the newest bucket, and
//! the oldest bucket is dropped as a whole, after a window of time or after a number of other items.
//!
//! Callers pass the time with each call. Lookups skip expired buckets, which are dropped when the next bucket begins. The server
//! must replicate the beginning of a bucket, so before an add the caller checks whether one is due
//! ([`WindowedFilter::bucket_due`]) and begins it.

use std::collections::VecDeque;
use std::ffi::CStr;

use super::Request;
use super::effect::{self, ArgToken, push_args, push_hasher, push_scaling};
use super::native::{
    BloomFilter, Layers, NativeSpec, are_shaped, clamp_rate, read_layers, read_spec, write_layers, write_shapes,
    write_spec,
};
use super::plan::Plan;
use crate::cells::{Mover, relocate_boxed};
use crate::chain::{Added, ChainSpec as _, Contents, LAYERS_MAX, Layer, Origin, Outcome, Probes, Removed, WhenFull};
use crate::codec::{self, Sink, Source, read_u32};
use crate::error::Error;
use crate::geometry::BlockedBits;
use crate::geometry::sizing::{Policy, Scaling, to_f64};
use crate::hash::{HashBatch, Hasher, ItemHash};
use crate::host::{Ceiling, Moment, Unlimited};
use crate::mask::Mask;
use crate::memory::{push, reserve};

/// The default number of buckets.
pub(crate) const BUCKETS: u32 = 8;
/// The fewest buckets.
pub(crate) const BUCKETS_MIN: u32 = 3;
/// The maximum number of buckets.
pub(crate) const BUCKETS_MAX: u32 = 64;
/// The number of layers of the whole ring up to which buckets grow. Beyond it, each bucket may still begin with one layer.
const RING_LAYERS_MAX: usize = LAYERS_MAX - BUCKETS_MAX as usize;
/// The longest window, in seconds: about three hundred years.
pub(crate) const SECONDS_MAX: u64 = 10_000_000_000;
/// The largest slot number and time; their successors also fit a signed number.
const NUMBER_MAX: u64 = 1 << 62;

/// The rule by which a ring forgets items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// After a window of time.
    After {
        /// Its length, 1 to 10^10.
        seconds: u64,
        /// Whether adding a present item restarts its window.
        is_sliding: bool,
    },
    /// After a number of other new items.
    Rolling,
}

/// The definition of a filter that forgets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowedSpec {
    /// The requested false positive rate, of all buckets together.
    pub rate: f64,
    /// The expected number of new items per window, or for ROLLING, the number of most recent items to remember; at least 1.
    pub capacity: u64,
    /// The behavior of a bucket that is full before its end.
    pub scaling: Scaling,
    /// The hash function and its seed.
    pub hasher: Hasher,
    /// The rule by which it forgets items.
    pub forgets: Retention,
    /// The maximum number of live buckets, 3 to 64.
    pub buckets: u32,
}

impl WindowedSpec {
    /// Whether such a ring can exist.
    pub fn is_sound(&self) -> bool {
        let forgets = match self.forgets {
            Retention::After { seconds, .. } => (1..=SECONDS_MAX).contains(&seconds),
            Retention::Rolling => self.scaling == Scaling::Fixed,
        };
        let whole = NativeSpec { rate: self.rate, ..self.bucket(1) };
        forgets && whole.check().is_ok() && self.capacity >= 1 && (BUCKETS_MIN..=BUCKETS_MAX).contains(&self.buckets)
    }

    /// The capacity of a bucket if no earlier bucket received more items.
    fn bucket_capacity(&self) -> u64 {
        self.capacity.div_ceil(u64::from(self.buckets.saturating_sub(1)).max(1))
    }

    /// Returns the definition of a bucket of this capacity. It gets its share of the ring's false positive rate. A ring does not
    /// store a policy and uses the first one.
    fn bucket(&self, capacity: u64) -> NativeSpec {
        let rate = self.rate / to_f64(self.buckets.into());
        NativeSpec { rate, capacity, scaling: self.scaling, hasher: self.hasher, policy: Policy::One }
    }

    /// The time for which a bucket accepts items, in milliseconds; 0 for a rolling ring, whose buckets end when they are full.
    pub fn span(&self) -> u64 {
        match self.forgets {
            Retention::After { seconds, .. } => {
                let buckets = u64::from(self.buckets.saturating_sub(1)).max(1);
                seconds.saturating_mul(1000).div_ceil(buckets)
            }
            Retention::Rolling => 0,
        }
    }

    /// Whether adding a present item restarts its window.
    fn is_sliding(&self) -> bool {
        matches!(self.forgets, Retention::After { is_sliding: true, .. })
    }

    /// Whether new adds may be pending. A replica determines again which buckets a delete changes, and which bucket contained an
    /// item that is added again. It has every add in its bits, so the primary must see the same bits.
    fn pends(&self) -> bool {
        !self.hasher.is_keyed() && !self.is_sliding()
    }

    /// Whether a bucket can cover this time range. No bucket accepts items for longer than a span, or it would expire while it
    /// still accepts them.
    fn allows(&self, slot: u64, begin: Moment, end: Moment) -> bool {
        let longest = if self.forgets == Retention::Rolling { u64::MAX } else { self.span() };
        begin <= end && end.0 - begin.0 <= longest && slot.max(end.0) <= NUMBER_MAX
    }

    /// Whether a bucket that began at `begin` has expired, which it does after as many spans as the ring has buckets.
    fn is_past(&self, begin: Moment, now: Moment) -> bool {
        self.forgets != Retention::Rolling
            && now.0 >= begin.0.saturating_add(self.span().saturating_mul(self.buckets.into()))
    }

    /// Returns the definition for a request.
    pub(super) fn of(request: &Request, forgets: Retention, hasher: Hasher) -> Self {
        let Request { rate, capacity, scaling, buckets, .. } = *request;
        let scaling = if forgets == Retention::Rolling { Scaling::Fixed } else { scaling };
        Self { rate: clamp_rate(rate), capacity, scaling, hasher, forgets, buckets: buckets.unwrap_or(BUCKETS) }
    }

    /// See [`Spec::plan`](crate::kinds::Spec::plan). With a window, plans the whole ring, for new items that arrive evenly, `items`
    /// per window. For ROLLING, plans as many buckets as the ring has after `items` items.
    pub(super) fn plan(&self, items: Option<u64>) -> Result<Plan, Error> {
        let (buckets, capacity) = (u64::from(self.buckets), self.bucket_capacity());
        let (live, wanted) = match (self.forgets, items) {
            (_, None) => (buckets, capacity),
            (Retention::Rolling, Some(items)) => (items.div_ceil(capacity).clamp(1, buckets), capacity),
            (Retention::After { .. }, Some(items)) => (buckets, items.div_ceil(buckets.saturating_sub(1).max(1))),
        };
        if wanted > capacity && self.scaling == Scaling::Fixed {
            return Err(Error::Full);
        }
        Plan::of_chain(&self.bucket(capacity.max(wanted)), None)?.repeated(live)
    }

    /// See [`Spec::encode_args`](crate::kinds::Spec::encode_args). The first bucket is replicated separately.
    pub(super) fn encode_args(&self, mut push: impl FnMut(ArgToken<'_>)) -> &'static CStr {
        use ArgToken::Bytes;
        let Self { rate, capacity, scaling, hasher, forgets, buckets } = *self;
        push_args(&mut push, &[Bytes(b"CAPACITY"), effect::whole(capacity), Bytes(b"ERROR"), effect::rate(rate)]);
        match forgets {
            Retention::After { seconds, is_sliding } => {
                push_scaling(scaling, &mut push);
                push_args(&mut push, &[Bytes(b"WINDOW"), effect::whole(seconds)]);
                if is_sliding {
                    push(Bytes(b"SLIDING"));
                }
            }
            Retention::Rolling => push(Bytes(b"ROLLING")),
        }
        push_args(&mut push, &[Bytes(b"BUCKETS"), effect::whole(buckets)]);
        push_hasher(hasher, &mut push);
        c"BF.INSERT"
    }
}

/// A bucket of a ring.
#[derive(Debug, PartialEq)]
pub struct Bucket {
    /// Its number on the time grid; in a rolling ring, the number of buckets before it.
    pub slot: u64,
    /// The time of its beginning; 0 in a rolling ring.
    pub begin: Moment,
    /// The time of its end; 0 in a rolling ring.
    pub end: Moment,
    /// The items added to it.
    pub filter: BloomFilter,
    /// The number of its items that a newer bucket also has. With SLIDING, adding a present item copies it to the newest bucket.
    pub(crate) renewed: u64,
    /// Whether a dump omitted the records of this bucket, which is then dropped once the dump is complete.
    pub(crate) is_omitted: bool,
}

impl Bucket {
    /// Counts its items, except those renewed in a newer bucket.
    pub fn items(&self) -> u64 {
        self.filter.items().saturating_sub(self.renewed)
    }

    fn contents(&self) -> Contents {
        Contents { items: self.items(), ..self.filter.contents() }
    }
}

/// The beginning of a bucket, as it is replicated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketStart {
    /// Its number on the time grid.
    pub slot: u64,
    /// The time of its beginning.
    pub begin: Moment,
    /// The time of its end.
    pub end: Moment,
    /// Its capacity, at least 1.
    pub capacity: u64,
}

/// A filter that forgets: a ring of buckets.
#[derive(Debug)]
pub struct WindowedFilter {
    spec: WindowedSpec,
    /// Oldest first.
    buckets: VecDeque<Bucket>,
    /// Dropped buckets, which the caller frees without delaying commands.
    retired: Vec<BloomFilter>,
}

impl WindowedFilter {
    /// Creates an empty filter. A rolling ring begins with a bucket; the others get their first one when items are first added.
    ///
    /// # Errors
    /// [`Error::Unsound`] for a ring that cannot exist, [`Error::AboveCeiling`], [`Error::OutOfMemory`],
    /// [`Error::SizeOverflow`].
    pub(crate) fn with_spec(spec: WindowedSpec, ceiling: &impl Ceiling) -> Result<Self, Error> {
        let mut ring = Self::without_buckets(spec)?;
        let first = ring.bucket_now(Moment(0));
        if spec.forgets == Retention::Rolling {
            ring.begin_bucket(first, ceiling)?;
        } else {
            // Refuses a ring whose buckets cannot exist.
            BloomFilter::bucket(&spec.bucket(first.capacity), ceiling)?;
        }
        Ok(ring)
    }

    /// Creates a ring without buckets.
    pub(crate) fn without_buckets(spec: WindowedSpec) -> Result<Self, Error> {
        if !spec.is_sound() {
            return Err(Error::Unsound);
        }
        let room = spec.buckets as usize;
        let mut buckets = VecDeque::new();
        let asked_bytes = (room * size_of::<Bucket>()) as u64;
        buckets.try_reserve_exact(room).map_err(|_| Error::OutOfMemory { asked_bytes })?;
        Ok(Self { spec, buckets, retired: Vec::new() })
    }

    /// Returns a copy with the same fields and bits.
    pub(crate) fn try_clone(&self) -> Result<Self, Error> {
        let mut copy = Self::without_buckets(self.spec)?;
        for bucket in &self.buckets {
            copy.push_bucket(Bucket { filter: bucket.filter.try_clone()?, ..*bucket });
        }
        Ok(copy)
    }

    /// Returns an empty filter with the same definition. Only a rolling ring then has a bucket.
    pub(crate) fn emptied(&self) -> Result<Self, Error> {
        let mut empty = Self::without_buckets(self.spec)?;
        if self.spec.forgets == Retention::Rolling {
            empty.begin_bucket(empty.bucket_now(Moment(0)), &Unlimited)?;
        }
        Ok(empty)
    }

    /// Appends a bucket, for which there must be room.
    pub(crate) fn push_bucket(&mut self, bucket: Bucket) {
        self.buckets.push_back(bucket);
    }

    /// Removes and returns the dropped buckets.
    pub fn take_retired(&mut self) -> Vec<BloomFilter> {
        std::mem::take(&mut self.retired)
    }

    /// Drops the buckets that a dump omitted. If it omitted all of them, keeps the newest with the records that arrived,
    /// because a stored ring has at least one bucket.
    pub(crate) fn drop_omitted(&mut self) {
        if self.buckets.iter().all(|bucket| bucket.is_omitted)
            && let Some(newest) = self.buckets.back_mut()
        {
            newest.is_omitted = false;
        }
        self.buckets.retain(|bucket| !bucket.is_omitted);
    }

    /// Its definition.
    pub const fn spec(&self) -> WindowedSpec {
        self.spec
    }

    /// All buckets, oldest first, including expired ones.
    pub fn buckets(&self) -> impl DoubleEndedIterator<Item = &Bucket> + ExactSizeIterator {
        self.buckets.iter()
    }

    pub(crate) fn bucket(&self, index: usize) -> Option<&Bucket> {
        self.buckets.get(index)
    }

    pub(crate) fn bucket_mut(&mut self, index: usize) -> Option<&mut Bucket> {
        self.buckets.get_mut(index)
    }

    /// Returns the newest bucket, which receives new items, and the others.
    fn newest_and_older(&mut self) -> Option<(&mut Bucket, &mut [Bucket])> {
        self.buckets.make_contiguous().split_last_mut()
    }

    /// The buckets that have not expired, oldest first.
    pub fn live(&self, now: Moment) -> impl DoubleEndedIterator<Item = &Bucket> {
        self.buckets.iter().filter(move |bucket| !self.spec.is_past(bucket.begin, now))
    }

    /// The number of layers of all buckets.
    pub(crate) fn layer_count(&self) -> usize {
        self.buckets.iter().map(|bucket| bucket.filter.layers().len()).sum()
    }

    /// Returns a layer by its number, counted from the oldest layer of the oldest bucket.
    pub(crate) fn layer(&self, index: usize) -> Option<&Layer<BlockedBits>> {
        self.buckets.iter().flat_map(|bucket| bucket.filter.layers()).nth(index)
    }

    /// The counts of all buckets together.
    #[inline(never)]
    pub(crate) fn contents(&self) -> Contents {
        contents_of(&self.buckets)
    }

    /// The counts of the live buckets together.
    pub(crate) fn live_contents(&self, now: Moment) -> Contents {
        contents_of(self.live(now))
    }

    /// The number of items that the newest bucket can take before it is full or grows.
    pub(crate) fn remaining_capacity(&self) -> u64 {
        self.buckets.back().map_or(0, |newest| newest.filter.remaining_capacity())
    }

    /// The number of bytes taken from the allocator, including its own fields. Visits every layer.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        let places = self.buckets.capacity() * size_of::<Bucket>();
        let retired = self.retired.capacity() * size_of::<BloomFilter>();
        let fields = (size_of::<Self>() + places + retired) as u64;
        let chains = self.buckets.iter().map(|bucket| &bucket.filter).chain(&self.retired);
        let inside = chains.map(|chain| chain.allocated_bytes().saturating_sub(size_of_val(chain) as u64));
        inside.fold(fields, u64::saturating_add)
    }

    /// Moves its memory with `mover`; see [`Chain::relocate`].
    pub(crate) fn relocate(self: &mut Box<Self>, first: usize, mover: &mut impl Mover) -> Option<usize> {
        let mut before = 0;
        if first == 0 {
            relocate_boxed(self, mover);
        }
        for bucket in &mut self.buckets {
            let places = bucket.filter.places();
            if first < before + places {
                // One bucket per call: the next call continues with the next bucket.
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
        self.spec.hasher.hash_batch(items)
    }
}

/// Equal in every logical field, in every bit and in the deleted items.
impl PartialEq for WindowedFilter {
    fn eq(&self, other: &Self) -> bool {
        self.spec == other.spec && self.buckets == other.buckets
    }
}

/// Adds up the counts of buckets.
fn contents_of<'a>(buckets: impl IntoIterator<Item = &'a Bucket>) -> Contents {
    buckets.into_iter().fold(Contents::default(), |sum, bucket| sum.and(bucket.contents()))
}

/// The ceiling for one bucket. `others` returns the counts of the other buckets.
pub(crate) struct BucketCeiling<'a, C, F> {
    pub(crate) ceiling: &'a C,
    pub(crate) others: F,
    /// Whether new adds may be pending.
    pub(crate) pends: bool,
}

impl<C: Ceiling, F: Fn() -> Contents> Ceiling for BucketCeiling<'_, C, F> {
    fn available_bytes(&self, filter_bytes: u64, asked_bytes: u64) -> u64 {
        self.ceiling.available_bytes((self.others)().size_bytes.saturating_add(filter_bytes), asked_bytes)
    }

    fn counts_rounding(&self) -> bool {
        self.ceiling.counts_rounding()
    }

    /// Limits the number of layers in all buckets together, because a lookup visits them all and a dump numbers them.
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

impl WindowedFilter {
    /// Returns the bucket that must begin before an add, or `None` while the newest one accepts items. Its slot is on the grid of
    /// the earlier buckets, however much time has passed.
    pub fn bucket_due(&self, now: Moment) -> Option<BucketStart> {
        let Some(newest) = self.buckets.back() else { return Some(self.bucket_now(now)) };
        let span = self.spec.span();
        if now < newest.end || span == 0 {
            return None;
        }
        let passed = (now.0 - newest.end.0) / span;
        let begin = newest.end.0.saturating_add(passed.saturating_mul(span));
        Some(self.bucket_at(newest.slot.saturating_add(passed).saturating_add(1), Moment(begin), now))
    }

    /// Returns the start of a bucket that a client requests: the newest bucket ends now, and the time grid restarts here.
    pub fn bucket_now(&self, now: Moment) -> BucketStart {
        let newest = self.buckets.back();
        let slot = newest.map_or(0, |newest| newest.slot.saturating_add(1));
        let begin = newest.map_or(now, |newest| now.max(newest.begin));
        self.bucket_at(slot, if self.spec.forgets == Retention::Rolling { Moment(0) } else { begin }, now)
    }

    /// Returns the start of a bucket whose capacity is at least the number of items in the fullest live bucket.
    fn bucket_at(&self, slot: u64, begin: Moment, now: Moment) -> BucketStart {
        let most = match self.spec.forgets {
            Retention::Rolling => None,
            Retention::After { .. } => self.live(now).map(|bucket| bucket.filter.items_added()).max(),
        };
        let end = Moment(begin.0.saturating_add(self.spec.span()));
        BucketStart { slot, begin, end, capacity: self.spec.bucket_capacity().max(most.unwrap_or(0)).max(1) }
    }

    /// Begins a bucket. Drops expired buckets, and the oldest one if there are too many. Returns the number of items in the
    /// dropped buckets.
    ///
    /// The bucket replaces empty buckets with the same or a later slot: when a client replays the creation of a ring, or
    /// BF.CLEAR, this server has begun a bucket by its own clock.
    ///
    /// # Errors
    /// [`Error::AboveCeiling`], [`Error::OutOfMemory`]; [`Error::Unsound`] for a bucket that cannot follow the newest one. The
    /// filter is then unchanged.
    pub fn begin_bucket(&mut self, start: BucketStart, ceiling: &impl Ceiling) -> Result<u64, Error> {
        let BucketStart { slot, begin, end, capacity } = start;
        let kept = self.buckets.len() - self.replaced_by(start);
        let newest = kept.checked_sub(1).and_then(|last| self.buckets.get(last));
        let in_order = newest.is_none_or(|newest| newest.slot < slot && newest.begin <= begin);
        if !in_order || !self.spec.allows(slot, begin, end) {
            return Err(Error::Unsound);
        }
        let past = self.buckets.iter().take(kept).take_while(|bucket| self.spec.is_past(bucket.begin, begin)).count();
        let dropped = past.max((kept + 1).saturating_sub(self.spec.buckets as usize));
        reserve(&mut self.retired, self.buckets.len() - kept + dropped)?;
        let ceiling =
            BucketCeiling { ceiling, others: || contents_of(self.buckets.range(dropped..kept)), pends: false };
        let filter = BloomFilter::bucket(&self.spec.bucket(capacity), &ceiling)?;
        let items = self.buckets.range(..dropped).map(Bucket::items).sum();
        self.retired.extend(self.buckets.drain(kept..).map(|bucket| bucket.filter));
        if let Some(newest) = self.buckets.back_mut() {
            newest.end = newest.end.min(begin);
        }
        self.retired.extend(self.buckets.drain(..dropped).map(|bucket| bucket.filter));
        self.push_bucket(Bucket { slot, begin, end, filter, renewed: 0, is_omitted: false });
        Ok(items)
    }

    /// Returns how many of the newest buckets this one would replace.
    fn replaced_by(&self, start: BucketStart) -> usize {
        let is_after = |bucket: &Bucket| bucket.slot >= start.slot || bucket.begin > start.begin;
        self.buckets.iter().rev().take_while(|bucket| is_after(bucket) && bucket.filter.items_added() == 0).count()
    }

    /// Whether the ring has begun this bucket or a later one and added items to it.
    pub fn has_begun(&self, start: BucketStart) -> bool {
        let newest = self.buckets.iter().rev().nth(self.replaced_by(start));
        newest.is_some_and(|newest| newest.slot >= start.slot)
    }

    /// Whether a client may begin this bucket. It must begin within a span from now, because the ring begins no other bucket
    /// until this one ends, and its slot number must leave room for later buckets.
    pub fn may_begin(&self, start: BucketStart, now: Moment) -> bool {
        start.begin.0 <= now.0.saturating_add(self.spec.span()) && start.slot <= NUMBER_MAX / 2
    }
}

// Lookups in a ring, and adds to its newest bucket. These functions are not inlined, because their code would take registers from
// the other kinds in the same `match`.

/// Returns the items of the mask `wanted` that any of these buckets, newest first, contains. Prefetches the first line of the next
/// bucket while it tests one.
///
/// A lookup of 100 absent items in 8 full buckets for a total of a million items took 5.9 us, and 6.7 without [`Probes`]. For
/// 100 million items it took 21 us with or without; in a single filter of that capacity, 5. Memory latency dominates.
/// Prefetching two buckets ahead was not faster.
fn contained_in<'a>(buckets: impl Iterator<Item = &'a Bucket>, hashes: &[ItemHash], wanted: Mask) -> Mask {
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

impl WindowedFilter {
    /// Whether an item may be in a live bucket; `false` is certain.
    #[inline(never)]
    pub(crate) fn contains(&self, item: &[u8], now: Moment) -> bool {
        let hash = self.spec.hasher.hash(item);
        self.live(now).rev().any(|bucket| bucket.filter.contains_hash(hash))
    }

    /// Looks up a batch. Returns the items that may be in a live bucket.
    #[inline(never)]
    pub(crate) fn contains_batch(&self, hashes: &[ItemHash], now: Moment) -> Mask {
        contained_in(self.live(now).rev(), hashes, Mask::first(hashes.len()))
    }

    /// Adds an item. With `renews`, or if the window slides, the newest bucket gets it even if an older one has it.
    /// On an error, nothing has changed.
    #[inline(never)]
    pub(crate) fn add(
        &mut self,
        item: &[u8],
        renews: bool,
        origin: Origin,
        now: Moment,
        ceiling: &impl Ceiling,
    ) -> Result<Outcome, Error> {
        let added = self.add_batch(&[self.spec.hasher.hash(item)], renews, origin, now, ceiling);
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
        let is_rolling = self.spec.forgets == Retention::Rolling;
        let mut total = Added::NONE;
        loop {
            let all = Mask::first(hashes.len()) - Mask::first(total.done);
            let found = match origin {
                // The primary did not find it in any bucket that was live by the primary's clock.
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
            total.error = self.begin_bucket(self.bucket_now(now), ceiling).err();
            if total.error.is_some() {
                return total;
            }
        }
    }

    /// Adds a batch to the newest bucket, except the `known` items.
    fn add_to_newest(&mut self, hashes: &[ItemHash], origin: Origin, known: Mask, ceiling: &impl Ceiling) -> Added {
        // Every copy of a rolling ring begins its buckets at the same item counts.
        let when_full = if self.spec.forgets == Retention::Rolling { WhenFull::Refuse } else { WhenFull::Insert };
        let pends = self.spec.pends();
        let Some((newest, older)) = self.newest_and_older() else {
            return Added { error: Some(Error::Unsound), ..Added::NONE };
        };
        let ceiling = BucketCeiling { ceiling, others: || contents_of(&*older), pends };
        match origin {
            Origin::Client => newest.filter.add_absent_batch(hashes, known, &ceiling),
            Origin::Effect => newest.filter.insert_batch(hashes, known, when_full, &ceiling),
        }
    }

    /// Counts the items of the mask `taken`, which were just added to the newest bucket, as renewed in the newest older bucket that
    /// contains them. The items of `absent` are in no live bucket. Expired buckets count too, so the result does not depend on the
    /// clock.
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

// Deletes from a ring: a deleted item gets an entry in every bucket that contains it, or in none.

/// The items of a batch that each bucket contains, oldest bucket first.
type FoundIn = [Mask; BUCKETS_MAX as usize];

impl WindowedFilter {
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
        if !self.spec.hasher.is_keyed() {
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
        // Bitmap of the buckets that got an entry.
        let mut entered = 0_u64;
        for (number, _) in found_in.iter().enumerate().filter(|(_, found)| found.contains(index)) {
            let all = contents_of(&self.buckets);
            let Some(bucket) = self.buckets.get_mut(number) else { break };
            let size_bytes = all.size_bytes.saturating_sub(bucket.filter.size_bytes());
            let ceiling = BucketCeiling { ceiling, others: || Contents { size_bytes, ..all }, pends: false };
            match bucket.filter.delete(hash, origin, &ceiling) {
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

// Everything about a filter that forgets except its bits and tables, in the format that `format/stored.rs` specifies.

/// The description of a bucket.
struct DescribedBucket {
    slot: u64,
    begin: Moment,
    end: Moment,
    capacity: u64,
    renewed: u64,
    is_omitted: bool,
    layers: Layers,
}

/// The description of a filter that forgets.
pub(crate) struct Description {
    spec: WindowedSpec,
    buckets: Vec<DescribedBucket>,
}

fn write_windowed_spec(spec: &WindowedSpec, sink: &mut impl Sink) {
    let WindowedSpec { rate, capacity, scaling, hasher, forgets, buckets } = *spec;
    write_spec(&NativeSpec { rate, capacity, scaling, hasher, policy: Policy::One }, sink);
    let (seconds, is_sliding) = match forgets {
        Retention::After { seconds, is_sliding } => (seconds, is_sliding),
        Retention::Rolling => (0, false),
    };
    sink.put_u64(seconds);
    sink.put_u64(is_sliding.into());
    sink.put_u64(buckets.into());
}

fn read_flag(source: &mut impl Source) -> Result<bool, codec::Error> {
    match source.u64()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(codec::Error::OutOfRange),
    }
}

impl DescribedBucket {
    fn write(bucket: &Bucket, sink: &mut impl Sink) {
        let Bucket { slot, begin, end, ref filter, renewed, is_omitted } = *bucket;
        sink.put_u64(slot);
        sink.put_u64(begin.0);
        sink.put_u64(end.0);
        sink.put_u64(filter.spec().capacity);
        // Only SLIDING renews items. For other rings these are the flags of the first format.
        sink.put_u64(renewed << 1 | u64::from(is_omitted));
        write_layers(filter.layers().iter().map(Layer::description), sink);
    }

    fn read(source: &mut impl Source) -> Result<Self, codec::Error> {
        let (slot, begin, end) = (source.u64()?, Moment(source.u64()?), Moment(source.u64()?));
        let (capacity, flags) = (source.u64()?, source.u64()?);
        let (renewed, is_omitted) = (flags >> 1, flags & 1 == 1);
        Ok(Self { slot, begin, end, capacity, renewed, is_omitted, layers: read_layers(source)? })
    }
}

impl Description {
    /// Reads what [`write()`] wrote.
    pub(crate) fn read(source: &mut impl Source) -> Result<Self, codec::Error> {
        let (NativeSpec { rate, capacity, scaling, hasher, policy }, is_sound_policy) = read_spec(source)?;
        let (seconds, is_sliding, buckets) = (source.u64()?, read_flag(source)?, read_u32(source)?);
        let forgets = match seconds {
            0 if is_sliding => return Err(codec::Error::OutOfRange),
            0 => Retention::Rolling,
            seconds => Retention::After { seconds, is_sliding },
        };
        let spec = WindowedSpec { rate, capacity, scaling, hasher, forgets, buckets };
        let count = source.u64()?;
        if count > u64::from(BUCKETS_MAX) {
            return Err(codec::Error::OutOfRange);
        }
        let mut described = Vec::new();
        for _ in 0..count {
            push(&mut described, DescribedBucket::read(source)?)?;
        }
        let description = Self { spec, buckets: described };
        let is_sound = is_sound_policy && policy == Policy::One && spec.is_sound() && description.is_sound();
        if is_sound { Ok(description) } else { Err(Error::Unsound.into()) }
    }

    /// Returns the described filter with zero bits and empty tables. Checks the ceiling before it allocates each bucket.
    pub(crate) fn with_zero_bits(&self, ceiling: &impl Ceiling) -> Result<WindowedFilter, Error> {
        let mut filter = WindowedFilter::without_buckets(self.spec)?;
        for bucket in &self.buckets {
            let DescribedBucket { slot, begin, end, capacity, renewed, is_omitted, ref layers } = *bucket;
            let spec = self.spec.bucket(capacity);
            // The total number of layers was checked when the description was read.
            let others = || Contents { layers: 0, ..filter.contents() };
            let ceiling = BucketCeiling { ceiling, others, pends: false };
            let bits = BloomFilter::bucket_with_zero_bits(spec, layers, &ceiling)?;
            filter.push_bucket(Bucket { slot, begin, end, filter: bits, renewed, is_omitted });
        }
        Ok(filter)
    }

    /// Whether the first buckets of a filter match the description.
    pub(crate) fn is_of(&self, filter: &WindowedFilter) -> bool {
        let is_described = |(bucket, described): (&Bucket, &DescribedBucket)| {
            let Bucket { slot, begin, end, ref filter, .. } = *bucket;
            let layers = filter.layers().get(..described.layers.len()).unwrap_or_default();
            (slot, begin, end) == (described.slot, described.begin, described.end)
                && are_shaped(layers, &described.layers)
        };
        self.spec == filter.spec()
            && self.buckets.len() <= filter.buckets().len()
            && filter.buckets().zip(&self.buckets).all(is_described)
    }

    /// Whether the buckets are in order of time, with distinct slots, each beginning after the end of the previous one. A
    /// bucket must not have more renewed items than items, and the number of layers must not exceed the limit of a dump.
    fn is_sound(&self) -> bool {
        let is_rolling = self.spec.forgets == Retention::Rolling;
        let count = self.buckets.len();
        let in_order = self.buckets.windows(2).all(|pair| match pair {
            [before, after] => before.slot < after.slot && before.end <= after.begin,
            _ => true,
        });
        let times = |bucket: &DescribedBucket| {
            self.spec.allows(bucket.slot, bucket.begin, bucket.end)
                && (!is_rolling || bucket.begin == Moment(0) && bucket.end == Moment(0))
        };
        let renewed = |bucket: &DescribedBucket| {
            let items = bucket.layers.iter().fold(0u64, |sum, layer| sum.saturating_add(layer.items));
            bucket.renewed <= if self.spec.is_sliding() { items } else { 0 }
        };
        let layers = self.buckets.iter().map(|bucket| bucket.layers.len()).sum::<usize>();
        (1..=self.spec.buckets as usize).contains(&count)
            && in_order
            && self.buckets.iter().all(|bucket| times(bucket) && renewed(bucket))
            && layers <= LAYERS_MAX
    }
}

/// Writes everything about a filter except its cells and tables.
pub(crate) fn write(filter: &WindowedFilter, sink: &mut impl Sink) {
    write_windowed_spec(&filter.spec(), sink);
    sink.put_u64(filter.buckets().len() as u64);
    filter.buckets().for_each(|bucket| DescribedBucket::write(bucket, sink));
}

/// See [`Filter::identify`](crate::Filter::identify).
pub(crate) fn identify(filter: &WindowedFilter, mut layers: usize, sink: &mut impl Sink) {
    write_windowed_spec(&filter.spec(), sink);
    for Bucket { slot, begin, end, filter, .. } in filter.buckets() {
        let counted = filter.layers().get(..layers).unwrap_or(filter.layers());
        if counted.is_empty() {
            break;
        }
        layers -= counted.len();
        [*slot, begin.0, end.0, filter.spec().capacity].into_iter().for_each(|number| sink.put_u64(number));
        write_shapes(counted.iter().map(Layer::description), sink);
    }
}
