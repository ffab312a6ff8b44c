//! Tests of `bloomgate`, the command-line tool: the built program with real servers, its output and its exit status, with one file
//! per subcommand. The servers, the module and the tool are found as in `tests/server`.
// This crate is test code, which fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)]

mod backup;
mod build;
mod command_line;
mod connecting;
mod dedup;
mod follow;
mod input;
mod load;
mod permissions;
mod plan;
mod running;
mod sentinels;
mod shards;
mod survey;
mod watch;
mod web;
