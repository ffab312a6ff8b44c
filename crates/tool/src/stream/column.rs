//! The column that holds the items, as `load` and `dedup` accept it.

use anyhow::{Context, Result};

use crate::usage::usage;

/// A column of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Column {
    /// A column by its name in the first line.
    Name(String),
    /// A column by its index from 0. The first line may be a header.
    Place { place: usize, has_header: bool },
}

impl Column {
    /// Parses a number from 1, or a name.
    ///
    /// # Errors
    /// The number 0.
    pub fn of(text: &str, has_header: bool) -> Result<Self> {
        match text.parse::<usize>() {
            Ok(0) => Err(usage("--column: columns are numbered from 1")),
            Ok(number) => Ok(Self::Place { place: number - 1, has_header }),
            Err(_) => Ok(Self::Name(text.to_owned())),
        }
    }

    /// Whether the first line is a header without an item.
    pub const fn has_header(&self) -> bool {
        !matches!(self, Self::Place { has_header: false, .. })
    }

    /// Returns the index of the column in a file with this first line.
    ///
    /// # Errors
    /// No field has that name.
    pub fn place<'f>(&self, first_line: impl Iterator<Item = &'f [u8]>) -> Result<usize> {
        let name = match self {
            Self::Place { place, .. } => return Ok(*place),
            Self::Name(name) => name,
        };
        let names: Vec<_> = first_line.map(|field| field.strip_prefix(b"\xef\xbb\xbf").unwrap_or(field)).collect();
        names.iter().position(|other| *other == name.as_bytes()).with_context(|| {
            let names: Vec<_> = names.iter().map(|name| String::from_utf8_lossy(name)).collect();
            format!("no column in the first line is named `{name}`: {}", names.join(", "))
        })
    }
}
