//! What a client gets to read: values, and every error text in one place.

use std::ffi::{CStr, c_long};
use std::fmt;

use redis_module::raw;

use super::context::Context;
use super::text::Text;
use crate::bloom::Error;
use crate::format;

/// Why a command is refused. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Refusal {
    /// The number of words is wrong.
    Arity,
    /// The key holds a value of another type.
    WrongType,
    /// There is no such key.
    NotFound,
    /// There is such a key already.
    Exists,
    /// The filter at the key has not arrived as a whole.
    StillLoading,
    /// A word that is no option.
    Syntax,
    /// BF.RESERVE: the rate is no number.
    BadRate,
    /// BF.RESERVE: the rate is not inside (0, 1).
    RateRange,
    /// BF.RESERVE: the capacity is no whole number.
    BadCapacity,
    /// BF.RESERVE: the capacity is not positive.
    CapacityRange,
    /// BF.RESERVE: nothing behind EXPANSION.
    NoExpansion,
    /// BF.RESERVE: the expansion is no whole number.
    BadExpansion,
    /// BF.RESERVE: the expansion is not inside [0, 32768].
    ExpansionRange,
    /// BF.RESERVE: both EXPANSION and NONSCALING.
    FixedExpansion,
    /// BF.RESERVE: nothing behind SEED.
    NoSeed,
    /// BF.RESERVE: the seed is not inside [0, 2^32 - 1].
    BadSeed,
    /// BF.RESERVE: nothing behind LAYOUT.
    NoLayout,
    /// BF.RESERVE: a layout that is not known.
    BadLayout,
    /// Words that ask for filters of different layouts.
    LayoutMismatch,
    /// BF.INSERT: the rate is none.
    InsertRate,
    /// BF.INSERT: the capacity is none.
    InsertCapacity,
    /// BF.INSERT: the expansion is none.
    InsertExpansion,
    /// BF.INSERT: the seed is none.
    InsertSeed,
    /// BF.INSERT: a layout that is not known.
    InsertLayout,
    /// BF.INSERT: the tightening ratio is none.
    InsertTightening,
    /// BF.INSERT: the number of items to grow to is none.
    InsertScaleTo,
    /// BF.INSERT: both NONSCALING and VALIDATESCALETO.
    FixedScaleTo,
    /// BF.INSERT: the filter cannot grow to so many items.
    ScaleTo,
    /// BF.INSERT: the rates of its layers would come to an end before.
    ScaleToRate,
    /// BF.INSERT: a word that is no option.
    InsertUnknown,
    /// BF.INFO: a word that is no field.
    InfoField,
    /// BF.INFO: a word of valkey-bloom's for a field that this filter has not.
    InfoFieldMissing,
    /// BF.SCANDUMP: the iterator is no whole number.
    BadDumpIterator,
    /// BF.SCANDUMP: the iterator is not one of a dump of this filter.
    Dump(format::Error),
    /// BF.SCANDUMP: the filter has a layout without records.
    DumpLayout,
    /// BF.LOAD: there is such a key already.
    LoadExists,
    /// BF.LOAD: the data is refused.
    Load(format::Error),
    /// BF.LOADCHUNK: the iterator is no whole number.
    BadLoadIterator,
    /// BF.LOADCHUNK: the data does not belong here.
    BadData,
    /// BF.LOADCHUNK: the data is no header of RedisBloom's.
    Header(format::Error),
    /// BF.LOADCHUNK: the data is refused.
    Chunk(format::Error),
    /// The filter cannot be made, or cannot take the item.
    Filter(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Filter(error)
    }
}

impl Refusal {
    /// Whether a server that must obey refuses for want of memory or of layers. BF.SCANDUMP changes nothing.
    pub const fn is_want(self) -> bool {
        matches!(
            self,
            Self::Filter(error)
                | Self::Chunk(format::Error::Filter(error))
                | Self::Header(format::Error::Filter(error))
                | Self::Load(format::Error::Filter(error))
                if matches!(error, Error::OutOfMemory { .. } | Error::TooManyLayers)
        )
    }
}

