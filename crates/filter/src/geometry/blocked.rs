//! The native layout, a blocked Bloom filter: the shape of a layer, and its lookups and inserts, the positions of an
//! item's cells, and the operations that only pending adds and only counters have.
//!
//! An item's k cells are in two blocks of 512 cells, at low rates in four, all in one group of at most 4 KiB. With bits, an
//! item costs two or four cache misses and one page; a classic filter costs k of each. In a prototype with two blocks, on a filter of 1.2
//! GiB (Zen 5), lookups in batches took 44-49 ns per item against 55-66 ns for a classic layout at k = 7, and 44-58 ns against 90-106 ns at
//! k = 14. An add while a snapshot was being saved copied 0.92 pages against 4.2.
//!
//! Two blocks rather than one, because the load of a pair of blocks varies less than the load of one block. Uneven load is
//! why a blocked filter needs more memory than a classic one at the same rate: 1% more at 10^-2, 9% at 10^-6 (Putze,
//! Sanders, Singler: Cache-, Hash- and Space-Efficient Bloom Filters, 2007, section 3). With four blocks it is 2% at 10^-6.

use std::ops::{Range, RangeInclusive};

use super::estimate::FillEstimate;
use super::{Geometry, LayerDescription, SupportsPending, sizing};
use crate::cells::{
    BLOCK_BYTES, BLOCK_CELLS, BlockArray, BlockCell, BlockedCells, COUNTER_BLOCK_BYTES, Cells as _, Counters,
    Histogram, PAGE_ALIGNED_FROM_BYTES, PAGE_BYTES, Prefix,
};
use crate::error::Error;
use crate::hash::ItemHash;

/// The maximum number of cells per item in a stored layer. Layers that this crate creates have fewer.
const HASHES_MAX: u32 = 64;

/// The minimum number of cells per item in a layer with four blocks per item: the number at [`sizing::LOW_RATE`].
const LOW_RATE_HASHES_MIN: u32 = 13;
/// The maximum number of blocks of an item.
const ITEM_BLOCKS_MAX: usize = 4;

/// The shape of a layer of blocks, and the number of cells per item. `BLOCK`: size of a block of 512 cells, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockedGeometry<const BLOCK: usize> {
    /// Number of groups. All blocks of an item are in one group.
    pub(crate) groups: u64,
    /// Number of blocks per group, at most the number of blocks in a page.
    pub(crate) blocks_per_group: u16,
    /// Number of different blocks with cells of an item: 2, or 4 with bits. Every group has at least this many blocks.
    pub(crate) blocks_per_item: u16,
    /// Number of cells per item, k, 1 to 64. They are divided evenly among the item's blocks; the first blocks may get one more.
    pub(crate) hashes: u32,
}

/// The shape of a layer of bits: blocks of 64 bytes, at most 64 of them per group.
pub(crate) type BlockedBits = BlockedGeometry<BLOCK_BYTES>;

impl<const BLOCK: usize> BlockedGeometry<BLOCK> {
    /// Blocks of the largest group, a page.
    const GROUP_BLOCKS_MAX: u64 = (PAGE_BYTES / BLOCK) as u64;
    /// In layers of at least this many blocks, 256 KiB, every group is a whole page.
    const WHOLE_PAGES_FROM_BLOCKS: u64 = (PAGE_ALIGNED_FROM_BYTES / BLOCK) as u64;

    /// Returns the geometry of a layer for `capacity` items at false positive rate `rate`.
    ///
    /// # Errors
    /// [`Error::CapacityOutOfRange`] for capacity 0, [`Error::RateOutOfRange`] unless 0 < `rate` < 1,
    /// [`Error::SizeOverflow`] if the size in bytes does not fit 63 bits.
    pub(crate) fn for_layer(capacity: u64, rate: f64) -> Result<Self, Error> {
        let are_counters = BlockArray::<BLOCK>::ARE_COUNTERS;
        let per_item = if are_counters { sizing::counters_per_item } else { sizing::bits_per_item };
        Self::with_cells(per_item, capacity, rate)
    }

    /// Returns the geometry of a layer with `per_item` cells per item at a rate, in two blocks.
    pub(crate) fn with_cells(per_item: fn(f64) -> f64, capacity: u64, rate: f64) -> Result<Self, Error> {
        Self::of(2, sizing::hashes, per_item, capacity, rate)
    }

    /// Returns the geometry of a layer at a [low rate](sizing::LOW_RATE): with four blocks per item if the layer has four, otherwise with
    /// two.
    pub(crate) fn for_low_rate(capacity: u64, rate: f64) -> Result<Self, Error> {
        let in_two = Self::for_layer(capacity, rate)?;
        if in_two.blocks() < ITEM_BLOCKS_MAX as u64 {
            return Ok(in_two);
        }
        Self::of(4, sizing::hashes_in_four, sizing::bits_per_item_in_four, capacity, rate)
    }

