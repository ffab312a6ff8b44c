//! Which column of a file has the items, in the words that `load` and `dedup` share.

use anyhow::{Context, Result};

use crate::usage::usage;

/// A column of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Column {
    /// By its name in the first line.
    Name(String),
    /// By its place; the first is 0. The first line may be one of names.
    Place { place: usize, has_header: bool },
}

impl Column {
    /// A number is a place, from 1 on; all else is a name.
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

    /// Whether the first line has names of columns and no item.
    pub const fn has_header(&self) -> bool {
        !matches!(self, Self::Place { has_header: false, .. })
    }

    /// The place of the column in a file whose first line has these fields.
    ///
    /// # Errors
    /// None of them has its name.
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
