//! The laws for every value that a decoder returns, whatever the bytes: its numbers are valid, it answers every query, it equals its copies
//! and its restored snapshot, added items are found, and an arriving filter can be completed.

use bloomgate_filter::format::records;
use bloomgate_filter::format::{AofRecord, Arrival, Error, Progress};
use bloomgate_filter::kinds::chunked::{self, Chunked};
use bloomgate_filter::kinds::info::LayerSummary;
use bloomgate_filter::kinds::valkey_bloom::load;
use bloomgate_filter::kinds::{ChunkArrival, Origin, RedisBloomCuckooFilter, Retention};
use bloomgate_filter::{
    BATCH, BloomFilter, CLIENT_LAYERS_MAX, Error as FilterError, Filter, Mask, Moment, Unlimited, Value,
};

use super::{CEILING, FilterOf, Outcome, snapshot};

/// The number of items that are added: enough for small layers to grow many times.
const ITEMS: u8 = 200;
/// The maximum size in bytes to which a filter grows. It is smaller than the ceiling of decoders, because large copies would take most of
/// the time.
const GROWN: FilterOf = FilterOf(1 << 14);
/// The maximum numbers of layers, and of cells per item, in a stored filter.
const LAYERS_MAX: usize = 4096;
const HASHES_MAX: u32 = 1100;
/// The maximum size in bytes of an arriving filter that is compared with its state before each record.
const COMPARED_TO_BYTES: u64 = 1 << 16;
/// The generation in records of an AOF.
const GENERATION: u16 = 3;

/// Checks the laws for an outcome: it is an error, or a valid value.
pub fn of_outcome(outcome: Outcome) {
    match outcome.value {
        None => assert!(outcome.refused.is_some(), "nothing was made and nothing refused"),
        Some(arriving @ Value::Arriving(_)) => of_arriving(arriving),
        Some(value) => of_complete(value),
    }
}

fn of_complete(value: Value) {
    match value {
        Value::Filter(filter) => of_filter(filter),
        Value::Cuckoo(filter) => of_cuckoo(filter),
        Value::Arriving(_) => panic!("incomplete: {value:?}"),
    }
}

/// An added item is found until it is deleted as often, and every number stays sound.
fn of_cuckoo(filter: RedisBloomCuckooFilter) {
    let mut value = Value::Cuckoo(filter);
    of_copies(&value);
    let Value::Cuckoo(filter) = &mut value else { return };
    for number in 0..ITEMS {
        let (item, before) = (item(number), copy_of(filter));
        match filter.add(&item, &GROWN) {
            Ok(()) => assert!(filter.contains(&item) && filter.count(&item) > before.count(&item)),
            Err(_) => assert!(*filter == before, "a refused add changed it"),
        }
    }
    filter.compact();
    for item in (0..ITEMS).map(item) {
        let is_found = filter.contains(&item);
        assert_eq!(filter.delete(&item), is_found);
    }
    of_copies(&value);
}

fn copy_of(filter: &RedisBloomCuckooFilter) -> RedisBloomCuckooFilter {
    filter.try_clone().unwrap()
}

fn of_filter(filter: Filter) {
    of_numbers(&filter);
    let mut value = Value::from(filter);
    of_copies(&value);
    if let Value::Filter(filter) = &mut value {
        of_adds(filter);
        of_numbers(filter);
    }
    of_copies(&value);
}

/// The time of all commands.
const NOW: Moment = Moment(1_000_000);

