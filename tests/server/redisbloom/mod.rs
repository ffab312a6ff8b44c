//! Filters of RedisBloom's layout: data that its releases made, and what becomes of it here.

mod created;
mod disorder;
mod dump;
mod encodings;
mod extremes;
pub mod golden;
mod hash;
pub mod hostile;
mod impossible;
mod keyspace;
pub mod loadchunk;
pub mod model;
pub mod payload;
mod rewritten;
mod seeds;
pub mod their_primary;
pub mod words;
