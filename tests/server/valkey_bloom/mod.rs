//! Filters of valkey-bloom's layout: data of valkey-bloom, loaded by bloomgate.

mod data;
pub mod golden;
mod load;
