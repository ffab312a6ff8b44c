//! Hashes: from an item to the numbers that determine its cells.
//!
//! A native filter uses seeded MurmurHash3, x64, 128 bit. The seed of each filter is random, so colliding ids cannot be chosen in advance,
//! and collisions found in one filter do not apply to others. The seed does not protect against anyone who knows members of 24 bytes or
//! more, because MurmurHash3 has collisions that hold for every seed.
//!
//! MurmurHash3 mixes the seed with the item's length. A seed equal to the length of an item of up to 8 bytes makes both halves
//! depend on a single number, and the false positive rate rises by up to a quarter. Seeds 1 to 8 are therefore poor for items
//! of that length, and random seeds start at 256.

pub(crate) mod murmur2;
pub mod murmur3;
pub mod siphash;

use crate::mask::BATCH;

/// The smallest random seed. Smaller ones can equal the length of a short item.
pub(crate) const SEED_MIN: u32 = 256;

/// The two halves of an item's 128-bit hash, the same for every layer of a filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ItemHash {
    /// Low half: selects the group and the blocks in it.
    pub h1: u64,
    /// High half: selects the bits inside the blocks.
    pub h2: u64,
}

impl ItemHash {
    /// Hashes an item of any length, including the empty one. Takes about 12 ns for 64 bytes.
    #[inline]
    pub fn of(item: &[u8], seed: u32) -> Self {
        let [h1, h2] = murmur3::murmur3_x64_128(item, seed);
        Self { h1, h2 }
    }

    /// Hashes an item of any length under a secret key, by SipHash-2-4. Takes about 38 ns for 70 bytes.
    #[inline]
    pub fn keyed(item: &[u8], key: siphash::Key) -> Self {
        let [h1, h2] = siphash::siphash24_128(item, key);
        Self { h1, h2 }
    }
}

/// The hash of a native filter's items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hasher {
    /// MurmurHash3, x64, 128 bit.
    Murmur3 {
        /// Selects one function of the family, little-endian. The seed is not secret. Bytes need no alignment, which keeps definitions
        /// small.
        seed: [u8; 4],
    },
    /// SipHash-2-4, 128 bit: without the key, items that share a hash cannot be found.
    SipHash {
        /// The key of the filter.
        key: [u8; 16],
    },
}

/// A separate function, so that its code does not affect the register use of the other hash.
#[inline(never)]
fn keyed_outlined(item: &[u8], key: siphash::Key) -> ItemHash {
    ItemHash::keyed(item, key)
}

impl Hasher {
    /// Returns MurmurHash3 with this seed.
    pub const fn murmur3(seed: u32) -> Self {
        Self::Murmur3 { seed: seed.to_le_bytes() }
    }

    /// Hashes an item of any length, including the empty one.
    #[inline]
    pub fn hash(self, item: &[u8]) -> ItemHash {
        match self {
            Self::Murmur3 { seed } => ItemHash::of(item, u32::from_le_bytes(seed)),
            Self::SipHash { key } => keyed_outlined(item, key),
        }
    }

    /// Hashes the next items, up to [`BATCH`].
    #[inline]
    pub fn hash_batch<'a>(self, items: impl IntoIterator<Item = &'a [u8]>) -> HashBatch {
        match self {
            Self::Murmur3 { seed } => HashBatch::of(items, |item| ItemHash::of(item, u32::from_le_bytes(seed))),
            Self::SipHash { key } => HashBatch::keyed(items, key),
        }
    }

    /// Whether the hash depends on a secret key. Only then may an exact hash represent an item.
    pub const fn is_keyed(self) -> bool {
        matches!(self, Self::SipHash { .. })
    }
}

/// The hashes of a batch of up to [`BATCH`] items, on the stack. A batch is added, looked up or deleted together.
#[derive(Clone, Copy, Debug)]
pub struct HashBatch<H = ItemHash> {
    hashes: [H; BATCH],
    length: usize,
}

impl<H> std::ops::Deref for HashBatch<H> {
    type Target = [H];

    #[inline]
    fn deref(&self) -> &[H] {
        self.hashes.get(..self.length).unwrap_or(&self.hashes)
    }
}

impl<H: Copy + Default> HashBatch<H> {
    /// Hashes the next items, up to [`BATCH`], and leaves the others in the iterator.
    #[inline]
    pub fn of<'a>(items: impl IntoIterator<Item = &'a [u8]>, hash_of: impl Fn(&[u8]) -> H) -> Self {
        let mut batch = Self { hashes: [H::default(); BATCH], length: 0 };
        for (hash, item) in batch.hashes.iter_mut().zip(items) {
            *hash = hash_of(item);
            batch.length += 1;
        }
        batch
    }
}

impl HashBatch {
    /// Hashes like [`of`](Self::of) with [`ItemHash::keyed`], two items side by side. Takes about 30 ns for an item of 70
    /// bytes.
    #[inline]
    pub fn keyed<'a>(items: impl IntoIterator<Item = &'a [u8]>, key: siphash::Key) -> Self {
        let mut batch = Self { hashes: [ItemHash::default(); BATCH], length: 0 };
        let mut items = items.into_iter();
        for hashes in batch.hashes.as_chunks_mut::<{ siphash::LANES }>().0 {
            let Some(first) = items.next() else { break };
            let second = items.next();
            let both = siphash::side_by_side([first, second.unwrap_or_default()], key);
            // The hash of a missing second item is never read.
            *hashes = both.map(|[h1, h2]| ItemHash { h1, h2 });
            batch.length += 1 + usize::from(second.is_some());
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the reference implementation of MurmurHash3_x64_128 (its printed hexadecimal form is h1 then h2).
    #[test]
    fn equals_the_reference_implementation() {
        let cases: [(&[u8], u32, u64, u64); 4] = [
            (b"", 0, 0, 0),
            (b"hello", 0, 0xcbd8_a7b3_41bd_9b02, 0x5b1e_906a_48ae_1d19),
            (b"hello, world", 0, 0x342f_ac62_3a5e_bc8e, 0x4cdc_bc07_9642_414d),
            (b"The quick brown fox jumps over the lazy dog.", 0, 0xcd99_481f_9ee9_02c9, 0x695d_a1a3_8987_b6e7),
        ];
        for (item, seed, h1, h2) in cases {
            assert_eq!(ItemHash::of(item, seed), ItemHash { h1, h2 }, "{item:?}");
        }
    }

    #[test]
    fn a_seed_changes_the_hash_of_every_item() {
        for item in [&b""[..], b"a", b"https://doc.rust-lang.org/std/"] {
            assert_ne!(ItemHash::of(item, 1), ItemHash::of(item, 2));
        }
    }
}
