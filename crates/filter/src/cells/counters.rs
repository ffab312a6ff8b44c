//! Counters of 4 bits in blocks of 512: what an item leaves where it can be taken back.
//!
//! Counters rather than bits because two items may share one (Fan, Cao, Almeida, Broder: Summary Cache, 2000, section V).
//! A counter at 15 no longer knows how many items it has and stays; no counter of a full filter of distinct items gets there
//! in practice.

use super::block_array::{BLOCK_CELLS, BlockArray, BlockCell};

/// Size of a block of counters in bytes: four cache lines.
pub const COUNTER_BLOCK_BYTES: usize = BLOCK_CELLS / 2;
/// What a counter counts to. There it stays.
pub const COUNTER_MAX: u8 = 15;

/// An array of counters in blocks of 256 bytes. Counter c of a block is in byte c / 2, the low half for an even c, on every
/// machine.
pub type Counters = BlockArray<COUNTER_BLOCK_BYTES>;

impl Counters {
    /// Whether none of the counters of a block is zero. Looks at all of them without a branch, as [`super::Blocks::all_set`].
    #[inline]
    pub fn all_nonzero(&self, block: u64, counters: impl Iterator<Item = BlockCell>) -> bool {
        let block = self.block(block);
        counters.fold(true, |all, counter| all & (value(block, counter) != 0))
    }

    /// Counts one more in counters of a block, once in each, however often it is named. One at [`COUNTER_MAX`] stays.
    #[inline]
    pub fn count_up(&mut self, block: u64, counters: impl Iterator<Item = BlockCell>) {
        let block = self.block_mut(block);
        for counter in distinct(counters) {
            change(block, counter, |value| if value == COUNTER_MAX { value } else { value + 1 });
        }
    }

    /// Counts one less in counters of a block, once in each, however often it is named. One at [`COUNTER_MAX`] stays, since
    /// it may stand for more, and so does one at 0.
    #[inline]
    pub fn count_down(&mut self, block: u64, counters: impl Iterator<Item = BlockCell>) {
        let block = self.block_mut(block);
        for counter in distinct(counters) {
            change(block, counter, |value| if value == COUNTER_MAX { value } else { value.saturating_sub(1) });
        }
    }

    /// The least of counters of a block, 0 to [`COUNTER_MAX`]; of none that is [`COUNTER_MAX`].
    #[inline]
    pub fn least(&self, block: u64, counters: impl Iterator<Item = BlockCell>) -> u8 {
        let block = self.block(block);
        counters.fold(COUNTER_MAX, |least, counter| least.min(value(block, counter)))
    }

    /// Starts to load the cache lines of counters of a block.
    #[inline]
    pub fn prefetch(&self, block: u64, counters: impl Iterator<Item = BlockCell>) {
        counters.for_each(|counter| self.prefetch_line(block, byte_of(counter)));
    }
}

/// The byte of a counter in its block. The remainder is there for the compiler, which then needs no bounds check.
#[inline]
const fn byte_of(counter: BlockCell) -> usize {
    counter.index() / 2 % COUNTER_BLOCK_BYTES
}

/// By how many bits a counter is shifted in its byte.
#[inline]
const fn shift_of(counter: BlockCell) -> usize {
    counter.index() % 2 * 4
}

#[inline]
fn value(block: &[u8; COUNTER_BLOCK_BYTES], counter: BlockCell) -> u8 {
    block.get(byte_of(counter)).map_or(0, |byte| byte >> shift_of(counter) & COUNTER_MAX)
}

/// Gives a counter the value that follows from its old one, at most [`COUNTER_MAX`].
#[inline]
fn change(block: &mut [u8; COUNTER_BLOCK_BYTES], counter: BlockCell, next: impl Fn(u8) -> u8) {
    if let Some(byte) = block.get_mut(byte_of(counter)) {
        let shift = shift_of(counter);
        let changed = *byte >> shift & COUNTER_MAX;
        *byte = *byte & !(COUNTER_MAX << shift) | next(changed) << shift;
    }
}

