//! Filters that guard a database: adds that announce a row.

use super::{Added, Filter, Origin, Outcome};
use crate::ceiling::Ceiling;
use crate::clock::Clock;
use crate::error::Error;

impl Filter {
    /// Checks that an absent item is certain to have no row, provided that every row was announced.
    ///
    /// # Errors
    /// [`Error::CannotGuard`].
    pub const fn guards(&self) -> Result<(), Error> {
        if let Self::Counting(_) = self { Err(Error::CannotGuard) } else { Ok(()) }
    }

    /// Adds an item whose row is about to be written or has just been written. A filter that forgets then has it for a whole
    /// window from now on: the newest bucket gets it even if an older one has it.
    ///
    /// # Errors
    /// [`Error::CannotGuard`], and those of [`add`](Self::add).
    pub fn announce(
        &mut self,
        item: &[u8],
        origin: Origin,
        clock: &impl Clock,
        ceiling: &impl Ceiling,
    ) -> Result<Outcome, Error> {
        self.guards()?;
        match self {
            Self::Windowed(filter) => filter.add(item, true, origin, clock.now(), ceiling),
            filter => filter.add(item, origin, clock, ceiling),
        }
    }

    /// [`announce`](Self::announce) for up to [`BATCH`](crate::BATCH) items, in order. The filter must be one that
    /// [guards](Self::guards).
    pub fn announce_batch<'a>(
        &mut self,
        items: impl IntoIterator<Item = &'a [u8]>,
        origin: Origin,
        clock: &impl Clock,
        ceiling: &impl Ceiling,
    ) -> Added {
        match self {
            Self::Windowed(ring) => ring.add_batch(&ring.hash_batch(items), true, origin, clock.now(), ceiling),
            filter => filter.add_batch(items, origin, clock, ceiling),
        }
    }
}
