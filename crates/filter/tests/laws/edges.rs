//! The limits of rates, capacities, chains, batches and memory: values beyond a limit are refused, values at a limit work. Also, every
//! field of a definition makes a difference.

use bloomgate_filter::format::{self, ByteSource, StoredAs};
use bloomgate_filter::kinds::{Added, NativeSpec, Origin};
use bloomgate_filter::{
    BATCH, BloomFilter, CLIENT_LAYERS_MAX, Ceiling, Error, Filter, Mask, Moment, RATE_MAX, RATE_MIN, Scaling, Spec,
    Unlimited,
};

use crate::forms::{read_own, snapshot};
use crate::rows::Room;
use crate::world::slices;

const NOW: Moment = Moment(0);
/// The longest chain of a native filter.
const LAYERS_MAX: usize = 4096;

fn add_batch(filter: &mut Filter, items: &[Vec<u8>], ceiling: &impl Ceiling) -> Added {
    filter.add_batch(slices(items), Origin::Client, &NOW, ceiling)
}

#[test]
#[cfg_attr(miri, ignore = "4096 layers take hours")]
fn a_chain_ends_at_its_longest() {
    let mut filter = BloomFilter::new(RATE_MAX, 1, Scaling::from_expansion(1), 3, &Unlimited).unwrap();
    let mut added = 0u32;
    let error = loop {
        match filter.add(&added.to_le_bytes(), &Unlimited) {
            Ok(_) => added += 1,
            Err(error) => break error,
        }
        assert!(added < 100_000, "a chain without an end");
    };
    assert_eq!((error, filter.layers().len(), filter.items()), (Error::TooManyLayers, LAYERS_MAX, LAYERS_MAX as u64));
    let before = filter.try_clone().unwrap();
    assert_eq!(filter.add(&added.to_le_bytes(), &Unlimited), Err(Error::TooManyLayers));
    assert!((0..added).all(|item| filter.contains(&item.to_le_bytes())));
    assert_eq!(filter.add(&0u32.to_le_bytes(), &Unlimited), Ok(false));
    assert!(filter == before);
}

#[test]
#[cfg_attr(miri, ignore = "1100 layers take an hour")]
fn a_chain_is_not_longer_than_the_ceiling_allows() {
    let client = Room::layers(CLIENT_LAYERS_MAX);
    let spec = Spec::Native(NativeSpec::murmur3(RATE_MAX, 1, Scaling::from_expansion(1), 3));
    let mut filter = Filter::new(&spec, &client).unwrap();
    let batches: Vec<Vec<Vec<u8>>> = (0..100u32)
        .map(|batch| (0..32u32).map(|item| [batch, item].map(u32::to_le_bytes).concat()).collect())
        .collect();
    let refused = batches.iter().find_map(|batch| add_batch(&mut filter, batch, &client).error);
    assert_eq!(refused, Some(Error::TooManyLayers));
    assert_eq!((filter.layer_count(), filter.items()), (CLIENT_LAYERS_MAX, CLIENT_LAYERS_MAX as u64));
    // With a higher limit it continues. The chain is then longer than the lower limit, and still answers under it.
    batches.iter().for_each(|batch| assert_eq!(add_batch(&mut filter, batch, &Unlimited).error, None));
    assert!(filter.layer_count() > CLIENT_LAYERS_MAX + 100);
    let before = filter.try_clone().unwrap();
    assert!(batches.iter().all(|batch| add_batch(&mut filter, batch, &client).new.is_empty()));
    let stranger = (0..10_000u32).map(u32::to_le_bytes).find(|item| !filter.contains(item, &NOW)).unwrap();
    assert_eq!(filter.add(&stranger, Origin::Client, &NOW, &client), Err(Error::TooManyLayers));
    assert!(filter == before);
    let read = StoredAs::Own.read(1, &mut ByteSource(&snapshot(&filter)), &client);
    assert_eq!(read, Err(format::Error::Filter(Error::TooManyLayers)));
    // The reach agrees.
    let spec = Spec::Native(NativeSpec::murmur3(RATE_MAX, 7, Scaling::from_expansion(1), 3));
    let reach = |layers| spec.growth_limit(0, &Room::layers(layers)).capacity;
    assert_eq!([1, 2, CLIENT_LAYERS_MAX, usize::MAX].map(reach), [7, 14, 7700, 7 * LAYERS_MAX as u64]);
}

