//! The layout of our cuckoo filters (Fan, Andersen, Kaminsky, Mitzenmacher: Cuckoo Filter: Practically Better Than Bloom, 2014): an item's
//! fingerprint is in one of two buckets of four slots. Both are in one group of at most a page, so an add while a snapshot is being saved
//! copies one page, whatever it moves.
//!
//! A delete takes any slot that matches. Within a layer all of them are equal, but between layers they are not, so layers are nested: items
//! with equal positions in a layer have equal positions in every older one. If a delete in the newest layer takes the slot of another item,
//! that item is found by the slot of the deleted one in the older layer. Without nesting, members are lost.
//!
//! All of this is frozen: the positions, the order of search, and the sizes, because a stored filter and a replica must find the same slots.

use super::blocked::scale;
use super::estimate::FillEstimate;
use super::sizing::{Scaling, to_f64, to_u64};
use super::{Geometry, LayerDescription, SupportsPending};
use crate::cells::{
    BUCKET_SLOTS, Bucket, NARROW_BITS_MAX, NarrowBucket, PAGE_BYTES, SLOT_BITS_MAX, SLOTS_BYTES_MIN, Slots, WideBucket,
};
use crate::error::Error;
use crate::hash::ItemHash;

/// The fewest bits of a fingerprint.
const FINGERPRINT_BITS_MIN: u32 = 4;
/// The most copies of an item in a layer. With more, few items that are added again and again would fill their buckets.
pub(crate) const COPIES_MAX: u32 = 4;
/// The most buckets of a group: of a page with the shortest fingerprints.
const GROUP_BUCKETS_MAX: usize = PAGE_BYTES * 8 / (BUCKET_SLOTS * FINGERPRINT_BITS_MIN) as usize;

/// The shape of a layer of buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CuckooGeometry {
    /// Number of groups. Both buckets of an item are in the same one.
    groups: u64,
    /// The number of bytes from one group to the next. A group of as many buckets as fit a page takes a page.
    group_bytes: u16,
    /// Number of buckets per group, even.
    buckets: u16,
    /// The binary logarithm of the number of buckets for each bucket of the first layer's group.
    split: u8,
    /// Number of bits of a fingerprint.
    bits: u8,
    /// The same of the first layer. These bits of a fingerprint alone determine the distance between its buckets.
    first_bits: u8,
}

// Sizes.

impl CuckooGeometry {
    /// Returns the geometry of a first layer for `capacity` items at false positive rate `rate`: the one with the shortest fingerprints
    /// whose rate at capacity is not above that. Tries up to 28 lengths.
    ///
    /// # Errors
    /// [`Error::CapacityOutOfRange`] for capacity 0, [`Error::RateTooLow`] if no fingerprint is long enough, [`Error::SizeOverflow`] if the
    /// size in bytes does not fit 63 bits.
    pub(crate) fn first(capacity: u64, rate: f64, scaling: Scaling) -> Result<Self, Error> {
        if capacity == 0 {
            return Err(Error::CapacityOutOfRange);
        }
        for bits in FINGERPRINT_BITS_MIN..=SLOT_BITS_MAX {
            let (groups, buckets) = Self::groups_for(capacity, bits, scaling);
            let bits = u8::try_from(bits).unwrap_or(u8::MAX);
            let buckets = u16::try_from(buckets).unwrap_or(u16::MAX);
            let geometry = Self { groups, group_bytes: 0, buckets, split: 0, bits, first_bits: bits };
            if geometry.is_within(rate, capacity) {
                return geometry.sized();
            }
        }
        Err(Error::RateTooLow)
    }

    /// Returns the numbers of groups and of buckets in each that hold `capacity` fingerprints of `bits` bits.
    fn groups_for(capacity: u64, bits: u32, scaling: Scaling) -> (u64, u64) {
        let wanted = to_f64(capacity);
        let (most, grows) = (page_buckets(bits), scaling != Scaling::Fixed);
        let of_grown = deviations(GROUPS_OF_GROWN);
        // In one group, whose buckets double with the layers until they fill a page, in a filter that grows.
        let mut buckets = to_u64(wanted / f64::from(BUCKET_SLOTS)).clamp(2, most).next_multiple_of(2).min(most);
        while buckets < most {
            let mut load = load_of_one(buckets);
            if grows {
                load = load.min(load_of_many(buckets << split_max(buckets, bits), of_grown));
            }
            if slots_of(buckets) * load >= wanted {
                return (1, buckets);
            }
            buckets += 2;
        }
        let load = |groups: f64| load_of_many(most, if grows { of_grown } else { deviations(groups) });
        let mut groups = 1.0;
        // Rises to the least number that suffices, in a few steps, because the load falls with the logarithm of the number.
        loop {
            let needed = (wanted / (slots_of(most) * load(groups))).ceil();
            if needed <= groups {
                return (to_u64(groups), most);
            }
            groups = needed;
        }
    }

