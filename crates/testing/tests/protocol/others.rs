//! What happens besides readers and writers: time passes, filters are lost and filled again, a follower announces commits and
//! keeps a heartbeat.

use crate::rules::Rule;
use crate::server::Name;
use crate::world::{Action, Refill, State, World};

impl World {
    pub fn other_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (key, slot) in (0..).zip(&state.server.keys) {
            if slot.record.is_some() {
                actions.push(Action::ExpireRecord(key));
            }
            if slot.value.is_some() && !self.lacks(Rule::GiveTimeToLive) {
                actions.push(Action::ExpireValue(key));
            }
        }
        if state.server.keys.iter().any(|slot| slot.is_due) {
            actions.push(Action::Serve);
        }
        let missing = !state.server.exists(Name::Rows);
        if self.collides && (state.server.may_collide() || missing && self.lacks(Rule::NoAutoCreate)) {
            actions.push(Action::Collide);
        }
        if state.losses > 0 {
            let names = [(false, Name::Rows), (true, Name::Filling)];
            let present = names.into_iter().filter(|(_, name)| state.server.exists(*name));
            actions.extend(present.map(|(is_new, _)| Action::Lose(is_new)));
        }
        if state.restarts > 0 {
            actions.push(Action::Restart);
        }
        if state.server.is_away {
            actions.push(Action::ComeBack);
        } else if state.moves > 0 {
            actions.push(Action::LeaveNode);
        }
        if self.may_refill(state) {
            actions.push(Action::Refill);
        }
        self.follower_actions(state, actions);
    }

    fn may_refill(&self, state: &State) -> bool {
        let waits = state.refill == Refill::Told && World::has_awaited(state) && !self.lacks(Rule::AwaitOthers);
        self.refills && state.refill != Refill::Done && !waits
    }

    fn follower_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let follower = state.follower;
        if self.periods == 0 {
            return;
        }
        if follower.announced < state.row.current {
            actions.push(Action::Announce);
        }
        if follower.taken.is_none() {
            actions.push(Action::TakeTime);
        } else if follower
            .taken
            .is_some_and(|(_, version)| follower.announced >= version || self.lacks(Rule::CatchUpFirst))
        {
            actions.push(Action::Beat);
        }
        if state.server.heartbeat == Some(true) && !self.lacks(Rule::HeartbeatExpires) {
            actions.push(Action::ExpireBeat);
        }
        if follower.period < self.periods {
            actions.push(Action::Tick);
        }
    }

    pub fn refill(&self, state: &mut State) {
        let name = if self.lacks(Rule::FillApart) { Name::Rows } else { Name::Filling };
        state.refill = match state.refill {
            Refill::Off => {
                self.reserve(state, name);
                Refill::Created
            }
            Refill::Created => {
                self.await_others(state);
                Refill::Told
            }
            Refill::Told => Refill::Scanned(state.row.is_present()),
            // With NOCREATE the error `not found` makes it begin again.
            Refill::Scanned(_) | Refill::Added if !state.server.exists(name) && !self.lacks(Rule::NoCreate) => {
                Refill::Off
            }
            Refill::Scanned(has_row) => {
                if !state.server.exists(name) {
                    self.reserve(state, name);
                }
                if has_row {
                    state.server.add(name);
                }
                Refill::Added
            }
            Refill::Added => {
                if !state.server.exists(name) {
                    self.reserve(state, name);
                }
                Refill::Complete
            }
            Refill::Complete if name == Name::Rows => Refill::Renamed,
            Refill::Complete if !state.server.exists(name) => Refill::Off,
            Refill::Complete => {
                state.server.rename();
                state.void_all();
                Refill::Renamed
            }
            Refill::Renamed | Refill::Done => Refill::Done,
        };
    }

    pub fn reserve(&self, state: &mut State, name: Name) {
        state.server.reserve(name);
        if name == Name::Rows {
            state.void_all();
        }
    }

    pub fn follow(&self, state: &mut State, action: Action) {
        match action {
            Action::Announce => {
                self.changed(state, Name::Rows, 0);
                state.follower.announced = state.row.current;
                state.row.floor = state.row.current;
            }
            Action::TakeTime => state.follower.taken = Some((state.follower.period, state.row.current)),
            Action::Beat => {
                let taken = state.follower.taken.take().unwrap().0;
                let from = if self.lacks(Rule::TakeTimeFirst) { state.follower.period } else { taken };
                // Its end may have passed already.
                if state.follower.period < from + 2 {
                    (state.follower.beat, state.server.heartbeat) = (from, Some(true));
                }
            }
            Action::ExpireBeat => state.server.heartbeat = Some(false),
            _ => {
                state.follower.period += 1;
                let ends = state.follower.period >= state.follower.beat + 2 && !self.lacks(Rule::HeartbeatExpires);
                if ends {
                    state.server.heartbeat = Some(false);
                }
            }
        }
    }
}
