//! How a filter is created: the options of BF.RESERVE and BF.PLAN.

use redis::Cmd;

/// How a filter is created. The server checks the values. docs/kinds.md describes the kinds of filters.
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
    /// A full filter refuses items instead of growing.
    pub nonscaling: bool,
    /// 0 to 2^32 - 1; with the hash `siphash` 32 hexadecimal digits. Filters with the same seed can be merged.
    pub seed: Option<String>,
    /// `native` or `redisbloom`.
    pub layout: Option<String>,
    /// `murmur3` or `siphash`. `siphash` is for untrusted items, and allows deletes.
    pub hash: Option<String>,
    /// Seconds after which an item is forgotten, 1 to 10^10.
    pub window: Option<u64>,
    /// At least the last `capacity` new items are found.
    pub rolling: bool,
    /// The most buckets of a filter that forgets, 3 to 64.
    pub buckets: Option<u32>,
    /// With `window`: adding an item again restarts its window.
    pub sliding: bool,
    /// Counters instead of bits: four times the memory, and any number of deletes.
    pub counting: bool,
    /// The key's time to live in seconds, set only if the filter is created.
    pub ex: Option<u64>,
    /// The same in milliseconds.
    pub px: Option<u64>,
}

/// How `insert` adds items, and creates a missing filter.
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

impl Insert {
    /// Appends the options to a command.
    pub(crate) fn write(&self, command: &mut Cmd) {
        self.options.write(command);
        let floats = [("ERROR", self.rate), ("TIGHTENING", self.tightening)];
        for (word, value) in floats {
            if let Some(value) = value {
                command.arg(word).arg(value.to_string());
            }
        }
        for (word, value) in [("CAPACITY", self.capacity), ("VALIDATESCALETO", self.validate_scale_to)] {
            if let Some(value) = value {
                command.arg(word).arg(value);
            }
        }
        if let Some(seed) = &self.seed32 {
            command.arg("SEED").arg(seed);
        }
        for (word, is_set) in [("NOCREATE", self.nocreate), ("SYNC", self.sync)] {
            if is_set {
                command.arg(word);
            }
        }
    }
}

impl Options {
    /// Appends the options to a command.
    pub(crate) fn write(&self, command: &mut Cmd) {
        let texts = [("SEED", &self.seed), ("LAYOUT", &self.layout), ("HASH", &self.hash)];
        for (word, value) in texts {
            if let Some(value) = value {
                command.arg(word).arg(value);
            }
        }
        let numbers = [
            ("EXPANSION", self.expansion.map(u64::from)),
            ("WINDOW", self.window),
            ("BUCKETS", self.buckets.map(u64::from)),
            ("EX", self.ex),
            ("PX", self.px),
        ];
        for (word, value) in numbers {
            if let Some(value) = value {
                command.arg(word).arg(value);
            }
        }
        let flags = [
            ("NONSCALING", self.nonscaling),
            ("ROLLING", self.rolling),
            ("SLIDING", self.sliding),
            ("COUNTING", self.counting),
        ];
        for (word, is_set) in flags {
            if is_set {
                command.arg(word);
            }
        }
    }
}
