//! The guard in front of PostgreSQL: a table of 100,000 rows, 200 concurrent clients, rows that are inserted, changed and
//! deleted, and a model that knows which replies are wrong.
//!
//! `BLOOMGATE_GUARD_SECONDS` is the duration of each part (default 3). The servers and the module are found as in
//! `tests/server`. PostgreSQL is required: without it the tests fail.
// This crate is test code, which fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)]

mod model;
mod readers;
mod workload;
mod world;
mod writers;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The duration of a part.
fn seconds() -> Duration {
    let text = std::env::var("BLOOMGATE_GUARD_SECONDS").unwrap_or_else(|_| "3".to_owned());
    Duration::from_secs_f64(text.parse().expect("BLOOMGATE_GUARD_SECONDS is a number"))
}

/// The tests run one at a time, because two hundred clients are enough for one machine.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
