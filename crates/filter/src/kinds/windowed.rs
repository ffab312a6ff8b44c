//! Filters that forget: a ring of native chains, called buckets. New items are added to the newest bucket, and the oldest
//! bucket is dropped as a whole, after a window of time or after a number of other items.

use std::ffi::CStr;

use super::Request;
use super::effect::{EffectWord, say_all, say_hasher, say_scaling};
use super::native::{
    BloomFilter, Layers, NativeSpec, are_shaped, read_layers, read_spec, taken_rate, write_layers, write_shapes,
    write_spec,
};
use super::plan::Plan;
use crate::chain::{ChainSpec as _, Contents, LAYERS_MAX, Layer};
use crate::codec::{self, Sink, Source, read_u32};
use crate::error::Error;
use crate::geometry::sizing::{Policy, Scaling, to_f64};
use crate::hash::Hasher;
use crate::host::{Ceiling, Moment};
use crate::memory::push;
use crate::ring::{BesideBuckets, Bucket, Ring, RingRules, Schedule as _};

pub use crate::ring::{BUCKETS_MAX, Forgets, Turn};

/// The default number of buckets.
pub const BUCKETS: u32 = 8;
/// The fewest buckets.
pub const BUCKETS_MIN: u32 = 3;
/// The longest window, in seconds: about three hundred years.
pub const SECONDS_MAX: u64 = 10_000_000_000;

/// What defines a filter that forgets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowedSpec {
    /// The requested false positive rate, of all buckets together.
    pub rate: f64,
    /// The expected number of new items per window, or for ROLLING, the number of most recent items to remember; at least 1.
    pub capacity: u64,
    /// What happens when a bucket is full before its time.
    pub scaling: Scaling,
    /// How it hashes.
    pub hasher: Hasher,
    /// When it forgets an item.
    pub forgets: Forgets,
    /// The most live buckets, [`BUCKETS_MIN`] to [`BUCKETS_MAX`].
    pub buckets: u32,
}

/// A filter that forgets.
pub type WindowedFilter = Ring<WindowedSpec>;

impl RingRules for WindowedSpec {
    type Bucket = NativeSpec;

    fn is_sound(&self) -> bool {
        let forgets = match self.forgets {
            Forgets::After { seconds, .. } => (1..=SECONDS_MAX).contains(&seconds),
            Forgets::Rolling => self.scaling == Scaling::Fixed,
        };
        let whole = NativeSpec { rate: self.rate, ..self.bucket(1) };
        forgets && whole.check().is_ok() && self.capacity >= 1 && (BUCKETS_MIN..=BUCKETS_MAX).contains(&self.buckets)
    }

    fn forgets(&self) -> Forgets {
        self.forgets
    }

    fn hasher(&self) -> Hasher {
        self.hasher
    }

    fn buckets(&self) -> u32 {
        self.buckets
    }

    fn bucket_capacity(&self) -> u64 {
        self.capacity.div_ceil(u64::from(self.buckets.saturating_sub(1)).max(1))
    }

    /// A bucket gets its share of the ring's false positive rate. A ring states no policy: it has the first.
    fn bucket(&self, capacity: u64) -> NativeSpec {
        let rate = self.rate / to_f64(self.buckets.into());
        NativeSpec { rate, capacity, scaling: self.scaling, hasher: self.hasher, policy: Policy::One }
    }
}

impl WindowedSpec {
    /// Returns the definition for a request.
    pub(super) fn of(request: &Request, forgets: Forgets, hasher: Hasher) -> Self {
        let Request { rate, capacity, scaling, buckets, .. } = *request;
        let scaling = if forgets == Forgets::Rolling { Scaling::Fixed } else { scaling };
        Self { rate: taken_rate(rate), capacity, scaling, hasher, forgets, buckets: buckets.unwrap_or(BUCKETS) }
    }

    /// See [`Spec::plan`](crate::kinds::Spec::plan). With a window, plans the whole ring, for new items that arrive evenly, `items`
    /// per window. For ROLLING, plans as many buckets as the ring has after `items` items.
    pub(super) fn plan(&self, items: Option<u64>) -> Result<Plan, Error> {
        let (buckets, capacity) = (u64::from(self.buckets), self.bucket_capacity());
        let (live, wanted) = match (self.forgets, items) {
            (_, None) => (buckets, capacity),
            (Forgets::Rolling, Some(items)) => (items.div_ceil(capacity).clamp(1, buckets), capacity),
            (Forgets::After { .. }, Some(items)) => (buckets, items.div_ceil(buckets.saturating_sub(1).max(1))),
        };
        if wanted > capacity && self.scaling == Scaling::Fixed {
            return Err(Error::Full);
        }
        Plan::of_chain(&self.bucket(capacity.max(wanted)), None)?.repeated(live)
    }

