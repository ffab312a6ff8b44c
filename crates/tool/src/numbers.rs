//! Numbers as people write them: `1,000,000`, `1e6` and `10M` for counts, `1%` and `0.01` for rates. Shared by the command line and the
//! calculator of `web`, so that both accept the same forms.

use bloomgate_filter::Spec;
use std::time::Duration;

use bloomgate_filter::arguments::{Refusal, plan};
use bloomgate_filter::kinds::Defaults;
use bloomgate_filter::kinds::plan::Plan;

use crate::report::percent;

/// Computes what BF.PLAN replies to these words, without a server.
pub fn plan(words: &[impl AsRef<[u8]>]) -> Result<(Spec, Plan), Refusal> {
    let plan::Asked { spec, items } = plan::parse(words, &Defaults::default())?;
    Ok((spec, spec.plan(items)?))
}

/// Parses a count. Commas, underscores, apostrophes and spaces may separate digits; `k`, `M`, `G`, `T` and an exponent
/// multiply by powers of ten.
pub fn count(text: &str) -> Result<u64, String> {
    parse_count(text).ok_or_else(|| format!("`{text}` is not a whole number such as 1000000, 1,000,000, 1e6 or 10M"))
}

/// Parses a count of at least 1.
pub fn capacity(text: &str) -> Result<u64, String> {
    count(text).and_then(|number| if number > 0 { Ok(number) } else { Err("it must be at least 1".to_owned()) })
}

/// Accepts a value of `--create RATE CAPACITY`; the order is checked later. If the capacity is omitted, the next word may be a file.
pub fn rate_or_capacity(text: &str) -> Result<String, String> {
    if rate(text).is_ok() || count(text).is_ok() {
        return Ok(text.to_owned());
    }
    Err(format!(
        "`{text}` is neither a rate such as 0.001 nor a capacity such as 1000000. A file must precede --create"
    ))
}

/// Parses an interval of a tenth of a second up to `most` seconds.
pub fn seconds(text: &str, most: f64) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.1..=most).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(format!("must be 0.1 to {most} seconds"))
    }
}

/// Parses a false positive rate: a number inside (0, 1), or a percentage.
pub fn rate(text: &str) -> Result<f64, String> {
    let rate = rate_in_digits(text).parse::<f64>().ok().filter(|rate| *rate > 0.0 && *rate < 1.0);
    rate.ok_or_else(|| format!("`{text}` is not a rate between 0 and 1 such as 0.001 or 0.1%"))
}

/// Clamps a requested rate to the range of native filters, 1e-12 to 25%.
pub const fn clamp_rate(rate: f64) -> f64 {
    rate.clamp(1e-12, 0.25)
}

/// Reports on standard error that a filter gets another rate than requested.
pub fn report_clamped_rate(asked: f64, taken: f64) {
    if taken < asked {
        eprintln!(
            "bloomgate: the filter gets a rate of {}, the highest, instead of {}",
            percent(taken),
            percent(asked)
        );
    } else if taken > asked {
        eprintln!("bloomgate: the filter gets a rate of {taken:e}, the lowest, instead of {asked:e}");
    }
}

/// Returns the text of a refusal of BF.RESERVE or BF.PLAN. The module's text about the capacity names the limit of RedisBloom's layout,
/// whatever the layout.
pub fn reason(refusal: &Refusal, words: &[impl AsRef<str>]) -> String {
    let is_redisbloom = words.iter().any(|word| word.as_ref().eq_ignore_ascii_case("redisbloom"));
    if matches!(refusal, Refusal::CapacityRange) && !is_redisbloom {
        return "the capacity must be at least 1".to_owned();
    }
    refusal.to_string().trim_start_matches("ERR ").to_owned()
}

/// Formats a count as the module's commands accept it. Other text is unchanged, and the module's own parser refuses it.
pub fn count_in_digits(text: &str) -> String {
    parse_count(text).map_or_else(|| text.to_owned(), |number| number.to_string())
}

/// Formats a rate as the module's commands accept it: `1%` becomes `0.01`. Other text is unchanged.
pub fn rate_in_digits(text: &str) -> String {
    let text = text.trim();
    let percentage = text.strip_suffix('%').and_then(|number| number.trim_end().parse::<f64>().ok());
    // 0.7 / 100 is 0.006999999999999999. Twelve digits are enough for a rate and round that to 0.007.
    let rate = percentage.and_then(|number| format!("{:.11e}", number / 100.0).parse::<f64>().ok());
    rate.map_or_else(|| text.to_owned(), |rate| rate.to_string())
}

fn parse_count(text: &str) -> Option<u64> {
    let plain: String = text.chars().filter(|character| !matches!(character, ',' | '_' | '\'' | ' ')).collect();
    let plain = plain.to_ascii_lowercase();
    let (number, power) = match plain.char_indices().last()? {
        (place, 'k') => (plain.get(..place)?, 3),
        (place, 'm') => (plain.get(..place)?, 6),
        (place, 'g') => (plain.get(..place)?, 9),
        (place, 't') => (plain.get(..place)?, 12),
        _ => match plain.split_once('e') {
            Some((number, exponent)) => (number, exponent.strip_prefix('+').unwrap_or(exponent).parse().ok()?),
            None => (&*plain, 0),
        },
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let fraction = fraction.trim_end_matches('0');
    let power = u32::checked_sub(power, u32::try_from(fraction.len()).ok()?)?;
    let digits = format!("{whole}{fraction}");
    // `parse` accepts a sign, which a count cannot have.
    if whole.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(10u64.checked_pow(power)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_exact_in_every_form() {
        for (text, number) in [
            ("0", 0),
            ("1000000", 1_000_000),
            ("1,000,000", 1_000_000),
            ("1_000 000", 1_000_000),
            ("1'000", 1000),
            ("1e6", 1_000_000),
            ("1E+6", 1_000_000),
            ("1.5e3", 1500),
            ("10M", 10_000_000),
            ("2.5k", 2500),
            ("0.5G", 500_000_000),
            ("3t", 3_000_000_000_000),
            ("7.0", 7),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(count(text), Ok(number), "{text}");
        }
        for text in [
            "",
            "x",
            "-1",
            "+1",
            "1.5",
            "1e-3",
            "1.2345k",
            "e6",
            "M",
            ".5k",
            "1e",
            "1e6M",
            "18446744073709551616",
            "1e20",
            "nan",
        ] {
            assert!(count(text).is_err() && count_in_digits(text) == text, "{text}");
        }
        assert!(capacity("0").is_err() && capacity("1k") == Ok(1000));
    }

    #[test]
    fn rates_are_shares_or_percentages() {
        for (text, expected) in [("0.01", 0.01), ("1%", 0.01), (" 0.7 % ", 0.007), ("1e-9", 1e-9), ("99.9%", 0.999)] {
            assert_eq!(rate(text), Ok(expected), "{text}");
        }
        assert_eq!((&*rate_in_digits("0.7%"), &*rate_in_digits("0.0100")), ("0.007", "0.0100"));
        for text in ["0", "1", "100%", "0%", "-1%", "nan", "x", "%", ""] {
            assert!(rate(text).is_err(), "{text}");
        }
    }
}
