//! How a set of hashes grows: a part doubles, or splits in two. Each step is made as a whole or not at all.

use super::part::{BUCKETS_MAX, Part, buckets_for, table_bytes};
use super::{FEW_MAX, HashSet, place};
use crate::error::Error;
use crate::hash::ItemHash;
use crate::memory::reserve;

/// The most bits that a directory goes by: 2^20 places of 4 bytes, parts for 3 billion hashes. A limit, because hashes that
/// share more bits than that would split for ever.
const DEPTH_MAX: u32 = 20;

/// What a list of parts or a directory is made of.
const PART_BYTES: usize = size_of::<Part>();
const PLACE_BYTES: usize = size_of::<u32>();

impl HashSet {
    /// Grows until the part of a hash has room for it, or takes the last room of a part that cannot grow.
    pub(super) fn make_room(&mut self, hash: ItemHash, limit_bytes: u64) -> Result<(), Error> {
        loop {
            let (has_room, has_last_room) =
                self.part_of(hash).map_or((false, false), |part| (part.has_room(), part.has_last_room()));
            if has_room {
                return Ok(());
            }
            if let Err(refused) = self.grow(hash, limit_bytes) {
                return if has_last_room { Ok(()) } else { Err(refused) };
            }
        }
    }

    fn grow(&mut self, hash: ItemHash, limit_bytes: u64) -> Result<(), Error> {
        match self.part_of(hash).map(Part::buckets) {
            None => self.begin(limit_bytes),
            Some(0..BUCKETS_MAX) => self.double(hash, limit_bytes),
            Some(_) => self.split(hash, limit_bytes),
        }
    }

    /// Gives the list of a few hashes room for more of them: twice as many, or as many as the limit has room for.
    pub(super) fn lengthen(&mut self, limit_bytes: u64) -> Result<(), Error> {
        let (count, limit) = (self.few.len(), usize::try_from(limit_bytes).unwrap_or(usize::MAX));
        let capacity = (count * 2).clamp(1, FEW_MAX).min(limit / size_of::<ItemHash>());
        if capacity <= count {
            return Err(Error::NoRoomForDeleted { entries: self.len });
        }
        reserve(&mut self.few, capacity - count)
    }

    /// Makes the first part, of the few hashes that there are, and the directory's only place.
    fn begin(&mut self, limit_bytes: u64) -> Result<(), Error> {
        let bytes = PART_BYTES + PLACE_BYTES + table_bytes(1);
        if bytes as u64 > limit_bytes {
            return Err(Error::NoRoomForDeleted { entries: self.len });
        }
        let (mut parts, mut directory) = (Vec::new(), Vec::new());
        reserve(&mut parts, 1)?;
        reserve(&mut directory, 1)?;
        let mut part = Part::with_buckets(1, 0)?;
        self.few.iter().for_each(|hash| _ = part.put(*hash));
        let tables_bytes = part.allocated_bytes();
        parts.push(part);
        directory.push(0);
        *self = Self { few: Vec::new(), parts, directory, depth: 0, len: self.len, tables_bytes };
        Ok(())
    }

    /// Gives the part of a hash a table twice as large, or its first.
    fn double(&mut self, hash: ItemHash, limit_bytes: u64) -> Result<(), Error> {
        let part = self.part_of(hash).ok_or(Error::Unsound)?;
        let (buckets, before) = (1.max(part.buckets() * 2), part.allocated_bytes());
        self.check(table_bytes(buckets) as u64, before, limit_bytes)?;
        let part = self.part_of_mut(hash).ok_or(Error::Unsound)?;
        let mut larger = Part::with_buckets(buckets, part.depth)?;
        part.hashes().for_each(|hash| _ = larger.put(hash));
        let after = larger.allocated_bytes();
        *part = larger;
        self.tables_bytes = self.tables_bytes + after - before;
        Ok(())
    }

