//! The actions of a follower: its start, when it acquires the slot, raises the epoch, and compares the stored position with the slot's;
//! groups of transactions, in eventual and in synchronous mode; TRUNCATE; the heartbeat; and a fill.
//!
//! A fill adds a snapshot's rows to a new filter under a separate name, and renames it. Meanwhile the stream is paused in eventual mode,
//! and continues in synchronous mode.

use super::world::{Database, Op, Open, Rule, State, Who, World};
use crate::server::{Name, Version};

/// The step that a follower has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Step {
    #[default]
    None,
    /// The cached values are deleted next, for a TRUNCATE in the group that ends here.
    Scan(Version),
    /// The group that ends here is applied or released next.
    Apply(Version),
}

/// A transaction of the server is executed. The follower does nothing else before the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Executed {
    /// The changes of a group, whose position is stored next. True if the server has refused the item.
    Group(Version, bool),
    /// The changes of the first group when it is released. Its cache keys are closed next.
    Release(bool),
}

/// A follower.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Follower {
    pub epoch: Option<u8>,
    /// The life of the server to which it is connected, as of its connection.
    pub life: u8,
    /// Whether it has compared its position with the slot's.
    pub is_checked: bool,
    /// The last transaction that it has received. `None`: it has a stream, and may receive everything.
    pub received: Option<Version>,
    /// The last transaction that is applied, or has completed (a).
    pub done: Version,
    /// Groups that wait for (c), by their last transactions.
    pub groups: Vec<Version>,
    pub step: Step,
    pub executed: Option<Executed>,
    pub fill: Option<Filling>,
    /// The fill replaces a complete filter.
    pub renews: bool,
    /// For the heartbeat: the last transaction whose COMMIT had returned when the time was read, and the end of the log.
    pub time: Option<Version>,
    pub log_end: Option<Version>,
}

impl Follower {
    /// Whether it has no unfinished work.
    pub fn is_idle(&self) -> bool {
        self.is_checked
            && self.epoch.is_some()
            && self.step == Step::None
            && self.executed.is_none()
            && self.fill.is_none()
            && self.groups.is_empty()
    }
}

/// A step of a follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Move {
    Raise,
    Check,
    /// Eventual mode: begins with the transactions up to this one.
    Begin(Version),
    /// Deletes the cached values after a TRUNCATE.
    Scan,
    /// Eventual mode: applies the changes.
    Apply,
    /// (a) for the transactions up to this one.
    Announce(Version),
    /// (b)
    Confirm(Version),
    /// (c) for the first group.
    Release,
    /// Like `Apply`, `Announce` or `Release`, but the server refuses the item.
    Refuse(Refusable),
    /// Learns that an item was refused.
    Learn,
    /// Stores the position of a group whose changes are executed.
    Store,
    /// Releases the cache keys of a group whose changes are executed.
    Close,
    Fill(Filling),
    /// Begins to replace a complete filter.
    Renew,
    TakeTime,
    ReadLog,
    Beat,
}

/// A step with items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusable {
    Apply,
    Announce(Version),
    Release,
}

