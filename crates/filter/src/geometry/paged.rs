//! The native layout: which bits of a layer an item has.
//!
//! An item's k bits lie in two blocks of 64 bytes, and both blocks in one group of at most 4 KiB: two cache misses, one
//! page, where a classic filter has k of each. In a prototype, on a filter of 1.2 GiB (Zen 5), lookups in batches took
//! 44-49 ns an item where a classic layout took 55-66 ns at k = 7, and 44-58 ns beside 90-106 ns at k = 14; an add while
//! a snapshot was being saved copied 0.92 pages where it copied 4.2.
//!
//! Two blocks rather than one: the load of a pair of blocks varies less than that of one, and blocks of unequal load are
//! what the same rate costs more memory for than in a classic filter, 1% at 10^-2 and 9% at 10^-6 (Putze, Sanders,
//! Singler: Cache-, Hash- and Space-Efficient Bloom Filters, 2007, section 3).

use std::fmt::Debug;
use std::ops::{Range, RangeInclusive};

use super::estimate::Fullness;
use super::sizing;
use super::{Geometry, LayerDescription};
use crate::cells::{
    BLOCK_BYTES, BLOCK_CELLS, BlockArray, BlockCell, Blocks, Cells, Histogram, PAGE_ALIGNED_FROM_BYTES, PAGE_BYTES,
    Sample,
};
use crate::error::Error;
use crate::hash::ItemHash;

/// The golden ratio in 64 bits, odd: multiplying by it moves every bit of a word towards the top.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
/// More cells an item than this no geometry of ours has; what is loaded is checked against it.
const HASHES_MAX: u32 = 64;

/// The shape of a layer whose items leave cells in two blocks of one page, and how many cells an item has in it. `BLOCK`:
/// size of a block of 512 cells, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagedOf<const BLOCK: usize> {
    /// Number of groups. An item's blocks lie in one of them.
    pub groups: u64,
    /// Number of blocks of a group, 2 to as many as a page has.
    pub blocks_per_group: u32,
    /// Number of cells of an item, k, 1 to 64: the first half of them, rounded up, in one block, the rest in another.
    pub hashes: u32,
}

/// The shape of a layer's bitmap and how many bits an item has in it: blocks of 64 bytes, 2 to 64 of them a group.
pub type Paged = PagedOf<BLOCK_BYTES>;

/// What of the layout hangs on what an item leaves: bits or counters.
pub trait PagedCells: Cells + Debug {
    /// Whether they are bits: one that is set for an item stays so, whoever sets it again.
    const ARE_BITS: bool = false;
    /// Cells an item of a layer's capacity at a rate.
    fn cells_per_item(rate: f64) -> f64;
    /// Starts to load cells of a block into the cache.
    fn prefetch(&self, block: u64, cells: impl Iterator<Item = BlockCell>);
    /// Whether an item left something in all of these cells.
    fn have_all(&self, block: u64, cells: impl Iterator<Item = BlockCell>) -> bool;
    /// Leaves an item's mark in cells of a block.
    fn put(&mut self, block: u64, cells: impl Iterator<Item = BlockCell>);
    /// How full blocks are: all of them, or a sample of 1 MiB.
    fn sampled(&self) -> Histogram;
}

impl PagedCells for Blocks {
    const ARE_BITS: bool = true;

    fn cells_per_item(rate: f64) -> f64 {
        sizing::bits_per_item(rate)
    }

    #[inline]
    fn prefetch(&self, block: u64, _: impl Iterator<Item = BlockCell>) {
        self.prefetch(block);
    }

    #[inline]
    fn have_all(&self, block: u64, bits: impl Iterator<Item = BlockCell>) -> bool {
        self.all_set(block, bits)
    }

    #[inline]
    fn put(&mut self, block: u64, bits: impl Iterator<Item = BlockCell>) {
        self.set_all(block, bits);
    }

    fn sampled(&self) -> Histogram {
        Histogram::sampled(self.bytes())
    }
}

impl<const BLOCK: usize> PagedOf<BLOCK> {
    /// A group is at most a page.
    const GROUP_BLOCKS_MAX: u64 = (PAGE_BYTES / BLOCK) as u64;
    /// From so many blocks on (256 KiB) every group is a whole page.
    const WHOLE_PAGES_FROM_BLOCKS: u64 = (PAGE_ALIGNED_FROM_BYTES / BLOCK) as u64;

