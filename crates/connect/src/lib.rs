//! The connection of the command-line tool and of `bloomgate follow` to a Redis or Valkey server, and what goes with it: connections to
//! PostgreSQL, the text of keys and counts, and a small HTTP server with metrics.

pub mod database;
pub mod http;
pub mod names;
pub mod prometheus;
pub mod server;
