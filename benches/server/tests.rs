//! The unit tests of the parts of the benchmark that need no server: parsing, loads and tables. A program without cargo's test harness
//! cannot run them, so this file collects them for `cargo test --test bench`.

// Functions that only the program calls are unused here.
#![allow(dead_code)]
#![allow(clippy::indexing_slicing, clippy::cast_precision_loss)]
#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)]

mod answers;
mod arguments;
mod info;
mod items;
mod statistics;
mod table;
