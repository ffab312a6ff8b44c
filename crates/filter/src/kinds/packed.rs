//! Small native filters: 56 bytes and the cells. A [`BloomFilter`] takes 112, and a list of its layers from the second on.
//!
//! One filter for each user or day is common, and then the fields take as much memory as the cells. They follow from fewer numbers: the
//! rate and the capacity of a layer from the definition, the items of an older layer from its capacity. A single item is looked up and
//! added in the packed form. For all other commands the filter is unpacked, without its cells being touched.
//!
//! It needs `unsafe`, because while a filter is unpacked, its cells have two owners.

use std::cell::Cell;
use std::mem::{ManuallyDrop, forget};

use super::{BloomFilter, NativeSpec};
use crate::cells::{Allocation, BLOCK_BYTES, Blocks, Cells as _};
use crate::chain::{Layer, check_layer};
use crate::error::Error;
use crate::geometry::sizing::{self, Policy, Scaling};
use crate::geometry::{BlockedBits, Geometry as _, LayerDescription};
use crate::hash::{Hasher, ItemHash};
use crate::host::Ceiling;
use crate::memory::block_bytes;

/// The maximum number of layers of a packed filter: a default filter then holds 1,500 items.
const LAYERS_MAX: usize = 4;

/// The maximum number of blocks in a layer: one group.
const LAYER_BLOCKS_MAX: usize = 64;

/// The number of tags: they are below it.
pub const TAGS: u16 = 1 << 14;

/// A native filter that is hashed by MurmurHash3, has up to four layers of up to 4 KiB, no deleted items and no pending adds, and whose
/// layers have the rates and the capacities that its definition gives them, and equal numbers of cells per item. The older layers are full.
#[derive(Debug)]
pub struct PackedFilter {
    /// The cells of each layer, oldest first.
    cells: [Option<Allocation>; LAYERS_MAX],
    rate: f64,
    seed: [u8; 4],
    /// The number of blocks of each layer, and whether its allocation is padded.
    blocks: [u8; LAYERS_MAX],
    /// The capacity of the first layer.
    capacity: u16,
    /// The items of the newest layer.
    items: u16,
    expansion: u8,
    /// The cells per item of every layer, less one, whether they are in four blocks, and whether the policy is not the first.
    hashes: u8,
    /// A number of the owner's in the low 14 bits, whether cells may lack items, and whether the policy is the third.
    tag: u16,
}

const _: () = assert!(size_of::<PackedFilter>() <= 56);

/// In `hashes`.
const IN_FOUR_BLOCKS: u8 = 1 << 6;
const LATER_POLICY: u8 = 1 << 7;
/// In `blocks`.
const IS_PADDED: u8 = 1 << 7;
/// In `tag`.
const MAY_LACK_ITEMS: u16 = TAGS;
const POLICY_THREE: u16 = TAGS << 1;

thread_local! {
    /// The list of the layers of the filter that was unpacked last, for the next one: unpacking allocates nothing.
    static LIST: Cell<Vec<Layer<BlockedBits>>> = const { Cell::new(Vec::new()) };
    /// The last packed filter of a single layer, without its cells, items and tag.
    static LAST: Cell<Option<PackedFilter>> = const { Cell::new(None) };
}

/// Allocates a list for the layers of the next filter unless there is one. Returns whether there is one now.
fn has_list() -> bool {
    let mut list = LIST.take();
    let has_list = list.capacity() >= LAYERS_MAX || list.try_reserve_exact(LAYERS_MAX).is_ok();
    LIST.set(list);
    has_list
}

