//! The guard's state and its decisions: which client may load a value, which clients wait, when waiters are served, and which tokens are
//! safe. Nothing here calls the server, so all of it runs under one lock.
//!
//! While a lease lasts, only its holder loads. The lease's token is safe, and allows the holder to cache its value, until the row changes.
//! A token outlives its lease. A lease ends when
//!
//! - it expires: `is_current` in `records.rs`;
//! - a fill is stored: `filled`, `note_no_row`;
//! - its holder gives up, its fill is refused, or its client disconnects before it gets the lease: `give_up`, `accepts`, `finish`;
//! - the holder of a safe token reports a failed load: `back_off`;
//! - BF.CHANGED announces a write of its row: `row_changed`;
//! - a client changes the cached value: `value_changed`, called from `invalidation.rs`;
//! - the item is added to the filter, or the filter is created, replaced, emptied or deleted: `filter_changed`;
//! - the data set is replaced, or the server's role or the cluster's epochs change: `all_changed`;
//! - its record is evicted: `note`.
//!
//! docs/guard.md ("Leases and tokens") has the effects of these events on tokens and NONEs.
//!
//! If some waiters of a cache key are not held, the key has an unexpired lease, or its waiters are scheduled. A held waiter waits until
//! BF.CHANGED names its cache key, or the hash of UNLESS loses fields. A waiter is removed when it gets a value, `absent` or a lease, or
//! when its WAIT expires.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, TryReserveError};

use super::queues::{Queues, RemovedWaiter, WaiterId};
pub use super::records::Instant;
use super::records::{NO_TOKEN, Record, RecordKind, Records};
use super::row::{DependencyId, KeyId, Row, Stamp};

/// Records are swept this often, in milliseconds, and this many at a time.
const SWEEP_EVERY: Instant = 1000;
const SWEPT_AT_ONCE: usize = 4096;
/// With each new record, this many records are checked, and removed if they are no longer valid.
const SWEPT_WITH_EACH: usize = 4;
/// Up to this many records are evicted for each new one, which takes 40 microseconds. After `bf.max-leases` is lowered, there are more
/// records than allowed for a while.
const EVICTED_WITH_EACH: usize = 64;
/// The first back-off of a cache key, in milliseconds, and the longest that doubling gives.
const FIRST_BACK_OFF: Instant = 100;
const LONGEST_BACK_OFF: Instant = 10_000;
/// A token is valid for at least this time, in milliseconds, and for at most twice as long: a caller that hangs for days must not fill a
/// row whose writer died before announcing a change.
pub const TOKENS_LIVE: Instant = 60 * 60 * 1000;

/// The state of a cache key, as BF.FETCH sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowState {
    /// No record is valid: the caller may get the lease.
    Free,
    /// The item has no row.
    NoRow,
    /// Another caller loads its value, for this many milliseconds more.
    Leased(u64),
    /// Its value could not be loaded, and no lease is granted for this many milliseconds more.
    BackedOff(u64),
    /// The cached value was loaded without the key of WHILE, and is valid. If there is no value, the caller may get the lease.
    Loaded,
}

/// The answers that a caller of BF.FETCH accepts, besides `absent` from the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// NONEs and cached values.
    All,
    /// Cached values: the filter or the key of WHILE is missing.
    Values,
    /// Values and NONEs that were loaded since the key of WHILE went missing, not longer ago than FRESH.
    Fresh,
}

/// The current epoch of the cluster and of this node. At least one of them changes before a migrated slot returns.
pub type Epochs = [u64; 2];

/// The client that BF.FETCH answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// A client that has just sent the command.
    Caller,
    /// A waiter: the first in its queue, or one whose WAIT expires.
    Waiter,
}

/// The guard's state. `Q` is the question of a waiter.
pub struct Guard<Q> {
    records: Records,
    queues: Queues<Q>,
    timers: TimerQueue,
    /// Whether the timer queue contains a sweep.
    has_sweep: bool,
    /// The last stamp.
    last: Stamp,
    /// The hashes of UNLESS that have lost fields. If there are any, the timer queue has an entry for them.
    released: Vec<DependencyId>,
    /// The time when tokens last expired, and the last stamp at that time.
    aged: (Instant, Stamp),
    /// Tokens up to this stamp have expired.
    expired: Stamp,
    /// The epochs of the cluster, as last seen.
    epochs: Option<Epochs>,
}

