//! Reads files and the standard input, and decompresses gzip and Zstandard. The format is detected by the first bytes, because
//! the standard input has no name.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use flate2::bufread::MultiGzDecoder;

/// The bytes that begin a gzip file (RFC 1952, section 2.3.1).
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
/// The bytes that begin a Zstandard frame (RFC 8878, section 3.1.1).
const ZSTANDARD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// Bytes per read of a compressed file.
const COMPRESSED_BUFFER_BYTES: usize = 1 << 16;

/// The number of bytes read from the files, before decompression.
pub type BytesRead = Arc<AtomicU64>;

/// Opens a file, or the standard input for `-`.
///
/// # Errors
/// The file cannot be opened or read.
pub fn open(path: &Path, bytes_read: &BytesRead) -> Result<Box<dyn Read>> {
    let cannot_read = || format!("cannot read {}", path.display());
    if path == Path::new("-") {
        return unpacked(Counted(io::stdin(), bytes_read.clone())).with_context(cannot_read);
    }
    unpacked(Counted(File::open(path).with_context(cannot_read)?, bytes_read.clone())).with_context(cannot_read)
}

/// Returns the decompressed bytes of `source`. Waits only for the bytes that identify the format.
fn unpacked(mut source: impl Read + 'static) -> io::Result<Box<dyn Read>> {
    let mut head = Vec::new();
    while [GZIP_MAGIC, ZSTANDARD_MAGIC].iter().any(|magic| head.len() < magic.len() && magic.starts_with(&head)) {
        let mut byte = [0];
        match source.read(&mut byte) {
            Ok(0) => break,
            Ok(_) => head.extend_from_slice(&byte),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let (is_gzip, is_zstandard) = (head.starts_with(GZIP_MAGIC), head == ZSTANDARD_MAGIC);
    let all = Cursor::new(head).chain(source);
    if is_gzip {
        return Ok(Box::new(MultiGzDecoder::new(BufReader::with_capacity(COMPRESSED_BUFFER_BYTES, all))));
    }
    if is_zstandard {
        return Ok(Box::new(zstd::Decoder::new(all)?));
    }
    Ok(Box::new(all))
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

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    /// Gives a byte at a time.
    struct Slow(Cursor<Vec<u8>>);

    impl Read for Slow {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = buffer.len().min(1);
            self.0.read(&mut buffer[..count])
        }
    }

    fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        unpacked(Slow(Cursor::new(bytes.to_vec())))?.read_to_end(&mut all).map(|_| all)
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
    fn other_input_is_unchanged() {
        for bytes in [&b""[..], b"\x1f", b"\x28", b"\x28\xb5\x2f", b"(text)", b"\x1f\x1f", b"line\n"] {
            assert_eq!(read(bytes).unwrap(), bytes);
        }
    }
}
