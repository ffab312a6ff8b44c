//! `bloomgate restore`: loads filters from a file into a server or a cluster. The whole file is checked before anything is
//! sent. Each filter is loaded under a temporary key, compared with the file, and renamed, so that readers see either the
//! complete filter or the previous one.

mod chosen;
mod loading;
mod place;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use indicatif::{BinaryBytes, HumanCount, HumanDuration};
use redis::{Value, cmd, from_redis_value};
use serde_json::json;

use crate::archive::{Catalogue, Entry, Event, How, Input, Listing, Reader, Row};
use crate::filters::is_filter;
use crate::keys::ask_of_each;
use crate::progress::Bar;
use crate::report::counted;
use crate::server::{Options, Server, shown};
use crate::signals::Signals;
use crate::target::{parse_shards, sharded_name};
use chosen::{Chosen, choose};
use loading::Loading;

/// Keys checked in one batch, and keys named in an error.
const KEYS_AT_ONCE: usize = 500;
const NAMES_SHOWN: usize = 5;

/// Restore filters from a file written by `backup` or `build`
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bloomgate restore filters.bloom
  bloomgate restore filters.bloom --dry-run
  bloomgate restore filters.bloom --key seen --key orders=orders:yesterday
  bloomgate restore -p 7000 --replace filters.bloom

The whole file is checked first. A damaged file changes nothing on the server.")]
pub struct Arguments {
    /// The file to read; `-` is the standard input
    file: PathBuf,
    /// Restore only this filter, or all shards of this sharded filter; `=NEW` renames it. May be repeated
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

/// Runs the subcommand.
pub fn run(options: &Options, arguments: &Arguments) -> Result<()> {
    let mut input = Input::open(&arguments.file)?;
    let name = input.name().to_owned();
    let bar = Bar::new(input.length());
    let checked = Catalogue::of(Counted::new(input.read()?, &bar, "checking"));
    bar.finish();
    let catalogue = checked.with_context(|| name.clone())?;
    let chosen = choose(&catalogue.entries, &arguments.keys, &name)?;
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
    let has_records = chosen.iter().any(|chosen| chosen.entry.head.how == How::Records);
    // An unknown command's error quotes the command's arguments, and these are binary.
    server.require_command(if has_records { "BF.LOADCHUNK" } else { "BF.INFO" })?;
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

/// Checks, before anything is written, that all keys are free or may be replaced.
fn check_targets(server: &mut Server, chosen: &[Chosen<'_>], replace: bool) -> Result<()> {
    let mut existing = Vec::new();
    for some in chosen.chunks(KEYS_AT_ONCE) {
        let keys: Vec<_> =
            some.iter().flat_map(|chosen| [chosen.target.clone(), place::beside(&chosen.target)]).collect();
        for (index, (key, name)) in keys.iter().zip(ask_of_each(server, &["TYPE"], &keys)?).enumerate() {
            let name: String = from_redis_value(name)?;
            let is_temporary = index % 2 == 1;
            if name == "none" {
                continue;
            }
            if let Some(shards) = some.get(index / 2).and_then(|chosen| chosen.entry.shards).filter(|_| !is_temporary) {
                check_shards(server, key, shards)?;
                existing.push(shown(key));
                continue;
            }
            ensure!(
                is_filter(&name),
                "the key `{}` on the server has type {name}, not a filter: it is not replaced",
                shown(key)
            );
            ensure!(
                !is_temporary || replace,
                "the key `{}` is on the server: another restore is going on, or was killed less than {} minutes ago. \
                 Delete it or use --replace",
                shown(key),
                loading::ABANDONED_AFTER.as_secs() / 60
            );
            if !is_temporary {
                existing.push(shown(key));
            }
        }
    }
    if existing.is_empty() || replace {
        return Ok(());
    }
    let more = existing.len().saturating_sub(NAMES_SHOWN);
    let names = existing.iter().take(NAMES_SHOWN).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let more = if more == 0 { String::new() } else { format!(" and {} more", HumanCount(more as u64)) };
    bail!("the server already has {names}{more}: use --replace or --key KEY=NEW")
}

/// Refuses another number of shards than the server has: clients would look for items in the wrong shards.
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
    let empty: Vec<_> = chosen.iter().filter(is_empty).collect();
    for some in empty.chunks(KEYS_AT_ONCE) {
        let keys: Vec<_> = some.iter().map(|chosen| chosen.target.clone()).collect();
        for (key, items) in keys.iter().zip(ask_of_each(server, &["BF.CARD"], &keys)?) {
            let items: u64 = from_redis_value(items)?;
            ensure!(
                items == 0,
                "`{}` is empty in the file and has {} on the server: it is not replaced. \
                 If this is intended, use --allow-empty",
                shown(key),
                HumanCount(items)
            );
        }
    }
    Ok(())
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
                        let restored = match chosen.entry.shards {
                            Some(shards) => self.set_shards(chosen, shards),
                            None => self.load(&mut reader, chosen),
                        };
                        restored.with_context(|| format!("cannot restore `{}`", shown(&chosen.target)))?;
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

    /// Loads a filter. If that fails, nothing is left of it.
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

/// A reader that advances a progress bar.
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
