//! The inputs of the fuzz targets, replayed as ordinary tests. Every input keeps the laws, none makes a decoder allocate more
//! memory than it may, and inputs generated from failures of other modules cause the expected errors.

// All of this is test code: a panic is how a test fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::cast_possible_truncation)]

mod errors;
#[path = "inputs.rs"]
mod inputs;
mod memory;
mod packing;
mod replay;

/// Generates a test for each kind of input.
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
