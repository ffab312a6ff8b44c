//! The value of a key, which is a filter or one whose records have not all arrived, and the types under which it is stored.

use std::borrow::Cow;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::records::{self, DumpMark};
use super::{AofRecord, Arrival, Arriving, stored};
use crate::codec::{ByteSink, Error, PackedSink, Progress, Record, Sink, Source};
use crate::error;
use crate::geometry::sizing::Policy;
use crate::host::Ceiling;
use crate::kinds::chunked::{self, Chunked};
use crate::kinds::{
    BloomFilter, ChunkArrival, Contents, Filter, RedisBloomCuckooFilter, RedisBloomFilter, redisbloom,
    redisbloom_cuckoo, valkey_bloom,
};
use crate::memory::{reserve, try_box};

/// The number of places on the stack at which a filter is packed, in turn. The server compresses the string with LZF, whose table keeps
/// the addresses of earlier strings: at a single address they would pass for parts of the same string, and be compared in vain.
const PLACES: usize = 32;
static NEXT_PLACE: AtomicUsize = AtomicUsize::new(0);

/// The value of a key.
///
/// ```
/// use bloomgate_filter::format::{ByteSink, ByteSource, StoredAs};
/// use bloomgate_filter::{BloomFilter, Filter, Scaling, Unlimited, Value};
///
/// let mut seen = BloomFilter::new(0.01, 1000, Scaling::Fixed, 42, &Unlimited)?;
/// seen.add(b"https://doc.rust-lang.org/std/", &Unlimited)?;
/// let value = Value::from(Filter::from(seen));
///
/// // The snapshot of a native filter begins with a version, so every later release can read it.
/// let mut snapshot = ByteSink::default();
/// value.write(&mut snapshot);
/// assert_eq!(value.stored_as(), StoredAs::Own);
/// let loaded = StoredAs::Own.read(StoredAs::Own.encoding(), &mut ByteSource(&snapshot.0), &Unlimited)?;
/// assert_eq!(loaded, value);
///
/// // Truncated bytes are refused.
/// let truncated = &snapshot.0[..snapshot.0.len() - 1];
/// assert!(StoredAs::Own.read(StoredAs::Own.encoding(), &mut ByteSource(truncated), &Unlimited).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, PartialEq)]
pub enum Value {
    /// A filter.
    Filter(Filter),
    /// A cuckoo filter of RedisBloom's layout. It is no [`Filter`]: it has other commands, and none of a Bloom filter's figures.
    Cuckoo(RedisBloomCuckooFilter),
    /// A filter whose records have not all arrived. It cannot be queried yet.
    Arriving(Box<Arrival>),
}

/// The server's type for a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredAs {
    /// Ours: native, windowed, counting and cuckoo filters, and every filter that is arriving. The value contains the version of its
    /// layout.
    Own,
    /// RedisBloom's.
    RedisBloom,
    /// valkey-bloom's.
    ValkeyBloom,
    /// RedisBloom's cuckoo filters.
    RedisBloomCuckoo,
}

impl StoredAs {
    /// All types.
    pub const ALL: [Self; 4] = [Self::Own, Self::RedisBloom, Self::ValkeyBloom, Self::RedisBloomCuckoo];

    /// Its name, nine characters.
    pub const fn name(self) -> &'static CStr {
        match self {
            Self::Own => c"bloomgate",
            Self::RedisBloom => c"MBbloom--",
            Self::ValkeyBloom => c"bloomfltr",
            Self::RedisBloomCuckoo => c"MBbloomCF",
        }
    }

    /// The encoding that is written. The server stores it with the name.
    pub const fn encoding(self) -> u32 {
        match self {
            Self::Own => 1,
            Self::RedisBloom => redisbloom::dump::ENCODING,
            Self::ValkeyBloom => valkey_bloom::load::ENCODING,
            Self::RedisBloomCuckoo => redisbloom_cuckoo::dump::ENCODING,
        }
    }

    /// Reads a value. Asks the ceiling before any memory is allocated.
    ///
    /// # Errors
    /// For bytes that are not the stored form of a value, and if the ceiling or the allocator refuses.
    pub fn read(self, encoding: u32, source: &mut impl Source, ceiling: &impl Ceiling) -> Result<Value, Error> {
        let unknown = Err(Error::UnknownVersion(encoding.into()));
        Ok(match self {
            Self::Own if encoding != self.encoding() => return unknown,
            Self::Own => read_own(source, ceiling)?,
            Self::RedisBloom => Filter::from(redisbloom::dump::read_snapshot(source, encoding, ceiling)?).into(),
            Self::ValkeyBloom if encoding != self.encoding() => return unknown,
            Self::ValkeyBloom => Filter::boxed(valkey_bloom::load::read_snapshot(source, ceiling)?)?.into(),
            Self::RedisBloomCuckoo if encoding != self.encoding() => return unknown,
            Self::RedisBloomCuckoo => Value::Cuckoo(redisbloom_cuckoo::dump::read_snapshot(source, ceiling)?),
        })
    }
}

