//! A command line that cannot be meant: what the parser of its words cannot see, because it depends on two of them or on
//! their contents. It ends the run with status 2, where everything else that fails ends it with 1.

use std::fmt;

/// Why a command line is refused.
#[derive(Debug)]
pub struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// An error that ends the run with status 2.
pub fn usage(text: impl Into<String>) -> anyhow::Error {
    Usage(text.into()).into()
}
