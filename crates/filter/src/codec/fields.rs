//! Fields as plain little-endian bytes: for the headers of dumps, for snapshots in tests, and for the packed formats of other
//! modules.

use super::{Error, Sink, Source};
use crate::memory::try_copy;

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

    fn put_f64(&mut self, number: f64) {
        self.put_u64(number.to_bits());
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        self.put_u64(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }
}

/// Reads what a [`ByteSink`] wrote.
#[derive(Debug)]
pub struct ByteSource<'a>(
    /// The bytes that remain.
    pub &'a [u8],
);

impl Source for ByteSource<'_> {
    type Bytes<'b>
        = &'b [u8]
    where
        Self: 'b;

    fn u64(&mut self) -> Result<u64, Error> {
        let (number, rest) = self.0.split_first_chunk().ok_or(Error::Truncated)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*number))
    }

    fn f64(&mut self) -> Result<f64, Error> {
        self.u64().map(f64::from_bits)
    }

    fn bytes(&mut self) -> Result<&[u8], Error> {
        let length = usize::try_from(self.u64()?).map_err(|_| Error::Truncated)?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Error::Truncated)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn owned_bytes(&mut self) -> Result<Box<[u8]>, Error> {
        Ok(try_copy(self.bytes()?)?)
    }
}

/// Fields of fixed size, packed one after another.
pub(crate) struct Packed<'a>(pub(crate) &'a [u8]);

impl Packed<'_> {
    pub(crate) fn take<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (field, rest) = self.0.split_first_chunk().ok_or(Error::Truncated)?;
        self.0 = rest;
        Ok(*field)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Error> {
        self.take().map(u8::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Error> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Error> {
        self.take().map(u64::from_le_bytes)
    }

    pub(crate) fn f64(&mut self) -> Result<f64, Error> {
        self.take().map(f64::from_le_bytes)
    }
}
