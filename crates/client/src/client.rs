//! A pool of connections for threads.

use std::future::ready;
use std::io;
use std::panic::resume_unwind;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Cmd, Connection, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, Pipeline, RedisError, Value};

use crate::Error;
use crate::core::{Cluster, Io, Node, Reply, Slot, Waiter, is_reusable, now, now_within, split};
use crate::slots::Address;

/// How long a call to the server may take by default.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(1);

/// A server and a pool of connections to it, shared by all filters and guards of a process. Clones share the pool.
///
/// A command whose connection is lost fails: no command is sent twice.
///
/// ```no_run
/// use std::time::Duration;
/// use bloomgate_client::Client;
///
/// # fn main() -> Result<(), bloomgate_client::Error> {
/// let client = Client::open("redis://127.0.0.1/")?.with_connections(20).with_timeout(Duration::from_millis(300));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Client {
    settings: Arc<Settings>,
    pool: Arc<Pool>,
    cluster: Option<Arc<Cluster<Client>>>,
}

/// The settings of a client.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub redis: redis::Client,
    pub connections: usize,
    pub timeout: Duration,
}

/// The connections of a client.
#[derive(Default)]
struct Pool {
    state: Mutex<State>,
    /// Notified if a connection has become free, or was closed.
    changed: Condvar,
    /// The number of connections that wait in the server.
    waiting: Arc<AtomicUsize>,
}

#[derive(Default)]
struct State {
    idle: Vec<Limited>,
    open: usize,
    /// The number of callers that wait for a connection.
    callers: usize,
}

/// A connection and the time limit of its socket, which is stored because setting it for each command would take two system
/// calls.
struct Limited {
    connection: Connection,
    limit: Duration,
}

impl Limited {
    /// Sets the time limits: `left` for sending, and `wait` plus `left` for the reply. A limit that is up to a twentieth longer
    /// is kept.
    fn set_limit(&mut self, left: Duration, wait: Duration) -> Result<(), RedisError> {
        // A socket cannot have a time limit of 0.
        let left = left.max(Duration::from_millis(1));
        let limit = left.saturating_add(wait);
        if self.limit < limit || self.limit > limit + limit / 20 {
            self.connection.set_write_timeout(Some(left))?;
            self.connection.set_read_timeout(Some(limit))?;
            self.limit = limit;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.debug_struct("Pool").field("open", &self.lock().open).finish_non_exhaustive()
    }
}

impl Pool {
    /// Locks the state. No code that can panic runs under the lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes idle connections.
    fn close_idle(&self) {
        let mut state = self.lock();
        let idle = std::mem::take(&mut state.idle);
        state.open -= idle.len();
        drop(state);
        self.changed.notify_all();
    }
}

/// A place in a pool, and its connection, unless that is being opened or was lost.
struct Place {
    pool: Arc<Pool>,
    connection: Option<Limited>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        match self.connection.take() {
            Some(connection) => state.idle.push(connection),
            None => state.open -= 1,
        }
        let has_callers = state.callers > 0;
        drop(state);
        if has_callers {
            self.pool.changed.notify_one();
        }
    }
}

/// Defines the methods that clients for threads and for tasks share.
macro_rules! client_methods {
    () => {
        impl Client {
            /// Creates a client of a server, for example `redis://HOST:PORT/DATABASE`, or `rediss://...` with the feature
            /// `tls`. It opens up to 100 connections on demand. The time limit of a call is 1 second.
            ///
            /// # Errors
            /// The URL is invalid.
            pub fn open(server: impl IntoConnectionInfo) -> Result<Self, Error> {
                Ok(Self::of(redis::Client::open(server)?))
            }

            /// Creates a client of a cluster from some of its nodes; one reachable node is enough to find the others. Commands
            /// are sent to the node that holds their key, and each node has the pool of [`Self::with_connections`]. All nodes
            /// use the password and the TLS settings of the first node here.
            ///
            /// # Errors
            /// A URL is invalid, or no URL is given.
            pub fn cluster<T: IntoConnectionInfo>(nodes: impl IntoIterator<Item = T>) -> Result<Self, Error> {
                let (redis, seeds) = seeds(nodes)?;
                Ok(Self { cluster: Some(Arc::new(Cluster::new(seeds))), ..Self::of(redis) })
            }

            /// Sets the time limit of a call, including the wait for a connection: 1 second by default. Commands that wait in
            /// the server, for a guard's `wait` or its durability, extend it by that wait. Merges of large filters need a
            /// longer limit.
            #[must_use]
            pub fn with_timeout(mut self, timeout: Duration) -> Self {
                Arc::make_mut(&mut self.settings).timeout = timeout;
                self
            }

            /// Returns the remaining time of a call's time limit.
            fn left(&self, begun: Instant) -> Duration {
                self.settings.timeout.saturating_sub(begun.elapsed())
            }
        }
    };
}
#[cfg(feature = "tokio")]
pub(crate) use client_methods;

