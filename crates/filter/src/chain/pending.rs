//! Pending adds of a chain: adding, looking up, and flushing them into the cells; and a layer with its pending adds.

use std::ops::Range;

use super::Chain;
use super::adding::Added;
use super::extras::Pending;
use super::hash_set::HashSet;
use super::layer::Layer;
use super::lookup::exact_hashes;
use super::rules::{HashOf, Rules};
use crate::cells::Histogram;
use crate::error::Error;
use crate::geometry::estimate::FillEstimate;
use crate::geometry::{Geometry, SupportsPending};
use crate::hash::ItemHash;
use crate::host::Ceiling;
use crate::mask::{BATCH, Mask};
use crate::memory::{reserve, try_box};

/// Adding.
impl<R: Rules> Chain<R> {
    /// Whether it has pending adds.
    #[inline]
    pub(crate) fn pends(&self) -> bool {
        self.pending().is_some()
    }

    /// The number of bytes requested from the allocator for pending adds.
    #[inline]
    pub(crate) fn pending_bytes(&self) -> u64 {
        self.pending().map_or(0, Pending::allocated_bytes)
    }

    /// Whether the ceiling has room for all memory that the pending adds of the newest layer may still take. Otherwise the server would
    /// soon refuse the adds, or evict other keys for them.
    #[cold]
    #[inline(never)]
    pub(super) fn has_room_to_pend(&self, ceiling: &impl Ceiling) -> bool {
        let newest = self.layers.last().map_or(0, |newest| newest.geometry().size_bytes());
        ceiling.has_room_to_pend(Pending::growth(self.pending(), self.layers.len().saturating_sub(1), newest))
    }

    /// Adds an absent item to the newest layer, which must not be full; as a pending add if memory and the layer's set have
    /// room.
    #[cold]
    #[inline(never)]
    pub(super) fn insert_or_pend(&mut self, hash: HashOf<R>, probe: <R::Geometry as Geometry>::Probe, has_room: bool) {
        let layer = self.layers.len().saturating_sub(1);
        let Some(newest) = self.layers.last_mut() else { return };
        let most = Pending::capacity(newest.geometry().size_bytes());
        let hash = R::Geometry::to_pending(hash);
        let can_pend = has_room && newest.geometry().can_pend();
        let pends = can_pend
            && Self::reserve_extras(&mut self.extras)
                .is_ok_and(|extras| Pending::insert(&mut extras.pending, layer, hash, most));
        if !pends {
            newest.put(probe);
        }
        newest.count_one();
        if !pends {
            self.free_empty_extras();
        }
    }

    /// Continues a batch at `added.done`: adds the items of the mask `wanted` to the newest layer as pending adds if they are not
    /// found there. Returns whether the batch is done; if not, the item at `added.done` is new and the layer is full.
    #[cold]
    pub(super) fn add_or_pend_until_full(
        &mut self,
        hashes: &[HashOf<R>],
        wanted: Mask,
        added: &mut Added,
        ceiling: &impl Ceiling,
    ) -> bool {
        let has_room = self.has_room_to_pend(ceiling);
        let Some(newest) = self.layers.last() else { return true };
        newest.prefetch(hashes, wanted);
        self.prefetch_pending(hashes, wanted);
        let probes = newest.probes(hashes);
        for (index, (hash, probe)) in hashes.iter().zip(&probes).enumerate().skip(added.done) {
            let is_in = self.layers.last().is_none_or(|newest| newest.contains(*probe));
            if wanted.contains(index) && !is_in && !self.is_pending(*hash) {
                if self.layers.last().is_none_or(Layer::is_full) {
                    return false;
                }
                self.insert_or_pend(*hash, *probe, has_room);
                added.new.insert(index);
            }
            added.done = index + 1;
        }
        true
    }

    /// Flushes up to `most` pending adds into the cells, beginning with the oldest layer. Returns their number, 0 if none are
    /// left. Each costs up to two microseconds, because its page is rarely in the cache and the first write to a page after a
    /// fork is a page fault.
    pub(crate) fn flush_pending(&mut self, most: usize) -> usize {
        let mut merged = 0;
        while merged < most {
            let mut taken = [ItemHash::default(); BATCH];
            let room = taken.get_mut(..(most - merged).min(BATCH)).unwrap_or_default();
            let Some(extras) = &mut self.extras else { break };
            let Some((layer, count)) = Pending::take_some(&mut extras.pending, room) else { break };
            let Some(layer) = self.layers.get_mut(layer) else { break };
            let hashes = taken.map(R::Geometry::from_pending);
            layer.prefetch(&hashes, Mask::first(count));
            hashes.iter().take(count).for_each(|hash| layer.put(layer.probe(*hash)));
            merged += count;
        }
        self.free_empty_extras();
        merged
    }
}