    fn of(
        blocks_per_item: u16,
        hashes: fn(f64) -> u32,
        per_item: fn(f64) -> f64,
        capacity: u64,
        rate: f64,
    ) -> Result<Self, Error> {
        if capacity == 0 {
            return Err(Error::CapacityOutOfRange);
        }
        if !(rate > 0.0 && rate < 1.0) {
            return Err(Error::RateOutOfRange);
        }
        let cells = per_item(rate) * sizing::to_f64(capacity);
        let blocks = sizing::to_u64((cells / sizing::to_f64(BLOCK_CELLS as u64)).ceil()).max(blocks_per_item.into());
        let groups = blocks.div_ceil(Self::GROUP_BLOCKS_MAX);
        let blocks_per_group =
            if blocks < Self::WHOLE_PAGES_FROM_BLOCKS { blocks.div_ceil(groups) } else { Self::GROUP_BLOCKS_MAX };
        let geometry = Self {
            groups,
            blocks_per_group: u16::try_from(blocks_per_group).unwrap_or(u16::MAX),
            blocks_per_item,
            hashes: hashes(rate),
        };
        if geometry.is_sound() { Ok(geometry) } else { Err(Error::SizeOverflow) }
    }

    /// Whether a layer can have this geometry. Geometries of snapshots and dumps are checked with it.
    pub(crate) fn is_sound(&self) -> bool {
        // Four cells of a prefix must be in the first block.
        let may_have_four = !BlockArray::<BLOCK>::ARE_COUNTERS && self.hashes >= LOW_RATE_HASHES_MIN;
        let has_item_blocks = self.blocks_per_item == 2 || self.blocks_per_item == 4 && may_have_four;
        let fields = self.groups >= 1
            && has_item_blocks
            && (self.blocks_per_item.into()..=Self::GROUP_BLOCKS_MAX).contains(&u64::from(self.blocks_per_group))
            && (1..=HASHES_MAX).contains(&self.hashes);
        let size = self
            .groups
            .checked_mul(u64::from(self.blocks_per_group))
            .and_then(|blocks| blocks.checked_mul(BLOCK as u64))
            .filter(|&size| i64::try_from(size).is_ok());
        fields && size.is_some()
    }

    /// Returns the number of blocks of the layer.
    pub(crate) const fn blocks(&self) -> u64 {
        self.groups.saturating_mul(self.blocks_per_group as u64)
    }

    /// Returns the size of the layer's cells, in bytes.
    pub(crate) const fn size_bytes(&self) -> u64 {
        self.blocks().saturating_mul(BLOCK as u64)
    }

    /// Returns the number of an item's cells in one of its blocks, counted from 0.
    #[inline]
    pub(super) const fn hashes_in(&self, block: u32) -> u32 {
        let blocks = self.blocks_per_item as u32;
        // Divides by 2 or 4.
        (self.hashes + blocks - 1 - block) >> (blocks / 2)
    }
}

