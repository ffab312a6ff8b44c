//! `bloomgate backup`: writes filters of a server or a cluster to a file, record by record. So no command blocks the server for long, and
//! neither side needs memory for a whole filter.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::{Result, bail, ensure};
use indicatif::{BinaryBytes, HumanCount};
use redis::{Value, from_redis_value};
use serde_json::json;

use crate::archive::catalogue::{Listing, Row};
use crate::archive::file::{Archive, Output};
use crate::archive::{Contents, DUMP_PART_BYTES, Head, ReadMode};
use crate::dump::{self, Absent, Attempt, Part, replies_about};
use crate::keys::{CUCKOO, for_each_key, is_filter, types};
use crate::names::{counted, in_database};
use crate::progress::Bar;
use crate::server::usage;
use crate::server::{Options, Server, shown};
use crate::target::{count_key, parse_shards, shard_keys, sharded_name};

/// The maximum number of attempts to dump a filter that is replaced.
const TRIES: u32 = 5;
/// The pause between attempts, multiplied by their number.
const TRY_INTERVAL: Duration = Duration::from_millis(100);

/// Back up filters to a file for `restore`
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("filters").required(true).args(["keys", "all", "pattern"]))]
#[command(after_help = "\
Examples:
  bloomgate backup seen orders -o filters.bloom
  bloomgate backup --all -o - | ssh elsewhere 'cat > filters.bloom'
  bloomgate backup -p 7000 --match 'seen:*' --compress --verify -o seen.bloom

The name of a sharded filter stands for all its shards.

The file gets its name only when it is complete and synced to the disk. Only its owner can read it, because it
contains the secret keys of filters with HASH siphash.")]
pub struct Arguments {
    /// Keys of filters, or names of sharded filters
    #[arg(value_name = "KEY")]
    keys: Vec<OsString>,
    /// Back up every filter of the server, in all databases unless -n or the URL names one, or of all primaries of the cluster
    #[arg(long)]
    all: bool,
    /// Back up every filter whose key matches this glob pattern, as in SCAN, in the same databases
    #[arg(long = "match", value_name = "PATTERN")]
    pattern: Option<OsString>,
    /// The file to write; `-` is the standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Compress the file with zstd. Full filters hardly shrink
    #[arg(long)]
    compress: bool,
    /// Read the file back and check it before it is renamed to its final name
    #[arg(long)]
    verify: bool,
    /// Write the file even if no filter is found
    #[arg(long)]
    allow_empty: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options, arguments: &Arguments) -> Result<()> {
    let Arguments { output, compress, verify, json, .. } = arguments;
    if *verify && output.as_os_str() == "-" {
        return Err(usage("--verify reads the file back: use -o FILE"));
    }
    let mut server = Server::connect(options)?;
    server.require_command("BF.INFO")?;
    let made_at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_millis();
    let output_file = Output::create(output, *compress, u64::try_from(made_at)?)?;
    let to_stdout = output_file.is_stdout();
    let (mut listing, bytes) = output_file.fill(*verify, |archive| {
        let (listing, done) = (Listing::default(), BTreeSet::new());
        let mut backup = Backup { archive, listing, done, data_bytes: 0, skipped: 0, bar: Bar::new(None) };
        backup.run(&mut server, arguments)?;
        let Backup { mut listing, data_bytes, skipped, bar, .. } = backup;
        bar.finish();
        ensure!(
            arguments.allow_empty || !listing.rows.is_empty(),
            "no filter was found, so no file was written. To write an empty file, use --allow-empty"
        );
        listing.facts = vec![("data_bytes", json!(data_bytes)), ("skipped", json!(skipped))];
        Ok(listing)
    })?;
    let name = if to_stdout { "the standard output".to_owned() } else { output.display().to_string() };
    listing.facts.extend([("file", json!(name)), ("file_bytes", json!(bytes)), ("verified", json!(verify))]);
    let filters = counted(listing.rows.len() as u64, "filter");
    let verified = if *verify { ", verified" } else { "" };
    listing.print(*json, to_stdout, &format!("{filters} in {name}, {}{verified}", BinaryBytes(bytes)))
}

struct Backup<'a, 'b> {
    archive: &'a mut Archive<'b>,
    listing: Listing,
    /// The keys of the selected database that are finished.
    done: BTreeSet<Vec<u8>>,
    data_bytes: u64,
    skipped: u64,
    bar: Bar,
}

impl Backup<'_, '_> {
    fn run(&mut self, server: &mut Server, arguments: &Arguments) -> Result<()> {
        if !arguments.all && arguments.pattern.is_none() {
            for key in arguments.keys.iter().map(|key| key.as_encoded_bytes()) {
                if self.done.insert(key.to_vec()) {
                    self.take_named(server, key)?;
                }
            }
            return Ok(());
        }
        let pattern = arguments.pattern.as_ref().map(|pattern| pattern.as_encoded_bytes());
        for database in server.databases()? {
            server.select(database)?;
            self.done.clear();
            for_each_key(server, pattern, |server, keys| self.take_all_found(server, keys))?;
        }
        Ok(())
    }

