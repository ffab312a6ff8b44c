//! The layout with counters: the same measurements, and how often a counter saturates.
//!
//! Every add counts, so a filter is full after as many distinct items as its capacity.

use bloomgate_filter::cells::{COUNTER_MAX, Cells as _, Counters};
use bloomgate_filter::geometry::{BlockedCounters, Counting as _, Geometry as _, sizing};
use bloomgate_filter::hash::ItemHash;

use super::model::poisson;
use super::{ABSENT, Found, Model, RATES, cells, deviation, in_parallel, print_table, queries, rate_by_fill};

/// The divisor of the number of queries: the layouts differ only in the model.
const QUERIES_LESS: u64 = 10;
/// The accepted excess over the requested rate: less than for bits, because every add counts.
const TOLERANCE: f64 = 1.06;
/// The number of increments that a counter can count.
const VALUES: usize = COUNTER_MAX as usize + 1;

fn full(geometry: BlockedCounters, capacity: u64, seed: u32) -> Counters {
    let mut counters = Counters::zeroed(geometry.blocks()).unwrap();
    for item in 0..capacity {
        geometry.insert(&mut counters, geometry.probe(ItemHash::of(&item.to_le_bytes(), seed)));
    }
    counters
}

fn values(bytes: &[u8]) -> impl Iterator<Item = u8> {
    bytes.iter().flat_map(|byte| [byte & COUNTER_MAX, byte >> 4])
}

/// Fills several filters with `capacity` distinct items each, like `measure_fixed`.
fn measure(rate: f64, capacity: u64, queries: u64) -> Found {
    let filters = (2_000_000 / capacity).clamp(2, 1000);
    let geometry = BlockedCounters::for_layer(capacity, rate).unwrap();
    let (mut found, mut by_fill) = (0, 0.0);
    for index in 0..filters {
        let seed = 1000 + index as u32;
        let counters = full(geometry, capacity, seed);
        for item in 0..queries / filters {
            let probe = geometry.probe(ItemHash::of(&(ABSENT | item).to_le_bytes(), seed));
            let is_found = geometry.contains_first(&counters, probe) && geometry.contains_rest(&counters, probe);
            found += u64::from(is_found);
        }
        let ones = |block: &[u8]| values(block).filter(|value| *value > 0).count() as u32;
        by_fill += rate_by_fill(geometry, counters.bytes(), ones) / filters as f64;
    }
    let queries = queries / filters * filters;
    Found { measured: found as f64 / queries.max(1) as f64, queries, by_fill }
}

#[test]
fn full_counters_keep_their_rate() {
    let mut jobs = cells(&RATES);
    jobs.reverse();
    let mut found = in_parallel(&jobs, |&(rate, capacity)| measure(rate, capacity, queries(rate) / QUERIES_LESS));
    jobs.reverse();
    found.reverse();

    print_table("Measured false positive rate / asked, full counters", &RATES, &found, |found| found.measured);
    print_table("The same from the fill of the blocks", &RATES, &found, |found| found.by_fill);
    for ((rate, capacity), Found { measured, queries, by_fill }) in jobs.into_iter().zip(found) {
        assert!(by_fill <= TOLERANCE * rate, "{rate} for {capacity}: {by_fill} by fill");
        let allowed = 4.5 * deviation(by_fill, queries) + 2.0 / queries as f64;
        assert!((measured - by_fill).abs() <= allowed, "{rate} for {capacity}: {measured} asked, {by_fill} by fill");
    }
}

#[test]
fn counters_hold_rates_too_low_for_queries() {
    const LOW: [f64; 3] = [1e-8, 1e-10, 1e-12];
    let jobs = cells(&LOW);
    let found = in_parallel(&jobs, |&(rate, capacity)| measure(rate, capacity, 0));
    print_table("False positive rate from the fill / asked, full counters", &LOW, &found, |found| found.by_fill);
    let model = Model::new();
    for ((rate, capacity), Found { by_fill, .. }) in jobs.into_iter().zip(found) {
        assert!(by_fill <= TOLERANCE * rate, "{rate} for {capacity}: {by_fill}");
        let modelled = model.rate_offered(capacity as f64, BlockedCounters::for_layer(capacity, rate).unwrap());
        let agrees = (by_fill / modelled - 1.0).abs() < 0.1;
        assert!(agrees || capacity < 100_000, "{rate} for {capacity}: {by_fill} by fill, {modelled} by the model");
    }
}

