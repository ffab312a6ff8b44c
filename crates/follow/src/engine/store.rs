//! The follower's writes to the Redis or Valkey server. Each is a transaction that only the follower with the current epoch can execute,
//! so that a follower that was replaced without noticing changes nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use redis::{Cmd, Pipeline, Value, cmd, from_redis_value};

use super::journal::Journal;
use super::position::Position;
use crate::config::{Config, Keys, Table as TableConfig};
use crate::server::{ConnectionLost, Options, Server, no_module};
use crate::table::Table;

/// How long a follower counts as alive after its last report.
pub const ALIVE: Duration = Duration::from_secs(5);

/// The time limit for replies. After that, the connection counts as lost.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// Another follower has begun a new epoch.
#[derive(Debug)]
pub struct Fenced;

impl std::fmt::Display for Fenced {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str("another follower of the filter took over, or the server has lost its data")
    }
}

impl std::error::Error for Fenced {}

/// The server has refused some commands of a transaction, which does not undo the others, or a filter that they change is missing.
#[derive(Debug)]
pub struct Refused(pub String);

impl std::fmt::Display for Refused {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// A signal has ended the work.
#[derive(Debug)]
pub struct Stopped;

impl std::fmt::Display for Stopped {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str("stopped by a signal")
    }
}

impl std::error::Error for Stopped {}

/// The log lacks changes, which cannot be seen in it afterwards. The filters must be filled once the log has all changes again.
#[derive(Debug)]
pub struct IncompleteLog(pub String);

impl std::fmt::Display for IncompleteLog {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for IncompleteLog {}

/// How long the server waits for its replicas or its disk before it replies. The follower reports that it is alive in between.
const PATIENCE: &str = "500";

/// The server.
pub struct Store {
    server: Server,
    /// The commands that wait until earlier writes of the connection are durable, each with its expected reply.
    durable: Vec<(Cmd, u64)>,
    /// The watched key of the epoch, and its value when the watch began.
    watched: Option<(String, Option<u64>)>,
}

impl Store {
    /// Connects to the server.
    pub fn connect(config: &Config) -> Result<Self> {
        let options = Options::of_url(&config.server).with_cluster(config.cluster);
        let mut server = Server::connect(&options)?;
        server.set_patience(REPLY_TIMEOUT)?;
        for node in server.nodes() {
            let info: String = from_redis_value(server.ask_node(&node, &cmd("INFO"))?)?;
            let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            ensure!(info.contains("module:name=bf,"), no_module(&node));
            let policy = field("maxmemory_policy").unwrap_or_default();
            ensure!(
                !policy.starts_with("allkeys"),
                "the server at {node} may evict the filter (maxmemory-policy {policy}): use a volatile policy or noeviction"
            );
            let version = field("redis_version").unwrap_or_default();
            let numbers: Vec<u32> = version.split('.').map_while(|number| number.parse().ok()).collect();
            ensure!(
                !config.waitaof || numbers >= vec![7, 2],
                "the server at {node} has no WAITAOF, which waitaof = true needs: it is Redis {version}, older than 7.2"
            );
            ensure!(
                !config.waitaof || field("aof_enabled") == Some("1"),
                "waitaof = true needs an append-only file: set appendonly yes at the server at {node}"
            );
        }
        let mut durable = Vec::new();
        if config.wait > 0 {
            durable.push((cmd("WAIT").arg(config.wait).arg(PATIENCE).to_owned(), config.wait.into()));
        }
        if config.waitaof {
            durable.push((cmd("WAITAOF").arg(1).arg(0).arg(PATIENCE).to_owned(), 1));
        }
        Ok(Self { server, durable, watched: None })
    }

