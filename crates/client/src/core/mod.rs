//! The logic of this crate, written once for threads and tasks: which commands are sent in which order, and how their replies are
//! interpreted. The functions are asynchronous and reach a server only through [`Io`]. [`crate::Client`] implements it for
//! threads, where [`now`] runs a function to its end in the calling thread; with the feature `tokio`, `aio::Client` implements it
//! for tasks.

mod cluster;
mod filter;
mod guard;
mod sharded;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use redis::{Cmd, RedisError, Value};

pub use cluster::{Cluster, Node};
pub use filter::{FilterCore, plan};
#[cfg(feature = "tokio")]
pub use guard::{Commands, Fetched, Found, Leases, is_late, not_fetched};
pub use guard::{Fetch, GuardCore, Waiter, fill_filter, lock};
pub use sharded::{ShardedCore, create as create_sharded};

/// The reply to one command, or the reason why none arrived. An error inside an array reply is not extracted.
pub type Reply = Result<Value, RedisError>;

/// One of the connections that wait in the server.
pub struct Slot(Arc<AtomicUsize>);

impl Slot {
    /// Takes a slot unless `most` are in use.
    pub fn take(used: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let more = |used: usize| (used < most).then_some(used + 1);
        used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).ok().map(|_| Self(Arc::clone(used)))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Separates an error reply from other replies.
pub fn split(reply: Value) -> Reply {
    match reply {
        Value::ServerError(error) => Err(error.into()),
        reply => Ok(reply),
    }
}

/// Whether the connection to a server that answers with this error must be closed: after a failover an old primary that still runs
/// refuses every command, and another connection may reach the new primary.
pub fn is_to_be_left(code: Option<&str>) -> bool {
    matches!(code, Some("READONLY" | "MASTERDOWN" | "LOADING" | "CLUSTERDOWN"))
}

/// Whether the connection of these replies may serve other calls.
pub fn is_reusable(replies: &[Value]) -> bool {
    !replies.iter().any(|reply| matches!(reply, Value::ServerError(error) if is_to_be_left(Some(error.code()))))
}

/// The operation of a batch of items.
#[derive(Debug, Clone, Copy)]
pub enum Batch {
    /// Adds the items.
    Add,
    /// Looks up the items.
    Exists,
    /// Deletes the items.
    Delete,
}

/// A way to reach a server. Clones share its connections.
pub trait Io: Clone + Send + Sync + 'static {
    /// Sends commands together on one connection, and returns their replies in order. No command is ever sent twice. `wait` is for
    /// commands that wait inside the server for at most that time: it is added to their time limit, and no other caller's commands are sent
    /// on the connection during that time.
    fn ask(&self, commands: Vec<Cmd>, wait: Option<Duration>) -> impl Future<Output = Vec<Reply>> + Send;

    /// Like `ask`, for commands of many callers. The number of commands in flight is limited, so that a burst does not time out
    /// because of its own queue.
    fn ask_together(&self, commands: Vec<Cmd>) -> impl Future<Output = Vec<Reply>> + Send;

    /// Sends commands whose replies are not needed. Does not block a task.
    fn send(&self, commands: Vec<Cmd>);

    /// Runs work to its end. If the task is cancelled during the work, the work continues and its result is dropped. Returns `None`
    /// if the runtime of the work ended first.
    fn finish<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = Option<T>> + Send;

    /// Pauses.
    fn sleep(&self, time: Duration) -> impl Future<Output = ()> + Send;

    /// Waits until another caller of this process resumes this one, for at most some time. A caller that waits for several rows has
    /// several waiters, and resumes when the first of them is resumed.
    fn wait(&self, waiters: &[Arc<Waiter>], at_most: Duration) -> impl Future<Output = ()> + Send;

    /// Reserves one of the connections that may wait in the server: half of all, so that the others are free for loading, filling
    /// and announcing. If a caller has no connection to fill a row, every caller that waits for the row is delayed. Dropping the
    /// slot releases it.
    fn take_slot(&self) -> Option<Slot>;

    /// Work that runs in the background.
    type Running<T: Send + 'static>: Send;

    /// Runs work in the background, in a thread or a task.
    fn start<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Self::Running<T>;

    /// Waits until the work has ended, for at most some time. Returns `None` after that time, or if the work panicked.
    /// Cancelling the waiting task cancels the work.
    fn join<T: Send + 'static>(
        &self,
        running: &mut Self::Running<T>,
        at_most: Duration,
    ) -> impl Future<Output = Option<T>> + Send;

    /// Whether the commands are sent to the nodes of a cluster.
    fn is_cluster(&self) -> bool;
}

/// Wakes the thread that waits in [`now`].
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future in this thread.
pub fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Some(result) = now_within(future.as_mut(), Duration::MAX) {
            return result;
        }
    }
}

/// Runs a future in this thread, for at most some time.
pub fn now_within<T>(future: impl Future<Output = T>, at_most: Duration) -> Option<T> {
    let begun = Instant::now();
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return Some(result);
        }
        let left = at_most.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return None;
        }
        thread::park_timeout(left);
    }
}

/// Generates methods for threads from a list of asynchronous methods, which is shared with the methods for tasks. Each method
/// runs in the calling thread.
macro_rules! blocking {
    ($(
        $(#[$attribute:meta])*
        pub async fn $name:ident $(<$($type:ident: $bound:path),+>)? ($($arguments:tt)*) -> $result:ty $body:block
    )*) => {$(
        $(#[$attribute])*
        pub fn $name $(<$($type: $bound),+>)? ($($arguments)*) -> $result {
            $crate::core::now(async { $body })
        }
    )*};
}
pub(crate) use blocking;

/// Generates methods for tasks from the same list.
#[cfg(feature = "tokio")]
macro_rules! asynchronous {
    ($($methods:tt)*) => { $($methods)* };
}
#[cfg(feature = "tokio")]
pub(crate) use asynchronous;

/// Sends one command.
pub async fn one(io: &impl Io, command: Cmd) -> Reply {
    let reply = io.ask(vec![command], None).await.pop();
    reply.unwrap_or_else(|| Err((redis::ErrorKind::Client, "the connection returned no reply").into()))
}

/// Begins a command whose first argument is a key.
pub fn command(name: &str, key: &[u8]) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(key);
    command
}
