//! The dump of RedisBloom's filters, for BF.SCANDUMP, BF.LOADCHUNK and AOF rewrites, in RedisBloom's format: a header with
//! iterator 1, then the concatenated bits of all layers in chunks of at most 16 MiB.
//!
//! ```text
//! header   u64 size | u32 layers | u32 options | u32 growth
//! layer    u64 bytes | u64 bits | u64 size | f64 error | f64 bits per entry | u32 hashes | u64 entries | u8 n2
//! ```
//! Packed, little-endian. Before 2.2 a header had no growth, and 32 bits for entries; according to RedisShake, release 2.2.0 had
//! growth and 32 bits for entries. A chunk's iterator is 1 plus the offset of its end, so a chunk with `iterator` begins at
//! `iterator - 1 - length`. Chunks have no checksum; a reader can only check that a chunk stays within its layer.
//!
//! A header without growth comes from a release before 2.2, whose seeds are not known (see the snapshot, below), unless it has
//! options of 2.2 or later. RedisShake writes such a header for a filter of those releases if it is told that the target is
//! RedisBloom 1.0. Their seeds have 64 bits.
//!
//! Encoding 5, which RedisBloom's pull request 1065 proposes, has a seed and another hash: 16 more bytes in the header. It is refused.

use super::{DoubleHash, GROWTH, NOROUND, RedisBloom, RedisBloomFilter};
use crate::cells::{BitArray, copy_to_zeros, is_zero, sparse};
use crate::chain::{Layer, check_layer};
use crate::codec::chunks::{self, Ranges};
use crate::codec::{ByteSource, Error, Progress, Record, Sink, Source, number_of_layers, read_u32};
use crate::error;
use crate::geometry::sizing::{to_f64, to_u64};
use crate::geometry::{Flat, LayerDescription};
use crate::host::Ceiling;
use crate::memory::{push, reserve, try_copy};

/// The largest chunk, in bytes.
pub const CHUNK_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The iterator of a header.
pub const HEADER: u64 = 1;

const FRONT_BYTES: usize = 20;
const LAYER_BYTES: usize = 53;
const FRONT_BYTES_WITHOUT_GROWTH: usize = 16;
const LAYER_BYTES_WITH_SHORT_ENTRIES: usize = 49;
const FRONT_BYTES_OF_ENCODING_5: usize = 36;

/// The layers in a header.
pub type Layers = Vec<LayerDescription<Flat<DoubleHash>>>;

/// Returns the header of a filter.
pub fn encode_header(filter: &RedisBloomFilter) -> Result<Vec<u8>, Error> {
    let mut header = Vec::new();
    reserve(&mut header, FRONT_BYTES + filter.layers().len() * LAYER_BYTES)?;
    let layers = u32::try_from(filter.layers().len()).unwrap_or(u32::MAX);
    let rules = filter.rules();
    header.extend_from_slice(&filter.items().to_le_bytes());
    [layers, rules.options(), rules.growth()].iter().for_each(|field| header.extend_from_slice(&field.to_le_bytes()));
    for layer in filter.layers() {
        let Flat { size_bytes, modulus, hashes, bits_per_item, .. } = layer.geometry();
        let (bits, n2) = spelling(filter.rules(), modulus);
        let fields = [size_bytes, bits, layer.items(), layer.rate().to_bits(), bits_per_item.to_bits()];
        fields.iter().for_each(|field| header.extend_from_slice(&field.to_le_bytes()));
        header.extend_from_slice(&hashes.to_le_bytes());
        header.extend_from_slice(&layer.capacity().to_le_bytes());
        header.push(n2);
    }
    Ok(header)
}

