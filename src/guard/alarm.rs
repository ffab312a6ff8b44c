//! The guard's schedule: a heap of due times behind one timer of the server.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, TryReserveError};

use super::ids::KeyId;
use super::queues::WaiterId;
use super::records::Instant;

/// What is due. Entries with the same time come in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Due {
    /// Expired records are swept, so that a guard that is no longer used takes no memory.
    Sweep,
    /// The waiters of a cache key are served: its lease expired or ended, or its value changed.
    Serve(KeyId),
    /// The WAIT of a waiter, which is given by its handle and its ticket, expires.
    Deadline(WaiterId, u64),
}

/// The due times, earliest first. An entry that is no longer needed stays until its time, or until [`tidy`](Self::tidy).
#[derive(Default)]
pub struct Alarm {
    entries: BinaryHeap<Reverse<(Instant, Due)>>,
}

impl Alarm {
    /// Adds an entry.
    ///
    /// # Errors
    /// If memory is refused.
    pub fn push(&mut self, at: Instant, due: Due) -> Result<(), TryReserveError> {
        self.entries.try_reserve(1)?;
        self.entries.push(Reverse((at, due)));
        Ok(())
    }

    /// The earliest due time.
    pub fn next(&self) -> Option<Instant> {
        self.entries.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes out the earliest entry, if it is due.
    pub fn take(&mut self, now: Instant) -> Option<Due> {
        if self.next()? > now {
            return None;
        }
        self.entries.pop().map(|Reverse((_, due))| due)
    }

    /// Removes the entries that are no longer needed, once they may outnumber the others. `most` is the largest number of
    /// entries that can be needed.
    pub fn tidy(&mut self, most: usize, is_needed: impl Fn(Instant, Due) -> bool) {
        if self.entries.len() > 2 * most + 64 {
            self.entries.retain(|Reverse((at, due))| is_needed(*at, *due));
        }
    }

    /// The entries, in no order.
    #[cfg(test)]
    pub fn entries(&self) -> impl Iterator<Item = (Instant, Due)> {
        self.entries.iter().map(|Reverse(entry)| *entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_out_when_they_are_due_and_in_order() {
        let mut alarm = Alarm::default();
        for at in [30, 10, 20] {
            alarm.push(at, Due::Deadline(at.try_into().unwrap(), 0)).unwrap();
        }
        assert_eq!((alarm.next(), alarm.take(9)), (Some(10), None));
        assert_eq!(
            [alarm.take(20), alarm.take(20), alarm.take(20)],
            [Some(Due::Deadline(10, 0)), Some(Due::Deadline(20, 0)), None]
        );
    }

    #[test]
    fn unneeded_entries_do_not_pile_up() {
        let mut alarm = Alarm::default();
        for ticket in 0..1000 {
            alarm.push(u64::MAX, Due::Deadline(1, ticket)).unwrap();
            alarm.tidy(1, |_, due| due == Due::Deadline(1, ticket));
        }
        assert!(alarm.entries.len() <= 67);
    }
}
