//! The lines of `crawl` and `build`. They are bytes and need not be UTF-8.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::stream::input::{self, BytesRead};

/// The links of several files in order. An empty line is not a link.
pub struct Links {
    files: VecDeque<PathBuf>,
    bytes_read: BytesRead,
    current: Option<(PathBuf, BufReader<Box<dyn Read>>)>,
}

impl Links {
    /// Reads `files` in order, where `-` is the standard input.
    pub fn new(files: &[PathBuf], bytes_read: BytesRead) -> Self {
        Self { files: files.iter().cloned().collect(), bytes_read, current: None }
    }

    /// Returns up to `count` links. Fewer mean that the input ends after them; none means that it has ended.
    pub fn take(&mut self, count: usize) -> Result<Vec<Vec<u8>>> {
        let mut links = Vec::with_capacity(count.min(1 << 16));
        while links.len() < count {
            let Some((path, reader)) = &mut self.current else {
                let Some(path) = self.files.pop_front() else { break };
                let reader = BufReader::new(input::open(&path, &self.bytes_read)?);
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;

    fn lines_of(contents: &[u8]) -> Vec<Vec<u8>> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(contents).unwrap();
        Links::new(&[file.path().to_owned()], BytesRead::default()).take(usize::MAX).unwrap()
    }

    #[test]
    fn a_link_is_a_nonempty_line_without_its_end() {
        assert_eq!(lines_of(b"a\n\nb\r\n\xff\x00"), [b"a".to_vec(), b"b".to_vec(), b"\xff\x00".to_vec()]);
        assert_eq!(lines_of(b""), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn batches_span_files() {
        let folder = tempfile::tempdir().unwrap();
        let paths = [folder.path().join("1"), folder.path().join("2")];
        fs::write(&paths[0], "a\nb").unwrap();
        fs::write(&paths[1], "c\n").unwrap();
        let mut links = Links::new(&paths, BytesRead::default());
        assert_eq!(links.take(1).unwrap(), [b"a".to_vec()]);
        assert_eq!(links.take(5).unwrap(), [b"b".to_vec(), b"c".to_vec()]);
        assert!(links.take(5).unwrap().is_empty());
        assert_eq!(input::size_bytes(&paths), Some(5));
        assert_eq!(input::size_bytes(&[PathBuf::from("-")]), None);
    }
}