/// Reads the rules and layers in a header. Does not check whether such a filter can exist.
///
/// # Errors
/// [`Error::NotADump`] for an impossible length; [`Error::UnknownVersion`]; [`Error::OutOfRange`]; [`Error::Filter`] if there is no
/// memory for the layers.
pub fn decode_header(header: &[u8]) -> Result<(RedisBloom, Layers), Error> {
    let mut fields = ByteSource(header);
    let _items = fields.u64()?;
    let count = fields.u32()?;
    let has_length = |front: usize, layer: usize| {
        usize::try_from(count).ok().and_then(|count| count.checked_mul(layer)?.checked_add(front)) == Some(header.len())
    };
    let has_short_entries = |front: usize| has_length(front, LAYER_BYTES_WITH_SHORT_ENTRIES);
    let (has_growth, short_entries) = match () {
        () if has_length(FRONT_BYTES, LAYER_BYTES) => (true, false),
        () if has_short_entries(FRONT_BYTES) => (true, true),
        () if has_short_entries(FRONT_BYTES_WITHOUT_GROWTH) => (false, true),
        () if has_length(FRONT_BYTES_OF_ENCODING_5, LAYER_BYTES) => return Err(Error::UnknownVersion(5)),
        () => return Err(Error::NotADump),
    };
    let options = fields.u32()?;
    let rules = match has_growth {
        true => RedisBloom::stored(options, fields.u32()?),
        false if options & NOROUND != 0 => RedisBloom::stored(options, GROWTH),
        false => RedisBloom::before_2_2(options),
    };
    let mut layers = Vec::new();
    for _ in 0..count {
        let (size_bytes, bits, items) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let (rate, bits_per_item) = (fields.f64()?, fields.f64()?);
        let hashes = fields.u32()?;
        let capacity = if short_entries { fields.u32()?.into() } else { fields.u64()? };
        let modulus = modulus(bits, fields.u8()?.into())?;
        let geometry = Flat::new(size_bytes, modulus, hashes, bits_per_item);
        push(&mut layers, LayerDescription { rate, capacity, items, geometry })?;
    }
    Ok((rules, layers))
}

/// Returns the record after the one with this iterator, 0 for the first; `None` after the last one.
///
/// # Errors
/// [`Error::Filter`] if there is no memory for the header. Chunks borrow the filter's bytes.
pub fn next_record(filter: &RedisBloomFilter, iterator: u64) -> Result<Option<Record<'_>>, Error> {
    match iterator.checked_sub(HEADER) {
        None => Ok(Some((HEADER, encode_header(filter)?.into()))),
        Some(begin) => Ok(chunk_from(filter, begin).map(|chunk| (iterator + chunk.len() as u64, chunk.into()))),
    }
}

/// Returns the bits from an offset in the concatenated layers to the end of that layer, at most one chunk.
pub(super) fn chunk_from(filter: &RedisBloomFilter, begin: u64) -> Option<&[u8]> {
    let offset = locate(filter, begin)?;
    let bits = filter.layers().get(offset.layer)?.bytes().get(offset.begin..)?;
    Some(bits.get(..CHUNK_BYTES_MAX).unwrap_or(bits))
}

/// Returns the records of a dump in order. Stops after an error.
pub fn records(filter: &RedisBloomFilter) -> impl Iterator<Item = Result<Record<'_>, Error>> {
    std::iter::successors(next_record(filter, 0).transpose(), |before| {
        let (iterator, _) = before.as_ref().ok()?;
        next_record(filter, *iterator).transpose()
    })
}

/// A byte of the concatenated layers.
pub(super) struct ByteOffset {
    layer: usize,
    /// The offset in the layer.
    begin: usize,
    /// The number of bytes from there to the end of the layer.
    left: u64,
}

impl ByteOffset {
    /// Returns `count` bytes of the filter from here on.
    pub(super) fn bytes_mut<'a>(&self, filter: &'a mut RedisBloomFilter, count: usize) -> Option<&'a mut [u8]> {
        filter.layer_bytes_mut(self.layer)?.get_mut(self.begin..)?.get_mut(..count)
    }
}

