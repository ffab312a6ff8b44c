//! Inputs that are loaded record by record, as by BF.LOADCHUNK: our own dumps and RedisBloom's. The first record is the
//! header; records after the last chunk are compared with the complete filter.

use bloomgate_filter::format::{Arrival, Error, Progress};
use bloomgate_filter::kinds::ChunkArrival;
use bloomgate_filter::kinds::chunked::HEADER;
use bloomgate_filter::{Filter, Unlimited, Value};

use super::records::{self, OF_PRIMARY, RIGHT_ITERATORS, Spelled, Sums};
use super::{CEILING, Outcome, laws};

/// The function by which an arriving filter accepts a record.
type Accept = fn(&mut Arrival, u64, &[u8]) -> Result<Progress, Error>;
/// The function by which a complete filter, whose generation comes first, accepts a record.
type AcceptWhole = fn(&mut Value, u16, u64, &[u8]) -> Result<Progress, Error>;

fn accept(arrival: &mut Arrival, iterator: u64, data: &[u8]) -> Result<Progress, Error> {
    arrival.accept(iterator, data, &Unlimited)
}

fn accept_whole(value: &mut Value, generation: u16, iterator: u64, data: &[u8]) -> Result<Progress, Error> {
    value.accept(generation, iterator, data, &Unlimited)
}

/// Our own dumps.
#[must_use]
pub fn native(input: &[u8]) -> Outcome {
    play_native(input, accept)
}

/// Our own dumps, with the laws of arrivals checked for each record.
#[must_use]
pub fn native_by_law(input: &[u8]) -> Outcome {
    play_native(input, laws::accept)
}

/// RedisBloom's dumps.
#[must_use]
pub fn redisbloom(input: &[u8]) -> Outcome {
    play_redisbloom(input, accept, Arrival::accept_replicated, begin_redisbloom)
}

/// RedisBloom's dumps, with the laws of arrivals checked for each record.
#[must_use]
pub fn redisbloom_by_law(input: &[u8]) -> Outcome {
    play_redisbloom(input, laws::accept, laws::accept_replicated, begin_redisbloom)
}

/// Dumps of RedisBloom's cuckoo filters.
#[must_use]
pub fn redisbloom_cuckoo(input: &[u8]) -> Outcome {
    play_redisbloom(input, accept, Arrival::accept_replicated, begin_redisbloom_cuckoo)
}

/// Dumps of RedisBloom's cuckoo filters, with the laws of arrivals checked for each record.
#[must_use]
pub fn redisbloom_cuckoo_by_law(input: &[u8]) -> Outcome {
    play_redisbloom(input, laws::accept, laws::accept_replicated, begin_redisbloom_cuckoo)
}

fn begin_redisbloom(header: &[u8]) -> Result<Arrival, Error> {
    ChunkArrival::begin(header, &CEILING).map(Arrival::RedisBloom)
}

fn begin_redisbloom_cuckoo(header: &[u8]) -> Result<Arrival, Error> {
    ChunkArrival::begin(header, &CEILING).map(Arrival::RedisBloomCuckoo)
}

fn play_native(input: &[u8], accept: Accept) -> Outcome {
    let (spelling, records) = records::of(input);
    let Some((header, chunks)) = records.split_first() else { return Err::<Value, _>(Error::Truncated).into() };
    let sums = Sums::of(header.data);
    let (iterator, header) = sums.correct(spelling, *header);
    let arrival = begin(iterator, &header);
    let generation = arrival.as_ref().ok().and_then(Arrival::generation).unwrap_or(0);
    let mut outcome = Outcome::from(arrival);
    for chunk in chunks {
        let (iterator, data) = sums.correct(spelling, *chunk);
        take(&mut outcome, (accept, accept_whole), generation, iterator, &data);
    }
    outcome
}

/// An input without our magic may be RedisBloom's, which another target covers.
fn begin(iterator: u64, header: &[u8]) -> Result<Arrival, Error> {
    match Arrival::begin(iterator, header, &CEILING) {
        Ok(Arrival::RedisBloom(_)) => Err(Error::NotADump),
        begun => begun,
    }
}

fn play_redisbloom(
    input: &[u8],
    accept: Accept,
    obey: Accept,
    begin: impl Fn(&[u8]) -> Result<Arrival, Error>,
) -> Outcome {
    let (spelling, records) = records::of(input);
    let of_primary = spelling & OF_PRIMARY != 0;
    let accept: (_, AcceptWhole) = if of_primary { (obey, Value::accept_replicated) } else { (accept, accept_whole) };
    let Some((header, chunks)) = records.split_first() else { return Err::<Value, _>(Error::Truncated).into() };
    let mut outcome = Outcome::from(begin(header.data));
    for chunk in chunks {
        let iterator = redisbloom_iterator(spelling, *chunk, outcome.value.as_ref());
        take(&mut outcome, accept, 0, iterator, chunk.data);
    }
    outcome
}

/// The iterator of a chunk: its own, or one near that of the next chunk.
fn redisbloom_iterator(spelling: u8, chunk: Spelled, value: Option<&Value>) -> u64 {
    if spelling & RIGHT_ITERATORS == 0 {
        return chunk.iterator;
    }
    let arrived_bytes = match value {
        Some(Value::Arriving(arrival)) => match &**arrival {
            Arrival::RedisBloom(arrival) => arrival.arrived_bytes(),
            Arrival::RedisBloomCuckoo(arrival) => arrival.arrived_bytes(),
            Arrival::Own(_) => 0,
        },
        _ => 0,
    };
    let more = i64::from(chunk.iterator.to_le_bytes()[0].cast_signed());
    (HEADER + arrived_bytes + chunk.data.len() as u64).wrapping_add_signed(more)
}

/// Passes a record to the arriving filter, or to the complete one.
fn take(outcome: &mut Outcome, accept: (Accept, AcceptWhole), generation: u16, iterator: u64, data: &[u8]) {
    let Some(value) = &mut outcome.value else { return };
    let result = match value {
        Value::Arriving(arrival) => accept.0(arrival, iterator, data),
        _ => accept.1(value, generation, iterator, data),
    };
    if result == Ok(Progress::Complete) {
        let filter = value.take();
        assert!(!matches!(filter, Value::Filter(Filter::ValkeyBloom(_))), "nothing that arrives becomes {filter:?}");
        *value = filter;
    }
    outcome.refused = outcome.refused.or(result.err());
}
