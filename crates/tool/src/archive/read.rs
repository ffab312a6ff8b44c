//! Reads the file and believes nothing in it: every byte is checked before it is used, and what does not fit together is said
//! with the place where it is.

use std::collections::BTreeSet;
use std::io::{self, Read};

use anyhow::{Result, anyhow, bail, ensure};

use super::{
    BODY_BYTES_MAX, Contents, Head, How, MAGIC, PACKED_NOT, PACKED_ZSTD, TAG_BEGIN, TAG_END, TAG_FILTER,
    TAG_FILTER_END, TAG_FILTER_VOID, TAG_PART, Totals, VERSION,
};
use crate::server::shown;

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
        ensure!(magic == MAGIC, "no file of `bloomgate backup` or `bloomgate build`");
        reader.checksum.update(&magic);
        reader.position = magic.len() as u64;
        let version = reader.number_u32()?;
        reader.check(0)?;
        ensure!(
            version == VERSION,
            "of version {version} of the format, this bloomgate reads version {VERSION}: use a newer one"
        );
        let (tag, body) = reader.record()?;
        ensure!(tag == TAG_BEGIN, "damaged: its first record is of another kind");
        let mut body = Body(&body);
        reader.made_at_ms = body.u64()?;
        reader.made_by = body.string()?;
        body.end()?;
        Ok(reader)
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
            ensure!(is_end, "damaged: it goes on after its end at byte {}", self.position);
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
            (TAG_BEGIN..=TAG_END, _) => bail!("it does not belong there"),
            (tag, _) => bail!("it is of a kind that this bloomgate does not know ({tag})"),
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
        ensure!(length <= BODY_BYTES_MAX, "damaged: the record at byte {begin} says that it has {length} bytes");
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
        format!("damaged: it is cut off after byte {}", self.position)
    }
}

/// A body that is taken apart.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(|| anyhow!("it is too short"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8> {
        self.take(1)?.first().copied().ok_or_else(|| anyhow!("it is too short"))
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
        Ok(Contents { capacity: self.u64()?, layers: self.u64()?, items: self.u64()?, bytes: self.u64()? })
    }

    fn head(&mut self) -> Result<Head> {
        let (key, type_name, kind) = (self.text()?.to_vec(), self.string()?, self.string()?);
        let how = match self.u8()? {
            1 => How::Records,
            2 => How::Dump,
            how => bail!("its data was got in a way that this bloomgate does not know ({how})"),
        };
        let ttl_ms = Some(self.u64()?).filter(|time| *time != u64::MAX);
        Ok(Head { key, type_name, kind, how, ttl_ms, before: self.contents()? })
    }

    fn data(&mut self) -> Result<Vec<u8>> {
        let (packed, length) = (self.u8()?, self.u32()?);
        let data = std::mem::take(&mut self.0);
        ensure!(length <= BODY_BYTES_MAX, "it says that it has {length} bytes");
        let data = match packed {
            PACKED_NOT => data.to_vec(),
            PACKED_ZSTD => zstd::bulk::decompress(data, length)?,
            packed => bail!("it is packed in a way that this bloomgate does not know ({packed})"),
        };
        ensure!(data.len() == length, "its data is of another length");
        Ok(data)
    }

    fn end(&self) -> Result<()> {
        ensure!(self.0.is_empty(), "it is too long");
        Ok(())
    }
}

/// A filter that is whole in the file.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What it begins with.
    pub head: Head,
    /// What it was when its dump ended.
    pub after: Contents,
    /// Which one it is in the file, void ones counted.
    pub number: u64,
    /// Bytes of its data.
    pub bytes: u64,
}

/// What a file has.
#[derive(Debug)]
pub struct Catalogue {
    /// The filters, in the order of the file.
    pub entries: Vec<Entry>,
    /// When it was made, in milliseconds since 1970.
    pub made_at_ms: u64,
    /// By what.
    pub made_by: String,
    /// Its length, in bytes.
    pub file_bytes: u64,
}

