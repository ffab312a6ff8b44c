//! The stored layout of our own values, version 1: what a snapshot (RDB type `bloomgate`), a DUMP payload and, in part,
//! a dump's header hold.
//!
//! ```text
//! uint   version         1
//! uint   kind            1 a Bloom filter; 2 one that is arriving in chunks; 3 one of RedisBloom's that is
//! uint   hash            1 MurmurHash3 x64 128, seeded
//! double rate            the rate that was asked for
//! uint   capacity        the capacity that was asked for
//! uint   expansion       0 for a fixed filter
//! uint   seed
//! uint   policy          1: the rules of sizing by which the filter grows
//! uint   layers          1 to 4096
//! for each layer, oldest first:
//!   double rate          its own
//!   uint   capacity
//!   uint   items
//!   uint   hashes        k
//!   uint   groups
//!   uint   blocks of a group
//! kind 2 only:
//!   uint   generation    of the filter that is arriving, below 2^14
//!   uint   next          number of the chunk that is to come, from 0 on
//! for each layer, oldest first, in chunks of 1 MiB (the last one shorter):
//!   string the bits, or an empty string for a chunk of zeros
//! ```
//! Behind kind 3 comes, in place of everything up to the bits:
//! ```text
//! string header          as BF.LOADCHUNK got it
//! uint   arrived         bytes of all layers that have come
//! ```
//!
//! A chunk of zeros costs a byte, so an empty filter of any size saves in bytes; the fixed chunks keep the saving child
//! and the loading server from holding a second copy.

use super::arriving::NativeArrival;
use super::dump;
use super::redisbloom_dump::{self, RedisBloomArrival};
use super::{Arrival, Error, Sink, Source, Value};
use crate::bloom::sizing::{self, Geometry};
use crate::bloom::{
    BloomFilter, Ceiling, Chain, Description, LAYERS_MAX, Layer, LayerDescription, RedisBloomFilter, Rules, Scaling,
    is_zero,
};

/// Size of a chunk of bits, in bytes.
pub const CHUNK_BYTES: usize = 1024 * 1024;

const VERSION: u64 = 1;
const KIND_BLOOM: u64 = 1;
const KIND_ARRIVING: u64 = 2;
const KIND_REDISBLOOM_ARRIVING: u64 = 3;
const HASH_MURMUR3_X64_128: u64 = 1;

/// Writes a filter.
pub fn write_filter(filter: &BloomFilter, sink: &mut impl Sink) {
    sink.put_u64(VERSION);
    sink.put_u64(KIND_BLOOM);
    write_description(filter, filter.layers().iter().map(Layer::description), sink);
    write_bits(filter, sink);
}

/// Writes a filter that is arriving in chunks.
pub fn write_arrival(arrival: &Arrival, sink: &mut impl Sink) {
    sink.put_u64(VERSION);
    match arrival {
        Arrival::Native(arrival) => {
            sink.put_u64(KIND_ARRIVING);
            let filter = arrival.filter();
            write_description(filter, filter.layers().iter().map(Layer::description), sink);
            sink.put_u64(u64::from(arrival.generation()));
            sink.put_u64(arrival.next_chunk());
            write_bits(filter, sink);
        }
        Arrival::RedisBloom(arrival) => {
            sink.put_u64(KIND_REDISBLOOM_ARRIVING);
            sink.put_bytes(arrival.header());
            sink.put_u64(arrival.arrived_bytes());
            write_bits(arrival.filter(), sink);
        }
    }
}

/// Reads a value. The ceiling is asked for the whole of its memory before any is allocated.
///
/// # Errors
/// For bytes that [`write_filter`] and [`write_arrival`] cannot have written, and where the ceiling or the allocator
/// refuses.
pub fn read(source: &mut impl Source, ceiling: &impl Ceiling) -> Result<Value, Error> {
    let version = source.u64()?;
    if version != VERSION {
        return Err(Error::UnknownVersion(version));
    }
    match source.u64()? {
        KIND_BLOOM => {
            let mut filter = BloomFilter::with_zero_bits(&read_description(source)?, ceiling)?;
            read_bits(&mut filter, u64::MAX, source)?;
            Ok(Value::Filter(filter.into()))
        }
        KIND_ARRIVING => {
            let description = read_description(source)?;
            let (generation, next) = (source.u64()?, source.u64()?);
            let mut filter = BloomFilter::with_zero_bits(&description, ceiling)?;
            let arrived_bytes = dump::bytes_in_front_of(filter.layers(), next);
            read_bits(&mut filter, arrived_bytes, source)?;
            Ok(Value::arriving(Arrival::Native(NativeArrival::resume(filter, generation, next)?))?)
        }
        KIND_REDISBLOOM_ARRIVING => {
            let (rules, layers) = redisbloom_dump::decode_header(source.bytes()?.as_ref())?;
            let arrived_bytes = source.u64()?;
            let mut filter = RedisBloomFilter::with_empty_layers(rules, layers.iter().copied(), ceiling)?;
            read_bits(&mut filter, arrived_bytes, source)?;
            Ok(Value::arriving(Arrival::RedisBloom(RedisBloomArrival::resume(filter, arrived_bytes)?))?)
        }
        kind => Err(Error::UnknownKind(kind)),
    }
}

