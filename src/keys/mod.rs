//! Keys and their values: opening keys, the values that they hold, the callbacks of their types, and pending adds.

pub mod cache_key;
pub mod data_type;
mod defragment;
mod key;
pub mod pending;
mod place;
mod rewrite;
pub mod snapshot;
mod stored;

pub use key::{AddTarget, Keyspace, ReadKey, WriteKey, filter_of};
pub use place::{Place, Reserved};
pub use stored::{Stored, begin_generations};
