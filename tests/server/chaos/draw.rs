//! Draws random commands, most of which must succeed according to the model.

use std::rc::Rc;
use std::time::Instant;

use super::model::{Filter, Item, KEYS, Model, Slot, State};
use testing::Rng;

/// The number of items per key from which commands draw.
pub const ITEMS: u64 = 1500;
/// Draws commands.
pub struct Draw<'a> {
    pub rng: &'a mut Rng,
    pub model: &'a Model,
    /// Keys that earlier commands of the same batch replace, which the model does not know yet.
    pub taken: Vec<usize>,
    /// Items that these commands delete from counting filters.
    pub counted_down: Vec<(usize, Item)>,
}

impl Draw<'_> {
    /// Draws the next command, on keys that no earlier command of the batch has replaced.
    pub fn op(&mut self) -> Op {
        loop {
            let op = self.any_op();
            if op.keys().iter().any(|key| self.taken.contains(key)) {
                continue;
            }
            let mut replaced = op.replaced();
            // An add may create the filter, or be refused.
            if let Op::Add { key, .. } = op
                && matches!(self.model.slots[key], Slot::Missing)
            {
                replaced.push(key);
            }
            self.taken.extend(replaced);
            if let Op::Remove { key, items, .. } = &op {
                self.counted_down.extend(items.iter().map(|&item| (*key, item)));
            }
            return op;
        }
    }

    fn any_op(&mut self) -> Op {
        let key = self.below(KEYS);
        let item = self.item();
        match self.below(100) {
            0..30 => self.add(key),
            30..42 => self.remove(key),
            42..52 => Op::Ask { key, items: self.items(60), one: false },
            52..54 => Op::Ask { key, items: vec![item], one: true },
            54 => Op::Count { key, item },
            55 => Op::Plan { shape: self.shape() },
            56..58 => Op::Look { key, command: self.one_of(&["BF.CARD", "BF.INFO", "BF.STATS", "BF.DEBUG"]) },
            58..64 => Op::Reserve { key, shape: self.shape(), expires: self.below(3) == 0 },
            64..67 => Op::Rotate { key },
            67 => Op::Clear { key },
            68..70 => self.merge(key),
            70..72 => Op::Delete { key, command: self.one_of(&["DEL", "UNLINK"]) },
            72 => Op::Rename { from: key, to: self.other(key) },
            73 => Op::Copy { from: key, to: self.other(key) },
            74 => Op::Persist { key, expires: self.below(2) == 0 },
            75 => Op::Dump { key },
            76 => self.restore(key),
            77..80 => self.load_chunk(key),
            _ => self.changed(key),
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.rng.below(bound as u64) as usize
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn other(&mut self, key: usize) -> usize {
        (key + 1 + self.below(KEYS - 1)) % KEYS
    }

    fn shape(&mut self) -> &'static Shape {
        &SHAPES[self.below(SHAPES.len())]
    }

    fn item(&mut self) -> Item {
        self.rng.below(ITEMS) as Item
    }

    fn items(&mut self, most: usize) -> Vec<Item> {
        (0..=self.below(most)).map(|_| self.item()).collect()
    }

    fn add(&mut self, key: usize) -> Op {
        let most = if self.below(10) == 0 { 300 } else { 25 };
        match self.below(8) {
            0 => Op::Add { key, items: vec![self.item()], how: How::One },
            1..4 => Op::Add { key, items: self.items(most), how: How::Insert(self.shape()) },
            4 => Op::Add { key, items: self.items(most), how: How::Sync },
            _ => Op::Add { key, items: self.items(most), how: How::Many },
        }
    }

    fn changed(&mut self, key: usize) -> Op {
        let one = self.below(2) == 0;
        Op::Changed { key, items: if one { vec![self.item()] } else { self.items(60) }, one }
    }

    /// Half of the deletes are of items in the filter. From counting filters, only members may be deleted.
    fn remove(&mut self, key: usize) -> Op {
        let mut items = self.items(20);
        if let Slot::Filter(filter) = &self.model.slots[key] {
            let members: Vec<Item> = filter.items().filter(|&item| !matches!(filter.state(item), State::Out)).collect();
            if !members.is_empty() && self.below(2) == 0 {
                items = (0..items.len()).map(|_| self.one_of(&members)).collect();
            }
            if filter.shape.family == Family::Counting {
                items.sort_unstable();
                items.dedup();
                items.retain(|&item| filter.must_have(item, Instant::now()));
                items.retain(|&item| !self.counted_down.contains(&(key, item)));
                if items.is_empty() {
                    return Op::Ask { key, items: vec![self.item()], one: true };
                }
            }
        }
        let one = self.below(4) == 0;
        items.truncate(if one { 1 } else { items.len() });
        Op::Remove { key, items, one }
    }

    /// Mostly filters that can be merged.
    fn merge(&mut self, to: usize) -> Op {
        let alike = |key: &usize| match (&self.model.slots[*key], &self.model.slots[to]) {
            (Slot::Filter(one), Slot::Filter(other)) => one.shape.merges() && std::ptr::eq(one.shape, other.shape),
            (Slot::Filter(one), _) => one.shape.merges(),
            _ => false,
        };
        let mut from: Vec<usize> = (0..KEYS).filter(alike).collect();
        if let Some(Slot::Filter(first)) = from.first().map(|&key| &self.model.slots[key]) {
            let shape = first.shape;
            from.retain(|&key| matches!(&self.model.slots[key], Slot::Filter(it) if std::ptr::eq(it.shape, shape)));
        }
        from.truncate(1 + self.below(3));
        if from.is_empty() || self.below(6) == 0 {
            from = vec![self.below(KEYS)];
        }
        Op::Merge { to, from }
    }

    fn restore(&mut self, to: usize) -> Op {
        match self.model.shelf.len() {
            0 => Op::Dump { key: to },
            shelf => Op::Restore { to, payload: self.model.shelf[self.below(shelf)].clone() },
        }
    }

    /// Draws the next record of a dump that is being loaded into the key, or else into another one.
    fn load_chunk(&mut self, key: usize) -> Op {
        let arriving = |key: &usize| matches!(self.model.slots[*key], Slot::Arriving(_)) && !self.taken.contains(key);
        match (0..KEYS).map(|step| (key + step) % KEYS).find(arriving) {
            Some(to) => Op::LoadChunk { to },
            None => Op::Look { key, command: "BF.INFO" },
        }
    }
}

