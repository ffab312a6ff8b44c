//! `bloomgate restore`: loads filters from a file into a server or a cluster. The whole file is checked before anything is
//! sent. Each filter is loaded under a temporary key, compared with the file, and renamed, so that readers see either the
//! complete filter or the previous one.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::Read;
use std::path::PathBuf;
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use indicatif::{BinaryBytes, HumanCount, HumanDuration};
use redis::{Pipeline, Value, cmd, from_redis_value};
use serde_json::json;

use crate::archive::catalogue::{Catalogue, Entry, Listing, Row};
use crate::archive::file::Input;
use crate::archive::{Contents, Event, Head, ReadMode, Reader};
use crate::dump::make_portable;
use crate::exit::Signals;
use crate::keys::{CUCKOO, command, contents, is_filter, types};
use crate::names::{counted, in_database};
use crate::progress::Bar;
use crate::report::some;
use crate::server::{Options, Server, shown, slot};
use crate::target::{count_key, parse_shards, shard_keys, sharded_name};

/// Keys checked in one batch.
const KEYS_AT_ONCE: usize = 500;

/// Restore filters from a file written by `backup` or `build`
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bloomgate restore filters.bloom
  bloomgate restore filters.bloom --dry-run
  bloomgate restore filters.bloom --key seen --key orders=orders:yesterday
  bloomgate restore -p 7000 --replace filters.bloom

Each filter returns to its database. With -n, or a URL that names a database, all go there.

The whole file is checked first. A damaged file changes nothing on the server.")]
pub struct Arguments {
    /// The file to read; `-` is the standard input
    file: PathBuf,
    /// Restore only this filter, or all shards of this sharded filter, from each database of the file; `=NEW` renames it. May be
    /// repeated
    #[arg(long = "key", value_name = "KEY[=NEW]")]
    keys: Vec<OsString>,
    /// Replace filters that exist under the same keys
    #[arg(long)]
    replace: bool,
    /// Accept a file without filters; with --replace, allow an empty filter to replace one with items
    #[arg(long)]
    allow_empty: bool,
    /// Check the file and list its filters without connecting to a server
    #[arg(long)]
    dry_run: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options, arguments: &Arguments) -> Result<()> {
    let mut input = Input::open(&arguments.file)?;
    let name = input.name().to_owned();
    let bar = Bar::new(input.length());
    let checked = Catalogue::of(Counted::new(input.read()?, &bar, "checking"));
    bar.finish();
    let catalogue = checked.with_context(|| name.clone())?;
    let chosen = choose(&catalogue.entries, &arguments.keys, options.database()?, &name)?;
    let mut listing = Listing { is_whole: arguments.dry_run, ..Listing::default() };
    listing.facts = vec![
        ("file", json!(name)),
        ("file_bytes", json!(catalogue.file_bytes)),
        ("made_at_ms", json!(catalogue.made_at_ms)),
        ("made_by", json!(catalogue.made_by)),
    ];
    if arguments.dry_run {
        let of_filters = chosen.iter().filter(|chosen| chosen.entry.shards.is_none());
        listing.rows = of_filters.map(|chosen| row(chosen, remark(chosen.entry))).collect();
        listing.sharded = chosen.iter().filter_map(sharded).collect();
        let age =
            UNIX_EPOCH.checked_add(Duration::from_millis(catalogue.made_at_ms)).and_then(|made| made.elapsed().ok());
        let age = age.map_or_else(String::new, |age| format!(", made {} ago", HumanDuration(age)));
        let last = format!(
            "{} in {name}, {}{age} by {}; nothing is damaged",
            counted(listing.rows.len() as u64, "filter"),
            BinaryBytes(catalogue.file_bytes),
            catalogue.made_by
        );
        return listing.print(arguments.json, false, &last);
    }

    ensure!(
        arguments.allow_empty || !chosen.is_empty(),
        "{name} has no filters, so nothing was restored. If this is intended, use --allow-empty"
    );
    let mut server = Server::connect(options)?;
    // The error for an unknown command quotes its arguments, which are binary here.
    for name in chosen.iter().map(|chosen| loading_command(&chosen.entry.head)).collect::<BTreeSet<_>>() {
        server.require_command(&name)?;
    }
    check_targets(&mut server, &chosen, arguments.replace)?;
    if arguments.replace && !arguments.allow_empty {
        check_losses(&mut server, &chosen)?;
    }
    let bar = Bar::new(Some(catalogue.file_bytes));
    let mut restore = Restore {
        server: &mut server,
        replace: arguments.replace,
        rows: Vec::new(),
        sharded: Vec::new(),
        signals: Signals::catch()?,
    };
    let loaded = restore.run(Counted::new(input.read()?, &bar, "loading"), &chosen);
    bar.finish();
    let rows = restore.rows;
    listing.sharded = restore.sharded;
    if !rows.is_empty() {
        let all = chosen.iter().filter(|chosen| chosen.entry.shards.is_none()).count();
        let (done, all) = (HumanCount(rows.len() as u64), counted(all as u64, "filter"));
        loaded.with_context(|| format!("{done} of {all} restored before an error"))?;
    } else {
        loaded?;
    }
    let done = counted(rows.len() as u64, "filter");
    listing.rows = rows;
    listing.print(arguments.json, false, &format!("{done} restored from {name}"))
}

