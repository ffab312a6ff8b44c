//! Everything that the model knows: the row in the database, the server, readers, writers, a refill, a follower with its
//! heartbeat. Each step of a client that others can see is a transition of its own, so that any client can stop for ever, or
//! for a while, between any two.

use stateright::{Model, Property};

use crate::rules::Rule;
use crate::server::{How, ReaderId, Server, Version};
use crate::writers::{Program, Writer};

/// The row in the database, by versions. A commit makes a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// A bit for each version with a row.
    present: u16,
    pub current: Version,
    /// The last version whose writer has finished. No reader may get an older answer.
    pub floor: Version,
}

impl Row {
    const fn new(is_present: bool) -> Self {
        Self { present: is_present as u16, current: 0, floor: 0 }
    }

    /// Whether a version has a row.
    pub const fn has(self, version: Version) -> bool {
        self.present >> version & 1 == 1
    }

    /// Whether there is a row.
    pub const fn is_present(self) -> bool {
        self.has(self.current)
    }

    /// Commits a version.
    pub const fn commit(&mut self, is_present: bool) {
        self.current += 1;
        self.present |= (is_present as u16) << self.current;
    }

    /// Whether a reader that asks now may be told that there is no row.
    pub fn may_be_absent(self) -> bool {
        (self.floor..=self.current).any(|version| !self.has(version))
    }
}

/// What a reader is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    Idle,
    /// Blocked in BF.FETCH.
    Waiting(u8),
    /// Has a token for a cache key.
    Token(Held),
    /// Has read a version from the database.
    Loaded(Held, Version),
}

/// A reader's token, by what has happened since it was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    pub key: u8,
    /// Whether nothing has changed: what the reader fills has to be stored.
    pub is_safe: bool,
    /// Whether the lease has not ended: no other reader may get one.
    pub has_lease: bool,
}

impl Phase {
    pub const fn held(&self) -> Option<Held> {
        match self {
            Self::Token(held) | Self::Loaded(held, _) => Some(*held),
            Self::Idle | Self::Waiting(_) => None,
        }
    }

    pub const fn held_mut(&mut self) -> Option<&mut Held> {
        match self {
            Self::Token(held) | Self::Loaded(held, _) => Some(held),
            Self::Idle | Self::Waiting(_) => None,
        }
    }
}

/// A reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reader {
    pub phase: Phase,
    /// The version that its transaction sees, if the transaction began before the reply.
    pub snapshot: Option<Version>,
}

/// The progress of a refill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refill {
    Off,
    Created,
    /// Writers that begin now announce to both names.
    Told,
    /// The table is scanned. Whether it had the row.
    Scanned(bool),
    /// The batch with the row is added.
    Added,
    /// The other batches are added.
    Complete,
    Renamed,
    Done,
}

impl Refill {
    /// Whether writers that begin now announce to both names.
    pub const fn is_told(self) -> bool {
        !matches!(self, Self::Off | Self::Created | Self::Done)
    }
}

/// A follower of the database's log. It announces commits after the fact and keeps the heartbeat alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Follower {
    /// The version that is announced.
    pub announced: Version,
    /// The period in which the follower took the time, and the version that was current then.
    pub taken: Option<(u8, Version)>,
    /// The period from which the heartbeat's life counts.
    pub beat: u8,
    /// Periods of `max-lag` that have passed.
    pub period: u8,
    /// The period in which the row was committed.
    pub committed: u8,
}

/// A broken promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Broken {
    WrongAbsent,
    OldValue,
    LateAbsent,
    TwoHolders,
    StaleFill,
    LostFill,
    EarlyToken,
}

impl Broken {
    /// Whether a reader got a wrong answer. Other broken promises may still lead to one.
    const fn is_wrong_answer(self) -> bool {
        matches!(self, Self::WrongAbsent | Self::OldValue | Self::LateAbsent)
    }
}

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub row: Row,
    pub server: Server,
    pub readers: Vec<Reader>,
    pub writers: Vec<Writer>,
    /// The lock of the id.
    pub lock: Option<u8>,
    /// A BF.DEL that was sent and has not arrived.
    pub del_is_sent: bool,
    pub refill: Refill,
    pub follower: Follower,
    /// How often filters may still be lost.
    pub losses: u8,
    /// How often the server may still restart, and the slot of all keys leave.
    pub restarts: u8,
    pub moves: u8,
    pub broken: Option<Broken>,
}

impl State {
    /// Records a broken promise, in place of an earlier one.
    pub fn break_promise(&mut self, broken: Option<Broken>) {
        self.broken = broken.or(self.broken);
    }

