//! Invalid command lines that the parser cannot detect, because that depends on several options or on their values. They exit
//! with status 2; all other failures exit with 1.

use std::fmt;

/// Why a command line is invalid.
#[derive(Debug)]
pub struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Creates an error that exits with status 2.
pub fn usage(text: impl Into<String>) -> anyhow::Error {
    Usage(text.into()).into()
}
