//! Filters of the native layout: a chain of layers whose rates add up to the requested rate.

use std::cell::Cell;
use std::ffi::CStr;

use super::Request;
use super::effect::{self, ArgToken, push_args, push_hasher, push_scaling};
use crate::cells::{Blocks, Histogram};
use crate::chain::{
    AddRules, Added, CellsReader, Chain, ChainSpec, Deleted, HashSet, LAYERS_MAX, Layer, Origin, Outcome, Removed,
    Rules, WhenFull,
};
use crate::codec::{self, PackedSink, PackedSource, Sink, Source, read_u32};
use crate::error::Error;
use crate::geometry::sizing::{self, Policy, Scaling};
use crate::geometry::{BlockedBits, BlockedGeometry, Geometry, LayerDescription, estimate};
use crate::hash::{HashBatch, Hasher, ItemHash};
use crate::host::Ceiling;
use crate::mask::{BATCH, Mask};
use crate::memory::{push, try_box};

/// The definition of a native filter. Everything else about its layers follows from it.
///
/// In this order, [`Filter`](crate::Filter) takes 112 bytes rather than 120. The compiler tells its variants apart by unused values of
/// `policy`, and nothing but padding follows that, so that the fields of the other variants have their place in front of it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct NativeSpec {
    /// The requested false positive rate, [`RATE_MIN`](sizing::RATE_MIN) to [`RATE_MAX`](sizing::RATE_MAX).
    pub rate: f64,
    /// The requested capacity, at least 1: the capacity of the first layer.
    pub capacity: u64,
    /// Its behavior when full.
    pub scaling: Scaling,
    /// How it hashes.
    pub hasher: Hasher,
    /// The rules by which its layers divide the rate.
    pub policy: Policy,
}

thread_local! {
    /// The first layer computed last, and its definition without the seed: in a snapshot of small filters it is mostly the next one, too.
    static LAST_FIRST_LAYER: Cell<Option<(NativeSpec, LayerDescription<BlockedBits>)>> = const { Cell::new(None) };
}

impl Rules for NativeSpec {
    type Geometry = BlockedBits;
    type Deleted = Option<Box<Deleted>>;

    #[inline]
    fn hash(&self, item: &[u8]) -> ItemHash {
        self.hasher.hash(item)
    }

    #[inline]
    fn hash_batch<'a>(&self, items: impl IntoIterator<Item = &'a [u8]>) -> HashBatch {
        self.hasher.hash_batch(items)
    }

    fn scaling(&self) -> Scaling {
        self.scaling
    }

    fn next_layer(&self, index: usize, capacity: u64, _rate: f64) -> Result<LayerDescription<BlockedBits>, Error> {
        self.layer(index, sizing::next_capacity(capacity, self.scaling)?)
    }

    /// Counts the fields as the first release did, whatever their present size: clients compare this number, and ceilings limit
    /// it.
    fn size_bytes(layers: usize, cells_bytes: u64) -> u64 {
        const FILTER_BYTES: u64 = 48;
        const LAYER_BYTES: u64 = 72;
        (FILTER_BYTES + LAYER_BYTES * layers as u64).saturating_add(cells_bytes)
    }

    fn zeroed(&self, geometry: &BlockedBits) -> Result<Blocks, Error> {
        Blocks::zeroed(geometry.blocks())
    }
}

impl AddRules for NativeSpec {
    /// An effect is inserted without a lookup.
    #[inline]
    fn add_one(
        chain: &mut BloomFilter,
        hash: ItemHash,
        origin: Origin,
        ceiling: &impl Ceiling,
    ) -> Result<Outcome, Error> {
        if origin == Origin::Client {
            return chain.add_absent(hash, ceiling).map(Outcome::of);
        }
        let added = chain.insert_batch(&[hash], Mask::NONE, WhenFull::Insert, ceiling);
        added.error.map_or(Ok(Outcome::New), Err)
    }

    #[inline]
    fn add_batch(chain: &mut BloomFilter, hashes: &HashBatch, origin: Origin, ceiling: &impl Ceiling) -> Added {
        match origin {
            Origin::Client => chain.add_absent_batch(hashes, Mask::NONE, ceiling),
            Origin::Effect => chain.insert_batch(hashes, Mask::NONE, WhenFull::Insert, ceiling),
        }
    }

    fn remove_batch(chain: &mut BloomFilter, hashes: &HashBatch, origin: Origin, ceiling: &impl Ceiling) -> Removed {
        if !chain.rules().hasher.is_keyed() {
            return Removed::REFUSED;
        }
        chain.delete_batch(hashes, origin, ceiling)
    }
}

impl ChainSpec for NativeSpec {
    type Rules = Self;