client_methods!();

impl Client {
    /// Uses the settings of a client of [redis-rs](crate::redis), for example its TLS certificates.
    pub fn of(redis: redis::Client) -> Self {
        let settings = Settings { redis, connections: 100, timeout: TIMEOUT };
        Self { settings: Arc::new(settings), pool: Arc::default(), cluster: None }
    }

    /// Sets the maximum number of connections, at least 1. If all are in use, a caller waits for one.
    #[must_use]
    pub fn with_connections(mut self, most: usize) -> Self {
        Arc::make_mut(&mut self.settings).connections = most.max(1);
        self
    }

    /// Takes an idle connection from the pool, or a place for a new one.
    fn take(&self, begun: Instant) -> Result<Place, RedisError> {
        let mut state = self.pool.lock();
        loop {
            let connection = state.idle.pop();
            if connection.is_some() || state.open < self.settings.connections {
                state.open += usize::from(connection.is_none());
                return Ok(Place { pool: Arc::clone(&self.pool), connection });
            }
            let left = self.left(begun);
            if left.is_zero() {
                return Err(in_use());
            }
            state.callers += 1;
            state = self.pool.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            state.callers -= 1;
        }
    }

    /// Returns a client of one node with this client's settings.
    fn node(&self, address: &Address) -> Result<Self, RedisError> {
        let redis = at(&self.settings.redis, address)?;
        let settings = Arc::new(Settings { redis, ..Settings::clone(&self.settings) });
        Ok(Self { settings, pool: Arc::default(), cluster: None })
    }

    fn query(&self, commands: &Pipeline, wait: Option<Duration>) -> Result<Vec<Value>, RedisError> {
        let begun = Instant::now();
        let mut place = self.take(begun)?;
        // A connection is not returned to the pool after an error, because replies may still arrive on it.
        let mut limited = match place.connection.take() {
            Some(limited) => limited,
            None => {
                #[cfg(feature = "tls")]
                choose_provider(&self.settings.redis);
                let connection = self.settings.redis.get_connection_with_timeout(self.left(begun))?;
                Limited { connection, limit: Duration::ZERO }
            }
        };
        limited.set_limit(self.left(begun), wait.unwrap_or_default())?;
        let result: Result<Vec<Value>, _> = commands.query(&mut limited.connection);
        match &result {
            Ok(replies) if is_reusable(replies) => place.connection = Some(limited),
            Ok(_) => self.pool.close_idle(),
            // The server may have restarted, and the idle connections would fail, too.
            Err(error) if error.is_connection_dropped() => self.pool.close_idle(),
            Err(_) => {}
        }
        result
    }
}

/// Installs a cryptography provider for rustls unless the program has installed one: rustls panics if it has no provider, or
/// several.
#[cfg(feature = "tls")]
pub(crate) fn choose_provider(redis: &redis::Client) {
    let is_tls = matches!(redis.get_connection_info().addr(), ConnectionAddr::TcpTls { .. });
    if is_tls && rustls::crypto::CryptoProvider::get_default().is_none() {
        // Another thread may have chosen one in the meantime.
        _ = rustls::crypto::ring::default_provider().install_default();
    }
}

