//! The kinds of filters that the commands use: how each is created, and what it promises.

/// How long a filter keeps an item.
#[derive(Clone, Copy, PartialEq)]
pub enum Family {
    /// Until it is deleted.
    Set,
    /// For a window of time after its add.
    Window { milliseconds: u64, buckets: u64, sliding: bool },
    /// Until that many other items were added.
    Rolling { capacity: u64, buckets: u64 },
    /// Until it was deleted as often as it was added.
    Counting,
}

/// The module whose layout a filter has.
#[derive(Clone, Copy, PartialEq)]
pub enum Layout {
    Native,
    RedisBloom,
    ValkeyBloom,
}

/// The options that create a filter, and the properties that follow from them.
pub struct Shape {
    pub rate: &'static str,
    pub capacity: u64,
    /// The options of BF.RESERVE and BF.INSERT after the capacity.
    pub words: &'static str,
    pub family: Family,
    pub layout: Layout,
}

/// A rate so low that the tests never see a false positive.
const NEVER: &str = "1e-9";

const fn set(rate: &'static str, capacity: u64, words: &'static str) -> Shape {
    Shape { rate, capacity, words, family: Family::Set, layout: Layout::Native }
}

const fn foreign(layout: Layout, rate: &'static str, capacity: u64, words: &'static str) -> Shape {
    Shape { layout, ..set(rate, capacity, words) }
}

const fn window(
    rate: &'static str,
    capacity: u64,
    words: &'static str,
    seconds: u64,
    buckets: u64,
    sliding: bool,
) -> Shape {
    let family = Family::Window { milliseconds: seconds * 1000, buckets, sliding };
    Shape { family, ..set(rate, capacity, words) }
}

const fn rolling(rate: &'static str, capacity: u64, words: &'static str, buckets: u64) -> Shape {
    Shape { family: Family::Rolling { capacity, buckets }, ..set(rate, capacity, words) }
}

const fn counting(rate: &'static str, capacity: u64, words: &'static str) -> Shape {
    Shape { family: Family::Counting, ..set(rate, capacity, words) }
}

/// The filters that BF.ADD creates for a missing key, with and without `bf.layout redisbloom`.
pub const DEFAULTS: [&Shape; 2] = [&SHAPES[0], &SHAPES[1]];

/// Every kind, with both hashes if it supports both. Layers of large capacities have 4 MiB or more, so their adds are pending
/// while a child of the server is running. Filters with equal seeds can be merged.
pub static SHAPES: [Shape; 34] = [
    set("0.01", 100, "LAYOUT native"),
    foreign(Layout::RedisBloom, "0.01", 100, "LAYOUT redisbloom"),
    foreign(Layout::RedisBloom, "0.001", 700, "NONSCALING LAYOUT redisbloom"),
    foreign(Layout::ValkeyBloom, "0.01", 100, "TIGHTENING 0.5"),
    set("0.2", 50, "EXPANSION 4 LAYOUT native"),
    set("0.001", 40, "EXPANSION 1 LAYOUT native"),
    set(NEVER, 300, "LAYOUT native"),
    set("0.01", 800, "NONSCALING LAYOUT native"),
    set("0.01", 3_500_000, "LAYOUT native"),
    set("0.01", 5000, "SEED 777"),
    set("0.01", 500, "HASH siphash"),
    set(NEVER, 500, "HASH siphash"),
    set(NEVER, 700, "NONSCALING HASH siphash"),
    set(NEVER, 900_000, "HASH siphash"),
    set(NEVER, 4000, "HASH siphash SEED 000102030405060708090a0b0c0d0e0f"),
    window("0.01", 400, "WINDOW 2", 2, 8, false),
    window(NEVER, 600, "WINDOW 2 BUCKETS 3 HASH siphash", 2, 3, false),
    window("0.01", 300, "WINDOW 3 SLIDING", 3, 8, true),
    window(NEVER, 300, "WINDOW 2 SLIDING BUCKETS 16 HASH siphash", 2, 16, true),
    window("0.01", 900, "WINDOW 3 BUCKETS 4 NONSCALING", 3, 4, false),
    window(NEVER, 2_400_000, "WINDOW 1000000 BUCKETS 4 HASH siphash", 1_000_000, 4, false),
    rolling("0.01", 300, "ROLLING", 8),
    rolling(NEVER, 500, "ROLLING BUCKETS 4 HASH siphash", 4),
    rolling("0.01", 14_000_000, "ROLLING BUCKETS 4", 4),
    counting("0.01", 1500, "COUNTING"),
    counting(NEVER, 900, "COUNTING HASH siphash"),
    counting("0.01", 1_500_000, "COUNTING"),
    // The first layer or bucket is one page, where adds are pending in every second round, and full enough for false positives.
    set("0.2", 7300, "LAYOUT native"),
    set("0.1", 5600, "HASH siphash"),
    window("0.2", 13_400, "WINDOW 3 BUCKETS 4", 3, 4, false),
    window("0.2", 13_400, "WINDOW 3 BUCKETS 4 HASH siphash", 3, 4, false),
    window("0.2", 13_400, "WINDOW 3 BUCKETS 4 SLIDING", 3, 4, true),
    window("0.2", 13_400, "WINDOW 3 BUCKETS 4 SLIDING HASH siphash", 3, 4, true),
    rolling("0.2", 15_600, "ROLLING BUCKETS 4", 4),
];

impl Shape {
    /// Whether the options contain this one.
    pub fn has(&self, word: &str) -> bool {
        self.words.split(' ').any(|it| it == word)
    }

    /// Whether items can be deleted.
    pub fn deletes(&self) -> bool {
        self.has("siphash") || self.family == Family::Counting
    }

    /// Whether every absent item is reported absent.
    pub fn is_exact(&self) -> bool {
        self.rate == NEVER
    }

    /// Whether the filter forgets items.
    pub fn forgets(&self) -> bool {
        matches!(self.family, Family::Window { .. } | Family::Rolling { .. })
    }

    /// The number of items after which it may refuse more, if it does not grow.
    pub fn room(&self) -> Option<u64> {
        match self.family {
            Family::Counting => Some(self.capacity),
            Family::Window { buckets, .. } if self.has("NONSCALING") => Some(self.capacity.div_ceil(buckets - 1)),
            _ => self.has("NONSCALING").then_some(self.capacity),
        }
    }

    /// Whether two filters of this shape can be merged.
    pub fn merges(&self) -> bool {
        self.has("SEED")
    }
}