impl<Q> Default for Guard<Q> {
    fn default() -> Self {
        Self {
            records: Records::default(),
            queues: Queues::default(),
            timers: TimerQueue::default(),
            has_sweep: false,
            last: 0,
            released: Vec::new(),
            aged: (0, 0),
            expired: 0,
            epochs: None,
        }
    }
}

impl<Q> Guard<Q> {
    /// Whether there are no records and no waiters, so changes are irrelevant.
    pub fn is_idle(&self) -> bool {
        self.records.len() == 0 && self.queues.is_empty()
    }

    /// The numbers of leases, of NONEs, and of waiting clients. Includes leases and NONEs that are no longer valid and not swept yet.
    pub fn counts(&self) -> (usize, usize, usize) {
        let (leases, no_rows) = self.records.counts();
        (leases, no_rows, self.queues.waiting())
    }

    /// Decides what BF.FETCH may do about a row. A lease or a back-off applies to every item with its cache key, a NONE or a loaded value
    /// only to its own item. A new caller does not overtake the waiters that are not held.
    pub fn row_state(&mut self, row: &Row, asker: Asker, trust: Trust, now: Instant) -> RowState {
        let mut free = RowState::Free;
        if let Some(record) = self.records.get(row.key).filter(|record| self.records.is_current(record, now)) {
            let left = record.end() - now;
            match record.kind() {
                RecordKind::Lease => return RowState::Leased(left),
                RecordKind::BackOff => return RowState::BackedOff(left),
                _ if record.row != *row => {}
                RecordKind::NoRow if trust == Trust::All => return RowState::NoRow,
                RecordKind::NoRow if trust == Trust::Fresh && record.fresh_until().is_some() => {
                    return RowState::NoRow;
                }
                RecordKind::Loaded => free = if trust == Trust::Fresh { RowState::Loaded } else { RowState::Free },
                RecordKind::NoRow | RecordKind::Token => {}
            }
        }
        if asker == Asker::Caller && self.queues.has_ready(row.key) {
            self.serve_soon(row.key);
            return RowState::Leased(1);
        }
        free
    }

    /// Remaining lease time in milliseconds, or 1 without a lease.
    pub fn remaining_lease(&self, key: KeyId, now: Instant) -> u64 {
        self.lease_end(key, now).map_or(1, |end| end - now)
    }

    /// Grants the lease of a row from `now` until `end`, and returns the stamp of its token. Earlier tokens of the same row stay safe; if
    /// the cache key had another item or filter, its earlier tokens are void. If there are more than `max` records, some that expire soon
    /// are evicted. If memory is refused, the token is void. `fresh_until` is given if the key of WHILE is missing: the value that the
    /// holder fills in is valid until then. It is not before `end`.
    pub fn grant(
        &mut self,
        row: Row,
        (now, end): (Instant, Instant),
        fresh_until: Option<Instant>,
        max: usize,
    ) -> Stamp {
        let stamp = self.next_stamp();
        let earlier = self.records.get(row.key);
        let failures = earlier.map_or(0, |record| record.failures(now));
        let oldest = earlier.map(|record| record.oldest).filter(|oldest| self.records.is_safe(&row, *oldest));
        let lease = Record::new(row, RecordKind::Lease, [oldest.unwrap_or(stamp), stamp], end).with_failures(failures);
        let lease = fresh_until.map_or(lease, |until| lease.with_fresh_until(until));
        if !self.note(lease, now, max) {
            return 0;
        }
        if self.queues.has(row.key) {
            // If memory is refused, the waiters wait until WAIT expires.
            _ = self.timers.push(end, TimerEvent::Serve(row.key));
            self.tidy_timers(now);
        }
        stamp
    }

