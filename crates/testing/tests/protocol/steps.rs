//! What readers can do, what each step changes, and what a reader that is left alone learns.

use crate::rules::Rule;
use crate::server::{Answer, Fill, How, Name, ReaderId, Record};
use crate::world::{Action, Broken, Held, Phase, Reader, State, World};

impl World {
    pub fn reader_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (number, reader) in (0..).zip(&state.readers) {
            match reader.phase {
                // The server of the keys is another one.
                Phase::Idle if state.server.is_away => {}
                Phase::Idle => {
                    let asks = (0..self.keys).flat_map(|key| self.hows.iter().map(move |how| (key, *how)));
                    actions.extend(asks.map(|(key, how)| Action::Ask(number, key, how)));
                    if self.lacks(Rule::ReadAfterReply) {
                        actions.push(Action::BeginEarly(number));
                    }
                }
                Phase::Waiting(_) => actions.extend([Action::Vanish(number), Action::Deadline(number)]),
                Phase::Token(_) => {
                    actions.extend([Action::Load(number), Action::GiveUp(number), Action::Vanish(number)]);
                    if self.backs_off {
                        actions.push(Action::BackOff(number));
                    }
                }
                Phase::Loaded(Held { is_safe, .. }, _) => {
                    actions.extend([Action::Fill(number), Action::Vanish(number)]);
                    if is_safe {
                        actions.push(Action::FillAndKeep(number));
                    }
                }
            }
        }
    }

    pub fn step(&self, state: &mut State, action: Action) {
        match action {
            Action::BeginEarly(reader) => state.reader(reader).snapshot = Some(state.row.current),
            Action::Ask(reader, key, how) => match state.server.fetch(reader, key.into(), how) {
                Some(answer) => self.told(state, reader, key, answer),
                None => state.reader(reader).phase = Phase::Waiting(key),
            },
            Action::Load(reader) => {
                let current = state.row.current;
                let Reader { phase, snapshot } = state.reader(reader);
                let Phase::Token(held) = *phase else { panic!("{phase:?}") };
                *phase = Phase::Loaded(held, snapshot.take().unwrap_or(current));
            }
            Action::Fill(reader) | Action::FillAndKeep(reader) => {
                let Phase::Loaded(held, version) = state.reader(reader).phase else { panic!("no row is loaded") };
                let fill = if state.row.has(version) { Fill::Value(version) } else { Fill::None };
                self.fill(state, reader, held, fill);
                if matches!(action, Action::Fill(_)) {
                    state.forget(reader);
                }
            }
            Action::GiveUp(reader) | Action::BackOff(reader) => {
                let Phase::Token(held) = state.reader(reader).phase else { panic!("no token is held") };
                let fill = if matches!(action, Action::BackOff(_)) { Fill::BackOff } else { Fill::GiveUp };
                self.fill(state, reader, held, fill);
                state.forget(reader);
            }
            Action::Vanish(reader) => {
                if let Phase::Waiting(key) = state.reader(reader).phase {
                    state.server.leave(reader, key.into());
                }
                state.forget(reader);
            }
            Action::Deadline(reader) => {
                let Phase::Waiting(key) = state.reader(reader).phase else { panic!("it does not wait") };
                let answer = state.server.deadline(reader, key.into());
                self.told(state, reader, key, answer);
            }
            Action::Serve => {
                for (reader, key, answer) in state.server.serve() {
                    self.told(state, reader, key as u8, answer);
                }
            }
            Action::Write(writer) => self.write(state, writer),
            Action::Die(writer) => self.die(state, writer),
            Action::DelArrives => self.del_arrives(state),
            Action::ExpireRecord(key) => {
                state.end_lease(key);
                state.server.expire(key.into());
            }
            Action::ExpireValue(key) => state.server.keys[usize::from(key)].value = None,
            Action::Collide => {
                if state.server.exists(Name::Rows) {
                    state.server.collide(Name::Rows);
                } else {
                    self.reserve(state, Name::Rows);
                }
            }
            Action::Lose(is_new) => {
                state.losses -= 1;
                state.server.lose(if is_new { Name::Filling } else { Name::Rows });
                if !is_new {
                    state.void_all();
                }
            }
            Action::Restart => {
                state.restarts -= 1;
                state.server.restart();
                state.void_all();
            }
            Action::LeaveNode => {
                state.moves -= 1;
                state.server.leave_node();
                state.void_all();
            }
            Action::ComeBack => state.server.come_back(),
            Action::Refill => self.refill(state),
            Action::Announce | Action::TakeTime | Action::Beat | Action::ExpireBeat | Action::Tick => {
                self.follow(state, action);
            }
        }
    }

    /// A reader gets an answer.
    fn told(&self, state: &mut State, reader: ReaderId, key: u8, answer: Answer) {
        let row = state.row;
        let is_late = self.periods > 0 && row.is_present() && state.follower.period >= state.follower.committed + 2;
        let broken = match answer {
            Answer::Absent if !row.may_be_absent() => Some(Broken::WrongAbsent),
            Answer::Absent if is_late => Some(Broken::LateAbsent),
            Answer::Hit(version) | Answer::Stale(version) if version < row.floor => Some(Broken::OldValue),
            answer if answer.grants() && state.server.keys[usize::from(key)].backs_off => Some(Broken::EarlyToken),
            answer if answer.grants() && state.has_holder(key) => Some(Broken::TwoHolders),
            _ => None,
        };
        state.break_promise(broken);
        let asking = state.reader(reader);
        if answer.grants() {
            asking.phase = Phase::Token(Held { key, is_safe: true, has_lease: true });
        } else {
            (asking.phase, asking.snapshot) = (Phase::Idle, None);
        }
    }

    fn fill(&self, state: &mut State, reader: ReaderId, held: Held, fill: Fill) {
        let Held { key, is_safe, .. } = held;
        let is_accepted = state.server.fill(reader, key.into(), fill);
        let broken = match fill {
            Fill::GiveUp => None,
            _ if is_accepted && !is_safe => Some(Broken::StaleFill),
            _ if !is_accepted && is_safe => Some(Broken::LostFill),
            _ => None,
        };
        state.break_promise(broken);
        match fill {
            _ if !is_accepted => {}
            // Its own lease, and not one that another reader has got since.
            Fill::GiveUp => state.reader(reader).phase.held_mut().unwrap().has_lease = false,
            Fill::BackOff => state.end_lease(key),
            // Its token is used up. What another reader fills later is stored, or is not needed.
            Fill::Value(_) | Fill::None => state.void(key),
        }
        if is_accepted && fill == Fill::None && self.lacks(Rule::NeverDelOnMiss) {
            state.server.delete();
        }
    }

    /// Whether a reader gets the right answer if all others are dead and everything that can expire has expired.
    pub fn settles(&self, state: &State) -> bool {
        if state.was_answered_wrongly() {
            return true;
        }
        let mut state = state.clone();
        if state.server.is_away {
            state.server.come_back();
        }
        (0..self.readers).for_each(|reader| {
            if !matches!(state.reader(reader).phase, Phase::Waiting(_)) {
                state.forget(reader);
            }
        });
        // Another process takes over from the writer, and releases its write in flight.
        for key in 0..self.keys {
            if std::mem::take(&mut state.server.keys[usize::from(key)].is_open) {
                self.changed(&mut state, Name::Rows, key);
            }
        }
        state.server.heartbeat = state.server.heartbeat.map(|_| false);
        // A waiter that gets the lease dies, so its lease expires, until no client waits.
        for _ in 0..=self.readers {
            self.expire_all(&mut state);
            for (reader, _, _) in state.server.serve() {
                state.forget(reader);
            }
        }
        self.expire_all(&mut state);
        (0..self.keys).all(|key| self.learns_the_truth(&mut state.clone(), key))
    }

    fn expire_all(&self, state: &mut State) {
        for key in 0..usize::from(self.keys) {
            let slot = &mut state.server.keys[key];
            if !self.lacks(Rule::GiveTimeToLive) {
                slot.value = None;
            }
            if slot.record.is_some() {
                state.server.expire(key);
            }
        }
    }

    fn learns_the_truth(&self, state: &mut State, key: u8) -> bool {
        let current = state.row.current;
        let is_queue_empty = state.server.keys[usize::from(key)].queue.is_empty();
        is_queue_empty
            && match state.server.fetch(0, key.into(), How::Plain) {
                Some(Answer::Absent) => !state.row.is_present(),
                Some(Answer::Hit(version)) => version == current,
                Some(Answer::Load) => {
                    let fill = if state.row.is_present() { Fill::Value(current) } else { Fill::None };
                    state.server.fill(0, key.into(), fill)
                }
                _ => false,
            }
    }
}

