//! Runs the steps of one case.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use redis::ProtocolVersion;
use tokio::task::AbortHandle;

use crate::calls::{Call, Called, Outcome};
use crate::failure::{ERRORS, Failure};
use crate::json::{Json, equal};
use crate::scripted::{Arrival, Connection, Scripted};
use crate::words::{command_matches, items, known, plain};
use crate::{tasks, threads};

/// One process of a case, in one half of the crate.
enum Process {
    Threads(Arc<threads::Process>),
    Tasks(Arc<tasks::Process>),
}

/// A half of the crate.
#[derive(Clone, Copy, Debug)]
pub enum Half {
    Threads,
    Tasks,
}

/// Where and how a case runs.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub half: Half,
    pub protocol: ProtocolVersion,
    pub port: u16,
    pub is_cluster: bool,
}

/// The longest wait for anything.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How long a command may take that a client sends after its calls have ended.
const BACKGROUND: Duration = Duration::from_secs(5);
/// How often a wait for a command checks whether the calls have ended.
const CHECK: Duration = Duration::from_millis(250);

/// The steps by their first member, and their further members. `call` is the first member only of a step without another one of
/// these.
const STEPS: [(&str, &[&str]); 13] = [
    ("start", &["call", "with", "process"]),
    ("start_together", &[]),
    ("expect", EXPECT),
    ("expect_all", &[]),
    ("answer", &["reply"]),
    ("called", &["ids"]),
    ("return", &["value"]),
    ("raise", &["message"]),
    ("cancel", &[]),
    ("end", &["result", "error", "message", "answers", "ids"]),
    ("quiet", &[]),
    ("pause", &[]),
    ("call", &["with", "process", "result", "error", "message", "answers", "ids"]),
];
const EXPECT: &[&str] = &["reply", "hold", "on", "not_on"];
/// Steps that are skipped on real servers.
const SCRIPTED_ONLY: [&str; 5] = ["expect", "expect_all", "answer", "quiet", "pause"];

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
    case: &'a Json,
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
    pub fn new(case: &'a Json, target: Target, server: Option<&'a Scripted>) -> Self {
        let runtime = matches!(target.half, Half::Tasks).then(tasks::Runtime::start);
        let (processes, actors, held) = (HashMap::new(), HashMap::new(), HashMap::new());
        let (running, connections) = (HashSet::new(), HashMap::new());
        Self { case, target, server, runtime, processes, actors, running, held, connections }
    }

    /// Runs all steps, and checks that nothing is left.
    pub fn run(mut self) -> Result<(), String> {
        let steps = self.case.get("steps").and_then(Json::list).ok_or("no steps")?;
        for (number, step) in steps.iter().enumerate() {
            self.step(step).map_err(|error| format!("step {}, {step:?}: {error}", number + 1))?;
        }
        if let Some(actor) = self.running.iter().next() {
            return Err(format!("no step awaits the end of {actor}"));
        }
        let Some(server) = self.server else { return Ok(()) };
        if let Some(arrival) = server.next(Duration::ZERO) {
            return Err(format!("an unexpected command: {}", arrival.shown()));
        }
        match server.violations().first() {
            Some(violation) => Err(violation.clone()),
            None => Ok(()),
        }
    }

    fn step(&mut self, step: &Json) -> Result<(), String> {
        let found = STEPS.iter().find(|(name, _)| step.get(name).is_some());
        let (name, others) = *found.ok_or("unknown step")?;
        known("the step", step.names().into_iter().filter(|other| *other != name), others)?;
        if self.server.is_none() && SCRIPTED_ONLY.contains(&name) {
            return Ok(());
        }
        let first = step.get(name).ok_or("unknown step")?;
        let text = || first.text().ok_or_else(|| format!("{name} without a text"));
        match name {
            "call" => {
                let mut actors = self.begin(&[step])?;
                check(actors.first_mut().ok_or("no call")?, step)
            }
            "start" => self.start(&[step]),
            "start_together" => self.start(&first.list().ok_or("no list")?.iter().collect::<Vec<_>>()),
            "cancel" => {
                let actor = self.actor(text()?)?;
                actor.task.as_ref().ok_or("the runner lacks the ability to cancel")?.abort();
                // The next step comes after the call was dropped.
                actor.outcome = Some(actor.outcome()?);
                Ok(())
            }
            "expect" => {
                let arrival = self.next_command()?;
                if !command_matches(first, &arrival.words)? {
                    return Err(format!("`{}` arrived", arrival.shown()));
                }
                self.serve(step, arrival)
            }
            "expect_all" => self.expect_all(first),
            "answer" => {
                let arrival = self.held.remove(text()?).ok_or("no such held command")?;
                arrival.connection.answer(&arrival, step.get("reply").ok_or("no reply")?)
            }
            "called" => {
                let called = self.actor(text()?)?.wait_until_called()?;
                match step.get("ids") {
                    Some(ids) => check_ids(ids, called),
                    None => Ok(()),
                }
            }
            "return" => self.end_function(text()?, Ok(step.get("value").cloned().ok_or("no value")?)),
            "raise" => {
                let message = step.get("message").and_then(Json::text).ok_or("no message")?;
                self.end_function(text()?, Err(message.to_owned()))
            }
            "end" => {
                let actor = text()?;
                self.running.remove(actor);
                check(self.actors.get_mut(actor).ok_or("no such actor")?, step)
            }
            "quiet" => match self.scripted()?.next(milliseconds(first)?) {
                Some(arrival) => Err(format!("`{}` arrived", arrival.shown())),
                None => Ok(()),
            },
            "pause" => {
                thread::sleep(milliseconds(first)?);
                Ok(())
            }
            _ => Err(format!("unknown step {name}: the runner lacks its ability")),
        }
    }

    /// Begins calls, in one turn if they are tasks, and records their actors.
    fn start(&mut self, steps: &[&Json]) -> Result<(), String> {
        let actors = self.begin(steps)?;
        for (step, actor) in steps.iter().zip(actors) {
            let name = step.get("start").and_then(Json::text).ok_or("a call without an actor")?;
            self.running.insert(name.to_owned());
            self.actors.insert(name.to_owned(), actor);
        }
        Ok(())
    }

    /// Begins calls, each in its process, which is made if it is the first.
    fn begin(&mut self, steps: &[&Json]) -> Result<Vec<Actor>, String> {
        let mut actors = Vec::new();
        let mut tasks = Vec::new();
        for step in steps {
            let name = step.get("process").map_or(Some("A"), Json::text).ok_or("a process without a name")?;
            if !self.processes.contains_key(name) {
                let made = self.make_process()?;
                self.processes.insert(name.to_owned(), made);
            }
            let ((called_sender, called), (ended_sender, ended)): ((Sender<Called>, _), (Sender<Outcome>, _)) =
                (channel(), channel());
            let call = Call::of(step)?;
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
                Process::Threads(Arc::new(threads::Process::new(self.case, client)?))
            }
            Some(_) => {
                let client = tasks::connect(self.case, self.target, PATIENCE)?;
                Process::Tasks(Arc::new(tasks::Process::new(self.case, client)?))
            }
        })
    }

    fn actor(&mut self, name: &str) -> Result<&mut Actor, String> {
        self.actors.get_mut(name).ok_or_else(|| format!("no actor {name}"))
    }

    fn scripted(&self) -> Result<&'a Scripted, String> {
        self.server.ok_or_else(|| "no scripted server".to_owned())
    }

    fn end_function(&mut self, actor: &str, outcome: Result<Json, String>) -> Result<(), String> {
        let actor = self.actor(actor)?;
        actor.wait_until_called()?;
        let called = actor.pending.take().ok_or("its function was not called")?;
        called.outcome.send(outcome).map_err(|_| "nobody waits for the outcome of its function".to_owned())
    }

    /// Takes the next command. Once every call has ended, only commands that a client sends in the background can still arrive,
    /// and the wait is short.
    fn next_command(&mut self) -> Result<Arrival, String> {
        let server = self.scripted()?;
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

    fn expect_all(&mut self, expected: &Json) -> Result<(), String> {
        let mut left: Vec<&Json> = expected.list().ok_or("no list")?.iter().collect();
        while !left.is_empty() {
            let arrival = self.next_command()?;
            let mut position = None;
            for (index, one) in left.iter().enumerate() {
                known("expect", one.names().into_iter().filter(|name| *name != "expect"), EXPECT)?;
                if command_matches(one.get("expect").ok_or("no command")?, &arrival.words)? {
                    position = position.or(Some(index));
                }
            }
            let step = left.remove(position.ok_or_else(|| format!("`{}` arrived", arrival.shown()))?);
            self.serve(step, arrival)?;
        }
        Ok(())
    }

    /// Checks the connection of a command, and replies to it or holds it.
    fn serve(&mut self, step: &Json, arrival: Arrival) -> Result<(), String> {
        if let Some(name) = step.get("on").and_then(Json::text) {
            let named = self.connections.entry(name.to_owned()).or_insert_with(|| Arc::clone(&arrival.connection));
            if !Arc::ptr_eq(named, &arrival.connection) {
                return Err(format!("`{}` arrived on another connection than {name}", arrival.shown()));
            }
        }
        if let Some(name) = step.get("not_on").and_then(Json::text) {
            let other = self.connections.get(name).ok_or_else(|| format!("no connection {name}"))?;
            if Arc::ptr_eq(other, &arrival.connection) {
                return Err(format!("`{}` arrived on the connection {name}", arrival.shown()));
            }
        }
        match step.get("hold").and_then(Json::text) {
            Some(name) => {
                self.held.insert(name.to_owned(), arrival);
                Ok(())
            }
            None => arrival.connection.answer(&arrival, step.get("reply").ok_or("no reply")?),
        }
    }
}

