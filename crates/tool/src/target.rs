//! The target of items: one filter or a sharded filter. A sharded filter NAME consists of n filters `NAME:{0}` to `NAME:{n-1}`
//! and a string `NAME:shards` that holds n. An item belongs to the shard whose number is the CRC-32 of its bytes modulo n.
//!
//! Nothing here creates a filter. A missing key is an error, because an empty filter would report everything as new.

use std::ops::Range;

use anyhow::{Context, Result, bail, ensure};
use bloomgate_client::Stats;
use bloomgate_client::sharding::{self, MOST_SHARDS, shard_key, shard_of};
use redis::{Cmd, FromRedisValue, Value, cmd, from_redis_value};

use crate::numbers;
use crate::server::usage;
use crate::server::{Server, shown};

/// A filter, or the shards of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    key: String,
    shards: Option<u32>,
}

/// The operation on each item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Add the item and return whether it was new.
    Add,
    /// Return whether the item is present.
    Lookup,
}

/// A command for one key.
#[derive(Debug)]
pub struct Part {
    pub key: Vec<u8>,
    pub command: Cmd,
    /// The indices of its items in the batch; `None` if it has all of them.
    places: Option<Vec<usize>>,
    count: usize,
}

impl Target {
    /// Opens the filter under `key`, or with `is_sharded` the sharded filter of that name. All keys must exist.
    pub fn open(server: &mut Server, key: &str, is_sharded: bool) -> Result<Self> {
        let shards = if is_sharded { Some(shards_of(server, key)?) } else { None };
        let target = Self { key: key.to_owned(), shards };
        let keys = target.keys();
        // Fails for a value that is not a filter.
        server.ask_of_each(&["BF.CARD"], &keys)?;
        let exist = server.ask_of_each(&["EXISTS"], &keys)?;
        for (key, exists) in keys.iter().zip(exist) {
            ensure!(exists != Value::Int(0), "{}", target.missing(key));
        }
        Ok(target)
    }

    pub fn keys(&self) -> Vec<Vec<u8>> {
        match self.shards {
            None => vec![self.key.clone().into_bytes()],
            Some(shards) => shard_keys(&self.key, 0..shards),
        }
    }

    /// Returns the commands for these items: one, or one for each shard with items.
    pub fn parts<I: AsRef<[u8]>>(&self, question: Question, items: &[I]) -> Vec<Part> {
        if items.is_empty() {
            return Vec::new();
        }
        let Some(shards) = self.shards else {
            let mut command = question.command(self.key.as_bytes());
            items.iter().for_each(|item| _ = command.arg(item.as_ref()));
            let count = items.len();
            return vec![Part { key: self.key.clone().into_bytes(), command, places: None, count }];
        };
        let shards_of_items = items.iter().map(|item| shard_of(item.as_ref(), shards));
        let mut places: Vec<(u32, usize)> = shards_of_items.zip(0..).collect();
        places.sort_unstable();
        let parts = places.chunk_by(|(one, _), (other, _)| one == other).filter_map(|run| {
            let key = shard_key(self.key.as_bytes(), run.first()?.0);
            let mut command = question.command(&key);
            let places: Vec<usize> = run.iter().map(|(_, place)| *place).collect();
            places.iter().filter_map(|place| items.get(*place)).for_each(|item| _ = command.arg(item.as_ref()));
            Some(Part { key, command, count: places.len(), places: Some(places) })
        });
        parts.collect()
    }

