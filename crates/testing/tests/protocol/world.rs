//! The state of the model: the row in the database, the server, readers, writers, a refill, a follower with its heartbeat. Each step of a
//! client that others can observe is a separate transition, so that any client can stop between any two, for a while or forever. A model
//! can omit any one of the rules.

use stateright::{Model, Property};

use crate::server::{Answer, Fill, How, Name, ReaderId, Record, Server, Version};
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

    /// Whether the row exists in a version.
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

    /// Whether `absent` is a correct answer to a reader that asks now.
    pub fn may_be_absent(self) -> bool {
        (self.floor..=self.current).any(|version| !self.has(version))
    }
}

/// The state of a reader.
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

/// A reader's token, and its state since it was issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    pub key: u8,
    /// Whether nothing has changed, so that the server must store the reader's value.
    pub is_safe: bool,
    /// Whether the lease has not ended, so that no other reader may get a lease.
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
    /// From now on, writers that begin announce to both names.
    Told,
    /// The table was scanned. True if it had the row.
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
    pub const fn is_announced(self) -> bool {
        !matches!(self, Self::Off | Self::Created | Self::Done)
    }
}

/// A follower of the database's log. It announces commits after the fact and keeps the heartbeat alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Follower {
    /// The last announced version.
    pub announced: Version,
    /// The period in which the follower read the time, and the version that was current then.
    pub taken: Option<(u8, Version)>,
    /// The period from which the heartbeat's time to live is counted.
    pub beat: u8,
    /// Periods of `max-lag` that have passed.
    pub period: u8,
    /// The period in which each version was committed.
    pub committed: [u8; 3],
}

/// A broken promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Broken {
    WrongAbsent,
    OldValue,
    LateAbsent,
    LateValue,
    TwoHolders,
    StaleFill,
    LostFill,
    EarlyToken,
}

impl Broken {
    /// Whether a reader got a wrong answer. Other broken promises may still lead to a wrong answer.
    const fn is_wrong_answer(self) -> bool {
        matches!(self, Self::WrongAbsent | Self::OldValue | Self::LateAbsent | Self::LateValue)
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
    /// How often the server may still restart, and the slot of all keys may migrate.
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
    /// The timer serves the scheduled waiters.
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
    /// Other items with the same bits as the item may be added.
    pub collides: bool,
    /// How often filters may be lost.
    pub losses: u8,
    /// How often the server may restart or fail over, and the slot of all keys may migrate. No client waits then.
    pub restarts: u8,
    pub moves: u8,
    pub refills: bool,
    /// Periods of `max-lag`, with a follower in eventual mode; 0: no follower.
    pub periods: u8,
    pub without: Option<Rule>,
}

impl World {
    /// A world with one cache key and readers that may wait.
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
            Property::always(NO_LATE_VALUE, |_, state: &State| state.broken != Some(Broken::LateValue)),
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
pub const NO_LATE_VALUE: &str = "with WHILE and FRESH, a value is late by at most max-lag or FRESH";
pub const ONE_HOLDER: &str = "a cache key has one lease holder";
pub const NO_STALE_FILL: &str = "a fill is refused once something has changed since its token was handed out";
pub const NO_LOST_FILL: &str = "a fill is stored, however long its load took, unless something has changed";
pub const NO_EARLY_TOKEN: &str = "no token is granted during a back-off";
pub const NO_LOST_WAITER: &str = "a waiter is woken without waiting for its WAIT to expire";
pub const TRUTH_AT_LAST: &str = "if all others die and everything expires, a reader is answered with the truth";

/// A rule of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    // Writers.
    /// BF.CHANGED before the commit.
    AnnounceFirst,
    /// BF.CHANGED before the commit of an update.
    AnnounceUpdate,
    /// BF.CHANGED after the commit.
    AnnounceAgain,
    /// The second BF.CHANGED is sent only when the outcome of the commit is known.
    KnowTheOutcome,
    /// Both calls for each cache key of the row.
    AnnounceEachKey,

    // Deletes.
    /// BF.DEL comes after the commit.
    CommitBeforeDel,
    /// BF.CHANGED comes between the commit and BF.DEL.
    AnnounceBeforeDel,
    /// Deletes and inserts of an id that may return acquire a lock.
    Lock,
    /// BF.CHANGED before the commit of a delete under the lock.
    AnnounceLockedDelete,
    /// The lock is kept until BF.DEL is answered.
    AwaitDel,
    /// The lock of a client that dies is kept until its BF.DEL can no longer arrive.
    OutliveHolder,

    // Readers.
    /// The transaction of a load begins after the reply.
    ReadAfterReply,
    /// Cached values have a time to live.
    GiveTimeToLive,
    /// A load that finds no row fills NONE, and never calls BF.DEL.
    NeverDelOnMiss,
    /// Readers give UNLESS.
    GiveUnless,
    /// Readers give WHILE.
    GiveWhile,

    // Writes in flight: the hash for UNLESS.
    /// The cache key is in the hash before the commit.
    OpenBeforeCommit,
    /// BF.CHANGED when the cache key enters the hash.
    AnnounceOpening,
    /// The cache key is removed from the hash after the commit is visible.
    ReleaseAfterCommit,
    /// BF.CHANGED when the cache key is removed from the hash.
    AnnounceRelease,

    // The heartbeat: the key for WHILE.
    /// The heartbeat is set only once every commit up to a moment is announced.
    CatchUpFirst,
    /// The heartbeat expires.
    HeartbeatExpires,
    /// The heartbeat's life is counted from a moment before the last commit was determined.
    TakeTimeFirst,

