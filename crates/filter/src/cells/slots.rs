//! Buckets of four slots of a few bits each, packed without gaps: the cells of cuckoo filters. A slot contains a fingerprint; 0 means that it
//! is empty.
//!
//! A bucket is read as one number, of 64 bits if its slots have up to 15, and otherwise of 128 bits. All four slots are compared at once.

use super::{BlockArray, Cells as _};

/// The number of slots of a bucket.
pub(crate) const BUCKET_SLOTS: u32 = 4;
/// The most bits of a slot: a bucket begins at a multiple of four bits, and is read as a number of 128 bits.
pub(crate) const SLOT_BITS_MAX: u32 = 31;
/// The most bits of a slot of a bucket that is read as a number of 64 bits.
pub(crate) const NARROW_BITS_MAX: u32 = 15;

/// An array of buckets. Slot s of a bucket is in the bits from `bucket + s * width` on, the lowest bit of a byte first, on every machine.
pub(crate) type Slots = BlockArray<8>;

/// The least size of an array, in bytes: of the number that is read at once.
pub(crate) const SLOTS_BYTES_MIN: usize = size_of::<u128>();

/// A bucket that was read as a number of this type.
pub(crate) trait Bucket: Copy {
    /// Reads the bucket that begins at a bit.
    fn read(slots: &Slots, bit: u64, width: u32) -> Self;
    /// The number of slots that contain a fingerprint; for 0, that are empty.
    fn count(self, fingerprint: u32) -> u32;
    /// Returns the first slot that contains a fingerprint; for 0, the first empty one.
    fn find(self, fingerprint: u32) -> Option<u32>;
    /// Whether a slot contains a fingerprint.
    fn contains(self, fingerprint: u32) -> bool;
    /// Returns the fingerprint in a slot.
    fn slot(self, slot: u32) -> u32;
    /// Writes a fingerprint into a slot of the bucket that begins at a bit.
    fn write(slots: &mut Slots, bit: u64, width: u32, slot: u32, fingerprint: u32);
}

/// Implements [`Bucket`] for numbers of one size, with slots of up to `$widest` bits.
macro_rules! bucket {
    ($name:ident, $word:ty, $widest:expr) => {
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $name {
            bits: $word,
            width: u32,
        }

        impl $name {
            /// By width, the lowest bit of each slot, and all bits but the highest.
            const LANES: [($word, $word); $widest as usize + 1] = {
                let mut lanes = [(0, 0); $widest as usize + 1];
                let (mut rest, mut width) = (lanes.as_mut_slice(), 0u32);
                while let [next, others @ ..] = rest {
                    let lowest: $word = 1 | 1 << width | 1 << (2 * width) | 1 << (3 * width);
                    *next = (lowest, if width == 0 { 0 } else { (lowest << (width - 1)) - lowest });
                    width += 1;
                    rest = others;
                }
                lanes
            };

            /// Returns the highest bit of each slot that contains a fingerprint.
            ///
            /// Exact for every slot: the sum does not carry into the next one, unlike the borrow of the shorter test for a zero.
            #[inline]
            fn matches(self, fingerprint: u32) -> $word {
                let (lowest, others) = Self::LANES.get(self.width as usize).copied().unwrap_or_default();
                let differences = self.bits ^ lowest.wrapping_mul(<$word>::from(fingerprint));
                !(((differences & others) + others) | differences) & (others + lowest)
            }

            /// Returns the offset of a number in the array that has a bit, and the shift of that bit in it.
            #[inline]
            #[expect(clippy::cast_possible_truncation, reason = "a shift is small")]
            fn place(length: usize, bit: u64) -> (usize, u32) {
                let offset = usize::try_from(bit / 8).unwrap_or(usize::MAX);
                let offset = offset.min(length.saturating_sub(size_of::<$word>()));
                (offset, (bit.saturating_sub(offset as u64 * 8)) as u32 % <$word>::BITS)
            }
        }

        impl Bucket for $name {
            #[inline]
            fn read(slots: &Slots, bit: u64, width: u32) -> Self {
                let bytes = slots.bytes();
                let (offset, shift) = Self::place(bytes.len(), bit);
                let number = bytes.get(offset..).and_then(<[u8]>::first_chunk);
                Self { bits: number.map_or(0, |number| <$word>::from_le_bytes(*number)) >> shift, width }
            }

            #[inline]
            #[expect(clippy::cast_possible_truncation, reason = "the lowest bits")]
            fn count(self, fingerprint: u32) -> u32 {
                let (lowest, _) = Self::LANES.get(self.width as usize).copied().unwrap_or_default();
                // The last slot of the product has the sum of all four. Not every processor counts ones in one instruction.
                let ones = self.matches(fingerprint) >> (self.width - 1);
                (ones.wrapping_mul(lowest) >> (3 * self.width)) as u32 & 7
            }

            #[inline]
            fn find(self, fingerprint: u32) -> Option<u32> {
                let (matches, width) = (self.matches(fingerprint), self.width);
                let first = matches.trailing_zeros();
                let slot = u32::from(first >= width) + u32::from(first >= 2 * width) + u32::from(first >= 3 * width);
                (matches != 0).then_some(slot)
            }

            #[inline]
            fn contains(self, fingerprint: u32) -> bool {
                self.matches(fingerprint) != 0
            }

            #[inline]
            #[expect(clippy::cast_possible_truncation, reason = "the lowest bits")]
            fn slot(self, slot: u32) -> u32 {
                (self.bits >> (slot * self.width)) as u32 & ((1 << self.width) - 1)
            }

            #[inline]
            fn write(slots: &mut Slots, bit: u64, width: u32, slot: u32, fingerprint: u32) {
                let bytes = slots.bytes_mut();
                let (offset, shift) = Self::place(bytes.len(), bit + u64::from(slot * width));
                if let Some(number) = bytes.get_mut(offset..).and_then(<[u8]>::first_chunk_mut) {
                    let others = <$word>::from_le_bytes(*number) & !(((1 << width) - 1) << shift);
                    *number = (others | <$word>::from(fingerprint) << shift).to_le_bytes();
                }
            }
        }
    };
}

