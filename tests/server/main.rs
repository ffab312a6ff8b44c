//! The module inside a real server, seen from a client's side of the socket.
//!
//! One file per topic. Every test starts its own servers, each in its own directory and on a free port, and stops them at its end, even if
//! it fails. `BLOOMGATE_SERVERS` lists the servers to test (paths, separated by `:`), by default every `redis-server` and `valkey-server`
//! on the PATH. `BLOOMGATE_MODULE` names the module to load, by default the library that cargo built for these tests. `BLOOMGATE_PEERS`
//! names a folder with RedisBloom's libraries, for the tests beside it.
//!
//! A test that needs more than a server on the PATH is ignored, with the reason: CONTRIBUTING.md lists these tests. They fail if they are
//! run without their requirements.
// This whole crate is test code: a panic is how a test fails, and its helpers are not all inside `#[test]` functions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)]

#[allow(dead_code, unused_imports, reason = "the tests of the corpus need more of it")]
#[path = "../../crates/filter/tests/corpus/inputs.rs"]
mod corpus;

mod architecture;
mod chaos;
mod clock;
mod configuration;
mod counting;
mod cuckoo;
mod debian;
mod deleting;
mod every_filter;
mod eviction;
mod fleet;
mod freeing;
mod golden;
mod growth;
mod guard;
mod harness_tests;
mod huge_pages;
mod info;
mod libraries;
mod loadchunk;
mod long_chains;
mod membership;
mod memory;
mod merging;
mod own_options;
mod payload;
mod peers;
mod pending;
mod persistence;
mod predicted;
mod redisbloom;
mod registration;
mod reliability;
mod replaying;
mod replication;
mod reserve;
mod transactions;
mod transfer;
mod valkey_bloom;
mod windowed;
