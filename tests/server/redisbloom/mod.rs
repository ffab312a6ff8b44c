//! Filters of RedisBloom's layout: data that its releases made, and what becomes of it here.

mod arrival;
mod created;
mod data;
mod disorder;
pub mod dump;
mod encodings;
mod extremes;
pub mod golden;
mod growth;
mod hash;
mod hostile;
mod impossible;
mod keyspace;
mod limits;
mod loadchunk;
mod model;
pub mod payload;
mod replication;
mod stream;
mod their_primary;
mod words;
