//! Whether PostgreSQL's log is still the one that a stored position belongs to. A data directory that was put back has the same system
//! identifier and timeline, and other transactions at the same positions.

use anyhow::Result;

use super::follower::{Follower, WAIT};
use super::lsn::{Lsn, Mark};
use super::store::Position;

impl Follower {
    /// Returns for each table whether the log has the last transaction that its filter has. The stream is read up to there; what every
    /// table has is dropped. Nothing may be confirmed before: COMMITs of another log would return.
    pub(super) fn find_in_log(&mut self, stored: &[Option<Position>]) -> Result<Vec<bool>> {
        let flushed = "SELECT pg_current_wal_flush_lsn()::text";
        let flushed: Lsn = self.database.query_one(flushed, &[])?.try_get::<_, &str>(0)?.parse()?;
        // PostgreSQL confirms a position only after the follower has, so it has everything up to there.
        let confirmed = self.confirmed;
        let is_sent = |position: &Position| {
            position.lsn <= flushed
                && position.last.end > confirmed
                && position.last != Mark::nameless(position.last.end)
        };
        let sent = || stored.iter().flatten().filter(|position| is_sent(position));
        let mut found: Vec<_> = stored
            .iter()
            .map(|position| {
                position.as_ref().is_some_and(|stored| stored.lsn <= flushed && stored.last.end <= confirmed)
            })
            .collect();
        let end = sent().map(|position| position.last.end).max().unwrap_or_default();
        let everyone_has = stored
            .iter()
            .map(|position| position.as_ref().map_or(confirmed, |stored| stored.last.end))
            .min()
            .unwrap_or_default();
        let mut read = Lsn(0);
        while read < end {
            self.pulse.ensure_running()?;
            self.pulse.beat(&mut self.store, &mut self.wire, self.confirmed)?;
            if !self.receive_event(WAIT)? {
                // The reply tells how far the stream is.
                self.wire.confirm(self.confirmed, true)?;
            }
            read = self.arrived.end().max(read);
            while self.arrived.waiting.front().is_some_and(|first| first.end <= everyone_has) {
                let Some(first) = self.arrived.pop() else { break };
                note(&mut found, stored, first.mark());
            }
        }
        for transaction in &self.arrived.waiting {
            note(&mut found, stored, transaction.mark());
        }
        Ok(found)
    }
}

fn note(found: &mut [bool], stored: &[Option<Position>], mark: Mark) {
    for (found, position) in found.iter_mut().zip(stored) {
        *found |= position.as_ref().is_some_and(|stored| stored.last == mark);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_keep_the_last_transaction() {
        let last = Mark { end: Lsn(1 << 40), xid: u32::MAX, time: u64::MAX };
        let position = Position { origin: "7 1 16384 md5".to_owned(), lsn: Lsn(2 << 40), last };
        assert_eq!(Position::parse(&position.to_string()), Some(position.clone()));
        // Version 0.2.0 stored none, and no definition for a table that was altered.
        for origin in ["7 1 16384 md5", "7 1 16384 "] {
            let parsed = Position::parse(&format!("{origin} 200/0")).unwrap();
            assert_eq!(
                parsed,
                Position { origin: origin.to_owned(), lsn: Lsn(2 << 40), last: Mark::nameless(Lsn(2 << 40)) }
            );
        }
    }
}