impl World {
    /// Lists the possible steps of a follower.
    pub fn moves(&self, state: &State, who: Who, mut add: impl FnMut(Move)) {
        let Some(follower) = &state.followers[who as usize] else { return };
        if let Some(first) = self.starting_move(follower) {
            return add(first);
        }
        match follower.executed {
            Some(Executed::Group(_, true) | Executed::Release(true)) => return add(Move::Learn),
            Some(Executed::Group(..)) => return add(Move::Store),
            Some(Executed::Release(_)) => return add(Move::Close),
            None => {}
        }
        let mut add = |a_move| {
            add(a_move);
            if state.refusals > 0 && state.store.has_filter() {
                match a_move {
                    Move::Apply => add(Move::Refuse(Refusable::Apply)),
                    Move::Announce(to) => add(Move::Refuse(Refusable::Announce(to))),
                    Move::Release => add(Move::Refuse(Refusable::Release)),
                    _ => {}
                }
            }
        };
        let database = &state.database;
        let received = follower.received.unwrap_or(database.logged);
        if let Some(step) = follower.fill.filter(|_| self.may_fill(state, follower)) {
            add(Move::Fill(step));
        }
        let is_busy = (follower.step != Step::None || follower.fill.is_some()) && !self.is_synchronous();
        if state.renewals > 0 && follower.fill.is_none() && follower.groups.is_empty() {
            add(Move::Renew);
        }
        let is_unmarked = follower.fill == Some(Filling::Begin) && !follower.renews && !self.lacks(Rule::MarkFirst);
        if self.is_synchronous() && !is_unmarked {
            (follower.done + 1..=received).for_each(|to| add(Move::Announce(to)));
        }
        match follower.step {
            Step::Scan(_) => add(Move::Scan),
            Step::Apply(_) => add(if self.is_synchronous() { Move::Release } else { Move::Apply }),
            Step::None if is_busy => {}
            Step::None if self.is_synchronous() => {
                if let Some(first) = follower.groups.first()
                    && (*first <= database.visible || self.lacks(Rule::ReleaseWhenVisible))
                {
                    add(Move::Release);
                }
            }
            Step::None => {
                let to = if self.lacks(Rule::ApplyWhenVisible) { received } else { received.min(database.visible) };
                (follower.done + 1..=to).for_each(|to| add(Move::Begin(to)));
            }
        }
        let to = if self.lacks(Rule::StoreBeforeConfirm) { received } else { follower.done };
        if self.has_slot && database.confirmed < Some(to) && who == Who::Active && !is_busy {
            add(Move::Confirm(to));
        }
        // A beat with the same promise would have no effect.
        let is_beating = follower.time.is_some() || follower.log_end.is_some();
        let may_beat = is_beating || state.store.beat < Some(database.returned) && who == Who::Active;
        if self.beats && !is_busy && may_beat {
            self.beat_moves(follower, add);
        }
    }

    fn beat_moves(&self, follower: &Follower, mut add: impl FnMut(Move)) {
        match (follower.time, follower.log_end) {
            (None, None) => add(if self.lacks(Rule::TimeFirst) { Move::ReadLog } else { Move::TakeTime }),
            (None, Some(_)) => add(Move::TakeTime),
            (Some(_), None) => add(Move::ReadLog),
            (Some(_), Some(end)) => {
                let has_passed = follower.done >= end && follower.groups.iter().all(|group| *group > end);
                let is_complete = follower.fill.is_none() || follower.renews;
                if (has_passed || self.lacks(Rule::CatchUpFirst)) && is_complete {
                    add(Move::Beat);
                }
            }
        }
    }

    /// Takes a step of a follower. It ends if it learns that it was replaced, or that the server has lost data.
    pub fn follow(&self, state: &mut State, who: Who, a_move: Move) {
        let mut follower = state.followers[who as usize].take().unwrap();
        if self.take_step(state, &mut follower, a_move) {
            state.followers[who as usize] = Some(follower);
        }
    }

