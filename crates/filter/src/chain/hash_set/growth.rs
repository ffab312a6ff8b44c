//! The growth of a set of hashes: a segment gets a larger table, or is split in two. A failed step changes nothing.

use super::segment::{BUCKET_BYTES, BUCKET_ROOM, BUCKETS_MAX, Segment, buckets_for};
use super::{FEW_MAX, HashSet, place};
use crate::cells::BLOCK_BYTES;
use crate::error::Error;
use crate::hash::ItemHash;
use crate::memory::reserve;

/// The maximum number of bits that index the directory: 2^20 elements of 4 bytes, with segments for 3 billion hashes. There must be a
/// limit, because hashes that share more bits could not be separated by splits.
const DEPTH_MAX: u32 = 20;

/// The number of hashes by which the short list grows.
pub(super) const FEW_STEP: usize = 4;

/// The size of a list of one segment, a directory of one element, and the padding of a table.
const LISTS_BYTES: u64 = (size_of::<Segment>() + size_of::<u32>() + 2 * BLOCK_BYTES) as u64;

impl HashSet {
    /// Returns how many hashes fit in `bytes` bytes, independent of the order in which they are added. Equal limits give equal
    /// capacities, independent of the history of each set.
    ///
    /// A set that only grew takes 19 to 24 bytes per hash. A segment keeps its largest table, so a set whose hashes are constantly
    /// replaced takes about 24.
    pub(crate) const fn capacity_in(bytes: u64) -> u64 {
        let few = min(bytes / size_of::<ItemHash>() as u64, FEW_MAX as u64) / FEW_STEP as u64 * FEW_STEP as u64;
        // Small tables grow by one bucket, and are filled before they grow.
        let one_segment = min(bytes.saturating_sub(LISTS_BYTES) / BUCKET_BYTES, 8) * BUCKET_ROOM as u64;
        let many = bytes.saturating_sub(640) / 24;
        max(few, max(one_segment, many))
    }

    /// Grows until the segment of a hash has room for it, or uses the last free slots of a segment that cannot grow.
    pub(super) fn make_room(&mut self, hash: ItemHash) -> Result<(), Error> {
        loop {
            let (has_room, has_last_room) =
                self.segment_of(hash).map_or((false, false), |segment| (segment.has_room(), segment.has_last_room()));
            if has_room {
                return Ok(());
            }
            if let Err(refused) = self.grow(hash) {
                return if has_last_room { Ok(()) } else { Err(refused) };
            }
        }
    }

    fn grow(&mut self, hash: ItemHash) -> Result<(), Error> {
        match self.segment_of(hash).map(Segment::buckets) {
            None => self.begin(),
            Some(0..BUCKETS_MAX) => self.enlarge(hash),
            Some(_) => self.split(hash),
        }
    }

    /// Creates the first segment, with the hashes of the short list, and the directory with one element.
    fn begin(&mut self) -> Result<(), Error> {
        let (mut segments, mut directory) = (Vec::new(), Vec::new());
        reserve(&mut segments, 1)?;
        reserve(&mut directory, 1)?;
        let mut segment = Segment::with_buckets(1, 0)?;
        segment.put_all(self.few.iter().copied());
        let tables_bytes = segment.allocated_bytes();
        segments.push(segment);
        directory.push(0);
        *self = Self { few: Vec::new(), segments, directory, depth: 0, len: self.len, tables_bytes };
        Ok(())
    }

    /// Gives the segment of a hash its first table, or one of the next size.
    fn enlarge(&mut self, hash: ItemHash) -> Result<(), Error> {
        let segment = self.segment_of_mut(hash).ok_or(Error::Unsound)?;
        let before = segment.allocated_bytes();
        let mut larger = Segment::with_buckets(buckets_for(segment.entries() + 1), segment.depth)?;
        larger.put_all(segment.hashes());
        let after = larger.allocated_bytes();
        *segment = larger;
        self.tables_bytes = self.tables_bytes + after - before;
        Ok(())
    }

    /// Splits the segment of a hash in two by the next bit of `h1`.
    fn split(&mut self, hash: ItemHash) -> Result<(), Error> {
        let number = self.number_of(hash).ok_or(Error::Unsound)?;
        let segment = self.segments.get(number).ok_or(Error::Unsound)?;
        let (depth, before) = (segment.depth + 1, segment.allocated_bytes());
        if depth > DEPTH_MAX {
            return Err(Error::NoRoomForDeleted { entries: self.len });
        }
        let is_upper = |hash: ItemHash| place(hash, depth) & 1 == 1;
        let upper_entries = segment.hashes().filter(|hash| is_upper(*hash)).count();
        // If all hashes go to one side, the table is kept and the other side has none.
        let halves = match (segment.entries() - upper_entries, upper_entries) {
            (0, _) | (_, 0) => None,
            (lower, upper) => {
                let half = |entries: usize| Segment::with_buckets(buckets_for(entries + 1), depth);
                Some([half(lower)?, half(upper)?])
            }
        };
        let after = halves.as_ref().map_or(before, |halves| halves.iter().map(Segment::allocated_bytes).sum());
        let directory = if depth > self.depth { Some(doubled(&self.directory)?) } else { None };
        if self.segments.len() == self.segments.capacity() {
            // The list grows by an eighth, so that a long list is not copied for every segment.
            let more = 1.max(self.segments.len() / 8);
            reserve(&mut self.segments, more)?;
        }

        // From here on, nothing can fail.
        if let Some(directory) = directory {
            self.directory = directory;
            self.depth = depth;
        }
        let segment = self.segments.get_mut(number).ok_or(Error::Unsound)?;
        let upper = match halves {
            Some([mut lower, mut upper]) => {
                lower.put_all(segment.hashes().filter(|hash| !is_upper(*hash)));
                upper.put_all(segment.hashes().filter(|hash| is_upper(*hash)));
                *segment = lower;
                upper
            }
            None => {
                let empty = Segment::without_table(depth);
                segment.depth = depth;
                if upper_entries == 0 { empty } else { std::mem::replace(segment, empty) }
            }
        };
        self.tables_bytes = self.tables_bytes + after - before;
        self.enter(upper, hash)
    }

    /// Adds the upper half of a split segment to the list and the directory. `hash` belongs to either half.
    fn enter(&mut self, upper: Segment, hash: ItemHash) -> Result<(), Error> {
        let number = u32::try_from(self.segments.len()).map_err(|_| Error::Unsound)?;
        let places = 1 << self.depth.saturating_sub(upper.depth);
        let start = (place(hash, upper.depth) | 1) * places;
        self.directory.iter_mut().skip(start).take(places).for_each(|place| *place = number);
        self.segments.push(upper);
        Ok(())
    }
}

/// Returns the directory with every element duplicated.
fn doubled(directory: &[u32]) -> Result<Vec<u32>, Error> {
    let mut doubled = Vec::new();
    reserve(&mut doubled, directory.len() * 2)?;
    doubled.extend(directory.iter().flat_map(|number| [*number; 2]));
    Ok(doubled)
}

const fn min(one: u64, other: u64) -> u64 {
    if one < other { one } else { other }
}

const fn max(one: u64, other: u64) -> u64 {
    if one > other { one } else { other }
}
