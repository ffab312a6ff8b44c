//! Shared by the tests of the module, the tool and the clients: a server with the module, a connection that shows the exact type
//! of each reply, the files that the server writes, a cluster, PostgreSQL, and MariaDB.
//!
//! Every failure here is a failed test, so functions panic with a description of what they found.

mod accepted;
mod aof;
mod clock;
#[cfg(feature = "databases")]
pub mod database;
mod dump;
mod each_server;
mod locate;
#[cfg(feature = "databases")]
pub mod mariadb;
pub mod nodes;
mod process;
mod replication;
mod resident;
mod resp;
mod rng;
mod version;
mod wait;

pub use accepted::{is_accepted, restore_by_law, use_and_delete};
pub use aof::{
    append_only_commands, append_only_length, commands_of, encode, lines, newest, rewritten_commands,
    start_on_commands, start_on_snapshot, stopped_on_commands, with_append_only_file, words,
};
pub use dump::{
    FOOTER, Record, crc64, dump, load_record, load_records, next_record, records, restore, value_of,
    with_fixed_checksum,
};
pub use each_server::{in_both_protocols, on_every_server, on_servers_with, with_append_only_client, with_client};
pub use locate::{
    fault_module, module, module_of_other_processor, old_server, server_of_other_processor, servers, tool,
};
pub use process::{Builder, LAST_WORDS, Server, Stop, free_port};
pub use replication::{catch_up, digest, follow};
pub use resident::Resident;
pub use resp::{Connection, Reply, array, bulk, error, integer, nil, ok, simple};
pub use rng::Rng;
pub use version::{Version, defragments};
pub use wait::{eventually, patience, watched};

/// Prints a line of figures: the topic, a colon, then `NUMBER WHAT`, separated by commas. `scripts/test --soak` repeats these at its end:
/// `executions`, `kills survived`, `adds verified`, `faults injected`.
pub fn figures(line: &str) {
    eprintln!("figures: {line}");
}
