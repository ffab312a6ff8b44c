//! The reasons to refuse a command, and all error texts.

use std::fmt;

use super::numbers::Range;
use crate::error::Error;
use crate::format;
use crate::kinds::Difference;

/// The reason why a command is refused. A refused command has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Refusal {
    /// The number of words is wrong.
    Arity,
    /// A CF.* command is refused, with this text.
    Cuckoo(&'static str),
    /// The key holds a value of another type.
    WrongType,
    /// The key is missing.
    NotFound,
    /// The key exists already.
    Exists,
    /// BF.RESERVE with EXIST_OK: the key holds a filter with other parameters.
    Differs(Difference),
    /// The last record of the filter at the key is not loaded yet.
    StillLoading,
    /// A word is not an option.
    Syntax,
    /// BF.RESERVE, BF.PLAN: the rate is not inside (0, 1).
    RateRange,
    /// BF.RESERVE, BF.PLAN: the capacity is not positive, or too large for the layout.
    CapacityRange,
    /// BF.RESERVE, BF.PLAN: the expansion is not inside [0, 32768].
    ExpansionRange,
    /// BF.RESERVE, BF.PLAN: both NONSCALING and an EXPANSION above 0.
    FixedExpansion,
    /// Options of different layouts.
    LayoutMismatch,
    /// The named value is missing.
    No(&'static str),
    /// The named value is not valid.
    Bad(&'static str),
    /// BF.INSERT: the named value of an option that is not an extension is not valid.
    InsertBad(&'static str),
    /// The value of an option of Bloomgate's own is not a whole number in its range.
    Range(&'static Range),
    /// Two options exclude each other.
    Exclude(&'static str, &'static str),
    /// The first option requires the second.
    Needs(&'static str, &'static str),
    /// The command is for filters created with this option.
    HasNot(&'static str),
    /// BF.INSERT: both NONSCALING and VALIDATESCALETO.
    FixedScaleTo,
    /// BF.INSERT: a filter grown to VALIDATESCALETO items would exceed the memory limit.
    ScaleTo,
    /// BF.INSERT: the rates of the layers would reach 0 before the filter has grown to VALIDATESCALETO items.
    ScaleToRate,
    /// BF.INSERT: a word is not an option.
    InsertUnknown,
    /// BF.INFO: the word is not a field.
    InfoField,
    /// BF.INFO: a field of valkey-bloom's that this filter does not have.
    InfoFieldMissing,
    /// BF.SCANDUMP: the iterator is not a whole number.
    BadDumpIterator,
    /// BF.SCANDUMP: the iterator does not belong to a dump of this filter.
    Dump(format::Error),
    /// BF.LOAD: the key exists already.
    LoadExists,
    /// BF.LOAD: the data is refused.
    Load(format::Error),
    /// BF.LOADCHUNK: the iterator is not a whole number.
    BadLoadIterator,
    /// BF.LOADCHUNK: the data does not belong to the filter being loaded.
    BadData,
    /// BF.LOADCHUNK: the data is not a header of RedisBloom's.
    Header(format::Error),
    /// BF.LOADCHUNK: the data is refused.
    Chunk(format::Error),
    /// The server did not store a value, for an unknown reason.
    NotStored,
    /// BF.FETCH and BF.MFETCH: the follower that keeps the key of WHILE would not delete this cache key.
    NotFollowed,
    /// BF.FETCH and BF.MFETCH: the cache key is the key of WHILE, or another key of its follower.
    BelongsToWhile,
    /// The server did not open the key for writing.
    NotWritable,
    /// Only the primary can answer.
    Replica,
    /// The filter cannot be created, or cannot take the item.
    Filter(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Filter(error)
    }
}

/// The error text, which clients compare: one line of ASCII.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::Arity => "ERR wrong number of arguments",
            Self::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
            Self::NotFound => "ERR not found",
            Self::Exists => "ERR item exists",
            Self::Differs(difference) => return write!(f, "ERR item exists with another {difference}"),
            Self::StillLoading => "ERR filter is still being loaded",
            Self::Syntax => "ERR syntax error",
            Self::RateRange => "ERR error rate must be in the range (0.000000, 1.000000)",
            Self::CapacityRange => "ERR capacity must be in the range [1, 1073741824]",
            Self::ExpansionRange => "ERR expansion must be in the range [0, 32768]",
            Self::FixedExpansion => "Nonscaling filters cannot expand",
            Self::LayoutMismatch => "ERR a filter of this layout has no such seed, tightening ratio or policy",
            Self::No(name) => return write!(f, "ERR no {name}"),
            Self::Bad(name) => return write!(f, "ERR bad {name}"),
            Self::InsertBad(name) => return write!(f, "Bad {name}"),
            Self::Range(Range { option, least, most }) => {
                return write!(f, "ERR {option} is a whole number from {least} to {most}");
            }
            Self::Cuckoo(text) => text,
            Self::Exclude(one, other) => return write!(f, "ERR {one} and {other} exclude each other"),
            Self::Needs(word, other) => return write!(f, "ERR {word} needs {other}"),
            Self::HasNot(word) => return write!(f, "ERR this filter has no {word}"),
            Self::FixedScaleTo => "ERR cannot use NONSCALING and VALIDATESCALETO options together",
            Self::ScaleTo => "ERR provided VALIDATESCALETO causes bloom object to exceed memory limit",
            Self::ScaleToRate => "ERR provided VALIDATESCALETO causes false positive to degrade to 0",
            Self::InsertUnknown => "Unknown argument received",
            Self::InfoField => "Invalid information value",
            Self::InfoFieldMissing => "ERR invalid information value",
            Self::BadDumpIterator => "Second argument must be numeric",
            Self::NotStored => "ERR the value was not stored",
            Self::NotFollowed => {
                "ERR the follower of WHILE does not delete this cache key: compare `cache-key` and `item` of its configuration"
            }
            Self::BelongsToWhile => "ERR the cache key belongs to WHILE",
            Self::NotWritable => "ERR the server cannot open the key for writing: try again",
            Self::Replica => "READONLY You can't guard with a replica: its filter may not have every item",
            Self::Dump(format::Error::WrongGeneration) => "ERR the filter was replaced since the dump began",
            Self::Dump(format::Error::NoRecords) => {
                "ERR BF.SCANDUMP cannot dump a filter of valkey-bloom's layout, DUMP can"
            }
            Self::LoadExists => "BUSYKEY Target key name already exists.",
            Self::Load(format::Error::UnknownVersion(_)) => "ERR bloom object decoding failed. Unsupported version",
            Self::BadLoadIterator => "ERR Second argument must be numeric",
            Self::BadData | Self::Chunk(format::Error::NoRecords) => "ERR received bad data",
            Self::Chunk(format::Error::Filter(Error::TooManyLayers))
            | Self::Header(format::Error::Filter(Error::TooManyLayers))
            | Self::Load(format::Error::Filter(Error::TooManyLayers)) => {
                "ERR the filter has more layers than a client may bring"
            }
            Self::Chunk(format::Error::BeyondEnd) => "ERR invalid offset - no link found",
            Self::Chunk(format::Error::TooLong) => "ERR invalid chunk - Too big for current filter",
            Self::Dump(format::Error::Filter(error))
            | Self::Chunk(format::Error::Filter(error))
            | Self::Header(format::Error::Filter(error))
            | Self::Load(format::Error::Filter(error))
                if error.is_out_of_memory() =>
            {
                return write_filter(error, f);
            }
            Self::Filter(error) => return write_filter(error, f),
            Self::Dump(_) => "ERR invalid iterator",
            Self::Load(_) => "ERR bloom object decoding failed",
            Self::Chunk(error) | Self::Header(error @ format::Error::UnknownVersion(_)) => {
                return write!(f, "ERR received bad data: {error}");
            }
            Self::Header(_) => "ERR received bad data",
        })
    }
}

/// The beginning of the error text if there is no memory for a filter or its next layer.
const NO_MEMORY: &str = "ERR Insufficient memory to create filter";

fn write_filter(error: Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match error {
        Error::Full => f.write_str("ERR non scaling filter is full"),
        Error::CannotDelete => f.write_str("ERR this filter cannot delete: it needs CUCKOO, HASH siphash or COUNTING"),
        Error::CannotGuard => f.write_str("ERR a CUCKOO or COUNTING filter cannot guard"),
        Error::CannotMerge => {
            f.write_str("ERR this filter cannot be merged: it has CUCKOO, COUNTING, WINDOW, ROLLING or another layout")
        }
        Error::Different => {
            f.write_str("ERR filters were created differently: rate, capacity, EXPANSION, HASH and SEED must be equal")
        }
        Error::UnionTooLarge { items, capacity } => {
            write!(f, "ERR the union would hold about {items} items, the capacity is {capacity}")
        }
        Error::TooManyLayers => f.write_str("ERR filter cannot grow: it has as many layers as a filter can have"),
        Error::RateTooLow => f.write_str("ERR the error rate of the filter or of its next layer is too low"),
        Error::CapacityOutOfRange => f.write_str("ERR filter cannot grow: the capacity does not fit 64 bits"),
        Error::SizeOverflow => write!(f, "{NO_MEMORY}: no machine has that much memory"),
        // A sum that did not fit was replaced by the largest number.
        Error::AboveCeiling { asked_bytes, .. } if i64::try_from(asked_bytes).is_err() => {
            write_filter(Error::SizeOverflow, f)
        }
        Error::AboveCeiling { asked_bytes, available_bytes } => {
            write!(f, "{NO_MEMORY}: {asked_bytes} bytes asked, {available_bytes} available")
        }
        Error::OutOfMemory { asked_bytes } => {
            write!(f, "{NO_MEMORY}: {asked_bytes} bytes asked, the server cannot allocate them")
        }
        Error::NoRoomForDeleted { entries } => {
            write!(f, "ERR no room for more deleted items ({entries} entries): rebuild the filter")
        }
        Error::RateOutOfRange => write!(f, "{}", Refusal::RateRange),
        Error::Unsound => write!(f, "{}", Refusal::BadData),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_errors_omit_unknown_sizes() {
        let text = |error: Error| Refusal::from(error).to_string().replace(NO_MEMORY, "");
        let above = |asked_bytes| Error::AboveCeiling { asked_bytes, available_bytes: 7 };
        assert_eq!(text(above(1 << 40)), ": 1099511627776 bytes asked, 7 available");
        for error in [Error::SizeOverflow, above(u64::MAX), above(1 << 63)] {
            assert_eq!(text(error), ": no machine has that much memory");
        }
        assert_eq!(text(Error::OutOfMemory { asked_bytes: 100 }), ": 100 bytes asked, the server cannot allocate them");
    }

    #[test]
    fn a_full_table_of_deleted_items_has_its_own_error_text() {
        let refusal = Refusal::from(Error::NoRoomForDeleted { entries: 12 });
        assert_eq!(refusal.to_string(), "ERR no room for more deleted items (12 entries): rebuild the filter");
    }
}
