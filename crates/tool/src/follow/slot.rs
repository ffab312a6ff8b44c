//! The replication slot: creates it, and takes it once no other follower has it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, ensure};
use postgres::Client;

use super::config::Config;
use super::lsn::Lsn;
use super::metrics::{Metrics, State};
use super::standbys;
use super::store::{Stopped, Store};
use super::table::Table;
use super::wire::{Refused, Wire};

/// SQLSTATE of a slot that another process uses.
const OBJECT_IN_USE: &str = "55006";
/// How often a standby tries to take the slot.
const STANDBY_INTERVAL: Duration = Duration::from_millis(500);
/// How long PostgreSQL has for an empty query while it waits with the slot.
const VALIDITY: Duration = Duration::from_secs(10);
/// A standby terminates the other follower's connection after it has shown no sign of life for this long.
const TAKEOVER: Duration = Duration::from_secs(10);

/// The follower stood by when something failed. Its configuration is right, so it tries again.
#[derive(Debug)]
pub struct StoodBy;

impl std::fmt::Display for StoodBy {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str("while standing by")
    }
}

/// Creates the slot if it is missing, or if PostgreSQL has removed the log that it needs. Waits for running transactions, however long
/// they take.
///
/// # Errors
/// The slot belongs to another plugin or database; COMMIT waits for a slot that is missing; PostgreSQL rejects a command; [`Stopped`].
pub fn ensure_slot(
    database: &mut Client,
    wire: &mut Wire,
    store: &mut Store,
    tables: &[Table],
    name: &str,
    stopping: &AtomicBool,
) -> Result<()> {
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
        if row.try_get::<_, Option<String>>(2)?.as_deref() != Some("lost") {
            return Ok(());
        }
        eprintln!("bloomgate: PostgreSQL has removed the log that the slot {name} needs: making the slot again");
        database.execute("SELECT pg_drop_replication_slot($1)", &[&name])?;
    }
    let names: String = database.query_one("SHOW synchronous_standby_names", &[])?.try_get(0)?;
    ensure!(
        !standbys::lists(&names, name),
        "cannot create the slot {name} while COMMIT waits for it: remove the name from synchronous_standby_names, start the follower, and \
         enter the name again once the filter is filled"
    );
    // The log from a stored position to the new slot would be missing.
    tables.iter().try_for_each(|table| store.forget_position(&table.keys))?;
    eprintln!("bloomgate: creating the replication slot {name}; this waits for running transactions");
    wire.query(&format!("CREATE_REPLICATION_SLOT {name} LOGICAL pgoutput NOEXPORT_SNAPSHOT"), || {
        if stopping.load(Relaxed) {
            return Err(Stopped.into());
        }
        database.is_valid(VALIDITY).context("lost the PostgreSQL server")
    })?;
    Ok(())
}

/// Starts the stream. While another follower has the slot, waits for that one to end or to fail. Returns false after a signal.
///
/// # Errors
/// PostgreSQL rejects the stream for another reason; a lost connection. With the context [`StoodBy`] where another follower had the slot.
pub fn take_slot(
    config: &Config,
    database: &mut Client,
    wire: &mut Wire,
    store: &mut Store,
    tables: &[Table],
    stopping: &AtomicBool,
    metrics: &Metrics,
) -> Result<bool> {
    match wire.start_stream(&config.slot, Lsn(0), config.publication()) {
        Ok(()) => return Ok(true),
        Err(error) if is_in_use(&error) => {}
        Err(error) => return Err(error),
    }
    metrics.enter(State::Standby);
    eprintln!("bloomgate: another follower has the slot {}: standing by", config.slot);
    stand_by(config, database, wire, store, tables, stopping).context(StoodBy)
}

fn stand_by(
    config: &Config,
    database: &mut Client,
    wire: &mut Wire,
    store: &mut Store,
    tables: &[Table],
    stopping: &AtomicBool,
) -> Result<bool> {
    let mut last_sign = Instant::now();
    while !stopping.load(Relaxed) {
        thread::sleep(STANDBY_INTERVAL);
        match wire.start_stream(&config.slot, Lsn(0), config.publication()) {
            Ok(()) => return Ok(true),
            Err(error) if is_in_use(&error) => {}
            Err(error) => return Err(error),
        }
        if let Some(table) = tables.first()
            && store.is_alive(&table.keys)?
        {
            last_sign = Instant::now();
        }
        if last_sign.elapsed() >= TAKEOVER {
            eprintln!(
                "bloomgate: the other follower has shown no sign of life for {} s: taking over",
                TAKEOVER.as_secs()
            );
            let text = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1";
            database.execute(text, &[&config.slot])?;
            last_sign = Instant::now();
        }
    }
    Ok(false)
}

fn is_in_use(error: &Error) -> bool {
    error.downcast_ref::<Refused>().is_some_and(|refused| refused.code == OBJECT_IN_USE)
}
