//! Asks the processor to fetch a cache line that will be needed soon: one function per processor family, nothing where
//! the family has no such instruction in stable Rust.

use super::{BLOCK_BYTES, PAGE_BYTES};

/// Starts to load the cache line at `line` into the first-level cache. Never faults, whatever the address.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn prefetch(line: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: PREFETCHT0 reads nothing that the program could see and does not fault on any address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) }
}

/// Starts to load the cache line at `line` into the first-level cache. Never faults, whatever the address.
#[cfg(target_arch = "aarch64")]
#[inline]
pub fn prefetch(line: *const u8) {
    // SAFETY: PRFM is a hint: it changes no register, no flag and no memory, and does not fault on any address.
    unsafe {
        std::arch::asm!(
            "prfm pldl1keep, [{line}]",
            line = in(reg) line,
            options(nostack, preserves_flags, readonly)
        );
    }
}

/// Does nothing: this processor family has no prefetch here.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline]
pub fn prefetch(_line: *const u8) {}

/// Asks for the block that is a page after this one. The processor does not read ahead beyond the end of a page by itself.
#[inline(always)]
pub fn prefetch_next_page(block: &[u8; BLOCK_BYTES]) {
    prefetch(block.as_ptr().wrapping_add(PAGE_BYTES));
}
