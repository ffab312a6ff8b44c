//! A filter whose chunks have not all arrived, of any kind that has records.

use super::kind::Kind;
use super::{AofRecord, BloomFilter, Contents, CountingFilter, Filter, RedisBloomArrival, WindowedFilter, redisbloom};
use crate::ceiling::{Ceiling, Unlimited};
use crate::error;
use crate::format::records::{self, Recorded};
use crate::format::{Arriving, Error, Progress, came_already as came_already_here};

/// A filter whose chunks have not all arrived. It is saved, copied and replicated as what it is.
#[derive(Debug, PartialEq)]
pub enum Arrival {
    /// A filter of ours.
    Native(Arriving<BloomFilter>),
    /// One that forgets.
    Windowed(Arriving<WindowedFilter>),
    /// One that counts.
    Counting(Arriving<CountingFilter>),
    /// A filter of RedisBloom's layout.
    RedisBloom(RedisBloomArrival),
}

impl Arrival {
    /// Begins with the first record of a dump.
    ///
    /// # Errors
    /// [`Error::NotADump`] and the like for what is no header; [`Error::Filter`] for a filter that cannot be or does not
    /// fit under the ceiling.
    pub fn begin(iterator: u64, data: &[u8], ceiling: &impl Ceiling) -> Result<Self, Error> {
        // RedisBloom's header begins with a number of items, which may be our magic. But it has the length that it says, and
        // none of ours has that.
        match RedisBloomArrival::begin(data, ceiling) {
            Err(Error::NotADump | Error::Truncated) if records::is_header(data) => {
                match records::open_header(data)?.0 {
                    BloomFilter::KIND => Arriving::begin(iterator, data, ceiling).map(Self::Native),
                    WindowedFilter::KIND => Arriving::begin(iterator, data, ceiling).map(Self::Windowed),
                    CountingFilter::KIND => Arriving::begin(iterator, data, ceiling).map(Self::Counting),
                    kind => Err(Error::UnknownKind(kind)),
                }
            }
            result => result.map(Self::RedisBloom),
        }
    }