    /// Backs up the filters among some keys of a scan.
    fn take_all_found(&mut self, server: &mut Server, keys: &[Vec<u8>]) -> Result<()> {
        for (key, name) in keys.iter().zip(types(server, keys)?) {
            // SCAN may return a key twice, and two nodes may return it while it migrates.
            if is_filter(&name) && self.done.insert(key.clone()) {
                self.take_found(server, key)?;
            } else if name == "string" && sharded_name(key).is_some() && self.done.insert(key.clone()) {
                self.take_sharded_found(server, key)?;
            }
        }
        Ok(())
    }

    fn take_named(&mut self, server: &mut Server, key: &[u8]) -> Result<()> {
        match self.dump(server, key)? {
            Ok(row) => self.listing.rows.push(row),
            Err(Absent::Gone) if self.take_sharded_named(server, &count_key(key))? => {}
            Err(Absent::Gone) => bail!(
                "there is no key `{}`{}, and no sharded filter of that name",
                shown(key),
                in_database(server.database())
            ),
            Err(Absent::NoFilter(name)) => bail!("the key `{}` has type {name}, not a filter", shown(key)),
            Err(absent) => bail!("the filter `{}` {absent}", shown(key)),
        }
        Ok(())
    }

    fn take_found(&mut self, server: &mut Server, key: &[u8]) -> Result<()> {
        match self.dump(server, key)? {
            Ok(row) => self.listing.rows.push(row),
            Err(Absent::Gone | Absent::NoFilter(_)) => {}
            Err(_) => {
                self.skipped += 1;
                let place = in_database(server.database());
                eprintln!("bloomgate: skipped the filter `{}`{place}, which is still being loaded", shown(key));
            }
        }
        Ok(())
    }

    /// Dumps a filter, and starts again if it is replaced during the dump.
    fn dump(&mut self, server: &mut Server, key: &[u8]) -> Result<Attempt<Row>> {
        let mut why = String::new();
        for number in 0..TRIES {
            thread::sleep(TRY_INTERVAL * number);
            let mut head = match dump::begin(server, key)? {
                Err(Absent::Replaced(_)) => continue,
                Err(absent) => return Ok(Err(absent)),
                Ok(head) => head,
            };
            // A cuckoo filter that changed during its dump may change again. One command copies it as it is.
            if head.type_name == CUCKOO && number > 0 {
                head.mode = ReadMode::Dump;
            }
            match self.attempt(server, head)? {
                Ok(row) => return Ok(Ok(row)),
                Err(absent) => why = absent.to_string(),
            }
        }
        bail!("the filter `{}` was replaced {TRIES} times while it was dumped ({why}): try again later", shown(key))
    }

    /// Makes one dump.
    fn attempt(&mut self, server: &mut Server, mut head: Head) -> Result<Attempt<Row>> {
        let is_dump = head.mode == ReadMode::Dump;
        let (mut iterator, mut begun) = (0, false);
        let after = loop {
            let Part { iterator: next, data, contents } = match dump::part(server, &head, iterator)? {
                Ok(part) => part,
                Err(absent) => return self.again(begun, absent),
            };
            if !begun && !data.is_empty() {
                head.kind = kind_of(&head, &data).to_owned();
                self.archive.put(|writer| writer.filter(&head))?;
                begun = true;
            }
            for part in data.chunks(if is_dump { DUMP_PART_BYTES } else { usize::MAX }) {
                self.archive.put(|writer| writer.part(next, part))?;
            }
            self.count(data.len());
            iterator = next;
            if iterator == 0 {
                break contents;
            }
        };
        if !begun || !is_consistent(&head, after) {
            return self.again(begun, Absent::Replaced("it changed".to_owned()));
        }
        self.archive.put(|writer| writer.filter_end(after))?;
        let remark = if after == head.before { "" } else { "changed while it was dumped" };
        let Head { database, key, kind, ttl_ms, .. } = head;
        Ok(Ok(Row { database, key, kind, contents: after, ttl_ms, remark: remark.to_owned() }))
    }

    fn again(&mut self, begun: bool, absent: Absent) -> Result<Attempt<Row>> {
        if begun {
            self.archive.put(|writer| writer.filter_void())?;
        }
        Ok(Err(absent))
    }

    fn count(&mut self, bytes: usize) {
        self.data_bytes += bytes as u64;
        let (filters, bytes) = (HumanCount(self.listing.rows.len() as u64 + 1), self.data_bytes);
        self.bar.set(bytes, || format!("filter {filters}, {}", BinaryBytes(bytes)));
    }
}

/// Whether the parts of a filter that now has these contents are consistent. RedisBloom's records describe the layers that exist when they
/// are read. Adds and deletes move other items of a cuckoo filter, between its layers, too: a moved item may be in no record.
fn is_consistent(head: &Head, after: Contents) -> bool {
    match (head.mode, head.type_name.as_str()) {
        (ReadMode::Records, "MBbloom--") => {
            (after.layers, after.capacity) == (head.before.layers, head.before.capacity)
        }
        (ReadMode::Records, CUCKOO) => after == head.before,
        _ => true,
    }
}

