//! Locates stored positions in the log.

use anyhow::Result;

use super::Postgres;
use crate::engine::events::Sink;
use crate::engine::position::{Mark, Place, Position};
use crate::engine::{Source, WAIT};

// Whether a stored position belongs to PostgreSQL's current log. A restored data directory has the same system identifier and timeline,
// but other transactions at the same positions.

impl Postgres {
    /// Returns for each table the place after which its changes must be applied, or why its filter must be filled.
    pub(super) fn find(
        &mut self,
        stored: &[Option<Position>],
        sink: &mut Sink,
        meanwhile: &mut dyn FnMut() -> Result<bool>,
    ) -> Result<Vec<Result<Place, &'static str>>> {
        let found = self.find_in_log(stored, sink, meanwhile)?;
        let confirmed = self.confirmed;
        let place_of = |(stored, is_in_log): (&Option<Position>, bool)| {
            let Some(stored) = stored else { return Err("no position in the log is stored for it") };
            if place(stored).unwrap_or_default() < confirmed {
                Err("it is older than the slot: the server has lost data")
            } else if is_in_log {
                // Nothing is skipped after that transaction, because a restored data directory may have other transactions there.
                Ok(stored.last.end.max(confirmed))
            } else if stored.last.xid == 0 {
                Err("PostgreSQL was restarted right after it was filled")
            } else {
                Err("PostgreSQL's log no longer has its last transaction: an older data directory was put back")
            }
        };
        Ok(stored.iter().zip(found).map(place_of).collect())
    }

    /// Returns for each table whether the log contains the last transaction that is applied to its filter. The stream is read up to
    /// there; transactions that are applied to every table are dropped. Nothing may be confirmed before, because COMMITs of another log
    /// would return.
    fn find_in_log(
        &mut self,
        stored: &[Option<Position>],
        sink: &mut Sink,
        meanwhile: &mut dyn FnMut() -> Result<bool>,
    ) -> Result<Vec<bool>> {
        let flushed = "SELECT pg_current_wal_flush_lsn()::text";
        let flushed: Place = self.database.query_one(flushed, &[])?.try_get::<_, &str>(0)?.parse()?;
        // PostgreSQL's confirmed position is never ahead of the follower's, so everything up to there is applied.
        let confirmed = self.confirmed;
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
        let mut read = Place(0);
        while read < end {
            if meanwhile()? {
                self.keep_alive()?;
            }
            if !self.next(sink, WAIT)? {
                // The reply contains the position of the stream.
                self.wire.confirm(self.confirmed, true)?;
            }
            read = sink.arrived.end().max(read);
            while sink.arrived.waiting.front().is_some_and(|first| first.end <= everyone_has) {
                let Some(first) = sink.arrived.pop() else { break };
                note(&mut found, stored, first.mark());
            }
        }
        for transaction in &sink.arrived.waiting {
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

fn place(position: &Position) -> Option<Place> {
    position.place.parse().ok()
}
