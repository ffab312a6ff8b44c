//! The cells of a layer in chunks of a fixed size, so that neither a saving child nor a loading server needs a second copy. A chunk of
//! zeros takes one byte.

use std::borrow::Cow;
use std::ops::Range;

use super::{Error, Sink, Source};
use crate::cells::{copy_to_zeros, is_zero};
use crate::chain::{Chain, LayerView, Rules};
use crate::error;
use crate::geometry::SupportsPending;
use crate::memory::{make_room, push, reserve};

/// Size of a chunk, in bytes. The last chunk of a layer is shorter.
pub const CHUNK_BYTES: usize = 1024 * 1024;

/// Returns a range of a layer's cells, pending adds included: a copy if any are in the range.
pub(crate) fn cells_in<G: SupportsPending>(
    layer: LayerView<'_, G>,
    bytes: Range<usize>,
) -> Result<Cow<'_, [u8]>, Error> {
    let cells = layer.layer().bytes().get(bytes.clone()).unwrap_or_default();
    if !layer.has_pending_in(bytes.clone()) {
        return Ok(Cow::Borrowed(cells));
    }
    let mut copy = Vec::new();
    reserve(&mut copy, cells.len())?;
    copy.extend_from_slice(cells);
    layer.put_pending(&mut copy, bytes.start);
    Ok(Cow::Owned(copy))
}

/// Writes the cells of a layer; a chunk of zeros as an empty string.
pub(crate) fn write_layer<G: SupportsPending>(layer: LayerView<'_, G>, sink: &mut impl Sink) {
    let is_untouched = layer.layer().is_untouched() && !layer.pends();
    for_each_chunk(layer, |chunk| sink.put_bytes(if is_untouched || is_zero(chunk) { &[] } else { chunk }));
}

/// Passes the chunks of a layer, pending adds included, to a function.
pub(crate) fn for_each_chunk<G: SupportsPending>(layer: LayerView<'_, G>, mut each: impl FnMut(&[u8])) {
    for (number, chunk) in layer.layer().bytes().chunks(CHUNK_BYTES).enumerate() {
        let begin = number * CHUNK_BYTES;
        if layer.has_pending_in(begin..begin + chunk.len()) {
            with_pending(layer, chunk, begin, &mut each);
        } else {
            each(chunk);
        }
    }
}

/// Passes a chunk with its pending adds to a function. The copy is on the stack, because writing must not fail, least of all in a
/// saving child.
#[cold]
#[inline(never)]
fn with_pending<G: SupportsPending>(layer: LayerView<'_, G>, chunk: &[u8], begin: usize, each: &mut impl FnMut(&[u8])) {
    let mut copy = [0; CHUNK_BYTES];
    if let Some(copy) = copy.get_mut(..chunk.len()) {
        copy.copy_from_slice(chunk);
        layer.put_pending(copy, begin);
        each(copy);
    }
}

/// Reads the cells of a layer, which must be zeros before. Only the first `arrived_bytes` may have a cell set; subtracts the layer's length
/// from `arrived_bytes`.
pub(crate) fn read_layer(cells: &mut [u8], arrived_bytes: &mut u64, source: &mut impl Source) -> Result<(), Error> {
    for target in cells.chunks_mut(CHUNK_BYTES) {
        let chunk = source.bytes()?;
        let chunk = chunk.as_ref();
        if chunk.len() == target.len() {
            let beyond = usize::try_from(*arrived_bytes).ok().and_then(|left| chunk.get(left..)).unwrap_or_default();
            if !is_zero(beyond) {
                return Err(Error::OutOfRange);
            }
            copy_to_zeros(chunk, target);
        } else if !chunk.is_empty() {
            return Err(Error::WrongLength);
        }
        *arrived_bytes = arrived_bytes.saturating_sub(target.len() as u64);
    }
    Ok(())
}

/// Writes the cells of all layers of a chain, oldest first.
pub(crate) fn write<R: Rules>(chain: &Chain<R>, sink: &mut impl Sink) {
    chain.layer_views().for_each(|layer| write_layer(layer, sink));
}

/// The ranges of bytes of a filter that have arrived: nonempty, in order, no two of them adjacent.
#[derive(Debug, PartialEq)]
pub(crate) struct Ranges(Vec<Range<u64>>);

impl Ranges {
    /// Returns an empty list with space for one range: bytes that arrive in order never need more.
    pub(crate) fn none() -> Result<Self, error::Error> {
        let mut ranges = Vec::new();
        reserve(&mut ranges, 1)?;
        Ok(Self(ranges))
    }

    /// Returns the range of the first `count` bytes.
    pub(crate) fn first(count: u64) -> Result<Self, error::Error> {
        let mut ranges = Self::none()?;
        ranges.add(0..count);
        Ok(ranges)
    }

    /// Returns a copy.
    pub(crate) fn try_clone(&self) -> Result<Self, error::Error> {
        let mut ranges = Vec::new();
        reserve(&mut ranges, self.0.len().max(1))?;
        ranges.extend(self.0.iter().cloned());
        Ok(Self(ranges))
    }

