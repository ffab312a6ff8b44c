//! The server as the clients of the guard see it: filters, cached values, tokens, leases, NONEs, waiting clients.
//!
//! Tokens, leases, NONEs and queues are decided by the module's own `Guard` (`src/guard/state.rs`). A state of the model lists what the
//! guard holds; each command rebuilds a guard from that list, runs on it, and lists its contents again. Times and stamps are plain numbers
//! in the rebuilt guard: every record ends `LATER`, except the record whose end passes. For a token, the state lists only whether it is
//! safe.
//!
//! The steps of each command have the same order as in the module's BF.FETCH, BF.FILL and BF.CHANGED, and `walks.rs` compares the replies
//! with a real server.

use crate::guard::records::{Record as GuardRecord, RecordKind};
use crate::guard::row::{KeyId, Row, Stamp};
use crate::guard::state::{Asker, Guard, RowState, TimerEvent, Trust};
use crate::world::Rule;

/// The number of commits to the row so far.
pub type Version = u8;
/// A reader, by its number.
pub type ReaderId = u8;
/// The maximum number of readers of a model.
pub const READERS: usize = 3;

/// The name that readers query, and the name under which a new filter is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Name {
    Rows,
    Filling,
}

/// A filter, reduced to its state for the item of the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Filter {
    pub instance: u8,
    /// The bits of the item are set, by the item or by others.
    has_bits: bool,
    /// The item is in the table of deleted items.
    is_deleted: bool,
}

/// The token of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    pub key: u8,
    /// The instance of the filter for which it was issued. It is part of the token.
    pub of: For,
    /// Whether nothing has changed since it was issued.
    pub is_safe: bool,
}

/// The record of a cache key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Record {
    /// A lease, with the reader that has it. `None`: its token is lost.
    Lease(Option<ReaderId>, For),
    /// The item has no row.
    NoRow(For),
    /// No lease is granted.
    BackOff,
    /// The cached value is valid without the key for WHILE.
    Loaded(For),
}

/// A reader that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Waiting {
    pub reader: ReaderId,
    pub how: How,
    /// Whether it waits for the end of a write in flight.
    pub is_held: bool,
}

/// A cache key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct CacheKey {
    /// The cached version of the row.
    pub value: Option<Version>,
    pub record: Option<Record>,
    /// The period in which the lease was granted, if a value filled under it is valid without the key for WHILE.
    pub fresh: Option<u8>,
    /// The readers that wait, in order of arrival.
    pub queue: Vec<Waiting>,
    /// Whether the timer is about to serve them.
    pub is_due: bool,
    /// Whether a back-off must be in force, judging by the commands for the cache key.
    pub backs_off: bool,
    /// Whether the hash for UNLESS names it.
    pub is_open: bool,
}

impl CacheKey {
    /// Whether its record ends with this period, because FRESH does.
    pub fn is_no_longer_fresh(&self, period: u8) -> bool {
        self.fresh.is_some_and(|granted| period >= granted + 2)
    }
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

/// The options of a reader's BF.FETCH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    Plain,
    /// With WAIT.
    Wait,
    /// With STALE, when the cached value is about to expire.
    Stale,
    /// With REPLACE and WAIT: the reader cannot use the cached value.
    Replace,
    /// Without taking a lease.
    Peek,
    /// With FRESH, equal to the time to live of the key for WHILE.
    Fresh,
}

impl How {
    /// Whether the reader waits for another one that loads.
    pub const fn waits(self) -> bool {
        matches!(self, Self::Wait | Self::Replace)
    }
}

/// The value that the holder of a lease fills in.
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
    pub tokens: [Option<Token>; READERS],
    /// Whether the keys are on another node, and come back in another epoch.
    pub is_away: bool,
    pub has_been_away: bool,
    /// Whether the key for WHILE exists. `None`: readers do not give WHILE.
    pub heartbeat: Option<bool>,
    /// The period of the follower.
    pub period: u8,
    /// The omitted rule.
    pub without: Option<Rule>,
}

impl Server {
    pub fn new(keys: usize, has_row: bool, without: Option<Rule>) -> Self {
        let filter = Filter { instance: 1, has_bits: has_row, is_deleted: false };
        Self {
            filters: [Some(filter), None],
            keys: vec![CacheKey::default(); keys],
            tokens: [None; READERS],
            is_away: false,
            has_been_away: false,
            heartbeat: None,
            period: 0,
            without,
        }
    }