bucket!(NarrowBucket, u64, NARROW_BITS_MAX);
bucket!(WideBucket, u128, SLOT_BITS_MAX);

impl Slots {
    /// Prefetches the bucket that begins at a bit.
    #[inline]
    pub(crate) fn prefetch_bucket(&self, bit: u64) {
        self.prefetch(bit / 64, std::iter::once(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    /// Few fingerprints that differ in single bits, so that slots match, nearly match, and carry.
    fn check<B: Bucket>(width: u32, steps: &[(u64, u32, usize)]) {
        let full = u32::MAX >> (32 - width);
        let fingerprints = [0, 1, full, full - 1, 1 << (width - 1), (1 << (width - 1)) - 1];
        let bytes = (7 * u64::from(width)).div_ceil(2).max(16);
        let mut array = Slots::zeroed(bytes.div_ceil(8)).unwrap();
        let mut numbers = [[0u32; BUCKET_SLOTS as usize]; 7];
        for (bucket, slot, chosen) in steps {
            B::write(&mut array, bucket * 4 * u64::from(width), width, *slot, fingerprints[*chosen]);
            numbers[usize::try_from(*bucket).unwrap()][*slot as usize] = fingerprints[*chosen];
        }
        for (index, numbers) in numbers.iter().enumerate() {
            let bucket = B::read(&array, index as u64 * 4 * u64::from(width), width);
            assert_eq!([0, 1, 2, 3].map(|slot| bucket.slot(slot)), *numbers);
            for fingerprint in fingerprints {
                let places = || (0..).zip(numbers).filter(|(_, number)| **number == fingerprint);
                assert_eq!(bucket.contains(fingerprint), places().count() > 0);
                assert_eq!(bucket.count(fingerprint) as usize, places().count());
                assert_eq!(bucket.find(fingerprint), places().next().map(|(slot, _)| slot));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            rng_seed: RngSeed::Fixed(20_261_129),
            failure_persistence: None,
            ..ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 500 })
        })]

        #[test]
        fn buckets_equal_arrays_of_integers(
            width in 4..=SLOT_BITS_MAX,
            steps in prop::collection::vec((0..7u64, 0..BUCKET_SLOTS, 0..6usize), 0..60),
        ) {
            if width <= NARROW_BITS_MAX {
                check::<NarrowBucket>(width, &steps);
            }
            check::<WideBucket>(width, &steps);
        }
    }
}
