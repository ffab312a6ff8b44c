//! Tests of `bloomgate`, the command-line tool: the built program with real servers, its output and its exit status, with one file
//! per subcommand. The servers, the module and the tool are found as in `tests/server`.
// This crate is test code, which fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)]

mod backup;
mod build;
mod cluster;
mod columns;
mod connecting;
mod crawl;
#[allow(dead_code, reason = "the guard needs more of it")]
#[path = "../guard/database.rs"]
mod database;
mod dedup;
mod empty;
mod exit_status;
mod follow;
#[allow(dead_code, unused_imports, reason = "the tests of the server need more of it")]
#[path = "../server/harness/mod.rs"]
mod harness;
mod load;
mod missing_module;
mod names;
#[allow(dead_code, reason = "the fleets of the server's tests need more of it")]
#[path = "../server/fleet/nodes.rs"]
mod nodes;
mod pages;
mod permissions;
mod plan;
mod restore;
mod running;
mod sharded_backup;
mod shards;
mod watch;
mod web;
