//! `bloomgate follow`: keeps filters and cached values up to date from PostgreSQL's log, so that no writer of the database needs to
//! know about the guard. `follower` has the loop, `modes` the eventual and the synchronous mode, `wire` and `pgoutput` the stream, `store`
//! the writes.
//!
//! The public modules are what it shares with the other subcommands of the tool: connections to a server, a cluster and PostgreSQL, and a
//! small HTTP server with metrics.

mod config;
mod fill;
mod follower;
mod heartbeat;
mod journal;
mod metrics;
mod modes;
mod pgoutput;
mod session;
mod slot;
mod store;
mod table;
mod template;
mod wire;

pub mod database;
pub mod http;
pub mod names;
pub mod prometheus;
pub mod server;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::config::{Config, Mode};
use crate::follower::{Follower, connect};
use crate::metrics::{Metrics, State};
use crate::names::counted;
use crate::slot::{Known, StoodBy, Unreadable, abandon};
use crate::store::{Stopped, Store};

/// The pause before another attempt after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

const EXAMPLE: &str = "\
Example: users.toml
  database = \"postgres://gate@db/shop\"    # PGPASSWORD has the password
  server   = \"redis://cache:6379\"
  slot     = \"bloomgate\"
  mode     = \"eventual\"                  # or \"synchronous\": COMMIT waits for the follower
  [[table]]
  name      = \"public.users\"
  filter    = \"{users}\"
  create    = \"0.001 10000000 HASH siphash\"   # the words of BF.RESERVE after the key
  item      = \"{id}\"                          # columns of the replica identity
  cache-key = \"{users}:{id}\"
  max-lag   = \"1s\"

  bloomgate follow users.toml
  bloomgate follow --status users.toml

Readers ask BF.FETCH {users} ID {users}:ID WHILE {users}:feed, and in synchronous mode
UNLESS {users}:feed:open. The role needs REPLICATION, and SELECT on
the tables; the database needs wal_level = logical and
  CREATE PUBLICATION bloomgate FOR TABLE public.users";

/// Keep filters and cached values up to date from PostgreSQL's log
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub struct Arguments {
    /// Print how far the follower is behind, and exit. Exits with status 1 without a heartbeat
    #[arg(long)]
    status: bool,
    /// The configuration file
    config: PathBuf,
}

/// Runs the subcommand until SIGTERM or SIGINT.
pub fn run(arguments: &Arguments) -> Result<()> {
    let config = Config::read(&arguments.config)?;
    if arguments.status {
        return print(&config);
    }
    let stopping = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stopping))?;
    }
    let metrics = config.metrics.map(|address| Metrics::serve(address, &config.slot)).transpose()?.unwrap_or_default();
    let (mut has_run, mut known) = (false, Known::default());
    loop {
        metrics.enter(State::Connecting);
        let result = Follower::start(&config, &mut known, &stopping, &metrics).and_then(|mut follower| {
            has_run = true;
            follower.run()
        });
        known.is_unreadable |= result.as_ref().is_err_and(|error| error.is::<Unreadable>());
        has_run |= known.is_unreadable || result.as_ref().is_err_and(|error| error.is::<StoodBy>());
        match result {
            // Before the first success, it is the configuration that is wrong.
            Err(error) if !error.is::<Stopped>() && !has_run => {
                if known.is_new
                    && let Err(reason) =
                        connect(&config.settings()?).and_then(|mut database| abandon(&mut database, &config.slot))
                {
                    eprintln!("bloomgate: the replication slot {} stays, and keeps the log: {reason:#}", config.slot);
                }
                return Err(error);
            }
            Err(error) if !error.is::<Stopped>() => {
                metrics.count_failure();
                eprintln!("bloomgate: {error:#}; trying again");
            }
            _ => {
                let note = match config.mode {
                    Mode::Eventual => "",
                    Mode::Synchronous => {
                        "; COMMIT waits until a follower runs or synchronous_standby_names no longer lists this one"
                    }
                };
                eprintln!("bloomgate: stopped{note}");
                return Ok(());
            }
        }
        if stopping.load(Relaxed) {
            return Ok(());
        }
        thread::sleep(RETRY_INTERVAL);
    }
}

// `--status`: the state of a follower, as PostgreSQL and the server show it. The follower itself may have ended.

/// Prints the status.
pub fn print(config: &Config) -> Result<()> {
    let mut database = connect(&config.settings()?)?;
    let row = database.query_opt(
        "SELECT active_pid, wal_status, pg_wal_lsn_diff(pg_current_wal_insert_lsn(), confirmed_flush_lsn)::bigint
         FROM pg_replication_slots WHERE slot_name = $1",
        &[&config.slot],
    )?;
    if let Some(row) = row {
        let (pid, log): (Option<i32>, Option<String>) = (row.try_get(0)?, row.try_get(1)?);
        let connected =
            pid.map_or("no follower is connected".to_owned(), |pid| format!("a follower is connected (pid {pid})"));
        let behind = match row.try_get::<_, Option<i64>>(2)? {
            _ if log.as_deref() == Some("lost") => "PostgreSQL has removed the log that it needs".to_owned(),
            Some(bytes) => {
                format!("{} of the log are not confirmed", counted(u64::try_from(bytes).unwrap_or(0), "byte"))
            }
            None => "nothing is confirmed yet".to_owned(),
        };
        println!("slot {}: {connected}, {behind}", config.slot);
    } else {
        println!("slot {}: it does not exist", config.slot);
    }
    let mut store = Store::connect(config)?;
    let mut expired = Vec::new();
    for table in &config.tables {
        let keys = table.keys();
        let age = match store.age(&keys, table.max_lag)? {
            Some(age) => format!("at most {:.1} s behind", age.as_secs_f64()),
            None => {
                expired.push(table.filter.as_str());
                "no heartbeat".to_owned()
            }
        };
        let (position, exists) = store.state(&keys)?;
        let filter = if exists { "" } else { ", which is missing" };
        let position = position.map_or("no position".to_owned(), |position| format!("at {}", position.lsn));
        let open = counted(store.open_keys(&keys)?, "open key");
        println!("{} in the filter {}{filter}: {age}, {position}, {open}", table.name, table.filter);
    }
    ensure!(expired.is_empty(), "no heartbeat of {}: BF.FETCH with WHILE does not answer `absent`", expired.join(", "));
    Ok(())
}
