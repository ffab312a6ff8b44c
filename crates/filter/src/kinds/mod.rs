//! The kinds of filters. Each has a file or a folder with its rules, its snapshot, its dump, the command that creates it and its
//! statistics. Only this file and `spec.rs` match on the kind: [`Spec`] defines a filter of any kind, [`Filter`] is one.

pub mod chunked;
mod counting;
mod cuckoo;
pub mod effect;
pub mod info;
pub(crate) mod native;
mod packed;
pub(crate) mod parts;
pub mod plan;
pub mod redisbloom;
pub mod redisbloom_cuckoo;
mod request;
mod spec;
pub mod stats;
pub mod valkey_bloom;
pub(crate) mod windowed;

pub use crate::chain::{Added, Contents, Origin, Outcome, Removed};
pub use chunked::ChunkArrival;
pub use counting::{CountingFilter, CountingSpec};
pub use cuckoo::{CuckooFilter, CuckooSpec};
pub use native::{BloomFilter, NativeSpec, clamp_rate};
pub use packed::{PackedFilter, TAGS};
pub use redisbloom::{RedisBloomFilter, RedisBloomSpec};
pub use redisbloom_cuckoo::{RedisBloomCuckooFilter, RedisBloomCuckooSpec};
pub use request::{Defaults, HashName, LayoutName, Request, Seed};
pub use spec::{Difference, Spec};
pub use valkey_bloom::{ValkeyBloomFilter, ValkeyBloomSpec};
pub use windowed::{BucketStart, Retention, WindowedFilter, WindowedSpec};

use crate::cells::{Mover, relocate_boxed};
use crate::chain::AddRules;
use crate::error::Error;
use crate::geometry::sizing::Scaling;
use crate::host::{Ceiling, Clock};
use crate::mask::Mask;
use crate::memory::try_box;
use stats::{LayerSummary, Measured, Stats};

