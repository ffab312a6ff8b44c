//! Parsers of numbers.

use super::{Refusal, word};
use crate::geometry::sizing::to_f64;

/// The largest factor from one layer's capacity to the next that a client may give.
pub const EXPANSION_MAX: u32 = 32768;

/// Parses a whole number as strictly as the server does: an optional minus, then digits without a leading zero.
pub(crate) fn integer(word: &[u8]) -> Option<i64> {
    match word.strip_prefix(b"-") {
        Some(digits) => {
            magnitude(digits).filter(|number| *number > 0).and_then(|number| 0_i64.checked_sub_unsigned(number))
        }
        None => magnitude(word).and_then(|number| i64::try_from(number).ok()),
    }
}

/// Parses a whole number of at least 0, of at most 63 bits.
#[inline]
pub fn unsigned(word: &[u8]) -> Option<u64> {
    magnitude(word).filter(|number| i64::try_from(*number).is_ok())
}

/// Parses digits without a leading zero. The standard library's parser takes three times the instructions.
fn magnitude(digits: &[u8]) -> Option<u64> {
    if !matches!(digits, [b'1'..=b'9', ..] | [b'0']) {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 { None } else { number.checked_mul(10)?.checked_add(digit.into()) }
    })
}

/// The whole numbers that an option accepts.
#[derive(Debug, PartialEq, Eq)]
pub struct Range {
    /// The option's name, in capitals.
    pub option: &'static str,
    /// The smallest number.
    pub least: u64,
    /// The largest number.
    pub most: u64,
}

impl Range {
    /// Defines a range.
    pub const fn new(option: &'static str, least: u64, most: u64) -> Self {
        Self { option, least, most }
    }

    /// Parses the option's value. The refusal names the range.
    #[inline]
    pub fn parse(&'static self, word: &[u8]) -> Result<u64, Refusal> {
        let number = unsigned(word).filter(|number| (self.least..=self.most).contains(number));
        number.ok_or(Refusal::Range(self))
    }

    /// Parses word `index`, the option's value. A missing value is refused like a wrong one.
    #[inline]
    pub fn parse_word<W: AsRef<[u8]>>(&'static self, words: &[W], index: usize) -> Result<u64, Refusal> {
        self.parse(word(words, index).unwrap_or_default())
    }
}

/// Parses a number with a fraction; NaN is refused. A primary and the AOF may also carry hexadecimal numbers, because
/// RedisBloom parses with C's `strtod`.
pub(crate) fn float(word: &[u8], must_obey: bool) -> Option<f64> {
    let decimal: Option<f64> = std::str::from_utf8(word).ok().and_then(|word| word.parse().ok());
    decimal.or_else(|| hexadecimal(word).filter(|_| must_obey)).filter(|number| !number.is_nan())
}

/// Parses a number in C's hexadecimal notation: `0x1.8p-4` is 1.5 / 16.
fn hexadecimal(word: &[u8]) -> Option<f64> {
    let digits = word.strip_prefix(b"+").unwrap_or(word);
    let digits = digits.strip_prefix(b"0x").or_else(|| digits.strip_prefix(b"0X"))?;
    let (digits, power): (_, i32) = match digits.iter().position(|byte| byte.eq_ignore_ascii_case(&b'p')) {
        Some(end) => (digits.get(..end)?, std::str::from_utf8(digits.get(end + 1..)?).ok()?.parse().ok()?),
        None => (digits, 0),
    };
    // Digits that do not fit still affect rounding: they set the lowest bit.
    let (mut number, mut power, mut after_point, mut any) = (0u64, power, false, false);
    for byte in digits {
        if *byte == b'.' && !after_point {
            after_point = true;
            continue;
        }
        let digit = u64::from(char::from(*byte).to_digit(16)?);
        any = true;
        if number < 1 << 60 {
            number = number << 4 | digit;
            power = power.checked_sub(if after_point { 4 } else { 0 })?;
        } else {
            number |= u64::from(digit > 0);
            power = power.checked_add(if after_point { 0 } else { 4 })?;
        }
    }
    any.then(|| libm::scalbn(to_f64(number), power))
}

