//! Cuckoo filters of RedisBloom's layout and the CF.* commands.

mod commands;
mod data;