// The commands and their arguments.

/// The arguments of a command.
pub type Words = Vec<Vec<u8>>;

/// A DUMP payload and the filter it was made from.
pub type Payload = Rc<(Vec<u8>, Filter)>;

/// The command with which items are added.
#[derive(Clone, Copy)]
pub enum How {
    One,
    Many,
    /// BF.INSERT, which creates a missing filter of this shape.
    Insert(&'static Shape),
    /// BF.INSERT with SYNC, which never creates a filter.
    Sync,
}

/// A command. Keys are represented by numbers.
#[derive(Clone)]
pub enum Op {
    Add {
        key: usize,
        items: Vec<Item>,
        how: How,
    },
    Remove {
        key: usize,
        items: Vec<Item>,
        one: bool,
    },
    Ask {
        key: usize,
        items: Vec<Item>,
        one: bool,
    },
    Count {
        key: usize,
        item: Item,
    },
    /// BF.CARD, BF.INFO, BF.STATS or BF.DEBUG.
    Look {
        key: usize,
        command: &'static str,
    },
    Plan {
        shape: &'static Shape,
    },
    Reserve {
        key: usize,
        shape: &'static Shape,
        expires: bool,
    },
    Rotate {
        key: usize,
    },
    Clear {
        key: usize,
    },
    Merge {
        to: usize,
        from: Vec<usize>,
    },
    /// DEL or UNLINK.
    Delete {
        key: usize,
        command: &'static str,
    },
    Rename {
        from: usize,
        to: usize,
    },
    Copy {
        from: usize,
        to: usize,
    },
    Persist {
        key: usize,
        expires: bool,
    },
    Dump {
        key: usize,
    },
    Restore {
        to: usize,
        payload: Payload,
    },
    LoadChunk {
        to: usize,
    },
    /// BF.CHANGED with `one`, or BF.MCHANGED.
    Changed {
        key: usize,
        items: Vec<Item>,
        one: bool,
    },
}

/// Returns the name of a key. One is empty, one is not text.
pub fn key_name(key: usize) -> Vec<u8> {
    match key {
        0 => Vec::new(),
        1 => b"\0\xff\r\n".to_vec(),
        _ => format!("filter:{key}").into_bytes(),
    }
}

/// Returns the bytes of an item.
pub fn item_name(item: Item) -> Vec<u8> {
    format!("item:{item}").into_bytes()
}

/// Returns the cache key of an item.
pub fn cache_key(key: usize, item: Item) -> Vec<u8> {
    format!("cache:{key}:{item}").into_bytes()
}

/// Splits a text at spaces into arguments.
pub fn words(text: &str) -> Words {
    text.split(' ').filter(|word| !word.is_empty()).map(|word| word.as_bytes().to_vec()).collect()
}

fn of_key(command: &str, key: usize, rest: impl IntoIterator<Item = Vec<u8>>) -> Words {
    [command.as_bytes().to_vec(), key_name(key)].into_iter().chain(rest).collect()
}

/// Returns each item with its cache key.
fn pairs(key: usize, items: &[Item]) -> Words {
    items.iter().flat_map(|&item| [item_name(item), cache_key(key, item)]).collect()
}

impl Op {
    /// Returns the arguments.
    pub fn words(&self, model: &Model) -> Words {
        let names = |items: &[Item]| items.iter().map(|&item| item_name(item)).collect::<Vec<_>>();
        match self {
            Self::Add { key, items, how: How::One } => of_key("BF.ADD", *key, names(items)),
            Self::Add { key, items, how: How::Many } => of_key("BF.MADD", *key, names(items)),
            Self::Add { key, items, how: How::Insert(shape) } => {
                let options = format!("ERROR {} CAPACITY {} {} ITEMS", shape.rate, shape.capacity, shape.words);
                of_key("BF.INSERT", *key, words(&options).into_iter().chain(names(items)))
            }
            Self::Add { key, items, how: How::Sync } => {
                of_key("BF.INSERT", *key, words("NOCREATE SYNC ITEMS").into_iter().chain(names(items)))
            }
            Self::Remove { key, items, one } => of_key(if *one { "BF.DEL" } else { "BF.MDEL" }, *key, names(items)),
            Self::Ask { key, items, one } => of_key(if *one { "BF.EXISTS" } else { "BF.MEXISTS" }, *key, names(items)),
            Self::Count { key, item } => of_key("BF.COUNT", *key, [item_name(*item)]),
            Self::Look { key, command } | Self::Delete { key, command } => of_key(command, *key, []),
            Self::Plan { shape } => words(&format!("BF.PLAN {} {} {}", shape.rate, shape.capacity, shape.words)),
            Self::Reserve { key, shape, expires } => {
                let expires = if *expires { " EX 1000000" } else { "" };
                match shape.layout {
                    Layout::ValkeyBloom => {
                        let Shape { rate, capacity, words: rest, .. } = shape;
                        of_key("BF.INSERT", *key, words(&format!("ERROR {rate} CAPACITY {capacity} {rest}{expires}")))
                    }
                    _ => {
                        let options = format!("{} {} {}{expires}", shape.rate, shape.capacity, shape.words);
                        of_key("BF.RESERVE", *key, words(&options))
                    }
                }
            }
            Self::Rotate { key } => of_key("BF.ROTATE", *key, []),
            Self::Clear { key } => of_key("BF.CLEAR", *key, []),
            Self::Merge { to, from } => of_key("BF.MERGE", *to, from.iter().map(|&key| key_name(key))),
            Self::Rename { from, to } => of_key("RENAME", *from, [key_name(*to)]),
            Self::Copy { from, to } => of_key("COPY", *from, [key_name(*to), b"REPLACE".to_vec()]),
            Self::Persist { key, expires: false } => of_key("PERSIST", *key, []),
            Self::Persist { key, expires: true } => of_key("EXPIRE", *key, [b"1000000".to_vec()]),
            Self::Dump { key } => of_key("DUMP", *key, []),
            Self::Restore { to, payload } => {
                of_key("RESTORE", *to, [b"0".to_vec(), payload.0.clone(), b"REPLACE".to_vec()])
            }
            Self::LoadChunk { to } => match &model.slots[*to] {
                Slot::Arriving(arrival) => {
                    let (iterator, data) = &arrival.records[arrival.next];
                    of_key("BF.LOADCHUNK", *to, [iterator.to_string().into_bytes(), data.clone()])
                }
                _ => panic!("nothing arrives at key {to}"),
            },
            Self::Changed { key, items, one: true } => of_key("BF.CHANGED", *key, pairs(*key, items)),
            Self::Changed { key, items, one: false } => {
                of_key("BF.MCHANGED", *key, words("ITEMS").into_iter().chain(pairs(*key, items)))
            }
        }
    }

