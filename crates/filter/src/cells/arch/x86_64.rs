//! x86-64: SSE2, which is part of the architecture, and POPCNT where the processor has it.

use std::arch::x86_64::{
    __m128i, _MM_HINT_T0, _mm_cmpeq_epi16, _mm_loadu_si128, _mm_movemask_epi8, _mm_or_si128, _mm_packs_epi16,
    _mm_prefetch, _mm_set1_epi16,
};

use super::{BLOCK_CELLS, TagLine, count_union_inline};

/// Prefetches the cache line at an address into the first-level cache. Never faults, whatever the address.
#[inline]
pub(crate) fn prefetch(line: *const u8) {
    // SAFETY: PREFETCHT0 changes nothing that the program can observe, and does not fault at any address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) }
}

/// Returns which of the 32 words of a line equal `word`: one bit each.
#[inline]
pub(crate) fn equal_words(line: &TagLine, word: u16) -> u32 {
    let [a, b, c, d] = compare(line, word);
    // SAFETY: every x86-64 has SSE2.
    let (low, high) = unsafe { (_mm_movemask_epi8(_mm_packs_epi16(a, b)), _mm_movemask_epi8(_mm_packs_epi16(c, d))) };
    (low | high << 16).cast_unsigned()
}

/// Whether one of the 32 words of a line equals `word`.
#[inline]
pub(crate) fn has_word(line: &TagLine, word: u16) -> bool {
    let [a, b, c, d] = compare(line, word);
    // SAFETY: every x86-64 has SSE2.
    unsafe { _mm_movemask_epi8(_mm_or_si128(_mm_or_si128(a, b), _mm_or_si128(c, d))) != 0 }
}

/// Compares eight words per vector. Every word that equals `word` becomes all ones, every other word zero.
#[inline]
fn compare(line: &TagLine, word: u16) -> [__m128i; 4] {
    // SAFETY: every x86-64 has SSE2. The four unaligned loads cover exactly the 64 bytes of the line.
    unsafe {
        let wanted = _mm_set1_epi16(word.cast_signed());
        let quarters = line.as_ptr().cast::<__m128i>();
        [0, 1, 2, 3].map(|quarter| _mm_cmpeq_epi16(_mm_loadu_si128(quarters.add(quarter)), wanted))
    }
}

/// Counts the ones of each block of the union of two pages, and increments `counts` at that number. The pages may be the same. Prefetches
/// the page after each.
#[inline]
pub(crate) fn count_union(one: &[u8], other: &[u8], counts: &mut [u64; BLOCK_CELLS + 1]) {
    if std::is_x86_feature_detected!("popcnt") {
        // SAFETY: the processor has POPCNT.
        return unsafe { count_union_by_popcnt(one, other, counts) };
    }
    count_union_inline(one, other, counts);
}

#[target_feature(enable = "popcnt")]
fn count_union_by_popcnt(one: &[u8], other: &[u8], counts: &mut [u64; BLOCK_CELLS + 1]) {
    count_union_inline(one, other, counts);
}
