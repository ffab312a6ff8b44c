//! Reads a filter part by part, by BF.SCANDUMP, or by DUMP for valkey-bloom's layout, while other clients may change or replace it.

use anyhow::{Result, anyhow, ensure};
use indicatif::BinaryBytes;
use redis::{Pipeline, Value, from_redis_value};

use crate::archive::{Contents, Head, How};
use crate::keys::{contents, is_filter};
use crate::server::{Server, shown};

/// The limit of DUMP and RESTORE: the default `proto-max-bulk-len`.
const DUMP_BYTES_MAX: u64 = 512 << 20;

/// A result, or why the dump must start again.
pub type Attempt<T> = std::result::Result<T, String>;

/// What is under a key before its dump.
pub enum Begin {
    Filter(Head),
    /// The key does not exist.
    Gone,
    /// A value of another type.
    NoFilter(String),
    /// A filter that is still being loaded.
    Loading,
    /// It was replaced between two commands.
    Replaced,
}

/// Describes the key before its dump.
pub fn begin(server: &mut Server, key: &[u8]) -> Result<Begin> {
    let mut first = replies_about(server, key, |commands| {
        commands.cmd("TYPE").arg(key).cmd("PTTL").arg(key).cmd("BF.INFO").arg(key);
    })?;
    let (info, ttl, type_name) = (first.pop(), first.pop(), first.pop());
    let type_name: String = from_redis_value(server.checked(type_name.unwrap_or(Value::Nil), key)?)?;
    if type_name == "none" {
        return Ok(Begin::Gone);
    }
    if !is_filter(&type_name) {
        return Ok(Begin::NoFilter(type_name));
    }
    let before = match classify(server, info, key)? {
        FilterReply::Value(info) => contents(&info)?,
        FilterReply::Loading => return Ok(Begin::Loading),
        FilterReply::Replaced(_) => return Ok(Begin::Replaced),
    };
    let ttl = from_redis_value::<i64>(server.checked(ttl.unwrap_or(Value::Nil), key)?)?;
    let how = if type_name == "bloomfltr" { How::Dump } else { How::Records };
    ensure!(
        how == How::Records || before.bytes < DUMP_BYTES_MAX,
        "the filter `{}` is of valkey-bloom's layout, which only DUMP can copy, and uses {}: DUMP and RESTORE are limited to {}",
        shown(key),
        BinaryBytes(before.bytes),
        BinaryBytes(DUMP_BYTES_MAX)
    );
    Ok(Begin::Filter(Head {
        database: server.database(),
        key: key.to_vec(),
        type_name,
        kind: String::new(),
        how,
        ttl_ms: u64::try_from(ttl).ok(),
        before,
    }))
}

/// A part of a filter's data.
pub struct Part {
    /// Its iterator, 0 at the end.
    pub iterator: u64,
    pub data: Vec<u8>,
    /// The filter's contents after it was read.
    pub contents: Contents,
}

/// Returns the part after `iterator`. DUMP returns everything in one part.
pub fn part(server: &mut Server, head: &Head, iterator: u64) -> Result<Attempt<Part>> {
    let key = head.key.as_slice();
    let is_dump = head.how == How::Dump;
    let mut replies = replies_about(server, key, |commands| {
        if is_dump {
            commands.cmd("DUMP").arg(key)
        } else {
            commands.cmd("BF.SCANDUMP").arg(key).arg(iterator)
        };
        commands.cmd("BF.INFO").arg(key);
    })?;
    let (info, part) = (replies.pop(), replies.pop());
    let part = match classify(server, part, key)? {
        FilterReply::Value(part) => part,
        FilterReply::Loading => return Ok(Err("it is being loaded".to_owned())),
        FilterReply::Replaced(reason) => return Ok(Err(reason)),
    };
    let FilterReply::Value(info) = classify(server, info, key)? else {
        return Ok(Err("it was replaced".to_owned()));
    };
    let (iterator, data) = if is_dump { (0, from_redis_value(part)?) } else { from_redis_value(part)? };
    Ok(Ok(Part { iterator, data, contents: contents(&info)? }))
}

/// Returns the replies to commands about a key. An error counts as a reply.
pub fn replies_about(server: &mut Server, key: &[u8], commands: impl FnOnce(&mut Pipeline)) -> Result<Vec<Value>> {
    let mut pipeline = Pipeline::new();
    commands(&mut pipeline);
    server.replies(&pipeline, key)
}

/// A reply about a filter that other clients may change meanwhile.
enum FilterReply {
    Value(Value),
    Loading,
    /// The filter was replaced; the server's error text.
    Replaced(String),
}

/// Distinguishes a value from an error that means that the filter changed.
fn classify(server: &Server, reply: Option<Value>, key: &[u8]) -> Result<FilterReply> {
    let reply = reply.ok_or_else(|| anyhow!("the server sent no reply"))?;
    let Value::ServerError(error) = &reply else { return Ok(FilterReply::Value(reply)) };
    let details = error.details().unwrap_or_default();
    let changes = ["not found", "the filter was replaced since the dump began", "invalid iterator"];
    if details == "filter is still being loaded" {
        Ok(FilterReply::Loading)
    } else if error.code() == "WRONGTYPE" || changes.contains(&details) {
        Ok(FilterReply::Replaced(details.to_owned()))
    } else {
        Err(server.describe(error, key))
    }
}
