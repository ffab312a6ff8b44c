//! The cells that items occupy in a layer: bits, in blocks of a cache line ([`Blocks`]) or in one flat array ([`BitArray`]), or
//! counters in blocks ([`Counters`]).

pub(crate) mod arch;
mod array;
mod block_array;
mod blocks;
mod counters;
mod histogram;
mod prefix;
mod relocate;
mod unite;

pub use array::BitArray;
pub use block_array::{BLOCK_CELLS, BlockArray, BlockCell, BlockedCells, PAGE_ALIGNED_FROM_BYTES};
pub use blocks::{BLOCK_BYTES, Blocks};
pub use counters::{COUNTER_BLOCK_BYTES, COUNTER_MAX, Counters};
pub use histogram::{Histogram, sampled_ones};
pub use prefix::Prefix;
pub use relocate::Mover;
pub(crate) use relocate::{boxed as relocate_boxed, elements as relocate_elements};
pub use unite::unite;

/// The usual size of a page of memory in bytes, used on every machine.
pub(crate) const PAGE_BYTES: usize = 4096;

/// The cells of a layer.
pub trait Cells {
    /// Returns the cells as bytes, in the order in which they are stored.
    fn bytes(&self) -> &[u8];
    /// Returns the cells as bytes, for a reader that fills them in.
    fn bytes_mut(&mut self) -> &mut [u8];
    /// Whether cells may be occupied by items that a layer does not count: because `bytes_mut` was called, or because a counter was
    /// decremented, whose saturated neighbours stay. Adds do not change this, because they are counted.
    fn may_lack_items(&self) -> bool {
        true
    }
    /// Returns the number of cells.
    fn count(&self) -> u64 {
        (self.bytes().len() as u64).saturating_mul(8)
    }
    /// Counts the occupied cells. Reads all of them.
    fn count_occupied(&self) -> u64 {
        self.bytes().iter().map(|byte| u64::from(byte.count_ones())).sum()
    }
    /// Returns the number of bytes requested from the allocator.
    fn allocated_bytes(&self) -> u64;
    /// Lets the mover move their memory.
    fn relocate(&mut self, mover: &mut impl Mover);
}

/// Whether bytes are all zero. Compares whole pages, which is much faster than single bytes, and stops at the first nonzero
/// one.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    const ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];
    bytes.chunks(PAGE_BYTES).all(|page| ZEROS.get(..page.len()) == Some(page))
}
