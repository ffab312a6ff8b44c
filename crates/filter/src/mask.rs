//! A subset of a batch: a set of indices, one bit each.

use std::ops::{BitAnd, BitOr, BitOrAssign, Sub};

/// The number of items that are hashed and prefetched together: enough to keep many cache misses in flight, few enough that the
/// first lines are still in the cache when they are used.
pub const BATCH: usize = 32;

/// A set of items of a batch, by index, 0 to [`BATCH`] - 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mask(u32);

impl Mask {
    /// No item.
    pub const NONE: Self = Self(0);

    /// The first `count` items; all items if `count` is at least [`BATCH`].
    #[inline]
    pub const fn first(count: usize) -> Self {
        if count >= BATCH { Self(u32::MAX) } else { Self((1 << count) - 1) }
    }

    /// Whether an item is in the set; false for an index past the batch.
    #[inline]
    pub const fn contains(self, index: usize) -> bool {
        index < BATCH && self.0 & (1 << index) != 0
    }

    /// Whether each of the first `count` items is in the set, in order.
    #[inline]
    pub fn each(self, count: usize) -> impl Iterator<Item = bool> {
        let mut left = self.0;
        (0..count).map(move |_| {
            let is_in = left & 1 != 0;
            left >>= 1;
            is_in
        })
    }

    /// Inserts an item; ignores an index past the batch.
    #[inline]
    pub(crate) const fn insert(&mut self, index: usize) {
        self.insert_if(index, true);
    }

    /// Inserts an item if the condition holds, without a branch that could be mispredicted.
    #[inline]
    pub const fn insert_if(&mut self, index: usize, condition: bool) {
        if index < BATCH {
            self.0 |= (condition as u32) << index;
        }
    }

    /// Whether no item is in the set.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The number of items in the set.
    #[inline]
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// The lowest index in the set; past the batch if the set is empty.
    #[inline]
    pub(crate) const fn lowest(self) -> usize {
        self.0.trailing_zeros() as usize
    }

    /// Returns the set if the condition holds, else the empty set, without a branch that could be mispredicted.
    #[inline]
    #[must_use]
    pub fn only_if(self, condition: bool) -> Self {
        Self(std::hint::select_unpredictable(condition, self.0, 0))
    }

    /// Returns the items of a list that are in the set, in order, each with a mask of that item only.
    #[inline]
    pub(crate) fn each_of<T: Copy>(self, items: &[T]) -> impl Iterator<Item = (Self, T)> {
        let mut left = self.0;
        let items = items.get(..BATCH).unwrap_or(items);
        std::iter::from_fn(move || {
            // For an empty set, this index is past the batch.
            let item = *items.get(left.trailing_zeros() as usize)?;
            let lowest = left & left.wrapping_neg();
            left ^= lowest;
            Some((Self(lowest), item))
        })
    }
}

/// The items of both sets.
impl BitAnd for Mask {
    type Output = Self;

    #[inline]
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// The items of one or the other set.
impl BitOr for Mask {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Mask {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// The items of the first set that are not in the second.
impl Sub for Mask {
    type Output = Self;

    #[inline]
    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_a_set_of_indices() {
        // A list that is longer than a batch.
        let list: Vec<usize> = (0..1000).collect();
        let indices = |mask: Mask| mask.each_of(&list).map(|(_, index)| index).collect::<Vec<_>>();
        let mut mask = Mask::NONE;
        assert!(mask.is_empty());
        for index in [0, 5, 31, 32, 1000] {
            mask.insert(index);
        }
        mask.insert_if(7, false);
        assert_eq!(indices(mask), [0, 5, 31]);
        assert!(mask.each_of(&list).all(|(item, index)| item.len() == 1 && item.contains(index)));
        assert_eq!((mask.only_if(true), mask.only_if(false)), (mask, Mask::NONE));
        assert_eq!(mask.len(), 3);
        assert!(mask.contains(31) && !mask.contains(7) && !mask.contains(32));
        assert_eq!(indices(mask - Mask::first(6)), [31]);
        assert_eq!(indices(mask & Mask::first(6)), [0, 5]);
        assert_eq!(Mask::first(BATCH).len(), 32);
        assert_eq!(Mask::first(0) | Mask::first(100), Mask::first(32));
    }
}