fn row(chosen: &Chosen<'_>, remark: &str) -> Row {
    let head = &chosen.entry.head;
    Row {
        database: chosen.database,
        key: chosen.target.clone(),
        kind: head.kind.clone(),
        contents: chosen.entry.after,
        ttl_ms: head.ttl_ms,
        remark: remark.to_owned(),
    }
}

fn remark(entry: &Entry) -> &'static str {
    if entry.head.before == entry.after { "" } else { "changed while it was dumped" }
}

/// Returns the name and the number of shards, if the entry is the `NAME:shards` key of a sharded filter.
fn sharded(chosen: &Chosen<'_>) -> Option<(Vec<u8>, u32)> {
    Some((sharded_name(&chosen.target)?.to_vec(), chosen.entry.shards?))
}

/// Returns the command that loads this filter, or reads it after RESTORE.
fn loading_command(head: &Head) -> String {
    command(&head.type_name, if head.mode == ReadMode::Records { "LOADCHUNK" } else { "INFO" })
}

/// Checks, before anything is written, that all databases exist, and that all keys are free or may be replaced.
fn check_targets(server: &mut Server, chosen: &[Chosen<'_>], replace: bool) -> Result<()> {
    let mut existing = Vec::new();
    for some in batches(chosen) {
        select(server, some)?;
        check_batch(server, some, replace, &mut existing)?;
    }
    if existing.is_empty() || replace {
        return Ok(());
    }
    bail!("the server already has {}: use --replace or --key KEY=NEW", some(&existing))
}

/// Splits filters into batches of one database.
fn batches<'a, 'b>(chosen: &'a [Chosen<'b>]) -> impl Iterator<Item = &'a [Chosen<'b>]> {
    chosen.chunk_by(|one, next| one.database == next.database).flat_map(|run| run.chunks(KEYS_AT_ONCE))
}

