//! A cache key: a string of the server that a filter guards.

use redis_module::raw;

use super::key::{self, Keyspace, OpenKey};
use crate::args::Arg;
use crate::replicate;
use crate::reply::{self, Refusal};

/// An open cache key. It is closed when it goes out of scope.
pub struct CacheKey<'a>(OpenKey<'a>);

/// What a cache key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Nothing.
    Nothing,
    /// A string.
    String,
    /// A value of another type.
    Other,
}

impl<'a> CacheKey<'a> {
    /// Opens a key for reading. The server updates its access time, and counts a hit or a miss.
    #[inline]
    pub fn open(keys: &'a mut Keyspace, name: Arg<'_>) -> Self {
        Self(OpenKey::open(keys, name))
    }

    /// Opens a key to return what it holds.
    pub fn peek(keys: &'a mut Keyspace, name: Arg<'_>) -> Held {
        Self::open(keys, name).held()
    }

    /// What the key holds.
    #[inline]
    pub fn held(&self) -> Held {
        match self.0.raw_type() {
            raw::REDISMODULE_KEYTYPE_EMPTY => Held::Nothing,
            raw::REDISMODULE_KEYTYPE_STRING => Held::String,
            _ => Held::Other,
        }
    }

    /// The value; `None` if the key is missing. Reading a number or a short string makes the server store it in another form, which is
    /// 16 to 30 bytes larger.
    ///
    /// # Errors
    /// [`Refusal::WrongType`].
    #[inline]
    pub fn value(&self) -> Result<Option<&[u8]>, Refusal> {
        match self.held() {
            Held::Nothing => Ok(None),
            Held::Other => Err(Refusal::WrongType),
            Held::String => Ok(Some(self.0.string_bytes())),
        }
    }

    /// The time to live in milliseconds; `None` if the key does not expire.
    pub fn left_to_live(&self) -> Option<u64> {
        self.0.left_to_live()
    }
}

/// Deletes a cache key that holds a string, and raises the event. Returns what the key held. With `always`, a DEL is replicated even
/// if the key was missing.
///
/// # Errors
/// [`Refusal::NotWritable`].
pub fn delete(keys: &mut Keyspace, name: Arg<'_>, always: bool) -> Result<Held, Refusal> {
    let mut key = CacheKey(OpenKey::open_for_writing(keys, name)?);
    let held = key.held();
    if held == Held::String {
        key.0.delete();
    }
    drop(key);
    if held == Held::String || (held == Held::Nothing && always) {
        replicate::deleted_key(keys.context(), name);
    }
    if held == Held::String {
        key::changed(keys, name, &[(true, c"del")]);
    }
    Ok(held)
}

/// Stores a value by SET, with a time to live in milliseconds if there is one. Returns whether it is stored; if not, the error was
/// sent to the client.
pub fn store(keys: &mut Keyspace, name: Arg<'_>, value: Arg<'_>, lives: Option<u64>) -> bool {
    let context = keys.context();
    // SAFETY: the context is valid; the arguments are those that the formats announce: strings of the command, a C string, a
    // number. The reply is ours, and freed once.
    unsafe {
        let Some(call) = raw::RedisModule_Call else { return false };
        let (set, px) = (c"SET".as_ptr(), c"PX".as_ptr());
        let lives = lives.map(|lives| i64::try_from(lives).unwrap_or(i64::MAX));
        let answer = match lives {
            Some(lives) => call(context.raw, set, c"!MEsscl".as_ptr(), name.raw, value.raw, px, lives),
            None => call(context.raw, set, c"!MEss".as_ptr(), name.raw, value.raw),
        };
        if answer.is_null() {
            reply::error(context, Refusal::NotStored);
            return false;
        }
        let is_error =
            raw::RedisModule_CallReplyType.is_none_or(|kind| kind(answer) as isize == raw::REDISMODULE_REPLY_ERROR);
        if is_error && let Some(reply) = raw::RedisModule_ReplyWithCallReply {
            reply(context.raw, answer);
        }
        if let Some(free) = raw::RedisModule_FreeCallReply {
            free(answer);
        }
        !is_error
    }
}
