//! The replication slot: creates it, and drops it after a failed first start.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, ensure};

use super::rows::check_readable;
use super::session::{self, Client};
use super::wire::{Refused, Wire};
use crate::engine::store::Stopped;
use crate::table::Table;

/// SQLSTATE of a slot that another process uses.
const OBJECT_IN_USE: &str = "55006";
/// SQLSTATE of a publication that does not exist.
const UNDEFINED_OBJECT: &str = "42704";
/// How long to wait for a slot that is still in use before dropping it.
const ABANDON: Duration = Duration::from_secs(5);

/// This process's knowledge of its slot.
#[derive(Default)]
pub struct Known {
    /// Whether PostgreSQL could not read its log.
    pub is_unreadable: bool,
    /// Whether this process has created the slot.
    pub is_new: bool,
}

/// PostgreSQL cannot read the slot's log, because the publication did not exist when the log was written.
#[derive(Debug)]
pub struct Unreadable;

impl std::fmt::Display for Unreadable {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str("PostgreSQL cannot read the slot's log, which has a time without the publication")
    }
}

/// Marks the error of the stream that a missing publication causes.
pub fn mark_unreadable(error: Error) -> Error {
    let code = error.downcast_ref::<Refused>().map(|refused| refused.code.as_str());
    if code == Some(UNDEFINED_OBJECT) { error.context(Unreadable) } else { error }
}

/// Creates the slot if it is missing, or if PostgreSQL has removed the log that it needs or cannot read it. Waits for running
/// transactions without a time limit.
pub fn ensure_slot(
    database: &mut Client,
    wire: &mut Wire,
    tables: &[Table],
    name: &str,
    known: &mut Known,
    begins_anew: &mut dyn FnMut() -> Result<()>,
    stopping: &AtomicBool,
) -> Result<()> {
    // In any case, the slot is a new one afterwards.
    let is_unreadable = std::mem::take(&mut known.is_unreadable);
    let row = database.query_opt(
        "SELECT plugin::text, database = current_database(), wal_status FROM pg_replication_slots WHERE slot_name = $1",
        &[&name],
    )?;
    if let Some(row) = row {
        let (plugin, is_here): (Option<String>, Option<bool>) = (row.try_get(0)?, row.try_get(1)?);
        ensure!(
            plugin.as_deref() == Some("pgoutput") && is_here == Some(true),
            "the replication slot {name} belongs to something else: name another `slot`"
        );
        let reason = if row.try_get::<_, Option<String>>(2)?.as_deref() == Some("lost") {
            "PostgreSQL has removed the log that it needs"
        } else if is_unreadable {
            "its log has a time without the publication"
        } else {
            return Ok(());
        };
        eprintln!("bloomgate: recreating the replication slot {name}: {reason}");
        database.execute("SELECT pg_drop_replication_slot($1)", &[&name])?;
    }
    let names: String = database.query_one("SHOW synchronous_standby_names", &[])?.try_get(0)?;
    ensure!(
        !session::lists(&names, name),
        "cannot create the slot {name} while COMMIT waits for it: remove the name from synchronous_standby_names, start the follower, and \
         enter the name again once the filter is filled"
    );
    tables.iter().try_for_each(|table| check_readable(database, table))?;
    // The log from a stored position to the new slot would be missing.
    begins_anew()?;
    eprintln!("bloomgate: creating the replication slot {name}; this waits for running transactions");
    wire.query(&format!("CREATE_REPLICATION_SLOT {name} LOGICAL pgoutput NOEXPORT_SNAPSHOT"), || {
        if stopping.load(Relaxed) {
            return Err(Stopped.into());
        }
        database.batch_execute("").context("lost the PostgreSQL server")
    })?;
    known.is_new = true;
    Ok(())
}

/// Drops the slot that this process has created, which would otherwise retain PostgreSQL's log forever.
pub fn abandon(database: &mut Client, name: &str) -> Result<()> {
    let begin = Instant::now();
    // The connection that used it was closed a moment ago.
    let query =
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1 AND NOT active";
    while database.execute(query, &[&name])? == 0 {
        ensure!(begin.elapsed() < ABANDON, "it is in use");
        thread::sleep(ABANDON / 100);
    }
    eprintln!("bloomgate: dropped the replication slot {name}, because the first start failed");
    Ok(())
}

/// Whether the process that sends the slot's log is reading it, and not waiting for new log or for its client.
pub fn is_busy(database: &mut Client, name: &str) -> Result<bool> {
    let query = "SELECT coalesce(bool_or(coalesce(wait_event_type NOT IN ('Activity', 'Client', 'IPC'), true)), false) \
                 FROM pg_replication_slots JOIN pg_stat_activity ON pid = active_pid WHERE slot_name = $1";
    Ok(database.query_one(query, &[&name])?.try_get(0)?)
}

/// Whether another process uses the slot.
pub fn is_in_use(error: &Error) -> bool {
    error.downcast_ref::<Refused>().is_some_and(|refused| refused.code == OBJECT_IN_USE)
}
