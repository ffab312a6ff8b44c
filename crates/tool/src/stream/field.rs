//! The part of a line that is the item: the whole line, a column, or a field of a JSON line.

use std::collections::HashMap;
use std::ops::Range;

use anyhow::{Context, Result};
use csv_core::{ReadRecordResult, Reader};
use serde_json::value::RawValue;

use crate::server::usage;

/// The part of a line that is the item.
#[derive(Clone, Debug)]
pub enum Field {
    /// The whole line without its end.
    Line,
    /// A column of CSV, or of lines with another delimiter and no quotes.
    Column { delimiter: u8, column: Column },
    /// The value at a JSON Pointer (RFC 6901), by its parts.
    Json(Vec<String>),
}

/// The item of a line.
#[derive(Debug, PartialEq, Eq)]
pub enum Item {
    /// A range of the line.
    Within(Range<usize>),
    /// The end of the buffer for decoded items.
    Decoded,
}

impl Field {
    /// Parses a field of JSON lines: a pointer if it begins with `/`, otherwise the name of a member of the outermost object.
    pub fn json(text: &str) -> Result<Self> {
        let Some(pointer) = text.strip_prefix('/') else { return Ok(Self::Json(vec![text.to_owned()])) };
        let parts = pointer.split('/').map(|part| {
            let rest = part.replace("~0", "").replace("~1", "");
            if rest.contains('~') {
                return Err(usage(format!("`{text}` is not a JSON Pointer: write ~0 for ~ and ~1 for /")));
            }
            Ok(part.replace("~1", "/").replace("~0", "~"))
        });
        Ok(Self::Json(parts.collect::<Result<_>>()?))
    }

    /// Returns the item of a line without its end. `place` is the index of the column. Decoded items are appended to `decoded`.
    pub fn item(&self, line: &[u8], place: usize, decoded: &mut Vec<u8>) -> Result<Item> {
        match self {
            Self::Line => Ok(Item::Within(0..line.len())),
            Self::Column { delimiter, .. } => delimited(line, *delimiter, place),
            Self::Json(path) => json(line, path, decoded),
        }
    }
}

fn delimited(line: &[u8], delimiter: u8, place: usize) -> Result<Item> {
    let (mut start, mut left) = (0, place);
    let mut ends = memchr::memchr_iter(delimiter, line).chain([line.len()]);
    loop {
        let end = ends.next();
        match end {
            Some(end) if left == 0 => return Ok(Item::Within(start..end)),
            Some(end) => (start, left) = (end + 1, left - 1),
            None => anyhow::bail!("there is no column {}", place + 1),
        }
    }
}

/// Strings become their decoded text. Any other value keeps its bytes, so no digit of a number is lost.
fn json(line: &[u8], path: &[String], decoded: &mut Vec<u8>) -> Result<Item> {
    let mut found: Option<&RawValue> = Some(serde_json::from_slice(line).map_err(no_json)?);
    for part in path {
        found = found.map_or(Ok(None), |value| member(value.get(), part)).map_err(no_json)?;
    }
    let raw = found.map(RawValue::get).filter(|raw| *raw != "null");
    let Some(raw) = raw else { anyhow::bail!("there is no `{}`", path.join("/")) };
    if raw.starts_with('"') {
        decoded.extend_from_slice(serde_json::from_str::<String>(raw).map_err(no_json)?.as_bytes());
    } else {
        decoded.extend_from_slice(raw.as_bytes());
    }
    Ok(Item::Decoded)
}

/// Returns a member of an object by its name, or an element of an array by its index. If members share a name, the last one counts, as in
/// most JSON parsers.
fn member<'a>(value: &'a str, name: &str) -> Result<Option<&'a RawValue>, serde_json::Error> {
    Ok(match value.as_bytes().first() {
        Some(b'{') => serde_json::from_str::<HashMap<String, &RawValue>>(value)?.remove(name),
        Some(b'[') => {
            let elements: Vec<&RawValue> = serde_json::from_str(value)?;
            name.parse::<usize>().ok().and_then(|index| elements.get(index).copied())
        }
        _ => None,
    })
}

/// Returns why a line is invalid, without the parser's own line number, which is always 1.
#[expect(clippy::needless_pass_by_value, reason = "the form of map_err")]
fn no_json(error: serde_json::Error) -> anyhow::Error {
    let text = error.to_string();
    let what = text.rsplit_once(" at line ").map_or(&*text, |(what, _)| what);
    anyhow::anyhow!("invalid JSON: {what} at column {}", error.column())
}

// The column that holds the items, as `load` and `dedup` accept it.

/// A column of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Column {
    /// A column by its name in the first line.
    Name(String),
    /// A column by its index from 0. The first line may be a header.
    Place { place: usize, has_header: bool },
}

