//! Measures how full the blocks of a layer or of a union of layers are, at the speed of memory. Also computes the union.

use super::arch::{count_union, prefetch_next_page};
use super::{BLOCK_BYTES, BLOCK_CELLS, COUNTER_BLOCK_BYTES, PAGE_BYTES, is_zero};
use crate::error::Error;

/// The maximum number of pages that [`Histogram::sampled`] reads: 1 MiB.
const SAMPLED_PAGES: usize = 256;

/// The number of blocks of an array for each number of occupied cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Histogram {
    counts: [u64; BLOCK_CELLS + 1],
}

impl Histogram {
    /// Returns the histogram of no blocks.
    pub(crate) const fn empty() -> Self {
        Self { counts: [0; BLOCK_CELLS + 1] }
    }

    /// Returns the histogram of all blocks of 64 bytes. An incomplete last block is ignored. Reads all bytes once.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut histogram = Self::empty();
        histogram.count(bytes);
        histogram
    }

    /// Adds all blocks of `bytes`.
    pub(crate) fn count(&mut self, bytes: &[u8]) {
        bytes.chunks(PAGE_BYTES).for_each(|page| self.add(page));
    }

    /// Returns the histogram of the union of two arrays, up to the length of the shorter. Writes neither.
    pub(crate) fn of_union(one: &[u8], other: &[u8]) -> Self {
        let mut histogram = Self::empty();
        for (one, other) in one.chunks(PAGE_BYTES).zip(other.chunks(PAGE_BYTES)) {
            match (is_zero(one), is_zero(other)) {
                (true, _) => histogram.add(other),
                (_, true) => histogram.add(one),
                _ => count_union(one, other, &mut histogram.counts),
            }
        }
        histogram
    }

    /// Returns the histogram of the union of arrays of equal length. Does not change them.
    pub(crate) fn of_unions(arrays: &[&[u8]]) -> Self {
        let (first, others, last) = match arrays {
            [] => return Self::empty(),
            [one] => return Self::of(one),
            [one, other] => return Self::of_union(one, other),
            [first, others @ .., last] => (first, others, last),
        };
        let (mut histogram, mut union) = (Self::empty(), [0; PAGE_BYTES]);
        for (number, (page, last)) in first.chunks(PAGE_BYTES).zip(last.chunks(PAGE_BYTES)).enumerate() {
            let begin = number * PAGE_BYTES;
            let Some(union) = union.get_mut(..page.len()) else { break };
            union.copy_from_slice(page);
            for other in others.iter().filter_map(|other| other.get(begin..begin + page.len())) {
                add_bits(union, other);
            }
            count_union(union, last, &mut histogram.counts);
        }
        histogram
    }

    /// Returns the histogram of at most 256 pages, 1 MiB, spread evenly over the array. An array of up to 1 MiB is read whole.
    pub(crate) fn sampled(bytes: &[u8]) -> Self {
        let mut histogram = Self::empty();
        sample(bytes).for_each(|(_, page)| histogram.add(page));
        histogram
    }

    /// Returns the histogram of the same pages after `change`. For each page, `change` gets a copy and the offset of the page in
    /// the array.
    pub(crate) fn sampled_with(bytes: &[u8], change: impl Fn(&mut [u8], usize)) -> Self {
        let (mut histogram, mut copy) = (Self::empty(), [0; PAGE_BYTES]);
        for (offset, page) in sample(bytes) {
            let Some(copy) = copy.get_mut(..page.len()) else { break };
            copy.copy_from_slice(page);
            change(copy, offset);
            histogram.add(copy);
        }
        histogram
    }

    /// Returns the histogram of the same pages of an array of counters, by the nonzero counters of each block of 256 bytes.
    pub(crate) fn sampled_counters(bytes: &[u8]) -> Self {
        let mut histogram = Self::empty();
        for block in sample(bytes).flat_map(|(_, page)| page.as_chunks::<COUNTER_BLOCK_BYTES>().0) {
            let words = block.as_chunks::<8>().0.iter().map(|word| nonzero_counters(u64::from_ne_bytes(*word)));
            if let Some(count) = histogram.counts.get_mut(words.sum::<u32>() as usize) {
                *count += 1;
            }
        }
        histogram
    }

    /// Returns the number of blocks for each number of occupied cells, 0 to 512.
    pub(crate) const fn counts(&self) -> &[u64; BLOCK_CELLS + 1] {
        &self.counts
    }

    /// Returns the number of blocks.
    pub(crate) fn blocks(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Adds the blocks of a page. A page of zeros costs no more than the comparison.
    pub(super) fn add(&mut self, page: &[u8]) {
        if is_zero(page) {
            self.add_zeros(page.len());
        } else {
            count_union(page, page, &mut self.counts);
        }
    }

    /// Adds the blocks of `bytes` bytes that are all zero.
    pub(super) const fn add_zeros(&mut self, bytes: usize) {
        let [none, ..] = &mut self.counts;
        *none += (bytes / BLOCK_BYTES) as u64;
    }
}

