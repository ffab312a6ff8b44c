//! The file format of `backup`, `restore` and `build`: filters with their keys, as records with checksums.
//!
//! ```text
//! file    8 bytes magic | u32 version | u32 checksum | records
//! record  u8 tag | u32 length of the body | the body | u32 checksum
//!
//! tag 1, the first        u64 time of creation, in ms since 1970 | text: the program
//! tag 2, begin of a key   text key | text type | text kind | u8 how | u64 time to live in ms | contents
//! tag 3, part of its data u64 iterator | u8 compression | u32 uncompressed length | data
//! tag 4, end of the key   contents | u64 parts | u64 uncompressed bytes of data
//! tag 5, the key is void  nothing: it was replaced while it was dumped, and is repeated later
//! tag 7, between keys     u32 database of the keys that follow, until the next one; before the first, it is 0
//! tag 6, the last         u64 filters, void ones included | u64 parts | u64 uncompressed bytes of data
//!
//! text      u32 length | bytes
//! contents  u64 capacity | u64 layers | u64 items | u64 bytes, as BF.INFO or CF.INFO reports them
//! ```
//! All integers are little-endian. A checksum is the CRC-32 (IEEE) of everything before it in the file except other checksums:
//! the CRC of bytes followed by their own CRC is a constant. So a missing, repeated or misplaced record is detected, like a
//! damaged byte.
//!
//! `how` is 1 if the parts are the records of BF.SCANDUMP, which BF.LOADCHUNK takes with their iterators in this order, or of CF.SCANDUMP
//! for CF.LOADCHUNK if the type is `MBbloomCF`, and 2 if their concatenation is the reply to DUMP, which RESTORE takes. It is 3 for the key
//! `NAME:shards` of a sharded filter: its only part is the number of shards in decimal digits, and all shards precede it. `compression` is 0
//! for none, or 1 for a zstd frame. A time to live of 2^64 - 1 means none. No body is longer than 64 MiB.

pub mod catalogue;
pub mod file;

use std::io::{self, Read, Write};

use anyhow::{Result, anyhow, bail, ensure};

pub const MAGIC: &[u8; 8] = b"\x89bgate\r\n";
const VERSION: u32 = 1;
/// The longest body, in bytes. Records of BF.SCANDUMP have at most 16 MiB.
const BODY_BYTES_MAX: usize = 64 << 20;
/// The length of the parts into which the reply to DUMP is split.
pub const DUMP_PART_BYTES: usize = 1 << 20;

const TAG_BEGIN: u8 = 1;
const TAG_FILTER: u8 = 2;
const TAG_PART: u8 = 3;
const TAG_FILTER_END: u8 = 4;
const TAG_FILTER_VOID: u8 = 5;
const TAG_END: u8 = 6;
/// Versions up to 0.3.0 refuse a file with this tag. They read a file of database 0, which has none.
const TAG_DATABASE: u8 = 7;

const PACKED_NOT: u8 = 0;
const PACKED_ZSTD: u8 = 1;

/// The method by which a filter's data was read and is restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// BF.SCANDUMP and BF.LOADCHUNK, or CF.SCANDUMP and CF.LOADCHUNK.
    Records,
    /// DUMP and RESTORE.
    Dump,
    /// The number of shards of a sharded filter: GET and SET.
    Shards,
}

/// The figures of a filter, as BF.INFO or CF.INFO reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    pub capacity: u64,
    pub layers: u64,
    pub items: u64,
    pub bytes: u64,
    /// Items deleted from a cuckoo filter since it was compacted. The file does not contain this number.
    pub deletes: u64,
}

/// The first record of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The database of the key. The record does not contain it.
    pub database: u32,
    pub key: Vec<u8>,
    /// The reply to TYPE, such as `bloomgate`.
    pub type_name: String,
    /// The kind of filter: `native`, `windowed`, `counting`, `cuckoo`, `redisbloom`, `redisbloom-cuckoo` or `valkey-bloom`.
    pub kind: String,
    /// The method by which its data was read.
    pub mode: ReadMode,
    /// The time to live in milliseconds when it was dumped.
    pub ttl_ms: Option<u64>,
    /// Its contents when the dump began.
    pub before: Contents,
}

/// Totals of a file or of one filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Filters, void ones included.
    pub filters: u64,
    pub parts: u64,
    /// Uncompressed bytes of the parts' data.
    pub bytes: u64,
}

// Parses the bodies of records.

/// The unparsed rest of a body.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(|| anyhow!("too short"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8> {
        self.take(1)?.first().copied().ok_or_else(|| anyhow!("too short"))
    }

    fn u32(&mut self) -> Result<usize> {
        let bytes = self.take(4)?.try_into()?;
        Ok(usize::try_from(u32::from_le_bytes(bytes))?)
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into()?))
    }

    fn text(&mut self) -> Result<&'a [u8]> {
        let length = self.u32()?;
        self.take(length)
    }

    fn string(&mut self) -> Result<String> {
        Ok(String::from_utf8(self.text()?.to_vec())?)
    }

    fn contents(&mut self) -> Result<Contents> {
        let (capacity, layers, items, bytes) = (self.u64()?, self.u64()?, self.u64()?, self.u64()?);
        Ok(Contents { capacity, layers, items, bytes, deletes: 0 })
    }

    fn head(&mut self) -> Result<Head> {
        let (key, type_name, kind) = (self.text()?.to_vec(), self.string()?, self.string()?);
        let mode = match self.u8()? {
            1 => ReadMode::Records,
            2 => ReadMode::Dump,
            3 => ReadMode::Shards,
            mode => bail!("unknown copy method ({mode}): use a newer bloomgate"),
        };
        let ttl_ms = Some(self.u64()?).filter(|time| *time != u64::MAX);
        Ok(Head { database: 0, key, type_name, kind, mode, ttl_ms, before: self.contents()? })
    }

    fn data(&mut self) -> Result<Vec<u8>> {
        let (packed, length) = (self.u8()?, self.u32()?);
        let data = std::mem::take(&mut self.0);
        ensure!(length <= BODY_BYTES_MAX, "its length is {length} bytes");
        let data = match packed {
            PACKED_NOT => data.to_vec(),
            PACKED_ZSTD => zstd::bulk::decompress(data, length)?,
            packed => bail!("unknown compression ({packed}): use a newer bloomgate"),
        };
        ensure!(data.len() == length, "its data has the wrong length");
        Ok(data)
    }

    fn end(&self) -> Result<()> {
        ensure!(self.0.is_empty(), "too long");
        Ok(())
    }
}

