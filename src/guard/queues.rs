//! Clients that wait for a value that another caller loads, in a first-come, first-served queue for each cache key.
//!
//! A waiter stays in its queue until it has an answer. [`next`](Queues::next) returns the waiter to serve next, which is either answered
//! and removed, or keeps its place. A waiter is *held* if its cache key has a write in flight: it waits for the end of the write, not for a
//! lease. The hash of UNLESS lists these writes.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, TryReserveError, VecDeque};

use super::row::{ByHash, DependencyId, KeyId, Row, Stamp};

/// A waiter: the server's handle of a blocked client.
pub type WaiterId = usize;

/// A client that waits, with its question.
struct Waiter<Q> {
    cache_key: KeyId,
    /// The filter, the item and the hash that it names.
    asks: Asks,
    /// Distinguishes it from earlier waiters with the same handle. Later waiters have larger tickets.
    ticket: u64,
    is_held: bool,
    state: State<Q>,
}

/// The state of a waiter.
enum State<Q> {
    /// It waits.
    Waiting(Q),
    /// It waits, and is being served: the caller of [`Queues::take`] has its question.
    Serving,
    /// It is answered, and the server has not sent the answer yet. The stamp identifies the token in the answer, if any.
    Answered(Option<Stamp>),
}

/// Waiters with their tickets.
type Line = VecDeque<(WaiterId, u64)>;

/// The queue of a cache key.
struct Queue {
    /// The waiters in order of arrival. Entries of removed waiters are deleted at the front, or when they outnumber the others.
    line: Line,
    /// The number of unanswered waiters.
    waiting: usize,
    /// The number of held waiters.
    held: usize,
    /// Whether the timer queue has an entry that serves them at once.
    is_due: bool,
    /// The smallest ticket that it serves: 0, unless the last run ended early.
    from: u64,
}

impl Queue {
    /// Marks the waiters with the ticket `from` or a larger one as scheduled, unless scheduling fails.
    fn mark_due(&mut self, from: u64, schedule: impl FnOnce() -> bool) {
        if self.is_due {
            self.from = self.from.min(from);
        } else {
            (self.is_due, self.from) = (schedule(), from);
        }
    }
}

/// A waiter that was removed from its queue.
#[derive(Debug, PartialEq, Eq)]
pub struct RemovedWaiter<Q> {
    /// Its cache key.
    pub cache_key: KeyId,
    /// Whether it was held.
    pub is_held: bool,
    /// Its question, unless it was being served.
    pub question: Option<Q>,
}

/// The filter and the item that a waiter asks about, and the hash of UNLESS if it names one.
type Asks = [Option<DependencyId>; 3];

/// The number of equal questions for each cache key.
type Asking = ByHash<KeyId, usize>;

/// All queues. Each has at least one waiter.
pub struct Queues<Q> {
    queues: ByHash<KeyId, Queue>,
    waiters: HashMap<WaiterId, Waiter<Q>>,
    /// For each filter, item and hash that waiters name, their cache keys, with the number of those waiters.
    asked: ByHash<DependencyId, Asking>,
    /// The number of unanswered waiters.
    waiting: usize,
    /// The number of held waiters.
    held: usize,
    next_ticket: u64,
}

impl<Q> Default for Queues<Q> {
    fn default() -> Self {
        Self {
            queues: ByHash::default(),
            waiters: HashMap::new(),
            asked: ByHash::default(),
            waiting: 0,
            held: 0,
            next_ticket: 0,
        }
    }
}

impl<Q> Queues<Q> {
    /// Puts a waiter at the end of the queue of a row's cache key, with the hash of UNLESS if it names one. Returns its ticket, or the
    /// question if memory is refused. In that case nothing changes.
    pub fn join(
        &mut self,
        row: &Row,
        unless: Option<DependencyId>,
        waiter: WaiterId,
        question: Q,
        is_held: bool,
    ) -> Result<u64, Q> {
        let (cache_key, asks) = (row.key, [Some(row.filter), Some(row.item), unless]);
        let Ok((line, asking)) = self.reserve(cache_key, asks) else { return Err(question) };
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let queue = self.queues.entry(cache_key).or_insert(Queue { line, waiting: 0, held: 0, is_due: false, from: 0 });
        queue.line.push_back((waiter, ticket));
        queue.waiting += 1;
        queue.held += usize::from(is_held);
        for (what, new) in asks.into_iter().flatten().zip(asking) {
            *self.asked.entry(what).or_insert(new).entry(cache_key).or_default() += 1;
        }
        self.waiting += 1;
        self.held += usize::from(is_held);
        let state = State::Waiting(question);
        self.waiters.insert(waiter, Waiter { cache_key, asks, ticket, is_held, state });
        Ok(ticket)
    }