fn locate(filter: &RedisBloomFilter, mut position: u64) -> Option<ByteOffset> {
    for (layer, size_bytes) in filter.layers().iter().map(|layer| layer.geometry().size_bytes).enumerate() {
        if position < size_bytes {
            return Some(ByteOffset { layer, begin: usize::try_from(position).ok()?, left: size_bytes - position });
        }
        position -= size_bytes;
    }
    None
}

pub(super) fn total_bytes(filter: &RedisBloomFilter) -> u64 {
    filter.layers().iter().fold(0, |sum, layer| sum.saturating_add(layer.geometry().size_bytes))
}

/// Returns the offset of a chunk in the concatenated layers, and the location of its first byte.
pub(super) fn offset_of(filter: &RedisBloomFilter, iterator: u64, data: &[u8]) -> Result<(u64, ByteOffset), Error> {
    let length = data.len() as u64;
    if data.is_empty() || iterator < length {
        return Err(Error::WrongLength);
    }
    let begin = (iterator - length).checked_sub(HEADER).ok_or(Error::BeyondEnd)?;
    let offset = locate(filter, begin).ok_or(Error::BeyondEnd)?;
    if length > offset.left { Err(Error::TooLong) } else { Ok((begin, offset)) }
}

/// Overwrites a part of a complete filter with a chunk, as RedisBloom does for every chunk.
///
/// # Errors
/// If the chunk does not fit the filter, which is then unchanged.
pub fn overwrite(filter: &mut RedisBloomFilter, iterator: u64, data: &[u8]) -> Result<Progress, Error> {
    if data.is_empty() {
        return Ok(Progress::Known);
    }
    let (_, offset) = offset_of(filter, iterator, data)?;
    let here = offset.bytes_mut(filter, data.len()).ok_or(Error::TooLong)?;
    if here == data {
        return Ok(Progress::Known);
    }
    here.copy_from_slice(data);
    Ok(Progress::Stored)
}

/// Accepts a chunk whose bits are all set in the filter, and changes nothing. The filter may have more bits, from later items.
pub fn is_duplicate_record(filter: &RedisBloomFilter, iterator: u64, data: &[u8]) -> Result<(), Error> {
    let (_, offset) = offset_of(filter, iterator, data)?;
    let here = filter.layers().get(offset.layer).and_then(|layer| layer.bytes().get(offset.begin..));
    let same = here.unwrap_or_default().iter().zip(data).all(|(here, came)| came & !here == 0);
    if same { Ok(()) } else { Err(Error::Different) }
}

// The snapshot of RedisBloom's filters: RDB type `MBbloom--`. Reads encodings 0 to 4, writes 4.
//
// ```text
// uint   size            items of all layers
// uint   layers          at least 1
// uint   options         from encoding 2 on; else 0
// uint   growth          from encoding 4 on; else 2
// for each layer, oldest first:
//   uint   entries       the capacity
//   double error         its own rate
//   uint   hashes        k
//   double bits per entry
//   uint   bits          from encoding 1 on; else entries * bits per entry, rounded down
//   uint   n2            from encoding 1 on; else 0
//   string the bits
//   uint   size          items of this layer
// ```
// Positions are modulo 2^n2, or modulo `bits` if n2 is 0. Releases before 2.2 rounded sizes up to a power of two and stored n2
// with 0 for `bits`. Such a layer is written with n2 = 0 and its power of two as `bits`: the positions are the same, and
// current RedisBloom refuses the other form. The first `size` is the sum of the layers' sizes.
//
// Encodings 2 and 3 do not state the width of the seeds of the 64-bit hash: see `Hash::Murmur64EitherSeeds`. Such a filter gets
// an option of ours and is written with n2, so that current releases of RedisBloom refuse it, as they refuse the data of the
// old release. Otherwise RedisBloom would hash with seeds of 64 bits and could report every item absent.

