//! Keys and their values: opening keys, the values that they hold, the callbacks of their types, and pending adds.

pub mod cache_key;
pub mod conditions;
pub mod data_type;
mod defrag;
mod key;
pub mod marks;
pub mod payload;
pub mod pending;
mod pending_list;
mod rewrite;
mod snapshot;
mod stored;

pub use key::{Keyspace, MergeKeys, ReadKey, WriteKey, filter_of};
pub use stored::{Reserved, Stored, Writer, begin_generations};
