//! Runs the steps of one case.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::AbortHandle;

use crate::calls::{Call, Called, Outcome, Returned};
use crate::case::{Case, End, Expect, Half, Start, Step, Target};
use crate::failure::{ERRORS, Failure};
use crate::scripted::{Arrival, Connection, Scripted};
use crate::words::{command_matches, equal, plain};
use crate::{tasks, threads};

/// One process of a case, in one half of the crate.
enum Process {
    Threads(Arc<threads::Process>),
    Tasks(Arc<tasks::Process>),
}

/// The longest wait for anything.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How long a command may take that a client sends after its calls have ended.
const BACKGROUND: Duration = Duration::from_secs(5);
/// How often a wait for a command checks whether the calls have ended.
const CHECK: Duration = Duration::from_millis(250);

/// A call that has begun.
struct Actor {
    called: Receiver<Called>,
    ended: Receiver<Outcome>,
    /// What it ended with, once it is known.
    outcome: Option<Outcome>,
    /// The function that the client has called.
    pending: Option<Called>,
    /// Cancels the call, if it is a task.
    task: Option<AbortHandle>,
}

impl Actor {
    /// Waits until the client calls the actor's function.
    fn wait_until_called(&mut self) -> Result<&Called, String> {
        if self.pending.is_none() {
            let called = self.called.recv_timeout(PATIENCE);
            self.pending =
                Some(called.map_err(|_| format!("its function was not called: {:?}", self.ended.try_recv()))?);
        }
        self.pending.as_ref().ok_or_else(|| "its function was not called".to_owned())
    }

    fn has_ended(&mut self) -> bool {
        self.outcome = self.outcome.take().or_else(|| self.ended.try_recv().ok());
        self.outcome.is_some()
    }

    fn outcome(&mut self) -> Result<Outcome, String> {
        match self.outcome.take() {
            Some(outcome) => Ok(outcome),
            None => self.ended.recv_timeout(PATIENCE).map_err(|_| "it has not ended".to_owned()),
        }
    }
}

/// One run of one case, on a scripted server or a real one.
pub struct Run<'a> {
    case: &'a Case,
    target: Target,
    server: Option<&'a Scripted>,
    /// Runs the tasks, unless the calls run in threads.
    runtime: Option<tasks::Runtime>,
    processes: HashMap<String, Process>,
    actors: HashMap<String, Actor>,
    /// The actors whose end no step has awaited.
    running: HashSet<String>,
    held: HashMap<String, Arrival>,
    connections: HashMap<String, Arc<Connection>>,
}

impl<'a> Run<'a> {
    pub fn new(case: &'a Case, target: Target, server: Option<&'a Scripted>) -> Self {
        let runtime = matches!(target.half, Half::Tasks).then(tasks::Runtime::start);
        let (processes, actors, held) = (HashMap::new(), HashMap::new(), HashMap::new());
        let (running, connections) = (HashSet::new(), HashMap::new());
        Self { case, target, server, runtime, processes, actors, running, held, connections }
    }

