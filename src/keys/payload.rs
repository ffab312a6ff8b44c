//! Warns of a DUMP or MIGRATE payload that no server accepts: RESTORE refuses one that is larger than an argument may be, after both
//! servers have worked on it for many seconds. The callback that saves a filter cannot refuse, so it logs what to do instead.
//!
//! The server calls it for snapshots as well: in a child or, for SAVE and SHUTDOWN, in its own process. Whatever it saves neither in
//! a child nor while it writes a snapshot is a payload.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::context::{Context, LogLevel};

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
    let context = Context::new(std::ptr::null_mut());
    if bytes > ARGUMENT_BYTES_MAX && !WRITES_SNAPSHOT.load(Relaxed) && !context.is_in_child() {
        context.log(
            LogLevel::Warning,
            format_args!(
                "bloomgate: the DUMP or MIGRATE payload of a filter of {bytes} bytes may exceed what RESTORE accepts \
                 (proto-max-bulk-len, {ARGUMENT_BYTES_MAX} by default): use replication, or BF.SCANDUMP and BF.LOADCHUNK"
            ),
        );
    }
}
