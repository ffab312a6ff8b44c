//! The interface between the engine and a source: the log of a database, or the output of a tool that reads one. A source returns events
//! and never sees the engine.

use std::collections::HashSet;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Error, Result, bail};

use super::events::Sink;
use super::position::{Place, Position};
use crate::config::{self, Config, Mode};
use crate::table::Table;

/// A log that is followed.
pub trait Source: Sized {
    /// State that a process keeps from one attempt to the next.
    type Memory: Default;
    /// The session that copies rows.
    type Copier: Copier;
    /// Whether the rows of tables can be read. Otherwise `bloomgate load` fills the filters.
    const HAS_ROWS: bool = true;

    /// Connects, and checks the settings of the database.
    ///
    /// # Errors
    /// Errors of this function and the next two contain the SQL statement that solves the problem.
    fn connect(config: &Config, memory: &Self::Memory) -> Result<Self>;

    /// Reads the definitions of tables, and checks that the log contains their changes.
    fn describe(&mut self, tables: &[config::Table]) -> Result<Vec<Table>>;

    /// Makes the log available for these tables. Calls `begins_anew` before it creates a new log, which invalidates stored positions.
    fn prepare(
        &mut self,
        _tables: &[Table],
        _memory: &mut Self::Memory,
        _begins_anew: &mut dyn FnMut() -> Result<()>,
        _stopping: &AtomicBool,
    ) -> Result<()> {
        Ok(())
    }

    /// Acquires the stream. Returns false while another follower holds it.
    fn acquire_stream(&mut self) -> Result<bool> {
        Ok(true)
    }

    /// Ends the session of the follower that holds the stream.
    fn end_other(&mut self) -> Result<()> {
        Ok(())
    }

    /// Whether another attempt may succeed after a failure that preceded the first success: the configuration was right.
    fn may_recover(_memory: &mut Self::Memory, error: &Error) -> bool {
        Self::is_locked(error)
    }

    /// Whether another attempt would fail in the same way.
    fn is_final(_error: &Error) -> bool {
        false
    }

    /// Cleans up after an attempt that failed before the first success.
    fn abandon(_config: &Config, _memory: &Self::Memory) {}

    /// Prints how much of the log the follower has not read yet. Returns whether a follower is connected.
    fn print_status(config: &Config) -> Result<bool>;

    /// Returns the identity of the database, the beginning of a stored position.
    fn system(&self) -> &str;

    /// Returns a place in the log as text without spaces, valid for later connections.
    fn text_of(&self, place: Place) -> String {
        place.to_string()
    }

    /// Returns the last confirmed place.
    fn confirmed(&self) -> Place;

    /// Returns the length of the log between two places, in bytes; 0 unless `end` is the later one.
    fn bytes_between(begin: Place, end: Place) -> u64 {
        end.0.saturating_sub(begin.0)
    }

    /// Confirms a place if it is later than the last one. The database may then delete the log before it.
    fn confirm(&mut self, place: Place) -> Result<()>;

    /// Sends a keepalive message. A database ends the session of a silent client.
    fn keep_alive(&mut self) -> Result<()> {
        Ok(())
    }

    /// Finds the stored positions in the log, and continues the stream after the earliest of them. Returns for each table the place after
    /// which changes must be applied, or the reason why its filter must be filled. Calls `meanwhile` several times a second, which returns
    /// whether a keepalive message is due.
    fn locate(
        &mut self,
        stored: &[Option<Position>],
        sink: &mut Sink,
        meanwhile: &mut dyn FnMut() -> Result<bool>,
    ) -> Result<Vec<Result<Place, &'static str>>>;

    /// Reads the next event of the stream. Returns false after the timeout.
    fn next(&mut self, sink: &mut Sink, timeout: Duration) -> Result<bool>;

    /// Whether another event has already arrived.
    fn has_event(&self) -> bool;

    /// Whether no event will follow.
    fn has_ended(&self) -> bool {
        false
    }

    /// Returns why the events that have arrived may be repeated or incomplete. There is no heartbeat while there is a reason.
    fn doubt(&self) -> Option<String> {
        None
    }

    /// Counts the leading transactions of `waiting` (end and id) that every new reader of the database sees.
    fn count_visible(&mut self, waiting: &mut dyn Iterator<Item = (Place, u64)>) -> Result<usize>;

    /// Returns the ids of all running transactions.
    fn unfinished(&mut self) -> Result<HashSet<String>> {
        Ok(HashSet::new())
    }

    /// Returns a place in the log. A copy contains all transactions before this place if it begins after all currently running
    /// transactions have ended. `None` if the log has no such place.
    fn snapshot(&mut self) -> Result<Option<Place>> {
        Ok(None)
    }

    /// Opens a session that copies rows.
    fn copier(&self) -> Result<Self::Copier>;

    /// Whether a table was locked for longer than the follower waits.
    fn is_locked(_error: &Error) -> bool {
        false
    }

    /// Reads the definitions of tables; `None` for a table that does not exist.
    fn definitions(&mut self, tables: &mut dyn Iterator<Item = &Table>) -> Result<Vec<Option<String>>>;

    /// Returns the end of the log, and whether there may be a heartbeat. The stream later returns an event at or after this end.
    fn read_log_end(&mut self, mode: Mode) -> Result<LogEnd>;

    /// Whether the session has ended.
    fn is_closed(&self) -> bool {
        false
    }

    /// Returns which sessions' COMMIT does not wait in synchronous mode.
    fn exceptions(&mut self) -> Result<Option<String>> {
        Ok(None)
    }
}

/// The end of a log.
pub struct LogEnd {
    pub end: Place,
    /// A time at which the log ended at this place.
    pub time: Time,
    /// The reason to withhold the heartbeat, if any.
    pub objection: Option<String>,
}

/// A time at which a log ended at a place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// The time of the query for the end.
    Asked,
    /// In milliseconds since 1970.
    At(u64),
    Unknown,
}

/// A session that copies the rows of tables.
pub trait Copier {
    /// Copies the items of all visible rows to `pass` in batches; passes an empty batch while the database sends nothing. Returns the
    /// number of rows once they are durable in the database.
    fn copy(&mut self, table: &Table, pass: &mut dyn FnMut(&[Vec<u8>]) -> Result<()>) -> Result<u64>;
}

/// The copier of a source without rows.
pub struct NoRows;

impl Copier for NoRows {
    fn copy(&mut self, _: &Table, _: &mut dyn FnMut(&[Vec<u8>]) -> Result<()>) -> Result<u64> {
        bail!("the source has no rows")
    }
}
