//! A segment of a set of hashes: one table of buckets. A bucket is a line of 64 bytes and the entries of its hashes. The low half
//! of `h2` selects a hash's home bucket; if that is full, the hash is stored in the next bucket with a free slot.
//!
//! A bucket's line holds the tag of each hash stored there (the low 16 bits of `h1`), their number, and a byte with a bit for
//! each of eight kinds of hashes that have overflowed past it. A search ends at a line where this bit is not set for the kind
//! of its hash. So a lookup of an absent hash reads one line, rarely a second one and hardly ever an entry. The entries follow
//! the lines, 14 bytes each: the hash without its tag. When a hash is removed, the last hash of its bucket moves into the free
//! slot, and the buckets that the removed hash overflowed recompute their kinds: there are no tombstones.
//!
//! A table has 1 to 128 buckets in steps of a quarter of a power of two (64, 80, 96, 112, 128), so that the memory of a set
//! follows its length closely: 19 to 24 bytes a hash. These are also the size classes of jemalloc.

use crate::cells::arch::{LINE_TAGS, TagLine, matches, may_have, prefetch};
use crate::cells::{BLOCK_BYTES, Blocks, Cells as _, Mover};
use crate::error::Error;
use crate::hash::ItemHash;

/// The hash that no set can hold.
pub(super) const NONE: ItemHash = ItemHash { h1: 0, h2: 0 };
/// The buckets of the largest table, 62 KiB. No growth step, not even a split, copies more.
pub(super) const BUCKETS_MAX: usize = 128;
/// The slots of a bucket.
const BUCKET_SLOTS: usize = LINE_TAGS;
/// The size of a bucket with its entries, in bytes.
pub(super) const BUCKET_BYTES: u64 = (BLOCK_BYTES + BUCKET_SLOTS * ENTRY_BYTES) as u64;
/// The hashes per bucket at which a table grows. One bucket in eight is full then.
pub(super) const BUCKET_ROOM: usize = 26;
/// The maximum number of hashes in a table, fifteen sixteenths of its slots.
pub(super) const ENTRIES_MAX: usize = most_of(BUCKETS_MAX);
/// The offsets in a line of the number of hashes in its bucket, and of the bitmap of kinds that overflowed past it.
const USED_AT: usize = 62;
const OVERFLOW_AT: usize = 63;

