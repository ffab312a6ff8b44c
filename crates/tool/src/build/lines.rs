//! Splits the input into blocks of whole lines for other threads. Lines are those of `links.rs`.

use std::collections::VecDeque;
use std::io::Read;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::stream::input::{self, BytesRead};

/// The size of a block: some thousand lines.
const BLOCK_BYTES: usize = 256 * 1024;

/// The blocks of several files in order.
pub struct Blocks {
    files: VecDeque<PathBuf>,
    current: Option<(PathBuf, Box<dyn Read>)>,
    /// The beginning of an incomplete line.
    begun: Vec<u8>,
    read_bytes: BytesRead,
}

impl Blocks {
    /// Reads `files`, where `-` is the standard input.
    pub fn of(files: &[PathBuf], read_bytes: BytesRead) -> Self {
        Self { files: files.iter().cloned().collect(), current: None, begun: Vec::new(), read_bytes }
    }

    /// Returns the next block, or `None` at the end.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn next(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            let Some((path, reader)) = &mut self.current else {
                let Some(path) = self.files.pop_front() else { return Ok(None) };
                let reader = input::open(&path, &self.read_bytes)?;
                self.current = Some((path, reader));
                continue;
            };
            let mut block = Vec::with_capacity(self.begun.len() + BLOCK_BYTES);
            block.append(&mut self.begun);
            let begun = block.len();
            let read = reader.take(BLOCK_BYTES as u64).read_to_end(&mut block);
            if read.with_context(|| format!("cannot read {}", path.display()))? == 0 {
                self.current = None;
                if !block.is_empty() {
                    return Ok(Some(block));
                }
                continue;
            }
            let end = memchr::memrchr(b'\n', block.get(begun..).unwrap_or_default()).map_or(0, |end| begun + end + 1);
            self.begun = block.split_off(end);
            if end > 0 {
                return Ok(Some(block));
            }
        }
    }
}

/// Returns the lines of a block without their ends. Empty lines are skipped.
pub fn lines(block: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(block);
    let all = std::iter::from_fn(move || {
        let bytes = rest?;
        let (line, after) = match memchr::memchr(b'\n', bytes).and_then(|end| bytes.split_at_checked(end)) {
            Some((line, end)) => (line, end.get(1..)),
            None => (bytes, None),
        };
        rest = after;
        Some(line)
    });
    all.map(|line| {
        let mut line = line;
        while let [before @ .., b'\r'] = line {
            line = before;
        }
        line
    })
    .filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::links::Links;

    #[test]
    fn lines_are_split_as_in_every_other_subcommand() {
        let folder = tempfile::tempdir().unwrap();
        let long = vec![b'x'; 3 * BLOCK_BYTES];
        let many: Vec<u8> = (0..100_000).flat_map(|number| format!("line {number}\n").into_bytes()).collect();
        let contents: [&[u8]; 9] = [
            b"",
            b"a",
            b"a\n\nb\r\n\xff\x00",
            b"\n",
            b"\r\n\r\r\n",
            &long,
            &[&long[..], b"\nb"].concat(),
            &many,
            b"last",
        ];
        let paths: Vec<_> = (0..contents.len()).map(|number| folder.path().join(number.to_string())).collect();
        for (path, contents) in paths.iter().zip(contents) {
            fs::write(path, contents).unwrap();
        }
        let expected = Links::new(&paths, BytesRead::default()).take(usize::MAX).unwrap();
        let read_bytes = BytesRead::default();
        let mut blocks = Blocks::of(&paths, read_bytes.clone());
        let mut found = Vec::new();
        while let Some(block) = blocks.next().unwrap() {
            found.extend(lines(&block).map(<[u8]>::to_vec));
        }
        assert!(found == expected);
        assert_eq!(read_bytes.load(Ordering::Relaxed), contents.iter().map(|bytes| bytes.len() as u64).sum::<u64>());
    }
}
