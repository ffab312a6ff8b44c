//! The input: lines of plain or gzip files or of the standard input. Links are bytes and need not be UTF-8.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flate2::bufread::MultiGzDecoder;

use crate::progress::Progress;

/// The two bytes that begin a gzip file (RFC 1952, section 2.3.1).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The links of several files in order. An empty line is not a link.
pub struct Links {
    files: VecDeque<PathBuf>,
    progress: Progress,
    current: Option<(PathBuf, Box<dyn BufRead>)>,
}

impl Links {
    /// Reads `files` in order, where `-` is the standard input, and advances `progress`.
    pub fn new(files: &[PathBuf], progress: Progress) -> Self {
        Self { files: files.iter().cloned().collect(), progress, current: None }
    }

    /// Returns up to `count` links. Fewer mean that the input ends after them; none means that it has ended.
    pub fn take(&mut self, count: usize) -> Result<Vec<Vec<u8>>> {
        let mut links = Vec::with_capacity(count.min(1 << 16));
        while links.len() < count {
            let Some((path, reader)) = &mut self.current else {
                let Some(path) = self.files.pop_front() else { break };
                let count = |source| -> Box<dyn Read> { Box::new(self.progress.count_bytes(source)) };
                let reader = open(&path, count).with_context(|| format!("cannot read {}", path.display()))?;
                self.current = Some((path, reader));
                continue;
            };
            let mut line = Vec::new();
            if reader.read_until(b'\n', &mut line).with_context(|| format!("cannot read {}", path.display()))? == 0 {
                self.current = None;
                continue;
            }
            while line.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
                line.pop();
            }
            if !line.is_empty() {
                links.push(line);
            }
        }
        Ok(links)
    }
}

/// Returns the size of `files` on disk for the progress bar, or `None` if it is unknown.
pub fn size_bytes(files: &[PathBuf]) -> Option<u64> {
    files
        .iter()
        .map(|path| fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|metadata| metadata.len()))
        .sum::<Option<u64>>()
}

/// Opens a file, plain or gzip, where `-` is the standard input. `count` wraps the reader before decompression.
pub fn open(path: &Path, count: impl FnOnce(Box<dyn Read>) -> Box<dyn Read>) -> io::Result<Box<dyn BufRead>> {
    let source: Box<dyn Read> =
        if path == Path::new("-") { Box::new(io::stdin()) } else { Box::new(File::open(path)?) };
    let mut reader = BufReader::new(count(source));
    // Detected by content, because the standard input has no name.
    if reader.fill_buf()?.starts_with(&GZIP_MAGIC) {
        Ok(Box::new(BufReader::new(MultiGzDecoder::new(reader))))
    } else {
        Ok(Box::new(reader))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn lines_of(contents: &[u8]) -> Vec<Vec<u8>> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(contents).unwrap();
        Links::new(&[file.path().to_owned()], Progress::hidden()).take(usize::MAX).unwrap()
    }

    #[test]
    fn a_link_is_a_nonempty_line_without_its_end() {
        assert_eq!(lines_of(b"a\n\nb\r\n\xff\x00"), [b"a".to_vec(), b"b".to_vec(), b"\xff\x00".to_vec()]);
        assert_eq!(lines_of(b""), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn gzip_is_detected_by_content_and_all_members_are_read() {
        let mut contents = Vec::new();
        for part in [b"a\nb".as_slice(), b"c\nd\n"] {
            let mut encoder = GzEncoder::new(&mut contents, Compression::default());
            encoder.write_all(part).unwrap();
            encoder.finish().unwrap();
        }
        assert_eq!(lines_of(&contents), [b"a".to_vec(), b"bc".to_vec(), b"d".to_vec()]);
    }

    #[test]
    fn a_truncated_gzip_file_is_an_error() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&[b'x'; 1000]).unwrap();
        let mut contents = encoder.finish().unwrap();
        contents.truncate(contents.len() - 4);
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&contents).unwrap();
        assert!(Links::new(&[file.path().to_owned()], Progress::hidden()).take(usize::MAX).is_err());
    }

    #[test]
    fn batches_span_files() {
        let folder = tempfile::tempdir().unwrap();
        let paths = [folder.path().join("1"), folder.path().join("2")];
        fs::write(&paths[0], "a\nb").unwrap();
        fs::write(&paths[1], "c\n").unwrap();
        let mut links = Links::new(&paths, Progress::hidden());
        assert_eq!(links.take(1).unwrap(), [b"a".to_vec()]);
        assert_eq!(links.take(5).unwrap(), [b"b".to_vec(), b"c".to_vec()]);
        assert!(links.take(5).unwrap().is_empty());
        assert_eq!(size_bytes(&paths), Some(5));
        assert_eq!(size_bytes(&[PathBuf::from("-")]), None);
    }
}
