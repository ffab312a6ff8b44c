//! The module's global allocator is the server's allocator: memory is counted in `used_memory`, bound by `maxmemory`, and requested
//! fallibly.
//!
//! Without a server (tests, benches, the command-line tool) it is the system's allocator. The server's functions are set before the
//! module's first allocation and never change, so each block is freed by the allocator that returned it.

use std::alloc::{GlobalAlloc, Layout, System};

use redis_module::raw;

use crate::server::huge_pages;

/// Forwards to the server's allocator.
pub struct ServerAlloc;

#[global_allocator]
static ALLOCATOR: ServerAlloc = ServerAlloc;

/// In every allocator of the servers, a block whose size is a multiple of this has this alignment. The module needs no larger one.
const ALIGNMENT: usize = 16;
/// Above this, zeroed memory comes from the server's calloc, which gets zeroed, untouched pages from the kernel.
const LAZY_FROM_BYTES: usize = 64 * 1024;

// SAFETY: every block comes from one allocator, chosen once: the server's when the module is loaded, `System` without a server. The
// server's blocks are at least as large as requested, and aligned as requested: see `padded_size`. An alignment above
// `ALIGNMENT` is refused.
unsafe impl GlobalAlloc for ServerAlloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the functions are written once, before the module has any other thread; the caller keeps the contract of the
        // layout.
        let block = unsafe {
            match (raw::RedisModule_TryAlloc, raw::RedisModule_Alloc) {
                (None, None) => System.alloc(layout),
                _ if layout.align() > ALIGNMENT => std::ptr::null_mut(),
                (Some(try_alloc), _) => try_alloc(padded_size(layout)).cast(),
                (None, Some(alloc)) => alloc(padded_size(layout)).cast(),
            }
        };
        huge_pages::allocated(block, layout.size());
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`; the zeroed block has this size.
        unsafe {
            let server = raw::RedisModule_Alloc;
            if server.is_none() {
                return System.alloc_zeroed(layout);
            }
            if layout.align() <= ALIGNMENT {
                let size = padded_size(layout);
                let block = match raw::RedisModule_TryCalloc {
                    Some(try_calloc) => Some(try_calloc(1, size).cast()),
                    None => (size >= LAZY_FROM_BYTES).then(|| probed_calloc(size)),
                };
                if let Some(block) = block {
                    huge_pages::allocated(block, layout.size());
                    return block;
                }
            }
            let block = self.alloc(layout);
            if !block.is_null() {
                block.write_bytes(0, layout.size());
            }
            block
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        huge_pages::freed(block, layout.size());
        // SAFETY: the block came from `alloc` or `alloc_zeroed` with this layout. The functions have not changed since.
        unsafe {
            match raw::RedisModule_Free {
                Some(free) => free(block.cast()),
                None => System.dealloc(block, layout),
            }
        }
    }
}

/// The bytes to request for a layout. Redis's jemalloc aligns blocks of 24, 40 and 56 bytes only to 8, so the size is rounded up to a
/// multiple of the alignment.
const fn padded_size(layout: Layout) -> usize {
    layout.pad_to_align().size()
}

/// Zeroed memory on Redis before 7.4, whose calloc ends the server if memory runs out. First requests a block of that size without zeroing,
/// which may fail, and frees it.
fn probed_calloc(size: usize) -> *mut u8 {
    // SAFETY: the functions are the server's; the probe is freed once and not used.
    unsafe {
        if let (Some(try_alloc), Some(free)) = (raw::RedisModule_TryAlloc, raw::RedisModule_Free) {
            let probe = try_alloc(size);
            if probe.is_null() {
                return std::ptr::null_mut();
            }
            free(probe);
        }
        raw::RedisModule_Calloc.map_or(std::ptr::null_mut(), |calloc| calloc(1, size).cast())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_block_is_smaller_than_its_alignment_allows() {
        for align in [1, 8, 16] {
            for size in 1..100 {
                let padded = padded_size(Layout::from_size_align(size, align).unwrap());
                assert!(padded.is_multiple_of(align) && (size..size + align).contains(&padded), "{size}, {align}");
            }
        }
    }
}
