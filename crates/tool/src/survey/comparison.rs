//! Compares the filters of two servers: the figures of BF.INFO or CF.INFO, then every byte of their data, record by record. RedisBloom and bloomgate
//! return the same bytes for equal filters of RedisBloom's layout. The comparison needs memory for one record of each server, not for
//! a whole filter, except in valkey-bloom's layout.

use std::collections::BTreeMap;
use std::ops::Range;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use indicatif::HumanCount;

use crate::archive::{Contents, Head, ReadMode};
use crate::dump::{self, Absent, Attempt, FOOTER_BYTES, Part};
use crate::keys::{for_each_key, is_filter, types};
use crate::server::Server;

/// How often differing filters are compared again, and the pause before each time: a replica may lag behind.
const RETRIES: usize = 2;
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// The checksum of a native record other than the header. It covers the iterator, which contains a number that differs between servers.
const CHECKSUM: Range<usize> = 1..5;

/// A comparison of the surveyed server with another one.
pub struct Comparison {
    other: Server,
    /// Their names in messages.
    names: [String; 2],
    /// Whether each URL names a database. Otherwise databases with the same number are compared.
    has_database: bool,
    pub compared: u64,
    /// The filters that are not equal, by the surveyed server's database and their key, with the reason.
    pub differing: BTreeMap<(u32, Vec<u8>), String>,
}

impl Comparison {
    pub fn new(server: &Server, other: Server, has_database: bool) -> Self {
        let names = [server, &other].map(|server| server.name().to_owned());
        Self { other, names, has_database, compared: 0, differing: BTreeMap::new() }
    }

    /// Compares a filter of the surveyed server with the one under the same key.
    pub fn compare(&mut self, server: &mut Server, key: &[u8]) -> Result<()> {
        self.compared += 1;
        self.judge(server, key)
    }

    /// Adds the key to the list if its values differ now, otherwise removes it.
    fn judge(&mut self, server: &mut Server, key: &[u8]) -> Result<()> {
        if !self.has_database {
            self.other.select(server.database())?;
        }
        match self.difference(server, key)? {
            Some(reason) => _ = self.differing.insert((server.database(), key.to_vec()), reason),
            None => _ = self.differing.remove(&(server.database(), key.to_vec())),
        }
        Ok(())
    }

    /// Compares the filters that only the other server has, then all differing ones again.
    pub fn finish(&mut self, server: &mut Server) -> Result<()> {
        for database in self.other.databases()? {
            self.other.select(database)?;
            if !self.has_database {
                server.select(database)?;
            }
            for key in self.additional(server)? {
                self.compare(server, &key)?;
            }
        }
        for _ in 0..RETRIES {
            if self.differing.is_empty() {
                break;
            }
            thread::sleep(RETRY_INTERVAL);
            for (database, key) in self.differing.keys().cloned().collect::<Vec<_>>() {
                server.select(database)?;
                self.judge(server, &key)?;
            }
        }
        Ok(())
    }

    /// Returns the filters in the other server's selected database whose keys hold no filter on the surveyed one.
    fn additional(&mut self, server: &mut Server) -> Result<Vec<Vec<u8>>> {
        let mut additional = Vec::new();
        for_each_key(&mut self.other, None, |other, keys| {
            let there = types(other, keys)?;
            let filters: Vec<_> =
                keys.iter().zip(there).filter(|(_, name)| is_filter(name)).map(|(key, _)| key.clone()).collect();
            let here = types(server, &filters)?;
            additional.extend(filters.into_iter().zip(here).filter(|(_, name)| !is_filter(name)).map(|(key, _)| key));
            Ok(())
        })?;
        Ok(additional)
    }

