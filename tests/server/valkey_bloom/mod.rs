//! Filters of valkey-bloom's layout: data that valkey-bloom made, and what becomes of it here.

mod damage;
mod data;
mod golden;
mod growth;
mod hostile;
mod insert;
mod keys;
mod load;
mod model;
mod replication;