    /// Stores the answers in a reply to `part` at the indices of their items: true for an item that is new, or present. If the filter is
    /// full, the answers end before the refused item.
    pub fn read(&self, server: &Server, part: &Part, reply: &Value, answers: &mut [Option<bool>]) -> Result<()> {
        let described = |error: &redis::ServerError| match (error.code(), error.details()) {
            ("ERR", Some("not found")) => anyhow::anyhow!("{}", self.missing(&part.key)),
            _ => server.describe(error, &part.key),
        };
        let elements = match reply {
            Value::Array(elements) => elements,
            Value::ServerError(error) => return Err(described(error)),
            _ => bail!("the server's reply is not an array"),
        };
        for (index, element) in elements.iter().enumerate() {
            let answer = match element {
                Value::Int(number) => *number != 0,
                Value::Boolean(answer) => *answer,
                Value::ServerError(error) => return Err(described(error)),
                _ => bail!("the server's reply has an unexpected element"),
            };
            let place = part.places.as_ref().map_or(Some(index), |places| places.get(index).copied());
            if let Some(slot) = place.and_then(|place| answers.get_mut(place)) {
                *slot = Some(answer);
            }
        }
        ensure!(
            elements.len() == part.count,
            "the server's reply has {} elements for {} items",
            elements.len(),
            part.count
        );
        Ok(())
    }

    fn missing(&self, key: &[u8]) -> String {
        match self.shards {
            None => format!("there is no filter `{}`: create it with --create RATE CAPACITY", shown(key)),
            Some(_) => format!("the shard `{}` of the filter `{}` is missing", shown(key), self.key),
        }
    }
}

impl Part {
    /// The indices of its items in the batch.
    pub fn places(&self) -> impl Iterator<Item = usize> {
        (0..self.count).map(|index| self.places.as_ref().and_then(|places| places.get(index)).copied().unwrap_or(index))
    }
}

impl Question {
    /// Returns the command without its items.
    fn command(self, key: &[u8]) -> Cmd {
        match self {
            Self::Add => cmd("BF.INSERT").arg(key).arg("NOCREATE").arg("ITEMS").to_owned(),
            Self::Lookup => cmd("BF.MEXISTS").arg(key).to_owned(),
        }
    }
}

/// Returns the keys of some shards of the filter `name`.
pub fn shard_keys(name: impl AsRef<[u8]>, shards: Range<u32>) -> Vec<Vec<u8>> {
    shards.map(|shard| shard_key(name.as_ref(), shard)).collect()
}

/// Returns the key that holds the number of shards of the filter `name`.
pub fn count_key(name: impl AsRef<[u8]>) -> Vec<u8> {
    sharding::count_key(name.as_ref())
}

/// Returns the name of the filter whose number of shards is under `key`, if `key` has that form.
pub fn sharded_name(key: &[u8]) -> Option<&[u8]> {
    key.strip_suffix(count_key("").as_slice())
}

pub fn parse_shards(text: &[u8]) -> Option<u32> {
    str::from_utf8(text).ok()?.parse().ok().filter(|shards| (1..=MOST_SHARDS).contains(shards))
}

/// Reads the number of shards of the filter `name`.
pub fn shards_of(server: &mut Server, name: &str) -> Result<u32> {
    let key = count_key(name);
    let text: Option<Vec<u8>> = from_redis_value(server.ask(cmd("GET").arg(&key), &key)?)?;
    let text =
        text.with_context(|| format!("there is no sharded filter `{name}`: its key `{}` is missing", shown(&key)))?;
    parse_shards(&text).with_context(|| {
        format!("the key `{}` holds `{}`, not a number of shards from 1 to {MOST_SHARDS}", shown(&key), shown(&text))
    })
}

// The filter that `load` and `dedup` create: its false positive rate, its capacity, and its kind as options of BF.RESERVE.

/// The options of a new filter.
#[derive(Clone, Debug)]
pub struct Creation {
    rate: f64,
    /// `None` for the number of items in the source.
    pub capacity: Option<u64>,
    /// Further options of BF.RESERVE, or with TIGHTENING of BF.INSERT.
    words: Vec<String>,
}