/// Each of the counters once, in their order. Those of one item may coincide. Counted twice, such a counter would say two
/// where one item was added, and come to its end at every eighth.
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
            array.count_up(1, at(&[0, 9]));
        }
        array.count_up(1, at(&[1, 511]));
        let mut expected = vec![0; 3 * 256];
        expected[256] = 0x13;
        expected[256 + 4] = 0x30;
        expected[256 + 255] = 0x10;
        assert_eq!(array.bytes(), expected);
        assert!(array.all_nonzero(1, at(&[0, 1, 9, 511])) && array.all_nonzero(1, at(&[])));
        assert!(!array.all_nonzero(1, at(&[0, 8])) && !array.all_nonzero(0, at(&[0])));
        assert_eq!(
            (array.least(1, at(&[0, 9])), array.least(1, at(&[0, 511])), array.least(1, at(&[0, 2]))),
            (3, 1, 0)
        );
        assert_eq!(array.least(1, at(&[])), COUNTER_MAX);
    }

    #[test]
    fn a_counter_at_its_end_stays_and_leaves_its_neighbour_alone() {
        for (index, neighbour, full, both) in [(6, 7, 0x0F, 0x1F), (7, 6, 0xF0, 0xF1)] {
            let mut array = Counters::zeroed(1).unwrap();
            array.count_down(0, at(&[index]));
            assert!(array.bytes() == [0; 256], "one at 0 stays");
            for times in 1..20 {
                array.count_up(0, at(&[index]));
                assert_eq!(array.least(0, at(&[index])), times.min(15));
            }
            assert_eq!(array.bytes()[3], full);
            array.count_up(0, at(&[neighbour]));
            array.count_down(0, at(&[index]));
            assert_eq!(array.bytes()[3], both, "one at 15 stays");
            array.count_down(0, at(&[neighbour]));
            assert_eq!(array.bytes()[3], full);
        }
    }

    #[test]
    fn a_counter_that_is_named_twice_counts_once() {
        let mut array = Counters::zeroed(1).unwrap();
        array.count_up(0, at(&[5, 69, 5, 5, 69, 4]));
        assert_eq!(array.bytes()[2..3], [0x11]);
        assert_eq!((array.least(0, at(&[5])), array.least(0, at(&[69]))), (1, 1));
        array.count_up(0, at(&[5]));
        array.count_down(0, at(&[5, 5, 69, 4, 4]));
        assert_eq!((array.least(0, at(&[5])), array.least(0, at(&[69])), array.least(0, at(&[4]))), (1, 0, 0));
    }

    #[test]
    fn a_prefetch_changes_nothing_wherever_it_points() {
        let array = Counters::zeroed(3).unwrap();
        for block in [0, 2, 3, u64::MAX] {
            array.prefetch(block, at(&[0, 511]));
        }
        assert!(array.bytes() == [0; 3 * 256]);
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

        /// Few counters, so that many are full, empty or named twice; more ups than downs.
        #[test]
        fn counts_as_an_array_of_numbers_does(
            steps in prop::collection::vec((0..5u8, 0..3u64, prop::collection::vec(500..512u16, 0..6)), 0..STEPS),
        ) {
            let mut array = Counters::zeroed(2).unwrap();
            let mut numbers = vec![0u8; 2 * BLOCK_CELLS];
            for (step, block, indices) in steps {
                // A block beyond the end is the last one.
                let first = usize::from(block > 0) * BLOCK_CELLS;
                let mut places: Vec<usize> = indices.iter().map(|index| first + usize::from(*index)).collect();
                let values = || places.iter().map(|place| numbers[*place]);
                prop_assert_eq!(array.all_nonzero(block, at(&indices)), values().all(|value| value > 0));
                prop_assert_eq!(array.least(block, at(&indices)), values().min().unwrap_or(15));
                places.sort_unstable();
                places.dedup();
                let up = step < 3;
                if up { array.count_up(block, at(&indices)) } else { array.count_down(block, at(&indices)) }
                for place in places {
                    numbers[place] = match numbers[place] {
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
