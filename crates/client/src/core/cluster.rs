//! Routes commands to the nodes of a cluster. The cluster clients of redis-rs are not used: with retries turned off, so that no
//! command is sent twice, they do not follow a moved slot either.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{Arg, Cmd, ErrorKind, RedisError, ServerErrorKind};

use super::{Reply, is_to_be_left};
use crate::Error;
use crate::slots::{Address, Slots, known_host};

/// The maximum number of redirections that a command follows.
const REDIRECTIONS: usize = 5;

/// A client of one node.
pub trait Node: Clone + Send + Sync + 'static {
    /// Sends commands together on one connection, like [`Io::ask`](super::Io::ask).
    fn exchange(&self, commands: Vec<Cmd>, wait: Option<Duration>) -> impl Future<Output = Vec<Reply>> + Send;

    /// Like `exchange`, for several nodes in parallel.
    fn exchange_all(
        of_nodes: Vec<(Self, Vec<Cmd>)>,
        wait: Option<Duration>,
    ) -> impl Future<Output = Vec<Vec<Reply>>> + Send;
}

/// The nodes of a cluster.
#[derive(Debug)]
pub struct Cluster<N> {
    /// The addresses that the caller specified.
    seeds: Vec<Address>,
    state: Mutex<State<N>>,
}

#[derive(Debug)]
struct State<N> {
    /// `None` before the first command, and after a slot has moved or a node was lost.
    slots: Option<Arc<Slots>>,
    nodes: HashMap<Address, N>,
}

/// A command without a reply yet, and its position in the call.
type Unanswered = (usize, Cmd);

