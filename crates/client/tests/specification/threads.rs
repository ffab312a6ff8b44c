//! The calls of the cases in threads.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::task::{Context, Poll, Waker};
use std::thread;

pub use bloomgate_client::{Client, Filter, Guard, ShardedFilter, fill_filter, plan};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::calls::{Call, Called, Outcome, Returned, return_or_panic};
use crate::failure::Failure;
use testing::{Server, servers};

/// A call has returned when its arguments are known.
macro_rules! wait {
    ($call:expr) => {
        $call
    };
}

/// The body of a function that the client calls.
macro_rules! work {
    ($body:expr) => {
        $body
    };
}

#[path = "guard.rs"]
mod guard;
#[path = "methods.rs"]
mod methods;
#[path = "process.rs"]
mod process;

pub use process::{Process, connect};

/// Calls an actor's function, and waits for its outcome.
fn function(called: &Sender<Called>, ids: Option<Vec<Value>>) -> Returned {
    let (outcome, receiver) = oneshot::channel();
    called.send(Called { ids, outcome }).map_err(|_| "the case is over".to_owned())?;
    return_or_panic(receiver.blocking_recv())
}

/// Runs a call in a thread of its own.
pub fn start(process: &Arc<Process>, call: Call, called: Sender<Called>, ended: Sender<Outcome>) {
    let process = Arc::clone(process);
    thread::spawn(move || {
        let outcome = catch_unwind(AssertUnwindSafe(|| now(process.perform(&call, &called))));
        // The test may have ended.
        _ = ended.send(outcome.unwrap_or_else(|panic| Err(Failure::panicked(&*panic))));
    });
}

/// Runs a future whose calls block the thread, so that it never waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("a call has not blocked its thread"),
    }
}

#[test]
fn methods_that_no_case_covers() {
    for program in servers() {
        let server = Server::start(&program);
        let client = Client::open(format!("redis://127.0.0.1:{}", server.port)).unwrap();
        now(methods::all(&client)).unwrap();
    }
}