/// A filter of any kind.
///
/// ```
/// use bloomgate_filter::kinds::{Retention, Origin, Outcome, WindowedSpec};
/// use bloomgate_filter::{Filter, Moment, Scaling, Spec, Unlimited, hash::Hasher};
///
/// // Remembers items for at least a minute, in 7 buckets of 10 seconds.
/// let spec = Spec::Windowed(WindowedSpec {
///     rate: 0.01,
///     capacity: 1000,
///     scaling: Scaling::from_expansion(2),
///     hasher: Hasher::murmur3(42),
///     forgets: Retention::After { seconds: 60, is_sliding: false },
///     buckets: 7,
/// });
/// let mut filter = Filter::new(&spec, &Unlimited)?;
///
/// // The caller owns the clock, and begins a bucket whenever one is due.
/// let begin = Moment(1_767_225_600_000);
/// let ring = filter.windowed_mut().unwrap();
/// let start = ring.bucket_due(begin).unwrap();
/// ring.begin_bucket(start, &Unlimited)?;
///
/// assert_eq!(filter.add(b"an item", Origin::Client, &begin, &Unlimited), Ok(Outcome::New));
/// assert!(filter.contains(b"an item", &Moment(begin.0 + 60_000)));
/// assert!(!filter.contains(b"an item", &Moment(begin.0 + 70_000)));
/// # Ok::<(), bloomgate_filter::Error>(())
/// ```
#[derive(Debug, PartialEq)]
pub enum Filter {
    /// The native layout.
    Native(BloomFilter),
    /// A filter that forgets, boxed because it has many more fields than the others.
    Windowed(Box<WindowedFilter>),
    /// The native layout with counters in place of bits.
    Counting(CountingFilter),
    /// Our own layout of a cuckoo filter, boxed because its definition has more fields than the others'.
    Cuckoo(Box<CuckooFilter>),
    /// RedisBloom's layout.
    RedisBloom(RedisBloomFilter),
    /// valkey-bloom's layout, boxed because its rules are larger than the others.
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

/// Aborts the process if there is no memory for the box. [`Filter::boxed`] returns an error instead.
impl From<ValkeyBloomFilter> for Filter {
    fn from(filter: ValkeyBloomFilter) -> Self {
        Self::ValkeyBloom(Box::new(filter))
    }
}

/// Evaluates one expression for a filter that is a chain, and another for a ring of chains.
macro_rules! match_kind {
    ($filter:expr, $chain:ident => $of_chain:expr, $ring:ident => $of_ring:expr) => {
        match $filter {
            Filter::Native($chain) => $of_chain,
            Filter::Windowed($ring) => $of_ring,
            Filter::Counting($chain) => $of_chain,
            Filter::RedisBloom($chain) => $of_chain,
            Filter::Cuckoo(boxed) => {
                let $chain = &**boxed;
                $of_chain
            }
            Filter::ValkeyBloom(boxed) => {
                let $chain = &**boxed;
                $of_chain
            }
        }
    };
    (mut $filter:expr, $chain:ident => $of_chain:expr, $ring:ident => $of_ring:expr) => {
        match $filter {
            Filter::Native($chain) => $of_chain,
            Filter::Windowed($ring) => $of_ring,
            Filter::Counting($chain) => $of_chain,
            Filter::RedisBloom($chain) => $of_chain,
            Filter::Cuckoo(boxed) => {
                let $chain = &mut **boxed;
                $of_chain
            }
            Filter::ValkeyBloom(boxed) => {
                let $chain = &mut **boxed;
                $of_chain
            }
        }
    };
}

/// Evaluates the same for a single item, where a call is a measurable cost. A native filter, the usual case, is handled inline.
/// The others are handled by a call, so that their code uses no registers here.
macro_rules! match_kind_inline {
    ($filter:expr, $chain:ident => $of_chain:expr, $ring:ident => $of_ring:expr) => {
        match $filter {
            Filter::Native($chain) => $of_chain,
            others => outlined(move || match_kind!(others, $chain => $of_chain, $ring => $of_ring)),
        }
    };
    (mut $filter:expr, $chain:ident => $of_chain:expr, $ring:ident => $of_ring:expr) => {
        match $filter {
            Filter::Native($chain) => $of_chain,
            others => outlined(move || match_kind!(mut others, $chain => $of_chain, $ring => $of_ring)),
        }
    };
}

#[inline(never)]
fn outlined<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// Creation and properties.
impl Filter {
    /// Creates an empty filter. Takes microseconds, whatever the size.
    pub fn new(spec: &Spec, ceiling: &impl Ceiling) -> Result<Self, Error> {
        match spec {
            Spec::Native(spec) => BloomFilter::with_spec(*spec, ceiling).map(Self::Native),
            Spec::Windowed(spec) => try_box(WindowedFilter::with_spec(*spec, ceiling)?).map(Self::Windowed),
            Spec::Counting(spec) => CountingFilter::with_spec(*spec, ceiling).map(Self::Counting),
            Spec::Cuckoo(spec) => try_box(CuckooFilter::with_spec(*spec, ceiling)?).map(Self::Cuckoo),
            Spec::RedisBloom(spec) => RedisBloomFilter::with_spec(*spec, ceiling).map(Self::RedisBloom),
            Spec::ValkeyBloom(spec) => ValkeyBloomFilter::with_spec(*spec, ceiling).and_then(Self::boxed),
        }
    }

    /// Creates an empty filter as the primary that replicated its creation did, which may be RedisBloom: it accepts any capacity.
    pub fn carried(spec: &Spec, ceiling: &impl Ceiling) -> Result<Self, Error> {
        match spec {
            Spec::RedisBloom(spec) => RedisBloomFilter::carried(*spec, ceiling).map(Self::RedisBloom),
            Spec::Native(_) | Spec::Windowed(_) | Spec::Counting(_) | Spec::Cuckoo(_) | Spec::ValkeyBloom(_) => {
                Self::new(spec, ceiling)
            }
        }
    }

    /// Creates a filter without layers, to stand in for one that was moved out. It contains nothing and refuses every add.
    pub(crate) const fn nothing() -> Self {
        Self::Native(BloomFilter::nothing())
    }