    /// Takes a step. Returns whether the follower continues.
    fn take_step(&self, state: &mut State, follower: &mut Follower, a_move: Move) -> bool {
        let writes = matches!(
            a_move,
            Move::Apply
                | Move::Announce(_)
                | Move::Release
                | Move::Refuse(_)
                | Move::Learn
                | Move::Store
                | Move::Close
                | Move::Beat
        );
        let is_guarded = writes && (a_move != Move::Learn || self.is_synchronous());
        if is_guarded && !self.may_write(state, follower) {
            return false;
        }
        match a_move {
            Move::Raise => World::raise(state, follower),
            Move::Check => self.check(state, follower),
            Move::Begin(to) => return self.begin(state, follower, to),
            Move::Scan => {
                if !self.lacks(Rule::ScanOnTruncate) {
                    state.store.server.keys[0].value = None;
                }
                let Step::Scan(to) = follower.step else { panic!("nothing is to be deleted") };
                let is_released = self.is_synchronous() && follower.groups.first() != Some(&to);
                follower.step = if is_released { Step::None } else { Step::Apply(to) };
            }
            Move::Apply => self.apply(state, follower, false),
            Move::Announce(to) => self.announce(state, follower, to, false),
            Move::Confirm(to) => state.database.confirmed = Some(to),
            Move::Release => self.release(state, follower, false),
            Move::Refuse(step) => {
                state.refusals -= 1;
                match step {
                    Refusable::Apply => self.apply(state, follower, true),
                    Refusable::Announce(to) => self.announce(state, follower, to, true),
                    Refusable::Release => self.release(state, follower, true),
                }
            }
            Move::Learn => self.learn(state, follower),
            Move::Store => self.store(state, follower),
            Move::Close => self.close(state, follower),
            Move::Fill(step) => return self.fill(state, follower, step),
            Move::Renew => {
                state.renewals -= 1;
                (follower.fill, follower.renews) = (Some(Filling::Begin), true);
            }
            Move::TakeTime => follower.time = Some(state.database.returned),
            Move::ReadLog => follower.log_end = Some(state.database.logged),
            Move::Beat => {
                state.store.beat = follower.time.take();
                follower.log_end = None;
                state.is_whole = true;
            }
        }
        true
    }

    /// Eventual mode: begins with a group. A TRUNCATE clears the filter at once.
    fn begin(&self, state: &mut State, follower: &mut Follower, to: Version) -> bool {
        let truncates = (follower.done + 1..=to).any(|version| self.op(version) == Op::Truncate);
        if !truncates || self.lacks(Rule::ClearFirst) {
            follower.step = if truncates { Step::Scan(to) } else { Step::Apply(to) };
            return true;
        }
        if !self.may_write(state, follower) {
            return false;
        }
        if state.store.has_filter() {
            state.store.put_empty(Name::Rows);
            follower.step = Step::Scan(to);
        } else {
            follower.fill = Some(Filling::Begin);
        }
        true
    }

    /// Eventual mode: one transaction with the changes of a group.
    fn apply(&self, state: &mut State, follower: &mut Follower, is_refused: bool) {
        let Step::Apply(to) = std::mem::take(&mut follower.step) else { panic!("there is no group") };
        let mut group: Vec<_> = (follower.done + 1..=to).map(|version| self.op(version)).collect();
        group.retain(|op| *op != Op::Other);
        let from = group.iter().rposition(|op| *op == Op::Truncate).map_or(0, |place| place + 1);
        if from > 0 && self.lacks(Rule::ClearFirst) && state.store.has_filter() {
            state.store.put_empty(Name::Rows);
        }
        let changes = &group[from..];
        if !changes.is_empty() {
            World::changed_in(state, Name::Rows, is_refused);
        }
        let deletes = changes.last() == Some(&Op::Delete);
        if deletes || (self.lacks(Rule::LastDecides) && changes.contains(&Op::Delete)) {
            state.store.server.delete();
        }
        if self.lacks(Rule::StoreAfterChanges) {
            state.store.position = Some(to);
        }
        if is_refused || changes.is_empty() || state.store.has_filter() {
            follower.executed = Some(Executed::Group(to, is_refused));
        } else {
            follower.fill = Some(Filling::Begin);
        }
    }

    /// BF.MCHANGED. If the filter refuses an item, the other effects still happen.
    fn changed_in(state: &mut State, name: Name, is_refused: bool) {
        state.store.server.changed_value(0);
        if !is_refused {
            state.store.server.add(name);
        }
    }

    /// BF.MCHANGED, for the filter that is being filled as well.
    fn changed(&self, state: &mut State, follower: &Follower, is_refused: bool) {
        let is_filling = follower.fill.is_some_and(|step| step != Filling::Begin);
        if is_filling && !self.lacks(Rule::AnnounceToBoth) {
            World::changed_in(state, Name::Filling, false);
        }
        World::changed_in(state, Name::Rows, is_refused);
    }

