//! Draws random commands, most of which the model knows to succeed.

use std::time::Instant;

use super::commands::{How, Op};
use super::filter::{Item, State};
use super::model::{KEYS, Model, Slot};
use super::shapes::{Family, SHAPES, Shape};
use crate::harness::Rng;

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
            0..35 => self.add(key),
            35..50 => self.remove(key),
            50..62 => Op::Ask { key, items: self.items(60), one: false },
            62..64 => Op::Ask { key, items: vec![item], one: true },
            64 => Op::Count { key, item },
            65 => Op::Plan { shape: self.shape() },
            66..68 => Op::Look { key, command: self.one_of(&["BF.CARD", "BF.INFO", "BF.STATS", "BF.DEBUG"]) },
            68..74 => Op::Reserve { key, shape: self.shape(), expires: self.below(3) == 0 },
            74..77 => Op::Rotate { key },
            77 => Op::Clear { key },
            78..80 => self.merge(key),
            80..82 => Op::Delete { key, command: self.one_of(&["DEL", "UNLINK"]) },
            82 => Op::Rename { from: key, to: self.other(key) },
            83 => Op::Copy { from: key, to: self.other(key) },
            84 => Op::Persist { key, expires: self.below(2) == 0 },
            85 => Op::Dump { key },
            86 => self.restore(key),
            87..90 => self.load_chunk(key),
            90..94 => Op::Changed { key, item: self.few(key) },
            94..97 => Op::Fetch { key, item: self.few(key) },
            _ => self.fill(key),
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
        (key * 50 + self.below(3)) as Item
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

    fn fill(&mut self, key: usize) -> Op {
        let held: Vec<_> = self.model.tokens.iter().filter(|((of, _), _)| *of == key).collect();
        if held.is_empty() {
            return Op::Fetch { key, item: self.few(key) };
        }
        let (&(key, item), token) = held[self.rng.below(held.len() as u64) as usize];
        Op::Fill { key, item, token: token.text.clone(), value: self.rng.number() >> 1 }
    }
}
