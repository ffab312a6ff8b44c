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

use super::Error;
use super::bits::{Bitmap, BlockBit};
use super::description::LayerDescription;
use super::hash::ItemHash;
use super::layout::Layout;
use super::sizing::{self, Geometry};

/// The golden ratio in 64 bits, odd: multiplying by it moves every bit of a word towards the top.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// Where an item's bits are in a layer: so many in block `a`, the rest in block `b`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The block of the first half of the bits, rounded up.
    pub a: u64,
    /// The block of the other half; another one of the same group.
    pub b: u64,
    bits: u64,
}

impl Place {
    /// The place of an item in a layer of this geometry: three multiplications.
    #[inline]
    #[must_use]
    pub fn of(hash: ItemHash, geometry: Geometry) -> Self {
        let blocks = u64::from(geometry.blocks_per_group);
        let (group, rest) = scale(hash.h1, geometry.groups);
        let (a, rest) = scale(rest, blocks);
        let (step, _) = scale(rest, blocks.wrapping_sub(1));
        let b = a + 1 + step;
        let b = if b >= blocks { b - blocks } else { b };
        let first = group * blocks;
        Self { a: first + a, b: first + b, bits: hash.h2 }
    }

    /// The bits in block `a`, of k bits in all.
    #[inline]
    pub fn bits_in_a(self, hashes: u32) -> impl Iterator<Item = BlockBit> {
        Bits { word: self.bits, left: hashes.div_ceil(2) }
    }

    /// The bits in block `b`, of k bits in all.
    #[inline]
    pub fn bits_in_b(self, hashes: u32) -> impl Iterator<Item = BlockBit> {
        let mut word = self.bits;
        for _ in 0..hashes.div_ceil(2) {
            word = word.wrapping_mul(GOLDEN);
        }
        Bits { word, left: hashes / 2 }
    }
}

impl Layout for Geometry {
    type Hash = ItemHash;
    type Place = Place;
    type Bits = Bitmap;

    fn check(description: &LayerDescription<Self>) -> Result<(), Error> {
        let LayerDescription { rate, capacity, items, ref geometry } = *description;
        let sound = rate > 0.0 && rate <= sizing::RATE_MAX && capacity >= 1 && items <= capacity;
        if sound { geometry.check() } else { Err(Error::Unsound) }
    }

    fn size_bytes(&self) -> u64 {
        Self::size_bytes(self)
    }

    fn modulus(&self) -> u64 {
        self.size_bytes().saturating_mul(8)
    }

    fn hashes(&self) -> u32 {
        self.hashes
    }

    #[inline]
    fn place(&self, hash: ItemHash) -> Place {
        Place::of(hash, *self)
    }

    #[inline]
    fn prefetch_first(&self, bits: &Bitmap, place: Place) {
        bits.prefetch(place.a);
    }

    #[inline]
    fn prefetch_rest(&self, bits: &Bitmap, place: Place) {
        bits.prefetch(place.b);
    }

    #[inline]
    fn contains_first(&self, bits: &Bitmap, place: Place) -> bool {
        bits.all_set(place.a, place.bits_in_a(self.hashes))
    }

    #[inline]
    fn contains_rest(&self, bits: &Bitmap, place: Place) -> bool {
        bits.all_set(place.b, place.bits_in_b(self.hashes))
    }

    #[inline]
    fn insert(&self, bits: &mut Bitmap, place: Place) {
        bits.set_all(place.a, place.bits_in_a(self.hashes));
        bits.set_all(place.b, place.bits_in_b(self.hashes));
    }
}

struct Bits {
    word: u64,
    left: u32,
}

impl Iterator for Bits {
    type Item = BlockBit;

    #[inline]
    fn next(&mut self) -> Option<BlockBit> {
        self.left = self.left.checked_sub(1)?;
        let bit = BlockBit::from_top_of(self.word);
        self.word = self.word.wrapping_mul(GOLDEN);
        Some(bit)
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

    fn geometry(groups: u64, blocks_per_group: u32, hashes: u32) -> Geometry {
        Geometry { groups, blocks_per_group, hashes }
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
                let place = Place::of(hash, geometry(groups, g, k));
                let (a, b, in_a, in_b) = by_the_formula(hash, groups, u64::from(g), k);
                assert_eq!((place.a, place.b), (a, b));
                assert_eq!(place.bits_in_a(k).map(BlockBit::index).collect::<Vec<_>>(), in_a);
                assert_eq!(place.bits_in_b(k).map(BlockBit::index).collect::<Vec<_>>(), in_b);
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
            let place = Place::of(ItemHash::of(item, seed), geometry(groups, g, k));
            assert_eq!((place.a, place.b), blocks, "{item:?}");
            assert_eq!(place.bits_in_a(k).map(BlockBit::index).collect::<Vec<_>>(), in_a);
            assert_eq!(place.bits_in_b(k).map(BlockBit::index).collect::<Vec<_>>(), in_b);
        }
    }
}