/// The maximum size of the cells of a filter that an AOF stores as one record, in bytes. Its fields take less.
const SMALL_BYTES_MAX: usize = 2048;

/// Whether an AOF stores a filter as one record. Filters with the first policy are written as 0.2 wrote them.
fn is_small(filter: &BloomFilter) -> bool {
    filter.spec().policy != Policy::One && filter.cells_bytes() <= SMALL_BYTES_MAX as u64
}

fn read_own(source: &mut impl Source, ceiling: &impl Ceiling) -> Result<Value, Error> {
    match source.u64()? {
        stored::VERSION => {}
        stored::VERSION_PACKED => return Ok(stored::read_packed(source, ceiling)?.into()),
        stored::VERSION_COMPACT => return Ok(stored::read_compact(source, ceiling)?.into()),
        version => return Err(Error::UnknownVersion(version)),
    }
    match source.u64()? {
        RedisBloomFilter::KIND => Ok(Value::arriving(Arrival::RedisBloom(ChunkArrival::read(source, ceiling)?))?),
        RedisBloomCuckooFilter::KIND => {
            Ok(Value::arriving(Arrival::RedisBloomCuckoo(ChunkArrival::read(source, ceiling)?))?)
        }
        kind if Filter::kind_name(kind.wrapping_sub(1)).is_ok() => {
            Ok(Value::arriving(Arrival::Own(Arriving::read(kind - 1, source, ceiling)?))?)
        }
        kind => Ok(stored::read(kind, source, ceiling)?.into()),
    }
}

/// Dumps and snapshots.
impl Filter {
    /// Returns the record after the one with this iterator, 0 for the first; `None` after the last one. `generation` is the
    /// filter's, `mark` its state when the dump began.
    ///
    /// # Errors
    /// [`Error::NoRecords`] for a kind without records, errors for an iterator that does not belong to this filter, and
    /// [`Error::Filter`] if there is no memory for the record.
    pub fn next_record(
        &self,
        generation: u16,
        iterator: u64,
        mark: &mut DumpMark,
    ) -> Result<Option<Record<'_>>, Error> {
        let next = match (self, iterator) {
            (Self::RedisBloom(filter), _) => return chunked::next_record(filter, iterator),
            (Self::ValkeyBloom(_), _) => return Err(Error::NoRecords),
            (_, 0) => Some(records::first_record(self, generation, mark)?),
            _ => records::next_record(self, generation, iterator, mark)?,
        };
        Ok(next.map(|(iterator, data)| (iterator, Cow::Owned(data))))
    }

    /// The type under which it is stored.
    pub const fn stored_as(&self) -> StoredAs {
        match self {
            Self::Native(_) | Self::Windowed(_) | Self::Counting(_) | Self::Cuckoo(_) => StoredAs::Own,
            Self::RedisBloom(_) => StoredAs::RedisBloom,
            Self::ValkeyBloom(_) => StoredAs::ValkeyBloom,
        }
    }

    /// Writes its snapshot; for our own layout, without the version.
    fn write(&self, sink: &mut impl Sink) {
        match self {
            Self::RedisBloom(filter) => redisbloom::dump::write_snapshot(filter, sink),
            Self::ValkeyBloom(filter) => valkey_bloom::load::write_snapshot(filter, sink),
            filter => stored::write(filter, sink),
        }
    }

    /// Emits the records that restore it from an AOF.
    fn for_each_record(
        &self,
        generation: u16,
        mut emit: impl FnMut(AofRecord<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match self {
            Self::RedisBloom(filter) => chunked::records(filter).try_for_each(|record| {
                let (iterator, data) = record?;
                emit(AofRecord::Chunk { iterator, data: &data })
            }),
            Self::ValkeyBloom(filter) => emit(AofRecord::Whole(filter)),
            filter => records::records(filter, generation).try_for_each(|record| {
                let (iterator, data) = record?;
                emit(AofRecord::Chunk { iterator, data: &data })
            }),
        }
    }
}