impl<const BLOCK: usize> Geometry for BlockedGeometry<BLOCK>
where
    BlockArray<BLOCK>: BlockedCells,
{
    type Hash = ItemHash;
    type Probe = BlockedProbe;
    type Prefix = Prefix<BLOCK>;
    /// The block of the prefix.
    type Address = u64;
    type Cells = BlockArray<BLOCK>;

    fn check(description: &LayerDescription<Self>) -> Result<(), Error> {
        let LayerDescription { rate, capacity, items, ref geometry } = *description;
        let sound = rate > 0.0 && rate <= sizing::RATE_MAX && capacity >= 1 && items <= capacity;
        if sound && geometry.is_sound() { Ok(()) } else { Err(Error::Unsound) }
    }

    fn size_bytes(&self) -> u64 {
        Self::size_bytes(self)
    }

    fn modulus(&self) -> u64 {
        self.blocks().saturating_mul(BLOCK_CELLS as u64)
    }

    fn hashes(&self) -> u32 {
        self.hashes
    }

    /// Two blocks per item.
    #[inline(always)]
    fn usual(self) -> Option<Self> {
        (self.blocks_per_item == 2).then_some(Self { blocks_per_item: 2, ..self })
    }

    #[inline]
    fn probe(&self, hash: ItemHash) -> BlockedProbe {
        BlockedProbe::of(hash, *self)
    }

    #[inline]
    fn prefetch_first(&self, cells: &Self::Cells, probe: BlockedProbe) {
        cells.prefetch(probe.a, self.first_of(probe).map(BlockArray::<BLOCK>::byte_of));
    }

    #[inline]
    fn prefetch_rest(&self, cells: &Self::Cells, probe: BlockedProbe) {
        if self.blocks_per_item == 2 {
            cells.prefetch(probe.rest, self.after_first(probe).map(BlockArray::<BLOCK>::byte_of));
        } else {
            self.prefetch_others_of_four(cells, probe);
        }
    }

    #[inline]
    fn contains_first(&self, cells: &Self::Cells, probe: BlockedProbe) -> bool {
        cells.all_occupied(probe.a, self.first_of(probe))
    }

    #[inline]
    fn contains_rest(&self, cells: &Self::Cells, probe: BlockedProbe) -> bool {
        if self.blocks_per_item == 2 {
            cells.all_occupied(probe.rest, self.after_first(probe))
        } else {
            self.has_others_of_four(cells, probe)
        }
    }

    #[inline]
    fn prefix(hash: ItemHash, hashes: u32) -> Self::Prefix {
        Prefix::of(ProbeCells { word: hash.h2, left: hashes.div_ceil(2) })
    }

    #[inline]
    fn address(&self, hash: ItemHash) -> u64 {
        BlockedProbe::of(hash, *self).a
    }

    #[inline]
    fn prefetch_prefix(&self, cells: &Self::Cells, block: u64, prefix: &Self::Prefix) {
        cells.prefetch(block, prefix.bytes());
    }

    #[inline]
    fn has_prefix(&self, cells: &Self::Cells, block: u64, prefix: &Self::Prefix) -> bool {
        cells.has_prefix(block, prefix)
    }

    #[inline]
    fn insert(&self, cells: &mut Self::Cells, probe: BlockedProbe) {
        if self.blocks_per_item == 2 {
            let mut drawn = ProbeCells { word: probe.bits, left: self.hashes.div_ceil(2) };
            cells.occupy(probe.a, drawn.by_ref());
            cells.occupy(probe.rest, drawn.followed_by(self.hashes / 2));
        } else {
            self.occupy_four(cells, probe);
        }
    }

    fn fill_estimate(&self, cells: &Self::Cells) -> FillEstimate {
        let are_counters = BlockArray::<BLOCK>::ARE_COUNTERS;
        let sampled = if are_counters { Histogram::sampled_counters } else { Histogram::sampled };
        FillEstimate::of_blocks(&sampled(cells.bytes()), self)
    }
}

impl<const BLOCK: usize> SupportsPending for BlockedGeometry<BLOCK>
where
    BlockArray<BLOCK>: BlockedCells,
{
    fn fill_estimate_with(&self, cells: &Self::Cells, change: impl Fn(&mut [u8], usize)) -> FillEstimate {
        FillEstimate::of_blocks(&Histogram::sampled_with(cells.bytes(), change), self)
    }

    /// For bits, if every group is a page of memory, as in all layers of 256 KiB and more that this crate creates.
    #[inline]
    fn can_pend(&self) -> bool {
        !BlockArray::<BLOCK>::ARE_COUNTERS && self.blocks_per_group as usize * BLOCK == PAGE_BYTES
    }

    #[inline]
    fn to_pending(hash: ItemHash) -> ItemHash {
        hash
    }

    #[inline]
    fn from_pending(hash: ItemHash) -> ItemHash {
        hash
    }

    fn h1_range(&self, bytes: &Range<usize>) -> RangeInclusive<u64> {
        let group_bytes = u64::from(self.blocks_per_group).saturating_mul(BLOCK as u64).max(1);
        let groups = u128::from(self.groups.max(1));
        // The group of an item is the upper half of h1 * groups.
        let first = (u128::from(bytes.start as u64 / group_bytes) << 64) / groups;
        let after = (u128::from((bytes.end as u64).div_ceil(group_bytes)) << 64).div_ceil(groups);
        let number = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
        number(first)..=number(after)
    }

    fn offset_of(&self, probe: BlockedProbe) -> Option<usize> {
        usize::try_from(probe.a).ok()?.checked_mul(BLOCK)
    }

    fn insert_into_copy(&self, copy: &mut [u8], offset: usize, probe: BlockedProbe) {
        for (block, its_cells) in self.blocks_of(probe) {
            if let Some(block) = range_of::<BLOCK>(block, offset).and_then(|range| copy.get_mut(range)) {
                set_bits(block, its_cells);
            }
        }
    }

    fn copy_contains(&self, copy: &[u8], offset: usize, probe: BlockedProbe) -> bool {
        let block = |block| range_of::<BLOCK>(block, offset).and_then(|range| copy.get(range)).unwrap_or_default();
        self.blocks_of(probe).all(|(number, its_cells)| are_set(block(number), its_cells))
    }
}

