//! The server, or the nodes of a cluster. Sends each command to the node of its key, and turns every failure into one line with a remedy.
//! `options` parses how to reach a server, `connection` opens one connection, `sentinel` finds a primary, and `cluster` finds the node of a
//! key.

mod cluster;
mod connection;
mod options;
mod sentinel;

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use bloomgate_client::slots::Slots;
pub use bloomgate_client::slots::slot;
use redis::{Cmd, Connection, Pipeline, RedisError, ServerError, Value, cmd, from_redis_value};

use self::cluster::is_moving;
pub use self::connection::ConnectionLost;
use self::connection::{line, open};
pub use self::options::{Options, Usage, usage};
pub use crate::names::shown;

/// The address of a node, `HOST:PORT`.
pub type Address = String;

/// Time limit of a resumable command for reconnecting to a lost server.
pub const RECONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a reply may take. A hung server accepts commands without answering them.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// The pause between two attempts.
const SETTLE_INTERVAL: Duration = Duration::from_millis(50);

/// A server or a cluster.
pub struct Server {
    options: Options,
    name: String,
    /// The node that the options or their Sentinels name.
    first: Address,
    connections: BTreeMap<Address, Connection>,
    slots: Option<Slots>,
    /// The database that the options name, if they name one.
    named_database: Option<u32>,
    /// The database that every connection has selected.
    database: u32,
    patience: Duration,
}

impl Server {
    /// Connects to the server, to the primary of the options' Sentinels, or to a cluster through the node in the options.
    /// The error never contains a password.
    pub fn connect(options: &Options) -> Result<Self> {
        let named_database = options.database()?;
        let mut server = Self {
            first: options.address()?,
            name: options.name()?,
            options: options.clone(),
            connections: BTreeMap::new(),
            slots: None,
            named_database,
            database: named_database.unwrap_or(0),
            patience: PATIENCE,
        };
        server.open_first()?;
        if options.is_cluster() || server.hello("mode")?.as_deref() == Some("cluster") {
            server.read_slots()?;
        }
        Ok(server)
    }

    /// Returns a field of HELLO, which needs no permission. A proxy may not support it.
    fn hello(&mut self, field: &str) -> Result<Option<String>> {
        let first = self.first.clone();
        let hello = match self.ask_node(&first, &cmd("HELLO")) {
            Err(error) if error.is::<ConnectionLost>() => return Err(error),
            hello => hello.ok(),
        };
        let fields: Option<BTreeMap<String, Value>> = hello.and_then(|hello| from_redis_value(hello).ok());
        let value = fields.and_then(|mut fields| fields.remove(field));
        Ok(value.and_then(|value| from_redis_value(value).ok()))
    }

    /// Sets how long a reply may take before the connection counts as lost.
    pub fn set_patience(&mut self, patience: Duration) -> Result<()> {
        self.patience = patience;
        for connection in self.connections.values() {
            connection.set_read_timeout(Some(patience))?;
            connection.set_write_timeout(Some(patience))?;
        }
        Ok(())
    }

    /// Reconnects after a [`ConnectionLost`], until a server responds or the time limit is reached.
    pub fn reconnect(&mut self, for_at_most: Duration) -> Result<()> {
        // By default, Sentinels wait for a lost primary for 30 s before they begin a failover.
        let until = Instant::now() + for_at_most * if self.options.has_sentinels() { 3 } else { 1 };
        loop {
            let result = self.connect_again();
            if result.is_ok() || Instant::now() >= until {
                return result;
            }
            thread::sleep(SETTLE_INTERVAL);
        }
    }

