//! The guard's state and its decisions: which client may load a value, which ones wait, and when waiters are served. Nothing
//! here calls the server, so all of it runs under one lock.
//!
//! A cache key with waiters that are not held always has a live lease, or its waiters are scheduled. A held waiter waits until
//! BF.CHANGED names its cache key. A waiter leaves its queue with a value, with `absent`, with a lease of its own, or when its
//! WAIT expires.

use super::alarm::{Alarm, Due};
use super::ids::{CacheKeyId, FilterId, ItemId};
use super::queues::{Left, Queues, WaiterId};
use super::table::{Instant, Known, OutOfMemory, Table};

/// Expired records are swept this often, in milliseconds, and this many of each sort at a time.
const SWEEP_EVERY: Instant = 1000;
const SWEPT_AT_ONCE: usize = 4096;
/// This many expired records of each sort are removed with each new record.
const SWEPT_WITH_EACH: usize = 4;

/// What BF.FETCH may do about a cache key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// There is no record that applies: the caller may take the lease.
    Free,
    /// The item has no row.
    NoRow,
    /// Another caller loads its value, for this many milliseconds more.
    Leased(u64),
    /// Its value could not be loaded, and no lease is granted for this many milliseconds more.
    BackedOff(u64),
}

/// The current epoch of the cluster, and this node's own. One of them changes before a slot that has left comes back.
pub type Epochs = [u64; 2];

/// The client that BF.FETCH looks on behalf of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// A client that has just sent the command.
    Caller,
    /// A waiter: the first in its queue, or one whose WAIT expires.
    Waiter,
}

/// The guard's state. `Q` is the question of a waiter.
pub struct Guard<Q> {
    table: Table,
    queues: Queues<Q>,
    alarm: Alarm,
    /// Whether the alarm has a sweep.
    has_sweep: bool,
    /// The epochs of the cluster, as last seen.
    epochs: Option<Epochs>,
}

impl<Q> Default for Guard<Q> {
    fn default() -> Self {
        Self {
            table: Table::default(),
            queues: Queues::default(),
            alarm: Alarm::default(),
            has_sweep: false,
            epochs: None,
        }
    }
}

impl<Q> Guard<Q> {
    /// Whether there is no record and no waiter.
    pub fn is_idle(&self) -> bool {
        self.table.is_empty() && self.queues.is_empty()
    }

    /// Whether a cache key has a record or a waiter.
    pub fn knows(&self, key: CacheKeyId) -> bool {
        self.table.has(key) || self.queues.has(key)
    }

    /// The numbers of leases, of NONEs and of waiting clients. Visits every record.
    pub fn counts(&self, now: Instant) -> (u64, u64, u64) {
        let (leases, nones) = self.table.counts(now);
        (leases, nones, self.queues.waiting() as u64)
    }

    /// Decides what BF.FETCH may do about a cache key. With `denies`, a NONE applies; without, it is ignored.
    ///
    /// A new caller does not overtake the waiters that are not held. A waiter does not end a lease of another item: otherwise
    /// waiters for two items with one cache key would keep taking the lease from each other. A back-off is for every item.
    pub fn standing(&mut self, key: CacheKeyId, item: ItemId, asker: Asker, denies: bool, now: Instant) -> Standing {
        match self.table.known(key, item, now) {
            Some((Known::NoRow, _)) if denies => return Standing::NoRow,
            Some((Known::Lease(_), end)) => return Standing::Leased(end - now),
            Some((Known::NoRow | Known::BackOff, _)) | None => {}
        }
        if let Some(end) = self.table.back_off_end(key, now) {
            return Standing::BackedOff(end - now);
        }
        match (asker, self.table.lease_end(key, now)) {
            (Asker::Waiter, Some(end)) => Standing::Leased(end - now),
            (Asker::Caller, None) if self.queues.has_ready(key) => {
                self.serve_soon(key);
                Standing::Leased(1)
            }
            _ => Standing::Free,
        }
    }