// An item's cells in the native layout: two or four blocks of one group, and k cells in them. These positions are frozen, because a stored
// filter must find its items in every later version. Bits and counters have the same positions.

/// 2^64 divided by the golden ratio, an odd number: multiplying by it spreads every bit of a word upwards.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
/// [`GOLDEN`] to the powers 0, 1, 2 ...
const POWERS: [u64; HASHES_MAX as usize + 1] = {
    let mut powers = [1; HASHES_MAX as usize + 1];
    let (mut rest, mut power) = (powers.as_mut_slice(), 1u64);
    while let [next, others @ ..] = rest {
        *next = power;
        power = power.wrapping_mul(GOLDEN);
        rest = others;
    }
    powers
};

/// The position of an item in a layer: two or four blocks of one group, and the random bits that select the cells in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockedProbe {
    /// The first block.
    a: u64,
    /// The second of two blocks; or the distances from the first to the other three blocks, a signed byte each.
    rest: u64,
    /// Random bits that select the cells.
    bits: u64,
}

impl BlockedProbe {
    /// Returns the position of an item. Costs four multiplications, six for four blocks, or one where the compiler sees that only
    /// `a` is used.
    #[inline]
    fn of<const BLOCK: usize>(hash: ItemHash, geometry: BlockedGeometry<BLOCK>) -> Self {
        let blocks = u64::from(geometry.blocks_per_group);
        // Drawing one of all blocks gives the same block, and the same remainder, as drawing a group and then one of its blocks.
        let (a, rest) = scale(hash.h1, geometry.groups.wrapping_mul(blocks));
        let (group, _) = scale(hash.h1, geometry.groups);
        let end = (group + 1) * blocks;
        if geometry.blocks_per_item != 2 {
            return Self { a, rest: others_of_four(rest, end - a, blocks), bits: hash.h2 };
        }
        let (step, _) = scale(rest, blocks.wrapping_sub(1));
        let b = a + 1 + step;
        let b = if b >= end { b - blocks } else { b };
        Self { a, rest: b, bits: hash.h2 }
    }
}

/// Draws the other three of four blocks: one in each of the other quarters of a group of `blocks`, counted from the first block, which is
/// `left` blocks before the group's end. Returns the distances from the first block to them, a signed byte each.
#[inline(never)]
fn others_of_four(mut word: u64, left: u64, blocks: u64) -> u64 {
    let quarter = blocks / 4;
    (1..4).fold(0, |distances, number| {
        let (drawn, rest) = scale(word, quarter);
        word = rest;
        let distance = number * quarter + drawn;
        let distance = if distance >= left { distance.wrapping_sub(blocks) } else { distance };
        distances << 8 | distance & 0xff
    })
}

/// Returns the block that is a signed byte away from another one.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the lowest byte")]
const fn at_distance(block: u64, distance: u64) -> u64 {
    block.wrapping_add_signed((distance as u8).cast_signed() as i64)
}

impl<const BLOCK: usize> BlockedGeometry<BLOCK> {
    /// Returns the blocks of an item, each with its cells there.
    pub(crate) fn blocks_of(&self, probe: BlockedProbe) -> impl Iterator<Item = (u64, ProbeCells)> {
        let others = match self.blocks_per_item {
            2 => [Some((probe.rest, self.after_first(probe))), None, None],
            _ => self.others_of_four(probe).map(Some),
        };
        std::iter::once((probe.a, self.first_of(probe))).chain(others.into_iter().flatten())
    }

    /// Returns all of an item's four blocks but the first, each with its cells there.
    #[inline]
    fn others_of_four(&self, probe: BlockedProbe) -> [(u64, ProbeCells); 3] {
        let (some, more) = (self.hashes / 4, self.hashes % 4);
        [1u32, 2, 3].map(|number| {
            let cells = ProbeCells::after(number * some + number.min(more), probe.bits, self.hashes_in(number));
            (at_distance(probe.a, probe.rest >> (8 * (3 - number))), cells)
        })
    }

    /// Returns the cells in the first block of an item.
    #[inline]
    const fn first_of(&self, probe: BlockedProbe) -> ProbeCells {
        ProbeCells { word: probe.bits, left: self.hashes_in(0) }
    }

    /// Returns the cells in the second of two blocks of an item.
    #[inline]
    fn after_first(&self, probe: BlockedProbe) -> ProbeCells {
        ProbeCells::after(self.hashes.div_ceil(2), probe.bits, self.hashes / 2)
    }
}

