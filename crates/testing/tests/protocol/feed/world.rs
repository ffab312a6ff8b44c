//! The state of the model: the log of PostgreSQL, the server's keys, followers and readers. Also the rules that can be omitted, the answers
//! to readers, and the promises about these answers.

use stateright::{Model, Property};

use super::follower::{Follower, Move};
use crate::server::{Answer, Fill, How, Name, READERS, ReaderId, Record, Server, Version};
use crate::world::Rule as GuardRule;

/// The order in which transactions become visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Eventual,
    /// A commit becomes visible after the follower has confirmed it.
    Synchronous,
}

/// The change of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Put,
    Delete,
    Truncate,
    /// Concerns another row.
    Other,
}

/// PostgreSQL. Versions number the transactions: each field is the last version for which its statement is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Database {
    /// Its commit record is in the log.
    pub logged: Version,
    /// New snapshots show it.
    pub visible: Version,
    /// Its COMMIT has returned.
    pub returned: Version,
    /// PostgreSQL crashed before its COMMIT returned.
    pub orphan: Version,
    /// The follower has confirmed it. `None`: there is no slot, or not yet.
    pub confirmed: Option<Version>,
}

/// The value of a field in `{users}:feed:open`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Open {
    pub version: Version,
    pub deletes: bool,
}

/// The keys on the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Store {
    pub server: Server,
    /// The field of the row's cache key, and the field `*`.
    pub open: Option<Open>,
    pub all_open: Option<Version>,
    pub position: Option<Version>,
    /// The mark of a fill in synchronous mode.
    pub is_filling: bool,
    pub epoch: u8,
    /// The heartbeat: the last transaction whose COMMIT had returned at the time from which its time to live is counted.
    pub beat: Option<Version>,
    /// Changes when the server loses data, which ends all connections to it.
    pub life: u8,
}

impl Store {
    pub fn has_filter(&self) -> bool {
        self.server.exists(Name::Rows)
    }

    pub fn is_held(&self) -> bool {
        self.open.is_some() || self.all_open.is_some()
    }

    /// An instance other than the instance of the readers' filter.
    fn other_instance(&self) -> u8 {
        self.server.filters[Name::Rows as usize].map_or(2, |filter| 3 - filter.instance)
    }

    /// BF.RESERVE or BF.CLEAR.
    pub fn put_empty(&mut self, name: Name) {
        self.server.put_empty(name, self.other_instance());
    }

    /// The filter is deleted.
    pub fn lose(&mut self) {
        self.server.lose(Name::Rows);
    }

    /// RENAME of the new filter.
    pub fn rename(&mut self) {
        self.server.rename();
    }

    /// The contents of a snapshot, without tokens and records.
    fn saved(&self) -> Self {
        let mut saved = self.clone();
        saved.server.tokens = [None; READERS];
        saved.server.restart();
        saved
    }
}

/// The state of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reader {
    Idle,
    Token,
    /// Has read a version from the database.
    Loaded(Version),
}

/// A broken promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Broken {
    WrongAbsent,
    OldValue,
    LateAbsent,
    LateValue,
}

/// A follower: the one that has the slot, or one that was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Who {
    Active,
    Zombie,
}

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub database: Database,
    pub store: Store,
    /// An earlier state of the server's keys, to which the server may return.
    pub saved: Option<Box<Store>>,
    pub followers: [Option<Follower>; 2],
    pub readers: Vec<Reader>,
    /// Whether the server has all acknowledged changes: false from a loss to the next heartbeat.
    pub is_whole: bool,
    /// The last transaction whose COMMIT had returned when each period began, up to the current one. FRESH ends in the second
    /// period after the grant.
    pub periods: Vec<Version>,
    /// How often each of these may still happen.
    pub starts: u8,
    pub losses: u8,
    pub drops: u8,
    pub crashes: u8,
    pub renewals: u8,
    pub refusals: u8,
    pub broken: Option<Broken>,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The commit record of the next transaction is written.
    Commit,
    Show,
    Return,
    /// PostgreSQL crashes, and the slot's position falls back.
    Crash(Version),
    /// A follower starts and acquires the slot. The previous owner has ended, or continues without a stream.
    Start,
    Follow(Who, Move),
    Save,
    /// The server loses data: everything since `Save`, or everything.
    Lose,
    /// The filter is deleted.
    Drop,
    ExpireBeat,
    ExpireRecord,
    /// A period begins.
    Tick,
    Ask(ReaderId),
    Load(ReaderId),
    Fill(ReaderId),
}

