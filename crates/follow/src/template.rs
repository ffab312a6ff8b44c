//! Templates of items and cache keys: text with columns in braces, such as `{users}:{id}`. Text in braces that is not a column must be
//! the hash tag of the table's keys, so that a misspelt column is an error.

use std::collections::BTreeSet;

use anyhow::{Result, bail, ensure};
use bytes::Bytes;

/// A column of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    pub name: String,
    /// The database's number of the type.
    pub type_id: u32,
    pub texts: Texts,
    /// Whether its values are bytes, which the source passes in PostgreSQL's hexadecimal form.
    pub is_hex: bool,
    /// Whether updates and deletes contain its old value.
    pub is_identity: bool,
}

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Field {
    Null,
    /// A large value that the update did not change. The stream does not contain it.
    Unchanged,
    Text(Bytes),
}

/// A template over the columns of a table.
#[derive(Clone, Debug)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(String),
    /// The index of a column.
    Column {
        index: usize,
        is_hex: bool,
        texts: Texts,
    },
}

/// The texts that the values of a type can have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Texts {
    Boolean,
    Integer,
    /// A nonnegative integer.
    Unsigned,
    /// A number that may have a fraction or an exponent.
    Number,
    /// A date, alone or with a time of day.
    Date,
    Uuid,
    Any,
}

