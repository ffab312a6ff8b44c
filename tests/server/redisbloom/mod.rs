//! Filters of RedisBloom's layout: data of its releases, loaded by bloomgate.

pub mod golden;
pub mod hostile;
pub mod loadchunk;
pub mod promotion;
pub mod words;
