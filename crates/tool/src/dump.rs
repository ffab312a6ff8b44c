//! Reads a filter part by part, by BF.SCANDUMP or CF.SCANDUMP, or by DUMP for valkey-bloom's layout, while other clients may change or
//! replace it.

use std::fmt;

use anyhow::{Result, anyhow, ensure};
use indicatif::BinaryBytes;
use redis::{Pipeline, Value, from_redis_value};

use crate::archive::{Contents, Head, ReadMode};
use crate::keys::{CUCKOO, command, contents, is_filter};
use crate::server::{Server, shown};

/// The limit of DUMP and RESTORE: the default `proto-max-bulk-len`.
const DUMP_BYTES_MAX: u64 = 512 << 20;

/// The end of a payload of DUMP: the version of the snapshot format, then a checksum.
pub const FOOTER_BYTES: usize = 10;
/// The version of Redis 5 to 6.2. Later servers accept it, and a module's value is the same in later versions.
const PORTABLE_VERSION: u16 = 9;

/// A result, or the reason why the filter cannot be read any further.
pub type Attempt<T> = std::result::Result<T, Absent>;

/// The reason why a filter cannot be read, as the rest of a sentence about its key.
pub enum Absent {
    /// The key does not exist.
    Gone,
    /// The key has a value of this type.
    NoFilter(String),
    /// The filter is still being loaded.
    Loading,
    /// The filter was replaced between two commands; the server's error text, if it was one.
    Replaced(String),
}

impl fmt::Display for Absent {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Gone => formatter.write_str("is missing"),
            Self::NoFilter(name) => write!(formatter, "has type {name}, not a filter"),
            Self::Loading => formatter.write_str("is still being loaded"),
            Self::Replaced(reason) => formatter.write_str(reason),
        }
    }
}

/// Describes the filter before its dump.
pub fn begin(server: &mut Server, key: &[u8]) -> Result<Attempt<Head>> {
    let mut first = replies_about(server, key, |commands| {
        commands.cmd("TYPE").arg(key).cmd("PTTL").arg(key).cmd("BF.INFO").arg(key);
    })?;
    let (info, ttl, type_name) = (first.pop(), first.pop(), first.pop());
    let type_name: String = from_redis_value(server.checked(type_name.unwrap_or(Value::Nil), key)?)?;
    if type_name == "none" {
        return Ok(Err(Absent::Gone));
    }
    if !is_filter(&type_name) {
        return Ok(Err(Absent::NoFilter(type_name)));
    }
    let info = match type_name.as_str() {
        CUCKOO => replies_about(server, key, |commands| _ = commands.cmd("CF.INFO").arg(key))?.pop(),
        _ => info,
    };
    let before = match classify(server, info, key)? {
        Ok(info) => contents(&type_name, &info)?,
        Err(absent) => return Ok(Err(absent)),
    };
    let ttl = from_redis_value::<i64>(server.checked(ttl.unwrap_or(Value::Nil), key)?)?;
    // An empty cuckoo filter has no records.
    let is_dump = type_name == "bloomfltr" || type_name == CUCKOO && before.items == 0;
    let mode = if is_dump { ReadMode::Dump } else { ReadMode::Records };
    Ok(Ok(Head {
        database: server.database(),
        key: key.to_vec(),
        type_name,
        kind: String::new(),
        mode,
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
    let is_dump = head.mode == ReadMode::Dump;
    let is_cuckoo = head.type_name == CUCKOO;
    ensure!(
        !is_dump || head.before.bytes < DUMP_BYTES_MAX,
        "the filter `{}` is {}, which only DUMP can copy, and uses {}: DUMP and RESTORE are limited to {}",
        shown(key),
        if is_cuckoo { "a cuckoo filter that is being written" } else { "of valkey-bloom's layout" },
        BinaryBytes(head.before.bytes),
        BinaryBytes(DUMP_BYTES_MAX)
    );
    let mut replies = replies_about(server, key, |commands| {
        if is_dump {
            commands.cmd("DUMP").arg(key)
        } else {
            commands.cmd(&command(&head.type_name, "SCANDUMP")).arg(key).arg(iterator)
        };
        commands.cmd(&command(&head.type_name, "INFO")).arg(key);
    })?;
    let (info, part) = (replies.pop(), replies.pop());
    let (part, info) = match (classify(server, part, key)?, classify(server, info, key)?) {
        (Ok(part), Ok(info)) => (part, info),
        (Err(absent), _) | (_, Err(absent)) => return Ok(Err(absent)),
    };
    let (iterator, data) = if is_dump { (0, from_redis_value(part)?) } else { from_redis_value(part)? };
    Ok(Ok(Part { iterator, data, contents: contents(&head.type_name, &info)? }))
}

/// Makes a payload of DUMP acceptable to older servers and to the other family of servers, which refuse unknown versions.
pub fn make_portable(payload: &mut Vec<u8>) {
    payload.truncate(payload.len().saturating_sub(FOOTER_BYTES));
    payload.extend(PORTABLE_VERSION.to_le_bytes());
    payload.extend(crc64(payload).to_le_bytes());
}

/// Redis's CRC-64: polynomial 0xad93d23594c935a9 (Jones), reflected, no inversion at either end.
fn crc64(bytes: &[u8]) -> u64 {
    const REFLECTED: u64 = 0xad93_d235_94c9_35a9_u64.reverse_bits();
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ u64::from(byte), |crc, _| if crc & 1 == 1 { (crc >> 1) ^ REFLECTED } else { crc >> 1 })
    })
}

/// Returns the replies to commands about a key. An error counts as a reply.
pub fn replies_about(server: &mut Server, key: &[u8], commands: impl FnOnce(&mut Pipeline)) -> Result<Vec<Value>> {
    let mut pipeline = Pipeline::new();
    commands(&mut pipeline);
    server.replies(&pipeline, key)
}

/// Distinguishes a value from an error that means that the filter changed.
fn classify(server: &Server, reply: Option<Value>, key: &[u8]) -> Result<Attempt<Value>> {
    let reply = reply.ok_or_else(|| anyhow!("the server sent no reply"))?;
    let Value::ServerError(error) = &reply else { return Ok(Ok(reply)) };
    let details = error.details().unwrap_or_default();
    let changes = ["not found", "the filter was replaced since the dump began", "invalid iterator"];
    if details == "filter is still being loaded" {
        Ok(Err(Absent::Loading))
    } else if error.code() == "WRONGTYPE" || changes.contains(&details) {
        Ok(Err(Absent::Replaced(details.to_owned())))
    } else {
        Err(server.describe(error, key))
    }
}
