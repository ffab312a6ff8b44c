//! Counters of 4 bits in blocks of 512: the cells of filters from which items can be removed.
//!
//! A bit is not enough, because two items may share it (Fan, Cao, Almeida, Broder: Summary Cache, 2000, section V). A counter at 15 is
//! saturated: the number of items that share it is unknown, so it never changes again. In practice no counter of a full filter of distinct
//! items saturates.

use super::BLOCK_CELLS;
use super::block_array::{BlockArray, BlockCell, BlockedCells};

/// Size of a block of counters in bytes: four cache lines.
pub(crate) const COUNTER_BLOCK_BYTES: usize = BLOCK_CELLS / 2;
/// The value at which a counter is saturated.
pub(crate) const COUNTER_MAX: u8 = 15;

/// An array of counters in blocks of 256 bytes. Counter c of a block is in byte c / 2, the low half for an even c, on every
/// machine.
pub(crate) type Counters = BlockArray<COUNTER_BLOCK_BYTES>;

impl BlockedCells for Counters {
    #[inline]
    fn all_occupied(&self, block: u64, counters: impl Iterator<Item = BlockCell>) -> bool {
        let block = self.block(block);
        counters.fold(true, |all, counter| all & (value(block, counter) != 0))
    }

    /// A saturated counter stays as it is.
    #[inline]
    fn occupy(&mut self, block: u64, counters: impl Iterator<Item = BlockCell>) {
        let block = self.block_mut(block);
        for counter in distinct(counters) {
            change(block, counter, |value| if value == COUNTER_MAX { value } else { value + 1 });
        }
    }
}

impl Counters {
    /// Decrements counters of a block. A counter that is named twice changes once. A counter at 0 or at [`COUNTER_MAX`] stays as
    /// it is.
    #[inline]
    pub(crate) fn decrement(&mut self, block: u64, counters: impl Iterator<Item = BlockCell>) {
        self.may_lack_items = true;
        let block = self.block_mut(block);
        for counter in distinct(counters) {
            change(block, counter, |value| if value == COUNTER_MAX { value } else { value.saturating_sub(1) });
        }
    }

    /// Returns the minimum of some counters of a block, 0 to [`COUNTER_MAX`]; [`COUNTER_MAX`] without any.
    #[inline]
    pub(crate) fn least(&self, block: u64, counters: impl Iterator<Item = BlockCell>) -> u8 {
        let block = self.block(block);
        counters.fold(COUNTER_MAX, |least, counter| least.min(value(block, counter)))
    }
}

/// Returns the shift of a counter in its byte.
#[inline]
const fn shift_of(counter: BlockCell) -> usize {
    counter.index() % 2 * 4
}

/// Returns the value of a counter, 0 to [`COUNTER_MAX`].
#[inline]
fn value(block: &[u8; COUNTER_BLOCK_BYTES], counter: BlockCell) -> u8 {
    block.get(Counters::byte_of(counter)).map_or(0, |byte| byte >> shift_of(counter) & COUNTER_MAX)
}

/// Applies `next` to a counter. The result must be at most [`COUNTER_MAX`].
#[inline]
fn change(block: &mut [u8; COUNTER_BLOCK_BYTES], counter: BlockCell, next: impl Fn(u8) -> u8) {
    if let Some(byte) = block.get_mut(Counters::byte_of(counter)) {
        let shift = shift_of(counter);
        let changed = *byte >> shift & COUNTER_MAX;
        *byte = *byte & !(COUNTER_MAX << shift) | next(changed) << shift;
    }
}

