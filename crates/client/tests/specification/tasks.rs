//! The calls of the cases in tasks of tokio.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};

pub use bloomgate_client::aio::{Client, Filter, Guard, ShardedFilter, fill_filter, plan};
use serde_json::Value;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::calls::{Call, Called, Outcome, Returned, return_or_panic};
use crate::failure::Failure;
use testing::{Server, servers};

/// Awaits a call.
macro_rules! wait {
    ($call:expr) => {
        $call.await
    };
}

/// The body of a function that the client calls.
macro_rules! work {
    ($body:expr) => {
        async move { $body }
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
async fn function(called: &Sender<Called>, ids: Option<Vec<Value>>) -> Returned {
    let (outcome, receiver) = oneshot::channel();
    called.send(Called { ids, outcome }).map_err(|_| "the case is over".to_owned())?;
    return_or_panic(receiver.await)
}

/// A runtime in a thread of its own, with one thread for all tasks: tasks that are spawned together run in the same turn.
pub struct Runtime {
    handle: Handle,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Runtime {
    pub fn start() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel();
        let thread = thread::spawn(move || _ = runtime.block_on(ended));
        Self { handle, end: Some(end), thread: Some(thread) }
    }

    /// Runs calls in tasks of their own, in one turn. Returns what cancels each.
    pub fn start_together(&self, calls: Vec<Start>) -> Vec<AbortHandle> {
        let (sender, handles) = std::sync::mpsc::channel();
        self.handle.spawn(async move {
            for Start { process, call, called, ended } in calls {
                let task = tokio::spawn(async move { process.perform(&call, &called).await });
                // The test may have ended.
                _ = sender.send(task.abort_handle());
                tokio::spawn(async move {
                    let outcome = match task.await {
                        Ok(outcome) => outcome,
                        Err(error) if error.is_cancelled() => Err(Failure::named("cancelled", "")),
                        Err(error) => Err(Failure::panicked(&*error.into_panic())),
                    };
                    _ = ended.send(outcome);
                });
            }
        });
        handles.iter().collect()
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        drop(self.end.take());
        // It has no task that blocks.
        _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A call to begin.
pub struct Start {
    pub process: Arc<Process>,
    pub call: Call,
    pub called: Sender<Called>,
    pub ended: Sender<Outcome>,
}

#[test]
fn methods_that_no_case_covers() {
    for program in servers() {
        let server = Server::start(&program);
        let client = Client::open(format!("redis://127.0.0.1:{}", server.port)).unwrap();
        Builder::new_current_thread().enable_all().build().unwrap().block_on(methods::all(&client)).unwrap();
    }
}
