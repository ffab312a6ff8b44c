//! The tests of those parts of the measuring program that need no server: reading words and statistics, making loads,
//! tables and plots. They stand beside the code; a program without cargo's own harness cannot run them, so they are
//! gathered here. `cargo test --test bench` runs them.

// The functions that only the program calls are not called here.
#![allow(dead_code)]
#![allow(clippy::indexing_slicing, clippy::cast_precision_loss)]
#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)]

mod answers;
mod arguments;
mod callgrind;
mod info;
mod items;
mod plots;
mod redisbloom;
mod statistics;
mod table;
