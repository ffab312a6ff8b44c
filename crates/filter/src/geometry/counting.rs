//! The native layout with counters in place of bits, so that items can be removed.
//!
//! A block of 512 counters is four cache lines, and a page has 16 such blocks instead of 64. Smaller groups have less even loads,
//! and more pairs of items share both blocks. [`sizing::counters_per_item`](super::sizing::counters_per_item) says what that
//! costs.

use super::Geometry;
use super::blocked::BlockedGeometry;
use super::probe::BlockedProbe;
use crate::cells::{COUNTER_BLOCK_BYTES, Counters};

/// The shape of a layer of counters: blocks of 256 bytes, 2 to 16 of them per group.
pub type BlockedCounters = BlockedGeometry<COUNTER_BLOCK_BYTES>;

/// A geometry whose cells are counters, so that an item that was inserted can be removed.
///
/// ```
/// use bloomgate_filter::cells::Counters;
/// use bloomgate_filter::geometry::{BlockedCounters, Counting as _, Geometry as _};
/// use bloomgate_filter::hash::ItemHash;
///
/// let geometry = BlockedCounters::for_layer(1000, 0.01)?;
/// let mut cells = Counters::zeroed(geometry.blocks())?;
/// let probe = geometry.probe(ItemHash::of(b"https://doc.rust-lang.org/std/", 42));
/// geometry.insert(&mut cells, probe);
/// geometry.insert(&mut cells, probe);
/// geometry.remove(&mut cells, probe);
/// assert_eq!(geometry.least(&cells, probe), 1);
/// # Ok::<(), bloomgate_filter::Error>(())
/// ```
pub trait Counting: Geometry {
    /// Removes an item, which must have been inserted: otherwise this decrements counters of other items.
    fn remove(&self, cells: &mut Self::Cells, probe: Self::Probe);
    /// Returns how often the item was inserted less how often it was removed, as the minimum of its counters. That is too high
    /// if other items share all of them. [`COUNTER_MAX`](crate::cells::COUNTER_MAX) stands for that number or more.
    fn least(&self, cells: &Self::Cells, probe: Self::Probe) -> u8;
}

impl Counting for BlockedCounters {
    #[inline]
    fn remove(&self, cells: &mut Counters, probe: BlockedProbe) {
        cells.decrement(probe.a, probe.cells_in_a(self.hashes));
        cells.decrement(probe.b, probe.cells_in_b(self.hashes));
    }

