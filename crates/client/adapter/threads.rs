//! The calls of the cases in threads.

use std::collections::HashMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;

pub use bloomgate_client::{Client, Filter, Guard, ShardedFilter, fill_filter, plan};
use serde_json::Value;

use crate::calls::{Call, Returned};
use crate::case::Case;
use crate::failure::Failure;
use crate::{called, end, return_or_panic};

/// A blocking call has already returned its value.
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
#[path = "process.rs"]
mod process;

use process::{Process, connect};

/// Calls an actor's function, and waits for its outcome.
fn function(call: u64, ids: Option<Vec<Value>>) -> Returned {
    return_or_panic(called(call, ids).blocking_recv())
}

#[derive(Default)]
pub struct Half {
    processes: HashMap<u64, Arc<Process>>,
}

impl crate::Half for Half {
    fn open(&mut self, process: u64, case: &Case) -> Result<(), String> {
        self.processes.insert(process, Arc::new(Process::new(case, connect(case)?)));
        Ok(())
    }

    fn start(&mut self, process: u64, calls: Vec<Call>) {
        for call in calls {
            let process = Arc::clone(self.processes.get(&process).unwrap());
            thread::spawn(move || {
                let outcome = catch_unwind(AssertUnwindSafe(|| now(process.perform(&call))));
                end(call.id, outcome.unwrap_or_else(|panic| Err(Failure::panicked(&*panic))));
            });
        }
    }

    fn cancel(&mut self, _call: u64, _message: u64) {
        panic!("a call in a thread cannot be cancelled")
    }

    fn close(&mut self, process: u64) {
        self.processes.remove(&process);
    }
}

/// Runs a future whose calls block the thread, so that it never waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("a call has not blocked its thread"),
    }
}