    /// In how many milliseconds the lease of a cache key expires, whatever its item; 1 if there is none.
    pub fn lease_left(&self, key: CacheKeyId, now: Instant) -> u64 {
        self.table.lease_end(key, now).map_or(1, |end| end - now)
    }

    /// Grants the lease of a cache key from `now` until `end`. Of more than `max` leases, those nearest their end are evicted.
    ///
    /// # Errors
    /// If memory is refused. The cache key has no lease then.
    pub fn grant(
        &mut self,
        key: CacheKeyId,
        item: ItemId,
        token: u64,
        (now, end): (Instant, Instant),
        max: usize,
    ) -> Result<(), OutOfMemory> {
        let noted = self.note(key, item, Known::Lease(token), (now, end), max);
        if self.queues.has(key) {
            // If memory is refused, the waiters wait until WAIT expires.
            _ = self.alarm.push(end, Due::Serve(key));
            self.tidy_alarm(now);
        }
        noted
    }

    /// Whether the live lease of a cache key is for this item and has this token.
    pub fn holds(&self, key: CacheKeyId, item: ItemId, token: u64, now: Instant) -> bool {
        matches!(self.table.known(key, item, now), Some((Known::Lease(held), _)) if held == token)
    }

    /// Records that an item has no row, from `now` until `end`, and schedules its waiters. Of more than `max` NONEs, those
    /// nearest their end are evicted.
    ///
    /// Without a filter nothing is `absent`, so no NONE is recorded: only the lease ends. If memory is refused, the next caller
    /// loads again.
    pub fn note_no_row(&mut self, key: CacheKeyId, item: ItemId, (now, end): (Instant, Instant), max: usize) {
        self.end(key);
        if !item.filter.is_missing() {
            _ = self.note(key, item, Known::NoRow, (now, end), max);
        }
    }

    /// Ends the lease of a cache key, and lets [`standing`](Self::standing) grant none from `now` until `end`. Schedules its
    /// waiters. Of more than `max` back-offs, those nearest their end are evicted. If memory is refused, the next caller loads.
    pub fn back_off(&mut self, key: CacheKeyId, (now, end): (Instant, Instant), max: usize) {
        _ = self.note(key, ItemId::none(key), Known::BackOff, (now, end), max);
        self.serve_soon(key);
    }

    /// Ends the lease or the NONE of a cache key whose value was changed by a client, and schedules its waiters. A back-off goes
    /// on: it is about the database.
    pub fn void(&mut self, key: CacheKeyId) {
        if self.table.is_backed_off(key) {
            self.serve_soon(key);
        } else {
            self.end(key);
        }
    }

    /// Ends the record of a cache key, and schedules its waiters.
    pub fn end(&mut self, key: CacheKeyId) {
        self.table.remove(key);
        self.serve_soon(key);
    }

    /// Ends the records of an item, under every cache key.
    pub fn end_item(&mut self, item: ItemId) {
        while let Some(key) = self.table.key_of(item) {
            self.end(key);
        }
    }

    /// Ends leases after a filter was created, replaced or deleted: those that were granted while there was none, which would be
    /// valid again if this one is deleted, too, and those that its waiters wait for, because BF.FILL will refuse their tokens.
    /// Schedules the waiters. If memory is refused, all records end.
    pub fn filter_replaced(&mut self, filter: CacheKeyId) {
        match self.table.leased_without(filter) {
            Ok(keys) => keys.into_iter().for_each(|key| self.end(key)),
            Err(OutOfMemory) => self.end_all(),
        }
        if !self.queues.has_asked(filter) {
            return;
        }
        let (table, alarm) = (&mut self.table, &mut self.alarm);
        self.queues.each_asking(filter, |key, is_due| {
            if !table.is_backed_off(key) {
                table.remove(key);
            }
            *is_due = *is_due || alarm.push(0, Due::Serve(key)).is_ok();
        });
    }

    /// Ends the NONEs of a filter.
    pub fn end_nones_of(&mut self, filter: FilterId) {
        self.table.remove_nones_of(filter);
    }

    /// Ends all records, and schedules all waiters.
    pub fn end_all(&mut self) {
        self.table.clear();
        let alarm = &mut self.alarm;
        self.queues.mark_all_due(|key| alarm.push(0, Due::Serve(key)).is_ok());
    }

