//! A filter that arrives in records, of any kind that has records.

use super::records::{
    self, Chunk, Content, Extent, GENERATIONS, HEADER, Stream, can_have_come, check, hashes_in, known_records,
};
use super::{Value, stored};
use crate::cells::copy_to_zeros;
use crate::codec::{Error, Progress, Sink, Source};
use crate::error;
use crate::host::{Ceiling, Unlimited};
use crate::kinds::parts::Description;
use crate::kinds::{
    ChunkArrival, Contents, Filter, RedisBloomCuckooFilter, RedisBloomFilter, ValkeyBloomFilter, chunked, redisbloom,
};

/// A record of an AOF, which restores a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AofRecord<'a> {
    /// A BF.LOADCHUNK.
    Chunk {
        /// The iterator.
        iterator: u64,
        /// The data.
        data: &'a [u8],
    },
    /// A BF.LOAD: the whole filter, as [`load`](crate::kinds::valkey_bloom::load) writes it.
    Whole(&'a ValkeyBloomFilter),
    /// A BF.LOAD of a small native filter: its data.
    Small(&'a [u8]),
}

/// A filter whose records have not all arrived. It is saved, copied and replicated as such.
#[derive(Debug, PartialEq)]
pub enum Arrival {
    /// A native, windowed or counting filter.
    Own(Arriving),
    /// A filter of RedisBloom's layout.
    RedisBloom(ChunkArrival<RedisBloomFilter>),
    /// A cuckoo filter of RedisBloom's layout.
    RedisBloomCuckoo(ChunkArrival<RedisBloomCuckooFilter>),
}

impl Arrival {
    /// Begins with the first record of a dump.
    ///
    /// # Errors
    /// [`Error::NotADump`] and others for bytes that are not a header; [`Error::Filter`] for a filter that is impossible or exceeds the
    /// ceiling.
    pub fn begin(iterator: u64, data: &[u8], ceiling: &impl Ceiling) -> Result<Self, Error> {
        // RedisBloom's header begins with a number of items, which may equal our magic. But it states its own length, which differs
        // from the length of every header of ours.
        match ChunkArrival::begin(data, ceiling) {
            Err(Error::NotADump | Error::UnknownVersion(_) | Error::Truncated) if records::is_header(data) => {
                Arriving::begin(iterator, data, ceiling).map(Self::Own)
            }
            result => result.map(Self::RedisBloom),
        }
    }

    /// Returns the kind of filter whose dump begins with this record: `native`, `windowed`, `counting` or `redisbloom`.
    pub fn kind_of(header: &[u8]) -> Result<&'static str, Error> {
        match redisbloom::dump::decode_header(header) {
            Err(Error::NotADump | Error::UnknownVersion(_) | Error::Truncated) if records::is_header(header) => {
                Filter::kind_name(records::open_header(header)?.0)
            }
            result => result.map(|_| "redisbloom"),
        }
    }

    /// Accepts a record. The header and every chunk that has arrived may be repeated with the same bytes. The ceiling limits the
    /// entries of tables of deleted items: the header does not state their number.
    ///
    /// # Errors
    /// For a record of another dump, out of order, of the wrong length or with a wrong checksum, and if the ceiling refuses. Nothing
    /// has changed then.
    pub fn accept(&mut self, iterator: u64, data: &[u8], ceiling: &impl Ceiling) -> Result<Progress, Error> {
        match self {
            Self::Own(arrival) => arrival.accept(iterator, data, ceiling),
            Self::RedisBloom(arrival) => arrival.accept(iterator, data),
            Self::RedisBloomCuckoo(arrival) => arrival.accept(iterator, data),
        }
    }

    /// Accepts a record that a primary accepted: records of our own format in order, RedisBloom's in any order.
    pub fn accept_replicated(&mut self, iterator: u64, data: &[u8]) -> Result<Progress, Error> {
        match self {
            Self::Own(arrival) => arrival.accept(iterator, data, &Unlimited),
            Self::RedisBloom(arrival) => arrival.accept_replicated(iterator, data),
            Self::RedisBloomCuckoo(arrival) => arrival.accept_replicated(iterator, data),
        }
    }

    /// Returns the filter after the last record.
    #[must_use]
    pub fn into_value(self) -> Value {
        match self {
            Self::Own(arrival) => arrival.into_filter().into(),
            Self::RedisBloom(arrival) => Filter::RedisBloom(arrival.into_filter()).into(),
            Self::RedisBloomCuckoo(arrival) => Value::Cuckoo(arrival.into_filter()),
        }
    }

    /// The generation of its dump, if dumps of its kind have one.
    pub const fn generation(&self) -> Option<u16> {
        match self {
            Self::Own(arrival) => Some(arrival.generation()),
            Self::RedisBloom(_) | Self::RedisBloomCuckoo(_) => None,
        }
    }

    /// The counts of the complete filter.
    pub(super) fn contents(&self) -> Contents {
        match self {
            Self::Own(arrival) => arrival.filter().contents(),
            Self::RedisBloom(arrival) => arrival.filter().contents(),
            Self::RedisBloomCuckoo(arrival) => arrival.filter().contents(),
        }
    }

    /// The number of bytes requested from the allocator, without its own fields. Visits every layer.
    pub(super) fn allocated_bytes(&self) -> u64 {
        match self {
            Self::Own(arrival) => arrival.filter().allocated_bytes() - size_of::<Filter>() as u64,
            Self::RedisBloom(arrival) => {
                let filter = arrival.filter();
                filter.allocated_bytes() - size_of_val(filter) as u64 + arrival.own_bytes()
            }
            Self::RedisBloomCuckoo(arrival) => {
                let filter = arrival.filter();
                filter.allocated_bytes() - size_of_val(filter) as u64 + arrival.own_bytes()
            }
        }
    }

    /// Returns a copy with the same fields and cells.
    pub fn try_clone(&self) -> Result<Self, error::Error> {
        Ok(match self {
            Self::Own(arrival) => Self::Own(arrival.try_clone()?),
            Self::RedisBloom(arrival) => Self::RedisBloom(arrival.try_clone()?),
            Self::RedisBloomCuckoo(arrival) => Self::RedisBloomCuckoo(arrival.try_clone()?),
        })
    }

    /// Emits the records that have arrived, for an AOF.
    pub(super) fn for_each_record(
        &self,
        mut emit: impl FnMut(AofRecord<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match self {
            Self::Own(arrival) => arrival.records().try_for_each(|record| {
                let (iterator, data) = record?;
                emit(AofRecord::Chunk { iterator, data: &data })
            }),
            Self::RedisBloom(arrival) => {
                arrival.records().try_for_each(|(iterator, data)| emit(AofRecord::Chunk { iterator, data }))
            }
            Self::RedisBloomCuckoo(arrival) => {
                arrival.records().try_for_each(|(iterator, data)| emit(AofRecord::Chunk { iterator, data }))
            }
        }
    }
}

impl Filter {
    /// Accepts a record that the filter already has, and changes nothing: a client whose reply was lost resends its last record. The
    /// cells may also have later items.
    pub(super) fn accept(&self, generation: u16, iterator: u64, data: &[u8]) -> Result<Progress, Error> {
        match self {
            Self::RedisBloom(filter) => chunked::is_duplicate_record(filter, iterator, data)?,
            Self::ValkeyBloom(_) => return Err(Error::NoRecords),
            _ => check(self, self.part_count(), generation, iterator, data)?,
        }
        Ok(Progress::Known)
    }

    /// Accepts a record that a primary accepted. Chunks overwrite RedisBloom's filters; other filters accept only records that
    /// they already have. An error changes nothing.
    pub(super) fn accept_replicated(&mut self, generation: u16, iterator: u64, data: &[u8]) -> Result<Progress, Error> {
        match self {
            Self::RedisBloom(filter) => chunked::overwrite(filter, iterator, data),
            filter => filter.accept(generation, iterator, data),
        }
    }
}

// The receiving end of a dump: a native, windowed or counting filter whose records arrive one by one.

/// A native, windowed or counting filter whose records have not all arrived.
#[derive(Debug, PartialEq)]
pub struct Arriving {
    filter: Filter,
    /// The generation of the dumped filter.
    generation: u16,
    /// The number of the next record after the header, counted from 0.
    next: u64,
    /// The number of parts whose tables have arrived completely.
    tables: usize,
}

impl Arriving {
    /// Begins with a header.
    ///
    /// # Errors
    /// [`Error::NotADump`] and others for a record that is not a header; [`Error::Filter`] for a filter that is impossible or exceeds
    /// the ceiling.
    pub(crate) fn begin(iterator: u64, header: &[u8], ceiling: &impl Ceiling) -> Result<Self, Error> {
        let (_, description) = records::decode_header(header)?;
        let (stream, record) = Stream::parse(iterator)?;
        let filter = description.with_zero_cells(ceiling)?;
        let (_, record) = records::numbers(&filter, record)?;
        if record != HEADER || filter.layer_count() != stream.layers {
            return Err(Error::WrongGeneration);
        }
        Ok(Self { filter, generation: stream.generation, next: 0, tables: 0 })
    }

    /// Accepts the next record: see [`Arrival::accept`].
    fn accept(&mut self, iterator: u64, data: &[u8], ceiling: &impl Ceiling) -> Result<Progress, Error> {
        let (stream, record) = Stream::parse(iterator)?;
        let own = Stream::of(&self.filter, self.generation);
        if stream != own {
            return Err(Error::WrongGeneration);
        }
        let (number, record) = records::numbers(&self.filter, record)?;
        if record <= HEADER + self.next {
            check(&self.filter, self.tables, self.generation, iterator, data)?;
            return Ok(Progress::Known);
        }
        let expected = HEADER + 1 + self.next;
        if record != expected {
            return Err(Error::WrongOrder {
                expected: own.iterator(records::numbered(&self.filter, number, expected)?),
            });
        }
        let content = records::decode(records::identity(&self.filter, own.layers), iterator, data)?;
        match Extent::all().chunk(&self.filter, self.next) {
            Some(chunk) => self.take_cells(&chunk, content)?,
            None => self.take_entries(content, ceiling)?,
        }
        self.next += 1;
        if !self.is_complete() {
            return Ok(Progress::Stored);
        }
        self.filter.complete();
        Ok(Progress::Complete)
    }

    fn take_cells(&mut self, chunk: &Chunk, content: Content<'_>) -> Result<(), Error> {
        match content {
            Content::Dropped if self.filter.is_marked() => self.filter.omit(chunk.part),
            Content::Chunk { items, cells } => {
                if cells.is_some_and(|cells| cells.len() != chunk.bytes.len()) {
                    return Err(Error::WrongLength);
                }
                if let (Some(items), Some(part)) = (items, self.filter.part_mut(chunk.part)) {
                    part.count_at_least(chunk.layer, items)?;
                }
                let part = self.filter.part_mut(chunk.part);
                let target = part.and_then(|part| part.layer_bytes_mut(chunk.layer)?.get_mut(chunk.bytes.clone()));
                if let (Some(cells), Some(target)) = (cells, target) {
                    copy_to_zeros(cells, target);
                }
            }
            Content::Dropped | Content::Entries { .. } => return Err(Error::OutOfRange),
        }
        Ok(())
    }

    fn take_entries(&mut self, content: Content<'_>, ceiling: &impl Ceiling) -> Result<(), Error> {
        let Content::Entries { bytes, is_last } = content else { return Err(Error::OutOfRange) };
        let run = hashes_in(bytes)?;
        ceiling.allow(self.filter.size_bytes(), bytes.len() as u64)?;
        stored::take_entries(&mut self.filter, self.tables, &run)?;
        self.tables += usize::from(is_last);
        Ok(())
    }

    fn is_complete(&self) -> bool {
        let has_tables = self.filter.has_tables();
        self.next >= Extent::all().chunks(&self.filter) && (!has_tables || self.tables == self.filter.part_count())
    }

    /// The filter as far as it has arrived.
    pub const fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Returns the filter after the last record.
    #[must_use]
    pub(crate) fn into_filter(self) -> Filter {
        self.filter
    }

    /// The generation of the filter that is arriving.
    pub const fn generation(&self) -> u16 {
        self.generation
    }

    /// The number of records that have arrived after the header, and so the number of the next one.
    pub const fn next_chunk(&self) -> u64 {
        self.next
    }

    /// Returns the records that have arrived, in order. An error ends them.
    pub(crate) fn records(&self) -> impl Iterator<Item = Result<(u64, Vec<u8>), Error>> {
        known_records(&self.filter, self.generation, self.next, self.tables)
    }

    /// Returns a copy with the same fields and cells.
    pub(crate) fn try_clone(&self) -> Result<Self, error::Error> {
        let Self { ref filter, generation, next, tables } = *self;
        Ok(Self { filter: filter.try_clone()?, generation, next, tables })
    }

    /// Writes its snapshot, from `kind` on.
    pub(crate) fn write(&self, sink: &mut impl Sink) {
        sink.put_u64(self.filter.kind().unwrap_or_default() + 1);
        self.filter.describe(sink);
        sink.put_u64(u64::from(self.generation));
        sink.put_u64(self.next);
        if self.filter.has_tables() {
            sink.put_u64(self.tables as u64);
        }
        stored::write_cells(&self.filter, sink);
        stored::write_tables(&self.filter, sink);
    }

    /// Reads what [`write`](Self::write) wrote after `kind`, which is `kind + 1` there. Asks the ceiling before anything is
    /// allocated.
    pub(crate) fn read(kind: u64, source: &mut impl Source, ceiling: &impl Ceiling) -> Result<Self, Error> {
        let description = Description::read(kind, source)?;
        let (generation, next) = (source.u64()?, source.u64()?);
        let filter = description.with_zero_cells(ceiling)?;
        let tables = if filter.has_tables() { source.u64()? } else { 0 };
        let generation = u16::try_from(generation).ok().filter(|generation| *generation < GENERATIONS);
        let (Some(generation), Ok(tables)) = (generation, usize::try_from(tables)) else {
            return Err(Error::OutOfRange);
        };
        let mut arriving = Self { filter, generation, next, tables };
        if tables > arriving.filter.part_count() || arriving.is_complete() {
            return Err(Error::OutOfRange);
        }
        let arrived_bytes = Extent::all().bytes_before(&arriving.filter, next);
        stored::read_cells(&mut arriving.filter, arrived_bytes, source)?;
        stored::read_tables(&mut arriving.filter, source, ceiling)?;
        if can_have_come(&arriving.filter, next, tables) { Ok(arriving) } else { Err(Error::OutOfRange) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::records::DumpMark;
    use crate::format::{ByteSink, ByteSource};
    use crate::hash::Hasher;
    use crate::host::Limits;
    use crate::{BloomFilter, Moment, Scaling};

    fn first_record(filter: &Filter, generation: u16) -> Result<(u64, Vec<u8>), Error> {
        records::first_record(filter, generation, &mut DumpMark::default())
    }

    fn next_record(filter: &Filter, generation: u16, iterator: u64) -> Result<Option<(u64, Vec<u8>)>, Error> {
        records::next_record(filter, generation, iterator, &DumpMark::default())
    }

    /// The number of members before the dump, and added with each record.
    const MEMBERS: u32 = if cfg!(miri) { 40 } else { 10_000 };

    fn native(filter: &mut Filter) -> &mut BloomFilter {
        if let Filter::Native(filter) = filter { filter } else { panic!("{filter:?}") }
    }

    fn records(filter: &Filter, generation: u16) -> Vec<(u64, Vec<u8>)> {
        records::records(filter, generation).collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn a_dump_of_a_growing_filter_has_all_items_from_its_beginning() {
        let filter = BloomFilter::new(0.01, u64::from(MEMBERS / 10), Scaling::from_expansion(2), 7, &Unlimited);
        let mut filter = Filter::from(filter.unwrap());
        let members: Vec<_> = (0..MEMBERS).map(u32::to_le_bytes).collect();
        for item in &members {
            native(&mut filter).add(item, &Unlimited).unwrap();
        }
        let layers = filter.layer_count();
        let (mut iterator, header) = first_record(&filter, 9).unwrap();
        let mut arriving = Arriving::begin(iterator, &header, &Unlimited).unwrap();
        let mut later = MEMBERS..;
        while let Some((next, data)) = next_record(&filter, 9, iterator).unwrap() {
            for item in later.by_ref().take(MEMBERS as usize / 2) {
                native(&mut filter).add(&item.to_le_bytes(), &Unlimited).unwrap();
            }
            arriving.accept(next, &data, &Unlimited).unwrap();
            iterator = next;
        }
        assert!(filter.layer_count() > layers);
        let copy = arriving.into_filter();
        assert_eq!(copy.layer_count(), layers);
        // The layer is full when the last chunk is created, and so is its copy, which accepts no more items.
        assert_eq!(copy.remaining_capacity(), 0);
        assert!(members.iter().all(|item| copy.contains(item, &Moment(0))));
        assert_eq!(next_record(&filter, 10, iterator), Err(Error::WrongGeneration), "another filter");
        assert_eq!(next_record(&copy, 9, iterator + (8 << 27)), Err(Error::WrongGeneration), "layers it never had");
        assert_eq!(next_record(&copy, 9, 0), Err(Error::OutOfRange));
    }

    #[test]
    fn a_chunk_of_another_filter_is_refused_even_if_its_iterator_fits() {
        let filters = [7, 8].map(|seed| {
            let mut filter = BloomFilter::new(0.01, 1000, Scaling::Fixed, seed, &Unlimited).unwrap();
            filter.add(&seed.to_le_bytes(), &Unlimited).unwrap();
            filter.into()
        });
        let [one, other] = filters.each_ref().map(|filter| records(filter, 5));
        assert_eq!(one[1].0, other[1].0);
        let mut arriving = Arriving::begin(one[0].0, &one[0].1, &Unlimited).unwrap();
        assert_eq!(arriving.accept(other[1].0, &other[1].1, &Unlimited), Err(Error::WrongChecksum));
        assert_eq!(arriving.accept(one[1].0, &one[1].1, &Unlimited), Ok(Progress::Complete));
    }

    #[test]
    fn a_snapshot_of_an_incomplete_dump_must_fit_under_the_ceiling() {
        let read = |filter: &BloomFilter, generation: u16, next: u64, tables: usize, size_bytes: u64| {
            let filter = filter.try_clone().unwrap().into();
            let mut sink = ByteSink::default();
            Arriving { filter, generation, next, tables }.write(&mut sink);
            let mut source = ByteSource(&sink.0);
            assert_eq!(source.u64(), Ok(2));
            Arriving::read(1, &mut source, &Limits { size_bytes, layers: usize::MAX })
        };
        let plain = BloomFilter::new(0.01, 1000, Scaling::Fixed, 7, &Unlimited).unwrap();
        let size = plain.size_bytes();
        assert!(read(&plain, 5, 0, 0, size).is_ok());
        assert!(read(&plain, 5, 0, 0, size - 1).is_err());
        assert!(read(&plain, 5, 1, 0, size).is_err(), "complete");
        assert!(read(&plain, GENERATIONS, 0, 0, size).is_err());

        let mut spec = plain.spec();
        spec.hasher = Hasher::SipHash { key: [3; 16] };
        let mut keyed = BloomFilter::with_spec(spec, &Unlimited).unwrap();
        assert!(read(&keyed, 5, 1, 0, size).is_ok(), "the table is missing");
        for (next, tables) in [(0, 1), (2, 1), (3, 2)] {
            assert!(read(&keyed, 5, next, tables, size).is_err(), "{next} records, {tables} tables");
        }
        keyed.add(b"an item", &Unlimited).unwrap();
        keyed.take_deleted(&[keyed.hash(b"an item")]).unwrap();
        assert!(read(&keyed, 5, 2, 0, size + 16).is_ok(), "part of the table has arrived");
        assert!(read(&keyed, 5, 2, 0, size + 15).is_err());
        assert!(read(&keyed, 5, 1, 0, size + 16).is_err(), "none of the table has arrived");
    }
}