/// The bounds of a model.
#[derive(Clone, Debug)]
pub struct World {
    pub mode: Mode,
    /// Whether the database has a slot, which stores the confirmed position and retains the log from there on, as in PostgreSQL.
    pub has_slot: bool,
    pub has_row: bool,
    pub script: Vec<Op>,
    /// Whether a follower runs at first. Otherwise there is neither a slot nor a filter.
    pub runs: bool,
    /// Both (a) and (c) call BF.MCHANGED, not only (c).
    pub announces_early: bool,
    pub readers: u8,
    /// Followers that start later.
    pub starts: u8,
    /// A replaced follower continues.
    pub has_zombies: bool,
    /// The heartbeat is set again and again. Otherwise it exists until it expires.
    pub beats: bool,
    pub losses: u8,
    pub drops: u8,
    pub crashes: u8,
    /// How often a complete filter is replaced in synchronous mode, because its table of deleted items is full.
    pub renewals: u8,
    /// How often the filter refuses an item, because it cannot grow. The other commands of the transaction take effect.
    pub refusals: u8,
    /// The length of FRESH in periods; 0: readers do not use FRESH.
    pub periods: u8,
    pub without: Option<Rule>,
}

impl World {
    pub fn lacks(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    pub const fn is_synchronous(&self) -> bool {
        matches!(self.mode, Mode::Synchronous)
    }

    pub fn op(&self, version: Version) -> Op {
        self.script[usize::from(version) - 1]
    }

    /// Whether the row exists in a version.
    pub fn has(&self, version: Version) -> bool {
        let version = self.version_of_row(version);
        if version == 0 { self.has_row } else { self.op(version) == Op::Put }
    }

    /// The last version, up to this one, that changed the row.
    pub fn version_of_row(&self, version: Version) -> Version {
        (1..=version).rev().find(|version| self.op(*version) != Op::Other).unwrap_or(0)
    }

    fn empty_store(&self) -> Store {
        let without = match self.without {
            Some(Rule::GiveUnless) => Some(GuardRule::GiveUnless),
            Some(Rule::GiveWhile) => Some(GuardRule::GiveWhile),
            Some(Rule::ChangeFilter) => Some(GuardRule::ChangeFilter),
            Some(Rule::NewLife) => Some(GuardRule::NewLife),
            Some(Rule::FreshIgnoresCache) => Some(GuardRule::FreshIgnoresCache),
            Some(Rule::FreshFromGrant) => Some(GuardRule::FreshFromGrant),
            Some(Rule::FreshOwnLease) => Some(GuardRule::FreshOwnLease),
            Some(Rule::FreshVoided) => Some(GuardRule::FreshVoided),
            _ => None,
        };
        let mut server = Server::new(1, false, without);
        server.filters = [None, None];
        server.heartbeat = Some(false);
        let (open, all_open, position, beat) = (None, None, None, None);
        Store { server, open, all_open, position, is_filling: false, epoch: 0, beat, life: 0 }
    }

    fn database_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let Database { logged, visible, returned, orphan, confirmed } = state.database;
        // The lock of the row is held until the transaction is visible.
        if logged == visible && usize::from(logged) < self.script.len() {
            actions.push(Action::Commit);
        }
        if visible < logged && (!self.is_synchronous() || confirmed.is_some_and(|to| to >= logged)) {
            actions.push(Action::Show);
        }
        if returned < visible && visible > orphan {
            actions.push(Action::Return);
        }
        if let (1.., Some(confirmed)) = (state.crashes, confirmed) {
            actions.extend((0..=confirmed).map(Action::Crash));
        }
    }

