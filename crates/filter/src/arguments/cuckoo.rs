//! The words of the CF.* commands, and their error texts. RedisBloom words its errors of cuckoo filters differently from those of Bloom filters,
//! and programs compare them.

use super::options::{self, Command, Creation};
use super::{Refusal, is, numbers, word};
use crate::kinds::redisbloom_cuckoo::{BUCKET_SIZE_MAX, CAPACITY_MAX, EXPANSION_MAX, ITERATIONS_MAX};
use crate::kinds::{Defaults, LayoutName, RedisBloomCuckooSpec, Request};

/// RedisBloom's default of BUCKETSIZE.
pub const BUCKET_SIZE_DEFAULT: u64 = 2;
/// RedisBloom's default of MAXITERATIONS.
pub const ITERATIONS_DEFAULT: u64 = 20;

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

/// The defaults of options that a command omits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CuckooDefaults {
    /// Of a filter of RedisBloom's layout. Its capacity is also that of our own.
    pub redisbloom: RedisBloomCuckooSpec,
    /// Of a filter of our own layout.
    pub own: Defaults,
}

/// The filter that a command creates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CuckooCreation {
    /// One of RedisBloom's layout.
    RedisBloom(RedisBloomCuckooSpec),
    /// One of our own layout.
    Own(Creation),
}

impl CuckooDefaults {
    /// Whether a filter has RedisBloom's layout if the command does not choose: in commands of a primary, which may be RedisBloom, and if a
    /// setting asks for that layout or for its buckets or evictions.
    fn are_redisbloom(&self) -> bool {
        let RedisBloomCuckooSpec { bucket_size, iterations, .. } = self.redisbloom;
        self.own.must_obey
            || self.own.layout == LayoutName::RedisBloom
            || (bucket_size, iterations) != (BUCKET_SIZE_DEFAULT, ITERATIONS_DEFAULT)
    }

    /// Returns the filter that a command creates without options.
    fn creation(&self, capacity: u64) -> Result<CuckooCreation, Refusal> {
        if self.are_redisbloom() {
            return Ok(CuckooCreation::RedisBloom(RedisBloomCuckooSpec { capacity, ..self.redisbloom }));
        }
        let request = Request { capacity, is_cuckoo: true, ..Request::new(&self.own) };
        Creation::of(&request, None, &self.own).map(CuckooCreation::Own)
    }

    /// Returns the filter that CF.ADD and CF.ADDNX create.
    pub fn by_default(&self) -> Result<CuckooCreation, Refusal> {
        self.creation(self.redisbloom.capacity)
    }
}

/// Returns the value of the first of our own options of CF.RESERVE with this name. They are pairs after the capacity.
fn value<'a, W: AsRef<[u8]>>(words: &'a [W], name: &str) -> Option<&'a [u8]> {
    let (pairs, _) = words.get(3..)?.as_chunks();
    pairs.iter().find(|[option, _]| is(option.as_ref(), name)).map(|[_, value]| value.as_ref())
}

