//! A chain whose cells count: every add counts, and what was added can be taken back. It has one layer, for what is to be
//! counted down has to be where it was counted up.

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
    /// Counts an item, whether it is in or not.
    ///
    /// # Errors
    /// [`Error::Full`]; the filter is then as it was.
    #[inline]
    pub(crate) fn count_up(&mut self, hash: HashOf<R>) -> Result<Outcome, Error> {
        let newest = self.layers.last_mut().filter(|newest| !newest.is_full()).ok_or(Error::Full)?;
        let probe = newest.probe(hash);
        let was_in = newest.contains(probe);
        newest.insert(probe);
        Ok(if was_in { Outcome::Renewed } else { Outcome::New })
    }

    /// Counts the items of a batch, in order: the answers are those of counting them one by one. Every item that is counted is
    /// an effect.
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

    /// Counts down those items of a batch that are found, in order. Returns which were found.
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

    /// How often an item is in: the least of its counters, 0 to [`COUNTER_MAX`](crate::cells::COUNTER_MAX), which stands for
    /// that or more. Too high where others share all of them.
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