    /// The kind of filter that a dump with this first record is of: `native`, `windowed`, `counting` or `redisbloom`.
    ///
    /// # Errors
    /// As [`begin`](Self::begin), but for those of memory: none is allocated for the filter.
    pub fn kind_of(header: &[u8]) -> Result<&'static str, Error> {
        match redisbloom::dump::decode_header(header) {
            Err(Error::NotADump | Error::Truncated) if records::is_header(header) => {
                match records::open_header(header)?.0 {
                    BloomFilter::KIND => Ok("native"),
                    WindowedFilter::KIND => Ok("windowed"),
                    CountingFilter::KIND => Ok("counting"),
                    kind => Err(Error::UnknownKind(kind)),
                }
            }
            result => result.map(|_| "redisbloom"),
        }
    }

    /// Takes a record. The header may come again, and every chunk that came already, with the same bytes.
    ///
    /// # Errors
    /// For a record of another dump, out of order, of the wrong length or with a wrong checksum. Nothing has changed
    /// then.
    pub fn accept(&mut self, iterator: u64, data: &[u8]) -> Result<Progress, Error> {
        self.accept_within(iterator, data, &Unlimited)
    }

    /// The same; the ceiling is asked for what the header did not tell of, the entries of a table of deleted items.
    ///
    /// # Errors
    /// As [`accept`](Self::accept), and where the ceiling refuses.
    pub fn accept_within(&mut self, iterator: u64, data: &[u8], ceiling: &impl Ceiling) -> Result<Progress, Error> {
        match self {
            Self::Native(arrival) => arrival.accept_within(iterator, data, ceiling),
            Self::Windowed(arrival) => arrival.accept_within(iterator, data, ceiling),
            Self::Counting(arrival) => arrival.accept_within(iterator, data, ceiling),
            Self::RedisBloom(arrival) => arrival.accept(iterator, data),
        }
    }

    /// Takes a record that a primary took. One of ours takes them in order, one of RedisBloom's in any.
    ///
    /// # Errors
    /// As [`accept`](Self::accept), but for what RedisBloom takes.
    pub fn obey(&mut self, iterator: u64, data: &[u8]) -> Result<Progress, Error> {
        match self {
            Self::Native(arrival) => arrival.accept(iterator, data),
            Self::Windowed(arrival) => arrival.accept(iterator, data),
            Self::Counting(arrival) => arrival.accept(iterator, data),
            Self::RedisBloom(arrival) => arrival.obey(iterator, data),
        }
    }

    /// Whether the primary's filter is in use from its header on, before all of it has come: RedisBloom's is.
    #[must_use]
    pub const fn is_in_use_from_its_header(&self) -> bool {
        match self {
            Self::Native(_) | Self::Windowed(_) | Self::Counting(_) => false,
            Self::RedisBloom(_) => true,
        }
    }

    /// The filter, when the last chunk has come.
    #[must_use]
    pub fn into_filter(self) -> Filter {
        match self {
            Self::Native(arrival) => Filter::Native(arrival.into_filter()),
            Self::Windowed(arrival) => Filter::Windowed(arrival.into_filter()),
            Self::Counting(arrival) => Filter::Counting(arrival.into_filter()),
            Self::RedisBloom(arrival) => Filter::RedisBloom(arrival.into_filter()),
        }
    }

    /// The generation that its dump has, where that kind's dumps have one.
    #[must_use]
    pub const fn generation(&self) -> Option<u16> {
        match self {
            Self::Native(arrival) => Some(arrival.generation()),
            Self::Windowed(arrival) => Some(arrival.generation()),
            Self::Counting(arrival) => Some(arrival.generation()),
            Self::RedisBloom(_) => None,
        }
    }

    /// What there is to count of what it becomes.
    pub(super) fn contents(&self) -> Contents {
        match self {
            Self::Native(arrival) => arrival.filter().contents(),
            Self::Windowed(arrival) => arrival.filter().contents(),
            Self::Counting(arrival) => arrival.filter().contents(),
            Self::RedisBloom(arrival) => arrival.filter().contents(),
        }
    }

    /// Bytes that were asked of the allocator, without its own fields. Visits every layer.
    pub(super) fn allocated_bytes(&self) -> u64 {
        match self {
            Self::Native(arrival) => outside(arrival.filter()),
            Self::Windowed(arrival) => outside(arrival.filter()),
            Self::Counting(arrival) => outside(arrival.filter()),
            Self::RedisBloom(arrival) => outside(arrival.filter()) + arrival.own_bytes(),
        }
    }

    /// A value with the same fields and bits.
    ///
    /// # Errors
    /// [`error::Error::OutOfMemory`] where the allocator refuses.
    pub fn try_clone(&self) -> Result<Self, error::Error> {
        Ok(match self {
            Self::Native(arrival) => Self::Native(arrival.try_clone()?),
            Self::Windowed(arrival) => Self::Windowed(arrival.try_clone()?),
            Self::Counting(arrival) => Self::Counting(arrival.try_clone()?),
            Self::RedisBloom(arrival) => Self::RedisBloom(arrival.try_clone()?),
        })
    }

    /// What has come, record by record, for an AOF.
    ///
    /// # Errors
    /// Where there is no memory for a record, and those of `emit`.
    pub(super) fn for_each_record(
        &self,
        mut emit: impl FnMut(AofRecord<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let chunk = |record: Result<(u64, Vec<u8>), Error>| {
            let (iterator, data) = record?;
            emit(AofRecord::Chunk { iterator, data: &data })
        };
        match self {
            Self::Native(arrival) => arrival.records().try_for_each(chunk),
            Self::Windowed(arrival) => arrival.records().try_for_each(chunk),
            Self::Counting(arrival) => arrival.records().try_for_each(chunk),
            Self::RedisBloom(arrival) => {
                arrival.records().try_for_each(|(iterator, data)| emit(AofRecord::Chunk { iterator, data }))
            }
        }
    }
}

/// What a filter inside an arrival, whose own fields are counted there, has outside of it.
fn outside<F: Kind>(filter: &F) -> u64 {
    filter.allocated_bytes() - size_of_val(filter) as u64
}

/// Takes note of a record that a filter has had already: a client that got no answer sends the last one again. What was
/// added since may be in the bits as well.
///
/// # Errors
/// For a record that did not come with this filter.
pub(super) fn came_already(filter: &Filter, generation: u16, iterator: u64, data: &[u8]) -> Result<(), Error> {
    match filter {
        Filter::Native(filter) => came_already_here(filter, generation, iterator, data),
        Filter::Windowed(filter) => came_already_here(filter, generation, iterator, data),
        Filter::Counting(filter) => came_already_here(filter, generation, iterator, data),
        Filter::RedisBloom(filter) => redisbloom::dump::came_already(filter, iterator, data),
        Filter::ValkeyBloom(_) => Err(Error::NoRecords),
    }
}

/// Takes a record that a primary took into a filter: RedisBloom's takes chunks over what is there, of the others one that
/// came already.
///
/// # Errors
/// For a record that has no place in this filter, or did not come with it. Nothing has changed then.
pub(super) fn overwrite(filter: &mut Filter, generation: u16, iterator: u64, data: &[u8]) -> Result<Progress, Error> {
    match filter {
        Filter::RedisBloom(filter) => redisbloom::dump::overwrite(filter, iterator, data),
        Filter::Native(_) | Filter::Windowed(_) | Filter::Counting(_) | Filter::ValkeyBloom(_) => {
            came_already(filter, generation, iterator, data).map(|()| Progress::Known)
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
    fn a_header_tells_its_kind() {
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
