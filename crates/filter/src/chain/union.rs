//! The union of chains whose layers have the same shapes, planned and checked as a whole before any bit changes.
//!
//! It exists for layers of bits only. Counters cannot be united, because the items that are in both chains are unknown.

use super::Chain;
use super::layer::{Layer, Layers, Totals};
use super::pending::{LayerView, histogram_of};
use super::rules::Rules;
use crate::cells::{Cells as _, Histogram, unite};
use crate::error::Error;
use crate::geometry::{Geometry as _, LayerDescription};
use crate::host::Ceiling;
use crate::memory::{reserve, rounding_bytes};

/// The planned result of a union. Carrying it out cannot fail.
pub(crate) struct Union<R: Rules> {
    /// Space for all layers.
    layers: Vec<Layer<R::Geometry>>,
    /// Empty layers that the chain lacks.
    lacking: Vec<Layer<R::Geometry>>,
    /// The number of items that each layer will have.
    items: Vec<Items>,
    /// The totals if each layer had its maximum number of items.
    totals: Totals,
}

/// Bounds for the number of items of a layer; equal if the number is known.
#[derive(Clone, Copy, Debug)]
struct Items {
    least: u64,
    most: u64,
}

impl Items {
    /// Returns the bounds for a union of layers with these numbers: at least the largest, at most their sum.
    fn of(counted: impl Iterator<Item = u64>) -> Self {
        counted.fold(Self { least: 0, most: 0 }, |Self { least, most }, items| Self {
            least: least.max(items),
            most: most.saturating_add(items),
        })
    }

    const fn is_known(self) -> bool {
        self.least == self.most
    }

    /// Returns the number, given an estimate from the bits.
    fn clamp_items(self, estimated: u64) -> u64 {
        estimated.min(self.most).max(self.least)
    }

    /// Limits the bounds to the capacity of a layer.
    fn at_most(self, capacity: u64) -> Self {
        Self { least: self.least.min(capacity), most: self.most.min(capacity) }
    }
}

impl<R: Rules> Union<R> {
    /// The size of the united chain, in bytes.
    pub(crate) const fn cells_bytes(&self) -> u64 {
        self.totals.cells_bytes
    }
}

