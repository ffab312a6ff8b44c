//! What a key holds: a filter of one of the layouts. Everything that callers need of all of them goes through here; what only
//! one has, they match for.

use super::bits::try_box;
use super::ceiling::Ceiling;
use super::chain::{Added, Chain};
use super::description::Scaling;
use super::error::Error;
use super::layer::Layer;
use super::layout::{Layout as _, Rules};
use super::native::BloomFilter;
use super::redisbloom::RedisBloomFilter;
use super::relocate::{self, Mover};
use super::valkey_bloom::ValkeyBloomFilter;

/// A filter of any layout.
#[derive(Debug, PartialEq)]
pub enum Filter {
    /// Of our own.
    Native(BloomFilter),
    /// Of RedisBloom's.
    RedisBloom(RedisBloomFilter),
    /// Of valkey-bloom's. Its rules are larger than the others', which need not pay for that.
    ValkeyBloom(Box<ValkeyBloomFilter>),
}

impl From<BloomFilter> for Filter {
    fn from(filter: BloomFilter) -> Self {
        Self::Native(filter)
    }
}

impl From<RedisBloomFilter> for Filter {
    fn from(filter: RedisBloomFilter) -> Self {
        Self::RedisBloom(filter)
    }
}

/// Where there is no memory for the box, the process ends: [`Filter::boxed`] refuses.
impl From<ValkeyBloomFilter> for Filter {
    fn from(filter: ValkeyBloomFilter) -> Self {
        Self::ValkeyBloom(Box::new(filter))
    }
}

/// What there is to tell of a layer, whatever its layout.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerSummary {
    /// Size of the bits, in bytes.
    pub size_bytes: u64,
    /// Number of bits that items can have: a position is below it.
    pub bits: u64,
    /// Number of bits of an item, k.
    pub hashes: u32,
    /// The number of items that it is made for.
    pub capacity: u64,
    /// The number of items that were added to it.
    pub items: u64,
    /// Its own false positive rate.
    pub rate: f64,
}

/// What there is to count of a filter, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// What it is made of, in bytes; see [`Chain::size_bytes`].
    pub size_bytes: u64,
    /// Number of layers.
    pub layers: u64,
    /// Number of items that were added.
    pub items: u64,
    /// Number of items that the layers are made for.
    pub capacity: u64,
}

impl Contents {
    /// What a filter has more than when it had so many layers, items aside. Visits the layers behind them.
    fn since<R: Rules>(filter: &Chain<R>, layers: usize) -> Self {
        let new = filter.layers().get(layers..).unwrap_or_default();
        let sum = |number: fn(&Layer<R::Layout>) -> u64| new.iter().map(number).fold(0, u64::saturating_add);
        let bits_bytes = sum(|layer| layer.geometry().size_bytes());
        Self {
            size_bytes: filter.size_bytes().saturating_sub(filter.size_bytes_before(layers, bits_bytes)),
            layers: new.len() as u64,
            items: 0,
            capacity: sum(Layer::capacity),
        }
    }

    /// Of a filter.
    #[must_use]
    pub fn of<R: Rules>(filter: &Chain<R>) -> Self {
        Self {
            size_bytes: filter.size_bytes(),
            layers: filter.layers().len() as u64,
            items: filter.items(),
            capacity: filter.total_capacity(),
        }
    }
}

/// The same expression for the filter inside, whatever its layout.
macro_rules! inside {
    ($filter:expr, $inner:ident => $expression:expr) => {
        match $filter {
            Filter::Native($inner) => $expression,
            Filter::RedisBloom($inner) => $expression,
            Filter::ValkeyBloom($inner) => $expression,
        }
    };
}

impl Filter {
    /// What is left where a filter was taken out: no layers, no bits. It holds nothing and takes nothing.
    pub(crate) const fn nothing() -> Self {
        Self::Native(BloomFilter::nothing())
    }

    /// A filter of valkey-bloom's layout.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where the allocator refuses.
    pub fn boxed(filter: ValkeyBloomFilter) -> Result<Self, Error> {
        try_box(filter).map(Self::ValkeyBloom)
    }

    /// A filter with the same fields and bits.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where the allocator refuses.
    pub fn try_clone(&self) -> Result<Self, Error> {
        match self {
            Self::Native(filter) => filter.try_clone().map(Self::Native),
            Self::RedisBloom(filter) => filter.try_clone().map(Self::RedisBloom),
            Self::ValkeyBloom(filter) => Self::boxed(filter.try_clone()?),
        }
    }

