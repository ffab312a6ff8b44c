//! Reads the file and believes nothing in it: every byte is checked before it is used, and what does not fit together is said
//! with the place where it is.

use std::io::{self, Read};

use anyhow::{Result, anyhow, bail, ensure};

use super::body::Body;
use super::{
    BODY_BYTES_MAX, Contents, Head, MAGIC, TAG_BEGIN, TAG_END, TAG_FILTER, TAG_FILTER_END, TAG_FILTER_VOID, TAG_PART,
    Totals, VERSION,
};

/// What comes next in a file.
#[derive(Debug)]
pub enum Event {
    /// A filter begins.
    Filter(Head),
    /// A part of it: its iterator and its data.
    Part(u64, Vec<u8>),
    /// It ends, and was as it says.
    FilterEnd(Contents),
    /// It is void.
    FilterVoid,
    /// The file ends.
    End,
}

/// A file that is being read. Its errors say what is wrong and where, not which file.
pub struct Reader<R> {
    source: R,
    checksum: crc32fast::Hasher,
    /// Bytes that were read.
    position: u64,
    made_at_ms: u64,
    made_by: String,
    totals: Totals,
    /// Of the filter that is being read, where one is.
    current: Option<Totals>,
}

impl<R: Read> Reader<R> {
    /// Begins to read.
    ///
    /// # Errors
    /// What is no file of ours, or is of a later version.
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

    /// When it was made, in milliseconds since 1970, and by what.
    pub fn origin(&self) -> (u64, &str) {
        (self.made_at_ms, &self.made_by)
    }

    /// How many filters have begun, void ones included.
    pub const fn filters(&self) -> u64 {
        self.totals.filters
    }

    /// Bytes that were read.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// What comes next. Nothing is after [`Event::End`].
    ///
    /// # Errors
    /// Damage.
    pub fn next(&mut self) -> Result<Event> {
        let begin = self.position;
        let (tag, body) = self.record()?;
        let event =
            self.understood(tag, &body).map_err(|error| anyhow!("damaged: the record at byte {begin}: {error}"))?;
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

    fn understood(&mut self, tag: u8, body: &[u8]) -> Result<Event> {
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
            (TAG_BEGIN..=TAG_END, _) => bail!("it is out of order"),
            (tag, _) => bail!("unknown type ({tag}): use a newer bloomgate"),
        };
        body.end()?;
        Ok(event)
    }

    /// The next record's tag and body.
    fn record(&mut self) -> Result<(u8, Vec<u8>)> {
        let begin = self.position;
        let [tag] = self.bytes_of()?;
        let length = self.number_u32()?;
        // Only damage makes it longer: the memory is not even asked for.
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        ensure!(length <= BODY_BYTES_MAX, "damaged: the record at byte {begin} has a length of {length} bytes");
        let body = self.bytes(length)?;
        self.check(begin)?;
        Ok((tag, body))
    }

    /// Compares the checksum of everything so far with the one that follows.
    fn check(&mut self, begin: u64) -> Result<()> {
        let own = self.checksum.clone().finalize();
        let mut told = [0; 4];
        self.source.read_exact(&mut told).map_err(|error| self.unread(error))?;
        self.position += 4;
        ensure!(u32::from_le_bytes(told) == own, "damaged: the checksum of the record at byte {begin} is wrong");
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

    /// The memory grows with what comes, not with what was announced.
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