impl PackedFilter {
    /// Packs a filter with a tag, or returns a filter that cannot be packed, or for whose list of layers there is no memory. The cells
    /// are freed only if the filter is unpacked and dropped.
    pub fn pack(filter: BloomFilter, tag: u16) -> Result<Self, BloomFilter> {
        let has_room = || filter.layers().len() == 1 || filter.list_capacity() >= LAYERS_MAX || has_list();
        let Some(mut packed) = Self::of(&filter, tag).filter(|_| has_room()) else { return Err(filter) };
        if let ([_], [blocks, ..]) = (filter.layers(), packed.blocks) {
            let (blocks, tag) = ([blocks % IS_PADDED, 0, 0, 0], packed.tag & POLICY_THREE);
            LAST.set(Some(Self { blocks, tag, items: 0, ..packed }));
        }
        let mut places = packed.cells.iter_mut();
        let list = filter.drain_layers(|layer| {
            if let Some(place) = places.next() {
                *place = Some(layer.into_cells().into_allocation());
            }
        });
        if list.capacity() >= LAYERS_MAX {
            LIST.set(list);
        }
        Ok(packed)
    }

    /// Creates an empty filter. `None` unless the last filter that was packed with a single layer had the same definition, apart from the
    /// seed. The size of the layer is then known: it takes a quarter of the time of creating a filter and packing it.
    ///
    /// # Errors
    /// [`Error::AboveCeiling`], [`Error::OutOfMemory`].
    pub fn like_last(spec: &NativeSpec, tag: u16, ceiling: &impl Ceiling) -> Result<Option<Self>, Error> {
        let Hasher::Murmur3 { seed } = spec.hasher else { return Ok(None) };
        let Some(last) = LAST.take() else { return Ok(None) };
        let mut new = Self { seed, tag: last.tag | (tag % TAGS), ..last };
        LAST.set(Some(last));
        if new.spec() != *spec {
            return Ok(None);
        }
        let ([place, ..], [blocks, ..]) = (&mut new.cells, &mut new.blocks);
        check_layer::<NativeSpec>(ceiling, 0, 0, 0, u64::from(*blocks) * BLOCK_BYTES as u64)?;
        let cells = Blocks::zeroed((*blocks).into())?;
        if cells.is_padded() {
            *blocks |= IS_PADDED;
        }
        *place = Some(cells.into_allocation());
        Ok(Some(new))
    }

    /// Whether a filter can be packed.
    pub fn fits(filter: &BloomFilter) -> bool {
        Self::of(filter, 0).is_some()
    }

    /// The same for a filter that was just created.
    pub fn fits_new(filter: &BloomFilter) -> bool {
        let NativeSpec { capacity, scaling, hasher, .. } = filter.spec();
        !hasher.is_keyed()
            && capacity <= u16::MAX.into()
            && scaling.expansion() <= u8::MAX.into()
            && filter.cells_bytes() <= (LAYER_BLOCKS_MAX * BLOCK_BYTES) as u64
    }

    /// Returns the fields of a packed filter, without its cells.
    fn of(filter: &BloomFilter, tag: u16) -> Option<Self> {
        let mut blocks = [0; LAYERS_MAX];
        let NativeSpec { rate, capacity, scaling, hasher, policy } = filter.spec();
        let Hasher::Murmur3 { seed } = hasher else { return None };
        let layers = filter.layers();
        let (first, newest) = (layers.first()?, layers.last()?);
        if layers.len() > LAYERS_MAX || filter.has_extras() {
            return None;
        }
        let BlockedBits { hashes, blocks_per_item, .. } = first.geometry();
        let mut packed = Self {
            cells: [None; LAYERS_MAX],
            rate,
            seed,
            blocks,
            capacity: u16::try_from(capacity).ok()?,
            items: u16::try_from(newest.items()).ok()?,
            expansion: u8::try_from(scaling.expansion()).ok()?,
            hashes: u8::try_from(hashes.checked_sub(1)?).ok().filter(|less_one| *less_one < IN_FOUR_BLOCKS)?,
            tag: tag % TAGS,
        };
        if blocks_per_item == 4 {
            packed.hashes |= IN_FOUR_BLOCKS;
        }
        match policy {
            Policy::One => {}
            Policy::Two => packed.hashes |= LATER_POLICY,
            Policy::Three => {
                packed.hashes |= LATER_POLICY;
                packed.tag |= POLICY_THREE;
            }
        }
        let spec = filter.spec();
        let mut capacity = spec.capacity;
        for ((index, layer), place) in (0_u32..).zip(layers).zip(&mut blocks) {
            *place = u8::try_from(layer.geometry().blocks()).ok().filter(|blocks| *blocks < IS_PADDED)?;
            let items = if std::ptr::eq(layer, newest) { newest.items() } else { capacity };
            let described = packed.description(&spec, index, capacity, *place);
            if layer.description() != (LayerDescription { items, ..described }) {
                return None;
            }
            if layer.cells().is_padded() {
                *place |= IS_PADDED;
            }
            if layer.cells().may_lack_items() {
                packed.tag |= MAY_LACK_ITEMS;
            }
            capacity *= u64::from(packed.expansion);
        }
        packed.blocks = blocks;
        Some(packed)
    }

