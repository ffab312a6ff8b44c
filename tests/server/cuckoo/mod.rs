//! Cuckoo filters and the CF.* commands: of RedisBloom's layout in `commands.rs` and `data.rs`, of our own in `ours.rs`.

mod commands;
mod data;
mod ours;

/// Without this setting, commands that name no number of RedisBloom's layout create filters of our own.
pub const THEIR_LAYOUT: &str = "CONFIG SET bf.layout redisbloom";
