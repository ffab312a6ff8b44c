//! What a key of ours holds: a filter, or one whose chunks have not all arrived.

use super::{Error, NativeArrival, RedisBloomArrival};
use crate::bloom::{self, Contents, Filter, try_box};

/// What a key holds.
#[derive(Debug, PartialEq)]
pub enum Value {
    /// A filter.
    Filter(Filter),
    /// A filter whose chunks have not all arrived. It answers nothing yet.
    Arriving(Box<Arrival>),
}

/// A filter whose chunks have not all arrived. It is saved, copied and replicated as what it is.
#[derive(Debug, PartialEq)]
pub enum Arrival {
    /// A filter of ours.
    Native(NativeArrival),
    /// A filter of RedisBloom's layout.
    RedisBloom(RedisBloomArrival),
}

/// What a record did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is stored; more are to come.
    Stored,
    /// It had come before, with the same bytes: nothing changed.
    Known,
    /// It was the last one: the filter is whole.
    Complete,
}

impl From<Filter> for Value {
    fn from(filter: Filter) -> Self {
        Self::Filter(filter)
    }
}

/// Where there is no memory for the box, the process ends: [`Value::arriving`] refuses.
impl From<Arrival> for Value {
    fn from(arrival: Arrival) -> Self {
        Self::Arriving(Box::new(arrival))
    }
}

impl Value {
    /// A filter whose chunks have not all arrived.
    ///
    /// # Errors
    /// [`bloom::Error::OutOfMemory`] where the allocator refuses.
    pub fn arriving(arrival: Arrival) -> Result<Self, bloom::Error> {
        try_box(arrival).map(Self::Arriving)
    }

    /// Bytes that were asked of the allocator for what the value holds, its own fields included. Visits every layer.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        /// What a filter inside an arrival, whose fields are counted there, has outside of it.
        fn outside<R: bloom::Rules>(filter: &bloom::Chain<R>) -> u64 {
            filter.allocated_bytes() - size_of_val(filter) as u64
        }
        let (fields, held) = match self {
            Self::Filter(filter) => (size_of::<Self>() - size_of::<Filter>(), filter.allocated_bytes()),
            Self::Arriving(arrival) => {
                let held = match &**arrival {
                    Arrival::Native(arrival) => outside(arrival.filter()),
                    Arrival::RedisBloom(arrival) => outside(arrival.filter()) + arrival.header().len() as u64,
                };
                (size_of::<Self>() + size_of::<Arrival>(), held)
            }
        };
        held.saturating_add(fields as u64)
    }

    /// What there is to count of it; of an arriving one what it becomes.
    #[must_use]
    pub fn contents(&self) -> Contents {
        match self {
            Self::Filter(filter) => filter.contents(),
            Self::Arriving(arrival) => match &**arrival {
                Arrival::Native(arrival) => Contents::of(arrival.filter()),
                Arrival::RedisBloom(arrival) => Contents::of(arrival.filter()),
            },
        }
    }

    /// A value with the same fields and bits.
    ///
    /// # Errors
    /// [`bloom::Error::OutOfMemory`] where the allocator refuses.
    pub fn try_clone(&self) -> Result<Self, bloom::Error> {
        match self {
            Self::Filter(filter) => filter.try_clone().map(Self::Filter),
            Self::Arriving(arrival) => Self::arriving(match &**arrival {
                Arrival::Native(arrival) => Arrival::Native(arrival.try_clone()?),
                Arrival::RedisBloom(arrival) => Arrival::RedisBloom(arrival.try_clone()?),
            }),
        }
    }

    /// Takes the filter out, leaving one that holds nothing; of an arriving one when its last chunk has come.
    #[must_use]
    pub fn take_filter(&mut self) -> Filter {
        match std::mem::replace(self, Filter::nothing().into()) {
            Self::Filter(filter) => filter,
            Self::Arriving(arrival) => match *arrival {
                Arrival::Native(arrival) => arrival.into_filter().into(),
                Arrival::RedisBloom(arrival) => arrival.into_filter().into(),
            },
        }
    }
}

impl Arrival {
    /// Takes a record. The header may come again, and every chunk that came already, with the same bytes.
    ///
    /// # Errors
    /// For a record of another dump, out of order, of the wrong length or with a wrong checksum. Nothing has changed
    /// then.
    pub fn accept(&mut self, iterator: u64, data: &[u8]) -> Result<Progress, Error> {
        match self {
            Self::Native(arrival) => arrival.accept(iterator, data),
            Self::RedisBloom(arrival) => arrival.accept(iterator, data),
        }
    }
}