    /// Splits the part of a hash in two by the next bit of `h1`.
    fn split(&mut self, hash: ItemHash, limit_bytes: u64) -> Result<(), Error> {
        let number = self.number_of(hash).ok_or(Error::Unsound)?;
        let part = self.parts.get(number).ok_or(Error::Unsound)?;
        let (depth, before) = (part.depth + 1, part.allocated_bytes());
        if depth > DEPTH_MAX {
            return Err(Error::NoRoomForDeleted { entries: self.len });
        }
        let is_upper = |hash: ItemHash| place(hash, depth) & 1 == 1;
        let upper_entries = part.hashes().filter(|hash| is_upper(*hash)).count();
        // Where all are on one side the table stays as it is, and the other side has none.
        let tables = match (part.entries() - upper_entries, upper_entries) {
            (0, _) | (_, 0) => None,
            (lower, upper) => Some([buckets_for(lower + 1), buckets_for(upper + 1)]),
        };
        let most = tables.map_or(before, |[lower, upper]| (table_bytes(lower) + table_bytes(upper)) as u64);
        let doubles_directory = depth > self.depth;
        let places = if doubles_directory { self.directory.len() } else { 0 };
        let more_parts = if self.parts.len() == self.parts.capacity() { more_parts(self.parts.len()) } else { 0 };
        let lists_bytes = places * PLACE_BYTES + more_parts * PART_BYTES;
        self.check(most + lists_bytes as u64, before, limit_bytes)?;

        let halves = match tables {
            Some([lower, upper]) => Some([Part::with_buckets(lower, depth)?, Part::with_buckets(upper, depth)?]),
            None => None,
        };
        let after = halves.as_ref().map_or(before, |halves| halves.iter().map(Part::allocated_bytes).sum());
        let directory = if doubles_directory { Some(doubled(&self.directory)?) } else { None };
        reserve(&mut self.parts, more_parts)?;

        // From here on nothing can be refused.
        if let Some(directory) = directory {
            self.directory = directory;
            self.depth = depth;
        }
        let part = self.parts.get_mut(number).ok_or(Error::Unsound)?;
        let upper = match halves {
            Some([mut lower, mut upper]) => {
                part.hashes().for_each(|hash| _ = if is_upper(hash) { upper.put(hash) } else { lower.put(hash) });
                *part = lower;
                upper
            }
            None => {
                let empty = Part::without_table(depth);
                part.depth = depth;
                if upper_entries == 0 { empty } else { std::mem::replace(part, empty) }
            }
        };
        self.tables_bytes = self.tables_bytes + after - before;
        self.enter(upper, hash)
    }

    /// Adds the upper half of a part that was split to the list and the directory. `hash` is one of either half.
    fn enter(&mut self, upper: Part, hash: ItemHash) -> Result<(), Error> {
        let number = u32::try_from(self.parts.len()).map_err(|_| Error::Unsound)?;
        let places = 1 << self.depth.saturating_sub(upper.depth);
        let start = (place(hash, upper.depth) | 1) * places;
        self.directory.iter_mut().skip(start).take(places).for_each(|place| *place = number);
        self.parts.push(upper);
        Ok(())
    }

    /// Whether so many more bytes in the place of some are within the limit.
    fn check(&self, more_bytes: u64, fewer_bytes: u64, limit_bytes: u64) -> Result<(), Error> {
        let bytes = self.allocated_bytes().saturating_add(more_bytes).saturating_sub(fewer_bytes);
        if bytes > limit_bytes { Err(Error::NoRoomForDeleted { entries: self.len }) } else { Ok(()) }
    }
}

/// For how many more parts a full list gets room: an eighth, so that it is not copied for every part.
fn more_parts(parts: usize) -> usize {
    1.max(parts / 8)
}

/// The directory with every place twice.
fn doubled(directory: &[u32]) -> Result<Vec<u32>, Error> {
    let mut doubled = Vec::new();
    reserve(&mut doubled, directory.len() * 2)?;
    doubled.extend(directory.iter().flat_map(|number| [*number; 2]));
    Ok(doubled)
}