    /// Reserves memory for one more waiter. Returns a line for its queue and entries for its dependencies, each with room for the waiter if
    /// it is new.
    fn reserve(&mut self, cache_key: KeyId, asks: Asks) -> Result<(Line, [Asking; 3]), TryReserveError> {
        self.waiters.try_reserve(1)?;
        self.asked.try_reserve(asks.len())?;
        self.queues.try_reserve(1)?;
        let (mut line, mut asking) = (Line::new(), <[Asking; 3]>::default());
        self.queues.get_mut(&cache_key).map_or(&mut line, |queue| &mut queue.line).try_reserve(1)?;
        for (what, new) in asks.iter().flatten().zip(&mut asking) {
            self.asked.get_mut(what).unwrap_or(new).try_reserve(1)?;
        }
        Ok((line, asking))
    }

    /// Whether a cache key has waiters.
    pub fn has(&self, cache_key: KeyId) -> bool {
        self.queues.contains_key(&cache_key)
    }

    /// Whether a new caller would overtake waiters of a cache key, because some are not held or because they are about to be served.
    pub fn has_ready(&self, cache_key: KeyId) -> bool {
        self.queues.get(&cache_key).is_some_and(|queue| queue.is_due || queue.waiting > queue.held)
    }

    /// Whether all waiters of a cache key are held.
    #[cfg(test)]
    pub fn all_held(&self, cache_key: KeyId) -> bool {
        self.queues.get(&cache_key).is_none_or(|queue| queue.waiting == queue.held)
    }

    /// The waiter of a cache key that has waited longest, among those with this ticket or a larger one, and its ticket.
    pub fn next(&mut self, cache_key: KeyId, from: u64) -> Option<(WaiterId, u64)> {
        let (queue, waiters) = (self.queues.get_mut(&cache_key)?, &self.waiters);
        let has_left = |(waiter, ticket): &(WaiterId, u64)| !waits(waiters, *waiter, *ticket);
        while queue.line.front().is_some_and(has_left) {
            queue.line.pop_front();
        }
        let begin = queue.line.partition_point(|(_, ticket)| *ticket < from);
        queue.line.range(begin..).find(|entry| !has_left(entry)).copied()
    }

    /// Removes and returns the question of a waiter, which must then be answered or put back. With `ticket`, only if the waiter has this
    /// ticket.
    pub fn take(&mut self, waiter: WaiterId, ticket: Option<u64>) -> Option<Q> {
        let waiter = self.waiters.get_mut(&waiter)?;
        if ticket.is_some_and(|ticket| ticket != waiter.ticket) || !matches!(waiter.state, State::Waiting(_)) {
            return None;
        }
        match std::mem::replace(&mut waiter.state, State::Serving) {
            State::Waiting(question) => Some(question),
            State::Serving | State::Answered(_) => None,
        }
    }

    /// Puts the question of a waiter back, and updates whether it is held: the waiter keeps its place. Returns the question if
    /// the waiter has left.
    pub fn put_back(&mut self, waiter: WaiterId, question: Q, is_held: bool) -> Option<Q> {
        let Some(found) = self.waiters.get_mut(&waiter).filter(|found| matches!(found.state, State::Serving)) else {
            return Some(question);
        };
        found.state = State::Waiting(question);
        let was_held = std::mem::replace(&mut found.is_held, is_held);
        if let Some(queue) = self.queues.get_mut(&found.cache_key) {
            queue.held = queue.held + usize::from(is_held) - usize::from(was_held);
            self.held = self.held + usize::from(is_held) - usize::from(was_held);
        }
        None
    }

    /// Marks a waiter as answered, with the stamp of its token, if it gets one. Returns whether it was waiting.
    pub fn answered(&mut self, waiter: WaiterId, stamp: Option<Stamp>) -> bool {
        let Some(found) = self.waiters.get_mut(&waiter).filter(|found| !matches!(found.state, State::Answered(_)))
        else {
            return false;
        };
        found.state = State::Answered(stamp);
        let (cache_key, asks, is_held) = (found.cache_key, found.asks, found.is_held);
        self.uncount(cache_key, asks, is_held);
        true
    }