    fn check(&self) -> Result<(), Error> {
        if (sizing::RATE_MIN..=sizing::RATE_MAX).contains(&self.rate) { Ok(()) } else { Err(Error::RateOutOfRange) }
    }

    fn rules(&self) -> Self {
        *self
    }

    fn first_layer(&self) -> Result<LayerDescription<BlockedBits>, Error> {
        let unseeded = Self { hasher: Hasher::murmur3(0), ..*self };
        match LAST_FIRST_LAYER.get() {
            Some((spec, layer)) if spec == unseeded => Ok(layer),
            _ => {
                let layer = self.layer(0, self.capacity)?;
                LAST_FIRST_LAYER.set(Some((unseeded, layer)));
                Ok(layer)
            }
        }
    }
}

impl NativeSpec {
    /// The definition of the filter that stands in for one that was moved out.
    const NOTHING: Self = Self {
        rate: sizing::RATE_MAX,
        capacity: 1,
        scaling: Scaling::Fixed,
        hasher: Hasher::murmur3(0),
        policy: Policy::One,
    };

    /// Returns the definition of a new filter.
    pub fn new(rate: f64, capacity: u64, scaling: Scaling, hasher: Hasher) -> Self {
        Self { rate, capacity, scaling, hasher, policy: Policy::One }.with_newest_policy()
    }

    /// Returns the definition of a new filter with MurmurHash3, the usual hash.
    pub fn murmur3(rate: f64, capacity: u64, scaling: Scaling, seed: u32) -> Self {
        Self::new(rate, capacity, scaling, Hasher::murmur3(seed))
    }

    /// Returns the definition for a request; see [`clamp_rate`]. `None` if the filter cannot have the requested policy.
    ///
    /// A primary states every policy except the first, which 0.2 did not state.
    pub(super) fn of(request: &Request, hasher: Hasher, must_obey: bool) -> Option<Self> {
        let Request { rate, capacity, scaling, policy, .. } = *request;
        let spec = Self { rate: clamp_rate(rate), capacity, scaling, hasher, policy: policy.unwrap_or(Policy::One) };
        let is_new = policy.is_none() && !must_obey;
        let spec = if is_new { spec.with_newest_policy() } else { spec };
        spec.policy.suits(spec.rate, scaling, capacity).then_some(spec)
    }

    /// Returns the definition with the newest policy, unless the filter cannot have it.
    fn with_newest_policy(self) -> Self {
        let suits = Policy::NEWEST.suits(self.rate, self.scaling, self.capacity);
        if suits { Self { policy: Policy::NEWEST, ..self } } else { self }
    }

    /// Whether filters of both definitions have a union.
    fn unites_with(self, other: Self) -> bool {
        self.policy.sizes_like(other.policy) && self == Self { policy: self.policy, ..other }
    }

    /// Returns the layers that follow from the definition, oldest first and without items, up to the last that is possible.
    pub(crate) fn layers(self) -> impl Iterator<Item = LayerDescription<BlockedBits>> {
        let mut last: Option<LayerDescription<BlockedBits>> = None;
        (0..).map_while(move |index| {
            let next = last.map_or_else(|| self.first_layer(), |last| self.next_layer(index, last.capacity, last.rate));
            last = next.ok();
            last
        })
    }

    /// Returns layer number `index`. Its false positive rate is a share of the filter's; `sizing` computes the share and the blocks.
    fn layer(&self, index: usize, capacity: u64) -> Result<LayerDescription<BlockedBits>, Error> {
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        let rate = self.rate * sizing::share(self.policy, self.scaling, self.capacity, index);
        let geometry = match (self.policy, self.scaling) {
            (Policy::One, _) => BlockedBits::for_layer(capacity, rate)?,
            _ if self.rate < sizing::LOW_RATE => BlockedBits::for_low_rate(capacity, rate)?,
            (_, Scaling::Fixed) => BlockedBits::with_cells(sizing::bits_per_counted_item, capacity, rate)?,
            _ => BlockedBits::for_layer(capacity, rate)?,
        };
        Ok(LayerDescription { rate, capacity, items: 0, geometry })
    }