    pub fn lacks(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    /// Whether the filter of the name exists.
    pub fn exists(&self, name: Name) -> bool {
        self.filters[name as usize].is_some()
    }

    /// Whether the filter of the name may contain the item. `None`: the filter is missing.
    pub fn may_have(&self, name: Name) -> Option<bool> {
        self.filters[name as usize].map(|filter| filter.has_bits && !filter.is_deleted)
    }

    /// Whether bits of the item are clear in the filter that readers query.
    pub fn may_collide(&self) -> bool {
        self.filters[Name::Rows as usize].is_some_and(|filter| !filter.has_bits)
    }

    fn instance(&self) -> For {
        self.filters[Name::Rows as usize].map(|filter| filter.instance)
    }

    /// BF.FETCH. A reader that must wait enters the queue, and gets no answer yet.
    pub fn fetch(&mut self, reader: ReaderId, key: usize, how: How) -> Option<Answer> {
        let mut session = self.session(Passes::Nothing);
        let answer = self.look(&mut session, reader, key, how, Asker::Caller);
        // A back-off is answered at once.
        let joins = answer == Answer::Wait && how.waits() && !self.answers_back_off(key);
        if joins {
            let is_held = self.is_held(key);
            session.guard.join(&row(key, None), None, reader.into(), reader, is_held, (NOW, LATER)).unwrap();
            self.keys[key].queue.push(Waiting { reader, how, is_held });
        }
        self.list(session, NOW);
        (!joins).then_some(answer)
    }

    fn answers_back_off(&self, key: usize) -> bool {
        self.keys[key].record == Some(Record::BackOff) && !self.is_held(key)
    }

    /// Whether a reader with UNLESS has to wait for a write in flight.
    fn is_held(&self, key: usize) -> bool {
        self.keys[key].is_open && !self.lacks(Rule::GiveUnless)
    }

    /// Queries the hash of writes in flight, the filter, the cache and the guard, in the order of BF.FETCH in `commands/guard.rs`. Answers
    /// `wait` if there is no other answer.
    fn look(&mut self, session: &mut Session, reader: ReaderId, key: usize, how: How, asker: Asker) -> Answer {
        let value = self.keys[key].value;
        if self.is_held(key) {
            return Answer::Wait;
        }
        let beats = self.heartbeat != Some(false);
        let trusts_filter = beats || self.lacks(Rule::GiveWhile);
        if self.may_have(Name::Rows) == Some(false) && trusts_filter {
            return Answer::Absent;
        }
        let trust = match () {
            () if trusts_filter || self.lacks(Rule::WhileCoversNones) => Trust::All,
            () if how == How::Fresh => Trust::Fresh,
            () => Trust::Values,
        };
        let trusts_value = trust != Trust::Fresh || self.lacks(Rule::FreshIgnoresCache);
        if let Some(version) = value.filter(|_| trusts_value && !matches!(how, How::Stale | How::Replace)) {
            return Answer::Hit(version);
        }
        let row = row(key, self.instance());
        let row_state = session.guard.row_state(&row, asker, trust, NOW);
        if row_state == RowState::NoRow {
            return Answer::Absent;
        }
        let value = value.filter(|_| trusts_value || row_state == RowState::Loaded);
        if let (RowState::Loaded, Some(version)) = (row_state, value) {
            return Answer::Hit(version);
        }
        let is_leased = matches!(row_state, RowState::Leased(_)) && !self.lacks(Rule::OneLoader);
        let backs_off = matches!(row_state, RowState::BackedOff(_)) && !self.lacks(Rule::KeepBackOff);
        if is_leased || backs_off || how == How::Peek {
            return value.filter(|_| how != How::Replace).map_or(Answer::Wait, Answer::Hit);
        }
        self.look_at_epochs(session);
        session.stamps[usize::from(reader)] = {
            let fresh_until = (trust == Trust::Fresh).then_some(fresh_end(self.period));
            session.guard.grant(row, (NOW, LATER), fresh_until, MAX)
        };
        self.tokens[usize::from(reader)] = Some(Token { key: key as u8, of: self.instance(), is_safe: true });
        value.map_or(Answer::Load, Answer::Stale)
    }

    /// Without a filter, the module checks whether the epochs of the cluster have changed.
    fn look_at_epochs(&mut self, session: &mut Session) {
        if self.instance().is_none() && std::mem::take(&mut self.has_been_away) && !self.lacks(Rule::LookAtEpochs) {
            session.guard.all_changed();
        }
    }

    /// BF.FILL. Returns whether it was accepted.
    pub fn fill(&mut self, reader: ReaderId, key: usize, fill: Fill) -> bool {
        if self.is_away {
            return false;
        }
        let mut session = self.session(Passes::Nothing);
        self.look_at_epochs(&mut session);
        let token = self.tokens[usize::from(reader)].unwrap();
        let instance = if self.lacks(Rule::NameInstance) { token.of } else { self.instance() };
        let (stamp, row) = (session.stamps[usize::from(reader)], row(key, instance));
        let is_for_this = token.of == instance;
        let has_lease = self.keys[key].record == Some(Record::Lease(Some(reader), token.of));
        let mut is_accepted = is_for_this && session.guard.accepts(&row, stamp);
        is_accepted &= has_lease || !self.lacks(Rule::OutliveLease);
        is_accepted |= self.lacks(Rule::CheckToken);
        let fresh_until = self.fresh_until(&session, key, stamp);
        let (guard, slot) = (&mut session.guard, &mut self.keys[key]);
        match fill {
            _ if !is_accepted => {}
            Fill::Value(version) => {
                (slot.value, slot.backs_off) = (Some(version), false);
                guard.filled(row, NOW, fresh_until, MAX);
            }
            Fill::None => {
                (slot.value, slot.backs_off) = (None, false);
                guard.note_no_row(row, (NOW, FOREVER), fresh_until, MAX);
            }
            Fill::GiveUp => is_accepted = guard.give_up(key_id(key), stamp, NOW),
            Fill::BackOff => {
                slot.backs_off = true;
                guard.back_off(key_id(key), NOW, Some(LATER - NOW), MAX);
            }
        }
        self.list(session, NOW);
        is_accepted
    }

    /// The time until which a reader's value is valid without the key for WHILE.
    fn fresh_until(&self, session: &Session, key: usize, stamp: Stamp) -> Option<u64> {
        let slot = &self.keys[key];
        let of_lease = slot.fresh.filter(|_| matches!(slot.record, Some(Record::Lease(..)))).map(fresh_end);
        let own = session.guard.fresh_until(key_id(key), stamp, NOW);
        let found = if self.lacks(Rule::FreshOwnLease) { of_lease } else { own };
        let now = fresh_end(self.period);
        found.map(|until| if self.lacks(Rule::FreshFromGrant) { now } else { until })
    }

    /// BF.CHANGED.
    pub fn changed(&mut self, name: Name, key: usize) {
        self.changed_value(key);
        self.add(name);
    }

    /// BF.CHANGED of another item with this cache key: only the effect on the cache key.
    pub fn changed_value(&mut self, key: usize) {
        if !self.lacks(Rule::DeleteValue) {
            self.keys[key].value = None;
        }
        self.keys[key].backs_off = false;
        if !self.keeps_tokens() && !self.keeps_none(key) && !self.lacks(Rule::ChangeKey) {
            self.change(|guard| guard.row_changed(key_id(key)));
        }
    }

    fn keeps_tokens(&self) -> bool {
        self.lacks(Rule::VoidTokens) && !self.keys.iter().any(|slot| matches!(slot.record, Some(Record::NoRow(_))))
    }

    fn keeps_none(&self, key: usize) -> bool {
        let slot = &self.keys[key];
        let (is_none, is_loaded) =
            (matches!(slot.record, Some(Record::NoRow(_))), matches!(slot.record, Some(Record::Loaded(_))));
        self.lacks(Rule::EndNones) && is_none
            || self.lacks(Rule::FreshVoided) && slot.fresh.is_some() && (is_none || is_loaded)
    }

    /// SET of a cache key by a client.
    pub fn set(&mut self, key: usize, version: Version) {
        self.keys[key].value = Some(version);
        if !self.lacks(Rule::ChangeOnSet) {
            self.change(|guard| guard.value_changed(key_id(key)));
        }
    }

    /// The add of the item, by BF.CHANGED, BF.ADD or BF.INSERT with NOCREATE.
    pub fn add(&mut self, name: Name) {
        if !self.keeps_tokens() && !self.keeps_none(0) && !self.lacks(Rule::ChangeItem) {
            self.change(|guard| guard.filter_changed(item_of(name)));
        }
        if let Some(filter) = &mut self.filters[name as usize] {
            (filter.has_bits, filter.is_deleted) = (true, false);
        }
    }

    /// Applies a change. The server notices it unless it happens on another node.
    fn change(&mut self, change: impl FnOnce(&mut Guard<ReaderId>)) {
        if !self.is_away {
            let mut session = self.session(Passes::Nothing);
            change(&mut session.guard);
            self.list(session, NOW);
        }
    }

    /// Another item with the same bits as the item is added.
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

    /// RENAME of the new filter to the name that readers query.
    pub fn rename(&mut self) {
        self.filters[Name::Rows as usize] = self.filters[Name::Filling as usize].take();
        self.replaced(Name::Rows);
    }

    fn replaced(&mut self, name: Name) {
        if !self.lacks(Rule::ChangeFilter) {
            self.change(|guard| guard.filter_changed(filter_of(name)));
        }
        // A real server never reuses instances. The model does, so it drops state of other instances here.
        let current = self.instance();
        let is_unusable = |of: For| of.is_some() && of != current;
        self.tokens.iter_mut().flatten().for_each(|token| token.is_safe &= !is_unusable(token.of));
        for slot in &mut self.keys {
            slot.record.take_if(|record| match record {
                Record::Lease(_, of) | Record::NoRow(of) | Record::Loaded(of) => is_unusable(*of),
                Record::BackOff => false,
            });
            slot.fresh = slot.fresh.filter(|_| slot.record.is_some());
        }
    }

    /// The server is killed and comes back with its data, or a replica that has all of it takes over. The guard's state is lost, including
    /// which tokens are void; old tokens are recognised only as tokens of another life.
    pub fn restart(&mut self) {
        for token in self.tokens.iter_mut().flatten() {
            token.is_safe = self.without == Some(Rule::NewLife);
        }
        for slot in &mut self.keys {
            (slot.record, slot.fresh, slot.is_due, slot.backs_off) = (None, None, false, false);
        }
    }

    /// The slot of all keys migrates to another node.
    pub fn leave_node(&mut self) {
        self.is_away = true;
    }

    /// The slot comes back. The filter is another instance.
    pub fn come_back(&mut self) {
        (self.is_away, self.has_been_away) = (false, true);
        if let Some(filter) = &mut self.filters[Name::Rows as usize] {
            filter.instance = 3 - filter.instance;
        }
    }

    /// The record of a cache key expires, or is evicted.
    pub fn expire(&mut self, key: usize) {
        let session = self.session(Passes::Record(key));
        self.list(session, SOON);
        self.keys[key].backs_off = false;
        assert_eq!(self.keys[key].record, None, "it has expired");
    }

    /// A reader drops its token.
    pub fn forget(&mut self, reader: ReaderId) {
        self.tokens[usize::from(reader)] = None;
        for slot in &mut self.keys {
            if let Some(Record::Lease(holder, _)) = &mut slot.record {
                holder.take_if(|holder| *holder == reader);
            }
        }
    }

    /// The timer serves the scheduled waiters. Returns their answers.
    pub fn serve(&mut self) -> Vec<(ReaderId, usize, Answer)> {
        let mut session = self.session(Passes::Nothing);
        let mut answers = Vec::new();
        while let Some(TimerEvent::Serve(id)) = session.guard.take_event(NOW) {
            let key = id.table_hash() as usize;
            let mut from = 0;
            while let Some((waiter, ticket, reader)) = session.guard.next(id, from) {
                let place = self.keys[key].queue.iter().position(|waiting| waiting.reader == reader).unwrap();
                let how = self.keys[key].queue[place].how;
                let answer = self.look(&mut session, reader, key, how, Asker::Waiter);
                if answer != Answer::Wait || self.answers_back_off(key) {
                    self.answered(&mut session, reader, key, answer);
                    answers.push((reader, key, answer));
                    continue;
                }
                let is_held = self.is_held(key);
                session.guard.put_back(waiter, reader, is_held);
                self.keys[key].queue[place].is_held = is_held;
                if !is_held {
                    break;
                }
                from = ticket + 1;
            }
        }
        self.list(session, NOW);
        answers
    }

    /// The WAIT of a reader expires. Returns its answer.
    pub fn deadline(&mut self, reader: ReaderId, key: usize) -> Answer {
        let mut session = self.session(Passes::Deadline(reader));
        loop {
            match session.guard.take_event(SOON) {
                Some(TimerEvent::Deadline(waiter, ticket)) => {
                    assert_eq!(session.guard.take(waiter, ticket), Some(reader));
                    break;
                }
                Some(_) => {}
                None => panic!("nothing is due"),
            }
        }
        let how = self.keys[key].queue.iter().find(|waiting| waiting.reader == reader).unwrap().how;
        let answer = self.look(&mut session, reader, key, how, Asker::Waiter);
        let due: Vec<bool> = self.keys.iter().map(|slot| slot.is_due).collect();
        self.answered(&mut session, reader, key, answer);
        self.list(session, NOW);
        // These entries were removed above.
        for (slot, was_due) in self.keys.iter_mut().zip(due) {
            slot.is_due |= was_due && !slot.queue.is_empty();
        }
        answer
    }

    fn answered(&mut self, session: &mut Session, reader: ReaderId, key: usize, answer: Answer) {
        let stamp = answer.grants().then(|| session.stamps[usize::from(reader)]);
        assert!(session.guard.answered(reader.into(), stamp));
        session.guard.finish(reader.into(), false);
        self.keys[key].queue.retain(|waiting| waiting.reader != reader);
    }

    /// A client that waits disconnects.
    pub fn leave(&mut self, reader: ReaderId, key: usize) {
        let mut session = self.session(Passes::Nothing);
        session.guard.leave(reader.into()).unwrap();
        self.keys[key].queue.retain(|waiting| waiting.reader != reader);
        self.list(session, NOW);
    }
}

/// The instance of the filter to which a token or a NONE belongs. `None`: there was no filter.
pub type For = Option<u8>;

pub type Queue = Guard<ReaderId>;

/// A guard, and the stamps of the readers' tokens.
pub struct Session {
    pub guard: Queue,
    pub stamps: [Stamp; READERS],
}

/// The deadline that passes while a command runs.
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
const FOREVER: u64 = 100_000;
pub const MAX: usize = 8;

pub fn key_id(key: usize) -> KeyId {
    KeyId([key as u64, 1])
}

/// The time until which a fill is valid, from the period in which its lease was granted. The guard counts in units of 16 ms.
const fn fresh_end(period: u8) -> u64 {
    LATER + 16 * period as u64
}

/// The key of a filter, as its rows name it.
pub fn filter_of(name: Name) -> u64 {
    100 + name as u64
}

/// The item of the row, in the filter of this name.
pub fn item_of(name: Name) -> u64 {
    200 + name as u64
}

pub fn row(key: usize, of: For) -> Row {
    let (filter, item) = (filter_of(Name::Rows), item_of(Name::Rows));
    Row { key: key_id(key), filter, item, instance: of.unwrap_or(0).into() }
}

impl Server {
    /// Builds a guard with the contents that the state lists.
    pub fn session(&self, passes: Passes) -> Session {
        let mut session = Session { guard: Queue::default(), stamps: [0; READERS] };
        for reader in 0..READERS {
            session.hand_out(self.tokens[reader].filter(|token| !token.is_safe), reader);
        }
        session.guard.all_changed();
        let holders = self.keys.iter().filter_map(|slot| match slot.record {
            Some(Record::Lease(holder, _)) => holder.map(usize::from),
            _ => None,
        });
        let holders: Vec<usize> = holders.collect();
        for reader in (0..READERS).filter(|reader| !holders.contains(reader)) {
            session.hand_out(self.tokens[reader].filter(|token| token.is_safe), reader);
        }
        let mut keys: Vec<usize> = (0..self.keys.len()).collect();
        // Draining the timer queue must not drain the entries of keys that are due.
        keys.sort_by_key(|key| self.keys[*key].is_due);
        for key in keys {
            if self.keys[key].is_due {
                // For the same row, so that safe tokens stay safe.
                let is_its = |token: &&Token| usize::from(token.key) == key && token.is_safe;
                let of = self.tokens.iter().flatten().find(is_its).and_then(|token| token.of);
                let passing = session.guard.grant(row(key, of), (NOW, LATER), None, MAX);
                self.join(&mut session.guard, key, passes);
                session.guard.give_up(key_id(key), passing, NOW);
                self.note(&mut session, key, passes);
            } else {
                self.note(&mut session, key, passes);
                self.join(&mut session.guard, key, passes);
                while session.guard.take_event(NOW).is_some() {}
            }
        }
        session
    }

