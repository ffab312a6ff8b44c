//! Who waits for a value that somebody else loads: a queue for each cache key, first come, first served.
//!
//! When a lease comes to an end without a value, the one who waited longest has the turn: it is woken, and looks again. Until
//! it has, nobody else takes the lease. What it finds decides: with a lease of its own the others go on waiting, with a value
//! they are all woken.

use std::collections::{HashMap, TryReserveError, VecDeque};

use super::table::{ByHash, CacheKeyId};

/// Whoever waits, by the server's handle of a blocked client.
pub type Waiter = usize;

/// How somebody waits.
#[derive(Clone, Copy, Debug)]
struct State {
    key: CacheKeyId,
    /// Tells it from others with the same handle, which came before.
    ticket: u64,
    is_woken: bool,
}

/// Those who wait for one cache key.
#[derive(Default)]
struct Queue {
    /// In the order in which they came. Who left is taken out when it comes to the front, or when most have left.
    line: VecDeque<(Waiter, u64)>,
    /// How many of them wait, the one that has the turn not among them.
    waiting: usize,
    /// Who has the turn.
    turn: Option<u64>,
}

/// All queues.
#[derive(Default)]
pub struct Queues {
    queues: ByHash<CacheKeyId, Queue>,
    waiters: HashMap<Waiter, State>,
    next_ticket: u64,
}

/// Somebody who waits no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// For which cache key.
    pub key: CacheKeyId,
    /// Whether it was woken: the server has its handle back then.
    pub was_woken: bool,
    /// Whether it had the turn.
    pub had_turn: bool,
}

