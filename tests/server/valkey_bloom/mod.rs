//! Filters of valkey-bloom's layout: data that valkey-bloom made, and what becomes of it here.

mod data;
mod load;
pub mod model;