// The rarer case of four blocks, in functions that are not inlined, because they would use registers in the loops over a batch.
impl<const BLOCK: usize> BlockedGeometry<BLOCK>
where
    BlockArray<BLOCK>: BlockedCells,
{
    #[inline(never)]
    fn prefetch_others_of_four(&self, cells: &BlockArray<BLOCK>, probe: BlockedProbe) {
        for (block, its_cells) in self.others_of_four(probe) {
            cells.prefetch(block, its_cells.map(BlockArray::<BLOCK>::byte_of));
        }
    }

    #[inline(never)]
    fn has_others_of_four(&self, cells: &BlockArray<BLOCK>, probe: BlockedProbe) -> bool {
        self.others_of_four(probe).into_iter().all(|(block, its_cells)| cells.all_occupied(block, its_cells))
    }

    #[inline(never)]
    fn occupy_four(&self, cells: &mut BlockArray<BLOCK>, probe: BlockedProbe) {
        self.blocks_of(probe).for_each(|(block, its_cells)| cells.occupy(block, its_cells));
    }
}

/// The cells of an item in one block, in the order in which they are drawn. Some may be equal.
#[derive(Clone, Debug)]
pub(crate) struct ProbeCells {
    word: u64,
    left: u32,
}

impl ProbeCells {
    /// Returns `count` cells that are drawn from a word after `before` others.
    #[inline]
    fn after(before: u32, word: u64, count: u32) -> Self {
        let power = POWERS.get(before as usize).copied().unwrap_or_default();
        Self { word: word.wrapping_mul(power), left: count }
    }

    /// Returns the `count` cells that are drawn next.
    #[inline]
    const fn followed_by(self, count: u32) -> Self {
        Self { word: self.word, left: count }
    }
}

impl Iterator for ProbeCells {
    type Item = BlockCell;

    #[inline]
    fn next(&mut self) -> Option<BlockCell> {
        self.left = self.left.checked_sub(1)?;
        let cell = BlockCell::from_top_of(self.word);
        self.word = self.word.wrapping_mul(GOLDEN);
        Some(cell)
    }
}

/// Maps a word to 0..range without a division. Returns the result and a remainder, which is evenly distributed and can be used for the next
/// draw (Lemire: Fast Random Integer Generation in an Interval, 2019).
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the halves of 128 bits are 64 bits each")]
pub(super) const fn scale(word: u64, range: u64) -> (u64, u64) {
    let product = word as u128 * range as u128;
    ((product >> 64) as u64, product as u64)
}

/// Sets bits in a copy of a block, for pending adds.
fn set_bits(block: &mut [u8], bits: impl Iterator<Item = BlockCell>) {
    for bit in bits {
        if let Some(byte) = block.get_mut(bit.index() / 8) {
            *byte |= 1 << (bit.index() % 8);
        }
    }
}

fn are_set(block: &[u8], mut bits: impl Iterator<Item = BlockCell>) -> bool {
    bits.all(|bit| block.get(bit.index() / 8).is_some_and(|byte| byte & 1 << (bit.index() % 8) != 0))
}

/// Returns the range of a block in a copy that begins at `offset`.
fn range_of<const BLOCK: usize>(block: u64, offset: usize) -> Option<Range<usize>> {
    let start = usize::try_from(block).ok()?.checked_mul(BLOCK)?.checked_sub(offset)?;
    Some(start..start + BLOCK)
}

// The native layout with counters in place of bits, so that items can be removed.
//
// A block of 512 counters is four cache lines, and a page has 16 such blocks instead of 64. Smaller groups are loaded less evenly, and more
// pairs of items share both blocks. `sizing::counters_per_item` compensates for that.

/// The shape of a layer of counters: blocks of 256 bytes, 2 to 16 of them per group.
pub(crate) type BlockedCounters = BlockedGeometry<COUNTER_BLOCK_BYTES>;

/// A geometry whose cells are counters, so that an item that was inserted can be removed.
pub trait Counting: Geometry {
    /// Removes an item, which must have been inserted: otherwise this decrements counters of other items.
    fn remove(&self, cells: &mut Self::Cells, probe: Self::Probe);
    /// Returns how often the item was inserted less how often it was removed, as the minimum of its counters. The result is too high if
    /// other items share all of the counters. [`COUNTER_MAX`](crate::cells::COUNTER_MAX) means that number or more.
    fn least(&self, cells: &Self::Cells, probe: Self::Probe) -> u8;
}

impl Counting for BlockedCounters {
    #[inline]
    fn remove(&self, cells: &mut Counters, probe: BlockedProbe) {
        cells.decrement(probe.a, self.first_of(probe));
        cells.decrement(probe.rest, self.after_first(probe));
    }

