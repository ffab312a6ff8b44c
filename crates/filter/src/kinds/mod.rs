//! The kinds of filter, a folder each: what makes a filter of the kind, its snapshot, its dump, the words that create it,
//! what it tells of itself. Only this file matches on the kind: [`Spec`] is what makes a filter of any kind, [`Filter`] is
//! one.

pub mod counting;
pub(crate) mod description;
pub mod effect;
pub mod info;
pub mod native;
pub(crate) mod parts;
pub mod plan;
pub mod redisbloom;
mod request;
pub mod stats;
pub mod valkey_bloom;
pub mod windowed;

use std::ffi::CStr;

pub use counting::{CountingFilter, CountingSpec};
pub use native::{BloomFilter, NativeSpec};
pub use redisbloom::{RedisBloomArrival, RedisBloomFilter, RedisBloomSpec};
pub use request::{Defaults, HashName, LayoutName, Request, Seed};
pub use valkey_bloom::{ValkeyBloomFilter, ValkeyBloomSpec};
pub use windowed::{Forgets, Turn, WindowedFilter, WindowedSpec};

use crate::ceiling::Ceiling;
use crate::cells::{Mover, relocate_boxed};
use crate::chain::{Added, Reach, Rules};
pub use crate::chain::{Contents, Origin, Outcome, Removed};
use crate::clock::Clock;
use crate::error::Error;
use crate::hash::Hasher;
use crate::mask::Mask;
use crate::memory::try_box;
use crate::scaling::Scaling;
use effect::EffectWord;
use info::{Content, Field, InfoStyle, LayerSummary};
use plan::Plan;
use stats::{Measured, Names, Stats};

/// Everything that makes a filter, whatever its kind: whoever makes one of it gets the same bits for the same items.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spec {
    /// Of our own layout.
    Native(NativeSpec),
    /// Of our own layout, and it forgets.
    Windowed(WindowedSpec),
    /// Of our own layout, with counters in the place of bits.
    Counting(CountingSpec),
    /// Of RedisBloom's.
    RedisBloom(RedisBloomSpec),
    /// Of valkey-bloom's.
    ValkeyBloom(ValkeyBloomSpec),
}

/// A filter of any kind.
#[derive(Debug, PartialEq)]
pub enum Filter {
    /// Of our own layout.
    Native(BloomFilter),
    /// Of our own layout, and it forgets.
    Windowed(WindowedFilter),
    /// Of our own layout, with counters in the place of bits.
    Counting(CountingFilter),
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

/// An expression for the chain that a filter is, and another one for a ring of chains.
macro_rules! inside {
    ($filter:expr, $chain:ident => $of_chain:expr, $ring:ident => $of_ring:expr) => {
        match $filter {
            Filter::Native($chain) => $of_chain,
            Filter::Windowed($ring) => $of_ring,
            Filter::Counting($chain) => $of_chain,
            Filter::RedisBloom($chain) => $of_chain,
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
            Filter::ValkeyBloom(boxed) => {
                let $chain = &mut **boxed;
                $of_chain
            }
        }
    };
}

/// The same for a single item, where a call is a measurable cost: a native filter, as most are, is handled inline; the others by
/// a call, so that their code takes no registers here.
macro_rules! native_in_place {
    ($filter:expr, $chain:ident => $of_chain:expr, $ring:ident => $of_ring:expr) => {
        match $filter {
            Filter::Native($chain) => $of_chain,
            others => by_a_call(move || inside!(others, $chain => $of_chain, $ring => $of_ring)),
        }
    };
    (mut $filter:expr, $chain:ident => $of_chain:expr, $ring:ident => $of_ring:expr) => {
        match $filter {
            Filter::Native($chain) => $of_chain,
            others => by_a_call(move || inside!(mut others, $chain => $of_chain, $ring => $of_ring)),
        }
    };
}

#[inline(never)]
fn by_a_call<T>(work: impl FnOnce() -> T) -> T {
    work()
}

impl Spec {
    /// What a request asks for; nothing where its words are those of different kinds.
    #[must_use]
    pub fn of(request: &Request, defaults: &Defaults) -> Option<Self> {
        let native = |forgets| {
            let hasher = defaults.hasher(request)?;
            Some(match forgets {
                None if request.is_counting => Self::Counting(CountingSpec::of(request, hasher)),
                None => Self::Native(NativeSpec::of(request, hasher)),
                Some(forgets) => Self::Windowed(WindowedSpec::of(request, forgets, hasher)),
            })
        };
        let has_native_words = request.hash.is_some() || request.forgets.is_some() || request.is_counting;
        match (request.seed, request.tightening, request.layout) {
            (_, None, None | Some(LayoutName::Native)) if has_native_words => native(request.forgets),
            _ if has_native_words => None,
            (Some(Seed::Number(_)), None, None | Some(LayoutName::Native)) => native(None),
            (Some(Seed::Bytes(seed)), _, None) => Some(Self::ValkeyBloom(ValkeyBloomSpec::of(request, seed, defaults))),
            (None, Some(_), None) => {
                Some(Self::ValkeyBloom(ValkeyBloomSpec::of(request, defaults.valkey_bloom_seed(), defaults)))
            }
            (None, None, layout) => match layout.unwrap_or(defaults.layout()) {
                LayoutName::Native => native(None),
                LayoutName::RedisBloom => Some(Self::RedisBloom(RedisBloomSpec::of(request))),
            },
            _ => None,
        }
    }

