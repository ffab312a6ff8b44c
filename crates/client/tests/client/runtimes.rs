//! Not covered by the cases, because in other languages runtimes do not end: a guard outlives the runtime of its calls.

use std::future::{Future, poll_fn, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;

use bloomgate_client::aio::{Client, Filter, Guard};
use bloomgate_client::{Error, GuardOptions};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::PATIENCE;
use crate::scripted::Scripted;

/// Creates a guard. Its server does not exist, so every row is read from the database.
fn guard() -> Guard {
    let client = Client::open("redis://127.0.0.1:1").unwrap();
    Guard::new(&client, "users", GuardOptions::default()).unwrap()
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

async fn row(guard: &Guard) -> Vec<u8> {
    let row = guard.get(17, |_| async { Ok::<_, String>(Some(b"Ann".to_vec())) });
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

/// Two runtimes take part in one turn, and the runtime that would have sent it ends.
#[test]
fn calls_continue_after_another_runtime_has_ended() {
    let guard = guard();
    let (mut first, mut second) = (Box::pin(guard.get(17, |_| async { Ok::<_, String>(None) })), pin!(row(&guard)));
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

/// Runs a call on one runtime until `until` completes, and on another after the first has ended.
fn on_two_runtimes<T>(call: impl Future<Output = T>, until: impl Future) -> T {
    let (mut call, mut until) = (pin!(call), pin!(until));
    runtime().block_on(poll_fn(|context| {
        assert!(call.as_mut().poll(context).is_pending());
        until.as_mut().poll(context).map(drop)
    }));
    runtime().block_on(async { timeout(PATIENCE, call).await.expect("the call ends") })
}

#[test]
fn a_call_ends_if_its_commands_were_lost_with_their_runtime() {
    let guard = guard();
    let load =
        |ids: Vec<u64>| async move { Ok::<_, String>(ids.into_iter().map(|id| (id, b"Ann".to_vec())).collect()) };
    assert_eq!(on_two_runtimes(guard.get_many(&[17], load), ready(())).unwrap(), [Some(b"Ann".to_vec())]);
    let unconfirmed = on_two_runtimes(guard.confirm([17]), ready(()));
    assert!(matches!(&unconfirmed, Err(Error::Unconfirmed { ids }) if *ids == [b"17"]), "{unconfirmed:?}");
}

#[test]
fn a_command_to_a_node_fails_if_its_runtime_ends() {
    let server = Scripted::start();
    let port = server.port;
    let client = Client::cluster([format!("redis://127.0.0.1:{port}")]).unwrap();
    let seen = Filter::new(&client.with_timeout(PATIENCE), "seen");
    let (sender, arrived) = oneshot::channel();
    let serving = thread::spawn(move || {
        let slots = server.next(PATIENCE).unwrap();
        slots.answer(&format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n"));
        let add = server.next(PATIENCE).unwrap();
        sender.send(add.command).unwrap();
        server
    });
    let added = on_two_runtimes(seen.add("a"), arrived);
    assert!(matches!(added, Err(Error::Redis { .. })), "{added:?}");
    serving.join().unwrap();
}

#[test]
fn a_call_without_a_runtime_panics_and_leaves_later_calls_unharmed() {
    let guard = guard();
    let mut call = Box::pin(guard.get(17, |_| async { Ok::<_, String>(None) }));
    let poll = || call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending();
    assert!(catch_unwind(AssertUnwindSafe(poll)).is_err());
    assert_eq!(runtime().block_on(row(&guard)), b"Ann");
}