impl<N: Node> Cluster<N> {
    pub fn new(seeds: Vec<Address>) -> Self {
        Self { seeds, state: Mutex::new(State { slots: None, nodes: HashMap::new() }) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State<N>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the client of a node.
    fn node(&self, address: &Address, open: impl Fn(&Address) -> Result<N, RedisError>) -> Result<N, RedisError> {
        if let Some(node) = self.lock().nodes.get(address) {
            return Ok(node.clone());
        }
        let node = open(address)?;
        Ok(self.lock().nodes.entry(address.clone()).or_insert(node).clone())
    }

    /// Returns the nodes of all slots, from the first node that answers.
    async fn slots(&self, open: impl Fn(&Address) -> Result<N, RedisError>) -> Result<Arc<Slots>, RedisError> {
        let known = {
            let state = self.lock();
            if let Some(slots) = &state.slots {
                return Ok(Arc::clone(slots));
            }
            let others = state.nodes.keys().filter(|address| !self.seeds.contains(address));
            self.seeds.iter().chain(others).cloned().collect::<Vec<_>>()
        };
        let mut error = RedisError::from((ErrorKind::Client, "the cluster has no nodes"));
        for address in known {
            let mut command = redis::cmd("CLUSTER");
            command.arg("SLOTS");
            match self.node(&address, &open)?.exchange(vec![command], None).await.pop() {
                Some(Ok(reply)) => {
                    let unreadable = |_: Error| (ErrorKind::UnexpectedReturnType, "the reply to CLUSTER SLOTS");
                    let slots = Arc::new(Slots::read(&reply, &address.0).map_err(unreadable)?);
                    self.lock().slots = Some(Arc::clone(&slots));
                    return Ok(slots);
                }
                Some(Err(failed)) => error = failed,
                None => (),
            }
        }
        Err(error)
    }

    /// Sends commands to the nodes that hold their first keys. A command is sent again only if a node has refused it because its
    /// slot has moved. `open` creates the client of a node.
    pub async fn ask(
        &self,
        commands: Vec<Cmd>,
        wait: Option<Duration>,
        open: impl Fn(&Address) -> Result<N, RedisError>,
    ) -> Vec<Reply> {
        let unserved = || RedisError::from((ErrorKind::Client, "the slot of the key has moved too often"));
        let mut replies: Vec<Reply> = commands.iter().map(|_| Err(unserved())).collect();
        let mut left: Vec<Unanswered> = commands.into_iter().enumerate().collect();
        for _ in 0..REDIRECTIONS {
            let mut answered = match self.slots(&open).await {
                Ok(slots) => self.round(left, &slots, wait, &open).await,
                Err(error) => left.into_iter().map(|unanswered| (unanswered, Err(error.clone()))).collect(),
            };
            // In the order of the call: commands for one key stay in their order.
            answered.sort_by_key(|((position, _), _)| *position);
            left = Vec::new();
            for ((position, command), reply) in answered {
                match &reply {
                    Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::Moved) => {
                        left.push((position, command));
                    }
                    _ => {
                        if let Some(place) = replies.get_mut(position) {
                            *place = reply;
                        }
                    }
                }
            }
            if left.is_empty() {
                break;
            }
            self.lock().slots = None;
        }
        replies
    }

    /// Sends each command once, to all nodes in parallel.
    async fn round(
        &self,
        commands: Vec<Unanswered>,
        slots: &Slots,
        wait: Option<Duration>,
        open: impl Fn(&Address) -> Result<N, RedisError>,
    ) -> Vec<(Unanswered, Reply)> {
        let mut answered = Vec::new();
        let mut of_nodes: BTreeMap<Address, Vec<Unanswered>> = BTreeMap::new();
        for unanswered in commands {
            match first_key(&unanswered.1).and_then(|key| slots.node(key)) {
                Some(address) => of_nodes.entry(address.clone()).or_default().push(unanswered),
                None => {
                    let error =
                        RedisError::from((ErrorKind::Client, "no node of the cluster holds the slot of the key"));
                    answered.push((unanswered, Err(error)));
                }
            }
        }
        let mut sent = Vec::new();
        let mut exchanges = Vec::new();
        for (address, commands) in of_nodes {
            match self.node(&address, &open) {
                Ok(node) => {
                    exchanges.push((node, commands.iter().map(|(_, command)| command.clone()).collect()));
                    sent.push((address, commands));
                }
                Err(error) => answered.extend(commands.into_iter().map(|one| (one, Err(error.clone())))),
            }
        }
        let replies = N::exchange_all(exchanges, wait).await;
        let sent = sent
            .into_iter()
            .flat_map(|(address, commands)| commands.into_iter().map(move |one| (address.0.clone(), one)));
        for ((host, unanswered), reply) in sent.zip(replies.into_iter().flatten()) {
            let reply = match reply {
                Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::Ask) => {
                    self.follow(&error, &host, unanswered.1.clone(), wait, &open).await
                }
                Err(error) => {
                    let is_answer = matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension);
                    if !is_answer || is_to_be_left(error.code()) {
                        // Another node may have taken over its slots.
                        self.lock().slots = None;
                    }
                    Err(error)
                }
                reply => reply,
            };
            answered.push((unanswered, reply));
        }
        answered
    }

    /// Sends a command to the node to which a slot is moving. A redirection without a host refers to the host of the node that
    /// replied.
    async fn follow(
        &self,
        ask: &RedisError,
        asked_host: &str,
        command: Cmd,
        wait: Option<Duration>,
        open: impl Fn(&Address) -> Result<N, RedisError>,
    ) -> Reply {
        let target = ask.redirect_node().and_then(|(address, _slot)| address.rsplit_once(':'));
        let target = target.and_then(|(host, port)| Some((known_host(host).unwrap_or(asked_host), port.parse().ok()?)));
        let Some((host, port)) = target else { return Err(ask.clone()) };
        let node = self.node(&(host.to_owned(), port), open)?;
        let reply = node.exchange(vec![redis::cmd("ASKING"), command], wait).await.pop();
        reply.unwrap_or_else(|| Err(ask.clone()))
    }
}

/// Returns the first key of a command. A command without a key may go to any node.
fn first_key(command: &Cmd) -> Option<&[u8]> {
    match command.args_iter().nth(1)? {
        Arg::Simple(key) => Some(key),
        _ => None,
    }
}
