//! The filter that `load` and `dedup` create: its false positive rate, its capacity, and its kind in the words of BF.RESERVE.

use anyhow::{Result, bail};
use bloomgate_client::Stats;
use redis::{Cmd, Value, cmd, from_redis_value};

use crate::numbers;
use crate::server::Server;
use crate::usage::usage;

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
    ///
    /// # Errors
    /// Says which value is wrong.
    pub fn of(values: &[String], words: &[String]) -> Result<Self> {
        let invalid = |text: String| usage(format!("--create: {text}"));
        let (Some(rate), capacity) = (values.first(), values.get(1)) else {
            return Err(usage("--create needs a rate"));
        };
        let rate = numbers::rate(rate).map_err(invalid)?;
        let capacity = capacity.map(|word| numbers::capacity(word)).transpose().map_err(invalid)?;
        // The layouts of other modules have other limits.
        if !words.iter().any(|word| ["TIGHTENING", "LAYOUT"].contains(&&*word.to_ascii_uppercase())) {
            numbers::tell_taken_rate(rate, numbers::taken_rate(rate));
        }
        Ok(Self { rate, capacity, words: words.to_vec() })
    }

    /// Unless words were given, takes those that create a filter of the same kind as the one at `key`, if there is one.
    ///
    /// # Errors
    /// The options of that kind cannot be queried; the server's error.
    pub fn keep_kind_of(&mut self, server: &mut Server, key: &str) -> Result<()> {
        if self.words.is_empty() && server.ask(cmd("EXISTS").arg(key), key)? != Value::Int(0) {
            self.words = words_of(server, key)?;
        }
        Ok(())
    }

    /// Creates the filter.
    ///
    /// # Errors
    /// The key exists; the server refuses the options.
    pub fn create(&self, server: &mut Server, key: &str) -> Result<()> {
        server.ask(&self.command(key), key).map(drop)
    }

    /// Returns the command that creates the filter.
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

/// Returns the words that create a filter of the same kind as the one at `key`.
fn words_of(server: &mut Server, key: &str) -> Result<Vec<String>> {
    let stats: Stats = (&server.ask(cmd("BF.STATS").arg(key), key)?).try_into()?;
    let mut field = |name: &str| -> Result<String> {
        let value = match server.ask(cmd("BF.INFO").arg(key).arg(name), key)? {
            Value::Array(mut values) => values.pop().unwrap_or(Value::Nil),
            value => value,
        };
        Ok(from_redis_value(value)?)
    };
    let mut words = match &*stats.layout {
        // A filter that does not grow has no such ratio, but the option selects the layout.
        "valkey-bloom" if stats.kind == "nonscaling" => vec!["TIGHTENING".to_owned(), "0.5".to_owned()],
        "valkey-bloom" => vec!["TIGHTENING".to_owned(), field("TIGHTENING")?],
        "native" => ["LAYOUT", "native", "HASH", &stats.hash].map(str::to_owned).to_vec(),
        layout => vec!["LAYOUT".to_owned(), layout.to_owned()],
    };
    match &*stats.kind {
        "scaling" => words.extend(["EXPANSION".to_owned(), field("EXPANSION")?]),
        "nonscaling" => words.push("NONSCALING".to_owned()),
        "counting" => words.push("COUNTING".to_owned()),
        kind => bail!(
            "`{key}` forgets items ({kind}), and its number of buckets is unknown: omit --create to keep its options, or \
             name the new ones, as in -- WINDOW 3600 BUCKETS 8"
        ),
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_create_option_is_named() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let of = |values: &[&str]| Creation::of(&words(values), &[]);
        let creation = of(&["0.1%", "1e6"]).unwrap();
        assert_eq!((creation.rate, creation.capacity), (0.001, Some(1_000_000)));
        assert_eq!(of(&["0.5"]).unwrap().capacity, None);
        for wrong in [&["2", "5"][..], &["0.1", "0"], &["0.1", "x"], &[]] {
            assert!(of(wrong).unwrap_err().to_string().starts_with("--create"), "{wrong:?}");
        }
    }
}