    /// Runs all steps, and checks that nothing is left.
    pub fn run(mut self) -> Result<(), String> {
        for (number, step) in self.case.steps.iter().enumerate() {
            self.step(step).map_err(|error| format!("step {}, {step:?}: {error}", number + 1))?;
        }
        if let Some(actor) = self.running.iter().next() {
            return Err(format!("no step awaits the end of {actor}"));
        }
        let Some(server) = self.server else { return Ok(()) };
        if let Some(arrival) = server.next(Duration::ZERO) {
            return Err(format!("an unexpected command: {}", arrival.shown()));
        }
        server.violations().first().map_or(Ok(()), |violation| Err(violation.clone()))
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Start(start) => self.start(std::slice::from_ref(start)),
            Step::StartTogether { start_together } => self.start(start_together),
            Step::Called { called: actor, ids } => {
                let called = self.actor(actor)?.wait_until_called()?;
                ids.as_ref().map_or(Ok(()), |ids| check_ids(ids, called))
            }
            Step::Return { actor, value } => self.end_function(actor, Ok(Ok(value.clone()))),
            Step::Raise { raise, message, fatal: false } => self.end_function(raise, Ok(Err(message.clone()))),
            Step::Raise { raise, message, fatal: true } => self.end_function(raise, Err(message.clone())),
            Step::Cancel { cancel } => {
                let actor = self.actor(cancel)?;
                actor.task.as_ref().ok_or("the runner lacks the ability to cancel")?.abort();
                // The next step comes after the call was dropped.
                actor.outcome = Some(actor.outcome()?);
                Ok(())
            }
            Step::End(step @ End { end: Some(name), call: None, process: None, with: Value::Null, .. }) => {
                self.running.remove(name);
                check(self.actor(name)?, step)
            }
            Step::End(step @ End { end: None, call: Some(call), process, with, .. }) => {
                let call = Call { name: call.clone(), arguments: with.clone() };
                let mut actors = self.begin(vec![(process.as_deref(), call)])?;
                check(actors.first_mut().ok_or("no call")?, step)
            }
            Step::End(_) => Err("unknown step".to_owned()),
            // The others need a scripted server.
            _ => self.server.map_or(Ok(()), |server| self.scripted_step(server, step)),
        }
    }

    fn scripted_step(&mut self, server: &Scripted, step: &Step) -> Result<(), String> {
        match step {
            Step::Expect(expected) => {
                let arrival = self.next_command(server)?;
                if !command_matches(&expected.expect, &arrival.words)? {
                    return Err(format!("`{}` arrived", arrival.shown()));
                }
                self.serve(expected, arrival)
            }
            Step::ExpectAll { expect_all } => {
                let mut left: Vec<&Expect> = expect_all.iter().collect();
                while !left.is_empty() {
                    let arrival = self.next_command(server)?;
                    let mut position = None;
                    for (index, one) in left.iter().enumerate() {
                        if command_matches(&one.expect, &arrival.words)? {
                            position = position.or(Some(index));
                        }
                    }
                    let expected = left.remove(position.ok_or_else(|| format!("`{}` arrived", arrival.shown()))?);
                    self.serve(expected, arrival)?;
                }
                Ok(())
            }
            Step::Answer { answer, reply } => {
                let arrival = self.held.remove(answer).ok_or("no such held command")?;
                arrival.connection.answer(&arrival, reply)
            }
            Step::Quiet { quiet } => match server.next(Duration::from_millis(*quiet)) {
                Some(arrival) => Err(format!("`{}` arrived", arrival.shown())),
                None => Ok(()),
            },
            Step::Pause { pause } => {
                thread::sleep(Duration::from_millis(*pause));
                Ok(())
            }
            _ => Err("unknown step".to_owned()),
        }
    }

    /// Begins calls, in one turn if they are tasks, and records their actors.
    fn start(&mut self, starts: &[Start]) -> Result<(), String> {
        let call = |start: &Start| Call { name: start.call.clone(), arguments: start.with.clone() };
        let actors = self.begin(starts.iter().map(|start| (start.process.as_deref(), call(start))).collect())?;
        for (Start { start, .. }, actor) in starts.iter().zip(actors) {
            self.running.insert(start.clone());
            self.actors.insert(start.clone(), actor);
        }
        Ok(())
    }

    /// Begins calls, each in its process, which is made if it is the first.
    fn begin(&mut self, calls: Vec<(Option<&str>, Call)>) -> Result<Vec<Actor>, String> {
        let mut actors = Vec::new();
        let mut tasks = Vec::new();
        for (process, call) in calls {
            let name = process.unwrap_or("A");
            if !self.processes.contains_key(name) {
                let made = self.make_process()?;
                self.processes.insert(name.to_owned(), made);
            }
            let ((called_sender, called), (ended_sender, ended)) = (channel(), channel());
            match self.processes.get(name).ok_or("no process")? {
                Process::Threads(process) => threads::start(process, call, called_sender, ended_sender),
                Process::Tasks(process) => tasks.push(tasks::Start {
                    process: Arc::clone(process),
                    call,
                    called: called_sender,
                    ended: ended_sender,
                }),
            }
            actors.push(Actor { called, ended, outcome: None, pending: None, task: None });
        }
        if let Some(runtime) = &self.runtime {
            for (actor, task) in actors.iter_mut().zip(runtime.start_together(tasks)) {
                actor.task = Some(task);
            }
        }
        Ok(actors)
    }

    fn make_process(&self) -> Result<Process, String> {
        Ok(match self.runtime {
            None => {
                let client = threads::connect(self.case, self.target, PATIENCE)?;
                Process::Threads(Arc::new(threads::Process::new(self.case, client)))
            }
            Some(_) => {
                let client = tasks::connect(self.case, self.target, PATIENCE)?;
                Process::Tasks(Arc::new(tasks::Process::new(self.case, client)))
            }
        })
    }

    fn actor(&mut self, name: &str) -> Result<&mut Actor, String> {
        self.actors.get_mut(name).ok_or_else(|| format!("no actor {name}"))
    }

    fn end_function(&mut self, actor: &str, outcome: Result<Returned, String>) -> Result<(), String> {
        let actor = self.actor(actor)?;
        actor.wait_until_called()?;
        let called = actor.pending.take().ok_or("its function was not called")?;
        called.outcome.send(outcome).map_err(|_| "nobody waits for the outcome of its function".to_owned())
    }

    /// Takes the next command. Once every call has ended, only commands that a client sends in the background can still arrive,
    /// and the wait is short.
    fn next_command(&mut self, server: &Scripted) -> Result<Arrival, String> {
        let begun = Instant::now();
        let mut over_since = None;
        loop {
            if let Some(arrival) = server.next(CHECK) {
                return Ok(arrival);
            }
            if self.actors.values_mut().all(Actor::has_ended) {
                over_since.get_or_insert_with(Instant::now);
            }
            if begun.elapsed() > PATIENCE || over_since.is_some_and(|since| since.elapsed() > BACKGROUND) {
                let ended: Vec<_> = self.actors.iter().map(|(name, actor)| (name, &actor.outcome)).collect();
                return Err(format!("no command arrived; what the calls have ended with: {ended:?}"));
            }
        }
    }

    /// Checks the connection of a command, and replies to it or holds it.
    fn serve(&mut self, expected: &Expect, arrival: Arrival) -> Result<(), String> {
        if let Some(name) = &expected.on {
            let named = self.connections.entry(name.clone()).or_insert_with(|| Arc::clone(&arrival.connection));
            if !Arc::ptr_eq(named, &arrival.connection) {
                return Err(format!("`{}` arrived on another connection than {name}", arrival.shown()));
            }
        }
        if let Some(name) = &expected.not_on {
            let other = self.connections.get(name).ok_or_else(|| format!("no connection {name}"))?;
            if Arc::ptr_eq(other, &arrival.connection) {
                return Err(format!("`{}` arrived on the connection {name}", arrival.shown()));
            }
        }
        match &expected.hold {
            Some(name) => {
                self.held.insert(name.clone(), arrival);
                Ok(())
            }
            None => arrival.connection.answer(&arrival, expected.reply.as_ref().ok_or("no reply")?),
        }
    }
}

