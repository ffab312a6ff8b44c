//! The ids of keys and rows. Names and items are hashed under keys of this process: records are small for names of any length, and clients
//! cannot construct two cache keys with one id.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Something that a row depends on besides its cache key: a filter, or an item of a filter. A hash.
pub type DependencyId = u64;

/// The number of a token or of a change, counted from 1.
pub type Stamp = u64;

/// A key of the server, by two hashes of its database and name: one for tables, and one that a client cannot construct twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyId(pub [u64; 2]);

impl KeyId {
    /// The hash that tables are searched by.
    pub const fn table_hash(self) -> u64 {
        self.0[0]
    }

    /// The hash that a client cannot construct for two keys.
    pub const fn name_hash(self) -> u64 {
        self.0[1]
    }

    /// The id of the filter at this key, whichever filter it is. Two filters with one id are harmless: a change of either voids the tokens
    /// of both.
    pub const fn filter(self) -> DependencyId {
        self.0[0]
    }
}

/// A row, as the guard's commands name it: a cache key, and an item of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The cache key.
    pub key: KeyId,
    /// The filter's key.
    pub filter: DependencyId,
    /// The item of that filter.
    pub item: DependencyId,
    /// The instance of the filter at that key; 0 if there is none, or if its chunks are still arriving.
    pub instance: u64,
}

impl Row {
    /// The row of a cache key alone.
    pub const fn of(key: KeyId) -> Self {
        Self { key, filter: 0, item: 0, instance: 0 }
    }

    /// Whether there was no filter.
    pub const fn is_unguarded(&self) -> bool {
        self.instance == 0
    }

    /// The filter and the item.
    pub const fn dependencies(&self) -> [DependencyId; 2] {
        [self.filter, self.item]
    }
}

/// A hash table whose keys are hashes already: they are not hashed again.
pub type ByHash<K, V> = HashMap<K, V, BuildHasherDefault<IdentityHasher>>;

/// Returns the number that it is given.
#[derive(Default)]
pub struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
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

impl Hash for KeyId {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.table_hash());
    }
}