/// The encoding that is written, and the highest that can be read.
pub const ENCODING: u32 = 4;

/// Writes a filter.
pub fn write_snapshot(filter: &RedisBloomFilter, sink: &mut impl Sink) {
    sink.put_u64(filter.items());
    sink.put_u64(filter.layers().len() as u64);
    sink.put_u64(filter.rules().options().into());
    sink.put_u64(filter.rules().growth().into());
    for layer in filter.layers() {
        let geometry = layer.geometry();
        sink.put_u64(layer.capacity());
        sink.put_f64(layer.rate());
        sink.put_u64(geometry.hashes.into());
        sink.put_f64(geometry.bits_per_item);
        let (bits, n2) = spelling(filter.rules(), geometry.modulus);
        sink.put_u64(bits);
        sink.put_u64(n2.into());
        sink.put_bytes(layer.bytes());
        sink.put_u64(layer.items());
    }
}

/// Reads a filter of an encoding. Checks the ceiling for each layer before its bits are read, and again for the bytes that have
/// arrived.
pub fn read_snapshot(
    source: &mut impl Source,
    encoding: u32,
    ceiling: &impl Ceiling,
) -> Result<RedisBloomFilter, Error> {
    if encoding > ENCODING {
        return Err(Error::UnknownVersion(encoding.into()));
    }
    let _items = source.u64()?;
    let count = number_of_layers::<RedisBloom>(source.u64()?, ceiling)?;
    let options = if encoding >= 2 { read_u32(source)? } else { 0 };
    let rules =
        if encoding >= 4 { RedisBloom::stored(options, read_u32(source)?) } else { RedisBloom::before_2_2(options) };
    let (mut layers, mut cells_bytes) = (Vec::new(), 0u64);
    for index in 0..count {
        let check = |layer_bytes| check_layer::<RedisBloom>(ceiling, index, cells_bytes, 0, layer_bytes);
        let (capacity, rate) = (source.u64()?, source.f64()?);
        let hashes = read_u32(source)?;
        let bits_per_item = source.f64()?;
        let modulus = if encoding >= 1 {
            modulus(source.u64()?, source.u64()?)?
        } else {
            to_u64((to_f64(capacity) * bits_per_item).floor())
        };
        check(modulus.div_ceil(8))?;
        let bits = sparse(source.owned_bytes()?);
        let size_bytes = bits.len() as u64;
        check(size_bytes)?;
        cells_bytes = cells_bytes.saturating_add(size_bytes);
        let geometry = Flat::new(size_bytes, modulus, hashes, bits_per_item);
        let description = LayerDescription { rate, capacity, items: source.u64()?, geometry };
        let bits = BitArray::from_stored(bits, 0).ok_or(error::Error::Unsound)?;
        push(&mut layers, Layer::new(&description, || Ok(bits))?)?;
    }
    Ok(RedisBloomFilter::from_layers(rules, layers)?)
}

/// Returns `bits` and `n2` for a layer's modulus.
pub(super) fn spelling(rules: &RedisBloom, modulus: u64) -> (u64, u8) {
    let power = u8::try_from(modulus.trailing_zeros()).ok().filter(|_| modulus.is_power_of_two());
    match power {
        Some(n2) if n2 > 0 && rules.has_either_seeds() => (0, n2),
        _ => (modulus, 0),
    }
}

/// Returns the modulus for positions.
pub(super) fn modulus(bits: u64, n2: u64) -> Result<u64, Error> {
    match n2 {
        0 => Ok(bits),
        1..64 => Ok(1 << n2),
        _ => Err(Error::OutOfRange),
    }
}

// The receiving end of RedisBloom's dump: a filter whose chunks arrive one by one.
//
// RedisBloom accepts chunks in any order, and overwrites bytes that arrived before; its filter answers lookups as soon as the
// header has arrived. This crate accepts chunks from clients only in order, because a missing chunk would otherwise go
// unnoticed. It accepts every chunk that a primary accepted. The filter is complete when all bytes have arrived, in any order.