    /// Returns the geometry of a later layer; this is the first one. `times`: the number of doublings from this capacity to `capacity`.
    /// `rate`: the later layer's rate at `capacity` items, at most this layer's.
    pub(crate) fn doubled(self, times: u32, capacity: u64, rate: f64) -> Result<Self, Error> {
        let splits = if self.groups == 1 { split_max(self.buckets.into(), self.bits.into()).min(times) } else { 0 };
        let groups = 1u64.checked_shl(times - splits).and_then(|factor| self.groups.checked_mul(factor));
        let mut layer = Self {
            groups: groups.ok_or(Error::SizeOverflow)?,
            buckets: self.buckets << splits,
            split: u8::try_from(splits).unwrap_or_default(),
            ..self
        };
        while !layer.is_within(rate, capacity) {
            if u32::from(layer.bits) == SLOT_BITS_MAX {
                return Err(Error::RateTooLow);
            }
            layer.bits += 1;
        }
        layer.sized()
    }

    /// Returns the geometry with the size of its groups.
    fn sized(self) -> Result<Self, Error> {
        let is_page = u64::from(self.buckets) == page_buckets(self.bits.into());
        let bytes = if is_page { PAGE_BYTES as u64 } else { u64::from(self.buckets / 2) * u64::from(self.bits) };
        let size = self.groups.checked_mul(bytes).filter(|size| i64::try_from(*size).is_ok());
        let group_bytes = u16::try_from(bytes).ok().filter(|_| size.is_some());
        Ok(Self { group_bytes: group_bytes.ok_or(Error::SizeOverflow)?, ..self })
    }

    /// Whether the rate with this number of items is at most `rate`.
    fn is_within(self, rate: f64, items: u64) -> bool {
        // An absent item is compared with eight slots, of which `load` are occupied. Two in 2^f hashes have fingerprint 1.
        let (load, values) = (to_f64(items) / to_f64(self.slots()), to_f64(1 << self.bits));
        8.0 * load * (values + 2.0) <= rate * values * values
    }

    /// The number of slots.
    pub(crate) fn slots(self) -> u64 {
        self.groups.saturating_mul(u64::from(self.buckets)).saturating_mul(BUCKET_SLOTS.into())
    }

    /// The number of buckets of a group.
    pub(crate) fn group_buckets(self) -> u64 {
        self.buckets.into()
    }

    /// The number of bytes from one group to the next.
    pub(crate) fn group_bytes(self) -> u64 {
        self.group_bytes.into()
    }
}

/// The number of groups of a layer of a growing filter, for its load.
const GROUPS_OF_GROWN: f64 = 1000.0;

/// Returns the number of buckets of fingerprints of `bits` bits that fit a page, an even number.
fn page_buckets(bits: u32) -> u64 {
    PAGE_BYTES as u64 * 8 / u64::from(8 * bits) * 2
}

/// Returns how often the buckets of a group of the first layer, with fingerprints of `bits` bits, can double in a page.
fn split_max(buckets: u64, bits: u32) -> u32 {
    (page_buckets(bits) / buckets.max(1)).checked_ilog2().unwrap_or_default()
}

fn slots_of(buckets: u64) -> f64 {
    to_f64(buckets) * f64::from(BUCKET_SLOTS)
}

/// Returns the share of the slots of one group that can be filled: with this many, one insert in some hundred groups fails.
fn load_of_one(buckets: u64) -> f64 {
    let slots = slots_of(buckets);
    0.985 - 0.9 / slots.sqrt() - 1.0 / slots
}

/// Returns by how many standard deviations the fullest of `groups` groups may exceed the mean: one in a thousand filters exceeds that.
fn deviations(groups: f64) -> f64 {
    (2.0 * libm::log(1000.0 * groups)).sqrt()
}

/// Returns the share of the slots of many groups together that can be filled. The number of items in a group is a Poisson variable, and the
/// fullest group must still have room.
fn load_of_many(buckets: u64, deviations: f64) -> f64 {
    let slots = slots_of(buckets);
    let root = ((deviations * deviations + 4.0 * load_of_one(buckets) * slots).sqrt() - deviations) / 2.0;
    root * root / slots
}