    /// The geometry of a layer for `capacity` items at false positive rate `rate`.
    ///
    /// # Errors
    /// [`Error::CapacityOutOfRange`] for capacity 0, [`Error::RateOutOfRange`] unless 0 < `rate` < 1,
    /// [`Error::SizeOverflow`] for a size in bytes that does not fit 63 bits.
    pub fn for_layer(capacity: u64, rate: f64) -> Result<Self, Error>
    where
        BlockArray<BLOCK>: PagedCells,
    {
        if capacity == 0 {
            return Err(Error::CapacityOutOfRange);
        }
        if !(rate > 0.0 && rate < 1.0) {
            return Err(Error::RateOutOfRange);
        }
        let cells = <BlockArray<BLOCK>>::cells_per_item(rate) * sizing::to_f64(capacity);
        let blocks = sizing::to_u64((cells / sizing::to_f64(BLOCK_CELLS as u64)).ceil()).max(2);
        let groups = blocks.div_ceil(Self::GROUP_BLOCKS_MAX);
        let blocks_per_group =
            if blocks < Self::WHOLE_PAGES_FROM_BLOCKS { blocks.div_ceil(groups) } else { Self::GROUP_BLOCKS_MAX };
        let geometry = Self {
            groups,
            blocks_per_group: u32::try_from(blocks_per_group).unwrap_or(u32::MAX),
            hashes: sizing::hashes(rate),
        };
        if geometry.is_sound() { Ok(geometry) } else { Err(Error::SizeOverflow) }
    }

    /// Whether a layer can have this geometry, wherever it came from.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let fields = self.groups >= 1
            && (2..=Self::GROUP_BLOCKS_MAX).contains(&u64::from(self.blocks_per_group))
            && (1..=HASHES_MAX).contains(&self.hashes);
        let size = self
            .groups
            .checked_mul(u64::from(self.blocks_per_group))
            .and_then(|blocks| blocks.checked_mul(BLOCK as u64))
            .filter(|&size| i64::try_from(size).is_ok());
        fields && size.is_some()
    }

    /// Number of blocks of the layer.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.groups.saturating_mul(self.blocks_per_group as u64)
    }

    /// Size of the layer's cells, in bytes.
    #[must_use]
    pub const fn size_bytes(&self) -> u64 {
        self.blocks().saturating_mul(BLOCK as u64)
    }
}

/// Where an item's cells are in a layer: so many in block `a`, the rest in block `b`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PagedProbe {
    /// The block of the first half of the cells, rounded up.
    pub a: u64,
    /// The block of the other half; another one of the same group.
    pub b: u64,
    bits: u64,
}

impl PagedProbe {
    /// The place of an item in a layer of this geometry: four multiplications, and for who only looks at `a` but one.
    #[inline]
    #[must_use]
    pub fn of<const BLOCK: usize>(hash: ItemHash, geometry: PagedOf<BLOCK>) -> Self {
        let blocks = u64::from(geometry.blocks_per_group);
        // To draw a group and then a block of it is to draw one of all blocks: the remainder is the same, too.
        let (a, rest) = scale(hash.h1, geometry.groups.wrapping_mul(blocks));
        let (group, _) = scale(hash.h1, geometry.groups);
        let (step, _) = scale(rest, blocks.wrapping_sub(1));
        let b = a + 1 + step;
        let end = (group + 1) * blocks;
        let b = if b >= end { b - blocks } else { b };
        Self { a, b, bits: hash.h2 }
    }

    /// The cells in block `a`, of k cells in all.
    #[inline]
    pub fn cells_in_a(self, hashes: u32) -> impl Iterator<Item = BlockCell> {
        ProbeCells { word: self.bits, left: hashes.div_ceil(2) }
    }

    /// The cells in block `b`, of k cells in all.
    #[inline]
    pub fn cells_in_b(self, hashes: u32) -> impl Iterator<Item = BlockCell> {
        let mut word = self.bits;
        for _ in 0..hashes.div_ceil(2) {
            word = word.wrapping_mul(GOLDEN);
        }
        ProbeCells { word, left: hashes / 2 }
    }
}