    fn server_actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.losses > 0 {
            actions.push(Action::Lose);
            if state.saved.is_none() {
                actions.push(Action::Save);
            }
        }
        if state.drops > 0 && state.store.has_filter() {
            actions.push(Action::Drop);
        }
        if state.store.beat.is_some() {
            actions.push(Action::ExpireBeat);
        }
        if state.store.server.keys[0].record.is_some() {
            actions.push(Action::ExpireRecord);
        }
        if state.periods.len() <= usize::from(self.periods) && self.periods > 0 {
            actions.push(Action::Tick);
        }
    }

    fn tick(state: &mut State) {
        state.periods.push(state.database.returned);
        let period = state.periods.len() as u8 - 1;
        state.store.server.period = period;
        if state.store.server.keys[0].is_no_longer_fresh(period) {
            state.store.server.expire(0);
        }
    }

    fn reader_actions(state: &State, actions: &mut Vec<Action>) {
        actions.extend((0..).zip(&state.readers).map(|(reader, phase)| match phase {
            Reader::Idle => Action::Ask(reader),
            Reader::Token => Action::Load(reader),
            Reader::Loaded(_) => Action::Fill(reader),
        }));
    }

    fn crash(&self, state: &mut State, back: Version) {
        let logged = state.database.logged;
        state.crashes -= 1;
        state.database = Database { visible: logged, orphan: logged, confirmed: Some(back), ..state.database };
        self.replace(state, None);
    }

    fn lose(&self, state: &mut State) {
        let (life, tokens) = (state.store.life + 1, state.store.server.tokens);
        state.store = state.saved.take().map_or_else(|| self.empty_store(), |saved| *saved);
        state.store.life = life;
        state.store.server.tokens = tokens;
        state.store.server.restart();
        state.losses -= 1;
        state.is_whole = false;
    }
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut store = self.empty_store();
        let mut database = Database::default();
        let mut active = None;
        if self.runs {
            store.put_empty(Name::Rows);
            if self.has_row {
                store.server.add(Name::Rows);
            }
            (store.position, store.epoch, store.beat) = (Some(0), 1, Some(0));
            database.confirmed = self.has_slot.then_some(0);
            active = Some(Follower { epoch: Some(1), is_checked: true, ..Follower::default() });
        }
        vec![State {
            database,
            store,
            saved: None,
            followers: [active, None],
            readers: vec![Reader::Idle; self.readers.into()],
            is_whole: self.runs,
            periods: vec![0],
            starts: self.starts,
            losses: self.losses,
            drops: self.drops,
            crashes: self.crashes,
            renewals: self.renewals,
            refusals: self.refusals,
            broken: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken.is_some() {
            return;
        }
        self.database_actions(state, actions);
        self.server_actions(state, actions);
        World::reader_actions(state, actions);
        if state.starts > 0 {
            actions.push(Action::Start);
        }
        for who in [Who::Active, Who::Zombie] {
            self.moves(state, who, |a_move| actions.push(Action::Follow(who, a_move)));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Commit => state.database.logged += 1,
            Action::Show => state.database.visible = state.database.logged,
            Action::Return => state.database.returned = state.database.visible,
            Action::Crash(back) => self.crash(&mut state, back),
            Action::Start => self.start(&mut state),
            Action::Follow(who, a_move) => self.follow(&mut state, who, a_move),
            Action::Save => state.saved = Some(Box::new(state.store.saved())),
            Action::Lose => self.lose(&mut state),
            Action::Drop => {
                state.store.lose();
                state.drops -= 1;
            }
            Action::ExpireBeat => state.store.beat = None,
            Action::ExpireRecord => state.store.server.expire(0),
            Action::Tick => World::tick(&mut state),
            Action::Ask(reader) => self.ask(&mut state, reader),
            Action::Load(reader) => {
                let version = self.version_of_row(state.database.visible);
                state.readers[usize::from(reader)] = Reader::Loaded(version);
            }
            Action::Fill(reader) => self.fill_value(&mut state, reader),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        self.promises()
    }
}

/// Declares the rules, and a list of all of them.
macro_rules! rules {
    ($($(#[$about:meta])* $rule:ident,)*) => {
        /// A rule of the follower or of its readers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Rule {
            $($(#[$about])* $rule,)*
        }

        pub const ALL: &[Rule] = &[$(Rule::$rule,)*];
    };
}

rules! {
    // Readers.
    /// Readers give UNLESS.
    GiveUnless,
    /// Readers give WHILE.
    GiveWhile,

    // Eventual mode.
    /// A transaction is applied once it is visible.
    ApplyWhenVisible,
    /// The last operation on an item within a group decides whether the item is deleted from the filter.
    LastDecides,

    // Synchronous mode.
    /// A position is confirmed after (a) has stored it.
    StoreBeforeConfirm,
    /// (c) waits until the transaction is visible.
    ReleaseWhenVisible,
    /// (c) keeps a cache key open that a later group also holds.
    KeepLater,
    /// (a) or (c) calls BF.MCHANGED.
    Announce,
    /// A follower that starts releases the cache keys in the journal.
    ReadJournal,
    /// (c) removes a cache key from the journal only if the server has refused no change.
    CloseAfterChanges,

    // Both modes: restarts.
    /// The position is stored only if the server has refused no change.
    StoreAfterChanges,
    /// Transactions at or below the stored position are skipped.
    SkipStored,
    /// Each write checks the epoch.
    CheckEpoch,
    /// A follower begins its epoch before it reads the position.
    EpochFirst,
    /// A follower whose connection to the server has ended starts again before it writes.
    NoticeLoss,
    /// A stored position below the slot's means that the server has lost data.
    CompareWithSlot,

    // Fills.
    /// Without a slot, a follower that fills begins at the last visible transaction, not at the end of the log.
    BeginVisible,
    /// A fill deletes the heartbeat first.
    DeleteBeat,
    /// With a slot, the snapshot waits for the transactions that run when the fill begins.
    AwaitRunning,
    /// In synchronous mode, the snapshot waits until (c) has passed the groups that were open when the fill began.
    PassFirst,
    /// A fill ends when the keys move to another server, and does not follow them.
    NoRedirect,
    /// A fill deletes the cached values.
    ScanOnFill,
    /// The new filter gets its name, which ends all leases, before the cached values are deleted.
    RenameFirst,
    /// An interrupted fill begins again: until it ends, there is no stored position in eventual mode, and a mark in synchronous mode.
    MarkFill,
    /// In synchronous mode, (a) stores no position between the discovery that a fill is needed and the mark.
    MarkFirst,
    /// In synchronous mode, items are announced to the filter that is being filled, too.
    AnnounceToBoth,

    // TRUNCATE.
    /// TRUNCATE ends all leases by BF.CLEAR, before the cached values are deleted.
    ClearFirst,
    /// In synchronous mode, TRUNCATE creates the filter if it is missing, and deletes it again.
    CreateMissing,
    /// TRUNCATE deletes the cached values.
    ScanOnTruncate,
    /// In synchronous mode, TRUNCATE holds all cache keys.
    HoldAll,
    /// All cache keys are held until the cached values are deleted.
    HoldUntilScanned,

    // The module.
    /// A filter that is created, deleted, emptied or renamed voids the tokens of all its rows.
    ChangeFilter,
    /// A server that has lost data refuses the tokens from before.
    NewLife,

    /// With FRESH, earlier cached values are not valid without the key for WHILE.
    FreshIgnoresCache,
    /// Values filled in that time are valid until FRESH after the grant.
    FreshFromGrant,
    /// Only values that are filled under a lease that was granted without the key for WHILE are valid without it.
    FreshOwnLease,
    /// A change ends this validity.
    FreshVoided,

    // The heartbeat.
    /// The heartbeat is set only once the log is applied up to a position.
    CatchUpFirst,
    /// The server's time is read before that position.
    TimeFirst,
}

impl World {
    pub fn ask(&self, state: &mut State, reader: ReaderId) {
        let store = &mut state.store;
        store.server.keys[0].is_open = store.is_held();
        store.server.heartbeat = Some(store.beat.is_some());
        let how = if self.periods > 0 { How::Fresh } else { How::Plain };
        let answer = store.server.fetch(reader, 0, how).unwrap();
        // Both are derived from other fields, so they are not part of the state.
        (store.server.keys[0].is_open, store.server.heartbeat) = (false, Some(false));
        let (returned, visible) = (state.database.returned, state.database.visible);
        let denies_wrongly = |since: Version| (since..=visible).all(|version| self.has(version));
        let is_promised = self.is_synchronous() && state.is_whole;
        // Without the heartbeat, an answer with FRESH may be as old as the beginning of the previous period.
        let fresh = (how == How::Fresh).then(|| state.periods[state.periods.len().saturating_sub(2)]);
        let since = state.store.beat.or(fresh).unwrap_or(returned);
        state.broken = match answer {
            Answer::Absent if is_promised && denies_wrongly(returned) => Some(Broken::WrongAbsent),
            Answer::Absent if denies_wrongly(since) => Some(Broken::LateAbsent),
            Answer::Hit(version) if is_promised && version < self.version_of_row(returned) => Some(Broken::OldValue),
            Answer::Hit(version) if how == How::Fresh && version < self.version_of_row(since) => {
                Some(Broken::LateValue)
            }
            _ => None,
        };
        if answer.grants() {
            state.readers[usize::from(reader)] = Reader::Token;
        }
    }

    /// BF.FILL by a reader. The reader has then finished, whether or not the server accepts the value.
    pub fn fill_value(&self, state: &mut State, reader: ReaderId) {
        let Reader::Loaded(version) = state.readers[usize::from(reader)] else { panic!("no row is loaded") };
        let fill = if self.has(version) { Fill::Value(version) } else { Fill::None };
        state.store.server.fill(reader, 0, fill);
        state.store.server.forget(reader);
        state.readers[usize::from(reader)] = Reader::Idle;
    }

    /// Whether the follower has applied everything and has no work left.
    fn is_settled(&self, state: &State) -> bool {
        let Some(active) = &state.followers[Who::Active as usize] else { return false };
        let logged = state.database.logged;
        state.database.visible == logged && active.is_idle() && active.done == logged && self.may_write(state, active)
    }

    /// Whether the filter and the cached value are correct once the follower has no work left. Assumes that every fill that is still
    /// possible happens.
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
            Property::always(NO_LATE_VALUE, |_: &Self, state: &State| state.broken != Some(Broken::LateValue)),
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

    /// The promises that must hold in every state.
    pub fn is_promise(name: &str) -> bool {
        [NO_WRONG_ABSENT, NO_OLD_VALUE, NO_LATE_ABSENT, NO_LATE_VALUE, CONVERGES].contains(&name)
    }

    /// The required states that were not reached.
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
pub const NO_LATE_VALUE: &str = "with FRESH, a value is never older than the last COMMIT that had returned before the heartbeat's time, or FRESH ago";
pub const CONVERGES: &str =
    "once everything is applied, the filter and the cached value are right, and no cache key is held";