/// The text as clients compare it. ASCII, one line.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::Arity => "ERR wrong number of arguments",
            Self::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
            Self::NotFound => "ERR not found",
            Self::Exists => "ERR item exists",
            Self::StillLoading => "ERR filter is still being loaded",
            Self::Syntax => "ERR syntax error",
            Self::BadRate => "ERR bad error rate",
            Self::RateRange => "ERR error rate must be in the range (0.000000, 1.000000)",
            Self::BadCapacity => "ERR bad capacity",
            Self::CapacityRange => "ERR capacity must be in the range [1, 1073741824]",
            Self::NoExpansion => "ERR no expansion",
            Self::BadExpansion => "ERR bad expansion",
            Self::ExpansionRange => "ERR expansion must be in the range [0, 32768]",
            Self::FixedExpansion => "Nonscaling filters cannot expand",
            Self::NoSeed => "ERR no seed",
            Self::BadSeed => "ERR bad seed",
            Self::NoLayout => "ERR no layout",
            Self::BadLayout => "ERR bad layout",
            Self::LayoutMismatch => "ERR a filter of this layout has no such seed or tightening ratio",
            Self::InsertRate => "Bad error rate",
            Self::InsertCapacity => "Bad capacity",
            Self::InsertExpansion => "Bad expansion",
            Self::InsertSeed => "Bad seed",
            Self::InsertLayout => "Bad layout",
            Self::InsertTightening => "Bad tightening ratio",
            Self::InsertScaleTo => "Bad validatescaleto",
            Self::FixedScaleTo => "ERR cannot use NONSCALING and VALIDATESCALETO options together",
            Self::ScaleTo => "ERR provided VALIDATESCALETO causes bloom object to exceed memory limit",
            Self::ScaleToRate => "ERR provided VALIDATESCALETO causes false positive to degrade to 0",
            Self::InsertUnknown => "Unknown argument received",
            Self::InfoField => "Invalid information value",
            Self::InfoFieldMissing => "ERR invalid information value",
            Self::BadDumpIterator => "Second argument must be numeric",
            Self::Dump(format::Error::WrongGeneration) => "ERR the filter was replaced since the dump began",
            Self::DumpLayout => "ERR BF.SCANDUMP cannot dump a filter of valkey-bloom's layout, DUMP can",
            Self::LoadExists => "BUSYKEY Target key name already exists.",
            Self::Load(format::Error::UnknownVersion(_)) => "ERR bloom object decoding failed. Unsupported version",
            Self::BadLoadIterator => "ERR Second argument must be numeric",
            Self::BadData => "ERR received bad data",
            Self::Chunk(format::Error::BehindEnd) => "ERR invalid offset - no link found",
            Self::Chunk(format::Error::TooLong) => "ERR invalid chunk - Too big for current filter",
            Self::Dump(format::Error::Filter(error @ Error::OutOfMemory { .. }))
            | Self::Chunk(format::Error::Filter(error @ Error::OutOfMemory { .. }))
            | Self::Header(format::Error::Filter(error @ Error::OutOfMemory { .. }))
            | Self::Load(format::Error::Filter(error @ Error::OutOfMemory { .. }))
            | Self::Filter(error) => return write_filter(error, f),
            Self::Dump(_) => "ERR invalid iterator",
            Self::Load(_) => "ERR bloom object decoding failed",
            Self::Header(_) => "ERR received bad data",
            Self::Chunk(error) => return write!(f, "ERR received bad data: {error}"),
        })
    }
}

fn write_filter(error: Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match error {
        Error::Full => f.write_str("ERR non scaling filter is full"),
        Error::TooManyLayers => f.write_str("ERR filter cannot grow: it has as many layers as a filter can have"),
        Error::RateTooLow => f.write_str("ERR the error rate of the filter or of its next layer is too low"),
        Error::CapacityOutOfRange => f.write_str("ERR filter cannot grow: the capacity does not fit 64 bits"),
        Error::OutOfMemory { asked_bytes, available_bytes } => {
            let text = "ERR Insufficient memory to create filter";
            write!(f, "{text}: {asked_bytes} bytes asked, {available_bytes} available")
        }
        Error::RateOutOfRange => write!(f, "{}", Refusal::RateRange),
        Error::Unsound => write!(f, "{}", Refusal::BadData),
    }
}

/// Replies with an error.
pub fn error(context: Context, refusal: Refusal) {
    // SAFETY: the context is valid; the text is a C string, which the server copies.
    unsafe {
        if refusal == Refusal::Arity {
            if let Some(wrong_arity) = raw::RedisModule_WrongArity {
                wrong_arity(context.raw);
            }
        } else if let Some(reply) = raw::RedisModule_ReplyWithError {
            reply(context.raw, Text::of(refusal).as_ptr());
        }
    }
}

/// Replies with `+OK`.
pub fn ok(context: Context) {
    simple_string(context, c"OK");
}

/// Replies with a simple string.
pub fn simple_string(context: Context, text: &CStr) {
    raw::reply_with_simple_string(context.raw, text.as_ptr());
}

/// Replies with 1 or 0 in RESP2, with a boolean in RESP3.
#[inline]
pub fn boolean(context: Context, value: bool) {
    raw::reply_with_bool(context.raw, value.into());
}

/// Replies with an integer. What does not fit the protocol's 64 bits with a sign becomes the largest that does.
pub fn integer(context: Context, number: u64) {
    raw::reply_with_long_long(context.raw, i64::try_from(number).unwrap_or(i64::MAX));
}

/// Replies with a fraction; in RESP2 with 17 digits, as the server writes it.
pub fn fraction(context: Context, number: f64) {
    raw::reply_with_double(context.raw, number);
}

/// Replies with any bytes.
pub fn bytes(context: Context, bytes: &[u8]) {
    raw::reply_with_string_buffer(context.raw, bytes.as_ptr().cast(), bytes.len());
}

/// Replies with null.
pub fn null(context: Context) {
    raw::reply_with_null(context.raw);
}

/// Begins an array of so many elements, each a reply of its own.
pub fn array(context: Context, length: usize) {
    raw::reply_with_array(context.raw, c_length(length));
}

/// Begins a map of so many pairs; a flat array in RESP2.
pub fn map(context: Context, pairs: usize) {
    raw::reply_with_map(context.raw, c_length(pairs));
}

/// Begins an array whose length is told at its end, by [`end_array`].
pub fn open_array(context: Context) {
    raw::reply_with_array(context.raw, raw::REDISMODULE_POSTPONED_LEN.into());
}

/// Tells the length of the array that [`open_array`] began.
pub fn end_array(context: Context, length: usize) {
    // SAFETY: the context is valid and an array is open.
    unsafe {
        if let Some(set_length) = raw::RedisModule_ReplySetArrayLength {
            set_length(context.raw, c_length(length));
        }
    }
}

fn c_length(length: usize) -> c_long {
    c_long::try_from(length).unwrap_or(c_long::MAX)
}