    fn note(&self, session: &mut Session, key: usize, passes: Passes) {
        let fresh = self.keys[key].fresh.map(fresh_end);
        let end = if passes == Passes::Record(key) { SOON } else { LATER };
        let times = (NOW, end);
        match self.keys[key].record {
            Some(Record::Lease(holder, of)) => {
                let stamp = session.guard.grant(row(key, of), times, fresh, MAX);
                if let Some(holder) = holder {
                    session.stamps[usize::from(holder)] = stamp;
                }
            }
            Some(Record::NoRow(of)) => {
                let is_of = |token: &Token| usize::from(token.key) == key && token.is_safe;
                assert!(!self.tokens.iter().flatten().any(is_of), "a NONE voids all tokens");
                // The time until which the value is valid.
                let end = fresh.filter(|_| end != SOON).unwrap_or(end);
                session.guard.note_no_row(row(key, of), (NOW, end), fresh, MAX);
            }
            Some(Record::Loaded(of)) => {
                let end = fresh.filter(|_| end != SOON).unwrap_or(end);
                session.guard.filled(row(key, of), NOW, Some(end), MAX);
            }
            Some(Record::BackOff) => session.guard.back_off(key_id(key), NOW, Some(times.1 - NOW), MAX),
            None => {}
        }
    }

