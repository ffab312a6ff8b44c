//! Which transactions other sessions can see. The log has 32 bits of a transaction's id, a snapshot has all 64.

use std::collections::HashSet;

use anyhow::{Context, Result};

use super::session::Client;

/// A snapshot of PostgreSQL's list of running transactions: `pg_current_snapshot()`.
#[derive(Debug)]
pub struct Snapshot {
    /// All transactions below have ended.
    xmin: u64,
    /// No transaction from here on has begun.
    xmax: u64,
    running: Vec<u64>,
}

impl Snapshot {
    /// Takes a snapshot.
    ///
    /// # Errors
    /// A lost connection.
    pub fn take(client: &mut Client) -> Result<Self> {
        let row = client.query_one("SELECT pg_current_snapshot()::text", &[]).context("lost the PostgreSQL server")?;
        Self::parse(row.try_get(0)?)
    }

    /// Parses PostgreSQL's text for a snapshot.
    ///
    /// # Errors
    /// The text has another form.
    pub fn parse(text: &str) -> Result<Self> {
        let mut parts = text.splitn(3, ':');
        let mut number = || parts.next().and_then(|part| part.parse().ok());
        let (xmin, xmax) = number().zip(number()).with_context(|| format!("`{text}` is not a snapshot"))?;
        let running = parts.next().unwrap_or_default();
        let running = running.split(',').filter(|xid| !xid.is_empty()).map(str::parse).collect::<Result<_, _>>()?;
        Ok(Self { xmin, xmax, running })
    }

    /// Whether a transaction that the log shows as committed has become visible to new snapshots.
    pub fn shows(&self, xid: u32) -> bool {
        self.shows_full(self.full(xid))
    }

    /// As [`Self::shows`], for a 64-bit id.
    pub fn shows_full(&self, xid: u64) -> bool {
        xid < self.xmin || (xid < self.xmax && !self.running.contains(&xid))
    }

    /// Returns the 64-bit id: the one with these low bits that is nearest to `xmax`.
    pub fn full(&self, xid: u32) -> u64 {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_possible_wrap,
            reason = "the low bits, and their distance"
        )]
        let distance = xid.wrapping_sub(self.xmax as u32) as i32;
        self.xmax.wrapping_add_signed(distance.into())
    }
}

/// Returns the ids of all transactions that have one and have not ended. A snapshot does not have them all: its `xmax` is the id
/// after the last one that ended.
///
/// # Errors
/// A lost connection.
pub fn unfinished(client: &mut Client) -> Result<HashSet<String>> {
    let query = "SELECT transactionid::text FROM pg_locks WHERE locktype = 'transactionid' AND granted";
    let rows = client.query(query, &[]).context("lost the PostgreSQL server")?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_are_visible_once_they_have_left_the_list() {
        let snapshot = Snapshot::parse("10:20:12,15").unwrap();
        let shown: Vec<u32> = (5..25).filter(|xid| snapshot.shows(*xid)).collect();
        assert_eq!(shown, [5, 6, 7, 8, 9, 10, 11, 13, 14, 16, 17, 18, 19]);
        assert!(Snapshot::parse("10:20:").unwrap().shows(19));
        assert!(Snapshot::parse("x").is_err());
    }

    #[test]
    fn ids_are_extended_across_the_wrap() {
        let wrap = 1_u64 << 32;
        let snapshot = Snapshot { xmin: wrap + 1, xmax: wrap + 5, running: vec![wrap + 2] };
        assert_eq!([snapshot.full(u32::MAX), snapshot.full(4), snapshot.full(9)], [wrap - 1, wrap + 4, wrap + 9]);
        assert_eq!([u32::MAX, 1, 2, 4, 5].map(|xid| snapshot.shows(xid)), [true, true, false, true, false]);
    }
}
