//! The guard in front of a real database: PostgreSQL with a table of 100,000 rows, 200 clients at once, rows that come,
//! change and go, and a model that knows what no reply may be.
//!
//! `BLOOMGATE_GUARD_SECONDS` says for how long each part runs (3 where it is not set). Servers and the module are found as in
//! `tests/server`. PostgreSQL has to be there: a test that does not find it fails.
// This whole crate is test code: a panic is how a test fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)]

mod client;
mod course;
mod database;
mod faults;
#[allow(dead_code, unused_imports, reason = "the tests of the server need more of it")]
#[path = "../server/harness/mod.rs"]
mod harness;
mod model;
mod quotes;
mod readers;
mod report;
mod workload;
mod world;
mod writers;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// For how long a part runs.
fn seconds() -> Duration {
    let text = std::env::var("BLOOMGATE_GUARD_SECONDS").unwrap_or_else(|_| "3".to_owned());
    Duration::from_secs_f64(text.parse().expect("BLOOMGATE_GUARD_SECONDS is a number"))
}

/// Two hundred clients are enough for one machine: the tests take turns.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