    /// Returns the ranges in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.0.iter().cloned()
    }

    /// The number of bytes from the first on that have arrived without a gap.
    pub(crate) fn without_gap(&self) -> u64 {
        self.0.first().filter(|first| first.start == 0).map_or(0, |first| first.end)
    }

    /// The end of the last range.
    pub(crate) fn end(&self) -> u64 {
        self.0.last().map_or(0, |last| last.end)
    }

    /// Whether bytes have arrived after a gap.
    pub(crate) fn has_gaps(&self) -> bool {
        self.end() > self.without_gap()
    }

    /// Returns the parts of a range that have arrived.
    pub(crate) fn within(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let Range { start, end } = *range;
        let first = self.0.partition_point(|known| known.end <= start);
        let ranges = self.0.get(first..).unwrap_or_default().iter().take_while(move |known| known.start < end);
        ranges.map(move |known| known.start.max(start)..known.end.min(end))
    }

    /// Reserves space for a range if it will be separate from the others.
    /// On an error, nothing has changed.
    pub(crate) fn make_room_for(&mut self, range: &Range<u64>) -> Result<(), error::Error> {
        if self.touched_by(range).is_empty() {
            make_room(&mut self.0)?;
        }
        Ok(())
    }

    /// Adds a range, for which space must be reserved, and merges it with adjacent ranges.
    pub(crate) fn add(&mut self, mut range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let touched = self.touched_by(&range);
        if let Some(known) = self.0.get(touched.clone())
            && let (Some(front), Some(back)) = (known.first(), known.last())
        {
            range = range.start.min(front.start)..range.end.max(back.end);
        }
        self.0.splice(touched, [range]);
    }

    /// Returns the indices of the ranges that touch or overlap a range; an empty range of indices if none does.
    fn touched_by(&self, range: &Range<u64>) -> Range<usize> {
        let first = self.0.partition_point(|known| known.end < range.start);
        first..self.0.partition_point(|known| known.start <= range.end)
    }

    /// The number of bytes requested from the allocator.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        (self.0.capacity() * size_of::<Range<u64>>()) as u64
    }

    /// Writes the number of ranges, and the begin and end of each.
    pub(crate) fn write(&self, sink: &mut impl Sink) {
        sink.put_u64(self.0.len() as u64);
        for range in &self.0 {
            sink.put_u64(range.start);
            sink.put_u64(range.end);
        }
    }

    /// Reads what [`write`](Self::write) wrote.
    pub(crate) fn read(source: &mut impl Source) -> Result<Self, Error> {
        let mut ranges = Self::none()?;
        for number in 0..source.u64()? {
            let range = source.u64()?..source.u64()?;
            if range.is_empty() || number > 0 && range.start <= ranges.end() {
                return Err(Error::OutOfRange);
            }
            push(&mut ranges.0, range)?;
        }
        Ok(ranges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{ByteSink, ByteSource};

    fn of(ranges: &[Range<u64>]) -> Ranges {
        let mut list = Ranges::none().unwrap();
        for range in ranges {
            list.make_room_for(range).unwrap();
            list.add(range.clone());
        }
        list
    }

    /// Compared with a list of single bytes.
    #[test]
    fn ranges_hold_the_bytes_that_arrived() {
        let mut state = 7u64;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        for _ in 0..200 {
            let (mut ranges, mut bytes) = (Ranges::none().unwrap(), [false; 40]);
            let place = |byte: u64| usize::try_from(byte).unwrap();
            for _ in 0..below(12) {
                let start = below(40);
                let range = start..(start + below(9)).min(40);
                let known: u64 = ranges.within(&range).map(|part| part.end - part.start).sum();
                let expected = range.clone().filter(|byte| bytes[place(*byte)]).count() as u64;
                assert_eq!(known, expected, "{ranges:?}, {range:?}");
                ranges.make_room_for(&range).unwrap();
                ranges.add(range.clone());
                range.for_each(|byte| bytes[place(byte)] = true);
            }
            let held: Vec<u64> = ranges.iter().flatten().collect();
            let expected: Vec<u64> = (0..40).filter(|byte| bytes[place(*byte)]).collect();
            assert_eq!(held, expected);
            assert!(ranges.0.windows(2).all(|pair| pair[0].end < pair[1].start), "{ranges:?}");
            let without_gap = bytes.iter().take_while(|came| **came).count() as u64;
            assert_eq!((ranges.without_gap(), ranges.has_gaps()), (without_gap, held.len() as u64 > without_gap));
            let mut sink = ByteSink::default();
            ranges.write(&mut sink);
            assert_eq!(Ranges::read(&mut ByteSource(&sink.0)).unwrap(), ranges);
        }
    }

    #[test]
    fn bytes_without_a_gap_take_one_range() {
        let ranges = of(&[0..5, 5..9, 9..10]);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), vec![Range { start: 0, end: 10 }]);
        assert_eq!(ranges.allocated_bytes(), 16);
    }
}
