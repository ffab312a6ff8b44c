//! `--status`: the state of a follower, as PostgreSQL and the server show it. The follower itself may have ended.

use anyhow::{Result, ensure};

use super::config::Config;
use super::follower::connect;
use super::store::Store;
use crate::report::counted;

/// Prints the status.
///
/// # Errors
/// A filter has no heartbeat; PostgreSQL or the server cannot be reached.
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