/// Checks that the numbers are valid for a filter, and consistent.
fn of_numbers(filter: &Filter) {
    let layers: Vec<_> = filter.layers().collect();
    let layers_max = match filter {
        Filter::Native(_) | Filter::Cuckoo(_) | Filter::RedisBloom(_) => LAYERS_MAX,
        Filter::Windowed(_) => LAYERS_MAX * 64,
        Filter::Counting(_) => 1,
        Filter::ValkeyBloom(_) => 1 << 16,
    };
    assert!((1..=layers_max).contains(&layers.len()) && filter.layer_count() == layers.len());
    for layer in &layers {
        assert!(layer.bits >= 1 && layer.bits <= layer.size_bytes.saturating_mul(8), "{layer:?}");
        assert!(layer.hashes >= 1 && layer.hashes <= HASHES_MAX && layer.capacity >= 1, "{layer:?}");
        assert!(layer.rate > 0.0 && layer.rate < 1.0, "{layer:?}");
    }
    // The sums of each chain fit a number; the sums of all buckets of a ring may not.
    let at_most = |sum: u128| {
        assert!(sum <= u64::MAX.into() || filter.windowed().is_some(), "{sum}");
        u64::try_from(sum).unwrap_or(u64::MAX)
    };
    let sum = |number: fn(&LayerSummary) -> u64| at_most(layers.iter().map(|layer| u128::from(number(layer))).sum());
    let left = |count: &Count| u128::from(count.taken.saturating_sub(count.deleted).saturating_sub(count.renewed));
    assert_eq!(filter.items(), at_most(counts(filter).iter().map(left).sum::<u128>()));
    let taken = counts(filter).iter().map(|count| u128::from(count.taken)).sum::<u128>();
    assert_eq!(at_most(taken), sum(|layer| layer.items));
    assert_eq!(filter.total_capacity(), sum(|layer| layer.capacity));
    let size_bytes = sum(|layer| layer.size_bytes);
    assert!(filter.size_bytes() > size_bytes && filter.allocated_bytes() > size_bytes);
    assert!(size_bytes <= CEILING.0, "{size_bytes} bytes");
    assert!(filter.remaining_capacity() <= filter.total_capacity());
    assert!(filter.spec().rate() > 0.0 && filter.spec().rate().is_finite());
    let chains = filter.windowed().map_or(1, |ring| ring.buckets().len());
    assert!(filter.scaling().expansion() > 0 || layers.len() == chains);
}

/// The counts of a chain: items added to its layers; deleted items, which may be more because false positives can be deleted as well;
/// and, in a sliding ring, items that a newer bucket also has.
struct Count {
    taken: u64,
    deleted: u64,
    renewed: u64,
}

impl Count {
    fn of(filter: &BloomFilter) -> Self {
        Self {
            taken: filter.layers().iter().map(|layer| layer.items()).sum(),
            deleted: filter.deleted_entries(),
            renewed: 0,
        }
    }
}

/// Returns the counts of each chain.
fn counts(filter: &Filter) -> Vec<Count> {
    match filter {
        Filter::Native(filter) => vec![Count::of(filter)],
        Filter::Windowed(filter) => filter
            .buckets()
            .map(|bucket| Count { renewed: bucket.filter.items() - bucket.items(), ..Count::of(&bucket.filter) })
            .collect(),
        Filter::Counting(_) | Filter::Cuckoo(_) | Filter::RedisBloom(_) | Filter::ValkeyBloom(_) => {
            vec![Count { taken: filter.items(), deleted: 0, renewed: 0 }]
        }
    }
}

/// The items added to all layers less the deleted ones.
fn balance(filter: &Filter) -> i128 {
    counts(filter).iter().map(|count| i128::from(count.taken) - i128::from(count.deleted)).sum()
}

/// A copy is equal, and so is a value that is saved and read again, or rebuilt from the records of an AOF.
fn of_copies(value: &Value) {
    let copy = value.try_clone().unwrap();
    assert!(copy == *value, "a copy is not equal");
    assert_eq!(copy.contents(), value.contents());
    let saved = snapshot::written(value);
    let again = snapshot::read_again(value, &saved);
    assert!(again.as_ref() == Ok(value), "not what was saved: {again:?}");
    assert!(snapshot::written(&copy) == saved, "a copy is saved in another way");
    let followed = followed(value, copy);
    assert!(followed == *value, "not what its records tell: {followed:?}");
}