    /// Removes a waiter that is not answered.
    pub fn leave(&mut self, waiter: WaiterId) -> Option<RemovedWaiter<Q>> {
        let Entry::Occupied(entry) = self.waiters.entry(waiter) else { return None };
        if matches!(entry.get().state, State::Answered(_)) {
            return None;
        }
        let Waiter { cache_key, asks, is_held, state, .. } = entry.remove();
        self.uncount(cache_key, asks, is_held);
        let question = if let State::Waiting(question) = state { Some(question) } else { None };
        Some(RemovedWaiter { cache_key, is_held, question })
    }

    /// Removes a waiter that is answered. Returns its cache key, and the stamp of its token if it got one.
    pub fn finish(&mut self, waiter: WaiterId) -> Option<(KeyId, Option<Stamp>)> {
        let Entry::Occupied(entry) = self.waiters.entry(waiter) else { return None };
        let State::Answered(stamp) = entry.get().state else { return None };
        Some((entry.remove().cache_key, stamp))
    }

    /// Whether a waiter has this ticket and is not answered.
    pub fn waits(&self, waiter: WaiterId, ticket: u64) -> bool {
        waits(&self.waiters, waiter, ticket)
    }

    /// Whether any waiter is held.
    pub fn has_held(&self) -> bool {
        self.held > 0
    }

    /// A cache key with held waiters, some of whose waiters name this hash.
    pub fn held_by(&self, hash: DependencyId) -> Option<KeyId> {
        let is_held = |key: &&KeyId| self.queues.get(key).is_some_and(|queue| queue.held > 0);
        self.asked.get(&hash)?.keys().find(is_held).copied()
    }

    /// [`mark_due`](Self::mark_due) for each cache key of [`held_by`](Self::held_by).
    pub fn mark_held_due(&mut self, hash: DependencyId, mut schedule: impl FnMut(KeyId) -> bool) {
        for cache_key in self.asked.get(&hash).into_iter().flat_map(HashMap::keys) {
            if let Some(queue) = self.queues.get_mut(cache_key).filter(|queue| queue.held > 0) {
                queue.mark_due(0, || schedule(*cache_key));
            }
        }
    }

    /// Whether any waiter asks about this filter or this item, or names this hash.
    pub fn has_asked(&self, what: DependencyId) -> bool {
        self.asked.contains_key(&what)
    }

    /// [`mark_due`](Self::mark_due) for the cache key of every waiter that asks about this filter or this item.
    pub fn mark_asking_due(&mut self, what: DependencyId, mut schedule: impl FnMut(KeyId) -> bool) {
        for cache_key in self.asked.get(&what).into_iter().flat_map(HashMap::keys) {
            if let Some(queue) = self.queues.get_mut(cache_key) {
                queue.mark_due(0, || schedule(*cache_key));
            }
        }
    }

    /// Marks the waiters of a cache key with the ticket `from` or a larger one as scheduled if `schedule` succeeds. Does nothing without
    /// waiters. Adds to the waiters that are already scheduled.
    pub fn mark_due(&mut self, cache_key: KeyId, from: u64, schedule: impl FnOnce() -> bool) {
        if let Some(queue) = self.queues.get_mut(&cache_key) {
            queue.mark_due(from, schedule);
        }
    }

    /// [`mark_due`](Self::mark_due) for all waiters.
    pub fn mark_all_due(&mut self, mut schedule: impl FnMut(KeyId) -> bool) {
        for (cache_key, queue) in &mut self.queues {
            queue.mark_due(0, || schedule(*cache_key));
        }
    }

    /// Whether the waiters of a cache key are scheduled.
    #[cfg(test)]
    pub fn is_due(&self, cache_key: KeyId) -> bool {
        self.queues.get(&cache_key).is_some_and(|queue| queue.is_due)
    }

    /// Removes the mark that waiters of a cache key are scheduled. Returns whether there was one.
    pub fn clear_due(&mut self, cache_key: KeyId) -> bool {
        self.queues.get_mut(&cache_key).is_some_and(|queue| std::mem::take(&mut queue.is_due))
    }

    /// The smallest ticket to serve of a cache key's waiters, once the mark is removed.
    pub fn take_from(&mut self, cache_key: KeyId) -> u64 {
        self.queues.get_mut(&cache_key).map_or(0, |queue| std::mem::take(&mut queue.from))
    }

    /// The number of clients that wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether there is no waiter, answered or not.
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Subtracts a waiter that was answered or has left from the counts. Its entry in the line stays for now.
    fn uncount(&mut self, cache_key: KeyId, asks: Asks, was_held: bool) {
        self.waiting -= 1;
        self.held -= usize::from(was_held);
        asks.into_iter().flatten().for_each(|what| self.no_longer_asks(cache_key, what));
        let Some(queue) = self.queues.get_mut(&cache_key) else { return };
        queue.waiting -= 1;
        queue.held -= usize::from(was_held);
        if queue.waiting == 0 {
            self.queues.remove(&cache_key);
        } else if queue.line.len() > 2 * queue.waiting + 16 {
            let waiters = &self.waiters;
            queue.line.retain(|(waiter, ticket)| waits(waiters, *waiter, *ticket));
        }
    }