// Positions.

/// The position of an item in a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CuckooProbe {
    /// The first byte of its group.
    group: u64,
    /// Its buckets in the group.
    buckets: [u16; 2],
    fingerprint: u32,
}

/// Mixes the bits of a fingerprint: the finalizer of SplitMix64 without its last step (Steele, Lea, Flood, 2014).
#[inline]
const fn mix(fingerprint: u32) -> u64 {
    let word = (fingerprint as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB)
}

impl CuckooGeometry {
    /// Returns the other bucket of a fingerprint. The other bucket of that one is this bucket, and they are never the same, because one of
    /// the two buckets of the first layer is even and one is odd.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "buckets are below `self.buckets`")]
    fn other(self, bucket: u16, fingerprint: u32) -> u16 {
        let mixed = mix((fingerprint & ((1 << self.first_bits) - 1)).max(1));
        let first_buckets = u64::from(self.buckets >> self.split);
        let distance = (((mixed >> 32) * (first_buckets / 2)) >> 32) * 2 + 1;
        let (bucket, ones) = (u64::from(bucket), (1u64 << self.split) - 1);
        let coarse = distance.wrapping_sub(bucket >> self.split);
        let coarse = if coarse < first_buckets { coarse } else { coarse.wrapping_add(first_buckets) };
        let fine = (bucket & ones) ^ (mixed & 0xFFFF_FFFF) >> (32 - self.split);
        (coarse << self.split | fine) as u16
    }

    /// Returns the first bit of a bucket.
    #[inline]
    fn bit(self, group: u64, bucket: u16) -> u64 {
        group * 8 + u64::from(bucket) * u64::from(BUCKET_SLOTS * u32::from(self.bits))
    }

    #[inline]
    fn bucket<B: Bucket>(self, cells: &Slots, group: u64, bucket: u16) -> B {
        B::read(cells, self.bit(group, bucket), self.bits.into())
    }

    #[inline]
    fn set<B: Bucket>(self, cells: &mut Slots, group: u64, (bucket, slot): (u16, u32), fingerprint: u32) {
        B::write(cells, self.bit(group, bucket), self.bits.into(), slot, fingerprint);
    }

    #[inline]
    fn contains<B: Bucket>(self, cells: &Slots, probe: CuckooProbe) -> bool {
        let CuckooProbe { group, buckets, fingerprint } = probe;
        let [first, second] = buckets.map(|bucket| self.bucket::<B>(cells, group, bucket));
        // Without a branch, which half of the members would mispredict.
        first.contains(fingerprint) | second.contains(fingerprint)
    }

    #[inline]
    fn count_in<B: Bucket>(self, cells: &Slots, probe: CuckooProbe) -> u32 {
        let CuckooProbe { group, buckets, fingerprint } = probe;
        buckets.iter().map(|bucket| self.bucket::<B>(cells, group, *bucket).count(fingerprint)).sum()
    }

    #[inline]
    fn store_in<B: Bucket>(self, cells: &mut Slots, probe: CuckooProbe) -> (u32, bool) {
        let CuckooProbe { group, buckets: [first, second], fingerprint } = probe;
        let [one, other] = [first, second].map(|bucket| self.bucket::<B>(cells, group, bucket));
        let copies = one.count(fingerprint) + other.count(fingerprint);
        if copies >= COPIES_MAX {
            return (copies, false);
        }
        let (bucket, read) = if other.count(0) > one.count(0) { (second, other) } else { (first, one) };
        let is_stored = match read.find(0) {
            Some(slot) => {
                self.set::<B>(cells, group, (bucket, slot), fingerprint);
                true
            }
            // A way is nearly always short.
            None => {
                let short = self.make_room::<B, SHORT_QUEUE>(cells, probe);
                short.or_else(|| self.make_room::<B, GROUP_BUCKETS_MAX>(cells, probe)).unwrap_or(false)
            }
        };
        (copies, is_stored)
    }

    fn remove_in<B: Bucket>(self, cells: &mut Slots, probe: CuckooProbe) -> bool {
        let CuckooProbe { group, buckets, fingerprint } = probe;
        for bucket in buckets {
            if let Some(slot) = self.bucket::<B>(cells, group, bucket).find(fingerprint) {
                self.set::<B>(cells, group, (bucket, slot), 0);
                return true;
            }
        }
        false
    }

