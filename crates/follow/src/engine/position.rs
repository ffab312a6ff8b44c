//! The position up to which a log is applied: places in it, its transactions, and their stored form.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Error, Result};
use redis::{Cmd, cmd};

use crate::config::Keys;

/// A place in a log. Only the source interprets its number; places of one log have its order. Its text is two hexadecimal numbers in
/// PostgreSQL's form: `16/B374D848`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(pub u64);

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "{:X}/{:X}", self.0 >> 32, self.0 & 0xffff_ffff)
    }
}

impl FromStr for Place {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts = text
            .split_once('/')
            .and_then(|(high, low)| Some((u32::from_str_radix(high, 16).ok()?, u32::from_str_radix(low, 16).ok()?)));
        let (high, low) = parts.with_context(|| format!("`{text}` is not a position in a log"))?;
        Ok(Self(u64::from(high) << 32 | u64::from(low)))
    }
}

/// A transaction of the log. Transactions of different logs differ in end, id or time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// The place after its commit.
    pub end: Place,
    /// The low 32 bits of its id, or 0 if a filter was filled and no transaction has arrived since.
    pub xid: u64,
    /// The time of its commit, in the source's form.
    pub time: u64,
}

impl Mark {
    /// Returns the mark for a place without a known transaction.
    pub const fn nameless(end: Place) -> Self {
        Self { end, xid: 0, time: 0 }
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "{},{},{}", self.end, self.xid, self.time)
    }
}

impl FromStr for Mark {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut parts = text.splitn(3, ',');
        let mut next = || parts.next().unwrap_or_default();
        Ok(Self { end: next().parse()?, xid: next().parse()?, time: next().parse()? })
    }
}

/// The position up to which the log is applied to a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The identity of the database and of the table, and the table's definition.
    pub origin: String,
    /// The source's text for the place in the log.
    pub place: String,
    /// The last applied transaction.
    pub last: Mark,
}

impl Position {
    /// Parses a stored position.
    pub fn parse(text: &str) -> Option<Self> {
        let (rest, place) = text.rsplit_once(' ')?;
        let with_last = rest.rsplit_once(' ').and_then(|(origin, last)| Some((origin, last.parse().ok()?)));
        let (origin, last) = match with_last {
            Some(parts) => parts,
            // Version 0.2.0 did not store the last transaction.
            None => (rest, Mark::nameless(place.parse().ok()?)),
        };
        Some(Self { origin: origin.to_owned(), place: place.to_owned(), last })
    }

    /// Removes the definition of the table, so that it differs from every definition.
    pub fn forget_definition(&mut self) {
        self.origin.truncate(self.origin.rfind(' ').map_or(0, |space| space + 1));
    }

    /// Returns the place in readable form: for MariaDB and MySQL, the last transaction's GTID.
    pub fn shown(&self) -> &str {
        let parts: Vec<_> = self.place.split(';').collect();
        match parts.as_slice() {
            [_, gtid, _, _] => gtid,
            [""] | ["-"] => "the beginning",
            _ => &self.place,
        }
    }

    /// Returns the command that stores it.
    pub fn store(&self, keys: &Keys) -> Cmd {
        cmd("SET").arg(&keys.position).arg(self.to_string()).to_owned()
    }
}

impl fmt::Display for Position {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "{} {} {}", self.origin, self.last, self.place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_written_as_postgresql_writes_them() {
        let lsn: Place = "16/B374D848".parse().unwrap();
        assert_eq!((lsn.0, lsn.to_string().as_str()), (0x16_B374_D848, "16/B374D848"));
        for text in ["", "16", "16/", "x/1", "1/100000000"] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }

    #[test]
    fn positions_keep_the_last_transaction() {
        let last = Mark { end: Place(1 << 40), xid: u32::MAX.into(), time: u64::MAX };
        let position = Position { origin: "7 1 16384 md5".to_owned(), place: "200/0".to_owned(), last };
        assert_eq!(Position::parse(&position.to_string()), Some(position.clone()));
        // Version 0.2.0 did not store a transaction, nor the definition of an altered table.
        for origin in ["7 1 16384 md5", "7 1 16384 "] {
            let parsed = Position::parse(&format!("{origin} 200/0")).unwrap();
            assert_eq!(
                parsed,
                Position { origin: origin.to_owned(), place: "200/0".to_owned(), last: Mark::nameless(Place(2 << 40)) }
            );
        }
    }
}