    /// The false positive rate that a filter of it is made for.
    #[must_use]
    pub const fn rate(&self) -> f64 {
        match self {
            Self::Native(spec) => spec.rate,
            Self::Windowed(spec) => spec.rate,
            Self::Counting(spec) => spec.rate,
            Self::RedisBloom(spec) => spec.rate,
            Self::ValkeyBloom(spec) => spec.rules.rate,
        }
    }

    /// Whether a filter of it takes entries of deleted items.
    #[must_use]
    pub(crate) const fn takes_deleted(&self) -> bool {
        match self {
            Self::Native(NativeSpec { hasher, .. }) | Self::Windowed(WindowedSpec { hasher, .. }) => hasher.is_keyed(),
            Self::Counting(_) | Self::RedisBloom(_) | Self::ValkeyBloom(_) => false,
        }
    }

    /// What BF.STATS and BF.PLAN call it.
    #[must_use]
    pub fn names(&self) -> Names {
        let growth = |scaling| if scaling == Scaling::Fixed { c"nonscaling" } else { c"scaling" };
        let native = |hasher: Hasher| if hasher.is_keyed() { c"siphash" } else { c"murmur3" };
        match self {
            Self::Native(spec) => {
                Names { kind: growth(spec.scaling), layout: c"native", hash: native(spec.hasher), forgets: None }
            }
            Self::Windowed(spec) => {
                let kind = if spec.forgets == Forgets::Rolling { c"rolling" } else { c"window" };
                Names { kind, layout: c"native", hash: native(spec.hasher), forgets: Some(spec.forgets) }
            }
            Self::Counting(spec) => {
                Names { kind: c"counting", layout: c"native", hash: native(spec.hasher), forgets: None }
            }
            Self::RedisBloom(spec) => {
                Names { kind: growth(spec.scaling), layout: c"redisbloom", hash: c"murmur2", forgets: None }
            }
            Self::ValkeyBloom(spec) => {
                Names { kind: growth(spec.rules.scaling), layout: c"valkey-bloom", hash: c"siphash13", forgets: None }
            }
        }
    }

    /// What a filter of it is made of once it was given `items` items; where that is not said, as many as it is made for.
    /// Works out as many sizes as it has layers then, about 60 ns each.
    ///
    /// # Errors
    /// [`Error::Full`] where it never takes so many, [`Error::TooManyLayers`], and what keeps a filter from being made.
    pub fn plan(&self, items: Option<u64>) -> Result<Plan, Error> {
        match self {
            Self::Native(spec) => spec.plan(items),
            Self::Windowed(spec) => spec.plan(items),
            Self::Counting(spec) => spec.plan(items),
            Self::RedisBloom(spec) => spec.plan(items),
            Self::ValkeyBloom(spec) => spec.plan(items),
        }
    }