/// Sets all bits of a page that are set in `source`, and prefetches the next page of `source`.
fn add_bits(page: &mut [u8], source: &[u8]) {
    let (page, _) = page.as_chunks_mut::<BLOCK_BYTES>();
    let (source, _) = source.as_chunks::<BLOCK_BYTES>();
    for (block, more) in page.iter_mut().zip(source) {
        prefetch_next_page(more);
        block.iter_mut().zip(more).for_each(|(byte, more)| *byte |= more);
    }
}

/// Returns the number of bits that are set and the number of bits that were read: all bits of an array of up to 1 MiB, a sample
/// of 1 MiB of a larger one.
pub(crate) fn sampled_ones(bytes: &[u8]) -> (u64, u64) {
    sample(bytes).fold((0, 0), |(ones, bits), (_, page)| {
        let of_page: u64 = page.iter().map(|byte| u64::from(byte.count_ones())).sum();
        (ones + of_page, bits + page.len() as u64 * 8)
    })
}

/// Returns the pages of an array of up to 1 MiB, or 256 evenly spread pages of a larger one, each with its offset in bytes.
fn sample(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let pages = bytes.len().div_ceil(PAGE_BYTES);
    let sampled = pages.min(SAMPLED_PAGES);
    // Both factors are below 2^52 and 2^9.
    (0..sampled).filter_map(move |number| {
        let offset = number * pages / sampled * PAGE_BYTES;
        Some((offset, bytes.get(offset..bytes.len().min(offset + PAGE_BYTES))?))
    })
}

/// Returns the number of nonzero counters among the sixteen of a word.
const fn nonzero_counters(word: u64) -> u32 {
    let pairs = word | word >> 1;
    ((pairs | pairs >> 2) & 0x1111_1111_1111_1111).count_ones()
}

// The union of arrays of blocks in place, with its histogram: over whole layers, at the speed of memory.

/// Sets all bits of `target` that are set in one of the sources, and adds the resulting blocks to `counted`. Reads each page once. With
/// `is_empty`, the target must have no bits set; its pages are then not read where all sources are empty.
///
/// Writes only pages that get a new bit: a page that is not written is not copied while a snapshot is being saved, and an
/// untouched page takes no memory.
///
/// # Errors
/// [`Error::Unsound`] if the lengths differ or are not multiples of a block. Nothing has changed then.
pub(crate) fn unite<'a>(
    target: &mut [u8],
    sources: impl Iterator<Item = &'a [u8]> + Clone,
    is_empty: bool,
    mut counted: Option<&mut Histogram>,
) -> Result<(), Error> {
    let is_whole = target.len().is_multiple_of(BLOCK_BYTES);
    if !is_whole || sources.clone().any(|source| source.len() != target.len()) {
        return Err(Error::Unsound);
    }
    for (number, page) in target.chunks_mut(PAGE_BYTES).enumerate() {
        let range = number * PAGE_BYTES..number * PAGE_BYTES + page.len();
        let mut page_is_zero = is_empty || is_zero(page);
        for more in sources.clone().filter_map(|source| source.get(range.clone())) {
            if is_zero(more) {
                continue;
            }
            if page_is_zero {
                page.copy_from_slice(more);
                page_is_zero = false;
            } else {
                unite_page(page, more);
            }
        }
        match &mut counted {
            Some(histogram) if page_is_zero => histogram.add_zeros(page.len()),
            Some(histogram) => histogram.add(page),
            None => {}
        }
    }
    Ok(())
}

