//! The query string of a request. A separate file, because both the routes and the calculator read it.

use crate::names::{NAME_BYTES_MAX, clipped, digest, hex, of_hex};

/// The parameters of a request, decoded. Bytes that are not UTF-8 become U+FFFD; keys and items are sent in hexadecimal.
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses `name=value&name=value`, with `+` for a space and `%` escapes.
    pub fn of(text: &str) -> Self {
        Self(form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    /// Returns a parameter, unless it is missing or empty.
    pub fn word(&self, name: &str) -> Option<&str> {
        self.raw(name).filter(|word| !word.is_empty())
    }

    /// Returns the bytes of a parameter in hexadecimal, unless it is missing or invalid.
    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        of_hex(self.raw(name)?)
    }

    /// Returns a parameter, which may be empty. If a name is repeated, the first value counts.
    pub fn raw(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }
}

// The forms in which the page and the metrics show keys, and requests identify them.

/// Shows a key to people. Text is unchanged; invisible characters, characters that change how a line looks, and bytes that are not text are
/// escaped (`\n`, `\\`, `\u{202e}`, `\xff`). A long key is [cut](clipped). Two keys never have the same form.
pub fn readable(key: &[u8]) -> String {
    clipped(key, escaped)
}

fn escaped(key: &[u8]) -> String {
    let mut text = String::with_capacity(key.len());
    for chunk in key.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\'' | '"' => text.push(character),
                _ => text.extend(character.escape_debug()),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// Returns the id of a key in requests and in the page's URL: its bytes in hexadecimal, or `~` and its digest if it is long.
pub fn id(key: &[u8]) -> String {
    if key.len() > NAME_BYTES_MAX {
        return format!("~{}", digest(key));
    }
    hex(key)
}

/// Returns the key with this id. If the id is a digest, looks for the key in `keys`.
pub fn of_id<'a>(id_of_key: &str, mut keys: impl Iterator<Item = &'a Vec<u8>>) -> Option<Vec<u8>> {
    if id_of_key.starts_with('~') {
        return keys.find(|key| key.len() > NAME_BYTES_MAX && id(key) == id_of_key).cloned();
    }
    of_hex(id_of_key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let query = Query::of("rate=1%25&items=1+000&key=00ff&empty=&bare&rate=2&a=b=c&%61%26=%FF");
        for (name, value) in
            [("rate", "1%"), ("items", "1 000"), ("empty", ""), ("bare", ""), ("a", "b=c"), ("a&", "\u{fffd}")]
        {
            assert_eq!(query.raw(name), Some(value), "{name}");
        }
        assert_eq!((query.word("empty"), query.word("bare"), query.raw("other")), (None, None, None));
        assert_eq!(query.bytes("key"), Some(vec![0, 255]));
        assert_eq!((query.bytes("rate"), query.bytes("empty"), query.bytes("other")), (None, Some(vec![]), None));
    }

    #[test]
    fn text_in_a_key_is_shown_as_text() {
        assert_eq!(readable("día \"x\" <b>".as_bytes()), "día \"x\" <b>");
        assert_eq!(readable(b"a\\n\n\0\xff\xc3"), "a\\\\n\\n\\0\\xff\\xc3");
        assert_eq!(readable("\u{202e}gnp\u{200b}".as_bytes()), "\\u{202e}gnp\\u{200b}");
        assert_eq!(readable(b""), "");
        let long = "\u{65e5}".repeat(100);
        let cut = "\u{65e5}".repeat(66) + "...#" + &digest(long.as_bytes());
        assert_eq!(readable(long.as_bytes()), cut);
    }

    #[test]
    fn a_key_is_parsed_from_its_digits() {
        let keys = [(0..200).collect(), (56..=255).collect(), vec![], vec![b'x'; 201], vec![b'x'; 300]];
        for key in &keys {
            assert!(id(key).len() <= 2 * NAME_BYTES_MAX);
            assert_eq!(of_id(&id(key), keys.iter()).as_ref(), Some(key));
        }
        assert_eq!(of_id(&id(&[b'x'; 400]), keys.iter()), None);
        for text in ["0", "0g", "+1", "éé"] {
            assert_eq!(of_hex(text), None, "{text}");
        }
    }
}
