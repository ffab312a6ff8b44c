//! The keys whose values have pending adds: their databases and names, by which a timer opens them as a command does.
//!
//! A value that was moved to another name is not found here any more. Its pending adds stay, and lookups find them; the next write to it
//! lists it under its new name.

use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A key: its database and its name.
pub type Listed = (c_int, Vec<u8>);

/// In ascending order, none twice. Only the thread that has the server's lock uses it.
static LIST: Mutex<Vec<Listed>> = Mutex::new(Vec::new());

fn list() -> MutexGuard<'static, Vec<Listed>> {
    LIST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a key, unless it is listed. If memory runs out it is not: then the next write to it tries again.
#[cold]
#[inline(never)]
pub fn insert(database: c_int, name: &[u8]) {
    let mut list = list();
    let place = list.binary_search_by(|(other, listed)| other.cmp(&database).then_with(|| listed.as_slice().cmp(name)));
    let mut copy = Vec::new();
    if let Err(place) = place
        && list.try_reserve(1).is_ok()
        && copy.try_reserve_exact(name.len()).is_ok()
    {
        copy.extend_from_slice(name);
        list.insert(place, (database, copy));
    }
}

/// Removes the last key and returns it.
pub fn take_last() -> Option<Listed> {
    list().pop()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_listed_once() {
        for (database, name) in [(0, "b"), (1, "a"), (0, "a"), (0, "b"), (1, "a"), (-1, "c")] {
            insert(database, name.as_bytes());
        }
        let taken: Vec<Listed> = std::iter::from_fn(take_last).collect();
        assert_eq!(taken, [(1, "a"), (0, "b"), (0, "a"), (-1, "c")].map(|(database, name)| (database, name.into())));
    }
}
