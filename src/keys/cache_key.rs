//! A cache key: a string of the server's own, in front of which a filter stands.

use redis_module::{KeyMode, raw};

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
    /// Opens a key for reading: to the server it is used now, and counts among its hits and misses.
    #[inline]
    pub fn open(keys: &'a mut Keyspace, name: Arg<'_>) -> Self {
        Self(OpenKey::open(keys, name, KeyMode::READ))
    }

    /// What a key holds.
    pub fn peek(keys: &'a mut Keyspace, name: Arg<'_>) -> Held {
        Self::open(keys, name).held()
    }

    /// What it holds.
    #[inline]
    pub fn held(&self) -> Held {
        match self.0.raw_type() {
            raw::REDISMODULE_KEYTYPE_EMPTY => Held::Nothing,
            raw::REDISMODULE_KEYTYPE_STRING => Held::String,
            _ => Held::Other,
        }
    }

    /// Its value; nothing where there is no such key. The server keeps a number, or a short string, in another form after it
    /// was read once: 16 to 30 bytes larger.
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

    /// How long it has to live, in milliseconds; nothing for a key that does not expire.
    pub fn left_to_live(&self) -> Option<u64> {
        self.0.left_to_live()
    }
}

/// Deletes the value of a cache key, if that is a string, and tells those who listen; answers what it held. With `always` the
/// deleting is carried also where there was nothing.
pub fn delete(keys: &mut Keyspace, name: Arg<'_>, always: bool) -> Held {
    let mut key = CacheKey(OpenKey::open(keys, name, KeyMode::READ | KeyMode::WRITE));
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
    held
}

/// Stores a value that lives for so many milliseconds, or for ever, as SET does.
/// Answers whether it is stored; where not, the client was told why.
pub fn store(keys: &mut Keyspace, name: Arg<'_>, value: Arg<'_>, lives: Option<u64>) -> bool {
    let context = keys.context();
    // SAFETY: the context is valid; the arguments are those that the formats announce: strings of the command, a C string, a
    // number. The reply is ours, and given back once.
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