    /// Returns the keys whose whole filter the command changes or replaces.
    pub fn replaced(&self) -> Vec<usize> {
        match self {
            Self::Reserve { key, .. } | Self::Clear { key } | Self::Delete { key, .. } => vec![*key],
            Self::Merge { to, .. } | Self::Copy { to, .. } | Self::Restore { to, .. } | Self::LoadChunk { to } => {
                vec![*to]
            }
            Self::Rename { from, to } => vec![*from, *to],
            _ => Vec::new(),
        }
    }

    /// Returns the keys that the command names.
    pub fn keys(&self) -> Vec<usize> {
        match self {
            Self::Add { key, .. }
            | Self::Remove { key, .. }
            | Self::Ask { key, .. }
            | Self::Count { key, .. }
            | Self::Look { key, .. }
            | Self::Rotate { key }
            | Self::Persist { key, .. }
            | Self::Dump { key }
            | Self::Changed { key, .. } => vec![*key],
            Self::Merge { to, from } => [&[*to], from.as_slice()].concat(),
            Self::Copy { from, to } => vec![*from, *to],
            _ => self.replaced(),
        }
    }
}

// The kinds of filters that the commands use: how each is created, and what it promises.

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
pub static SHAPES: [Shape; 38] = [
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
    counting("0.01", 300, "CUCKOO"),
    counting("0.2", 50, "CUCKOO EXPANSION 1"),
    counting("0.00001", 900, "CUCKOO NONSCALING HASH siphash"),
    counting("0.01", 1_500_000, "CUCKOO"),
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

    /// Whether it is a cuckoo filter, which stores up to four copies of an item, or of several that look the same, in a layer.
    pub fn is_cuckoo(&self) -> bool {
        self.has("CUCKOO")
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
            Family::Counting if !self.is_cuckoo() => Some(self.capacity),
            Family::Window { buckets, .. } if self.has("NONSCALING") => Some(self.capacity.div_ceil(buckets - 1)),
            _ => self.has("NONSCALING").then_some(self.capacity),
        }
    }

    /// Whether two filters of this shape can be merged.
    pub fn merges(&self) -> bool {
        self.has("SEED")
    }
}
