//! The ids of cache keys, filters and items. Names and items are hashed under a key of this process: a record is small however
//! long a name is, and a client cannot construct two names with one id.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// A key of the server: its database and the hash of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CacheKeyId {
    /// The number of the database.
    pub database: i32,
    /// The hash of the name.
    pub name: [u64; 2],
}

/// A filter: the instance of one that exists, or the name of one that does not.
///
/// The name keeps a lease that was granted without a filter apart from those of other filters, so that adding an item voids
/// the leases that this filter's name was given for, and no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterId(u64);

/// An item of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemId {
    /// The filter.
    pub filter: FilterId,
    /// The hash of the item.
    pub item: [u64; 2],
}

impl ItemId {
    /// Returns 64 bits for a hash table.
    #[inline]
    pub const fn short(self) -> u64 {
        self.item[0] ^ self.filter.0
    }

    /// An item of no filter, for a record that belongs to a cache key alone.
    pub const fn none(key: CacheKeyId) -> Self {
        Self { filter: FilterId(0), item: key.name }
    }
}

impl FilterId {
    /// The bit that marks a missing filter. Instances count up from 1 and never reach it.
    const MISSING: u64 = 1 << 63;

    /// A filter that exists, by its instance.
    pub const fn existing(instance: u64) -> Self {
        Self(instance & !Self::MISSING)
    }

    /// A filter that does not exist, or is still being loaded, by its key.
    pub const fn missing(key: CacheKeyId) -> Self {
        let [hash, _] = key.name;
        Self((hash ^ key.database.cast_unsigned() as u64) | Self::MISSING)
    }

    /// Whether the filter did not exist when the record was made.
    pub const fn is_missing(self) -> bool {
        self.0 & Self::MISSING != 0
    }
}

/// A hash table whose keys are hashes under a secret key already: they are not hashed again.
pub type ByHash<K, V> = HashMap<K, V, BuildHasherDefault<AsItIs>>;

/// The cache keys for which a command has granted a lease. If memory is refused, a cache key is left out: a second lease ends the
/// first.
#[derive(Default)]
pub struct Granted(HashSet<CacheKeyId, BuildHasherDefault<AsItIs>>);

impl Granted {
    /// Adds a cache key.
    pub fn insert(&mut self, key: CacheKeyId) {
        if self.0.try_reserve(1).is_ok() {
            self.0.insert(key);
        }
    }

    /// Whether a cache key is included. Calls `key` only if there is any.
    pub fn has(&self, key: impl FnOnce() -> CacheKeyId) -> bool {
        !self.0.is_empty() && self.0.contains(&key())
    }
}

/// Returns the number that it is given.
#[derive(Default)]
pub struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.0 = self.0.rotate_left(5) ^ number;
    }
}

impl Hash for CacheKeyId {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.short());
    }
}

impl Hash for FilterId {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0);
    }
}

impl CacheKeyId {
    /// Returns 64 bits for a hash table.
    #[inline]
    pub const fn short(self) -> u64 {
        self.name[0] ^ self.database.cast_unsigned() as u64
    }
}