impl Catalogue {
    /// Reads a whole file and checks every byte of it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn of(source: impl Read) -> Result<Self> {
        let mut reader = Reader::begin(source)?;
        let (mut entries, mut keys) = (Vec::new(), BTreeSet::new());
        let mut open: Option<(Head, u64)> = None;
        loop {
            match reader.next()? {
                Event::Filter(head) => open = Some((head, 0)),
                Event::Part(_, data) => {
                    if let Some((_, bytes)) = &mut open {
                        *bytes += data.len() as u64;
                    }
                }
                Event::FilterVoid => open = None,
                Event::FilterEnd(after) => {
                    let Some((head, bytes)) = open.take() else { continue };
                    ensure!(keys.insert(head.key.clone()), "damaged: it has the key `{}` twice", shown(&head.key));
                    entries.push(Entry { head, after, number: reader.totals.filters, bytes });
                }
                Event::End => break,
            }
        }
        Ok(Self { entries, made_at_ms: reader.made_at_ms, made_by: reader.made_by, file_bytes: reader.position })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Writer;
    use super::*;

    fn file(packs: bool) -> Vec<u8> {
        let mut writer = Writer::begin(Vec::new(), packs, 7).unwrap();
        let head = |key: &[u8], how| Head {
            key: key.to_vec(),
            type_name: "bloomgate".to_owned(),
            kind: "native".to_owned(),
            how,
            ttl_ms: if how == How::Dump { Some(5) } else { None },
            before: Contents { capacity: 1, layers: 2, items: 3, bytes: 4 },
        };
        writer.filter(&head(b"void", How::Records)).unwrap();
        writer.part(1, b"of no use").unwrap();
        writer.filter_void().unwrap();
        for (key, how) in [(&b"one"[..], How::Records), (b"\xff\0", How::Dump)] {
            writer.filter(&head(key, how)).unwrap();
            writer.part(1, &[b'x'; 100]).unwrap();
            writer.part(u64::MAX, b"").unwrap();
            writer.filter_end(Contents::default()).unwrap();
        }
        let (file, bytes) = writer.finish().unwrap();
        assert_eq!(file.len() as u64, bytes);
        file
    }

    #[test]
    fn what_is_written_is_read() {
        for packs in [false, true] {
            let file = file(packs);
            let catalogue = Catalogue::of(&*file).unwrap();
            assert_eq!(catalogue.file_bytes, file.len() as u64);
            let keys: Vec<_> =
                catalogue.entries.iter().map(|entry| (&*entry.head.key, entry.number, entry.bytes)).collect();
            assert_eq!(keys, [(&b"one"[..], 2, 100), (b"\xff\0", 3, 100)]);
            assert_eq!(catalogue.entries[1].head.ttl_ms, Some(5));
        }
        assert!(file(true).len() < file(false).len());
    }

    #[test]
    fn no_damage_goes_unnoticed() {
        for file in [file(false), file(true)] {
            for length in 0..file.len() {
                assert!(Catalogue::of(&file[..length]).is_err(), "{length}");
            }
            for position in 0..file.len() {
                for flip in [1, 0x80, 0xff] {
                    let mut torn = file.clone();
                    torn[position] ^= flip;
                    assert!(Catalogue::of(&*torn).is_err(), "{position}");
                }
            }
            let longer = [&*file, b"\0"].concat();
            assert!(Catalogue::of(&*longer).unwrap_err().to_string().contains("after its end"));
        }
    }

    #[test]
    fn a_record_that_is_lost_or_comes_twice_is_noticed() {
        let file = file(false);
        // The parts of the filter `one`, found by their bodies.
        let part = file.windows(100).position(|bytes| bytes == [b'x'; 100]).unwrap();
        let (begin, end) = (part - 18, part + 104);
        let lost = [&file[..begin], &file[end..]].concat();
        let twice = [&file[..end], &file[begin..]].concat();
        for torn in [lost, twice] {
            assert!(Catalogue::of(&*torn).unwrap_err().to_string().contains("checksum"));
        }
    }

    #[test]
    fn a_later_version_and_a_foreign_file_are_told() {
        let mut file = file(false);
        file[8] = 9;
        let checksum = crc32fast::hash(&file[..12]);
        file[12..16].copy_from_slice(&checksum.to_le_bytes());
        assert!(Catalogue::of(&*file).unwrap_err().to_string().contains("of version 9"));
        for foreign in [&b""[..], b"REDIS0010", b"\x1f\x8b"] {
            assert!(Catalogue::of(foreign).unwrap_err().to_string().starts_with("no file of"));
        }
    }
}
