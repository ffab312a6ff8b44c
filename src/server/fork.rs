//! Whether a forked child of the server is running, to save or to rewrite the AOF, and so whether new adds may be pending. `events.rs`
//! updates this when a child starts or exits.
//!
//! A child shares the server's memory: the first write to a page after the fork copies the page. So while a child is running, new adds to
//! large layers are kept in a set next to the layer instead of its bits. `keys/pending.rs` flushes them afterwards.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::context::Context;

/// Adds to layers of this size or more may be pending. Smaller layers have few pages to copy. `tests/fault_module` finds this number by its
/// symbol and lowers it, so that tests need no large filters.
#[unsafe(export_name = "bloomgate_pending_from_bytes")]
static PENDING_FROM_BYTES: AtomicU64 = AtomicU64::new(4 << 20);

/// Whether a child is running. Not a count, because the script debugger's children raise an event when they start, but not when they exit.
static CHILD_LIVES: AtomicBool = AtomicBool::new(false);

/// Records that a child has started or exited. Returns whether one is running.
pub fn child_changed(context: Context) -> bool {
    let lives = context.has_child();
    CHILD_LIVES.store(lives, Relaxed);
    lives
}

/// The layer size in bytes from which adds of a command may be pending; `None` if the command writes all of its adds to the
/// bits.
#[inline]
pub fn pending_from_bytes(context: Context) -> Option<u64> {
    let may_pend = CHILD_LIVES.load(Relaxed) && context.may_pend();
    may_pend.then(|| PENDING_FROM_BYTES.load(Relaxed))
}
