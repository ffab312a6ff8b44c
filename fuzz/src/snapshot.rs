//! Inputs that are read in one piece: the snapshots of the three types, and the argument of BF.LOAD. A snapshot's numbers have
//! 8 bytes each, and its strings follow their length.

use bloomgate_filter::format::{ByteSink, ByteSource, Error, StoredAs};
use bloomgate_filter::kinds::valkey_bloom::load;
use bloomgate_filter::{Filter, Unlimited, Value};

use super::{CEILING, Outcome};

/// Snapshots of our own type.
#[must_use]
pub fn native(data: &[u8]) -> Outcome {
    read(StoredAs::Own, StoredAs::Own.encoding(), data)
}

/// Snapshots of RedisBloom's type. The first byte is the encoding.
#[must_use]
pub fn redisbloom(data: &[u8]) -> Outcome {
    let Some((encoding, fields)) = data.split_first() else { return Err::<Value, _>(Error::Truncated).into() };
    read(StoredAs::RedisBloom, (*encoding).into(), fields)
}

/// Snapshots of the type of RedisBloom's cuckoo filters.
#[must_use]
pub fn redisbloom_cuckoo(data: &[u8]) -> Outcome {
    read(StoredAs::RedisBloomCuckoo, StoredAs::RedisBloomCuckoo.encoding(), data)
}

/// Snapshots of valkey-bloom's type.
#[must_use]
pub fn valkey_bloom(data: &[u8]) -> Outcome {
    read(StoredAs::ValkeyBloom, StoredAs::ValkeyBloom.encoding(), data)
}

fn read(stored_as: StoredAs, encoding: u32, data: &[u8]) -> Outcome {
    stored_as.read(encoding, &mut ByteSource(data), &CEILING).into()
}

/// The argument of BF.LOAD.
#[must_use]
pub fn valkey_bloom_load(data: &[u8]) -> Outcome {
    load::decode(data, &CEILING).map(Filter::from).into()
}

/// Returns the saved form of a value.
#[must_use]
pub fn written(value: &Value) -> Vec<u8> {
    let mut sink = ByteSink::default();
    value.write(&mut sink);
    sink.0
}

/// Reads the [`written`] form of a value like this one, to the last byte.
///
/// # Errors
/// The errors of the codecs.
pub fn read_again(like: &Value, data: &[u8]) -> Result<Value, Error> {
    let mut source = ByteSource(data);
    let stored_as = like.stored_as();
    let value = stored_as.read(stored_as.encoding(), &mut source, &Unlimited)?;
    if source.0.is_empty() { Ok(value) } else { Err(Error::Overlong) }
}
