//! `bloomgate survey`: lists the filters of a server before a migration, and the keys of modules that bloomgate cannot load.
//! With a second server it compares the filters of both after the migration.

mod comparison;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Result, bail};
use indicatif::{BinaryBytes, HumanCount};
use redis::{cmd, from_redis_value};
use serde_json::{Value, json};

use crate::keys::{for_each_key, is_filter, types};
use crate::names::{counted, escaped, in_database};
use crate::report::{print, some};
use crate::server::{Options, Server, shown, usage};
use comparison::Comparison;

/// The maximum number of differing filters that are named.
const DIFFERENCES_SHOWN: usize = 20;

const NOTES: &str = "\
All databases are searched, unless -n or the URL names one. With --beside, name a database of both servers or of neither.

Filters are equal if their type, capacity, layers and items are equal, both or neither expire, and every byte of BF.SCANDUMP or
CF.SCANDUMP is equal, or of DUMP for valkey-bloom's layout and empty cuckoo filters. Both servers send all filters, in records
of at most 16 MiB. A filter that is written during that time cannot be compared: see CLIENT PAUSE.

Exits with status 1 if there are keys that bloomgate cannot load, or if the two servers differ in a filter.";

/// List the filters of a server and the keys that bloomgate cannot load, or compare two servers
#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub struct Arguments {
    /// Another server, whose filters are compared with these: redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]
    #[arg(long, value_name = "URL")]
    beside: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The way in which a type of keys migrates.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// A filter, which bloomgate loads as it is.
    Filter,
    /// Another module's value: a snapshot that holds one does not load without that module.
    Foreign,
    /// A built-in type.
    Plain,
}

fn kind(name: &str) -> Kind {
    match name {
        name if is_filter(name) => Kind::Filter,
        "string" | "list" | "set" | "zset" | "hash" | "stream" | "vectorset" | "none" => Kind::Plain,
        _ => Kind::Foreign,
    }
}

/// Returns the description of a type.
fn meaning(name: &str) -> &str {
    match name {
        "bloomgate" => "filters of bloomgate",
        "MBbloom--" => "filters of RedisBloom",
        "bloomfltr" => "filters of valkey-bloom",
        "MBbloomCF" => "cuckoo filters of RedisBloom",
        "CMSk-TYPE" => "RedisBloom's count-min sketches: not supported",
        "TopK-TYPE" => "RedisBloom's top-k lists: not supported",
        "TDIS-TYPE" => "RedisBloom's t-digests: not supported",
        _ => "values of another module",
    }
}

/// The keys of a type in a database.
#[derive(Default)]
struct Found {
    keys: u64,
    bytes: u64,
    /// Their names, if bloomgate cannot load them.
    names: Vec<String>,
}

#[derive(Default)]
struct Survey {
    /// By type and database.
    found: BTreeMap<(String, u32), Found>,
    /// The keys of built-in types in each database.
    plain: BTreeMap<u32, u64>,
    comparison: Option<Comparison>,
}

pub fn run(options: &Options, arguments: &Arguments) -> Result<()> {
    let beside = arguments.beside.as_deref().map(Options::of_url);
    // An invalid URL is refused before the first server is contacted.
    beside.as_ref().map(Options::check).transpose()?;
    let database = options.database()?;
    if let Some(beside) = &beside
        && beside.database()?.is_some() != database.is_some()
    {
        return Err(usage("name a database of both servers, as in redis://HOST:PORT/3, or of neither"));
    }
    let mut server = Server::connect(options)?;
    let mut beside = beside.as_ref().map(Server::connect).transpose()?;
    for server in [Some(&mut server), beside.as_mut()].into_iter().flatten() {
        server.require_command("BF.INFO")?;
    }
    let comparison = beside.map(|beside| Comparison::new(&server, beside, database.is_some()));
    let mut survey = Survey { comparison, ..Survey::default() };
    for database in server.databases()? {
        server.select(database)?;
        survey.plain.insert(database, 0);
        for_each_key(&mut server, None, |server, keys| survey.take(server, keys))?;
    }
    if let Some(comparison) = &mut survey.comparison {
        comparison.finish(&mut server)?;
    }
    print(&if arguments.json { format!("{}\n", survey.json()) } else { survey.table()? })?;
    survey.verdict()
}

