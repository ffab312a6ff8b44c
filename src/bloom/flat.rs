//! The classic layout of a Bloom filter (Bloom 1970), as other modules have it: an item's k bits lie anywhere in one flat
//! array of bits. k cache misses an item where ours has two, so a batch asks for its lines before it looks at one.

use std::mem::take;
use std::ops::Range;

use bitvec::boxed::BitBox;
use bitvec::order::Lsb0;

use super::Error;
use super::bits::zeroed_bytes;
use super::description::LayerDescription;
use super::layout::{Bits, Layout};
use super::prefetch::prefetch;
use super::relocate::{self, Mover};

/// The most bits of an item that are accepted. RedisBloom gets to 998 at a rate of 1e-300; a number without a bound would
/// let a few bytes of a snapshot keep every lookup busy for minutes.
pub const HASHES_MAX: u32 = 1100;

/// How many positions a lookup reads first. In a full layer half of the bits are set: three of them tell seven absent items
/// of eight.
const FIRST: u32 = 3;

/// What an item's positions in an array of bits follow from.
pub trait Positions: Copy + Default + std::fmt::Debug {
    /// Position `index` of the item, below `modulus`, which is at least 1.
    fn position(self, index: u32, modulus: u64) -> u64;
}

/// The geometry of a flat layer. `P`: how positions follow from an item.
#[derive(Clone, Copy, Debug)]
pub struct Flat<P> {
    /// Size of the array, in bytes.
    pub size_bytes: u64,
    /// Positions are below this, 1 to `size_bytes` * 8.
    pub modulus: u64,
    /// Number of bits of an item, k, 1 to [`HASHES_MAX`].
    pub hashes: u32,
    /// Bits of the array for each item of the capacity, as the layer was sized.
    pub bits_per_item: f64,
    positions: std::marker::PhantomData<P>,
}

impl<P> Flat<P> {
    /// A geometry of these numbers; whether it can be is for [`check`](Layout::check) to say.
    #[must_use]
    pub const fn new(size_bytes: u64, modulus: u64, hashes: u32, bits_per_item: f64) -> Self {
        Self { size_bytes, modulus, hashes, bits_per_item, positions: std::marker::PhantomData }
    }
}

impl<P> PartialEq for Flat<P> {
    fn eq(&self, other: &Self) -> bool {
        (self.size_bytes, self.modulus, self.hashes) == (other.size_bytes, other.modulus, other.hashes)
            && self.bits_per_item.to_bits() == other.bits_per_item.to_bits()
    }
}

impl<P: Positions> Flat<P> {
    fn positions(self, item: P) -> impl Iterator<Item = usize> {
        self.positions_of(item, 0..self.hashes)
    }

    /// Those that a lookup reads first.
    fn first_positions(self, item: P) -> impl Iterator<Item = usize> {
        self.positions_of(item, 0..FIRST.min(self.hashes))
    }

    /// The others.
    fn other_positions(self, item: P) -> impl Iterator<Item = usize> {
        self.positions_of(item, FIRST..self.hashes)
    }

    fn positions_of(self, item: P, indices: Range<u32>) -> impl Iterator<Item = usize> {
        // What does not fit an index is beyond any array.
        indices.map(move |index| usize::try_from(item.position(index, self.modulus)).unwrap_or(usize::MAX))
    }
}

impl<P: Positions> Layout for Flat<P> {
    type Hash = P;
    type Place = P;
    type Bits = BitArray;