/// Lookups.
impl<R: Rules> Chain<R> {
    /// Returns the items of the mask `wanted` that are `present` in the cells or pending in any layer.
    #[inline]
    pub(super) fn add_pending_hits(&self, hashes: &[HashOf<R>], wanted: Mask, present: Mask) -> Mask {
        match self.pending() {
            Some(pending) if present != wanted => present | Self::pending_batch(pending, hashes, wanted - present),
            _ => present,
        }
    }

    #[cold]
    fn pending_batch(pending: &Pending, hashes: &[HashOf<R>], wanted: Mask) -> Mask {
        pending.contains_batch(&exact_hashes::<R>(hashes), wanted)
    }

    /// Whether an add of this item is pending.
    #[inline]
    pub(super) fn is_pending(&self, hash: HashOf<R>) -> bool {
        self.pending().is_some_and(|pending| Self::pending_contains(pending, hash))
    }

    #[cold]
    #[inline(never)]
    fn pending_contains(pending: &Pending, hash: HashOf<R>) -> bool {
        pending.contains(R::Geometry::to_pending(hash))
    }

    /// Prefetches the parts of the pending adds that lookups of the items of the mask `wanted` read.
    #[inline]
    pub(super) fn prefetch_pending(&self, hashes: &[HashOf<R>], wanted: Mask) {
        if let Some(pending) = self.pending() {
            pending.prefetch(&exact_hashes::<R>(hashes), wanted);
        }
    }
}

impl<G: Geometry> Layer<G> {
    /// Whether new adds may become pending, given the smallest layer size for which the ceiling allows it.
    #[inline]
    pub(super) fn may_pend(&self, from_bytes: Option<u64>) -> bool {
        from_bytes.is_some_and(|from_bytes| self.geometry().size_bytes() >= from_bytes)
    }
}

// A layer together with its pending adds, for code that reads all of its cells: saving, copying, comparing, measuring and
// uniting. Such code reads copies of pieces that include the pending adds, and does not write the layer.

/// The size of a piece.
const PIECE_BYTES: usize = 64 * 1024;

/// A layer and its pending adds.
#[derive(Clone, Copy)]
pub(crate) struct LayerView<'a, G: SupportsPending> {
    layer: &'a Layer<G>,
    pending: Option<&'a HashSet>,
}

impl<R: Rules> Chain<R> {
    /// Returns a layer with its pending adds.
    pub(crate) fn layer_view(&self, index: usize) -> Option<LayerView<'_, R::Geometry>> {
        let pending = self.pending().and_then(|pending| pending.of(index));
        Some(LayerView { layer: self.layers.get(index)?, pending })
    }

    /// Returns all layers, oldest first, with their pending adds.
    pub(crate) fn layer_views(&self) -> impl Iterator<Item = LayerView<'_, R::Geometry>> {
        (0..).map_while(|index| self.layer_view(index))
    }
}

impl<'a, G: SupportsPending> LayerView<'a, G> {
    /// Returns the layer itself.
    pub(crate) const fn layer(self) -> &'a Layer<G> {
        self.layer
    }

    /// Whether it has pending adds.
    pub(crate) const fn pends(self) -> bool {
        self.pending.is_some()
    }

    /// Returns the pending adds that occupy any of these bytes of the cells, and possibly a few others.
    fn pending_in(self, bytes: Range<usize>) -> impl Iterator<Item = G::Hash> {
        let hashes = self.pending.into_iter().flat_map(move |pending| {
            let (first, last) = self.layer.geometry().h1_range(&bytes).into_inner();
            pending.between(first, last)
        });
        hashes.map(G::from_pending)
    }

    /// Whether pending adds occupy any of these bytes of the cells. May also be true if they occupy the next byte.
    pub(crate) fn has_pending_in(self, bytes: Range<usize>) -> bool {
        self.pending_in(bytes).next().is_some()
    }

    /// Writes the pending adds into a copy of the cells that begins at byte `begin`. Ignores cells outside.
    pub(crate) fn put_pending(self, copy: &mut [u8], begin: usize) {
        for hash in self.pending_in(begin..begin + copy.len()) {
            self.layer.geometry().insert_into_copy(copy, begin, self.layer.probe(hash));
        }
    }

    /// Writes the pending adds into the cells of another layer of the same shape.
    pub(super) fn put_pending_into(self, other: &mut Layer<G>) {
        if self.pends() {
            let all = 0..self.layer.bytes().len();
            self.pending_in(all).for_each(|hash| other.put(other.probe(hash)));
        }
    }

    /// Estimates how full the layer is. Reads at most 1 MiB of its cells.
    pub(crate) fn fill_estimate(self) -> FillEstimate {
        match self.pending {
            None => self.layer.fill_estimate(),
            Some(_) => self
                .layer
                .geometry()
                .fill_estimate_with(self.layer.cells(), |copy, begin| self.put_pending(copy, begin)),
        }
    }

    /// Whether another layer has the same cells.
    pub(super) fn has_cells_of(self, other: Self) -> bool {
        let (one, two) = (self.layer.bytes(), other.layer.bytes());
        if !self.pends() && !other.pends() {
            return one == two;
        }
        let (mut copy, mut other_copy) = ([0; PIECE_BYTES], [0; PIECE_BYTES]);
        let mut pieces = (0..one.len()).step_by(PIECE_BYTES);
        one.len() == two.len()
            && pieces.all(|begin| self.piece(begin, &mut copy) == other.piece(begin, &mut other_copy))
    }

    /// Returns a copy of the cells that begins at byte `begin`.
    fn piece(self, begin: usize, copy: &mut [u8; PIECE_BYTES]) -> &[u8] {
        let cells = self.layer.bytes().get(begin..).unwrap_or_default();
        let length = cells.len().min(PIECE_BYTES);
        let (Some(copy), Some(cells)) = (copy.get_mut(..length), cells.get(..length)) else { return &[] };
        copy.copy_from_slice(cells);
        self.put_pending(copy, begin);
        copy
    }
}