fn milliseconds(json: &Json) -> Result<Duration, String> {
    let number = json.integer().and_then(|number| u64::try_from(number).ok());
    number.map(Duration::from_millis).ok_or_else(|| format!("{json:?} are no milliseconds"))
}

/// Compares the argument of `load_many`, as a set.
fn check_ids(expected: &Json, called: &Called) -> Result<(), String> {
    let sorted = |ids: &[Json]| {
        let mut ids: Vec<String> = ids.iter().map(|id| format!("{id:?}")).collect();
        ids.sort();
        ids
    };
    let found = called.ids.as_deref().unwrap_or_default();
    if sorted(expected.list().ok_or("ids that are no list")?) == sorted(found) {
        return Ok(());
    }
    Err(format!("called with {found:?}"))
}

/// Waits until a call has ended, and compares its result or its error.
fn check(actor: &mut Actor, step: &Json) -> Result<(), String> {
    let outcome = actor.outcome()?;
    if actor.called.try_recv().is_ok() {
        return Err("its function was called once more".to_owned());
    }
    match (outcome, step.get("error").and_then(Json::text)) {
        (Err(Failure::Unknown(what)), _) => Err(what),
        (Ok(result), None) => {
            let expected = step.get("result").ok_or("a step with neither result nor error")?;
            if equal(expected, &result) { Ok(()) } else { Err(format!("the result is {result:?}")) }
        }
        (Ok(result), Some(_)) => Err(format!("no error, the result is {result:?}")),
        (Err(failure), None) => Err(format!("the call failed: {failure:?}")),
        (Err(failure), Some(name)) => check_error(&failure, name, step),
    }
}

fn check_error(failure: &Failure, expected: &str, step: &Json) -> Result<(), String> {
    if !ERRORS.contains(&expected) {
        return Err(format!("unknown error {expected}"));
    }
    let Failure::Call { names, message, answers, ids } = failure else { return Err(format!("{failure:?}")) };
    let answers: Json = answers.clone().into();
    let has_answers = step.get("answers").is_none_or(|expected| equal(expected, &answers));
    let has_message = step.get("message").and_then(Json::text).is_none_or(|expected| expected == message);
    let expected_ids: Option<Vec<Json>> = match step.get("ids") {
        Some(ids) => Some(items(ids)?.iter().map(|id| plain(&crate::words::sent(id).unwrap_or_default())).collect()),
        None => None,
    };
    let has_ids = expected_ids.is_none_or(|expected| expected == *ids);
    if names.contains(&expected) && has_answers && has_message && has_ids {
        return Ok(());
    }
    Err(format!("the call failed: {failure:?}"))
}