/// Returns each of the counters once, in order. The counters of one item may coincide. If such a counter were incremented twice per add, it
/// would be too high, and would saturate after eight adds.
#[inline]
fn distinct(counters: impl Iterator<Item = BlockCell>) -> impl Iterator<Item = BlockCell> {
    const WORDS: usize = BLOCK_CELLS / 64;
    let mut seen = [0u64; WORDS];
    counters.filter(move |counter| {
        let bit = 1 << (counter.index() % 64);
        seen.get_mut(counter.index() / 64 % WORDS).is_some_and(|word| {
            let is_first = *word & bit == 0;
            *word |= bit;
            is_first
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::Cells as _;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    fn counter(index: u16) -> BlockCell {
        BlockCell::from_top_of(u64::from(index) << 55)
    }

    fn at(indices: &[u16]) -> impl Iterator<Item = BlockCell> {
        indices.iter().copied().map(counter)
    }

    #[test]
    fn a_counter_is_where_the_stored_layout_says() {
        let mut array = Counters::zeroed(3).unwrap();
        for _ in 0..3 {
            array.occupy(1, at(&[0, 9]));
        }
        array.occupy(1, at(&[1, 511]));
        let mut expected = vec![0; 3 * 256];
        expected[256] = 0x13;
        expected[256 + 4] = 0x30;
        expected[256 + 255] = 0x10;
        assert_eq!(array.bytes(), expected);
        assert!(array.all_occupied(1, at(&[0, 1, 9, 511])) && array.all_occupied(1, at(&[])));
        assert!(!array.all_occupied(1, at(&[0, 8])) && !array.all_occupied(0, at(&[0])));
        assert_eq!(
            (array.least(1, at(&[0, 9])), array.least(1, at(&[0, 511])), array.least(1, at(&[0, 2]))),
            (3, 1, 0)
        );
        assert_eq!(array.least(1, at(&[])), COUNTER_MAX);
    }

    #[test]
    fn a_saturated_counter_stays_and_does_not_overflow_into_its_neighbour() {
        for (index, neighbour, full, both) in [(6, 7, 0x0F, 0x1F), (7, 6, 0xF0, 0xF1)] {
            let mut array = Counters::zeroed(1).unwrap();
            array.decrement(0, at(&[index]));
            assert!(array.bytes() == [0; 256], "a counter at 0 stays");
            for times in 1..20 {
                array.occupy(0, at(&[index]));
                assert_eq!(array.least(0, at(&[index])), times.min(15));
            }
            assert_eq!(array.bytes()[3], full);
            array.occupy(0, at(&[neighbour]));
            array.decrement(0, at(&[index]));
            assert_eq!(array.bytes()[3], both, "a counter at 15 stays");
            array.decrement(0, at(&[neighbour]));
            assert_eq!(array.bytes()[3], full);
        }
    }

    #[test]
    fn a_counter_that_is_named_twice_changes_once() {
        let mut array = Counters::zeroed(1).unwrap();
        array.occupy(0, at(&[5, 69, 5, 5, 69, 4]));
        assert_eq!(array.bytes()[2..3], [0x11]);
        assert_eq!((array.least(0, at(&[5])), array.least(0, at(&[69]))), (1, 1));
        array.occupy(0, at(&[5]));
        array.decrement(0, at(&[5, 5, 69, 4, 4]));
        assert_eq!((array.least(0, at(&[5])), array.least(0, at(&[69])), array.least(0, at(&[4]))), (1, 0, 0));
    }

    /// Steps in a case: few under miri, which is slow.
    const STEPS: usize = if cfg!(miri) { 30 } else { 400 };
    const CASES: u32 = if cfg!(miri) { 2 } else { 100 };

    proptest! {
        #![proptest_config(ProptestConfig {
            rng_seed: RngSeed::Fixed(20_261_121),
            failure_persistence: None,
            ..ProptestConfig::with_cases(CASES)
        })]

        /// Few counters and more increments than decrements, so that many counters are saturated, zero or named twice.
        #[test]
        fn counters_equal_an_array_of_integers(
            steps in prop::collection::vec((0..5u8, 0..3u64, prop::collection::vec(500..512u16, 0..6)), 0..STEPS),
        ) {
            let mut array = Counters::zeroed(2).unwrap();
            let mut numbers = vec![0u8; 2 * BLOCK_CELLS];
            for (step, block, indices) in steps {
                // An index past the end means the last block.
                let first = usize::from(block > 0) * BLOCK_CELLS;
                let mut named: Vec<usize> = indices.iter().map(|index| first + usize::from(*index)).collect();
                let values = || named.iter().map(|index| numbers[*index]);
                prop_assert_eq!(array.all_occupied(block, at(&indices)), values().all(|value| value > 0));
                prop_assert_eq!(array.least(block, at(&indices)), values().min().unwrap_or(15));
                named.sort_unstable();
                named.dedup();
                let up = step < 3;
                if up { array.occupy(block, at(&indices)) } else { array.decrement(block, at(&indices)) }
                for index in named {
                    numbers[index] = match numbers[index] {
                        15 => 15,
                        value if up => value + 1,
                        value => value.saturating_sub(1),
                    };
                }
            }
            let packed: Vec<u8> = numbers.chunks(2).map(|pair| pair[0] | pair[1] << 4).collect();
            prop_assert!(array.bytes() == packed);
        }
    }
}
