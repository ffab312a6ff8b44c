//! `bloomgate follow`: keeps filters and cached values up to date from a database's log, so that the database's writers need no guard.
//! `engine` applies the changes of a source: `postgres`, `mysql` for MariaDB and MySQL, or `json` for the changes that other tools write.

mod config;
mod engine;
mod failures;
mod json;
mod metrics;
mod mysql;
mod postgres;
mod sql;
mod table;
mod template;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bloomgate_connect::{database, names, prometheus, server};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::config::{Config, Log, Mode, SETTINGS};
use crate::engine::store::{ALIVE, IncompleteLog, Stopped, Store};
use crate::engine::{Follower, Source, StoodBy};
use crate::failures::FailureLog;
use crate::json::Json;
use crate::metrics::{Metrics, State};
use crate::mysql::Binlog;
use crate::names::counted;
use crate::postgres::Postgres;
use crate::server::Options;

/// The pause before another attempt after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The width of the list of settings: a manual page on a terminal with 80 columns has room for 71.
const WIDTH: usize = 70;

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
  CREATE PUBLICATION bloomgate FOR TABLE public.users
With database = \"mysql://gate@db/shop\" and MYSQL_PWD, the log of MariaDB or MySQL is followed.
The account needs REPLICATION SLAVE, BINLOG MONITOR, REPLICA MONITOR (in MySQL REPLICATION CLIENT), and SELECT on
the tables; MariaDB needs log_bin and binlog_format = ROW, MySQL gtid_mode = ON.";

/// Keep filters and cached values up to date from the log of PostgreSQL, MariaDB or MySQL, or from JSON changes
#[derive(clap::Args)]
#[command(after_help = help())]
pub struct Arguments {
    /// Print how far the follower is behind, and exit. Exits with status 1 without a heartbeat or a connected follower
    #[arg(long)]
    status: bool,
    /// The configuration file
    config: PathBuf,
}

/// Returns the text after the options: the example, and the table of the configuration as a list.
fn help() -> String {
    let mut text = format!("{EXAMPLE}\n\nThe configuration. Keys without a section precede the first section.");
    for row in SETTINGS.lines().skip(2) {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect();
        let [key, kind, default, required, meaning] = cells.as_slice() else { continue };
        let need = match required.as_str() {
            "no" => format!("default: {default}"),
            "yes" => "required".to_owned(),
            condition => format!("required {condition}"),
        };
        text += &format!("\n  {key} ({kind}; {need})");
        let mut width = WIDTH;
        for word in meaning.split(' ') {
            let separator = if width + 1 + word.len() > WIDTH { "\n      " } else { " " };
            width = if separator == " " { width + 1 } else { separator.len() - 1 } + word.len();
            text += separator;
            text += word;
        }
    }
    text
}

/// Runs the subcommand until SIGTERM or SIGINT.
pub fn run(arguments: &Arguments) -> Result<()> {
    let config = Config::read(&arguments.config)?;
    if arguments.status {
        let is_connected = match config.log() {
            Log::Postgres => Postgres::print_status(&config)?,
            Log::Binlog => Binlog::print_status(&config)?,
            Log::Json(_) => Json::print_status(&config)?,
        };
        print_status(&config)?;
        ensure!(is_connected, "no follower is connected");
        return Ok(());
    }
    announce(arguments, &config)?;
    let stopping = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stopping))?;
    }
    let metrics = config.metrics.map(|address| Metrics::serve(address, &config.slot)).transpose()?.unwrap_or_default();
    match config.log() {
        Log::Postgres => follow::<Postgres>(&config, &stopping, &metrics),
        Log::Binlog => follow::<Binlog>(&config, &stopping, &metrics),
        Log::Json(_) => follow::<Json>(&config, &stopping, &metrics),
    }
}

/// Shows the configuration and the server in the log and in the terminal's title, because several followers may run at once.
fn announce(arguments: &Arguments, config: &Config) -> Result<()> {
    let (file, server) = (arguments.config.display(), Options::of_url(&config.server).name()?);
    eprintln!("bloomgate: following with {file}, for the server at {server}");
    if io::stderr().is_terminal() {
        eprint!("\u{1b}]0;{server}: bloomgate follow\u{7}");
    }
    Ok(())
}

fn follow<S: Source>(config: &Config, stopping: &Arc<AtomicBool>, metrics: &Arc<Metrics>) -> Result<()> {
    let (mut has_run, mut memory) = (false, S::Memory::default());
    // Whether this process may have stored the positions.
    let (mut is_owner, mut failures) = (false, FailureLog::default());
    loop {
        metrics.enter(State::Connecting);
        let result = Follower::<S>::start(config, has_run, &mut memory, stopping, metrics).and_then(|mut follower| {
            (has_run, is_owner) = (true, true);
            failures.clear();
            follower.run()
        });
        match result {
            Err(error) if !error.is::<Stopped>() => {
                if S::is_final(&error) {
                    return Err(error);
                }
                has_run |= S::may_recover(&mut memory, &error) || error.is::<StoodBy>();
                if error.is::<IncompleteLog>() {
                    while let Err(fault) = forget_positions(config, is_owner) {
                        if !has_run || stopping.load(Relaxed) {
                            return Err(fault.context(error.to_string()));
                        }
                        failures.print(format!("{error:#}; {fault:#}"));
                        thread::sleep(RETRY_INTERVAL);
                    }
                    is_owner = false;
                }
                // A failure before the first success means that the configuration is wrong.
                if !has_run {
                    S::abandon(config, &memory);
                    return Err(error);
                }
                metrics.count_failure();
                failures.print(format!("{error:#}"));
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

/// Deletes the stored positions, so that no follower resumes there after changes that the log lacks. The positions of another active follower
/// are kept, because the log that it reads may have all changes.
fn forget_positions(config: &Config, is_owner: bool) -> Result<()> {
    let mut store = Store::connect(config)?;
    let first = config.tables.first().context("a table")?.keys();
    if !is_owner && store.is_alive(&first)? {
        // This may be the last report of a follower that has ended.
        thread::sleep(ALIVE);
        if store.is_alive(&first)? {
            return Ok(());
        }
    }
    for keys in config.tables.iter().map(config::Table::keys) {
        store.forget_position(&keys)?;
        ensure!(store.is_durable(&keys)?, "waiting for the server's replicas or its append-only file");
    }
    Ok(())
}

// `--status`: the state of a follower, according to the database and the server. The follower itself may have ended.

fn print_status(config: &Config) -> Result<()> {
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
        let position = position.map_or("no position".to_owned(), |position| format!("at {}", position.shown()));
        let open = counted(store.open_keys(&keys)?, "open key");
        println!("{} in the filter {}{filter}: {age}, {position}, {open}", table.name, table.filter);
    }
    ensure!(expired.is_empty(), "no heartbeat of {}: BF.FETCH with WHILE does not answer `absent`", expired.join(", "));
    Ok(())
}
