//! Warns of a DUMP or MIGRATE payload that no server accepts: RESTORE refuses one that is larger than an argument may be, after both
//! servers have worked on it for many seconds. The callback that saves a filter cannot refuse, so it logs what to do instead.
//!
//! The server calls it for snapshots as well: in a child or, for SAVE and SHUTDOWN, in its own process. A server may also save in a
//! thread while commands run. Whatever the thread of the commands saves in the server's process, and not while that writes a snapshot,
//! is a payload. Nothing here asks the server for its state, which only that thread may read.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::context::{Context, LogLevel};
use crate::server::freeing;

/// The maximum length of an argument that a server accepts by default (proto-max-bulk-len), in bytes.
const ARGUMENT_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// Whether the server is writing a snapshot in its own process.
static WRITES_SNAPSHOT: AtomicBool = AtomicBool::new(false);

/// The server starts or finishes writing a snapshot in its own process.
pub fn snapshot_changed(is_writing: bool) {
    WRITES_SNAPSHOT.store(is_writing, Relaxed);
}

/// Warns if a value that was just saved in this many bytes makes a payload that is too large.
pub fn saved(bytes: u64) {
    if bytes > ARGUMENT_BYTES_MAX && !WRITES_SNAPSHOT.load(Relaxed) && freeing::runs_commands() {
        Context::new(std::ptr::null_mut()).log(
            LogLevel::Warning,
            format_args!(
                "bloomgate: the DUMP or MIGRATE payload of a filter of {bytes} bytes may exceed what RESTORE accepts \
                 (proto-max-bulk-len, {ARGUMENT_BYTES_MAX} by default): use replication, or BF.SCANDUMP and BF.LOADCHUNK"
            ),
        );
    }
}
