//! `bloomgate backup`: writes filters of a server or a cluster to a file, record by record, so that no command blocks the
//! server and neither side needs memory for a whole filter.

mod parts;
mod sharded;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::{Result, bail, ensure};
use indicatif::{BinaryBytes, HumanCount};
use redis::{Value, from_redis_value};
use serde_json::json;

use crate::archive::{Archive, DUMP_PART_BYTES, Head, How, Listing, Output, Row};
use crate::filters::{contents, is_filter};
use crate::keys::{ask_of_each, for_each_key_like};
use crate::progress::Bar;
use crate::report::counted;
use crate::server::{Options, Server, shown};
use crate::target::{count_key, sharded_name};
use crate::usage::usage;
use parts::{FilterReply, Next, Parts, classify, replies_about};

/// How often the dump of a changed filter is started.
const TRIES: u32 = 5;
/// The pause between attempts, multiplied by their number.
const TRY_INTERVAL: Duration = Duration::from_millis(100);

/// Back up filters to a file for `restore`
#[derive(clap::Args)]
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
    #[arg(value_name = "KEY", required_unless_present_any = ["all", "pattern"], conflicts_with_all = ["all", "pattern"])]
    keys: Vec<OsString>,
    /// Back up every filter of the server, or of all primaries of the cluster
    #[arg(long, conflicts_with = "pattern")]
    all: bool,
    /// Back up every filter whose key matches this glob pattern, as in SCAN
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

/// The result of a key's dump.
enum Dumped {
    Written(Row),
    /// The key does not exist, or no longer.
    Gone,
    /// A value of another type.
    NoFilter(String),
    /// A filter that is still being loaded.
    Loading,
}

/// Runs the subcommand.
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
    /// The keys that are done.
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
        for_each_key_like(server, pattern, |server, keys| {
            for (key, name) in keys.iter().zip(ask_of_each(server, &["TYPE"], keys)?) {
                let name: String = from_redis_value(name)?;
                // A key may come twice, and from two nodes while it migrates.
                if is_filter(&name) && self.done.insert(key.clone()) {
                    self.take_found(server, key)?;
                } else if name == "string" && sharded_name(key).is_some() && self.done.insert(key.clone()) {
                    self.take_sharded_found(server, key)?;
                }
            }
            Ok(())
        })
    }

    fn take_named(&mut self, server: &mut Server, key: &[u8]) -> Result<()> {
        match self.dump(server, key)? {
            Dumped::Written(row) => self.listing.rows.push(row),
            Dumped::Gone if self.take_sharded_named(server, &count_key(key))? => {}
            Dumped::Gone => bail!("there is no key `{}`, and no sharded filter of that name", shown(key)),
            Dumped::NoFilter(name) => bail!("the key `{}` has type {name}, not a filter", shown(key)),
            Dumped::Loading => bail!("the filter `{}` is still being loaded", shown(key)),
        }
        Ok(())
    }

    fn take_found(&mut self, server: &mut Server, key: &[u8]) -> Result<()> {
        match self.dump(server, key)? {
            Dumped::Written(row) => self.listing.rows.push(row),
            Dumped::Gone | Dumped::NoFilter(_) => {}
            Dumped::Loading => {
                self.skipped += 1;
                eprintln!("bloomgate: skipped the filter `{}`, which is still being loaded", shown(key));
            }
        }
        Ok(())
    }

    /// Dumps a filter, and starts again if it is replaced meanwhile.
    fn dump(&mut self, server: &mut Server, key: &[u8]) -> Result<Dumped> {
        let mut why = String::new();
        for number in 0..TRIES {
            thread::sleep(TRY_INTERVAL * number);
            let mut first = replies_about(server, key, |commands| {
                commands.cmd("TYPE").arg(key).cmd("PTTL").arg(key).cmd("BF.INFO").arg(key);
            })?;
            let (info, ttl, type_name) = (first.pop(), first.pop(), first.pop());
            let type_name: String = from_redis_value(type_name.unwrap_or(Value::Nil))?;
            if type_name == "none" {
                return Ok(Dumped::Gone);
            }
            if !is_filter(&type_name) {
                return Ok(Dumped::NoFilter(type_name));
            }
            let before = match classify(server, info, key)? {
                FilterReply::Value(info) => contents(&info)?,
                FilterReply::Loading => return Ok(Dumped::Loading),
                FilterReply::Replaced(_) => continue,
            };
            let ttl_ms = u64::try_from(from_redis_value::<i64>(ttl.unwrap_or(Value::Nil))?).ok();
            let head = Head {
                key: key.to_vec(),
                how: if type_name == "bloomfltr" { How::Dump } else { How::Records },
                kind: String::new(),
                type_name,
                ttl_ms,
                before,
            };
            match self.attempt(server, head)? {
                Ok(row) => return Ok(Dumped::Written(row)),
                Err(reason) => why = reason,
            }
        }
        bail!("the filter `{}` was replaced {TRIES} times while it was dumped ({why}): try again later", shown(key))
    }

    /// Makes one dump. Returns why it must start again, if it must.
    fn attempt(&mut self, server: &mut Server, mut head: Head) -> Result<std::result::Result<Row, String>> {
        let key = head.key.clone();
        let mut parts = if head.how == How::Dump { Parts::dump(&key, head.before)? } else { Parts::records(&key) };
        let (mut after, mut begun) = (head.before, false);
        loop {
            match parts.next(server)? {
                Next::Part(iterator, data, info) => {
                    if !begun {
                        head.kind = kind_of(&head, &data).to_owned();
                        self.archive.put(|writer| writer.filter(&head))?;
                        begun = true;
                    }
                    after = info.unwrap_or(after);
                    for part in
                        if head.how == How::Dump { data.chunks(DUMP_PART_BYTES) } else { data.chunks(usize::MAX) }
                    {
                        self.archive.put(|writer| writer.part(iterator, part))?;
                    }
                    self.count(data.len());
                }
                Next::End(info) => {
                    after = info.unwrap_or(after);
                    break;
                }
                Next::Again(reason) => return self.again(begun, reason),
            }
        }
        // RedisBloom's records are of the layers that there are: of one more they would not fit together.
        if !begun
            || head.type_name == "MBbloom--"
                && (after.layers, after.capacity) != (head.before.layers, head.before.capacity)
        {
            return self.again(begun, "it grew".to_owned());
        }
        self.archive.put(|writer| writer.filter_end(after))?;
        let remark = if after == head.before { "" } else { "changed while it was dumped" };
        Ok(Ok(Row { key, kind: head.kind, contents: after, ttl_ms: head.ttl_ms, remark: remark.to_owned() }))
    }

    fn again(&mut self, begun: bool, reason: String) -> Result<std::result::Result<Row, String>> {
        if begun {
            self.archive.put(|writer| writer.filter_void())?;
        }
        Ok(Err(reason))
    }

    fn count(&mut self, bytes: usize) {
        self.data_bytes += bytes as u64;
        let (filters, bytes) = (HumanCount(self.listing.rows.len() as u64 + 1), self.data_bytes);
        self.bar.set(bytes, || format!("filter {filters}, {}", BinaryBytes(bytes)));
    }
}

/// Returns the kind of filter that begins with this data.
fn kind_of(head: &Head, first: &[u8]) -> &'static str {
    if head.how == How::Dump {
        return "valkey-bloom";
    }
    // A later version may have unknown kinds.
    bloomgate_filter::format::Arrival::kind_of(first).unwrap_or("unknown")
}