/// Returns the settings of a cluster client, and the addresses of the nodes that the caller specified.
pub(crate) fn seeds<T: IntoConnectionInfo>(
    nodes: impl IntoIterator<Item = T>,
) -> Result<(redis::Client, Vec<Address>), Error> {
    let infos: Result<Vec<_>, _> = nodes.into_iter().map(IntoConnectionInfo::into_connection_info).collect();
    let infos = infos?;
    let address = |info: &ConnectionInfo| match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => Ok((host.clone(), *port)),
        _ => Err(Error::Refused("a node of a cluster has a host and a port".to_owned())),
    };
    let seeds: Result<Vec<_>, _> = infos.iter().map(address).collect();
    match infos.into_iter().next() {
        Some(first) => Ok((redis::Client::open(first)?, seeds?)),
        None => Err(Error::Refused("a cluster has at least one node".to_owned())),
    }
}

/// Returns a client with the same settings for another address.
pub(crate) fn at(redis: &redis::Client, (host, port): &Address) -> Result<redis::Client, RedisError> {
    let info = redis.get_connection_info().clone();
    let (host, port) = (host.clone(), *port);
    let address = match info.addr().clone() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure, tls_params }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    redis::Client::open(info.set_addr(address))
}

/// The error of a caller that did not get a connection in time.
pub(crate) fn in_use() -> RedisError {
    io::Error::new(io::ErrorKind::TimedOut, "all connections are in use").into()
}

/// Joins commands into one request, in which each gets its own reply, even if another fails.
pub(crate) fn pipeline(commands: Vec<Cmd>) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(commands.len());
    for command in commands {
        pipeline.add_command(command);
    }
    pipeline.ignore_errors();
    pipeline
}

/// Returns the reply to each command.
pub(crate) fn replies(result: Result<Vec<Value>, RedisError>, count: usize) -> Vec<Reply> {
    match result {
        Ok(replies) => replies.into_iter().map(split).collect(),
        Err(error) => vec![Err(error); count],
    }
}

impl Node for Client {
    async fn exchange(&self, commands: Vec<Cmd>, wait: Option<Duration>) -> Vec<Reply> {
        let count = commands.len();
        replies(self.query(&pipeline(commands), wait), count)
    }

    /// Sends to each node in a separate thread, because a caller blocks until the reply arrives.
    async fn exchange_all(of_nodes: Vec<(Self, Vec<Cmd>)>, wait: Option<Duration>) -> Vec<Vec<Reply>> {
        let one = |(node, commands): (Self, Vec<Cmd>)| now(node.exchange(commands, wait));
        if of_nodes.len() == 1 {
            return of_nodes.into_iter().map(one).collect();
        }
        thread::scope(|scope| {
            let threads: Vec<_> = of_nodes.into_iter().map(|of_node| scope.spawn(|| one(of_node))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
        })
    }
}

impl Io for Client {
    async fn ask(&self, commands: Vec<Cmd>, wait: Option<Duration>) -> Vec<Reply> {
        match &self.cluster {
            Some(cluster) => cluster.ask(commands, wait, |address| self.node(address)).await,
            None => self.exchange(commands, wait).await,
        }
    }

    async fn ask_together(&self, commands: Vec<Cmd>) -> Vec<Reply> {
        // The pool limits the number of these commands, because each caller holds a connection.
        self.ask(commands, None).await
    }

    fn send(&self, commands: Vec<Cmd>) {
        now(self.ask(commands, None));
    }

    async fn sleep(&self, time: Duration) {
        thread::sleep(time);
    }

    async fn finish<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        Some(work.await)
    }

    async fn wait(&self, waiters: &[Arc<Waiter>], at_most: Duration) {
        now_within(Waiter::any_resumed(waiters), at_most);
    }

    fn take_slot(&self) -> Option<Slot> {
        Slot::take(&self.pool.waiting, self.settings.connections / 2)
    }

    type Running<T: Send + 'static> = Receiver<T>;

    fn start<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Receiver<T> {
        let (sender, receiver) = channel();
        // The caller may have returned already, with an old value.
        thread::spawn(move || _ = sender.send(now(work)));
        receiver
    }

    fn join<T: Send + 'static>(
        &self,
        running: &mut Receiver<T>,
        at_most: Duration,
    ) -> impl Future<Output = Option<T>> + Send {
        ready(running.recv_timeout(at_most).ok())
    }

    fn is_cluster(&self) -> bool {
        self.cluster.is_some()
    }
}
