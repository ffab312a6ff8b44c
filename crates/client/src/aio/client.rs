//! The connections of a process, for tasks.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ErrorKind, IntoConnectionInfo, Pipeline, RedisError, Value};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinError, JoinHandle};
use tokio::time;

use super::queue::Queue;
use crate::Error;
#[cfg(feature = "tls")]
use crate::client::choose_provider;
use crate::client::{Settings, TIMEOUT, at, client_methods, in_use, pipeline, replies, seeds};
use crate::core::{Cluster, Io, Node, Reply, Slot, Waiter, is_reusable};
use crate::slots::Address;

/// A server and a pool of connections to it, shared by all filters and guards of a process. Clones share the pool.
///
/// All commands use one connection, except commands that wait in the server, which use separate connections. A command whose
/// connection is lost fails: no command is sent twice.
///
/// ```no_run
/// use std::time::Duration;
/// use bloomgate_client::aio::Client;
///
/// # fn main() -> Result<(), bloomgate_client::Error> {
/// let client = Client::open("redis://127.0.0.1/")?.with_connections(20).with_timeout(Duration::from_millis(300));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Client {
    settings: Arc<Settings>,
    connections: Arc<Connections>,
    cluster: Option<Arc<Cluster<Client>>>,
}

struct Connections {
    /// The connection for commands that do not wait. While a caller opens it, the others wait for this lock.
    shared: tokio::sync::Mutex<Shared>,
    /// How many attempts to open it have ended.
    attempts: AtomicU64,
    /// Idle connections for commands that wait.
    idle: Mutex<Vec<MultiplexedConnection>>,
    /// The number of further connections that commands that wait may use.
    free: Semaphore,
    /// The number of these connections that wait for a row.
    waiting: Arc<AtomicUsize>,
    /// Commands that are sent together.
    queue: Arc<Queue>,
}

#[derive(Default)]
struct Shared {
    /// The connection, and the number of the attempt that opened it, which identifies it.
    opened: Option<(u64, MultiplexedConnection)>,
    /// The error of the last attempt, if it failed.
    failed: Option<RedisError>,
}

impl Connections {
    /// One connection is shared. At least one more is needed for commands that wait.
    fn new(most: usize) -> Self {
        Self {
            shared: tokio::sync::Mutex::default(),
            attempts: AtomicU64::default(),
            idle: Mutex::default(),
            free: Semaphore::new(most.saturating_sub(1).clamp(1, Semaphore::MAX_PERMITS)),
            waiting: Arc::default(),
            queue: Arc::default(),
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<MultiplexedConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.debug_struct("Connections").field("attempts", &self.attempts).finish_non_exhaustive()
    }
}

client_methods!();

impl Client {
    /// Uses the settings of a client of [redis-rs](crate::redis), for example its TLS certificates.
    pub fn of(redis: redis::Client) -> Self {
        let settings = Settings { redis, connections: 100, timeout: TIMEOUT };
        Self {
            connections: Arc::new(Connections::new(settings.connections)),
            settings: Arc::new(settings),
            cluster: None,
        }
    }

    /// Sets the maximum number of connections, at least 2. At most half of them wait for a row; further callers wait in the
    /// process.
    #[must_use]
    pub fn with_connections(mut self, most: usize) -> Self {
        Arc::make_mut(&mut self.settings).connections = most.max(2);
        self.connections = Arc::new(Connections::new(most));
        self
    }

    async fn connect(&self, begun: Instant) -> Result<MultiplexedConnection, RedisError> {
        #[cfg(feature = "tls")]
        choose_provider(&self.settings.redis);
        let timeout = Some(self.left(begun));
        let config = AsyncConnectionConfig::new().set_connection_timeout(timeout).set_response_timeout(timeout);
        self.settings.redis.get_multiplexed_async_connection_with_config(&config).await
    }

    /// Returns a client of one node with this client's settings.
    fn node(&self, address: &Address) -> Result<Self, RedisError> {
        let redis = at(&self.settings.redis, address)?;
        let settings = Arc::new(Settings { redis, ..Settings::clone(&self.settings) });
        let connections = Arc::new(Connections::new(settings.connections));
        Ok(Self { settings, connections, cluster: None })
    }

    /// Returns the shared connection, opening it if necessary. If another caller's attempt fails while this call waits for it,
    /// this call fails, too: if all callers tried in turn, the last would wait too long.
    async fn shared(&self, begun: Instant) -> Result<(u64, MultiplexedConnection), RedisError> {
        let connections = &self.connections;
        let known = connections.attempts.load(Ordering::SeqCst);
        let mut shared = connections.shared.lock().await;
        if let Some(opened) = &shared.opened {
            return Ok(opened.clone());
        }
        let ended = connections.attempts.load(Ordering::SeqCst);
        if let Some(error) = shared.failed.as_ref().filter(|_| ended > known) {
            return Err(error.clone());
        }
        let attempt = Box::pin(self.connect(begun)).await;
        connections.attempts.store(ended + 1, Ordering::SeqCst);
        shared.failed = attempt.as_ref().err().cloned();
        Ok(shared.opened.insert((ended + 1, attempt?)).clone())
    }