impl Survey {
    /// Counts some keys of the selected database, and compares the filters among them.
    fn take(&mut self, server: &mut Server, keys: &[Vec<u8>]) -> Result<()> {
        for (key, name) in keys.iter().zip(types(server, keys)?) {
            let kind = kind(&name);
            if kind == Kind::Plain {
                *self.plain.entry(server.database()).or_default() += 1;
                continue;
            }
            let bytes = server.ask(cmd("MEMORY").arg("USAGE").arg(key), key)?;
            let found = self.found.entry((name, server.database())).or_default();
            found.keys += 1;
            found.bytes += from_redis_value::<Option<u64>>(bytes)?.unwrap_or(0);
            match (kind, &mut self.comparison) {
                (Kind::Filter, Some(comparison)) => comparison.compare(server, key)?,
                (Kind::Filter, None) | (Kind::Plain, _) => {}
                (Kind::Foreign, _) => found.names.push(shown(key)),
            }
        }
        Ok(())
    }

    fn json(&self) -> Value {
        let types = self.found.iter().map(|((name, database), Found { keys, bytes, names })| {
            let loads = kind(name) != Kind::Foreign;
            let names = (!loads).then_some(names);
            json!({ "type": name, "database": database, "loads": loads, "keys": keys, "bytes": bytes, "names": names })
        });
        let compared = self.comparison.as_ref().map(|Comparison { compared, differing, .. }| {
            let differing = differing.iter().map(
                |((database, key), reason)| json!({ "database": database, "key": escaped(key), "difference": reason }),
            );
            json!({ "filters": compared, "differing": differing.collect::<Vec<_>>() })
        });
        json!({
            "databases": self.plain.keys().collect::<Vec<_>>(),
            "types": types.collect::<Vec<_>>(),
            "other_keys": self.plain.values().sum::<u64>(),
            "compared": compared,
        })
    }

    fn table(&self) -> Result<String> {
        let mut text = format!("{:<12} {:>8} {:>12} {:>12}\n", "type", "database", "keys", "memory");
        let mut line = |name: &str, database: u32, keys: u64, memory: &str, meaning: &str| {
            let keys = HumanCount(keys).to_string();
            writeln!(text, "{name:<12} {database:>8} {keys:>12} {memory:>12}   {meaning}")
        };
        for ((name, database), Found { keys, bytes, .. }) in &self.found {
            line(name, *database, *keys, &BinaryBytes(*bytes).to_string(), meaning(name))?;
        }
        for (database, keys) in &self.plain {
            line("other", *database, *keys, "", "keys of built-in types")?;
        }
        for ((name, database), found) in self.found.iter().filter(|((name, _), _)| kind(name) == Kind::Foreign) {
            writeln!(text, "{name}{}: {}", in_database(*database), some(&found.names))?;
        }
        let Some(Comparison { compared, differing, .. }) = &self.comparison else { return Ok(text) };
        let count = HumanCount(differing.len() as u64);
        writeln!(text, "compared {}: {count} differ", counted(*compared, "filter"))?;
        for ((database, key), reason) in differing.iter().take(DIFFERENCES_SHOWN) {
            writeln!(text, "{}{}: {reason}", shown(key), in_database(*database))?;
        }
        if let more @ 1.. = differing.len().saturating_sub(DIFFERENCES_SHOWN) {
            writeln!(text, "and {} more: --json lists them", HumanCount(more as u64))?;
        }
        Ok(text)
    }

    /// Fails if filters differ, or there are keys that cannot be loaded.
    fn verdict(&self) -> Result<()> {
        if let Some(Comparison { differing, .. }) = &self.comparison
            && !differing.is_empty()
        {
            bail!("the two servers differ in {}", counted(differing.len() as u64, "filter"));
        }
        if self.found.keys().any(|(name, _)| kind(name) == Kind::Foreign) {
            bail!(
                "a snapshot with these keys does not load without the module that made them: move or delete them first"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_other_modules_are_distinguished_from_filters_and_built_in_types() {
        for name in ["bloomgate", "MBbloom--", "bloomfltr", "MBbloomCF"] {
            assert!(kind(name) == Kind::Filter);
        }
        for name in ["CMSk-TYPE", "TopK-TYPE", "TDIS-TYPE", "ReJSON-RL"] {
            assert!(kind(name) == Kind::Foreign);
        }
        for name in ["string", "list", "set", "zset", "hash", "stream"] {
            assert!(kind(name) == Kind::Plain);
        }
    }
}
