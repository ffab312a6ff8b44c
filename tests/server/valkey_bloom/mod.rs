//! Filters of valkey-bloom's layout: data that valkey-bloom made, and what becomes of it here.

mod data;
pub mod golden;
mod growth;
pub mod hostile;
mod insert;
mod keys;
mod load;
pub mod model;
mod replication;
