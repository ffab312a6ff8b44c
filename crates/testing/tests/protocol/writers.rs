//! Writers: the steps of inserts, updates and deletes, in the order in which each scenario has them.

use crate::server::Name;
use crate::world::Rule;
use crate::world::{Action, State, World};

/// A step of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Checks whether a filter is being filled.
    Look,
    /// Its transaction begins, and makes its first write.
    Begin,
    Lock,
    Unlock,
    /// BF.CHANGED of a cache key; to the name `Filling` only if the writer knows of the refill.
    Changed(Name, u8),
    /// BF.CHANGED of another item with a cache key.
    ChangedValue(u8),
    /// BF.ADD.
    Add,
    /// SET of the cache key to the version that the writer has committed.
    Set(u8),
    Insert,
    Update,
    Delete,
    /// BF.DEL is sent.
    SendDel,
    /// BF.DEL is answered.
    AwaitDel,
    /// The cache key enters the hash for UNLESS; with BF.CHANGED in the same transaction, if true.
    Open(bool),
    /// Removes the cache key from the hash; if true, with BF.CHANGED; if the second is true, with BF.DEL in the same transaction.
    Release(bool, bool),
    /// The writer has finished: from now on, readers must not get an older answer. Takes no time.
    Finished,
}

/// The steps of a writer.
pub type Program = Vec<Step>;

/// A writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Writer {
    /// The number of finished steps.
    pub done: u8,
    pub is_dead: bool,
    /// Whether its transaction has begun and not ended.
    is_inside: bool,
    /// Whether it knows that a filter is being filled.
    knows: bool,
    /// Whether a refill waits for the end of its transaction.
    is_awaited: bool,
    /// The version that it has committed.
    pub version: u8,
}

impl World {
    pub fn writer_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (number, program) in (0..).zip(&self.programs) {
            let writer = state.writers[usize::from(number)];
            let Some(step) = program.get(usize::from(writer.done)).filter(|_| !writer.is_dead) else { continue };
            let may_go_on = match step {
                Step::Lock => state.lock.is_none(),
                Step::AwaitDel => !state.del_is_sent,
                _ => true,
            };
            if may_go_on {
                actions.push(Action::Write(number));
            }
            if writer.done > 0 {
                actions.push(Action::Die(number));
            }
        }
        if state.del_is_sent {
            actions.push(Action::DelArrives);
        }
    }

    pub fn write(&self, state: &mut State, number: u8) {
        let program = &self.programs[usize::from(number)];
        let place = usize::from(state.writers[usize::from(number)].done);
        state.writers[usize::from(number)].done += 1;
        self.do_step(state, number, program[place]);
        self.skip(state, number);
    }

    /// Skips steps that take no time.
    fn skip(&self, state: &mut State, number: u8) {
        let program = &self.programs[usize::from(number)];
        loop {
            let writer = &mut state.writers[usize::from(number)];
            match program.get(usize::from(writer.done)) {
                Some(Step::Finished) if !writer.is_dead => state.row.floor = state.row.floor.max(writer.version),
                Some(Step::Changed(Name::Filling, _)) if !writer.knows => {}
                _ => break,
            }
            writer.done += 1;
        }
    }

    fn do_step(&self, state: &mut State, number: u8, step: Step) {
        match step {
            Step::Look => state.writers[usize::from(number)].knows = state.refill.is_announced(),
            Step::Begin => {
                state.writers[usize::from(number)].is_inside = true;
                if !self.lacks(Rule::LookInside) {
                    state.writers[usize::from(number)].knows = state.refill.is_announced();
                }
            }
            Step::Lock => state.lock = Some(number),
            Step::Unlock => state.lock = None,
            Step::Changed(name, key) => self.changed(state, name, key),
            Step::Add => {
                state.server.add(Name::Rows);
                state.void_all();
            }
            Step::ChangedValue(key) => {
                state.server.changed_value(key.into());
                state.void(key);
            }
            Step::Set(key) => {
                let version = state.writers[usize::from(number)].version;
                state.server.set(key.into(), version);
                state.void(key);
            }
            Step::Insert => self.commit(state, number, false, true),
            Step::Update => self.commit(state, number, true, true),
            Step::Delete => self.commit(state, number, true, false),
            Step::SendDel => state.del_is_sent = true,
            Step::AwaitDel => {}
            Step::Open(is_announced) => {
                state.server.keys[0].is_open = true;
                if is_announced {
                    self.changed(state, Name::Rows, 0);
                }
            }
            Step::Release(is_announced, deletes) => {
                state.server.keys[0].is_open = false;
                if is_announced {
                    self.changed(state, Name::Rows, 0);
                }
                if deletes {
                    state.server.delete();
                }
            }
            Step::Finished => unreachable!("it is skipped"),
        }
    }

    pub fn changed(&self, state: &mut State, name: Name, key: u8) {
        state.server.changed(name, key.into());
        state.void(key);
        if name == Name::Rows {
            state.void_all();
        }
    }

    /// Commits an update or a delete if the row exists, and an insert if it does not. Otherwise the writer rolls back.
    fn commit(&self, state: &mut State, number: u8, needs_row: bool, leaves_row: bool) {
        let writer = &mut state.writers[usize::from(number)];
        (writer.is_inside, writer.is_awaited) = (false, false);
        if state.row.is_present() != needs_row {
            return self.die(state, number);
        }
        state.row.commit(leaves_row);
        writer.version = state.row.current;
        if self.periods > 0 {
            state.follower.committed[usize::from(state.row.current)] = state.follower.period;
        }
    }

    pub fn die(&self, state: &mut State, number: u8) {
        let writer = &mut state.writers[usize::from(number)];
        writer.is_dead = true;
        (writer.is_inside, writer.is_awaited) = (false, false);
        // Another client first kills the dead client's connection, then releases its lock: see `del_arrives`.
        let is_kept = state.del_is_sent && !self.lacks(Rule::OutliveHolder);
        if state.lock == Some(number) && !is_kept {
            state.lock = None;
        }
    }

    /// A sent BF.DEL arrives, unless its connection was killed before.
    pub fn del_arrives(&self, state: &mut State) {
        state.del_is_sent = false;
        state.server.delete();
        if state.lock.is_some_and(|holder| state.writers[usize::from(holder)].is_dead) {
            state.lock = None;
        }
    }

    /// A refill waits from now on for every transaction that is open.
    pub fn await_others(&self, state: &mut State) {
        for writer in &mut state.writers {
            writer.is_awaited = writer.is_inside && !(writer.knows && self.lacks(Rule::AwaitAllAgain));
        }
    }

    /// Whether a refill waits for an open transaction.
    pub fn has_awaited(state: &State) -> bool {
        state.writers.iter().any(|writer| writer.is_awaited)
    }
}
