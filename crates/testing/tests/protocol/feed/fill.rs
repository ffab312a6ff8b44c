//! A fill: a new filter is filled from a snapshot under a name of its own, and renamed. In eventual mode the stream is held
//! meanwhile, in synchronous mode it goes on.

use super::follower::Follower;
use super::rules::Rule;
use super::world::{State, World};
use crate::server::{Name, Version};

/// The next step of a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Deletes the heartbeat, and creates the new filter.
    Begin,
    /// Reads the table, once these transactions are visible.
    Snapshot {
        running: Version,
    },
    /// Adds the batch that has the row if the snapshot has it.
    Add(bool),
    /// Adds another batch.
    AddOthers,
    Rename,
    /// Deletes the cached values.
    Scan,
    /// Stores the position.
    Finish,
}

impl World {
    pub fn may_fill(&self, state: &State, follower: &Follower) -> bool {
        match follower.fill {
            Some(Step::Snapshot { running }) => {
                let is_visible = state.database.visible >= running || self.lacks(Rule::AwaitRunning);
                let has_passed = follower.groups.first().is_none_or(|group| *group > running);
                is_visible && (has_passed || self.lacks(Rule::PassFirst))
            }
            step => step.is_some(),
        }
    }

    /// Takes the next step of a fill. Returns whether the follower goes on.
    pub fn fill(&self, state: &mut State, follower: &mut Follower, step: Step) -> bool {
        let is_guarded = matches!(step, Step::Begin | Step::Rename | Step::Finish);
        if is_guarded && !self.may_write(state, follower) {
            return false;
        }
        let store = &mut state.store;
        follower.fill = Some(match step {
            Step::Begin => {
                if !self.lacks(Rule::DeleteBeat) && !follower.renews {
                    store.beat = None;
                }
                if !self.lacks(Rule::MarkFill) && !follower.renews {
                    if self.is_synchronous() {
                        store.is_filling = true;
                    } else {
                        store.position = None;
                    }
                }
                store.put_empty(Name::Filling);
                Step::Snapshot { running: state.database.logged }
            }
            Step::Snapshot { .. } => Step::Add(self.has(state.database.visible)),
            Step::Add(_) | Step::AddOthers => {
                if follower.life != store.life && !self.lacks(Rule::NoRedirect) {
                    return false;
                }
                follower.life = store.life;
                // BF.MADD creates a filter that is missing.
                if !store.server.exists(Name::Filling) {
                    store.put_empty(Name::Filling);
                }
                if step == Step::Add(true) {
                    store.server.add(Name::Filling);
                }
                match step {
                    Step::Add(_) => Step::AddOthers,
                    _ if self.lacks(Rule::RenameFirst) => Step::Scan,
                    _ => Step::Rename,
                }
            }
            Step::Rename => {
                if !store.server.exists(Name::Filling) {
                    return false;
                }
                store.rename();
                if std::mem::take(&mut follower.renews) {
                    follower.fill = None;
                    return true;
                }
                if self.lacks(Rule::RenameFirst) {
                    return self.finish(state, follower);
                }
                Step::Scan
            }
            Step::Scan => {
                if !self.lacks(Rule::ScanOnFill) {
                    store.server.keys[0].value = None;
                }
                if self.lacks(Rule::RenameFirst) { Step::Rename } else { Step::Finish }
            }
            Step::Finish => return self.finish(state, follower),
        });
        true
    }

    fn finish(&self, state: &mut State, follower: &mut Follower) -> bool {
        state.store.is_filling = false;
        state.store.position = Some(follower.done);
        follower.fill = None;
        true
    }
}