#[test]
#[cfg_attr(miri, ignore = "to ask for more memory than there is ends miri")]
fn rates_and_capacities_have_edges() {
    let new = |rate, capacity| BloomFilter::new(rate, capacity, Scaling::Fixed, 0, &Unlimited).map(|_| ());
    for rate in [RATE_MAX.next_up(), RATE_MIN.next_down(), 0.0, -0.01, 1.0, f64::NAN, f64::INFINITY, -f64::INFINITY] {
        assert_eq!(new(rate, 100), Err(Error::RateOutOfRange), "{rate}");
    }
    for rate in [RATE_MIN, 0.01, RATE_MAX] {
        assert_eq!(new(rate, 1), Ok(()));
        assert_eq!(new(rate, 0), Err(Error::CapacityOutOfRange));
        assert!(matches!(new(rate, u64::MAX), Err(Error::SizeOverflow | Error::OutOfMemory { .. })));
        // 2^58 fit 63 bits, but no machine. The error states the requested memory.
        let spec = Spec::Native(NativeSpec::murmur3(rate, 1 << 58, Scaling::Fixed, 0));
        let asked_bytes = spec.plan(None).unwrap().layers[0].size_bytes;
        assert_eq!(new(rate, 1 << 58), Err(Error::OutOfMemory { asked_bytes }));
    }
    let mut one = BloomFilter::new(0.01, 1, Scaling::Fixed, 0, &Unlimited).unwrap();
    assert_eq!(one.add(b"", &Unlimited), Ok(true));
    assert_eq!(one.add(b"a", &Unlimited), Err(Error::Full));
    assert_eq!(one.add(b"", &Unlimited), Ok(false));
    let asked_bytes = Spec::Native(NativeSpec::murmur3(0.01, 1000, Scaling::Fixed, 0)).plan(None).unwrap().size_bytes;
    let short = Error::AboveCeiling { asked_bytes, available_bytes: asked_bytes - 1 };
    assert_eq!(BloomFilter::new(0.01, 1000, Scaling::Fixed, 0, &Room::of(asked_bytes - 1)).unwrap_err(), short);
    assert!(BloomFilter::new(0.01, 1000, Scaling::Fixed, 0, &Room::of(asked_bytes)).is_ok());
}

/// Returns the largest capacity, a power of two up to 2^40, that this machine can allocate. Touches few pages.
#[test]
#[cfg_attr(miri, ignore = "to ask for more memory than there is ends miri")]
fn a_filter_may_be_larger_than_the_memory_that_it_uses() {
    let made = (24..=40).rev().find_map(|power| BloomFilter::new(0.01, 1 << power, Scaling::Fixed, 9, &Unlimited).ok());
    let mut filter = Filter::from(made.unwrap());
    println!("capacity {}: {} bytes", filter.total_capacity(), filter.allocated_bytes());
    let items: Vec<Vec<u8>> = (0..100u32).map(|item| item.to_le_bytes().to_vec()).collect();
    for batch in items.chunks(BATCH) {
        assert_eq!(add_batch(&mut filter, batch, &Unlimited).new, Mask::first(batch.len()));
    }
    assert!(items.iter().all(|item| filter.contains(item, &NOW)));
    assert!((100..1000u32).all(|item| !filter.contains(&item.to_le_bytes(), &NOW)));
    assert_eq!(filter.items(), 100);
}

#[test]
fn a_batch_is_limited_and_an_empty_one_does_nothing() {
    let mut filter = Filter::from(BloomFilter::new(0.01, 100, Scaling::Fixed, 5, &Unlimited).unwrap());
    let list: Vec<Vec<u8>> = (0..40u8).map(|item| vec![item]).collect();
    assert_eq!(add_batch(&mut filter, &list, &Unlimited).done, BATCH);
    assert_eq!(filter.contains_batch(slices(&list), &NOW), Mask::first(BATCH));
    assert_eq!(list.iter().filter(|item| filter.contains(item, &NOW)).count(), BATCH);
    let nothing = Added { new: Mask::NONE, effect: Mask::NONE, done: 0, error: None };
    let mut full = Filter::from(BloomFilter::new(0.01, 1, Scaling::Fixed, 5, &Unlimited).unwrap());
    assert_eq!(add_batch(&mut full, &list[..1], &Unlimited).done, 1);
    assert_eq!(add_batch(&mut full, &[], &Unlimited), nothing);
    assert_eq!(full.contains_batch([], &NOW), Mask::NONE);
}

#[test]
fn filters_that_differ_are_not_equal() {
    let new = |rate, capacity, expansion, seed| {
        BloomFilter::new(rate, capacity, Scaling::from_expansion(expansion), seed, &Unlimited).unwrap()
    };
    let filter = new(0.01, 100, 2, 1);
    assert!(filter == new(0.01, 100, 2, 1));
    let others = [new(0.011, 100, 2, 1), new(0.01, 101, 2, 1), new(0.01, 100, 3, 1), new(0.01, 100, 0, 1)];
    assert!(others.iter().chain([&new(0.01, 100, 2, 2)]).all(|other| *other != filter));
    let filter = Filter::from(filter);
    let mut bytes = snapshot(&filter);
    // The last number is the length of the omitted zeros. They are replaced by cells with one bit set.
    let length = filter.layers().next().unwrap().size_bytes;
    let mut bits = vec![0; usize::try_from(length).unwrap()];
    bits[100] = 16;
    bytes.splice(bytes.len() - 8.., [&length.to_le_bytes()[..], &bits].concat());
    assert_ne!(read_own(&bytes), Ok(filter.into()));
    let bits_of_an_item = [1, 2].map(|seed| {
        let mut filter = new(1e-6, 100, 2, seed);
        filter.add(b"item", &Unlimited).unwrap();
        filter.layers()[0].bytes().to_vec()
    });
    assert_ne!(bits_of_an_item[0], bits_of_an_item[1], "each seed has its own places for an item");
}
