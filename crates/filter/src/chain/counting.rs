//! A chain of counters: every add is counted and can be undone by a delete. It has a single layer, because a delete must
//! decrement the counters that the add incremented.

use super::Chain;
use super::outcome::{Added, Outcome};
use super::rules::{HashOf, Rules};
use crate::error::Error;
use crate::geometry::Counting;
use crate::mask::Mask;

impl<R: Rules> Chain<R>
where
    R::Geometry: Counting,
{
    /// Counts an item, present or not.
    ///
    /// # Errors
    /// [`Error::Full`]. The filter is unchanged then.
    #[inline]
    pub(crate) fn count_up(&mut self, hash: HashOf<R>) -> Result<Outcome, Error> {
        let newest = self.layers.last_mut().filter(|newest| !newest.is_full()).ok_or(Error::Full)?;
        let probe = newest.probe(hash);
        let was_in = newest.contains(probe);
        newest.insert(probe);
        Ok(if was_in { Outcome::Renewed } else { Outcome::New })
    }

    /// Counts the items of a batch, in order, with the answers of counting them one by one. Every counted item is an effect.
    pub(crate) fn count_up_batch(&mut self, hashes: &[HashOf<R>]) -> Added {
        let mut added = Added::NONE;
        self.prefetch(hashes);
        for (index, hash) in hashes.iter().enumerate() {
            match self.count_up(*hash) {
                Ok(outcome) => added.new.insert_if(index, outcome == Outcome::New),
                Err(error) => {
                    added.error = Some(error);
                    break;
                }
            }
            added.done = index + 1;
        }
        added.effect = Mask::first(added.done);
        added
    }

    /// Decrements the counters of the items of a batch that are found, in order. Returns those items.
    pub(crate) fn count_down_batch(&mut self, hashes: &[HashOf<R>]) -> Mask {
        let mut found = Mask::NONE;
        self.prefetch(hashes);
        let Some(newest) = self.layers.last_mut() else { return found };
        for (index, hash) in hashes.iter().enumerate() {
            let probe = newest.probe(*hash);
            if newest.contains(probe) {
                newest.remove(probe);
                found.insert(index);
            }
        }
        found
    }

    /// Returns how often an item is present: the minimum of its counters, 0 to [`COUNTER_MAX`](crate::cells::COUNTER_MAX),
    /// which means that number or more. It is too high if other items share all of its counters.
    #[inline]
    pub(crate) fn least(&self, hash: HashOf<R>) -> u8 {
        self.layers.last().map_or(0, |newest| newest.least(newest.probe(hash)))
    }

    #[inline]
    fn prefetch(&self, hashes: &[HashOf<R>]) {
        if let Some(newest) = self.layers.last() {
            newest.prefetch(hashes, Mask::first(hashes.len()));
        }
    }
}
