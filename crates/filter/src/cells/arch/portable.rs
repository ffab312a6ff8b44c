//! Every other architecture: loops that compilers vectorise. The prefetch is inline assembly on aarch64, which has no stable intrinsic for
//! it, and does nothing elsewhere.

use super::{BLOCK_CELLS, TagLine, count_union_inline};

/// Prefetches the cache line at an address into the first-level cache. Never faults, whatever the address.
#[inline]
pub(crate) fn prefetch(line: *const u8) {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: PRFM is a hint: it changes no register, flag or memory, and does not fault at any address.
    unsafe {
        std::arch::asm!(
            "prfm pldl1keep, [{line}]",
            line = in(reg) line,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(not(target_arch = "aarch64"))]
    let _ = line;
}

/// Returns which of the 32 words of a line equal `word`: one bit each.
pub(crate) fn equal_words(line: &TagLine, word: u16) -> u32 {
    let words = line.as_chunks::<2>().0.iter().rev();
    words.fold(0, |equal, bytes| equal << 1 | u32::from(u16::from_le_bytes(*bytes) == word))
}

/// Whether one of the 32 words of a line equals `word`.
pub(crate) fn has_word(line: &TagLine, word: u16) -> bool {
    line.as_chunks::<2>().0.iter().fold(false, |has, bytes| has | (u16::from_le_bytes(*bytes) == word))
}

/// Counts the ones of each block of the union of two pages, and increments `counts` at that number. The pages may be the same. Prefetches
/// the page after each.
pub(crate) fn count_union(one: &[u8], other: &[u8], counts: &mut [u64; BLOCK_CELLS + 1]) {
    count_union_inline(one, other, counts);
}
