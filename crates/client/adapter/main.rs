//! Makes the calls of the cases in clients/specification: it reads messages from its standard input, and answers on its standard output.
//! The README.md there describes them. The argument is the half of the crate: `threads` or `tasks`.
// This program is test code, which fails by panicking.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod calls;
mod case;
mod failure;
#[allow(clippy::duplicate_mod, reason = "both halves are tested by the same code")]
mod tasks;
#[allow(clippy::duplicate_mod, reason = "both halves are tested by the same code")]
mod threads;

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard};
use std::{env, io};

use serde_json::{Value, json};
use tokio::sync::oneshot;

use calls::{Call, Outcome, Returned};
use case::Message;
use failure::Failure;

/// The abilities that cases may need and both halves have.
const ABILITIES: [&str; 7] = ["timeout", "share", "pause", "fatal", "resp2", "resp3", "sharded"];

/// The functions that the client has called, and the number of the last one.
static FUNCTIONS: LazyLock<Mutex<Functions>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Functions {
    last: u64,
    /// The sender for the outcome of each function: its result, or the text of its panic.
    outcomes: HashMap<u64, oneshot::Sender<Result<Returned, String>>>,
}

fn functions() -> MutexGuard<'static, Functions> {
    FUNCTIONS.lock().unwrap()
}

/// Writes a message.
fn say(message: &Value) {
    println!("{message}");
}

/// Reports that the client calls the function of an actor, with the ids of `load_many`. Its outcome arrives later.
fn called(call: u64, ids: Option<Vec<Value>>) -> oneshot::Receiver<Result<Returned, String>> {
    let (sender, receiver) = oneshot::channel();
    let mut functions = functions();
    functions.last += 1;
    let number = functions.last;
    functions.outcomes.insert(number, sender);
    say(&json!({"called": call, "function": number, "ids": ids}));
    receiver
}

/// Returns the result of an actor's function, or panics.
fn return_or_panic(outcome: Result<Result<Returned, String>, oneshot::error::RecvError>) -> Returned {
    match outcome {
        Ok(Ok(returned)) => returned,
        Ok(Err(message)) => panic!("{message}"),
        Err(_) => Err("the case has ended".to_owned()),
    }
}

/// Reports the end of a call.
fn end(call: u64, outcome: Outcome) {
    say(&match outcome {
        Ok(result) => json!({"end": call, "result": result}),
        Err(Failure::Unknown(what)) => json!({"end": call, "error": ["unknown"], "message": what}),
        Err(Failure::Call { names, message, answers, ids }) => {
            json!({"end": call, "error": names, "message": message, "answers": answers, "ids": ids})
        }
    });
}

/// The calls of one half of the crate.
trait Half {
    fn open(&mut self, process: u64, case: &case::Case) -> Result<(), String>;
    /// Begins calls; tasks begin in one turn.
    fn start(&mut self, process: u64, calls: Vec<Call>);
    /// Cancels a call, and then answers the message.
    fn cancel(&mut self, call: u64, message: u64);
    fn close(&mut self, process: u64);
}

fn main() {
    // The cases make calls panic.
    std::panic::set_hook(Box::new(|_| ()));
    let (mut half, own): (Box<dyn Half>, &[&str]) = match env::args().nth(1).as_deref() {
        Some("tasks") => (Box::new(tasks::Half::start()), &["cancel", "turns"]),
        _ => (Box::new(threads::Half::default()), &["pool"]),
    };
    let abilities = [&ABILITIES, own].concat();
    say(&json!({"abilities": abilities}));
    for line in io::stdin().lines() {
        take(half.as_mut(), serde_json::from_str(&line.unwrap()).unwrap());
    }
}

/// Executes a message.
fn take(half: &mut dyn Half, message: Message) {
    match message {
        Message::Open { id, open, case } => match half.open(open, &case) {
            Ok(()) => say(&json!({"done": id})),
            Err(error) => say(&json!({"done": id, "error": error})),
        },
        Message::Start { start, process } => half.start(process, start.into_iter().map(Call::from).collect()),
        Message::Return { function, value } => end_function(function, Ok(Ok(value))),
        Message::Raise { raise, message, fatal: false } => end_function(raise, Ok(Err(message))),
        Message::Raise { raise, message, fatal: true } => end_function(raise, Err(message)),
        Message::Cancel { id, cancel } => half.cancel(cancel, id),
        Message::Close { id, close } => {
            half.close(close);
            say(&json!({"done": id}));
        }
    }
}

fn end_function(number: u64, outcome: Result<Returned, String>) {
    let sender = functions().outcomes.remove(&number);
    // The call may have been cancelled.
    _ = sender.map(|sender| sender.send(outcome));
}
