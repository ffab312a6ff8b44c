//! `bloomgate follow`, checked exhaustively over small bounds: a model of one row's transactions in PostgreSQL, of followers that end or
//! hang between any two steps, and of a server that loses data. docs/guard-proof.md states its results and its limits.
//!
//! It uses the server of the guard's model, with the module's own state machine. `crates/follow` must take the same steps as `follower.rs`.

mod checks;
mod follower;
mod world;
