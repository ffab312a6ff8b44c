//! Finds records of CSV (RFC 4180) in a buffer that fills as input arrives, with the same parser as `load`. A record may
//! contain line ends in quotes, so records are not lines.

use std::ops::Range;

use csv_core::{ReadRecordResult, Reader};

/// Finds records, one after another.
pub struct Records {
    parser: Reader,
    /// The unquoted fields of the record without separators, and the end of each.
    fields: Vec<u8>,
    ends: Vec<usize>,
    count: usize,
}

impl Records {
    /// Creates a parser at the beginning of a file.
    pub fn new() -> Self {
        Self { parser: Reader::new(), fields: Vec::new(), ends: vec![0; 64], count: 0 }
    }

    /// Returns the range of the first record of `text` with its end, without blank lines before it. Returns `None` if the
    /// record is incomplete, or with `is_last` if only blank lines are left.
    pub fn next(&mut self, text: &[u8], is_last: bool) -> Option<Range<usize>> {
        if self.fields.len() < text.len() {
            self.fields.resize(text.len(), 0);
        }
        let (mut read, mut written) = (0, 0);
        self.count = 0;
        loop {
            let rest = text.get(read..).unwrap_or_default();
            if rest.is_empty() && !is_last {
                break;
            }
            let (fields, ends) = (self.fields.get_mut(written..)?, self.ends.get_mut(self.count..)?);
            let (result, bytes, field_bytes, fields) = self.parser.read_record(rest, fields, ends);
            (read, written, self.count) = (read + bytes, written + field_bytes, self.count + fields);
            match result {
                ReadRecordResult::Record => {
                    // The line feed of CR LF belongs to this record, and may not have arrived yet.
                    if text.get(..read).is_some_and(|record| record.ends_with(b"\r")) {
                        match text.get(read) {
                            Some(b'\n') => read += 1,
                            None if !is_last => break,
                            _ => {}
                        }
                    }
                    let blank = text.iter().take_while(|byte| matches!(byte, b'\n' | b'\r')).count();
                    return Some(blank..read);
                }
                ReadRecordResult::OutputEndsFull => self.ends.resize(self.ends.len() * 2, 0),
                ReadRecordResult::End => return None,
                // Fields are never longer than their input.
                ReadRecordResult::InputEmpty | ReadRecordResult::OutputFull => {}
            }
        }
        // The record is parsed again from its beginning when more input has arrived.
        self.parser.reset();
        None
    }

    /// Returns a field of the last record, by index.
    pub fn field(&self, place: usize) -> Option<&[u8]> {
        let ends = self.ends.get(..self.count)?;
        let start = if place == 0 { 0 } else { *ends.get(place - 1)? };
        self.fields.get(start..*ends.get(place)?)
    }

    /// Returns all fields of the last record.
    pub fn fields(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.count).filter_map(|place| self.field(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the records of a text that is read in steps of `step` bytes: their bytes and their fields.
    fn records(text: &[u8], step: usize) -> Vec<(Vec<u8>, Vec<Vec<u8>>)> {
        let (mut parser, mut start, mut found) = (Records::new(), 0, Vec::new());
        for end in (step..text.len()).step_by(step).chain([text.len()]) {
            let is_last = end == text.len();
            while let Some(range) = parser.next(&text[start..end], is_last) {
                let fields = parser.fields().map(<[u8]>::to_vec).collect();
                found.push((text[start..end][range.clone()].to_vec(), fields));
                start += range.end;
            }
        }
        found
    }

    #[test]
    fn records_are_parsed_as_by_load_however_the_input_is_split() {
        let many = format!("{}\n", "x,".repeat(200));
        for text in [
            "a,b\nc,d\n",
            "a,b\r\nc,d\r\n",
            "a\rb\rc",
            "\n\r\n\na,b\n\n\nc,d\n\n",
            "\"a\nb\",\"c \"\"d\"\"\"\r\n\"\r\n\",e\r\n",
            "a\"b,\"c\"d\n\"open\nto the end",
            ",\n\"\"\n,,,\n",
            "no end",
            &many,
            "",
        ] {
            let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
            let expected: Vec<Vec<Vec<u8>>> =
                reader.byte_records().map(|record| record.unwrap().iter().map(<[u8]>::to_vec).collect()).collect();
            for step in 1..=text.len().clamp(1, 20) {
                let found = records(text.as_bytes(), step);
                let fields: Vec<_> = found.iter().map(|(_, fields)| fields.clone()).collect();
                assert_eq!(fields, expected, "{text:?} by {step}");
                // Nothing but blank lines is in none of them.
                let whole: Vec<u8> = found.into_iter().flat_map(|(bytes, _)| bytes).collect();
                let kept = |bytes: &[u8]| bytes.iter().filter(|byte| !matches!(byte, b'\r' | b'\n')).count();
                assert_eq!(kept(&whole), kept(text.as_bytes()), "{text:?} by {step}");
            }
        }
    }
}
