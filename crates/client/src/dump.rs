//! The file format of a filter's dump: the records of BF.SCANDUMP in sequence.
//!
//! ```text
//! 8 bytes      "BLOOMDMP"
//! each record: 8 bytes iterator, 8 bytes length (both unsigned, little-endian), the record's data,
//!              4 bytes CRC-32 of all of these
//! the end:     a record with iterator 0 and no data
//! ```

use std::io::{self, Read, Write};

#[cfg(feature = "tokio")]
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::Error;

const MAGIC: &[u8; 8] = b"BLOOMDMP";
/// The longest record: the server's default limit for strings.
const MOST_BYTES: u64 = 512 << 20;

/// Where a dump is written.
pub trait Sink {
    fn write_all(&mut self, bytes: &[u8]) -> impl Future<Output = io::Result<()>>;

    /// Writes what is buffered: a file of tokio reports an error of the last write here.
    fn flush(&mut self) -> impl Future<Output = io::Result<()>>;
}

/// Where a dump is read from.
pub trait Source {
    fn read_exact(&mut self, bytes: &mut [u8]) -> impl Future<Output = io::Result<()>>;

    /// Appends bytes to a buffer, fewer than `count` if the file ends. Returns how many.
    fn read_up_to(&mut self, count: u64, bytes: &mut Vec<u8>) -> impl Future<Output = io::Result<usize>>;
}

/// A file that blocks the calling thread.
pub struct Blocking<F>(pub F);

impl<F: Write> Sink for Blocking<F> {
    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl<F: Read> Source for Blocking<F> {
    async fn read_exact(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_exact(bytes)
    }

    async fn read_up_to(&mut self, count: u64, bytes: &mut Vec<u8>) -> io::Result<usize> {
        self.0.by_ref().take(count).read_to_end(bytes)
    }
}

/// A file of tokio.
#[cfg(feature = "tokio")]
pub struct File<F>(pub F);

#[cfg(feature = "tokio")]
impl<F: AsyncWrite + Unpin> Sink for File<F> {
    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).await
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.0.flush().await
    }
}

#[cfg(feature = "tokio")]
impl<F: AsyncRead + Unpin> Source for File<F> {
    async fn read_exact(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_exact(bytes).await.map(drop)
    }

    async fn read_up_to(&mut self, count: u64, bytes: &mut Vec<u8>) -> io::Result<usize> {
        (&mut self.0).take(count).read_to_end(bytes).await
    }
}

/// One record. Iterator 0 marks the end.
pub struct Record {
    pub iterator: u64,
    pub data: Vec<u8>,
}

fn broken(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Error::BadDump("the file ends before the dump does".to_owned()),
        _ => Error::File(error.to_string()),
    }
}

pub async fn write_magic(file: &mut impl Sink) -> Result<(), Error> {
    file.write_all(MAGIC).await.map_err(broken)
}

pub async fn write_record(file: &mut impl Sink, record: &Record) -> Result<(), Error> {
    let mut crc = crc32fast::Hasher::new();
    let length = record.data.len() as u64;
    for part in [&record.iterator.to_le_bytes()[..], &length.to_le_bytes(), &record.data] {
        crc.update(part);
        file.write_all(part).await.map_err(broken)?;
    }
    file.write_all(&crc.finalize().to_le_bytes()).await.map_err(broken)?;
    if record.iterator == 0 { file.flush().await.map_err(broken) } else { Ok(()) }
}

/// Reads the first bytes of a file.
///
/// # Errors
/// It is not a dump, or cannot be read.
pub async fn read_magic(file: &mut impl Source) -> Result<(), Error> {
    let mut magic = [0; 8];
    file.read_exact(&mut magic).await.map_err(broken)?;
    if &magic == MAGIC { Ok(()) } else { Err(Error::BadDump("this file is not a dump of a filter".to_owned())) }
}

async fn read_number(file: &mut impl Source) -> Result<u64, Error> {
    let mut bytes = [0; 8];
    file.read_exact(&mut bytes).await.map_err(broken)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Reads the next record.
///
/// # Errors
/// The file is damaged or truncated, or cannot be read.
pub async fn read_record(file: &mut impl Source) -> Result<Record, Error> {
    let iterator = read_number(file).await?;
    let length = read_number(file).await?;
    if length > MOST_BYTES {
        return Err(Error::BadDump(format!("a record of {length} bytes: the file is damaged")));
    }
    let mut data = Vec::new();
    let read = file.read_up_to(length, &mut data).await.map_err(broken)?;
    if read as u64 != length {
        return Err(Error::BadDump("the file ends before the dump does".to_owned()));
    }
    let mut crc = crc32fast::Hasher::new();
    for part in [&iterator.to_le_bytes()[..], &length.to_le_bytes(), &data] {
        crc.update(part);
    }
    let mut expected = [0; 4];
    file.read_exact(&mut expected).await.map_err(broken)?;
    if u32::from_le_bytes(expected) != crc.finalize() {
        return Err(Error::BadDump("the checksum of a record is wrong: the file is damaged".to_owned()));
    }
    Ok(Record { iterator, data })
}
