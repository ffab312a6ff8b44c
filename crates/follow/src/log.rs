//! Places in a database's log, and the transactions there.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Error, Result};

/// A place in the log, which a source can compare with others of the same log. PostgreSQL's are in bytes, written as two hexadecimal
/// numbers, as in `16/B374D848`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lsn(pub u64);

impl fmt::Display for Lsn {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "{:X}/{:X}", self.0 >> 32, self.0 & 0xffff_ffff)
    }
}

impl FromStr for Lsn {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts = text
            .split_once('/')
            .and_then(|(high, low)| Some((u32::from_str_radix(high, 16).ok()?, u32::from_str_radix(low, 16).ok()?)));
        let (high, low) = parts.with_context(|| format!("`{text}` is not a position in a log"))?;
        Ok(Self(u64::from(high) << 32 | u64::from(low)))
    }
}

/// A transaction of the log. No two logs have one with the same end, id and time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// The place after its commit.
    pub end: Lsn,
    /// Its id, or 0 if a filter was filled and no transaction has arrived since.
    pub xid: u32,
    /// The time of its commit, in the source's form.
    pub time: u64,
}

impl Mark {
    /// A place of which no transaction is known.
    pub const fn nameless(end: Lsn) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_written_as_postgresql_writes_them() {
        let lsn: Lsn = "16/B374D848".parse().unwrap();
        assert_eq!((lsn.0, lsn.to_string().as_str()), (0x16_B374_D848, "16/B374D848"));
        for text in ["", "16", "16/", "x/1", "1/100000000"] {
            assert!(text.parse::<Lsn>().is_err(), "{text}");
        }
    }
}
