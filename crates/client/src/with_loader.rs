//! A guard with a loader of its own, for threads and for tasks.

use std::fmt;
use std::ops::Deref;

/// A guard with the loader of its rows, so that `get` takes only the id. `Guard::with_loader` makes it. It has the guard's other
/// methods, too: `(*users).get(id, load)` reads with another loader.
#[derive(Clone)]
pub struct WithLoader<G, F> {
    pub(crate) guard: G,
    pub(crate) load: F,
}

impl<G, F> Deref for WithLoader<G, F> {
    type Target = G;

    fn deref(&self) -> &G {
        &self.guard
    }
}

impl<G: fmt::Debug, F> fmt::Debug for WithLoader<G, F> {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        self.guard.fmt(formatter)
    }
}
