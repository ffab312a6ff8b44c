//! Merging native filters into their union.
//!
//! Bits are united layer by layer. The exact number of items in a union is unknown, so it is estimated from the bits of each
//! layer. An entry in a table of deleted items remains if no filter contains its item.

use super::BloomFilter;
use crate::ceiling::Ceiling;
use crate::cells::Histogram;
use crate::chain::{CellsReader, Deleted, HashSet, Origin};
use crate::error::Error;
use crate::geometry::{BlockedBits, LayerDescription, estimate, sizing};
use crate::hash::ItemHash;
use crate::mask::{BATCH, Mask};
use crate::memory::try_box;

/// The factor by which the estimated items of a layer may exceed its capacity, because estimates vary.
const SLACK: f64 = 1.05;

impl BloomFilter {
    /// Returns the union of filters, with the definition of the first.
    ///
    /// # Errors
    /// As [`merge`](Self::merge); [`Error::Unsound`] for no filters.
    pub fn union_of(filters: &[&Self], origin: Origin, ceiling: &impl Ceiling) -> Result<Self, Error> {
        let first = filters.first().ok_or(Error::Unsound)?;
        let mut union = Self::hollow(first.spec());
        union.merge(filters, origin, ceiling)?;
        Ok(union)
    }

    /// Adds the contents of others, which must have the same definition, including the seed. Reads all bits once, or twice in
    /// layers whose items add up to more than their capacity, and writes the pages that change.
    ///
    /// # Errors
    /// [`Error::Different`]. For a client also [`Error::UnionTooLarge`] and [`Error::NoRoomForDeleted`].
    /// [`Error::TooManyLayers`], [`Error::AboveCeiling`], [`Error::OutOfMemory`]. Nothing has changed then.
    pub fn merge(&mut self, others: &[&Self], origin: Origin, ceiling: &impl Ceiling) -> Result<(), Error> {
        if others.iter().any(|other| other.spec() != self.spec()) {
            return Err(Error::Different);
        }
        if others.is_empty() {
            return Ok(());
        }
        let union = self.plan_union(others, ceiling, estimated, |layer, items| check(layer, items, origin))?;
        let most = if origin == Origin::Effect { u64::MAX } else { HashSet::capacity_in(union.cells_bytes()) };
        let table = self.union_of_tables(others, most, ceiling)?;
        if table.is_some() {
            self.reserve_deleted()?;
        }

        self.unite(union, others, estimated);
        if let Some(table) = table {
            self.replace_deleted(table);
        }
        Ok(())
    }

    /// Returns the table of the union, with up to `most` entries; `None` if no filter has a table.
    fn union_of_tables(
        &self,
        others: &[&Self],
        most: u64,
        ceiling: &impl Ceiling,
    ) -> Result<Option<Box<Deleted>>, Error> {
        let filters = || std::iter::once(self).chain(others.iter().copied());
        let entries: u64 = others.iter().map(|other| other.deleted_entries()).sum();
        if entries == 0 && self.deleted_entries() == 0 {
            return Ok(None);
        }
        ceiling.allow(self.size_bytes(), entries.saturating_mul(size_of::<ItemHash>() as u64))?;
        let mut table = try_box(Deleted::after(self.revision()))?;
        let mut readers = Vec::new();
        crate::memory::reserve(&mut readers, others.len() + 1)?;
        // False positives may have been deleted as well, so a filter whose count is 0 can still have members.
        for filter in filters().filter(|filter| filter.items_added() > 0) {
            readers.push((filter, CellsReader::new(filter)?));
        }
        for deleted in filters().filter_map(Self::deleted) {
            deleted.for_each_sorted_run(|run| {
                run.chunks(BATCH).try_for_each(|hashes| {
                    let mut stays = Mask::first(hashes.len());
                    for (filter, cells) in &mut readers {
                        stays = stays - filter.but_deleted(hashes, cells.has_cells_batch(hashes));
                    }
                    stays.each_of(hashes).try_for_each(|(_, hash)| table.hashes.insert(hash).map(drop))
                })?;
                let entries = table.hashes.len();
                if entries > most { Err(Error::NoRoomForDeleted { entries }) } else { Ok(()) }
            })?;
        }
        Ok(Some(table))
    }
}

/// Estimates the number of items of a layer from its bits.
fn estimated(layer: &LayerDescription<BlockedBits>, bits: &Histogram) -> u64 {
    let BlockedBits { hashes, .. } = layer.geometry;
    sizing::to_u64(estimate::items(bits, hashes, layer.geometry.blocks()).round())
}

