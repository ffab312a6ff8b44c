//! Fills a filter with the items of all rows. It is built under another key and renamed, so that no reader asks a partial filter.

use anyhow::{Context, Result, bail};
use redis::{Pipeline, cmd};

use crate::store::{Position, Store, reserve};
use crate::table::Table;

/// Items in one BF.INSERT.
const ITEMS: usize = 1000;
/// Items in one pipeline.
pub const BATCH: usize = 32 * ITEMS;

/// Creates the filter that is filled, and deletes the heartbeat and the position.
pub fn begin_fill(store: &mut Store, table: &Table, epoch: u64) -> Result<()> {
    let keys = &table.keys;
    let begin = [
        cmd("DEL").arg(&keys.feed).arg(&keys.position).arg(&keys.filling).to_owned(),
        reserve(&table.config, &keys.filling),
    ];
    store
        .transact(keys, epoch, &begin)
        .with_context(|| format!("cannot create the filter of {}", table.config.name))
        .map(drop)
}

/// Gives readers the filter that is full, deletes all cached values, and stores the position. Calls `meanwhile` now and then.
pub fn end_fill(
    store: &mut Store,
    table: &Table,
    epoch: u64,
    position: &Position,
    meanwhile: impl FnMut(&mut Store) -> Result<()>,
) -> Result<()> {
    let keys = &table.keys;
    // The leases that were granted without this filter end here. Otherwise a reader that has read an old row could fill it in after
    // the scan.
    store.transact(keys, epoch, &[cmd("RENAME").arg(&keys.filling).arg(&keys.filter).to_owned()])?;
    store.delete_values(table, meanwhile)?;
    store.transact(keys, epoch, &[position.store(keys)]).map(drop)
}

/// Adds items to a filter that exists.
pub fn add(store: &mut Store, key: &str, items: &[Vec<u8>]) -> Result<()> {
    if items.is_empty() {
        return Ok(());
    }
    let mut commands = Pipeline::new();
    for chunk in items.chunks(ITEMS) {
        commands.cmd("BF.INSERT").arg(key).arg("NOCREATE").arg("ITEMS").arg(chunk);
    }
    for reply in store.send(&commands, key)? {
        let redis::Value::Array(replies) = reply else { bail!("the server's reply to BF.INSERT is not an array") };
        if let Some(redis::Value::ServerError(error)) =
            replies.iter().find(|reply| matches!(reply, redis::Value::ServerError(_)))
        {
            bail!("the filter refuses an item: {}", error.details().unwrap_or_default());
        }
    }
    Ok(())
}
