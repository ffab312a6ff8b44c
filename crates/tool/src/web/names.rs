//! Keys are any bytes: how one is written for people, and how one is named in a request.

/// A key as people read it: text as it is, and as `\n`, `\\`, `\u{202e}` or `\xff` what cannot be seen, what would change
/// how the line looks, and what is no text. Two keys never look alike by this.
pub fn readable(key: &[u8]) -> String {
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

/// A key in a request: two hexadecimal digits a byte.
pub fn hex(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The key, or the item, of such digits.
pub fn of_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_shown_as_text_where_it_is_text() {
        assert_eq!(readable("día \"x\" <b>".as_bytes()), "día \"x\" <b>");
        assert_eq!(readable(b"a\\n\n\0\xff\xc3"), "a\\\\n\\n\\0\\xff\\xc3");
        assert_eq!(readable("\u{202e}gnp\u{200b}".as_bytes()), "\\u{202e}gnp\\u{200b}");
        assert_eq!(readable(b""), "");
    }

    #[test]
    fn a_key_comes_back_from_its_digits() {
        let key: Vec<u8> = (0..=255).collect();
        assert_eq!(of_hex(&hex(&key)), Some(key));
        assert_eq!(of_hex(""), Some(Vec::new()));
        for text in ["0", "0g", "+1", "éé"] {
            assert_eq!(of_hex(text), None, "{text}");
        }
    }
}
