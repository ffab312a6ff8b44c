//! The keys that BF.FETCH names in WHILE and UNLESS. They belong to other clients, and are only read.

use redis_module::raw;

use super::key::{Keyspace, OpenKey};
use crate::args::Arg;
use crate::reply::Refusal;

/// Whether a key exists and has not expired, whatever its type.
pub fn exists(keys: &mut Keyspace, name: Arg<'_>) -> bool {
    OpenKey::open(keys, name).raw_type() != raw::REDISMODULE_KEYTYPE_EMPTY
}

/// The cache keys that have a write in flight: an open hash with a field for each. It is closed when it is dropped.
pub struct WritesInFlight<'a> {
    hash: OpenKey<'a>,
    /// Whether there is a field `*`, which stands for every cache key.
    has_all: bool,
}

impl<'a> WritesInFlight<'a> {
    /// Opens the hash. A missing one holds nothing.
    ///
    /// # Errors
    /// [`Refusal::WrongType`].
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
