//! Formats counts and keys. Keys can contain any bytes and have any length, so they are escaped, and long ones are cut.

use bloomgate_filter::hash::siphash::siphash24_128;
use indicatif::HumanCount;

/// Longer keys are cut. A key can have 512 MB.
pub const NAME_BYTES_MAX: usize = 200;

/// Formats a key for people as printable ASCII; any other byte is escaped. The empty key becomes `""`, which is distinct from the form of
/// every other key.
pub fn shown(key: impl AsRef<[u8]>) -> String {
    if key.as_ref().is_empty() { "\"\"".to_owned() } else { escaped(key) }
}

/// Formats a key for JSON, where the empty key is an empty string.
pub fn escaped(key: impl AsRef<[u8]>) -> String {
    clipped(key.as_ref(), |key| key.escape_ascii().to_string())
}

/// Escapes a key with `escape`. If the result is longer than [`NAME_BYTES_MAX`], it is cut and ends with `...#` and the [digest] of the
/// whole key, so the forms of two keys are never equal.
pub fn clipped(key: &[u8], escape: impl Fn(&[u8]) -> String) -> String {
    // Only the beginning of a longer key is escaped.
    let begin = key.get(..NAME_BYTES_MAX).unwrap_or(key);
    let is_cut = begin.len() < key.len();
    // Omits a character that was cut in two.
    let torn = begin.utf8_chunks().last().filter(|_| is_cut).map_or(0, |chunk| chunk.invalid().len());
    let mut text = escape(begin.get(..begin.len() - torn).unwrap_or(begin));
    if text.len() <= NAME_BYTES_MAX && !is_cut {
        return text;
    }
    text.truncate((0..=NAME_BYTES_MAX).rev().find(|place| text.is_char_boundary(*place)).unwrap_or(0));
    text + "...#" + &digest(key)
}

/// Returns a hash of a key in 32 hexadecimal digits, the same in every run. With 128 bits, it is infeasible to construct two keys with
/// the same hash, which Prometheus would reject as series with the same labels.
pub fn digest(key: &[u8]) -> String {
    let [low, high] = siphash24_128(key, *b"bloomgate, names");
    format!("{low:016x}{high:016x}")
}

/// Returns bytes in hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses hexadecimal digits.
pub fn of_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

/// Formats a number with a noun: `1 line`, `2,000 lines`.
pub fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", HumanCount(number), if number == 1 { "" } else { "s" })
}

/// Returns the phrase that follows a key's name in a message and names its database; empty for the first database.
pub fn in_database(database: u32) -> String {
    if database == 0 { String::new() } else { format!(" in database {database}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_escaped_and_long_ones_cut() {
        assert_eq!(shown(b"a\xff \"\n"), "a\\xff \\\"\\n");
        assert_eq!([shown(b""), escaped(b""), shown(b"\"\"")], ["\"\"", "", "\\\"\\\""]);
        let limit = vec![b'x'; NAME_BYTES_MAX];
        assert_eq!(shown(&limit).as_bytes(), limit);
        for key in [vec![b'x'; NAME_BYTES_MAX + 1], vec![0; NAME_BYTES_MAX / 4 + 1], vec![b'x'; 5_000_000]] {
            let name = shown(&key);
            assert!(name.len() == NAME_BYTES_MAX + 36 && name.ends_with(&digest(&key)), "{name}");
        }
    }

    #[test]
    fn distinct_keys_have_distinct_names() {
        let long = |last: u8| [&[b'x'; 300][..], &[last]].concat();
        assert_ne!(shown(long(1)), shown(long(2)));
        // A key equal to the cut form of another one is itself too long, so it is cut as well.
        assert_ne!(shown(long(1)), shown(shown(long(1))));
    }

    #[test]
    fn a_digest_never_changes() {
        assert_eq!(digest(b"seen"), "14ea463711731357900e7f4fb25754a7");
    }

    #[test]
    fn one_is_singular() {
        assert_eq!(
            [0, 1, 2, 1000].map(|number| counted(number, "line")),
            ["0 lines", "1 line", "2 lines", "1,000 lines"]
        );
    }
}
