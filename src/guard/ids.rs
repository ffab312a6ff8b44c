//! The ids of keys and rows. Names and items are hashed under a key of this process: a record is small however long a name is, and
//! a client cannot construct two names with one id.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// What can change: a cache key, a filter, or an item of a filter. A hash.
pub type What = u64;

/// A key of the server, by the hash of its database and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyId(pub [u64; 2]);

impl KeyId {
    /// The key as a cache key. Half of the hash; the other half is for filters, so that a change of one is none of the other.
    pub const fn value(self) -> What {
        self.0[0]
    }

    /// The key as that of a filter, whichever filter it holds.
    pub const fn filter(self) -> What {
        self.0[1]
    }
}

/// A row, as the guard's commands name it: a cache key, and an item of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The cache key.
    pub key: KeyId,
    /// The filter's key.
    pub filter: What,
    /// The item of that filter.
    pub item: What,
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
}

/// A hash table whose keys are hashes under a secret key already: they are not hashed again.
pub type ByHash<K, V> = HashMap<K, V, BuildHasherDefault<AsItIs>>;

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

impl Hash for KeyId {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.value());
    }
}
