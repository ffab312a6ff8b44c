//! A Bloom filter gate inside Redis and Valkey: a module that gives any client the BF.* commands.
//!
//! The tour, from the inside out:
//! - [`bloom`] is the filter: hashing, the layout of the bits, layers, the chain. Pure Rust.
//! - [`mod@format`] is filters as bytes: snapshots and dumps. Pure codecs.
//! - [`words`] is commands as words: what they ask for, why they are refused, how an effect is spelled. Pure parsers.
//! - `server`, with the feature `module` (on by default), is the module: commands, replication, persistence, memory.
//!
//! Each knows those above it and none below.

pub mod bloom;
pub mod format;
#[cfg(feature = "module")]
mod server;
pub mod words;