    /// See [`Spec::encode_args`](crate::kinds::Spec::encode_args). A missing policy means the first in an effect, and the newest in a
    /// client's command.
    pub(super) fn encode_args(&self, mut push: impl FnMut(ArgToken<'_>)) -> &'static CStr {
        use ArgToken::Bytes;
        let Self { rate, capacity, scaling, hasher, policy } = *self;
        push_args(&mut push, &[Bytes(b"CAPACITY"), effect::whole(capacity), Bytes(b"ERROR"), effect::rate(rate)]);
        push_scaling(scaling, &mut push);
        push_hasher(hasher, &mut push);
        if policy != Policy::One || self.with_newest_policy().policy != policy {
            push_args(&mut push, &[Bytes(b"POLICY"), effect::whole(policy.number())]);
        }
        c"BF.INSERT"
    }
}

/// A filter of the native layout.
pub type BloomFilter = Chain<NativeSpec>;

impl BloomFilter {
    /// Creates an empty filter for `capacity` items (at least 1) at false positive rate `rate`
    /// ([`RATE_MIN`](crate::geometry::sizing::RATE_MIN) to [`RATE_MAX`](crate::geometry::sizing::RATE_MAX)), hashed by
    /// MurmurHash3. Takes microseconds, whatever the size.
    pub fn new(rate: f64, capacity: u64, scaling: Scaling, seed: u32, ceiling: &impl Ceiling) -> Result<Self, Error> {
        Self::with_spec(NativeSpec::murmur3(rate, capacity, scaling, seed), ceiling)
    }

    /// Creates a filter with layers as described, their bits all zero, for a reader that fills them in. Asks the ceiling once
    /// for the whole filter, before anything is allocated.
    ///
    /// # Errors
    /// [`Error::Unsound`] for layers that no filter can have, [`Error::AboveCeiling`], [`Error::OutOfMemory`].
    pub(crate) fn with_zero_bits(
        spec: NativeSpec,
        layers: &[LayerDescription<BlockedBits>],
        ceiling: &impl Ceiling,
    ) -> Result<Self, Error> {
        spec.check().map_err(|_| Error::Unsound)?;
        Self::bucket_with_zero_bits(spec, layers, ceiling)
    }

    /// Creates a bucket like [`with_zero_bits`](Self::with_zero_bits), without the check of its rate.
    pub(crate) fn bucket_with_zero_bits(
        spec: NativeSpec,
        layers: &[LayerDescription<BlockedBits>],
        ceiling: &impl Ceiling,
    ) -> Result<Self, Error> {
        if spec.capacity == 0 {
            return Err(Error::Unsound);
        }
        Self::with_empty_layers(spec, layers.iter().copied(), ceiling)
    }

    /// Creates a filter without layers, to stand in for one that was moved out. It contains nothing and refuses every add.
    pub(crate) const fn nothing() -> Self {
        Self::without_layers(NativeSpec::NOTHING)
    }

    /// Its definition.
    pub const fn spec(&self) -> NativeSpec {
        *self.rules()
    }
}

/// Returns the rate of a native filter for a requested rate: the nearest supported one.
pub const fn clamp_rate(asked: f64) -> f64 {
    asked.clamp(sizing::RATE_MIN, sizing::RATE_MAX)
}

// Merging native filters into their union.
//
// Bits are united layer by layer. The exact number of items in a union is unknown, so it is estimated from the bits of each
// layer. An entry in a table of deleted items remains if no filter contains its item.

/// The factor by which the estimated items of a layer may exceed its capacity, because estimates vary.
const SLACK: f64 = 1.05;

impl BloomFilter {
    /// Returns the union of filters, with the definition of the first.
    pub fn union_of(filters: &[&Self], origin: Origin, ceiling: &impl Ceiling) -> Result<Self, Error> {
        let first = filters.first().ok_or(Error::Unsound)?;
        let mut union = Self::without_layers(first.spec());
        union.merge(filters, origin, ceiling)?;
        Ok(union)
    }

    /// Adds the contents of others, which must have the same definition, including the seed; their policies may differ if they give the same
    /// layers. Reads all bits once, or twice in layers whose items add up to more than their capacity, and writes the pages that change.
    ///
    /// # Errors
    /// [`Error::Different`]. For a client also [`Error::UnionTooLarge`] and [`Error::NoRoomForDeleted`].
    /// [`Error::TooManyLayers`], [`Error::AboveCeiling`], [`Error::OutOfMemory`]. Nothing has changed then.
    pub fn merge(&mut self, others: &[&Self], origin: Origin, ceiling: &impl Ceiling) -> Result<(), Error> {
        if others.iter().any(|other| !other.spec().unites_with(self.spec())) {
            return Err(Error::Different);
        }
        if others.is_empty() {
            return Ok(());
        }
        let union = self.plan_union(others, ceiling, estimated, |layer, items| check(layer, items, origin))?;
        let most = if origin == Origin::Effect { u64::MAX } else { HashSet::capacity_in(union.cells_bytes()) };
        let table = self.union_of_tables(others, most, ceiling)?;
        if table.is_some() {
            self.reserve_deleted()?;
        }

        self.unite(union, others, estimated);
        if let Some(table) = table {
            self.replace_deleted(table);
        }
        Ok(())
    }

    /// Returns the table of the union, with up to `most` entries; `None` if no filter has a table.
    fn union_of_tables(
        &self,
        others: &[&Self],
        most: u64,
        ceiling: &impl Ceiling,
    ) -> Result<Option<Box<Deleted>>, Error> {
        let filters = || std::iter::once(self).chain(others.iter().copied());
        let entries: u64 = others.iter().map(|other| other.deleted_entries()).sum();
        if entries == 0 && self.deleted_entries() == 0 {
            return Ok(None);
        }
        ceiling.allow(self.size_bytes(), entries.saturating_mul(size_of::<ItemHash>() as u64))?;
        let mut table = try_box(Deleted::after(self.revision()))?;
        let mut readers = Vec::new();
        crate::memory::reserve(&mut readers, others.len() + 1)?;
        // False positives may have been deleted as well, so a filter whose count is 0 can still have members.
        for filter in filters().filter(|filter| filter.items_added() > 0) {
            readers.push((filter, CellsReader::new(filter)?));
        }
        for deleted in filters().filter_map(Self::deleted) {
            deleted.for_each_sorted_run(|run| {
                run.chunks(BATCH).try_for_each(|hashes| {
                    let mut stays = Mask::first(hashes.len());
                    for (filter, cells) in &mut readers {
                        stays = stays - filter.clear_deleted(hashes, cells.has_cells_batch(hashes));
                    }
                    stays.each_of(hashes).try_for_each(|(_, hash)| table.hashes.insert(hash).map(drop))
                })?;
                let entries = table.hashes.len();
                if entries > most { Err(Error::NoRoomForDeleted { entries }) } else { Ok(()) }
            })?;
        }
        Ok(Some(table))
    }
}

/// Estimates the number of items of a layer from its bits.
fn estimated(layer: &LayerDescription<BlockedBits>, bits: &Histogram) -> u64 {
    let BlockedBits { hashes, .. } = layer.geometry;
    sizing::to_u64(estimate::items(bits, hashes, layer.geometry.blocks()).round())
}

/// Checks the number of items of a united layer. An effect always passes, because the primary had room for it.
fn check(layer: &LayerDescription<BlockedBits>, items: u64, origin: Origin) -> Result<(), Error> {
    let capacity = layer.capacity;
    if origin == Origin::Client && sizing::to_f64(items) > SLACK * sizing::to_f64(capacity) {
        return Err(Error::UnionTooLarge { items, capacity });
    }
    Ok(())
}

// Everything about a native filter except its bits and its table, for snapshots and the headers of dumps: the fields from the
// hash identifier to the last layer, in the order that `format/stored.rs` specifies.

const HASH_MURMUR3_X64_128: u64 = 1;
const HASH_SIPHASH_2_4_128: u64 = 2;

/// Added to the number of blocks per group of a layer whose items have four.
const FOUR_PER_ITEM: u16 = 128;

/// Descriptions of layers.
pub(crate) type Layers<G = BlockedBits> = Vec<LayerDescription<G>>;

/// Writes the hash identifier and the definition of a filter.
pub(crate) fn write_spec(spec: &NativeSpec, sink: &mut impl Sink) {
    let NativeSpec { rate, capacity, scaling, hasher, policy } = *spec;
    sink.put_u64(if hasher.is_keyed() { HASH_SIPHASH_2_4_128 } else { HASH_MURMUR3_X64_128 });
    sink.put_f64(rate);
    sink.put_u64(capacity);
    sink.put_u64(u64::from(scaling.expansion()));
    match hasher {
        Hasher::Murmur3 { seed } => sink.put_u64(u64::from(u32::from_le_bytes(seed))),
        Hasher::SipHash { key } => key.as_chunks().0.iter().for_each(|half| sink.put_u64(u64::from_le_bytes(*half))),
    }
    sink.put_u64(u64::from(policy.number()));
}

/// Reads what [`write_spec`] wrote. Returns the definition, which the filter checks, and whether such a filter can have the
/// policy.
pub(crate) fn read_spec(source: &mut impl Source) -> Result<(NativeSpec, bool), codec::Error> {
    let hash = source.u64()?;
    if hash != HASH_MURMUR3_X64_128 && hash != HASH_SIPHASH_2_4_128 {
        return Err(codec::Error::UnknownHash(hash));
    }
    let (rate, capacity, scaling) = (source.f64()?, source.u64()?, Scaling::from_expansion(read_u32(source)?));
    let hasher = if hash == HASH_MURMUR3_X64_128 {
        Hasher::murmur3(read_u32(source)?)
    } else {
        let halves = [source.u64()?, source.u64()?].map(u128::from);
        let [low, high] = halves;
        Hasher::SipHash { key: (low | high << 64).to_le_bytes() }
    };
    let policy = Policy::from_number(read_u32(source)?).filter(|policy| policy.suits(rate, scaling, capacity));
    let is_sound = policy.is_some();
    Ok((NativeSpec { rate, capacity, scaling, hasher, policy: policy.unwrap_or(Policy::One) }, is_sound))
}

// The definition of a filter with MurmurHash3 as one word, 9 bytes for one with the defaults. It consists of packed numbers:
//
//     policy       a later form of the word has another number here
//     rate         16 m + e if the rate is the decimal number m / 10^e, with the smallest e; 0 for any other rate, and then an f64
//     expansion    0: it does not grow
//     capacity
//     seed

/// No word is longer.
pub(crate) const WORD_BYTES_MAX: usize = 1 + (1 + 8) + 5 + 9 + 5;

/// The largest capacity in a word, which commands can also state in digits.
const CAPACITY_MAX: u64 = i64::MAX.cast_unsigned();

/// A definition as one [word](crate::kinds::Spec::to_word).
pub struct Word(PackedSink<WORD_BYTES_MAX>);

impl std::ops::Deref for Word {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.written().unwrap_or_default()
    }
}

impl NativeSpec {
    /// Returns the definition as one word; `None` for a keyed hash, whose key a word does not have.
    pub fn to_word(&self) -> Option<Word> {
        let Self { rate, capacity, scaling, hasher, policy } = *self;
        let Hasher::Murmur3 { seed } = hasher else { return None };
        if capacity > CAPACITY_MAX {
            return None;
        }
        let mut sink = PackedSink::new();
        sink.put_u64(policy.number().into());
        match digits_of(rate) {
            Some((digits, exponent)) => sink.put_u64(u64::from(digits) << 4 | u64::from(exponent)),
            None => {
                sink.put_u64(0);
                sink.put_f64(rate);
            }
        }
        sink.put_u64(scaling.expansion().into());
        sink.put_u64(capacity);
        sink.put_u64(u32::from_le_bytes(seed).into());
        Some(Word(sink))
    }

