//! What a primary added to a native filter, or a server that wrote its AOF: it is added here, unasked.

use super::BloomFilter;
use crate::ceiling::{Beside, Ceiling};
use crate::error::Error;
use crate::hash::ItemHash;
use crate::mask::{BATCH, Mask};
use crate::shape::{Added, WhenFull};

impl BloomFilter {
    /// Adds and counts up to [`BATCH`] items (the rest of a longer list is not looked at), in order, but for those of the mask
    /// `done`: every one is new. One that was deleted has its bits, and is counted: only its entry goes.
    #[cold]
    #[inline(never)]
    pub(crate) fn obey_batch(
        &mut self,
        hashes: &[ItemHash],
        done: Mask,
        when_full: WhenFull,
        ceiling: &impl Ceiling,
    ) -> Added {
        let wanted = Mask::first(hashes.len()) - done;
        let deleted = self.deleted().map_or(Mask::NONE, |table| table.contains_batch(hashes, wanted));
        self.chain().prefetch_newest(hashes, wanted - deleted);
        let mut added = Added { new: Mask::NONE, effect: Mask::NONE, done: 0, error: None };
        for (index, hash) in hashes.iter().take(BATCH).enumerate() {
            if wanted.contains(index) {
                if let Err(error) = self.obey(*hash, deleted.contains(index), when_full, ceiling) {
                    added.error = Some(error);
                    break;
                }
                added.new.insert(index);
            }
            added.done = index + 1;
        }
        added.effect = added.new;
        added
    }

    /// Adds and counts the item with this hash, whose entry goes where it `was_deleted` and that has not happened since.
    #[inline]
    fn obey(
        &mut self,
        hash: ItemHash,
        was_deleted: bool,
        when_full: WhenFull,
        ceiling: &impl Ceiling,
    ) -> Result<(), Error> {
        if was_deleted && self.restore(hash) {
            return Ok(());
        }
        let entries_bytes = self.entries_bytes();
        let beside = Beside { ceiling, other_bytes: || entries_bytes };
        self.chain_mut().insert_hash(hash, when_full, &beside)
    }
}