    /// The definition of the filter.
    #[inline]
    fn spec(&self) -> NativeSpec {
        NativeSpec {
            rate: self.rate,
            capacity: self.capacity.into(),
            scaling: Scaling::from_expansion(self.expansion.into()),
            hasher: Hasher::Murmur3 { seed: self.seed },
            policy: match (self.hashes & LATER_POLICY, self.tag & POLICY_THREE) {
                (0, _) => Policy::One,
                (_, 0) => Policy::Two,
                _ => Policy::Three,
            },
        }
    }

    /// The geometry of a layer.
    #[inline]
    fn geometry(&self, blocks: u8) -> BlockedBits {
        BlockedBits {
            groups: 1,
            blocks_per_group: (blocks % IS_PADDED).into(),
            blocks_per_item: if self.hashes & IN_FOUR_BLOCKS == 0 { 2 } else { 4 },
            hashes: u32::from(self.hashes % IN_FOUR_BLOCKS) + 1,
        }
    }

    /// The description of a layer with this number of blocks, which has this capacity and is full.
    #[inline]
    fn description(&self, spec: &NativeSpec, index: u32, capacity: u64, blocks: u8) -> LayerDescription<BlockedBits> {
        LayerDescription {
            rate: spec.rate * sizing::share(spec.policy, spec.scaling, spec.capacity, index),
            capacity,
            items: capacity,
            geometry: self.geometry(blocks),
        }
    }

    /// The owner's tag.
    pub const fn tag(&self) -> u16 {
        self.tag % TAGS
    }

    /// Sets the owner's tag.
    pub const fn set_tag(&mut self, tag: u16) {
        self.tag = (self.tag / TAGS * TAGS) | (tag % TAGS);
    }

    /// The number of layers.
    fn layer_count(&self) -> usize {
        self.cells.iter().flatten().count()
    }

    /// The number of bytes taken from the allocator, including the fields.
    pub fn allocated_bytes(&self) -> u64 {
        let layers = self.blocks.iter().take(self.layer_count());
        let allocations = layers.map(|blocks| {
            let padding = if blocks & IS_PADDED == 0 { 0 } else { BLOCK_BYTES - 1 };
            block_bytes((usize::from(blocks % IS_PADDED) * BLOCK_BYTES + padding) as u64)
        });
        size_of::<Self>() as u64 + allocations.sum::<u64>()
    }

    /// Returns the filter. To read it only, pass it to [`release`](Self::release) afterwards; to write to it, to
    /// [`update`](Self::update).
    ///
    /// # Safety
    /// The filter and this form of it own the same cells. Until the filter is released or the form is updated, the filter is the only one
    /// to use; if it is dropped, the form must not be used again. Several filters may be unpacked if all of them are only read.
    #[inline]
    pub unsafe fn unpack(&self) -> BloomFilter {
        let spec = self.spec();
        let ([Some(cells), None, ..], [blocks, ..]) = (self.cells, self.blocks) else {
            // SAFETY: the caller's promise.
            return unsafe { self.unpack_several(&spec) };
        };
        // SAFETY: the caller's promise; it is the layer that has these cells.
        let mut layer = unsafe { self.layer(&spec, 0, spec.capacity, (cells, blocks)) };
        layer.set_items(self.items.into());
        BloomFilter::of_layer(spec, layer)
    }

