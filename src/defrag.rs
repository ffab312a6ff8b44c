//! What the server's defragmenter calls for a value of ours: its memory goes where the allocator would rather have it.
//!
//! The allocator offers that for small blocks only. The bits of a large layer stay where they are, which costs nothing but
//! the question.

use std::ffi::{c_int, c_ulong, c_void};
use std::ptr::NonNull;

use bloomgate_filter::Value;
use bloomgate_filter::cells::Mover;
use redis_module::raw;

use super::stored::Stored;
use super::{config, metrics, pending};

/// The value has been dealt with.
const DONE: c_int = 0;
/// The server is to call again for what is left.
const MORE: c_int = 1;

struct Defragmenter(*mut raw::RedisModuleDefragCtx);

// SAFETY: the server's function copies a block of its allocator, which is the global one here, into another of the same
// size class, and frees the old one.
unsafe impl Mover for Defragmenter {
    fn moved(&mut self, block: NonNull<u8>) -> Option<NonNull<u8>> {
        // SAFETY: the context is that of the call; the block is one of the server's allocator.
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

/// Moves a value. Its layers are taken up where the call before left off, if the server keeps such a place.
pub(super) unsafe extern "C" fn run(
    context: *mut raw::RedisModuleDefragCtx,
    _key: *mut raw::RedisModuleString,
    value: *mut *mut c_void,
) -> c_int {
    if !config::defrag_enabled() {
        return DONE;
    }
    let mut mover = Defragmenter(context);
    let mut first: c_ulong = 0;
    // SAFETY: the server passes the place of a value of ours, which nobody else uses meanwhile; a block that was moved is
    // the value from then on.
    let stored = unsafe {
        if let Some(cursor) = raw::RedisModule_DefragCursorGet {
            cursor(context, &raw mut first);
        }
        if first == 0
            && let Some(moved) = NonNull::new(*value).and_then(|block| mover.moved(block.cast()))
        {
            *value = moved.as_ptr().cast();
            pending::moved(moved.cast());
        }
        (*value).cast::<Stored>().as_mut()
    };
    // Filters that are still arriving are short-lived: what they point to stays where it is.
    let Some(Stored { value: Value::Filter(filter), .. }) = stored else { return DONE };
    let Some(next) = filter.relocate(usize::try_from(first).unwrap_or(usize::MAX), &mut mover) else { return DONE };
    // SAFETY: the context is that of the call.
    unsafe {
        if let Some(cursor) = raw::RedisModule_DefragCursorSet {
            cursor(context, next as c_ulong);
        }
    }
    MORE
}
