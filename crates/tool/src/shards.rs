//! `bloomgate shards`: creates, shows, doubles, merges, copies and deletes sharded filters. `dedup`, `load` and other clients
//! fill them. [`crate::target`] describes their keys.

use anyhow::{Context, Error, Result, bail, ensure};
use bloomgate_client::sharding::{MOST_SHARDS, shard_capacity};
use indicatif::{BinaryBytes, HumanCount};
use redis::{Value, cmd, from_redis_value};
use serde_json::json;

use crate::archive::Contents;
use crate::exit::{Interrupted, Signals};
use crate::keys::contents;
use crate::names::counted;
use crate::numbers;
use crate::progress::Bar;
use crate::report::{percent, print};
use crate::server::{Address, Options, Server, shown};
use crate::target::{Target, count_key, shard_keys, shards_of};

/// Manage filters that are sharded across the nodes of a cluster
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    command: ShardsCommand,
}

const EXAMPLES: &str = "\
Examples:
  bloomgate shards -p 7000 create seen 0.01 10000000000 --shards 48
  bloomgate dedup -p 7000 --key seen --shards < links > new-links
  bloomgate shards -p 7000 info seen
  bloomgate backup -p 7000 seen -o seen.bloom

An item belongs to the shard `NAME:{i}`, where i is the CRC-32 of the item modulo the number of shards.";

#[derive(clap::Subcommand)]
enum ShardsCommand {
    /// Create a sharded filter
    Create(Create),
    /// Show the shards with their nodes, items and memory
    Info {
        /// The filter
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Double the number of shards by copying each one. Fails and undoes its work if items are added during the run
    Double {
        /// The filter
        name: String,
    },
    /// Merge other filters into one, shard by shard (BF.MERGE). Creates the destination if it is missing
    Merge {
        /// The name of the filter that receives the items
        destination: String,
        /// The filters to merge into it, with the same number of shards
        #[arg(required = true)]
        sources: Vec<String>,
    },
    /// Copy a filter to another server or cluster. Items added during the copy may be missing from it
    Copy {
        /// The filter
        name: String,
        /// The other server: redis://[[USER]:PASSWORD@]HOST[:PORT]
        #[arg(long, value_name = "URL")]
        to: String,
        /// The name of the copy [default: the same]
        #[arg(long)]
        rename: Option<String>,
    },
    /// Delete a filter with all its shards
    Delete {
        /// The filter
        name: String,
    },
}

#[derive(clap::Args)]
struct Create {
    /// The filter
    name: String,
    /// The false positive rate
    #[arg(value_parser = numbers::rate)]
    rate: f64,
    /// The capacity of all shards together
    #[arg(value_parser = numbers::capacity)]
    capacity: u64,
    /// The number of shards. Choose several per node, so that nodes added later can take some
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_SHARDS)))]
    shards: u32,
    /// More options of BF.RESERVE, as in `-- NONSCALING HASH siphash`
    #[arg(last = true)]
    words: Vec<String>,
}

pub fn run(options: &Options, arguments: &Arguments) -> Result<()> {
    let mut server = Server::connect(options)?;
    match &arguments.command {
        ShardsCommand::Create(create) => create.run(&mut server),
        ShardsCommand::Info { name, json } => info(&mut server, name, *json),
        ShardsCommand::Double { name } => double(&mut server, name),
        ShardsCommand::Merge { destination, sources } => merge(&mut server, destination, sources),
        ShardsCommand::Copy { name, to, rename } => {
            let mut to = Server::connect(&Options::of_url(to))?;
            copy(&mut server, name, &mut to, rename.as_ref().unwrap_or(name))
        }
        ShardsCommand::Delete { name } => delete(&mut server, name),
    }
}

impl Create {
    fn run(&self, server: &mut Server) -> Result<()> {
        let Self { name, rate, capacity, shards, words } = self;
        let capacity = shard_capacity(*capacity, *shards);
        if words.is_empty() {
            numbers::report_clamped_rate(*rate, numbers::clamp_rate(*rate));
        }
        let signals = Signals::catch()?;
        claim(server, name, *shards)?;
        let reserve =
            |key: &Vec<u8>| (key.clone(), cmd("BF.RESERVE").arg(key).arg(rate).arg(capacity).arg(words).to_owned());
        made_or_undone(server, name, *shards, &signals, |server, keys| {
            server.ask_many(&keys.iter().map(reserve).collect::<Vec<_>>()).map(drop)
        })?;
        say(&format!(
            "created {name}: {} with a capacity of {} each",
            counted((*shards).into(), "shard"),
            counted(capacity, "item")
        ))?;
        Ok(())
    }
}

