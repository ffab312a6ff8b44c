//! The connections of the command-line tool and of `bloomgate follow` to Redis and Valkey servers and to databases. Also the text of keys
//! and counts, and a small HTTP server with metrics.

pub mod database;
pub mod http;
pub mod names;
pub mod prometheus;
pub mod server;
