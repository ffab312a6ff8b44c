//! Keys that the guard's commands name besides the filter's: a cache key, which is a string that a filter guards, and the keys of WHILE
//! and UNLESS, which belong to other clients and are only read.

use redis_module::raw;

use super::key::{self, Keyspace, OpenKey};
use crate::api::Reply;
use crate::args::Arg;
use crate::replicate;
use crate::reply::{self, Refusal};

/// The contents of a cache key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyContents {
    /// Nothing.
    Nothing,
    /// A string.
    String,
    /// A value of another type.
    Other,
}

impl OpenKey<'_> {
    /// The contents, if it is a cache key.
    #[inline]
    fn contents(&self) -> KeyContents {
        match self.raw_type() {
            raw::REDISMODULE_KEYTYPE_EMPTY => KeyContents::Nothing,
            raw::REDISMODULE_KEYTYPE_STRING => KeyContents::String,
            _ => KeyContents::Other,
        }
    }
}

/// The value of a cache key.
pub enum Cached<'a> {
    /// In an open key.
    Open(OpenKey<'a>),
    /// As returned by the server's GET, with the time to live in milliseconds if the key expires.
    Returned(Reply, Option<u64>),
}

impl<'a> Cached<'a> {
    /// Returns the value for a caller, read in place; `None` if the key is missing. The server updates its access time, and counts a hit or
    /// a miss. Reading a number or a short string makes the server store it in another form, which is 16 to 30 bytes larger.
    #[inline]
    pub fn open(keys: &'a mut Keyspace, name: Arg<'_>) -> Result<Option<Self>, Refusal> {
        let key = OpenKey::open(keys, name);
        match key.contents() {
            KeyContents::Nothing => Ok(None),
            KeyContents::Other => Err(Refusal::WrongType),
            KeyContents::String => Ok(Some(Self::Open(key))),
        }
    }

    /// Returns the value for a waiter, which is served outside of commands: reads it by GET, which does not change the keyspace. `None` if
    /// the key is missing, or its slot is no longer on this node. Includes the time to live only if `expires`.
    pub fn get(keys: &'a mut Keyspace, name: Arg<'_>, expires: bool) -> Result<Option<Self>, Refusal> {
        let context = keys.context();
        let Some(reply) = Reply::to_get(context, name) else { return Ok(None) };
        match reply.sort() {
            raw::REDISMODULE_REPLY_STRING => {}
            raw::REDISMODULE_REPLY_ERROR => return Err(Refusal::WrongType),
            _ => return Ok(None),
        }
        let left = if expires { OpenKey::open(keys, name).remaining_ttl() } else { None };
        Ok(Some(Self::Returned(reply, left)))
    }

    /// The value.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Open(key) => key.string_bytes(),
            Self::Returned(reply, _) => reply.bytes(),
        }
    }

    /// The time to live in milliseconds; `None` if the key does not expire.
    pub fn remaining_ttl(&self) -> Option<u64> {
        match self {
            Self::Open(key) => key.remaining_ttl(),
            Self::Returned(_, left) => *left,
        }
    }
}

/// Deletes a cache key that holds a string, and notifies keyspace events. Returns what the key held. With `always`, a DEL is replicated
/// even if the key was missing.
pub fn delete(keys: &mut Keyspace, name: Arg<'_>, always: bool) -> Result<KeyContents, Refusal> {
    let mut key = OpenKey::open_for_writing(keys, name)?;
    let contents = key.contents();
    if contents == KeyContents::String {
        key.delete();
    }
    drop(key);
    if contents == KeyContents::String || (contents == KeyContents::Nothing && always) {
        replicate::deleted_key(keys.context(), name);
    }
    if contents == KeyContents::String {
        key::changed(keys, name, &[(true, c"del")]);
    }
    Ok(contents)
}

/// Stores a value by SET, with a time to live in milliseconds if there is one. Returns whether the value was stored; if not, the error was
/// sent to the client.
pub fn store(keys: &mut Keyspace, name: Arg<'_>, value: Arg<'_>, lives: Option<u64>) -> bool {
    let context = keys.context();
    let Some(answer) = Reply::to_set(context, name, value, lives) else {
        reply::error(context, Refusal::NotStored);
        return false;
    };
    let is_error = answer.sort() == raw::REDISMODULE_REPLY_ERROR;
    if is_error {
        answer.pass(context);
    }
    !is_error
}

/// The contents of a key that has not expired.
pub fn contents_of(keys: &mut Keyspace, name: Arg<'_>) -> KeyContents {
    OpenKey::open(keys, name).contents()
}

/// Whether the follower that keeps the key of WHILE alive deletes a cache key when an item's row changes. The value of its heartbeat has a
/// line with a time, and a line for each of its templates: `=` and the text before the item, or `^` and the text at the beginning. A value
/// of another form names no templates.
pub fn is_followed(keys: &mut Keyspace, while_key: Arg<'_>, item: &[u8], cache_key: &[u8]) -> bool {
    let key = OpenKey::open(keys, while_key);
    if key.contents() != KeyContents::String {
        return true;
    }
    let mut lines = key.string_bytes().split(|byte| *byte == b'\n').skip(1).peekable();
    let is_silent = lines.peek().is_none();
    is_silent
        || lines.any(|line| match line {
            [b'=', prefix @ ..] => cache_key.strip_prefix(prefix) == Some(item),
            [b'^', prefix @ ..] => cache_key.starts_with(prefix),
            _ => true,
        })
}

/// Whether a cache key is the key of WHILE, or another key of its follower, whose name begins with the key of WHILE and a colon. The values
/// of these keys are not rows.
#[inline]
pub fn belongs_to(cache_key: &[u8], while_key: &[u8]) -> bool {
    cache_key.strip_prefix(while_key).is_some_and(|rest| rest.first().is_none_or(|first| *first == b':'))
}

/// The cache keys that have a write in flight: an open hash with a field for each. Dropping this closes the hash.
pub struct WritesInFlight<'a> {
    hash: OpenKey<'a>,
    /// Whether there is a field `*`, which stands for every cache key.
    pub has_all: bool,
}

impl<'a> WritesInFlight<'a> {
    /// Opens the hash. A missing hash counts as empty.
    pub fn open(keys: &'a mut Keyspace, name: Arg<'_>) -> Result<Self, Refusal> {
        let hash = OpenKey::open(keys, name);
        match hash.raw_type() {
            raw::REDISMODULE_KEYTYPE_EMPTY => Ok(Self { hash, has_all: false }),
            raw::REDISMODULE_KEYTYPE_HASH => Ok(Self { has_all: hash.has_field_of_all(), hash }),
            _ => Err(Refusal::WrongType),
        }
    }

    /// Whether a cache key has a write in flight.
    pub fn has(&self, cache_key: Arg<'_>) -> bool {
        self.has_all || self.hash.has_field(cache_key)
    }
}
