//! A replica and its primary: connecting them, waiting, and comparing their data.

use super::process::Server;
use super::resp::{Connection, Reply};
use super::wait::eventually;

/// Makes a server a replica of another, and waits for the link.
pub fn follow(replica: &mut Connection, primary: &Server) {
    let line = format!("REPLICAOF 127.0.0.1 {}", primary.port);
    // A replica that is still loading data does not accept the command yet. A replica that already has this primary replies with a note.
    eventually("the replica to take its primary", || !replica.run(&line).is_error());
    eventually("the link to the primary", || replica.info("master_link_status") == "up");
}

/// Waits until the replica has received everything written so far: it has the primary's replication ID and offset.
pub fn catch_up(primary: &mut Connection, replica: &mut Connection) {
    eventually("the replica to catch up", || {
        replica.info("role") == "slave"
            && replica.info("master_link_status") == "up"
            && replica.info("master_replid") == primary.info("master_replid")
            && replica.info_number("slave_repl_offset") >= primary.info_number("master_repl_offset")
    });
}

/// Returns the digest of a value, which is the same for equal values only.
pub fn digest(client: &mut Connection, key: impl AsRef<[u8]>) -> Reply {
    let reply = client.call(&[b"DEBUG".as_slice(), b"DIGEST-VALUE", key.as_ref()]);
    assert!(!reply.is_error(), "{}: {reply:?}", key.as_ref().escape_ascii());
    reply
}
