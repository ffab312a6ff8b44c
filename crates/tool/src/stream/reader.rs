//! The thread that reads the input. It sends the lines that have arrived so far, so that an available line never waits for more input.

use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use anyhow::{Context, Result, anyhow};

use crate::input::{self, BytesRead};
use crate::stream::field::{Field, Item, Records};

/// Bytes per read. A longer line takes several reads.
const READ_BYTES: usize = 1 << 17;
/// The maximum number of lines in a part.
pub const LINES_AT_ONCE: usize = 1024;
/// The maximum number of queued parts. If the queue is full, the reader waits.
const WAITING: usize = 32;

/// Some lines, and the item of each.
#[derive(Debug, Default)]
pub struct Lines {
    /// The header, which is printed before these lines.
    pub header: Vec<u8>,
    text: Vec<u8>,
    decoded: Vec<u8>,
    lines: Vec<Line>,
    /// The number of skipped lines without an item.
    pub bad: u64,
}

#[derive(Debug)]
struct Line {
    /// The range of a line in `text`, with its end.
    whole: Range<usize>,
    item: Range<usize>,
    is_decoded: bool,
}

impl Lines {
    pub const fn len(&self) -> usize {
        self.lines.len()
    }

    pub fn items(&self) -> impl Iterator<Item = &[u8]> {
        self.lines.iter().map(|line| {
            let text = if line.is_decoded { &self.decoded } else { &self.text };
            text.get(line.item.clone()).unwrap_or_default()
        })
    }

    /// Returns the length of each line, with its end.
    pub fn lengths(&self) -> impl Iterator<Item = usize> {
        self.lines.iter().map(|line| line.whole.len())
    }

    /// Calls `write` with the lines whose index satisfies `is_wanted`. Adjacent lines are written together.
    pub fn write<E>(
        &self,
        mut is_wanted: impl FnMut(usize) -> bool,
        mut write: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut run = 0..0;
        for (place, line) in self.lines.iter().enumerate() {
            if !is_wanted(place) {
                continue;
            }
            if line.whole.start != run.end {
                write(self.text.get(run).unwrap_or_default())?;
                run = line.whole.clone();
            }
            run.end = line.whole.end;
        }
        write(self.text.get(run).unwrap_or_default())
    }
}

/// The input and its format.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The files, `-` for the standard input.
    pub files: Vec<PathBuf>,
    /// The part of a line that is the item.
    pub field: Field,
    /// The byte that ends a line. A carriage return before a line feed belongs to it.
    pub end: u8,
    /// Whether lines without an item are skipped and counted instead of failing.
    pub skip_bad: bool,
}

impl Reading {
    /// Starts the thread. The last message may be an error.
    pub fn start(self, bytes_read: BytesRead) -> Receiver<Result<Lines>> {
        let (sender, receiver) = sync_channel(WAITING);
        thread::spawn(move || {
            let mut header = Header::default();
            for path in &self.files {
                let result = input::open(path, &bytes_read).and_then(|(source, is_marked)| {
                    let mut splitter = Splitter { is_marked, ..Splitter::new(&self, &sender, &mut header) };
                    splitter.read(source).with_context(|| format!("cannot read {}", path.display()))
                });
                match result {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(error) => {
                        _ = sender.send(Err(error));
                        return;
                    }
                }
            }
        });
        receiver
    }
}

/// The header of the first file that has one.
#[derive(Default)]
struct Header {
    is_known: bool,
    /// The header, if it was not sent yet.
    text: Vec<u8>,
}

/// Splits a file into lines.
struct Splitter<'a> {
    reading: &'a Reading,
    sender: &'a SyncSender<Result<Lines>>,
    header: &'a mut Header,
    /// Whether the file began with a byte order mark, which its header keeps.
    is_marked: bool,
    /// The index of the column, once the first line was read.
    place: Option<usize>,
    /// The parser, if the lines are CSV records.
    records: Option<Records>,
    line: u64,
    bad: u64,
}

/// Removes the carriage return before a line feed from a line whose end byte is already removed.
fn without_end(line: &[u8], end: u8) -> &[u8] {
    if end == b'\n' { line.strip_suffix(b"\r").unwrap_or(line) } else { line }
}

impl<'a> Splitter<'a> {
    fn new(reading: &'a Reading, sender: &'a SyncSender<Result<Lines>>, header: &'a mut Header) -> Self {
        let is_csv = matches!(reading.field, Field::Column { delimiter: b',', .. });
        Self {
            reading,
            sender,
            header,
            is_marked: false,
            place: None,
            records: is_csv.then(Records::new),
            line: 0,
            bad: 0,
        }
    }