    /// Boxes a filter of valkey-bloom's layout.
    pub fn boxed(filter: ValkeyBloomFilter) -> Result<Self, Error> {
        try_box(filter).map(Self::ValkeyBloom)
    }

    /// Returns a copy with the same fields and bits.
    pub fn try_clone(&self) -> Result<Self, Error> {
        match self {
            Self::Native(filter) => filter.try_clone().map(Self::Native),
            Self::Windowed(filter) => try_box(filter.try_clone()?).map(Self::Windowed),
            Self::Counting(filter) => filter.try_clone().map(Self::Counting),
            Self::Cuckoo(filter) => try_box(filter.try_clone()?).map(Self::Cuckoo),
            Self::RedisBloom(filter) => filter.try_clone().map(Self::RedisBloom),
            Self::ValkeyBloom(filter) => Self::boxed(filter.try_clone()?),
        }
    }

    /// Returns an empty filter with the same definition. One with a window then has no bucket. Takes microseconds, whatever the
    /// size, and asks no ceiling, because it replaces this filter.
    pub fn emptied(&self) -> Result<Self, Error> {
        match self {
            Self::Native(filter) => filter.emptied().map(Self::Native),
            Self::Windowed(filter) => try_box(filter.emptied()?).map(Self::Windowed),
            Self::Counting(filter) => filter.emptied().map(Self::Counting),
            Self::Cuckoo(filter) => try_box(filter.emptied()?).map(Self::Cuckoo),
            Self::RedisBloom(filter) => filter.emptied().map(Self::RedisBloom),
            Self::ValkeyBloom(filter) => Self::boxed(filter.emptied()?),
        }
    }

    /// Returns the filter if its kind can be merged.
    pub const fn mergeable(&self) -> Result<&BloomFilter, Error> {
        if let Self::Native(filter) = self { Ok(filter) } else { Err(Error::CannotMerge) }
    }

    /// Its definition.
    pub fn spec(&self) -> Spec {
        match self {
            Self::Native(filter) => Spec::Native(filter.spec()),
            Self::Windowed(filter) => Spec::Windowed(filter.spec()),
            Self::Counting(filter) => Spec::Counting(filter.spec()),
            Self::Cuckoo(filter) => Spec::Cuckoo(*filter.rules()),
            Self::RedisBloom(filter) => Spec::RedisBloom(filter.spec()),
            Self::ValkeyBloom(filter) => Spec::ValkeyBloom(filter.spec()),
        }
    }

    /// Its behavior when full.
    pub fn scaling(&self) -> Scaling {
        match_kind!(self, chain => chain.scaling(), ring => ring.spec().scaling)
    }

    /// The number of layers.
    #[inline]
    pub fn layer_count(&self) -> usize {
        match_kind_inline!(self, chain => chain.layers().len(), ring => ring.layer_count())
    }

    /// The layers, oldest first.
    pub fn layers(&self) -> impl Iterator<Item = LayerSummary> {
        (0..).map_while(|index| {
            match_kind!(self,
                chain => chain.layers().get(index).map(LayerSummary::of),
                ring => ring.layer(index).map(LayerSummary::of))
        })
    }

    /// The capacity of all layers together.
    pub fn total_capacity(&self) -> u64 {
        self.contents().capacity
    }

    /// The number of adds that were answered "new", less the items that have been deleted.
    pub fn items(&self) -> u64 {
        self.contents().items
    }

    /// The number of items that can be added before it is full or grows.
    pub fn remaining_capacity(&self) -> u64 {
        // Every layer of a cuckoo filter takes items.
        if let Self::Cuckoo(filter) = self {
            let Contents { items, capacity, .. } = filter.contents();
            return capacity.saturating_sub(items);
        }
        match_kind!(self, chain => chain.remaining_capacity(), ring => ring.remaining_capacity())
    }

    /// The size in bytes that BF.INFO shows: of the cells, and of the fields as the first release had them.
    pub fn size_bytes(&self) -> u64 {
        self.contents().size_bytes
    }

