//! Selects the filters to restore and their keys.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

use anyhow::{Result, bail, ensure};

use crate::archive::Entry;
use crate::server::shown;
use crate::target::{count_key, shard_keys};

/// A filter to restore.
#[derive(Clone)]
pub struct Chosen<'a> {
    /// Its entry in the file.
    pub entry: &'a Entry,
    /// Its new key.
    pub target: Vec<u8>,
}

/// Returns the filters that `words` select, or all if it is empty. A word is a key in the file or the name of a sharded filter,
/// optionally followed by `=` and a new key or name.
///
/// # Errors
/// The file does not have a filter; two filters would get the same key.
pub fn choose<'a>(entries: &'a [Entry], words: &[OsString], file: &str) -> Result<Vec<Chosen<'a>>> {
    let all = entries.iter().map(|entry| Chosen { entry, target: entry.head.key.clone() });
    let chosen: Vec<_> = if words.is_empty() {
        all.collect()
    } else {
        let by_key: BTreeMap<&[u8], &Entry> = entries.iter().map(|entry| (&*entry.head.key, entry)).collect();
        let mut chosen: Vec<_> = words
            .iter()
            .map(|word| named(&by_key, word.as_encoded_bytes(), file))
            .collect::<Result<Vec<_>>>()?
            .concat();
        chosen.sort_by_key(|chosen| chosen.entry.number);
        chosen
    };
    let (mut targets, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    for Chosen { entry, target } in &chosen {
        ensure!(targets.insert(target), "two filters would be restored to the key `{}`", shown(target));
        ensure!(numbers.insert(entry.number), "the filter `{}` is named twice", shown(&entry.head.key));
    }
    Ok(chosen)
}

/// Returns the filters that one word selects. Keys may contain `=`, so the longest key in the file counts.
fn named<'a>(by_key: &BTreeMap<&[u8], &'a Entry>, word: &[u8], file: &str) -> Result<Vec<Chosen<'a>>> {
    if let Some(chosen) = under(by_key, word, word) {
        return Ok(chosen);
    }
    for (place, _) in word.iter().enumerate().rev().filter(|(_, byte)| **byte == b'=') {
        let (key, target) = word.split_at(place);
        if let Some(chosen) = target.get(1..).and_then(|target| under(by_key, key, target)) {
            return Ok(chosen);
        }
    }
    bail!(
        "{file} has no filter `{}`: --dry-run lists its filters",
        shown(word.split(|byte| *byte == b'=').next().unwrap_or(word))
    )
}

/// Returns the filter with this key, or all keys of the sharded filter with this name, to be restored as `target`.
fn under<'a>(by_key: &BTreeMap<&[u8], &'a Entry>, key: &[u8], target: &[u8]) -> Option<Vec<Chosen<'a>>> {
    if let Some(entry) = by_key.get(key).filter(|entry| entry.shards.is_none()) {
        return Some(vec![Chosen { entry, target: target.to_vec() }]);
    }
    let count = by_key.get(&*count_key(key))?;
    let shards = count.shards?;
    let pairs = shard_keys(key, 0..shards).into_iter().zip(shard_keys(target, 0..shards));
    let chosen = pairs.filter_map(|(key, target)| Some(Chosen { entry: by_key.get(&*key)?, target }));
    Some(chosen.chain([Chosen { entry: count, target: count_key(target) }]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::{Contents, Head, How};

    fn entry(key: &str, number: u64) -> Entry {
        let head = Head {
            key: key.into(),
            type_name: String::new(),
            kind: String::new(),
            how: How::Records,
            ttl_ms: None,
            before: Contents::default(),
        };
        Entry { head, after: Contents::default(), number, bytes: 0, shards: None }
    }

    fn targets(words: &[&str]) -> Result<Vec<(u64, String)>> {
        let entries = [entry("a", 1), entry("a=b", 2), entry("c", 4)];
        let words: Vec<_> = words.iter().map(OsString::from).collect();
        let chosen = choose(&entries, &words, "file")?;
        Ok(chosen.into_iter().map(|chosen| (chosen.entry.number, shown(chosen.target))).collect())
    }

    #[test]
    fn keys_are_named_and_renamed() {
        let pairs =
            |pairs: &[(u64, &str)]| pairs.iter().map(|(number, key)| (*number, (*key).to_owned())).collect::<Vec<_>>();
        assert_eq!(targets(&[]).unwrap(), pairs(&[(1, "a"), (2, "a=b"), (4, "c")]));
        assert_eq!(targets(&["c", "a"]).unwrap(), pairs(&[(1, "a"), (4, "c")]));
        assert_eq!(targets(&["c=d=e", "a=b"]).unwrap(), pairs(&[(2, "a=b"), (4, "d=e")]));
        assert_eq!(targets(&["a=b=c", "a=c="]).unwrap(), pairs(&[(1, "c="), (2, "c")]));
        assert!(targets(&["d"]).is_err());
        assert!(targets(&["a=c", "c"]).is_err());
        assert!(targets(&["a", "a=x"]).is_err());
    }
}
