//! The epochs of the cluster. A change tells the guard that slots may have migrated from this node and back.
//!
//! While another node owns a slot, this node does not see changes of its rows. A filter migrates with its slot and returns as another
//! instance, which voids its tokens. A missing filter has no instance, and the server does not report slots to modules. But a node that
//! imports a slot increments the epoch, unless its own is the highest. So if a slot migrates and returns, the cluster's epoch or this
//! node's own changes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::state::{Epochs, Instant};
use super::with_guard;
use crate::api::Reply;
use crate::context::Context;
use crate::server::timer::now;

/// The lines of CLUSTER INFO with the epochs.
const EPOCH_LINES: [&[u8]; 2] = [b"cluster_current_epoch:", b"cluster_my_epoch:"];

/// The time when the epochs were last read.
static EPOCHS_READ: AtomicU64 = AtomicU64::new(0);
/// A grant rereads the epochs after this time, in milliseconds.
const EPOCHS_FRESH: Instant = 100;

/// Voids all tokens, leases and NONEs if the epochs have changed since the last call. Returns whether they could be read. CLUSTER INFO
/// costs as much as several lookups, so only rows without a filter use this: a filter returns as another instance.
pub(super) fn check_epochs(context: Context) -> bool {
    if !context.is_in_cluster() {
        return true;
    }
    let Some(epochs) = read_epochs(context) else { return false };
    EPOCHS_READ.store(now(), Relaxed);
    with_guard(context, |guard| guard.check_epochs(epochs));
    true
}

/// Whether the epochs were read at the time of a grant or before. A fill that finds the same epochs then knows that they have not changed
/// since the grant, because epochs never repeat. If they change between this reading and the grant, one fill is refused unnecessarily, so
/// they are reread from time to time.
pub(super) fn knows_epochs(context: Context) -> bool {
    let read = EPOCHS_READ.load(Relaxed);
    (read > 0 && now() - read < EPOCHS_FRESH) || check_epochs(context)
}

fn read_epochs(context: Context) -> Option<Epochs> {
    epochs_in(Reply::to_cluster_info(context)?.bytes())
}

fn epochs_in(text: &[u8]) -> Option<Epochs> {
    let [current, own] = EPOCH_LINES.map(|name| {
        let digits = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name))?;
        std::str::from_utf8(digits).ok()?.trim_end().parse().ok()
    });
    Some([current?, own?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_are_read_from_cluster_info() {
        let text = "cluster_state:ok\r\ncluster_current_epoch:12\r\ncluster_my_epoch:7\r\ntotal_cluster_links:4\r\n";
        assert_eq!(epochs_in(text.as_bytes()), Some([12, 7]));
        assert_eq!(epochs_in(text.replace("my_epoch:7", "my_epoch:x").as_bytes()), None);
        assert_eq!(epochs_in(b"ERR This instance has cluster support disabled"), None);
    }
}