fn write_bits<R: Rules>(filter: &Chain<R>, sink: &mut impl Sink) {
    for layer in filter.layers() {
        for chunk in layer.bytes().chunks(CHUNK_BYTES) {
            sink.put_bytes(if is_zero(chunk) { &[] } else { chunk });
        }
    }
}

/// Reads the bits of all layers, of which so many bytes have come; those behind are zeros.
fn read_bits<R: Rules>(filter: &mut Chain<R>, arrived_bytes: u64, source: &mut impl Source) -> Result<(), Error> {
    let mut left = arrived_bytes;
    for layer in 0..filter.layers().len() {
        for place in filter.layer_bytes_mut(layer).unwrap_or_default().chunks_mut(CHUNK_BYTES) {
            let chunk = source.bytes()?;
            let chunk = chunk.as_ref();
            if chunk.len() == place.len() {
                let behind = usize::try_from(left).ok().and_then(|left| chunk.get(left..)).unwrap_or_default();
                if !is_zero(behind) {
                    return Err(Error::OutOfRange);
                }
                place.copy_from_slice(chunk);
            } else if !chunk.is_empty() {
                return Err(Error::WrongLength);
            }
            left = left.saturating_sub(place.len() as u64);
        }
    }
    Ok(())
}

/// Writes the hash identifier and everything about a filter with these layers but its bits.
pub(super) fn write_description(
    filter: &BloomFilter,
    layers: impl ExactSizeIterator<Item = LayerDescription>,
    sink: &mut impl Sink,
) {
    sink.put_u64(HASH_MURMUR3_X64_128);
    sink.put_f64(filter.rate());
    sink.put_u64(filter.capacity());
    sink.put_u64(u64::from(filter.scaling().expansion()));
    sink.put_u64(u64::from(filter.seed()));
    sink.put_u64(u64::from(sizing::POLICY));
    sink.put_u64(layers.len() as u64);
    for layer in layers {
        sink.put_f64(layer.rate);
        sink.put_u64(layer.capacity);
        sink.put_u64(layer.items);
        sink.put_u64(u64::from(layer.geometry.hashes));
        sink.put_u64(layer.geometry.groups);
        sink.put_u64(u64::from(layer.geometry.blocks_per_group));
    }
}

/// Reads what [`write_description`] wrote. Whether a filter can be like that is for the filter to say.
pub(super) fn read_description(source: &mut impl Source) -> Result<Description, Error> {
    let hash = source.u64()?;
    if hash != HASH_MURMUR3_X64_128 {
        return Err(Error::UnknownHash(hash));
    }
    let mut description = Description {
        rate: source.f64()?,
        capacity: source.u64()?,
        scaling: Scaling::from_expansion(read_u32(source)?),
        seed: read_u32(source)?,
        policy: read_u32(source)?,
        layers: Vec::new(),
    };
    let layers = usize::try_from(source.u64()?).ok().filter(|layers| *layers <= LAYERS_MAX);
    for _ in 0..layers.ok_or(Error::OutOfRange)? {
        let (rate, capacity, items) = (source.f64()?, source.u64()?, source.u64()?);
        let hashes = read_u32(source)?;
        let geometry = Geometry { groups: source.u64()?, blocks_per_group: read_u32(source)?, hashes };
        super::push(&mut description.layers, LayerDescription { rate, capacity, items, geometry })?;
    }
    Ok(description)
}

