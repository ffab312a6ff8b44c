//! What readers are told, the promises about that, and the events that have to be reachable: a promise means nothing in a model
//! in which nothing happens.

use stateright::{Model, Property};

use super::follower::Follower;
use super::rules::Rule;
use super::world::{Broken, Reader, State, Who, World};
use crate::server::{Answer, Fill, How, Name, ReaderId, Record, Version};

impl World {
    pub fn ask(&self, state: &mut State, reader: ReaderId) {
        let store = &mut state.store;
        store.server.keys[0].is_open = store.is_held();
        store.server.heartbeat = Some(store.beat.is_some());
        let answer = store.server.fetch(reader, 0, How::Plain).unwrap();
        // Both are derived from other fields, so they need no place in the state.
        (store.server.keys[0].is_open, store.server.heartbeat) = (false, Some(false));
        let (returned, visible) = (state.database.returned, state.database.visible);
        let denies_wrongly = |since: Version| (since..=visible).all(|version| self.has(version));
        let is_promised = self.is_synchronous() && state.is_whole;
        state.broken = match answer {
            Answer::Absent if is_promised && denies_wrongly(returned) => Some(Broken::WrongAbsent),
            Answer::Absent if denies_wrongly(state.store.beat.unwrap_or(returned)) => Some(Broken::LateAbsent),
            Answer::Hit(version) if is_promised && version < self.version_of_row(returned) => Some(Broken::OldValue),
            _ => None,
        };
        if answer.grants() {
            state.readers[usize::from(reader)] = Reader::Token;
        }
    }

    /// BF.FILL by a reader, which is done then, whether or not the server accepts it.
    pub fn fill_value(&self, state: &mut State, reader: ReaderId) {
        let Reader::Loaded(version) = state.readers[usize::from(reader)] else { panic!("no row is loaded") };
        let fill = if self.has(version) { Fill::Value(version) } else { Fill::None };
        state.store.server.fill(reader, 0, fill);
        state.store.server.forget(reader);
        state.readers[usize::from(reader)] = Reader::Idle;
    }

    /// Whether the follower has applied everything, and nothing is left to do.
    fn is_settled(&self, state: &State) -> bool {
        let Some(active) = &state.followers[Who::Active as usize] else { return false };
        let logged = state.database.logged;
        state.database.visible == logged && active.is_idle() && active.done == logged && self.may_write(state, active)
    }

    /// Whether the filter and the cached value are right once the follower has nothing left to do. Every fill that is still
    /// possible is taken for one that happens.
    fn has_converged(&self, state: &State) -> bool {
        if !self.is_settled(state) || state.broken.is_some() {
            return true;
        }
        let visible = self.version_of_row(state.database.visible);
        let is_right = |state: &State| {
            let slot = &state.store.server.keys[0];
            let is_none = matches!(slot.record, Some(Record::NoRow(_)));
            slot.value.is_none_or(|version| version == visible) && !(is_none && self.has(visible))
        };
        let may_deny = state.store.server.may_have(Name::Rows) == Some(false);
        let fills_rightly = |(reader, phase): (ReaderId, &Reader)| {
            let mut next = state.clone();
            if matches!(phase, Reader::Loaded(_)) {
                self.fill_value(&mut next, reader);
            }
            is_right(&next)
        };
        let is_held = state.store.is_held();
        is_right(state) && !(may_deny && self.has(visible)) && !is_held && (0..).zip(&state.readers).all(fills_rightly)
    }

    pub fn promises(&self) -> Vec<Property<Self>> {
        let mut promises = vec![
            Property::always(NO_WRONG_ABSENT, |_: &Self, state: &State| state.broken != Some(Broken::WrongAbsent)),
            Property::always(NO_OLD_VALUE, |_: &Self, state: &State| state.broken != Some(Broken::OldValue)),
            Property::always(NO_LATE_ABSENT, |_: &Self, state: &State| state.broken != Some(Broken::LateAbsent)),
            Property::always(CONVERGES, Self::has_converged),
            Property::sometimes("a value is cached", |_: &Self, state: &State| {
                state.store.server.keys[0].value > Some(0)
            }),
            Property::sometimes("the follower has applied all transactions", |world: &Self, state: &State| {
                usize::from(state.database.returned) == world.script.len() && world.is_settled(state)
            }),
        ];
        let lacks_row = |version| !self.has(version);
        if (0..=self.script.len() as Version).any(lacks_row) {
            promises.push(Property::sometimes("`absent` is answered", |_: &Self, state: &State| {
                let has_item = state.store.server.may_have(Name::Rows);
                has_item == Some(false) && state.store.beat.is_some() && !state.store.is_held()
            }));
        }
        if self.is_synchronous() {
            promises.push(Property::sometimes("a started follower finds a journal", |_: &Self, state: &State| {
                state.followers[0].as_ref().is_some_and(|active| active.epoch.is_none()) && state.store.is_held()
            }));
        }
        if self.has_zombies {
            promises.push(Property::sometimes(
                "a follower that was replaced is about to write",
                |world: &Self, state: &State| {
                    let zombie = state.followers[Who::Zombie as usize].as_ref();
                    zombie.is_some_and(|zombie| zombie.is_checked && !world.may_write(state, zombie))
                },
            ));
        }
        if !self.runs || self.losses > 0 || self.drops > 0 {
            promises.push(Property::sometimes("readers trust a filter after a fill", |world: &Self, state: &State| {
                let is_new = !world.runs || state.losses < world.losses || state.drops < world.drops;
                is_new && state.is_whole && state.store.has_filter() && state.store.beat > Some(0)
            }));
        }
        promises
    }

    /// The promises that have to hold in every state.
    pub fn is_promise(name: &str) -> bool {
        [NO_WRONG_ABSENT, NO_OLD_VALUE, NO_LATE_ABSENT, CONVERGES].contains(&name)
    }

    /// What had to be reached and was not.
    pub fn unreached(&self, reached: impl Fn(&str) -> bool) -> Vec<&'static str> {
        let names = self.properties().into_iter().map(|property| property.name);
        names.filter(|name| !Self::is_promise(name) && !reached(name)).collect()
    }

    /// Whether the server executes a transaction of this follower.
    pub fn may_write(&self, state: &State, follower: &Follower) -> bool {
        let has_epoch = follower.epoch == Some(state.store.epoch) || self.lacks(Rule::CheckEpoch);
        has_epoch && (follower.life == state.store.life || self.lacks(Rule::NoticeLoss))
    }
}

pub const NO_WRONG_ABSENT: &str = "synchronous: a reader is never told `absent` for a row whose COMMIT had returned";
pub const NO_OLD_VALUE: &str = "synchronous: a reader never gets a value older than the last COMMIT that had returned";
pub const NO_LATE_ABSENT: &str =
    "`absent` is never answered for a row whose COMMIT had returned before the heartbeat's time";
pub const CONVERGES: &str =
    "once everything is applied, the filter and the cached value are right, and no cache key is held";