    pub fn was_answered_wrongly(&self) -> bool {
        self.broken.is_some_and(Broken::is_wrong_answer)
    }
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A reader begins its transaction too early: before it asks.
    BeginEarly(ReaderId),
    Ask(ReaderId, u8, How),
    Load(ReaderId),
    Fill(ReaderId),
    /// A reader fills, and keeps the token to fill again.
    FillAndKeep(ReaderId),
    GiveUp(ReaderId),
    BackOff(ReaderId),
    /// A reader dies or disconnects.
    Vanish(ReaderId),
    /// The WAIT of a reader expires.
    Deadline(ReaderId),
    /// The timer serves the waiters that are due.
    Serve,
    /// A writer takes its next step.
    Write(u8),
    /// A writer dies.
    Die(u8),
    DelArrives,
    ExpireRecord(u8),
    ExpireValue(u8),
    /// Other items set the bits of the item.
    Collide,
    /// A filter is evicted.
    Lose(bool),
    Restart,
    LeaveNode,
    ComeBack,
    Refill,
    Announce,
    TakeTime,
    Beat,
    ExpireBeat,
    Tick,
}

/// The bounds of a model: its clients, and what can happen.
#[derive(Clone, Debug)]
pub struct World {
    /// Cache keys of the row.
    pub keys: u8,
    pub readers: u8,
    /// Whether the row and its id are there at first: one initial state for each.
    pub starts: Vec<bool>,
    pub programs: Vec<Program>,
    pub hows: Vec<How>,
    pub backs_off: bool,
    /// Other items may be added whose bits are those of the item.
    pub collides: bool,
    /// How often filters may be lost.
    pub losses: u8,
    /// How often the server may restart or fail over, and the slot of all keys leave. Nobody waits then.
    pub restarts: u8,
    pub moves: u8,
    pub refills: bool,
    /// Periods of `max-lag`, with a follower in eventual mode; 0: no follower.
    pub periods: u8,
    pub without: Option<Rule>,
}

impl World {
    /// One cache key, readers that may wait, and nothing else.
    pub fn new(without: Option<Rule>) -> Self {
        Self {
            keys: 1,
            readers: 2,
            starts: vec![false],
            programs: Vec::new(),
            hows: vec![How::Plain, How::Wait],
            backs_off: false,
            collides: false,
            losses: 0,
            restarts: 0,
            moves: 0,
            refills: false,
            periods: 0,
            without,
        }
    }

    pub fn lacks(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    fn start(&self, has_row: bool) -> State {
        let mut server = Server::new(self.keys.into(), has_row, self.without);
        server.heartbeat = (self.periods > 0).then_some(false);
        let reader = Reader { phase: Phase::Idle, snapshot: None };
        State {
            row: Row::new(has_row),
            server,
            readers: vec![reader; self.readers.into()],
            writers: vec![Writer::default(); self.programs.len()],
            lock: None,
            del_is_sent: false,
            refill: Refill::Off,
            follower: Follower::default(),
            losses: self.losses,
            restarts: self.restarts,
            moves: self.moves,
            broken: None,
        }
    }
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        self.starts.iter().map(|has_row| self.start(*has_row)).collect()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if !state.was_answered_wrongly() {
            self.reader_actions(state, actions);
            self.writer_actions(state, actions);
            self.other_actions(state, actions);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        self.step(&mut state, action);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NO_WRONG_ABSENT, |_, state: &State| state.broken != Some(Broken::WrongAbsent)),
            Property::always(NO_OLD_VALUE, |_, state: &State| state.broken != Some(Broken::OldValue)),
            Property::always(NO_LATE_ABSENT, |_, state: &State| state.broken != Some(Broken::LateAbsent)),
            Property::always(ONE_HOLDER, |_, state: &State| state.broken != Some(Broken::TwoHolders)),
            Property::always(NO_STALE_FILL, |_, state: &State| state.broken != Some(Broken::StaleFill)),
            Property::always(NO_LOST_FILL, |_, state: &State| state.broken != Some(Broken::LostFill)),
            Property::always(NO_EARLY_TOKEN, |_, state: &State| state.broken != Some(Broken::EarlyToken)),
            Property::always(NO_LOST_WAITER, |_, state: &State| state.waiters_are_woken()),
            Property::always(TRUTH_AT_LAST, |world: &Self, state: &State| world.settles(state)),
        ]
    }
}

pub const NO_WRONG_ABSENT: &str = "a reader is never told `absent` for a row whose writer had finished";
pub const NO_OLD_VALUE: &str = "a reader never gets a value older than the last version whose writer had finished";
pub const NO_LATE_ABSENT: &str = "with WHILE, `absent` is late by at most max-lag";
pub const ONE_HOLDER: &str = "a cache key has one lease holder";
pub const NO_STALE_FILL: &str = "a fill is refused once something has changed since its token was handed out";
pub const NO_LOST_FILL: &str = "a fill is stored, however long its load took, unless something has changed";
pub const NO_EARLY_TOKEN: &str = "no token is granted during a back-off";
pub const NO_LOST_WAITER: &str = "a waiter is woken without waiting for its WAIT to expire";
pub const TRUTH_AT_LAST: &str = "if all others die and everything expires, a reader is answered with the truth";