impl State {
    pub fn reader(&mut self, number: ReaderId) -> &mut Reader {
        &mut self.readers[usize::from(number)]
    }

    /// A reader drops its token and begins again.
    fn forget(&mut self, reader: ReaderId) {
        self.server.forget(reader);
        *self.reader(reader) = Reader { phase: Phase::Idle, snapshot: None };
    }

    fn has_holder(&self, of: u8) -> bool {
        self.readers.iter().filter_map(|reader| reader.phase.held()).any(|held| held.key == of && held.has_lease)
    }

    fn each_held(&mut self, mut change: impl FnMut(&mut Held)) {
        self.readers.iter_mut().filter_map(|reader| reader.phase.held_mut()).for_each(&mut change);
    }

    /// The lease of a cache key has ended: another reader may load.
    pub fn end_lease(&mut self, of: u8) {
        self.each_held(|held| held.has_lease &= held.key != of);
    }

    /// Something has changed: the tokens of a cache key have to be refused from now on.
    pub fn void(&mut self, of: u8) {
        self.end_lease(of);
        self.each_held(|held| held.is_safe &= held.key != of);
    }

    /// [`void`](Self::void) for every cache key.
    pub fn void_all(&mut self) {
        (0..self.server.keys.len()).for_each(|key| self.void(key as u8));
    }

    /// Whether something besides its own WAIT will wake each waiter: it is about to be served, the lease will end, or the
    /// writer in flight will release the cache key.
    pub fn waiters_are_woken(&self) -> bool {
        self.server.keys.iter().all(|slot| {
            let has_lease = matches!(slot.record, Some(Record::Lease(..)));
            slot.is_due || has_lease || slot.queue.iter().all(|waiting| waiting.is_held && slot.is_open)
        })
    }
}