/// Parses `CF.RESERVE key capacity [BUCKETSIZE b] [MAXITERATIONS i] [EXPANSION e] [ERROR rate] [SEED seed] [HASH hash] [LAYOUT layout]`. Pairs
/// of other words are skipped, as RedisBloom skips them.
pub fn reserve<W: AsRef<[u8]>>(words: &[W], defaults: &CuckooDefaults) -> Result<CuckooCreation, Refusal> {
    if words.len().is_multiple_of(2) {
        return Err(Refusal::Arity);
    }
    let asked = word(words, 2)?;
    numbers::integer(asked).ok_or(BAD_CAPACITY)?;
    let iterations = ITERATIONS.value(words, defaults.redisbloom.iterations)?;
    let bucket_size = BUCKET_SIZE.value(words, defaults.redisbloom.bucket_size)?;
    let expansion = EXPANSION.value(words, defaults.redisbloom.expansion)?;
    let range = "Capacity must be in the range [2 * BUCKETSIZE, 1073741824]";
    let capacity = capacity(asked, bucket_size, defaults.own.must_obey, range)?;
    let redisbloom = RedisBloomCuckooSpec { capacity, bucket_size, iterations, expansion };
    if defaults.own.must_obey {
        return Ok(CuckooCreation::RedisBloom(redisbloom));
    }
    let is_given = |option: &CuckooOption| words.iter().skip(1).any(|word| is(word.as_ref(), option.name));
    let of_redisbloom = [BUCKET_SIZE, ITERATIONS].iter().find(|option| is_given(option)).map(|option| option.name);
    let of_ours = ["ERROR", "SEED", "HASH"].into_iter().find(|name| value(words, name).is_some());
    let layout = value(words, "LAYOUT").map(|word| options::layout(word).ok_or(Refusal::Bad("layout"))).transpose()?;
    let is_silent = layout.is_none() && of_ours.is_none();
    let is_redisbloom =
        layout == Some(LayoutName::RedisBloom) || of_redisbloom.is_some() || is_silent && defaults.are_redisbloom();
    match (is_redisbloom, of_redisbloom, of_ours) {
        (true, Some(number), None) if layout == Some(LayoutName::Native) => {
            Err(Refusal::Exclude(number, "LAYOUT native"))
        }
        (true, number, Some(option)) => Err(Refusal::Exclude(option, number.unwrap_or("LAYOUT redisbloom"))),
        (true, ..) => Ok(CuckooCreation::RedisBloom(redisbloom)),
        (false, ..) => reserve_ours(words, capacity, &defaults.own).map(CuckooCreation::Own),
    }
}

/// Returns a filter of our own layout: the one that BF.RESERVE creates with CUCKOO and the same options.
fn reserve_ours<'a, W: AsRef<[u8]>>(words: &'a [W], capacity: u64, defaults: &Defaults) -> Result<Creation, Refusal> {
    // The words before the first option are not read.
    let mut options = [&b""[..]; Command::Reserve.first_option() + 7];
    let mut count = Command::Reserve.first_option();
    let mut push = |option: &'a [u8]| {
        if let Some(next) = options.get_mut(count) {
            *next = option;
            count += 1;
        }
    };
    push(b"CUCKOO");
    for name in ["EXPANSION", "SEED", "HASH"] {
        match value(words, name) {
            Some(b"0") if name == "EXPANSION" => push(b"NONSCALING"),
            Some(value) => [name.as_bytes(), value].into_iter().for_each(&mut push),
            None => {}
        }
    }
    let options = options.get(..count).unwrap_or_default();
    let (given, _) = Command::Reserve.read(options, false)?;
    let mut request = Request { capacity, scaling: given.scaling(defaults)?, ..Request::new(defaults) };
    if let Some(rate) = value(words, "ERROR") {
        request.rate = numbers::float(rate, false).ok_or(Refusal::Bad("error rate"))?;
        if !numbers::is_rate(request.rate) {
            return Err(Refusal::RateRange);
        }
    }
    Creation::of(&given.apply(request, Refusal::Bad("seed"))?, None, defaults)
}

/// A parsed CF.INSERT or CF.INSERTNX.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CuckooInsert {
    /// The filter to create if the key is missing; `None` with NOCREATE.
    pub creation: Option<CuckooCreation>,
    /// The number of items, which are the last words.
    pub items: usize,
}

/// Parses `CF.INSERT key [CAPACITY c] [NOCREATE] ITEMS item [item ...]`. As in RedisBloom, the first letter of a word counts, and the last of
/// repeated capacities.
pub fn insert<W: AsRef<[u8]>>(words: &[W], defaults: &CuckooDefaults) -> Result<CuckooInsert, Refusal> {
    let (mut creates, mut asked, mut place) = (true, None, 2);
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
    let range = "Capacity must be in the range [cf-bucket-size * 2, 1073741824]";
    let RedisBloomCuckooSpec { capacity: usual, bucket_size, .. } = defaults.redisbloom;
    let asked = asked.map(|asked| capacity(asked, bucket_size, defaults.own.must_obey, range)).transpose()?;
    let creation = if creates { Some(defaults.creation(asked.unwrap_or(usual))?) } else { None };
    let items = words.len().saturating_sub(place + 1);
    if items == 0 { Err(Refusal::Arity) } else { Ok(CuckooInsert { creation, items }) }
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
