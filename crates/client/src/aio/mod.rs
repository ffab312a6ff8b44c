//! The client for tasks of tokio: the types of the crate's root, with asynchronous methods. Needs the feature `tokio`.
//!
//! A dropped future sends nothing further, with two exceptions: a lease that the call holds or is about to get is given up, and
//! an announced change is confirmed. Both happen in separate tasks on the runtime of the call. Outside a runtime calls panic, as
//! in tokio.
//!
//! ```no_run
//! use bloomgate_client::aio::{Client, Guard};
//! use bloomgate_client::GuardOptions;
//! # async fn select(id: u64) -> Result<Option<Vec<u8>>, std::io::Error> { Ok(None) }
//! # async fn update(id: u64, name: &str) -> Result<(), std::io::Error> { Ok(()) }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::open("redis://127.0.0.1/")?;
//! let users = Guard::new(&client, "users", GuardOptions::default())?;
//! let row = users.get(17, select).await?;
//! users.changed([17], || update(17, "Zoë")).await?;
//! # Ok(())
//! # }
//! ```

mod client;
mod filter;
mod guard;
mod queue;
mod sharded;
mod turns;

pub use client::Client;
pub use filter::{Filter, plan};
pub use guard::{Guard, fill_filter};
pub use sharded::ShardedFilter;
