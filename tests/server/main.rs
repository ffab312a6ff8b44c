//! The module inside a real server, seen from a client's side of the socket.
//!
//! One file per topic. Every test starts servers of its own, each in a directory of its own and on a free port, and they
//! end with the test, also when it fails. `BLOOMGATE_SERVERS` lists the servers to try (paths, separated by `:`); left
//! out, it is every `redis-server` and `valkey-server` on the PATH. `BLOOMGATE_MODULE` names the module to load; left
//! out, it is the library that cargo built for these tests. `BLOOMGATE_PEERS` names a folder with RedisBloom's libraries,
//! for the tests beside it.
//!
//! A test that needs more than a server of the PATH is ignored, with the reason: CONTRIBUTING.md lists them. It fails when it
//! is run without what it needs.
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
mod peers;
mod pending;
mod persistence;
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