    /// Sends commands on the shared connection. After an error the next call opens another connection: a lost or hung
    /// connection does not recover, nor does a connection to a server that is no longer the primary.
    async fn query(&self, commands: &Pipeline) -> Result<Vec<Value>, RedisError> {
        let begun = Instant::now();
        let (number, mut connection) = self.shared(begun).await?;
        connection.set_response_timeout(self.left(begun));
        let result: Result<Vec<Value>, _> = commands.query_async(&mut connection).await;
        if !result.as_deref().is_ok_and(is_reusable) {
            let mut shared = self.connections.shared.lock().await;
            if shared.opened.as_ref().is_some_and(|(other, _)| *other == number) {
                shared.opened = None;
                // The server may have restarted, and the idle connections would fail, too.
                self.connections.idle().clear();
            }
        }
        result
    }

    /// Sends commands on a connection that no other caller uses until the replies have arrived.
    async fn query_alone(&self, commands: &Pipeline, wait: Duration) -> Result<Vec<Value>, RedisError> {
        let begun = Instant::now();
        let free = time::timeout(self.settings.timeout, self.connections.free.acquire()).await;
        let _permit = free.ok().and_then(Result::ok).ok_or_else(in_use)?;
        let idle = self.connections.idle().pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => Box::pin(self.connect(begun)).await?,
        };
        connection.set_response_timeout(self.left(begun).saturating_add(wait));
        let result: Result<Vec<Value>, _> = commands.query_async(&mut connection).await;
        match &result {
            Ok(replies) if is_reusable(replies) => self.connections.idle().push(connection),
            _ => self.connections.idle().clear(),
        }
        result
    }
}

/// Runs work on the runtime of this thread, if there is one. If the runtime ends, it drops its tasks.
pub(super) fn detach(work: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(work);
    }
}

/// Cancels a task unless it was disarmed.
struct Abort(Option<AbortHandle>);

impl Drop for Abort {
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            task.abort();
        }
    }
}

impl Node for Client {
    async fn exchange(&self, commands: Vec<Cmd>, wait: Option<Duration>) -> Vec<Reply> {
        let (count, commands) = (commands.len(), pipeline(commands));
        let result = match wait {
            Some(wait) => self.query_alone(&commands, wait).await,
            None => self.query(&commands).await,
        };
        replies(result, count)
    }

    async fn exchange_all(of_nodes: Vec<(Self, Vec<Cmd>)>, wait: Option<Duration>) -> Vec<Vec<Reply>> {
        let mut tasks = Vec::new();
        for (node, commands) in of_nodes {
            let count = commands.len();
            tasks.push((count, tokio::spawn(async move { node.exchange(commands, wait).await })));
        }
        let mut replies = Vec::new();
        for (count, task) in tasks {
            let lost = || Err((ErrorKind::Io, "the runtime has ended").into());
            replies.push(ended(task).await.unwrap_or_else(|| (0..count).map(|_| lost()).collect()));
        }
        replies
    }
}

/// Waits until a task has ended. If it panicked, this call panics. Returns `None` if the task's runtime has ended, which is
/// possible because the caller may run on another one.
async fn ended<T>(task: JoinHandle<T>) -> Option<T> {
    match task.await.map_err(JoinError::try_into_panic) {
        Ok(result) => Some(result),
        Err(Ok(panic)) => resume_unwind(panic),
        Err(Err(_)) => None,
    }
}

impl Io for Client {
    async fn ask(&self, commands: Vec<Cmd>, wait: Option<Duration>) -> Vec<Reply> {
        match &self.cluster {
            // Boxed, like the future that connects: nested in a program's futures, they would exceed the compiler's depth limit.
            Some(cluster) => Box::pin(cluster.ask(commands, wait, |address| self.node(address))).await,
            None => self.exchange(commands, wait).await,
        }
    }

    async fn ask_together(&self, commands: Vec<Cmd>) -> Vec<Reply> {
        self.connections.queue.ask(self, commands).await
    }

    fn send(&self, commands: Vec<Cmd>) {
        let client = self.clone();
        detach(async move { drop(client.ask(commands, None).await) });
    }

    async fn finish<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        ended(tokio::spawn(work)).await
    }

    async fn sleep(&self, time: Duration) {
        time::sleep(time).await;
    }

    async fn wait(&self, waiters: &[Arc<Waiter>], at_most: Duration) {
        // The flights record which of them were resumed.
        _ = time::timeout(at_most, Waiter::any_resumed(waiters)).await;
    }

    fn take_slot(&self) -> Option<Slot> {
        Slot::take(&self.connections.waiting, self.settings.connections / 2)
    }

    type Running<T: Send + 'static> = JoinHandle<T>;

    fn start<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        tokio::spawn(work)
    }

    async fn join<T: Send + 'static>(&self, running: &mut JoinHandle<T>, at_most: Duration) -> Option<T> {
        let mut abort = Abort(Some(running.abort_handle()));
        let ended = time::timeout(at_most, running).await;
        abort.0 = None;
        ended.ok()?.ok()
    }

    fn is_cluster(&self) -> bool {
        self.cluster.is_some()
    }
}