/// Checks the number of items of a united layer. An effect always passes, because the primary had room for it.
fn check(layer: &LayerDescription<BlockedBits>, items: u64, origin: Origin) -> Result<(), Error> {
    let capacity = layer.capacity;
    if origin == Origin::Client && sizing::to_f64(items) > SLACK * sizing::to_f64(capacity) {
        return Err(Error::UnionTooLarge { items, capacity });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ceiling::{Limits, Unlimited};
    use crate::hash::Hasher;
    use crate::kinds::NativeSpec;
    use crate::scaling::Scaling;

    fn filter(capacity: u64, items: std::ops::Range<u32>) -> BloomFilter {
        let hasher = Hasher::SipHash { key: [3; 16] };
        let spec = NativeSpec { hasher, ..NativeSpec::murmur3(1e-6, capacity, Scaling::from_expansion(2), 0) };
        let mut filter = BloomFilter::with_spec(spec, &Unlimited).unwrap();
        items.for_each(|item| _ = filter.add(&item.to_le_bytes(), &Unlimited).unwrap());
        filter
    }

    fn without(mut filter: BloomFilter, items: std::ops::Range<u32>) -> BloomFilter {
        for item in items {
            assert_eq!(filter.delete(filter.hash(&item.to_le_bytes()), Origin::Client, &Unlimited), Ok(true));
        }
        filter
    }

    fn has(filter: &BloomFilter, item: u32) -> bool {
        filter.contains(&item.to_le_bytes())
    }

    #[test]
    fn an_entry_remains_if_no_other_filter_has_its_item() {
        let mut one = without(filter(1000, 0..100), 0..50);
        let other = without(filter(1000, 20..120), 40..60);
        assert_eq!(one.merge(&[&other], Origin::Client, &Unlimited), Ok(()));
        let absent: Vec<u32> = (0..120).filter(|item| !has(&one, *item)).collect();
        // The other contains 20 to 39; neither contains 40 to 49; this one contains 50 to 59.
        assert_eq!(absent, (0..20).chain(40..50).collect::<Vec<_>>());
        assert_eq!((one.deleted_entries(), one.items()), (30, 90));
        assert_eq!(one.add(&45u32.to_le_bytes(), &Unlimited), Ok(true));
        assert_eq!((one.deleted_entries(), one.items()), (29, 91));
    }

    #[test]
    fn the_tables_of_several_filters_are_merged() {
        let parts = [0..10u32, 10..20, 20..30].map(|range| without(filter(1000, 0..100), range));
        let [one, two, three] = &parts;
        let union = BloomFilter::union_of(&[one, two, three], Origin::Client, &Unlimited).unwrap();
        assert!((0..100).all(|item| has(&union, item)), "each item is a member of some filter");
        assert_eq!((union.deleted_entries(), union.items()), (0, 100));
        let alone = BloomFilter::union_of(&[one], Origin::Client, &Unlimited).unwrap();
        assert!(alone == *one);
        assert_eq!(alone.items(), 90);
    }

    #[test]
    fn a_filter_whose_items_are_all_deleted_has_none() {
        let gone = without(filter(1000, 0..100), 0..100);
        let mut one = without(filter(1000, 0..10), 5..6);
        assert_eq!(one.merge(&[&gone], Origin::Client, &Unlimited), Ok(()));
        assert!((0..100).all(|item| has(&one, item) == (item < 10 && item != 5)));
        assert_eq!(one.items(), 9);
    }

    #[test]
    fn members_remain_if_as_many_false_positives_were_deleted() {
        let members = 0..3_u32;
        let spec = NativeSpec { rate: 0.25, capacity: 400, scaling: Scaling::Fixed, ..filter(1000, 0..0).spec() };
        let with_members = || {
            let mut filter = BloomFilter::with_spec(spec, &Unlimited).unwrap();
            members.clone().for_each(|item| _ = filter.add(&item.to_le_bytes(), &Unlimited).unwrap());
            filter
        };
        let mut one = with_members();
        for _ in members.clone() {
            let stranger = (members.end..10_000_000).find(|item| has(&one, *item)).unwrap();
            one = without(one, stranger..stranger + 1);
        }
        assert_eq!(one.items(), 0);
        let other = without(with_members(), members.clone());
        assert_eq!(one.merge(&[&other], Origin::Client, &Unlimited), Ok(()));
        assert!(members.clone().all(|item| has(&one, item)));
    }

    #[test]
    fn a_table_without_room_changes_nothing() {
        // Both tables are nearly at their limit, and no filter contains the items of either.
        let fill = |range: std::ops::Range<u32>| {
            let mut filter = filter(1000, range.clone());
            let full = range
                .clone()
                .find(|item| filter.delete(filter.hash(&item.to_le_bytes()), Origin::Client, &Unlimited).is_err());
            assert!(full.is_some_and(|item| item - range.start > 100), "{full:?}");
            filter
        };
        let (mut one, other) = (fill(0..480), fill(480..960));
        let before = one.try_clone().unwrap();
        let refused = one.merge(&[&other], Origin::Client, &Unlimited);
        assert!(matches!(refused, Err(Error::NoRoomForDeleted { .. })), "{refused:?}");
        let bytes = one.size_bytes();
        let refused = one.merge(&[&other], Origin::Client, &Limits { size_bytes: bytes, layers: 9 });
        assert!(matches!(refused, Err(Error::AboveCeiling { .. })), "{refused:?}");
        assert!(one == before && one.revision() == before.revision());
        assert_eq!(one.merge(&[&other], Origin::Effect, &Unlimited), Ok(()));
        assert_eq!(one.deleted_entries(), before.deleted_entries() + other.deleted_entries());
    }
}