impl Texts {
    /// Returns the characters that the texts can contain, and additional words. Empty for [`Self::Any`].
    fn alphabet(self) -> (&'static [u8], &'static [&'static str]) {
        match self {
            Self::Boolean => (b"tf", &[]),
            Self::Integer => (b"-0123456789", &[]),
            Self::Unsigned => (b"0123456789", &[]),
            Self::Number => (b"-0123456789.e+", &["NaN", "Infinity", "-Infinity"]),
            Self::Date => (b"-0123456789:.+ BC", &["infinity", "-infinity"]),
            Self::Uuid => (b"-0123456789abcdef", &[]),
            Self::Any => (b"", &[]),
        }
    }

    /// Returns the lengths of the prefixes of `text` that can be values.
    fn lengths(self, text: &[u8]) -> Vec<usize> {
        let (alphabet, words) = self.alphabet();
        let run = text.iter().take_while(|byte| alphabet.contains(byte)).count();
        let dashes: Vec<_> =
            text.iter().take(run).enumerate().filter(|(_, byte)| **byte == b'-').map(|(at, _)| at).collect();
        let (least, most) = match self {
            Self::Boolean => (1, run.min(1)),
            // A minus can only be the first character, and not the only one.
            Self::Integer => match dashes.as_slice() {
                [0, second, ..] => (2, *second),
                [0] => (2, run),
                [first, ..] => (1, *first),
                [] => (1, run),
            },
            Self::Unsigned | Self::Number => (1, run),
            // A year has at least four digits.
            Self::Date if dashes.first().is_some_and(|first| *first >= 4) => (10, run),
            Self::Uuid if dashes.starts_with(&[8, 13, 18, 23]) => (36, run.min(36)),
            Self::Date | Self::Uuid => (1, 0),
            Self::Any => (0, text.len()),
        };
        (least..=most)
            .chain(words.iter().filter(|word| text.starts_with(word.as_bytes())).map(|word| word.len()))
            .collect()
    }
}

impl Template {
    /// Parses a template. `tag`: the text in braces that is not a column.
    pub fn parse(text: &str, columns: &[Column], tag: &str) -> Result<Self> {
        let (mut parts, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some((before, after)) = rest.split_once('{') {
            let Some((name, after)) = after.split_once('}') else { bail!("`{text}` has a brace that is not closed") };
            plain += before;
            if let Some((index, column)) = columns.iter().enumerate().find(|(_, column)| column.name == name) {
                ensure!(
                    column.is_identity,
                    "`{text}`: the column {name} does not belong to the table's replica identity, so deletes and updates do not \
                     contain it: ALTER TABLE ... REPLICA IDENTITY FULL"
                );
                if !plain.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut plain)));
                }
                let Column { is_hex, texts, .. } = *column;
                parts.push(Part::Column { index, is_hex, texts });
            } else {
                ensure!(name == tag, "`{text}`: there is no column {name}");
                plain = format!("{plain}{{{name}}}");
            }
            rest = after;
        }
        plain += rest;
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        let template = Self { parts };
        ensure!(template.columns().next().is_some(), "`{text}` contains no column");
        Ok(template)
    }

    /// Returns a rule that identifies the cache keys of this template: `=` and the text before the item, if the item is the rest, or `^` and
    /// the text at the beginning.
    pub fn rule(&self, item: &Self) -> String {
        let prefix = match self.parts.first() {
            Some(Part::Text(plain)) => plain.as_str(),
            _ => "",
        };
        let item_text = match item.parts.first() {
            Some(Part::Text(plain)) => plain.as_str(),
            _ => "",
        };
        let columns = |template: &Self| {
            template.parts.iter().skip_while(|part| matches!(part, Part::Text(_))).cloned().collect::<Vec<_>>()
        };
        match prefix.strip_suffix(item_text) {
            Some(before) if columns(self) == columns(item) => format!("={before}"),
            _ => format!("^{prefix}"),
        }
    }

    /// Returns the indexes of the columns.
    pub fn columns(&self) -> impl Iterator<Item = usize> {
        self.parts.iter().filter_map(|part| if let Part::Column { index, .. } = part { Some(*index) } else { None })
    }

    /// Returns the text for a row, or `None` if one of the columns is NULL. A value that an update omits is taken from `old`.
    pub fn render(&self, row: &[Field], old: Option<&[Field]>) -> Result<Option<Vec<u8>>> {
        let mut text = Vec::new();
        for part in &self.parts {
            match part {
                Part::Text(plain) => text.extend(plain.as_bytes()),
                Part::Column { index, is_hex, .. } => {
                    let field = match row.get(*index) {
                        Some(Field::Unchanged) => old.and_then(|old| old.get(*index)),
                        field => field,
                    };
                    match field {
                        Some(Field::Text(value)) if *is_hex => text.extend(bytes_of_hex(value)?),
                        Some(Field::Text(value)) => text.extend(value.iter()),
                        Some(Field::Null) => return Ok(None),
                        _ => bail!("the stream lacks a column of the templates"),
                    }
                }
            }
        }
        Ok(Some(text))
    }

    /// Whether it begins with text.
    pub fn has_prefix(&self) -> bool {
        matches!(self.parts.first(), Some(Part::Text(_)))
    }

    /// Whether a row can have this text, by the types of its columns.
    pub fn matches(&self, text: &[u8]) -> bool {
        let mut ends = BTreeSet::from([0]);
        for part in &self.parts {
            let rest = |at: usize| text.get(at..).unwrap_or_default();
            ends = match part {
                Part::Text(plain) => {
                    let starts = ends.into_iter().filter(|at| rest(*at).starts_with(plain.as_bytes()));
                    starts.map(|at| at + plain.len()).collect()
                }
                // Everything that can be reached from a later place can be reached from the first one.
                Part::Column { texts: Texts::Any, .. } => {
                    ends.first().into_iter().flat_map(|at| *at..=text.len()).collect()
                }
                Part::Column { texts, .. } => ends
                    .iter()
                    .flat_map(|at| texts.lengths(rest(*at)).into_iter().map(move |length| at + length))
                    .collect(),
            };
        }
        ends.contains(&text.len())
    }

    /// Returns a pattern for SCAN that matches the text of every row, and other texts: see [`Self::matches`].
    pub fn pattern(&self) -> String {
        let mut pattern = String::new();
        for part in &self.parts {
            match part {
                Part::Column { .. } => pattern.push('*'),
                Part::Text(plain) => {
                    for character in plain.chars() {
                        if matches!(character, '*' | '?' | '[' | ']' | '\\' | '^') {
                            pattern.push('\\');
                        }
                        pattern.push(character);
                    }
                }
            }
        }
        pattern
    }

    /// Whether different values of the columns always have different texts: there is only one column, or each is followed by a character
    /// that its values do not contain.
    pub fn is_injective(&self) -> bool {
        let (mut last, mut is_ambiguous, mut any) = (None, false, false);
        for part in &self.parts {
            match part {
                Part::Text(plain) => {
                    let first = plain.as_bytes().first();
                    last = last.take_if(|texts: &mut Texts| {
                        let (alphabet, words) = texts.alphabet();
                        first.is_some_and(|first| {
                            alphabet.contains(first) || words.iter().any(|word| word.as_bytes().contains(first))
                        })
                    });
                }
                Part::Column { texts, .. } => {
                    is_ambiguous |= last.replace(*texts).is_some();
                    any |= matches!(texts, Texts::Any);
                }
            }
        }
        !is_ambiguous && (!any || self.columns().count() == 1)
    }
}

