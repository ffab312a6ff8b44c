//! Reads the data of a filter part by part.

use anyhow::{Result, anyhow, ensure};
use indicatif::BinaryBytes;
use redis::{Pipeline, Value, from_redis_value};

use crate::archive::Contents;
use crate::filters::contents;
use crate::server::{Server, shown};

/// The limit of DUMP and RESTORE: the default `proto-max-bulk-len`.
const DUMP_BYTES_MAX: u64 = 512 << 20;

/// The data of a filter, part by part.
pub(super) enum Parts<'a> {
    /// By BF.SCANDUMP, from this iterator.
    Records { key: &'a [u8], iterator: u64 },
    /// By DUMP, unless that is done.
    Dump { key: &'a [u8], is_done: bool },
}

/// The reply to the request for a part.
pub(super) enum Next {
    /// The iterator, the data, and the filter's current BF.INFO.
    Part(u64, Vec<u8>, Option<Contents>),
    End(Option<Contents>),
    Again(String),
}

impl<'a> Parts<'a> {
    /// Reads by BF.SCANDUMP.
    pub(super) const fn records(key: &'a [u8]) -> Self {
        Self::Records { key, iterator: 0 }
    }

    /// Reads by DUMP.
    ///
    /// # Errors
    /// The filter is too large for DUMP.
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

    /// Reads the next part.
    ///
    /// # Errors
    /// The server's error.
    pub(super) fn next(&mut self, server: &mut Server) -> Result<Next> {
        let (key, mut replies) = match self {
            Self::Dump { is_done: true, .. } => return Ok(Next::End(None)),
            Self::Dump { key, .. } => (
                *key,
                replies_about(server, key, |commands| _ = commands.cmd("DUMP").arg(*key).cmd("BF.INFO").arg(*key))?,
            ),
            Self::Records { key, iterator } => (
                *key,
                replies_about(server, key, |commands| {
                    commands.cmd("BF.SCANDUMP").arg(*key).arg(*iterator).cmd("BF.INFO").arg(*key);
                })?,
            ),
        };
        let (info, part) = (replies.pop(), replies.pop());
        let part = match classify(server, part, key)? {
            FilterReply::Value(part) => part,
            FilterReply::Loading => return Ok(Next::Again("it is being loaded".to_owned())),
            FilterReply::Replaced(reason) => return Ok(Next::Again(reason)),
        };
        let info = match classify(server, info, key)? {
            FilterReply::Value(info) => Some(contents(&info)?),
            FilterReply::Loading | FilterReply::Replaced(_) => return Ok(Next::Again("it was replaced".to_owned())),
        };
        match self {
            Self::Dump { is_done, .. } => {
                *is_done = true;
                let data: Option<Vec<u8>> = from_redis_value(part)?;
                Ok(data.map_or_else(|| Next::Again("it no longer exists".to_owned()), |data| Next::Part(0, data, info)))
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

/// Returns the replies to commands about a key. An error counts as a reply.
///
/// # Errors
/// The connection is lost.
pub(super) fn replies_about(
    server: &mut Server,
    key: &[u8],
    commands: impl FnOnce(&mut Pipeline),
) -> Result<Vec<Value>> {
    let mut pipeline = Pipeline::new();
    commands(&mut pipeline);
    server.replies(&mut pipeline, key)
}

/// A reply about a filter that other clients may change meanwhile.
pub(super) enum FilterReply {
    Value(Value),
    Loading,
    /// The filter was replaced; the server's error text.
    Replaced(String),
}

/// Tells a value from an error that means that the filter changed.
///
/// # Errors
/// Any other error of the server.
pub(super) fn classify(server: &Server, reply: Option<Value>, key: &[u8]) -> Result<FilterReply> {
    let reply = reply.ok_or_else(|| anyhow!("the server sent no reply"))?;
    let Value::ServerError(error) = &reply else { return Ok(FilterReply::Value(reply)) };
    let details = error.details().unwrap_or_default();
    let changes = ["not found", "the filter was replaced since the dump began", "invalid iterator"];
    if details == "filter is still being loaded" {
        Ok(FilterReply::Loading)
    } else if error.code() == "WRONGTYPE" || changes.contains(&details) {
        Ok(FilterReply::Replaced(details.to_owned()))
    } else {
        Err(server.describe(error.code(), details, key))
    }
}