impl<const BLOCK: usize> Geometry for PagedOf<BLOCK>
where
    BlockArray<BLOCK>: PagedCells,
{
    type Hash = ItemHash;
    type Probe = PagedProbe;
    type Sample = Sample<BLOCK>;
    type Place = u64;
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

    #[inline]
    fn probe(&self, hash: ItemHash) -> PagedProbe {
        PagedProbe::of(hash, *self)
    }

    #[inline]
    fn prefetch_first(&self, cells: &Self::Cells, probe: PagedProbe) {
        PagedCells::prefetch(cells, probe.a, probe.cells_in_a(self.hashes));
    }

    #[inline]
    fn prefetch_rest(&self, cells: &Self::Cells, probe: PagedProbe) {
        PagedCells::prefetch(cells, probe.b, probe.cells_in_b(self.hashes));
    }

    #[inline]
    fn contains_first(&self, cells: &Self::Cells, probe: PagedProbe) -> bool {
        cells.have_all(probe.a, probe.cells_in_a(self.hashes))
    }

    #[inline]
    fn contains_rest(&self, cells: &Self::Cells, probe: PagedProbe) -> bool {
        cells.have_all(probe.b, probe.cells_in_b(self.hashes))
    }

    #[inline]
    fn sample(hash: ItemHash, hashes: u32) -> Self::Sample {
        let cells = PagedProbe { a: 0, b: 0, bits: hash.h2 }.cells_in_a(hashes);
        Sample::of(cells)
    }

    #[inline]
    fn place(&self, hash: ItemHash) -> u64 {
        PagedProbe::of(hash, *self).a
    }

    #[inline]
    fn prefetch_sample(&self, cells: &Self::Cells, place: u64, sample: &Self::Sample) {
        cells.prefetch_sample(place, sample);
    }

    #[inline]
    fn has_sample(&self, cells: &Self::Cells, place: u64, sample: &Self::Sample) -> bool {
        cells.has_sample(place, sample)
    }

    #[inline]
    fn insert(&self, cells: &mut Self::Cells, probe: PagedProbe) {
        // The words of the cells in `b` follow after those in `a`.
        let mut in_a = ProbeCells { word: probe.bits, left: self.hashes.div_ceil(2) };
        cells.put(probe.a, in_a.by_ref());
        cells.put(probe.b, ProbeCells { word: in_a.word, left: self.hashes / 2 });
    }

    fn fullness(&self, cells: &Self::Cells) -> Fullness {
        Fullness::of_blocks(&cells.sampled(), self.hashes, self.blocks())
    }

    fn fullness_with(&self, cells: &Self::Cells, change: impl Fn(&mut [u8], usize)) -> Fullness {
        Fullness::of_blocks(&Histogram::sampled_with(cells.bytes(), change), self.hashes, self.blocks())
    }

    #[inline]
    fn can_wait(&self) -> bool {
        <BlockArray<BLOCK>>::ARE_BITS && self.has_whole_pages()
    }

    #[inline]
    fn to_waiting(hash: ItemHash) -> ItemHash {
        hash
    }

    #[inline]
    fn from_waiting(hash: ItemHash) -> ItemHash {
        hash
    }

    fn hashes_in(&self, bytes: &Range<usize>) -> RangeInclusive<u64> {
        self.h1_in(bytes)
    }

    fn byte_of(&self, probe: PagedProbe) -> Option<usize> {
        usize::try_from(probe.a).ok()?.checked_mul(BLOCK)
    }

    fn insert_in(&self, copy: &mut [u8], begin: usize, probe: PagedProbe) {
        self.set_in(copy, begin, probe);
    }

    fn is_in(&self, copy: &[u8], begin: usize, probe: PagedProbe) -> bool {
        self.are_set_in(copy, begin, probe)
    }
}

