//! The filter itself, in pure Rust: no Redis, no files, no clock, no randomness of its own.
//!
//! An item becomes a 128-bit hash ([`hash`]), the hash names two cache lines of one page and a few bits in each
//! ([`page_local`]), the bits live in a bitmap ([`bits`]) whose size comes from the capacity and the rate asked for
//! ([`sizing`]). One bitmap of fixed capacity is a [`Layer`]; a chain of layers is a [`BloomFilter`].
//!
//! The data of other modules keeps their layouts: [`redisbloom`] and [`valkey_bloom`] hash and grow by their rules, on flat
//! arrays of bits ([`flat`]). The chain is the same for all ([`Chain`]), and a [`Filter`] is one of the three.

pub mod bits;
mod ceiling;
pub(crate) mod chain;
mod description;
mod error;
mod filter;
pub mod flat;
pub mod hash;
mod layer;
mod layout;
mod murmur2;
pub mod murmur3;
mod native;
pub mod page_local;
mod prefetch;
pub mod redisbloom;
mod relocate;
pub mod sizing;
mod totals;
pub mod valkey_bloom;

pub(crate) use bits::{is_zero, try_box};
pub use ceiling::{CLIENT_LAYERS_MAX, Ceiling, Unlimited};
pub use chain::{Added, Chain, LAYERS_MAX};
pub use description::{Description, LayerDescription, Scaling};
pub use error::Error;
pub use filter::{Contents, Filter, LayerSummary};
pub use hash::{BATCH, HashBatch, ItemHash};
pub use layer::Layer;
pub use layout::{Bits, Layout, Rules};
pub use native::{BloomFilter, Native};
pub use redisbloom::{RedisBloom, RedisBloomFilter};
pub use relocate::Mover;
pub use totals::Reach;
pub(crate) use totals::check_layer;
pub use valkey_bloom::{ValkeyBloom, ValkeyBloomFilter};
