//! `bloomgate survey`: lists the filters of a server before a migration, and the keys of modules that bloomgate cannot load.
//! With a second server it compares the filters of both after the migration.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Result, bail};
use indicatif::{BinaryBytes, HumanCount};
use redis::{cmd, from_redis_value};
use serde_json::json;

use crate::archive::Contents;
use crate::keys::{ask_of_each, contents, for_each_key, is_filter};
use crate::names::counted;
use crate::report::print;
use crate::server::{Options, Server, shown};

/// The number of keys that are named for each unsupported type, and of filters that differ.
const NAMES_SHOWN: usize = 5;

/// List the filters of a server and the keys that bloomgate cannot load, or compare two servers
#[derive(clap::Args)]
pub struct Arguments {
    /// Another server to compare with: redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]
    #[arg(long, value_name = "URL")]
    beside: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How a type of keys migrates.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// A filter: it loads in place.
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
        "MBbloomCF" => "RedisBloom's cuckoo filters: not supported",
        "CMSk-TYPE" => "RedisBloom's count-min sketches: not supported",
        "TopK-TYPE" => "RedisBloom's top-k lists: not supported",
        "TDIS-TYPE" => "RedisBloom's t-digests: not supported",
        _ => "values of another module",
    }
}

/// The keys of a type.
#[derive(Default)]
struct Found {
    keys: u64,
    bytes: u64,
    names: Vec<String>,
}

pub fn run(options: &Options, arguments: &Arguments) -> Result<()> {
    let beside = arguments.beside.as_deref().map(Options::of_url);
    // An invalid URL is refused before the first server is contacted.
    beside.as_ref().map(Options::client).transpose()?;
    let mut server = Server::connect(options)?;
    let mut beside = beside.as_ref().map(Server::connect).transpose()?;
    for server in [Some(&mut server), beside.as_mut()].into_iter().flatten() {
        server.require_command("BF.INFO")?;
    }
    let mut found: BTreeMap<String, Found> = BTreeMap::new();
    let (mut plain, mut compared, mut differing) = (0u64, 0u64, Vec::new());
    for_each_key(&mut server, None, |server, keys| {
        for (key, name) in keys.iter().zip(ask_of_each(server, &["TYPE"], keys)?) {
            let name: String = from_redis_value(name)?;
            if kind(&name) == Kind::Plain {
                plain += 1;
                continue;
            }
            let bytes = server.ask(cmd("MEMORY").arg("USAGE").arg(key), key)?;
            if kind(&name) == Kind::Filter
                && let Some(beside) = &mut beside
            {
                compared += 1;
                if fields(server, key)? != fields(beside, key)? {
                    differing.push(shown(key));
                }
            }
            let found = found.entry(name).or_default();
            found.keys += 1;
            found.bytes += from_redis_value::<Option<u64>>(bytes)?.unwrap_or(0);
            found.names.push(shown(key));
        }
        Ok(())
    })?;

    if arguments.json {
        let types = found.iter().map(|(name, Found { keys, bytes, names })| {
            let loads = kind(name) == Kind::Filter;
            json!({ "type": name, "loads": loads, "keys": keys, "bytes": bytes, "names": (!loads).then_some(names) })
        });
        let compared = beside.is_some().then(|| json!({ "filters": compared, "differing": differing }));
        let json = json!({ "types": types.collect::<Vec<_>>(), "other_keys": plain, "compared": compared });
        print(&format!("{json}\n"))?;
        return verdict(&found, &differing);
    }
    let mut text = format!("{:<12} {:>12} {:>12}\n", "type", "keys", "memory");
    for (name, Found { keys, bytes, .. }) in &found {
        let bytes = BinaryBytes(*bytes).to_string();
        writeln!(text, "{name:<12} {:>12} {bytes:>12}   {}", HumanCount(*keys).to_string(), meaning(name))?;
    }
    let others = HumanCount(plain).to_string();
    writeln!(text, "{:<12} {others:>12} {:>12}   keys of built-in types", "other", "")?;
    let foreign: Vec<_> = found.iter().filter(|(name, _)| kind(name) == Kind::Foreign).collect();
    for (name, found) in &foreign {
        writeln!(text, "{name}: {}", some(&found.names))?;
    }
    if beside.is_some() {
        let differing = HumanCount(differing.len() as u64);
        writeln!(text, "compared {}: {differing} differ", counted(compared, "filter"))?;
    }
    print(&text)?;
    verdict(&found, &differing)
}

/// Fails if filters differ, or there are keys that cannot be loaded.
fn verdict(found: &BTreeMap<String, Found>, differing: &[String]) -> Result<()> {
    if !differing.is_empty() {
        bail!("these filters differ: {}", some(differing));
    }
    if found.keys().any(|name| kind(name) == Kind::Foreign) {
        bail!("a snapshot with these keys does not load without the module that made them: move or delete them first");
    }
    Ok(())
}

/// Returns the figures that must be equal on both servers: capacity, layers, items.
fn fields(server: &mut Server, key: &[u8]) -> Result<Option<[u64; 3]>> {
    let Ok(info) = server.ask(cmd("BF.INFO").arg(key), key) else { return Ok(None) };
    let Contents { capacity, layers, items, .. } = contents(&info)?;
    Ok(Some([capacity, layers, items]))
}

fn some(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMES_SHOWN);
    let first = names.iter().take(NAMES_SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    if more == 0 { first } else { format!("{first} and {} more", HumanCount(more as u64)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_other_modules_are_distinguished_from_filters_and_built_in_types() {
        for name in ["bloomgate", "MBbloom--", "bloomfltr"] {
            assert!(kind(name) == Kind::Filter);
        }
        for name in ["MBbloomCF", "CMSk-TYPE", "TopK-TYPE", "TDIS-TYPE", "ReJSON-RL"] {
            assert!(kind(name) == Kind::Foreign);
        }
        for name in ["string", "list", "set", "zset", "hash", "stream"] {
            assert!(kind(name) == Kind::Plain);
        }
    }

    #[test]
    fn many_names_are_cut_short() {
        let names: Vec<_> = (0..7).map(|number| format!("k{number}")).collect();
        assert_eq!(some(&names[..2]), "k0, k1");
        assert_eq!(some(&names), "k0, k1, k2, k3, k4 and 2 more");
    }
}
