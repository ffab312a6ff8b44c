//! The parts of this crate that the cases of clients/specification do not cover. The runner there runs the cases with
//! adapter/main.rs.
// This crate is test code, which fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)]

mod cluster;
mod crowds;
mod logs;
mod options;
mod panics;
mod pool;
mod runtimes;
mod scripted;
#[allow(clippy::duplicate_mod, reason = "both halves are tested by the same code")]
mod tasks;
#[allow(clippy::duplicate_mod, reason = "both halves are tested by the same code")]
mod threads;

use std::time::Duration;

/// The limit of every wait.
const PATIENCE: Duration = Duration::from_secs(60);
