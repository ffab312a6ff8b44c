//! Numbers as words.

/// The largest factor from one layer's capacity to the next that a client may ask for.
pub const EXPANSION_MAX: u32 = 32768;

/// A whole number, as strictly as the server reads one: an optional minus and digits without a leading zero.
#[must_use]
pub fn integer(word: &[u8]) -> Option<i64> {
    let digits = word.strip_prefix(b"-").unwrap_or(word);
    let strict = digits.first().is_some_and(|first| (b'1'..=b'9').contains(first)) || word == b"0";
    if strict { std::str::from_utf8(word).ok()?.parse().ok() } else { None }
}

/// A number with a fraction, NaN excluded.
#[must_use]
pub fn float(word: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(word).ok()?.parse().ok()?;
    (!number.is_nan()).then_some(number)
}

/// Whether a number can be a rate or a ratio: inside (0, 1).
#[must_use]
pub fn is_rate(rate: f64) -> bool {
    rate > 0.0 && rate < 1.0
}

/// A number inside (0, 1).
#[must_use]
pub fn fraction(word: &[u8]) -> Option<f64> {
    float(word).filter(|number| is_rate(*number))
}

/// A number of items: at least 1.
#[must_use]
pub fn capacity(word: &[u8]) -> Option<u64> {
    integer(word).and_then(|capacity| u64::try_from(capacity).ok()).filter(|capacity| *capacity > 0)
}

/// A seed: 0 to 2^32 - 1.
#[must_use]
pub fn seed(word: &[u8]) -> Option<u32> {
    integer(word).and_then(|seed| u32::try_from(seed).ok())
}

/// An expansion: 0 to 32768, 0 for a fixed filter. From a primary and the AOF any that 32 bits hold: valkey-bloom's may be
/// larger.
#[must_use]
pub fn expansion(number: i64, must_obey: bool) -> Option<u32> {
    u32::try_from(number).ok().filter(|expansion| must_obey || *expansion <= EXPANSION_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_strictly() {
        for (word, number) in [("0", 0), ("7", 7), ("-7", -7), ("9223372036854775807", i64::MAX)] {
            assert_eq!(integer(word.as_bytes()), Some(number));
        }
        for word in ["", "-", "-0", "+5", "007", " 5", "5 ", "5.0", "1e3", "9223372036854775808", "x", "\u{661}"] {
            assert_eq!(integer(word.as_bytes()), None, "{word:?}");
        }
        assert_eq!(integer(b"\xff"), None);
    }

    #[test]
    fn a_rate_is_a_number_but_not_every_number_is_a_rate() {
        assert_eq!(float(b"1e-3"), Some(0.001));
        assert_eq!(float(b"nan"), None);
        assert_eq!(float(b""), None);
        assert_eq!(float(b"0.1x"), None);
        for rate in [0.0, 1.0, -0.5, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(!is_rate(rate));
        }
        assert_eq!(fraction(b"0.5"), Some(0.5));
        assert_eq!(fraction(b"1"), None);
    }
}