/// Builds a value from the records of another. The latter recognises its records, which is checked on a copy.
fn followed(value: &Value, mut copy: Value) -> Value {
    // RedisBloom's header contains nothing that could be compared with a complete filter.
    let unknown = matches!(value, Value::Filter(Filter::RedisBloom(_)) | Value::Cuckoo(_)).then_some(chunked::HEADER);
    let mut followed = None;
    let told = value.for_each_record(GENERATION, |record| match record {
        AofRecord::Whole(filter) => {
            assert!(followed.is_none(), "a record before the whole filter");
            followed = Some(Filter::from(load::decode(&load::encode(filter)?, &Unlimited)?).into());
            Ok(())
        }
        AofRecord::Small(data) => {
            assert!(followed.is_none(), "a record before the whole filter");
            followed = Some(Value::of_record(data, &Unlimited)?);
            let Value::Filter(filter) = value else { panic!("a filter that is arriving is one record") };
            for record in records::records(filter, GENERATION) {
                let (iterator, data) = record?;
                assert_eq!(copy.accept(GENERATION, iterator, &data, &Unlimited), Ok(Progress::Known));
            }
            Ok(())
        }
        AofRecord::Chunk { iterator, data } => {
            match &mut followed {
                None => followed = Some(begun(value, iterator, data)?),
                Some(value) => {
                    if value.accept_replicated(GENERATION, iterator, data).unwrap() == Progress::Complete {
                        *value = value.take();
                    }
                }
            }
            if Some(iterator) != unknown {
                let again = copy.accept(GENERATION, iterator, data, &Unlimited);
                // A client's chunk after a gap is refused, even if it has arrived before.
                assert!(matches!(again, Ok(Progress::Known) | Err(Error::Gap { .. })), "{again:?}");
            }
            Ok(())
        }
    });
    assert_eq!(told, Ok(()));
    assert!(copy == *value, "a record that was known changed it");
    followed.unwrap()
}

/// Begins with the header of a value's records: those of RedisBloom's formats do not name the format.
fn begun(value: &Value, iterator: u64, header: &[u8]) -> Result<Value, Error> {
    Ok(Value::from(if value.is_redisbloom_cuckoo() {
        Arrival::RedisBloomCuckoo(ChunkArrival::begin(header, &Unlimited)?)
    } else {
        Arrival::begin(iterator, header, &Unlimited)?
    }))
}

/// Added items are found; a batch answers like its items one by one; a refused command changes nothing. A rolling ring forgets while it is
/// filled, so only the last item is checked.
fn of_adds(filter: &mut Filter) {
    if !begin_due_bucket(filter) {
        return;
    }
    let items: Vec<Vec<u8>> = (0..ITEMS).map(item).collect();
    let forgets = filter.windowed().map(|ring| ring.spec().forgets);
    let is_rolling = forgets == Some(Retention::Rolling);
    // Adding a present item also changes them.
    let renews = filter.count(b"").is_some() || matches!(forgets, Some(Retention::After { is_sliding: true, .. }));
    let mut members = 0;
    for batch in items.chunks(BATCH) {
        let batch = || batch.iter().map(Vec::as_slice);
        let were_in = filter.contains_batch(batch(), &NOW);
        let one_by_one = batch().map(|item| filter.contains(item, &NOW));
        assert!(one_by_one.enumerate().all(|(index, is_in)| were_in.contains(index) == is_in));
        let before = balance(filter);
        let added = filter.add_batch(batch(), Origin::Client, &NOW, &GROWN);
        assert!(is_rolling || (added.new & were_in) == Mask::NONE, "what was in is not new");
        let counted = before + i128::from(if renews { added.effect.len() } else { added.new.len() });
        assert!(balance(filter) == counted || is_rolling && balance(filter) < counted);
        members += added.done;
        let Some(error) = added.error else {
            assert_eq!(added.done, batch().len());
            continue;
        };
        assert!(!matches!(error, FilterError::Unsound | FilterError::RateOutOfRange), "{error}");
        let is_in = batch().nth(added.done).is_some_and(|item| filter.contains(item, &NOW));
        assert!(!is_in || renews, "refused, and yet in");
        break;
    }
    let first = if is_rolling { members.saturating_sub(1) } else { 0 };
    assert!(items[first..members].iter().all(|item| filter.contains(item, &NOW)), "a member is denied");
}

/// Begins the bucket that is due, as a server does before it adds. Returns whether there is room for it.
fn begin_due_bucket(filter: &mut Filter) -> bool {
    let Some(ring) = filter.windowed_mut() else { return true };
    ring.bucket_due(NOW).is_none_or(|start| ring.begin_bucket(start, &GROWN).is_ok())
}

/// Items of every length from 0 to 31; the empty one is repeated.
fn item(number: u8) -> Vec<u8> {
    vec![number; usize::from(number % 32)]
}

