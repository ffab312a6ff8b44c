//! The module's guard, rebuilt from what a state of the model lists, and listed again. Times are numbers: every record ends
//! `LATER`, except the one whose end passes.

use crate::guard::alarm::Due;
use crate::guard::ids::{CacheKeyId, FilterId, ItemId};
use crate::guard::state::{Asker, Guard, Standing};
use crate::rules::Rule;
use crate::server::{Name, ReaderId, Record, Server, Waiting};

/// The filter that a lease or a NONE is for, by its instance. `None`: there was no filter.
pub type For = Option<u8>;
const FILTERS: [For; 3] = [Some(1), Some(2), None];

pub type Queue = Guard<ReaderId>;

/// The time that passes while a command runs.
#[derive(Clone, Copy, PartialEq)]
pub enum Passes {
    Nothing,
    /// The end of the record of a cache key.
    Record(usize),
    /// The WAIT of a reader.
    Deadline(ReaderId),
}

pub const NOW: u64 = 100;
pub const SOON: u64 = 101;
pub const LATER: u64 = 1000;
pub const MAX: usize = 8;
/// A token that no reader holds.
const LOST: u64 = 0;

pub fn key_id(key: usize) -> CacheKeyId {
    CacheKeyId { database: 0, name: [key as u64, 1] }
}

pub fn filter_key(name: Name) -> CacheKeyId {
    CacheKeyId { database: 0, name: [name as u64, 2] }
}

pub fn item_id(of: For) -> ItemId {
    let filter = match of {
        Some(instance) => FilterId::existing(instance.into()),
        None => FilterId::missing(filter_key(Name::Rows)),
    };
    ItemId { filter, item: [17, 0] }
}

pub fn token(reader: ReaderId) -> u64 {
    u64::from(reader) + 1
}

impl Server {
    /// A guard that holds what the state lists.
    pub fn guard(&self, passes: Passes) -> Queue {
        let mut guard = Queue::default();
        let mut due: Vec<usize> = (0..self.keys.len()).collect();
        // Draining the alarm must not drain the entries of keys that are due.
        due.sort_by_key(|key| self.keys[*key].is_due);
        for key in due {
            let slot = &self.keys[key];
            if slot.is_due {
                self.join(&mut guard, key, passes);
                guard.end(key_id(key));
                self.note(&mut guard, key, passes);
            } else {
                self.note(&mut guard, key, passes);
                self.join(&mut guard, key, passes);
                while guard.take_due(NOW).is_some() {}
            }
        }
        guard
    }

    fn note(&self, guard: &mut Queue, key: usize, passes: Passes) {
        let end = if passes == Passes::Record(key) { SOON } else { LATER };
        match self.keys[key].record {
            Some(Record::Lease(holder, of)) => {
                guard.grant(key_id(key), item_id(of), holder.map_or(LOST, token), (NOW, end), MAX).unwrap();
            }
            Some(Record::NoRow(of)) => guard.note_no_row(key_id(key), item_id(of), (NOW, end), MAX),
            Some(Record::BackOff) => guard.back_off(key_id(key), (NOW, end), MAX),
            None => {}
        }
    }

    fn join(&self, guard: &mut Queue, key: usize, passes: Passes) {
        for Waiting { reader, is_held } in self.keys[key].queue.iter().copied() {
            let deadline = if passes == Passes::Deadline(reader) { SOON } else { LATER };
            let (key, filter) = (key_id(key), filter_key(Name::Rows));
            guard.join(key, filter, reader.into(), reader, is_held, (NOW, deadline)).unwrap();
        }
    }

    /// Lists what a guard holds at a time. Takes its due entries out.
    pub fn list(&mut self, mut guard: Queue, now: u64) {
        let is_waking = !self.lacks(Rule::Wake);
        let tokens = LOST..=4;
        for (key, slot) in self.keys.iter_mut().enumerate() {
            let id = key_id(key);
            slot.record = if guard.has_lease(id, now) {
                let held = tokens.clone().find(|token| guard.has_token(id, *token)).unwrap();
                let of = FILTERS.into_iter().find(|of| guard.holds(id, item_id(*of), held, now)).unwrap();
                Some(Record::Lease(held.checked_sub(1).map(|reader| reader as ReaderId), of))
            } else if guard.is_backed_off(id, now) {
                Some(Record::BackOff)
            } else {
                let is_none = |of: &For| guard.standing(id, item_id(*of), Asker::Waiter, true, now) == Standing::NoRow;
                FILTERS.into_iter().find(is_none).map(Record::NoRow)
            };
            slot.is_due = false;
        }
        while let Some(due) = guard.take_due(now) {
            let Due::Serve(id) = due else { panic!("{due:?}") };
            let slot = &mut self.keys[id.name[0] as usize];
            slot.is_due = is_waking && !slot.queue.is_empty();
        }
    }
}
