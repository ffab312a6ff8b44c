//! The guard's protocol, checked exhaustively over small bounds: a model of the filter, the cache, tokens, leases, NONEs and writes in
//! flight, of readers and writers that can stop between any two steps, of deletes and of a refill. docs/guard-proof.md states its results
//! and its limits.
//!
//! The model runs the module's own state machine (`src/guard/state.rs`). `walks.rs` repeats random walks of the model on real
//! servers with the module, and compares every reply.
//!
//! `feed` is a model of `bloomgate follow`, which uses the same server. `coalescing` is a model of the callers of one row in the clients'
//! processes.
// This whole crate is test code: a panic is how a test fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::unreachable)]
#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)]

#[allow(dead_code, reason = "the module needs more of it")]
#[path = "../../../../src/guard"]
mod guard {
    pub mod dependencies;
    pub mod queues;
    pub mod records;
    pub mod row;
    pub mod state;
}
mod checks;
mod coalescing;
mod feed;
mod server;
mod walks;
mod world;
mod writers;
