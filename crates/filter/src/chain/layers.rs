//! The layers of a chain with their totals. Most filters have one layer. It is stored in place, which saves a list, an allocation, and
//! totals that equal the fields of the layer.

use std::mem::replace;
use std::ops::{Deref, DerefMut};

use super::layer::Layer;
use super::totals::Totals;
use crate::cells::{Mover, relocate_elements};
use crate::error::Error;
use crate::geometry::Geometry;
use crate::memory::reserve;

/// The layers of a chain, oldest first, as a slice.
#[derive(Debug)]
pub(super) enum Layers<G: Geometry> {
    /// A single layer.
    One(Layer<G>),
    /// Any other number of layers.
    Many { list: Vec<Layer<G>>, totals: Totals },
}

impl<G: Geometry> Layers<G> {
    /// No layers.
    pub(super) const NONE: Self = Self::Many { list: Vec::new(), totals: Totals::NONE };

    /// Returns no layers, with room for this number of them.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn with_room(layers: usize) -> Result<Self, Error> {
        let mut list = Vec::new();
        if layers > 1 {
            reserve(&mut list, layers)?;
        }
        Ok(Self::Many { list, totals: Totals::NONE })
    }

    /// Returns these layers, whose totals are known.
    pub(super) fn of(mut list: Vec<Layer<G>>, totals: Totals) -> Self {
        let only = if list.len() == 1 { list.pop() } else { None };
        match only {
            Some(layer) => Self::One(layer),
            None => Self::Many { list, totals },
        }
    }

    /// The totals of the layers.
    #[inline]
    pub(super) fn totals(&self) -> Totals {
        match self {
            Self::One(layer) => {
                let cells_bytes = layer.geometry().size_bytes();
                Totals { older_items: 0, capacity: layer.capacity(), cells_bytes }
            }
            Self::Many { totals, .. } => *totals,
        }
    }

    /// Sets the number of items of all layers except the newest. A single layer has no others.
    pub(super) const fn set_older_items(&mut self, items: u64) {
        if let Self::Many { totals, .. } = self {
            totals.older_items = items;
        }
    }

    /// Appends a layer, or changes nothing. `totals` are those of the layers with it.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn push(&mut self, layer: Layer<G>, totals: Totals) -> Result<(), Error> {
        if let Self::Many { list, totals: known } = self {
            if list.capacity() == 0 {
                *self = Self::One(layer);
                return Ok(());
            }
            if list.len() == list.capacity() {
                // A short list grows by one, because it counts as memory of the filter. A long one grows by an eighth, so that it
                // is not copied for every layer.
                let more = 1.max(list.len() / 8);
                reserve(list, more)?;
            }
            list.push(layer);
            *known = totals;
            return Ok(());
        }
        let mut list = Vec::new();
        reserve(&mut list, 2)?;
        self.move_into(&mut list);
        list.push(layer);
        *self = Self::of(list, totals);
        Ok(())
    }

    /// Appends the layers to a list that has room for them, and leaves none.
    pub(super) fn move_into(&mut self, list: &mut Vec<Layer<G>>) {
        match replace(self, Self::NONE) {
            Self::One(layer) => list.push(layer),
            Self::Many { list: mut layers, .. } => list.append(&mut layers),
        }
    }

    /// The number of bytes requested from the allocator for the list.
    pub(super) const fn list_bytes(&self) -> usize {
        match self {
            Self::One(_) => 0,
            Self::Many { list, .. } => list.capacity() * size_of::<Layer<G>>(),
        }
    }

    /// Lets the mover move the list, but not the cells.
    pub(super) fn relocate_list(&mut self, mover: &mut impl Mover) {
        if let Self::Many { list, .. } = self {
            relocate_elements(list, mover);
        }
    }
}

impl<G: Geometry> Deref for Layers<G> {
    type Target = [Layer<G>];

    #[inline]
    fn deref(&self) -> &[Layer<G>] {
        match self {
            Self::One(layer) => std::slice::from_ref(layer),
            Self::Many { list, .. } => list,
        }
    }
}

impl<G: Geometry> DerefMut for Layers<G> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Layer<G>] {
        match self {
            Self::One(layer) => std::slice::from_mut(layer),
            Self::Many { list, .. } => list,
        }
    }
}
