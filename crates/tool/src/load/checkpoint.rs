//! The progress of a load, stored in the server next to the filter that it fills, so that both have the same age after a restart. It also
//! names the owner of the load and its connection. A later load kills that connection and becomes the owner. So items of the earlier load
//! can no longer reach the filter, and the earlier load stops.
//!
//! Both keys expire some time after the last checkpoint, in case the load is neither resumed nor cleaned up.

use anyhow::{Context, Result, anyhow, ensure};
use redis::{Cmd, Pipeline, Value, cmd, from_redis_value};
use serde_json::{Value as Json, json};

use super::rows::Position;
use crate::names::{hex, of_hex};
use crate::server::{ConnectionLost, RECONNECT_TIMEOUT, Server, slot};

/// The keys that a load uses.
#[derive(Clone, Debug)]
pub struct Keys {
    /// The filter.
    pub key: String,
    /// The key under which the filter is built.
    pub loading: String,
    checkpoint: String,
}

impl Keys {
    /// Returns keys in the slot of `key`.
    pub fn of(key: &str) -> Self {
        let has_tag =
            key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).is_some_and(|(tag, _)| !tag.is_empty());
        let loading = if has_tag { format!("{key}:loading") } else { format!("{{{key}}}:loading") };
        Self { key: key.to_owned(), checkpoint: format!("{loading}:checkpoint"), loading }
    }

    /// Whether both keys have the same slot. A `}` in the key can prevent that.
    pub fn are_together(&self) -> bool {
        slot(self.key.as_bytes()) == slot(self.loading.as_bytes())
    }
}

/// The time to live of the keys after the last checkpoint: longer than any pause after which a load resumes by itself, and long enough for
/// an operator to use `--resume`.
const TTL_SECONDS: u32 = 600;
const RESUMABLE_TTL_SECONDS: u32 = 86_400;

/// The checkpoint of one load.
pub struct Checkpoint {
    pub keys: Keys,
    run: String,
    source: Json,
    is_resumable: bool,
    /// The words of CLIENT KILL for the connection of this load; `None` if CLIENT INFO is denied.
    connection: Option<Vec<String>>,
}

impl Checkpoint {
    /// Begins a load and makes it the owner. Also returns the position of an earlier load of the same source.
    /// Fails if an earlier load may still be running and cannot be stopped.
    pub fn begin(
        keys: Keys,
        source: Json,
        is_resumable: bool,
        server: &mut Server,
    ) -> Result<(Self, Option<Position>)> {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let run = format!("{}-{}", std::process::id(), since.as_micros());
        let mut checkpoint = Self { keys, run, source, is_resumable, connection: None };
        checkpoint.connection = connection(server, &checkpoint.keys.checkpoint)?;
        loop {
            let key = &checkpoint.keys.checkpoint;
            server.ask(cmd("WATCH").arg(key), key)?;
            let earlier = checkpoint.read(server)?;
            let is_same = |earlier: &&Json| earlier["source"] == checkpoint.source;
            if let Some(earlier) = &earlier
                && let Err(error) = end_connection(earlier, server, key)
                // The earlier load may continue: it adds the same items.
                && !(is_resumable && is_same(&earlier))
            {
                return Err(error);
            }
            let position = earlier.as_ref().filter(is_same).map(position);
            let set = checkpoint.set(position.as_ref().unwrap_or(&Position::default()));
            // The earlier load updates the checkpoint when it reconnects.
            if checkpoint.execute(server, &[set])? {
                return Ok((checkpoint, position));
            }
        }
    }

    /// Returns the keys and the source, for another attempt.
    pub fn into_parts(self) -> (Keys, Json) {
        (self.keys, self.source)
    }

    /// Returns the position stored in the server, or `None` if the checkpoint is missing.
    pub fn position(&self, server: &mut Server) -> Result<Option<Position>> {
        let Some(checkpoint) = self.read(server)? else { return Ok(None) };
        self.ensure_ours(&checkpoint)?;
        Ok(Some(position(&checkpoint)))
    }

    /// Stores the position and the connection, and renews the time to live of both keys.
    pub fn save(&mut self, server: &mut Server, position: &Position) -> Result<()> {
        self.connection = connection(server, &self.keys.checkpoint)?;
        self.transact(server, &[self.set(position), self.expire()])
    }

    /// Returns the command that renews the time to live of the filter under construction.
    pub fn expire(&self) -> Cmd {
        cmd("EXPIRE").arg(&self.keys.loading).arg(self.ttl_seconds()).to_owned()
    }

    const fn ttl_seconds(&self) -> u32 {
        if self.is_resumable { RESUMABLE_TTL_SECONDS } else { TTL_SECONDS }
    }

    fn set(&self, position: &Position) -> Cmd {
        cmd("SET").arg(&self.keys.checkpoint).arg(self.text(position)).arg("EX").arg(self.ttl_seconds()).to_owned()
    }

    /// Ends the load. With `is_built_beside`, the new filter replaces the old one atomically.
    pub fn finish(&self, server: &mut Server, is_built_beside: bool) -> Result<()> {
        let Keys { key, loading, checkpoint } = &self.keys;
        let mut commands = vec![cmd("DEL").arg(checkpoint).to_owned()];
        if is_built_beside {
            commands.insert(0, cmd("PERSIST").arg(loading).to_owned());
            commands.insert(1, cmd("RENAME").arg(loading).arg(key).to_owned());
        }
        loop {
            match self.transact(server, &commands) {
                Err(error) if error.is::<ConnectionLost>() => {
                    server.reconnect(RECONNECT_TIMEOUT)?;
                    // If both keys are missing, the transaction was executed.
                    let keys = cmd("EXISTS").arg(checkpoint).arg(loading).to_owned();
                    if server.ask(&keys, checkpoint)? == Value::Int(0) {
                        return Ok(());
                    }
                }
                result => return result,
            }
        }
    }

