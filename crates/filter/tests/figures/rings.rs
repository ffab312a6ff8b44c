//! The false positive rate of a whole ring, and its memory per item of the window.

use bloomgate_filter::kinds::Origin;
use bloomgate_filter::{BATCH, Filter, Moment, Unlimited};

use crate::kinds::{Shape, WINDOW};

/// The time at which tests begin, in milliseconds since 1970.
const START: u64 = 1_700_000_000_000;
/// The items of a window, and the absent items that are looked up.
const ITEMS: u32 = if cfg!(miri) { 700 } else { 210_000 };
const ASKED: u32 = if cfg!(miri) { 300 } else { 300_000 };

/// Returns a ring of eight buckets, each with `times` the average number of items.
fn full(rate: f64, expansion: u32, times: u32) -> Filter {
    let shape = Shape { seconds: 7000, buckets: 8, ..Shape::new(rate, ITEMS.into(), expansion) };
    let mut filter = Filter::new(&(WINDOW.spec)(&shape), &Unlimited).unwrap();
    let each = ITEMS / 7 * times;
    for bucket in 0..8 {
        let now = Moment(START + u64::from(bucket) * 1_000_000);
        let ring = filter.windowed_mut().unwrap();
        ring.begin_bucket(ring.bucket_due(now).unwrap(), &Unlimited).unwrap();
        let mut left = (bucket * each..).map(u32::to_le_bytes);
        let mut new = 0;
        while new < each {
            let batch: Vec<_> = left.by_ref().take(BATCH.min((each - new) as usize)).collect();
            let added = filter.add_batch(batch.iter().map(<[u8; 4]>::as_slice), Origin::Client, &now, &Unlimited);
            assert_eq!(added.error, None);
            // Items mistaken for members are not counted, and not replaced by others.
            new += batch.len() as u32;
        }
    }
    filter
}

fn wrong(filter: &Filter) -> u32 {
    let now = Moment(START + 7_500_000);
    let absent: Vec<_> = (u32::MAX - ASKED..u32::MAX).map(u32::to_le_bytes).collect();
    absent.chunks(BATCH).map(|batch| filter.contains_batch(batch.iter().map(<[u8; 4]>::as_slice), &now).len()).sum()
}

#[test]
fn the_rate_is_that_of_the_whole_ring() {
    for (rate, expansion, times) in [(0.01, 0, 1), (0.01, 2, 1), (0.01, 2, 5), (0.001, 0, 1), (0.1, 2, 1)] {
        let filter = full(rate, expansion, times);
        assert_eq!(filter.live_contents(&Moment(START + 7_500_000)).layers, filter.layer_count() as u64);
        let expected = rate * f64::from(ASKED);
        let bound = expected + 5.0 * expected.sqrt();
        let wrong = wrong(&filter);
        assert!(f64::from(wrong) <= bound, "{rate}, {expansion}, {times}: {wrong} of {ASKED}, at most {bound}");
    }
}

#[test]
fn bits_per_item_of_the_window() {
    for (expansion, most) in [(0, 16.5), (2, 17.6)] {
        let filter = full(0.01, expansion, 1);
        let bits = filter.size_bytes() as f64 * 8.0 / f64::from(ITEMS);
        assert!(cfg!(miri) || bits <= most, "expansion {expansion}: {bits} bits an item");
        eprintln!("expansion {expansion}: {bits:.2} bits an item of the window");
    }
}
