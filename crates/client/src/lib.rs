#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[cfg(feature = "tokio")]
pub mod aio;
mod batch;
mod client;
mod codec;
mod core;
mod error;
mod filter;
mod guard;
mod guard_options;
mod item;
pub mod keys;
mod options;
mod replies;
mod sharded;
pub mod sharding;
pub mod slots;

pub use client::Client;
#[cfg(feature = "json")]
pub use codec::Json;
pub use codec::{Bytes, Codec};
pub use error::{Answers, BoxError, Error};
pub use filter::{Filter, plan};
pub use guard::{Guard, WithLoader, fill_filter};
pub use guard_options::{Durability, GuardOptions};
pub use item::{BatchItem, Item};
pub use options::{Insert, Options};
pub use redis;
pub use replies::{Bucket, Info, Layer, Plan, Stats};
pub use sharded::ShardedFilter;