    /// Subtracts a waiter of a cache key that names this filter, item or hash from the counts.
    fn no_longer_asks(&mut self, cache_key: KeyId, what: DependencyId) {
        let Entry::Occupied(mut of_what) = self.asked.entry(what) else { return };
        if let Entry::Occupied(mut waiters) = of_what.get_mut().entry(cache_key) {
            *waiters.get_mut() -= 1;
            if *waiters.get() == 0 {
                waiters.remove();
            }
        }
        if of_what.get().is_empty() {
            of_what.remove();
        }
    }

    /// The cache keys that have waiters.
    #[cfg(test)]
    pub fn cache_keys(&self) -> impl Iterator<Item = KeyId> {
        self.queues.keys().copied()
    }
}

fn waits<Q>(waiters: &HashMap<WaiterId, Waiter<Q>>, waiter: WaiterId, ticket: u64) -> bool {
    let waits = |waiter: &Waiter<Q>| waiter.ticket == ticket && !matches!(waiter.state, State::Answered(_));
    waiters.get(&waiter).is_some_and(waits)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: KeyId = KeyId([1, 2]);
    const OTHER: KeyId = KeyId([3, 4]);
    const HASH: DependencyId = 7;
    const ROW: Row = Row { filter: 5, item: 6, ..Row::of(KEY) };

    fn join(queues: &mut Queues<&'static str>, waiter: WaiterId) -> u64 {
        queues.join(&ROW, None, waiter, "question", false).unwrap()
    }

    fn queues(waiters: &[WaiterId]) -> Queues<&'static str> {
        let mut queues = Queues::default();
        for waiter in waiters {
            join(&mut queues, *waiter);
        }
        queues
    }

    fn first(queues: &mut Queues<&'static str>) -> Option<WaiterId> {
        queues.next(KEY, 0).map(|(waiter, _)| waiter)
    }

    fn left(question: Option<&'static str>) -> Option<RemovedWaiter<&'static str>> {
        Some(RemovedWaiter { cache_key: KEY, is_held: false, question })
    }

    #[test]
    fn waiters_are_served_in_order_and_keep_their_place() {
        let mut queues = queues(&[10, 20, 30]);
        assert_eq!(first(&mut queues), Some(10));
        assert_eq!(queues.take(10, None), Some("question"));
        assert_eq!(queues.take(10, None), None, "it is being served");
        assert_eq!(queues.put_back(10, "question", false), None);
        assert_eq!(first(&mut queues), Some(10), "it keeps its place");
        assert!(queues.take(10, None).is_some() && queues.answered(10, Some(7)));
        assert!(!queues.answered(10, None), "it is answered already");
        assert_eq!(queues.put_back(10, "question", false), Some("question"));
        assert_eq!((first(&mut queues), queues.waiting()), (Some(20), 2));
        assert_eq!(queues.leave(20), left(Some("question")));
        assert_eq!(first(&mut queues), Some(30));
        assert_eq!(queues.take(30, None), Some("question"));
        assert_eq!((queues.finish(30), queues.leave(30)), (None, left(None)));
        assert!(!queues.has(KEY) && queues.waiting() == 0 && !queues.is_empty());
        assert_eq!((queues.leave(10), queues.finish(10)), (None, Some((KEY, Some(7)))));
        assert!(queues.is_empty() && queues.finish(10).is_none());
    }

    #[test]
    fn waiters_behind_one_that_is_held_are_found_and_not_overtaken() {
        let mut queues = queues(&[]);
        let held = queues.join(&ROW, Some(HASH), 10, "held", true).unwrap();
        assert!(queues.has(KEY) && queues.all_held(KEY) && !queues.has_ready(KEY));
        join(&mut queues, 20);
        join(&mut queues, 30);
        queues.leave(20).unwrap();
        assert!(queues.has_ready(KEY));
        assert_eq!((first(&mut queues), queues.next(KEY, held + 1).map(|(waiter, _)| waiter)), (Some(10), Some(30)));
        queues.take(30, None).unwrap();
        assert_eq!(queues.put_back(30, "question", true), None);
        assert!(queues.all_held(KEY) && !queues.has_ready(KEY));
        queues.mark_due(KEY, 0, || true);
        assert!(queues.has_ready(KEY), "both are about to be served");
        queues.clear_due(KEY);
        queues.take(10, None).unwrap();
        assert_eq!(queues.put_back(10, "held", false), None);
        assert!(queues.has_ready(KEY));
        assert!(queues.answered(10, None) && queues.all_held(KEY));
        assert!(queues.leave(30).is_some_and(|left| left.is_held) && !queues.has(KEY));
    }

    #[test]
    fn a_hash_schedules_held_waiters_only() {
        let mut queues = queues(&[]);
        let other = Row { key: OTHER, ..ROW };
        queues.join(&ROW, Some(HASH), 10, "held", true).unwrap();
        queues.join(&other, Some(HASH), 20, "waits for a lease", false).unwrap();
        assert_eq!((queues.held_by(HASH), queues.held_by(8)), (Some(KEY), None));
        queues.mark_held_due(8, |key| panic!("{key:?} does not name it"));
        queues.mark_held_due(HASH, |key| key == KEY);
        assert!(queues.has_held() && queues.clear_due(KEY) && !queues.is_due(OTHER));
        queues.take(10, None).unwrap();
        queues.put_back(10, "not held", false);
        assert!(!queues.has_held() && queues.held_by(HASH).is_none());
        queues.take(20, None).unwrap();
        queues.put_back(20, "held", true);
        assert_eq!(queues.held_by(HASH), Some(OTHER));
        queues.leave(20).unwrap();
        assert!(queues.held_by(HASH).is_none() && queues.has_asked(HASH));
        queues.leave(10).unwrap();
        assert!(!queues.has_held() && !queues.has_asked(HASH));
    }

    #[test]
    fn a_handle_that_is_used_again_is_another_waiter() {
        let mut queues = Queues::default();
        let ticket = join(&mut queues, 10);
        assert!(queues.waits(10, ticket));
        queues.answered(10, None);
        assert!(!queues.waits(10, ticket));
        queues.finish(10).unwrap();
        let other = join(&mut queues, 10);
        assert!(queues.take(10, Some(ticket)).is_none() && !queues.waits(10, ticket));
        assert!(queues.waits(10, other) && queues.take(10, Some(other)).is_some());
    }

    #[test]
    fn waiters_for_a_filter_or_an_item_are_scheduled() {
        let mut queues = queues(&[10, 20]);
        assert!(queues.has_asked(ROW.filter) && queues.has_asked(ROW.item) && !queues.has_asked(KEY.table_hash()));
        queues.answered(10, None);
        for what in [ROW.filter, ROW.item] {
            queues.mark_asking_due(what, |key| key == KEY);
            assert!(queues.clear_due(KEY));
        }
        queues.mark_asking_due(KEY.table_hash(), |key| panic!("{key:?} is not asked for"));
        queues.leave(20);
        assert!(!queues.has_asked(ROW.filter) && !queues.has_asked(ROW.item));
    }

    #[test]
    fn a_queue_is_marked_once_and_only_if_it_was_scheduled() {
        let mut queues = queues(&[10]);
        queues.mark_due(KEY, 0, || false);
        assert!(!queues.is_due(KEY));
        queues.mark_due(KEY, 0, || true);
        queues.mark_due(KEY, 0, || panic!("it is marked"));
        queues.mark_all_due(|_| panic!("it is marked"));
        assert!(queues.clear_due(KEY) && !queues.clear_due(KEY));
        queues.mark_all_due(|key| key == KEY);
        assert!(queues.is_due(KEY));
        queues.mark_due(OTHER, 0, || panic!("it has no waiters"));
    }

    #[test]
    fn a_mark_is_for_all_waiters_that_any_mark_was_for() {
        let mut queues = queues(&[10]);
        for (marks, from) in [(&[7][..], 7), (&[7, 0], 0), (&[0, 7], 0), (&[9, 7], 7)] {
            marks.iter().for_each(|mark| queues.mark_due(KEY, *mark, || true));
            assert!(queues.clear_due(KEY));
            assert_eq!((queues.take_from(KEY), queues.take_from(KEY)), (from, 0), "{marks:?}");
        }
    }

    #[test]
    fn waiters_that_left_do_not_fill_the_line() {
        let mut queues = queues(&[1]);
        for waiter in 2..1000 {
            join(&mut queues, waiter);
            queues.leave(waiter).unwrap();
        }
        assert!(queues.queues.get(&KEY).unwrap().line.len() < 20);
        assert_eq!(first(&mut queues), Some(1));
    }
}
