//! Fields in few bytes, for a small filter that is stored as one string: unsigned numbers in LEB128, seven bits a byte, the lowest
//! first; doubles in 8 bytes; bytes after their length.

use super::{Error, Sink, Source};
use crate::memory::try_copy;

/// The most bytes of a packed filter.
pub(crate) const PACKED_MAX: usize = 1024;

/// Writes fields into an array, because a saving child must not allocate.
pub(crate) struct PackedSink {
    bytes: [u8; PACKED_MAX],
    /// The length of what was written, even if it does not fit.
    length: usize,
}

impl PackedSink {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; PACKED_MAX], length: 0 }
    }

    /// Returns what was written; `None` if it does not fit.
    pub(crate) fn written(&self) -> Option<&[u8]> {
        self.bytes.get(..self.length)
    }

    fn put(&mut self, bytes: &[u8]) {
        let begin = self.length;
        self.length = begin.saturating_add(bytes.len());
        if let Some(target) = self.bytes.get_mut(begin..self.length) {
            target.copy_from_slice(bytes);
        }
    }
}

impl Sink for PackedSink {
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
    /// The bytes that remain.
    pub(crate) &'a [u8],
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

    /// Refuses a number with more bytes than it needs with [`Error::OutOfRange`], so that equal filters have equal bytes.
    fn u64(&mut self) -> Result<u64, Error> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = *self.take(1)?.first().ok_or(Error::Truncated)?;
            let part = u64::from(byte & 0x7f);
            if part << shift >> shift != part || byte == 0 && shift > 0 {
                return Err(Error::OutOfRange);
            }
            number |= part << shift;
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

    fn owned_bytes(&mut self) -> Result<Box<[u8]>, Error> {
        Ok(try_copy(self.bytes()?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: [u64; 10] = [0, 1, 127, 128, 300, 16_383, 16_384, u32::MAX as u64, u64::MAX >> 1, u64::MAX];

    #[test]
    fn fields_are_read_as_they_were_written() {
        let mut sink = PackedSink::new();
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
        let mut sink = PackedSink::new();
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
    fn what_does_not_fit_is_not_returned() {
        let mut sink = PackedSink::new();
        sink.put(&[7; PACKED_MAX]);
        assert_eq!(sink.written(), Some(&[7; PACKED_MAX][..]));
        sink.put_u64(1);
        assert_eq!(sink.written(), None);
    }
}
