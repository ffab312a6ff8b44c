//! Writes a file.

use std::io::{self, Write};

use super::{
    BODY_BYTES_MAX, Contents, Head, How, MAGIC, PACKED_NOT, PACKED_ZSTD, TAG_BEGIN, TAG_END, TAG_FILTER,
    TAG_FILTER_END, TAG_FILTER_VOID, TAG_PART, Totals, VERSION,
};

/// A low level, because a filter's bits are nearly random and more effort would gain little.
const ZSTD_LEVEL: i32 = 3;

/// Writes a file to a sink. The file is invalid without [`finish`](Self::finish).
pub struct Writer<W> {
    sink: W,
    checksum: crc32fast::Hasher,
    packs: bool,
    totals: Totals,
    /// The totals of the filter that is being written.
    current: Totals,
    written_bytes: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a file; `packs` says whether data is compressed with zstd.
    ///
    /// # Errors
    /// The sink's error.
    pub fn begin(sink: W, packs: bool, made_at_ms: u64) -> io::Result<Self> {
        let mut writer = Self {
            sink,
            checksum: crc32fast::Hasher::new(),
            packs,
            totals: Totals::default(),
            current: Totals::default(),
            written_bytes: 0,
        };
        writer.put(&[MAGIC, &VERSION.to_le_bytes()])?;
        writer.put_checksum()?;
        let mut body = made_at_ms.to_le_bytes().to_vec();
        put_text(&mut body, concat!("bloomgate ", env!("CARGO_PKG_VERSION")).as_bytes())?;
        writer.record(TAG_BEGIN, &[&body])?;
        Ok(writer)
    }

    /// Begins a filter.
    ///
    /// # Errors
    /// The sink's error.
    pub fn filter(&mut self, head: &Head) -> io::Result<()> {
        let mut body = Vec::new();
        put_text(&mut body, &head.key)?;
        put_text(&mut body, head.type_name.as_bytes())?;
        put_text(&mut body, head.kind.as_bytes())?;
        body.push(match head.how {
            How::Records => 1,
            How::Dump => 2,
            How::Shards => 3,
        });
        body.extend(head.ttl_ms.unwrap_or(u64::MAX).to_le_bytes());
        put_contents(&mut body, head.before);
        self.totals.filters += 1;
        self.current = Totals::default();
        self.record(TAG_FILTER, &[&body])
    }

    /// Writes a part of the filter.
    ///
    /// # Errors
    /// The sink's error; the data is too long.
    pub fn part(&mut self, iterator: u64, data: &[u8]) -> io::Result<()> {
        let packed = if self.packs { Some(zstd::bulk::compress(data, ZSTD_LEVEL)?) } else { None };
        let packed = packed.filter(|packed| packed.len() < data.len());
        let how = if packed.is_some() { PACKED_ZSTD } else { PACKED_NOT };
        let length = length_of(data.len())?;
        for totals in [&mut self.totals, &mut self.current] {
            totals.parts += 1;
            totals.bytes += data.len() as u64;
        }
        let data = packed.as_deref().unwrap_or(data);
        self.record(TAG_PART, &[&iterator.to_le_bytes(), &[how], &length, data])
    }

    /// Ends the filter, whose contents are now `after`.
    ///
    /// # Errors
    /// The sink's error.
    pub fn filter_end(&mut self, after: Contents) -> io::Result<()> {
        let mut body = Vec::new();
        put_contents(&mut body, after);
        body.extend(self.current.parts.to_le_bytes());
        body.extend(self.current.bytes.to_le_bytes());
        self.record(TAG_FILTER_END, &[&body])
    }

    /// Declares the filter that was begun void.
    ///
    /// # Errors
    /// The sink's error.
    pub fn filter_void(&mut self) -> io::Result<()> {
        self.record(TAG_FILTER_VOID, &[])
    }

    /// Ends the file. Returns the sink and the number of bytes written to it.
    ///
    /// # Errors
    /// The sink's error.
    pub fn finish(mut self) -> io::Result<(W, u64)> {
        let Totals { filters, parts, bytes } = self.totals;
        self.record(TAG_END, &[&filters.to_le_bytes(), &parts.to_le_bytes(), &bytes.to_le_bytes()])?;
        self.sink.flush()?;
        Ok((self.sink, self.written_bytes))
    }

    fn record(&mut self, tag: u8, body: &[&[u8]]) -> io::Result<()> {
        let length = body.iter().map(|piece| piece.len()).sum();
        if length > BODY_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a record is longer than 64 MiB"));
        }
        self.put(&[&[tag], &length_of(length)?])?;
        self.put(body)?;
        self.put_checksum()
    }

    fn put(&mut self, pieces: &[&[u8]]) -> io::Result<()> {
        for piece in pieces {
            self.checksum.update(piece);
            self.written_bytes += piece.len() as u64;
            self.sink.write_all(piece)?;
        }
        Ok(())
    }

    /// Writes the checksum, which later checksums do not include.
    fn put_checksum(&mut self) -> io::Result<()> {
        let checksum = self.checksum.clone().finalize().to_le_bytes();
        self.written_bytes += checksum.len() as u64;
        self.sink.write_all(&checksum)
    }
}

fn length_of(length: usize) -> io::Result<[u8; 4]> {
    let length =
        u32::try_from(length).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a record is too long"))?;
    Ok(length.to_le_bytes())
}

fn put_text(body: &mut Vec<u8>, text: &[u8]) -> io::Result<()> {
    body.extend(length_of(text.len())?);
    body.extend(text);
    Ok(())
}

fn put_contents(body: &mut Vec<u8>, contents: Contents) {
    let Contents { capacity, layers, items, bytes } = contents;
    [capacity, layers, items, bytes].iter().for_each(|number| body.extend(number.to_le_bytes()));
}