impl From<Filter> for Value {
    fn from(filter: Filter) -> Self {
        Self::Filter(filter)
    }
}

/// Aborts the process if there is no memory for the box. [`Value::arriving`] returns an error instead.
impl From<Arrival> for Value {
    fn from(arrival: Arrival) -> Self {
        Self::Arriving(Box::new(arrival))
    }
}

impl Value {
    /// Returns the value of a filter whose records have not all arrived.
    pub fn arriving(arrival: Arrival) -> Result<Self, error::Error> {
        try_box(arrival).map(Self::Arriving)
    }

    /// The type under which it is stored.
    pub const fn stored_as(&self) -> StoredAs {
        match self {
            Self::Filter(filter) => filter.stored_as(),
            Self::Cuckoo(_) => StoredAs::RedisBloomCuckoo,
            Self::Arriving(_) => StoredAs::Own,
        }
    }

    /// Whether its filter has RedisBloom's layout, also while the filter arrives in chunks.
    pub const fn has_redisbloom_layout(&self) -> bool {
        match self {
            Self::Filter(filter) => matches!(filter, Filter::RedisBloom(_)),
            Self::Cuckoo(_) => true,
            Self::Arriving(arrival) => arrival.generation().is_none(),
        }
    }

    /// Whether it is a cuckoo filter of RedisBloom's layout, also while that arrives in chunks.
    pub fn is_redisbloom_cuckoo(&self) -> bool {
        match self {
            Self::Filter(_) => false,
            Self::Cuckoo(_) => true,
            Self::Arriving(arrival) => matches!(**arrival, Arrival::RedisBloomCuckoo(_)),
        }
    }

    /// Whether it is a cuckoo filter of any layout, also while that arrives in records.
    pub fn is_cuckoo(&self) -> bool {
        match self {
            Self::Filter(filter) => filter.cuckoo().is_some(),
            Self::Arriving(arrival) if let Arrival::Own(own) = &**arrival => own.filter().cuckoo().is_some(),
            _ => self.is_redisbloom_cuckoo(),
        }
    }

    /// Writes its snapshot.
    pub fn write(&self, sink: &mut impl Sink) {
        if self.stored_as() == StoredAs::Own {
            let mut places = [const { MaybeUninit::uninit() }; PLACES];
            let next = NEXT_PLACE.fetch_add(1, Relaxed) % PLACES;
            if let (Self::Filter(filter), Some(place)) = (self, places.get_mut(next))
                && let Some((version, bytes)) = stored::pack(filter, place.write(PackedSink::new()))
            {
                sink.put_u64(version);
                return sink.put_bytes(bytes);
            }
            sink.put_u64(stored::VERSION);
        }
        match self {
            Self::Filter(filter) => filter.write(sink),
            Self::Cuckoo(filter) => redisbloom_cuckoo::dump::write_snapshot(filter, sink),
            Self::Arriving(arrival) => match &**arrival {
                Arrival::Own(arrival) => arrival.write(sink),
                Arrival::RedisBloom(arrival) => arrival.write(sink),
                Arrival::RedisBloomCuckoo(arrival) => arrival.write(sink),
            },
        }
    }

