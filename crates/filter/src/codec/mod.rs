//! Shared by all codecs, which write to a [`Sink`] and read from a [`Source`]: a `Vec` and a slice in tests and dumps, the server's
//! snapshot in the module.
//!
//! Input may be hostile. A codec refuses it with an error or returns a sound filter; it does not panic, and it allocates no
//! more memory than its ceiling allows.

pub(crate) mod chunks;
pub(crate) mod nonzero;

pub use chunks::CHUNK_BYTES;

use std::borrow::Cow;

use crate::chain::Rules;
use crate::error;
use crate::host::Ceiling;
use crate::memory::try_copy;

/// The output of a codec. Writing cannot fail here, because the server records the errors of a snapshot.
pub trait Sink {
    /// Writes an unsigned number.
    fn put_u64(&mut self, number: u64);
    /// Writes a double, bit by bit.
    fn put_f64(&mut self, number: f64) {
        self.put_u64(number.to_bits());
    }
    /// Writes bytes and their length.
    fn put_bytes(&mut self, bytes: &[u8]);
}

/// The input of a codec. Reading beyond its end returns [`Error::Truncated`].
pub trait Source {
    /// Bytes as the source returns them.
    type Bytes<'a>: AsRef<[u8]>
    where
        Self: 'a;

    /// Reads an unsigned number.
    fn u64(&mut self) -> Result<u64, Error>;
    /// Reads a double.
    fn f64(&mut self) -> Result<f64, Error> {
        self.u64().map(f64::from_bits)
    }
    /// Reads bytes of the length that was written.
    fn bytes(&mut self) -> Result<Self::Bytes<'_>, Error>;
    /// Reads bytes into memory owned by the caller, without a copy if the source already has them in such memory.
    fn owned_bytes(&mut self) -> Result<Box<[u8]>, Error> {
        Ok(try_copy(self.bytes()?.as_ref())?)
    }
}

/// A record of a dump: its iterator and its data.
pub type Record<'a> = (u64, Cow<'a, [u8]>);

/// The effect of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is stored, and other records are missing.
    Stored,
    /// It had arrived before with the same bytes. Nothing changed.
    Known,
    /// It was the last missing record: the filter is complete.
    Complete,
}

/// The reason why bytes were refused.
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
    /// A chunk has the wrong length for its position.
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
            Self::Overlong => f.write_str("bytes follow the end of the data"),
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
            Self::TooLong => f.write_str("the chunk extends past the end of its layer"),
            Self::Different => f.write_str("the chunk differs from the one that came before"),
            Self::NotADump => f.write_str("this is not a dump of a filter"),
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

// Fields as plain little-endian bytes: for the headers of dumps, for snapshots in tests, and for the packed formats of other
// modules.

/// Writes fields one after another: numbers in 8 bytes, bytes after their length.
#[derive(Debug, Default)]
pub struct ByteSink(
    /// The bytes that were written.
    pub Vec<u8>,
);

impl Sink for ByteSink {
    fn put_u64(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        self.put_u64(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }
}

/// Reads what a [`ByteSink`] wrote.
#[derive(Debug)]
pub struct ByteSource<'a>(
    /// The unread bytes.
    pub &'a [u8],
);

impl Source for ByteSource<'_> {
    type Bytes<'b>
        = &'b [u8]
    where
        Self: 'b;

    fn u64(&mut self) -> Result<u64, Error> {
        self.take().map(u64::from_le_bytes)
    }

    fn bytes(&mut self) -> Result<&[u8], Error> {
        let length = usize::try_from(self.u64()?).map_err(|_| Error::Truncated)?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Error::Truncated)?;
        self.0 = rest;
        Ok(bytes)
    }
}

/// Fields of fewer bytes, which other modules store.
impl ByteSource<'_> {
    pub(crate) fn take<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (field, rest) = self.0.split_first_chunk().ok_or(Error::Truncated)?;
        self.0 = rest;
        Ok(*field)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Error> {
        self.take().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Error> {
        self.take().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Error> {
        self.take().map(u32::from_le_bytes)
    }
}

// Fields in few bytes, for a small filter that is stored as one string: unsigned numbers in LEB128, seven bits a byte, the lowest
// first; doubles in 8 bytes; bytes after their length.

/// The maximum size of a packed filter, in bytes.
pub(crate) const PACKED_MAX: usize = 2304;

/// Writes fields into an array, because a saving child must not allocate.
pub(crate) struct PackedSink<const MOST: usize = PACKED_MAX> {
    bytes: [u8; MOST],
    /// The length of what was written, even if it does not fit.
    length: usize,
}

impl<const MOST: usize> PackedSink<MOST> {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; MOST], length: 0 }
    }

    /// Returns what was written; `None` if it does not fit.
    pub(crate) fn written(&self) -> Option<&[u8]> {
        self.bytes.get(..self.length)
    }

    fn put(&mut self, bytes: &[u8]) {
        if let Some(target) = self.reserve(bytes.len()) {
            target.copy_from_slice(bytes);
        }
    }

    /// Returns the place of the next bytes; `None` if they do not fit.
    fn reserve(&mut self, length: usize) -> Option<&mut [u8]> {
        let begin = self.length;
        self.length = begin.saturating_add(length);
        self.bytes.get_mut(begin..self.length)
    }
}

