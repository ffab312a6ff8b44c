//! The connections of the command-line tool and of `bloomgate follow` to Redis and Valkey servers and to databases. Also formats keys and
//! counts, and serves metrics over HTTP.

pub mod database;
pub mod http;
pub mod names;
pub mod prometheus;
pub mod server;