    /// Whether a token is safe for a row, so that its caller's value may be cached. If an unsafe token holds the lease, the lease ends.
    pub fn accepts(&mut self, row: &Row, stamp: Stamp) -> bool {
        let is_safe = stamp > self.expired && self.records.is_safe(row, stamp);
        if !is_safe {
            self.give_up(row.key, stamp, 0);
        }
        is_safe
    }

    /// Ends the lease of a cache key if a token has it, and schedules its waiters. The token stays safe. Returns whether the lease had
    /// not expired.
    pub fn give_up(&mut self, key: KeyId, stamp: Stamp, now: Instant) -> bool {
        let is_its = |record: &&Record| record.kind() == RecordKind::Lease && record.stamp == stamp;
        let Some(record) = self.records.get(key).filter(is_its) else { return false };
        let had_not_expired = record.end() > now;
        self.records.expire(key);
        self.serve_soon(key);
        had_not_expired
    }

    /// The time until which a token's fill is valid without the key of WHILE, if the token holds a lease that was granted without that key.
    pub fn fresh_until(&self, key: KeyId, stamp: Stamp, now: Instant) -> Option<Instant> {
        self.lease_end(key, now)?;
        self.records.get(key).filter(|record| record.stamp == stamp)?.fresh_until()
    }

    /// Records that an item has no row, from `now` until `end`, in place of the earlier record of its cache key. With `fresh_until`, the
    /// NONE is valid also without the key of WHILE, and at most until then. If there are more than `max` records, some are evicted. Without
    /// a filter no item is `absent`, so no NONE is recorded. If memory is refused, the next caller loads again.
    pub fn note_no_row(&mut self, row: Row, (now, end): (Instant, Instant), fresh_until: Option<Instant>, max: usize) {
        self.row_changed(row.key);
        if !row.is_unguarded() {
            let none = |end| Record::new(row, RecordKind::NoRow, [NO_TOKEN, self.last], end);
            let fresh = |until: Instant| none(end.min(until)).with_fresh_until(end.min(until));
            self.note(fresh_until.map_or_else(|| none(end), fresh), now, max);
        }
    }

    /// The value of a row was filled in: as [`row_changed`](Self::row_changed). With `fresh_until`, it is valid until then without the key
    /// of WHILE.
    pub fn filled(&mut self, row: Row, now: Instant, fresh_until: Option<Instant>, max: usize) {
        self.row_changed(row.key);
        if let Some(until) = fresh_until {
            self.note(Record::new(row, RecordKind::Loaded, [NO_TOKEN, self.last], until), now, max);
        }
    }

    /// Ends the lease of a cache key, even if another caller holds it. [`row_state`](Self::row_state) grants no other lease for `time`, by
    /// default for twice as long as after the previous failure. Tokens stay safe. Schedules the key's waiters. If there are more than `max`
    /// records, some are evicted. If memory is refused, the next caller loads.
    pub fn back_off(&mut self, key: KeyId, now: Instant, time: Option<Instant>, max: usize) {
        let known = self.records.get(key).copied();
        let failures = known.map_or(0, |record| record.failures(now));
        let (row, stamps) =
            known.map_or((Row::of(key), [NO_TOKEN, self.last]), |record| (record.row, [record.oldest, record.stamp]));
        let doubled = (FIRST_BACK_OFF << failures).min(LONGEST_BACK_OFF);
        let end = now.saturating_add(time.unwrap_or(doubled));
        // A caller that passes a time counts the failures itself.
        let failures = failures.saturating_add(time.is_none().into());
        self.note(Record::new(row, RecordKind::BackOff, stamps, end).with_failures(failures), now, max);
        self.serve_soon(key);
    }

    /// A row was announced, or its value was filled in: voids the tokens of its cache key, ends the key's record, and schedules its
    /// waiters.
    pub fn row_changed(&mut self, key: KeyId) {
        self.records.remove(key);
        self.serve_soon(key);
    }

    /// A client has changed the value of a cache key: as [`row_changed`](Self::row_changed), but a back-off stays, because it concerns the
    /// database.
    pub fn value_changed(&mut self, key: KeyId) {
        if self.records.get(key).is_some_and(|record| record.kind() == RecordKind::BackOff) {
            self.records.void_tokens(key);
        } else {
            self.records.remove(key);
        }
        self.serve_soon(key);
    }