    /// # Safety
    /// As [`unpack`](Self::unpack).
    #[inline(never)]
    unsafe fn unpack_several(&self, spec: &NativeSpec) -> BloomFilter {
        let mut list = LIST.take();
        list.reserve(LAYERS_MAX);
        let mut capacity = spec.capacity;
        for ((index, cells), blocks) in (0..).zip(self.cells.iter().flatten()).zip(self.blocks) {
            // SAFETY: the caller's promise; it is the layer that has these cells.
            list.push(unsafe { self.layer(spec, index, capacity, (*cells, blocks)) });
            capacity *= u64::from(self.expansion);
        }
        if let Some(newest) = list.last_mut() {
            newest.set_items(self.items.into());
        }
        BloomFilter::from_layers(*spec, list).unwrap_or_else(|_| BloomFilter::nothing())
    }

    /// Returns a layer of this capacity, full, with its cells and its number of blocks.
    ///
    /// # Safety
    /// As [`unpack`](Self::unpack), for the layer with this index.
    #[inline]
    unsafe fn layer(
        &self,
        spec: &NativeSpec,
        index: u32,
        capacity: u64,
        (cells, blocks): (Allocation, u8),
    ) -> Layer<BlockedBits> {
        // SAFETY: the caller's promise.
        let cells = unsafe { self.array(cells, blocks) };
        Layer::of_parts(self.description(spec, index, capacity, blocks), cells)
    }

    /// # Safety
    /// As [`unpack`](Self::unpack), for a layer with these cells and this number of blocks.
    #[inline]
    unsafe fn array(&self, cells: Allocation, blocks: u8) -> Blocks {
        let (is_padded, may_lack_items) = (blocks & IS_PADDED != 0, self.tag & MAY_LACK_ITEMS != 0);
        // SAFETY: the allocation of an array of this number of blocks, and the caller's promise.
        unsafe { Blocks::of_allocation(cells, blocks % IS_PADDED, is_padded, may_lack_items) }
    }

    #[inline]
    fn hash(&self, item: &[u8]) -> ItemHash {
        ItemHash::of(item, u32::from_le_bytes(self.seed))
    }

    /// Whether an item may be present, as `BloomFilter::contains`, without unpacking the filter.
    #[inline]
    pub fn contains(&self, item: &[u8]) -> bool {
        self.contains_hash(self.hash(item))
    }

    #[inline]
    fn contains_hash(&self, hash: ItemHash) -> bool {
        let mut layers = self.cells.iter().flatten().zip(self.blocks);
        layers.any(|(cells, blocks)| {
            let geometry = self.geometry(blocks);
            // SAFETY: the layer's cells are only read, and not dropped.
            let cells = ManuallyDrop::new(unsafe { self.array(*cells, blocks) });
            let probe = geometry.probe(hash);
            geometry.contains_first(&cells, probe) && geometry.contains_rest(&cells, probe)
        })
    }

    /// Adds an item for a client, as `BloomFilter::add`, without unpacking the filter. `None` for a new item if the newest layer is
    /// full; nothing has changed then.
    #[inline]
    pub fn add(&mut self, item: &[u8]) -> Option<bool> {
        let hash = self.hash(item);
        if self.contains_hash(hash) {
            return Some(false);
        }
        let layers = self.cells.iter().flatten().zip(self.blocks);
        let mut capacity = u64::from(self.capacity);
        let (cells, blocks) = layers.reduce(|_, newer| {
            capacity *= u64::from(self.expansion);
            newer
        })?;
        if u64::from(self.items) >= capacity {
            return None;
        }
        let items = self.items.checked_add(1)?;
        let geometry = self.geometry(blocks);
        // SAFETY: the filter is borrowed mutably, and the layer's cells are not dropped.
        let mut cells = ManuallyDrop::new(unsafe { self.array(*cells, blocks) });
        geometry.insert(&mut cells, geometry.probe(hash));
        self.items = items;
        Some(true)
    }

