//! Computed figures: false positive rates (`accuracy.rs`, `rings.rs`), estimates of existing filters (`estimates.rs`), and plans of filters
//! (`plans.rs`).
//!
//! `cargo test -p bloomgate-filter --test figures -- --nocapture` prints the tables; with `BLOOMGATE_ACCURACY=full`, from five times as
//! many queries. Seeds and items are fixed, so every run gives the same figures.

// All of this is test code: a panic is how a test fails. Numbers that are cast are small or are to be rounded.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]

mod accuracy;
mod estimates;
#[allow(dead_code, reason = "the laws need more of it")]
#[path = "../kinds/mod.rs"]
mod kinds;
mod model;
mod plans;
mod rings;
