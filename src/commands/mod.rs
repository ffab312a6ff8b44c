//! The commands, a file for each group, and the table of all of them.

mod add;
mod delete;
mod describe;
mod dispatch;
mod dump;
mod guard;
mod look;
mod table;
mod whole;

pub use table::COMMANDS;