/// Replaces the number of arrived bytes if there are gaps.
const WITH_GAPS: u64 = u64::MAX;

/// A filter of RedisBloom's layout whose chunks have not all arrived.
#[derive(Debug, PartialEq)]
pub struct RedisBloomArrival {
    filter: RedisBloomFilter,
    /// Kept, so that saving an incomplete filter allocates no memory.
    header: Box<[u8]>,
    came: Ranges,
}

impl RedisBloomArrival {
    /// Begins with a header.
    ///
    /// # Errors
    /// [`Error::NotADump`] and others for bytes that are not a header; [`Error::Filter`] for a filter that cannot exist or
    /// exceeds the ceiling.
    pub fn begin(header: &[u8], ceiling: &impl Ceiling) -> Result<Self, Error> {
        let (rules, layers) = decode_header(header)?;
        let filter = RedisBloomFilter::with_empty_layers(rules, layers.iter().copied(), ceiling)?;
        Ok(Self { header: encode_header(&filter)?.into_boxed_slice(), filter, came: Ranges::none()? })
    }

    /// Its `kind` in a snapshot, as `format/stored.rs` specifies.
    pub(crate) const KIND: u64 = 3;

    /// Writes its snapshot, from `kind` on.
    pub(crate) fn write(&self, sink: &mut impl Sink) {
        sink.put_u64(Self::KIND);
        sink.put_bytes(&self.header);
        if self.came.has_gaps() {
            sink.put_u64(WITH_GAPS);
            self.came.write(sink);
        } else {
            sink.put_u64(self.came.without_gap());
        }
        chunks::write(&self.filter, sink);
    }

    /// Reads what [`write`](Self::write) wrote after `kind`. Checks the ceiling for all of its memory before it allocates.
    pub(crate) fn read(source: &mut impl Source, ceiling: &impl Ceiling) -> Result<Self, Error> {
        let (rules, layers) = decode_header(source.bytes()?.as_ref())?;
        let came = match source.u64()? {
            WITH_GAPS => Some(Ranges::read(source)?).filter(Ranges::has_gaps).ok_or(Error::OutOfRange)?,
            arrived_bytes => Ranges::first(arrived_bytes)?,
        };
        let mut filter = RedisBloomFilter::with_empty_layers(rules, layers.iter().copied(), ceiling)?;
        chunks::read(&mut filter, came.end(), source)?;
        Self::resume(filter, came)
    }

    fn resume(filter: RedisBloomFilter, came: Ranges) -> Result<Self, Error> {
        let total = total_bytes(&filter);
        if came.end() > total || came.without_gap() == total {
            return Err(Error::OutOfRange);
        }
        let mut gap_start = 0;
        for range in came.iter() {
            if !is_zero_between(&filter, gap_start, range.start) {
                return Err(Error::OutOfRange);
            }
            gap_start = range.end;
        }
        Ok(Self { header: encode_header(&filter)?.into_boxed_slice(), filter, came })
    }

    /// Accepts a client's record. The header and every chunk that has arrived may be repeated with the same bytes.
    ///
    /// # Errors
    /// If the record is out of order or has the wrong length. The filter is then unchanged.
    pub fn accept(&mut self, iterator: u64, data: &[u8]) -> Result<Progress, Error> {
        if iterator == HEADER {
            return self.accept_header(data);
        }
        let (begin, offset) = offset_of(&self.filter, iterator, data)?;
        let arrived_bytes = self.came.without_gap();
        if begin > arrived_bytes {
            return Err(Error::Gap { arrived_bytes });
        }
        let range = begin..begin + data.len() as u64;
        let here = offset.bytes_mut(&mut self.filter, data.len()).ok_or(Error::TooLong)?;
        let mut known_bytes = 0;
        for known in self.came.within(&range) {
            let place = index(known.start - begin)..index(known.end - begin);
            if data.get(place.clone()) != here.get(place) {
                return Err(Error::Different);
            }
            known_bytes += known.end - known.start;
        }
        if known_bytes == data.len() as u64 {
            return Ok(Progress::Known);
        }
        self.came.make_room_for(&range)?;
        // Missing chunks are zero, and the rest is equal.
        copy_to_zeros(data, here);
        self.came.add(range);
        Ok(self.progress())
    }

