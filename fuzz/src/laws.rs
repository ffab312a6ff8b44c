//! What holds for everything that a decoder made, whatever the bytes were: its numbers are sound, it answers every
//! question, a copy and what is saved and read again are equal, an item that was added is in, and what is arriving arrives.

use bloomgate::bloom::flat::HASHES_MAX;
use bloomgate::bloom::{
    BATCH, Error as FilterError, Filter, LayerSummary, Native, RedisBloom, Rules, Unlimited, ValkeyBloom,
};
use bloomgate::format::{Arrival, Error, NativeArrival, Progress, RedisBloomArrival, Value};
use bloomgate::format::{came_already, dump, redisbloom_dump, valkey_bloom};

use super::{CEILING, FilterOf, Outcome, snapshot};

/// So many items are added: enough that small layers grow many times over.
const ITEMS: u8 = 200;
/// To so many bytes a filter grows, which is less than what may be decoded: most of the time would go into large copies.
const GROWN: FilterOf = FilterOf(1 << 14);
/// What is arriving is compared with what it was before a record only where that is quick, in bytes.
const COMPARED_TO_BYTES: u64 = 1 << 16;

/// Holds an outcome to the laws: it is a refusal, or a value that is sound.
pub fn of_outcome(outcome: Outcome) {
    match outcome.value {
        None => assert!(outcome.refused.is_some(), "nothing was made and nothing refused"),
        Some(Value::Filter(filter)) => of_filter(filter),
        Some(arriving) => of_arriving(&arriving),
    }
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

/// Its numbers are those of a filter, and agree.
fn of_numbers(filter: &Filter) {
    let layers: Vec<_> = filter.layers_behind(0).collect();
    let layers_max = match filter {
        Filter::Native(_) => Native::LAYERS_MAX,
        Filter::RedisBloom(_) => RedisBloom::LAYERS_MAX,
        Filter::ValkeyBloom(_) => ValkeyBloom::LAYERS_MAX,
    };
    assert!((1..=layers_max).contains(&layers.len()) && filter.layer_count() == layers.len());
    assert_eq!(filter.layers_behind(layers.len() - 1).next(), layers.last().copied());
    assert_eq!(filter.layers_behind(usize::MAX).next(), None);
    for layer in &layers {
        assert!(layer.bits >= 1 && layer.bits <= layer.size_bytes.saturating_mul(8), "{layer:?}");
        assert!(layer.hashes >= 1 && layer.hashes <= HASHES_MAX && layer.capacity >= 1, "{layer:?}");
        assert!(layer.rate > 0.0 && layer.rate < 1.0, "{layer:?}");
    }
    let sum = |number: fn(&LayerSummary) -> u64| layers.iter().map(number).try_fold(0, u64::checked_add);
    assert_eq!(Some(filter.items()), sum(|layer| layer.items));
    assert_eq!(Some(filter.total_capacity()), sum(|layer| layer.capacity));
    let size_bytes = sum(|layer| layer.size_bytes).unwrap();
    assert!(filter.size_bytes() > size_bytes && filter.allocated_bytes() > size_bytes);
    assert!(size_bytes <= CEILING.0, "{size_bytes} bytes");
    assert!(filter.room() <= filter.total_capacity());
    assert!(filter.rate() > 0.0 && filter.rate().is_finite());
    assert!(filter.scaling().expansion() > 0 || layers.len() == 1);
}

/// A copy is equal, and so is what is saved and read again, or dumped and loaded.
fn of_copies(value: &Value) {
    let copy = value.try_clone().unwrap();
    assert!(copy == *value, "a copy is not equal");
    assert_eq!(copy.contents().items, value.contents().items);
    let saved = snapshot::written(value);
    let again = snapshot::read_again(value, &saved);
    assert!(again.as_ref() == Ok(value), "not what was saved: {again:?}");
    assert!(snapshot::written(&copy) == saved, "a copy is saved in another way");
    if let Value::Filter(filter) = value {
        let loaded = dumped_and_loaded(filter);
        assert!(loaded.as_ref() == Ok(filter), "not what was dumped: {loaded:?}");
    }
}

fn dumped_and_loaded(filter: &Filter) -> Result<Filter, Error> {
    const GENERATION: u16 = 3;
    match filter {
        Filter::Native(filter) => {
            let (iterator, header) = dump::first_record(filter, GENERATION)?;
            assert!(dump::is_header(&header));
            let mut arrival = Arrival::Native(NativeArrival::begin(iterator, &header, &Unlimited)?);
            for record in dump::records(filter, GENERATION) {
                let (iterator, data) = record?;
                assert_eq!(came_already(filter, GENERATION, iterator, &data), Ok(()));
                arrival.accept(iterator, &data)?;
            }
            Ok(Value::from(arrival).take_filter())
        }
        Filter::RedisBloom(filter) => {
            let mut arrival = RedisBloomArrival::begin(&redisbloom_dump::encode_header(filter)?, &Unlimited)?;
            for record in redisbloom_dump::records(filter) {
                let (iterator, data) = record?;
                if iterator != redisbloom_dump::HEADER {
                    assert_eq!(redisbloom_dump::came_already(filter, iterator, &data), Ok(()));
                }
                arrival.accept(iterator, &data)?;
            }
            Ok(arrival.into_filter().into())
        }
        Filter::ValkeyBloom(filter) => {
            Ok(valkey_bloom::decode_load(&valkey_bloom::encode_load(filter)?, &Unlimited)?.into())
        }
    }
}

/// An item that was added is in; the answers of a batch are those of its items; what is refused changes nothing.
fn of_adds(filter: &mut Filter) {
    let items: Vec<Vec<u8>> = (0..ITEMS).map(item).collect();
    let mut members = 0;
    for batch in items.chunks(BATCH) {
        let batch = || batch.iter().map(Vec::as_slice);
        let were_in = filter.contains_batch(batch());
        assert_eq!(were_in, batch().rev().fold(0, |mask, item| mask << 1 | u32::from(filter.contains(item))));
        let before = filter.items();
        let added = filter.add_batch(batch(), &GROWN);
        assert_eq!(added.new & were_in, 0, "what was in is not new");
        assert_eq!(filter.items(), before + u64::from(added.new.count_ones()));
        members += added.done;
        let Some(error) = added.error else {
            assert_eq!(added.done, batch().len());
            continue;
        };
        assert!(!matches!(error, FilterError::Unsound | FilterError::RateOutOfRange), "{error}");
        assert!(batch().nth(added.done).is_some_and(|item| !filter.contains(item)), "refused, and yet in");
        break;
    }
    assert!(items[..members].iter().all(|item| filter.contains(item)), "a member is denied");
}

/// Of every length from 0 to 31; the empty one comes several times.
fn item(number: u8) -> Vec<u8> {
    vec![number; usize::from(number % 32)]
}

/// Takes a record, held to the laws of arriving: one that came already is known when it comes again, and what is refused
/// or known changes nothing.
///
/// # Errors
/// As [`Arrival::accept`].
pub fn accept(arrival: &mut Arrival, iterator: u64, data: &[u8]) -> Result<Progress, Error> {
    let before = copy(arrival);
    let result = arrival.accept(iterator, data);
    match result {
        Ok(Progress::Stored) => assert_eq!(arrival.accept(iterator, data), Ok(Progress::Known)),
        Ok(Progress::Complete) => {}
        Ok(Progress::Known) | Err(_) => {
            assert!(before.is_none_or(|before| before == *arrival), "{result:?} changed it")
        }
    }
    result
}

/// A copy of what is small.
fn copy(arrival: &Arrival) -> Option<Arrival> {
    match arrival {
        Arrival::Native(arrival) if arrival.filter().allocated_bytes() <= COMPARED_TO_BYTES => {
            arrival.try_clone().ok().map(Arrival::Native)
        }
        Arrival::RedisBloom(arrival) if arrival.filter().allocated_bytes() <= COMPARED_TO_BYTES => {
            arrival.try_clone().ok().map(Arrival::RedisBloom)
        }
        _ => None,
    }
}

/// What has come can be saved, copied and told record by record, and the rest makes it whole.
fn of_arriving(value: &Value) {
    of_copies(value);
    let Value::Arriving(arrival) = value else { return };
    let (told, mut whole): (Arrival, Vec<(u64, Vec<u8>)>) = match &**arrival {
        Arrival::Native(arrival) => {
            let told: Vec<_> = arrival.records().collect::<Result<_, _>>().unwrap();
            let mut again = NativeArrival::begin(told[0].0, &told[0].1, &Unlimited).unwrap();
            assert!(told.iter().all(|(iterator, data)| again.accept(*iterator, data).is_ok()));
            let whole = dump::records(arrival.filter(), arrival.generation());
            (Arrival::Native(again), whole.map(Result::unwrap).collect())
        }
        Arrival::RedisBloom(arrival) => {
            let mut again = RedisBloomArrival::begin(arrival.header(), &Unlimited).unwrap();
            assert!(arrival.records().all(|(iterator, data)| again.accept(iterator, data).is_ok()));
            let whole = redisbloom_dump::records(arrival.filter()).map(Result::unwrap);
            (Arrival::RedisBloom(again), whole.map(|(iterator, data)| (iterator, data.into_owned())).collect())
        }
    };
    assert!(told == **arrival, "not what its records tell");
    let Ok(Value::Arriving(mut arriving)) = value.try_clone() else { panic!("a copy that is not arriving") };
    let last = whole.pop().unwrap();
    whole.iter().for_each(|(iterator, data)| assert_ne!(arriving.accept(*iterator, data), Ok(Progress::Complete)));
    assert_eq!(arriving.accept(last.0, &last.1), Ok(Progress::Complete));
    of_filter(Value::Arriving(arriving).take_filter());
}
