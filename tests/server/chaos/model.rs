//! The model of the servers: every key, and the changes that a failover may lose.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use super::draw::{DEFAULTS, Family, Op, Payload, Shape, key_name};

/// The number of keys that hold filters.
pub const KEYS: usize = 24;

/// A dump of BF.SCANDUMP that is being loaded into another key.
#[derive(Clone)]
pub struct Arrival {
    pub records: Vec<(i64, Vec<u8>)>,
    /// The record to be sent next.
    pub next: usize,
    pub becomes: Filter,
}

/// The value of a key.
pub enum Slot {
    Missing,
    Filter(Filter),
    Arriving(Arrival),
    /// One of several values, after a command without a reply.
    Doubtful,
}

/// Reasons for which commands may currently be refused.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    None,
    /// The server is above maxmemory.
    Memory,
    /// `bf.max-filter-bytes` is below the size of filters.
    Bytes,
}

/// The effect of a write that no replica has confirmed yet.
enum Unconfirmed {
    Item { key: usize, item: Item, before: State },
    Key(usize),
}

/// The model.
pub struct Model {
    pub slots: Vec<Slot>,
    pub shelf: Vec<Payload>,
    unconfirmed: Vec<Unconfirmed>,
    pub limit: Limit,
    /// The filter that BF.ADD creates on the current primary.
    pub default: &'static Shape,
}

impl Model {
    /// Creates the model of servers without keys.
    pub fn new() -> Self {
        Self {
            slots: (0..KEYS).map(|_| Slot::Missing).collect(),
            shelf: Vec::new(),
            unconfirmed: Vec::new(),
            limit: Limit::None,
            default: DEFAULTS[0],
        }
    }

    /// Records that the whole filter at a key is about to be changed or replaced.
    pub fn replace(&mut self, key: usize, slot: Slot) {
        self.unconfirmed.push(Unconfirmed::Key(key));
        self.slots[key] = slot;
    }

    /// Records that all keys were deleted.
    pub fn flushed(&mut self) {
        (0..KEYS).for_each(|key| self.replace(key, Slot::Missing));
    }

    /// Records that an item's state is about to change.
    pub fn touch(&mut self, key: usize, item: Item) {
        if let Slot::Filter(filter) = &self.slots[key] {
            self.unconfirmed.push(Unconfirmed::Item { key, item, before: filter.state(item) });
        }
    }

    /// Returns the filter at a key, for changes of single items.
    pub fn filter(&mut self, key: usize) -> &mut Filter {
        match &mut self.slots[key] {
            Slot::Filter(filter) => filter,
            _ => panic!("no filter at key {key}"),
        }
    }

    /// Records that a command was sent without a reply, so it may have been executed.
    pub fn doubt(&mut self, op: &Op, sent: Instant) {
        let now = Instant::now();
        for key in op.replaced() {
            // A record may be sent again, except the last one, which completes the filter.
            let may_repeat = matches!(&self.slots[key], Slot::Arriving(it) if it.next + 1 < it.records.len());
            if !(may_repeat && matches!(op, Op::LoadChunk { .. })) {
                self.replace(key, Slot::Doubtful);
            }
        }
        match op {
            Op::Add { key, items, .. } => match &mut self.slots[*key] {
                Slot::Missing => self.replace(*key, Slot::Doubtful),
                Slot::Filter(filter) => items.iter().for_each(|&item| filter.perhaps(item, true, sent, now)),
                _ => {}
            },
            Op::Remove { key, items, .. } => {
                if let Slot::Filter(filter) = &mut self.slots[*key] {
                    items.iter().for_each(|&item| filter.perhaps(item, false, sent, now));
                }
            }
            Op::Rotate { key } => {
                if let Slot::Filter(filter) = &mut self.slots[*key] {
                    filter.rotated();
                }
            }
            Op::Changed { key, items, .. } => {
                if let Slot::Filter(filter) = &mut self.slots[*key] {
                    items.iter().for_each(|&item| filter.perhaps(item, true, sent, now));
                }
            }
            _ => {}
        }
    }

    /// Records that a replica has everything that was written so far.
    pub fn confirmed(&mut self) {
        self.unconfirmed.clear();
    }

    /// Records that a replica takes over which may lack the latest writes.
    pub fn failed_over(&mut self) {
        for unconfirmed in std::mem::take(&mut self.unconfirmed) {
            match unconfirmed {
                Unconfirmed::Key(key) => self.slots[key] = Slot::Doubtful,
                Unconfirmed::Item { key, item, before } => {
                    if let Slot::Filter(filter) = &mut self.slots[key] {
                        filter.doubt(item, before);
                    }
                }
            }
        }
    }

