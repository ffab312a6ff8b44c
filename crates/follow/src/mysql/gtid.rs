//! GTIDs, the numbers of transactions: in MariaDB a domain, a server and a sequence; in MySQL the UUID of a server, which may have a tag, and a
//! sequence. For MariaDB, the last GTID of each domain is sufficient; MySQL's GTIDs are sets with gaps.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::str::FromStr;

use anyhow::{Context, Error, Result, ensure};

/// The number that a server assigns to a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gtid {
    MariaDb {
        domain: u32,
        server: u32,
        sequence: u64,
    },
    /// `source`: a UUID, optionally followed by a colon and a tag.
    MySql {
        source: String,
        sequence: u64,
    },
}

impl Default for Gtid {
    fn default() -> Self {
        Self::MariaDb { domain: 0, server: 0, sequence: 0 }
    }
}

impl Gtid {
    /// Whether a log that has reached this transaction has also passed the other one, if it contains that.
    pub fn reaches(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::MariaDb { domain, sequence, .. }, Self::MariaDb { domain: of_other, sequence: wanted, .. }) => {
                domain == of_other && sequence >= wanted
            }
            _ => self == other,
        }
    }
}

impl Display for Gtid {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::MariaDb { domain, server, sequence } => write!(formatter, "{domain}-{server}-{sequence}"),
            Self::MySql { source, sequence } => write!(formatter, "{source}:{sequence}"),
        }
    }
}

impl FromStr for Gtid {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some((source, sequence)) = text.rsplit_once(':') {
            return Ok(Self::MySql { source: source.to_owned(), sequence: sequence.parse()? });
        }
        let mut parts = text.splitn(3, '-').map(str::parse::<u64>);
        let mut next = || parts.next().and_then(Result::ok).with_context(|| format!("`{text}` is not a GTID"));
        Ok(Self::MariaDb { domain: next()?.try_into()?, server: next()?.try_into()?, sequence: next()? })
    }
}

/// The transactions that a server has executed: the last transaction of each domain of MariaDB, or the intervals of each source of MySQL, ends
/// included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gtids {
    last: BTreeMap<u32, (u32, u64)>,
    sets: BTreeMap<String, Vec<(u64, u64)>>,
}

impl Gtids {
    pub fn add(&mut self, gtid: &Gtid) {
        match gtid {
            Gtid::MariaDb { domain, server, sequence } => _ = self.last.insert(*domain, (*server, *sequence)),
            Gtid::MySql { source, sequence } => {
                let intervals = self.sets.entry(source.clone()).or_default();
                let at = intervals.partition_point(|(_, last)| last.saturating_add(1) < *sequence);
                match intervals.get_mut(at) {
                    Some((first, last)) if *first <= sequence.saturating_add(1) => {
                        (*first, *last) = ((*first).min(*sequence), (*last).max(*sequence));
                        // The new interval may have filled the gap before the next one.
                        let end = *last;
                        if let Some((_, last)) = intervals.get(at + 1).filter(|(first, _)| *first == end + 1).copied() {
                            intervals.remove(at + 1);
                            intervals.iter_mut().skip(at).take(1).for_each(|interval| interval.1 = last);
                        }
                    }
                    _ => intervals.insert(at, (*sequence, *sequence)),
                }
            }
        }
    }

    /// Whether a transaction of MySQL is in the set.
    pub fn contains(&self, gtid: &Gtid) -> bool {
        let Gtid::MySql { source, sequence } = gtid else { return false };
        let intervals = self.sets.get(source).map(Vec::as_slice).unwrap_or_default();
        intervals.iter().any(|(first, last)| (first..=last).contains(&sequence))
    }

    /// Returns the transactions that both have executed.
    pub fn common(&self, other: &Self) -> Self {
        let earlier = |(domain, ours): (&u32, &(u32, u64))| {
            let theirs = other.last.get(domain)?;
            Some((*domain, if theirs.1 < ours.1 { *theirs } else { *ours }))
        };
        let intersection = |(source, ours): (&String, &Vec<(u64, u64)>)| {
            let theirs = other.sets.get(source)?;
            let pairs = ours.iter().flat_map(|ours| theirs.iter().map(move |theirs| (ours, theirs)));
            let both = pairs.map(|(ours, theirs)| (ours.0.max(theirs.0), ours.1.min(theirs.1)));
            Some((source.clone(), both.filter(|(first, last)| first <= last).collect()))
        };
        let last = self.last.iter().filter_map(earlier).collect();
        Self { last, sets: self.sets.iter().filter_map(intersection).collect() }
    }
}

