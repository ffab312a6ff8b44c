//! Draws random commands, most of which the model knows to succeed.

use std::time::Instant;

use super::commands::{How, Op};
use super::filter::{Item, State};
use super::guard::{Asking, Filling};
use super::model::{KEYS, Model, Slot};
use super::records::Row;
use super::shapes::{Family, SHAPES, Shape};
use testing::Rng;

/// The number of items per key from which commands draw.
pub const ITEMS: u64 = 1500;
/// The number of keys whose filters guard rows.
const GUARDED: usize = 6;

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
            _ => self.guard(key % GUARDED),
        }
    }

    /// Draws a command of the guard, or of a client that changes the keys which the guard reads.
    fn guard(&mut self, key: usize) -> Op {
        let row = (key, self.few(key));
        match self.below(20) {
            0..3 => {
                let one = self.below(2) == 0;
                Op::Changed { key, items: self.rows(key, one), one }
            }
            3..9 => self.fetch(key),
            9..16 => self.fill(key),
            // Even numbers do not expire, like values of SET.
            16 => Op::Overwrite { row, value: (self.below(2) == 0).then(|| self.rng.number() >> 1 & !1) },
            17 => Op::Beat { begins: self.below(4) > 0 },
            _ => self.write(row),
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

    /// Draws one of the few items of a key that are used with the guard.
    fn few(&mut self, key: usize) -> Item {
        (key * 50 + self.below(5)) as Item
    }

    /// Draws items for a command of the guard. Many of them are more than one batch, and most are repeated.
    fn rows(&mut self, key: usize, one: bool) -> Vec<Item> {
        let many = if self.below(8) == 0 { 100 } else { 5 };
        let count = if one { 1 } else { 1 + self.below(many) };
        (0..count).map(|_| self.few(key)).collect()
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

    /// Half of the deletes are of items in the filter. From counting filters nothing else may be deleted.
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

    fn fetch(&mut self, key: usize) -> Op {
        let one = self.below(2) == 0;
        let asking = Asking {
            lease: self.time(),
            refreshes: self.below(2) == 0,
            // Only BF.FETCH waits. Nobody else sends commands meanwhile.
            wait: if one && self.below(6) == 0 { 2 } else { 0 },
            has_while: self.below(3) == 0,
            has_unless: self.below(3) == 0,
            first: self.below(5),
        };
        Op::Fetch { key, items: self.rows(key, one), one, asking }
    }

    /// Draws a time in milliseconds: one that ends soon, or one that outlasts the test.
    fn time(&mut self) -> u64 {
        self.one_of(&[1, 20, 600_000, 600_000, 600_000, 600_000, 600_000, 600_000])
    }

    fn fill(&mut self, key: usize) -> Op {
        let guard = &self.model.guard;
        let is_void = self.rng.below(8) == 0;
        let tokens = guard.tokens(key, is_void);
        if tokens.is_empty() {
            return self.fetch(key);
        }
        let (row, token) = tokens[self.rng.below(tokens.len() as u64) as usize];
        let filling = match self.below(8) {
            0..4 => Filling::Value(self.rng.number() >> 1),
            4 | 5 => Filling::NoRow(self.time()),
            6 => Filling::GiveUp,
            _ => Filling::BackOff(self.time()),
        };
        Op::Fill { row, token: token.to_owned(), filling }
    }

    /// Begins or ends a write. A few are in flight at a time.
    fn write(&mut self, row: Row) -> Op {
        let in_flight: Vec<Option<Row>> = self.model.guard.conditions.in_flight.iter().copied().collect();
        if !in_flight.is_empty() && (in_flight.len() > 3 || self.below(2) == 0) {
            return Op::Write { row: self.one_of(&in_flight), begins: false };
        }
        Op::Write { row: (self.below(8) > 0).then_some(row), begins: true }
    }
}
