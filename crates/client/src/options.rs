//! The options of a new filter, as for BF.RESERVE and BF.PLAN.

use redis::{Cmd, ToRedisArgs};

/// The options of a new filter. The server checks the values. docs/kinds.md describes the kinds of filters.
///
/// ```
/// use bloomgate_client::Options;
///
/// let options = Options { window: Some(3600), sliding: true, ..Options::default() };
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// The factor from one layer's capacity to the next, 0 to 32768. With 0 the filter does not grow.
    pub expansion: Option<u32>,
    /// Makes a full filter refuse items instead of growing.
    pub nonscaling: bool,
    /// 0 to 2^32 - 1; with the hash `siphash` 32 hexadecimal digits. Filters with the same seed can be merged.
    pub seed: Option<String>,
    /// `native` or `redisbloom`.
    pub layout: Option<String>,
    /// `murmur3` or `siphash`. `siphash` is for untrusted items, and allows deletes.
    pub hash: Option<String>,
    /// Seconds after which an item is forgotten, 1 to 10^10.
    pub window: Option<u64>,
    /// Keeps at least the last `capacity` new items.
    pub rolling: bool,
    /// The maximum number of buckets of a filter that forgets, 3 to 64.
    pub buckets: Option<u32>,
    /// With `window`: adding an item again restarts its window.
    pub sliding: bool,
    /// A cuckoo filter: any number of deletes, in little more memory than bits. Every add stores a copy of the item, up to four, and
    /// a delete removes one: delete only what was added.
    pub cuckoo: bool,
    /// Counters instead of bits: four times the memory, and any number of deletes.
    pub counting: bool,
    /// The key's time to live in seconds, set only if the filter is created.
    pub ex: Option<u64>,
    /// The key's time to live in milliseconds.
    pub px: Option<u64>,
}

/// The options of `insert`, which adds items and creates a missing filter.
///
/// ```
/// use bloomgate_client::Insert;
///
/// let insert = Insert { rate: Some(0.001), capacity: Some(1_000_000), ..Insert::default() };
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Insert {
    /// The false positive rate of a new filter.
    pub rate: Option<f64>,
    /// The capacity of a new filter.
    pub capacity: Option<u64>,
    /// Fails if the filter is missing.
    pub nocreate: bool,
    /// Replicates items that were not new, too, so that a later WAIT confirms them.
    pub sync: bool,
    /// The ratio of one layer's rate to the next: selects valkey-bloom's layout.
    pub tightening: Option<f64>,
    /// Fails unless the filter can grow to this capacity.
    pub validate_scale_to: Option<u64>,
    /// A seed for valkey-bloom's layout.
    pub seed32: Option<[u8; 32]>,
    /// The other options of a new filter.
    pub options: Options,
}

/// Appends the options that have values.
fn write_values<T: ToRedisArgs>(command: &mut Cmd, words: impl IntoIterator<Item = (&'static str, Option<T>)>) {
    for (word, value) in words {
        if let Some(value) = value {
            command.arg(word).arg(value);
        }
    }
}

/// Appends the flags that are set.
fn write_flags(command: &mut Cmd, words: impl IntoIterator<Item = (&'static str, bool)>) {
    for (word, _) in words.into_iter().filter(|(_, is_set)| *is_set) {
        command.arg(word);
    }
}

impl Insert {
    /// Appends the options to a command.
    pub(crate) fn write(&self, command: &mut Cmd) {
        self.options.write(command);
        let floats = [("ERROR", self.rate), ("TIGHTENING", self.tightening)];
        write_values(command, floats.map(|(word, value)| (word, value.map(|value| value.to_string()))));
        write_values(command, [("CAPACITY", self.capacity), ("VALIDATESCALETO", self.validate_scale_to)]);
        write_values(command, [("SEED", self.seed32.as_ref())]);
        write_flags(command, [("NOCREATE", self.nocreate), ("SYNC", self.sync)]);
    }
}

impl Options {
    /// Appends the options to a command.
    pub(crate) fn write(&self, command: &mut Cmd) {
        let texts = [("SEED", &self.seed), ("LAYOUT", &self.layout), ("HASH", &self.hash)];
        write_values(command, texts.map(|(word, value)| (word, value.as_ref())));
        let numbers = [
            ("EXPANSION", self.expansion.map(u64::from)),
            ("WINDOW", self.window),
            ("BUCKETS", self.buckets.map(u64::from)),
            ("EX", self.ex),
            ("PX", self.px),
        ];
        write_values(command, numbers);
        let flags = [
            ("NONSCALING", self.nonscaling),
            ("ROLLING", self.rolling),
            ("SLIDING", self.sliding),
            ("CUCKOO", self.cuckoo),
            ("COUNTING", self.counting),
        ];
        write_flags(command, flags);
    }
}
