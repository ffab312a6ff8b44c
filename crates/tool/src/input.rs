//! Reads files and the standard input for every subcommand: decompresses gzip and Zstandard, drops a byte order mark, and refuses files
//! that are not text. The format is detected by the first bytes, because the standard input has no name.

use std::fs::{self, File};
use std::io::{self, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use flate2::bufread::MultiGzDecoder;

/// The bytes that begin a gzip file (RFC 1952, section 2.3.1).
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
/// The bytes that begin a Zstandard frame (RFC 8878, section 3.1.1).
const ZSTANDARD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// The byte order mark of UTF-8.
pub const MARK: &[u8] = b"\xef\xbb\xbf";
/// The first bytes of files that are not text, and advice for each type. Their lines would be meaningless as items.
const REFUSED: [(&[u8], &str); 13] = [
    (b"\xff\xfe", UTF_16),
    (b"\xfe\xff", UTF_16),
    (b"\xfd7zXZ\0", "it is compressed with xz: pipe it through `xz -dc`"),
    // The digit is the level, 9 by default.
    (b"BZh91AY&SY", "it is compressed with bzip2: pipe it through `bzip2 -dc`"),
    (b"\x04\x22\x4d\x18", "it is compressed with LZ4: pipe it through `lz4 -dc`"),
    (b"PK\x03\x04", "it is a ZIP archive: pipe one of its files through `unzip -p`"),
    (b"7z\xbc\xaf\x27\x1c", "it is a 7z archive: pipe one of its files through `7z x -so`"),
    (b"SQLite format 3\0", "it is a SQLite database: use `load --sqlite`"),
    (b"PGDMP", "it is an archive of pg_dump: restore it, and use `load --postgres`"),
    (b"PAR1\x15", "it is a Parquet file: export a column as text"),
    (b"Obj\x01", "it is an Avro file: export a field as text"),
    (b"REDIS00", "it is an RDB snapshot of a Redis server"),
    (crate::archive::MAGIC, "it is a backup of filters: use `restore`"),
];
const UTF_16: &str = "it is UTF-16 text: pipe it through `iconv -f UTF-16 -t UTF-8`";
/// Bytes per read of a compressed file.
const COMPRESSED_BUFFER_BYTES: usize = 1 << 16;

/// The number of bytes read from the files, before decompression.
pub type BytesRead = Arc<AtomicU64>;

/// Opens a file, or the standard input for `-`, and says whether it began with a byte order mark.
pub fn open(path: &Path, bytes_read: &BytesRead) -> Result<(Box<dyn Read>, bool)> {
    let cannot_read = || format!("cannot read {}", path.display());
    if path == Path::new("-") {
        return unpacked(Counted(io::stdin(), bytes_read.clone())).with_context(cannot_read);
    }
    unpacked(Counted(File::open(path).with_context(cannot_read)?, bytes_read.clone())).with_context(cannot_read)
}

/// Returns the size of `files` on disk for the progress, or `None` if it is unknown.
pub fn size_bytes(files: &[PathBuf]) -> Option<u64> {
    let size = |path: &PathBuf| fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|metadata| metadata.len());
    files.iter().map(size).sum()
}

/// Returns the text of `source`, decompressed, and whether a byte order mark was dropped. Waits only for the bytes that identify the format.
fn unpacked(source: impl Read + 'static) -> io::Result<(Box<dyn Read>, bool)> {
    let (head, source) = begun(source, &[GZIP_MAGIC, ZSTANDARD_MAGIC])?;
    if head.starts_with(GZIP_MAGIC) {
        return text(MultiGzDecoder::new(BufReader::with_capacity(COMPRESSED_BUFFER_BYTES, source)));
    }
    if head.starts_with(ZSTANDARD_MAGIC) {
        return text(zstd::Decoder::new(source)?);
    }
    text(source)
}

