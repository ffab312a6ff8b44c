//! Keys are any bytes, and any number of them. Here is how they are written: escaped, and cut where they are long.

use bloomgate_filter::hash::siphash::siphash24_128;

/// A longer name is cut. Names of filters are short; a key may have 512 MB.
pub const NAME_BYTES_MAX: usize = 200;

/// Writes a key for people, as printable ASCII: any other byte is escaped. The empty key is `""`, which no other is written as.
pub fn shown(key: impl AsRef<[u8]>) -> String {
    if key.as_ref().is_empty() { "\"\"".to_owned() } else { escaped(key) }
}

/// Does the same for JSON, where the empty key is an empty string.
pub fn escaped(key: impl AsRef<[u8]>) -> String {
    clipped(key.as_ref(), |key| key.escape_ascii().to_string())
}

/// Escapes a key by `escape`. If the result is longer than [`NAME_BYTES_MAX`], it is cut and ends with `...#` and the
/// [digest] of the whole key, so that two keys are never written alike.
pub fn clipped(key: &[u8], escape: impl Fn(&[u8]) -> String) -> String {
    // No more than that is escaped of a key that is longer.
    let begin = key.get(..NAME_BYTES_MAX).unwrap_or(key);
    let is_cut = begin.len() < key.len();
    // A character that is cut in two is left out.
    let torn = begin.utf8_chunks().last().filter(|_| is_cut).map_or(0, |chunk| chunk.invalid().len());
    let mut text = escape(begin.get(..begin.len() - torn).unwrap_or(begin));
    if text.len() <= NAME_BYTES_MAX && !is_cut {
        return text;
    }
    text.truncate((0..=NAME_BYTES_MAX).rev().find(|place| text.is_char_boundary(*place)).unwrap_or(0));
    text + "...#" + &digest(key)
}

/// A hash of a key in 32 hexadecimal digits, the same in every run. It has 128 bits, so that nobody can construct two keys
/// with the same one; a shorter one could be, and Prometheus takes no two series with the same labels.
pub fn digest(key: &[u8]) -> String {
    let [low, high] = siphash24_128(key, *b"bloomgate, names");
    format!("{low:016x}{high:016x}")
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
    fn names_differ_where_keys_do() {
        let long = |last: u8| [&[b'x'; 300][..], &[last]].concat();
        assert_ne!(shown(long(1)), shown(long(2)));
        // A key that is written as another one is cut: it is longer than that, and is cut itself.
        assert_ne!(shown(long(1)), shown(shown(long(1))));
    }

    #[test]
    fn a_digest_stays_what_it_is() {
        assert_eq!(digest(b"seen"), "14ea463711731357900e7f4fb25754a7");
    }
}
