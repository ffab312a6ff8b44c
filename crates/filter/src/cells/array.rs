//! Bits in one flat array, after the few bytes of its stored form.

use std::mem::take;

use bitvec::boxed::BitBox;
use bitvec::order::Lsb0;

use super::arch::prefetch;
use super::{Cells, Mover, relocate_bytes};
use crate::error::Error;
use crate::memory::zeroed_bytes;

/// A flat array of bits after a prefix of a few bytes. Bit p is byte p / 8, mask `1 << (p % 8)`.
///
/// Prefix and bits are stored together, so a layer is saved and loaded without a second copy.
pub struct BitArray {
    stored: BitBox<u8, Lsb0>,
    /// The offset of the bits in `stored`, in bytes.
    start: usize,
}

impl BitArray {
    /// Creates an array of `size_bytes` zero bytes after a prefix.
    ///
    /// # Errors
    /// [`Error::SizeOverflow`] if the size does not fit the address space, [`Error::OutOfMemory`] if the allocator refuses.
    pub(crate) fn zeroed(prefix: &[u8], size_bytes: u64) -> Result<Self, Error> {
        let size = usize::try_from(size_bytes).ok().and_then(|size| size.checked_add(prefix.len()));
        let mut stored = zeroed_bytes(size.ok_or(Error::SizeOverflow)?, size_bytes)?;
        stored.iter_mut().zip(prefix).for_each(|(to, from)| *to = *from);
        Self::from_stored(stored, prefix.len()).ok_or(Error::SizeOverflow)
    }

    /// Returns the array in a stored form that begins with a prefix of `start` bytes; `None` if that is too short.
    pub(crate) fn from_stored(stored: Box<[u8]>, start: usize) -> Option<Self> {
        let stored = BitBox::try_from_boxed_slice(stored).ok().filter(|stored| start <= stored.as_raw_slice().len())?;
        Some(Self { stored, start })
    }

    /// The prefix and the bits.
    pub(crate) fn stored(&self) -> &[u8] {
        self.stored.as_raw_slice()
    }

    /// Whether a bit is set. Bits past the end are not.
    #[inline]
    pub(crate) fn is_set(&self, position: usize) -> bool {
        self.stored.get(self.start * 8 + position).is_some_and(|bit| *bit)
    }

    /// Sets a bit; ignores one past the end. Stores only a byte that changes: a page that is not written is not copied while a
    /// snapshot is being saved.
    #[inline]
    pub(crate) fn set(&mut self, position: usize) {
        if !self.is_set(position)
            && let Some(mut bit) = self.stored.get_mut(self.start * 8 + position)
        {
            *bit = true;
        }
    }

    /// Prefetches the cache line of a bit.
    #[inline]
    pub(crate) fn prefetch(&self, position: usize) {
        prefetch(self.stored.as_raw_slice().as_ptr().wrapping_add(self.start + position / 8));
    }
}

impl Cells for BitArray {
    fn bytes(&self) -> &[u8] {
        self.stored.as_raw_slice().get(self.start..).unwrap_or_default()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.stored.as_raw_mut_slice().get_mut(self.start..).unwrap_or_default()
    }

    fn allocated_bytes(&self) -> u64 {
        self.stored.as_raw_slice().len() as u64
    }

    fn relocate(&mut self, mover: &mut impl Mover) {
        let mut stored = take(&mut self.stored).into_boxed_slice();
        relocate_bytes(&mut stored, mover);
        self.stored = BitBox::from_boxed_slice(stored);
    }
}

impl std::fmt::Debug for BitArray {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BitArray").field("bytes", &self.bytes().len()).finish_non_exhaustive()
    }
}
