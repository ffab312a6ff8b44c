//! The part of a line that is the item: the whole line, a column, or a field of a JSON line.

use std::fmt;
use std::ops::Range;

use anyhow::Result;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::Column;
use crate::usage::usage;

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
    /// Decoded to the end of the buffer for decoded items.
    Decoded,
}

impl Field {
    /// Parses a field of JSON lines: a pointer if it begins with `/`, otherwise the name of a member of the outermost object.
    ///
    /// # Errors
    /// A `~` in a pointer is neither `~0` nor `~1`.
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
    ///
    /// # Errors
    /// The line has no such field.
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
    let mut deserializer = serde_json::Deserializer::from_slice(line);
    let found = Step(path).deserialize(&mut deserializer).map_err(no_json)?;
    deserializer.end().map_err(no_json)?;
    let raw = found.map(RawValue::get).filter(|raw| *raw != "null");
    let Some(raw) = raw else { anyhow::bail!("there is no `{}`", path.join("/")) };
    if raw.starts_with('"') {
        decoded.extend_from_slice(serde_json::from_str::<String>(raw).map_err(no_json)?.as_bytes());
        return Ok(Item::Decoded);
    }
    decoded.extend_from_slice(raw.as_bytes());
    Ok(Item::Decoded)
}

/// Returns why a line is invalid, without the parser's own line number, which is always 1.
#[expect(clippy::needless_pass_by_value, reason = "the form of map_err")]
fn no_json(error: serde_json::Error) -> anyhow::Error {
    let text = error.to_string();
    let what = text.rsplit_once(" at line ").map_or(&*text, |(what, _)| what);
    anyhow::anyhow!("invalid JSON: {what} at column {}", error.column())
}

/// The rest of the path to the value.
struct Step<'p>(&'p [String]);

impl<'de> DeserializeSeed<'de> for Step<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        if self.0.is_empty() {
            return serde::Deserialize::deserialize(deserializer).map(Some);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Step<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "an object with `{}`", self.0.first().map_or("", String::as_str))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let Some((first, rest)) = self.0.split_first() else { return Ok(None) };
        let mut found = None;
        // If members share a name, the last one counts, as in most JSON parsers.
        while let Some(name) = map.next_key::<std::borrow::Cow<str>>()? {
            if name == *first {
                found = map.next_value_seed(Step(rest))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let Some((first, rest)) = self.0.split_first() else { return Ok(None) };
        let wanted: Option<usize> = first.parse().ok();
        let (mut found, mut index) = (None, 0);
        loop {
            let more = if Some(index) == wanted {
                let element = elements.next_element_seed(Step(rest))?;
                let more = element.is_some();
                found = element.flatten();
                more
            } else {
                elements.next_element::<IgnoredAny>()?.is_some()
            };
            if !more {
                return Ok(found);
            }
            index += 1;
        }
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
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
}