    /// How far a filter of it can grow under a ceiling, which is asked as for a filter of `filter_bytes` (0: a new one).
    /// Works out as many sizes as it has layers then, about 60 ns each.
    #[must_use]
    pub fn reach(&self, filter_bytes: u64, ceiling: &impl Ceiling) -> Reach {
        match self {
            Self::Native(spec) => spec.reach(filter_bytes, ceiling),
            Self::Windowed(spec) => Reach { capacity: spec.capacity, ends_by_rate: false },
            Self::Counting(spec) => spec.reach(filter_bytes, ceiling),
            Self::RedisBloom(spec) => spec.reach(filter_bytes, ceiling),
            Self::ValkeyBloom(spec) => spec.reach(filter_bytes, ceiling),
        }
    }

    /// Answers with the command that makes a filter of it, and says its words after the key. Items may follow after ITEMS,
    /// but not for BF.RESERVE.
    pub fn spell(&self, say: impl FnMut(EffectWord<'_>)) -> &'static CStr {
        match self {
            Self::Native(spec) => spec.spell(say),
            Self::Windowed(spec) => spec.spell(say),
            Self::Counting(spec) => spec.spell(say),
            Self::RedisBloom(spec) => spec.spell(say),
            Self::ValkeyBloom(spec) => spec.spell(say),
        }
    }

    /// Whether the command that makes a filter of it takes items, too.
    #[must_use]
    pub const fn takes_items(&self) -> bool {
        !matches!(self, Self::RedisBloom(_) | Self::Windowed(_))
    }

    /// Whether it is RedisBloom's: its primaries carry what they refused, too.
    #[must_use]
    pub const fn is_redisbloom(&self) -> bool {
        matches!(self, Self::RedisBloom(_))
    }

    /// Whether the most that RedisBloom lets a client ask for binds it.
    #[must_use]
    pub const fn is_beyond_redisbloom(&self) -> bool {
        matches!(self, Self::RedisBloom(spec) if spec.capacity > redisbloom::CAPACITY_MAX)
    }
}

/// What makes a filter, and what there is of it.
impl Filter {
    /// An empty filter. Costs microseconds, whatever its size.
    ///
    /// # Errors
    /// As of the kind: [`BloomFilter::with_spec`], [`RedisBloomFilter::with_spec`], [`ValkeyBloomFilter::with_spec`].
    pub fn new(spec: &Spec, ceiling: &impl Ceiling) -> Result<Self, Error> {
        match spec {
            Spec::Native(spec) => BloomFilter::with_spec(*spec, ceiling).map(Self::Native),
            Spec::Windowed(spec) => WindowedFilter::with_spec(*spec, ceiling).map(Self::Windowed),
            Spec::Counting(spec) => CountingFilter::with_spec(*spec, ceiling).map(Self::Counting),
            Spec::RedisBloom(spec) => RedisBloomFilter::with_spec(*spec, ceiling).map(Self::RedisBloom),
            Spec::ValkeyBloom(spec) => ValkeyBloomFilter::with_spec(*spec, ceiling).and_then(Self::boxed),
        }
    }

    /// An empty filter, as the primary made it that carries its creation; see [`RedisBloomFilter::carried`].
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn carried(spec: &Spec, ceiling: &impl Ceiling) -> Result<Self, Error> {
        match spec {
            Spec::RedisBloom(spec) => RedisBloomFilter::carried(*spec, ceiling).map(Self::RedisBloom),
            Spec::Native(_) | Spec::Windowed(_) | Spec::Counting(_) | Spec::ValkeyBloom(_) => Self::new(spec, ceiling),
        }
    }

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
            Self::Windowed(filter) => filter.try_clone().map(Self::Windowed),
            Self::Counting(filter) => filter.try_clone().map(Self::Counting),
            Self::RedisBloom(filter) => filter.try_clone().map(Self::RedisBloom),
            Self::ValkeyBloom(filter) => Self::boxed(filter.try_clone()?),
        }
    }

