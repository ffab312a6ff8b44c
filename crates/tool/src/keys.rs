//! The keys of a server or a cluster, a few at a time.

use anyhow::Result;
use redis::{Cmd, Value, cmd, from_redis_value};

use crate::server::{Address, Server};

/// Keys of one SCAN, few enough that no other client has to wait.
const KEYS_AT_ONCE: usize = 500;

/// Sends one SCAN to a node. Returns the next cursor, which is `0` at the end, and the keys.
///
/// # Errors
/// As [`Server::ask_node`].
pub fn scan(
    server: &mut Server,
    node: &Address,
    cursor: &[u8],
    pattern: Option<&[u8]>,
) -> Result<(Vec<u8>, Vec<Vec<u8>>)> {
    let mut scan = cmd("SCAN");
    scan.arg(cursor).arg("COUNT").arg(KEYS_AT_ONCE);
    if let Some(pattern) = pattern {
        scan.arg("MATCH").arg(pattern);
    }
    Ok(from_redis_value(server.ask_node(node, &scan)?)?)
}

/// Visits the keys of every node. A key may come twice if the server resizes its hash table meanwhile.
pub fn for_each_key(server: &mut Server, visit: impl FnMut(&mut Server, &[Vec<u8>]) -> Result<()>) -> Result<()> {
    for_each_key_like(server, None, visit)
}

/// Visits the keys that match a pattern, or all keys without one.
///
/// # Errors
/// Those of `visit`; a part of the keys cannot be reached.
pub fn for_each_key_like(
    server: &mut Server,
    pattern: Option<&[u8]>,
    mut visit: impl FnMut(&mut Server, &[Vec<u8>]) -> Result<()>,
) -> Result<()> {
    for node in server.all_nodes()? {
        let mut cursor = b"0".to_vec();
        loop {
            let (next, keys) = scan(server, &node, &cursor, pattern)?;
            visit(server, &keys)?;
            cursor = next;
            if cursor == b"0" {
                break;
            }
        }
    }
    Ok(())
}

/// Sends one command for each key and returns the replies.
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