/// Returns the bytes of PostgreSQL's text for `bytea`.
fn bytes_of_hex(text: &[u8]) -> Result<Vec<u8>> {
    let digits = text.strip_prefix(b"\\x").filter(|digits| digits.len() % 2 == 0 && digits.is_ascii());
    let Some(digits) = digits else { bail!("PostgreSQL sent a value of type bytea in an unknown format") };
    digits.chunks(2).map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> Vec<Column> {
        let column = |name: &str, texts, is_identity| Column {
            name: name.to_owned(),
            type_id: 0,
            texts,
            is_hex: name == "raw",
            is_identity,
        };
        vec![
            column("id", Texts::Integer, true),
            column("sort", Texts::Any, true),
            column("raw", Texts::Any, true),
            column("note", Texts::Any, false),
            column("uuid", Texts::Uuid, true),
            column("day", Texts::Date, true),
            column("at", Texts::Date, true),
            column("sum", Texts::Number, true),
            column("good", Texts::Boolean, true),
        ]
    }

    fn parse(text: &str) -> Result<Template> {
        Template::parse(text, &columns(), "users")
    }

    fn text(text: &'static str) -> Field {
        Field::Text(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn columns_are_replaced_and_the_hash_tag_stays() {
        let row = [text("7"), text("a b"), text("\\x00ff"), Field::Null];
        for (template, expected) in [
            ("{id}", &b"7"[..]),
            ("{users}:{id}", b"{users}:7"),
            ("{users}:{sort}:{id}!", b"{users}:a b:7!"),
            ("{raw}", b"\0\xff"),
        ] {
            assert_eq!(parse(template).unwrap().render(&row, None).unwrap().unwrap(), expected, "{template}");
        }
    }

    #[test]
    fn an_omitted_value_is_taken_from_the_old_row_and_null_has_no_text() {
        let template = parse("{id}:{sort}").unwrap();
        let new = [text("7"), Field::Unchanged];
        assert_eq!(template.render(&new, Some(&[text("6"), text("x")])).unwrap().unwrap(), b"7:x");
        assert!(template.render(&new, None).is_err());
        assert_eq!(template.render(&[text("7"), Field::Null], None).unwrap(), None);
    }

    #[test]
    fn misspelt_columns_and_columns_outside_the_identity_are_refused() {
        for (template, part) in
            [("{idd}", "no column idd"), ("{note}", "FULL"), ("{users}", "no column"), ("{id", "closed")]
        {
            let error = parse(template).unwrap_err().to_string();
            assert!(error.contains(part), "{template}: {error}");
        }
    }

    #[test]
    fn a_pattern_matches_all_rows_and_escapes_the_rest() {
        assert_eq!(parse("{users}*[{id}]:{sort}").unwrap().pattern(), "{users}\\*\\[*\\]:*");
    }

    #[test]
    fn a_text_matches_if_the_types_of_the_columns_can_have_it() {
        const UUID: &str = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
        for (template, good, bad) in [
            (
                "u:{id}",
                &["u:7", "u:-7"][..],
                &["u:", "u:-", "u:7-", "u:7-8", "u:42:logins", "u:feed", "v:7", "u:7 "][..],
            ),
            ("u:{id}-{id}", &["u:7-8", "u:-7--8"], &["u:7-", "u:7", "u:7---8"]),
            ("u:{sort}", &["u:", "u:7", "u:feed:open"], &["v:7"]),
            ("u:{sort}:{id}", &["u::1", "u:a:b:1", "u:1:2:3"], &["u:1", "u:1:a"]),
            ("u:{raw}{sort}", &["u:", "u:ab"], &["u"]),
            (
                "u:{uuid}",
                &["u:a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
                &["u:feed", "u:a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1"],
            ),
            (
                "u:{day}",
                &["u:2026-11-27", "u:0044-03-15 BC", "u:-infinity", "u:12026-11-27"],
                &["u:20261127", "u:2026", "u:x"],
            ),
            ("u:{at}:x", &["u:2026-11-27 03:00:00.5+00:x", "u:infinity:x"], &["u:2026-11-27 03:00:00.5+00"]),
            ("u:{sum}", &["u:1.50", "u:-1e+20", "u:NaN", "u:-Infinity"], &["u:", "u:1,5", "u:feed"]),
            ("u:{good}", &["u:t", "u:f"], &["u:true", "u:", "u:x", "u:feed"]),
        ] {
            let template = parse(template).unwrap();
            good.iter().for_each(|text| assert!(template.matches(text.as_bytes()), "{template:?} {text}"));
            bad.iter().for_each(|text| assert!(!template.matches(text.as_bytes()), "{template:?} {text}"));
        }
        let mut changed = UUID.to_owned();
        assert!(parse("u{uuid}").unwrap().matches(format!("u{changed}").as_bytes()));
        changed.replace_range(8..9, "0");
        assert!(!parse("u{uuid}").unwrap().matches(format!("u{changed}").as_bytes()));
    }

    #[test]
    fn only_texts_that_differ_whenever_the_columns_do_are_injective() {
        let injective = |template: &str| parse(template).unwrap().is_injective();
        for (template, expected) in [
            ("{id}", true),
            ("{sort}", true),
            ("x{id}", true),
            ("{id}:{id}", true),
            ("{id}{id}", false),
            ("{id}0{id}", false),
            ("{id}:{sort}", false),
            ("{id}/{uuid}", true),
            ("{uuid}b{id}", false),
            ("{day} {id}", false),
            ("{day}i{id}", false),
            ("{day}/{id}", true),
        ] {
            assert_eq!(injective(template), expected, "{template}");
        }
    }

    #[test]
    fn a_rule_identifies_the_cache_keys_of_a_template() {
        let rule = |item: &str, key: &str| parse(key).unwrap().rule(&parse(item).unwrap());
        assert_eq!(rule("{id}", "{users}:{id}"), "={users}:");
        assert_eq!(rule("u{id}-{sort}", "{users}:u{id}-{sort}"), "={users}:");
        assert_eq!(rule("u{id}", "{users}:{id}"), "^{users}:");
        assert_eq!(rule("{id}", "{users}:{id}:name"), "^{users}:");
        assert_eq!(rule("{id}", "{users}:mail:{sort}"), "^{users}:mail:");
    }
}