    /// A reply says that a filter has refused an item. The filter is refilled: in eventual mode before the group is stored; in synchronous
    /// mode it is deleted, and the step is repeated without it.
    fn learn(&self, state: &mut State, follower: &mut Follower) {
        let executed = follower.executed.take();
        if !self.is_synchronous() {
            follower.fill = Some(Filling::Begin);
            return;
        }
        state.store.lose();
        state.store.beat = None;
        (follower.fill, follower.renews) = (follower.fill.filter(|_| !follower.renews), false);
        self.changed(state, follower, false);
        follower.executed = executed.map(|executed| match executed {
            Executed::Group(to, _) => Executed::Group(to, false),
            Executed::Release(_) => Executed::Release(false),
        });
    }

    /// Stores the position of a group.
    fn store(&self, state: &mut State, follower: &mut Follower) {
        let Some(Executed::Group(to, _)) = follower.executed.take() else { panic!("there is no group") };
        state.store.position = state.store.position.max(Some(to));
        follower.done = to;
        if self.is_synchronous() {
            follower.groups.push(to);
            self.fill_if_missing(state, follower);
        }
    }

    /// (a)
    fn announce(&self, state: &mut State, follower: &mut Follower, to: Version, is_refused: bool) {
        for version in follower.done + 1..=to {
            let op = self.op(version);
            if op == Op::Other {
                continue;
            }
            if op == Op::Truncate {
                if !self.lacks(Rule::HoldAll) {
                    state.store.all_open = Some(version);
                }
                for name in [Name::Rows, Name::Filling] {
                    if state.store.server.exists(name) && !self.lacks(Rule::ClearFirst) {
                        state.store.put_empty(name);
                    }
                }
                if !state.store.has_filter() && !self.lacks(Rule::CreateMissing) {
                    state.store.put_empty(Name::Rows);
                    state.store.lose();
                }
            } else {
                state.store.open = Some(Open { version, deletes: op == Op::Delete });
                if self.announces_early {
                    self.changed(state, follower, is_refused);
                }
            }
        }
        if self.lacks(Rule::StoreAfterChanges) {
            state.store.position = state.store.position.max(Some(to));
        }
        follower.executed = Some(Executed::Group(to, is_refused));
    }

    fn fill_if_missing(&self, state: &State, follower: &mut Follower) {
        if !state.store.has_filter() && (follower.fill.is_none() || follower.renews) {
            (follower.fill, follower.renews) = (Some(Filling::Begin), false);
        }
    }

    /// (c). The cached values are deleted before a TRUNCATE is released.
    fn release(&self, state: &mut State, follower: &mut Follower, is_refused: bool) {
        let group = follower.groups[0];
        let is_done = |version: &Version| *version <= group;
        let truncates = state.store.all_open.is_some_and(|version| is_done(&version));
        let is_scanned = matches!(std::mem::take(&mut follower.step), Step::Apply(_));
        if truncates && !is_scanned && !self.lacks(Rule::HoldUntilScanned) {
            follower.step = Step::Scan(group);
            return;
        }
        if let Some(open) = state.store.open.filter(|open| self.closes(*open, group)) {
            if !self.lacks(Rule::Announce) {
                self.changed(state, follower, is_refused);
            }
            if open.deletes {
                state.store.server.delete();
            }
        }
        if self.lacks(Rule::CloseAfterChanges) {
            state.store.open.take_if(|open| self.closes(*open, group));
        }
        follower.executed = Some(Executed::Release(is_refused));
    }

    fn closes(&self, open: Open, group: Version) -> bool {
        open.version <= group || self.lacks(Rule::KeepLater)
    }

    /// The end of (c).
    fn close(&self, state: &mut State, follower: &mut Follower) {
        follower.executed = None;
        let group = follower.groups.remove(0);
        let truncates = state.store.all_open.take_if(|version| *version <= group).is_some();
        state.store.open.take_if(|open| self.closes(*open, group));
        self.fill_if_missing(state, follower);
        if truncates && self.lacks(Rule::HoldUntilScanned) {
            follower.step = Step::Scan(group);
        }
    }
}

