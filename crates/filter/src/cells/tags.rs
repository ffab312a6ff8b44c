//! Tags of a hash table: 31 words of 16 bits in a line of 64 bytes, which are compared all at once.
//!
//! A file of its own because the instructions that compare eight words each need `unsafe`. SSE2 is part of every x86-64; other
//! processors compare word by word, which compilers know how to do eight at a time, too.

use super::block_array::LINE_BYTES;

/// Tags of a line. Its last two bytes are not a tag.
pub(crate) const LINE_TAGS: usize = LINE_BYTES / 2 - 1;

/// A line of tags, each with its low byte first.
pub(crate) type TagLine = [u8; LINE_BYTES];

/// Which tags of a line are this one: of the first `used`, at most 31, a bit each.
#[inline]
pub(crate) fn matches(line: &TagLine, tag: u16, used: u8) -> u32 {
    equal_words(line, tag) & !(u32::MAX << (used & 31))
}

/// Whether a tag may be one of a line's: it is where this says no. Slots that are not used count, too, and so do the last two bytes, so
/// that this looks at all of the line and asks nothing else.
#[inline]
pub(crate) fn may_have(line: &TagLine, tag: u16) -> bool {
    processor::has_word(line, tag)
}

/// Which words of a line equal one, a bit each.
#[inline]
fn equal_words(line: &TagLine, word: u16) -> u32 {
    processor::equal_words(line, word)
}

/// What the instructions of the processor do.
#[cfg(target_arch = "x86_64")]
mod processor {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi16, _mm_loadu_si128, _mm_movemask_epi8, _mm_or_si128, _mm_packs_epi16, _mm_set1_epi16,
    };

    use super::TagLine;

    #[inline]
    pub(super) fn has_word(line: &TagLine, word: u16) -> bool {
        let [a, b, c, d] = equal(line, word);
        // SAFETY: every x86-64 has SSE2.
        unsafe { _mm_movemask_epi8(_mm_or_si128(_mm_or_si128(a, b), _mm_or_si128(c, d))) != 0 }
    }

    #[inline]
    pub(super) fn equal_words(line: &TagLine, word: u16) -> u32 {
        let [a, b, c, d] = equal(line, word);
        // SAFETY: every x86-64 has SSE2.
        let (low, high) =
            unsafe { (_mm_movemask_epi8(_mm_packs_epi16(a, b)), _mm_movemask_epi8(_mm_packs_epi16(c, d))) };
        (low | high << 16).cast_unsigned()
    }

    /// All ones in each word that is equal, eight words at a time.
    #[inline]
    fn equal(line: &TagLine, word: u16) -> [__m128i; 4] {
        // SAFETY: every x86-64 has SSE2; the four loads, at any alignment, are of the line's 64 bytes.
        unsafe {
            let wanted = _mm_set1_epi16(word.cast_signed());
            let quarters = line.as_ptr().cast::<__m128i>();
            [0, 1, 2, 3].map(|quarter| _mm_cmpeq_epi16(_mm_loadu_si128(quarters.add(quarter)), wanted))
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
use one_by_one as processor;

/// The same on any processor.
#[cfg(any(test, not(target_arch = "x86_64")))]
mod one_by_one {
    use super::TagLine;

    pub(super) fn has_word(line: &TagLine, word: u16) -> bool {
        line.as_chunks::<2>().0.iter().fold(false, |has, bytes| has | (u16::from_le_bytes(*bytes) == word))
    }

    pub(super) fn equal_words(line: &TagLine, word: u16) -> u32 {
        let words = line.as_chunks::<2>().0.iter().rev();
        words.fold(0, |equal, bytes| equal << 1 | u32::from(u16::from_le_bytes(*bytes) == word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_that_are_equal_are_found_whatever_the_processor() {
        let words: [u16; 32] = std::array::from_fn(|index| [7, 0x0700, 0x8007, 0xffff, 0][index * index % 5]);
        let mut line = [0; LINE_BYTES];
        line.as_chunks_mut::<2>().0.iter_mut().zip(words).for_each(|(bytes, word)| *bytes = word.to_le_bytes());
        for word in [7, 0x0700, 0x8007, 0xffff, 0, 0x0707, 8] {
            let expected =
                words.iter().enumerate().fold(0, |bits, (index, there)| bits | u32::from(*there == word) << index);
            assert_eq!(
                (equal_words(&line, word), one_by_one::equal_words(&line, word)),
                (expected, expected),
                "{word}"
            );
            let has = expected != 0;
            assert_eq!((may_have(&line, word), one_by_one::has_word(&line, word)), (has, has), "{word}");
            for used in 0..=31 {
                assert_eq!(matches(&line, word, used), expected & ((1 << used) - 1));
            }
        }
    }
}