    /// The false positive rate that was asked for.
    #[must_use]
    pub fn rate(&self) -> f64 {
        match self {
            Self::Native(filter) => filter.rate(),
            Self::RedisBloom(filter) => filter.rate(),
            Self::ValkeyBloom(filter) => filter.rules().rate,
        }
    }

    /// What becomes of it when it is full.
    #[must_use]
    pub fn scaling(&self) -> Scaling {
        inside!(self, filter => filter.scaling())
    }

    /// Number of layers.
    #[must_use]
    pub fn layer_count(&self) -> usize {
        inside!(self, filter => filter.layers().len())
    }

    /// The layers behind the first `skipped`, oldest first.
    pub fn layers_behind(&self, skipped: usize) -> impl Iterator<Item = LayerSummary> {
        (skipped..self.layer_count()).filter_map(|index| inside!(self, filter => summary(filter, index)))
    }

    /// The number of items that all its layers together are made for.
    #[must_use]
    pub fn total_capacity(&self) -> u64 {
        inside!(self, filter => filter.total_capacity())
    }

    /// The number of items that were added: the adds that were answered "new".
    #[must_use]
    pub fn items(&self) -> u64 {
        inside!(self, filter => filter.items())
    }

    /// The number of items that can be added before it is full or grows.
    #[must_use]
    pub fn room(&self) -> u64 {
        inside!(self, filter => filter.room())
    }

    /// Bytes that were asked of the allocator, the filter's own fields included.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        let own = size_of::<Self>();
        inside!(self, filter => (filter.allocated_bytes() + own as u64) - size_of_val(filter) as u64)
    }

    /// What it is made of, in bytes; see [`Chain::size_bytes`].
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        inside!(self, filter => filter.size_bytes())
    }

    /// What there is to count of it.
    #[must_use]
    pub fn contents(&self) -> Contents {
        inside!(self, filter => Contents::of(filter))
    }

    /// What it has more than when it had so many layers, items aside.
    #[must_use]
    pub fn grown_since(&self, layers: usize) -> Contents {
        inside!(self, filter => Contents::since(filter, layers))
    }

    /// Lets the mover move its memory, from layer number `first` on; see [`Chain::relocate`].
    pub fn relocate(&mut self, first: usize, mover: &mut impl Mover) -> Option<usize> {
        if let (0, Self::ValkeyBloom(filter)) = (first, &mut *self) {
            relocate::boxed(filter, mover);
        }
        inside!(self, filter => filter.relocate(first, mover))
    }

    /// Whether an item may have been added; see [`Chain::contains`].
    #[must_use]
    pub fn contains(&self, item: &[u8]) -> bool {
        inside!(self, filter => filter.contains(item))
    }

    /// Adds an item; answers whether it was new. See [`Chain::add`].
    ///
    /// # Errors
    /// As there.
    pub fn add(&mut self, item: &[u8], ceiling: &impl Ceiling) -> Result<bool, Error> {
        inside!(self, filter => filter.add(item, ceiling))
    }

    /// Looks up to [`BATCH`](super::BATCH) items up together; see [`Chain::contains_batch`].
    pub fn contains_batch<'a>(&self, items: impl IntoIterator<Item = &'a [u8]>) -> u32 {
        inside!(self, filter => filter.contains_batch(&filter.hash_batch(items)))
    }

    /// Adds up to [`BATCH`](super::BATCH) items together; see [`Chain::add_batch`].
    pub fn add_batch<'a>(&mut self, items: impl IntoIterator<Item = &'a [u8]>, ceiling: &impl Ceiling) -> Added {
        inside!(self, filter => {
            let hashes = filter.hash_batch(items);
            filter.add_batch(&hashes, ceiling)
        })
    }
}

fn summary<R: Rules>(filter: &Chain<R>, index: usize) -> Option<LayerSummary> {
    filter.layers().get(index).map(|layer| LayerSummary {
        size_bytes: layer.geometry().size_bytes(),
        bits: layer.geometry().modulus(),
        hashes: layer.geometry().hashes(),
        capacity: layer.capacity(),
        items: layer.items(),
        rate: layer.rate(),
    })
}
