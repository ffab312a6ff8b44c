//! The methods that the cases do not cover, in tasks of tokio.

pub use bloomgate_client::aio::{Client, Filter, Guard, ShardedFilter, fill_filter};
use tokio::runtime::Builder;

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

#[path = "methods.rs"]
mod methods;

#[test]
fn methods_that_no_case_covers() {
    for program in servers() {
        let server = Server::start(&program);
        let client = Client::open(format!("redis://127.0.0.1:{}", server.port)).unwrap();
        Builder::new_current_thread().enable_all().build().unwrap().block_on(methods::all(&client)).unwrap();
    }
}
