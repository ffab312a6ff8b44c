//! Filters as bytes: snapshots and dumps. Pure codecs, without Redis and without files.
//!
//! A native, windowed or counting filter is stored as a sequence of parts, each a chain: the buckets of a ring, or the filter itself.

mod arrival;
pub mod records;
mod stored;
mod value;

pub use crate::codec::{ByteSink, ByteSource, CHUNK_BYTES, Error, Progress, Record, Sink, Source};
pub use arrival::{AofRecord, Arrival, Arriving};
pub use value::{StoredAs, Value};
