//! The sharing of fetches and loads of a row among the callers of one process, checked exhaustively over small bounds: two processes with
//! one to three callers each, as `clients/typescript/src/flights.ts` and `read.ts` have them, and a writer.
//!
//! The server has the properties that the guard's model proves: one lease, no fill with a void token. Every command and every reply may be
//! delayed or lost. A command with WAIT is executed late.

use stateright::{Model, Property};

use crate::checks::{Size, breaks, holds, size};
use crate::server::Version;

const CALLERS: usize = 3;

/// The flights of one row: callers that fetch the row or load it under a lease, and callers that load it without a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Flights {
    Leased,
    Direct,
}

/// The outcome of a fetch or a load, which callers share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Outcome {
    Row(Version),
    LoadFailed,
    /// The server does not answer.
    Unanswered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Answer {
    Hit(Version),
    Load,
    Wait,
}

/// The state of a caller, which makes one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Phase {
    Idle,
    /// Its BF.FETCH is sent, with WAIT or without.
    Asking(bool),
    Answered(Answer),
    /// Waits in the process.
    Waiting(Flights),
    /// Was resumed with the shared outcome of another caller.
    Given(Flights, Outcome),
    Loading(Flights),
    Loaded(Flights, Version),
    Filled(Version),
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Caller {
    phase: Phase,
    /// Whether its flight has begun.
    has_flight: bool,
    /// The last version confirmed before its call.
    confirmed: Version,
    /// A bit for each caller whose call began before this caller's fetch or load.
    earlier: u8,
    /// Whether it has the lease, and whether the row is unchanged since it got the token.
    has_lease: bool,
    is_safe: bool,
}

const IDLE: Caller =
    Caller { phase: Phase::Idle, has_flight: false, confirmed: 0, earlier: 0, has_lease: false, is_safe: false };

impl Caller {
    /// The flights in which it is active or waits.
    fn flights(&self) -> Option<Flights> {
        match self.phase {
            Phase::Waiting(flights) => Some(flights),
            _ => self.active(),
        }
    }