impl<const MOST: usize> Sink for PackedSink<MOST> {
    fn put_u64(&mut self, mut number: u64) {
        loop {
            let [low, ..] = number.to_le_bytes();
            number >>= 7;
            if number == 0 {
                return self.put(&[low]);
            }
            self.put(&[low | 0x80]);
        }
    }

    fn put_f64(&mut self, number: f64) {
        self.put(&number.to_le_bytes());
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        self.put_u64(bytes.len() as u64);
        self.put(bytes);
    }
}

/// Reads what a [`PackedSink`] wrote.
pub(crate) struct PackedSource<'a>(
    /// The unread bytes.
    pub &'a [u8],
);

impl<'a> PackedSource<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Error::Truncated)?;
        self.0 = rest;
        Ok(bytes)
    }
}

impl Source for PackedSource<'_> {
    type Bytes<'b>
        = &'b [u8]
    where
        Self: 'b;

    /// Refuses a number that is encoded in more bytes than necessary with [`Error::OutOfRange`], so that equal filters have equal bytes.
    fn u64(&mut self) -> Result<u64, Error> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = *self.take(1)?.first().ok_or(Error::Truncated)?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits || byte == 0 && shift > 0 {
                return Err(Error::OutOfRange);
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Error::OutOfRange)
    }

    fn f64(&mut self) -> Result<f64, Error> {
        let bytes = self.take(size_of::<f64>())?.try_into().map_err(|_| Error::Truncated)?;
        Ok(f64::from_le_bytes(bytes))
    }

    fn bytes(&mut self) -> Result<&[u8], Error> {
        let length = usize::try_from(self.u64()?).map_err(|_| Error::Truncated)?;
        self.take(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: [u64; 10] = [0, 1, 127, 128, 300, 16_383, 16_384, u32::MAX as u64, u64::MAX >> 1, u64::MAX];

    #[test]
    fn fields_are_read_as_they_were_written() {
        let mut sink = PackedSink::<PACKED_MAX>::new();
        for number in NUMBERS {
            sink.put_u64(number);
        }
        sink.put_f64(-0.0);
        sink.put_bytes(b"cells");
        let mut source = PackedSource(sink.written().unwrap());
        assert_eq!(NUMBERS.map(|_| source.u64().unwrap()), NUMBERS);
        assert_eq!(source.f64().unwrap().to_bits(), (-0.0_f64).to_bits());
        assert_eq!((&*source.owned_bytes().unwrap(), source.0), (&b"cells"[..], &[][..]));
    }

    #[test]
    fn a_number_has_its_fewest_bytes() {
        let mut sink = PackedSink::<PACKED_MAX>::new();
        sink.put_u64(300);
        assert_eq!(sink.written(), Some(&[0xac, 0x02][..]));
        let read = |bytes: &[u8]| PackedSource(bytes).u64();
        assert_eq!(read(&[0xac, 0x82, 0x00]), Err(Error::OutOfRange));
        assert_eq!(read(&[0xac]), Err(Error::Truncated));
        let largest = [0xff; 9];
        assert_eq!(read(&[&largest[..], &[1]].concat()), Ok(u64::MAX));
        for last in [&[2][..], &[0x81, 0], &[0xff, 1]] {
            assert_eq!(read(&[&largest[..], last].concat()), Err(Error::OutOfRange), "{last:?}");
        }
    }

    #[test]
    fn oversized_lengths_are_not_returned() {
        let mut sink = PackedSink::<PACKED_MAX>::new();
        sink.put(&[7; PACKED_MAX]);
        assert_eq!(sink.written(), Some(&[7; PACKED_MAX][..]));
        sink.put_u64(1);
        assert_eq!(sink.written(), None);
    }
}