    /// See [`Spec::spell`](crate::kinds::Spec::spell). The first bucket is replicated separately.
    pub(super) fn spell(&self, mut say: impl FnMut(EffectWord<'_>)) -> &'static CStr {
        use EffectWord::{Bytes, Text};
        let Self { rate, capacity, scaling, hasher, forgets, buckets } = *self;
        say_all(&mut say, &[Bytes(b"CAPACITY"), Text(&capacity), Bytes(b"ERROR"), Text(&rate)]);
        match forgets {
            Forgets::After { seconds, is_sliding } => {
                say_scaling(scaling, &mut say);
                say_all(&mut say, &[Bytes(b"WINDOW"), Text(&seconds)]);
                if is_sliding {
                    say(Bytes(b"SLIDING"));
                }
            }
            Forgets::Rolling => say(Bytes(b"ROLLING")),
        }
        say_all(&mut say, &[Bytes(b"BUCKETS"), Text(&buckets)]);
        say_hasher(hasher, &mut say);
        c"BF.INSERT"
    }
}

// Everything about a filter that forgets except its bits and tables, in the format that `format/stored.rs` specifies.

/// The description of a bucket.
struct DescribedBucket {
    slot: u64,
    begin: Moment,
    end: Moment,
    capacity: u64,
    renewed: u64,
    is_omitted: bool,
    layers: Layers,
}

/// The description of a filter that forgets.
pub(crate) struct Description {
    spec: WindowedSpec,
    buckets: Vec<DescribedBucket>,
}

fn write_windowed_spec(spec: &WindowedSpec, sink: &mut impl Sink) {
    let WindowedSpec { rate, capacity, scaling, hasher, forgets, buckets } = *spec;
    write_spec(&NativeSpec { rate, capacity, scaling, hasher, policy: Policy::One }, sink);
    let (seconds, is_sliding) = match forgets {
        Forgets::After { seconds, is_sliding } => (seconds, is_sliding),
        Forgets::Rolling => (0, false),
    };
    sink.put_u64(seconds);
    sink.put_u64(is_sliding.into());
    sink.put_u64(buckets.into());
}

fn read_flag(source: &mut impl Source) -> Result<bool, codec::Error> {
    match source.u64()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(codec::Error::OutOfRange),
    }
}

impl DescribedBucket {
    fn write(bucket: &Bucket<NativeSpec>, sink: &mut impl Sink) {
        let Bucket { slot, begin, end, ref filter, renewed, is_omitted } = *bucket;
        sink.put_u64(slot);
        sink.put_u64(begin.0);
        sink.put_u64(end.0);
        sink.put_u64(filter.spec().capacity);
        // Only SLIDING renews items. For other rings these are the flags of the first format.
        sink.put_u64(renewed << 1 | u64::from(is_omitted));
        write_layers(filter.layers().iter().map(Layer::description), sink);
    }

    fn read(source: &mut impl Source) -> Result<Self, codec::Error> {
        let (slot, begin, end) = (source.u64()?, Moment(source.u64()?), Moment(source.u64()?));
        let (capacity, flags) = (source.u64()?, source.u64()?);
        let (renewed, is_omitted) = (flags >> 1, flags & 1 == 1);
        Ok(Self { slot, begin, end, capacity, renewed, is_omitted, layers: read_layers(source)? })
    }
}

impl Description {
    /// Reads what [`write()`] wrote.
    pub(crate) fn read(source: &mut impl Source) -> Result<Self, codec::Error> {
        let (NativeSpec { rate, capacity, scaling, hasher, policy }, is_sound_policy) = read_spec(source)?;
        let (seconds, is_sliding, buckets) = (source.u64()?, read_flag(source)?, read_u32(source)?);
        let forgets = match seconds {
            0 if is_sliding => return Err(codec::Error::OutOfRange),
            0 => Forgets::Rolling,
            seconds => Forgets::After { seconds, is_sliding },
        };
        let spec = WindowedSpec { rate, capacity, scaling, hasher, forgets, buckets };
        let count = source.u64()?;
        if count > u64::from(BUCKETS_MAX) {
            return Err(codec::Error::OutOfRange);
        }
        let mut described = Vec::new();
        for _ in 0..count {
            push(&mut described, DescribedBucket::read(source)?)?;
        }
        let description = Self { spec, buckets: described };
        let is_sound = is_sound_policy && policy == Policy::One && spec.is_sound() && description.is_sound();
        if is_sound { Ok(description) } else { Err(Error::Unsound.into()) }
    }

