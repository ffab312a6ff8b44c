//! The server as the clients of the guard see it: filters, cached values, leases, NONEs, waiting clients.
//!
//! Leases, NONEs and queues are decided by the module's own `Guard` (`src/guard/state.rs`). A state of the model lists what the
//! guard holds; each command rebuilds a guard from that list, runs on it, and lists its contents again. The order of the steps
//! of each command follows `src/commands/{fetch,fill,changed}.rs`, and `replay.rs` compares their replies with a real server.

use crate::guard::alarm::Due;
use crate::guard::state::{Asker, Standing};
use crate::rebuild::{For, LATER, MAX, NOW, Passes, Queue, SOON, filter_key, item_id, key_id, token};
use crate::rules::Rule;

/// The number of commits to the row so far.
pub type Version = u8;
/// A reader, by its number.
pub type ReaderId = u8;

/// The name that readers ask, and the name under which a new filter is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Name {
    Rows,
    Filling,
}

/// A filter, as far as it concerns the item of the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Filter {
    pub instance: u8,
    /// The bits of the item are set, by the item or by others.
    has_bits: bool,
    /// The item is in the table of deleted items.
    is_deleted: bool,
}

/// What the guard holds of a cache key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Record {
    /// A lease, with the reader that holds its token. `None`: the token is lost.
    Lease(Option<ReaderId>, For),
    /// The item has no row.
    NoRow(For),
    /// No lease is granted.
    BackOff,
}

/// A reader that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Waiting {
    pub reader: ReaderId,
    /// Whether it waits for the end of a write in flight.
    pub is_held: bool,
}

/// A cache key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct CacheKey {
    /// The version of the row that is cached.
    pub value: Option<Version>,
    pub record: Option<Record>,
    /// The readers that wait, in order of arrival.
    pub queue: Vec<Waiting>,
    /// Whether the timer is about to serve them.
    pub is_due: bool,
    /// Whether a back-off is in force, by what has happened to the cache key.
    pub backs_off: bool,
    /// Whether the hash for UNLESS names it.
    pub is_open: bool,
}

/// A reply of BF.FETCH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    Absent,
    Hit(Version),
    Stale(Version),
    Load,
    Wait,
}

impl Answer {
    /// Whether the answer comes with a token.
    pub const fn grants(self) -> bool {
        matches!(self, Self::Stale(_) | Self::Load)
    }
}

/// How a reader asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    Plain,
    /// With WAIT.
    Wait,
    /// With STALE, when the cached value is about to expire.
    Stale,
}

/// What the holder of a lease fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fill {
    Value(Version),
    None,
    GiveUp,
    /// GIVEUP with BACKOFF.
    BackOff,
}

/// Everything on the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    pub filters: [Option<Filter>; 2],
    pub keys: Vec<CacheKey>,
    /// Whether the key for WHILE exists. `None`: readers do not give WHILE.
    pub heartbeat: Option<bool>,
    /// The rule that is left out.
    pub without: Option<Rule>,
}

impl Server {
    pub fn new(keys: usize, has_row: bool, without: Option<Rule>) -> Self {
        let filter = Filter { instance: 1, has_bits: has_row, is_deleted: false };
        Self { filters: [Some(filter), None], keys: vec![CacheKey::default(); keys], heartbeat: None, without }
    }

