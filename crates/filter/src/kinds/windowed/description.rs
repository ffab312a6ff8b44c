//! Everything about a filter that forgets but its bits and tables, as `format/stored.rs` draws it.

use std::ops::Range;

use super::ring::{BesideBuckets, Bucket, is_in_time};
use super::{BUCKETS_MAX, Forgets, WindowedFilter, WindowedSpec};
use crate::ceiling::Ceiling;
use crate::clock::Moment;
use crate::error;
use crate::format::records::{Part, Recorded};
use crate::format::{Error, LayerCells, Sink, Source, read_u32};
use crate::geometry::LayerDescription;
use crate::hash::ItemHash;
use crate::kinds::Contents;
use crate::kinds::kind::Kind as _;
use crate::kinds::native::description::{Layers, are_shaped, read_layers, read_spec, write_layers, write_spec};
use crate::kinds::native::{BloomFilter, NativeSpec};
use crate::memory::push;
use crate::shape::{HashSet, LAYERS_MAX, Layer};

/// A bucket as it is described.
pub struct DescribedBucket {
    slot: u64,
    begin: Moment,
    end: Moment,
    capacity: u64,
    renewed: u64,
    is_left_out: bool,
    layers: Layers,
}

/// How a filter that forgets is described.
pub struct Description {
    spec: WindowedSpec,
    buckets: Vec<DescribedBucket>,
}

fn write_windowed_spec(spec: &WindowedSpec, sink: &mut impl Sink) {
    let WindowedSpec { rate, capacity, scaling, hasher, forgets, buckets } = *spec;
    write_spec(&NativeSpec { rate, capacity, scaling, hasher }, sink);
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
    fn write(bucket: &Bucket, sink: &mut impl Sink) {
        let Bucket { slot, begin, end, ref filter, renewed, is_left_out } = *bucket;
        sink.put_u64(slot);
        sink.put_u64(begin.0);
        sink.put_u64(end.0);
        sink.put_u64(filter.spec().capacity);
        // Only SLIDING renews items: the other rings keep the flag that they always wrote.
        sink.put_u64(renewed << 1 | u64::from(is_left_out));
        write_layers(filter.layers().iter().map(Layer::description), sink);
    }

    fn read(source: &mut impl Source) -> Result<Self, Error> {
        let (slot, begin, end) = (source.u64()?, Moment(source.u64()?), Moment(source.u64()?));
        let (capacity, flags) = (source.u64()?, source.u64()?);
        let (renewed, is_left_out) = (flags >> 1, flags & 1 == 1);
        Ok(Self { slot, begin, end, capacity, renewed, is_left_out, layers: read_layers(source)? })
    }
}

impl Description {
    /// Whether the buckets are in order of time, each with its own slot, begin after the bucket before them ends, have renewed no
    /// more items than they have, and have no more layers than a dump can number.
    fn is_sound(&self) -> bool {
        let is_rolling = self.spec.forgets == Forgets::Rolling;
        let count = self.buckets.len();
        let in_order = self.buckets.windows(2).all(|pair| match pair {
            [before, after] => before.slot < after.slot && before.end <= after.begin,
            _ => true,
        });
        let times = |bucket: &DescribedBucket| {
            is_in_time(&self.spec, bucket.slot, bucket.begin, bucket.end)
                && (!is_rolling || bucket.begin == Moment(0) && bucket.end == Moment(0))
        };
        let is_sliding = matches!(self.spec.forgets, Forgets::After { is_sliding: true, .. });
        let renewed = |bucket: &DescribedBucket| {
            let items = bucket.layers.iter().fold(0u64, |sum, layer| sum.saturating_add(layer.items));
            bucket.renewed <= if is_sliding { items } else { 0 }
        };
        let layers = self.buckets.iter().map(|bucket| bucket.layers.len()).sum::<usize>();
        (1..=self.spec.buckets as usize).contains(&count)
            && in_order
            && self.buckets.iter().all(|bucket| times(bucket) && renewed(bucket))
            && layers <= LAYERS_MAX
    }
}

impl WindowedFilter {
    /// The bucket that has a layer, and the layer's index in it.
    fn place_of(&self, mut layer: usize) -> Option<(usize, usize)> {
        for (index, bucket) in self.buckets().enumerate() {
            let layers = bucket.filter.layers().len();
            if layer < layers {
                return Some((index, layer));
            }
            layer -= layers;
        }
        None
    }
}

impl LayerCells for WindowedFilter {
    fn layer_count(&self) -> usize {
        crate::kinds::kind::Kind::layer_count(self)
    }

    fn layer_cells(&self, layer: usize) -> &[u8] {
        let place = self.place_of(layer);
        let cells = place.and_then(|(bucket, layer)| Some(self.bucket(bucket)?.filter.layer_cells(layer)));
        cells.unwrap_or_default()
    }

    fn has_pending_in(&self, layer: usize, bytes: Range<usize>) -> bool {
        let place = self.place_of(layer);
        let bucket = place.and_then(|(bucket, layer)| Some((self.bucket(bucket)?, layer)));
        bucket.is_some_and(|(bucket, layer)| bucket.filter.has_pending_in(layer, bytes))
    }

    fn put_pending(&self, layer: usize, copy: &mut [u8], begin: usize) {
        let place = self.place_of(layer);
        if let Some((bucket, layer)) = place.and_then(|(bucket, layer)| Some((self.bucket(bucket)?, layer))) {
            bucket.filter.put_pending(layer, copy, begin);
        }
    }