    /// Returns the names of the keys whose values are unknown. The caller deletes them.
    pub fn take_doubtful(&mut self) -> Vec<Vec<u8>> {
        let doubtful: Vec<usize> = (0..KEYS).filter(|&key| matches!(self.slots[key], Slot::Doubtful)).collect();
        for &key in &doubtful {
            self.slots[key] = Slot::Missing;
        }
        doubtful.into_iter().map(key_name).collect()
    }
}

// The model of one filter: its required answers, as far as earlier replies determine them.

/// The number in an item's name.
pub type Item = u16;

/// The allowed difference in milliseconds between a server's clock and the test's.
pub const CLOCK_SLACK: Duration = Duration::from_millis(50);

/// When an item was added: the time, and the counts of its filter.
#[derive(Clone, Copy, PartialEq)]
pub struct Added {
    /// When the command was sent, and when its reply arrived.
    sent: Instant,
    replied: Instant,
    /// Counts of the filter at that time.
    rotations: u64,
    new_items: u64,
}

/// The model's knowledge of an item.
#[derive(Clone, Copy, PartialEq)]
pub enum State {
    /// Unknown state.
    Unknown,
    /// The filter does not find the item.
    Out,
    /// The filter finds the item, unless it has forgotten it since.
    In(Added),
    /// The item was added between `least` and `most` times more often than it was deleted.
    Counted { least: u32, most: u32 },
}

/// A counter of COUNTING that reaches 15 stays at 15. A cuckoo filter that has four copies keeps them.
const STUCK: u32 = 15;
const STUCK_COPIES: u32 = 4;

impl State {
    /// Returns the state that covers two possible states of an item.
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::In(one), Self::In(other)) => Self::In(Added {
                sent: one.sent.min(other.sent),
                replied: one.replied.max(other.replied),
                rotations: one.rotations.min(other.rotations),
                new_items: one.new_items.min(other.new_items),
            }),
            (Self::Counted { least, most }, Self::Counted { least: other_least, most: other_most }) => {
                Self::Counted { least: least.min(other_least), most: most.max(other_most) }
            }
            (one, other) if one == other => one,
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("unknown"),
            Self::Out => f.write_str("not in"),
            Self::In(added) => {
                let Added { sent, replied, rotations, new_items } = added;
                let [sent, replied] = [sent, replied].map(|time| time.elapsed().as_millis());
                write!(f, "added {sent} to {replied} ms ago, after {new_items} new items and {rotations} rotations")
            }
            Self::Counted { least, most } => write!(f, "in {least} to {most} times"),
        }
    }
}

/// A filter.
#[derive(Clone)]
pub struct Filter {
    pub shape: &'static Shape,
    states: BTreeMap<Item, State>,
    /// The reply to BF.CARD, if it is certain.
    pub card: Option<i64>,
    /// The maximum number of items that can have been counted as new since the filter was empty.
    new_items: u64,
    /// The maximum number of buckets that clients can have begun.
    rotations: u64,
}

impl Filter {
    /// Creates an empty filter.
    pub fn new(shape: &'static Shape) -> Self {
        // Copies that a cuckoo filter did not store are not counted.
        let card = if shape.is_cuckoo() { None } else { Some(0) };
        Self { shape, states: BTreeMap::new(), card, new_items: 0, rotations: 0 }
    }

    /// Returns the state of an item.
    pub fn state(&self, item: Item) -> State {
        let untouched = match self.shape.family {
            Family::Counting => State::Counted { least: 0, most: 0 },
            _ if self.shape.is_exact() => State::Out,
            _ => State::Unknown,
        };
        self.states.get(&item).copied().unwrap_or(untouched)
    }

    /// Returns every item that was ever added or deleted.
    pub fn items(&self) -> impl Iterator<Item = Item> {
        self.states.keys().copied()
    }

    /// Returns the number of remaining rotations that an item survives. It also scales the remaining time or number of items.
    fn buckets_left(&self, added: &Added, buckets: u64) -> u64 {
        (buckets - 1).saturating_sub(self.rotations - added.rotations)
    }

    /// Whether a reply that arrived at `replied` must report the item present.
    pub fn must_have(&self, item: Item, replied: Instant) -> bool {
        match (self.state(item), self.shape.family) {
            (State::Counted { least, .. }, _) => least > 0,
            (State::In(_), Family::Set) => true,
            (State::In(added), Family::Window { milliseconds, buckets, .. }) => {
                let left = self.buckets_left(&added, buckets) * milliseconds / (buckets - 1);
                replied + CLOCK_SLACK < added.sent + Duration::from_millis(left)
            }
            (State::In(added), Family::Rolling { capacity, buckets }) => {
                let left = self.buckets_left(&added, buckets) * capacity.div_ceil(buckets - 1);
                self.new_items - added.new_items < left
            }
            _ => false,
        }
    }

