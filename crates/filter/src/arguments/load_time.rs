//! The load-time arguments, which follow the path in `loadmodule`: RedisBloom's, as pairs of a name and a value, and UNLESS_LOADED.
//! RedisBloom 8 also accepts the names of its settings, and deprecates the older names in capitals.

use super::{is, numbers};
use crate::kinds::redisbloom_cuckoo::{self, BUCKET_SIZE_MAX, CAPACITY_MAX, ITERATIONS_MAX};

/// The largest default capacity.
pub const INITIAL_SIZE_MAX: i64 = 1 << 30;

/// The arguments of cuckoo filters: the deprecated name, the name of the setting, and the range.
const CUCKOO: [(&str, &str, u64, u64); 5] = [
    ("CF_INITIAL_SIZE", "CF-INITIAL-SIZE", 2, CAPACITY_MAX),
    ("CF_BUCKET_SIZE", "CF-BUCKET-SIZE", 1, BUCKET_SIZE_MAX),
    ("CF_MAX_ITERATIONS", "CF-MAX-ITERATIONS", 1, ITERATIONS_MAX),
    ("CF-EXPANSION-FACTOR", "CF-EXPANSION-FACTOR", 0, redisbloom_cuckoo::EXPANSION_MAX),
    ("CF_MAX_EXPANSIONS", "CF-MAX-EXPANSIONS", 1, 65536),
];

/// The parsed arguments. The last value of a repeated argument counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadTime {
    /// ERROR_RATE or bf-error-rate, inside (0, 1).
    pub rate: Option<f64>,
    /// INITIAL_SIZE or bf-initial-size, 1 to [`INITIAL_SIZE_MAX`].
    pub initial_size: Option<i64>,
    /// bf-expansion-factor, 0 to [`EXPANSION_MAX`](numbers::EXPANSION_MAX).
    pub expansion: Option<i64>,
    /// UNLESS_LOADED: whether to ignore the load, without an error, if another module of the name is loaded.
    pub unless_loaded: bool,
    /// The settings of cuckoo filters: initial size, bucket size, iterations, expansion factor, expansions.
    pub cuckoo: [Option<u64>; 5],
}

/// Parses the words, the first of which is a name.
///
/// # Errors
/// A log line that names the wrong word and the reason.
pub fn parse<W: AsRef<[u8]>>(words: &[W]) -> Result<LoadTime, String> {
    let mut load_time = LoadTime::default();
    for pair in words.chunks(2) {
        let name = pair.first().map(AsRef::as_ref).unwrap_or_default();
        let shown = String::from_utf8_lossy(name);
        let Some(value) = pair.get(1).map(AsRef::as_ref) else {
            return Err(format!("load-time words come in pairs, '{shown}' has no value"));
        };
        let wrong = |range: &str| format!("bad value '{}' for {shown}: {range}", String::from_utf8_lossy(value));
        if is(name, "ERROR_RATE") || is(name, "BF-ERROR-RATE") {
            let rate = numbers::fraction(value, false).ok_or_else(|| wrong("a number inside (0, 1) is expected"))?;
            load_time.rate = Some(rate);
        } else if is(name, "INITIAL_SIZE") || is(name, "BF-INITIAL-SIZE") {
            let size = numbers::integer(value).filter(|size| (1..=INITIAL_SIZE_MAX).contains(size));
            let size = size.ok_or_else(|| wrong("a whole number from 1 to 1073741824 is expected"))?;
            load_time.initial_size = Some(size);
        } else if is(name, "BF-EXPANSION-FACTOR") {
            let expansion = numbers::integer(value).filter(|number| numbers::expansion(*number, false).is_some());
            load_time.expansion = Some(expansion.ok_or_else(|| wrong("a whole number from 0 to 32768 is expected"))?);
        } else if is(name, "UNLESS_LOADED") {
            load_time.unless_loaded = match value {
                value if is(value, "yes") => true,
                value if is(value, "no") => false,
                _ => return Err(wrong("yes or no is expected")),
            };
        } else if let Some(((.., least, most), setting)) =
            CUCKOO.iter().zip(&mut load_time.cuckoo).find(|((old, new, ..), _)| is(name, old) || is(name, new))
        {
            let number = numbers::unsigned(value).filter(|number| (least..=most).contains(&number));
            *setting =
                Some(number.ok_or_else(|| wrong(&format!("a whole number from {least} to {most} is expected")))?);
        } else {
            return Err(format!("unknown load-time word '{shown}'"));
        }
    }
    Ok(load_time)
}
