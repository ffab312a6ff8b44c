//! The inputs of the fuzz targets, replayed as ordinary tests: every input is held to the laws, none makes a decoder ask for
//! more memory than it may, and those that are made here after what went wrong in other modules meet the error that they
//! should.

// All of this is test code: a panic is how a test fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::cast_possible_truncation)]

mod errors;
#[path = "inputs.rs"]
mod inputs;
mod memory;
mod packing;
mod replay;

/// A test for each kind of input that is made: it meets what it must.
macro_rules! tests {
    ($($file:ident: $($kind:ident)*;)*) => {$(
        mod $file {
            $(
                #[test]
                fn $kind() {
                    crate::inputs::$file::$kind(&Default::default());
                }
            )*
        }
    )*};
}
inputs::for_each_kind!(tests);