    /// Returns a filter as described, its bits all zero and its tables empty. Asks the ceiling before it allocates each bucket.
    pub(crate) fn with_zero_bits(&self, ceiling: &impl Ceiling) -> Result<WindowedFilter, Error> {
        let mut filter = WindowedFilter::without_buckets(self.spec)?;
        for bucket in &self.buckets {
            let DescribedBucket { slot, begin, end, capacity, renewed, is_omitted, ref layers } = *bucket;
            let spec = self.spec.bucket(capacity);
            // The total number of layers was checked when the description was read.
            let others = || Contents { layers: 0, ..filter.contents() };
            let beside = BesideBuckets { ceiling, others, pends: false };
            let bits = BloomFilter::part_with_zero_bits(spec, layers, &beside)?;
            filter.push_bucket(Bucket { slot, begin, end, filter: bits, renewed, is_omitted });
        }
        Ok(filter)
    }

    /// Whether the first buckets of a filter are as described.
    pub(crate) fn is_of(&self, filter: &WindowedFilter) -> bool {
        let is_described = |(bucket, described): (&Bucket<NativeSpec>, &DescribedBucket)| {
            let Bucket { slot, begin, end, ref filter, .. } = *bucket;
            let layers = filter.layers().get(..described.layers.len()).unwrap_or_default();
            (slot, begin, end) == (described.slot, described.begin, described.end)
                && are_shaped(layers, &described.layers)
        };
        self.spec == filter.spec()
            && self.buckets.len() <= filter.buckets().len()
            && filter.buckets().zip(&self.buckets).all(is_described)
    }

    /// Whether the buckets are in order of time, with distinct slots, each beginning after the one before it has ended. None
    /// may have renewed more items than it has, and the layers must not exceed what a dump can number.
    fn is_sound(&self) -> bool {
        let is_rolling = self.spec.forgets == Forgets::Rolling;
        let count = self.buckets.len();
        let in_order = self.buckets.windows(2).all(|pair| match pair {
            [before, after] => before.slot < after.slot && before.end <= after.begin,
            _ => true,
        });
        let times = |bucket: &DescribedBucket| {
            self.spec.allows(bucket.slot, bucket.begin, bucket.end)
                && (!is_rolling || bucket.begin == Moment(0) && bucket.end == Moment(0))
        };
        let renewed = |bucket: &DescribedBucket| {
            let items = bucket.layers.iter().fold(0u64, |sum, layer| sum.saturating_add(layer.items));
            bucket.renewed <= if self.spec.is_sliding() { items } else { 0 }
        };
        let layers = self.buckets.iter().map(|bucket| bucket.layers.len()).sum::<usize>();
        (1..=self.spec.buckets as usize).contains(&count)
            && in_order
            && self.buckets.iter().all(|bucket| times(bucket) && renewed(bucket))
            && layers <= LAYERS_MAX
    }
}

/// Writes everything about a filter except its cells and tables.
pub(crate) fn write(filter: &WindowedFilter, sink: &mut impl Sink) {
    write_windowed_spec(&filter.spec(), sink);
    sink.put_u64(filter.buckets().len() as u64);
    filter.buckets().for_each(|bucket| DescribedBucket::write(bucket, sink));
}

/// See [`Filter::identify`](crate::Filter::identify).
pub(crate) fn identify(filter: &WindowedFilter, mut layers: usize, sink: &mut impl Sink) {
    write_windowed_spec(&filter.spec(), sink);
    for Bucket { slot, begin, end, filter, .. } in filter.buckets() {
        let counted = filter.layers().get(..layers).unwrap_or(filter.layers());
        if counted.is_empty() {
            break;
        }
        layers -= counted.len();
        [*slot, begin.0, end.0, filter.spec().capacity].into_iter().for_each(|number| sink.put_u64(number));
        write_shapes(counted.iter().map(Layer::description), sink);
    }
}