    /// Its counts.
    #[inline]
    pub fn contents(&self) -> Contents {
        if let Self::Native(filter) = self {
            return filter.contents();
        }
        // Destructured, so that the counts of a native filter stay in registers.
        let Contents { size_bytes, layers, items, capacity, pending_bytes } =
            outlined(|| match_kind!(self, chain => chain.contents(), ring => ring.contents()));
        Contents { size_bytes, layers, items, capacity, pending_bytes }
    }

    /// The counts of the layers that lookups visit now, without expired buckets.
    pub fn live_contents(&self, clock: &impl Clock) -> Contents {
        match self {
            Self::Windowed(filter) => filter.live_contents(clock.now()),
            _ => self.contents(),
        }
    }

    /// Returns the ring of a filter that forgets.
    #[inline]
    pub fn windowed(&self) -> Option<&WindowedFilter> {
        if let Self::Windowed(filter) = self { Some(filter) } else { None }
    }

    /// Returns the ring of a filter that forgets, for writing.
    #[inline]
    pub fn windowed_mut(&mut self) -> Option<&mut WindowedFilter> {
        if let Self::Windowed(filter) = self { Some(filter) } else { None }
    }

    /// Returns a counting filter.
    pub const fn counting(&self) -> Option<&CountingFilter> {
        if let Self::Counting(filter) = self { Some(filter) } else { None }
    }

    /// Returns a cuckoo filter.
    pub fn cuckoo(&self) -> Option<&CuckooFilter> {
        if let Self::Cuckoo(filter) = self { Some(filter) } else { None }
    }

    /// Returns how often a filter that counts its adds contains an item; `None` if it does not count them. From 15 on, in a cuckoo filter
    /// from 4, it means that or more.
    pub fn count(&self, item: &[u8]) -> Option<u64> {
        match self {
            Self::Counting(filter) => Some(filter.count(item).into()),
            Self::Cuckoo(filter) => Some(filter.count(item)),
            _ => None,
        }
    }

    /// The number of bytes taken from the allocator, including the filter's own fields. Visits every layer.
    pub fn allocated_bytes(&self) -> u64 {
        let own = size_of::<Self>() as u64;
        match self {
            Self::Cuckoo(filter) => return filter.allocated_bytes() + own,
            Self::ValkeyBloom(filter) => return filter.allocated_bytes() + own,
            _ => {}
        }
        match_kind!(self,
            chain => chain.allocated_bytes() + own - size_of_val(chain) as u64,
            ring => ring.allocated_bytes() + own)
    }

    /// Flushes up to `most` pending adds into the cells. Returns how many: 0 if none are left. Each costs up to two
    /// microseconds.
    pub fn flush_pending(&mut self, most: usize) -> usize {
        match_kind!(mut self, chain => chain.flush_pending(most), ring => ring.flush_pending(most))
    }

    /// Moves its memory, starting at place number `first`. Returns the place to continue with if the mover stops before the last.
    pub fn relocate(&mut self, first: usize, mover: &mut impl Mover) -> Option<usize> {
        match (first, &mut *self) {
            (0, Self::Cuckoo(filter)) => relocate_boxed(filter, mover),
            (0, Self::ValkeyBloom(filter)) => relocate_boxed(filter, mover),
            _ => {}
        }
        match_kind!(mut self, chain => chain.relocate(first, mover), ring => ring.relocate(first, mover))
    }
}

/// Adds and lookups.
impl Filter {
    /// Whether an item may be present; `false` is certain.
    #[inline]
    pub fn contains(&self, item: &[u8], clock: &impl Clock) -> bool {
        match_kind_inline!(self, chain => chain.contains(item), ring => ring.contains(item, clock.now()))
    }

    /// Adds an item.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::TooManyLayers`], [`Error::CapacityOutOfRange`], [`Error::AboveCeiling`],
    /// [`Error::OutOfMemory`]. The filter is unchanged then.
    #[inline]
    pub fn add(
        &mut self,
        item: &[u8],
        origin: Origin,
        clock: &impl Clock,
        ceiling: &impl Ceiling,
    ) -> Result<Outcome, Error> {
        match_kind_inline!(mut self,
            chain => AddRules::add_one(chain, chain.hash(item), origin, ceiling),
            ring => ring.add(item, false, origin, clock.now(), ceiling))
    }

