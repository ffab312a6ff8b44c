//! Descriptions of filters in payloads: impossible ones are refused; all others create a filter that matches its description and works.

use bloomgate_filter::chain::{LAYERS_MAX, Rules as _};
use bloomgate_filter::format::{self, ByteSink, ByteSource, Sink as _, StoredAs};
use bloomgate_filter::geometry::sizing::Policy;
use bloomgate_filter::geometry::{BlockedBits, LayerDescription};
use bloomgate_filter::hash::Hasher;
use bloomgate_filter::kinds::NativeSpec;
use bloomgate_filter::{BATCH, BloomFilter, Ceiling, Error, Filter, Scaling, Unlimited, Value};
use proptest::prelude::*;

use crate::rows::{Room, config, every_rate};
use crate::world::{items, slices};

/// Everything about a filter except its bits, as a payload states it.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    spec: NativeSpec,
    policy: u32,
    layers: Vec<LayerDescription<BlockedBits>>,
}

impl Description {
    pub fn of(filter: &BloomFilter) -> Self {
        let layers = filter.layers().iter().map(|layer| layer.description()).collect();
        Self { spec: filter.spec(), policy: filter.spec().policy.number(), layers }
    }

    /// Creates the filter for a reader that has checked the policy.
    pub fn with_zero_bits(&self, ceiling: &impl Ceiling) -> Result<BloomFilter, Error> {
        BloomFilter::with_zero_bits(self.spec, &self.layers, ceiling)
    }

    /// Reads the filter from a snapshot with this description. No layer is larger than a chunk, and all bits are zero.
    fn through_snapshot(&self, ceiling: &impl Ceiling) -> Result<Value, format::Error> {
        let NativeSpec { rate, capacity, scaling, hasher, policy: _ } = self.spec;
        let Hasher::Murmur3 { seed } = hasher else { panic!("a key") };
        let mut sink = ByteSink::default();
        // Version, kind and hash, then the fields.
        [1, 1, 1].into_iter().for_each(|number| sink.put_u64(number));
        sink.put_f64(rate);
        let numbers = [capacity, scaling.expansion().into(), u32::from_le_bytes(seed).into(), self.policy.into()];
        numbers.into_iter().for_each(|number| sink.put_u64(number));
        sink.put_u64(self.layers.len() as u64);
        for LayerDescription { rate, capacity, items, geometry } in &self.layers {
            sink.put_f64(*rate);
            let blocks = u64::from(geometry.blocks_per_group) + if geometry.blocks_per_item == 4 { 128 } else { 0 };
            let shape = [geometry.hashes.into(), geometry.groups, blocks];
            [*capacity, *items].into_iter().chain(shape).for_each(|number| sink.put_u64(number));
        }
        self.layers.iter().for_each(|_| sink.put_bytes(&[]));
        let mut source = ByteSource(&sink.0);
        let value = StoredAs::Own.read(1, &mut source, ceiling)?;
        assert!(source.0.is_empty(), "everything is read");
        Ok(value)
    }
}

fn valid() -> Description {
    let mut filter = BloomFilter::new(0.01, 10, Scaling::from_expansion(2), 1, &Unlimited).unwrap();
    for item in 0..25u32 {
        filter.add(&item.to_le_bytes(), &Unlimited).unwrap();
    }
    Description::of(&filter)
}

