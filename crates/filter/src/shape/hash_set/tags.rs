//! The tags of a part: for every slot a byte of the hash that lies there. A search for a hash that is not in reads 64
//! bytes of them, a line or two, and in less than one of ten cases a slot. A file of its own because tags are looked at in words of
//! eight, whatever lies in the slots.

use crate::cells::prefetch::prefetch;
use crate::cells::{Mover, relocate_slice};
use crate::error::Error;
use crate::hash::ItemHash;
use crate::memory::{reserve, try_copy};

/// Tags of a word.
pub(super) const WORD_TAGS: usize = size_of::<u64>();
/// Words that are looked at together, a line of 64 bytes.
const WINDOW_WORDS: usize = 8;
/// From any slot of the first word on, so many slots after it have their tags in these words for certain.
const WINDOW_LAST: u32 = 56;
/// The slots from one to the last of these.
const WINDOW_SLOTS: usize = WINDOW_LAST as usize + 1;
/// 1 in each byte of a word.
const ONES: u64 = u64::MAX / 0xff;
/// The highest bit of each byte of a word.
const HIGHS: u64 = ONES << 7;

/// What a hash has in each byte of a word: its tag, which is not 0. That of a free slot is.
#[derive(Clone, Copy)]
pub(super) struct Tag(u64);

impl Tag {
    /// The low byte of `h1`: a part goes by the high bits of that, a slot by `h2`.
    #[inline]
    pub(super) fn of(hash: ItemHash) -> Self {
        Self((hash.h1 & 0xff).max(1) * ONES)
    }

    /// Which bytes of a word equal the tag, a bit each. No free slot does.
    #[inline]
    const fn matches(self, word: u64) -> u64 {
        // The highest bits of its bytes times this have the lowest byte's at 56, the next one's at 57, and so on.
        const GATHER: u64 = 0x0102_0408_1020_4080;
        let zero_where_equal = word ^ self.0;
        let highs = !(((zero_where_equal & !HIGHS) + !HIGHS) | zero_where_equal) & HIGHS;
        (highs >> 7).wrapping_mul(GATHER) >> 56
    }
}

/// The tags of a table.
#[derive(Default)]
pub(super) struct Tags {
    /// None, or a power of two.
    words: Box<[u64]>,
    /// No hash of the table lies, or lay, more slots after its home.
    reach: u32,
}

impl Tags {
    /// Bytes of the tags of so many slots.
    pub(super) const fn bytes(slots: usize) -> usize {
        slots.div_ceil(WORD_TAGS) * WORD_TAGS
    }

    /// The tags of so many free slots, a power of two or none.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn free(slots: usize) -> Result<Self, Error> {
        let (mut words, count) = (Vec::new(), slots.div_ceil(WORD_TAGS));
        reserve(&mut words, count)?;
        words.resize(count, 0);
        Ok(Self { words: words.into_boxed_slice(), reach: 0 })
    }

    /// Equal tags.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn try_clone(&self) -> Result<Self, Error> {
        Ok(Self { words: try_copy(&self.words)?, reach: self.reach })
    }

    /// Lets the mover move them.
    pub(super) fn relocate(&mut self, mover: &mut impl Mover) {
        relocate_slice(&mut self.words, mover);
    }

    /// Sets the tag of a slot for a hash that lies so many slots after its home.
    pub(super) fn set(&mut self, slot: usize, tag: Tag, distance: usize) {
        self.replace(slot, tag.0);
        self.reach = self.reach.max(u32::try_from(distance).unwrap_or(u32::MAX));
    }

    /// Sets the tag of a free slot.
    pub(super) fn set_free(&mut self, slot: usize) {
        self.replace(slot, 0);
    }

    fn replace(&mut self, slot: usize, tags: u64) {
        if let Some(word) = self.words.get_mut(slot / WORD_TAGS) {
            let byte = 0xff << (slot % WORD_TAGS * 8);
            *word = *word & !byte | tags & byte;
        }
    }

    /// Starts to load what [`near`](Self::near) reads.
    #[inline]
    pub(super) fn prefetch(&self, home: usize) {
        let first = self.words.as_ptr().wrapping_add(home / WORD_TAGS);
        prefetch(first.cast());
        prefetch(first.wrapping_add(WINDOW_WORDS - 1).cast());
    }

    /// Which slots from its home on, the home the lowest bit, may have a hash with this tag, of the first 57. It may also
    /// be in one after them where [`is_far`](Self::is_far).
    #[inline]
    pub(super) fn near(&self, home: usize, tag: Tag) -> u64 {
        self.window(home, tag) & first_bits(self.reach.min(WINDOW_LAST))
    }

    /// Whether a hash lies so far from its home.
    #[inline]
    pub(super) const fn is_far(&self) -> bool {
        self.reach as usize >= WINDOW_SLOTS
    }

    /// The slots where a hash with this home and tag may be, by their distance from the home.
    #[inline]
    pub(super) fn distances(&self, home: usize, tag: Tag) -> impl Iterator<Item = usize> {
        (0..=self.reach as usize).step_by(WINDOW_SLOTS).flat_map(move |start| {
            let left = u32::try_from(self.reach as usize - start).unwrap_or(u32::MAX);
            let matches = self.window(home + start, tag) & first_bits(left.min(WINDOW_LAST));
            each_bit(matches).map(move |bit| start + bit)
        })
    }

    /// Which slots from one on, that one the lowest bit, have a tag, of 57 or more.
    #[inline]
    fn window(&self, slot: usize, tag: Tag) -> u64 {
        let first = slot / WORD_TAGS;
        let there = self.words.get(first..).and_then(<[u64]>::first_chunk::<WINDOW_WORDS>).copied();
        let words = there.unwrap_or_else(|| self.wrapped(first));
        let matches = words.iter().rev().fold(0, |matches, word| matches << WORD_TAGS | tag.matches(*word));
        matches >> (slot % WORD_TAGS)
    }

    /// Words from one on, where after the last comes the first.
    #[cold]
    fn wrapped(&self, first: usize) -> [u64; WINDOW_WORDS] {
        let last = self.words.len().wrapping_sub(1);
        std::array::from_fn(|word| self.words.get((first + word) & last).copied().unwrap_or_default())
    }
}

/// The lowest bit and so many above it, at most 63.
#[inline]
const fn first_bits(more: u32) -> u64 {
    u64::MAX >> (63 - more)
}

/// The numbers of the bits of a word, lowest first.
#[inline]
pub(super) fn each_bit(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros() as usize);
        word &= word.wrapping_sub(1);
        bit
    })
}