    /// Abandons the load and deletes the filter that it was building.
    pub fn discard(&self, server: &mut Server) -> Result<()> {
        let Keys { loading, checkpoint, .. } = &self.keys;
        self.transact(server, &[cmd("DEL").arg(loading).arg(checkpoint).to_owned()])
    }

    /// Executes the commands if this load is still the owner.
    /// Fails if another load took over, and with the error of the first command that fails.
    pub fn transact(&self, server: &mut Server, commands: &[Cmd]) -> Result<()> {
        let key = &self.keys.checkpoint;
        server.ask(cmd("WATCH").arg(key), key)?;
        let checkpoint = self.read(server)?.with_context(|| format!("the key `{key}` no longer exists"))?;
        self.ensure_ours(&checkpoint)?;
        ensure!(self.execute(server, commands)?, TAKEN_OVER);
        Ok(())
    }

    /// Executes the commands unless the checkpoint has changed since it was watched. Returns whether they were executed.
    fn execute(&self, server: &mut Server, commands: &[Cmd]) -> Result<bool> {
        let mut pipeline = Pipeline::new();
        pipeline.cmd("MULTI");
        commands.iter().for_each(|command| _ = pipeline.add_command(command.clone()));
        pipeline.cmd("EXEC");
        match server.ask_all(&pipeline, &self.keys.checkpoint)?.pop() {
            Some(Value::Array(replies)) => {
                replies.into_iter().try_for_each(|reply| server.checked(reply, &self.keys.key).map(drop))?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn read(&self, server: &mut Server) -> Result<Option<Json>> {
        let key = &self.keys.checkpoint;
        let text: Option<Vec<u8>> = from_redis_value(server.ask(cmd("GET").arg(key), key)?)?;
        Ok(text.and_then(|text| serde_json::from_slice(&text).ok()))
    }

    fn ensure_ours(&self, checkpoint: &Json) -> Result<()> {
        ensure!(checkpoint["run"] == *self.run, TAKEN_OVER);
        Ok(())
    }

    fn text(&self, position: &Position) -> String {
        let last = position.last.as_deref().map(hex);
        let Position { rows, repeats, .. } = position;
        let Self { run, source, connection, .. } = self;
        json!({
            "run": run, "connection": connection, "source": source, "rows": rows, "last": last, "repeats": repeats,
        })
        .to_string()
    }
}

const TAKEN_OVER: &str = "another load of the same key has started: this one stops";

/// Returns the words of CLIENT KILL for this connection to the node of `key`. After a restart of the server, the id alone could identify
/// another client.
fn connection(server: &mut Server, key: &str) -> Result<Option<Vec<String>>> {
    let info = match server.ask(cmd("CLIENT").arg("INFO"), key) {
        Err(error) if error.is::<ConnectionLost>() => return Err(error),
        Err(_) => return Ok(None),
        Ok(info) => from_redis_value::<String>(info)?,
    };
    let field = |name: &str| info.split_whitespace().find_map(|field| field.strip_prefix(name)).map(str::to_owned);
    let words = |(id, address)| vec!["ID".to_owned(), id, "ADDR".to_owned(), address];
    Ok(field("id=").zip(field("addr=")).map(words))
}

/// Kills the connection of an earlier load, so that the server executes none of its remaining commands.
fn end_connection(earlier: &Json, server: &mut Server, key: &str) -> Result<()> {
    let denied = || {
        anyhow!(
            "an earlier load of this key may still run and cannot be stopped, because CLIENT INFO or CLIENT KILL is denied: \
             wait until it ends, or delete the key `{key}`"
        )
    };
    let words: Option<Vec<String>> = serde_json::from_value(earlier["connection"].clone()).ok();
    let kill = cmd("CLIENT").arg("KILL").arg(words.ok_or_else(denied)?).to_owned();
    match server.ask(&kill, key) {
        Err(error) if error.is::<ConnectionLost>() => Err(error),
        killed => killed.map(drop).map_err(|_| denied()),
    }
}

fn position(checkpoint: &Json) -> Position {
    let last = checkpoint["last"].as_str().and_then(of_hex);
    let number = |name: &str| checkpoint[name].as_u64().unwrap_or(0);
    Position { rows: number("rows"), last, repeats: number("repeats") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_a_load_are_in_one_slot() {
        for (key, loading) in [("seen", "{seen}:loading"), ("a{b}c", "a{b}c:loading"), ("a{b", "{a{b}:loading")] {
            let keys = Keys::of(key);
            assert_eq!(keys.loading, loading);
            assert!(keys.are_together(), "{key}");
        }
        assert!(!Keys::of("{}a").are_together() && !Keys::of("a}b").are_together());
    }

    #[test]
    fn a_position_is_read_back_unchanged() {
        let (keys, run, source) = (Keys::of("a"), "1".to_owned(), json!(["x"]));
        let checkpoint = Checkpoint { keys, run, source, is_resumable: false, connection: None };
        for last in [None, Some(vec![]), Some(b"\x00\xff'".to_vec())] {
            let written = Position { rows: u64::MAX, last, repeats: 3 };
            assert_eq!(position(&serde_json::from_str(&checkpoint.text(&written)).unwrap()), written);
        }
    }
}
