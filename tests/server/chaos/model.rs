//! The model of the servers: every key and cached value, and which of them a failover may lose.

use std::collections::BTreeMap;
use std::time::Instant;

use super::commands::{Op, Payload, key_name};
use super::filter::{Filter, Item, State};
use super::guard::{Filling, UNLESS_KEY, WHILE_KEY};
use super::records::{Conditions, Guarded};
use super::shapes::{DEFAULTS, Shape};

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
    /// `bf.max-filter-bytes` is below what filters take.
    Bytes,
}

/// The values that a cache key may currently have.
type Cached = Vec<Option<u64>>;

/// The effect of a write that no replica has confirmed yet.
enum Unconfirmed {
    Item {
        key: usize,
        item: Item,
        before: State,
    },
    Cached {
        key: usize,
        item: Item,
        before: Cached,
    },
    Key(usize),
    /// The keys of WHILE and UNLESS.
    Conditions,
}

/// The model.
pub struct Model {
    pub slots: Vec<Slot>,
    pub shelf: Vec<Payload>,
    pub guard: Guarded,
    cached: BTreeMap<(usize, Item), Cached>,
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
            guard: Guarded::default(),
            cached: BTreeMap::new(),
            unconfirmed: Vec::new(),
            limit: Limit::None,
            default: DEFAULTS[0],
        }
    }

    /// The values that an item's cache key may have.
    pub fn cached(&self, key: usize, item: Item) -> Cached {
        self.cached.get(&(key, item)).cloned().unwrap_or_else(|| vec![None])
    }

    /// Every cache key that was used.
    pub fn cache_keys(&self) -> impl Iterator<Item = (usize, Item)> {
        self.cached.keys().copied()
    }

    /// Records the value of a cache key.
    pub fn cache(&mut self, key: usize, item: Item, value: Option<u64>) {
        let before = self.cached(key, item);
        self.unconfirmed.push(Unconfirmed::Cached { key, item, before });
        self.cached.insert((key, item), vec![value]);
    }

    /// Records that the whole filter at a key is about to be changed or replaced.
    pub fn replace(&mut self, key: usize, slot: Slot) {
        self.unconfirmed.push(Unconfirmed::Key(key));
        self.slots[key] = slot;
        self.guard.replaced(key);
    }

    /// Records that all keys were deleted.
    pub fn flushed(&mut self) {
        (0..KEYS).for_each(|key| self.replace(key, Slot::Missing));
        let cached: Vec<(usize, Item)> = self.cached.keys().copied().collect();
        cached.into_iter().for_each(|(key, item)| self.cache(key, item, None));
        *self.conditions() = Conditions::default();
        self.guard.end_all();
    }

    /// Returns the keys of WHILE and UNLESS, to record a change to them.
    pub fn conditions(&mut self) -> &mut Conditions {
        self.unconfirmed.push(Unconfirmed::Conditions);
        &mut self.guard.conditions
    }

    /// Records the effects of a command on the guard that do not depend on whether the filter accepts the items.
    pub fn announce(&mut self, op: &Op) {
        match op {
            Op::Add { key, items, .. } => items.iter().for_each(|&item| self.guard.overwritten((*key, item))),
            Op::Changed { key, items, .. } => {
                for &item in items {
                    self.cache(*key, item, None);
                    self.guard.end((*key, item));
                }
            }
            _ => {}
        }
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

    /// Records that a command was sent and no reply arrived: it was executed or not.
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
                items.iter().for_each(|&item| self.doubt_cached(*key, item, vec![None]));
            }
            Op::Fill { row, filling, .. } => match filling {
                Filling::Value(value) => self.doubt_cached(row.0, row.1, vec![Some(*value)]),
                Filling::NoRow(_) => self.doubt_cached(row.0, row.1, vec![None]),
                Filling::GiveUp | Filling::BackOff(_) => {}
            },
            Op::Overwrite { row, value } => self.doubt_cached(row.0, row.1, vec![*value]),
            Op::Beat { .. } | Op::Write { .. } => self.guard.conditions.is_doubtful = true,
            _ => {}
        }
    }

    fn doubt_cached(&mut self, key: usize, item: Item, mut values: Cached) {
        values.extend(self.cached(key, item));
        self.cached.insert((key, item), values);
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
                Unconfirmed::Conditions => self.guard.conditions.is_doubtful = true,
                Unconfirmed::Cached { key, item, before } => self.doubt_cached(key, item, before),
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
        let mut names: Vec<Vec<u8>> = doubtful.into_iter().map(key_name).collect();
        if self.guard.conditions.is_doubtful {
            self.guard.conditions = Conditions::default();
            names.extend([WHILE_KEY, UNLESS_KEY].map(|name| name.as_bytes().to_vec()));
        }
        names
    }
}