impl Creation {
    /// Parses the values of `--create RATE [CAPACITY]` and the words after `--`.
    pub fn of(values: &[String], words: &[String]) -> Result<Self> {
        let invalid = |text: String| usage(format!("--create: {text}"));
        let (Some(rate), capacity) = (values.first(), values.get(1)) else {
            return Err(usage("--create needs a rate"));
        };
        let rate = numbers::rate(rate).map_err(invalid)?;
        let capacity = capacity.map(|word| numbers::capacity(word)).transpose().map_err(invalid)?;
        // The layouts of other modules have other limits.
        if !words.iter().any(|word| ["TIGHTENING", "LAYOUT"].contains(&&*word.to_ascii_uppercase())) {
            numbers::report_clamped_rate(rate, numbers::clamp_rate(rate));
        }
        Ok(Self { rate, capacity, words: words.to_vec() })
    }

    /// Unless options were given, uses the options that create a filter of the same kind as the existing one at `key`.
    pub fn keep_kind_of(&mut self, server: &mut Server, key: &str) -> Result<()> {
        if self.words.is_empty() && server.ask(cmd("EXISTS").arg(key), key)? != Value::Int(0) {
            self.words = words_of(server, key)?;
        }
        Ok(())
    }

    pub fn create(&self, server: &mut Server, key: &str) -> Result<()> {
        server.ask(&self.command(key), key).map(drop)
    }

    pub fn command(&self, key: &str) -> Cmd {
        let capacity = self.capacity.unwrap_or(1);
        // BF.RESERVE cannot create filters of valkey-bloom's layout.
        if self.words.iter().any(|word| word.eq_ignore_ascii_case("TIGHTENING")) {
            let mut insert = cmd("BF.INSERT");
            insert.arg(key).arg("ERROR").arg(self.rate).arg("CAPACITY").arg(capacity).arg(&self.words);
            return insert;
        }
        cmd("BF.RESERVE").arg(key).arg(self.rate).arg(capacity).arg(&self.words).to_owned()
    }
}

/// Parses the reply to BF.INFO about one field: an array of one value, or the bare value for a filter of valkey-bloom's layout.
pub fn info_field<T: FromRedisValue>(reply: Value) -> Result<T> {
    let value = match reply {
        Value::Array(mut values) => values.pop().unwrap_or(Value::Nil),
        value => value,
    };
    Ok(from_redis_value(value)?)
}

/// Returns the options that create a filter of the same kind as the one at `key`.
fn words_of(server: &mut Server, key: &str) -> Result<Vec<String>> {
    let stats: Stats = (&server.ask(cmd("BF.STATS").arg(key), key)?).try_into()?;
    let mut field = |name: &str| info_field::<String>(server.ask(cmd("BF.INFO").arg(key).arg(name), key)?);
    let mut words = match &*stats.layout {
        // A fixed filter has no such ratio, but the option selects the layout.
        "valkey-bloom" if stats.kind == "nonscaling" => vec!["TIGHTENING".to_owned(), "0.5".to_owned()],
        "valkey-bloom" => vec!["TIGHTENING".to_owned(), field("TIGHTENING")?],
        "native" => ["LAYOUT", "native", "HASH", &stats.hash].map(str::to_owned).to_vec(),
        layout => vec!["LAYOUT".to_owned(), layout.to_owned()],
    };
    match &*stats.kind {
        "scaling" => words.extend(["EXPANSION".to_owned(), field("EXPANSION")?]),
        "nonscaling" => words.push("NONSCALING".to_owned()),
        "counting" => words.push("COUNTING".to_owned()),
        "cuckoo" => {
            let factor: Option<u32> = info_field(server.ask(cmd("BF.INFO").arg(key).arg("EXPANSION"), key)?)?;
            words.push("CUCKOO".to_owned());
            words.extend(
                factor.map_or(vec!["NONSCALING".to_owned()], |factor| vec!["EXPANSION".to_owned(), factor.to_string()]),
            );
        }
        kind => bail!(
            "`{key}` forgets items ({kind}), and its number of buckets is unknown: omit --create to keep its options, or \
             name the new ones, as in -- WINDOW 3600 BUCKETS 8"
        ),
    }
    Ok(words)
}