    fn connect_again(&mut self) -> Result<()> {
        self.connections.clear();
        if !self.is_cluster() {
            self.open_first()?;
            // A server that is loading its data replies to commands with an error. The user may lack permission for this command or for the
            // key.
            return match self.exchange_one(&self.first.clone(), cmd("EXISTS").arg(""))? {
                Value::ServerError(error) if error.code() != "NOPERM" => Err(self.lost(&error.into())),
                _ => Ok(()),
            };
        }
        // Any known node of a cluster can list the current nodes.
        let mut result = Ok(());
        for node in self.nodes().into_iter().chain([self.first.clone()]) {
            self.first = node;
            result = self.read_slots();
            if result.is_ok() {
                // A failed node keeps its slots until a replica takes over.
                return self.nodes().iter().try_for_each(|node| self.connection(node).map(drop));
            }
        }
        result
    }

    /// Returns [the name](Options::name) in the options.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The selected database.
    pub const fn database(&self) -> u32 {
        self.database
    }

    /// Selects another database, on every node of a cluster, for all later commands.
    pub fn select(&mut self, database: u32) -> Result<()> {
        if database == self.database {
            return Ok(());
        }
        self.options.database = Some(database);
        let nodes: Vec<Address> = self.connections.keys().cloned().collect();
        for node in nodes {
            self.ask_node(&node, cmd("SELECT").arg(database))
                .with_context(|| format!("cannot use database {database}"))?;
        }
        self.database = database;
        Ok(())
    }

    /// Returns the database of the options or, if they name none, every database that has keys.
    pub fn databases(&mut self) -> Result<Vec<u32>> {
        if let Some(database) = self.named_database {
            return Ok(vec![database]);
        }
        let mut databases = BTreeSet::new();
        for node in self.all_nodes()? {
            let keyspace = self
                .ask_node(&node, cmd("INFO").arg("keyspace"))
                .context("cannot list the databases (-n NUMBER names one)")?;
            let keyspace: String = from_redis_value(keyspace)?;
            let database = |line: &str| line.strip_prefix("db")?.split_once(':')?.0.parse::<u32>().ok();
            databases.extend(keyspace.lines().filter_map(database));
        }
        // An empty server has no such line.
        Ok(if databases.is_empty() { vec![0] } else { databases.into_iter().collect() })
    }

    /// Whether it is a cluster.
    pub const fn is_cluster(&self) -> bool {
        self.slots.is_some()
    }

    /// Returns the nodes that hold keys, which together have all keys.
    /// Fails if some slots of the cluster have no node.
    pub fn all_nodes(&self) -> Result<Vec<Address>> {
        let missing = self.slots.as_ref().map_or(0, Slots::unassigned);
        ensure!(missing == 0, "the cluster at {} has no node for {missing} of its slots", self.first);
        Ok(self.nodes())
    }

    /// Returns the nodes that hold keys: each primary of a cluster, or the one server.
    pub fn nodes(&self) -> Vec<Address> {
        let Some(slots) = &self.slots else { return vec![self.first.clone()] };
        slots.nodes().map(|(host, port)| format!("{host}:{port}")).collect()
    }

    /// Sends one command about `key` and returns its reply. Fails with the server's error in one line, or with [`ConnectionLost`]. An error
    /// inside an array reply is returned as an element.
    pub fn ask(&mut self, command: &Cmd, key: impl AsRef<[u8]>) -> Result<Value> {
        let reply = self.replies_of_many(&[(&key, command)])?.pop().unwrap_or(Value::Nil);
        self.checked(reply, key)
    }

    /// Sends commands about `key` in one go and returns their replies in order, or the first error among them. An error inside an array
    /// reply is returned as an element.
    pub fn ask_all(&mut self, commands: &Pipeline, key: impl AsRef<[u8]>) -> Result<Vec<Value>> {
        self.replies(commands, &key)?.into_iter().map(|reply| self.checked(reply, &key)).collect()
    }

    /// Sends commands with their keys to all nodes in parallel. Returns the replies in the order of the commands, or the first error
    /// among them.
    pub fn ask_many(&mut self, commands: &[(impl AsRef<[u8]>, impl Borrow<Cmd>)]) -> Result<Vec<Value>> {
        let replies = self.replies_of_many(commands)?.into_iter().zip(commands);
        replies.map(|(reply, (key, _))| self.checked(reply, key)).collect()
    }