    /// Whether the reply to a command that was sent at `sent` must report the item absent.
    pub fn must_lack(&self, item: Item, sent: Instant) -> bool {
        match (self.state(item), self.shape.family) {
            (State::Out, _) => true,
            (State::Counted { most, .. }, _) => most == 0 && self.shape.is_exact(),
            (State::In(added), Family::Window { milliseconds, buckets, .. }) if self.shape.is_exact() => {
                let longest = Duration::from_millis(milliseconds * buckets / (buckets - 1) + 1000);
                sent > added.replied + longest + CLOCK_SLACK
            }
            _ => false,
        }
    }

    /// Whether the filter may refuse an item because it is full.
    pub fn may_be_full(&self) -> bool {
        self.shape.room().is_some_and(|room| self.new_items >= room)
    }

    /// Records the answer to an add: `is_new`. With `renews`, the item is in the newest bucket in any case.
    pub fn added(&mut self, item: Item, is_new: bool, renews: bool, sent: Instant, replied: Instant) {
        let before = self.state(item);
        let counts = is_new || self.shape.family == Family::Counting;
        self.new_items += u64::from(counts || renews);
        self.card = self.card.map(|card| card + i64::from(counts));
        let added = Added { sent, replied, rotations: self.rotations, new_items: self.new_items };
        let stays = match self.shape.family {
            Family::Set => matches!(before, State::In(_)),
            // A present item stays in its bucket. A false positive is in no bucket.
            Family::Window { sliding, .. } => !is_new && !sliding && !renews,
            Family::Rolling { .. } => !is_new && !renews,
            Family::Counting => false,
        };
        let after = match before {
            State::Counted { least, most } => {
                let (most, stuck) = (most.saturating_add(1), if self.shape.is_cuckoo() { STUCK_COPIES } else { STUCK });
                State::Counted { least: least + 1, most: if most >= stuck { u32::MAX } else { most } }
            }
            _ if stays => before,
            _ => State::In(added),
        };
        self.states.insert(item, after);
    }

    /// Records the answer to a delete: `was_in`.
    pub fn deleted(&mut self, item: Item, was_in: bool) {
        self.card = self.card.map(|card| card - i64::from(was_in));
        let after = match self.state(item) {
            State::Counted { least, most: u32::MAX } => {
                State::Counted { least: least.saturating_sub(1), most: u32::MAX }
            }
            State::Counted { least, most } => {
                State::Counted { least: least.saturating_sub(1), most: most.saturating_sub(1) }
            }
            // An item that was not found is not in the table of deleted items, and may be a false positive later.
            _ if self.shape.is_exact() || was_in && self.shape.family == Family::Set => State::Out,
            _ => State::Unknown,
        };
        self.states.insert(item, after);
    }

    /// Records that an add or a delete of this item was sent without a reply.
    pub fn perhaps(&mut self, item: Item, is_add: bool, sent: Instant, replied: Instant) {
        let before = self.state(item);
        if is_add {
            self.added(item, true, true, sent, replied);
        } else {
            self.deleted(item, true);
        }
        self.doubt(item, before);
    }

    /// Records that the item may also be in this state.
    pub fn doubt(&mut self, item: Item, state: State) {
        self.states.insert(item, self.state(item).or(state));
        self.card = None;
    }

    /// Records that a client began a bucket, or may have.
    pub fn rotated(&mut self) {
        self.rotations += 1;
        self.card = None;
    }

    /// Returns the contents of a dump that began with this filter and ended with `after`, if items were only added
    /// meanwhile.
    pub fn dumped_until(&self, after: &Self) -> Self {
        let mut dumped = after.clone();
        for (item, state) in &mut dumped.states {
            // An item that was added meanwhile may be in the dump. The table of deleted items is omitted if it changed.
            if !matches!(self.state(*item), State::In(_)) {
                *state = State::Unknown;
            }
        }
        dumped.card = None;
        dumped
    }

    /// Records that the filter received all items of another one.
    pub fn united_with(&mut self, other: &Self) {
        let items: Vec<Item> = self.items().chain(other.items()).collect();
        for item in items {
            let after = match (self.state(item), other.state(item)) {
                (State::In(added), _) | (_, State::In(added)) => State::In(added),
                (one, other) => one.or(other),
            };
            self.states.insert(item, after);
        }
        // The number of items in a union is unknown.
        self.card = None;
        self.new_items = self.new_items.max(self.shape.capacity);
    }
}
