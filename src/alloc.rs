//! The memory of the module is the server's: counted in `used_memory`, bound by `maxmemory`, asked for fallibly.
//!
//! Where there is no server (tests, benches, the command-line tool) the system's allocator serves. The server's functions
//! are there before the module's first allocation and stay, so a pointer goes back where it came from.

use std::alloc::{GlobalAlloc, Layout, System};

use redis_module::raw;

/// Forwards to the server's allocator.
pub struct ServerAlloc;

#[global_allocator]
static ALLOCATOR: ServerAlloc = ServerAlloc;

/// What the server's allocators align to. Nothing here asks for more.
const ALIGNMENT: usize = 16;
/// Above this, zeroed memory comes from the server's calloc, which takes it from the kernel zeroed and untouched.
const LAZY_FROM_BYTES: usize = 64 * 1024;

// SAFETY: every block comes from one allocator, chosen once: the server's when the module is loaded, `System` where there
// is none. Sizes are passed on unchanged and a request for an alignment that the server does not promise is refused.
unsafe impl GlobalAlloc for ServerAlloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the server writes its functions once, before any other thread of the module's; the contract of the
        // layout is the caller's.
        unsafe {
            match (raw::RedisModule_TryAlloc, raw::RedisModule_Alloc) {
                (None, None) => System.alloc(layout),
                _ if layout.align() > ALIGNMENT => std::ptr::null_mut(),
                (Some(try_alloc), _) => try_alloc(layout.size()).cast(),
                (None, Some(alloc)) => alloc(layout.size()).cast(),
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`; what is filled with zeros was just allocated with that size.
        unsafe {
            let server = raw::RedisModule_Alloc;
            if server.is_none() {
                return System.alloc_zeroed(layout);
            }
            if layout.align() <= ALIGNMENT {
                if let Some(try_calloc) = raw::RedisModule_TryCalloc {
                    return try_calloc(1, layout.size()).cast();
                }
                if layout.size() >= LAZY_FROM_BYTES {
                    return probed_calloc(layout.size());
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
        // SAFETY: the block came from `alloc` or `alloc_zeroed` with this layout.
        unsafe {
            match raw::RedisModule_Free {
                Some(free) => free(block.cast()),
                None => System.dealloc(block, layout),
            }
        }
    }
}

/// Zeroed memory on Redis before 7.4, where calloc ends the server when there is none: ask first without zeroes, which
/// may fail, give that back, and ask for the same again.
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