/// Returns `source` without a byte order mark, and whether it had one.
fn text(source: impl Read + 'static) -> io::Result<(Box<dyn Read>, bool)> {
    let mut magics = REFUSED.map(|(magic, _)| magic).to_vec();
    magics.extend([MARK, GZIP_MAGIC, ZSTANDARD_MAGIC]);
    let (head, mut source) = begun(source, &magics)?;
    if [GZIP_MAGIC, ZSTANDARD_MAGIC].iter().any(|magic| head.starts_with(magic)) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is compressed twice"));
    }
    if let Some((_, what)) = REFUSED.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, *what));
    }
    let is_marked = head.starts_with(MARK);
    if is_marked {
        source.read_exact(&mut [0; MARK.len()])?;
    }
    Ok((Box::new(source), is_marked))
}

/// Reads bytes until they equal one of `magics`, or until no magic begins with them. Returns the bytes, and a source that includes them.
fn begun<R: Read>(mut source: R, magics: &[&[u8]]) -> io::Result<(Vec<u8>, impl Read + use<R>)> {
    let mut head = Vec::new();
    while magics.iter().any(|magic| head.len() < magic.len() && magic.starts_with(&head)) {
        if (&mut source).take(1).read_to_end(&mut head)? == 0 {
            break;
        }
    }
    Ok((head.clone(), Cursor::new(head).chain(source)))
}

/// A source that counts its bytes.
struct Counted<R>(R, BytesRead);

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read(buffer)?;
        self.1.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    /// Returns one byte per read.
    struct Slow(Cursor<Vec<u8>>);

    impl Read for Slow {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = buffer.len().min(1);
            self.0.read(&mut buffer[..count])
        }
    }

    fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        unpacked(Slow(Cursor::new(bytes.to_vec())))?.0.read_to_end(&mut all).map(|_| all)
    }

    #[test]
    fn all_parts_of_compressed_input_are_decompressed() {
        let gzip = |text: &[u8]| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        };
        let zstandard = |text: &[u8]| zstd::encode_all(text, 3).unwrap();
        assert_eq!(read(&[gzip(b"a\nb"), gzip(b"c")].concat()).unwrap(), b"a\nbc");
        assert_eq!(read(&[zstandard(b"a\nb"), zstandard(b"c")].concat()).unwrap(), b"a\nbc");
        let cut = gzip(&[7; 1000]);
        assert!(read(&cut[..cut.len() - 4]).is_err());
        let cut = zstandard(&[7; 1000]);
        assert!(read(&cut[..cut.len() - 4]).is_err());
    }

    #[test]
    fn a_byte_order_mark_is_dropped() {
        assert_eq!(read(b"\xef\xbb\xbfa\xef\xbb\xbf\n").unwrap(), b"a\xef\xbb\xbf\n");
        assert_eq!(read(&zstd::encode_all(&b"\xef\xbb\xbfa"[..], 3).unwrap()).unwrap(), b"a");
    }

    #[test]
    fn input_that_is_not_text_is_refused() {
        for (magic, what) in REFUSED {
            let file = [magic, b"a\nb\n"].concat();
            for bytes in [zstd::encode_all(&*file, 3).unwrap(), file] {
                assert_eq!(read(&bytes).unwrap_err().to_string(), what);
            }
        }
        let once = zstd::encode_all(&b"a\n"[..], 3).unwrap();
        assert!(read(&zstd::encode_all(&*once, 3).unwrap()).unwrap_err().to_string().contains("twice"));
    }

    #[test]
    fn other_input_is_unchanged() {
        let like_a_magic: [&[u8]; 5] = [b"\xef\xbb", b"SQLite format\n", b"\xff\xff", b"BZh91\n", b"PK\n"];
        let others: [&[u8]; 7] = [b"", b"\x1f", b"\x28", b"\x28\xb5\x2f", b"(text)", b"\x1f\x1f", b"line\n"];
        for bytes in like_a_magic.into_iter().chain(others) {
            assert_eq!(read(bytes).unwrap(), bytes);
        }
    }
}