impl Display for Gtids {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        let last = self.last.iter().map(|(domain, (server, sequence))| format!("{domain}-{server}-{sequence}"));
        let sets = self.sets.iter().filter(|(_, intervals)| !intervals.is_empty()).map(|(source, intervals)| {
            let interval = |(first, last): &(u64, u64)| {
                if first == last { format!(":{first}") } else { format!(":{first}-{last}") }
            };
            source.clone() + &intervals.iter().map(interval).collect::<String>()
        });
        formatter.write_str(&last.chain(sets).collect::<Vec<_>>().join(","))
    }
}

impl FromStr for Gtids {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut gtids = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let Some((uuid, rest)) = part.split_once(':') else {
                gtids.add(&part.parse()?);
                continue;
            };
            // A tag applies to the intervals that follow it.
            let mut source = uuid.to_owned();
            for word in rest.split(':') {
                if !word.starts_with(|first: char| first.is_ascii_digit()) {
                    source = format!("{uuid}:{word}");
                    continue;
                }
                let (first, last) = word.split_once('-').unwrap_or((word, word));
                let (first, last) = (first.parse()?, last.parse()?);
                ensure!(first <= last, "`{part}` is not a set of GTIDs");
                gtids.sets.entry(source.clone()).or_default().push((first, last));
            }
        }
        Ok(gtids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
    const B: &str = "4f11fa47-71ca-11e1-9e33-c80aa9429562";

    fn gtids(text: &str) -> Gtids {
        text.replace('A', A).replace('B', B).parse().unwrap()
    }

    #[test]
    fn gtids_are_text() {
        for text in ["", "0-1-5,3-4294967295-18446744073709551615", &format!("{A}:1-5:7,{A}:tag:1,{B}:2-3")] {
            assert_eq!(text.parse::<Gtids>().unwrap().to_string(), text);
        }
        // MySQL writes a line for each source, and writes a source with tags only once.
        assert_eq!(gtids("A:1-5:tag:1:3,\nB:7"), gtids("A:1-5,A:tag:1:3,B:7"));
        for text in ["0-1", "a-1-1", "0-1-x", "4294967296-1-1", &format!("{A}:5-1"), &format!("{A}:1-")] {
            assert!(text.parse::<Gtids>().is_err(), "{text}");
        }
        for text in ["0-1-5", &format!("{A}:5"), &format!("{A}:tag:5")] {
            assert_eq!(text.parse::<Gtid>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_set_contains_added_hashes() {
        let mut all = Gtids::default();
        for (sequence, text) in [
            (5, "A:5"),
            (3, "A:3:5"),
            (4, "A:3-5"),
            (9, "A:3-5:9"),
            (1, "A:1:3-5:9"),
            (6, "A:1:3-6:9"),
            (6, "A:1:3-6:9"),
            (8, "A:1:3-6:8-9"),
            (2, "A:1-6:8-9"),
            (7, "A:1-9"),
        ] {
            let gtid = Gtid::MySql { source: A.to_owned(), sequence };
            all.add(&gtid);
            assert_eq!(all, gtids(text));
            assert!(all.contains(&gtid) && !all.contains(&Gtid::MySql { source: B.to_owned(), sequence }));
        }
    }

    #[test]
    fn a_log_passes_earlier_gtids_of_its_domain() {
        for (here, other, is_past) in [
            ("0-1-5", "0-2-5", true),
            ("0-1-5", "0-1-6", false),
            ("7-1-5", "0-1-5", false),
            (&format!("{A}:5"), &format!("{A}:5"), true),
            (&format!("{A}:5"), &format!("{A}:4"), false),
        ] {
            assert_eq!(here.parse::<Gtid>().unwrap().reaches(&other.parse().unwrap()), is_past, "{here} {other}");
        }
    }

    #[test]
    fn common_is_the_intersection() {
        for (one, other, both) in
            [("0-1-5,1-1-7", "0-2-3,2-1-1", "0-2-3"), ("A:1-9", "A:3-5:7-12", "A:3-5:7-9"), ("A:1-9,B:1", "A:20", "")]
        {
            assert_eq!(gtids(one).common(&gtids(other)).to_string(), gtids(both).to_string(), "{one} {other}");
            assert_eq!(gtids(other).common(&gtids(one)).to_string(), gtids(both).to_string(), "{other} {one}");
        }
    }
}
