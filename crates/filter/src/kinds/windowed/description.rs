//! Everything about a filter that forgets except its bits and tables, in the format that `format/stored.rs` specifies.

use super::{BUCKETS_MAX, Forgets, WindowedFilter, WindowedSpec};
use crate::ceiling::Ceiling;
use crate::chain::{Contents, LAYERS_MAX, Layer};
use crate::clock::Moment;
use crate::codec::{Error, Sink, Source, read_u32};
use crate::error;
use crate::geometry::sizing::Policy;
use crate::kinds::native::description::{
    Layers, are_shaped, read_layers, read_spec, write_layers, write_shapes, write_spec,
};
use crate::kinds::native::{BloomFilter, NativeSpec};
use crate::memory::push;
use crate::ring::{BesideBuckets, Bucket, RingRules as _, Schedule as _};

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

fn read_flag(source: &mut impl Source) -> Result<bool, Error> {
    match source.u64()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Error::OutOfRange),
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

    fn read(source: &mut impl Source) -> Result<Self, Error> {
        let (slot, begin, end) = (source.u64()?, Moment(source.u64()?), Moment(source.u64()?));
        let (capacity, flags) = (source.u64()?, source.u64()?);
        let (renewed, is_omitted) = (flags >> 1, flags & 1 == 1);
        Ok(Self { slot, begin, end, capacity, renewed, is_omitted, layers: read_layers(source)? })
    }
}

impl Description {
    /// Reads what [`write()`] wrote.
    ///
    /// # Errors
    /// [`error::Error::Unsound`] for a ring that cannot exist, and errors for bytes that cannot have been written.
    pub(crate) fn read(source: &mut impl Source) -> Result<Self, Error> {
        let (NativeSpec { rate, capacity, scaling, hasher, policy }, is_sound_policy) = read_spec(source)?;
        let (seconds, is_sliding, buckets) = (source.u64()?, read_flag(source)?, read_u32(source)?);
        let forgets = match seconds {
            0 if is_sliding => return Err(Error::OutOfRange),
            0 => Forgets::Rolling,
            seconds => Forgets::After { seconds, is_sliding },
        };
        let spec = WindowedSpec { rate, capacity, scaling, hasher, forgets, buckets };
        let count = source.u64()?;
        if count > u64::from(BUCKETS_MAX) {
            return Err(Error::OutOfRange);
        }
        let mut described = Vec::new();
        for _ in 0..count {
            push(&mut described, DescribedBucket::read(source)?)?;
        }
        let description = Self { spec, buckets: described };
        let is_sound = is_sound_policy && policy == Policy::One && spec.is_sound() && description.is_sound();
        if is_sound { Ok(description) } else { Err(error::Error::Unsound.into()) }
    }

    /// Returns a filter as described, its bits all zero and its tables empty. Asks the ceiling before it allocates each bucket.
    ///
    /// # Errors
    /// [`error::Error::Unsound`] for layers that no filter can have, and an error if the ceiling or the allocator refuses.
    pub(crate) fn with_zero_bits(&self, ceiling: &impl Ceiling) -> Result<WindowedFilter, error::Error> {
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
