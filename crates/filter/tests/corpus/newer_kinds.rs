//! Filters of the kinds that version 0.1.0 lacks, as seeds: counting filters, keyed filters, and filters that forget, with live, expired
//! and larger buckets.

use bloomgate_filter::kinds::Origin;
use bloomgate_filter::{Filter, Moment, Unlimited};

use super::kinds::{COUNTING, KEYED, Kind, ROLLING, SLIDING, Shape, WINDOW};

/// Name, kind, capacity, expansion, whether it has a key, the numbers of items in each of three seconds, and the number of deletes, some of
/// which find their item.
type Row = (&'static str, Kind, u64, u32, bool, [u32; 3], std::ops::Range<u32>);

const FILTERS: [Row; 12] = [
    ("counting-empty", COUNTING, 100, 0, false, [0; 3], 0..0),
    ("counting", COUNTING, 100, 0, false, [20; 3], 0..0),
    ("counting-full", COUNTING, 10, 0, false, [10; 3], 0..0),
    ("counting-keyed", COUNTING, 100, 0, true, [20; 3], 0..0),
    ("keyed", KEYED, 100, 0, true, [20; 3], 0..0),
    ("keyed-deleted", KEYED, 100, 0, true, [20; 3], 10..13),
    ("keyed-grown-deleted", KEYED, 4, 2, true, [20; 3], 0..60),
    ("window", WINDOW, 40, 2, false, [5, 35, 5], 0..0),
    ("window-sliding", SLIDING, 40, 2, false, [5, 35, 5], 0..0),
    ("window-keyed", WINDOW, 40, 2, true, [5, 35, 5], 38..42),
    ("rolling", ROLLING, 40, 0, false, [5, 35, 5], 0..0),
    ("rolling-keyed", ROLLING, 40, 0, true, [5, 35, 5], 38..42),
];

/// Returns every filter of a kind that version 0.1.0 lacks. Some items are added repeatedly; a counting filter counts them, and a sliding
/// filter renews them.
pub(super) fn beyond() -> impl Iterator<Item = (&'static str, Filter)> {
    FILTERS.into_iter().map(|(name, kind, capacity, expansion, is_keyed, counts, deleted)| {
        let shape = Shape { seed: if is_keyed { 7 } else { 8 }, ..Shape::new(0.01, capacity, expansion) };
        let mut filter = Filter::new(&(kind.spec)(&shape), &Unlimited).unwrap();
        let mut numbers = 0..;
        for (second, count) in (1..).zip(counts) {
            let now = Moment(1000 * second);
            if let Some(ring) = filter.windowed_mut()
                && let Some(start) = ring.bucket_due(now)
            {
                ring.begin_bucket(start, &Unlimited).unwrap();
            }
            for number in numbers.by_ref().take(count as usize) {
                for number in [number, number % 3] {
                    filter.add_batch([&u32::to_le_bytes(number)[..]], Origin::Client, &now, &Unlimited);
                }
            }
        }
        for number in deleted {
            let _ = filter.remove_batch([&number.to_le_bytes()[..]], Origin::Client, &Moment(3000), &Unlimited);
        }
        (name, filter)
    })
}