/// Writes the number of shards first, so that no other client creates the filter.
fn claim(server: &mut Server, name: &str, shards: u32) -> Result<()> {
    let key = count_key(name);
    let reply = server.ask(cmd("SET").arg(&key).arg(shards).arg("NX"), &key)?;
    ensure!(reply != Value::Nil, "the sharded filter `{name}` already exists");
    Ok(())
}

/// Creates the shards of a claimed filter. If that fails or a signal arrives, deletes the claim and the created shards, and keeps keys that
/// existed before.
fn made_or_undone(
    server: &mut Server,
    name: &str,
    shards: u32,
    signals: &Signals,
    make: impl FnOnce(&mut Server, &[Vec<u8>]) -> Result<()>,
) -> Result<()> {
    let keys = shard_keys(name, 0..shards);
    let claim_key = count_key(name);
    let existing = existing_of(server, &keys)?;
    if let Some(key) = existing.first() {
        server.ask(cmd("DEL").arg(&claim_key), &claim_key)?;
        bail!("the key `{}` already exists", shown(key));
    }
    let made = make(server, &keys).and_then(|()| Ok(signals.check()?));
    if made.is_err() {
        server.replies_of_each(&["UNLINK"], &keys)?;
        server.ask(cmd("DEL").arg(&claim_key), &claim_key)?;
    }
    made.map_err(explained)
}

/// Adds to the error of an interruption what remains on the server.
fn explained(error: Error) -> Error {
    if error.is::<Interrupted>() { error.context("what was done is undone") } else { error }
}

fn existing_of(server: &mut Server, keys: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
    let replies = server.ask_of_each(&["EXISTS"], keys)?;
    Ok(keys.iter().zip(replies).filter(|(_, reply)| *reply != Value::Int(0)).map(|(key, _)| key.clone()).collect())
}

/// The figures of a shard.
struct Shard {
    node: Address,
    contents: Contents,
}

fn info(server: &mut Server, name: &str, is_json: bool) -> Result<()> {
    let keys = Target::open(server, name, true)?.keys();
    let infos = server.ask_of_each(&["BF.INFO"], &keys)?;
    let memory = server.ask_of_each(&["MEMORY", "USAGE"], &keys)?;
    let mut shards = Vec::with_capacity(keys.len());
    for ((key, info), memory) in keys.iter().zip(infos).zip(memory) {
        let bytes = from_redis_value::<Option<u64>>(memory)?.unwrap_or_default();
        shards.push(Shard {
            node: server.node_of_key(key)?,
            contents: Contents { bytes, ..contents("bloomgate", &info)? },
        });
    }
    if is_json { say(&as_json(name, &shards).to_string()) } else { say(&table(&shards)) }
}

fn as_json(name: &str, shards: &[Shard]) -> serde_json::Value {
    let rows = shards.iter().zip(0..).map(|(shard, number): (_, u32)| {
        let Shard { node, contents: Contents { items, capacity, layers, bytes, .. } } = shard;
        json!({"shard": number, "node": node, "items": items, "capacity": capacity, "layers": layers, "bytes": bytes})
    });
    json!({"name": name, "shards": rows.collect::<Vec<_>>()})
}

fn table(shards: &[Shard]) -> String {
    let row = |names: [&str; 6]| {
        let [shard, node, items, fill, layers, memory] = names;
        format!("{shard:>6}  {node:<22} {items:>15} {fill:>7} {layers:>7} {memory:>12}")
    };
    let mut lines = vec![row(["shard", "node", "items", "full", "layers", "memory"])];
    let mut line = |name: &str, node: &str, contents: Contents| {
        let full = percent(contents.items as f64 / contents.capacity.max(1) as f64);
        let (items, memory) = (HumanCount(contents.items).to_string(), BinaryBytes(contents.bytes).to_string());
        lines.push(row([name, node, &items, &full, &contents.layers.to_string(), &memory]));
    };
    let mut all = Contents::default();
    for (number, Shard { node, contents }) in shards.iter().enumerate() {
        line(&number.to_string(), node, *contents);
        all.capacity += contents.capacity;
        all.layers = all.layers.max(contents.layers);
        all.items += contents.items;
        all.bytes += contents.bytes;
    }
    line("all", "", all);
    lines.join("\n")
}

fn say(text: &str) -> Result<()> {
    print(&format!("{text}\n"))?;
    Ok(())
}