    fn layer_cells_mut(&mut self, layer: usize) -> &mut [u8] {
        let place = self.place_of(layer);
        let cells = place.and_then(|(bucket, layer)| Some(self.bucket_mut(bucket)?.filter.layer_cells_mut(layer)));
        cells.unwrap_or_default()
    }
}

impl Recorded for WindowedFilter {
    const KIND: u64 = 6;
    type Description = Description;

    fn describe(&self, sink: &mut impl Sink) {
        write_windowed_spec(&self.spec(), sink);
        sink.put_u64(self.buckets().len() as u64);
        self.buckets().for_each(|bucket| DescribedBucket::write(bucket, sink));
    }

    fn read_description(source: &mut impl Source) -> Result<Description, Error> {
        let (NativeSpec { rate, capacity, scaling, hasher }, is_known_policy) = read_spec(source)?;
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
        let description = Description { spec, buckets: described };
        let is_sound = is_known_policy && spec.is_sound() && description.is_sound();
        if is_sound { Ok(description) } else { Err(error::Error::Unsound.into()) }
    }

    fn with_zero_cells(description: &Description, ceiling: &impl Ceiling) -> Result<Self, error::Error> {
        let mut filter = Self::without_buckets(description.spec)?;
        for bucket in &description.buckets {
            let DescribedBucket { slot, begin, end, capacity, renewed, is_left_out, ref layers } = *bucket;
            let spec = description.spec.bucket(capacity);
            // Their layers together were counted when they were described.
            let others = || Contents { layers: 0, ..filter.contents() };
            let beside = BesideBuckets { ceiling, others };
            let bits = BloomFilter::part_with_zero_bits(spec, layers, &beside)?;
            filter.push_bucket(Bucket { slot, begin, end, filter: bits, renewed, is_left_out });
        }
        Ok(filter)
    }

    fn is_described(&self, description: &Description, _layers: usize) -> bool {
        let is_described = |bucket: &Bucket, described: &DescribedBucket| {
            let Bucket { slot, begin, end, ref filter, .. } = *bucket;
            let layers = filter.layers().get(..described.layers.len()).unwrap_or_default();
            (slot, begin, end) == (described.slot, described.begin, described.end)
                && are_shaped(layers, &described.layers)
        };
        description.spec == self.spec()
            && description.buckets.len() <= self.buckets().len()
            && self.buckets().zip(&description.buckets).all(|(bucket, described)| is_described(bucket, described))
    }

    fn identify(&self, mut layers: usize, sink: &mut impl Sink) {
        write_windowed_spec(&self.spec(), sink);
        for Bucket { slot, begin, end, filter, .. } in self.buckets() {
            let counted = filter.layers().get(..layers).unwrap_or(filter.layers());
            if counted.is_empty() {
                break;
            }
            layers -= counted.len();
            [*slot, begin.0, end.0, filter.spec().capacity].into_iter().for_each(|number| sink.put_u64(number));
            write_layers(counted.iter().map(|layer| LayerDescription { items: 0, ..layer.description() }), sink);
        }
    }

    fn layer_items(&self, layer: usize) -> u64 {
        let place = self.place_of(layer);
        place.and_then(|(bucket, layer)| Some(self.bucket(bucket)?.filter.layer_items(layer))).unwrap_or(0)
    }

    fn count_at_least(&mut self, layer: usize, items: u64) -> Result<(), error::Error> {
        let place = self.place_of(layer);
        let bucket = place.and_then(|(bucket, layer)| Some((self.bucket_mut(bucket)?, layer)));
        let (bucket, layer) = bucket.ok_or(error::Error::Unsound)?;
        bucket.filter.count_at_least(layer, items)
    }

    fn size_bytes(&self) -> u64 {
        self.contents().size_bytes
    }

    fn try_clone(&self) -> Result<Self, error::Error> {
        Self::try_clone(self)
    }

    fn part_count(&self) -> usize {
        self.buckets().len()
    }

    fn part(&self, index: usize) -> Option<Part> {
        let bucket = self.bucket(index)?;
        Some(Part { name: bucket.slot, layers: bucket.filter.layers().len(), revision: bucket.filter.revision() })
    }

    fn has_tables(&self) -> bool {
        self.spec().hasher.is_keyed()
    }

    fn table(&self, part: usize) -> Option<&HashSet> {
        self.bucket(part)?.filter.deleted()
    }

    fn take_deleted(&mut self, part: usize, run: &[ItemHash]) -> Result<(), error::Error> {
        self.bucket_mut(part).ok_or(error::Error::Unsound)?.filter.take_deleted(run)
    }

    fn is_marked(&self) -> bool {
        true
    }

    fn leave_out(&mut self, layer: usize) {
        let place = self.place_of(layer);
        if let Some(bucket) = place.and_then(|(bucket, _)| self.bucket_mut(bucket)) {
            bucket.is_left_out = true;
        }
    }

    fn is_left_out(&self, layer: usize) -> bool {
        let place = self.place_of(layer);
        place.and_then(|(bucket, _)| self.bucket(bucket)).is_some_and(|bucket| bucket.is_left_out)
    }

    fn complete(&mut self) {
        self.drop_left_out();
    }
}
