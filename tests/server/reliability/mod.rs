//! The reliability of one server: full disks, torn files, leaks, an attacker, untrusted bytes, extreme sizes, and everyday
//! operations. `BLOOMGATE_EFFORT` (default 1) multiplies the work. Every test prints its figures.

mod defragmentation;
mod disk;
mod faults;
mod hostile;
mod operations;
mod sizes;

use testing::Connection;

/// Returns a number of tries times `BLOOMGATE_EFFORT`, at least 1.
pub fn scaled(tries: usize) -> usize {
    let effort = std::env::var("BLOOMGATE_EFFORT").map_or(1.0, |text| text.parse::<f64>().expect("a factor"));
    ((tries as f64 * effort) as usize).max(1)
}

/// Filters of every layout and hash that grow without limit, each with the command that creates it; all grow from 100 items at
/// 1%. The seeds are fixed, so that a test that adds the same items gets the same answers in every run. The window is longer
/// than any test.
const LAYOUTS: [(&str, &str); 5] = [
    ("native", "BF.RESERVE native 0.01 100 SEED 500"),
    ("redisbloom", "BF.RESERVE redisbloom 0.01 100 LAYOUT redisbloom"),
    (
        "valkey-bloom",
        "BF.INSERT valkey-bloom ERROR 0.01 CAPACITY 100 TIGHTENING 0.5 SEED 0123456789abcdefghijklmnopqrstuv",
    ),
    ("keyed", "BF.RESERVE keyed 0.01 100 HASH siphash SEED 000102030405060708090a0b0c0d0e0f"),
    ("windowed", "BF.RESERVE windowed 0.01 100 SEED 500 WINDOW 100000000"),
];

/// Returns an upper bound of the hits in `trials` at a rate. By Bernstein's inequality, fewer than one in ten million runs exceed it.
fn most_hits(trials: usize, rate: f64) -> usize {
    let (mean, odds) = (trials as f64 * rate, 1e7_f64.ln());
    (mean + odds / 3.0 + (odds * odds / 9.0 + 2.0 * odds * mean).sqrt()).ceil() as usize
}

/// The highest false positive rate of one grown filter of [`LAYOUTS`], whatever its seed and its items. Native filters keep the
/// requested rate on average: 600 with 30,000 items each had 0.81%, with a standard deviation of 0.11% that comes from the
/// first 100 items. The logarithm of 1.6% is five standard deviations above the mean. RedisBloom's double hashing exceeds the
/// rate in small layers (1.2% measured over ten), valkey-bloom's shares add up to twice the rate, and its small layers vary
/// with the seed (2.2% measured).
fn rate_of(layout: &str) -> f64 {
    match layout {
        "redisbloom" => 0.015,
        "valkey-bloom" => 0.025,
        _ => 0.016,
    }
}

/// Returns how many of the items the filter reports present.
fn hits<W: AsRef<[u8]>>(client: &mut Connection, key: &str, items: &[W]) -> usize {
    client.batched(&[b"BF.MEXISTS", key.as_bytes()], items).iter().filter(|&&present| present).count()
}

/// Returns the available memory in megabytes, on systems with /proc/meminfo.
fn available_megabytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    rest.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kibibytes| kibibytes >> 10)
}

/// Panics if less memory is available than a test needs.
fn need_megabytes(needed: u64) {
    if let Some(available) = available_megabytes() {
        assert!(available >= needed, "this test needs {needed} MB of memory, {available} MB are available");
    }
}
