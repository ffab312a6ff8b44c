//! The commands, a file for each group, and the table of all of them.

mod add;
mod clear;
mod cuckoo;
mod delete;
mod dispatch;
mod dump;
mod guard;
mod info;
mod key_positions;
mod lookup;
mod merge;
mod table;

pub use table::COMMANDS;
