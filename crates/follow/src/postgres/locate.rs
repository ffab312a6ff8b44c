//! Finds stored positions in the log again.

use anyhow::Result;

use super::Postgres;
use crate::config::Mode;
use crate::follower::{Follower, WAIT};
use crate::log::{Lsn, Mark};
use crate::store::Position;

// Whether PostgreSQL's log is still the one that a stored position belongs to. A data directory that was put back has the same system
// identifier and timeline, and other transactions at the same positions.

impl Follower<Postgres> {
    /// Returns for each table where the log goes on after its stored position, or why it does not. In synchronous mode, reads the
    /// journals: their transactions are released once they are visible, like those that this follower announces.
    pub(super) fn places(&mut self, stored: &[Option<Position>]) -> Result<Vec<Result<Lsn, &'static str>>> {
        let found = self.find_in_log(stored)?;
        let confirmed = self.source.confirmed;
        let mut places = Vec::new();
        for (index, (stored, is_in_log)) in stored.iter().zip(found).enumerate() {
            let lsn = stored.as_ref().and_then(place).unwrap_or_default();
            let is_lost = !self.has_origin(index, stored.as_ref()) || lsn < confirmed || !is_in_log;
            if !is_lost {
                self.adopt(index)?;
            } else if self.mode == Mode::Synchronous {
                self.forget_values(index)?;
            }
            let last = stored.as_ref().map(|stored| stored.last).unwrap_or_default();
            places.push(match is_lost {
                // Nothing is skipped after that transaction: a data directory that was put back may have others there.
                false => Ok(last.end.max(confirmed)),
                true if lsn < confirmed => Err("it is older than the slot: the server has lost data"),
                true if last.xid == 0 => Err("PostgreSQL was restarted right after it was filled"),
                true => {
                    Err("PostgreSQL's log no longer has its last transaction: an older data directory was put back")
                }
            });
        }
        Ok(places)
    }

    /// Returns for each table whether the log has the last transaction that its filter has. The stream is read up to there; what every
    /// table has is dropped. Nothing may be confirmed before: COMMITs of another log would return.
    pub(super) fn find_in_log(&mut self, stored: &[Option<Position>]) -> Result<Vec<bool>> {
        let flushed = "SELECT pg_current_wal_flush_lsn()::text";
        let flushed: Lsn = self.source.database.query_one(flushed, &[])?.try_get::<_, &str>(0)?.parse()?;
        // PostgreSQL confirms a position only after the follower has, so it has everything up to there.
        let confirmed = self.source.confirmed;
        let is_sent = |position: &Position| {
            place(position).is_some_and(|lsn| lsn <= flushed)
                && position.last.end > confirmed
                && position.last != Mark::nameless(position.last.end)
        };
        let sent = || stored.iter().flatten().filter(|position| is_sent(position));
        let mut found: Vec<_> = stored
            .iter()
            .map(|position| {
                position.as_ref().is_some_and(|stored| {
                    place(stored).is_some_and(|lsn| lsn <= flushed) && stored.last.end <= confirmed
                })
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
            self.pulse()?;
            if !self.receive_event(WAIT)? {
                // The reply tells how far the stream is.
                self.source.wire.confirm(self.source.confirmed, true)?;
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

fn place(position: &Position) -> Option<Lsn> {
    position.place.parse().ok()
}
