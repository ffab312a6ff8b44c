//! How a follower starts: it takes the slot, raises the epoch, and compares the stored position with the slot's.

use super::fill::Step as Filling;
use super::follower::{Follower, Move};
use super::rules::Rule;
use super::world::{State, Who, World};

impl World {
    /// A follower takes the slot, which it creates if it is missing.
    pub fn start(&self, state: &mut State) {
        state.starts -= 1;
        // Transactions whose commit record comes before the slot's position may be invisible still.
        state.database.confirmed.get_or_insert(state.database.logged);
        self.replace(state, Some(Follower::default()));
    }

    /// The stream of the active follower ends. It has received at most what was in the log.
    pub fn replace(&self, state: &mut State, new: Option<Follower>) {
        let old = std::mem::replace(&mut state.followers[Who::Active as usize], new);
        if let Some(mut old) = old.filter(|_| self.has_zombies) {
            old.received = Some(state.database.logged);
            state.followers[Who::Zombie as usize] = Some(old);
        }
    }

    /// The next step of a follower that has not started to follow.
    pub fn starting_move(&self, follower: &Follower) -> Option<Move> {
        match (follower.epoch, follower.is_checked) {
            (None, false) if self.lacks(Rule::EpochFirst) => Some(Move::Check),
            (None, _) => Some(Move::Raise),
            (Some(_), false) => Some(Move::Check),
            (Some(_), true) => None,
        }
    }

    pub fn raise(state: &mut State, follower: &mut Follower) {
        state.store.epoch += 1;
        (follower.epoch, follower.life) = (Some(state.store.epoch), state.store.life);
    }

    /// Reads the position. Fills the filter if the server lacks something that was confirmed.
    pub fn check(&self, state: &State, follower: &mut Follower) {
        let (store, confirmed) = (&state.store, state.database.confirmed.unwrap());
        let is_behind = store.position < Some(confirmed) && !self.lacks(Rule::CompareWithSlot);
        let needs_fill = !store.has_filter() || store.position.is_none() || is_behind || store.is_filling;
        follower.is_checked = true;
        // In eventual mode the stream is held at the confirmed position during a fill.
        let skips = !self.lacks(Rule::SkipStored) && (self.is_synchronous() || !needs_fill);
        follower.done = if skips { store.position.unwrap_or(0).max(confirmed) } else { confirmed };
        if self.is_synchronous() && !self.lacks(Rule::ReadJournal) {
            let mut groups: Vec<_> = store.open.map(|open| open.version).into_iter().chain(store.all_open).collect();
            groups.sort_unstable();
            groups.dedup();
            follower.groups = groups;
        }
        follower.fill = needs_fill.then_some(Filling::Begin);
    }
}