    /// A filter as this one was created, without an item. One that forgets after a time has no bucket then. Costs microseconds,
    /// whatever the size, and asks no ceiling, because it replaces this one.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where the allocator refuses.
    pub fn emptied(&self) -> Result<Self, Error> {
        match self {
            Self::Native(filter) => filter.emptied().map(Self::Native),
            Self::Windowed(filter) => filter.emptied().map(Self::Windowed),
            Self::Counting(filter) => filter.emptied().map(Self::Counting),
            Self::RedisBloom(filter) => filter.emptied().map(Self::RedisBloom),
            Self::ValkeyBloom(filter) => Self::boxed(filter.emptied()?),
        }
    }

    /// The filter, where it is one that can be merged.
    ///
    /// # Errors
    /// [`Error::CannotMerge`].
    pub const fn mergeable(&self) -> Result<&BloomFilter, Error> {
        if let Self::Native(filter) = self { Ok(filter) } else { Err(Error::CannotMerge) }
    }

    /// The same, to be changed.
    ///
    /// # Errors
    /// [`Error::CannotMerge`].
    pub const fn mergeable_mut(&mut self) -> Result<&mut BloomFilter, Error> {
        if let Self::Native(filter) = self { Ok(filter) } else { Err(Error::CannotMerge) }
    }

    /// What would make it anew.
    #[must_use]
    pub fn spec(&self) -> Spec {
        match self {
            Self::Native(filter) => Spec::Native(filter.spec()),
            Self::Windowed(filter) => Spec::Windowed(filter.spec()),
            Self::Counting(filter) => Spec::Counting(filter.spec()),
            Self::RedisBloom(filter) => Spec::RedisBloom(filter.spec()),
            Self::ValkeyBloom(filter) => Spec::ValkeyBloom(filter.spec()),
        }
    }

    /// What becomes of it when it is full.
    #[must_use]
    pub fn scaling(&self) -> Scaling {
        inside!(self, chain => chain.scaling(), ring => ring.spec().scaling)
    }

    /// Number of layers.
    #[inline]
    #[must_use]
    pub fn layer_count(&self) -> usize {
        native_in_place!(self, chain => chain.layers().len(), ring => ring.layer_count())
    }

    /// The layers, oldest first.
    pub fn layers(&self) -> impl Iterator<Item = LayerSummary> {
        (0..).map_while(|index| {
            inside!(self,
                chain => chain.layers().get(index).map(LayerSummary::of),
                ring => ring.layer(index).map(LayerSummary::of))
        })
    }

    /// The number of items that all its layers together are made for.
    #[must_use]
    pub fn total_capacity(&self) -> u64 {
        self.contents().capacity
    }

    /// The number of items that are in: the adds that were answered "new", less those that were deleted.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.contents().items
    }

    /// The number of items that can be added before it is full or grows.
    #[must_use]
    pub fn remaining_capacity(&self) -> u64 {
        inside!(self, chain => chain.remaining_capacity(), ring => ring.remaining_capacity())
    }

