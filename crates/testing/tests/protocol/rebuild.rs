//! The module's guard, rebuilt from what a state of the model lists, and listed again. Times and stamps are numbers: every record
//! ends `LATER`, except the one whose end passes, and of a token the state lists only whether it is safe.

use crate::guard::alarm::Due;
use crate::guard::changes::Stamp;
use crate::guard::ids::{KeyId, Row};
use crate::guard::records::Known;
use crate::guard::state::Guard;
use crate::rules::Rule;
use crate::server::{Name, READERS, ReaderId, Record, Server, Token, Waiting};

/// The filter that a token or a NONE is for, by its instance. `None`: there was no filter.
pub type For = Option<u8>;

pub type Queue = Guard<ReaderId>;

/// A guard, and the stamps of the readers' tokens.
pub struct Session {
    pub guard: Queue,
    pub stamps: [Stamp; READERS],
}

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

pub fn key_id(key: usize) -> KeyId {
    KeyId([key as u64, 1])
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
    /// A guard that holds what the state lists.
    pub fn session(&self, passes: Passes) -> Session {
        let mut session = Session { guard: Queue::small(), stamps: [0; READERS] };
        // A guard remembers changes from its first token on.
        session.hand_out(Some(Token { key: 0, of: None, is_safe: false }), 0);
        session.stamps[0] = 0;
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
        // Draining the alarm must not drain the entries of keys that are due.
        keys.sort_by_key(|key| self.keys[*key].is_due);
        for key in keys {
            if self.keys[key].is_due {
                let passing = session.guard.grant(row(key, None), (NOW, LATER), MAX);
                self.join(&mut session.guard, key, passes);
                session.guard.give_up(key_id(key), passing, NOW);
                self.note(&mut session, key, passes);
            } else {
                self.note(&mut session, key, passes);
                self.join(&mut session.guard, key, passes);
                while session.guard.take_due(NOW).is_some() {}
            }
        }
        session
    }

    fn note(&self, session: &mut Session, key: usize, passes: Passes) {
        let times = (NOW, if passes == Passes::Record(key) { SOON } else { LATER });
        match self.keys[key].record {
            Some(Record::Lease(holder, of)) => {
                let stamp = session.guard.grant(row(key, of), times, MAX);
                if let Some(holder) = holder {
                    session.stamps[usize::from(holder)] = stamp;
                }
            }
            Some(Record::NoRow(of)) => {
                let is_of = |token: &Token| usize::from(token.key) == key && token.is_safe;
                assert!(!self.tokens.iter().flatten().any(is_of), "a NONE voids all tokens");
                session.guard.note_no_row(row(key, of), times, MAX);
            }
            Some(Record::BackOff) => session.guard.back_off(key_id(key), times, MAX),
            None => {}
        }
    }

    fn join(&self, guard: &mut Queue, key: usize, passes: Passes) {
        for Waiting { reader, is_held } in self.keys[key].queue.iter().copied() {
            let deadline = if passes == Passes::Deadline(reader) { SOON } else { LATER };
            guard.join(&row(key, None), reader.into(), reader, is_held, (NOW, deadline)).unwrap();
        }
    }

    /// Lists what a guard holds at a time. Takes its due entries out.
    pub fn list(&mut self, session: Session, now: u64) {
        let Session { mut guard, stamps } = session;
        for (token, stamp) in self.tokens.iter_mut().zip(stamps) {
            if let Some(token) = token {
                token.is_safe = guard.is_safe(&row(token.key.into(), token.of), stamp);
            }
        }
        let is_waking = !self.lacks(Rule::Wake);
        for (key, slot) in self.keys.iter_mut().enumerate() {
            slot.record = guard.record(key_id(key), now).map(|record| {
                let of = Some(record.row.instance as u8).filter(|instance| *instance > 0);
                let has_it = |reader: &usize| self.tokens[*reader].is_some() && stamps[*reader] == record.stamp;
                match record.known() {
                    Known::Lease => Record::Lease((0..READERS).find(has_it).map(|reader| reader as ReaderId), of),
                    Known::NoRow => Record::NoRow(of),
                    Known::BackOff => Record::BackOff,
                }
            });
            slot.is_due = false;
        }
        while let Some(due) = guard.take_due(now) {
            let Due::Serve(id) = due else { panic!("{due:?}") };
            let slot = &mut self.keys[id.value() as usize];
            slot.is_due = is_waking && !slot.queue.is_empty();
        }
    }
}

impl Session {
    /// Hands a token out, without a lease.
    fn hand_out(&mut self, token: Option<Token>, reader: usize) {
        if let Some(Token { key, of, .. }) = token {
            self.stamps[reader] = self.guard.grant(row(key.into(), of), (NOW, LATER), MAX);
            self.guard.give_up(key_id(key.into()), self.stamps[reader], NOW);
        }
    }
}