/// Returns the histogram of the union of layers of one shape. `bits`: their cells.
pub(super) fn histogram_of<G: SupportsPending>(layers: &[LayerView<'_, G>], bits: &[&[u8]]) -> Histogram {
    if !layers.iter().any(|layer| layer.pends()) {
        return Histogram::of_unions(bits);
    }
    let (mut histogram, mut union, mut more) = (Histogram::empty(), [0; PIECE_BYTES], [0; PIECE_BYTES]);
    let length = bits.first().map_or(0, |first| first.len());
    for begin in (0..length).step_by(PIECE_BYTES) {
        union.fill(0);
        for layer in layers {
            union.iter_mut().zip(layer.piece(begin, &mut more)).for_each(|(byte, more)| *byte |= more);
        }
        histogram.count(union.get(..PIECE_BYTES.min(length - begin)).unwrap_or_default());
    }
    histogram
}

/// Looks up items in the cells of a chain with the pending adds included, as in the cells of its replicas. Items must be in
/// ascending order of their hashes, so that each piece of a layer with pending adds is copied once.
pub(crate) struct CellsReader<'a, R: Rules> {
    chain: &'a Chain<R>,
    /// One for each layer with pending adds.
    pieces: Vec<Piece<'a, R::Geometry>>,
}

/// The piece of a layer that was read last.
struct Piece<'a, G: SupportsPending> {
    layer: LayerView<'a, G>,
    begin: Option<usize>,
    copy: Box<[u8; PIECE_BYTES]>,
}

impl<'a, R: Rules> CellsReader<'a, R> {
    /// Creates a reader before the first item.
    pub(crate) fn new(chain: &'a Chain<R>) -> Result<Self, Error> {
        let mut pieces = Vec::new();
        let layers = (0..chain.layers.len()).filter_map(|index| chain.layer_view(index));
        for layer in layers.filter(|layer| layer.pends()) {
            reserve(&mut pieces, 1)?;
            pieces.push(Piece { layer, begin: None, copy: try_box([0; PIECE_BYTES])? });
        }
        Ok(Self { chain, pieces })
    }

    /// Returns the items of a batch that are in the cells.
    pub(crate) fn has_cells_batch(&mut self, hashes: &[HashOf<R>]) -> Mask {
        let mut found = self.chain.has_cells_batch(hashes);
        for piece in &mut self.pieces {
            for (item, hash) in (Mask::first(hashes.len()) - found).each_of(hashes) {
                found |= item.only_if(piece.has(hash));
            }
        }
        found
    }
}

impl<G: SupportsPending> Piece<'_, G> {
    fn has(&mut self, hash: G::Hash) -> bool {
        let probe = self.layer.layer.probe(hash);
        let geometry = self.layer.layer.geometry();
        let Some(byte) = geometry.offset_of(probe) else { return false };
        let begin = byte / PIECE_BYTES * PIECE_BYTES;
        if self.begin != Some(begin) {
            self.layer.piece(begin, &mut self.copy);
            self.begin = Some(begin);
        }
        geometry.copy_contains(&*self.copy, begin, probe)
    }
}
