//! The common parts of all codecs. They write to a [`Sink`] and read from a [`Source`]: in tests and dumps a `Vec` and a slice,
//! in the module the server's snapshot.
//!
//! Input may be hostile. A codec refuses it with an error or returns a sound filter; it does not panic, and it allocates no
//! more memory than its ceiling allows.

pub(crate) mod chunks;
mod fields;
mod packed;
pub(crate) mod ranges;

pub use chunks::CHUNK_BYTES;
pub(crate) use fields::Packed;
pub use fields::{ByteSink, ByteSource};
pub(crate) use packed::{PACKED_MAX, PackedSink, PackedSource};

use crate::ceiling::Ceiling;
use crate::chain::Rules;
use crate::error;

/// The output of a codec. Writing cannot fail here, because the server records the errors of a snapshot.
pub trait Sink {
    /// Writes an unsigned number.
    fn put_u64(&mut self, number: u64);
    /// Writes a double, bit by bit.
    fn put_f64(&mut self, number: f64);
    /// Writes bytes and their length.
    fn put_bytes(&mut self, bytes: &[u8]);
}

/// The input of a codec.
pub trait Source {
    /// Bytes as the source returns them.
    type Bytes<'a>: AsRef<[u8]>
    where
        Self: 'a;

    /// Reads an unsigned number.
    ///
    /// # Errors
    /// [`Error::Truncated`] at the end of the source.
    fn u64(&mut self) -> Result<u64, Error>;
    /// Reads a double.
    ///
    /// # Errors
    /// [`Error::Truncated`] at the end of the source.
    fn f64(&mut self) -> Result<f64, Error>;
    /// Reads bytes of the length that was written.
    ///
    /// # Errors
    /// [`Error::Truncated`] at the end of the source.
    fn bytes(&mut self) -> Result<Self::Bytes<'_>, Error>;
    /// Reads bytes into memory owned by the caller, without a copy if the source already has them in such memory.
    ///
    /// # Errors
    /// [`Error::Truncated`] at the end of the source.
    fn owned_bytes(&mut self) -> Result<Box<[u8]>, Error>;
}

/// The effect of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is stored, and others are missing.
    Stored,
    /// It had arrived before with the same bytes. Nothing changed.
    Known,
    /// It was the last one: the filter is complete.
    Complete,
}

/// Why bytes were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// They end too early.
    Truncated,
    /// There are trailing bytes.
    Overlong,
    /// They have an unknown version.
    UnknownVersion(u64),
    /// They are of an unknown kind.
    UnknownKind(u64),
    /// The filter uses an unknown hash.
    UnknownHash(u64),
    /// A number is out of range.
    OutOfRange,
    /// A chunk has the wrong length for its place.
    WrongLength,
    /// The checksum is wrong, or the bytes belong to another filter, or to a ring with other buckets.
    WrongChecksum,
    /// A chunk belongs to another dump.
    WrongGeneration,
    /// A chunk is neither the next one nor a duplicate.
    WrongOrder {
        /// The iterator of the next chunk.
        expected: u64,
    },
    /// A chunk begins after the bytes that have arrived.
    Gap {
        /// The number of bytes that have arrived.
        arrived_bytes: u64,
    },
    /// A chunk begins after the end of the filter.
    BeyondEnd,
    /// A chunk crosses the end of its layer.
    TooLong,
    /// A repeated chunk has other bytes than before.
    Different,
    /// They are not a dump in this format.
    NotADump,
    /// The filter's layout has no records.
    NoRecords,
    /// They describe a filter that cannot exist or does not fit.
    Filter(error::Error),
}

impl From<error::Error> for Error {
    fn from(error: error::Error) -> Self {
        Self::Filter(error)
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Truncated => f.write_str("the data ends too early"),
            Self::Overlong => f.write_str("there is something after the end of the data"),
            Self::UnknownVersion(version) => write!(f, "version {version} of the layout is not known"),
            Self::UnknownKind(kind) => write!(f, "filter kind {kind} is not known"),
            Self::UnknownHash(hash) => write!(f, "hash function {hash} is not known"),
            Self::OutOfRange => f.write_str("a number is out of range"),
            Self::WrongLength => f.write_str("a chunk has the wrong length"),
            Self::WrongChecksum => f.write_str("the checksum is wrong: damaged, or of another filter or dump"),
            Self::WrongGeneration => f.write_str("the chunk belongs to another dump"),
            Self::WrongOrder { expected } => write!(f, "the chunk is out of order, {expected} is next"),
            Self::Gap { arrived_bytes } => {
                write!(f, "the chunk is out of order, it begins after the {arrived_bytes} bytes that have come")
            }
            Self::BeyondEnd => f.write_str("the chunk begins after the end of the filter"),
            Self::TooLong => f.write_str("the chunk goes on past the end of its layer"),
            Self::Different => f.write_str("the chunk differs from the one that came before"),
            Self::NotADump => f.write_str("this is no dump of a filter"),
            Self::NoRecords => f.write_str("a filter of this layout has no records"),
            Self::Filter(error) => write!(f, "the filter is refused: {error}"),
        }
    }
}

impl std::error::Error for Error {}

/// Reads an unsigned number of at most 32 bits.
pub(crate) fn read_u32(source: &mut impl Source) -> Result<u32, Error> {
    u32::try_from(source.u64()?).map_err(|_| Error::OutOfRange)
}

/// Checks a number of layers against the rules of the filter and against the ceiling.
pub(crate) fn number_of_layers<R: Rules>(number: u64, ceiling: &impl Ceiling) -> Result<usize, Error> {
    let layers = usize::try_from(number).ok().filter(|layers| (1..=R::LAYERS_MAX).contains(layers));
    let layers = layers.ok_or(Error::OutOfRange)?;
    if layers > ceiling.layers_max() { Err(error::Error::TooManyLayers.into()) } else { Ok(layers) }
}
