//! Bloom filters that can grow, forget and delete, and their stored formats: pure Rust, without Redis, files, a clock or randomness.
//!
//! The modules from the inside out; each uses only those above it:
//! - [`hash`]: from an item to the numbers that determine its cells.
//! - `cells`: bits or counters in blocks of cache lines, or bits in one flat array.
//! - `geometry`: where an item's cells are, and the maths of sizes.
//! - `chain`: a layer of fixed capacity, and the chain of layers that grows.
//! - `codec`: numbers and cells as bytes.
//! - [`kinds`]: the kinds of filters, each with its rules and its codec. [`Filter`] is a filter of any kind.
//! - [`mod@format`]: snapshots and dumps. [`Value`] is the value of a key: a filter, complete or arriving.
//! - [`arguments`]: pure parsers of the BF.* commands, and their error texts.
//!
//! ```
//! use bloomgate_filter::{BloomFilter, Scaling, Unlimited};
//!
//! let mut seen = BloomFilter::new(0.01, 1000, Scaling::from_expansion(2), 42, &Unlimited)?;
//! assert_eq!(seen.add(b"https://doc.rust-lang.org/std/", &Unlimited), Ok(true));
//! assert_eq!(seen.add(b"https://doc.rust-lang.org/std/", &Unlimited), Ok(false));
//! assert!(seen.contains(b"https://doc.rust-lang.org/std/"));
//! assert!(!seen.contains(b"https://doc.rust-lang.org/book/"));
//! # Ok::<(), bloomgate_filter::Error>(())
//! ```

pub mod arguments;
mod cells;
mod chain;
mod codec;
mod error;
pub mod format;
mod geometry;
pub mod hash;
mod host;
pub mod kinds;
mod mask;
mod memory;

pub use cells::Mover;
pub use chain::HashSet;
pub use error::Error;
pub use format::Value;
pub use geometry::sizing::{Policy, RATE_MAX, RATE_MIN, Scaling};
pub use host::{CLIENT_LAYERS_MAX, Ceiling, Clock, Moment, Unlimited};
pub use kinds::{BloomFilter, Filter, RedisBloomFilter, Spec, ValkeyBloomFilter};
pub use mask::{BATCH, Mask};
pub use memory::{allocator_is_jemalloc, try_box};

/// The example of the README, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
