//! The native layout with counters in the place of bits, so that items can be taken back.
//!
//! A block of 512 counters is four cache lines, and a page has 16 of them in place of 64. Loads of smaller groups vary more,
//! and two items share both their blocks more often: what that costs is in [`sizing::counters_per_item`](super::sizing::counters_per_item).

use super::Geometry;
use super::blocked::BlockedGeometry;
use super::probe::BlockedProbe;
use crate::cells::{COUNTER_BLOCK_BYTES, Counters};

/// The shape of a layer's counters and how many of them an item has: blocks of 256 bytes, 2 to 16 of them a group.
pub type BlockedCounters = BlockedGeometry<COUNTER_BLOCK_BYTES>;

/// A geometry whose cells count: an item that was inserted can be taken back.
pub trait Counting: Geometry {
    /// Takes an item back that was inserted before. Of one that never was, it takes counts of others.
    fn remove(&self, cells: &mut Self::Cells, probe: Self::Probe);
    /// How often the item was inserted and not taken back: the least of its counters, which is too high where others share
    /// all of them, and at most [`COUNTER_MAX`](crate::cells::COUNTER_MAX), which stands for that or more.
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

    /// The positions are those of the native layout: the same numbers give the same places, fixed for good.
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
    fn what_is_taken_back_leaves_nothing_and_hides_nobody() {
        // Few blocks and many items under few counters each: many share some.
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
    fn the_least_counter_is_how_often_an_item_was_inserted_up_to_fifteen() {
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

    /// k counters and no more for items whose first bits coincide.
    #[test]
    fn an_item_whose_counters_coincide_counts_once_in_each() {
        let geometry = BlockedCounters { groups: 1, blocks_per_group: 2, hashes: 7 };
        let mut counters = Counters::zeroed(2).unwrap();
        // The empty item of seed 0 has counter 0 of both blocks, seven times.
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
        // Four bits for each.
        let (bits, counters) =
            (BlockedBits::for_layer(1 << 30, 1e-6).unwrap(), BlockedCounters::for_layer(1 << 30, 1e-6).unwrap());
        assert!(counters.size_bytes().abs_diff(4 * bits.size_bytes()) <= 4 * 4096);
    }

    #[test]
    fn shapes_that_cannot_be_are_refused() {
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
