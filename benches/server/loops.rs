//! Lookups in the filter itself, without a server, for counting instructions: the section `instructions` runs this program
//! again under callgrind, which counts only inside [`measured_lookups`].

use std::hint::black_box;

use anyhow::{Context, Result, bail};
use bloomgate_filter::kinds::{NativeSpec, Origin, RedisBloomSpec};
use bloomgate_filter::{BATCH, Filter, Moment, Scaling, Spec, Unlimited};

use super::items::Set;

/// The loops: their names in the tables, and their names for `--loop`.
pub const LOOPS: [(&str, &str); 4] = [
    ("bloomgate, one item", "native-one"),
    ("bloomgate, an item of a batch of 32", "native-batch"),
    ("LAYOUT redisbloom, one item", "redisbloom-one"),
    ("LAYOUT redisbloom, an item of a batch of 32", "redisbloom-batch"),
];

/// Fits the cache, and is large enough for prefetching.
const CAPACITY: u64 = 850_000;
/// As full as the filters of the section `commands`.
const MEMBERS: u64 = CAPACITY * 14 / 100;
const RATE: f64 = 0.01;

/// Looks up absent items: the values of `--loop` are the loop's name and the number of lookups.
pub fn run(values: &[String]) -> Result<()> {
    let [name, times] = values else { bail!("--loop takes a name and a number") };
    let times: u64 = times.parse().context("--loop takes a number of lookups")?;
    let (layout, lookups) = name.split_once('-').context("no such loop")?;
    let (rate, capacity, scaling) = (RATE, CAPACITY, Scaling::Fixed);
    let spec = match layout {
        "native" => Spec::Native(NativeSpec::murmur3(rate, capacity, scaling, 1_000)),
        "redisbloom" => Spec::RedisBloom(RedisBloomSpec { rate, capacity, scaling }),
        _ => bail!("there is no layout {layout}"),
    };
    let mut filter = Filter::new(&spec, &Unlimited)?;
    for first in (0..MEMBERS).step_by(BATCH) {
        let items = items(Set::Members, first..first + BATCH as u64);
        filter.add_batch(items.iter().map(Vec::as_slice), Origin::Client, &Moment(0), &Unlimited);
    }
    let together = match lookups {
        "one" => 1,
        "batch" => BATCH,
        _ => bail!("there is no lookup of {lookups}"),
    };
    println!("{}", measured_lookups(&filter, &items(Set::Absent, 0..times), together));
    Ok(())
}

fn items(set: Set, numbers: std::ops::Range<u64>) -> Vec<Vec<u8>> {
    numbers.map(|number| format!("{}{number:012}", set.prefix()).into_bytes()).collect()
}

/// The measured code. Returns the number of items that were found.
#[inline(never)]
fn measured_lookups(filter: &Filter, items: &[Vec<u8>], together: usize) -> u32 {
    let mut found = 0;
    if together == 1 {
        for item in items {
            found += u32::from(black_box(filter).contains(black_box(item), &Moment(0)));
        }
    } else {
        for batch in items.chunks(together) {
            found += black_box(filter).contains_batch(black_box(batch).iter().map(Vec::as_slice), &Moment(0)).len();
        }
    }
    found
}
