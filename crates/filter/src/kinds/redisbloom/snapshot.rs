//! The snapshot of RedisBloom's filters: RDB type `MBbloom--`. Reads encodings 0 to 4, writes 4.
//!
//! ```text
//! uint   size            items of all layers
//! uint   layers          at least 1
//! uint   options         from encoding 2 on; else 0
//! uint   growth          from encoding 4 on; else 2
//! for each layer, oldest first:
//!   uint   entries       the capacity
//!   double error         its own rate
//!   uint   hashes        k
//!   double bits per entry
//!   uint   bits          from encoding 1 on; else entries * bits per entry, rounded down
//!   uint   n2            from encoding 1 on; else 0
//!   string the bits
//!   uint   size          items of this layer
//! ```
//! Positions are modulo 2^n2, or modulo `bits` if n2 is 0. Releases before 2.2 rounded sizes up to a power of two and stored n2
//! with 0 for `bits`. Such a layer is written with n2 = 0 and its power of two as `bits`: the positions are the same, and
//! current RedisBloom refuses the other form. The first `size` is the sum of the layers' sizes.
//!
//! Encodings 2 and 3 do not say how wide the seeds of the 64-bit hash are: see `Hash::Murmur64EitherSeeds`. Such a filter gets an
//! option of ours and is written with n2. RedisBloom hashes with seeds of 64 bits, so it could report every item absent. Current
//! releases refuse n2, as they refuse the data that the old release stored.

use super::{RedisBloom, RedisBloomFilter};
use crate::ceiling::Ceiling;
use crate::cells::BitArray;
use crate::chain::{Layer, check_layer};
use crate::codec::{Error, Sink, Source, number_of_layers, read_u32};
use crate::error;
use crate::geometry::sizing::{to_f64, to_u64};
use crate::geometry::{Flat, LayerDescription};
use crate::memory::push;

/// The encoding that is written, and the highest that can be read.
pub const ENCODING: u32 = 4;

/// Writes a filter.
pub fn write(filter: &RedisBloomFilter, sink: &mut impl Sink) {
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

/// Reads a filter of an encoding. Asks the ceiling for each layer before its bits are read, and again for what has arrived.
///
/// # Errors
/// For bytes that describe no sound filter, and if the ceiling refuses.
pub fn read(source: &mut impl Source, encoding: u32, ceiling: &impl Ceiling) -> Result<RedisBloomFilter, Error> {
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
        let bits = source.owned_bytes()?;
        let size_bytes = bits.len() as u64;
        check(size_bytes)?;
        cells_bytes = cells_bytes.saturating_add(size_bytes);
        let geometry = Flat::new(size_bytes, modulus, hashes, bits_per_item);
        let description = LayerDescription { rate, capacity, items: source.u64()?, geometry };
        let bits = BitArray::from_stored(bits, 0).ok_or(error::Error::Unsound)?;
        push(&mut layers, Layer::new(&description, bits)?)?;
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

/// Returns the modulus of positions.
pub(super) fn modulus(bits: u64, n2: u64) -> Result<u64, Error> {
    match n2 {
        0 => Ok(bits),
        1..64 => Ok(1 << n2),
        _ => Err(Error::OutOfRange),
    }
}