    /// Returns how the values of a key differ, or `None` if they are equal.
    fn difference(&mut self, server: &mut Server, key: &[u8]) -> Result<Option<String>> {
        let [here, there] = &self.names;
        let sides = (dump::begin(server, key)?, dump::begin(&mut self.other, key)?);
        let (one, other) = match sides {
            (Ok(one), Ok(other)) => (one, other),
            (Err(Absent::Gone | Absent::NoFilter(_)), Err(Absent::Gone | Absent::NoFilter(_))) => return Ok(None),
            (_, Err(Absent::Gone)) => return Ok(Some(format!("only on {here}"))),
            (Err(Absent::Gone), _) => return Ok(Some(format!("only on {there}"))),
            (one, other) => return Ok(Some(format!("{} on {here}, {} on {there}", state(&one), state(&other)))),
        };
        let expires = |head: &Head| if head.ttl_ms.is_some() { "yes" } else { "no" }.to_owned();
        let mut fields =
            vec![("type", one.type_name.clone(), other.type_name.clone()), ("expires", expires(&one), expires(&other))];
        for ((name, one), (_, other)) in figures(one.before).into_iter().zip(figures(other.before)) {
            fields.push((name, HumanCount(one).to_string(), HumanCount(other).to_string()));
        }
        if let Some((name, one, other)) = fields.into_iter().find(|(_, one, other)| one != other) {
            return Ok(Some(format!("{name}: {one} on {here}, {other} on {there}")));
        }
        let (mut one, mut other) = (Dump::new(server, one), Dump::new(&mut self.other, other));
        Ok(match are_equal(&mut one, &mut other)? {
            Ok(true) => None,
            // An item may have been added between the two replies.
            Err(_) => Some(CHANGED.to_owned()),
            Ok(false) if one.has_changed() || other.has_changed() => Some(CHANGED.to_owned()),
            Ok(false) => Some("equal counts, but not equal bits".to_owned()),
        })
    }
}

const CHANGED: &str = "changed while it was compared: compare again while writes are paused (CLIENT PAUSE)";

/// The figures of BF.INFO and CF.INFO that are equal for equal filters.
const fn figures(contents: Contents) -> [(&'static str, u64); 4] {
    let Contents { capacity, layers, items, deletes, .. } = contents;
    [("capacity", capacity), ("layers", layers), ("items", items), ("deletes", deletes)]
}

fn state(begin: &Attempt<Head>) -> String {
    match begin {
        Ok(_) => "a filter".to_owned(),
        Err(Absent::Gone) => "no key".to_owned(),
        Err(Absent::NoFilter(name)) => format!("type {name}"),
        Err(Absent::Loading) => "still being loaded".to_owned(),
        Err(Absent::Replaced(_)) => "just replaced".to_owned(),
    }
}

/// A filter that is being read.
struct Dump<'a> {
    server: &'a mut Server,
    head: Head,
    /// The last part, and how many of its bytes are compared.
    part: Part,
    compared: usize,
    is_at_end: bool,
}

impl<'a> Dump<'a> {
    const fn new(server: &'a mut Server, head: Head) -> Self {
        let part = Part { iterator: 0, data: Vec::new(), contents: head.before };
        Self { server, head, part, compared: 0, is_at_end: false }
    }

    /// Returns the next bytes; empty at the end.
    fn bytes(&mut self) -> Result<Attempt<&[u8]>> {
        while self.compared == self.part.data.len() && !self.is_at_end {
            let is_first = self.part.iterator == 0;
            self.part = match dump::part(self.server, &self.head, self.part.iterator)? {
                Ok(part) => part,
                Err(reason) => return Ok(Err(reason)),
            };
            (self.compared, self.is_at_end) = (0, self.part.iterator == 0);
            self.strip(is_first);
        }
        Ok(Ok(self.part.data.get(self.compared..).unwrap_or_default()))
    }

    /// Removes from the last part the bytes that may differ between equal filters.
    fn strip(&mut self, is_first: bool) {
        let data = &mut self.part.data;
        if self.head.mode == ReadMode::Dump {
            data.truncate(data.len().saturating_sub(FOOTER_BYTES));
        } else if self.head.type_name == "bloomgate" && !is_first {
            data.get_mut(CHECKSUM).unwrap_or_default().fill(0);
        }
    }

    fn has_changed(&self) -> bool {
        figures(self.head.before) != figures(self.part.contents)
    }
}

/// Compares the data of two filters. The sizes of their parts may differ.
fn are_equal(one: &mut Dump<'_>, other: &mut Dump<'_>) -> Result<Attempt<bool>> {
    loop {
        let length = match (one.bytes()?, other.bytes()?) {
            (Ok([]), Ok([])) => return Ok(Ok(true)),
            (Ok(some), Ok(others)) => {
                let length = some.len().min(others.len());
                if length == 0 || some.get(..length) != others.get(..length) {
                    return Ok(Ok(false));
                }
                length
            }
            (Err(reason), _) | (_, Err(reason)) => return Ok(Err(reason)),
        };
        one.compared += length;
        other.compared += length;
    }
}