/// Returns the kind of filter that begins with this data.
fn kind_of(head: &Head, first: &[u8]) -> &'static str {
    if head.type_name == CUCKOO {
        return "redisbloom-cuckoo";
    }
    if head.mode == ReadMode::Dump {
        return "valkey-bloom";
    }
    // Later versions may add kinds.
    bloomgate_filter::format::Arrival::kind_of(first).unwrap_or("unknown")
}

// Backs up a sharded filter: its shards like other filters, then the key with the number of shards, so that a restore writes that key last.

impl Backup<'_, '_> {
    /// Backs up the sharded filter whose number of shards is stored at `key`. Returns false if there is no such filter.
    fn take_sharded_named(&mut self, server: &mut Server, key: &[u8]) -> Result<bool> {
        let Some(name) = sharded_name(key) else { return Ok(false) };
        let Some((text, ttl_ms)) = number(server, key)? else { return Ok(false) };
        let Some(shards) = parse_shards(&text) else {
            bail!("the key `{}` holds `{}`, not a number of shards", shown(key), shown(&text));
        };
        match self.take_shards(server, key, name, shards, ttl_ms)? {
            Ok(()) => Ok(true),
            Err(reason) => bail!("the sharded filter `{}` is incomplete: {reason}", shown(name)),
        }
    }

    /// Like [`take_sharded_named`](Self::take_sharded_named), for a string found by a scan: ignores other strings, and reports an
    /// incomplete sharded filter.
    fn take_sharded_found(&mut self, server: &mut Server, key: &[u8]) -> Result<()> {
        let Some(name) = sharded_name(key) else { return Ok(()) };
        let Some((text, ttl_ms)) = number(server, key)? else { return Ok(()) };
        let Some(shards) = parse_shards(&text) else { return Ok(()) };
        if !types(server, &shard_keys(name, 0..shards))?.iter().any(|name| is_filter(name)) {
            return Ok(());
        }
        if let Err(reason) = self.take_shards(server, key, name, shards, ttl_ms)? {
            self.skipped += 1;
            let (key, place) = (shown(key), in_database(server.database()));
            eprintln!("bloomgate: skipped `{key}`{place}, because the sharded filter is incomplete: {reason}");
        }
        Ok(())
    }

    /// Writes the shards that are not in the file yet, then the number of shards. Returns the reason if the filter is incomplete.
    fn take_shards(
        &mut self,
        server: &mut Server,
        key: &[u8],
        name: &[u8],
        shards: u32,
        ttl_ms: Option<u64>,
    ) -> Result<std::result::Result<(), String>> {
        for shard in shard_keys(name, 0..shards) {
            if !self.done.insert(shard.clone()) {
                if !self.listing.rows.iter().any(|row| row.database == server.database() && row.key == shard) {
                    return Ok(Err(format!("its shard `{}` was skipped", shown(&shard))));
                }
                continue;
            }
            match self.dump(server, &shard)? {
                Ok(row) => self.listing.rows.push(row),
                Err(absent) => return Ok(Err(format!("its shard `{}` {absent}", shown(&shard)))),
            }
        }
        let now = number(server, key)?.and_then(|(text, _)| parse_shards(&text));
        if now != Some(shards) {
            return Ok(Err("the number of its shards changed meanwhile".to_owned()));
        }
        let head = Head {
            database: server.database(),
            key: key.to_vec(),
            type_name: "string".to_owned(),
            kind: "shards".to_owned(),
            mode: ReadMode::Shards,
            ttl_ms,
            before: Contents::default(),
        };
        self.archive.put(|writer| writer.filter(&head))?;
        self.archive.put(|writer| writer.part(0, shards.to_string().as_bytes()))?;
        self.archive.put(|writer| writer.filter_end(Contents::default()))?;
        self.listing.sharded.push((name.to_vec(), shards));
        Ok(Ok(()))
    }
}

/// Returns the string under a key and its time to live.
fn number(server: &mut Server, key: &[u8]) -> Result<Option<(Vec<u8>, Option<u64>)>> {
    let mut replies = replies_about(server, key, |commands| {
        commands.cmd("GET").arg(key).cmd("PTTL").arg(key);
    })?;
    let (ttl, text) = (replies.pop().unwrap_or(Value::Nil), replies.pop().unwrap_or(Value::Nil));
    if matches!(&text, Value::ServerError(error) if error.code() == "WRONGTYPE") {
        return Ok(None);
    }
    let text: Option<Vec<u8>> = from_redis_value(server.checked(text, key)?)?;
    let ttl = from_redis_value::<i64>(ttl).ok().and_then(|ttl| u64::try_from(ttl).ok());
    Ok(text.map(|text| (text, ttl)))
}