impl World {
    /// A follower acquires the slot, and creates it if it is missing.
    pub fn start(&self, state: &mut State) {
        state.starts -= 1;
        if self.has_slot {
            // Transactions whose commit record precedes the slot's position may still be invisible.
            state.database.confirmed.get_or_insert(state.database.logged);
        }
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

    /// Reads the position. Fills the filter if the server lacks confirmed changes.
    pub fn check(&self, state: &State, follower: &mut Follower) {
        let Database { logged, visible, confirmed, .. } = state.database;
        let store = &state.store;
        let is_behind = self.has_slot && store.position < confirmed && !self.lacks(Rule::CompareWithSlot);
        let needs_fill = !store.has_filter() || store.position.is_none() || is_behind || store.is_filling;
        follower.is_checked = true;
        // In eventual mode the stream is paused at the confirmed position during a fill.
        let skips = !self.lacks(Rule::SkipStored) && (self.is_synchronous() || !needs_fill);
        let first = match confirmed {
            Some(confirmed) => confirmed,
            None if self.lacks(Rule::BeginVisible) => logged,
            None => visible,
        };
        follower.done = match store.position.filter(|_| skips) {
            Some(position) if self.has_slot => position.max(first),
            Some(position) => position,
            None => first,
        };
        if self.is_synchronous() && !self.lacks(Rule::ReadJournal) {
            let mut groups: Vec<_> = store.open.map(|open| open.version).into_iter().chain(store.all_open).collect();
            groups.sort_unstable();
            groups.dedup();
            follower.groups = groups;
        }
        follower.fill = needs_fill.then_some(Filling::Begin);
    }
}

/// The next step of a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Filling {
    /// Deletes the heartbeat, and creates the new filter.
    Begin,
    /// Reads the table once these transactions are visible.
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
            Some(Filling::Snapshot { running }) => {
                let is_visible = state.database.visible >= running || self.lacks(Rule::AwaitRunning);
                let has_passed = follower.groups.first().is_none_or(|group| *group > running);
                is_visible && (has_passed || self.lacks(Rule::PassFirst))
            }
            step => step.is_some(),
        }
    }

    /// Takes the next step of a fill. Returns whether the follower continues.
    pub fn fill(&self, state: &mut State, follower: &mut Follower, step: Filling) -> bool {
        let is_guarded = matches!(step, Filling::Begin | Filling::Rename | Filling::Finish);
        if is_guarded && !self.may_write(state, follower) {
            return false;
        }
        let store = &mut state.store;
        follower.fill = Some(match step {
            Filling::Begin => {
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
                Filling::Snapshot { running: if self.has_slot { state.database.logged } else { 0 } }
            }
            Filling::Snapshot { .. } => Filling::Add(self.has(state.database.visible)),
            Filling::Add(_) | Filling::AddOthers => {
                if follower.life != store.life && !self.lacks(Rule::NoRedirect) {
                    return false;
                }
                follower.life = store.life;
                // BF.MADD creates a filter that is missing.
                if !store.server.exists(Name::Filling) {
                    store.put_empty(Name::Filling);
                }
                if step == Filling::Add(true) {
                    store.server.add(Name::Filling);
                }
                match step {
                    Filling::Add(_) => Filling::AddOthers,
                    _ if self.lacks(Rule::RenameFirst) => Filling::Scan,
                    _ => Filling::Rename,
                }
            }
            Filling::Rename => {
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
                Filling::Scan
            }
            Filling::Scan => {
                if !self.lacks(Rule::ScanOnFill) {
                    store.server.keys[0].value = None;
                }
                if self.lacks(Rule::RenameFirst) { Filling::Rename } else { Filling::Finish }
            }
            Filling::Finish => return self.finish(state, follower),
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