#[test]
fn in_the_model_counters_hold_every_rate_at_every_size() {
    const SIZES: [u64; 9] = [100, 1000, 5000, 10_000, 20_000, 100_000, 1_000_000, 10_000_000, 1_000_000_000];
    let model = Model::new();
    let rates: Vec<f64> =
        (0..=46).map(|step| (0.25 * 10f64.powf(-0.25 * f64::from(step))).max(sizing::RATE_MIN)).collect();
    let ratios = in_parallel(&rates, |&rate| {
        SIZES.map(|items| model.rate_offered(items as f64, BlockedCounters::for_layer(items, rate).unwrap()) / rate)
    });
    println!("\nFalse positive rate / asked by the model, counters for {SIZES:?} items");
    for (rate, ratios) in rates.into_iter().zip(ratios) {
        println!("{rate:>8.2e} {}", ratios.map(|ratio| format!("{ratio:>6.3}")).join(" "));
        assert!(ratios.iter().all(|ratio| *ratio <= TOLERANCE), "{rate}: {ratios:?}");
        assert!(ratios[8] >= 0.95, "{rate}: {ratios:?}");
    }
}

/// Items choose their counters independently, so the value of a counter is Poisson distributed.
#[test]
fn no_counter_of_a_full_filter_saturates() {
    println!("\nPart of the counters of a full filter at n or more, by the model (by counting 4 million items)");
    for rate in [0.25, 0.1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-9, 1e-12] {
        const ITEMS: u64 = 4_000_000;
        let geometry = BlockedCounters::for_layer(ITEMS, rate).unwrap();
        let hit = |cells: u32| 1.0 - (511.0f64 / 512.0).powi(cells.cast_signed());
        let (in_a, in_b) = (geometry.hashes.div_ceil(2), geometry.hashes / 2);
        let load = ITEMS as f64 * (hit(in_a) + hit(in_b)) / geometry.blocks() as f64;
        let modelled = poisson(load);
        let mut counted = [0u64; VALUES];
        for value in values(full(geometry, ITEMS, 1000).bytes()) {
            counted[usize::from(value)] += 1;
        }
        let counters = counted.iter().sum::<u64>() as f64;
        let at_least = |n: usize| modelled[n..].iter().sum::<f64>();
        print!("{rate:>7.1e} load {load:.3}");
        for n in [1, 4, 6, 8, 15] {
            let (expected, found) = (at_least(n), counted[n..].iter().sum::<u64>() as f64 / counters);
            print!("  {n}: {expected:.2e} ({found:.2e})");
            let allowed = 5.0 * (expected / counters).sqrt() + 2.0 / counters;
            assert!((found - expected).abs() <= allowed, "{rate}: {found} at {n}, {expected} by the model");
        }
        println!();
        assert!(at_least(VALUES - 1) < 1e-14, "{rate}");
    }
}

/// Removed items leave nothing: after ten times as many items as the filter holds at a time, its rate is the same.
#[test]
fn counters_keep_their_rate_while_members_are_replaced() {
    const CAPACITY: u64 = 20_000;
    let geometry = BlockedCounters::for_layer(CAPACITY, 0.01).unwrap();
    let probe = |item: u64| geometry.probe(ItemHash::of(&item.to_le_bytes(), 1000));
    let mut counters = full(geometry, CAPACITY, 1000);
    for item in 0..10 * CAPACITY {
        geometry.insert(&mut counters, probe(CAPACITY + item));
        geometry.remove(&mut counters, probe(item));
    }
    assert!((10 * CAPACITY..11 * CAPACITY).all(|item| geometry.least(&counters, probe(item)) >= 1));
    let absent = |item: &u64| geometry.least(&counters, probe(ABSENT | item)) > 0;
    let found = (0..500_000).filter(absent).count() as f64 / 5e5;
    assert!(found <= TOLERANCE * 0.01 + 3.0 * deviation(0.01, 500_000), "{found}");
    for item in 10 * CAPACITY..11 * CAPACITY {
        geometry.remove(&mut counters, probe(item));
    }
    assert!(counters.bytes().iter().all(|byte| *byte == 0), "nothing is left");
}
