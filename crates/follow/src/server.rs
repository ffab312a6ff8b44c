//! The server, or the nodes of a cluster. Commands are sent to the node of their key, and every failure becomes one line that
//! says what to do about it.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, fs, io, thread};

use anyhow::{Context, Result, anyhow, bail, ensure};
use bloomgate_client::slots::Slots;
pub use bloomgate_client::slots::slot;
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{
    Client, Cmd, Connection, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo, Pipeline,
    RedisConnectionInfo, RedisError, ServerError, TlsCertificates, Value, cmd, from_redis_value,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{AlertDescription, CertificateError};

pub use crate::names::shown;

/// The address of a node, `HOST:PORT`.
pub type Address = String;

/// How long a command that can continue waits for a lost server.
pub const RECONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a command is retried while a cluster moves slots or fails over.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a reply may take. A server that hangs accepts commands and answers none of them.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause between two attempts.
const SETTLE_INTERVAL: Duration = Duration::from_millis(50);

/// A connection was lost. It is unknown whether pending commands were executed.
#[derive(Debug)]
pub struct Lost(pub String);

impl fmt::Display for Lost {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Error for Lost {}

/// A server or a cluster.
pub struct Server {
    options: Options,
    name: String,
    /// The node that the options name.
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
    /// Connects to the server, or to a cluster through the node in the options.
    /// The error never contains a password.
    pub fn connect(options: &Options) -> Result<Self> {
        let client = options.client()?;
        let first = client.get_connection_info().addr().to_string();
        let connection = open(&client, &first, PATIENCE)?;
        let named_database = options.database()?;
        let mut server = Self {
            named_database,
            database: named_database.unwrap_or(0),
            name: options.name()?,
            options: options.clone(),
            connections: BTreeMap::from([(first.clone(), connection)]),
            first,
            slots: None,
            patience: PATIENCE,
        };
        if options.is_cluster() || server.says_cluster()? {
            server.read_slots()?;
        }
        Ok(server)
    }

    /// Whether the server says that it is a node of a cluster. HELLO needs no permission; a proxy may not know it.
    fn says_cluster(&mut self) -> Result<bool> {
        let first = self.first.clone();
        let hello = match self.ask_node(&first, &cmd("HELLO")) {
            Err(error) if error.is::<Lost>() => return Err(error),
            hello => hello.ok(),
        };
        let fields: Option<BTreeMap<String, Value>> = hello.and_then(|hello| from_redis_value(hello).ok());
        let mode = fields.and_then(|mut fields| fields.remove("mode"));
        Ok(mode.and_then(|mode| from_redis_value::<String>(mode).ok()).as_deref() == Some("cluster"))
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

    /// Reconnects after a [`Lost`], until a server responds or the time is over.
    pub fn reconnect(&mut self, for_at_most: Duration) -> Result<()> {
        let until = Instant::now() + for_at_most;
        loop {
            let result = self.connect_again();
            if result.is_ok() || Instant::now() >= until {
                return result;
            }
            thread::sleep(SETTLE_INTERVAL);
        }
    }

    fn connect_again(&mut self) -> Result<()> {
        // Any known node of a cluster can list the current nodes.
        let mut known = self.slots.as_ref().map(addresses).unwrap_or_default();
        self.connections.clear();
        if !self.is_cluster() {
            let client = self.options.client()?;
            let mut connection = open(&client, &self.first, self.patience)?;
            // A server that is loading its data replies to commands with an error. A user may have no permission for this one, or for the key.
            match cmd("EXISTS").arg("").query::<Value>(&mut connection) {
                Err(error) if error.code() != Some("NOPERM") => return Err(self.lost(&error)),
                _ => {}
            }
            self.connections.insert(self.first.clone(), connection);
            return Ok(());
        }
        known.push(self.first.clone());
        let mut result = Err(anyhow!("no node of the cluster responds"));
        for node in known {
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
        self.slots.as_ref().map_or_else(|| vec![self.first.clone()], addresses)
    }

    /// Sends one command about `key` and returns its reply. Fails with the server's error in one line, or with [`Lost`]. An error
    /// inside an array reply stays where it is.
    pub fn ask(&mut self, command: &Cmd, key: impl AsRef<[u8]>) -> Result<Value> {
        let mut pipeline = Pipeline::new();
        pipeline.add_command(command.clone());
        Ok(self.ask_all(&mut pipeline, key)?.pop().unwrap_or(Value::Nil))
    }

    /// Sends commands about `key` in one go and returns their replies in order, or the first error among them. An error
    /// inside an array reply stays where it is.
    pub fn ask_all(&mut self, commands: &mut Pipeline, key: impl AsRef<[u8]>) -> Result<Vec<Value>> {
        self.replies(commands, &key)?.into_iter().map(|reply| self.checked(reply, &key)).collect()
    }

    /// Sends commands with their keys to all nodes in parallel. Returns the replies in the order of the commands, or the first error
    /// among them.
    pub fn ask_many(&mut self, commands: &[(Vec<u8>, Cmd)]) -> Result<Vec<Value>> {
        let replies = self.replies_of_many(commands)?.into_iter().zip(commands);
        replies.map(|(reply, (key, _))| self.checked(reply, key)).collect()
    }

    /// Returns a reply, or the line for an error.
    pub fn checked(&self, reply: Value, key: impl AsRef<[u8]>) -> Result<Value> {
        if let Value::ServerError(error) = &reply { Err(self.describe(error, key)) } else { Ok(reply) }
    }

    /// As [`Self::ask_all`], but an error reply is a reply.
    pub fn replies(&mut self, commands: &mut Pipeline, key: impl AsRef<[u8]>) -> Result<Vec<Value>> {
        commands.ignore_errors();
        let node = self.node_of_key(&key)?;
        let replies = self.exchange(&node, commands)?;
        if !self.is_cluster() || !replies.iter().any(is_moving) {
            return Ok(replies);
        }
        // One at a time, in order. Those before the first redirected one are done.
        let commands: Vec<Cmd> = commands.cmd_iter().cloned().collect();
        let mut settled = Vec::with_capacity(replies.len());
        for (command, reply) in commands.iter().zip(replies) {
            settled.push(self.settle(command, reply, key.as_ref())?);
        }
        Ok(settled)
    }

    /// Sends commands to the node of `key`, and never again: a transaction must not be executed in part or twice. An error reply is a
    /// reply.
    /// Fails with [`Lost`], also if the slot has moved: nothing was executed then.
    pub fn exchange_at(&mut self, commands: &Pipeline, key: impl AsRef<[u8]>) -> Result<Vec<Value>> {
        let node = self.node_of_key(&key)?;
        let mut commands = commands.clone();
        commands.ignore_errors();
        let replies = self.exchange(&node, &commands)?;
        if self.is_cluster() && replies.iter().any(is_moving) {
            self.read_slots()?;
            return Err(Lost(format!("the slot of `{}` has moved", shown(key))).into());
        }
        Ok(replies)
    }

    /// As [`Self::ask_many`], but an error reply is a reply.
    pub fn replies_of_many(&mut self, commands: &[(Vec<u8>, Cmd)]) -> Result<Vec<Value>> {
        let mut by_node: BTreeMap<Address, (Vec<usize>, Pipeline)> = BTreeMap::new();
        for (index, (key, command)) in commands.iter().enumerate() {
            let node = self.node_of_key(key)?;
            let (indexes, pipeline) = by_node.entry(node).or_default();
            indexes.push(index);
            pipeline.add_command(command.clone()).ignore_errors();
        }
        for node in by_node.keys() {
            self.connection(node)?;
        }
        let mut replies = vec![Value::Nil; commands.len()];
        let results: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = self
                .connections
                .iter_mut()
                .filter_map(|(node, connection)| {
                    by_node.get(node).map(|(indexes, pipeline)| (indexes, pipeline, connection))
                })
                .map(|(indexes, pipeline, connection)| {
                    (indexes, scope.spawn(move || pipeline.query::<Vec<Value>>(connection)))
                })
                .collect();
            threads.into_iter().map(|(indexes, thread)| (indexes, thread.join())).collect()
        });
        for (indexes, result) in results {
            let answers = result
                .map_err(|_| anyhow!("a thread that queried a node panicked"))?
                .map_err(|error| self.lost(&error))?;
            for (index, answer) in indexes.iter().zip(answers) {
                if let Some(reply) = replies.get_mut(*index) {
                    *reply = answer;
                }
            }
        }
        for (reply, (key, command)) in replies.iter_mut().zip(commands) {
            if self.is_elsewhere(reply) {
                *reply = self.settle(command, reply.clone(), key)?;
            }
        }
        Ok(replies)
    }

    /// Sends a command to a node, whatever its key.
    pub fn ask_node(&mut self, node: &Address, command: &Cmd) -> Result<Value> {
        let reply = self.exchange_one(node, command, false)?;
        self.checked(reply, "")
    }

    /// Returns the line for an error reply of the server.
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
        Lost(format!("lost the server at {first}: {reason}")).into()
    }

    fn exchange(&mut self, node: &Address, commands: &Pipeline) -> Result<Vec<Value>> {
        let connection = self.connection(node)?;
        // `Pipeline::query` goes on after a reply that has not come in time, and waits as long for each other one.
        let sent = connection.send_packed_command(&commands.get_packed_pipeline());
        let replies = sent.and_then(|()| commands.cmd_iter().map(|_| connection.recv_response()).collect());
        replies.map_err(|error| self.lost(&error))
    }

    fn exchange_one(&mut self, node: &Address, command: &Cmd, is_asking: bool) -> Result<Value> {
        let mut commands = Pipeline::new();
        if is_asking {
            commands.cmd("ASKING");
        }
        commands.add_command(command.clone()).ignore_errors();
        Ok(self.exchange(node, &commands)?.pop().unwrap_or(Value::Nil))
    }

    /// Returns the connection to a node, opening it if necessary.
    fn connection(&mut self, node: &Address) -> Result<&mut Connection> {
        if !self.connections.contains_key(node) {
            let client = if *node == self.first && !self.is_cluster() {
                self.options.client()?
            } else {
                let address = node.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
                let (host, port) = address.ok_or_else(|| anyhow!("`{node}` is not the address of a node"))?;
                self.options.client_at(host, port)?
            };
            // Nothing was sent, but a caller that waits for the cluster to settle waits for this, too.
            let connection = open(&client, node, self.patience).map_err(|error| Lost(format!("{error:#}")))?;
            self.connections.insert(node.clone(), connection);
        }
        self.connections.get_mut(node).ok_or_else(|| anyhow!("no connection to {node}"))
    }

    /// Reads the slots from the first node.
    fn read_slots(&mut self) -> Result<()> {
        let first = self.first.clone();
        let host = self.host().to_owned();
        let reply = self.ask_node(&first, cmd("CLUSTER").arg("SLOTS"))?;
        self.slots = Some(Slots::read(&reply, &host)?);
        Ok(())
    }

    fn host(&self) -> &str {
        self.first.rsplit_once(':').map_or(&*self.first, |(host, _)| host)
    }

    /// Returns the node that holds a key.
    pub fn node_of_key(&mut self, key: impl AsRef<[u8]>) -> Result<Address> {
        let until = Instant::now() + SETTLE_TIMEOUT;
        loop {
            let Some(slots) = &self.slots else { return Ok(self.first.clone()) };
            if let Some((host, port)) = slots.node(key.as_ref()) {
                return Ok(format!("{host}:{port}"));
            }
            if Instant::now() >= until {
                bail!("no node of the cluster at {} holds slot {}", self.first, slot(key.as_ref()));
            }
            thread::sleep(SETTLE_INTERVAL);
            self.read_slots()?;
        }
    }

    /// Resends a command whose reply was [elsewhere](Self::is_elsewhere) until it is executed. No node may owe a reply.
    pub fn settle(&mut self, command: &Cmd, mut reply: Value, key: &[u8]) -> Result<Value> {
        let until = Instant::now() + SETTLE_TIMEOUT;
        while is_moving(&reply) && Instant::now() < until {
            let Value::ServerError(error) = &reply else { return Ok(reply) };
            let details = error.details().unwrap_or_default();
            reply = match (error.code(), details.split_once(' ')) {
                (code @ ("ASK" | "MOVED"), Some((_, node))) => {
                    let (node, is_asking) = (self.full_address(node), code == "ASK");
                    let reply = self.exchange_one(&node, command, is_asking)?;
                    if !is_asking {
                        self.read_slots()?;
                    }
                    reply
                }
                _ => {
                    thread::sleep(SETTLE_INTERVAL);
                    self.read_slots()?;
                    let node = self.node_of_key(key)?;
                    self.exchange_one(&node, command, false)?
                }
            };
        }
        Ok(reply)
    }

    /// A redirection without a host refers to the node that sent it.
    fn full_address(&self, node: &str) -> Address {
        if node.starts_with(':') { format!("{}{node}", self.host()) } else { node.to_owned() }
    }
}

/// Returns the address of each primary.
fn addresses(slots: &Slots) -> Vec<Address> {
    slots.nodes().map(|(host, port)| format!("{host}:{port}")).collect()
}

/// Whether another node can execute the command, or the same one a little later.
fn is_moving(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if matches!(error.code(), "MOVED" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN" | "LOADING"))
}

// Checks that the server has loaded the module. Without it, commands that only read would report a server without filters.

impl Server {
    /// Fails unless every node knows `command`. If the ACL user may not run COMMAND INFO, the check is skipped.
    pub fn require_command(&mut self, command: &str) -> Result<()> {
        for node in self.nodes() {
            let reply = match self.ask_node(&node, cmd("COMMAND").arg("INFO").arg(command)) {
                Err(error) if error.is::<Lost>() => return Err(error),
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

// How to reach the server: the options of redis-cli, or a URL. All subcommands share them.

/// When the system asks the server's machine whether it still has a silent connection, and how often again.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

const FORM: &str = "redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE], rediss:// for TLS, or unix:///PATH";

/// The server, with the options of redis-cli
#[derive(clap::Args, Clone, Default, PartialEq, Eq)]
#[command(next_help_heading = "The server")]
pub struct Options {
    /// The server: redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]; rediss:// for TLS; unix:///PATH
    #[arg(short, long, global = true, value_name = "URL", conflicts_with_all = ["host", "port", "socket"])]
    url: Option<String>,
    /// The server's host [default: 127.0.0.1]
    #[arg(short = 'h', long, global = true)]
    host: Option<String>,
    /// The server's port [default: 6379]
    #[arg(short, long, global = true)]
    port: Option<u16>,
    /// The server's Unix socket, instead of host and port
    #[arg(short, long, global = true, value_name = "PATH", conflicts_with_all = ["host", "port", "tls"])]
    socket: Option<PathBuf>,
    /// The ACL user
    #[arg(long, global = true, value_name = "NAME")]
    user: Option<String>,
    /// The password. Other users of this machine cannot see it if it is in the environment
    #[arg(
        short = 'a',
        long = "pass",
        global = true,
        value_name = "PASSWORD",
        env = "REDISCLI_AUTH",
        hide_env_values = true
    )]
    password: Option<String>,
    /// The database number [default: 0; for survey, `backup --all` and restore: every database]
    #[arg(short = 'n', long, global = true, value_name = "NUMBER")]
    database: Option<u32>,
    /// The server is a node of a cluster, even if HELLO does not say so. A node that says so needs no option
    #[arg(short, long, global = true)]
    cluster: bool,
    /// Use TLS
    #[arg(long, global = true)]
    tls: bool,
    /// Accept any certificate without verifying it
    #[arg(long, global = true)]
    insecure: bool,
    /// The certificates to trust, in PEM form [default: the system's]
    #[arg(long, global = true, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// The client's certificate, in PEM form
    #[arg(long, global = true, value_name = "FILE", requires = "tls_key")]
    cert: Option<PathBuf>,
    /// The client's private key, in PEM form
    #[arg(long, global = true, value_name = "FILE", requires = "cert")]
    tls_key: Option<PathBuf>,
}

impl Options {
    /// Creates options from a URL only.
    pub fn of_url(url: &str) -> Self {
        Self { url: Some(url.to_owned()), ..Self::default() }
    }

    /// Returns the same options with or without --cluster.
    pub const fn with_cluster(mut self, is_cluster: bool) -> Self {
        self.cluster = is_cluster;
        self
    }

    /// Returns the database that they name, by number or in the URL.
    pub fn database(&self) -> Result<Option<u32>> {
        let database = self.info()?.redis_settings().db();
        let database = u32::try_from(database).map_err(|_| usage(format!("there is no database {database}")))?;
        let url = self.url.as_deref().and_then(redis::parse_redis_url);
        // The URL of a socket has it in its query, because its path is the socket's.
        let is_in_url = url.is_some_and(|url| match url.has_host() {
            true => !url.path().trim_matches('/').is_empty(),
            false => url.query_pairs().any(|(name, _)| name == "db"),
        });
        Ok((is_in_url || self.database.is_some()).then_some(database))
    }

    /// Returns the address and, if they name one, the database, as in `localhost:6379/3`, for titles and messages.
    pub fn name(&self) -> Result<String> {
        let address = self.info()?.addr().to_string();
        Ok(self.database()?.map_or(address.clone(), |database| format!("{address}/{database}")))
    }

    /// Whether they name a server instead of using the default one.
    pub const fn is_named(&self) -> bool {
        self.url.is_some() || self.host.is_some() || self.port.is_some() || self.socket.is_some()
    }

    /// Whether there is an option beside the password, which may be in the environment for other subcommands.
    pub fn has_any(&self) -> bool {
        let others = Self { password: None, ..self.clone() };
        others != Self::default() || self.password != std::env::var("REDISCLI_AUTH").ok()
    }

    /// Whether the server is a node of a cluster.
    pub const fn is_cluster(&self) -> bool {
        self.cluster
    }

    /// Creates a client of the server.
    /// The error never contains a password.
    pub fn client(&self) -> Result<Client> {
        let info = self.info()?;
        self.client_of(info)
    }

    /// Creates a client of another node of the same cluster, with the same user and certificates.
    pub fn client_at(&self, host: &str, port: u16) -> Result<Client> {
        let info = self.info()?;
        let addr = match info.addr() {
            ConnectionAddr::TcpTls { insecure, .. } => {
                ConnectionAddr::TcpTls { host: host.to_owned(), port, insecure: *insecure, tls_params: None }
            }
            _ => ConnectionAddr::Tcp(host.to_owned(), port),
        };
        self.client_of(info.set_addr(addr))
    }

    fn client_of(&self, info: ConnectionInfo) -> Result<Client> {
        let client = match info.addr() {
            ConnectionAddr::TcpTls { .. } => {
                // Fails if it is already installed.
                _ = rustls::crypto::ring::default_provider().install_default();
                Client::build_with_tls(info, self.certificates()?)
            }
            _ => Client::open(info),
        };
        client.map_err(|error| anyhow!("cannot use these options: {error}"))
    }

    fn info(&self) -> Result<ConnectionInfo> {
        let info = match &self.url {
            Some(url) => url
                .as_str()
                .into_connection_info()
                .map_err(|_| usage(format!("a server's URL must have the form {FORM}")))?,
            None => self.addr().into_connection_info()?,
        };
        let info = match info.addr() {
            ConnectionAddr::Tcp(host, port) if self.tls => {
                let addr = ConnectionAddr::TcpTls {
                    host: host.clone(),
                    port: *port,
                    insecure: self.insecure,
                    tls_params: None,
                };
                info.set_addr(addr)
            }
            ConnectionAddr::TcpTls { host, port, .. } if self.insecure => {
                let addr = ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: true, tls_params: None };
                info.set_addr(addr)
            }
            _ => info,
        };
        if self.insecure && !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            return Err(usage("--insecure needs --tls or a rediss:// URL"));
        }
        let redis = self.settings(info.redis_settings());
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
        // Commands must not be delayed until earlier replies arrive.
        Ok(info
            .set_redis_settings(redis)
            .set_tcp_settings(TcpSettings::default().set_nodelay(true).set_keepalive(keepalive)))
    }

    fn addr(&self) -> ConnectionAddr {
        match &self.socket {
            Some(path) => ConnectionAddr::Unix(path.clone()),
            None => {
                let host = self.host.clone().unwrap_or_else(|| "127.0.0.1".to_owned());
                ConnectionAddr::Tcp(host, self.port.unwrap_or(6379))
            }
        }
    }

    fn settings(&self, from_url: &RedisConnectionInfo) -> RedisConnectionInfo {
        let mut settings = from_url.clone().set_lib_name("bloomgate", env!("CARGO_PKG_VERSION"));
        if let Some(user) = &self.user {
            settings = settings.set_username(user);
        }
        // A password in the URL is for this server, one in the environment for any server.
        if let (Some(password), None) = (&self.password, from_url.password()) {
            settings = settings.set_password(password);
        }
        self.database.map_or(settings.clone(), |database| settings.set_db(database.into()))
    }

    fn certificates(&self) -> Result<TlsCertificates> {
        let read = |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
        let client_tls = match (&self.cert, &self.tls_key) {
            (Some(cert), Some(key)) => {
                Some(redis::ClientTlsConfig { client_cert: read(cert)?, client_key: read(key)? })
            }
            _ => None,
        };
        let root_cert = self.cacert.as_deref().map(read).transpose()?;
        // Without certificates no server would be trusted, and the error would blame the server.
        if let (Some(path), Some(bytes)) = (&self.cacert, &root_cert) {
            let first = CertificateDer::pem_slice_iter(bytes).next();
            ensure!(matches!(first, Some(Ok(_))), "{} does not contain a PEM certificate", path.display());
        }
        Ok(TlsCertificates { client_tls, root_cert })
    }
}

// Opens connections, and describes each kind of connection failure in one line.

/// How long to wait for a connection and its first replies.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Connects to a server. A later reply that takes longer than `patience` is a lost connection.
fn open(client: &Client, address: &str, patience: Duration) -> Result<Connection> {
    let connection = client.get_connection_with_timeout(CONNECT_TIMEOUT).map_err(|error| {
        if let Some(reason) = tls_reason(&error) {
            return anyhow!("cannot establish TLS with the server at {address}: {reason}");
        }
        match error.kind() {
            _ if error.is_timeout() => {
                anyhow!(
                    "no answer from {address} for {} s: is it a Redis server, and does the use of TLS match?",
                    CONNECT_TIMEOUT.as_secs()
                )
            }
            ErrorKind::Io => anyhow!("cannot reach a Redis server at {address}: {}", line(&error)),
            ErrorKind::AuthenticationFailed => anyhow!("the server at {address} rejects the user or password"),
            ErrorKind::Parse => anyhow!("{address} is not a Redis server: it speaks another protocol"),
            _ => anyhow!("cannot connect to {address}: {}", line(&error)),
        }
    })?;
    connection.set_read_timeout(Some(patience))?;
    connection.set_write_timeout(Some(patience))?;
    Ok(connection)
}

/// Returns the text of an error in one line.
fn line(error: &RedisError) -> String {
    if error.kind() == ErrorKind::Parse {
        return "its answer is not in Redis's protocol".to_owned();
    }
    error.to_string().lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

/// Returns why TLS failed, if it did.
fn tls_reason(error: &RedisError) -> Option<String> {
    let inner = error.source()?.downcast_ref::<Arc<dyn Error + Send + Sync>>()?;
    let tls = inner.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(match tls {
        rustls::Error::InvalidCertificate(fault) => {
            format!("its certificate {}. --insecure accepts any certificate", certificate_reason(fault))
        }
        rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "it requires a client certificate: use --cert and --tls-key".to_owned()
        }
        rustls::Error::InvalidMessage(_) => "it does not speak TLS".to_owned(),
        other => other.to_string(),
    })
}

fn certificate_reason(fault: &CertificateError) -> String {
    match fault {
        CertificateError::UnknownIssuer => {
            "is not signed by a trusted authority: give the authority's certificate with --cacert FILE".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "has expired".to_owned(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "is not valid yet".to_owned(),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "is for another host name".to_owned()
        }
        // The library that verifies certificates has no public type for this.
        CertificateError::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            "belongs to an authority (CA:TRUE): give the server a certificate signed by that authority".to_owned()
        }
        other => format!("is refused: {other:?}"),
    }
}

// Pipelined commands: they are sent before earlier replies are read, so that reading, the network and the server work in
// parallel. The replies of a node arrive in the order of its commands.

impl Server {
    /// Sends one encoded command about `key` without waiting. Returns the node that owes the reply. Until that reply is read,
    /// only [`Self::send`] and [`Self::receive`] may use the node.
    pub fn send(&mut self, packed: &[u8], key: &[u8]) -> Result<Address> {
        let node = self.node_of_key(key)?;
        let connection = self.connection(&node)?;
        connection.send_packed_command(packed).map_err(|error| self.lost(&error))?;
        Ok(node)
    }

    /// Waits for the next reply of a node. An error reply counts as a reply.
    pub fn receive(&mut self, node: &Address) -> Result<Value> {
        loop {
            let reply = self.connection(node)?.recv_response().map_err(|error| self.lost(&error))?;
            if !matches!(reply, Value::Push { .. }) {
                return Ok(reply);
            }
        }
    }

    /// Whether another node can execute the refused command, or the same one a little later.
    pub fn is_elsewhere(&self, reply: &Value) -> bool {
        self.slots.is_some() && is_moving(reply)
    }
}

// Command lines that are invalid.

/// Why a command line is invalid.
#[derive(Debug)]
pub struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Error for Usage {}

/// Creates an error that exits with status 2.
pub fn usage(text: impl Into<String>) -> anyhow::Error {
    Usage(text.into()).into()
}
