//! The question that is asked before memory is.

/// Says how much memory a filter may still ask for. It is asked before the allocator is, because under overcommit an
/// allocation that succeeds proves nothing.
pub trait Ceiling {
    /// Bytes that a filter of `filter_bytes` (0: a new one), which wants `asked_bytes` more, may still have.
    fn available_bytes(&self, filter_bytes: u64, asked_bytes: u64) -> u64;
}

/// No ceiling: only the allocator can refuse.
#[derive(Clone, Copy, Debug)]
pub struct Unlimited;

impl Ceiling for Unlimited {
    fn available_bytes(&self, _filter_bytes: u64, _asked_bytes: u64) -> u64 {
        u64::MAX
    }
}
