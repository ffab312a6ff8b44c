//! Moves the blocks of a value to better addresses, for the server's defragmenter. The allocator moves only small blocks: for the bits of a
//! large layer, the call has no effect.

use std::ffi::{c_int, c_ulong, c_void};
use std::ptr::NonNull;

use bloomgate_filter::Mover;
use redis_module::raw;

use super::place::Place;
use crate::api;
use crate::{config, metrics};

/// Every block of the value was offered to the allocator.
const DONE: c_int = 0;
/// Blocks remain: the server calls again.
const MORE: c_int = 1;

struct Step(api::Defragmenter);

// SAFETY: the server's function copies a block of its allocator, which is the module's global allocator, into another block of
// the same usable size and frees the old one. If it returns null, the block stays where it is.
unsafe impl Mover for Step {
    fn moved(&mut self, block: NonNull<u8>) -> Option<NonNull<u8>> {
        // SAFETY: the block comes from the server's allocator, and the caller no longer uses it.
        let moved = NonNull::new(unsafe { api::move_block(self.0, block.as_ptr().cast()) }.cast());
        if moved.is_some() { &metrics::DEFRAG_HITS } else { &metrics::DEFRAG_MISSES }.count(1);
        moved
    }

    fn has_done_enough(&mut self) -> bool {
        api::should_stop(self.0) != 0
    }
}

/// Moves a value: its own block first, then its layers, from where the previous call stopped if the server remembers that.
pub(super) unsafe extern "C" fn defragment(
    context: *mut raw::RedisModuleDefragCtx,
    _key: *mut raw::RedisModuleString,
    value: *mut *mut c_void,
) -> c_int {
    if !config::defrag_enabled() {
        return DONE;
    }
    let context = api::Defragmenter::new(context);
    let (mut step, mut first) = (Step(context), 0);
    api::defrag_cursor(context, &mut first);
    // SAFETY: the server passes a pointer to its pointer to a value of ours, which must follow. No command is running on the value, and
    // the timer runs on this thread.
    let next = unsafe {
        let (place, next) = Place::of(*value).relocate(usize::try_from(first).unwrap_or(usize::MAX), &mut step);
        *value = place.pointer();
        next
    };
    let Some(next) = next else { return DONE };
    api::set_defrag_cursor(context, next as c_ulong);
    MORE
}