    /// Voids the tokens of a cache key. A lease or a back-off stays.
    pub fn void_tokens(&mut self, key: KeyId) {
        self.records.void_tokens(key);
    }

    /// Whether a change of a key with this hash may be relevant, because the key is a cache key or a filter. A cache key without a record
    /// has only waiters that are held, or scheduled already.
    #[inline]
    pub fn concerns(&self, table_hash: u64) -> bool {
        self.records.may_have(table_hash) || self.is_guarded(table_hash)
    }

    /// Whether changes of a filter or of an item concern a record or a waiter.
    #[inline]
    pub fn is_guarded(&self, filter: DependencyId) -> bool {
        self.records.depend_on(filter) || self.queues.has_asked(filter)
    }

    /// A filter was created, replaced, emptied or deleted, or an item was added to one: voids the tokens of its rows, and schedules
    /// the clients that wait for one of them.
    pub fn filter_changed(&mut self, filter_or_item: DependencyId) {
        if self.records.depend_on(filter_or_item) {
            let stamp = self.next_stamp();
            self.records.change(filter_or_item, stamp);
        }
        let timers = &mut self.timers;
        self.queues.mark_asking_due(filter_or_item, |key| timers.push(0, TimerEvent::Serve(key)).is_ok());
    }

    /// Anything may have changed: voids all tokens, ends all records, and schedules all waiters.
    pub fn all_changed(&mut self) {
        self.records = Records::default();
        let timers = &mut self.timers;
        self.queues.mark_all_due(|key| timers.push(0, TimerEvent::Serve(key)).is_ok());
    }

    /// Updates the epochs of the cluster. If they have changed, slots may have left this node and come back, and anything may have
    /// changed in between. Returns whether they have.
    pub fn check_epochs(&mut self, epochs: Epochs) -> bool {
        let have_changed = self.epochs.replace(epochs).is_some_and(|before| before != epochs);
        if have_changed {
            self.all_changed();
        }
        have_changed
    }

    /// Whether any waiter is held.
    pub fn has_held(&self) -> bool {
        self.queues.has_held()
    }

    /// A hash of UNLESS may have lost fields: schedules a check of it after the running command or transaction. If memory is refused, its
    /// waiters wait until something else serves them.
    pub fn hash_changed(&mut self, hash: DependencyId) {
        if !self.queues.has_asked(hash) || self.released.contains(&hash) || self.released.try_reserve(1).is_err() {
            return;
        }
        if !self.released.is_empty() || self.timers.push(0, TimerEvent::Release).is_ok() {
            self.released.push(hash);
        }
    }

    /// Removes and returns the hashes that may have lost fields.
    pub fn take_released(&mut self) -> Vec<DependencyId> {
        std::mem::take(&mut self.released)
    }

    /// A cache key with held waiters, some of whose waiters name this hash.
    pub fn held_by(&self, hash: DependencyId) -> Option<KeyId> {
        self.queues.held_by(hash)
    }

    /// Schedules the waiters of all cache keys with held waiters, some of whose waiters name this hash.
    pub fn release(&mut self, hash: DependencyId) {
        let timers = &mut self.timers;
        self.queues.mark_held_due(hash, |key| timers.push(0, TimerEvent::Serve(key)).is_ok());
    }

    /// Puts a waiter into the queue of a row's cache key until `deadline`, with the hash of UNLESS if it names one. If there is no lease,
    /// only a waiter that is not held is served. Returns the question if memory is refused; nothing has changed then.
    pub fn join(
        &mut self,
        row: &Row,
        unless: Option<DependencyId>,
        waiter: WaiterId,
        question: Q,
        is_held: bool,
        (now, deadline): (Instant, Instant),
    ) -> Result<(), Q> {
        let key = row.key;
        let is_first = !self.queues.has(key);
        let ticket = self.queues.join(row, unless, waiter, question, is_held)?;
        let lease_end = self.lease_end(key, now);
        let scheduled = match lease_end {
            Some(end) if is_first => self.timers.push(end, TimerEvent::Serve(key)),
            _ => Ok(()),
        };
        if scheduled.and_then(|()| self.timers.push(deadline, TimerEvent::Deadline(waiter, ticket))).is_err()
            && let Some(RemovedWaiter { question: Some(question), .. }) = self.queues.leave(waiter)
        {
            return Err(question);
        }
        if lease_end.is_none() && !is_held {
            self.serve_soon(key);
        }
        self.tidy_timers(now);
        Ok(())
    }