/// Compares the argument of `load_many`, as a set.
fn check_ids(expected: &[Value], called: &Called) -> Result<(), String> {
    let sorted = |ids: &[Value]| {
        let mut ids: Vec<String> = ids.iter().map(Value::to_string).collect();
        ids.sort();
        ids
    };
    let found = called.ids.as_deref().unwrap_or_default();
    if sorted(expected) == sorted(found) { Ok(()) } else { Err(format!("called with {found:?}")) }
}

/// Waits until a call has ended, and compares its result or its error.
fn check(actor: &mut Actor, step: &End) -> Result<(), String> {
    let outcome = actor.outcome()?;
    if actor.called.try_recv().is_ok() {
        return Err("its function was called once more".to_owned());
    }
    match (outcome, &step.error) {
        (Err(Failure::Unknown(what)), _) => Err(what),
        (Ok(result), None) if equal(&step.result, &result) => Ok(()),
        (Ok(result), _) => Err(format!("the result is {result}")),
        (Err(failure), None) => Err(format!("the call failed: {failure:?}")),
        (Err(failure), Some(name)) => check_error(&failure, name, step),
    }
}

fn check_error(failure: &Failure, expected: &str, step: &End) -> Result<(), String> {
    if !ERRORS.contains(&expected) {
        return Err(format!("unknown error {expected}"));
    }
    let Failure::Call { names, message, answers, ids } = failure else { return Err(format!("{failure:?}")) };
    let has_answers = step.answers.as_ref().is_none_or(|expected| equal(expected, &json!(answers)));
    let has_message = step.message.as_ref().is_none_or(|expected| expected == message);
    let expected_ids = step.ids.as_ref().map(|ids| ids.bytes().unwrap_or_default());
    let has_ids = expected_ids.is_none_or(|expected| expected.iter().map(|id| plain(id)).eq(ids.iter().cloned()));
    if names.contains(&expected) && has_answers && has_message && has_ids {
        return Ok(());
    }
    Err(format!("the call failed: {failure:?}"))
}