#[cfg(test)]
thread_local! {
    /// The number of times that this thread has read all hashes of a bucket.
    pub(crate) static BUCKETS_READ: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// An empty line.
pub(super) const NO_LINE: TagLine = [0; BLOCK_BYTES];

/// A hash without its tag.
type Entry = [u8; ENTRY_BYTES];
const ENTRY_BYTES: usize = size_of::<ItemHash>() - size_of::<u16>();

/// A table of hashes, and the number of top bits of `h1` that all of them share.
#[derive(Default)]
pub(super) struct Segment {
    /// The lines of all buckets, then their entries. `None` if there are no buckets.
    table: Option<Blocks>,
    /// 0, or one of the sizes that [`buckets_for`] returns.
    buckets: u16,
    entries: u16,
    pub(super) depth: u32,
}

const fn blocks_of(buckets: usize) -> usize {
    buckets + (buckets * BUCKET_SLOTS * ENTRY_BYTES).div_ceil(BLOCK_BYTES)
}

/// Returns the most hashes of a table with this number of buckets.
const fn most_of(buckets: usize) -> usize {
    buckets * BUCKET_SLOTS * 15 / 16
}

/// Returns a hash's tag, the low bits of `h1`. The directory uses the high bits of `h1`, and a table uses `h2`.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the low bits are the tag")]
const fn tag_of(hash: ItemHash) -> u16 {
    hash.h1 as u16
}

/// Returns the bit of a hash's kind.
#[inline]
const fn kind_of(hash: ItemHash) -> u8 {
    1 << (hash.h1 & 7)
}

/// Returns the entry of a hash: `h1` without the tag, then `h2`.
#[inline]
const fn entry_of(hash: ItemHash) -> Entry {
    let [_, _, a, b, c, d, e, f] = hash.h1.to_le_bytes();
    let [g, h, i, j, k, l, m, n] = hash.h2.to_le_bytes();
    [a, b, c, d, e, f, g, h, i, j, k, l, m, n]
}

/// Returns the hash of a tag and an entry.
const fn hash_of(tag: [u8; 2], entry: Entry) -> ItemHash {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = entry;
    let [low, high] = tag;
    ItemHash { h1: u64::from_le_bytes([low, high, a, b, c, d, e, f]), h2: u64::from_le_bytes([g, h, i, j, k, l, m, n]) }
}

#[inline]
const fn used(line: &TagLine) -> u8 {
    line[USED_AT]
}

#[inline]
const fn passed(line: &TagLine) -> u8 {
    line[OVERFLOW_AT]
}

/// Whether a hash may be present, judging by its home line; `false` is certain.
#[inline]
pub(super) fn may_contain(line: &TagLine, hash: ItemHash) -> bool {
    may_have(line, tag_of(hash)) | (passed(line) & kind_of(hash) != 0)
}

impl Segment {
    /// Creates an empty segment, without memory.
    pub(super) fn without_table(depth: u32) -> Self {
        Self { depth, ..Self::default() }
    }

    /// Creates an empty segment with a table of `buckets` buckets, at most [`BUCKETS_MAX`].
    pub(super) fn with_buckets(buckets: usize, depth: u32) -> Result<Self, Error> {
        let table = Blocks::zeroed(blocks_of(buckets) as u64)?;
        let buckets = u16::try_from(buckets).map_err(|_| Error::SizeOverflow)?;
        Ok(Self { table: Some(table), buckets, entries: 0, depth })
    }

    /// Returns an equal segment.
    pub(super) fn try_clone(&self) -> Result<Self, Error> {
        let copied = |table: &Blocks| {
            let mut copy = Blocks::zeroed(table.blocks())?;
            copy.bytes_mut().copy_from_slice(table.bytes());
            Ok(copy)
        };
        Ok(Self { table: self.table.as_ref().map(copied).transpose()?, ..*self })
    }

    /// Moves its table with `mover`.
    pub(super) fn relocate(&mut self, mover: &mut impl Mover) {
        if let Some(table) = &mut self.table {
            table.relocate(mover);
        }
    }

    /// The number of bytes requested from the allocator.
    pub(super) fn allocated_bytes(&self) -> u64 {
        self.table.as_ref().map_or(0, Blocks::allocated_bytes)
    }

    /// The number of buckets of its table.
    pub(super) const fn buckets(&self) -> usize {
        self.buckets as usize
    }

    /// The number of its hashes.
    pub(super) const fn entries(&self) -> usize {
        self.entries as usize
    }

    /// Whether most buckets will still have a free slot after one more hash.
    pub(super) const fn has_room(&self) -> bool {
        self.entries() < self.buckets() * BUCKET_ROOM
    }

    /// Whether it will be at most fifteen sixteenths full after one more hash.
    pub(super) const fn has_last_room(&self) -> bool {
        self.entries() < most_of(self.buckets())
    }

    /// Returns its hashes, unordered.
    pub(super) fn hashes(&self) -> impl Iterator<Item = ItemHash> {
        (0..self.buckets()).flat_map(|bucket| self.hashes_in(bucket))
    }

    /// Returns the hashes in a bucket.
    fn hashes_in(&self, bucket: usize) -> impl Iterator<Item = ItemHash> {
        #[cfg(test)]
        BUCKETS_READ.set(BUCKETS_READ.get() + 1);
        let line = self.line(bucket);
        let tags = line.map_or(&[][..], |line| line.as_chunks::<2>().0);
        let entries = self.entries_from(bucket, 0).as_chunks::<ENTRY_BYTES>().0;
        let count = usize::from(line.map_or(0, used));
        tags.iter().zip(entries).take(count).map(|(tag, entry)| hash_of(*tag, *entry))
    }

    /// Returns the home line of a hash, and prefetches it; an empty line if there is no table.
    #[inline]
    pub(super) fn fetch(&self, hash: ItemHash) -> &TagLine {
        let line = self.line(self.home(hash)).unwrap_or(&NO_LINE);
        prefetch(line.as_ptr());
        line
    }

    /// Prefetches the first entry in its home bucket that has the tag of a hash.
    pub(super) fn prefetch_entry(&self, hash: ItemHash) {
        let home = self.home(hash);
        let found = self.line(home).map_or(0, |line| matches(line, tag_of(hash), used(line)));
        if found != 0 {
            prefetch(self.entries_from(home, found.trailing_zeros() as usize).as_ptr());
        }
    }

    #[inline]
    pub(super) fn contains(&self, hash: ItemHash) -> bool {
        self.find(hash).is_some()
    }

    /// Returns the bucket and the slot of a present hash.
    #[inline]
    fn find(&self, hash: ItemHash) -> Option<(usize, usize)> {
        let mut bucket = self.home(hash);
        for _ in 0..self.buckets {
            let line = self.line(bucket)?;
            let mut found = matches(line, tag_of(hash), used(line));
            while found != 0 {
                let slot = found.trailing_zeros() as usize;
                if self.entries_from(bucket, slot).first_chunk() == Some(&entry_of(hash)) {
                    return Some((bucket, slot));
                }
                found &= found - 1;
            }
            if passed(line) & kind_of(hash) == 0 {
                return None;
            }
            bucket = self.after(bucket);
        }
        None
    }

    /// Adds an absent hash. Returns whether there was a slot for it.
    pub(super) fn put(&mut self, hash: ItemHash) -> bool {
        self.put_all(std::iter::once(hash)) == 1
    }

    /// Adds absent hashes as long as there are slots. Returns their number.
    #[inline]
    pub(super) fn put_all(&mut self, hashes: impl Iterator<Item = ItemHash>) -> usize {
        let (buckets, before) = (self.buckets(), self.entries());
        let bytes = self.table.as_mut().map_or(&mut [][..], |table| table.bytes_mut());
        let (lines, entries) = bytes.split_at_mut_checked(buckets * BLOCK_BYTES).unwrap_or_default();
        let (lines, entries) = (lines.as_chunks_mut::<BLOCK_BYTES>().0, entries.as_chunks_mut::<ENTRY_BYTES>().0);
        let mut added = 0;
        for hash in hashes.take(buckets * BUCKET_SLOTS - before) {
            let mut bucket = home_of(hash, buckets);
            while let Some(line) = lines.get_mut(bucket) {
                let slot = usize::from(used(line));
                if slot < BUCKET_SLOTS {
                    line[USED_AT] += 1;
                    let tag = line.as_chunks_mut::<2>().0.get_mut(slot);
                    if let (Some(tag), Some(entry)) = (tag, entries.get_mut(bucket * BUCKET_SLOTS + slot)) {
                        (*tag, *entry) = (tag_of(hash).to_le_bytes(), entry_of(hash));
                    }
                    break;
                }
                line[OVERFLOW_AT] |= kind_of(hash);
                bucket = if bucket + 1 < buckets { bucket + 1 } else { 0 };
            }
            added += 1;
        }
        self.entries = u16::try_from(before + added).unwrap_or(u16::MAX);
        added
    }

    /// Removes a hash. Returns whether it was present. Frees the table of an empty segment.
    pub(super) fn take(&mut self, hash: ItemHash) -> bool {
        let Some((bucket, slot)) = self.find(hash) else { return false };
        self.entries -= 1;
        if self.entries == 0 {
            *self = Self::without_table(self.depth);
            return true;
        }
        self.close_gap(bucket, slot);
        let mut earlier = self.home(hash);
        while earlier != bucket {
            let kinds = self.overflow_bits(earlier);
            if let Some(line) = self.line_mut(earlier) {
                line[OVERFLOW_AT] = kinds;
            }
            earlier = self.after(earlier);
        }
        true
    }

    /// Computes the kinds of the hashes that overflowed past a bucket, from where they are stored.
    fn overflow_bits(&self, bucket: usize) -> u8 {
        let (mut kinds, mut at) = (0, bucket);
        for distance in 1..self.buckets() {
            if self.line(at).is_none_or(|line| passed(line) == 0) {
                break;
            }
            at = self.after(at);
            let came_by = |hash: &ItemHash| self.distance(self.home(*hash), at) >= distance;
            kinds = self.hashes_in(at).filter(came_by).fold(kinds, |kinds, hash| kinds | kind_of(hash));
        }
        kinds
    }

    /// Moves the last hash of a bucket to a slot that became free.
    fn close_gap(&mut self, bucket: usize, slot: usize) {
        let Some(line) = self.line_mut(bucket) else { return };
        line[USED_AT] = used(line).saturating_sub(1);
        let last = usize::from(used(line));
        let tag = line.as_chunks::<2>().0.get(last).copied();
        let entry = self.entries_from(bucket, last).first_chunk().copied();
        if let (Some(tag), Some(entry)) = (tag, entry) {
            self.fill(bucket, slot, hash_of(tag, entry));
        }
    }

    /// Writes a hash into a slot of a bucket.
    fn fill(&mut self, bucket: usize, slot: usize, hash: ItemHash) {
        if let Some(tag) = self.line_mut(bucket).and_then(|line| line.as_chunks_mut::<2>().0.get_mut(slot)) {
            *tag = tag_of(hash).to_le_bytes();
        }
        let at = self.entry_at(bucket, slot);
        let bytes = self.table.as_mut().and_then(|table| table.bytes_mut().get_mut(at..at + ENTRY_BYTES));
        bytes.unwrap_or_default().copy_from_slice(&entry_of(hash));
    }

    /// Returns the bytes of the table from an entry on.
    #[inline]
    fn entries_from(&self, bucket: usize, slot: usize) -> &[u8] {
        let bytes = self.table.as_ref().map_or(&[][..], |table| table.bytes());
        bytes.get(self.entry_at(bucket, slot)..).unwrap_or_default()
    }

    /// Returns the offset of an entry in the table, in bytes.
    #[inline]
    fn entry_at(&self, bucket: usize, slot: usize) -> usize {
        self.buckets() * BLOCK_BYTES + (bucket * BUCKET_SLOTS + slot) * ENTRY_BYTES
    }

    #[inline]
    fn line(&self, bucket: usize) -> Option<&TagLine> {
        self.table.as_ref().map(|table| table.block(bucket as u64))
    }

    #[inline]
    fn line_mut(&mut self, bucket: usize) -> Option<&mut TagLine> {
        self.table.as_mut().map(|table| table.block_mut(bucket as u64))
    }

    /// Returns the bucket where the search for a hash begins; 0 without a table, which has no bucket 0.
    #[inline]
    const fn home(&self, hash: ItemHash) -> usize {
        home_of(hash, self.buckets())
    }

    /// Returns the next bucket, cyclically.
    #[inline]
    const fn after(&self, bucket: usize) -> usize {
        if bucket + 1 < self.buckets() { bucket + 1 } else { 0 }
    }

    /// Returns the number of steps from one bucket to another, cyclically.
    const fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.buckets() - from }
    }
}

/// Returns a hash's home among this number of buckets.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the low half selects, and the product is below the buckets")]
const fn home_of(hash: ItemHash, buckets: usize) -> usize {
    ((hash.h2 as u32 as u64 * buckets as u64) >> 32) as usize
}

/// Returns the number of buckets of the smallest table with room for `entries` hashes; [`BUCKETS_MAX`] if no table is that large.
pub(super) const fn buckets_for(entries: usize) -> usize {
    let least = entries.div_ceil(BUCKET_ROOM);
    if least <= 4 {
        return if least == 0 { 1 } else { least };
    }
    let size = least.next_multiple_of(1 << (least.ilog2() - 2));
    if size < BUCKETS_MAX { size } else { BUCKETS_MAX }
}