    /// Removes and returns the question of the first waiter of a cache key with the ticket `from` or a larger one, and its ticket. The
    /// waiter must then be [answered](Self::answered) or the question [put back](Self::put_back).
    pub fn next(&mut self, key: KeyId, from: u64) -> Option<(WaiterId, u64, Q)> {
        let (waiter, ticket) = self.queues.next(key, from)?;
        Some((waiter, ticket, self.queues.take(waiter, None)?))
    }

    /// Removes and returns the question of a waiter whose WAIT expires. The waiter must then be [answered](Self::answered).
    pub fn take(&mut self, waiter: WaiterId, ticket: u64) -> Option<Q> {
        self.queues.take(waiter, Some(ticket))
    }

    /// Puts back the question of a waiter that cannot be answered yet, and updates whether it is held. The waiter keeps its place. Returns
    /// the question if the waiter has left.
    pub fn put_back(&mut self, waiter: WaiterId, question: Q, is_held: bool) -> Option<Q> {
        self.queues.put_back(waiter, question, is_held)
    }

    /// Marks a waiter as answered, with the stamp of its token, if it gets one. Returns whether it was waiting.
    pub fn answered(&mut self, waiter: WaiterId, stamp: Option<Stamp>) -> bool {
        self.queues.answered(waiter, stamp)
    }

    /// Removes a waiter that is not answered.
    pub fn leave(&mut self, waiter: WaiterId) -> Option<RemovedWaiter<Q>> {
        self.queues.leave(waiter)
    }

    /// Removes a waiter that is answered. If the client `is_gone`, so that the answer was not sent, the lease that it grants
    /// ends.
    pub fn finish(&mut self, waiter: WaiterId, is_gone: bool) {
        if let Some((key, Some(stamp))) = self.queues.finish(waiter)
            && is_gone
        {
            self.give_up(key, stamp, 0);
        }
    }