    /// Searches breadth first from the two buckets of an item, slot by slot, for a bucket with room, moves one fingerprint from each
    /// bucket on the way to the next, and stores the item. Visits each bucket of the group at most once, so it fails only if no moves make
    /// room. Returns whether there was room; `None` if the queue is too short to know.
    #[cold]
    #[inline(never)]
    fn make_room<B: Bucket, const QUEUE: usize>(self, cells: &mut Slots, probe: CuckooProbe) -> Option<bool> {
        let CuckooProbe { group, buckets, fingerprint } = probe;
        let mut queue = Queue::<QUEUE>::NEW;
        buckets.iter().for_each(|bucket| queue.push(Visit { bucket: *bucket, from: u16::MAX, slot: 0 }));
        let mut index = 0;
        while let Some(Visit { bucket, .. }) = queue.visit(index) {
            let read = self.bucket::<B>(cells, group, bucket);
            if let Some(slot) = read.find(0) {
                self.move_along::<B, QUEUE>(cells, group, &queue, (index, slot), fingerprint);
                return Some(true);
            }
            let from = u16::try_from(index).unwrap_or_default();
            for slot in 0..BUCKET_SLOTS {
                queue.push(Visit { bucket: self.other(bucket, read.slot(slot)), from, slot });
            }
            index += 1;
        }
        (!queue.is_short).then_some(false)
    }

    /// Moves the fingerprints on the way to an empty slot, the last one first, and stores a fingerprint in the first slot of the way.
    fn move_along<B: Bucket, const QUEUE: usize>(
        self,
        cells: &mut Slots,
        group: u64,
        queue: &Queue<QUEUE>,
        (mut index, mut slot): (usize, u32),
        fingerprint: u32,
    ) {
        while let Some(Visit { bucket, from, slot: from_slot }) = queue.visit(index) {
            let Some(before) = queue.visit(from.into()) else {
                return self.set::<B>(cells, group, (bucket, slot), fingerprint);
            };
            let moved = self.bucket::<B>(cells, group, before.bucket).slot(from_slot);
            self.set::<B>(cells, group, (bucket, slot), moved);
            (index, slot) = (from.into(), from_slot);
        }
    }

    fn occupied_in<B: Bucket>(self, cells: &Slots, groups: u64) -> u64 {
        let in_group = |group: u64| {
            let free = |bucket| self.bucket::<B>(cells, group, bucket).count(0);
            (0..self.buckets).map(|bucket| u64::from(BUCKET_SLOTS - free(bucket))).sum::<u64>()
        };
        (0..groups.min(self.groups)).map(|group| in_group(group * self.group_bytes())).sum()
    }
}

/// The buckets that a search visits without a long queue.
const SHORT_QUEUE: usize = 64;

/// A bucket to visit.
#[derive(Clone, Copy)]
struct Visit {
    bucket: u16,
    /// The index of the bucket from which it was reached, and the slot there of which it is the other bucket.
    from: u16,
    slot: u32,
}

/// The buckets to visit, each once, in order.
struct Queue<const LENGTH: usize> {
    visits: [Visit; LENGTH],
    length: usize,
    seen: [u64; GROUP_BUCKETS_MAX / 64],
    /// Whether a bucket was left out.
    is_short: bool,
}

impl<const LENGTH: usize> Queue<LENGTH> {
    const NEW: Self = Self {
        visits: [Visit { bucket: 0, from: 0, slot: 0 }; LENGTH],
        length: 0,
        seen: [0; GROUP_BUCKETS_MAX / 64],
        is_short: false,
    };

    /// Appends a bucket unless it was appended before.
    #[inline]
    fn push(&mut self, visit: Visit) {
        let bit = 1 << (visit.bucket % 64);
        if let Some(seen) = self.seen.get_mut(usize::from(visit.bucket) / 64)
            && *seen & bit == 0
        {
            *seen |= bit;
            match self.visits.get_mut(self.length) {
                Some(next) => {
                    *next = visit;
                    self.length += 1;
                }
                None => self.is_short = true,
            }
        }
    }

    #[inline]
    fn visit(&self, index: usize) -> Option<Visit> {
        self.visits.get(index).copied().filter(|_| index < self.length)
    }
}

/// Evaluates an expression for buckets of the size that is enough for the fingerprints.
macro_rules! by_width {
    ($geometry:expr, $name:ident($($argument:expr),*)) => {
        if u32::from($geometry.bits) <= NARROW_BITS_MAX {
            $geometry.$name::<NarrowBucket>($($argument),*)
        } else {
            $geometry.$name::<WideBucket>($($argument),*)
        }
    };
}