    /// Reads the whole file. Returns false if the receiver was dropped.
    fn read(&mut self, mut source: impl Read) -> Result<bool> {
        let mut buffer = vec![0; READ_BYTES];
        let mut filled = 0;
        loop {
            let count = match source.read(buffer.get_mut(filled..).unwrap_or_default()) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                result => result?,
            };
            let read = buffer.get(filled..filled + count).unwrap_or_default();
            let last_end = memchr::memrchr(self.reading.end, read);
            let end = last_end.filter(|_| self.records.is_none()).map(|place| filled + place + 1);
            filled += count;
            if count == 0 && filled > 0 {
                // A last line without a line end is printed with one, as `uniq` does.
                let mut rest = buffer.get(..filled).unwrap_or_default().to_vec();
                if rest.last() != Some(&self.reading.end) {
                    rest.push(self.reading.end);
                }
                return if self.records.is_some() {
                    Ok(self.split_csv(&rest, true)?.is_some())
                } else {
                    self.split(&rest)
                };
            }
            if count == 0 {
                return self.hand_over(Lines::default());
            }
            if self.records.is_some() && last_end.is_some() {
                let Some(end) = self.split_csv(buffer.get(..filled).unwrap_or_default(), false)? else {
                    return Ok(false);
                };
                buffer.copy_within(end..filled, 0);
                filled -= end;
            }
            if let Some(end) = end {
                if !self.split(buffer.get(..end).unwrap_or_default())? {
                    return Ok(false);
                }
                buffer.copy_within(end..filled, 0);
                filled -= end;
            }
            if filled == buffer.len() {
                buffer.resize(buffer.len().saturating_mul(2), 0);
            }
        }
    }

    /// Sends whole lines.
    fn split(&mut self, text: &[u8]) -> Result<bool> {
        let mut lines = Lines::default();
        let mut start = 0;
        let mut first = 0;
        for line_end in memchr::memchr_iter(self.reading.end, text) {
            let end = line_end + 1;
            self.line += 1;
            let bytes = without_end(text.get(start..line_end).unwrap_or_default(), self.reading.end);
            if bytes.is_empty() && matches!(self.reading.field, Field::Column { .. }) {
                // As in CSV, a blank line is not a record.
                start = end;
                continue;
            }
            if let Field::Column { delimiter, column } = &self.reading.field
                && self.place.is_none()
            {
                let fields = bytes.split(|byte| byte == delimiter);
                self.place = Some(column.place(fields)?);
                if column.has_header() {
                    self.keep_header(text.get(start..end).unwrap_or_default());
                    (start, first) = (end, end);
                    continue;
                }
            }
            let decoded = lines.decoded.len();
            let (at, whole) = (start - first, start - first..end - first);
            start = end;
            match self.reading.field.item(bytes, self.place.unwrap_or_default(), &mut lines.decoded) {
                Ok(Item::Within(item)) => {
                    let item = item.start + at..item.end + at;
                    lines.lines.push(Line { whole, item, is_decoded: false });
                }
                Ok(Item::Decoded) => {
                    let item = decoded..lines.decoded.len();
                    lines.lines.push(Line { whole, item, is_decoded: true });
                }
                Err(_) if self.reading.skip_bad => self.bad += 1,
                Err(error) => {
                    lines.text = text.get(first..start).unwrap_or_default().to_vec();
                    self.hand_over(lines)?;
                    return Err(anyhow!("line {}: {error}", self.line));
                }
            }
            if lines.len() == LINES_AT_ONCE {
                lines.text = text.get(first..start).unwrap_or_default().to_vec();
                first = start;
                if !self.hand_over(std::mem::take(&mut lines))? {
                    return Ok(false);
                }
            }
        }
        lines.text = text.get(first..).unwrap_or_default().to_vec();
        self.hand_over(lines)
    }

    /// Sends the complete records at the beginning of `text`. Returns where they end, or `None` if the receiver was dropped.
    fn split_csv(&mut self, text: &[u8], is_last: bool) -> Result<Option<usize>> {
        let Field::Column { column, .. } = &self.reading.field else { return Ok(Some(0)) };
        let Some(mut records) = self.records.take() else { return Ok(Some(0)) };
        let (mut lines, mut end) = (Lines::default(), 0);
        while let Some(range) = records.next(text.get(end..).unwrap_or_default(), is_last) {
            let (from, to) = (end + range.start, end + range.end);
            let newlines = |from: usize, to: usize| {
                memchr::memchr_iter(b'\n', text.get(from..to).unwrap_or_default()).count() as u64
            };
            let number = self.line + newlines(end, from) + 1;
            self.line += newlines(end, to);
            end = to;
            let record = text.get(from..to).unwrap_or_default();
            let place = match self.place {
                Some(place) => place,
                None => {
                    let place = *self.place.insert(column.place(records.fields())?);
                    if column.has_header() {
                        self.keep_header(record);
                        continue;
                    }
                    place
                }
            };
            match records.field(place) {
                Some(field) => {
                    let (whole, item) = (lines.text.len(), lines.decoded.len());
                    lines.text.extend_from_slice(record);
                    lines.decoded.extend_from_slice(field);
                    let (whole, item) = (whole..lines.text.len(), item..lines.decoded.len());
                    lines.lines.push(Line { whole, item, is_decoded: true });
                }
                None if self.reading.skip_bad => self.bad += 1,
                None => {
                    self.hand_over(lines)?;
                    return Err(anyhow!("line {number}: there is no column {}", place + 1));
                }
            }
            if lines.len() == LINES_AT_ONCE && !self.hand_over(std::mem::take(&mut lines))? {
                return Ok(None);
            }
        }
        self.records = Some(records);
        Ok(self.hand_over(lines)?.then_some(end))
    }

    fn keep_header(&mut self, line: &[u8]) {
        if !self.header.is_known {
            let mark = if self.is_marked { input::MARK } else { &[] };
            (self.header.is_known, self.header.text) = (true, [mark, line].concat());
        }
    }

    fn hand_over(&mut self, mut lines: Lines) -> Result<bool> {
        lines.bad = std::mem::take(&mut self.bad);
        lines.header = std::mem::take(&mut self.header.text);
        if lines.len() == 0 && lines.bad == 0 && lines.header.is_empty() {
            return Ok(true);
        }
        Ok(self.sender.send(Ok(lines)).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use crate::stream::field::Column;

    use super::*;

    fn read(files: &[&[u8]], field: Field, skip_bad: bool) -> (Vec<Vec<u8>>, Vec<u8>, u64, Option<String>) {
        let folder = tempfile::tempdir().unwrap();
        let paths: Vec<_> = (0..files.len()).map(|number| folder.path().join(number.to_string())).collect();
        paths.iter().zip(files).for_each(|(path, text)| std::fs::write(path, text).unwrap());
        let (mut items, mut text, mut bad) = (Vec::new(), Vec::new(), 0);
        for lines in (Reading { files: paths, field, end: b'\n', skip_bad }).start(BytesRead::default()) {
            let lines = match lines {
                Ok(lines) => lines,
                Err(error) => return (items, text, bad, Some(format!("{error:#}"))),
            };
            items.extend(lines.items().map(<[u8]>::to_vec));
            let mut add = |part: &[u8]| {
                text.extend_from_slice(part);
                Ok::<_, ()>(())
            };
            lines.write(|_| true, &mut add).unwrap();
            bad += lines.bad;
        }
        (items, text, bad, None)
    }

    #[test]
    fn an_item_is_a_line_without_its_end_and_the_last_line_is_terminated() {
        let (items, text, _, _) = read(&[b"a\n\nb\r\n\r\r\n\xff\0", b"", b"c"], Field::Line, false);
        assert_eq!(items, [&b"a"[..], b"", b"b", b"\r", b"\xff\0", b"c"]);
        assert_eq!(text, b"a\n\nb\r\n\r\r\n\xff\0\nc\n");
    }

    #[test]
    fn long_lines_and_many_lines_are_read() {
        let long = [vec![b'x'; 3 * READ_BYTES + 1], b"\nshort\n".to_vec()].concat();
        let many: String = (0..5 * LINES_AT_ONCE + 3).map(|number| format!("{number}\r\n")).collect();
        let (items, text, _, _) = read(&[&long, many.as_bytes()], Field::Line, false);
        assert_eq!(items.len(), 5 * LINES_AT_ONCE + 5);
        assert_eq!((items[0].len(), &*items[1], &*items[1026]), (3 * READ_BYTES + 1, &b"short"[..], &b"1024"[..]));
        assert_eq!(text, [&long[..], many.as_bytes()].concat());
    }

    #[test]
    fn a_line_without_the_field_is_an_error_or_counted() {
        let file: &[u8] = b"a\t1\nb\t2\nbad\nc\t3\n";
        let column = || Field::Column { delimiter: b'\t', column: Column::of("2", false).unwrap() };
        let (items, _, _, error) = read(&[b"x\t0\n", file], column(), false);
        assert_eq!(items, [b"0", b"1", b"2"]);
        assert!(error.unwrap().contains("1: line 3: there is no column 2"));
        let (items, text, bad, error) = read(&[file, b"worse"], column(), true);
        assert_eq!((items.len(), text, bad, error), (3, b"a\t1\nb\t2\nc\t3\n".to_vec(), 2, None));
    }

    #[test]
    fn wanted_lines_are_written_in_order() {
        let reading = Reading { files: vec![], field: Field::json("a").unwrap(), end: b'\n', skip_bad: false };
        let ((sender, receiver), mut header) = (sync_channel(9), Header::default());
        let mut splitter = Splitter::new(&reading, &sender, &mut header);
        splitter.split(b"{\"a\":\"1\"}\n{\"a\":22}\n{\"a\":\"3\"}\n{\"a\":4}\n").unwrap();
        let lines = receiver.recv().unwrap().unwrap();
        assert_eq!(lines.items().collect::<Vec<_>>(), [&b"1"[..], b"22", b"3", b"4"]);
        let mut parts = Vec::new();
        let mut add = |part: &[u8]| {
            parts.push(part.to_vec());
            Ok::<_, ()>(())
        };
        lines.write(|place| place != 1, &mut add).unwrap();
        assert_eq!(parts.concat(), b"{\"a\":\"1\"}\n{\"a\":\"3\"}\n{\"a\":4}\n");
    }
}