#[test]
fn an_impossible_description_is_refused() {
    const NO_RATES: [f64; 7] = [0.0, -0.01, 0.250_000_1, 1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    let sound = valid();
    assert_eq!(sound.layers.len(), 2);
    let empty = sound.with_zero_bits(&Unlimited).unwrap();
    assert_eq!(Description::of(&empty), sound);
    assert_eq!(sound.through_snapshot(&Unlimited), Ok(Filter::from(empty).into()));

    let mut unsound: Vec<(String, Description)> = Vec::new();
    let mut with = |what: &str, change: &dyn Fn(&mut Description)| {
        let mut description = sound.clone();
        change(&mut description);
        unsound.push((what.into(), description));
    };
    for rate in NO_RATES.into_iter().chain([9.9e-13]) {
        with(&format!("rate {rate}"), &|d| d.spec.rate = rate);
    }
    for (index, rate) in NO_RATES.into_iter().enumerate() {
        with(&format!("rate {rate} of layer {}", index % 2), &|d| d.layers[index % 2].rate = rate);
    }
    with("capacity 0", &|d| d.spec.capacity = 0);
    with("policy 0", &|d| d.policy = 0);
    with("policy 4", &|d| d.policy = 4);
    with("policy 2 of a fixed filter at 0.0199", &|d| {
        (d.policy, d.spec.policy, d.spec.scaling) = (2, Policy::Two, Scaling::Fixed);
        (d.spec.rate, d.layers[0].rate) = (0.0199, 0.0199);
        d.layers.truncate(1);
    });
    with("policy 2 of a filter for 129 items", &|d| (d.policy, d.spec.policy, d.spec.capacity) = (2, Policy::Two, 129));
    with("no layers", &|d| d.layers.clear());
    with("too many layers", &|d| d.layers = vec![d.layers[0]; LAYERS_MAX + 1]);
    with("two layers of a fixed filter", &|d| d.spec.scaling = Scaling::Fixed);
    for layer in [0, 1] {
        with("a layer's capacity 0", &|d| (d.layers[layer].capacity, d.layers[layer].items) = (0, 0));
        with("more items than capacity", &|d| d.layers[layer].items = d.layers[layer].capacity + 1);
        with("items beyond counting", &|d| d.layers[layer].items = u64::MAX);
        for number in [0, 65, 127, 255, u16::MAX] {
            with(&format!("{number} blocks a group"), &|d| d.layers[layer].geometry.blocks_per_group = number);
        }
        for number in [0, 65, u32::MAX] {
            with(&format!("{number} hashes"), &|d| d.layers[layer].geometry.hashes = number);
        }
        with("one block a group", &|d| d.layers[layer].geometry.blocks_per_group = 1);
        with("four of three blocks", &|d| {
            let geometry = &mut d.layers[layer].geometry;
            (geometry.blocks_per_item, geometry.blocks_per_group, geometry.hashes) = (4, 3, 13);
        });
        with("twelve hashes in four blocks", &|d| {
            let geometry = &mut d.layers[layer].geometry;
            (geometry.blocks_per_item, geometry.blocks_per_group, geometry.hashes) = (4, 64, 12);
        });
        for groups in [0, 1 << 58, u64::MAX / 128, u64::MAX] {
            with(&format!("{groups} groups"), &|d| d.layers[layer].geometry.groups = groups);
        }
    }
    for (what, description) in unsound {
        // A size that does not fit 63 bits is unsound as well, but a ceiling may refuse it first.
        if description.policy == 1 {
            assert_eq!(description.with_zero_bits(&Unlimited).unwrap_err(), Error::Unsound, "{what}");
            assert!(description.with_zero_bits(&Room::SMALL).is_err(), "{what}");
        }
        let refusal = match description.layers.len() {
            0..=LAYERS_MAX => format::Error::Filter(Error::Unsound),
            _ => format::Error::OutOfRange,
        };
        assert_eq!(description.through_snapshot(&Unlimited), Err(refusal), "{what}");
        assert!(description.through_snapshot(&Room::SMALL).is_err(), "{what}");
    }
    // The ceiling is checked for all layers together.
    let cells_bytes = sound.layers.iter().map(|layer| layer.geometry.size_bytes()).sum();
    let asked_bytes = NativeSpec::size_bytes(sound.layers.len(), cells_bytes);
    let short = Error::AboveCeiling { asked_bytes, available_bytes: asked_bytes - 1 };
    assert_eq!(sound.with_zero_bits(&Room::of(asked_bytes - 1)).unwrap_err(), short);
    assert!(sound.with_zero_bits(&Room::of(asked_bytes)).is_ok());
    let longest = Description { layers: vec![sound.layers[0]; LAYERS_MAX], ..sound };
    assert!(longest.with_zero_bits(&Unlimited).is_ok());
}

/// Mostly in range, sometimes arbitrary bits.
fn wild_rates() -> impl Strategy<Value = f64> {
    prop_oneof![9 => every_rate(), 1 => any::<u64>().prop_map(f64::from_bits)]
}

fn layer_descriptions() -> impl Strategy<Value = LayerDescription<BlockedBits>> {
    let capacities = prop_oneof![4 => 1u64..100, 1 => any::<u64>(), 1 => u64::MAX - 1..=u64::MAX];
    let items = prop_oneof![2 => Just(None), 3 => (0u64..100).prop_map(Some), 1 => any::<u64>().prop_map(Some)];
    let groups = prop_oneof![9 => 1u64..20, 1 => any::<u64>()];
    // The bit with value 128 means four blocks per item.
    let blocks = prop_oneof![8 => 2u16..=64, 1 => any::<u16>(), 1 => 0u16..=65].prop_map(|blocks| blocks & !128);
    let blocks_per_item = prop_oneof![Just(2u16), Just(4)];
    let hashes = prop_oneof![8 => 1u32..=64, 1 => any::<u32>(), 1 => 0u32..=65];
    let geometries = (groups, blocks, blocks_per_item, hashes);
    (wild_rates(), capacities, items, geometries).prop_map(|(rate, capacity, items, geometry)| {
        let (groups, blocks_per_group, blocks_per_item, hashes) = geometry;
        let geometry = BlockedBits { groups, blocks_per_group, blocks_per_item, hashes };
        LayerDescription { rate, capacity, items: items.unwrap_or(capacity), geometry }
    })
}

proptest! {
    #![proptest_config(config(4096))]

    /// Any payload gives an error, or a filter that matches its description and works.
    #[test]
    fn any_description_is_refused_or_works(
        rate in wild_rates(),
        capacity in prop_oneof![4 => 1u64..100, 1 => any::<u64>()],
        expansion in prop_oneof![2 => 0u32..4, 1 => any::<u32>()],
        seed in any::<u32>(),
        policy in prop_oneof![9 => 1u32..=3, 1 => any::<u32>()],
        layers in prop::collection::vec(layer_descriptions(), 0..4),
        numbers in prop::collection::vec(0u32..500, 1..=BATCH),
    ) {
        let known = Policy::from_number(policy);
        let scaling = Scaling::from_expansion(expansion);
        let spec = NativeSpec { policy: known.unwrap_or(Policy::One), ..NativeSpec::murmur3(rate, capacity, scaling, seed) };
        let description = Description { spec, policy, layers };
        let made = || description.with_zero_bits(&Room::SMALL);
        let may_be_later = rate < 1e-4 || if expansion > 0 { capacity <= 128 } else { rate >= 0.02 };
        let is_possible = known.is_some_and(|known| known == Policy::One || may_be_later);
        let expected = if is_possible {
            made().map(|filter| Filter::from(filter).into()).map_err(format::Error::Filter)
        } else {
            Err(format::Error::Filter(Error::Unsound))
        };
        prop_assert_eq!(description.through_snapshot(&Room::SMALL), expected);
        if let Ok(mut filter) = made() {
            prop_assert_eq!(Description::of(&filter), Description { policy: spec.policy.number(), ..description });
            let items = items(&numbers);
            let added = filter.add_batch(&filter.hash_batch(slices(&items)), &Room::SMALL);
            prop_assert!(items[..added.done].iter().all(|item| filter.contains(item)));
            prop_assert_eq!(added.error.is_none(), added.done == items.len());
            prop_assert!(filter.remaining_capacity() <= filter.total_capacity());
            prop_assert!(filter == filter.try_clone().unwrap());
        }
    }
}

#[test]
fn a_layer_with_too_large_a_capacity_or_size_is_refused() {
    let mut description = valid();
    for (capacity, refusal) in [
        (u64::MAX - 1_000_000, Error::CapacityOutOfRange),
        (1 << 63, Error::CapacityOutOfRange),
        (1 << 62, Error::SizeOverflow),
    ] {
        description.layers[1] = LayerDescription { capacity, items: capacity, ..description.layers[1] };
        let mut filter = description.with_zero_bits(&Unlimited).unwrap();
        assert_eq!(filter.add(b"item", &Unlimited), Err(refusal), "{capacity}");
        assert!(filter == description.with_zero_bits(&Unlimited).unwrap());
    }
    // A chain whose items do not fit 64 bits is not sound either.
    description.layers[1] = LayerDescription { capacity: u64::MAX, items: 0, ..description.layers[1] };
    assert_eq!(description.with_zero_bits(&Unlimited).unwrap_err(), Error::Unsound);
}
