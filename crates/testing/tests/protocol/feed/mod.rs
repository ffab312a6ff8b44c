//! `bloomgate follow`, checked exhaustively over small bounds: a model of one row's transactions in PostgreSQL, of followers that
//! end or hang between any two steps, and of a server that loses data. docs/guard-proof.md says what it shows and what it cannot
//! see.
//!
//! The server is that of the guard's model, with the module's own state machine. `crates/follow` has to take the steps of
//! `follower.rs`.

mod checks;
mod follower;
mod world;
