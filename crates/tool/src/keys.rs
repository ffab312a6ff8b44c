//! The keys of a server or of a cluster, a few at a time.

use anyhow::Result;
use redis::{Cmd, Value, cmd, from_redis_value};

use crate::server::Server;

/// Keys asked for at once: few enough that no other client waits.
const KEYS_AT_ONCE: usize = 500;

/// Walks over the keys of every node by SCAN. A key may come twice where the server's tables change meanwhile.
pub fn for_each_key(server: &mut Server, visit: impl FnMut(&mut Server, &[Vec<u8>]) -> Result<()>) -> Result<()> {
    for_each_key_like(server, None, visit)
}

/// The same of those keys that match a pattern, where there is one.
pub fn for_each_key_like(
    server: &mut Server,
    pattern: Option<&[u8]>,
    mut visit: impl FnMut(&mut Server, &[Vec<u8>]) -> Result<()>,
) -> Result<()> {
    for node in server.nodes() {
        let mut cursor = b"0".to_vec();
        loop {
            let mut scan = cmd("SCAN").arg(&cursor).arg("COUNT").arg(KEYS_AT_ONCE).to_owned();
            if let Some(pattern) = pattern {
                scan.arg("MATCH").arg(pattern);
            }
            let (next, keys): (Vec<u8>, Vec<Vec<u8>>) = from_redis_value(server.ask_node(&node, &scan)?)?;
            visit(server, &keys)?;
            cursor = next;
            if cursor == b"0" {
                break;
            }
        }
    }
    Ok(())
}

/// The replies to one command of each key.
///
/// # Errors
/// The first error among them.
pub fn ask_of_each(server: &mut Server, words: &[&str], keys: &[Vec<u8>]) -> Result<Vec<Value>> {
    let of_key = |key: &Vec<u8>| {
        let mut command = Cmd::new();
        words.iter().for_each(|word| _ = command.arg(*word));
        (key.clone(), command.arg(key).to_owned())
    };
    let replies = server.replies_of_many(&keys.iter().map(of_key).collect::<Vec<_>>())?;
    for (reply, key) in replies.iter().zip(keys) {
        if let Value::ServerError(error) = reply {
            return Err(server.describe(error.code(), error.details().unwrap_or_default(), key));
        }
    }
    Ok(replies)
}
