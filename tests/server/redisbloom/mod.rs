//! Filters of RedisBloom's layout: data that its releases made, and what becomes of it here.

pub mod golden;
pub mod hostile;
pub mod loadchunk;
pub mod model;
pub mod promotion;
pub mod words;