    /// Sends one command for each key and returns the replies, or the first error among them.
    pub fn ask_of_each(&mut self, words: &[&str], keys: &[Vec<u8>]) -> Result<Vec<Value>> {
        let replies = self.replies_of_each(words, keys)?.into_iter().zip(keys);
        replies.map(|(reply, key)| self.checked(reply, key)).collect()
    }

    /// As [`Self::ask_of_each`], but returns error replies as replies.
    pub fn replies_of_each(&mut self, words: &[&str], keys: &[Vec<u8>]) -> Result<Vec<Value>> {
        let of_key = |key| {
            let mut command = Cmd::new();
            words.iter().for_each(|word| _ = command.arg(*word));
            (key, command.arg(key).to_owned())
        };
        self.replies_of_many(&keys.iter().map(of_key).collect::<Vec<_>>())
    }

    /// Returns a reply, or the error message for an error reply.
    pub fn checked(&self, reply: Value, key: impl AsRef<[u8]>) -> Result<Value> {
        if let Value::ServerError(error) = &reply { Err(self.describe(error, key)) } else { Ok(reply) }
    }

    /// As [`Self::ask_all`], but returns error replies as replies.
    pub fn replies(&mut self, commands: &Pipeline, key: impl AsRef<[u8]>) -> Result<Vec<Value>> {
        self.replies_of_many(&commands.cmd_iter().map(|command| (&key, command)).collect::<Vec<_>>())
    }

    /// Sends commands to the node of `key` without ever resending them, so that a transaction is not executed in part or twice. Returns
    /// error replies as replies. Fails with [`ConnectionLost`], also if the slot has moved; in that case nothing was executed.
    pub fn exchange_at(&mut self, commands: &Pipeline, key: impl AsRef<[u8]>) -> Result<Vec<Value>> {
        let node = self.node_of_key(&key)?;
        let replies = self.exchange(&node, commands)?;
        if self.is_cluster() && replies.iter().any(is_moving) {
            self.read_slots()?;
            return Err(ConnectionLost(format!("the slot of `{}` has moved", shown(key))).into());
        }
        Ok(replies)
    }

    /// As [`Self::ask_many`], but returns error replies as replies.
    pub fn replies_of_many(&mut self, commands: &[(impl AsRef<[u8]>, impl Borrow<Cmd>)]) -> Result<Vec<Value>> {
        let (mut nodes, mut packed) = (Vec::with_capacity(commands.len()), BTreeMap::<Address, Vec<u8>>::new());
        for (key, command) in commands {
            let node = self.node_of_key(key)?;
            packed.entry(node.clone()).or_default().extend(command.borrow().get_packed_command());
            nodes.push(node);
        }
        for node in packed.keys() {
            self.connection(node)?;
        }
        // The nodes work in parallel, because each has its commands before the first reply is read.
        for (node, packed) in &packed {
            self.send_to(node, packed)?;
        }
        let mut replies = nodes.iter().map(|node| self.receive(node)).collect::<Result<Vec<_>>>()?;
        // One at a time, in order.
        for (reply, (key, command)) in replies.iter_mut().zip(commands) {
            if self.is_elsewhere(reply) {
                *reply = self.settle(command.borrow(), reply.clone(), key.as_ref())?;
            }
        }
        Ok(replies)
    }

    /// Sends a command to a node, whatever its key.
    pub fn ask_node(&mut self, node: &Address, command: &Cmd) -> Result<Value> {
        let reply = self.exchange_one(node, command)?;
        self.checked(reply, "")
    }