    /// Looks up the next items together, up to [`BATCH`](crate::BATCH). Returns the ones that may be present.
    #[inline]
    pub fn contains_batch<'a>(&self, items: impl IntoIterator<Item = &'a [u8]>, clock: &impl Clock) -> Mask {
        match_kind!(self,
            chain => chain.contains_batch(&chain.hash_batch(items)),
            ring => ring.contains_batch(&ring.hash_batch(items), clock.now()))
    }

    /// Adds the next items together, in order, up to [`BATCH`](crate::BATCH).
    #[inline]
    pub fn add_batch<'a>(
        &mut self,
        items: impl IntoIterator<Item = &'a [u8]>,
        origin: Origin,
        clock: &impl Clock,
        ceiling: &impl Ceiling,
    ) -> Added {
        match_kind!(mut self,
            chain => AddRules::add_batch(chain, &chain.hash_batch(items), origin, ceiling),
            ring => ring.add_batch(&ring.hash_batch(items), false, origin, clock.now(), ceiling))
    }
}

/// Deletes.
impl Filter {
    /// Deletes the next items, up to [`BATCH`](crate::BATCH), in order, with the answers of deleting them one by one. Applies
    /// an effect without a lookup. For no items, answers whether the filter supports deletes.
    pub fn remove_batch<'a>(
        &mut self,
        items: impl IntoIterator<Item = &'a [u8]>,
        origin: Origin,
        clock: &impl Clock,
        ceiling: &impl Ceiling,
    ) -> Removed {
        match_kind!(mut self,
            chain => AddRules::remove_batch(chain, &chain.hash_batch(items), origin, ceiling),
            ring => ring.remove_batch(&ring.hash_batch(items), origin, clock.now(), ceiling))
    }
}

/// Statistics.
impl Filter {
    /// Returns the statistics for BF.STATS. Reads at most 1 MiB of each layer.
    pub fn stats(&self, clock: &impl Clock) -> Result<Stats, Error> {
        let mut measured = Measured::default();
        match_kind!(self, chain => measured.add_chain(chain), ring => measured.add_ring(ring, clock.now()))?;
        let mut stats = measured.into_stats(&self.spec(), self.live_contents(clock));
        if let Self::RedisBloom(filter) = self {
            stats.names.hash = filter.rules().hash_name();
        }
        Ok(stats)
    }
}

impl Filter {
    /// Checks that an absent item is certain to have no row, provided that every row was announced.
    pub const fn guards(&self) -> Result<(), Error> {
        if let Self::Counting(_) | Self::Cuckoo(_) = self { Err(Error::CannotGuard) } else { Ok(()) }
    }

    /// Adds an item whose row is about to be written or has just been written. A filter that forgets then has it for a whole
    /// window from now on: the newest bucket gets it even if an older one has it.
    ///
    /// # Errors
    /// [`Error::CannotGuard`], and those of [`add`](Self::add).
    pub fn announce(
        &mut self,
        item: &[u8],
        origin: Origin,
        clock: &impl Clock,
        ceiling: &impl Ceiling,
    ) -> Result<Outcome, Error> {
        self.guards()?;
        match self {
            Self::Windowed(filter) => filter.add(item, true, origin, clock.now(), ceiling),
            filter => filter.add(item, origin, clock, ceiling),
        }
    }

    /// [`announce`](Self::announce) for up to [`BATCH`](crate::BATCH) items, in order. The filter must be one that
    /// [guards](Self::guards).
    pub fn announce_batch<'a>(
        &mut self,
        items: impl IntoIterator<Item = &'a [u8]>,
        origin: Origin,
        clock: &impl Clock,
        ceiling: &impl Ceiling,
    ) -> Added {
        match self {
            Self::Windowed(ring) => ring.add_batch(&ring.hash_batch(items), true, origin, clock.now(), ceiling),
            filter => filter.add_batch(items, origin, clock, ceiling),
        }
    }
}