pub(super) fn read_u32(source: &mut impl Source) -> Result<u32, Error> {
    u32::try_from(source.u64()?).map_err(|_| Error::OutOfRange)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bloom::{self, Filter, Unlimited};
    use crate::format::{ByteSink, ByteSource};

    fn bytes_of(value: &Value) -> Vec<u8> {
        let mut sink = ByteSink::default();
        match value {
            Value::Filter(Filter::Native(filter)) => write_filter(filter, &mut sink),
            Value::Filter(other) => panic!("not a native filter: {other:?}"),
            Value::Arriving(arrival) => write_arrival(arrival, &mut sink),
        }
        sink.0
    }

    fn read_all(bytes: &[u8]) -> Result<Value, Error> {
        let mut source = ByteSource(bytes);
        let value = read(&mut source, &Unlimited)?;
        assert!(source.0.is_empty(), "everything is read");
        Ok(value)
    }

    fn filter(capacity: u64, expansion: u32, items: u32) -> BloomFilter {
        let mut filter = BloomFilter::new(0.01, capacity, Scaling::from_expansion(expansion), 42, &Unlimited).unwrap();
        for number in 0..items {
            filter.add(&number.to_le_bytes(), &Unlimited).unwrap();
        }
        filter
    }

    fn arriving(filter: &BloomFilter, chunks: usize) -> Value {
        let mut records = dump::records(filter, 77).map(Result::unwrap);
        let (iterator, header) = records.next().unwrap();
        let mut arrival = NativeArrival::begin(iterator, &header, &Unlimited).unwrap();
        for (iterator, data) in records.take(chunks) {
            arrival.accept(iterator, &data).unwrap();
        }
        Arrival::Native(arrival).into()
    }

    /// What makes a filter grow several times: fewer under miri, which is slow.
    const MANY: u32 = if cfg!(miri) { 150 } else { 10_000 };
    /// What takes more than one chunk of bits.
    const LARGE: u64 = if cfg!(miri) { 1000 } else { 3_000_000 };
    /// From one torn byte to the next.
    const STEP: usize = if cfg!(miri) { 23 } else { 1 };

    #[test]
    fn what_is_written_is_read() {
        for (capacity, expansion, items) in [(1, 0, 1), (100, 2, 0), (100, 2, MANY), (LARGE, 0, 100), (1, 1, 50)] {
            let filter = filter(capacity, expansion, items);
            if filter.layers().len() > 1 {
                let value = arriving(&filter, 1);
                assert_eq!(read_all(&bytes_of(&value)), Ok(value));
            }
            let value = Value::Filter(filter.into());
            assert_eq!(read_all(&bytes_of(&value)), Ok(value));
        }
    }

    /// Fixed for good: a snapshot of today must load in every later version.
    #[test]
    fn golden_bytes() {
        let bytes = bytes_of(&Value::Filter(filter(10, 2, 1).into()));
        let numbers: Vec<u64> =
            bytes.chunks_exact(8).take(16).map(|number| u64::from_le_bytes(number.try_into().unwrap())).collect();
        let (rate, share) = (0.01f64.to_bits(), (0.01 / 32.0f64).to_bits());
        assert_eq!(numbers, [1, 1, 1, rate, 10, 2, 42, 1, 1, share, 10, 1, 11, 1, 2, 128]);
        assert_eq!(bytes.len(), 16 * 8 + 128);
        // Worked out by a program in another language from the documented layout.
        assert_eq!(crc32fast::hash(&bytes), 3_161_132_083);
    }

    #[test]
    fn a_large_empty_filter_is_a_few_bytes() {
        assert!(bytes_of(&Value::Filter(filter(100_000_000, 0, 0).into())).len() < 2000);
    }

    #[test]
    fn a_ceiling_binds_before_anything_is_allocated() {
        struct Small;
        impl Ceiling for Small {
            fn available_bytes(&self, _filter_bytes: u64, _asked_bytes: u64) -> u64 {
                100_000
            }
        }
        let bytes = bytes_of(&Value::Filter(filter(100_000_000, 0, 0).into()));
        let refused = read(&mut ByteSource(&bytes), &Small).unwrap_err();
        assert!(matches!(refused, Error::Filter(bloom::Error::OutOfMemory { available_bytes: 100_000, .. })));
    }

    #[test]
    fn torn_bytes_are_refused_or_make_a_sound_filter() {
        for value in [Value::Filter(filter(10, 2, 15).into()), arriving(&filter(10, 2, 15), 1)] {
            let bytes = bytes_of(&value);
            for length in (0..bytes.len()).step_by(STEP) {
                assert!(read_all(&bytes[..length]).is_err(), "{length} of {}", bytes.len());
            }
            for position in (0..bytes.len()).step_by(STEP) {
                for flip in [0x01, 0x80, 0xff] {
                    let mut torn = bytes.clone();
                    torn[position] ^= flip;
                    let mut source = ByteSource(&torn);
                    if let Ok(Value::Filter(mut filter)) = read(&mut source, &Unlimited) {
                        let _ = filter.contains(b"an item");
                        let _ = filter.add_batch([&b"an item"[..]], &Unlimited);
                        assert_eq!(filter.try_clone().unwrap(), filter);
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let bytes = bytes_of(&Value::Filter(filter(10, 2, 1).into()));
        let with = |index: usize, number: u64| {
            let mut bytes = bytes.clone();
            bytes[index * 8..index * 8 + 8].copy_from_slice(&number.to_le_bytes());
            read_all(&bytes).unwrap_err()
        };
        assert_eq!(with(0, 2), Error::UnknownVersion(2));
        assert_eq!(with(1, 4), Error::UnknownKind(4));
        assert_eq!(with(2, 2), Error::UnknownHash(2));
        assert_eq!(with(7, 2), Error::Filter(bloom::Error::Unsound), "policy");
        assert_eq!(with(8, 0), Error::Filter(bloom::Error::Unsound), "no layers");
        assert_eq!(with(8, u64::MAX), Error::OutOfRange, "layers");
        assert_eq!(with(3, f64::NAN.to_bits()), Error::Filter(bloom::Error::Unsound), "rate");
        assert_eq!(with(11, 11), Error::Filter(bloom::Error::Unsound), "more items than capacity");
        assert_eq!(with(12, 65), Error::Filter(bloom::Error::Unsound), "hashes");
        assert_eq!(with(13, 0), Error::Filter(bloom::Error::Unsound), "groups");
        assert_eq!(with(13, 1 << 58), Error::Filter(bloom::Error::Unsound), "groups");
        assert_eq!(with(14, 1), Error::Filter(bloom::Error::Unsound), "blocks of a group");
        assert_eq!(with(15, 127), Error::WrongLength);
    }
}