/// Selects the database of a batch.
fn select(server: &mut Server, batch: &[Chosen<'_>]) -> Result<()> {
    let database = batch.first().map_or(0, |chosen| chosen.database);
    server.select(database).context("nothing was restored (with -n NUMBER all filters go to one database)")
}

/// Checks one batch. Adds the keys that exist to `existing`.
fn check_batch(server: &mut Server, some: &[Chosen<'_>], replace: bool, existing: &mut Vec<String>) -> Result<()> {
    let place = in_database(server.database());
    let keys: Vec<_> = some.iter().flat_map(|chosen| [chosen.target.clone(), beside(&chosen.target)]).collect();
    for (index, (key, name)) in keys.iter().zip(types(server, &keys)?).enumerate() {
        let is_temporary = index % 2 == 1;
        if name == "none" {
            continue;
        }
        let listed = format!("`{}`{place}", shown(key));
        if let Some(shards) = some.get(index / 2).and_then(|chosen| chosen.entry.shards).filter(|_| !is_temporary) {
            check_shards(server, key, shards)?;
            existing.push(listed);
            continue;
        }
        ensure!(is_filter(&name), "the key {listed} on the server has type {name}, not a filter: it is not replaced");
        ensure!(
            !is_temporary || replace,
            "the key {listed} is on the server: another restore is going on, or was killed less than {} minutes ago. \
             Delete it or use --replace",
            ABANDONED_AFTER.as_secs() / 60
        );
        if !is_temporary {
            existing.push(listed);
        }
    }
    Ok(())
}

/// Refuses a number of shards that differs from the server's, because clients would look for items in the wrong shards.
fn check_shards(server: &mut Server, key: &[u8], shards: u32) -> Result<()> {
    let text: Vec<u8> = from_redis_value(server.ask(cmd("GET").arg(key), key)?)?;
    let name = sharded_name(key).map(shown).unwrap_or_default();
    ensure!(
        parse_shards(&text) == Some(shards),
        "the key `{}` on the server holds `{}`, the file has {}: delete that filter first or use --key {name}=NEW",
        shown(key),
        shown(&text),
        counted(shards.into(), "shard")
    );
    Ok(())
}

/// Refuses to replace a filter that has items with an empty one.
fn check_losses(server: &mut Server, chosen: &[Chosen<'_>]) -> Result<()> {
    let is_empty = |chosen: &&Chosen<'_>| chosen.entry.shards.is_none() && chosen.entry.after.items == 0;
    let empty: Vec<_> = chosen.iter().filter(is_empty).cloned().collect();
    for some in batches(&empty) {
        select(server, some)?;
        let keys: Vec<_> = some.iter().map(|chosen| chosen.target.clone()).collect();
        for (key, card) in keys.iter().zip(server.replies_of_each(&["BF.CARD"], &keys)?) {
            let items = items(server, key, card)?;
            ensure!(
                items == 0,
                "`{}`{} is empty in the file and has {} on the server: it is not replaced. \
                 If this is intended, use --allow-empty",
                shown(key),
                in_database(server.database()),
                HumanCount(items)
            );
        }
    }
    Ok(())
}

/// Returns the number of items in the filter of a key, whose reply to BF.CARD is an error for a cuckoo filter.
fn items(server: &mut Server, key: &[u8], card: Value) -> Result<u64> {
    if matches!(&card, Value::ServerError(error) if error.code() == "WRONGTYPE") {
        return Ok(contents(CUCKOO, &server.ask(cmd("CF.INFO").arg(key), key)?)?.items);
    }
    Ok(from_redis_value(server.checked(card, key)?)?)
}

struct Restore<'a> {
    server: &'a mut Server,
    replace: bool,
    rows: Vec<Row>,
    sharded: Vec<(Vec<u8>, u32)>,
    signals: Signals,
}

impl Restore<'_> {
    fn run(&mut self, source: impl Read, chosen: &[Chosen<'_>]) -> Result<()> {
        let by_number: BTreeMap<u64, &Chosen<'_>> = chosen.iter().map(|chosen| (chosen.entry.number, chosen)).collect();
        let mut reader = Reader::begin(source)?;
        let mut number = 0;
        loop {
            match reader.next()? {
                Event::Filter(_) => {
                    number += 1;
                    if let Some(chosen) = by_number.get(&number) {
                        self.server.select(chosen.database)?;
                        let restored = match chosen.entry.shards {
                            Some(shards) => self.set_shards(chosen, shards),
                            None => self.load(&mut reader, chosen),
                        };
                        restored.with_context(|| {
                            format!("cannot restore `{}`{}", shown(&chosen.target), in_database(chosen.database))
                        })?;
                    }
                }
                Event::End => return Ok(()),
                Event::Part(..) | Event::FilterEnd(_) | Event::FilterVoid => {}
            }
        }
    }

    /// Writes the number of shards, after all shards.
    fn set_shards(&mut self, chosen: &Chosen<'_>, shards: u32) -> Result<()> {
        let mut set = cmd("SET").arg(&chosen.target).arg(shards).to_owned();
        if let Some(ttl_ms) = chosen.entry.head.ttl_ms {
            set.arg("PX").arg(ttl_ms.max(1));
        }
        if !self.replace {
            set.arg("NX");
        }
        let reply = self.server.ask(&set, &chosen.target)?;
        ensure!(reply != Value::Nil, "the key `{}` was created in the meantime", shown(&chosen.target));
        self.sharded.extend(sharded(chosen));
        Ok(())
    }

    /// Loads a filter. If that fails, deletes all of it.
    fn load(&mut self, reader: &mut Reader<impl Read>, chosen: &Chosen<'_>) -> Result<()> {
        let mut loading = Loading::begin(chosen, self.replace, self.server)?;
        let result = loading.all(reader, self.server, &self.signals);
        match result {
            Ok(contents) => {
                let remark = remark(chosen.entry);
                self.rows.push(Row { contents, ..row(chosen, remark) });
                Ok(())
            }
            Err(error) => {
                loading.abandon(self.server);
                Err(error)
            }
        }
    }
}

struct Counted<'a, R> {
    source: R,
    bytes: u64,
    bar: &'a Bar,
    what: &'static str,
}

impl<'a, R> Counted<'a, R> {
    const fn new(source: R, bar: &'a Bar, what: &'static str) -> Self {
        Self { source, bytes: 0, bar, what }
    }
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = self.source.read(buffer)?;
        self.bytes += length as u64;
        self.bar.set(self.bytes, || format!("{} {}", self.what, BinaryBytes(self.bytes)));
        Ok(length)
    }
}

