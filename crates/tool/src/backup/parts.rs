//! The data of a filter, asked for part by part.

use anyhow::{Result, anyhow, ensure};
use indicatif::BinaryBytes;
use redis::{Pipeline, Value, from_redis_value};

use crate::archive::Contents;
use crate::filters::contents;
use crate::server::{Server, shown};

/// What DUMP answers and RESTORE takes: `proto-max-bulk-len`, where nobody has changed it.
const DUMP_BYTES_MAX: u64 = 512 << 20;

/// The data of a filter, part by part.
pub(super) enum Parts<'a> {
    /// By BF.SCANDUMP, from this iterator on.
    Records { key: &'a [u8], iterator: u64 },
    /// By DUMP, where that is not done yet.
    Dump { key: &'a [u8], is_done: bool },
}

/// What a server answers to a question for a part.
pub(super) enum Next {
    /// An iterator, the data, and what the filter is now.
    Part(u64, Vec<u8>, Option<Contents>),
    End(Option<Contents>),
    Again(String),
}

impl<'a> Parts<'a> {
    /// By BF.SCANDUMP.
    pub(super) const fn records(key: &'a [u8]) -> Self {
        Self::Records { key, iterator: 0 }
    }

    /// By DUMP.
    ///
    /// # Errors
    /// A filter that is too large for it.
    pub(super) fn dump(key: &'a [u8], contents: Contents) -> Result<Self> {
        ensure!(
            contents.bytes < DUMP_BYTES_MAX,
            "the filter `{}` is of valkey-bloom's layout, which only DUMP can copy, and uses {}: DUMP and RESTORE are limited to {}",
            shown(key),
            BinaryBytes(contents.bytes),
            BinaryBytes(DUMP_BYTES_MAX)
        );
        Ok(Self::Dump { key, is_done: false })
    }

    /// The next part.
    ///
    /// # Errors
    /// Those of the server.
    pub(super) fn next(&mut self, server: &mut Server) -> Result<Next> {
        let (key, mut replies) = match self {
            Self::Dump { is_done: true, .. } => return Ok(Next::End(None)),
            Self::Dump { key, .. } => {
                (*key, asked(server, key, |commands| _ = commands.cmd("DUMP").arg(*key).cmd("BF.INFO").arg(*key))?)
            }
            Self::Records { key, iterator } => (
                *key,
                asked(server, key, |commands| {
                    commands.cmd("BF.SCANDUMP").arg(*key).arg(*iterator).cmd("BF.INFO").arg(*key);
                })?,
            ),
        };
        let (info, part) = (replies.pop(), replies.pop());
        let part = match told(server, part, key)? {
            Told::Value(part) => part,
            Told::Loading => return Ok(Next::Again("it is being loaded".to_owned())),
            Told::Replaced(reason) => return Ok(Next::Again(reason)),
        };
        // What went meanwhile is noticed by the next record.
        let info = match told(server, info, key)? {
            Told::Value(info) => Some(contents(info)?),
            Told::Loading | Told::Replaced(_) => return Ok(Next::Again("it was replaced".to_owned())),
        };
        match self {
            Self::Dump { is_done, .. } => {
                *is_done = true;
                let data: Option<Vec<u8>> = from_redis_value(part)?;
                Ok(data.map_or_else(|| Next::Again("it is gone".to_owned()), |data| Next::Part(0, data, info)))
            }
            Self::Records { iterator, .. } => {
                let (next, data): (u64, Vec<u8>) = from_redis_value(part)?;
                if next == 0 {
                    return Ok(Next::End(info));
                }
                *iterator = next;
                Ok(Next::Part(next, data, info))
            }
        }
    }
}

/// The replies to commands about a key; an error is a reply.
///
/// # Errors
/// A connection that is lost.
pub(super) fn asked(server: &mut Server, key: &[u8], commands: impl FnOnce(&mut Pipeline)) -> Result<Vec<Value>> {
    let mut pipeline = Pipeline::new();
    commands(&mut pipeline);
    server.replies(&mut pipeline, key)
}

/// What a server answers of a filter that others may change meanwhile.
pub(super) enum Told {
    Value(Value),
    Loading,
    /// It is not the filter that it was, in these words.
    Replaced(String),
}

/// What a reply says.
///
/// # Errors
/// Those of the server that have nothing to do with a change of the filter.
pub(super) fn told(server: &Server, reply: Option<Value>, key: &[u8]) -> Result<Told> {
    let reply = reply.ok_or_else(|| anyhow!("the server sent no reply"))?;
    let Value::ServerError(error) = &reply else { return Ok(Told::Value(reply)) };
    let details = error.details().unwrap_or_default();
    let changes = ["not found", "the filter was replaced since the dump began", "invalid iterator"];
    if details == "filter is still being loaded" {
        Ok(Told::Loading)
    } else if error.code() == "WRONGTYPE" || changes.contains(&details) {
        Ok(Told::Replaced(details.to_owned()))
    } else {
        Err(server.describe(error.code(), details, key))
    }
}
