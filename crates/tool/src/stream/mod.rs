//! Passes lines through a filter: a thread reads them ([`reader`]), each yields an item ([`field`]), and batches of items are
//! sent before earlier replies arrive ([`flow`]).

mod column;
mod csv;
pub mod field;
pub mod flow;
pub mod input;
pub mod reader;

pub use column::Column;
pub use field::Field;
pub use flow::{Answered, Flow};
pub use reader::Lines;