    /// Emits the records that restore it from an AOF; for an arriving filter, the records that have arrived. `generation` is
    /// the filter's.
    ///
    /// # Errors
    /// If there is no memory for a record, and the errors of `emit`.
    pub fn for_each_record(
        &self,
        generation: u16,
        mut emit: impl FnMut(AofRecord<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match self {
            Self::Filter(Filter::Native(filter)) if is_small(filter) => emit(AofRecord::Small(&self.to_record()?)),
            Self::Filter(filter) => filter.for_each_record(generation, emit),
            Self::Cuckoo(filter) => chunked::records(filter).try_for_each(|record| {
                let (iterator, data) = record?;
                emit(AofRecord::Chunk { iterator, data: &data })
            }),
            Self::Arriving(arrival) => arrival.for_each_record(emit),
        }
    }

    /// Returns the value of a small filter as one record, for BF.LOAD: the magic bytes of a header, the snapshot, and a checksum of both.
    fn to_record(&self) -> Result<Vec<u8>, Error> {
        let mut sink = ByteSink(Vec::new());
        reserve(&mut sink.0, 2 * SMALL_BYTES_MAX)?;
        sink.0.extend_from_slice(&records::MAGIC);
        self.write(&mut sink);
        Ok(records::seal(sink))
    }

    /// Reads a filter from one record, which may be hostile.
    ///
    /// # Errors
    /// [`Error::NotADump`], [`Error::WrongChecksum`], [`Error::Overlong`], and the errors of [`StoredAs::read`].
    pub fn of_record(data: &[u8], ceiling: &impl Ceiling) -> Result<Self, Error> {
        let mut source = records::unseal(data)?;
        match read_own(&mut source, ceiling)? {
            Self::Arriving(_) | Self::Cuckoo(_) => Err(Error::NotADump),
            Self::Filter(_) if !source.0.is_empty() => Err(Error::Overlong),
            filter => Ok(filter),
        }
    }

    /// Accepts a record of a dump: for an arriving filter like [`Arrival::accept`]; for a complete filter of this `generation`
    /// only a duplicate, which changes nothing.
    pub fn accept(
        &mut self,
        generation: u16,
        iterator: u64,
        data: &[u8],
        ceiling: &impl Ceiling,
    ) -> Result<Progress, Error> {
        match self {
            Self::Arriving(arrival) => arrival.accept(iterator, data, ceiling),
            Self::Filter(filter) => filter.accept(generation, iterator, data),
            Self::Cuckoo(filter) => chunked::is_duplicate_record(filter, iterator, data).map(|()| Progress::Known),
        }
    }

    /// Accepts a record that a primary accepted: for an arriving filter like [`Arrival::accept_replicated`]; for a complete one like
    /// [`accept`](Self::accept), except that chunks overwrite RedisBloom's filters.
    pub fn accept_replicated(&mut self, generation: u16, iterator: u64, data: &[u8]) -> Result<Progress, Error> {
        match self {
            Self::Arriving(arrival) => arrival.accept_replicated(iterator, data),
            Self::Filter(filter) => filter.accept_replicated(generation, iterator, data),
            Self::Cuckoo(filter) => chunked::overwrite(filter, iterator, data),
        }
    }

    /// The number of bytes taken from the allocator, including its own fields. Visits every layer.
    pub fn allocated_bytes(&self) -> u64 {
        let (fields, held) = match self {
            Self::Filter(filter) => (size_of::<Self>() - size_of::<Filter>(), filter.allocated_bytes()),
            Self::Cuckoo(filter) => (size_of::<Self>() - size_of_val(filter), filter.allocated_bytes()),
            Self::Arriving(arrival) => (size_of::<Self>() + size_of::<Arrival>(), arrival.allocated_bytes()),
        };
        held.saturating_add(fields as u64)
    }

    /// Its counts; for an arriving filter, those of the complete one.
    #[inline]
    pub fn contents(&self) -> Contents {
        match self {
            Self::Filter(filter) => filter.contents(),
            Self::Cuckoo(filter) => filter.contents(),
            Self::Arriving(arrival) => arrival.contents(),
        }
    }

    /// Returns a copy with the same fields and bits.
    pub fn try_clone(&self) -> Result<Self, error::Error> {
        match self {
            Self::Filter(filter) => filter.try_clone().map(Self::Filter),
            Self::Cuckoo(filter) => filter.try_clone().map(Self::Cuckoo),
            Self::Arriving(arrival) => Self::arriving(arrival.try_clone()?),
        }
    }

    /// Moves the filter out and leaves an empty one. For an arriving filter, returns the part that has arrived.
    #[must_use]
    pub fn take(&mut self) -> Self {
        match std::mem::replace(self, Filter::nothing().into()) {
            Self::Arriving(arrival) => arrival.into_value(),
            filter => filter,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::StoredAs;
    use crate::format::{AofRecord, Arrival, ByteSink, ByteSource, Error};
    use crate::geometry::sizing::Policy;
    use crate::geometry::{BlockedBits, LayerDescription};
    use crate::hash::Hasher;
    use crate::host::Limits;
    use crate::kinds::NativeSpec;
    use crate::{BloomFilter, Filter, Scaling, Unlimited, Value};

    fn bytes_of(value: &Value) -> Vec<u8> {
        let mut sink = ByteSink::default();
        value.write(&mut sink);
        sink.0
    }

    fn filter(capacity: u64, expansion: u32, items: u32) -> BloomFilter {
        with_items(NativeSpec::murmur3(0.01, capacity, Scaling::from_expansion(expansion), 42), items)
    }

    fn with_items(spec: NativeSpec, items: u32) -> BloomFilter {
        let mut filter = BloomFilter::with_spec(spec, &Unlimited).unwrap();
        (0..items).for_each(|number| _ = filter.add(&number.to_le_bytes(), &Unlimited).unwrap());
        filter
    }

    /// The records of a filter in an AOF.
    fn aof_records(value: &Value) -> Vec<Vec<u8>> {
        let mut records = Vec::new();
        let emitted = value.for_each_record(7, |record| {
            match record {
                AofRecord::Small(data) | AofRecord::Chunk { data, .. } => records.push(data.to_vec()),
                AofRecord::Whole(_) => panic!("another layout"),
            }
            Ok(())
        });
        emitted.unwrap();
        records
    }

    #[test]
    fn a_small_filter_is_one_record() {
        for items in [0, 20, 100, 300, 700] {
            let value = Value::from(Filter::from(filter(100, 2, items)));
            let records = aof_records(&value);
            assert_eq!(records.len(), 1, "{items}");
            assert_eq!(Value::of_record(&records[0], &Unlimited), Ok(value), "{items}");
        }
        let record = aof_records(&Value::from(Filter::from(filter(100, 2, 20)))).remove(0);
        assert!(record.len() <= 260, "{}", record.len());
        // A large filter, and one with the first policy, are written in chunks.
        assert_eq!(aof_records(&Value::from(Filter::from(filter(100, 2, 2000)))).len(), 6);
        assert_eq!(aof_records(&Value::from(Filter::from(filter(129, 2, 0)))).len(), 2);
    }

    #[test]
    fn a_damaged_record_is_refused() {
        let record = aof_records(&Value::from(Filter::from(filter(100, 2, 20)))).remove(0);
        for at in 0..record.len() {
            let mut damaged = record.clone();
            damaged[at] ^= 1;
            assert!(Value::of_record(&damaged, &Unlimited).is_err(), "{at}");
            assert!(Value::of_record(&record[..at], &Unlimited).is_err(), "{at}");
        }
        let seal = |fields: &[u8]| [fields, &crc32fast::hash(fields).to_le_bytes()].concat();
        let fields = &record[..record.len() - 4];
        assert_eq!(Value::of_record(&seal(&[fields, &[0]].concat()), &Unlimited), Err(Error::Overlong));
        for end in 8..fields.len() {
            assert!(Value::of_record(&seal(&fields[..end]), &Unlimited).is_err(), "{end}");
        }
        let (iterator, header) = super::records::records(&Filter::from(filter(129, 2, 0)), 7).next().unwrap().unwrap();
        let arriving = Value::from(Arrival::begin(iterator, &header, &Unlimited).unwrap());
        assert_eq!(Value::of_record(&arriving.to_record().unwrap(), &Unlimited), Err(Error::NotADump));
    }

    /// Returns a filter as 0.3 made it.
    fn of_0_3(spec: NativeSpec, items: u32) -> BloomFilter {
        with_items(NativeSpec { policy: Policy::Two, ..spec }, items)
    }

    fn read(bytes: &[u8]) -> Result<Value, Error> {
        let mut source = ByteSource(bytes);
        let value = StoredAs::Own.read(StoredAs::Own.encoding(), &mut source, &Unlimited)?;
        assert!(source.0.is_empty());
        Ok(value)
    }

    /// Frozen: a snapshot of today must load in every later version.
    #[test]
    fn golden_bytes() {
        let spec = NativeSpec::murmur3(0.01, 10, Scaling::from_expansion(2), 42);
        let spec = NativeSpec { policy: Policy::One, ..spec };
        let mut small = BloomFilter::with_spec(spec, &Unlimited).unwrap();
        small.add(&0u32.to_le_bytes(), &Unlimited).unwrap();
        let bytes = bytes_of(&Value::from(Filter::from(small)));
        let numbers: Vec<u64> =
            bytes.chunks_exact(8).take(16).map(|number| u64::from_le_bytes(number.try_into().unwrap())).collect();
        let (rate, share) = (0.01f64.to_bits(), (0.01 / 32.0f64).to_bits());
        assert_eq!(numbers, [1, 1, 1, rate, 10, 2, 42, 1, 1, share, 10, 1, 11, 1, 2, 128]);
        assert_eq!(bytes.len(), 16 * 8 + 128);
        // Computed from the documented layout by a program in another language.
        assert_eq!(crc32fast::hash(&bytes), 3_161_132_083);

        // Packed: the version and the length of the string, the fields, and three blocks of bits.
        let bytes = bytes_of(&Value::from(Filter::from(of_0_3(filter(100, 2, 0).spec(), 1))));
        let (rate, share) = (0.01f64.to_le_bytes(), (0.01 * 0.08f64).to_le_bytes());
        let fields = [&[1, 1][..], &rate, &[100, 2, 42, 2, 1], &share, &[100, 1, 10, 1, 3, 0xC0, 1]].concat();
        assert_eq!(bytes[..16], [2u64.to_le_bytes(), 222u64.to_le_bytes()].concat());
        assert_eq!(bytes[16..46], fields);
        assert_eq!(bytes.len(), 46 + 192);
        assert_eq!(crc32fast::hash(&bytes), 2_443_809_042);

        // The same of a fixed filter at 10^-6: six blocks, of which an item has four.
        let low = NativeSpec::murmur3(1e-6, 100, Scaling::Fixed, 42);
        let bytes = bytes_of(&Value::from(Filter::from(of_0_3(low, 1))));
        let rate = 1e-6f64.to_le_bytes();
        let fields = [&[1, 1][..], &rate, &[100, 0, 42, 2, 1], &rate, &[100, 1, 19, 1, 6 | 128, 1, 0x80, 3]].concat();
        assert_eq!(bytes[..16], [2u64.to_le_bytes(), 415u64.to_le_bytes()].concat());
        assert_eq!(bytes[16..47], fields);
        assert_eq!(bytes.len(), 47 + 384);
        assert_eq!(crc32fast::hash(&bytes), 2_042_234_690);

        // Compact: the version and the length of the string, the definition, one layer with an item, ten of its 192 bytes, a bit for each of
        // the 192. The CRCs are computed by a program in another language.
        let bytes = bytes_of(&Value::from(Filter::from(filter(100, 2, 1))));
        assert_eq!(bytes[..16], [3u64.to_le_bytes(), 43u64.to_le_bytes()].concat());
        assert_eq!(bytes[16..25], [5, 3, 0x12, 2, 100, 42, 1, 1, 10]);
        assert_eq!((bytes.len(), crc32fast::hash(&bytes)), (25 + 24 + 10, 3_098_180_751));
        // Without items, with twenty, with two layers, the first of which is stored without a mask, and with four blocks per item.
        let crcs = [(0, 9, 1_727_702_689), (20, 154, 937_758_625), (150, 531, 2_632_658_463)];
        for (items, length, crc) in crcs {
            let bytes = bytes_of(&Value::from(Filter::from(filter(100, 2, items))));
            assert_eq!((bytes.len(), crc32fast::hash(&bytes)), (16 + length, crc), "{items} items");
        }
        let bytes = bytes_of(&Value::from(Filter::from(with_items(low, 1))));
        assert_eq!((bytes.len(), crc32fast::hash(&bytes)), (16 + 76, 3_057_905_342));
    }

    /// Filters of 0.3 are written as 0.3 wrote them. Others are compact up to 2 KiB of cells, if everything about their layers follows from
    /// their definition.
    #[test]
    fn the_version_follows_from_the_filter() {
        let version = |filter: BloomFilter| bytes_of(&Value::from(Filter::from(filter)))[0];
        let default = filter(100, 2, 0).spec();
        assert_eq!([0, 1, 100, 300, 700, 1000].map(|items| version(with_items(default, items))), [3, 3, 3, 3, 3, 1]);
        assert_eq!([0, 1, 100, 300, 700].map(|items| version(of_0_3(default, items))), [2, 2, 2, 2, 1]);
        let keyed = NativeSpec { hasher: Hasher::SipHash { key: [1; 16] }, ..default };
        assert_eq!([0, 300, 700].map(|items| version(with_items(keyed, items))), [2, 2, 1]);
        let large = NativeSpec::murmur3(0.01, 129, Scaling::from_expansion(2), 42);
        assert_eq!([large.policy.number(), version(with_items(large, 1)).into()], [1, 1]);
        let layer = filter(100, 2, 50).layers()[0].description();
        for other in [
            LayerDescription { capacity: 101, ..layer },
            LayerDescription { rate: layer.rate.next_up(), ..layer },
            LayerDescription { geometry: BlockedBits { hashes: 11, ..layer.geometry }, ..layer },
            LayerDescription { geometry: BlockedBits { blocks_per_group: 4, ..layer.geometry }, ..layer },
        ] {
            assert_eq!(version(BloomFilter::with_zero_bits(default, &[other], &Unlimited).unwrap()), 2, "{other:?}");
        }
    }

    /// Every filter returns from its compact form, which takes no more bytes than its cells and a few for each layer.
    #[test]
    fn compact_filters_are_read_as_they_were_written() {
        let (rates, capacities) = ([0.25, 0.02, 0.01, 0.0037, 1e-5, 1e-12], [1, 4, 33, 100, 128, 600]);
        let (mut layers_seen, mut steps) = (0, 0);
        for (rate, capacity) in rates.iter().flat_map(|rate| capacities.map(|capacity| (*rate, capacity))) {
            for expansion in [0, 1, 2, 5] {
                if cfg!(miri) && (capacity + u64::from(expansion)) % 7 != 0 {
                    continue;
                }
                let mut filter =
                    with_items(NativeSpec::murmur3(rate, capacity, Scaling::from_expansion(expansion), 7), 0);
                for item in 0..if cfg!(miri) { 12 } else { 2000_u32 } {
                    let value = Value::from(Filter::from(filter.try_clone().unwrap()));
                    let bytes = bytes_of(&value);
                    if bytes[0] != 3 {
                        assert!(filter.cells_bytes() > 2048 || filter.spec().policy == Policy::One);
                        break;
                    }
                    let (layers, cells) = (filter.layers().len(), usize::try_from(filter.cells_bytes()).unwrap());
                    assert!(bytes.len() <= 16 + 18 + 1 + 5 * layers + cells, "{rate} {capacity} {expansion}");
                    assert!(read(&bytes).unwrap() == value);
                    (layers_seen, steps) = (layers_seen.max(layers), steps + 1);
                    if filter.add(&item.to_le_bytes(), &Unlimited).is_err() {
                        break;
                    }
                }
            }
        }
        assert!(cfg!(miri) || layers_seen == 16 && steps > 20_000, "{layers_seen} {steps}");
    }

    /// Returns a snapshot with this definition, and this after it in the string.
    fn compact(definition: &[u8], rest: &[u8]) -> Vec<u8> {
        let string = [&[u8::try_from(definition.len()).unwrap()], definition, rest].concat();
        [&3u64.to_le_bytes()[..], &(string.len() as u64).to_le_bytes(), &string].concat()
    }

    #[test]
    fn unsound_compact_filters_are_refused() {
        use crate::format::Error::{self, OutOfRange, Overlong, Truncated, UnknownVersion};
        let refusal = |definition: &[u8], rest: &[u8]| read(&compact(definition, rest)).map(drop).unwrap_err();
        let unsound = Error::Filter(crate::Error::Unsound);
        // Policy, rate, expansion, capacity, seed.
        let sound = [3, 0x12, 2, 100, 42];
        assert!(read(&compact(&sound, &[1, 0, 0])).is_ok() && read(&compact(&sound, &[2, 100, 1, 0, 0])).is_ok());
        for length in 0..3 {
            assert_eq!(refusal(&sound, &[1, 0, 0][..length]), Truncated, "{length}");
        }
        assert_eq!(refusal(&sound, &[1, 0, 0, 0]), Overlong);
        for (definition, error) in [
            (&[][..], Truncated),
            (&[3, 0x12, 2, 100], Truncated),
            (&[3, 0x12, 2, 100, 42, 0], Overlong),
            (&[4, 0x12, 2, 100, 42], UnknownVersion(4)),
            // Rates and capacities that no filter has, and a capacity to which all policies give the same layers.
            (&[3, 0xa2, 3, 2, 100, 42], OutOfRange),
            (&[3, 0x12, 2, 0, 42], OutOfRange),
            (&[3, 0x12, 2, 0x81, 1, 42], OutOfRange),
            // Filters of other policies have other forms.
            (&[1, 0x12, 2, 100, 42], unsound),
            (&[2, 0x12, 2, 100, 42], unsound),
        ] {
            assert_eq!(refusal(definition, &[1, 0, 0]), error, "{definition:?}");
        }
        // Layers: none, two of a fixed filter, more than fit, more items than capacity, items beyond counting.
        assert_eq!(refusal(&sound, &[0]), unsound);
        assert_eq!(refusal(&[3, 0x52, 0, 100, 42], &[2, 100, 0, 0, 0]), unsound);
        assert_eq!(refusal(&sound, &[17]), OutOfRange);
        assert_eq!(refusal(&sound, &[[0xff; 9].as_slice(), &[1]].concat()), OutOfRange);
        assert_eq!(refusal(&sound, &[1, 101, 0]), unsound);
        assert_eq!(refusal(&sound, &[[1].as_slice(), &[0xff; 9], &[1, 0]].concat()), unsound);
        // Cells of 2 KiB and more: refused before the ceiling is asked.
        for (definition, layers) in
            [(&sound[..], 4), (&[3, 0x52, 0, 0xa0, 0x8d, 6, 42], 1), (&[3, 0x12, 100, 100, 42], 2)]
        {
            let rest = [&[layers][..], &[0; 20]].concat();
            assert_eq!(refusal(definition, &rest), OutOfRange, "{definition:?}");
        }
        // The cells of a layer, with another number of bytes than stated.
        assert_eq!(refusal(&sound, &[1, 1, 2]), Truncated);
        assert_eq!(refusal(&sound, &[&[1, 1, 1, 1][..], &[0; 23], &[0]].concat()), OutOfRange);
        assert_eq!(refusal(&sound, &[&[1, 1, 192, 1][..], &[0; 192]].concat()), OutOfRange);
    }

    #[test]
    fn a_ceiling_is_asked_before_a_compact_filter_is_created() {
        let value = Value::from(Filter::from(filter(100, 2, 150)));
        let (bytes, size) = (bytes_of(&value), value.contents().size_bytes);
        let under = |size_bytes, layers| {
            StoredAs::Own.read(1, &mut ByteSource(&bytes), &Limits { size_bytes, layers }).map(|read| read == value)
        };
        assert_eq!(under(size, 2), Ok(true));
        assert!(matches!(under(size - 1, 2), Err(Error::Filter(crate::Error::AboveCeiling { .. }))));
        assert_eq!(under(size, 1), Err(Error::Filter(crate::Error::TooManyLayers)));
    }

    #[test]
    fn a_large_empty_filter_is_a_few_bytes() {
        assert!(bytes_of(&Value::from(Filter::from(filter(100_000_000, 0, 0)))).len() < 2000);
    }
}
