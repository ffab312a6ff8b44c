//! Everything that the model knows: the log of PostgreSQL, the server's keys, followers and readers.

use stateright::{Model, Property};

use super::follower::{Follower, Move};
use super::rules::Rule;
use crate::rules::Rule as GuardRule;
use crate::server::{Name, READERS, ReaderId, Server, Version};

/// When transactions become visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Eventual,
    /// A commit becomes visible after the follower has confirmed it.
    Synchronous,
}

/// What a transaction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Put,
    Delete,
    Truncate,
    /// Concerns another row.
    Other,
}

/// PostgreSQL. Versions number the transactions: each field holds the last one of which it is true.
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
    /// The follower has confirmed it. `None`: there is no slot.
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
    /// The heartbeat: the last transaction whose COMMIT had returned at the time from which its life counts.
    pub beat: Option<Version>,
    /// Changes when connections to the server end, because it has lost data.
    pub life: u8,
}

impl Store {
    pub fn has_filter(&self) -> bool {
        self.server.exists(Name::Rows)
    }

    pub fn is_held(&self) -> bool {
        self.open.is_some() || self.all_open.is_some()
    }

    /// An instance that the filter of the readers does not have.
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

    /// What a snapshot has: no token and no record.
    fn saved(&self) -> Self {
        let mut saved = self.clone();
        saved.server.tokens = [None; READERS];
        saved.server.restart();
        saved
    }
}

/// What a reader is doing.
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
    /// An earlier state of the server's keys, which it may fall back to.
    pub saved: Option<Box<Store>>,
    pub followers: [Option<Follower>; 2],
    pub readers: Vec<Reader>,
    /// Whether the server keeps what it acknowledged: false from a loss to the next heartbeat.
    pub is_whole: bool,
    /// How often these may still happen.
    pub starts: u8,
    pub losses: u8,
    pub drops: u8,
    pub crashes: u8,
    pub renewals: u8,
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
    /// A follower starts and takes the slot. The one that had it has ended, or goes on without a stream.
    Start,
    Follow(Who, Move),
    Save,
    /// The server loses data: everything since `Save`, or everything.
    Lose,
    /// The filter is deleted.
    Drop,
    ExpireBeat,
    ExpireRecord,
    Ask(ReaderId),
    Load(ReaderId),
    Fill(ReaderId),
}

/// The bounds of a model.
#[derive(Clone, Debug)]
pub struct World {
    pub mode: Mode,
    pub has_row: bool,
    pub script: Vec<Op>,
    /// Whether a follower runs at first. Otherwise there is neither a slot nor a filter.
    pub runs: bool,
    /// (a) calls BF.MCHANGED, and not only (c).
    pub announces_early: bool,
    pub readers: u8,
    /// Followers that start later.
    pub starts: u8,
    /// A follower that is replaced goes on.
    pub has_zombies: bool,
    /// The heartbeat is set again and again. Otherwise it exists until it expires.
    pub beats: bool,
    pub losses: u8,
    pub drops: u8,
    pub crashes: u8,
    /// How often a complete filter is replaced in synchronous mode, because it has no room for more deleted items.
    pub renewals: u8,
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

    /// Whether a version has the row.
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
            database.confirmed = Some(0);
            active = Some(Follower { epoch: Some(1), is_checked: true, ..Follower::default() });
        }
        vec![State {
            database,
            store,
            saved: None,
            followers: [active, None],
            readers: vec![Reader::Idle; self.readers.into()],
            is_whole: self.runs,
            starts: self.starts,
            losses: self.losses,
            drops: self.drops,
            crashes: self.crashes,
            renewals: self.renewals,
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