    /// Updates the epochs of the cluster. If they have changed, slots may have left this node and come back, and rows may have
    /// changed in between: all records end.
    pub fn see_epochs(&mut self, epochs: Epochs) {
        if self.epochs.replace(epochs).is_some_and(|before| before != epochs) {
            self.end_all();
        }
    }

    /// Puts a waiter into the queue of a cache key, until `deadline`. Only one that is not held is served when there is no lease.
    ///
    /// # Errors
    /// The question, if memory is refused. Nothing has changed.
    pub fn join(
        &mut self,
        key: CacheKeyId,
        filter: CacheKeyId,
        waiter: WaiterId,
        question: Q,
        is_held: bool,
        (now, deadline): (Instant, Instant),
    ) -> Result<(), Q> {
        let is_first = !self.queues.has(key);
        let ticket = self.queues.join(key, filter, waiter, question, is_held)?;
        let lease_end = self.table.lease_end(key, now);
        let scheduled = match lease_end {
            Some(end) if is_first => self.alarm.push(end, Due::Serve(key)),
            _ => Ok(()),
        };
        if scheduled.and_then(|()| self.alarm.push(deadline, Due::Deadline(waiter, ticket))).is_err()
            && let Some(Left { question: Some(question), .. }) = self.queues.leave(waiter)
        {
            return Err(question);
        }
        if lease_end.is_none() && !is_held {
            self.serve_soon(key);
        }
        self.tidy_alarm(now);
        Ok(())
    }

    /// Takes the question of the first waiter of a cache key, of those with the ticket `from` or a larger one. It then has to be
    /// [answered](Self::answered) or [put back](Self::put_back). Returns its ticket, too.
    pub fn next(&mut self, key: CacheKeyId, from: u64) -> Option<(WaiterId, u64, Q)> {
        let (waiter, ticket) = self.queues.next(key, from)?;
        Some((waiter, ticket, self.queues.take(waiter, None)?))
    }

    /// Takes the question of a waiter whose WAIT expires, which then has to be [answered](Self::answered).
    pub fn take(&mut self, waiter: WaiterId, ticket: u64) -> Option<Q> {
        self.queues.take(waiter, Some(ticket))
    }

    /// Puts back the question of a waiter that cannot be answered yet, and updates whether it is held: it keeps its place.
    /// Returns the question if the waiter has left.
    pub fn put_back(&mut self, waiter: WaiterId, question: Q, is_held: bool) -> Option<Q> {
        self.queues.put_back(waiter, question, is_held)
    }

    /// Marks a waiter as answered, with the token of the lease that the answer grants. Returns whether it was waiting.
    pub fn answered(&mut self, waiter: WaiterId, token: Option<u64>) -> bool {
        self.queues.answered(waiter, token)
    }

    /// Removes a waiter that is not answered.
    pub fn leave(&mut self, waiter: WaiterId) -> Option<Left<Q>> {
        self.queues.leave(waiter)
    }

    /// Removes a waiter that is answered. If the client `is_gone`, so that the answer was not sent, the lease that it grants
    /// ends.
    pub fn finish(&mut self, waiter: WaiterId, is_gone: bool) {
        if let Some((key, Some(token))) = self.queues.finish(waiter)
            && is_gone
            && self.table.has_token(key, token)
        {
            self.end(key);
        }
    }

    /// When something is due next.
    pub fn next_due(&self) -> Option<Instant> {
        self.alarm.next()
    }

    /// Takes out an entry that is due and needs the server. Does the sweeps itself.
    pub fn take_due(&mut self, now: Instant) -> Option<Due> {
        loop {
            match self.alarm.take(now)? {
                Due::Sweep => self.sweep(now),
                // A lease that was granted since then has an entry of its own.
                Due::Serve(key) if self.queues.clear_due(key) || self.table.lease_end(key, now).is_none() => {
                    return Some(Due::Serve(key));
                }
                Due::Serve(_) => {}
                due @ Due::Deadline(..) => return Some(due),
            }
        }
    }

