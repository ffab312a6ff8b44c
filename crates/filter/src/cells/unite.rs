//! The union of arrays of blocks in place, with its histogram: over whole layers, at the speed of memory.

use super::arch::prefetch_next_page;
use super::histogram::Histogram;
use super::{BLOCK_BYTES, PAGE_BYTES, is_zero};
use crate::error::Error;

/// Sets all bits of `target` that are set in one of the sources, and adds the resulting blocks to `counted`. Reads each page
/// once. `is_empty` says that the target has no bits; it is then not read where no source has any.
///
/// Writes only pages that get a new bit: a page that is not written is not copied while a snapshot is being saved, and an
/// untouched page takes no memory.
///
/// # Errors
/// [`Error::Unsound`] if the lengths differ or are not multiples of a block. Nothing has changed then.
///
/// ```
/// use bloomgate_filter::cells::{Histogram, unite};
///
/// let (mut target, source) = ([1; 64], [2; 64]);
/// let mut counted = Histogram::empty();
/// unite(&mut target, [&source[..]].into_iter(), false, Some(&mut counted))?;
/// assert_eq!(target, [3; 64]);
/// assert_eq!(counted.counts()[128], 1, "one block with 128 bits set");
/// # Ok::<(), bloomgate_filter::Error>(())
/// ```
pub fn unite<'a>(
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
mod tests {
    use super::super::histogram::tests::{LENGTHS, bytes};
    use super::*;

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