struct ProbeCells {
    word: u64,
    left: u32,
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

/// Maps a word onto 0..range without a division, and gives the remainder, evenly spread, for the next draw
/// (Lemire: Fast Random Integer Generation in an Interval, 2019).
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the halves of 128 bits are 64 bits each")]
const fn scale(word: u64, range: u64) -> (u64, u64) {
    let product = word as u128 * range as u128;
    ((product >> 64) as u64, product as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(groups: u64, blocks_per_group: u32, hashes: u32) -> Paged {
        Paged { groups, blocks_per_group, hashes }
    }

    /// The formula of the layout, word for word in 128-bit arithmetic.
    fn by_the_formula(hash: ItemHash, groups: u64, g: u64, k: u32) -> (u64, u64, Vec<usize>, Vec<usize>) {
        let w = u128::from(hash.h1) * u128::from(groups);
        let group = (w >> 64) as u64;
        let w = (w % (1 << 64)) * u128::from(g);
        let a = (w >> 64) as u64;
        let w = (w % (1 << 64)) * u128::from(g - 1);
        let mut b = a + 1 + (w >> 64) as u64;
        if b >= g {
            b -= g;
        }
        let (mut x, mut in_a, mut in_b) = (hash.h2, vec![], vec![]);
        for i in 0..k {
            let list = if i < k.div_ceil(2) { &mut in_a } else { &mut in_b };
            list.push((x >> 55) as usize);
            x = x.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
        (group * g + a, group * g + b, in_a, in_b)
    }

    /// How many hashes are tried: fewer under miri, which is slow.
    const HASHES: u32 = if cfg!(miri) { 40 } else { 20_000 };

    #[test]
    fn equals_the_formula() {
        for number in 0..HASHES {
            let hash = ItemHash::of(&number.to_le_bytes(), 7);
            for (groups, g, k) in [(1, 2, 1), (1, 2, 7), (1, 3, 10), (5, 63, 13), (64, 64, 18), (1 << 40, 64, 40)] {
                let probe = PagedProbe::of(hash, geometry(groups, g, k));
                let (a, b, in_a, in_b) = by_the_formula(hash, groups, u64::from(g), k);
                assert_eq!((probe.a, probe.b), (a, b));
                assert_eq!(probe.cells_in_a(k).map(BlockCell::index).collect::<Vec<_>>(), in_a);
                assert_eq!(probe.cells_in_b(k).map(BlockCell::index).collect::<Vec<_>>(), in_b);
                assert_ne!(a, b);
                assert_eq!(a / u64::from(g), b / u64::from(g), "both blocks in one group");
                assert!(a.max(b) < groups * u64::from(g));
            }
        }
    }

    /// Fixed for good: a filter that was saved must find its items in every later version. Worked out by a program in
    /// another language, with another implementation of the hash.
    #[test]
    fn golden_places() {
        type Golden = (&'static [u8], u32, (u64, u32, u32), (u64, u64), &'static [usize], &'static [usize]);
        let golden: [Golden; 3] = [
            (
                b"https://doc.rust-lang.org/std/",
                42,
                (1000, 64, 7),
                (49798, 49827),
                &[337, 125, 393, 328],
                &[235, 414, 328],
            ),
            (b"", 0, (1, 2, 7), (0, 1), &[0, 0, 0, 0], &[0, 0, 0]),
            (
                b"hello",
                u32::MAX,
                (3, 5, 18),
                (3, 4),
                &[434, 349, 22, 412, 233, 471, 248, 300, 98],
                &[439, 159, 116, 496, 332, 147, 89, 503, 8],
            ),
        ];
        for (item, seed, (groups, g, k), blocks, in_a, in_b) in golden {
            let probe = PagedProbe::of(ItemHash::of(item, seed), geometry(groups, g, k));
            assert_eq!((probe.a, probe.b), blocks, "{item:?}");
            assert_eq!(probe.cells_in_a(k).map(BlockCell::index).collect::<Vec<_>>(), in_a);
            assert_eq!(probe.cells_in_b(k).map(BlockCell::index).collect::<Vec<_>>(), in_b);
        }
    }

    #[test]
    fn a_geometry_has_room_for_the_bits_and_groups_of_at_most_a_page() {
        for capacity in [1, 2, 10, 99, 100, 1000, 12_345, 100_000, 218_000, 1_000_000, 1 << 40] {
            for rate in [0.25, 0.1, 1e-2, 1e-3, 1e-6, 1e-12] {
                let geometry = Paged::for_layer(capacity, rate).unwrap();
                assert!(geometry.is_sound());
                let asked = sizing::bits_per_item(rate) * sizing::to_f64(capacity);
                let has = sizing::to_f64(geometry.blocks()) * 512.0;
                assert!(has >= asked, "{capacity} {rate}");
                // At most a block for each group above what is needed, and a page for whole pages.
                let slack = sizing::to_f64(geometry.groups.min(4096)) * 512.0 + 512.0;
                assert!(has < asked + slack.clamp(1024.0, 32768.0 + 512.0), "{capacity} {rate}: {has} for {asked}");
                if geometry.size_bytes() >= 256 * 1024 {
                    assert_eq!(geometry.blocks_per_group, 64);
                }
            }
        }
    }

    #[test]
    fn edges_are_refused_or_survived() {
        assert_eq!(Paged::for_layer(0, 0.01), Err(Error::CapacityOutOfRange));
        for rate in [0.0, -1.0, 1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(Paged::for_layer(1, rate), Err(Error::RateOutOfRange));
        }
        assert!(matches!(Paged::for_layer(u64::MAX, 1e-12), Err(Error::SizeOverflow)));
        assert!(Paged::for_layer(1, f64::MIN_POSITIVE).is_ok());
        assert!(Paged::for_layer(1, 5e-324).is_ok());
        let smallest = Paged::for_layer(1, 0.999_999).unwrap();
        assert_eq!((smallest.groups, smallest.blocks_per_group, smallest.hashes), (1, 2, 1));
    }
}
