//! The average load time of each filter, in atomics. A hit reads it to decide whether to renew a value before it expires. Two filters in
//! one place overwrite each other's average.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::state::Instant;

/// The time of a grant in units of 64 ms, as stored in its token. It wraps after 70 minutes, longer than any lease.
pub type Tick = u16;

/// The length of a [`Tick`] in milliseconds.
const TICK: Instant = 64;
/// The number of averages, 8 KiB in total.
const PLACES: usize = 1024;
/// An average is in units of 1/256 ms in the low 32 bits. The high bits have the tick of the last load and a tag of the filter.
const FRACTION: u32 = 8;
const TICK_AT: u32 = 32;
const TAG_AT: u32 = 48;
/// The weight of the newest load in the average is 1 / this.
const NEWEST: u64 = 5;
/// Draws are limited to this multiple of the mean.
const LONGEST: u64 = 23;

static AVERAGES: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

/// The tick of a time.
pub fn tick(now: Instant) -> Tick {
    Tick::try_from((now / TICK) & Instant::from(Tick::MAX)).unwrap_or(0)
}

/// The place of a filter by its instance, and its tag, which is not 0. A missing filter has instance 0.
fn place(instance: u64) -> (Option<&'static AtomicU64>, u64) {
    let mixed = instance.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let index = usize::try_from(mixed >> (u64::BITS - PLACES.ilog2())).unwrap_or(0);
    (AVERAGES.get(index), (mixed >> 16 & 0xffff).max(1))
}

/// Adds a completed load of a filter's row, granted at a tick, to the average. Loads that were granted at one tick are usually a batch, and
/// count once.
pub fn count(instance: u64, granted: Tick, now: Instant) {
    let (Some(place), tag) = place(instance) else { return };
    let took = (u64::from(tick(now).wrapping_sub(granted)) * TICK) << FRACTION;
    let before = place.load(Relaxed);
    let is_known = before >> TAG_AT == tag;
    if is_known && before >> TICK_AT & u64::from(Tick::MAX) == u64::from(granted) {
        return;
    }
    let average = if is_known { ((NEWEST - 1) * (before & u64::from(u32::MAX)) + took) / NEWEST } else { took };
    place.store(tag << TAG_AT | u64::from(granted) << TICK_AT | average, Relaxed);
}

/// Whether to renew a value of a filter's row `left` milliseconds before it must be. The decision is random, so that usually one of many
/// callers renews it. The longer loads take, the earlier a value is renewed (XFetch: Vattani, Chierichetti and Lowenstein, 2015). `percent`
/// scales the average.
#[inline]
pub fn is_due(instance: u64, percent: u32, left: Instant, draw: impl FnOnce() -> u64) -> bool {
    let (Some(place), tag) = place(instance) else { return false };
    let found = place.load(Relaxed);
    let average = if found >> TAG_AT == tag { found & u64::from(u32::MAX) } else { 0 };
    let mean = (average * u64::from(percent) / 100) >> FRACTION;
    left < LONGEST * mean && seconds(left) < seconds(mean) * exponential(draw())
}

fn seconds(milliseconds: Instant) -> f64 {
    Duration::from_millis(milliseconds).as_secs_f64()
}

/// Returns an exponentially distributed number with mean 1, from 64 random bits.
fn exponential(random: u64) -> f64 {
    let high = u32::try_from(random >> u32::BITS).unwrap_or(0);
    // In (0, 1].
    -((f64::from(high) + 1.0) / 2f64.powi(32)).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_follows_the_loads_of_a_filter() {
        // This draw is 0.693 of the mean.
        let average = |instance| (0..1_000_000).find(|left| !is_due(instance, 100, *left, || u64::MAX / 2)).unwrap();
        let (filter, other) = (1 << 40 | 1, 1 << 40 | 2);
        assert_eq!([average(filter), average(other)], [0, 0], "nothing is known");
        count(filter, tick(6400), 6400 + 640);
        assert_eq!([average(filter), average(other)], [444, 0], "the first load counts in full");
        count(filter, tick(6400), 6400 + 64_000);
        assert_eq!(average(filter), 444, "of the same batch");
        count(filter, tick(12_800), 12_800 + 1280);
        assert_eq!(average(filter), 533, "768 ms");
        // Across the end of the ticks.
        count(filter, tick(TICK * 0xffff), TICK * 0x1_0000);
        assert_eq!(average(filter), 435, "627 ms");
        assert!(!is_due(filter, 0, 0, || 0), "the percentage is 0");
        assert!(is_due(filter, 100_000, 400_000, || u64::MAX / 2));
        assert!(!is_due(filter, 100, 627 * LONGEST, || panic!("there is nothing to draw")));
    }

    #[test]
    fn draws_are_exponentially_distributed() {
        let mut rng = fastrand::Rng::with_seed(1);
        let draws: Vec<f64> = (0..100_000).map(|_| exponential(rng.u64(..))).collect();
        let mean = draws.iter().sum::<f64>() / 100_000.0;
        let above = draws.iter().filter(|draw| **draw > 2.0).count();
        assert!((0.98..=1.02).contains(&mean) && (13_000..=14_100).contains(&above), "{mean} {above}");
        assert!(exponential(u64::MAX).abs() < 1e-9 && exponential(0) < 23.0);
    }
}
