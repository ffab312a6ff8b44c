//! Templates of items and cache keys: text with columns in braces, as `{users}:{id}`. A text in braces that is no column may only
//! be the hash tag of the table's keys, so that a misspelt column is not taken for text.

use anyhow::{Result, bail, ensure};

use super::pgoutput::{Column, Field};

/// A template over the columns of a table.
#[derive(Clone, Debug)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug)]
enum Part {
    Text(String),
    /// The index of a column.
    Column {
        index: usize,
        is_bytes: bool,
    },
}

/// The object id of the type `bytea`. Its values are bytes, not their hexadecimal text.
const BYTEA: u32 = 17;

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// A text in braces is neither a column of the replica identity nor the hash tag; there is no column.
    pub fn parse(text: &str, columns: &[Column], tag: &str) -> Result<Self> {
        let (mut parts, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some((before, after)) = rest.split_once('{') {
            let Some((name, after)) = after.split_once('}') else { bail!("`{text}` has a brace that is not closed") };
            plain += before;
            if let Some(index) = columns.iter().position(|column| column.name == name) {
                let column = columns.get(index);
                ensure!(
                    column.is_some_and(|column| column.is_identity),
                    "`{text}`: the column {name} does not belong to the table's replica identity, so deletes and updates do not \
                     contain it: ALTER TABLE ... REPLICA IDENTITY FULL"
                );
                if !plain.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut plain)));
                }
                parts.push(Part::Column { index, is_bytes: column.is_some_and(|column| column.type_oid == BYTEA) });
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

    /// Returns the indexes of the columns.
    pub fn columns(&self) -> impl Iterator<Item = usize> {
        self.parts.iter().filter_map(|part| if let Part::Column { index, .. } = part { Some(*index) } else { None })
    }

    /// Returns the text for a row, or `None` if one of the columns is NULL. A value that an update left out is in `old`.
    ///
    /// # Errors
    /// A value is in neither of the rows.
    pub fn render(&self, row: &[Field], old: Option<&[Field]>) -> Result<Option<Vec<u8>>> {
        let mut text = Vec::new();
        for part in &self.parts {
            match part {
                Part::Text(plain) => text.extend(plain.as_bytes()),
                Part::Column { index, is_bytes } => {
                    let field = match row.get(*index) {
                        Some(Field::Unchanged) => old.and_then(|old| old.get(*index)),
                        field => field,
                    };
                    match field {
                        Some(Field::Text(value)) if *is_bytes => text.extend(bytes_of_hex(value)?),
                        Some(Field::Text(value)) => text.extend(value.iter()),
                        Some(Field::Null) => return Ok(None),
                        _ => bail!("PostgreSQL's stream lacks a column of the replica identity"),
                    }
                }
            }
        }
        Ok(Some(text))
    }

    /// Returns a pattern for SCAN that matches the text of every row.
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

    /// Whether different values of the columns always have different texts. `is_plain` tells whether the text of a column consists
    /// of hexadecimal digits and dashes only.
    pub fn is_injective(&self, is_plain: impl Fn(usize) -> bool) -> bool {
        let mut others = 0;
        let mut last_was_column = false;
        for part in &self.parts {
            match part {
                Part::Text(plain) => {
                    let first = plain.chars().next().unwrap_or_default();
                    last_was_column = last_was_column && (first.is_ascii_hexdigit() || first == '-');
                }
                Part::Column { index, .. } => {
                    if last_was_column {
                        return false;
                    }
                    others += usize::from(!is_plain(*index));
                    last_was_column = true;
                }
            }
        }
        others <= usize::from(self.columns().count() == 1)
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
    use bytes::Bytes;

    use super::*;

    fn columns() -> Vec<Column> {
        let column = |name: &str, type_oid, is_identity| Column { name: name.to_owned(), type_oid, is_identity };
        vec![column("id", 23, true), column("sort", 25, true), column("raw", 17, true), column("note", 25, false)]
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
    fn a_value_that_was_left_out_is_taken_from_the_old_row_and_null_has_no_text() {
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
    fn only_texts_that_differ_whenever_the_columns_do_are_injective() {
        let injective = |template: &str| parse(template).unwrap().is_injective(|index| index == 0);
        for (template, expected) in [
            ("{id}", true),
            ("{sort}", true),
            ("x{id}", true),
            ("{id}:{id}", true),
            ("{id}{id}", false),
            ("{id}0{id}", false),
            ("{id}:{sort}", false),
        ] {
            assert_eq!(injective(template), expected, "{template}");
        }
    }
}