/// Sets all bits of a page that are set in `source`, block by block, and prefetches the next page of both.
fn unite_page(target: &mut [u8], source: &[u8]) {
    if !has_new_bits(target, source) {
        return;
    }
    let (target, _) = target.as_chunks_mut::<BLOCK_BYTES>();
    let (source, _) = source.as_chunks::<BLOCK_BYTES>();
    for (target, source) in target.iter_mut().zip(source) {
        prefetch_next_page(target);
        prefetch_next_page(source);
        for (byte, more) in target.iter_mut().zip(source) {
            *byte |= more;
        }
    }
}

/// Whether `source` has a bit that `target` lacks. Stops at the first block with one.
fn has_new_bits(target: &[u8], source: &[u8]) -> bool {
    let (target, _) = target.as_chunks::<BLOCK_BYTES>();
    let (source, _) = source.as_chunks::<BLOCK_BYTES>();
    target.iter().zip(source).any(|(target, source)| {
        prefetch_next_page(target);
        prefetch_next_page(source);
        target.iter().zip(source).fold(0, |bits, (byte, more)| bits | (more & !byte)) != 0
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns the same bytes in every run: pages that are empty, sparse, dense and full.
    pub(crate) fn bytes(length: usize, mut state: u64) -> Vec<u8> {
        let mut bytes = vec![0; length];
        for (number, page) in bytes.chunks_mut(PAGE_BYTES).enumerate() {
            for byte in page {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let random = state.to_be_bytes();
                *byte = match number % 4 {
                    0 => 0,
                    1 => random[0] & random[1] & random[2],
                    2 => random[0],
                    _ => 255,
                };
            }
        }
        bytes
    }

    fn by_bytes(blocks: &[u8]) -> [u64; 513] {
        let mut counts = [0; 513];
        for block in blocks.chunks_exact(64) {
            counts[block.iter().map(|byte| byte.count_ones() as usize).sum::<usize>()] += 1;
        }
        counts
    }

    /// Lengths with and without whole pages, and with blocks after them: few under miri, which is slow.
    pub(crate) const LENGTHS: &[usize] =
        if cfg!(miri) { &[0, 128, 4096 + 64] } else { &[0, 64, 128, 4096, 4096 * 3 + 64, 4096 * 8, 4096 * 9 + 640] };

    #[test]
    fn a_histogram_equals_one_counted_byte_by_byte() {
        for &length in LENGTHS {
            let (one, other) = (bytes(length, 1), bytes(length, 2));
            assert_eq!(*Histogram::of(&one).counts(), by_bytes(&one));
            assert_eq!(Histogram::of(&one).blocks(), length as u64 / 64);
            assert_eq!(Histogram::sampled(&one), Histogram::of(&one));
            // Empty pages meet other pages, in both orders; only empty ones under miri, which is slow.
            let shifted: Vec<u8> = other.iter().skip(4096).chain(other.iter().take(4096)).copied().collect();
            for other in [&other, &shifted, &vec![0; length]].into_iter().skip(if cfg!(miri) { 2 } else { 0 }) {
                let both: Vec<u8> = one.iter().zip(other).map(|(one, other)| one | other).collect();
                assert_eq!(*Histogram::of_union(&one, other).counts(), by_bytes(&both));
                assert_eq!(*Histogram::of_union(other, &one).counts(), by_bytes(&both));
                assert_eq!(*Histogram::of_unions(&[&one, other]).counts(), by_bytes(&both));
                let third = bytes(length, 5);
                let all: Vec<u8> = both.iter().zip(&third).map(|(one, other)| one | other).collect();
                assert_eq!(*Histogram::of_unions(&[&one, other, &third]).counts(), by_bytes(&all));
            }
        }
    }

    #[test]
    fn nonzero_counters_are_counted() {
        let array = bytes(if cfg!(miri) { 4096 + 256 } else { 4096 * 9 + 256 }, 6);
        let mut counts = [0; 513];
        for block in array.chunks(256) {
            counts
                [block.iter().map(|byte| usize::from(byte & 15 != 0) + usize::from(byte >> 4 != 0)).sum::<usize>()] +=
                1;
        }
        assert_eq!(*Histogram::sampled_counters(&array).counts(), counts);
    }

    #[test]
    fn a_small_array_is_read_whole() {
        for length in [1, 8, 63, 65, 4095, 4097] {
            let array = vec![0x81; length];
            assert_eq!(sampled_ones(&array), (length as u64 * 2, length as u64 * 8));
        }
        assert_eq!(sampled_ones(&[]), (0, 0));
    }

    #[test]
    #[cfg_attr(miri, ignore = "megabytes")]
    fn a_mebibyte_of_a_large_array_is_sampled() {
        assert_eq!(sampled_ones(&vec![1; 4096 * 1000]), (1 << 20, 8 << 20));
        assert_eq!(Histogram::sampled_counters(&vec![0x30; 4096 * 1000]).counts()[256], 256 * 16);
    }

    #[test]
    #[cfg_attr(miri, ignore = "megabytes")]
    fn a_sample_is_spread_evenly_over_the_array() {
        let mut array = vec![0; 4096 * 1000];
        for number in [0, 3, 7, 996] {
            array[number * 4096] = 1;
        }
        let sample = Histogram::sampled(&array);
        assert_eq!(sample.blocks(), 256 * 64);
        assert_eq!(sample.counts()[1], 4, "pages 0, 3, 7 and 996 are read");
    }

    fn or(one: &[u8], other: &[u8]) -> Vec<u8> {
        one.iter().zip(other).map(|(one, other)| one | other).collect()
    }

    /// Returns the united target. Checks its histogram on the way.
    fn united(target: &[u8], sources: &[&[u8]], is_empty: bool) -> Vec<u8> {
        let (mut counted, mut uncounted) = (target.to_vec(), target.to_vec());
        let mut histogram = Histogram::empty();
        assert_eq!(unite(&mut counted, sources.iter().copied(), is_empty, Some(&mut histogram)), Ok(()));
        assert_eq!(unite(&mut uncounted, sources.iter().copied(), is_empty, None), Ok(()));
        assert!(counted == uncounted);
        assert_eq!(histogram, Histogram::of(&counted));
        let all: Vec<_> = std::iter::once(target).chain(sources.iter().copied()).collect();
        assert_eq!(histogram, Histogram::of_unions(&all));
        counted
    }

    #[test]
    fn a_union_has_the_bits_of_all_arrays() {
        for &length in LENGTHS {
            let (one, other, zeros) = (bytes(length, 3), bytes(length, 4), vec![0; length]);
            // Empty pages meet other pages.
            let shifted: Vec<u8> = other.iter().skip(4096).chain(other.iter().take(4096)).copied().collect();
            let both = or(&one, &other);
            assert!(united(&one, &[&other], false) == both);
            assert!(united(&other, &[&one], false) == both);
            assert!(united(&both, &[&one, &other, &zeros], false) == both);
            assert!(united(&one, &[&shifted], false) == or(&one, &shifted));
            assert!(united(&one, &[&other, &shifted], false) == or(&both, &shifted));
            for is_empty in [false, true] {
                assert!(united(&zeros, &[&shifted, &one, &other], is_empty) == or(&both, &shifted));
                assert!(united(&zeros, &[&zeros], is_empty) == zeros);
                assert!(united(&zeros, &[], is_empty) == zeros);
            }
        }
    }

    #[test]
    fn a_new_bit_in_the_last_block_is_taken() {
        let (mut one, mut other) = (vec![1; 8192], vec![1; 8192]);
        (one[64], other[8191]) = (3, 0x80);
        assert!(united(&one, &[&other], false) == or(&one, &other));
    }

    #[test]
    fn unequal_lengths_are_refused_and_change_nothing() {
        let mut target = [0; 64];
        for sources in [&[&[1; 64][..], &[1; 128]][..], &[&[1; 63]]] {
            assert_eq!(unite(&mut target, sources.iter().copied(), false, None), Err(Error::Unsound));
        }
        assert_eq!(target, [0; 64]);
        assert_eq!(unite(&mut [0; 8], [&[1; 8][..]].into_iter(), false, None), Err(Error::Unsound));
    }
}