    #[inline]
    fn least(&self, cells: &Counters, probe: BlockedProbe) -> u8 {
        let in_a = cells.least(probe.a, probe.cells_in_a(self.hashes));
        in_a.min(cells.least(probe.b, probe.cells_in_b(self.hashes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::{COUNTER_MAX, Cells as _, PAGE_ALIGNED_FROM_BYTES};
    use crate::error::Error;
    use crate::geometry::{BlockedBits, LayerDescription, sizing};
    use crate::hash::ItemHash;

    fn probe(geometry: BlockedCounters, item: u64) -> BlockedProbe {
        geometry.probe(ItemHash::of(&item.to_le_bytes(), 4242))
    }

    /// Counters have the positions of bits. They are frozen.
    #[test]
    fn golden_counters() {
        let geometry = BlockedCounters { groups: 3, blocks_per_group: 5, hashes: 18 };
        let probe = geometry.probe(ItemHash::of(b"hello", u32::MAX));
        assert_eq!(
            probe,
            BlockedBits { groups: 3, blocks_per_group: 5, hashes: 18 }.probe(ItemHash::of(b"hello", u32::MAX))
        );
        let mut counters = Counters::zeroed(geometry.blocks()).unwrap();
        geometry.insert(&mut counters, probe);
        let mut expected = vec![0u8; 15 * 256];
        let in_block_3 = [434, 349, 22, 412, 233, 471, 248, 300, 98];
        let in_block_4 = [439, 159, 116, 496, 332, 147, 89, 503, 8];
        for (block, counters) in [(3, in_block_3), (4, in_block_4)] {
            for counter in counters {
                expected[block * 256 + counter / 2] |= if counter % 2 == 0 { 0x01 } else { 0x10 };
            }
        }
        assert!(counters.bytes() == expected);
    }

    #[test]
    fn a_removed_item_leaves_nothing_and_hides_no_other() {
        // Few blocks, many items and few counters per item, so that many items share counters.
        let geometry = BlockedCounters { groups: 2, blocks_per_group: 2, hashes: 5 };
        let mut counters = Counters::zeroed(geometry.blocks()).unwrap();
        let items = 0..if cfg!(miri) { 30 } else { 300 };
        for item in items.clone() {
            geometry.insert(&mut counters, probe(geometry, item));
        }
        for item in items.clone() {
            let has = |item| {
                let probe = probe(geometry, item);
                geometry.contains_first(&counters, probe) && geometry.contains_rest(&counters, probe)
            };
            assert!((item..items.end).all(has));
            geometry.remove(&mut counters, probe(geometry, item));
        }
        assert!(counters.bytes().iter().all(|byte| *byte == 0));
    }

    #[test]
    fn the_least_counter_is_the_number_of_inserts_up_to_fifteen() {
        for hashes in [1, 2, 7, 40] {
            let geometry = BlockedCounters { groups: 1, blocks_per_group: 2, hashes };
            let mut counters = Counters::zeroed(2).unwrap();
            let probe = probe(geometry, 7);
            for times in 0..20 {
                assert_eq!(geometry.least(&counters, probe), times.min(COUNTER_MAX));
                geometry.insert(&mut counters, probe);
            }
            geometry.remove(&mut counters, probe);
            assert_eq!(geometry.least(&counters, probe), COUNTER_MAX);
        }
    }

    /// An item whose counters coincide increments each of them once.
    #[test]
    fn coinciding_counters_of_an_item_change_once() {
        let geometry = BlockedCounters { groups: 1, blocks_per_group: 2, hashes: 7 };
        let mut counters = Counters::zeroed(2).unwrap();
        // Under seed 0, all counters of the empty item are counter 0 of one of the blocks.
        let probe = geometry.probe(ItemHash::of(b"", 0));
        geometry.insert(&mut counters, probe);
        assert_eq!((counters.bytes()[0], counters.bytes()[256]), (1, 1));
        assert_eq!(geometry.least(&counters, probe), 1);
        geometry.remove(&mut counters, probe);
        assert!(counters.bytes().iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_group_is_at_most_a_page() {
        for capacity in [1, 2, 10, 99, 100, 1000, 12_345, 54_000, 55_000, 100_000, 1_000_000, 1 << 40] {
            for rate in [0.25, 0.1, 1e-2, 1e-3, 1e-6, 1e-12] {
                let geometry = BlockedCounters::for_layer(capacity, rate).unwrap();
                assert!(geometry.is_sound() && geometry.blocks_per_group <= 16);
                assert_eq!(geometry.size_bytes() * 2, geometry.modulus());
                assert_eq!(geometry.hashes, sizing::hashes(rate));
                let asked = sizing::counters_per_item(rate) * sizing::to_f64(capacity);
                let has = sizing::to_f64(geometry.modulus());
                let slack = 512.0 * sizing::to_f64(geometry.groups.min(64)) + 512.0;
                assert!(has >= asked && has < asked + slack.clamp(1024.0, 8192.0 + 512.0), "{capacity} {rate}");
                if geometry.size_bytes() >= PAGE_ALIGNED_FROM_BYTES as u64 {
                    assert_eq!(geometry.blocks_per_group, 16);
                }
            }
        }
        assert_eq!(
            BlockedCounters::for_layer(1000, 0.01),
            Ok(BlockedCounters { groups: 2, blocks_per_group: 10, hashes: 7 })
        );
        // Counters take four times the memory of bits.
        let (bits, counters) =
            (BlockedBits::for_layer(1 << 30, 1e-6).unwrap(), BlockedCounters::for_layer(1 << 30, 1e-6).unwrap());
        assert!(counters.size_bytes().abs_diff(4 * bits.size_bytes()) <= 4 * 4096);
    }

    #[test]
    fn impossible_shapes_are_refused() {
        let sound = BlockedCounters { groups: 1, blocks_per_group: 16, hashes: 7 };
        let check = |geometry| Geometry::check(&LayerDescription { rate: 0.01, capacity: 10, items: 0, geometry });
        assert_eq!(check(sound), Ok(()));
        for geometry in [
            BlockedCounters { groups: 0, ..sound },
            BlockedCounters { groups: 1 << 52, ..sound },
            BlockedCounters { groups: u64::MAX, ..sound },
            BlockedCounters { blocks_per_group: 1, ..sound },
            BlockedCounters { blocks_per_group: 17, ..sound },
            BlockedCounters { hashes: 0, ..sound },
            BlockedCounters { hashes: 65, ..sound },
        ] {
            assert_eq!(check(geometry), Err(Error::Unsound), "{geometry:?}");
        }
        assert_eq!(BlockedCounters::for_layer(0, 0.01), Err(Error::CapacityOutOfRange));
        assert_eq!(BlockedCounters::for_layer(1, 0.0), Err(Error::RateOutOfRange));
        assert_eq!(BlockedCounters::for_layer(1, 1.0), Err(Error::RateOutOfRange));
        assert_eq!(BlockedCounters::for_layer(u64::MAX, 1e-12), Err(Error::SizeOverflow));
    }
}