    /// Returns the error message for an error reply of the server.
    pub fn describe(&self, error: &ServerError, key: impl AsRef<[u8]>) -> anyhow::Error {
        let (address, key, details) = (&self.first, shown(key), error.details().unwrap_or_default());
        match error.code() {
            "ERR" if details.starts_with("unknown command") => no_module(address),
            "ERR" if details == "non scaling filter is full" => anyhow!(
                "the filter `{key}` is full and does not grow (NONSCALING): choose another --key, or delete \
                 it and reserve a larger one"
            ),
            "WRONGTYPE" => {
                anyhow!("the key `{key}` at {address} holds a value that is not a filter: choose another --key")
            }
            "NOAUTH" => {
                anyhow!(
                    "the server at {address} requires a password: --pass, or --url redis://[USER]:PASSWORD@HOST:PORT"
                )
            }
            "NOPERM" => anyhow!("the server at {address} denies this user: {details}"),
            "MOVED" => anyhow!(
                "{address} belongs to a cluster and does not hold the key `{key}`: use --cluster (MOVED {details})"
            ),
            code => anyhow!("the server at {address} replied: {code} {details}"),
        }
    }

    fn lost(&self, error: &RedisError) -> anyhow::Error {
        let (first, patience) = (&self.first, self.patience.as_secs());
        let reason = if error.is_timeout() { format!("no answer for {patience} s") } else { line(error) };
        ConnectionLost(format!("lost the server at {first}: {reason}")).into()
    }

    fn exchange(&mut self, node: &Address, commands: &Pipeline) -> Result<Vec<Value>> {
        self.send_to(node, &commands.get_packed_pipeline())?;
        commands.cmd_iter().map(|_| self.receive(node)).collect()
    }

    fn exchange_one(&mut self, node: &Address, command: &Cmd) -> Result<Value> {
        self.send_to(node, &command.get_packed_command())?;
        self.receive(node)
    }

    /// Returns the connection to a node, opening it if necessary.
    fn connection(&mut self, node: &Address) -> Result<&mut Connection> {
        if !self.connections.contains_key(node) {
            let connection = open(&self.options.client(node)?, node, self.patience)?;
            self.connections.insert(node.clone(), connection);
        }
        self.connections.get_mut(node).ok_or_else(|| anyhow!("no connection to {node}"))
    }
}

// Checks that the server has loaded the module. Without it, commands that only read would report a server without filters.

impl Server {
    /// Fails unless every node supports `command`. If the ACL user may not run COMMAND INFO, the check is skipped.
    pub fn require_command(&mut self, command: &str) -> Result<()> {
        for node in self.nodes() {
            let reply = match self.ask_node(&node, cmd("COMMAND").arg("INFO").arg(command)) {
                Err(error) if error.is::<ConnectionLost>() => return Err(error),
                Err(_) => continue,
                Ok(reply) => reply,
            };
            let is_known =
                matches!(&reply, Value::Array(commands) if !matches!(commands.first(), None | Some(Value::Nil)));
            if !is_known {
                bail!(no_module(&node));
            }
        }
        Ok(())
    }
}

/// The error for a server that has not loaded the module.
pub fn no_module(address: &Address) -> anyhow::Error {
    anyhow!(
        "the server at {address} has not loaded the module: start it with redis-server --loadmodule \
         /path/to/libbloomgate.so"
    )
}

// Pipelined commands are sent before earlier replies are read, so that reading, the network and the server work in parallel. The replies of
// a node arrive in the order of its commands.

impl Server {
    /// Sends one encoded command about `key` without waiting. Returns the node that will reply. Until that reply is read, only
    /// [`Self::send`] and [`Self::receive`] may use the node.
    pub fn send(&mut self, packed: &[u8], key: &[u8]) -> Result<Address> {
        let node = self.node_of_key(key)?;
        self.send_to(&node, packed)?;
        Ok(node)
    }

    fn send_to(&mut self, node: &Address, packed: &[u8]) -> Result<()> {
        self.connection(node)?.send_packed_command(packed).map_err(|error| self.lost(&error))
    }

    /// Waits for the next reply of a node. Returns error replies as replies.
    pub fn receive(&mut self, node: &Address) -> Result<Value> {
        loop {
            let reply = self.connection(node)?.recv_response().map_err(|error| self.lost(&error))?;
            if !matches!(reply, Value::Push { .. }) {
                return Ok(reply);
            }
        }
    }
}