    /// What it is made of, in bytes; see [`Chain::size_bytes`](crate::chain::Chain::size_bytes).
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.contents().size_bytes
    }

    /// What there is to count of it.
    #[inline]
    #[must_use]
    pub fn contents(&self) -> Contents {
        if let Self::Native(filter) = self {
            return filter.contents();
        }
        // Taken apart, so that those of a native filter are in registers.
        let Contents { size_bytes, layers, items, capacity, pending_bytes } =
            by_a_call(|| inside!(self, chain => chain.contents(), ring => ring.contents()));
        Contents { size_bytes, layers, items, capacity, pending_bytes }
    }

    /// What there is to count of what lookups go to now: of a filter that forgets not the buckets whose time is past.
    #[must_use]
    pub fn live_contents(&self, clock: &impl Clock) -> Contents {
        match self {
            Self::Windowed(filter) => filter.live_contents(clock.now()),
            _ => self.contents(),
        }
    }

    /// The filter, where it is one that forgets.
    #[must_use]
    pub const fn windowed(&self) -> Option<&WindowedFilter> {
        if let Self::Windowed(filter) = self { Some(filter) } else { None }
    }

    /// The same, to be changed.
    #[must_use]
    pub const fn windowed_mut(&mut self) -> Option<&mut WindowedFilter> {
        if let Self::Windowed(filter) = self { Some(filter) } else { None }
    }

    /// The filter, where it is one that counts.
    #[must_use]
    pub const fn counting(&self) -> Option<&CountingFilter> {
        if let Self::Counting(filter) = self { Some(filter) } else { None }
    }

    /// Bytes that were asked of the allocator, the filter's own fields included. Visits every layer.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        let own = size_of::<Self>() as u64;
        if let Self::ValkeyBloom(filter) = self {
            return filter.allocated_bytes() + own;
        }
        inside!(self,
            chain => chain.allocated_bytes() + own - size_of_val(chain) as u64,
            ring => ring.allocated_bytes() + own - size_of_val(ring) as u64)
    }

    /// Whether adds pend.
    #[inline]
    #[must_use]
    pub fn pends(&self) -> bool {
        inside!(self, chain => chain.pends(), ring => ring.pends())
    }

    /// Flushes up to `most` pending adds into the cells. Returns how many: 0 if none are left. Each costs up to two
    /// microseconds.
    pub fn merge_pending(&mut self, most: usize) -> usize {
        inside!(mut self, chain => chain.merge_pending(most), ring => ring.merge_pending(most))
    }

    /// Lets the mover move its memory, from layer number `first` on; see [`Chain::relocate`](crate::chain::Chain::relocate).
    pub fn relocate(&mut self, first: usize, mover: &mut impl Mover) -> Option<usize> {
        if let (0, Self::ValkeyBloom(filter)) = (first, &mut *self) {
            relocate_boxed(filter, mover);
        }
        inside!(mut self, chain => chain.relocate(first, mover), ring => ring.relocate(first, mover))
    }
}

/// Adds and lookups.
impl Filter {
    /// Whether an item may be in; `false` is certain.
    #[inline]
    #[must_use]
    pub fn contains(&self, item: &[u8], clock: &impl Clock) -> bool {
        native_in_place!(self, chain => chain.contains(item), ring => ring.contains(item, clock.now()))
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
        native_in_place!(mut self,
            chain => Rules::add_one(chain, chain.hash(item), origin, ceiling),
            ring => ring.add(item, origin, clock.now(), ceiling))
    }

    /// Looks up to [`BATCH`](crate::BATCH) items up together.
    #[inline]
    pub fn contains_batch<'a>(&self, items: impl IntoIterator<Item = &'a [u8]>, clock: &impl Clock) -> Mask {
        inside!(self,
            chain => chain.contains_batch(&chain.hash_batch(items)),
            ring => ring.contains_batch(&ring.hash_batch(items), clock.now()))
    }

    /// Adds up to [`BATCH`](crate::BATCH) items together, in order.
    #[inline]
    pub fn add_batch<'a>(
        &mut self,
        items: impl IntoIterator<Item = &'a [u8]>,
        origin: Origin,
        clock: &impl Clock,
        ceiling: &impl Ceiling,
    ) -> Added {
        inside!(mut self,
            chain => Rules::add_batch(chain, &chain.hash_batch(items), origin, ceiling),
            ring => ring.add_batch(&ring.hash_batch(items), origin, clock.now(), ceiling))
    }
}

