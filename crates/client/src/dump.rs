//! The file format of a filter's dump: the records of BF.SCANDUMP in sequence.
//!
//! ```text
//! 8 bytes      "BLOOMDMP"
//! each record: 8 bytes iterator, 8 bytes length (both unsigned, little-endian), the record's data,
//!              4 bytes CRC-32 of all of these
//! the end:     a record with iterator 0 and no data
//! ```

use std::io::{self, Read, Write};

use crate::Error;

const MAGIC: &[u8; 8] = b"BLOOMDMP";
/// The longest record: the server's default limit for strings.
const MOST_BYTES: u64 = 512 << 20;

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

pub fn write_magic(file: &mut impl Write) -> Result<(), Error> {
    file.write_all(MAGIC).map_err(broken)
}

pub fn write_record(file: &mut impl Write, record: &Record) -> Result<(), Error> {
    let mut crc = crc32fast::Hasher::new();
    let length = record.data.len() as u64;
    for part in [&record.iterator.to_le_bytes()[..], &length.to_le_bytes(), &record.data] {
        crc.update(part);
        file.write_all(part).map_err(broken)?;
    }
    file.write_all(&crc.finalize().to_le_bytes()).map_err(broken)
}

/// Reads the first bytes of a file.
///
/// # Errors
/// It is not a dump, or cannot be read.
pub fn read_magic(file: &mut impl Read) -> Result<(), Error> {
    let mut magic = [0; 8];
    file.read_exact(&mut magic).map_err(broken)?;
    if &magic == MAGIC { Ok(()) } else { Err(Error::BadDump("this file is not a dump of a filter".to_owned())) }
}

/// Reads the next record.
///
/// # Errors
/// The file is damaged or truncated, or cannot be read.
pub fn read_record(file: &mut impl Read) -> Result<Record, Error> {
    let number = |file: &mut dyn Read| {
        let mut bytes = [0; 8];
        file.read_exact(&mut bytes).map(|()| u64::from_le_bytes(bytes)).map_err(broken)
    };
    let iterator = number(file)?;
    let length = number(file)?;
    if length > MOST_BYTES {
        return Err(Error::BadDump(format!("a record of {length} bytes: the file is damaged")));
    }
    let mut data = Vec::new();
    let read = file.by_ref().take(length).read_to_end(&mut data).map_err(broken)?;
    if read as u64 != length {
        return Err(Error::BadDump("the file ends before the dump does".to_owned()));
    }
    let mut crc = crc32fast::Hasher::new();
    for part in [&iterator.to_le_bytes()[..], &length.to_le_bytes(), &data] {
        crc.update(part);
    }
    let mut expected = [0; 4];
    file.read_exact(&mut expected).map_err(broken)?;
    if u32::from_le_bytes(expected) != crc.finalize() {
        return Err(Error::BadDump("the checksum of a record is wrong: the file is damaged".to_owned()));
    }
    Ok(Record { iterator, data })
}