    /// Reads what [`Spec::to_word`](crate::kinds::Spec::to_word) returned. The word may be hostile: one that it does not return for any filter is refused.
    /// Memory and the limits for clients are for the caller to check.
    ///
    /// # Errors
    /// [`UnknownVersion`](codec::Error::UnknownVersion) for an unknown policy, [`Truncated`](codec::Error::Truncated),
    /// [`Overlong`](codec::Error::Overlong), and [`OutOfRange`](codec::Error::OutOfRange) for a number that a definition cannot have, a
    /// policy that does not suit the filter, or another form of a number.
    pub fn from_word(word: &[u8]) -> Result<Self, codec::Error> {
        let mut source = PackedSource(word);
        let policy = read_u32(&mut source)?;
        let policy = Policy::from_number(policy).ok_or(codec::Error::UnknownVersion(policy.into()))?;
        let rate = match source.u64()? {
            0 => source.f64()?,
            decimal => sizing::to_f64(decimal >> 4) / power_of_ten(decimal & 15),
        };
        let scaling = Scaling::from_expansion(read_u32(&mut source)?);
        let capacity = source.u64()?;
        let hasher = Hasher::murmur3(read_u32(&mut source)?);
        if !source.0.is_empty() {
            return Err(codec::Error::Overlong);
        }
        let spec = Self { rate, capacity, scaling, hasher, policy };
        let is_sound = spec.check().is_ok() && capacity > 0 && policy.suits(rate, scaling, capacity);
        // Each definition has one word.
        let is_written_so = is_sound && spec.to_word().is_some_and(|again| *again == *word);
        if is_written_so { Ok(spec) } else { Err(codec::Error::OutOfRange) }
    }
}

/// Returns m and the smallest e of a rate that is the decimal number m / 10^e: both are exact, so every machine divides alike.
fn digits_of(rate: f64) -> Option<(u32, u8)> {
    let mut power = 1.0;
    for exponent in 1..16 {
        power *= 10.0;
        let digits = u32::try_from(sizing::to_u64((rate * power).round())).ok()?;
        if f64::from(digits) / power == rate {
            return Some((digits, exponent));
        }
    }
    None
}

fn power_of_ten(exponent: u64) -> f64 {
    (0..exponent).fold(1.0, |power, _| power * 10.0)
}

/// Writes the number of layers and the description of each.
pub(crate) fn write_layers<const BLOCK: usize>(
    layers: impl ExactSizeIterator<Item = LayerDescription<BlockedGeometry<BLOCK>>>,
    sink: &mut impl Sink,
) {
    sink.put_u64(layers.len() as u64);
    for layer in layers {
        sink.put_f64(layer.rate);
        sink.put_u64(layer.capacity);
        sink.put_u64(layer.items);
        sink.put_u64(u64::from(layer.geometry.hashes));
        sink.put_u64(layer.geometry.groups);
        let four = if layer.geometry.blocks_per_item == 4 { FOUR_PER_ITEM } else { 0 };
        sink.put_u64(u64::from(layer.geometry.blocks_per_group | four));
    }
}

/// Writes the shapes of layers: what [`write_layers`] writes while they are empty.
pub(crate) fn write_shapes<const BLOCK: usize>(
    layers: impl ExactSizeIterator<Item = LayerDescription<BlockedGeometry<BLOCK>>>,
    sink: &mut impl Sink,
) {
    write_layers(layers.map(|layer| LayerDescription { items: 0, ..layer }), sink);
}

/// Reads what [`write_layers`] wrote.
pub(crate) fn read_layers<const BLOCK: usize>(
    source: &mut impl Source,
) -> Result<Layers<BlockedGeometry<BLOCK>>, codec::Error> {
    let count = usize::try_from(source.u64()?).ok().filter(|layers| *layers <= LAYERS_MAX);
    let mut layers = Vec::new();
    for _ in 0..count.ok_or(codec::Error::OutOfRange)? {
        let (rate, capacity, items) = (source.f64()?, source.u64()?, source.u64()?);
        let (hashes, groups, blocks) = (read_u32(source)?, source.u64()?, read_u32(source)?);
        let blocks = u16::try_from(blocks).unwrap_or(u16::MAX);
        let blocks_per_item = if blocks & FOUR_PER_ITEM == 0 { 2 } else { 4 };
        let geometry = BlockedGeometry { groups, blocks_per_group: blocks & !FOUR_PER_ITEM, blocks_per_item, hashes };
        push(&mut layers, LayerDescription { rate, capacity, items, geometry })?;
    }
    Ok(layers)
}

/// Whether layers have these shapes.
pub(crate) fn are_shaped<G: Geometry>(layers: &[Layer<G>], described: &[LayerDescription<G>]) -> bool {
    layers.len() == described.len()
        && layers.iter().zip(described).all(|(layer, described)| layer.geometry() == described.geometry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{Limits, Unlimited};
    use crate::kinds::NativeSpec;

    fn filter(capacity: u64, items: std::ops::Range<u32>) -> BloomFilter {
        let hasher = Hasher::SipHash { key: [3; 16] };
        let spec = NativeSpec { hasher, ..NativeSpec::murmur3(1e-6, capacity, Scaling::from_expansion(2), 0) };
        let mut filter = BloomFilter::with_spec(spec, &Unlimited).unwrap();
        items.for_each(|item| _ = filter.add(&item.to_le_bytes(), &Unlimited).unwrap());
        filter
    }

    fn without(mut filter: BloomFilter, items: std::ops::Range<u32>) -> BloomFilter {
        for item in items {
            assert_eq!(filter.delete(filter.hash(&item.to_le_bytes()), Origin::Client, &Unlimited), Ok(true));
        }
        filter
    }

    fn has(filter: &BloomFilter, item: u32) -> bool {
        filter.contains(&item.to_le_bytes())
    }

    /// Definitions with the least and the greatest of each field, and every policy where it suits.
    fn definitions() -> Vec<NativeSpec> {
        let mut all = Vec::new();
        for rate in [
            sizing::RATE_MIN,
            0.000_099,
            0.0001,
            0.01,
            sizing::HIGH_RATE,
            0.123_456_789,
            0.07,
            3e-11,
            0.000_255,
            sizing::RATE_MAX,
        ] {
            for capacity in [1, 100, 128, 129, 1 << 40, CAPACITY_MAX] {
                for expansion in [0, 1, 2, 32768, u32::MAX] {
                    for seed in [0, 1, 0x0403_0201, u32::MAX] {
                        let scaling = Scaling::from_expansion(expansion);
                        let policies = [Policy::One, Policy::Two, Policy::Three].into_iter();
                        let suiting = policies.filter(|policy| policy.suits(rate, scaling, capacity));
                        all.extend(
                            suiting.map(|policy| NativeSpec {
                                policy,
                                ..NativeSpec::murmur3(rate, capacity, scaling, seed)
                            }),
                        );
                    }
                }
            }
        }
        all
    }

    #[test]
    fn every_definition_returns_from_its_word() {
        for spec in definitions() {
            assert_eq!(NativeSpec::from_word(&spec.to_word().unwrap()), Ok(spec), "{spec:?}");
        }
        let keyed = NativeSpec { hasher: Hasher::SipHash { key: [7; 16] }, ..definitions()[0] };
        assert!(keyed.to_word().is_none());
    }

    /// Frozen: the AOF of today must load in every later version.
    #[test]
    fn golden_words() {
        use Policy::{One, Two};
        let word = |policy, rate, capacity, expansion| {
            let scaling = Scaling::from_expansion(expansion);
            let spec = NativeSpec { policy, ..NativeSpec::murmur3(rate, capacity, scaling, 0x0403_0201) };
            spec.to_word().unwrap().to_vec()
        };
        let seed = b"\x81\x84\x8c\x20";
        assert_eq!(word(Two, 0.01, 100, 2), [&[2, 0x12, 2, 100][..], seed].concat());
        assert_eq!(word(Two, 1e-12, 300, 32768), [&[2, 0x1c, 0x80, 0x80, 2, 0xac, 2][..], seed].concat());
        assert_eq!(word(Two, 0.09, 1, 0), [&[2, 0x92, 1, 0, 1][..], seed].concat());
        assert_eq!(word(One, 0.123_456_789, 1, 0), [&[1, 0xd9, 0xa2, 0xf3, 0xad, 7, 0, 1][..], seed].concat());
        let exact = b"\x01\0\x9b\x99\x99\x99\x99\x99\xb9\x3f\x01\x01";
        assert_eq!(word(One, 0.1_f64.next_up(), 1, 1), [&exact[..], seed].concat());
    }

    #[test]
    fn an_unsound_word_is_refused() {
        use codec::Error::{OutOfRange, Overlong, Truncated, UnknownVersion};
        let of = |policy: &[u8], rate: &[u8], expansion: &[u8], capacity: &[u8], seed: &[u8]| {
            NativeSpec::from_word(&[policy, rate, expansion, capacity, seed].concat())
        };
        let word = [2, 0x12, 2, 100, 0x81, 0x84, 0x8c, 0x20];
        assert_eq!(*NativeSpec::from_word(&word).unwrap().to_word().unwrap(), word);
        for length in 0..word.len() {
            assert_eq!(NativeSpec::from_word(&word[..length]), Err(Truncated), "{length}");
        }
        assert_eq!(NativeSpec::from_word(&[&word[..], &[0]].concat()), Err(Overlong));
        for policy in (0..=127).filter(|policy| Policy::from_number((*policy).into()).is_none()) {
            assert_eq!(of(&[policy], &[0x12], &[2], &[100], &[7]), Err(UnknownVersion(policy.into())));
        }
        let exact = |rate: f64| [&[0], &rate.to_le_bytes()[..]].concat();
        let (below, above) = (sizing::RATE_MIN.next_down(), sizing::RATE_MAX.next_up());
        for rate in [f64::NAN, -f64::NAN, f64::INFINITY, -f64::INFINITY, 0.0, -0.0, -0.01, 1.0, 5e-324, below, above] {
            assert_eq!(of(&[1], &exact(rate), &[2], &[100], &[7]), Err(OutOfRange), "{rate}");
        }
        let with_32_bits = [0xff, 0xff, 0xff, 0xff, 0x0f];
        let with_33_bits = [0x80, 0x80, 0x80, 0x80, 0x10];
        let with_64_bits = [&[0xff; 9][..], &[1]].concat();
        // Without m, m of 0, e of 0, 0.26, 1e-13, 255 / 10^15.
        for rate in [&[2][..], &[0x02], &[0x10], &[0xa2, 3], &[0x1d], &[0xff, 0x1f], &with_64_bits] {
            assert_eq!(of(&[1], rate, &[2], &[100], &[7]), Err(OutOfRange), "{rate:?}");
        }
        // Each number has one form, the shortest.
        for [rate, expansion, capacity, seed] in [
            [&exact(0.01)[..], &[2], &[100], &[7]],
            [&[0xa3, 1], &[2], &[100], &[7]],
            [&[0x92, 0], &[2], &[100], &[7]],
            [&[0x12], &[0x82, 0], &[100], &[7]],
            [&[0x12], &[2], &[0xe4, 0], &[7]],
            [&[0x12], &[2], &[100], &[0x87, 0]],
        ] {
            assert_eq!(
                of(&[2], rate, expansion, capacity, seed),
                Err(OutOfRange),
                "{rate:?} {expansion:?} {capacity:?}"
            );
        }
        for capacity in [&[0][..], &[&[0x80; 9][..], &[1]].concat(), &with_64_bits, &[0xff; 11]] {
            assert_eq!(of(&[1], &[0x12], &[2], capacity, &[7]), Err(OutOfRange), "{capacity:?}");
        }
        assert!(of(&[1], &[0x12], &with_32_bits, &[100], &with_32_bits).is_ok());
        assert_eq!(of(&[1], &[0x12], &with_33_bits, &[100], &[7]), Err(OutOfRange));
        assert_eq!(of(&[1], &[0x12], &[2], &[100], &with_33_bits), Err(OutOfRange));
        // The second policy is for small first layers, low rates, and fixed filters with high rates.
        assert_eq!(of(&[2], &[0x12], &[2], &[0x81, 1], &[7]), Err(OutOfRange));
        assert_eq!(of(&[2], &[0x12], &[0], &[100], &[7]), Err(OutOfRange));
    }

    #[test]
    fn an_entry_remains_if_no_other_filter_has_its_item() {
        let mut one = without(filter(1000, 0..100), 0..50);
        let other = without(filter(1000, 20..120), 40..60);
        assert_eq!(one.merge(&[&other], Origin::Client, &Unlimited), Ok(()));
        let absent: Vec<u32> = (0..120).filter(|item| !has(&one, *item)).collect();
        // The other contains 20 to 39; neither contains 40 to 49; this one contains 50 to 59.
        assert_eq!(absent, (0..20).chain(40..50).collect::<Vec<_>>());
        // By estimate, the bits are of 120 items.
        let items = one.items();
        assert!(one.deleted_entries() == 30 && items.abs_diff(90) <= 2, "{items}");
        assert_eq!(one.add(&45u32.to_le_bytes(), &Unlimited), Ok(true));
        assert_eq!((one.deleted_entries(), one.items()), (29, items + 1));
    }

    #[test]
    fn the_tables_of_several_filters_are_merged() {
        let parts = [0..10u32, 10..20, 20..30].map(|range| without(filter(1000, 0..100), range));
        let [one, two, three] = &parts;
        let union = BloomFilter::union_of(&[one, two, three], Origin::Client, &Unlimited).unwrap();
        assert!((0..100).all(|item| has(&union, item)), "each item is a member of some filter");
        assert_eq!((union.deleted_entries(), union.items()), (0, 100));
        let alone = BloomFilter::union_of(&[one], Origin::Client, &Unlimited).unwrap();
        assert!(alone == *one);
        assert_eq!(alone.items(), 90);
    }

    #[test]
    fn a_filter_whose_items_are_all_deleted_has_none() {
        let gone = without(filter(1000, 0..100), 0..100);
        let mut one = without(filter(1000, 0..10), 5..6);
        assert_eq!(one.merge(&[&gone], Origin::Client, &Unlimited), Ok(()));
        assert!((0..100).all(|item| has(&one, item) == (item < 10 && item != 5)));
        assert_eq!(one.items(), 9);
    }

    #[test]
    fn members_remain_if_as_many_false_positives_were_deleted() {
        let members = 0..3_u32;
        let spec = NativeSpec { rate: 0.25, capacity: 400, scaling: Scaling::Fixed, ..filter(1000, 0..0).spec() };
        let with_members = || {
            let mut filter = BloomFilter::with_spec(spec, &Unlimited).unwrap();
            members.clone().for_each(|item| _ = filter.add(&item.to_le_bytes(), &Unlimited).unwrap());
            filter
        };
        let mut one = with_members();
        for _ in members.clone() {
            let stranger = (members.end..10_000_000).find(|item| has(&one, *item)).unwrap();
            one = without(one, stranger..stranger + 1);
        }
        assert_eq!(one.items(), 0);
        let other = without(with_members(), members.clone());
        assert_eq!(one.merge(&[&other], Origin::Client, &Unlimited), Ok(()));
        assert!(members.clone().all(|item| has(&one, item)));
    }

    #[test]
    fn a_table_without_room_changes_nothing() {
        // Both tables are nearly at their limit, and no filter contains the items of either.
        let fill = |range: std::ops::Range<u32>| {
            let mut filter = filter(1000, range.clone());
            let full = range
                .clone()
                .find(|item| filter.delete(filter.hash(&item.to_le_bytes()), Origin::Client, &Unlimited).is_err());
            assert!(full.is_some_and(|item| item - range.start > 100), "{full:?}");
            filter
        };
        let (mut one, other) = (fill(0..480), fill(480..960));
        let before = one.try_clone().unwrap();
        let refused = one.merge(&[&other], Origin::Client, &Unlimited);
        assert!(matches!(refused, Err(Error::NoRoomForDeleted { .. })), "{refused:?}");
        let bytes = one.size_bytes();
        let refused = one.merge(&[&other], Origin::Client, &Limits { size_bytes: bytes, layers: 9 });
        assert!(matches!(refused, Err(Error::AboveCeiling { .. })), "{refused:?}");
        assert!(one == before && one.revision() == before.revision());
        assert_eq!(one.merge(&[&other], Origin::Effect, &Unlimited), Ok(()));
        assert_eq!(one.deleted_entries(), before.deleted_entries() + other.deleted_entries());
    }
}