impl Queues {
    /// Somebody waits for a cache key from now on. Answers with a ticket.
    ///
    /// # Errors
    /// Where there is no memory. Nothing has changed then.
    pub fn join(&mut self, key: CacheKeyId, waiter: Waiter) -> Result<u64, TryReserveError> {
        self.waiters.try_reserve(1)?;
        self.queues.try_reserve(1)?;
        let queue = self.queues.entry(key).or_default();
        if let Err(refused) = queue.line.try_reserve(1) {
            if queue.is_over() {
                self.queues.remove(&key);
            }
            return Err(refused);
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        queue.line.push_back((waiter, ticket));
        queue.waiting += 1;
        self.waiters.insert(waiter, State { key, ticket, is_woken: false });
        Ok(ticket)
    }

    /// Whether somebody waits for a cache key, or has the turn.
    pub fn has(&self, key: CacheKeyId) -> bool {
        self.queues.contains_key(&key)
    }

    /// Whether somebody has the turn for a cache key.
    pub fn has_turn(&self, key: CacheKeyId) -> bool {
        self.queues.get(&key).is_some_and(|queue| queue.turn.is_some())
    }

    /// Gives the one who waited longest for a cache key the turn, where nobody has it: it is to be woken.
    pub fn give_turn(&mut self, key: CacheKeyId) -> Option<Waiter> {
        if self.has_turn(key) {
            return None;
        }
        let (waiter, ticket) = self.wake_first(key)?;
        self.queues.get_mut(&key)?.turn = Some(ticket);
        Some(waiter)
    }

    /// The next of those who wait for a cache key: it is to be woken. The one who has the turn is awake already.
    pub fn wake_next(&mut self, key: CacheKeyId) -> Option<Waiter> {
        self.wake_first(key).map(|(waiter, _)| waiter)
    }

    /// Somebody whose time is over is to be woken; not where it is awake or has left.
    pub fn wake_late(&mut self, waiter: Waiter, ticket: u64) -> bool {
        let state = self.waiters.get_mut(&waiter).filter(|state| state.ticket == ticket && !state.is_woken);
        let Some(state) = state else { return false };
        state.is_woken = true;
        let key = state.key;
        self.one_less(key);
        true
    }

    /// Somebody looks again, or has gone away.
    pub fn leave(&mut self, waiter: Waiter) -> Option<Left> {
        let State { key, ticket, is_woken, .. } = self.waiters.remove(&waiter)?;
        if !is_woken {
            self.one_less(key);
        }
        let mut had_turn = false;
        if let Some(queue) = self.queues.get_mut(&key) {
            had_turn = queue.turn.take_if(|turn| *turn == ticket).is_some();
            if queue.is_over() {
                self.queues.remove(&key);
            }
        }
        Some(Left { key, was_woken: is_woken, had_turn })
    }

    /// Whether somebody waits and is not awake.
    pub fn waits(&self, waiter: Waiter, ticket: u64) -> bool {
        self.waiters.get(&waiter).is_some_and(|state| state.ticket == ticket && !state.is_woken)
    }

    /// The cache keys for which somebody waits; none where there is no memory for the list: they wait until their time is
    /// over.
    pub fn cache_keys(&self) -> Vec<CacheKeyId> {
        let mut keys = Vec::new();
        if keys.try_reserve_exact(self.queues.len()).is_ok() {
            keys.extend(self.queues.keys().copied());
        }
        keys
    }

    /// How many wait, or are awake and have not looked yet.
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Marks the first of a queue who waits as woken.
    fn wake_first(&mut self, key: CacheKeyId) -> Option<(Waiter, u64)> {
        let queue = self.queues.get_mut(&key)?;
        while let Some((waiter, ticket)) = queue.line.pop_front() {
            let state = self.waiters.get_mut(&waiter).filter(|state| state.ticket == ticket && !state.is_woken);
            if let Some(state) = state {
                state.is_woken = true;
                queue.waiting -= 1;
                return Some((waiter, ticket));
            }
        }
        None
    }

    /// Somebody of a queue waits no longer, whose place in the line stays for now.
    fn one_less(&mut self, key: CacheKeyId) {
        let Some(queue) = self.queues.get_mut(&key) else { return };
        queue.waiting -= 1;
        if queue.is_over() {
            self.queues.remove(&key);
        } else if queue.line.len() > 2 * queue.waiting + 16 {
            let waiters = &self.waiters;
            let waits = |state: &State, ticket| state.ticket == ticket && !state.is_woken;
            queue.line.retain(|(waiter, ticket)| waiters.get(waiter).is_some_and(|state| waits(state, *ticket)));
        }
    }
}

impl Queue {
    const fn is_over(&self) -> bool {
        self.waiting == 0 && self.turn.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: CacheKeyId = CacheKeyId { database: 0, name: [1, 2] };

    fn queues(waiters: &[Waiter]) -> Queues {
        let mut queues = Queues::default();
        for waiter in waiters {
            queues.join(KEY, *waiter).unwrap();
        }
        queues
    }

    #[test]
    fn the_turn_goes_from_one_to_the_next() {
        let mut queues = queues(&[10, 20, 30]);
        assert_eq!(queues.give_turn(KEY), Some(10));
        assert_eq!(queues.give_turn(KEY), None, "it is taken");
        assert_eq!(queues.leave(10), Some(Left { key: KEY, was_woken: true, had_turn: true }));
        assert_eq!(queues.give_turn(KEY), Some(20));
        assert!(queues.leave(20).unwrap().had_turn);
        // The next leaves before its turn comes.
        assert_eq!(queues.leave(30), Some(Left { key: KEY, was_woken: false, had_turn: false }));
        assert_eq!(queues.give_turn(KEY), None);
        assert!(!queues.has(KEY) && queues.len() == 0);
    }

    #[test]
    fn all_are_woken_but_the_one_who_is_awake() {
        let mut queues = queues(&[10, 20, 30]);
        assert_eq!(queues.give_turn(KEY), Some(10));
        assert_eq!([queues.wake_next(KEY), queues.wake_next(KEY), queues.wake_next(KEY)], [Some(20), Some(30), None]);
        assert!(queues.has_turn(KEY));
        assert!([20, 30].into_iter().all(|waiter| !queues.leave(waiter).unwrap().had_turn));
        assert!(queues.leave(10).unwrap().had_turn);
        assert!(!queues.has(KEY));
    }

    #[test]
    fn whose_time_is_over_is_woken_once() {
        let mut queues = Queues::default();
        let ticket = queues.join(KEY, 10).unwrap();
        assert!(queues.waits(10, ticket));
        assert!(queues.wake_late(10, ticket) && !queues.wake_late(10, ticket));
        assert_eq!(queues.give_turn(KEY), None);
        assert_eq!(queues.leave(10), Some(Left { key: KEY, was_woken: true, had_turn: false }));
        // The handle comes again: the old ticket says nothing of it.
        let other = queues.join(KEY, 10).unwrap();
        assert!(!queues.wake_late(10, ticket) && !queues.waits(10, ticket));
        assert!(queues.waits(10, other));
    }

    #[test]
    fn who_left_does_not_fill_the_line() {
        let mut queues = queues(&[1]);
        for waiter in 2..1000 {
            queues.join(KEY, waiter).unwrap();
            queues.leave(waiter).unwrap();
        }
        assert!(queues.queues.get(&KEY).unwrap().line.len() < 20);
        assert_eq!(queues.wake_next(KEY), Some(1));
    }
}
