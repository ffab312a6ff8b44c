//! The methods that the cases do not cover, in threads.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

pub use bloomgate_client::{Client, Filter, Guard, ShardedFilter, fill_filter};

use testing::{Server, servers};

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

#[path = "methods.rs"]
mod methods;

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