// Selects the filters to restore and their keys.

#[derive(Clone)]
struct Chosen<'a> {
    entry: &'a Entry,
    database: u32,
    target: Vec<u8>,
}

/// Returns the filters that `words` select, or all if it is empty. A word is a key in the file or the name of a sharded filter, optionally
/// followed by `=` and a new key or name. With `database`, all filters are restored there, otherwise each to its own database.
fn choose<'a>(entries: &'a [Entry], words: &[OsString], database: Option<u32>, file: &str) -> Result<Vec<Chosen<'a>>> {
    let mut chosen: Vec<_> = if words.is_empty() {
        entries.iter().map(|entry| Chosen::of(entry, entry.head.key.clone())).collect()
    } else {
        let mut by_database: BTreeMap<u32, BTreeMap<&[u8], &Entry>> = BTreeMap::new();
        for entry in entries {
            by_database.entry(entry.head.database).or_default().insert(&*entry.head.key, entry);
        }
        let mut chosen = Vec::new();
        for word in words.iter().map(|word| word.as_encoded_bytes()) {
            let named: Vec<_> = by_database.values().filter_map(|by_key| named(by_key, word)).collect();
            ensure!(
                !named.is_empty(),
                "{file} has no filter `{}`: --dry-run lists its filters",
                shown(word.split(|byte| *byte == b'=').next().unwrap_or(word))
            );
            chosen.extend(named.concat());
        }
        chosen.sort_by_key(|chosen| chosen.entry.number);
        chosen
    };
    let (mut targets, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    for Chosen { entry, database: own, target } in &mut chosen {
        *own = database.unwrap_or(*own);
        let place = in_database(*own);
        ensure!(
            targets.insert((*own, target.clone())),
            "two filters would be restored to the key `{}`{place}",
            shown(target)
        );
        ensure!(numbers.insert(entry.number), "the filter `{}` is named twice", shown(&entry.head.key));
    }
    Ok(chosen)
}

impl<'a> Chosen<'a> {
    const fn of(entry: &'a Entry, target: Vec<u8>) -> Self {
        Self { entry, database: entry.head.database, target }
    }
}

/// Returns the filters of a database that one word selects. Keys may contain `=`, so the longest matching key in the file is used.
fn named<'a>(by_key: &BTreeMap<&[u8], &'a Entry>, word: &[u8]) -> Option<Vec<Chosen<'a>>> {
    if let Some(chosen) = under(by_key, word, word) {
        return Some(chosen);
    }
    let mut signs = word.iter().enumerate().rev().filter(|(_, byte)| **byte == b'=');
    signs.find_map(|(place, _)| {
        let (key, target) = word.split_at(place);
        under(by_key, key, target.get(1..)?)
    })
}

/// Returns the filter with this key, or all keys of the sharded filter with this name, to be restored as `target`.
fn under<'a>(by_key: &BTreeMap<&[u8], &'a Entry>, key: &[u8], target: &[u8]) -> Option<Vec<Chosen<'a>>> {
    if let Some(entry) = by_key.get(key).filter(|entry| entry.shards.is_none()) {
        return Some(vec![Chosen::of(entry, target.to_vec())]);
    }
    let count = by_key.get(&*count_key(key))?;
    let shards = count.shards?;
    let pairs = shard_keys(key, 0..shards).into_iter().zip(shard_keys(target, 0..shards));
    let chosen = pairs.filter_map(|(key, target)| Some(Chosen::of(by_key.get(&*key)?, target)));
    Some(chosen.chain([Chosen::of(count, count_key(target))]).collect())
}

