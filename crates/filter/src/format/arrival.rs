//! A filter that arrives in records, of any kind that has records.

use super::known::is_duplicate_record;
use super::{AofRecord, Arriving, records};
use crate::ceiling::{Ceiling, Unlimited};
use crate::codec::{Error, Progress};
use crate::error;
use crate::kinds::{Contents, Filter, RedisBloomArrival, redisbloom};

/// A filter whose records have not all arrived. It is saved, copied and replicated as such.
#[derive(Debug, PartialEq)]
pub enum Arrival {
    /// A native, windowed or counting filter.
    Own(Arriving),
    /// A filter of RedisBloom's layout.
    RedisBloom(RedisBloomArrival),
}

impl Arrival {
    /// Begins with the first record of a dump.
    ///
    /// # Errors
    /// [`Error::NotADump`] and others for bytes that are no header; [`Error::Filter`] for a filter that cannot exist or does
    /// not fit under the ceiling.
    pub fn begin(iterator: u64, data: &[u8], ceiling: &impl Ceiling) -> Result<Self, Error> {
        // RedisBloom's header begins with a number of items, which may equal our magic. But it states its own length, and
        // none of our headers has that length.
        match RedisBloomArrival::begin(data, ceiling) {
            Err(Error::NotADump | Error::Truncated) if records::is_header(data) => {
                Arriving::begin(iterator, data, ceiling).map(Self::Own)
            }
            result => result.map(Self::RedisBloom),
        }
    }

    /// Returns the kind of filter whose dump begins with this record: `native`, `windowed`, `counting` or `redisbloom`.
    ///
    /// # Errors
    /// As [`begin`](Self::begin), except for lack of memory: no filter is allocated.
    pub fn kind_of(header: &[u8]) -> Result<&'static str, Error> {
        match redisbloom::dump::decode_header(header) {
            Err(Error::NotADump | Error::Truncated) if records::is_header(header) => {
                Filter::kind_name(records::open_header(header)?.0)
            }
            result => result.map(|_| "redisbloom"),
        }
    }

    /// Accepts a record. The header and every chunk that has arrived may be repeated with the same bytes.
    ///
    /// # Errors
    /// For a record of another dump, out of order, of the wrong length or with a wrong checksum. Nothing has changed then.
    pub fn accept(&mut self, iterator: u64, data: &[u8]) -> Result<Progress, Error> {
        self.accept_within(iterator, data, &Unlimited)
    }

    /// Accepts a record under a ceiling, which limits the entries of tables of deleted items: the header does not state their
    /// number.
    ///
    /// # Errors
    /// As [`accept`](Self::accept), and if the ceiling refuses.
    pub fn accept_within(&mut self, iterator: u64, data: &[u8], ceiling: &impl Ceiling) -> Result<Progress, Error> {
        match self {
            Self::Own(arrival) => arrival.accept_within(iterator, data, ceiling),
            Self::RedisBloom(arrival) => arrival.accept(iterator, data),
        }
    }

    /// Accepts a record that a primary accepted: records of our own format in order, RedisBloom's in any order.
    ///
    /// # Errors
    /// As [`accept`](Self::accept), except for records that RedisBloom accepts.
    pub fn obey(&mut self, iterator: u64, data: &[u8]) -> Result<Progress, Error> {
        match self {
            Self::Own(arrival) => arrival.accept(iterator, data),
            Self::RedisBloom(arrival) => arrival.obey(iterator, data),
        }
    }

    /// Whether the primary's filter is in use from its header on, before all of it has arrived: RedisBloom's is.
    #[must_use]
    pub const fn is_in_use_from_its_header(&self) -> bool {
        matches!(self, Self::RedisBloom(_))
    }

    /// Returns the filter after the last record.
    #[must_use]
    pub fn into_filter(self) -> Filter {
        match self {
            Self::Own(arrival) => arrival.into_filter(),
            Self::RedisBloom(arrival) => Filter::RedisBloom(arrival.into_filter()),
        }
    }

    /// The generation of its dump, if dumps of its kind have one.
    #[must_use]
    pub const fn generation(&self) -> Option<u16> {
        match self {
            Self::Own(arrival) => Some(arrival.generation()),
            Self::RedisBloom(_) => None,
        }
    }

    /// The counts of the complete filter.
    pub(super) fn contents(&self) -> Contents {
        match self {
            Self::Own(arrival) => arrival.filter().contents(),
            Self::RedisBloom(arrival) => arrival.filter().contents(),
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
        }
    }

    /// Returns a copy with the same fields and cells.
    ///
    /// # Errors
    /// [`error::Error::OutOfMemory`] if the allocator refuses.
    pub fn try_clone(&self) -> Result<Self, error::Error> {
        Ok(match self {
            Self::Own(arrival) => Self::Own(arrival.try_clone()?),
            Self::RedisBloom(arrival) => Self::RedisBloom(arrival.try_clone()?),
        })
    }

    /// Emits the records that have arrived, for an AOF.
    ///
    /// # Errors
    /// If there is no memory for a record, and those of `emit`.
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
        }
    }
}

