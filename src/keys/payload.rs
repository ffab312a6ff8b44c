//! Warns of a DUMP, and so of a MIGRATE, that no server takes: a payload that is larger than an argument may be is refused
//! by RESTORE, after both servers have worked on it for many seconds. The callback that saves a filter cannot refuse, so it
//! says in the log what to do instead.
//!
//! The server calls it for snapshots as well, in a child or, for SAVE and SHUTDOWN, itself. What it writes neither in a child
//! nor between the beginning and the end of a snapshot is a payload.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::context::{Context, LogLevel};

/// What a server takes as one argument by default (proto-max-bulk-len), in bytes.
const ARGUMENT_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// Whether the server writes a snapshot itself.
static WRITES_SNAPSHOT: AtomicBool = AtomicBool::new(false);

/// The server begins or ends to write a snapshot itself.
pub fn snapshot_changed(is_writing: bool) {
    WRITES_SNAPSHOT.store(is_writing, Relaxed);
}

/// Takes note of a value that was saved in so many bytes.
pub fn saved(bytes: u64) {
    let context = Context::new(std::ptr::null_mut());
    if bytes > ARGUMENT_BYTES_MAX && !WRITES_SNAPSHOT.load(Relaxed) && !context.is_in_child() {
        context.log(
            LogLevel::Warning,
            format_args!(
                "bloomgate: DUMP or MIGRATE of a filter with {bytes} bytes to save may give more than RESTORE takes \
                 (proto-max-bulk-len, {ARGUMENT_BYTES_MAX} by default): replication, or BF.SCANDUMP and BF.LOADCHUNK, \
                 copy it in pieces"
            ),
        );
    }
}
