//! The callback of the server's defragmenter: it moves the blocks of a value to where the allocator prefers them.
//!
//! The allocator moves only small blocks. The bits of a large layer stay where they are and cost only the call.

use std::ffi::{c_int, c_ulong, c_void};
use std::ptr::NonNull;

use bloomgate_filter::Value;
use bloomgate_filter::cells::Mover;
use redis_module::raw;

use super::stored::Stored;
use crate::{config, metrics};

/// Every block of the value was offered to the allocator.
const DONE: c_int = 0;
/// Blocks are left: the server calls again.
const MORE: c_int = 1;

struct Defragmenter(*mut raw::RedisModuleDefragCtx);

// SAFETY: the server's function copies a block of its allocator, which is the module's global allocator, into another block of
// the same usable size and frees the old one. If it returns null, the block stays where it is.
unsafe impl Mover for Defragmenter {
    fn moved(&mut self, block: NonNull<u8>) -> Option<NonNull<u8>> {
        // SAFETY: the context is that of the call; the block is one of the server's allocator, and the caller gives it up.
        let moved = unsafe { raw::RedisModule_DefragAlloc.map(|alloc| alloc(self.0, block.as_ptr().cast())) };
        let moved = moved.and_then(|block| NonNull::new(block.cast()));
        metrics::block_was_offered(moved.is_some());
        moved
    }

    fn has_done_enough(&mut self) -> bool {
        // SAFETY: the context is that of the call.
        unsafe { raw::RedisModule_DefragShouldStop.is_some_and(|should_stop| should_stop(self.0) != 0) }
    }
}

/// Moves a value: its own block first, then its layers, from where the previous call stopped if the server remembers that.
pub(super) unsafe extern "C" fn run(
    context: *mut raw::RedisModuleDefragCtx,
    _key: *mut raw::RedisModuleString,
    value: *mut *mut c_void,
) -> c_int {
    // SAFETY: the server passes a pointer to its pointer to a value of ours.
    let Some(mut stored) = NonNull::new(unsafe { *value }.cast::<Stored>()) else { return DONE };
    if !config::defrag_enabled() {
        return DONE;
    }
    let mut mover = Defragmenter(context);
    let mut first: c_ulong = 0;
    // SAFETY: the context is that of the call. The value is in its new block once the mover has moved the old one; the server is told
    // where.
    unsafe {
        if let Some(cursor) = raw::RedisModule_DefragCursorGet {
            cursor(context, &raw mut first);
        }
        if first == 0 {
            stored = mover.moved(stored.cast()).map_or(stored, NonNull::cast);
            *value = stored.as_ptr().cast();
        }
    }
    // SAFETY: a key holds the value, no command is running on it, and the timer runs on this thread.
    let stored = unsafe { &mut stored.as_mut().value };
    // An arriving filter is short-lived: only its own block is moved.
    let Value::Filter(filter) = stored else { return DONE };
    let Some(next) = filter.relocate(usize::try_from(first).unwrap_or(usize::MAX), &mut mover) else { return DONE };
    // SAFETY: the context is that of the call.
    unsafe {
        if let Some(cursor) = raw::RedisModule_DefragCursorSet {
            cursor(context, next as c_ulong);
        }
    }
    MORE
}