impl Filter {
    /// Accepts a record that the filter already has, which changes nothing: a client that got no reply repeats its last record.
    /// The cells may have later items as well.
    ///
    /// # Errors
    /// For a record that the filter does not have.
    pub(super) fn accept(&self, generation: u16, iterator: u64, data: &[u8]) -> Result<Progress, Error> {
        match self {
            Self::RedisBloom(filter) => redisbloom::dump::is_duplicate_record(filter, iterator, data)?,
            Self::ValkeyBloom(_) => return Err(Error::NoRecords),
            _ => is_duplicate_record(self, generation, iterator, data)?,
        }
        Ok(Progress::Known)
    }

    /// Accepts a record that a primary accepted. Chunks overwrite RedisBloom's filters; other filters accept only records that
    /// they already have.
    ///
    /// # Errors
    /// For a record that does not fit the filter, or that it does not have. Nothing has changed then.
    pub(super) fn obey(&mut self, generation: u16, iterator: u64, data: &[u8]) -> Result<Progress, Error> {
        match self {
            Self::RedisBloom(filter) => redisbloom::dump::overwrite(filter, iterator, data),
            filter => filter.accept(generation, iterator, data),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scaling;
    use crate::format::records::DumpMark;
    use crate::kinds::{Defaults, Forgets, HashName, LayoutName, Request, Spec};

    #[test]
    fn a_header_shows_its_kind() {
        let defaults = Defaults {
            rate: 0.01,
            capacity: 100,
            scaling: Scaling::from_expansion(2),
            layout: LayoutName::Native,
            hash: HashName::Murmur3,
            tightening: 0.5,
            entropy: [9; 32],
            has_random_seeds: true,
            must_obey: false,
        };
        let plain = Request::new(&defaults);
        let forgets = |forgets| Request { forgets: Some(forgets), ..plain };
        let kinds = [
            (plain, "native"),
            (Request { hash: Some(HashName::SipHash), ..plain }, "native"),
            (forgets(Forgets::After { seconds: 60, is_sliding: false }), "windowed"),
            (forgets(Forgets::Rolling), "windowed"),
            (Request { is_counting: true, scaling: Scaling::Fixed, ..plain }, "counting"),
            (Request { layout: Some(LayoutName::RedisBloom), ..plain }, "redisbloom"),
        ];
        for (request, kind) in kinds {
            let spec = Spec::of(&request, &defaults).unwrap();
            let filter = Filter::new(&spec, &Unlimited).unwrap();
            let (_, header) = filter.next_record(1, 0, &mut DumpMark::default()).unwrap().unwrap();
            assert_eq!(Arrival::kind_of(&header), Ok(kind), "{request:?}");
            assert!(Arrival::kind_of(&header[1..]).is_err());
        }
        assert_eq!(Arrival::kind_of(b""), Err(Error::Truncated));
    }
}