    /// Waits for at most half a second until all writes to a filter's node are on the replicas and the disk that the configuration
    /// demands. Returns whether they are.
    pub fn is_durable(&mut self, keys: &Keys) -> Result<bool> {
        if self.durable.is_empty() {
            return Ok(true);
        }
        let node = self.server.node_of_key(&keys.filter)?;
        for (command, least) in &self.durable {
            let reply = self.server.ask_node(&node, command)?;
            let reply =
                if let Value::Array(replies) = reply { replies.into_iter().next().context(NO_REPLY)? } else { reply };
            if from_redis_value::<u64>(reply)? < *least {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes this follower the only one that may write. Returns its epoch.
    pub fn begin_epoch(&mut self, keys: &Keys) -> Result<u64> {
        let epoch = new_epoch()?;
        self.server.ask(cmd("SET").arg(&keys.epoch).arg(epoch), &keys.epoch)?;
        Ok(epoch)
    }

    /// Whether a filter can delete items. The configured options do not determine this: the server has a default for the hash, and the
    /// filter may have been loaded.
    pub fn can_delete(&mut self, key: &str) -> Result<bool> {
        let mut stats = Pipeline::new();
        stats.cmd("BF.STATS").arg(key);
        let stats = self.server.replies(&stats, key)?.pop().context(NO_REPLY)?;
        if matches!(&stats, Value::ServerError(error) if error.code() == "NOPERM") {
            eprintln!(
                "bloomgate: the follower needs the permission +bf.stats to find out whether {key} can delete items"
            );
            return Ok(false);
        }
        let stats: BTreeMap<String, Value> = from_redis_value(self.server.checked(stats, key)?)?;
        let hash: Option<String> = stats.get("Hash").cloned().map(from_redis_value).transpose()?;
        Ok(hash.as_deref() == Some("siphash"))
    }

    /// Returns the stored position, and whether the filter exists.
    pub fn state(&mut self, keys: &Keys) -> Result<(Option<Position>, bool)> {
        let stored = self.server.ask(cmd("GET").arg(&keys.position), &keys.position)?;
        let stored: Option<String> = from_redis_value(stored)?;
        let position = stored.as_deref().and_then(Position::parse);
        let exists = self.server.ask(cmd("EXISTS").arg(&keys.filter), &keys.filter)? == Value::Int(1);
        Ok((position, exists))
    }

    /// Deletes the stored position and the heartbeat. No other follower can store them again.
    pub fn forget_position(&mut self, keys: &Keys) -> Result<()> {
        let mut forget = Pipeline::new();
        forget.cmd("MULTI").cmd("SET").arg(&keys.epoch).arg(new_epoch()?);
        forget.cmd("DEL").arg(&keys.position).arg(&keys.feed).cmd("EXEC");
        self.send(&forget, &keys.epoch).map(drop)
    }

    /// Deletes the heartbeat of a table that cannot be followed now, and the definition in its stored position, so that its filter is filled
    /// again later.
    pub fn invalidate_definition(&mut self, keys: &Keys) -> Result<()> {
        let (Some(mut position), _) = self.state(keys)? else { return Ok(()) };
        let epoch = self.begin_epoch(keys)?;
        position.forget_definition();
        self.transact(keys, epoch, &[cmd("DEL").arg(&keys.feed).to_owned()])?;
        self.transact(keys, epoch, &[position.store(keys)]).map(drop)
    }

    /// Whether a follower is active.
    pub fn is_alive(&mut self, keys: &Keys) -> Result<bool> {
        Ok(self.server.ask(cmd("EXISTS").arg(&keys.alive), &keys.alive)? == Value::Int(1))
    }

    /// Reports that this follower is active, for some seconds.
    pub fn show_liveness(&mut self, keys: &Keys, epoch: u64) -> Result<()> {
        let sign = cmd("SET").arg(&keys.alive).arg(epoch).arg("PX").arg(ALIVE.as_millis().to_string()).to_owned();
        self.transact(keys, epoch, &[sign]).map(drop)
    }

    pub fn journal(&mut self, keys: &Keys) -> Result<Journal> {
        let fields = self.server.ask(cmd("HGETALL").arg(&keys.open), &keys.open)?;
        Journal::of_fields(from_redis_value(fields)?).with_context(|| format!("cannot read {}", keys.open))
    }

    /// Returns the number of cache keys with a write in flight.
    pub fn open_keys(&mut self, keys: &Keys) -> Result<u64> {
        Ok(from_redis_value(self.server.ask(cmd("HLEN").arg(&keys.open), &keys.open)?)?)
    }

    /// Returns the maximum age of the filter's state, or `None` without a heartbeat.
    pub fn age(&mut self, keys: &Keys, max_lag: Duration) -> Result<Option<Duration>> {
        let left: i64 = from_redis_value(self.server.ask(cmd("PTTL").arg(&keys.feed), &keys.feed)?)?;
        Ok(u64::try_from(left).ok().map(|left| max_lag.saturating_sub(Duration::from_millis(left))))
    }

    /// Returns the clock of the node that holds the keys, in milliseconds.
    pub fn time_ms(&mut self, keys: &Keys) -> Result<u64> {
        let node = self.server.node_of_key(&keys.filter)?;
        let (seconds, micros): (u64, u64) = from_redis_value(self.server.ask_node(&node, &cmd("TIME"))?)?;
        Ok(seconds * 1000 + micros / 1000)
    }

    /// Executes commands atomically if this follower's epoch is still current. Returns their replies. Fails with [`Fenced`], with
    /// [`Refused`], or with [`ConnectionLost`], after which the commands may have been executed. So a transaction that records progress
    /// must not contain a command that the server may refuse.
    pub fn transact(&mut self, keys: &Keys, epoch: u64, commands: &[Cmd]) -> Result<Vec<Value>> {
        let mut watch = Pipeline::new();
        watch.cmd("WATCH").arg(&keys.epoch).cmd("GET").arg(&keys.epoch);
        let stored = match self.watched.take() {
            Some((key, stored)) if key == keys.epoch => stored,
            _ => epoch_in(self.server.exchange_at(&watch, &keys.epoch)?.pop())?,
        };
        if stored != Some(epoch) {
            return Err(Fenced.into());
        }
        let mut transaction = Pipeline::new();
        transaction.cmd("MULTI");
        for command in commands.iter().chain([&cmd("EXEC")]) {
            transaction.add_command(command.clone());
        }
        // The next transaction then takes one round trip. In a cluster, it might be for another node.
        let watches_again = !self.server.is_cluster();
        if watches_again {
            watch.cmd_iter().for_each(|command| _ = transaction.add_command(command.clone()));
        }
        let mut replies = self.server.exchange_at(&transaction, &keys.epoch)?;
        if watches_again {
            let stored = epoch_in(replies.pop());
            replies.pop();
            self.watched = stored.ok().map(|stored| (keys.epoch.clone(), stored));
        }
        match replies.pop().context(NO_REPLY)? {
            Value::Array(replies) => {
                for reply in &replies {
                    ensure_no_error(reply).map_err(|error| match error.is::<ConnectionLost>() {
                        true => error,
                        false => Refused(error.to_string()).into(),
                    })?;
                }
                Ok(replies)
            }
            Value::Nil => Err(Fenced.into()),
            other => {
                // EXEC reports only that a command was refused, and not why.
                replies.iter().chain([&other]).try_for_each(ensure_no_error)?;
                bail!("the server's reply to EXEC is {other:?}")
            }
        }
    }

    /// Sends commands together, and does not follow a redirection if the slot is moving: a key that was not copied yet would be missing
    /// on the other node. Returns their replies.
    pub fn send(&mut self, commands: &Pipeline, key: &str) -> Result<Vec<Value>> {
        let replies = self.server.exchange_at(commands, key)?;
        replies.iter().filter(|reply| matches!(reply, Value::ServerError(_))).try_for_each(ensure_no_error)?;
        Ok(replies)
    }

    /// Deletes all cached values of a table, a few at a time, and calls `meanwhile` in between.
    pub fn delete_values(&mut self, table: &Table, mut meanwhile: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        for pattern in table.patterns() {
            for node in self.server.nodes() {
                let mut cursor = "0".to_owned();
                loop {
                    let mut scan = cmd("SCAN");
                    scan.arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(1000).arg("TYPE").arg("string");
                    let (next, found): (String, Vec<Vec<u8>>) = from_redis_value(self.server.ask_node(&node, &scan)?)?;
                    for key in found.into_iter().filter(|key| table.has_key(key)) {
                        self.server.ask(cmd("UNLINK").arg(&key), &key)?;
                    }
                    meanwhile(self)?;
                    if next == "0" {
                        break;
                    }
                    cursor = next;
                }
            }
        }
        Ok(())
    }
}

/// Returns a random epoch, because a counter would repeat itself if the server lost it. Followers of version 0.2.0 increment it, so it
/// is not near the largest integer.
fn new_epoch() -> Result<u64> {
    Ok(getrandom::u64().map_err(|error| anyhow!("no random number: {error}"))? >> 2)
}

const NO_REPLY: &str = "the server sent no reply";

/// Returns the commands that create a filter.
pub fn reserve(table: &TableConfig, key: &str) -> Cmd {
    let mut command = cmd("BF.RESERVE");
    command.arg(key);
    for word in table.create.split_ascii_whitespace() {
        command.arg(word);
    }
    command
}

/// Returns the commands that end the leases that were granted while the filter is missing, by creating a filter.
pub fn end_leases_without_filter(keys: &Keys) -> [Cmd; 3] {
    let delete = cmd("DEL").arg(&keys.filter).to_owned();
    [delete.clone(), cmd("BF.RESERVE").arg(&keys.filter).arg("0.1").arg(1).to_owned(), delete]
}

/// Whether the filter exists, according to the replies. If it is missing, BF.MCHANGED still deletes the cached values, and adds nothing.
pub fn has_filter(replies: &[Value]) -> bool {
    let is_missing =
        |reply: &Value| matches!(reply, Value::Nil) || matches!(reply, Value::Array(all) if all.contains(&Value::Nil));
    !replies.iter().any(is_missing)
}

fn epoch_in(reply: Option<Value>) -> Result<Option<u64>> {
    let reply = reply.context(NO_REPLY)?;
    ensure_no_error(&reply)?;
    Ok(from_redis_value(reply)?)
}

/// Errors of a server that may accept the same command later. EXECABORT follows the error of a queued command, and appears alone if the
/// server could not execute the transaction.
const TEMPORARY: [&str; 7] = ["LOADING", "READONLY", "OOM", "MISCONF", "NOREPLICAS", "BUSY", "EXECABORT"];

fn ensure_no_error(reply: &Value) -> Result<()> {
    match reply {
        Value::ServerError(error) if TEMPORARY.contains(&error.code()) => {
            Err(ConnectionLost(format!("the server replied: {} {}", error.code(), error.details().unwrap_or_default()))
                .into())
        }
        Value::ServerError(error) => {
            Err(anyhow!("the server replied: {} {}", error.code(), error.details().unwrap_or_default()))
        }
        Value::Array(replies) => replies.iter().try_for_each(ensure_no_error),
        _ => Ok(()),
    }
}