fn double(server: &mut Server, name: &str) -> Result<()> {
    let keys = Target::open(server, name, true)?.keys();
    let shards = u32::try_from(keys.len())?;
    let doubled = shards.checked_mul(2).filter(|shards| *shards <= MOST_SHARDS);
    let doubled = doubled
        .with_context(|| format!("{name} has {}, and the maximum is {MOST_SHARDS}", counted(shards.into(), "shard")))?;
    let new_keys = shard_keys(name, shards..doubled);
    if let Some(key) = existing_of(server, &new_keys)?.first() {
        bail!("the key `{}` already exists", shown(key));
    }
    let before = server.ask_of_each(&["BF.CARD"], &keys)?;
    let signals = Signals::catch()?;
    let mut double = || -> Result<()> {
        let bar = Bar::new(Some(u64::from(shards)));
        for (number, (key, new_key)) in (0..).zip(keys.iter().zip(&new_keys)) {
            bar.set(number, || format!("shard {number}"));
            transfer(server, key, None, new_key, &signals)?;
        }
        ensure!(
            server.ask_of_each(&["BF.CARD"], &keys)? == before,
            "items were added to {name} in the meantime: stop all writers before doubling it"
        );
        Ok(())
    };
    let result = double();
    if result.is_err() {
        server.replies_of_each(&["UNLINK"], &new_keys)?;
        return result.map_err(explained);
    }
    let key = count_key(name);
    server.ask(cmd("SET").arg(&key).arg(doubled), &key)?;
    say(&format!("{name} has {doubled} shards"))
}

fn merge(server: &mut Server, destination: &str, sources: &[String]) -> Result<()> {
    let sources: Vec<Vec<Vec<u8>>> =
        sources.iter().map(|name| Ok(Target::open(server, name, true)?.keys())).collect::<Result<_>>()?;
    let shards = sources.first().map_or(0, Vec::len);
    ensure!(sources.iter().all(|keys| keys.len() == shards), "the filters have different numbers of shards");
    let merge = |server: &mut Server, keys: &[Vec<u8>]| {
        let of_shard = |(number, key): (usize, &Vec<u8>)| {
            let mut command = cmd("BF.MERGE").arg(key).to_owned();
            sources.iter().filter_map(|keys| keys.get(number)).for_each(|source| _ = command.arg(source));
            (key.clone(), command)
        };
        server.ask_many(&keys.iter().enumerate().map(of_shard).collect::<Vec<_>>()).map(drop)
    };
    let key = count_key(destination);
    if server.ask(cmd("EXISTS").arg(&key), &key)? == Value::Int(0) {
        let signals = Signals::catch()?;
        claim(server, destination, u32::try_from(shards)?)?;
        made_or_undone(server, destination, u32::try_from(shards)?, &signals, merge)?;
    } else {
        let keys = Target::open(server, destination, true)?.keys();
        ensure!(
            keys.len() == shards,
            "{destination} has {}, the other filters have {shards}",
            counted(keys.len() as u64, "shard")
        );
        merge(server, &keys).context("some shards may not be merged: run the same command again")?;
    }
    say(&format!("merged into {destination}: {}", counted(shards as u64, "shard")))
}

fn copy(server: &mut Server, name: &str, to: &mut Server, rename: &str) -> Result<()> {
    let keys = Target::open(server, name, true)?.keys();
    let shards = u32::try_from(keys.len())?;
    let signals = Signals::catch()?;
    claim(to, rename, shards)?;
    made_or_undone(to, rename, shards, &signals, |to, new_keys| {
        let bar = Bar::new(Some(u64::from(shards)));
        for (number, (key, new_key)) in (0..).zip(keys.iter().zip(new_keys)) {
            bar.set(number, || format!("shard {number}"));
            transfer(server, key, Some(to), new_key, &signals)?;
        }
        Ok(())
    })?;
    say(&format!("copied {name}: {}", counted(shards.into(), "shard")))
}

/// Copies a filter chunk by chunk to another key of the same or another server, until a signal arrives.
fn transfer(
    from: &mut Server,
    key: &[u8],
    mut to: Option<&mut Server>,
    new_key: &[u8],
    signals: &Signals,
) -> Result<()> {
    let mut iterator = 0_i64;
    loop {
        signals.check()?;
        let reply = from.ask(cmd("BF.SCANDUMP").arg(key).arg(iterator), key)?;
        let (next, data): (i64, Vec<u8>) = from_redis_value(reply)?;
        if next == 0 {
            return Ok(());
        }
        let load = cmd("BF.LOADCHUNK").arg(new_key).arg(next).arg(data).to_owned();
        to.as_deref_mut().unwrap_or(from).ask(&load, new_key)?;
        iterator = next;
    }
}

fn delete(server: &mut Server, name: &str) -> Result<()> {
    let keys = shard_keys(name, 0..shards_of(server, name)?);
    // The number of shards is deleted last, so that an interrupted deletion can be repeated.
    server.replies_of_each(&["UNLINK"], &keys)?;
    let key = count_key(name);
    server.ask(cmd("DEL").arg(&key), &key)?;
    say(&format!("deleted {name}: {}", counted(keys.len() as u64, "shard")))
}
