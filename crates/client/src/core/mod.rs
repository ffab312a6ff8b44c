//! Every decision of this crate, written once: which commands are sent in which order, and what their replies mean. The functions
//! are asynchronous and reach a server only through [`Io`]. [`crate::Client`] implements it for threads, where a
//! function is never pending and [`now`] runs it to its end.

mod filter;
mod sharded;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use redis::{Cmd, RedisError, Value};

pub use filter::{FilterCore, plan};
pub use sharded::{Batch, ShardedCore, create as create_sharded};

/// What the server sent for one command, or why nothing came. An error inside an array reply stays where it is.
pub type Reply = Result<Value, RedisError>;

/// A way to reach a server.
pub trait Io: Sync {
    /// Sends commands together on one connection, and returns their replies in order. No command is ever sent twice.
    fn ask(&self, commands: Vec<Cmd>) -> impl Future<Output = Vec<Reply>> + Send;
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
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(result) => return result,
            Poll::Pending => thread::park(),
        }
    }
}

/// Sends one command.
pub async fn one(io: &impl Io, command: Cmd) -> Reply {
    let reply = io.ask(vec![command]).await.pop();
    reply.unwrap_or_else(|| Err((redis::ErrorKind::Client, "the connection returned no reply").into()))
}

/// Begins a command whose first argument is a key.
pub fn command(name: &str, key: &[u8]) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(key);
    command
}
