//! Fills a filter with the items of all rows. It is built under another key and renamed, so that readers never query a partial filter.
//!
//! A filter is filled again when
//!
//! - the follower starts and the filter is missing, or its position is missing, is no longer in the log, or belongs to another database,
//!   table or definition: `check_position` in `start.rs`;
//! - the heartbeat finds that the filter is missing: `extend_heartbeat` in `heartbeat.rs`;
//! - DDL has changed the table's definition: `refill_altered` in `heartbeat.rs`;
//! - the server refuses a change of the filter: `apply_visible` in `eventual.rs`, `with_or_without_filter` in `synchronous.rs`;
//! - its table of deleted items is full, in synchronous mode: `release_from` in `synchronous.rs`.
//!
//! Eventual mode fills it at once, with this file; synchronous mode while transactions commit, with `fill_due` in `synchronous.rs`. A
//! source without rows (JSON) cannot fill: `exclude` in `mod.rs` stops following the table until `bloomgate load` has filled the filter.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use redis::{Pipeline, cmd};

use super::position::{Place, Position};
use super::source::{Copier, Source};
use super::start::{report_deletes, report_inexact};
use super::store::{Store, reserve};
use super::{Followed, Follower};
use crate::metrics::State;
use crate::names::counted;
use crate::table::Table;

/// Items in one BF.INSERT.
const ITEMS: usize = 1000;
/// Items in one pipeline.
pub const BATCH: usize = 32 * ITEMS;

impl<S: Source> Follower<S> {
    /// Fills the filter of a table. Every transaction up to `place` must be visible; the stream's transactions are skipped up to there.
    pub(super) fn refill(&mut self, index: usize, place: Place) -> Result<()> {
        self.metrics.enter(State::Filling);
        let begin = Instant::now();
        let rows = loop {
            match self.fill(index, place) {
                Err(error) if S::is_locked(&error) => {
                    self.liveness.ensure_running()?;
                    self.show_liveness()?;
                }
                result => break result?,
            }
        };
        self.table(index)?.position = place;
        self.note_fill(index, rows, begin)
    }

    /// Reports a fill.
    pub(super) fn note_fill(&mut self, index: usize, rows: u64, begin: Instant) -> Result<()> {
        let table = self.table(index)?;
        let (filter, seconds) = (&table.config.filter, begin.elapsed().as_secs_f64());
        eprintln!("bloomgate: {filter} has {} ({seconds:.1} s)", counted(rows, "row"));
        report_deletes(table);
        report_inexact(table);
        self.metrics.count_fill();
        self.metrics.enter(State::Following);
        Ok(())
    }

    /// Fills the filter of a table from the visible rows, and stores the position. Transactions that are not visible follow in the stream.
    /// Deletes the heartbeat and all cached values, which may be older than the stream's next changes. Returns the number of rows.
    fn fill(&mut self, index: usize, place: Place) -> Result<u64> {
        let Self { source, store, liveness, tables, .. } = self;
        let followed: &mut Followed = tables.get_mut(index).context("a table")?;
        let position = followed.stored_at(source, place, followed.mark);
        begin_fill(store, &followed.table, followed.epoch)?;
        followed.deletes = followed.has_unique_items && store.can_delete(&followed.keys.filling)?;
        let (table, epoch) = (&followed.table, followed.epoch);
        let rows = source.copier()?.copy(table, &mut |items| {
            add(store, &table.keys.filling, items)?;
            liveness.ensure_running()?;
            liveness.show(store, source)
        })?;
        end_fill(store, table, epoch, &position, |store| {
            liveness.ensure_running()?;
            liveness.show(store, source)
        })?;
        Ok(rows)
    }
}

/// Creates the filter that is filled, and deletes the heartbeat and the position.
fn begin_fill(store: &mut Store, table: &Table, epoch: u64) -> Result<()> {
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

/// Publishes the filled filter, deletes all cached values, and stores the position. Calls `meanwhile` regularly.
fn end_fill(
    store: &mut Store,
    table: &Table,
    epoch: u64,
    position: &Position,
    meanwhile: impl FnMut(&mut Store) -> Result<()>,
) -> Result<()> {
    let keys = &table.keys;
    // This ends the leases that were granted without this filter. Otherwise a reader that has read an old row could cache it after the
    // scan.
    store.transact(keys, epoch, &[cmd("RENAME").arg(&keys.filling).arg(&keys.filter).to_owned()])?;
    store.delete_values(table, meanwhile)?;
    store.transact(keys, epoch, &[position.store(keys)]).map(drop)
}

/// Adds items to an existing filter.
pub(super) fn add(store: &mut Store, key: &str, items: &[Vec<u8>]) -> Result<()> {
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
