//! Pending adds in the native layout: the hashes whose cells lie in a piece of a layer, and inserts into a copy of that piece.
//!
//! A file of its own because a layer itself has no use for pieces; only saving, copying and measuring it have.

use std::ops::{Range, RangeInclusive};

use super::blocked::BlockedGeometry;
use super::probe::BlockedProbe;
use crate::cells::{BlockCell, PAGE_BYTES};

impl<const BLOCK: usize> BlockedGeometry<BLOCK> {
    /// Whether every group is a page of memory, as in all layers of 256 KiB and more that this crate creates.
    pub(super) const fn has_whole_pages(&self) -> bool {
        self.blocks_per_group as usize * BLOCK == PAGE_BYTES
    }

    /// Returns a range that has the `h1` of every hash whose group has one of these bytes. It may have a few others.
    pub(super) fn h1_range(&self, bytes: &Range<usize>) -> RangeInclusive<u64> {
        let group_bytes = u64::from(self.blocks_per_group).saturating_mul(BLOCK as u64).max(1);
        let groups = u128::from(self.groups.max(1));
        // The group of an item is the upper half of h1 * groups.
        let first = (u128::from(bytes.start as u64 / group_bytes) << 64) / groups;
        let after = (u128::from((bytes.end as u64).div_ceil(group_bytes)) << 64).div_ceil(groups);
        let number = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
        number(first)..=number(after)
    }

    /// Sets the bits of an item in a copy of a part of the blocks, which begins at `offset`. Bits outside are ignored.
    pub(super) fn insert_into_copy(&self, copy: &mut [u8], offset: usize, probe: BlockedProbe) {
        if let Some(block) = range_of::<BLOCK>(probe.a, offset).and_then(|range| copy.get_mut(range)) {
            set(block, probe.cells_in_a(self.hashes));
        }
        if let Some(block) = range_of::<BLOCK>(probe.b, offset).and_then(|range| copy.get_mut(range)) {
            set(block, probe.cells_in_b(self.hashes));
        }
    }

    /// Whether all bits of an item are set in such a copy, which must have both of its blocks.
    pub(super) fn copy_contains(&self, copy: &[u8], offset: usize, probe: BlockedProbe) -> bool {
        let block = |block| range_of::<BLOCK>(block, offset).and_then(|range| copy.get(range)).unwrap_or_default();
        are_set(block(probe.a), probe.cells_in_a(self.hashes)) && are_set(block(probe.b), probe.cells_in_b(self.hashes))
    }
}

fn set(block: &mut [u8], bits: impl Iterator<Item = BlockCell>) {
    for bit in bits {
        if let Some(byte) = block.get_mut(bit.index() / 8) {
            *byte |= 1 << (bit.index() % 8);
        }
    }
}

fn are_set(block: &[u8], mut bits: impl Iterator<Item = BlockCell>) -> bool {
    bits.all(|bit| block.get(bit.index() / 8).is_some_and(|byte| byte & 1 << (bit.index() % 8) != 0))
}

/// Returns the range of a block in a copy that begins at `offset`.
fn range_of<const BLOCK: usize>(block: u64, offset: usize) -> Option<Range<usize>> {
    let start = usize::try_from(block).ok()?.checked_mul(BLOCK)?.checked_sub(offset)?;
    Some(start..start + BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::{Blocks, Cells as _};
    use crate::geometry::{BlockedBits, Geometry};
    use crate::hash::ItemHash;

    const GROUPS: usize = 67;
    const GEOMETRY: BlockedBits = BlockedBits { groups: GROUPS as u64, blocks_per_group: 64, hashes: 10 };

    fn probes() -> Vec<(ItemHash, BlockedProbe)> {
        let hashes = (0..if cfg!(miri) { 50u64 } else { 3000 }).map(|item| ItemHash::of(&item.to_le_bytes(), 3));
        hashes.map(|hash| (hash, GEOMETRY.probe(hash))).collect()
    }

    #[test]
    fn copies_of_pieces_get_the_bits_that_the_layer_would_get() {
        assert!(GEOMETRY.has_whole_pages() && !BlockedBits { blocks_per_group: 63, ..GEOMETRY }.has_whole_pages());
        for piece in [4096, 5 * 4096, GROUPS * 4096] {
            let mut blocks = Blocks::zeroed(GEOMETRY.blocks()).unwrap();
            let mut pieces = vec![0; GROUPS * 4096];
            for (hash, probe) in probes() {
                GEOMETRY.insert(&mut blocks, probe);
                for (number, copy) in pieces.chunks_mut(piece).enumerate() {
                    let before = copy.to_vec();
                    let offset = number * piece;
                    GEOMETRY.insert_into_copy(copy, offset, probe);
                    let contains = GEOMETRY.copy_contains(copy, offset, probe);
                    assert_eq!(contains, probe.a * 64 / piece as u64 == number as u64);
                    let bytes = offset..offset + copy.len();
                    assert!(copy == before || GEOMETRY.h1_range(&bytes).contains(&hash.h1), "{hash:?} {bytes:?}");
                }
            }
            assert!(pieces == blocks.bytes());
        }
    }

    #[test]
    fn a_range_of_h1_has_no_other_groups() {
        for group in 0..GROUPS {
            let range = GEOMETRY.h1_range(&(group * 4096..(group + 1) * 4096));
            let others = probes()
                .iter()
                .filter(|(hash, probe)| range.contains(&hash.h1) && probe.a / 64 != group as u64)
                .count();
            assert_eq!(others, 0);
        }
        assert_eq!(GEOMETRY.h1_range(&(0..GROUPS * 4096)), 0..=u64::MAX);
    }
}
