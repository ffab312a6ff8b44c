//! Inputs that are read in one piece: the snapshots of the three types, and the argument of BF.LOAD. A snapshot's numbers
//! are 8 bytes each, its strings lie behind their length.

use bloomgate::bloom::{Filter, Unlimited};
use bloomgate::format::{ByteSink, ByteSource, Error, Value, native, redisbloom, valkey_bloom};

use super::{CEILING, Outcome};

/// A snapshot of our own type.
#[must_use]
pub fn native(data: &[u8]) -> Outcome {
    native::read(&mut ByteSource(data), &CEILING).into()
}

/// A snapshot of RedisBloom's type. The first byte is the encoding.
#[must_use]
pub fn redisbloom(data: &[u8]) -> Outcome {
    let Some((encoding, fields)) = data.split_first() else { return Err::<Value, _>(Error::Truncated).into() };
    redisbloom::read(&mut ByteSource(fields), (*encoding).into(), &CEILING).map(Filter::from).into()
}

/// A snapshot of valkey-bloom's type.
#[must_use]
pub fn valkey_bloom(data: &[u8]) -> Outcome {
    valkey_bloom::read(&mut ByteSource(data), &CEILING).map(Filter::from).into()
}

/// The argument of BF.LOAD.
#[must_use]
pub fn valkey_bloom_load(data: &[u8]) -> Outcome {
    valkey_bloom::decode_load(data, &CEILING).map(Filter::from).into()
}

/// What is saved of a value.
#[must_use]
pub fn written(value: &Value) -> Vec<u8> {
    let mut sink = ByteSink::default();
    match value {
        Value::Filter(Filter::Native(filter)) => native::write_filter(filter, &mut sink),
        Value::Filter(Filter::RedisBloom(filter)) => redisbloom::write(filter, &mut sink),
        Value::Filter(Filter::ValkeyBloom(filter)) => valkey_bloom::write(filter, &mut sink),
        Value::Arriving(arrival) => native::write_arrival(arrival, &mut sink),
    }
    sink.0
}

/// Reads what was [`written`] of a value like this one, to the last byte.
///
/// # Errors
/// As the codecs say.
pub fn read_again(like: &Value, data: &[u8]) -> Result<Value, Error> {
    let mut source = ByteSource(data);
    let value = match like {
        Value::Filter(Filter::Native(_)) | Value::Arriving(_) => native::read(&mut source, &Unlimited)?,
        Value::Filter(Filter::RedisBloom(_)) => {
            Filter::from(redisbloom::read(&mut source, redisbloom::ENCODING, &Unlimited)?).into()
        }
        Value::Filter(Filter::ValkeyBloom(_)) => Filter::from(valkey_bloom::read(&mut source, &Unlimited)?).into(),
    };
    if source.0.is_empty() { Ok(value) } else { Err(Error::Overlong) }
}