    /// The time of the next timer event.
    pub fn next_due(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Removes and returns an event that is due and needs the server. Performs sweeps itself.
    pub fn take_event(&mut self, now: Instant) -> Option<TimerEvent> {
        loop {
            match self.timers.take(now)? {
                TimerEvent::Sweep => self.sweep(now),
                // A lease granted since then has a separate entry.
                TimerEvent::Serve(key) if self.queues.clear_due(key) || self.lease_end(key, now).is_none() => {
                    return Some(TimerEvent::Serve(key));
                }
                TimerEvent::Serve(_) => {}
                due @ (TimerEvent::Release | TimerEvent::Deadline(..)) => return Some(due),
            }
        }
    }

    /// The time when the lease of a cache key expires, whether its token is safe or not; `None` if no live lease exists.
    fn lease_end(&self, key: KeyId, now: Instant) -> Option<Instant> {
        self.records.get(key).filter(|record| record.kind() == RecordKind::Lease && record.end() > now).map(Record::end)
    }

    /// Inserts a record in place of the cache key's earlier one. If there are more than `max`, evicts some: first records that are no
    /// longer valid, then NONEs and back-offs, then leases, in each group those that expire first. Returns false if memory is refused; the
    /// cache key then has no record.
    fn note(&mut self, record: Record, now: Instant, max: usize) -> bool {
        self.sweep_some(SWEPT_WITH_EACH, now);
        self.records.remove(record.row.key);
        for _ in 0..EVICTED_WITH_EACH.min((self.records.len() + 1).saturating_sub(max)) {
            let worth = |record: &Record| {
                let counts = self.records.is_current(record, now);
                (counts && record.kind() == RecordKind::Lease, if counts { record.end() } else { 0 })
            };
            let Some(key) = self.records.least(self.last, worth).map(|record| record.row.key) else { break };
            self.records.remove(key);
            self.serve_soon(key);
        }
        let is_noted = self.records.insert(record).is_ok();
        self.sweep_later(now);
        is_noted
    }

    /// Schedules the waiters of a cache key, to be served after the running command or transaction. If memory is refused, the
    /// next caller schedules them, or their WAIT expires.
    fn serve_soon(&mut self, key: KeyId) {
        let timers = &mut self.timers;
        self.queues.mark_due(key, 0, || timers.push(0, TimerEvent::Serve(key)).is_ok());
    }

    /// Schedules the waiters of a cache key with the ticket `from` or a larger one, after everything else that is due: their run has ended.
    pub fn serve_on(&mut self, key: KeyId, from: u64, now: Instant) {
        let timers = &mut self.timers;
        self.queues.mark_due(key, from, || timers.push(now, TimerEvent::Serve(key)).is_ok());
    }

    /// The ticket of the first waiter of a cache key to serve, or a smaller one.
    pub fn serve_from(&mut self, key: KeyId) -> u64 {
        self.queues.take_from(key)
    }

    /// Schedules a sweep if there are records.
    fn sweep_later(&mut self, now: Instant) {
        if !self.has_sweep && self.records.len() > 0 {
            self.has_sweep = self.timers.push(now.saturating_add(SWEEP_EVERY), TimerEvent::Sweep).is_ok();
        }
    }

    /// Removes records that are no longer valid, and expires tokens. Repeated while there are records.
    fn sweep(&mut self, now: Instant) {
        self.has_sweep = false;
        let (aged_at, last) = self.aged;
        if now >= aged_at.saturating_add(TOKENS_LIVE) {
            self.expired = last;
            self.aged = (now, self.last);
        }
        self.sweep_some(SWEPT_AT_ONCE, now);
        if self.records.len() == 0 {
            self.records = Records::default();
        }
        self.sweep_later(now);
    }

    /// Visits up to `most` records, and removes those that are no longer valid. A lease that clients wait for stays until its end.
    fn sweep_some(&mut self, most: usize, now: Instant) {
        let Self { records, queues, expired, .. } = self;
        records.sweep(most, (now, *expired), |record| queues.has(record.row.key));
    }

    const fn next_stamp(&mut self) -> Stamp {
        self.last = self.last.saturating_add(1);
        self.last
    }

    /// Removes unneeded entries from the timer queue once they may outnumber the needed ones. Each waiter needs one entry, each cache key
    /// with waiters up to two.
    fn tidy_timers(&mut self, now: Instant) {
        let (queues, records) = (&self.queues, &self.records);
        self.timers.tidy(3 * queues.waiting(), |at, due| match due {
            TimerEvent::Sweep | TimerEvent::Release => true,
            // The lease may have expired just before the timer fires.
            TimerEvent::Serve(key) if at <= now => queues.has(key),
            TimerEvent::Serve(key) => queues.has(key) && records.get(key).is_some_and(|record| record.end() == at),
            TimerEvent::Deadline(waiter, ticket) => queues.waits(waiter, ticket),
        });
    }
}

#[cfg(test)]
impl<Q> Guard<Q> {
    /// A cache key with a waiter that nothing will serve: the waiter is not held, no serving is scheduled, and there is no lease
    /// whose end is in the timer queue.
    pub fn forgotten(&self, now: Instant) -> Option<KeyId> {
        use std::ops::RangeInclusive;

        let has = |times: RangeInclusive<Instant>, key| {
            self.timers.entries().any(|(at, due)| times.contains(&at) && due == TimerEvent::Serve(key))
        };
        let is_kept = |key: &KeyId| match self.lease_end(*key, now) {
            _ if self.queues.is_due(*key) => has(0..=now, *key),
            Some(end) => has(end..=end, *key),
            None => self.queues.all_held(*key),
        };
        self.queues.cache_keys().find(|key| !is_kept(key))
    }

