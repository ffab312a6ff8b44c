//! `bloomgate follow`: keeps filters and cached values up to date from PostgreSQL's log, so that no writer of the database needs to
//! know about the guard. `follower` has the loop, `eventual` and `synchronous` its two modes, `wire` and `pgoutput` the stream, `store` the
//! writes.

mod altered;
mod config;
mod eventual;
mod fill;
mod follower;
mod heartbeat;
mod history;
mod journal;
mod lsn;
mod metrics;
mod pgoutput;
mod publication;
mod pulse;
mod refill;
mod session;
mod slot;
mod standbys;
mod status;
mod store;
mod stream;
mod synchronous;
mod table;
mod template;
mod visibility;
mod wire;
mod work;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use signal_hook::consts::{SIGINT, SIGTERM};

use config::{Config, Mode};
use follower::{Follower, connect};
use metrics::{Metrics, State};
use slot::{Known, StoodBy, Unreadable, abandon};
use store::Stopped;

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
        return status::print(&config);
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