impl CuckooGeometry {
    /// Returns the number of slots that match an item.
    #[inline]
    pub(crate) fn count(self, cells: &Slots, probe: CuckooProbe) -> u32 {
        by_width!(self, count_in(cells, probe))
    }

    /// Stores a copy of an item, unless there are [`COPIES_MAX`]: in the emptier of its two buckets, the first if they are equal. If both
    /// are full, moves others to make room. Returns the number of copies before, and whether one was stored; if not, nothing has changed.
    #[inline]
    pub(crate) fn store(self, cells: &mut Slots, probe: CuckooProbe) -> (u32, bool) {
        by_width!(self, store_in(cells, probe))
    }

    /// Empties the first slot that matches an item. Returns whether there was one.
    pub(crate) fn remove(self, cells: &mut Slots, probe: CuckooProbe) -> bool {
        by_width!(self, remove_in(cells, probe))
    }

    /// Counts the occupied slots of the first `groups` groups. Reads about a gigabyte per second.
    pub(crate) fn occupied(self, cells: &Slots, groups: u64) -> u64 {
        by_width!(self, occupied_in(cells, groups))
    }
}

impl Geometry for CuckooGeometry {
    type Hash = ItemHash;
    type Probe = CuckooProbe;
    /// Both buckets are read at once: the first test is exact.
    type Prefix = ();
    type Address = CuckooProbe;
    type Cells = Slots;

    /// The definition of a filter determines its layers, and the cells their items.
    fn check(_: &LayerDescription<Self>) -> Result<(), Error> {
        Ok(())
    }

    fn size_bytes(&self) -> u64 {
        self.groups.saturating_mul(self.group_bytes()).max(SLOTS_BYTES_MIN as u64).saturating_add(7) / 8 * 8
    }

    fn modulus(&self) -> u64 {
        self.slots()
    }

    /// Two buckets.
    fn hashes(&self) -> u32 {
        2
    }

    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a bucket is below `self.buckets`, and a fingerprint has less than 32 bits"
    )]
    fn probe(&self, hash: ItemHash) -> CuckooProbe {
        let (group, _) = scale(hash.h1, self.groups);
        let first = (((hash.h2 >> 32) * u64::from(self.buckets)) >> 32) as u16;
        let fingerprint = (hash.h2 as u32 & ((1 << self.bits) - 1)).max(1);
        CuckooProbe { group: group * self.group_bytes(), buckets: [first, self.other(first, fingerprint)], fingerprint }
    }

    #[inline]
    fn prefetch_first(&self, cells: &Slots, probe: CuckooProbe) {
        probe.buckets.iter().for_each(|bucket| cells.prefetch_bucket(self.bit(probe.group, *bucket)));
    }

    #[inline]
    fn prefetch_rest(&self, _: &Slots, _: CuckooProbe) {}

    #[inline]
    fn contains_first(&self, cells: &Slots, probe: CuckooProbe) -> bool {
        by_width!(self, contains(cells, probe))
    }

    #[inline]
    fn contains_rest(&self, _: &Slots, _: CuckooProbe) -> bool {
        true
    }

    #[inline]
    fn prefix(_: ItemHash, _: u32) {}

    #[inline]
    fn address(&self, hash: ItemHash) -> CuckooProbe {
        self.probe(hash)
    }

    #[inline]
    fn prefetch_prefix(&self, cells: &Slots, probe: CuckooProbe, (): &()) {
        self.prefetch_first(cells, probe);
    }

    #[inline]
    fn has_prefix(&self, cells: &Slots, probe: CuckooProbe, (): &()) -> bool {
        self.contains_first(cells, probe)
    }

    /// Stores a copy if there is room.
    fn insert(&self, cells: &mut Slots, probe: CuckooProbe) {
        self.store(cells, probe);
    }

    fn fill_estimate(&self, cells: &Slots) -> FillEstimate {
        const SAMPLE_BYTES: u64 = 1024 * 1024;
        let groups = (SAMPLE_BYTES / self.group_bytes().max(1)).clamp(1, self.groups);
        let slots = to_f64(groups * u64::from(self.buckets)) * f64::from(BUCKET_SLOTS);
        let fill = to_f64(self.occupied(cells, groups)) / slots;
        let rate = 2.0 * f64::from(BUCKET_SLOTS) * fill / to_f64(1 << self.bits);
        FillEstimate { fill, items: fill * to_f64(self.slots()), rate: rate.min(1.0) }
    }
}

/// Adds are never pending: what they move depends on their order, and the cells would differ from a replica's.
impl SupportsPending for CuckooGeometry {}
