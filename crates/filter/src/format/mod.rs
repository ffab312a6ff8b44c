//! Filters as bytes: snapshots and dumps. Pure codecs, without Redis and without files.
//!
//! A filter of our own layout is a row of parts here, each a chain: a bucket of a ring, or the whole of any other filter.

mod arrival;
mod arriving;
mod known;
mod mark;
mod places;
mod record;
pub mod records;
mod stored;
mod value;

pub use arrival::Arriving;
pub use arriving::Arrival;
pub use value::{AofRecord, Record, StoredAs, Value};

pub use crate::codec::{ByteSink, ByteSource, CHUNK_BYTES, Error, Progress, Sink, Source};
