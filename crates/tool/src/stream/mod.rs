//! Lines on their way through a filter: read by a thread of their own ([`reader`]), split into items ([`field`]), and asked
//! about many at a time, several batches before their answers ([`flow`]).

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
