//! What comes to its end by itself while somebody waits: one timer of the server's for all of it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, TryReserveError};

use super::table::{CacheKeyId, Instant};
use super::waiting::Waiter;

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Due {
    /// Records that are over are to be dropped, so that a guard that is used no more costs nothing.
    Sweep,
    /// The lease of a cache key for which somebody waits.
    Lease(CacheKeyId),
    /// The time of somebody who waits, by its ticket.
    Waiter(Waiter, u64),
}

/// What is due when. What is no longer waited for stays until then, or until there is too much of it.
#[derive(Default)]
pub struct Alarm {
    entries: BinaryHeap<Reverse<(Instant, Due)>>,
}

impl Alarm {
    /// Something is due at this moment.
    ///
    /// # Errors
    /// Where there is no memory.
    pub fn push(&mut self, at: Instant, due: Due) -> Result<(), TryReserveError> {
        self.entries.try_reserve(1)?;
        self.entries.push(Reverse((at, due)));
        Ok(())
    }

    /// When the next is due.
    pub fn next(&self) -> Option<Instant> {
        self.entries.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes out one that is due.
    pub fn take(&mut self, now: Instant) -> Option<Due> {
        if self.next()? > now {
            return None;
        }
        self.entries.pop().map(|Reverse((_, due))| due)
    }

    /// Takes out what is no longer waited for, once it may be the most: `expected` is how much is waited for at most.
    pub fn tidy(&mut self, expected: usize, is_waited_for: impl Fn(Instant, Due) -> bool) {
        if self.entries.len() > 2 * expected + 64 {
            self.entries.retain(|Reverse((at, due))| is_waited_for(*at, *due));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_comes_in_order() {
        let mut alarm = Alarm::default();
        for at in [30, 10, 20] {
            alarm.push(at, Due::Waiter(at.try_into().unwrap(), 0)).unwrap();
        }
        assert_eq!((alarm.next(), alarm.take(9)), (Some(10), None));
        assert_eq!(
            [alarm.take(20), alarm.take(20), alarm.take(20)],
            [Some(Due::Waiter(10, 0)), Some(Due::Waiter(20, 0)), None]
        );
    }

    #[test]
    fn what_nobody_waits_for_does_not_pile_up() {
        let mut alarm = Alarm::default();
        for ticket in 0..1000 {
            alarm.push(u64::MAX, Due::Waiter(1, ticket)).unwrap();
            alarm.tidy(1, |_, due| due == Due::Waiter(1, ticket));
        }
        assert!(alarm.entries.len() <= 67);
    }
}