    /// Accepts a record that a primary accepted: chunks in any order, and repeated with other bytes.
    ///
    /// # Errors
    /// If the record does not fit the filter, which is then unchanged.
    pub fn accept_replicated(&mut self, iterator: u64, data: &[u8]) -> Result<Progress, Error> {
        if data.is_empty() {
            return Ok(Progress::Known);
        }
        if iterator == HEADER {
            return self.accept_header(data);
        }
        let (begin, offset) = offset_of(&self.filter, iterator, data)?;
        let range = begin..begin + data.len() as u64;
        let here = offset.bytes_mut(&mut self.filter, data.len()).ok_or(Error::TooLong)?;
        self.came.make_room_for(&range)?;
        here.copy_from_slice(data);
        self.came.add(range);
        Ok(self.progress())
    }

    fn accept_header(&self, header: &[u8]) -> Result<Progress, Error> {
        let (rules, layers) = decode_header(header)?;
        let own = self.filter.layers().iter().map(Layer::description);
        let same = rules == *self.filter.rules() && own.eq(layers);
        if same { Ok(Progress::Known) } else { Err(Error::Different) }
    }

    fn progress(&self) -> Progress {
        if self.came.without_gap() == total_bytes(&self.filter) { Progress::Complete } else { Progress::Stored }
    }

    /// Returns the filter with the chunks that have arrived so far.
    pub const fn filter(&self) -> &RedisBloomFilter {
        &self.filter
    }

    /// Returns the header of the incomplete filter.
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// Returns the filter after the last chunk.
    #[must_use]
    pub fn into_filter(self) -> RedisBloomFilter {
        self.filter
    }

    /// The number of bytes of the concatenated layers that have arrived before the first gap.
    pub fn arrived_bytes(&self) -> u64 {
        self.came.without_gap()
    }

    /// The number of bytes requested from the allocator in addition to the filter's.
    pub(crate) fn own_bytes(&self) -> u64 {
        self.header.len() as u64 + self.came.allocated_bytes()
    }

    /// Returns records of everything that has arrived.
    pub fn records(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let chunks = self.came.iter().flat_map(|range| chunks_between(&self.filter, range.start, range.end));
        std::iter::once((HEADER, self.header())).chain(chunks.map(|(end, chunk)| (HEADER + end, chunk)))
    }

    /// Returns a copy with the same fields and bits.
    pub fn try_clone(&self) -> Result<Self, error::Error> {
        let (header, came) = (try_copy(&self.header)?, self.came.try_clone()?);
        Ok(Self { filter: self.filter.try_clone()?, header, came })
    }
}

/// Converts the offset of a byte to an index.
fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Returns the bytes of all layers from `start` to `end`, in chunks that do not cross layers, each with its end.
fn chunks_between(filter: &RedisBloomFilter, start: u64, end: u64) -> impl Iterator<Item = (u64, &[u8])> {
    let mut begin = start;
    std::iter::from_fn(move || {
        let left = index(end.saturating_sub(begin));
        let chunk = chunk_from(filter, begin).filter(|_| left > 0)?;
        let chunk = chunk.get(..left).unwrap_or(chunk);
        begin += chunk.len() as u64;
        Some((begin, chunk))
    })
}

fn is_zero_between(filter: &RedisBloomFilter, start: u64, end: u64) -> bool {
    chunks_between(filter, start, end).all(|(_, chunk)| is_zero(chunk))
}
