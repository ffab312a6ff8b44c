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
//! After kind 3, in place of everything up to the bits:
//! ```text
//! string header          as BF.LOADCHUNK got it
//! uint   arrived         bytes of all layers that have come, from the first on; 2^64 - 1 where there are gaps, which only
//!                        what a RedisBloom primary carries can have: then come instead
//!   uint ranges          that have come, at least 1, in order and not touching, and for each
//!     uint begin, end
//! ```
//! Without a gap the bytes are those that version 0.1.0 wrote, which refuses the others.
//!
//! A chunk of zeros costs a byte, so an empty filter of any size saves in bytes; the fixed chunks keep the saving child
//! and the loading server from holding a second copy.

use super::dump::bytes_before;
use super::{BloomFilter, NativeArrival, description};
use crate::ceiling::Ceiling;
use crate::format::{Error, Sink, Source, chunks};
use crate::shape::Layer;

/// What `kind` says of a filter of ours.
pub(crate) const KIND: u64 = 1;
/// What `kind` says of one that is arriving.
pub(crate) const KIND_ARRIVING: u64 = 2;

/// Writes a filter, from `kind` on.
pub(crate) fn write_filter(filter: &BloomFilter, sink: &mut impl Sink) {
    sink.put_u64(KIND);
    description::write(filter, filter.layers().iter().map(Layer::description), sink);
    chunks::write(filter, sink);
}

/// Reads a filter, from what comes after `kind` on. The ceiling is asked for the whole of its memory before any is allocated.
///
/// # Errors
/// For bytes that [`write_filter`] cannot have written, and where the ceiling or the allocator refuses.
pub(crate) fn read_filter(source: &mut impl Source, ceiling: &impl Ceiling) -> Result<BloomFilter, Error> {
    let (spec, layers) = description::read(source)?;
    let mut filter = BloomFilter::with_zero_bits(spec, &layers, ceiling)?;
    chunks::read(&mut filter, u64::MAX, source)?;
    Ok(filter)
}

/// Writes a filter that is arriving, from `kind` on.
pub(crate) fn write_arrival(arrival: &NativeArrival, sink: &mut impl Sink) {
    sink.put_u64(KIND_ARRIVING);
    let filter = arrival.filter();
    description::write(filter, filter.layers().iter().map(Layer::description), sink);
    sink.put_u64(u64::from(arrival.generation()));
    sink.put_u64(arrival.next_chunk());
    chunks::write(filter, sink);
}

/// Reads a filter that is arriving, from what comes after `kind` on.
///
/// # Errors
/// As [`read_filter`].
pub(crate) fn read_arrival(source: &mut impl Source, ceiling: &impl Ceiling) -> Result<NativeArrival, Error> {
    let (spec, layers) = description::read(source)?;
    let (generation, next) = (source.u64()?, source.u64()?);
    let mut filter = BloomFilter::with_zero_bits(spec, &layers, ceiling)?;
    let arrived_bytes = bytes_before(filter.layers(), next);
    chunks::read(&mut filter, arrived_bytes, source)?;
    NativeArrival::resume(filter, generation, next)
}
