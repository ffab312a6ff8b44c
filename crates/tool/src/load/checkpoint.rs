//! The progress of a load, stored in the server next to the filter that it fills, so that both have the same age after a
//! restart. It also names the owner of the load. A later load takes it over, and the earlier one stops before it can replace
//! the filter with a partial one.

use anyhow::{Context, Result, bail, ensure};
use redis::{Pipeline, Value, cmd, from_redis_value};
use serde_json::{Value as Json, json};

use super::rows::Position;
use crate::server::{Lost, RECONNECT_TIMEOUT, Server, slot};

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

    /// Whether they share a slot. A `}` in the key can prevent that.
    pub fn are_together(&self) -> bool {
        slot(self.key.as_bytes()) == slot(self.loading.as_bytes())
    }
}

/// The checkpoint of one load.
pub struct Checkpoint {
    pub keys: Keys,
    run: String,
    source: Json,
}

impl Checkpoint {
    /// Begins a load and makes it the owner. Also returns the position of an earlier load of the same source.
    pub fn begin(keys: Keys, source: Json, server: &mut Server) -> Result<(Self, Option<Position>)> {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let run = format!("{}-{}", std::process::id(), since.as_micros());
        let checkpoint = Self { keys, run, source };
        let earlier = checkpoint.read(server)?;
        let position =
            earlier.filter(|earlier| earlier["source"] == checkpoint.source).map(|earlier| position(&earlier));
        let text = checkpoint.text(position.as_ref().unwrap_or(&Position::default()));
        let key = &checkpoint.keys.checkpoint;
        server.ask(cmd("SET").arg(key).arg(text), key)?;
        Ok((checkpoint, position))
    }

    /// Returns the keys and the source, to begin again.
    pub fn into_parts(self) -> (Keys, Json) {
        (self.keys, self.source)
    }

    /// Returns the position stored in the server, or `None` if the checkpoint is missing.
    ///
    /// # Errors
    /// Another load took over.
    pub fn position(&self, server: &mut Server) -> Result<Option<Position>> {
        let Some(checkpoint) = self.read(server)? else { return Ok(None) };
        self.ensure_ours(&checkpoint)?;
        Ok(Some(position(&checkpoint)))
    }

    /// Stores the position.
    ///
    /// # Errors
    /// Another load took over.
    pub fn save(&self, server: &mut Server, position: &Position) -> Result<()> {
        let mut set = cmd("SET");
        set.arg(&self.keys.checkpoint).arg(self.text(position));
        self.transact(server, &[set])
    }

    /// Ends the load. With `is_built_beside`, the new filter replaces the old one atomically.
    ///
    /// # Errors
    /// As [`Self::save`]; the filter does not exist.
    pub fn finish(&self, server: &mut Server, is_built_beside: bool) -> Result<()> {
        let Keys { key, loading, checkpoint } = &self.keys;
        let mut commands = vec![cmd("DEL").arg(checkpoint).to_owned()];
        if is_built_beside {
            commands.insert(0, cmd("RENAME").arg(loading).arg(key).to_owned());
        }
        loop {
            match self.transact(server, &commands) {
                Err(error) if error.is::<Lost>() => {
                    server.reconnect(RECONNECT_TIMEOUT)?;
                    // If both keys are gone, the transaction was executed.
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
    ///
    /// # Errors
    /// As [`Self::save`].
    pub fn discard(&self, server: &mut Server) -> Result<()> {
        let Keys { loading, checkpoint, .. } = &self.keys;
        self.transact(server, &[cmd("DEL").arg(loading).arg(checkpoint).to_owned()])
    }

    /// Executes the commands if this load is still the owner.
    ///
    /// # Errors
    /// As [`Self::save`]; the error of the first command that fails.
    pub fn transact(&self, server: &mut Server, commands: &[redis::Cmd]) -> Result<()> {
        let key = &self.keys.checkpoint;
        server.ask(cmd("WATCH").arg(key), key)?;
        let checkpoint = self.read(server)?.with_context(|| format!("the key `{key}` no longer exists"))?;
        self.ensure_ours(&checkpoint)?;
        let mut pipeline = Pipeline::new();
        pipeline.cmd("MULTI");
        commands.iter().for_each(|command| _ = pipeline.add_command(command.clone()));
        pipeline.cmd("EXEC");
        match server.ask_all(&mut pipeline, key)?.pop() {
            Some(Value::Array(replies)) => {
                for reply in replies {
                    if let Value::ServerError(error) = reply {
                        return Err(server.describe(error.code(), error.details().unwrap_or_default(), &self.keys.key));
                    }
                }
                Ok(())
            }
            _ => bail!(TAKEN_OVER),
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
        let last = position.last.as_ref().map(|last| last.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        let Position { rows, repeats, .. } = position;
        json!({ "run": self.run, "source": self.source, "rows": rows, "last": last, "repeats": repeats }).to_string()
    }
}

const TAKEN_OVER: &str = "another load of the same key has started: this one stops";

fn position(checkpoint: &Json) -> Position {
    let last = checkpoint["last"].as_str().map(|digits| {
        let digits = digits.as_bytes().chunks(2).filter_map(|two| str::from_utf8(two).ok());
        digits.filter_map(|two| u8::from_str_radix(two, 16).ok()).collect()
    });
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
        let checkpoint = Checkpoint { keys: Keys::of("a"), run: "1".to_owned(), source: json!(["x"]) };
        for last in [None, Some(vec![]), Some(b"\x00\xff'".to_vec())] {
            let written = Position { rows: u64::MAX, last, repeats: 3 };
            assert_eq!(position(&serde_json::from_str(&checkpoint.text(&written)).unwrap()), written);
        }
    }
}