    /// Inserts a record, in place of the one that the cache key had.
    fn note(
        &mut self,
        key: CacheKeyId,
        item: ItemId,
        known: Known,
        (now, end): (Instant, Instant),
        max: usize,
    ) -> Result<(), OutOfMemory> {
        self.table.sweep(now, SWEPT_WITH_EACH);
        self.table.remove(key);
        while let Some(evicted) = self.table.evict(known, max) {
            self.serve_soon(evicted);
        }
        let noted = self.table.insert(key, item, known, end);
        self.sweep_after(end);
        noted
    }

    /// Schedules the waiters of a cache key, to be served after the running command or transaction. If memory is refused, the
    /// next caller schedules them, or their WAIT expires.
    fn serve_soon(&mut self, key: CacheKeyId) {
        let alarm = &mut self.alarm;
        self.queues.mark_due(key, || alarm.push(0, Due::Serve(key)).is_ok());
    }

    /// Schedules a sweep for some time after `end`. If memory is refused, the next record does.
    fn sweep_after(&mut self, end: Instant) {
        if !self.has_sweep && !self.table.is_empty() {
            self.has_sweep = self.alarm.push(end.saturating_add(SWEEP_EVERY), Due::Sweep).is_ok();
        }
    }

    /// Removes expired records, and goes on later while there are records.
    fn sweep(&mut self, now: Instant) {
        self.has_sweep = false;
        self.table.sweep(now, SWEPT_AT_ONCE);
        self.sweep_after(now);
    }

    /// Removes unneeded entries from the alarm, once they may outnumber the others. Each waiter needs one, each cache key
    /// with waiters up to two.
    fn tidy_alarm(&mut self, now: Instant) {
        let (queues, table) = (&self.queues, &self.table);
        self.alarm.tidy(3 * queues.waiting(), |at, due| match due {
            Due::Sweep => true,
            // The lease may have expired a moment ago, before the timer goes off.
            Due::Serve(key) if at <= now => queues.has(key),
            Due::Serve(key) => queues.has(key) && table.lease_end(key, now) == Some(at),
            Due::Deadline(waiter, ticket) => queues.waits(waiter, ticket),
        });
    }
}

#[cfg(test)]
impl<Q> Guard<Q> {
    /// A cache key with a waiter that nothing will serve: the waiter is not held, no serving is scheduled, and there is no live
    /// lease whose end is in the alarm.
    pub fn forgotten(&self, now: Instant) -> Option<CacheKeyId> {
        let has = |at, key| self.alarm.entries().any(|entry| entry == (at, Due::Serve(key)));
        let is_kept = |key: &CacheKeyId| match self.table.lease_end(*key, now) {
            _ if self.queues.is_due(*key) => has(0, *key),
            Some(end) => has(end, *key),
            None => self.all_held(*key),
        };
        self.queues.cache_keys().find(|key| !is_kept(key))
    }

    /// Whether a cache key has a live lease.
    pub fn has_lease(&self, key: CacheKeyId, now: Instant) -> bool {
        self.table.lease_end(key, now).is_some()
    }

    /// Whether the record of a cache key is a lease with this token.
    pub fn has_token(&self, key: CacheKeyId, token: u64) -> bool {
        self.table.has_token(key, token)
    }

    /// How many records there are, expired ones included.
    pub fn records(&self) -> usize {
        self.table.len()
    }

    /// How many entries the alarm has.
    pub fn alarm_entries(&self) -> usize {
        self.alarm.entries().count()
    }

    /// Whether a cache key has a live back-off.
    pub fn is_backed_off(&self, key: CacheKeyId, now: Instant) -> bool {
        self.table.back_off_end(key, now).is_some()
    }

    /// Whether all waiters of a cache key are held.
    pub fn all_held(&self, key: CacheKeyId) -> bool {
        self.queues.all_held(key)
    }

    /// The cache keys with waiters.
    pub fn waited_for(&self) -> Vec<CacheKeyId> {
        self.queues.cache_keys().collect()
    }
}