impl Column {
    /// Parses a number from 1, or a name.
    pub fn of(text: &str, has_header: bool) -> Result<Self> {
        match text.parse::<usize>() {
            Ok(0) => Err(usage("--column: columns are numbered from 1")),
            Ok(number) => Ok(Self::Place { place: number - 1, has_header }),
            Err(_) => Ok(Self::Name(text.to_owned())),
        }
    }

    /// Whether the first line is a header without an item.
    pub const fn has_header(&self) -> bool {
        !matches!(self, Self::Place { has_header: false, .. })
    }

    /// Returns the index of the column in a file with this first line.
    pub fn place<'f>(&self, first_line: impl Iterator<Item = &'f [u8]>) -> Result<usize> {
        let name = match self {
            Self::Place { place, .. } => return Ok(*place),
            Self::Name(name) => name,
        };
        let names: Vec<_> = first_line.map(|field| field.strip_prefix(b"\xef\xbb\xbf").unwrap_or(field)).collect();
        names.iter().position(|other| *other == name.as_bytes()).with_context(|| {
            let names: Vec<_> = names.iter().map(|name| String::from_utf8_lossy(name)).collect();
            format!("no column in the first line is named `{name}`: {}", names.join(", "))
        })
    }
}

// Finds records of CSV (RFC 4180) in a buffer that fills as input arrives, with the same parser as `load`. Records may span lines, because
// quoted fields may contain line ends.

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

    /// Returns the range of the first record of `text` with its end, without blank lines before it. Returns `None` if the record is
    /// incomplete, or with `is_last` if only blank lines remain.
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

    fn item(field: &Field, line: &[u8]) -> Result<Vec<u8>> {
        item_at(field, line, 0)
    }

    fn item_at(field: &Field, line: &[u8], place: usize) -> Result<Vec<u8>> {
        let mut decoded = Vec::new();
        Ok(match field.item(line, place, &mut decoded)? {
            Item::Within(range) => line[range].to_vec(),
            Item::Decoded => decoded,
        })
    }

    #[test]
    fn only_tabs_separate_fields() {
        let (line, column) = (b"a\t\tc \"d", Column::of("1", false).unwrap());
        let field = Field::Column { delimiter: b'\t', column };
        let at = |place| item_at(&field, line, place);
        assert_eq!((at(0).unwrap(), at(1).unwrap(), at(2).unwrap()), (b"a".to_vec(), vec![], b"c \"d".to_vec()));
        assert!(at(3).unwrap_err().to_string().contains("no column 4"));
        assert_eq!(item(&field, b"").unwrap(), b"");
    }

    #[test]
    fn json_fields_are_found_by_name_and_by_pointer() {
        let line = br#" {"id":"a\u0041\n","n":12345678901234567890123.50,"deep":{"a/b":[1,{"~":true}]},"no":null} "#;
        let at = |text: &str| item(&Field::json(text).unwrap(), line);
        assert_eq!(at("id").unwrap(), b"aA\n");
        assert_eq!(at("/id").unwrap(), b"aA\n");
        assert_eq!(at("n").unwrap(), b"12345678901234567890123.50");
        assert_eq!(at("/deep/a~1b/0").unwrap(), b"1");
        assert_eq!(at("/deep/a~1b/1/~0").unwrap(), b"true");
        assert_eq!(at("/deep/a~1b").unwrap(), br#"[1,{"~":true}]"#);
        for missing in ["no", "nothing", "/id/x", "/n/x", "/deep/a~1b/2", "/deep/a~1b/x", "/no/x"] {
            assert!(at(missing).unwrap_err().to_string().contains("there is no"), "{missing}");
        }
        assert!(Field::json("/a~2").is_err());
    }

    #[test]
    fn lines_that_are_not_json_are_refused() {
        let field = Field::json("a").unwrap();
        for line in [&b""[..], b"{", b"x", b"{\"a\":1}{", b"{\"a\":1} 2", b"{\"a\":\"\xff\"}", b"{\"b\":\"\\ud800\",}"]
        {
            assert!(item(&field, line).is_err(), "{}", line.escape_ascii());
        }
        let error = item(&field, b"{\"a\":").unwrap_err().to_string();
        assert_eq!(error, "invalid JSON: EOF while parsing a value at column 5");
        assert!(item(&field, b"[1]").is_err() && item(&field, b"7").is_err());
        assert_eq!(item(&field, br#"{"a":1,"a":2}"#).unwrap(), b"2");
    }

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
                // Every line that is not blank belongs to a record.
                let whole: Vec<u8> = found.into_iter().flat_map(|(bytes, _)| bytes).collect();
                let kept = |bytes: &[u8]| bytes.iter().filter(|byte| !matches!(byte, b'\r' | b'\n')).count();
                assert_eq!(kept(&whole), kept(text.as_bytes()), "{text:?} by {step}");
            }
        }
    }
}
