//! Descriptions of native filters in snapshots: impossible ones are refused; all others make a filter that is saved as it was described, and
//! works.

use bloomgate_filter::format::{self, ByteSource, StoredAs};
use bloomgate_filter::kinds::Origin;
use bloomgate_filter::{BATCH, Ceiling, Error, Moment, Unlimited, Value};
use proptest::prelude::*;

use crate::forms::{filter, records};
use crate::inputs::spelled::{Native, NativeLayer};
use crate::rows::{Room, config, every_rate};
use crate::world::{items, slices};

const NOW: Moment = Moment(0);
const LAYERS_MAX: usize = 4096;
const UNSOUND: Result<Value, format::Error> = Err(format::Error::Filter(Error::Unsound));
/// In the number of blocks per group: four blocks per item instead of two.
const FOUR_PER_ITEM: u64 = 128;

/// Reads the filter from a snapshot with this description, and all bits zero.
fn read(of: &Native, ceiling: &impl Ceiling) -> Result<Value, format::Error> {
    let of = Native { count: of.layers.len() as u64, ..of.clone() };
    let bytes = of.snapshot();
    let mut source = ByteSource(&bytes);
    let value = StoredAs::Own.read(1, &mut source, ceiling)?;
    assert!(source.0.is_empty(), "everything is read");
    assert!(records(filter(&value))[0].1.starts_with(&of.header()), "it is what was described");
    Ok(value)
}

/// A filter of two layers.
fn sound() -> Native {
    let first = NativeLayer { items: 10, ..NativeLayer::default() };
    let second = NativeLayer { rate: 0.003, capacity: 20, items: 15, hashes: 8, blocks_per_group: 2, ..first.clone() };
    Native { seed: 1, layers: vec![first, second], ..Native::default() }
}

