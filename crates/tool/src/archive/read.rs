//! Reads a file without trusting it: every byte is checked before it is used, and errors name the position of the damage.

use std::io::{self, Read};

use anyhow::{Result, anyhow, bail, ensure};

use super::body::Body;
use super::{
    BODY_BYTES_MAX, Contents, Head, MAGIC, TAG_BEGIN, TAG_END, TAG_FILTER, TAG_FILTER_END, TAG_FILTER_VOID, TAG_PART,
    Totals, VERSION,
};

/// A record of a file.
#[derive(Debug)]
pub enum Event {
    /// A filter begins.
    Filter(Head),
    /// A part of the filter: its iterator and its data.
    Part(u64, Vec<u8>),
    /// The filter ends. Its contents when the dump ended.
    FilterEnd(Contents),
    /// The filter is void and is repeated later.
    FilterVoid,
    /// The file ends.
    End,
}

/// Reads records. The errors say what is wrong and where, but do not name the file.
pub struct Reader<R> {
    source: R,
    checksum: crc32fast::Hasher,
    /// The number of bytes read.
    position: u64,
    made_at_ms: u64,
    made_by: String,
    totals: Totals,
    /// The totals of the filter that is being read, if any.
    current: Option<Totals>,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// The file is not a backup, is of a later version, or is damaged.
    pub fn begin(source: R) -> Result<Self> {
        let mut reader = Self {
            source,
            checksum: crc32fast::Hasher::new(),
            position: 0,
            made_at_ms: 0,
            made_by: String::new(),
            totals: Totals::default(),
            current: None,
        };
        let mut magic = Vec::new();
        (&mut reader.source).take(MAGIC.len() as u64).read_to_end(&mut magic)?;
        ensure!(magic == MAGIC, "not a file of `bloomgate backup` or `bloomgate build`");
        reader.checksum.update(&magic);
        reader.position = magic.len() as u64;
        let version = reader.number_u32()?;
        reader.check(0)?;
        ensure!(
            version == VERSION,
            "format version {version}, but this bloomgate reads version {VERSION}: use a newer one"
        );
        let (tag, body) = reader.record()?;
        ensure!(tag == TAG_BEGIN, "damaged: its first record has the wrong type");
        let mut body = Body(&body);
        reader.made_at_ms = body.u64()?;
        reader.made_by = body.string()?;
        body.end()?;
        Ok(reader)
    }

    /// The time of creation in milliseconds since 1970, and the program that wrote the file.
    pub fn origin(&self) -> (u64, &str) {
        (self.made_at_ms, &self.made_by)
    }

    /// The number of filters that have begun, void ones included.
    pub const fn filters(&self) -> u64 {
        self.totals.filters
    }

    /// The number of bytes read.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Reads the next record. [`Event::End`] is the last one.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn next(&mut self) -> Result<Event> {
        let begin = self.position;
        let (tag, body) = self.record()?;
        let event = self.parse(tag, &body).map_err(|error| anyhow!("damaged: the record at byte {begin}: {error}"))?;
        if let Event::End = event {
            let mut more = [0];
            let is_end = loop {
                match self.source.read(&mut more) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    result => break result? == 0,
                }
            };
            ensure!(is_end, "damaged: data follows its end at byte {}", self.position);
        }
        Ok(event)
    }

    fn parse(&mut self, tag: u8, body: &[u8]) -> Result<Event> {
        let mut body = Body(body);
        let event = match (tag, self.current) {
            (TAG_FILTER, None) => {
                self.totals.filters += 1;
                self.current = Some(Totals::default());
                Event::Filter(body.head()?)
            }
            (TAG_PART, Some(current)) => {
                let (iterator, data) = (body.u64()?, body.data()?);
                let more = |totals: Totals| Totals {
                    parts: totals.parts + 1,
                    bytes: totals.bytes + data.len() as u64,
                    ..totals
                };
                self.totals = more(self.totals);
                self.current = Some(more(current));
                Event::Part(iterator, data)
            }
            (TAG_FILTER_END, Some(current)) => {
                let after = body.contents()?;
                ensure!(
                    current.parts > 0 && [current.parts, current.bytes] == [body.u64()?, body.u64()?],
                    "a part is missing"
                );
                self.current = None;
                Event::FilterEnd(after)
            }
            (TAG_FILTER_VOID, Some(_)) => {
                self.current = None;
                Event::FilterVoid
            }
            (TAG_END, None) => {
                let Totals { filters, parts, bytes } = self.totals;
                ensure!([filters, parts, bytes] == [body.u64()?, body.u64()?, body.u64()?], "a record is missing");
                Event::End
            }
            (TAG_BEGIN..=TAG_END, _) => bail!("out of order"),
            (tag, _) => bail!("unknown type ({tag}): use a newer bloomgate"),
        };
        body.end()?;
        Ok(event)
    }

    /// Reads the tag and body of the next record.
    fn record(&mut self) -> Result<(u8, Vec<u8>)> {
        let begin = self.position;
        let [tag] = self.bytes_of()?;
        let length = self.number_u32()?;
        // A longer body means damage, so no memory is allocated for it.
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        ensure!(length <= BODY_BYTES_MAX, "damaged: the record at byte {begin} has a length of {length} bytes");
        let body = self.bytes(length)?;
        self.check(begin)?;
        Ok((tag, body))
    }

    /// Compares the checksum of everything read so far with the one that follows.
    fn check(&mut self, begin: u64) -> Result<()> {
        let computed = self.checksum.clone().finalize();
        let mut stored = [0; 4];
        self.source.read_exact(&mut stored).map_err(|error| self.unread(error))?;
        self.position += 4;
        ensure!(u32::from_le_bytes(stored) == computed, "damaged: the checksum of the record at byte {begin} is wrong");
        Ok(())
    }

    fn number_u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.bytes_of()?))
    }

    fn bytes_of<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.source.read_exact(&mut bytes).map_err(|error| self.unread(error))?;
        self.position += N as u64;
        self.checksum.update(&bytes);
        Ok(bytes)
    }

    /// Reads bytes. Memory grows with the bytes that are read, not with the length that the file states.
    fn bytes(&mut self, length: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        (&mut self.source).take(length as u64).read_to_end(&mut bytes).map_err(|error| self.unread(error))?;
        self.position += bytes.len() as u64;
        ensure!(bytes.len() == length, self.cut_off());
        self.checksum.update(&bytes);
        Ok(bytes)
    }

    fn unread(&self, error: io::Error) -> anyhow::Error {
        if error.kind() == io::ErrorKind::UnexpectedEof { anyhow!(self.cut_off()) } else { error.into() }
    }

    fn cut_off(&self) -> String {
        format!("damaged: truncated after byte {}", self.position)
    }
}