    /// The flights in which it is active.
    fn active(&self) -> Option<Flights> {
        match self.phase {
            Phase::Asking(_) | Phase::Answered(_) | Phase::Filled(_) => self.has_flight.then_some(Flights::Leased),
            Phase::Loading(flights) | Phase::Loaded(flights, _) | Phase::Given(flights, _) => Some(flights),
            Phase::Idle | Phase::Waiting(_) | Phase::Done => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Process {
    callers: [Caller; CALLERS],
    /// The flights whose last active caller has ended: a waiting caller is resumed before any other step.
    resumes: Option<Flights>,
    broken: Option<Broken>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Broken {
    OldRow,
    OtherError,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    processes: [Process; 2],
    value: Option<Version>,
    is_leased: bool,
    /// The steps of writers: each write is announced, committed and confirmed.
    written: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    Write,
    /// The lease ends by itself.
    Expire,
    Call(usize, usize, Step),
}

/// A step of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Begin,
    /// The server executes its command.
    Execute,
    /// The reply arrives.
    Arrive,
    /// The reply does not arrive in time.
    Fail,
    /// The caller has waited in the process for long enough.
    Deadline,
    Resume,
    Take,
    Read,
    FailLoad,
    /// BF.FILL is executed.
    Fill,
    /// The reply to BF.FILL arrives, or times out.
    Finish,
    Cancel,
}

/// A rule of the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// The time of a fetch is taken before it is sent, not when it is answered.
    AskBeforeSend,
    /// An answer or a row is shared with callers that began before it was requested.
    ShareOnlyEarlier,
    /// An error is shared with all waiting callers.
    ShareErrors,
    /// When the last active caller ends, a waiting caller is resumed.
    ResumeOldest,
    /// Loads without a server have separate flights.
    DirectApart,
    /// A load without a server waits for another such load.
    AwaitDirect,
}

#[derive(Clone, Debug)]
struct World {
    writes: u8,
    callers: [usize; 2],
    /// A flight begins before the first fetch of its call.
    begins_early: bool,
    without: Option<Rule>,
}

impl World {
    fn lacks(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    fn is_same(&self, one: Flights, other: Flights) -> bool {
        one == other || self.lacks(Rule::DirectApart)
    }

    /// Records that a fetch or a load begins now.
    fn ask(process: &mut Process, caller: usize) {
        let is_earlier = |other: &usize| !matches!(process.callers[*other].phase, Phase::Idle | Phase::Done);
        let earlier = (0..CALLERS).filter(is_earlier).fold(0, |bits, other| bits | 1 << other);
        process.callers[caller].earlier = earlier;
    }

    fn fetch(&self, process: &mut Process, caller: usize, waits: bool) {
        process.callers[caller].phase = Phase::Asking(waits);
        if !self.lacks(Rule::AskBeforeSend) {
            Self::ask(process, caller);
        }
    }

    fn has_active(&self, process: &Process, flights: Flights) -> bool {
        process.callers.iter().filter_map(Caller::active).any(|active| self.is_same(active, flights))
    }

    /// Loads without a lease, or waits for another caller that does.
    fn load_directly(&self, process: &mut Process, caller: usize) {
        let Caller { confirmed, .. } = process.callers[caller];
        process.callers[caller] = Caller { phase: Phase::Waiting(Flights::Direct), confirmed, ..IDLE };
        if !self.has_active(process, Flights::Direct) || self.lacks(Rule::AwaitDirect) {
            self.load(process, caller);
        }
    }

    fn load(&self, process: &mut Process, caller: usize) {
        process.callers[caller].phase = Phase::Loading(Flights::Direct);
        Self::ask(process, caller);
    }

    /// Ends a flight, and shares its outcome.
    fn end(&self, process: &mut Process, caller: usize, shares: Option<Outcome>) {
        let Caller { earlier, .. } = process.callers[caller];
        let flights = process.callers[caller].flights();
        process.callers[caller].phase = Phase::Done;
        for (place, other) in process.callers.iter_mut().enumerate() {
            let (Phase::Waiting(of), Some(outcome)) = (other.phase, shares) else { continue };
            let is_error = !matches!(outcome, Outcome::Row(_));
            let is_earlier = earlier >> place & 1 == 1 || !is_error && self.lacks(Rule::ShareOnlyEarlier);
            if flights.is_none_or(|flights| !self.is_same(of, flights)) {
                continue;
            }
            if is_earlier || is_error && !self.lacks(Rule::ShareErrors) {
                other.phase = Phase::Given(of, outcome);
            } else if outcome == Outcome::LoadFailed {
                process.broken = Some(Broken::OtherError);
            }
        }
        let waits = |flights| {
            process.callers.iter().any(|of| matches!(of.phase, Phase::Waiting(other) if self.is_same(other, flights)))
        };
        let is_last = |flights: &Flights| waits(*flights) && !self.has_active(process, *flights);
        process.resumes = flights.filter(is_last).filter(|_| !self.lacks(Rule::ResumeOldest));
    }

    /// A call returns a row.
    fn returns(&self, process: &mut Process, caller: usize, version: Version, shares: bool) {
        if version < process.callers[caller].confirmed {
            process.broken = Some(Broken::OldRow);
        }
        self.end(process, caller, shares.then_some(Outcome::Row(version)));
    }

    /// A reply to BF.FETCH arrives.
    fn arrive(&self, process: &mut Process, caller: usize, answer: Answer) {
        if self.lacks(Rule::AskBeforeSend) {
            Self::ask(process, caller);
        }
        let had_flight = std::mem::replace(&mut process.callers[caller].has_flight, true);
        match answer {
            Answer::Hit(version) => {
                process.callers[caller].has_flight = had_flight;
                self.returns(process, caller, version, true);
            }
            Answer::Load => process.callers[caller].phase = Phase::Loading(Flights::Leased),
            Answer::Wait => {
                process.callers[caller].phase = Phase::Waiting(Flights::Leased);
                if !self.has_active(process, Flights::Leased) {
                    self.fetch(process, caller, true);
                }
            }
        }
    }

    fn take(&self, process: &mut Process, caller: usize, outcome: Outcome) {
        match outcome {
            Outcome::Row(version) => self.returns(process, caller, version, false),
            Outcome::LoadFailed => self.end(process, caller, None),
            Outcome::Unanswered => {
                self.end(process, caller, None);
                self.load_directly(process, caller);
            }
        }
    }

    /// The steps that another process cannot see.
    fn take_step(&self, process: &mut Process, caller: usize, step: Step, state: &State) {
        let phase = process.callers[caller].phase;
        match (step, phase) {
            (Step::Begin, _) => {
                let confirmed = state.written / 3;
                process.callers[caller] = Caller { confirmed, has_flight: self.begins_early, ..IDLE };
                self.fetch(process, caller, false);
                if !self.begins_early {
                    process.callers[caller].earlier = 0;
                }
            }
            (Step::Arrive, Phase::Answered(answer)) => self.arrive(process, caller, answer),
            (Step::Fail, _) => {
                process.callers[caller].has_flight = true;
                self.end(process, caller, Some(Outcome::Unanswered));
                self.load_directly(process, caller);
            }
            (Step::Deadline, _) => self.take(process, caller, Outcome::Unanswered),
            (Step::Resume, Phase::Waiting(flights)) => {
                process.resumes = None;
                match flights {
                    Flights::Leased => self.fetch(process, caller, false),
                    Flights::Direct => self.load(process, caller),
                }
            }
            (Step::Take, Phase::Given(_, outcome)) => self.take(process, caller, outcome),
            (Step::Read, Phase::Loading(flights)) => {
                process.callers[caller].phase = Phase::Loaded(flights, (state.written + 1) / 3);
            }
            (Step::FailLoad, _) => self.end(process, caller, Some(Outcome::LoadFailed)),
            (Step::Finish, Phase::Filled(version) | Phase::Loaded(_, version)) => {
                self.returns(process, caller, version, true);
            }
            (Step::Cancel, _) => self.end(process, caller, None),
            _ => unreachable!("{step:?} of {phase:?}"),
        }
        process.tidy();
    }

    /// The steps of a caller.
    fn steps(&self, process: &Process, caller: usize) -> Vec<Step> {
        let Caller { phase, .. } = process.callers[caller];
        if let Some(flights) = process.resumes {
            let waits = matches!(phase, Phase::Waiting(other) if self.is_same(other, flights));
            return if waits { vec![Step::Resume] } else { vec![] };
        }
        let mut steps = match phase {
            Phase::Idle => return vec![Step::Begin],
            Phase::Done => return vec![],
            Phase::Asking(_) => vec![Step::Execute, Step::Fail],
            Phase::Answered(Answer::Wait) => vec![Step::Arrive, Step::Fail, Step::Deadline],
            Phase::Answered(_) => vec![Step::Arrive, Step::Fail],
            Phase::Waiting(Flights::Leased) => vec![Step::Deadline],
            Phase::Waiting(Flights::Direct) => vec![],
            Phase::Given(..) => vec![Step::Take],
            Phase::Loading(_) => vec![Step::Read, Step::FailLoad],
            Phase::Loaded(Flights::Leased, _) => vec![Step::Fill, Step::Finish],
            Phase::Loaded(..) | Phase::Filled(_) => vec![Step::Finish],
        };
        steps.push(Step::Cancel);
        steps
    }

    /// Whether every caller that waits in the process will be resumed.
    fn none_is_stuck(&self, state: &State) -> bool {
        state.processes.iter().all(|process| {
            let is_resumed = |flights| process.resumes.is_some() || self.has_active(process, flights);
            process.waiting().all(is_resumed)
        })
    }

    /// Whether loads without a server never wait for a command.
    fn loads_wait_for_loads(&self, state: &State) -> bool {
        state.processes.iter().all(|process| {
            let is_loading = |caller: &Caller| matches!(caller.active(), Some(Flights::Direct));
            process.waiting().all(|flights| {
                flights == Flights::Leased || process.resumes.is_some() || process.callers.iter().any(is_loading)
            })
        })
    }
}

impl Process {
    fn waiting(&self) -> impl Iterator<Item = Flights> {
        self.callers.iter().filter_map(|caller| match caller.phase {
            Phase::Waiting(flights) => Some(flights),
            _ => None,
        })
    }

    /// Resets fields on which no step depends.
    fn tidy(&mut self) {
        let phases = self.callers.map(|caller| (caller.flights(), caller.phase));
        for (place, caller) in self.callers.iter_mut().enumerate() {
            let is_active = !matches!(caller.phase, Phase::Waiting(_) | Phase::Given(..));
            let may_share = |other: &usize| {
                let (flights, phase) = phases[*other];
                let is_over = phase == Phase::Done || (flights == Some(Flights::Direct) && flights != phases[place].0);
                is_active && *other != place && !is_over
            };
            caller.earlier &= (0..CALLERS).filter(may_share).fold(0, |bits, other| bits | 1 << other);
            if !matches!(caller.phase, Phase::Answered(Answer::Load) | Phase::Loading(_) | Phase::Loaded(..)) {
                (caller.has_lease, caller.is_safe) = (false, false);
            }
            if caller.phase == Phase::Done {
                *caller = Caller { phase: Phase::Done, ..IDLE };
            }
        }
    }

    /// The same callers in another order.
    fn permuted(&self, order: [usize; CALLERS]) -> Self {
        let callers = order.map(|place| {
            let caller = self.callers[place];
            let earlier = (0..CALLERS).fold(0, |bits, new| bits | (caller.earlier >> order[new] & 1) << new);
            Caller { earlier, ..caller }
        });
        Self { callers, ..*self }
    }

    /// Returns a canonical order of the callers, which differ only in their numbers.
    fn canonical(self) -> Self {
        let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        orders.into_iter().map(|order| self.permuted(order)).min().unwrap()
    }
}

impl State {
    fn is_broken(&self, promise: Broken) -> bool {
        self.processes.iter().any(|process| process.broken == Some(promise))
    }

    /// Whether at most one caller of each process is in such a phase.
    fn has_few(&self, is_such: fn(Phase) -> bool) -> bool {
        let few = |process: &Process| process.callers.iter().filter(|caller| is_such(caller.phase)).count() < 2;
        self.processes.iter().all(few)
    }

    fn callers(&mut self) -> impl Iterator<Item = &mut Caller> {
        self.processes.iter_mut().flat_map(|process| &mut process.callers)
    }

    fn end_lease(&mut self) {
        self.is_leased = false;
        self.callers().for_each(|caller| caller.has_lease = false);
    }

    /// Voids the tokens, after a change or a fill.
    fn void(&mut self) {
        self.end_lease();
        self.callers().for_each(|caller| caller.is_safe = false);
    }

    /// BF.FETCH.
    fn execute(&mut self, process: usize, caller: usize) {
        let caller = &mut self.processes[process].callers[caller];
        caller.phase = Phase::Answered(match self.value {
            Some(version) => Answer::Hit(version),
            None if self.is_leased => Answer::Wait,
            None => {
                (self.is_leased, caller.has_lease, caller.is_safe) = (true, true, true);
                Answer::Load
            }
        });
    }

    /// BF.FILL. A token outlives its lease.
    fn fill(&mut self, process: usize, caller: usize) {
        let Caller { phase, is_safe, .. } = self.processes[process].callers[caller];
        let Phase::Loaded(_, version) = phase else { panic!("no row is loaded") };
        if is_safe {
            self.value = Some(version);
            self.void();
        }
        self.processes[process].callers[caller].phase = Phase::Filled(version);
    }

    /// BF.CHANGED, the commit, and BF.CHANGED again.
    fn write(&mut self) {
        self.written += 1;
        if self.written % 3 != 2 {
            self.value = None;
            self.void();
        }
    }
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let processes = self.callers.map(|callers| {
            let places: [usize; CALLERS] = std::array::from_fn(|place| place);
            let callers =
                places.map(|place| if place < callers { IDLE } else { Caller { phase: Phase::Done, ..IDLE } });
            Process { callers, resumes: None, broken: None }
        });
        vec![State { processes, value: None, is_leased: false, written: 0 }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.processes.iter().any(|process| process.broken.is_some()) {
            return;
        }
        if state.written < 3 * self.writes {
            actions.push(Action::Write);
        }
        if state.is_leased {
            actions.push(Action::Expire);
        }
        for (number, process) in state.processes.iter().enumerate() {
            for caller in 0..CALLERS {
                actions.extend(self.steps(process, caller).into_iter().map(|step| Action::Call(number, caller, step)));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Write => state.write(),
            Action::Expire => state.end_lease(),
            Action::Call(process, caller, Step::Execute) => state.execute(process, caller),
            Action::Call(process, caller, Step::Fill) => state.fill(process, caller),
            Action::Call(process, caller, step) => {
                if step == Step::FailLoad && state.processes[process].callers[caller].has_lease {
                    state.end_lease();
                }
                self.take_step(&mut state.processes[process], caller, step, last);
            }
        }
        state.processes = state.processes.map(Process::canonical);
        state.processes.sort_unstable();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NO_OLD_ROW, |_, state: &State| !state.is_broken(Broken::OldRow)),
            Property::always(ONE_ERROR, |_, state: &State| !state.is_broken(Broken::OtherError)),
            Property::always(ONE_LOAD, |_, state: &State| {
                state.has_few(|phase| {
                    matches!(phase, Phase::Loading(Flights::Direct) | Phase::Loaded(Flights::Direct, _))
                })
            }),
            Property::always(ONE_WAITS_INSIDE, |_, state: &State| state.has_few(|phase| phase == Phase::Asking(true))),
            Property::always(NONE_STUCK, Self::none_is_stuck),
            Property::always(APART, Self::loads_wait_for_loads),
        ]
    }
}

const NO_OLD_ROW: &str = "a caller never gets a row older than what was confirmed before its call";
const ONE_ERROR: &str = "all that wait for a load get its error";
const ONE_LOAD: &str = "without a server, a process loads a row once at a time";
const ONE_WAITS_INSIDE: &str = "at most one caller of a process waits for a row inside the server";
const NONE_STUCK: &str = "while callers wait in the process, another one is active";
const APART: &str = "a caller that loads without a server waits for loads alone";

fn world(callers: [usize; 2], begins_early: bool, without: Option<Rule>) -> World {
    World { writes: 1, callers, begins_early, without }
}

#[test]
fn every_promise_of_coalescing_holds_in_every_state() {
    let callers: &[[usize; 2]] = if size() == Size::Large { &[[1, 3], [2, 2]] } else { &[[1, 2]] };
    for callers in callers {
        holds(&format!("coalescing by {callers:?} callers"), world(*callers, true, None));
        holds(&format!("coalescing by {callers:?} callers, after a first fetch"), world(*callers, false, None));
    }
}

#[test]
fn each_rule_of_coalescing_is_needed() {
    for (rule, promise) in [
        (Rule::AskBeforeSend, NO_OLD_ROW),
        (Rule::ShareOnlyEarlier, NO_OLD_ROW),
        (Rule::ShareErrors, ONE_ERROR),
        (Rule::ResumeOldest, NONE_STUCK),
        (Rule::DirectApart, APART),
        (Rule::AwaitDirect, ONE_LOAD),
    ] {
        breaks(world([1, 3], true, Some(rule)), rule, promise);
    }
}
