//! The laws of filters and of everything that stores, copies, sends or parses them. `general.rs` has the laws of every kind, over the table
//! of kinds in `rows.rs`; each other file has the laws of one kind or one mechanism.
//!
//! Random cases use fixed seeds, so that every run tries the same ones; `PROPTEST_CASES` and `PROPTEST_RNG_SEED` in the environment
//! select more, or others.

// All of this is test code: a panic is how a test fails. Numbers that are cast are small.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]

#[allow(dead_code, reason = "the tests of memory need more of it")]
#[path = "../memory/allocator.rs"]
mod allocator;
mod corpus;
mod counting;
mod cuckoo;
mod deleted;
mod described;
mod edges;
mod effects;
mod forms;
mod general;
#[allow(dead_code, reason = "the measurements need more of the kinds")]
#[path = "../corpus/inputs.rs"]
mod inputs;
mod interleaved;
mod merging;
mod options;
mod pending;
mod redisbloom_cuckoo;
mod ring;
mod ring_model;
mod rows;
mod world;