// Restores one filter: loads it under a temporary key, compares it, and renames it.

/// The time to live of the temporary key, in case the run is killed.
const ABANDONED_AFTER: Duration = Duration::from_secs(600);
const ABANDONED_AFTER_MS: u64 = 600_000;
/// The time to live is renewed at this interval.
const RENEWED_AFTER: Duration = Duration::from_secs(60);
/// A key with a shorter time to live could expire before it is renamed.
const TTL_MS_MIN: u64 = 1000;

struct Loading<'a> {
    chosen: &'a Chosen<'a>,
    replace: bool,
    temporary: Vec<u8>,
    /// The payload for RESTORE, as far as it has been read.
    payload: Vec<u8>,
    renewed: Option<Instant>,
}

impl<'a> Loading<'a> {
    /// Begins to load a filter. With `replace`, deletes what an earlier run left under the temporary key.
    fn begin(chosen: &'a Chosen<'a>, replace: bool, server: &mut Server) -> Result<Self> {
        let temporary = beside(&chosen.target);
        if replace {
            server.ask(cmd("DEL").arg(&temporary), &temporary)?;
        }
        Ok(Self { chosen, replace, temporary, payload: Vec::new(), renewed: None })
    }

    /// Loads the whole filter and renames it. Returns its contents on the server.
    fn all(&mut self, reader: &mut Reader<impl Read>, server: &mut Server, signals: &Signals) -> Result<Contents> {
        loop {
            signals.check()?;
            match reader.next()? {
                Event::Part(iterator, data) => self.part(iterator, data, server)?,
                Event::FilterEnd(_) => break,
                Event::Filter(_) | Event::FilterVoid | Event::End => bail!("the file changed after it was checked"),
            }
        }
        if self.chosen.entry.head.mode == ReadMode::Dump {
            let mut payload = std::mem::take(&mut self.payload);
            make_portable(&mut payload);
            let mut restore = cmd("RESTORE");
            restore.arg(&self.temporary).arg(ABANDONED_AFTER_MS).arg(payload);
            server.ask(&restore, &self.temporary)?;
        }
        let type_name = &self.chosen.entry.head.type_name;
        let info = cmd(&command(type_name, "INFO")).arg(&self.temporary).to_owned();
        let contents = contents(type_name, &server.ask(&info, &self.temporary)?)?;
        self.compare(contents)?;
        self.put_in_place(server)?;
        Ok(contents)
    }

    fn part(&mut self, iterator: u64, data: Vec<u8>, server: &mut Server) -> Result<()> {
        if self.chosen.entry.head.mode == ReadMode::Dump {
            if self.payload.is_empty() {
                self.payload.try_reserve_exact(usize::try_from(self.chosen.entry.bytes)?)?;
            }
            self.payload.extend(data);
            return Ok(());
        }
        let mut commands = Pipeline::new();
        commands
            .cmd(&command(&self.chosen.entry.head.type_name, "LOADCHUNK"))
            .arg(&self.temporary)
            .arg(iterator)
            .arg(data);
        if self.renewed.is_none_or(|renewed| renewed.elapsed() > RENEWED_AFTER) {
            commands.cmd("PEXPIRE").arg(&self.temporary).arg(ABANDONED_AFTER_MS);
            self.renewed = Some(Instant::now());
        }
        server.ask_all(&commands, &self.temporary).map(|_| ())
    }

    /// Compares the loaded filter with the file. A filter that changed during its dump is not compared, because the dump may mix its
    /// states. A filter that forgets may have fewer items by now. Of a cuckoo filter, equal figures do not exclude an add and a delete.
    fn compare(&self, now: Contents) -> Result<()> {
        let (head, recorded) = (&self.chosen.entry.head, self.chosen.entry.after);
        if head.before != recorded || head.type_name == CUCKOO && head.mode == ReadMode::Dump {
            return Ok(());
        }
        let shape = |contents: Contents| (contents.capacity, contents.layers);
        let is_same = if head.kind == "windowed" {
            now.items <= recorded.items
        } else {
            now.items == recorded.items && shape(now) == shape(recorded)
        };
        ensure!(
            is_same,
            "the server has {} in {}, the file has {} in {}",
            counted(now.items, "item"),
            counted(now.layers, "layer"),
            counted(recorded.items, "item"),
            counted(recorded.layers, "layer")
        );
        Ok(())
    }

