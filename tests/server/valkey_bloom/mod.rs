//! Filters of valkey-bloom's layout: data of valkey-bloom, loaded by bloomgate.

mod data;
mod load;
pub mod model;