#[test]
fn an_impossible_description_is_refused() {
    const NO_RATES: [f64; 7] = [0.0, -0.01, 0.250_000_1, 1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    let sound = sound();
    let value = read(&sound, &Unlimited).unwrap();

    let refuse = |what: &str, change: &dyn Fn(&mut Native)| {
        let mut of = sound.clone();
        change(&mut of);
        let refusal = if of.layers.len() > LAYERS_MAX { Err(format::Error::OutOfRange) } else { UNSOUND };
        assert_eq!(read(&of, &Unlimited), refusal, "{what}");
        assert!(read(&of, &Room::SMALL).is_err(), "{what}");
    };
    for rate in NO_RATES.into_iter().chain([9.9e-13]) {
        refuse(&format!("rate {rate}"), &|of| of.rate = rate);
    }
    for (index, rate) in NO_RATES.into_iter().enumerate() {
        refuse(&format!("rate {rate} of layer {}", index % 2), &|of| of.layers[index % 2].rate = rate);
    }
    refuse("capacity 0", &|of| of.capacity = 0);
    for policy in [0, 4] {
        refuse("policy", &|of| of.policy = policy);
    }
    refuse("policy 2 of a fixed filter at 0.0199", &|of| {
        (of.policy, of.expansion, of.rate, of.layers[0].rate) = (2, 0, 0.0199, 0.0199);
        of.layers.truncate(1);
    });
    refuse("policy 2 of a filter for 129 items", &|of| (of.policy, of.capacity) = (2, 129));
    refuse("no layers", &|of| of.layers.clear());
    refuse("too many layers", &|of| of.layers = vec![of.layers[0].clone(); LAYERS_MAX + 1]);
    refuse("two layers of a fixed filter", &|of| of.expansion = 0);
    for index in [0, 1] {
        let refuse = |what: &str, change: &dyn Fn(&mut NativeLayer)| refuse(what, &|of| change(&mut of.layers[index]));
        refuse("a layer's capacity 0", &|layer| (layer.capacity, layer.items) = (0, 0));
        refuse("more items than capacity", &|layer| layer.items = layer.capacity + 1);
        refuse("items beyond counting", &|layer| layer.items = u64::MAX);
        for blocks in [0, 1, 65, 127, 255, u64::from(u16::MAX)] {
            refuse(&format!("{blocks} blocks a group"), &|layer| layer.blocks_per_group = blocks);
        }
        for hashes in [0, 65, u64::from(u32::MAX)] {
            refuse(&format!("{hashes} hashes"), &|layer| layer.hashes = hashes);
        }
        for (blocks, hashes) in [(3, 13), (64, 12)] {
            let change =
                |layer: &mut NativeLayer| (layer.blocks_per_group, layer.hashes) = (FOUR_PER_ITEM + blocks, hashes);
            refuse("four blocks", &change);
        }
        for groups in [0, 1 << 58, u64::MAX / 128, u64::MAX] {
            refuse(&format!("{groups} groups"), &|layer| layer.groups = groups);
        }
    }
    // The ceiling is checked for all layers together.
    let asked_bytes = value.contents().size_bytes;
    let short = Error::AboveCeiling { asked_bytes, available_bytes: asked_bytes - 1 };
    assert_eq!(read(&sound, &Room::of(asked_bytes - 1)), Err(format::Error::Filter(short)));
    assert!(read(&sound, &Room::of(asked_bytes)).is_ok());
    let longest = Native { layers: vec![sound.layers[0].clone(); LAYERS_MAX], ..sound.clone() };
    assert!(read(&longest, &Unlimited).is_ok());
    // The items of a chain fit 64 bits.
    let mut endless = sound.clone();
    (endless.layers[1].capacity, endless.layers[1].items) = (u64::MAX, 0);
    assert_eq!(read(&endless, &Unlimited), UNSOUND);
}

/// Mostly in range, sometimes arbitrary bits.
fn wild_rates() -> impl Strategy<Value = f64> {
    prop_oneof![9 => every_rate(), 1 => any::<u64>().prop_map(f64::from_bits)]
}

fn layers() -> impl Strategy<Value = NativeLayer> {
    let capacities = prop_oneof![4 => 1u64..100, 1 => any::<u64>(), 1 => u64::MAX - 1..=u64::MAX];
    let items = prop_oneof![2 => Just(None), 3 => (0u64..100).prop_map(Some), 1 => any::<u64>().prop_map(Some)];
    let groups = prop_oneof![9 => 1u64..20, 1 => any::<u64>()];
    let blocks = prop_oneof![8 => 2u64..=64, 1 => any::<u16>().prop_map_into(), 1 => 0u64..=65];
    let blocks =
        (blocks, prop_oneof![Just(0), Just(FOUR_PER_ITEM)]).prop_map(|(blocks, four)| blocks & !FOUR_PER_ITEM | four);
    let hashes = prop_oneof![8 => 1u64..=64, 1 => any::<u32>().prop_map_into(), 1 => 0u64..=65];
    (wild_rates(), capacities, items, groups, blocks, hashes).prop_map(
        |(rate, capacity, items, groups, blocks_per_group, hashes)| {
            let items = items.unwrap_or(capacity);
            NativeLayer { rate, capacity, items, hashes, groups, blocks_per_group, chunks: vec![vec![]] }
        },
    )
}

/// Whether a layer can be like this, if there is memory for it.
fn is_sound_layer(layer: &NativeLayer) -> bool {
    let four = layer.blocks_per_group & FOUR_PER_ITEM != 0;
    let blocks = layer.blocks_per_group & !FOUR_PER_ITEM;
    let fits = layer.groups.checked_mul(blocks * 64).is_some_and(|bytes| i64::try_from(bytes).is_ok());
    let shape = blocks >= if four { 4 } else { 2 } && blocks <= 64 && layer.groups > 0 && fits;
    let hashes = (if four { 13 } else { 1 }..=64).contains(&layer.hashes);
    shape && hashes && layer.rate > 0.0 && layer.rate <= 0.25 && layer.capacity > 0 && layer.items <= layer.capacity
}

fn is_sound(of: &Native) -> bool {
    let may_be_later = of.rate < 1e-4 || if of.expansion > 0 { of.capacity <= 128 } else { of.rate >= 0.02 };
    (1e-12..=0.25).contains(&of.rate)
        && of.capacity > 0
        && (of.policy == 1 || (2..=3).contains(&of.policy) && may_be_later)
        && (1..=if of.expansion > 0 { LAYERS_MAX } else { 1 }).contains(&of.layers.len())
        && of.layers.iter().all(is_sound_layer)
        && of.layers.iter().try_fold(0u64, |sum, layer| sum.checked_add(layer.capacity)).is_some()
}

proptest! {
    #![proptest_config(config(4096))]

    /// Any payload gives an error, or a filter that matches its description and works.
    #[test]
    fn any_description_is_refused_or_works(
        rate in wild_rates(),
        capacity in prop_oneof![4 => 1u64..100, 1 => any::<u64>()],
        expansion in prop_oneof![2 => 0u64..4, 1 => any::<u32>().prop_map_into()],
        seed in any::<u32>().prop_map_into(),
        policy in prop_oneof![9 => 1u64..=3, 1 => any::<u32>().prop_map_into()],
        layers in prop::collection::vec(layers(), 0..4),
        numbers in prop::collection::vec(0u32..500, 1..=BATCH),
    ) {
        let of = Native { rate, capacity, expansion, seed, policy, layers, ..Native::default() };
        match read(&of, &Room::SMALL) {
            Err(format::Error::Filter(Error::AboveCeiling { .. })) => {}
            Err(error) => prop_assert!(error == format::Error::Filter(Error::Unsound) && !is_sound(&of), "{error:?}"),
            Ok(Value::Filter(mut filter)) => {
                prop_assert!(is_sound(&of));
                let items = items(&numbers);
                let added = filter.add_batch(slices(&items), Origin::Client, &NOW, &Room::SMALL);
                prop_assert!(items[..added.done].iter().all(|item| filter.contains(item, &NOW)));
                prop_assert_eq!(added.error.is_none(), added.done == items.len());
                prop_assert!(filter.remaining_capacity() <= filter.total_capacity());
                prop_assert!(filter == filter.try_clone().unwrap());
            }
            Ok(other) => prop_assert!(false, "{other:?}"),
        }
    }
}

#[test]
fn a_layer_with_too_large_a_capacity_or_size_is_refused() {
    let mut of = sound();
    for (capacity, refusal) in [
        (u64::MAX - 1_000_000, Error::CapacityOutOfRange),
        (1 << 63, Error::CapacityOutOfRange),
        (1 << 62, Error::SizeOverflow),
    ] {
        (of.layers[1].capacity, of.layers[1].items) = (capacity, capacity);
        let Ok(Value::Filter(mut filter)) = read(&of, &Unlimited) else { panic!("{capacity}") };
        assert_eq!(filter.add(b"item", Origin::Client, &NOW, &Unlimited), Err(refusal), "{capacity}");
        assert_eq!(read(&of, &Unlimited), Ok(Value::Filter(filter)));
    }
}
