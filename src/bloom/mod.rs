//! The filter itself, in pure Rust: no Redis, no files, no clock, no randomness of its own.
//!
//! An item becomes a 128-bit hash ([`hash`]), the hash names two cache lines of one page and a few bits in each
//! ([`page_local`]), the bits live in a bitmap ([`bits`]) whose size comes from the capacity and the rate asked for
//! ([`sizing`]). One bitmap of fixed capacity is a [`Layer`]; a chain of layers is a [`BloomFilter`].

pub mod bits;
mod ceiling;
mod description;
mod error;
mod filter;
pub mod hash;
mod layer;
pub mod page_local;
mod prefetch;
pub mod sizing;

pub use ceiling::{Ceiling, Unlimited};
pub use description::{Description, LayerDescription, Scaling};
pub use error::Error;
pub use filter::{Added, BloomFilter, LAYERS_MAX};
pub use hash::{BATCH, HashBatch, ItemHash};
pub use layer::Layer;
