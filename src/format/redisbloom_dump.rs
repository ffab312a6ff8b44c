//! The dump of RedisBloom's filters, for BF.SCANDUMP, BF.LOADCHUNK and the rewriting of the AOF, as RedisBloom has it: a
//! header with iterator 1, then the bits of all layers one behind the other in chunks of at most 16 MiB.
//!
//! ```text
//! header   u64 size | u32 layers | u32 options | u32 growth
//! layer    u64 bytes | u64 bits | u64 size | f64 error | f64 bits per entry | u32 hashes | u64 entries | u8 n2
//! ```
//! Packed, little-endian. A version of 2018 had no growth, and 32 bits for entries. A chunk's iterator is 1 and the number of
//! bytes up to its end, so a chunk that came with `iterator` begins at `iterator - 1 - length`. A chunk has no checksum: what
//! can be checked is that chunks come without a gap, do not go beyond their layer, and are the same when they come again.

use std::borrow::Cow;

use super::fields::Packed;
use super::redisbloom::{modulus, spelling};
use super::{Error, Progress};
use crate::bloom::redisbloom::Geometry;
use crate::bloom::{self, Ceiling, Layer, LayerDescription, RedisBloom, RedisBloomFilter};

/// The largest chunk, in bytes.
pub const CHUNK_BYTES: usize = 16 * 1024 * 1024;
/// The iterator of a header.
pub const HEADER: u64 = 1;

const FRONT_BYTES: usize = 20;
const LAYER_BYTES: usize = 53;
const FRONT_BYTES_2018: usize = 16;
const LAYER_BYTES_2018: usize = 49;

/// The header of a filter.
///
/// # Errors
/// [`Error::Filter`] where there is no memory for it.
pub fn encode_header(filter: &RedisBloomFilter) -> Result<Vec<u8>, Error> {
    let mut header = Vec::new();
    super::reserve(&mut header, FRONT_BYTES + filter.layers().len() * LAYER_BYTES)?;
    let layers = u32::try_from(filter.layers().len()).unwrap_or(u32::MAX);
    let RedisBloom { options, growth } = *filter.rules();
    header.extend_from_slice(&filter.items().to_le_bytes());
    [layers, options, growth].iter().for_each(|field| header.extend_from_slice(&field.to_le_bytes()));
    for layer in filter.layers() {
        let Geometry { size_bytes, modulus, hashes, bits_per_item, .. } = layer.geometry();
        let (bits, n2) = spelling(filter.rules(), modulus);
        let fields = [size_bytes, bits, layer.items(), layer.rate().to_bits(), bits_per_item.to_bits()];
        fields.iter().for_each(|field| header.extend_from_slice(&field.to_le_bytes()));
        header.extend_from_slice(&hashes.to_le_bytes());
        header.extend_from_slice(&layer.capacity().to_le_bytes());
        header.push(n2);
    }
    Ok(header)
}

/// The rules and the layers that a header speaks of. Whether a filter can be like that is for the filter to say.
///
/// # Errors
/// [`Error::NotADump`] for bytes of another length than a header has; [`Error::OutOfRange`]; [`Error::Filter`] where there
/// is no memory for what it says.
pub fn decode_header(header: &[u8]) -> Result<(RedisBloom, Vec<LayerDescription<Geometry>>), Error> {
    let mut fields = Packed(header);
    let _items = fields.u64()?;
    let count = fields.u32()?;
    let has_length = |front: usize, layer: usize| {
        usize::try_from(count).ok().and_then(|count| count.checked_mul(layer)?.checked_add(front)) == Some(header.len())
    };
    let of_2018 = has_length(FRONT_BYTES_2018, LAYER_BYTES_2018);
    if !(of_2018 || has_length(FRONT_BYTES, LAYER_BYTES)) {
        return Err(Error::NotADump);
    }
    let options = fields.u32()?;
    let rules = if of_2018 { RedisBloom::before_2_0(options) } else { RedisBloom { options, growth: fields.u32()? } };
    let mut layers = Vec::new();
    for _ in 0..count {
        let (size_bytes, bits, items) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let (rate, bits_per_item) = (fields.f64()?, fields.f64()?);
        let hashes = fields.u32()?;
        let capacity = if of_2018 { fields.u32()?.into() } else { fields.u64()? };
        let modulus = modulus(bits, fields.u8()?.into())?;
        let geometry = Geometry::new(size_bytes, modulus, hashes, bits_per_item);
        super::push(&mut layers, LayerDescription { rate, capacity, items, geometry })?;
    }
    Ok((rules, layers))
}