impl<R: Rules> Chain<R> {
    /// Plans the union. Requests the missing layers from the ceiling and the allocator, and calls `check` with the number of
    /// items of each layer. If a layer could not hold the sum of its parts, reads their bits once and calls `estimate` for the
    /// number of distinct items. Does not change the chain.
    pub(crate) fn plan_union(
        &self,
        others: &[&Self],
        ceiling: &impl Ceiling,
        estimate: impl Fn(&LayerDescription<R::Geometry>, &Histogram) -> u64,
        check: impl Fn(&LayerDescription<R::Geometry>, u64) -> Result<(), Error>,
    ) -> Result<Union<R>, Error> {
        let layers = others.iter().map(|other| other.layers.len()).max().unwrap_or(0).max(self.layers.len());
        self.check_shapes(others)?;
        let lacking = self.make_lacking(others, layers, ceiling)?;
        let mut union = Union { layers: Vec::new(), lacking, items: Vec::new(), totals: self.layers.totals() };
        reserve(&mut union.layers, layers)?;
        reserve(&mut union.items, layers)?;

        let (mut bits, mut united) = (Vec::new(), Vec::new());
        reserve(&mut bits, others.len() + 1)?;
        reserve(&mut united, others.len() + 1)?;
        for index in 0..layers {
            let Some(description) = self.description(others, index) else { continue };
            united.clear();
            united.extend(self.and(others).filter_map(|chain| chain.layer_view(index)));
            let mut items = Items::of(united.iter().map(|layer: &LayerView<'_, _>| layer.layer().items()));
            if check(&description, items.most).is_err() {
                bits.clear();
                bits.extend(united.iter().map(|layer| layer.layer().bytes()));
                let counted = items.clamp_items(estimate(&description, &histogram_of(&united, &bits)));
                check(&description, counted)?;
                items = Items { least: counted, most: counted };
            }
            union.items.push(items.at_most(description.capacity));
        }
        let described = union.items.iter().enumerate().filter_map(|(index, items)| {
            Some(LayerDescription { items: items.most, ..self.description(others, index)? })
        });
        union.totals = Totals::of(described).map_err(|_| Error::CapacityOutOfRange)?;
        Ok(union)
    }

    /// Carries out the planned union, with the same chains and the same estimate. Reads all bits once, and writes the pages
    /// that get new bits. Writes the pending adds of the others; those of this chain stay pending. If there are any, reads the
    /// layer once more.
    pub(crate) fn unite(
        &mut self,
        planned: Union<R>,
        others: &[&Self],
        estimate: impl Fn(&LayerDescription<R::Geometry>, &Histogram) -> u64,
    ) {
        let Union { mut layers, mut lacking, items, totals } = planned;
        let own = self.layers.len();
        self.layers.move_into(&mut layers);
        layers.append(&mut lacking);
        self.layers = Layers::of(layers, totals);
        for (index, items) in items.into_iter().enumerate() {
            let estimated = self.unite_layer(index, others, index >= own, !items.is_known(), &estimate);
            if let Some(layer) = self.layers.get_mut(index) {
                layer.set_items(estimated.map_or(items.least, |estimated| items.clamp_items(estimated)));
            }
        }
        let older = self.layers.split_last().map_or(&[][..], |(_, older)| older);
        let older_items = older.iter().map(Layer::items).sum();
        self.layers.set_older_items(older_items);
    }

    /// Unites a layer with the same layer of the others. Returns the number of its items if it must be estimated.
    fn unite_layer(
        &mut self,
        index: usize,
        others: &[&Self],
        is_empty: bool,
        is_estimated: bool,
        estimate: impl Fn(&LayerDescription<R::Geometry>, &Histogram) -> u64,
    ) -> Option<u64> {
        let united = || others.iter().filter_map(|other| other.layer_view(index));
        let pends = self.layer_view(index).is_some_and(LayerView::pends) || united().any(LayerView::pends);
        let layer = self.layers.get_mut(index)?;
        let mut histogram = Histogram::empty();
        let counted = (is_estimated && !pends).then_some(&mut histogram);
        // Their shapes, and so their lengths, are equal.
        let bits = united().map(|layer| layer.layer().bytes());
        let _ = unite(layer.cells_mut().bytes_mut(), bits, is_empty, counted);
        united().for_each(|other| other.put_pending_into(layer));
        let description = layer.description();
        if is_estimated && pends {
            let whole = self.layer_view(index)?;
            histogram = histogram_of(&[whole], &[whole.layer().bytes()]);
        }
        is_estimated.then(|| estimate(&description, &histogram))
    }

    /// Returns this chain and the others.
    fn and<'a>(&'a self, others: &'a [&'a Self]) -> impl Iterator<Item = &'a Self> {
        std::iter::once(self).chain(others.iter().copied())
    }

    /// Returns the description of a layer from the first of the chains that has it.
    fn description(&self, others: &[&Self], index: usize) -> Option<LayerDescription<R::Geometry>> {
        self.and(others).find_map(|chain| chain.layers.get(index)).map(Layer::description)
    }

    fn check_shapes(&self, others: &[&Self]) -> Result<(), Error> {
        let shape = |layer: LayerDescription<R::Geometry>| LayerDescription { items: 0, ..layer };
        for other in others {
            for (index, layer) in other.layers.iter().enumerate() {
                if self.description(others, index).map(shape) != Some(shape(layer.description())) {
                    return Err(Error::Different);
                }
            }
        }
        Ok(())
    }

    /// Creates the layers that this chain lacks, up to this number.
    fn make_lacking(
        &self,
        others: &[&Self],
        layers: usize,
        ceiling: &impl Ceiling,
    ) -> Result<Vec<Layer<R::Geometry>>, Error> {
        let (own, mut made) = (self.layers.len(), Vec::new());
        if layers == own {
            return Ok(made);
        }
        if layers > R::LAYERS_MAX.min(ceiling.layers_max()) {
            return Err(Error::TooManyLayers);
        }
        let lacking = || (own..layers).filter_map(|index| self.description(others, index));
        let cells_bytes =
            lacking().fold(self.cells_bytes(), |bytes, layer| bytes.saturating_add(layer.geometry.size_bytes()));
        let size_bytes = if own == 0 { 0 } else { R::size_bytes(own, self.cells_bytes()) };
        let rounding = rounding_bytes(lacking().map(|layer| layer.geometry.size_bytes()));
        ceiling.allow_blocks(size_bytes, R::size_bytes(layers, cells_bytes).saturating_sub(size_bytes), rounding)?;
        reserve(&mut made, layers - own)?;
        for layer in lacking() {
            made.push(self.rules.empty_layer(&LayerDescription { items: 0, ..layer })?);
        }
        Ok(made)
    }
}
