//! What the engine needs of a database's log, or of a tool that reads one. A source returns events and never sees the engine.

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
    /// What a process keeps for its next attempt.
    type Memory: Default;
    /// What copies rows.
    type Copier: Copier;
    /// Whether it has the rows of tables. Otherwise `bloomgate load` fills the filters.
    const HAS_ROWS: bool = true;

    /// Connects, and checks the settings of the database.
    /// An error of this and of the next two contains the statement that helps.
    fn connect(config: &Config, memory: &Self::Memory) -> Result<Self>;

    /// Reads the definitions of tables, and checks that the log has their changes.
    fn describe(&mut self, tables: &[config::Table]) -> Result<Vec<Table>>;

    /// Makes the log available for these tables, and calls `begins_anew` before it begins one: no stored position counts then.
    fn prepare(
        &mut self,
        _tables: &[Table],
        _memory: &mut Self::Memory,
        _begins_anew: &mut dyn FnMut() -> Result<()>,
        _stopping: &AtomicBool,
    ) -> Result<()> {
        Ok(())
    }

    /// Takes the stream. Returns false while another follower has it.
    fn take(&mut self) -> Result<bool> {
        Ok(true)
    }

    /// Ends the session of the follower that has the stream.
    fn end_other(&mut self) -> Result<()> {
        Ok(())
    }

    /// Whether a failure before the first success shows that the configuration was right: another attempt may succeed.
    fn may_recover(_memory: &mut Self::Memory, error: &Error) -> bool {
        Self::is_locked(error)
    }

    /// Whether another attempt would fail in the same way.
    fn is_final(_error: &Error) -> bool {
        false
    }

    /// Removes what an attempt has left that failed before the first success.
    fn abandon(_config: &Config, _memory: &Self::Memory) {}

    /// Prints how far the database has gone on without the follower. Returns whether a follower is connected.
    fn print_status(config: &Config) -> Result<bool>;

    /// Returns the identity of the database, the beginning of a stored position.
    fn system(&self) -> &str;

    /// Returns the text for a place in the log that a later connection understands, without spaces.
    fn text_of(&self, place: Place) -> String {
        place.to_string()
    }

    /// Returns what is confirmed.
    fn confirmed(&self) -> Place;

    /// Returns how much of the log is between two places, in bytes; 0 if `end` is not the later one.
    fn bytes_between(begin: Place, end: Place) -> u64 {
        end.0.saturating_sub(begin.0)
    }

    /// Confirms a place, if it is later than the last one: the database may forget what is before it.
    fn confirm(&mut self, place: Place) -> Result<()>;

    /// Gives a sign of life. A database ends the session of a silent client.
    fn sign(&mut self) -> Result<()> {
        Ok(())
    }

    /// Finds the stored positions in the log, and continues the stream after the earliest of them. Returns for each table the place after which
    /// its changes count, or why its filter must be filled. Calls `meanwhile` several times a second, which returns whether a sign of life is due.
    fn locate(
        &mut self,
        stored: &[Option<Position>],
        sink: &mut Sink,
        meanwhile: &mut dyn FnMut() -> Result<bool>,
    ) -> Result<Vec<Result<Place, &'static str>>>;

    /// Takes the next event of the stream. Returns false after the timeout.
    fn next(&mut self, sink: &mut Sink, timeout: Duration) -> Result<bool>;

    /// Whether another event has already arrived.
    fn has_event(&self) -> bool;

    /// Whether no event will follow.
    fn has_ended(&self) -> bool {
        false
    }

    /// Returns why what has arrived may be a repetition, or not all: there is no heartbeat from before it is applied on.
    fn doubt(&self) -> Option<String> {
        None
    }

    /// Counts the transactions that every new reader of the database sees, from the first one on. `waiting`: their ends and ids.
    fn count_visible(&mut self, waiting: &mut dyn Iterator<Item = (Place, u64)>) -> Result<usize>;

    /// Returns the ids of the transactions that are running.
    fn unfinished(&mut self) -> Result<HashSet<String>> {
        Ok(HashSet::new())
    }

    /// Returns a place whose transactions a copy shows that begins once those running now have ended; `None` if the log does not tell.
    fn snapshot(&mut self) -> Result<Option<Place>> {
        Ok(None)
    }

    /// Opens a session that copies rows.
    fn copier(&self) -> Result<Self::Copier>;

    /// Whether a table was locked for longer than the follower waits.
    fn is_locked(_error: &Error) -> bool {
        false
    }

    /// Reads the definitions of tables; `None` if there is no table of the name.
    fn definitions(&mut self, tables: &mut dyn Iterator<Item = &Table>) -> Result<Vec<Option<String>>>;

    /// Returns the end of the log, and whether there may be a heartbeat. The stream then tells when it has come there.
    fn look(&mut self, mode: Mode) -> Result<Look>;

    /// Whether the session has ended.
    fn is_closed(&self) -> bool {
        false
    }

    /// Returns for whom COMMIT does not wait in synchronous mode.
    fn exceptions(&mut self) -> Result<Option<String>> {
        Ok(None)
    }
}

/// The end of a log.
pub struct Look {
    pub end: Place,
    /// When the log had no more than that.
    pub time: Time,
    /// Why there may be no heartbeat.
    pub objection: Option<String>,
}

/// A time at which a log was not longer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// When it was asked for its end.
    Asked,
    /// In milliseconds since 1970.
    At(u64),
    Unknown,
}

/// A session that copies the rows of tables.
pub trait Copier {
    /// Copies the items of all rows that are visible, and passes them on in batches, and none while the database is silent. Returns the
    /// number of rows once the database keeps them.
    fn copy(&mut self, table: &Table, pass: &mut dyn FnMut(&[Vec<u8>]) -> Result<()>) -> Result<u64>;
}

/// Of a source without rows.
pub struct NoRows;

impl Copier for NoRows {
    fn copy(&mut self, _: &Table, _: &mut dyn FnMut(&[Vec<u8>]) -> Result<()>) -> Result<u64> {
        bail!("the source has no rows")
    }
}