    // A refill.
    /// The new filter is filled under a separate name.
    FillApart,
    /// Writers announce to both names.
    AnnounceToBoth,
    /// Writers announce to the new name first.
    NewNameFirst,
    /// Writers check inside their transaction whether a filter is being filled.
    LookInside,
    /// The scan waits for every transaction that was open when writers were informed of the refill.
    AwaitOthers,
    /// A refill that begins again waits again, even for writers that already announce to both names.
    AwaitAllAgain,
    /// The refill adds ids by BF.INSERT with NOCREATE.
    NoCreate,
    /// `bf.auto-create no`.
    NoAutoCreate,

    // The module.
    /// BF.FILL checks the token.
    CheckToken,
    /// A token outlives its lease.
    OutliveLease,
    /// A token names the instance of the filter.
    NameInstance,
    /// A token names the life of the server.
    NewLife,
    /// BF.CHANGED deletes the cached value.
    DeleteValue,
    /// BF.CHANGED voids tokens.
    VoidTokens,
    /// BF.CHANGED ends NONEs.
    EndNones,
    /// BF.CHANGED counts as a change of the cache key.
    ChangeKey,
    /// BF.CHANGED and BF.ADD count as a change of the item, under all cache keys.
    ChangeItem,
    /// SET by a client counts as a change of the cache key.
    ChangeOnSet,
    /// A filter that is created, deleted, emptied or renamed counts as a change of all its rows.
    ChangeFilter,
    /// Changed epochs of the cluster count as a change of everything.
    LookAtEpochs,
    /// No second lease is granted while a cache key's lease is live.
    OneLoader,
    /// The end of a lease wakes the waiters.
    Wake,
    /// No token is granted during a back-off.
    KeepBackOff,
    /// WHILE applies to NONEs, too.
    WhileCoversNones,
    /// With FRESH, earlier cached values are not valid without the key for WHILE.
    FreshIgnoresCache,
    /// Values filled in that time are valid until FRESH after the grant of the lease, not after the fill.
    FreshFromGrant,
    /// Only values filled under a lease that was granted without the key for WHILE, and not passed to another reader since, are valid
    /// without it.
    FreshOwnLease,
    /// A change ends this validity, as it voids tokens.
    FreshVoided,
}

impl World {
    pub fn reader_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (number, reader) in (0..).zip(&state.readers) {
            match reader.phase {
                // Another server has the keys.
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
                Some(answer) => self.receive_answer(state, reader, key, how, answer),
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
                self.receive_answer(state, reader, key, How::Wait, answer);
            }
            Action::Serve => {
                for (reader, key, answer) in state.server.serve() {
                    self.receive_answer(state, reader, key as u8, How::Wait, answer);
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
    fn receive_answer(&self, state: &mut State, reader: ReaderId, key: u8, how: How, answer: Answer) {
        let row = state.row;
        // Whether no version for which an answer is right was current within the last period.
        let is_late = |is_right: &dyn Fn(Version) -> bool| {
            let follower = &state.follower;
            let was_current = |version: Version| {
                version == row.current || follower.period < follower.committed[usize::from(version) + 1] + 2
            };
            self.periods > 0 && !(0..=row.current).any(|version| is_right(version) && was_current(version))
        };
        let broken = match answer {
            Answer::Absent if !row.may_be_absent() => Some(Broken::WrongAbsent),
            Answer::Absent if is_late(&|version| !row.has(version)) => Some(Broken::LateAbsent),
            Answer::Hit(version) if how == How::Fresh && is_late(&|other| other == version) => Some(Broken::LateValue),
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
            // Its own lease, not a later lease of another reader.
            Fill::GiveUp => state.reader(reader).phase.held_mut().unwrap().has_lease = false,
            Fill::BackOff => state.end_lease(key),
            // Its token is used up. A later fill by another reader is stored, or is not needed.
            Fill::Value(_) | Fill::None => state.void(key),
        }
        if is_accepted && fill == Fill::None && self.lacks(Rule::NeverDelOnMiss) {
            state.server.delete();
        }
    }

    /// Whether a reader gets the right answer if all other clients are dead and everything that can expire has expired.
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
        // Another process replaces the writer, and releases its write in flight.
        for key in 0..self.keys {
            if std::mem::take(&mut state.server.keys[usize::from(key)].is_open) {
                self.changed(&mut state, Name::Rows, key);
            }
        }
        state.server.heartbeat = state.server.heartbeat.map(|_| false);
        // Each waiter that gets the lease dies, so its lease expires, until no client waits.
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

    /// Something has changed: from now on, the tokens of a cache key must be refused.
    pub fn void(&mut self, of: u8) {
        self.end_lease(of);
        self.each_held(|held| held.is_safe &= held.key != of);
    }

    /// [`void`](Self::void) for every cache key.
    pub fn void_all(&mut self) {
        (0..self.server.keys.len()).for_each(|key| self.void(key as u8));
    }

    /// Whether every waiter will be woken before its WAIT expires: it is scheduled, the lease will end, or the writer in flight will
    /// release the cache key.
    pub fn waiters_are_woken(&self) -> bool {
        self.server.keys.iter().all(|slot| {
            let has_lease = matches!(slot.record, Some(Record::Lease(..)));
            slot.is_due || has_lease || slot.queue.iter().all(|waiting| waiting.is_held && slot.is_open)
        })
    }
}

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
            // With NOCREATE, the error `not found` restarts the refill.
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
                let period = state.follower.period;
                state.server.period = period;
                if period >= state.follower.beat + 2 && !self.lacks(Rule::HeartbeatExpires) {
                    state.server.heartbeat = Some(false);
                }
                // No lease outlives FRESH.
                for key in 0..self.keys {
                    if state.server.keys[usize::from(key)].is_no_longer_fresh(period) {
                        state.end_lease(key);
                        state.server.expire(key.into());
                    }
                }
            }
        }
    }
}