/// In front of a database.
impl Filter {
    /// Whether what it calls absent has no row, as long as every row was announced.
    ///
    /// # Errors
    /// [`Error::CannotGuard`].
    pub const fn guards(&self) -> Result<(), Error> {
        if let Self::Counting(_) = self { Err(Error::CannotGuard) } else { Ok(()) }
    }

    /// Adds an item whose row is about to be written, or was. A filter that forgets has it for a whole window from now on: it
    /// goes into the newest bucket where that has it not, whatever the others have.
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
            Self::Windowed(filter) => filter.renew(item, origin, clock.now(), ceiling),
            filter => filter.add(item, origin, clock, ceiling),
        }
    }
}

/// Deletes.
impl Filter {
    /// Deletes up to [`BATCH`](crate::BATCH) items together, in order: the answers are those of deleting them one by one. An
    /// effect is applied without a lookup. For no items the answer is whether the filter can delete at all.
    pub fn remove_batch<'a>(
        &mut self,
        items: impl IntoIterator<Item = &'a [u8]>,
        origin: Origin,
        clock: &impl Clock,
        ceiling: &impl Ceiling,
    ) -> Removed {
        inside!(mut self,
            chain => Rules::remove_batch(chain, &chain.hash_batch(items), origin, ceiling),
            ring => ring.remove_batch(&ring.hash_batch(items), origin, clock.now(), ceiling))
    }
}

/// What it tells of itself.
impl Filter {
    /// Whose BF.INFO it answers as.
    #[must_use]
    pub const fn info_style(&self) -> InfoStyle {
        match self {
            Self::Native(_) | Self::Windowed(_) | Self::Counting(_) | Self::RedisBloom(_) => InfoStyle::RedisBloom,
            Self::ValkeyBloom(_) => InfoStyle::ValkeyBloom,
        }
    }

    /// What a field of BF.INFO holds; nothing for a field that it has not. How far it can grow is for the ceiling to say.
    #[must_use]
    pub fn info(&self, field: Field, clock: &impl Clock, ceiling: &impl Ceiling) -> Option<Content> {
        let live = self.live_contents(clock);
        Some(match field {
            Field::Capacity => Content::Number(live.capacity),
            Field::Size => Content::Number(live.size_bytes),
            Field::Filters => Content::Number(live.layers),
            Field::Items => Content::Number(live.items),
            Field::Error => Content::Fraction(self.spec().rate()),
            Field::Expansion => match self.scaling() {
                Scaling::Fixed => Content::Nothing,
                Scaling::Growing { expansion } => Content::Number(expansion.get().into()),
            },
            Field::Tightening | Field::MaxScaledCapacity if self.scaling() == Scaling::Fixed => return None,
            Field::MaxScaledCapacity if self.windowed().is_some() => return None,
            Field::MaxScaledCapacity => {
                // Where it is beyond the ceiling, what it has room for.
                let reach = self.spec().reach(self.size_bytes(), ceiling);
                Content::Number(reach.capacity.max(self.total_capacity()))
            }
            Field::Tightening => match self {
                // Of the others none has one ratio from layer to layer that could be set.
                Self::Native(_) | Self::Windowed(_) | Self::Counting(_) | Self::RedisBloom(_) => return None,
                Self::ValkeyBloom(filter) => Content::Fraction(filter.rules().tightening),
            },
        })
    }

    /// What BF.STATS tells. Reads at most 1 MiB of each layer.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where there is no memory for the lists.
    pub fn stats(&self, clock: &impl Clock) -> Result<Stats, Error> {
        let mut measured = Measured::default();
        inside!(self, chain => measured.add_chain(chain), ring => ring.measure(clock.now(), &mut measured))?;
        Ok(measured.into_stats(&self.spec(), self.live_contents(clock)))
    }

    /// Width of the hash of an item, in bits.
    #[must_use]
    pub fn hash_bits(&self) -> u32 {
        match self {
            Self::Native(_) | Self::Windowed(_) | Self::Counting(_) => 128,
            Self::RedisBloom(filter) => filter.rules().hash_bits(),
            Self::ValkeyBloom(_) => 64,
        }
    }
}