/// Returns whether a number is inside (0, 1), as a rate or a ratio must be.
pub(crate) fn is_rate(rate: f64) -> bool {
    rate > 0.0 && rate < 1.0
}

/// Parses a number inside (0, 1).
pub fn fraction(word: &[u8], must_obey: bool) -> Option<f64> {
    float(word, must_obey).filter(|number| is_rate(*number))
}

/// Parses a number of items, at least 1.
pub(crate) fn capacity(word: &[u8]) -> Option<u64> {
    integer(word).and_then(|capacity| u64::try_from(capacity).ok()).filter(|capacity| *capacity > 0)
}

/// Parses a seed, 0 to 2^32 - 1.
pub(crate) fn seed(word: &[u8]) -> Option<u32> {
    integer(word).and_then(|seed| u32::try_from(seed).ok())
}

/// Checks an expansion: 0 to 32768, where 0 is a fixed filter. A primary and the AOF may carry any number that is not negative:
/// valkey-bloom's expansion has 32 bits, and RedisBloom 2.6 keeps the lowest 32 bits of a larger number.
pub(crate) fn expansion(number: i64, must_obey: bool) -> Option<u32> {
    let number = u64::try_from(number).ok()?;
    let number = if must_obey { number & u64::from(u32::MAX) } else { number };
    u32::try_from(number).ok().filter(|expansion| must_obey || *expansion <= EXPANSION_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_strictly() {
        for (word, number) in
            [("0", 0), ("7", 7), ("-7", -7), ("9223372036854775807", i64::MAX), ("-9223372036854775808", i64::MIN)]
        {
            assert_eq!(integer(word.as_bytes()), Some(number));
        }
        for word in [
            "",
            "-",
            "-0",
            "+5",
            "007",
            " 5",
            "5 ",
            "5.0",
            "1e3",
            "9223372036854775808",
            "-9223372036854775809",
            "18446744073709551616",
            "x",
            "\u{661}",
        ] {
            assert_eq!(integer(word.as_bytes()), None, "{word:?}");
        }
        assert_eq!(integer(b"\xff"), None);
    }

    /// The expected values are from glibc's `strtod`, which consumes the whole word.
    #[test]
    fn hexadecimal_numbers_are_accepted_from_a_primary_only() {
        for (word, number) in [
            ("0x1p-4", 0.0625),
            ("0X1P-4", 0.0625),
            ("+0x.8", 0.5),
            ("0x1.8p-4", 0.09375),
            ("0x1.p-0000000000000000000000000000001", 0.5),
            ("0x0000000000000000000000000000001p-1", 0.5),
            ("0x0.0000000000000000000000000000001p+120", 0.0625),
            ("0x10000000000000000000000000000000p-128", 0.0625),
            ("0x1.999999999999ap-4", 0.1),
            ("0x1.99999999999998p-4", 0.1),
            ("0x1.999999999999980000000000000000000000000000001p-4", 0.1),
            ("0x1.99999999999997ffffffffffffffffffffffffffffffp-4", 0.099_999_999_999_999_99),
            ("0x1.99999999999988p-4", 0.099_999_999_999_999_98),
        ] {
            assert_eq!(float(word.as_bytes(), true), Some(number), "{word}");
            assert_eq!(float(word.as_bytes(), false), None, "{word}");
        }
        let other =
            ["0x", "0xp-4", "0x.p-4", "0x1p", "0x1p-", "0x1.8.p-4", "0x1g", "1p-4", " 0x1p-4", "0x1p-4 ", "0x-1p-4"];
        for word in other {
            assert_eq!(float(word.as_bytes(), true), None, "{word}");
        }
    }
}