/// A record: its iterator and its data.
pub type Record<'a> = (u64, Cow<'a, [u8]>);

/// The record behind the one with this iterator, 0 for the first; nothing behind the last one.
///
/// # Errors
/// [`Error::Filter`] where there is no memory for the header. Chunks are the filter's own bytes.
pub fn next_record(filter: &RedisBloomFilter, iterator: u64) -> Result<Option<Record<'_>>, Error> {
    match iterator.checked_sub(HEADER) {
        None => Ok(Some((HEADER, encode_header(filter)?.into()))),
        Some(begin) => Ok(chunk_from(filter, begin).map(|chunk| (iterator + chunk.len() as u64, chunk.into()))),
    }
}

fn chunk_from(filter: &RedisBloomFilter, begin: u64) -> Option<&[u8]> {
    let place = locate(filter, begin)?;
    let bits = filter.layers().get(place.layer)?.bytes().get(place.begin..)?;
    Some(bits.get(..CHUNK_BYTES).unwrap_or(bits))
}

/// The records of a dump, one behind the other. An error is the last.
pub fn records(filter: &RedisBloomFilter) -> impl Iterator<Item = Result<Record<'_>, Error>> {
    std::iter::successors(next_record(filter, 0).transpose(), |before| {
        let (iterator, _) = before.as_ref().ok()?;
        next_record(filter, *iterator).transpose()
    })
}

/// A byte of all layers' bytes one behind the other.
struct Place {
    layer: usize,
    /// Where it is in the layer.
    begin: usize,
    /// Number of bytes of the layer from there on.
    left: u64,
}

fn locate(filter: &RedisBloomFilter, mut offset: u64) -> Option<Place> {
    for (layer, size_bytes) in filter.layers().iter().map(|layer| layer.geometry().size_bytes).enumerate() {
        if offset < size_bytes {
            return Some(Place { layer, begin: usize::try_from(offset).ok()?, left: size_bytes - offset });
        }
        offset -= size_bytes;
    }
    None
}

fn total_bytes(filter: &RedisBloomFilter) -> u64 {
    filter.layers().iter().fold(0, |sum, layer| sum.saturating_add(layer.geometry().size_bytes))
}

/// Where a chunk begins in all bytes, and the place of its first byte.
fn place_of(filter: &RedisBloomFilter, iterator: u64, data: &[u8]) -> Result<(u64, Place), Error> {
    if data.is_empty() {
        return Err(Error::WrongLength);
    }
    let begin =
        iterator.checked_sub(HEADER).and_then(|end| end.checked_sub(data.len() as u64)).ok_or(Error::BehindEnd)?;
    let place = locate(filter, begin).ok_or(Error::BehindEnd)?;
    if data.len() as u64 > place.left { Err(Error::TooLong) } else { Ok((begin, place)) }
}

/// A filter of RedisBloom's layout whose chunks have not all arrived.
#[derive(Debug, PartialEq)]
pub struct RedisBloomArrival {
    filter: RedisBloomFilter,
    /// Kept, so that to save what has come takes no memory.
    header: Box<[u8]>,
    arrived_bytes: u64,
}

impl RedisBloomArrival {
    /// Begins with a header.
    ///
    /// # Errors
    /// [`Error::NotADump`] and the like for what is no header; [`Error::Filter`] for a filter that cannot be or does not
    /// fit under the ceiling.
    pub fn begin(header: &[u8], ceiling: &impl Ceiling) -> Result<Self, Error> {
        let (rules, layers) = decode_header(header)?;
        let filter = RedisBloomFilter::with_empty_layers(rules, layers.iter().copied(), ceiling)?;
        Ok(Self { header: encode_header(&filter)?.into_boxed_slice(), filter, arrived_bytes: 0 })
    }

