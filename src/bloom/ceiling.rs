//! The question that is asked before memory is.

use super::Error;

/// Says how much memory a filter may still ask for. It is asked before the allocator is, because under overcommit an
/// allocation that succeeds proves nothing.
pub trait Ceiling {
    /// Bytes that a filter of `filter_bytes` (0: a new one), which wants `asked_bytes` more, may still have. Both are
    /// counted as [`Chain::size_bytes`](super::Chain::size_bytes) counts.
    fn available_bytes(&self, filter_bytes: u64, asked_bytes: u64) -> u64;

    /// Asks for bytes.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    fn check_bytes(&self, filter_bytes: u64, asked_bytes: u64) -> Result<(), Error> {
        let available_bytes = self.available_bytes(filter_bytes, asked_bytes);
        if asked_bytes > available_bytes { Err(Error::OutOfMemory { asked_bytes, available_bytes }) } else { Ok(()) }
    }
}

/// No ceiling: only the allocator can refuse.
#[derive(Clone, Copy, Debug)]
pub struct Unlimited;

impl Ceiling for Unlimited {
    fn available_bytes(&self, _filter_bytes: u64, _asked_bytes: u64) -> u64 {
        u64::MAX
    }
}

/// A size that no filter grows beyond.
#[cfg(test)]
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) size_bytes: u64,
}

#[cfg(test)]
impl Ceiling for Limits {
    fn available_bytes(&self, filter_bytes: u64, _asked_bytes: u64) -> u64 {
        self.size_bytes.saturating_sub(filter_bytes)
    }
}
