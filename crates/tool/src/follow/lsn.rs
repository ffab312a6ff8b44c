//! Positions in PostgreSQL's write-ahead log.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Error, Result};

/// A position in the write-ahead log, in bytes. PostgreSQL writes it as two hexadecimal numbers, as in `16/B374D848`.
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
        let (high, low) = parts.with_context(|| format!("`{text}` is not a position in PostgreSQL's log"))?;
        Ok(Self(u64::from(high) << 32 | u64::from(low)))
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