// Reads a file without trusting it: every byte is checked before it is used, and errors name the position of the damage.

/// A record of a file.
#[derive(Debug)]
pub enum Event {
    Filter(Head),
    /// A part of the filter: its iterator and its data.
    Part(u64, Vec<u8>),
    /// The filter ends. Its contents when the dump ended.
    FilterEnd(Contents),
    /// The filter is void and is repeated later.
    FilterVoid,
    End,
}

/// Reads records. The errors say what is wrong and where, but do not name the file.
pub struct Reader<R> {
    source: R,
    checksum: crc32fast::Hasher,
    position: u64,
    made_at_ms: u64,
    made_by: String,
    totals: Totals,
    /// The database of the next filter.
    database: u32,
    /// The totals of the filter that is being read, if any.
    current: Option<Totals>,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    pub fn begin(source: R) -> Result<Self> {
        let mut reader = Self {
            source,
            checksum: crc32fast::Hasher::new(),
            position: 0,
            made_at_ms: 0,
            made_by: String::new(),
            totals: Totals::default(),
            database: 0,
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

    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Reads the next record. [`Event::End`] is the last one.
    pub fn next(&mut self) -> Result<Event> {
        let event = loop {
            let begin = self.position;
            let (tag, body) = self.record()?;
            let event = self.parse(tag, &body);
            if let Some(event) = event.map_err(|error| anyhow!("damaged: the record at byte {begin}: {error}"))? {
                break event;
            }
        };
        if let Event::End = event {
            let more = (&mut self.source).take(1).read_to_end(&mut Vec::new())?;
            ensure!(more == 0, "damaged: data follows its end at byte {}", self.position);
        }
        Ok(event)
    }

    /// Returns the record's event, or `None` if it only names a database.
    fn parse(&mut self, tag: u8, body: &[u8]) -> Result<Option<Event>> {
        let mut body = Body(body);
        let event = Some(match (tag, self.current) {
            (TAG_DATABASE, None) => {
                self.database = u32::try_from(body.u32()?)?;
                body.end()?;
                return Ok(None);
            }
            (TAG_FILTER, None) => {
                self.totals.filters += 1;
                self.current = Some(Totals::default());
                Event::Filter(Head { database: self.database, ..body.head()? })
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
            (TAG_BEGIN..=TAG_DATABASE, _) => bail!("out of order"),
            (tag, _) => bail!("unknown type ({tag}): use a newer bloomgate"),
        });
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

// Writes a file.

/// A low level, because a filter's bits are nearly random, and a higher level gains little.
const ZSTD_LEVEL: i32 = 3;

/// Writes a file to a sink. The file is invalid until [`finish`](Self::finish).
pub struct Writer<W> {
    sink: W,
    checksum: crc32fast::Hasher,
    packs: bool,
    totals: Totals,
    /// The database of the last filter.
    database: u32,
    /// The totals of the filter that is being written.
    current: Totals,
    written_bytes: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a file; `packs` says whether data is compressed with zstd.
    pub fn begin(sink: W, packs: bool, made_at_ms: u64) -> io::Result<Self> {
        let mut writer = Self {
            sink,
            checksum: crc32fast::Hasher::new(),
            packs,
            totals: Totals::default(),
            database: 0,
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
    pub fn filter(&mut self, head: &Head) -> io::Result<()> {
        if head.database != self.database {
            self.record(TAG_DATABASE, &[&head.database.to_le_bytes()])?;
            self.database = head.database;
        }
        let mut body = Vec::new();
        put_text(&mut body, &head.key)?;
        put_text(&mut body, head.type_name.as_bytes())?;
        put_text(&mut body, head.kind.as_bytes())?;
        body.push(match head.mode {
            ReadMode::Records => 1,
            ReadMode::Dump => 2,
            ReadMode::Shards => 3,
        });
        body.extend(head.ttl_ms.unwrap_or(u64::MAX).to_le_bytes());
        put_contents(&mut body, head.before);
        self.totals.filters += 1;
        self.current = Totals::default();
        self.record(TAG_FILTER, &[&body])
    }

    /// Writes a part of the filter.
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
    pub fn filter_end(&mut self, after: Contents) -> io::Result<()> {
        let mut body = Vec::new();
        put_contents(&mut body, after);
        body.extend(self.current.parts.to_le_bytes());
        body.extend(self.current.bytes.to_le_bytes());
        self.record(TAG_FILTER_END, &[&body])
    }

    /// Marks the current filter as void.
    pub fn filter_void(&mut self) -> io::Result<()> {
        self.record(TAG_FILTER_VOID, &[])
    }

    /// Ends the file. Returns the sink and the number of bytes written to it.
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
    let Contents { capacity, layers, items, bytes, .. } = contents;
    [capacity, layers, items, bytes].iter().for_each(|number| body.extend(number.to_le_bytes()));
}