    /// The numbers of other modules' data: any rate inside (0, 1), and a layer may hold more items than it is made for.
    fn check(description: &LayerDescription<Self>) -> Result<(), Error> {
        let LayerDescription {
            rate, capacity, geometry: Self { size_bytes, modulus, hashes, bits_per_item, .. }, ..
        } = *description;
        let sound = rate > 0.0
            && rate < 1.0
            && capacity >= 1
            && modulus >= 1
            && size_bytes.checked_mul(8).is_some_and(|bits| modulus <= bits)
            && (1..=HASHES_MAX).contains(&hashes)
            && bits_per_item.is_finite()
            && bits_per_item > 0.0;
        if sound { Ok(()) } else { Err(Error::Unsound) }
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn modulus(&self) -> u64 {
        self.modulus
    }

    fn hashes(&self) -> u32 {
        self.hashes
    }

    #[inline]
    fn place(&self, hash: P) -> P {
        hash
    }

    #[inline]
    fn prefetch_first(&self, bits: &BitArray, place: P) {
        self.first_positions(place).for_each(|position| bits.prefetch(position));
    }

    #[inline]
    fn prefetch_rest(&self, bits: &BitArray, place: P) {
        self.other_positions(place).for_each(|position| bits.prefetch(position));
    }

    #[inline]
    fn contains_first(&self, bits: &BitArray, place: P) -> bool {
        self.first_positions(place).all(|position| bits.is_set(position))
    }

    #[inline]
    fn contains_rest(&self, bits: &BitArray, place: P) -> bool {
        self.other_positions(place).all(|position| bits.is_set(position))
    }

    #[inline]
    fn insert(&self, bits: &mut BitArray, place: P) {
        self.positions(place).for_each(|position| bits.set(position));
    }
}

/// A flat array of bits, behind a few bytes that belong to its stored form. Bit p is byte p / 8, mask `1 << (p % 8)`.
///
/// The stored form is kept whole, so that a layer is saved from where it lies, and loaded without a second copy.
pub struct BitArray {
    stored: BitBox<u8, Lsb0>,
    /// Where the bits begin in `stored`, in bytes.
    start: usize,
}

impl BitArray {
    /// An array of `size_bytes` behind a prefix, all zero.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the size does not fit the address space or the allocator refuses.
    pub fn zeroed(prefix: &[u8], size_bytes: u64) -> Result<Self, Error> {
        let refused = Error::OutOfMemory { asked_bytes: size_bytes, available_bytes: 0 };
        let size = usize::try_from(size_bytes).ok().and_then(|size| size.checked_add(prefix.len())).ok_or(refused)?;
        let mut stored = zeroed_bytes(size).ok_or(refused)?;
        stored.iter_mut().zip(prefix).for_each(|(to, from)| *to = *from);
        Self::from_stored(stored, prefix.len()).ok_or(refused)
    }

    /// The array in a stored form that begins with a prefix of `start` bytes; nothing where it is not that long.
    #[must_use]
    pub fn from_stored(stored: Box<[u8]>, start: usize) -> Option<Self> {
        let stored = BitBox::try_from_boxed_slice(stored).ok().filter(|stored| start <= stored.as_raw_slice().len())?;
        Some(Self { stored, start })
    }

    /// The prefix and the bits.
    #[must_use]
    pub fn stored(&self) -> &[u8] {
        self.stored.as_raw_slice()
    }

    /// Whether a bit is set; one behind the end is not.
    #[inline]
    fn is_set(&self, position: usize) -> bool {
        self.stored.get(self.start * 8 + position).is_some_and(|bit| *bit)
    }

    /// Sets a bit, none behind the end. Stores only what changes: a page that is not written is not copied while a
    /// snapshot is saved.
    #[inline]
    fn set(&mut self, position: usize) {
        if !self.is_set(position)
            && let Some(mut bit) = self.stored.get_mut(self.start * 8 + position)
        {
            *bit = true;
        }
    }

    #[inline]
    fn prefetch(&self, position: usize) {
        prefetch(self.stored.as_raw_slice().as_ptr().wrapping_add(self.start + position / 8));
    }
}

impl Bits for BitArray {
    fn bytes(&self) -> &[u8] {
        self.stored.as_raw_slice().get(self.start..).unwrap_or_default()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.stored.as_raw_mut_slice().get_mut(self.start..).unwrap_or_default()
    }

    fn allocated_bytes(&self) -> u64 {
        self.stored.as_raw_slice().len() as u64
    }

    fn relocate(&mut self, mover: &mut impl Mover) {
        let mut stored = take(&mut self.stored).into_boxed_slice();
        relocate::bytes(&mut stored, mover);
        self.stored = BitBox::from_boxed_slice(stored);
    }
}

impl std::fmt::Debug for BitArray {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BitArray").field("bytes", &self.bytes().len()).finish_non_exhaustive()
    }
}