    pub fn lacks(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    /// Whether the filter of the name exists.
    pub fn exists(&self, name: Name) -> bool {
        self.filters[name as usize].is_some()
    }

    /// Whether the filter of the name may have the item. `None`: it is missing.
    pub fn may_have(&self, name: Name) -> Option<bool> {
        self.filters[name as usize].map(|filter| filter.has_bits && !filter.is_deleted)
    }

    /// Whether bits of the item are missing in the filter that readers ask.
    pub fn may_collide(&self) -> bool {
        self.filters[Name::Rows as usize].is_some_and(|filter| !filter.has_bits)
    }

    fn instance(&self) -> For {
        self.filters[Name::Rows as usize].map(|filter| filter.instance)
    }

    /// BF.FETCH. A reader that waits is in the queue afterwards, and gets no answer yet.
    pub fn fetch(&mut self, reader: ReaderId, key: usize, how: How) -> Option<Answer> {
        let mut guard = self.guard(Passes::Nothing);
        let answer = self.look(&mut guard, reader, key, how, Asker::Caller);
        // A back-off is answered at once.
        let joins = answer == Some(Answer::Wait) && how == How::Wait && !self.answers_back_off(key);
        if joins {
            let is_held = self.is_held(key);
            let (id, filter) = (key_id(key), filter_key(Name::Rows));
            guard.join(id, filter, reader.into(), reader, is_held, (NOW, LATER)).unwrap();
            self.keys[key].queue.push(Waiting { reader, is_held });
        }
        self.list(guard, NOW);
        answer.filter(|_| !joins)
    }

    fn answers_back_off(&self, key: usize) -> bool {
        self.keys[key].record == Some(Record::BackOff) && !self.is_held(key)
    }

    /// Whether a reader with UNLESS has to wait for a write in flight.
    fn is_held(&self, key: usize) -> bool {
        self.keys[key].is_open && !self.lacks(Rule::GiveUnless)
    }

    /// Asks the hash of writes in flight, the filter, the guard and the cache, like `look` in `commands/fetch.rs`. Answers `wait`
    /// if there is no other answer.
    fn look(&self, guard: &mut Queue, reader: ReaderId, key: usize, how: How, asker: Asker) -> Option<Answer> {
        let slot = &self.keys[key];
        if self.is_held(key) {
            return Some(Answer::Wait);
        }
        let beats = self.heartbeat != Some(false);
        let trusts_filter = beats || self.lacks(Rule::GiveWhile);
        if self.may_have(Name::Rows) == Some(false) && trusts_filter {
            return Some(Answer::Absent);
        }
        let item = item_id(self.instance());
        let denies = trusts_filter || self.lacks(Rule::WhileCoversNones);
        let standing = guard.standing(key_id(key), item, asker, denies, NOW);
        if standing == Standing::NoRow {
            return Some(Answer::Absent);
        }
        let is_leased = matches!(standing, Standing::Leased(_)) && !self.lacks(Rule::OneLoader);
        let backs_off = matches!(standing, Standing::BackedOff(_)) && !self.lacks(Rule::KeepBackOff);
        let may_grant = !is_leased && !backs_off;
        let answer = match slot.value {
            Some(version) if how == How::Stale && may_grant => Answer::Stale(version),
            Some(version) => return Some(Answer::Hit(version)),
            None if may_grant => Answer::Load,
            None => return Some(Answer::Wait),
        };
        guard.grant(key_id(key), item, token(reader), (NOW, LATER), MAX).unwrap();
        Some(answer)
    }

    /// BF.FILL. Returns whether it was accepted.
    pub fn fill(&mut self, reader: ReaderId, key: usize, fill: Fill) -> bool {
        let mut guard = self.guard(Passes::Nothing);
        let item = item_id(self.instance());
        if !guard.holds(key_id(key), item, token(reader), NOW) && !self.lacks(Rule::CheckToken) {
            return false;
        }
        let slot = &mut self.keys[key];
        match fill {
            Fill::Value(version) => slot.value = Some(version),
            Fill::None => slot.value = None,
            Fill::GiveUp => {}
            Fill::BackOff => slot.backs_off = true,
        }
        match fill {
            Fill::None => guard.note_no_row(key_id(key), item, (NOW, LATER), MAX),
            Fill::BackOff => guard.back_off(key_id(key), (NOW, LATER), MAX),
            _ => guard.end(key_id(key)),
        }
        self.list(guard, NOW);
        true
    }

    /// BF.CHANGED.
    pub fn changed(&mut self, name: Name, key: usize) {
        if !self.lacks(Rule::DeleteValue) {
            self.keys[key].value = None;
        }
        let (keeps_lease, keeps_none) = (self.lacks(Rule::EndLeases), self.lacks(Rule::EndNones));
        let kept = match self.keys[key].record {
            Some(Record::Lease(..)) => keeps_lease,
            Some(Record::NoRow(_)) => keeps_none,
            Some(Record::BackOff) | None => false,
        };
        self.keys[key].backs_off = false;
        if !kept {
            let mut guard = self.guard(Passes::Nothing);
            guard.end(key_id(key));
            self.list(guard, NOW);
        }
        self.add(name);
    }

    /// The add of the item, by BF.CHANGED, BF.ADD or BF.INSERT with NOCREATE. It ends the leases and NONEs of the item.
    pub fn add(&mut self, name: Name) {
        let is_ending = ![Rule::EndLeases, Rule::EndNones, Rule::AddEndsItem].iter().any(|rule| self.lacks(*rule));
        if is_ending && self.keys.iter().any(|slot| slot.record.is_some()) {
            let mut guard = self.guard(Passes::Nothing);
            // A missing filter is known by its name, and `Filling` has one of its own.
            let of = self.filters[name as usize].map(|filter| filter.instance);
            if of.is_some() || name == Name::Rows {
                guard.end_item(item_id(of));
            }
            self.list(guard, NOW);
        }
        if let Some(filter) = &mut self.filters[name as usize] {
            (filter.has_bits, filter.is_deleted) = (true, false);
        }
    }

    /// Another item is added whose bits are those of the item.
    pub fn collide(&mut self, name: Name) {
        if let Some(filter) = &mut self.filters[name as usize] {
            filter.has_bits = true;
        }
    }

    /// BF.DEL of the item.
    pub fn delete(&mut self) {
        if let Some(filter) = &mut self.filters[Name::Rows as usize] {
            filter.is_deleted |= filter.has_bits;
        }
    }

    /// BF.RESERVE.
    pub fn reserve(&mut self, name: Name) {
        self.put_empty(name, 2);
    }

    /// Puts an empty filter at a name: BF.RESERVE, or BF.CLEAR, which gives the filter another instance.
    pub fn put_empty(&mut self, name: Name, instance: u8) {
        self.filters[name as usize] = Some(Filter { instance, has_bits: false, is_deleted: false });
        self.replaced(name);
    }

    /// The filter is evicted or deleted.
    pub fn lose(&mut self, name: Name) {
        self.filters[name as usize] = None;
        self.replaced(name);
    }

    /// RENAME of the new filter to the name that readers ask.
    pub fn rename(&mut self) {
        self.filters[Name::Rows as usize] = self.filters[Name::Filling as usize].take();
        self.replaced(Name::Rows);
    }

    fn replaced(&mut self, name: Name) {
        let mut guard = self.guard(Passes::Nothing);
        guard.filter_replaced(filter_key(name));
        self.list(guard, NOW);
    }

    /// The lease or the NONE of a cache key expires, or is evicted.
    pub fn expire(&mut self, key: usize) {
        let guard = self.guard(Passes::Record(key));
        self.list(guard, SOON);
        self.keys[key].backs_off = false;
        assert_eq!(self.keys[key].record, None, "it has expired");
    }

    /// A reader drops its token.
    pub fn forget(&mut self, reader: ReaderId) {
        for slot in &mut self.keys {
            if let Some(Record::Lease(holder, _)) = &mut slot.record {
                holder.take_if(|holder| *holder == reader);
            }
        }
    }

    /// The timer serves the waiters that are due. Returns their answers.
    pub fn serve(&mut self) -> Vec<(ReaderId, usize, Answer)> {
        let mut guard = self.guard(Passes::Nothing);
        let mut answers = Vec::new();
        while let Some(Due::Serve(id)) = guard.take_due(NOW) {
            let key = id.name[0] as usize;
            let mut from = 0;
            while let Some((waiter, ticket, reader)) = guard.next(id, from) {
                let answer = self.look(&mut guard, reader, key, How::Wait, Asker::Waiter).unwrap();
                if answer != Answer::Wait || self.answers_back_off(key) {
                    self.answered(&mut guard, reader, key, answer);
                    answers.push((reader, key, answer));
                    continue;
                }
                let is_held = self.is_held(key);
                guard.put_back(waiter, reader, is_held);
                let place = self.keys[key].queue.iter().position(|waiting| waiting.reader == reader).unwrap();
                self.keys[key].queue[place].is_held = is_held;
                if !is_held {
                    break;
                }
                from = ticket + 1;
            }
        }
        self.list(guard, NOW);
        answers
    }

    /// The WAIT of a reader expires. Returns its answer.
    pub fn deadline(&mut self, reader: ReaderId, key: usize) -> Answer {
        let mut guard = self.guard(Passes::Deadline(reader));
        loop {
            match guard.take_due(SOON) {
                Some(Due::Deadline(waiter, ticket)) => {
                    assert_eq!(guard.take(waiter, ticket), Some(reader));
                    break;
                }
                Some(_) => {}
                None => panic!("nothing is due"),
            }
        }
        let answer = self.look(&mut guard, reader, key, How::Wait, Asker::Waiter).unwrap();
        let due: Vec<bool> = self.keys.iter().map(|slot| slot.is_due).collect();
        self.answered(&mut guard, reader, key, answer);
        self.list(guard, NOW);
        // These entries were taken out above.
        for (slot, was_due) in self.keys.iter_mut().zip(due) {
            slot.is_due |= was_due && !slot.queue.is_empty();
        }
        answer
    }

    fn answered(&mut self, guard: &mut Queue, reader: ReaderId, key: usize, answer: Answer) {
        assert!(guard.answered(reader.into(), answer.grants().then(|| token(reader))));
        guard.finish(reader.into(), false);
        self.keys[key].queue.retain(|waiting| waiting.reader != reader);
    }

    /// A client that waits disconnects.
    pub fn leave(&mut self, reader: ReaderId, key: usize) {
        let mut guard = self.guard(Passes::Nothing);
        guard.leave(reader.into()).unwrap();
        self.keys[key].queue.retain(|waiting| waiting.reader != reader);
        self.list(guard, NOW);
    }
}