/// Accepts a record and checks the laws of arrivals: a repeated record is recognised, and a refused or recognised one changes nothing.
///
/// # Errors
/// As [`Arrival::accept`].
pub fn accept(arrival: &mut Arrival, iterator: u64, data: &[u8]) -> Result<Progress, Error> {
    let before = copy(arrival);
    let result = arrival.accept(iterator, data, &Unlimited);
    match result {
        Ok(Progress::Stored) => assert_eq!(arrival.accept(iterator, data, &Unlimited), Ok(Progress::Known)),
        Ok(Progress::Complete) => {}
        Ok(Progress::Known) | Err(_) => {
            assert!(before.is_none_or(|before| before == *arrival), "{result:?} changed it")
        }
    }
    result
}

/// Accepts a record that a primary accepted and checks its laws: its contents are present afterwards, also if it is repeated, and a refused
/// record changes nothing.
///
/// # Errors
/// As [`Arrival::accept_replicated`].
pub fn accept_replicated(arrival: &mut Arrival, iterator: u64, data: &[u8]) -> Result<Progress, Error> {
    let before = copy(arrival);
    let result = arrival.accept_replicated(iterator, data);
    match result {
        Ok(Progress::Stored) => {
            let after = copy(arrival);
            assert!(arrival.accept_replicated(iterator, data).is_ok());
            assert!(after.is_none_or(|after| after == *arrival), "the same again changed it");
        }
        Ok(Progress::Complete) => {}
        Ok(Progress::Known) | Err(_) => {
            assert!(before.is_none_or(|before| before == *arrival), "{result:?} changed it")
        }
    }
    result
}

/// Returns a copy if the value is small.
fn copy(arrival: &Arrival) -> Option<Arrival> {
    let allocated_bytes = match arrival {
        Arrival::Own(arrival) => arrival.filter().allocated_bytes(),
        Arrival::RedisBloom(arrival) => arrival.filter().allocated_bytes(),
        Arrival::RedisBloomCuckoo(arrival) => arrival.filter().allocated_bytes(),
    };
    (allocated_bytes <= COMPARED_TO_BYTES).then(|| arrival.try_clone().unwrap())
}

/// Returns the number of chunks of all layers.
fn chunks(filter: &Filter) -> u64 {
    filter.layers().map(|layer| layer.size_bytes.div_ceil(1 << 20)).sum()
}

/// An arriving filter can be saved, copied and dumped record by record, and the remaining records complete it.
fn of_arriving(mut value: Value) {
    of_copies(&value);
    let Value::Arriving(arrival) = &value else { panic!("a filter: {value:?}") };
    // The header of a cuckoo filter of RedisBloom may promise thousands of layers, more than clients may create. Each record is located
    // from the first layer on, so that all of them would take minutes.
    if let Arrival::RedisBloomCuckoo(arrival) = &**arrival
        && arrival.filter().cells().count() > 2 * CLIENT_LAYERS_MAX
    {
        return;
    }
    let whole: Vec<(u64, Vec<u8>)> = match &**arrival {
        Arrival::Own(arrival) => records::records(arrival.filter(), arrival.generation()).map(Result::unwrap).collect(),
        Arrival::RedisBloom(arrival) => all_chunks(arrival.filter()),
        Arrival::RedisBloomCuckoo(arrival) => all_chunks(arrival.filter()),
    };
    let has_table_records = match &**arrival {
        Arrival::Own(arrival) => arrival.next_chunk() > chunks(arrival.filter()),
        Arrival::RedisBloom(_) | Arrival::RedisBloomCuckoo(_) => false,
    };
    // The last missing record completes it: after a gap, the final ones may have arrived before.
    let mut completed = 0;
    for (iterator, data) in &whole {
        let Value::Arriving(arrival) = &mut value else { panic!("a filter: {value:?}") };
        completed += usize::from(arrival.accept(*iterator, data, &Unlimited) == Ok(Progress::Complete));
    }
    if completed == 0 && has_table_records {
        // The dump divided its tables otherwise, or into more pieces.
        return;
    }
    assert_eq!(completed, 1, "it is whole once");
    of_complete(value.take());
}

/// Returns the records of a filter that is dumped in RedisBloom's format.
fn all_chunks(filter: &impl Chunked) -> Vec<(u64, Vec<u8>)> {
    let records = chunked::records(filter).map(Result::unwrap);
    records.map(|(iterator, data)| (iterator, data.into_owned())).collect()
}