    fn put_in_place(&self, server: &mut Server) -> Result<()> {
        let (temporary, target) = (&self.temporary, &self.chosen.target);
        match self.chosen.entry.head.ttl_ms {
            Some(ttl_ms) => server.ask(cmd("PEXPIRE").arg(temporary).arg(ttl_ms.max(TTL_MS_MIN)), temporary)?,
            None => server.ask(cmd("PERSIST").arg(temporary), temporary)?,
        };
        if self.replace {
            server.ask(cmd("RENAME").arg(temporary).arg(target), temporary)?;
            return Ok(());
        }
        let renamed: i64 = from_redis_value(server.ask(cmd("RENAMENX").arg(temporary).arg(target), temporary)?)?;
        ensure!(renamed == 1, "the key `{}` was created in the meantime", shown(target));
        Ok(())
    }

    /// Deletes the temporary key. If the server does not respond, the key expires.
    fn abandon(&self, server: &mut Server) {
        _ = server.ask(cmd("DEL").arg(&self.temporary), &self.temporary);
    }
}

// The temporary key under which a filter is loaded. It has the hash slot of the final key, so that it can be renamed in a cluster.

const SUFFIX: &[u8] = b":restoring";

/// Returns the temporary key for a key: `{KEY}:restoring`, or `KEY:restoring` if the key has a hash tag. If the key cannot be put in
/// braces, they contain a number with the same slot.
fn beside(key: &[u8]) -> Vec<u8> {
    let braced = [b"{", key, b"}"].concat();
    let candidates = [braced, key.to_vec()].into_iter();
    let numbers = (0u32..).map(|number| [b"{", number.to_string().as_bytes(), b"}", key].concat());
    let mut names = candidates.chain(numbers).map(|name| [&name, SUFFIX].concat());
    // Each of the 16,384 slots has such numbers; finding one takes about as many attempts on average.
    names.find(|name| slot(name) == slot(key)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use crate::archive::{Contents, Head, ReadMode};

    use super::*;

    fn entry(key: &str, number: u64) -> Entry {
        let head = Head {
            database: 0,
            key: key.into(),
            type_name: String::new(),
            kind: String::new(),
            mode: ReadMode::Records,
            ttl_ms: None,
            before: Contents::default(),
        };
        Entry { head, after: Contents::default(), number, bytes: 0, shards: None }
    }

    fn targets(words: &[&str]) -> Result<Vec<(u64, String)>> {
        let entries = [entry("a", 1), entry("a=b", 2), entry("c", 4)];
        let words: Vec<_> = words.iter().map(OsString::from).collect();
        let chosen = choose(&entries, &words, None, "file")?;
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

    #[test]
    fn a_key_is_restored_from_each_database_or_all_to_one() {
        let mut entries = [entry("a", 1), entry("a", 2), entry("b", 3)];
        entries[1].head.database = 3;
        let targets = |words: &[&str], database| {
            let words: Vec<_> = words.iter().map(OsString::from).collect();
            let chosen = choose(&entries, &words, database, "file")?;
            Ok(chosen.into_iter().map(|chosen| (chosen.database, shown(chosen.target))).collect::<Vec<_>>())
        };
        let named = |result: Result<Vec<(u32, String)>>| result.unwrap();
        assert_eq!(named(targets(&["a=c"], None)), [(0, "c".to_owned()), (3, "c".to_owned())]);
        assert_eq!(named(targets(&["b"], Some(5))), [(5, "b".to_owned())]);
        let error = targets(&[], Some(3)).unwrap_err().to_string();
        assert!(error.contains("two filters would be restored to the key `a` in database 3"), "{error}");
    }

    #[test]
    fn a_temporary_name_has_the_slot_of_its_key() {
        let keys: [&[u8]; 12] =
            [b"seen", b"", b"{", b"}", b"{}", b"{}a", b"a{b}c", b"{a}", b"a}b", b"a{b", b"{{a}}", b"\xff\0{\r\n"];
        for key in keys {
            let name = beside(key);
            assert_eq!(slot(&name), slot(key), "{}", key.escape_ascii());
            assert!(name.ends_with(b":restoring") && name != key);
        }
        assert_eq!(beside(b"seen"), b"{seen}:restoring");
        assert_eq!(beside(b"a{b}c"), b"a{b}c:restoring");
    }
}