    fn join(&self, guard: &mut Queue, key: usize, passes: Passes) {
        for Waiting { reader, is_held, .. } in self.keys[key].queue.iter().copied() {
            let deadline = if passes == Passes::Deadline(reader) { SOON } else { LATER };
            guard.join(&row(key, None), None, reader.into(), reader, is_held, (NOW, deadline)).unwrap();
        }
    }

    /// Lists the contents of a guard at a time. Removes its due entries.
    pub fn list(&mut self, session: Session, now: u64) {
        let Session { mut guard, stamps } = session;
        for (token, stamp) in self.tokens.iter_mut().zip(stamps) {
            if let Some(token) = token {
                token.is_safe = guard.is_safe(&row(token.key.into(), token.of), stamp);
            }
        }
        let is_waking = !self.lacks(Rule::Wake);
        for (key, slot) in self.keys.iter_mut().enumerate() {
            let record = guard.record(key_id(key), now);
            let is_loaded = |record: &GuardRecord| record.kind() == RecordKind::Loaded;
            let fresh_until =
                record.and_then(|record| record.fresh_until().or(is_loaded(&record).then(|| record.end())));
            slot.fresh = fresh_until.map(|until| ((until - LATER) / 16) as u8);
            slot.record = record.map(|record| {
                let of = Some(record.row.instance as u8).filter(|instance| *instance > 0);
                let has_it = |reader: &usize| self.tokens[*reader].is_some() && stamps[*reader] == record.stamp;
                match record.kind() {
                    RecordKind::Lease => Record::Lease((0..READERS).find(has_it).map(|reader| reader as ReaderId), of),
                    RecordKind::NoRow => Record::NoRow(of),
                    RecordKind::BackOff => Record::BackOff,
                    RecordKind::Loaded => Record::Loaded(of),
                    RecordKind::Token => panic!("it does not count"),
                }
            });
            slot.is_due = false;
        }
        while let Some(due) = guard.take_event(now) {
            let TimerEvent::Serve(id) = due else { panic!("{due:?}") };
            let slot = &mut self.keys[id.table_hash() as usize];
            slot.is_due = is_waking && !slot.queue.is_empty();
        }
    }
}

impl Session {
    /// Issues a token without a lease.
    fn hand_out(&mut self, token: Option<Token>, reader: usize) {
        if let Some(Token { key, of, .. }) = token {
            self.stamps[reader] = self.guard.grant(row(key.into(), of), (NOW, LATER), None, MAX);
            self.guard.give_up(key_id(key.into()), self.stamps[reader], NOW);
        }
    }
}
