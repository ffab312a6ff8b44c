//! A replica and its primary: connecting them, waiting, and comparing their data.

use super::process::{Server, eventually};
use super::resp::{Connection, Reply, ok};

/// Makes a server a replica of another, and waits for the link.
pub fn follow(replica: &mut Connection, primary: &Server) {
    let line = format!("REPLICAOF 127.0.0.1 {}", primary.port);
    // A replica that is still loading data from another primary does not accept the command yet.
    eventually("the replica to take its primary", || replica.run(&line) == ok());
    eventually("the link to the primary", || replica.info("master_link_status") == "up");
}

/// Waits until the replica has everything that was written so far.
pub fn catch_up(primary: &mut Connection, replica: &mut Connection) {
    eventually("the replica to catch up", || {
        replica.info("master_link_status") == "up"
            && replica.info_number("slave_repl_offset") >= primary.info_number("master_repl_offset")
    });
}

/// The digest of a value: equal for equal values.
pub fn digest(client: &mut Connection, key: &str) -> Reply {
    client.run(&format!("DEBUG DIGEST-VALUE {key}"))
}
