//! The calls of the cases in tasks of tokio.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::thread;

pub use bloomgate_client::aio::{Client, Filter, Guard, ShardedFilter, fill_filter, plan};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Handle};
use tokio::task::AbortHandle;

use crate::calls::{Call, Returned};
use crate::case::Case;
use crate::failure::Failure;
use crate::{called, end, return_or_panic, say};

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
#[path = "process.rs"]
mod process;

use process::{Process, connect};

/// Calls an actor's function, and waits for its outcome.
async fn function(call: u64, ids: Option<Vec<Value>>) -> Returned {
    return_or_panic(called(call, ids).await)
}

/// A running call, and the messages that have cancelled it.
struct Running {
    task: AbortHandle,
    cancels: Vec<u64>,
}

/// A runtime with a single thread, so that tasks that are spawned together run in the same turn.
pub struct Half {
    handle: Handle,
    processes: HashMap<u64, Arc<Process>>,
    running: Arc<Mutex<HashMap<u64, Running>>>,
}

impl Half {
    pub fn start() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let handle = runtime.handle().clone();
        thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
        Self { handle, processes: HashMap::new(), running: Arc::default() }
    }
}

impl crate::Half for Half {
    fn open(&mut self, process: u64, case: &Case) -> Result<(), String> {
        self.processes.insert(process, Arc::new(Process::new(case, connect(case)?)));
        Ok(())
    }

    fn start(&mut self, process: u64, calls: Vec<Call>) {
        let process = Arc::clone(self.processes.get(&process).unwrap());
        let running = Arc::clone(&self.running);
        self.handle.spawn(async move {
            for call in calls {
                let (id, process, running) = (call.id, Arc::clone(&process), Arc::clone(&running));
                let task = tokio::spawn(async move { process.perform(&call).await });
                running.lock().unwrap().insert(id, Running { task: task.abort_handle(), cancels: Vec::new() });
                tokio::spawn(async move {
                    end(
                        id,
                        match task.await {
                            Ok(outcome) => outcome,
                            Err(error) if error.is_cancelled() => Err(Failure::named("cancelled", "")),
                            Err(error) => Err(Failure::panicked(&*error.into_panic())),
                        },
                    );
                    for message in running.lock().unwrap().remove(&id).unwrap().cancels {
                        say(&json!({"done": message}));
                    }
                });
            }
        });
    }

    /// Answers once the call is dropped.
    fn cancel(&mut self, call: u64, message: u64) {
        match self.running.lock().unwrap().get_mut(&call) {
            Some(running) => {
                running.cancels.push(message);
                running.task.abort();
            }
            None => say(&json!({"done": message})),
        }
    }

    fn close(&mut self, process: u64) {
        self.processes.remove(&process);
    }
}
