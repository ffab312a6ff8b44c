//! The words of the CF.* commands, and their error texts. RedisBloom words its errors of cuckoo filters differently from those of Bloom filters,
//! and programs compare them.

use super::{Refusal, is, numbers, word};
use crate::kinds::RedisBloomCuckooSpec;
use crate::kinds::redisbloom_cuckoo::{BUCKET_SIZE_MAX, CAPACITY_MAX, EXPANSION_MAX, ITERATIONS_MAX};

const BAD_CAPACITY: Refusal = Refusal::Cuckoo("Bad capacity");
const BAD_POSITION: Refusal = Refusal::Cuckoo("Invalid position");
/// An item is refused by a filter that does not grow.
pub const FULL: Refusal = Refusal::Cuckoo("Filter is full");
/// The filter has reached its maximum number of sub-filters.
pub const MAX_EXPANSIONS: Refusal = Refusal::Cuckoo("Maximum expansions reached");
/// CF.DEL: the key is missing.
pub const NOT_FOUND: Refusal = Refusal::Cuckoo("Not found");
/// CF.COMPACT: the key is missing.
pub const NO_FILTER: Refusal = Refusal::Cuckoo("Cuckoo filter was not found");
/// CF.LOADCHUNK: the header has another length.
pub const BAD_HEADER: Refusal = Refusal::Cuckoo("Invalid header");
/// CF.LOADCHUNK: the header is refused.
pub const NOT_CREATED: Refusal = Refusal::Cuckoo("Couldn't create filter!");
/// CF.LOADCHUNK: the chunk is refused.
pub const NOT_LOADED: Refusal = Refusal::Cuckoo("Couldn't load chunk!");

/// An option of CF.RESERVE: its name, its range, and the refusals of a value that is no number or out of range.
struct CuckooOption {
    name: &'static str,
    range: (u64, u64),
    not_parsed: &'static str,
    out_of_range: &'static str,
}

const ITERATIONS: CuckooOption = CuckooOption {
    name: "MAXITERATIONS",
    range: (1, ITERATIONS_MAX),
    not_parsed: "Couldn't parse MAXITERATIONS",
    out_of_range: "MAXITERATIONS: value must be in the range [1, 65535]",
};
const BUCKET_SIZE: CuckooOption = CuckooOption {
    name: "BUCKETSIZE",
    range: (1, BUCKET_SIZE_MAX),
    not_parsed: "Couldn't parse BUCKETSIZE",
    out_of_range: "BUCKETSIZE: value must be in the range [1, 255]",
};
const EXPANSION: CuckooOption = CuckooOption {
    name: "EXPANSION",
    range: (0, EXPANSION_MAX),
    not_parsed: "Couldn't parse EXPANSION",
    out_of_range: "EXPANSION: value must be in the range [0, 32768]",
};

impl CuckooOption {
    /// Returns the value after the first word with the option's name, at any position, or `default` without such a word.
    fn value<W: AsRef<[u8]>>(&self, words: &[W], default: u64) -> Result<u64, Refusal> {
        let Some(place) = words.iter().skip(1).position(|word| is(word.as_ref(), self.name)) else {
            return Ok(default);
        };
        let number = numbers::integer(word(words, place + 2)?).ok_or(Refusal::Cuckoo(self.not_parsed))?;
        let (least, most) = self.range;
        let number = u64::try_from(number).ok().filter(|number| (least..=most).contains(number));
        number.ok_or(Refusal::Cuckoo(self.out_of_range))
    }
}

/// Parses a capacity, and checks its range unless a primary has checked it: release 2.6 has no upper limit.
fn capacity(word: &[u8], bucket_size: u64, must_obey: bool, out_of_range: &'static str) -> Result<u64, Refusal> {
    let capacity = numbers::integer(word).ok_or(BAD_CAPACITY)?;
    let capacity = u64::try_from(capacity).map_err(|_| Refusal::Cuckoo(out_of_range))?;
    let is_allowed = must_obey || (bucket_size * 2..=CAPACITY_MAX).contains(&capacity);
    if is_allowed { Ok(capacity) } else { Err(Refusal::Cuckoo(out_of_range)) }
}

/// Parses `CF.RESERVE key capacity [BUCKETSIZE b] [MAXITERATIONS i] [EXPANSION e]`. Pairs of other words are skipped.
pub fn reserve<W: AsRef<[u8]>>(
    words: &[W],
    defaults: &RedisBloomCuckooSpec,
    must_obey: bool,
) -> Result<RedisBloomCuckooSpec, Refusal> {
    if words.len().is_multiple_of(2) {
        return Err(Refusal::Arity);
    }
    let asked = word(words, 2)?;
    numbers::integer(asked).ok_or(BAD_CAPACITY)?;
    let iterations = ITERATIONS.value(words, defaults.iterations)?;
    let bucket_size = BUCKET_SIZE.value(words, defaults.bucket_size)?;
    let expansion = EXPANSION.value(words, defaults.expansion)?;
    let range = "Capacity must be in the range [2 * BUCKETSIZE, 1073741824]";
    let capacity = capacity(asked, bucket_size, must_obey, range)?;
    Ok(RedisBloomCuckooSpec { capacity, bucket_size, iterations, expansion })
}

/// A parsed CF.INSERT or CF.INSERTNX.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CuckooInsert {
    /// The filter to create if the key is missing; `None` with NOCREATE.
    pub creation: Option<RedisBloomCuckooSpec>,
    /// The number of items, which are the last words.
    pub items: usize,
}

/// Parses `CF.INSERT key [CAPACITY c] [NOCREATE] ITEMS item [item ...]`. As in RedisBloom, the first letter of a word counts, and the last of
/// repeated capacities.
pub fn insert<W: AsRef<[u8]>>(
    words: &[W],
    defaults: &RedisBloomCuckooSpec,
    must_obey: bool,
) -> Result<CuckooInsert, Refusal> {
    let (mut spec, mut creates, mut asked, mut place) = (*defaults, true, None, 2);
    loop {
        match word(words, place)?.first().map(u8::to_ascii_lowercase) {
            Some(b'c') => {
                place += 1;
                asked = Some(word(words, place)?);
                numbers::integer(word(words, place)?).ok_or(BAD_CAPACITY)?;
            }
            Some(b'n') => creates = false,
            Some(b'i') => break,
            _ => return Err(Refusal::InsertUnknown),
        }
        place += 1;
    }
    if let Some(asked) = asked {
        let range = "Capacity must be in the range [cf-bucket-size * 2, 1073741824]";
        spec.capacity = capacity(asked, spec.bucket_size, must_obey, range)?;
    }
    let items = words.len().saturating_sub(place + 1);
    if items == 0 { Err(Refusal::Arity) } else { Ok(CuckooInsert { creation: creates.then_some(spec), items }) }
}

/// Returns the iterator of CF.SCANDUMP.
pub fn scandump<W: AsRef<[u8]>>(words: &[W]) -> Result<u64, Refusal> {
    numbers::unsigned(word(words, 2)?).ok_or(BAD_POSITION)
}

/// Returns the iterator and the data of CF.LOADCHUNK. A negative iterator is one after the end of any filter.
pub fn loadchunk<W: AsRef<[u8]>>(words: &[W]) -> Result<(u64, &[u8]), Refusal> {
    let iterator = numbers::integer(word(words, 2)?).filter(|iterator| *iterator != 0).ok_or(BAD_POSITION)?;
    Ok((u64::try_from(iterator).unwrap_or(u64::MAX), word(words, 3)?))
}