    /// The record of a cache key, if it is valid.
    pub fn record(&self, key: KeyId, now: Instant) -> Option<Record> {
        self.records.get(key).filter(|record| self.records.is_current(record, now)).copied()
    }

    /// Whether a token is safe for a row.
    pub fn is_safe(&self, row: &Row, stamp: Stamp) -> bool {
        self.records.is_safe(row, stamp)
    }

    /// Whether a cache key has a record, valid or not.
    pub fn has_record(&self, key: KeyId) -> bool {
        self.records.get(key).is_some()
    }

    /// The number of records, including expired and void ones that were not swept yet.
    pub fn records(&self) -> usize {
        self.records.len()
    }

    /// The number of entries in the timer queue.
    pub fn timer_entries(&self) -> usize {
        self.timers.entries().count()
    }

    /// Whether all waiters of a cache key are held.
    pub fn all_held(&self, key: KeyId) -> bool {
        self.queues.all_held(key)
    }

    /// The cache keys with waiters.
    pub fn waited_for(&self) -> Vec<KeyId> {
        self.queues.cache_keys().collect()
    }
}

/// Timer events. Entries with the same time have this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimerEvent {
    /// Expired records are swept, so that a guard that is no longer used takes no memory.
    Sweep,
    /// Hashes of UNLESS may have lost fields.
    Release,
    /// The waiters of a cache key are served: its lease expired or ended, or its value changed.
    Serve(KeyId),
    /// The WAIT of a waiter, which is given by its handle and its ticket, expires.
    Deadline(WaiterId, u64),
}

/// The due times, earliest first. An entry that is no longer needed stays until its time, or until [`tidy`](Self::tidy).
#[derive(Default)]
pub struct TimerQueue {
    entries: BinaryHeap<Reverse<(Instant, TimerEvent)>>,
}

impl TimerQueue {
    /// Adds an entry.
    pub fn push(&mut self, at: Instant, due: TimerEvent) -> Result<(), TryReserveError> {
        self.entries.try_reserve(1)?;
        self.entries.push(Reverse((at, due)));
        Ok(())
    }

    /// The earliest due time.
    pub fn next(&self) -> Option<Instant> {
        self.entries.peek().map(|Reverse((at, _))| *at)
    }

    /// Removes and returns the earliest entry, if it is due.
    pub fn take(&mut self, now: Instant) -> Option<TimerEvent> {
        if self.next()? > now {
            return None;
        }
        self.entries.pop().map(|Reverse((_, due))| due)
    }

    /// Removes unneeded entries once they may outnumber the needed ones. `most` is the maximum number of needed entries.
    pub fn tidy(&mut self, most: usize, is_needed: impl Fn(Instant, TimerEvent) -> bool) {
        if self.entries.len() > 2 * most + 64 {
            self.entries.retain(|Reverse((at, due))| is_needed(*at, *due));
        }
    }

    /// The entries, in no order.
    #[cfg(test)]
    pub fn entries(&self) -> impl Iterator<Item = (Instant, TimerEvent)> {
        self.entries.iter().map(|Reverse(entry)| *entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_returned_when_they_are_due_and_in_order() {
        let mut timers = TimerQueue::default();
        for at in [30, 10, 20] {
            timers.push(at, TimerEvent::Deadline(at.try_into().unwrap(), 0)).unwrap();
        }
        assert_eq!((timers.next(), timers.take(9)), (Some(10), None));
        assert_eq!(
            [timers.take(20), timers.take(20), timers.take(20)],
            [Some(TimerEvent::Deadline(10, 0)), Some(TimerEvent::Deadline(20, 0)), None]
        );
    }

    #[test]
    fn unneeded_entries_do_not_accumulate() {
        let mut timers = TimerQueue::default();
        for ticket in 0..1000 {
            timers.push(u64::MAX, TimerEvent::Deadline(1, ticket)).unwrap();
            timers.tidy(1, |_, due| due == TimerEvent::Deadline(1, ticket));
        }
        assert!(timers.entries.len() <= 67);
    }
}