    /// Ends the use of an unpacked filter that was not changed. The cells stay.
    #[inline]
    pub fn release(filter: BloomFilter) {
        if filter.layers().len() == 1 {
            return forget(filter);
        }
        let mut list = filter.into_list();
        // SAFETY: no list is shorter. The layers are forgotten.
        unsafe { list.set_len(0) };
        LIST.set(list);
    }

    /// Packs a filter again that was unpacked from this form and then changed. Returns a filter that cannot be packed any more; then this
    /// form must not be used again. A filter whose cells were only moved can be packed, whatever memory there is.
    pub fn update(&mut self, filter: BloomFilter) -> Result<(), BloomFilter> {
        match self.count_newest(&filter) {
            Some(items) => {
                self.items = items;
                Self::release(filter);
            }
            None => {
                let packed = Self::pack(filter, self.tag());
                // The list may have been dropped with the filter.
                has_list();
                *self = packed?;
            }
        }
        Ok(())
    }

    /// Returns the items of the newest layer if nothing else differs from this form, which is the usual change.
    fn count_newest(&self, filter: &BloomFilter) -> Option<u16> {
        let layers = filter.layers();
        let (newest, older) = layers.split_last()?;
        let places = self.cells.iter().flatten();
        let are_same = layers.len() == self.layer_count()
            && filter.spec() == self.spec()
            && !filter.has_extras()
            && layers.iter().zip(places).all(|(layer, place)| layer.cells().owns(*place))
            && older.iter().all(Layer::is_full)
            && (self.tag & MAY_LACK_ITEMS != 0 || !newest.cells().may_lack_items());
        if are_same { u16::try_from(newest.items()).ok() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::{Layout, alloc, dealloc};
    use std::ptr::NonNull;

    use super::*;
    use crate::cells::Mover;
    use crate::host::Unlimited;

    fn filter(rate: f64, capacity: u64, expansion: u32) -> BloomFilter {
        BloomFilter::new(rate, capacity, Scaling::from_expansion(expansion), 7, &Unlimited).unwrap()
    }

    /// Packed filters do not free their cells.
    struct Owner(Option<PackedFilter>);

    impl Owner {
        fn new(filter: BloomFilter) -> Self {
            Self(Some(PackedFilter::pack(filter, 77).unwrap()))
        }

        fn packed(&self) -> &PackedFilter {
            self.0.as_ref().unwrap()
        }

        fn read<T>(&self, look: impl FnOnce(&BloomFilter) -> T) -> T {
            // SAFETY: it is released below, and the borrow allows only other readers.
            let filter = unsafe { self.packed().unpack() };
            let seen = look(&filter);
            PackedFilter::release(filter);
            seen
        }

        fn write<T>(&mut self, change: impl FnOnce(&mut BloomFilter) -> T) -> Result<T, BloomFilter> {
            let mut packed = self.0.take().unwrap();
            // SAFETY: the packed form is updated below, or dropped.
            let mut filter = unsafe { packed.unpack() };
            let result = change(&mut filter);
            packed.update(filter)?;
            self.0 = Some(packed);
            Ok(result)
        }
    }

    impl Drop for Owner {
        fn drop(&mut self) {
            if let Some(packed) = &self.0 {
                // SAFETY: the packed form is not used again.
                drop(unsafe { packed.unpack() });
            }
        }
    }

    #[test]
    fn a_packed_filter_is_the_same_at_every_fill() {
        let definitions =
            [(0.01, 100, 2), (0.01, 100, 0), (0.25, 20, 3), (0.001, 10, 1), (1e-6, 9, 2), (0.02, 128, 255)];
        let definitions = if cfg!(miri) { &definitions[..1] } else { &definitions };
        for &(rate, capacity, expansion) in definitions {
            let mut plain = filter(rate, capacity, expansion);
            let mut owner = Owner::new(plain.try_clone().unwrap());
            for item in 0..if cfg!(miri) { 320 } else { 20_000_u32 } {
                assert_eq!(owner.packed().tag(), 77);
                if plain.remaining_capacity() < 2 || item % 64 == 0 {
                    assert!(owner.read(|packed| *packed == plain && packed.contents() == plain.contents()));
                    assert!(owner.read(|one| owner.read(|other| one == other)), "two readers");
                    let items = (0..200_u32).map(|other| (item + other).to_le_bytes());
                    assert!(items.into_iter().all(|other| owner.packed().contains(&other) == plain.contains(&other)));
                }
                let item = item.to_le_bytes();
                let is_full = plain.remaining_capacity() == 0;
                let expected = plain.add(&item, &Unlimited);
                if item[0] % 2 == 0 {
                    let added = owner.0.as_mut().unwrap().add(&item);
                    assert_eq!(added, if is_full && expected != Ok(false) { None } else { expected.ok() });
                    if added.is_some() {
                        continue;
                    }
                }
                match owner.write(|filter| filter.add(&item, &Unlimited)) {
                    Ok(added) => assert_eq!(added, expected),
                    Err(unpacked) => {
                        assert!(unpacked == plain && !PackedFilter::fits(&unpacked));
                        break;
                    }
                }
                if expected.is_err() {
                    break;
                }
            }
            let layers = plain.layers().len();
            assert!(cfg!(miri) || expansion == 0 || layers > 1, "{rate} {capacity} {expansion}: {layers}");
        }
    }

    /// Has no memory for a filter of 120 bytes and one block.
    struct Full;

    impl Ceiling for Full {
        fn available_bytes(&self, _filter_bytes: u64, _asked_bytes: u64) -> u64 {
            120 + 63
        }
    }

    #[test]
    fn a_filter_like_the_last_is_the_same_as_a_new_one() {
        let definitions = [(0.01, 100, 2), (0.01, 100, 0), (0.01, 101, 2), (0.25, 100, 2), (0.01, 3300, 0)];
        let fixed = |rate, capacity, expansion| filter(rate, capacity, expansion).spec();
        let like = |spec: &NativeSpec| PackedFilter::like_last(spec, 33, &Unlimited).unwrap();
        for (index, &(rate, capacity, expansion)) in definitions.iter().enumerate() {
            let mut last = filter(rate, capacity, expansion);
            (0..90_u32).for_each(|item| _ = last.add(&item.to_le_bytes(), &Unlimited));
            let _last = Owner::new(last);
            let hasher = Hasher::murmur3(8);
            for (other, &(rate, capacity, expansion)) in definitions.iter().enumerate() {
                let spec = NativeSpec { hasher, ..fixed(rate, capacity, expansion) };
                let owner = Owner(like(&spec));
                assert_eq!(owner.0.is_some(), other == index);
                if owner.0.is_some() {
                    assert_eq!(owner.packed().tag(), 33);
                    let plain = BloomFilter::with_spec(spec, &Unlimited).unwrap();
                    assert!(owner.read(|packed| *packed == plain && packed.contents() == plain.contents()));
                }
                let earlier = NativeSpec { policy: Policy::One, ..spec };
                assert!(earlier.policy == spec.policy || like(&earlier).is_none(), "another policy");
            }
            let spec = fixed(rate, capacity, expansion);
            assert!(PackedFilter::like_last(&spec, 33, &Full).is_err());
            let keyed = NativeSpec { hasher: Hasher::SipHash { key: [3; 16] }, ..spec };
            assert!(like(&keyed).is_none());
        }
    }

    #[test]
    fn a_filter_that_its_definition_does_not_describe_is_not_packed() {
        let fits = |filter: &BloomFilter| {
            assert_eq!(PackedFilter::fits(filter), PackedFilter::fits_new(filter), "{filter:?}");
            PackedFilter::fits(filter)
        };
        assert!(fits(&filter(0.01, 100, 2)) && fits(&filter(0.01, 3300, 0)) && fits(&filter(0.25, 9_000, 0)));
        let keyed = NativeSpec { hasher: Hasher::SipHash { key: [3; 16] }, ..filter(0.01, 100, 2).spec() };
        assert!(!fits(&BloomFilter::with_spec(keyed, &Unlimited).unwrap()));
        for (rate, capacity, expansion) in [(0.01, 1 << 16, 0), (0.01, 100, 256), (0.01, 5_000, 0), (1e-12, 1000, 0)] {
            assert!(!fits(&filter(rate, capacity, expansion)), "{rate} {capacity} {expansion}");
        }
        // A rate other than the definition's, and an older layer that is not full.
        let mut full = filter(0.01, 100, 2);
        (0..150_u32).for_each(|item| _ = full.add(&item.to_le_bytes(), &Unlimited));
        let described: Vec<_> = full.layers().iter().map(Layer::description).collect();
        assert!(PackedFilter::fits(&full));
        let changes: [fn(&mut LayerDescription<BlockedBits>); 3] =
            [|layer| layer.rate /= 2.0, |layer| layer.items -= 1, |layer| layer.capacity += 1];
        for change in changes {
            let mut layers = described.clone();
            change(layers.first_mut().unwrap());
            let other = BloomFilter::with_zero_bits(full.spec(), &layers, &Unlimited).unwrap();
            assert!(!PackedFilter::fits(&other));
        }
    }

    /// Lets adds be pending in every layer.
    struct Saving;

    impl Ceiling for Saving {
        fn available_bytes(&self, filter_bytes: u64, asked_bytes: u64) -> u64 {
            Unlimited.available_bytes(filter_bytes, asked_bytes)
        }

        fn pending_from_bytes(&self) -> Option<u64> {
            Some(0)
        }
    }

    #[test]
    fn it_has_no_room_for_pending_adds() {
        let mut owner = Owner::new(filter(0.01, 3300, 0));
        assert!(owner.read(BloomFilter::cells_bytes) > 3900, "nearly the largest");
        for item in 0..100_u32 {
            assert_eq!(owner.write(|filter| filter.add(&item.to_le_bytes(), &Saving)).unwrap(), Ok(true));
        }
    }

    /// Moves each block to another address.
    struct Elsewhere;

    const BLOCK: Layout = Layout::new::<[u8; 192]>();

    // SAFETY: the block is one of the global allocator, as those of the default filter.
    unsafe impl Mover for Elsewhere {
        fn moved(&mut self, block: NonNull<u8>) -> Option<NonNull<u8>> {
            // SAFETY: the block has this layout, and the caller gives it up.
            unsafe {
                let moved = NonNull::new(alloc(BLOCK))?;
                moved.copy_from_nonoverlapping(block, BLOCK.size());
                dealloc(block.as_ptr(), BLOCK);
                Some(moved)
            }
        }

        fn has_done_enough(&mut self) -> bool {
            false
        }
    }

    #[test]
    fn its_cells_move() {
        let mut plain = filter(0.01, 100, 2);
        (0..20_u32).for_each(|item| _ = plain.add(&item.to_le_bytes(), &Unlimited));
        if plain.layers().first().unwrap().cells().is_padded() {
            // Another allocator's blocks are larger.
            return;
        }
        let mut owner = Owner::new(plain.try_clone().unwrap());
        let before = owner.packed().cells[0].unwrap();
        assert!(owner.write(|filter| filter.relocate(0, &mut Elsewhere)).unwrap().is_none());
        assert!(owner.read(|filter| !filter.layers().first().unwrap().cells().owns(before) && *filter == plain));
    }

    #[test]
    fn it_takes_less_memory() {
        let mut plain = filter(0.01, 100, 2);
        let fields = |packed: &PackedFilter, filter: &BloomFilter| packed.allocated_bytes() - filter.cells_bytes();
        let owner = Owner::new(plain.try_clone().unwrap());
        assert!(fields(owner.packed(), &plain) <= 56 + 64 && plain.allocated_bytes() - plain.cells_bytes() >= 112);
        (0..1500_u32).for_each(|item| _ = plain.add(&item.to_le_bytes(), &Unlimited));
        assert_eq!(plain.layers().len(), 4);
        let owner = Owner::new(plain.try_clone().unwrap());
        assert!(fields(owner.packed(), &plain) <= 56 + 4 * 64);
    }
}