    #[inline]
    fn least(&self, cells: &Counters, probe: BlockedProbe) -> u8 {
        let first = cells.least(probe.a, self.first_of(probe));
        first.min(cells.least(probe.rest, self.after_first(probe)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::Blocks;
    use crate::geometry::BlockedBits;

    fn has_room_in_groups_of_at_most_a_page<const BLOCK: usize>(per_item: fn(f64) -> f64)
    where
        BlockArray<BLOCK>: BlockedCells,
    {
        for capacity in [1, 2, 10, 99, 100, 1000, 12_345, 54_000, 55_000, 100_000, 218_000, 1_000_000, 1 << 40] {
            for rate in [0.25, 0.1, 1e-2, 1e-3, 1e-6, 1e-12] {
                let geometry = BlockedGeometry::<BLOCK>::for_layer(capacity, rate).unwrap();
                assert!(geometry.is_sound() && geometry.blocks_per_group as usize * BLOCK <= 4096);
                assert_eq!(geometry.hashes, sizing::hashes(rate));
                let (asked, has) = (per_item(rate) * sizing::to_f64(capacity), sizing::to_f64(geometry.modulus()));
                // Rounding adds at most a block per group, or a page where groups are whole pages.
                let slack = sizing::to_f64(geometry.groups.min(4096)) * 512.0 + 512.0;
                let page = sizing::to_f64(4096 / BLOCK as u64) * 512.0;
                assert!(has >= asked && has < asked + slack.clamp(1024.0, page + 512.0), "{capacity} {rate}: {has}");
                if geometry.size_bytes() >= PAGE_ALIGNED_FROM_BYTES as u64 {
                    assert_eq!(geometry.blocks_per_group as usize * BLOCK, 4096);
                }
            }
        }
    }

    #[test]
    fn a_layer_has_room_for_its_cells_and_groups_of_at_most_a_page() {
        has_room_in_groups_of_at_most_a_page::<BLOCK_BYTES>(sizing::bits_per_item);
        has_room_in_groups_of_at_most_a_page::<COUNTER_BLOCK_BYTES>(sizing::counters_per_item);
        let geometry = BlockedCounters { groups: 2, blocks_per_group: 10, blocks_per_item: 2, hashes: 7 };
        assert_eq!(BlockedCounters::for_layer(1000, 0.01), Ok(geometry));
        // Counters take four times the memory of bits.
        let bits = BlockedBits::for_layer(1 << 30, 1e-6).unwrap().size_bytes();
        let counters = BlockedCounters::for_layer(1 << 30, 1e-6).unwrap().size_bytes();
        assert!(counters.abs_diff(4 * bits) <= 4 * 4096);
    }

    #[test]
    fn invalid_capacities_and_rates_are_refused() {
        assert_eq!(BlockedBits::for_layer(0, 0.01), Err(Error::CapacityOutOfRange));
        for rate in [0.0, -1.0, 1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(BlockedBits::for_layer(1, rate), Err(Error::RateOutOfRange));
        }
        assert!(matches!(BlockedBits::for_layer(u64::MAX, 1e-12), Err(Error::SizeOverflow)));
        assert!(BlockedBits::for_layer(1, f64::MIN_POSITIVE).is_ok());
        assert!(BlockedBits::for_layer(1, 5e-324).is_ok());
        let smallest = BlockedBits::for_layer(1, 0.999_999).unwrap();
        assert_eq!((smallest.groups, smallest.blocks_per_group, smallest.hashes), (1, 2, 1));
    }

    fn geometry(groups: u64, blocks_per_group: u16, hashes: u32) -> BlockedBits {
        BlockedBits { groups, blocks_per_group, blocks_per_item: 2, hashes }
    }

    /// Returns the blocks of an item, and its cells in each.
    fn drawn(geometry: BlockedBits, hash: ItemHash) -> Vec<(u64, Vec<usize>)> {
        let blocks = geometry.blocks_of(geometry.probe(hash));
        blocks.map(|(block, cells)| (block, cells.map(BlockCell::index).collect())).collect()
    }

    /// The formula of the layout, term by term in 128-bit arithmetic.
    fn formula(hash: ItemHash, geometry: BlockedBits) -> Vec<(u64, Vec<usize>)> {
        let (g, k) = (u64::from(geometry.blocks_per_group), geometry.hashes);
        let mut w = u128::from(hash.h1);
        let mut draw = |range: u64| {
            let product = (w % (1 << 64)) * u128::from(range);
            w = product;
            (product >> 64) as u64
        };
        let (group, a) = (draw(geometry.groups), draw(g));
        let (distances, counts) = if geometry.blocks_per_item == 2 {
            (vec![1 + draw(g - 1)], vec![k.div_ceil(2), k / 2])
        } else {
            let quarters = (1..4).map(|quarter| quarter * (g / 4) + draw(g / 4)).collect();
            (quarters, (0..4).map(|block| k / 4 + u32::from(block < k % 4)).collect())
        };
        let mut x = hash.h2;
        let mut cells = |count: u32| {
            let next = |_| {
                let cell = (x >> 55) as usize;
                x = x.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                cell
            };
            (0..count).map(next).collect()
        };
        let blocks = std::iter::once(0).chain(distances).map(|distance| group * g + (a + distance) % g);
        blocks.zip(counts).map(|(block, count)| (block, cells(count))).collect()
    }

    /// Number of hashes that are tried: fewer under miri, which is slow.
    const HASHES: u32 = if cfg!(miri) { 40 } else { 20_000 };

    #[test]
    fn a_probe_equals_the_formula() {
        let in_two = [(1, 2, 1), (1, 2, 7), (1, 3, 10), (5, 63, 13), (64, 64, 18), (1 << 40, 64, 40)];
        let in_four = [(1, 4, 13), (1, 5, 18), (2, 7, 19), (5, 63, 20), (64, 64, 22), (1 << 40, 64, 53)];
        let in_two = in_two.map(|(groups, g, k)| geometry(groups, g, k));
        let in_four = in_four.map(|(groups, g, k)| BlockedBits { blocks_per_item: 4, ..geometry(groups, g, k) });
        for number in 0..HASHES {
            let hash = ItemHash::of(&number.to_le_bytes(), 7);
            for geometry in in_two.into_iter().chain(in_four) {
                assert!(geometry.is_sound());
                let drawn = drawn(geometry, hash);
                assert_eq!(drawn, formula(hash, geometry), "{geometry:?}");
                let g = u64::from(geometry.blocks_per_group);
                let mut blocks: Vec<u64> = drawn.iter().map(|(block, _)| *block).collect();
                assert!(blocks.iter().all(|block| block / g == blocks[0] / g && *block < geometry.blocks()));
                blocks.sort_unstable();
                blocks.dedup();
                assert_eq!(blocks.len(), usize::from(geometry.blocks_per_item), "different blocks of one group");
            }
        }
    }

    /// Frozen: a stored filter must find its items in every later version. Computed by a program in another language, with
    /// another implementation of the hash.
    #[test]
    fn golden_positions() {
        type Golden = (&'static [u8], u32, BlockedBits, &'static [(u64, &'static [usize])]);
        let in_four = |geometry| BlockedBits { blocks_per_item: 4, ..geometry };
        let golden: [Golden; 5] = [
            (
                b"https://doc.rust-lang.org/std/",
                42,
                geometry(1000, 64, 7),
                &[(49798, &[337, 125, 393, 328]), (49827, &[235, 414, 328])],
            ),
            (b"", 0, geometry(1, 2, 7), &[(0, &[0, 0, 0, 0]), (1, &[0, 0, 0])]),
            (
                b"hello",
                u32::MAX,
                geometry(3, 5, 18),
                &[(3, &[434, 349, 22, 412, 233, 471, 248, 300, 98]), (4, &[439, 159, 116, 496, 332, 147, 89, 503, 8])],
            ),
            (
                b"https://doc.rust-lang.org/std/",
                42,
                in_four(geometry(1000, 64, 22)),
                &[
                    (49798, &[337, 125, 393, 328, 235, 414]),
                    (49821, &[328, 260, 455, 178, 111, 464]),
                    (49834, &[407, 305, 171, 202, 29]),
                    (49851, &[261, 230, 89, 429, 178]),
                ],
            ),
            (
                b"hello",
                u32::MAX,
                in_four(geometry(3, 5, 18)),
                &[
                    (3, &[434, 349, 22, 412, 233]),
                    (4, &[471, 248, 300, 98, 439]),
                    (0, &[159, 116, 496, 332]),
                    (1, &[147, 89, 503, 8]),
                ],
            ),
        ];
        for (item, seed, geometry, expected) in golden {
            let drawn = drawn(geometry, ItemHash::of(item, seed));
            let drawn: Vec<_> = drawn.iter().map(|(block, cells)| (*block, cells.as_slice())).collect();
            assert_eq!(drawn, expected, "{item:?}");
        }
    }

    const GROUPS: usize = 67;
    const GEOMETRY: BlockedBits =
        BlockedBits { groups: GROUPS as u64, blocks_per_group: 64, blocks_per_item: 2, hashes: 10 };

    fn hashes() -> impl Iterator<Item = ItemHash> {
        (0..if cfg!(miri) { 50u64 } else { 3000 }).map(|item| ItemHash::of(&item.to_le_bytes(), 3))
    }

    #[test]
    fn copies_of_pieces_get_the_bits_that_the_layer_would_get() {
        assert!(GEOMETRY.can_pend() && !BlockedBits { blocks_per_group: 63, ..GEOMETRY }.can_pend());
        let in_four = BlockedBits { blocks_per_item: 4, hashes: 19, ..GEOMETRY };
        for (geometry, piece) in [4096, 5 * 4096, GROUPS * 4096].iter().flat_map(|&by| [(GEOMETRY, by), (in_four, by)])
        {
            let mut blocks = Blocks::zeroed(geometry.blocks()).unwrap();
            let mut pieces = vec![0; GROUPS * 4096];
            for (hash, probe) in hashes().map(|hash| (hash, geometry.probe(hash))) {
                geometry.insert(&mut blocks, probe);
                for (number, copy) in pieces.chunks_mut(piece).enumerate() {
                    let before = copy.to_vec();
                    let offset = number * piece;
                    geometry.insert_into_copy(copy, offset, probe);
                    let contains = geometry.copy_contains(copy, offset, probe);
                    assert_eq!(contains, probe.a * 64 / piece as u64 == number as u64);
                    let bytes = offset..offset + copy.len();
                    assert!(copy == before || geometry.h1_range(&bytes).contains(&hash.h1), "{hash:?} {bytes:?}");
                }
            }
            assert!(pieces == blocks.bytes());
        }
    }

    #[test]
    fn a_range_of_h1_has_no_other_groups() {
        for group in 0..GROUPS {
            let range = GEOMETRY.h1_range(&(group * 4096..(group + 1) * 4096));
            let is_other = |hash: &ItemHash| GEOMETRY.probe(*hash).a / 64 != group as u64;
            assert_eq!(hashes().filter(|hash| range.contains(&hash.h1) && is_other(hash)).count(), 0);
        }
        assert_eq!(GEOMETRY.h1_range(&(0..GROUPS * 4096)), 0..=u64::MAX);
    }

    /// Counters have the same positions as bits, which are frozen.
    #[test]
    fn golden_counters() {
        let geometry = BlockedCounters { groups: 3, blocks_per_group: 5, blocks_per_item: 2, hashes: 18 };
        let probe = geometry.probe(ItemHash::of(b"hello", u32::MAX));
        assert_eq!(probe, self::geometry(3, 5, 18).probe(ItemHash::of(b"hello", u32::MAX)));
        let mut counters = Counters::zeroed(geometry.blocks()).unwrap();
        geometry.insert(&mut counters, probe);
        let mut expected = vec![0u8; 15 * 256];
        let in_block_3 = [434, 349, 22, 412, 233, 471, 248, 300, 98];
        let in_block_4 = [439, 159, 116, 496, 332, 147, 89, 503, 8];
        for (block, counters) in [(3, in_block_3), (4, in_block_4)] {
            for counter in counters {
                expected[block * 256 + counter / 2] |= if counter % 2 == 0 { 0x01 } else { 0x10 };
            }
        }
        assert!(counters.bytes() == expected);
    }

    #[test]
    fn impossible_shapes_are_refused() {
        let sound = BlockedCounters { groups: 1, blocks_per_group: 16, blocks_per_item: 2, hashes: 7 };
        let check = |geometry| Geometry::check(&LayerDescription { rate: 0.01, capacity: 10, items: 0, geometry });
        assert_eq!(check(sound), Ok(()));
        for geometry in [
            BlockedCounters { groups: 0, ..sound },
            BlockedCounters { groups: 1 << 52, ..sound },
            BlockedCounters { groups: u64::MAX, ..sound },
            BlockedCounters { blocks_per_group: 1, ..sound },
            BlockedCounters { blocks_per_group: 17, ..sound },
            BlockedCounters { hashes: 0, ..sound },
            BlockedCounters { hashes: 65, ..sound },
        ] {
            assert_eq!(check(geometry), Err(Error::Unsound), "{geometry:?}");
        }
        assert_eq!(BlockedCounters::for_layer(0, 0.01), Err(Error::CapacityOutOfRange));
        assert_eq!(BlockedCounters::for_layer(1, 0.0), Err(Error::RateOutOfRange));
        assert_eq!(BlockedCounters::for_layer(1, 1.0), Err(Error::RateOutOfRange));
        assert_eq!(BlockedCounters::for_layer(u64::MAX, 1e-12), Err(Error::SizeOverflow));
    }
}
