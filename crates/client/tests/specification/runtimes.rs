//! What no case covers, because other languages have no runtimes that end: a guard outlives the runtime of its calls.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bloomgate_client::GuardOptions;
use bloomgate_client::aio::{Client, Guard};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::steps::PATIENCE;

/// Makes a guard. Nobody listens at its server, so every row comes from the database.
fn guard() -> Guard {
    let client = Client::open("redis://127.0.0.1:1").unwrap();
    Guard::new(&client, "users", GuardOptions::default()).unwrap()
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

async fn row(guard: &Guard) -> Vec<u8> {
    let row = guard.get(17, || async { Ok::<_, String>(Some(b"Ann".to_vec())) });
    timeout(PATIENCE, row).await.expect("the call ends").unwrap().unwrap()
}

#[test]
fn a_runtime_that_ends_before_a_fetch_is_sent_leaves_later_calls_unharmed() {
    let guard = guard();
    let mut pending = Box::pin(row(&guard));
    runtime().block_on(poll_fn(|context| {
        assert!(pending.as_mut().poll(context).is_pending());
        Poll::Ready(())
    }));
    assert_eq!(runtime().block_on(row(&guard)), b"Ann");
}

/// Two runtimes take part in one turn, and the one that would have sent it ends.
#[test]
fn a_runtime_that_ends_lets_the_calls_of_another_go_on() {
    let guard = guard();
    let (mut first, mut second) = (Box::pin(guard.get(17, || async { Ok::<_, String>(None) })), pin!(row(&guard)));
    let (ending, lasting) = (runtime(), runtime());
    ending.block_on(poll_fn(|context| {
        assert!(first.as_mut().poll(context).is_pending());
        Poll::Ready(())
    }));
    lasting.block_on(poll_fn(|context| {
        assert!(second.as_mut().poll(context).is_pending());
        Poll::Ready(())
    }));
    drop(ending);
    assert_eq!(lasting.block_on(second), b"Ann");
}

#[test]
fn a_call_without_a_runtime_panics_and_leaves_later_calls_unharmed() {
    let guard = guard();
    let mut call = Box::pin(guard.get(17, || async { Ok::<_, String>(None) }));
    let poll = || call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending();
    assert!(catch_unwind(AssertUnwindSafe(poll)).is_err());
    assert_eq!(runtime().block_on(row(&guard)), b"Ann");
}
