//! `bloomgate survey`: looks through the keys of a server before its data moves: which filters there are, and which keys
//! of modules bloomgate does not read. Beside a second server it compares the filters of both, after the move.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use indicatif::{BinaryBytes, HumanCount};
use redis::{Cmd, Pipeline, Value, cmd, from_redis_value};

use crate::connection::Server;

/// Keys asked for at once: few enough that no other client waits.
const KEYS_AT_ONCE: usize = 500;
/// Names of keys that are shown for each type that stays behind, and of filters that differ.
const NAMES_SHOWN: usize = 5;

/// List the filters of a server, and the keys that bloomgate cannot load; compare the filters of two servers
#[derive(clap::Args)]
pub struct Arguments {
    /// The server: redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]. It is only read
    #[arg(long, default_value = "redis://127.0.0.1:6379")]
    url: String,
    /// Another server that should have the same filters
    #[arg(long)]
    beside: Option<String>,
}

/// What a type of keys is to a move.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// A filter: it loads in place.
    Filter,
    /// Another module's value: a snapshot that holds one does not load without that module.
    Foreign,
    /// The server's own.
    Plain,
}

fn kind(name: &str) -> Kind {
    match name {
        "bloomgate" | "MBbloom--" | "bloomfltr" => Kind::Filter,
        "string" | "list" | "set" | "zset" | "hash" | "stream" | "vectorset" | "none" => Kind::Plain,
        _ => Kind::Foreign,
    }
}

/// What a type is called by people.
fn meaning(name: &str) -> &str {
    match name {
        "bloomgate" => "filters of bloomgate",
        "MBbloom--" => "filters of RedisBloom",
        "bloomfltr" => "filters of valkey-bloom",
        "MBbloomCF" => "RedisBloom's cuckoo filters: they stay behind",
        "CMSk-TYPE" => "RedisBloom's count-min sketches: they stay behind",
        "TopK-TYPE" => "RedisBloom's top-k lists: they stay behind",
        "TDIS-TYPE" => "RedisBloom's t-digests: they stay behind",
        _ => "values of another module: they need it",
    }
}

/// What was found of a type.
#[derive(Default)]
struct Found {
    keys: u64,
    bytes: u64,
    names: Vec<String>,
}

/// Runs the subcommand.
pub fn run(arguments: &Arguments) -> Result<()> {
    let mut server = Server::connect(&arguments.url)?;
    let mut beside = arguments.beside.as_deref().map(Server::connect).transpose()?;
    let mut found: BTreeMap<String, Found> = BTreeMap::new();
    let (mut plain, mut compared, mut differing) = (0u64, 0u64, Vec::new());
    let mut cursor = b"0".to_vec();
    loop {
        let scan = cmd("SCAN").arg(&cursor).arg("COUNT").arg(KEYS_AT_ONCE).to_owned();
        let (next, keys): (Vec<u8>, Vec<Vec<u8>>) = from_redis_value(server.ask(&scan, "")?)?;
        for (key, name) in keys.iter().zip(ask_of_each(&mut server, &["TYPE"], &keys)?) {
            let name: String = from_redis_value(name)?;
            if kind(&name) == Kind::Plain {
                plain += 1;
                continue;
            }
            let bytes = server.ask(cmd("MEMORY").arg("USAGE").arg(key), &shown(key))?;
            if kind(&name) == Kind::Filter
                && let Some(beside) = &mut beside
            {
                compared += 1;
                if fields(&mut server, key)? != fields(beside, key)? {
                    differing.push(shown(key));
                }
            }
            let found = found.entry(name).or_default();
            found.keys += 1;
            found.bytes += from_redis_value::<Option<u64>>(bytes)?.unwrap_or(0);
            found.names.push(shown(key));
        }
        cursor = next;
        if cursor == b"0" {
            break;
        }
    }

    println!("{:<12} {:>12} {:>12}", "type", "keys", "memory");
    for (name, Found { keys, bytes, .. }) in &found {
        let bytes = BinaryBytes(*bytes).to_string();
        println!("{name:<12} {:>12} {bytes:>12}   {}", HumanCount(*keys).to_string(), meaning(name));
    }
    println!("{:<12} {:>12} {:>12}   keys of the server's own types", "others", HumanCount(plain).to_string(), "");
    let foreign: Vec<_> = found.iter().filter(|(name, _)| kind(name) == Kind::Foreign).collect();
    for (name, found) in &foreign {
        println!("{name}: {}", some(&found.names));
    }
    if beside.is_some() {
        println!("compared: {} filters, {} of them differ", HumanCount(compared), HumanCount(differing.len() as u64));
        if !differing.is_empty() {
            bail!("these filters differ: {}", some(&differing));
        }
    }
    if !foreign.is_empty() {
        bail!("a snapshot with these keys does not load without the module that made them: move or delete them first");
    }
    Ok(())
}

/// The replies to one command of each key.
fn ask_of_each(server: &mut Server, command: &[&str], keys: &[Vec<u8>]) -> Result<Vec<Value>> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let mut pipeline = Pipeline::new();
    for key in keys {
        pipeline.add_command(command.iter().fold(Cmd::new(), |mut command, word| {
            command.arg(*word);
            command
        }));
        pipeline.arg(key);
    }
    server.ask_all(&mut pipeline, "")
}

/// What two servers must agree on: capacity, layers, items.
fn fields(server: &mut Server, key: &[u8]) -> Result<Option<[u64; 3]>> {
    let Ok(info) = server.ask(cmd("BF.INFO").arg(key), &shown(key)) else { return Ok(None) };
    let mut info: BTreeMap<String, Value> = from_redis_value(info)?;
    let mut number = |name: &str| -> Result<u64> { Ok(from_redis_value(info.remove(name).unwrap_or(Value::Nil))?) };
    Ok(Some([number("Capacity")?, number("Number of filters")?, number("Number of items inserted")?]))
}

fn shown(key: &[u8]) -> String {
    key.escape_ascii().to_string()
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
    fn types_of_other_modules_are_told_from_filters_and_from_the_servers_own() {
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
