//! The words behind the path in `loadmodule`: RedisBloom's, in pairs of a name and a value.

use super::{is, numbers};

/// The largest capacity of filters that nobody described.
pub const INITIAL_SIZE_MAX: i64 = 1 << 30;

/// RedisBloom's words for filters of other kinds, which its users may have in their configuration.
const WITHOUT_EFFECT: [&str; 4] = ["CF_INITIAL_SIZE", "CF_BUCKET_SIZE", "CF_MAX_ITERATIONS", "CF_MAX_EXPANSIONS"];

/// What was asked for. The last one of its kind counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadTime {
    /// Behind ERROR_RATE, inside (0, 1).
    pub rate: Option<f64>,
    /// Behind INITIAL_SIZE, 1 to [`INITIAL_SIZE_MAX`].
    pub initial_size: Option<i64>,
    /// The names of the words that are known and have no effect.
    pub without_effect: Vec<String>,
}

/// Reads the words, the first of which is a name.
///
/// # Errors
/// A line for the log that says which word is wrong, and how.
pub fn parse<W: AsRef<[u8]>>(words: &[W]) -> Result<LoadTime, String> {
    let mut load_time = LoadTime::default();
    for pair in words.chunks(2) {
        let name = pair.first().map(AsRef::as_ref).unwrap_or_default();
        let shown = String::from_utf8_lossy(name);
        let Some(value) = pair.get(1).map(AsRef::as_ref) else {
            return Err(format!("load-time words come in pairs, '{shown}' has no value"));
        };
        let wrong = |range: &str| format!("bad value '{}' for {shown}: {range}", String::from_utf8_lossy(value));
        if is(name, "ERROR_RATE") {
            let rate = numbers::fraction(value, false).ok_or_else(|| wrong("a number inside (0, 1) is expected"))?;
            load_time.rate = Some(rate);
        } else if is(name, "INITIAL_SIZE") {
            let size = numbers::integer(value).filter(|size| (1..=INITIAL_SIZE_MAX).contains(size));
            let size = size.ok_or_else(|| wrong("a whole number from 1 to 1073741824 is expected"))?;
            load_time.initial_size = Some(size);
        } else if WITHOUT_EFFECT.iter().any(|other| is(name, other)) {
            load_time.without_effect.push(shown.into_owned());
        } else {
            return Err(format!("unknown load-time word '{shown}'"));
        }
    }
    Ok(load_time)
}