    /// Goes on from what a snapshot holds.
    pub(super) fn resume(filter: RedisBloomFilter, arrived_bytes: u64) -> Result<Self, Error> {
        if arrived_bytes >= total_bytes(&filter) {
            return Err(Error::OutOfRange);
        }
        Ok(Self { header: encode_header(&filter)?.into_boxed_slice(), filter, arrived_bytes })
    }

    /// Takes a record. The header may come again, and every chunk that came already, with the same bytes.
    ///
    /// # Errors
    /// For a record out of order or of the wrong length. Nothing has changed then.
    pub fn accept(&mut self, iterator: u64, data: &[u8]) -> Result<Progress, Error> {
        if iterator == HEADER {
            let (rules, layers) = decode_header(data)?;
            let own = self.filter.layers().iter().map(Layer::description);
            let same = rules == *self.filter.rules() && own.eq(layers);
            return if same { Ok(Progress::Known) } else { Err(Error::Different) };
        }
        let (begin, place) = place_of(&self.filter, iterator, data)?;
        let known = self.arrived_bytes.checked_sub(begin).ok_or(Error::Gap { arrived_bytes: self.arrived_bytes })?;
        let known = usize::try_from(known).unwrap_or(usize::MAX).min(data.len());
        let bytes = self.filter.layer_bytes_mut(place.layer).and_then(|bytes| bytes.get_mut(place.begin..));
        let here = bytes.and_then(|bytes| bytes.get_mut(..data.len())).ok_or(Error::TooLong)?;
        let (came, new) = data.split_at(known);
        let (before, target) = here.split_at_mut(known);
        if came != before {
            return Err(Error::Different);
        }
        if new.is_empty() {
            return Ok(Progress::Known);
        }
        target.copy_from_slice(new);
        self.arrived_bytes += new.len() as u64;
        Ok(if self.arrived_bytes == total_bytes(&self.filter) { Progress::Complete } else { Progress::Stored })
    }

    /// The filter, as far as it has arrived.
    #[must_use]
    pub const fn filter(&self) -> &RedisBloomFilter {
        &self.filter
    }

    /// The header of the filter that is arriving.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// The filter, when the last chunk has come.
    #[must_use]
    pub fn into_filter(self) -> RedisBloomFilter {
        self.filter
    }

    /// The number of bytes of all layers that have come.
    #[must_use]
    pub const fn arrived_bytes(&self) -> u64 {
        self.arrived_bytes
    }

    /// Records of what has come, one behind the other.
    pub fn records(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let mut begin = 0;
        let chunks = std::iter::from_fn(move || {
            let left = usize::try_from(self.arrived_bytes - begin).unwrap_or(usize::MAX);
            let chunk = chunk_from(&self.filter, begin).filter(|_| left > 0)?;
            let chunk = chunk.get(..left).unwrap_or(chunk);
            begin += chunk.len() as u64;
            Some((HEADER + begin, chunk))
        });
        std::iter::once((HEADER, self.header())).chain(chunks)
    }

    /// A value with the same fields and bits.
    ///
    /// # Errors
    /// [`bloom::Error::OutOfMemory`] where the allocator refuses.
    pub fn try_clone(&self) -> Result<Self, bloom::Error> {
        let refused = bloom::Error::OutOfMemory { asked_bytes: self.header.len() as u64, available_bytes: 0 };
        let header = super::try_copy(&self.header).map_err(|_| refused)?;
        Ok(Self { filter: self.filter.try_clone()?, header, arrived_bytes: self.arrived_bytes })
    }
}

/// Takes note of a chunk that a filter has had already: a client that got no answer sends the last one again. What was
/// added since may be in the bits as well.
///
/// # Errors
/// For a record that did not come with this filter.
pub fn came_already(filter: &RedisBloomFilter, iterator: u64, data: &[u8]) -> Result<(), Error> {
    let (_, place) = place_of(filter, iterator, data)?;
    let here = filter.layers().get(place.layer).and_then(|layer| layer.bytes().get(place.begin..));
    let same = here.unwrap_or_default().iter().zip(data).all(|(here, came)| came & !here == 0);
    if same { Ok(()) } else { Err(Error::Different) }
}
