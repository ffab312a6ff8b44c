//! The epochs of the cluster, from which the guard sees that slots may have left this node and come back.
//!
//! While another node owns a slot, rows of that slot change unseen by this node. A filter migrates with its slot and comes back
//! as another instance, which voids its tokens. A missing filter leaves no such trace, and the server does not tell modules
//! about slots. But a node that imports a slot takes a new epoch, unless it has the highest one. So a slot that leaves and
//! comes back changes the cluster's epoch, or this node's own.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::state::{Epochs, Instant};
use super::with_guard;
use crate::api::Reply;
use crate::context::Context;
use crate::server::timer::now;

/// The lines of CLUSTER INFO with the epochs.
const EPOCH_LINES: [&[u8]; 2] = [b"cluster_current_epoch:", b"cluster_my_epoch:"];

/// When the epochs were last read.
static EPOCHS_READ: AtomicU64 = AtomicU64::new(0);
/// A grant reads the epochs if they were read longer ago than this, in milliseconds.
const EPOCHS_FRESH: Instant = 100;

/// Voids all tokens, leases and NONEs if the epochs have changed since the last call. Returns whether they could be read. CLUSTER INFO
/// takes the time of several lookups, so only rows without a filter need this: a filter comes back as another instance.
pub(super) fn check_epochs(context: Context) -> bool {
    if !context.is_in_cluster() {
        return true;
    }
    let Some(epochs) = read_epochs(context) else { return false };
    EPOCHS_READ.store(now(), Relaxed);
    with_guard(context, |guard| guard.check_epochs(epochs));
    true
}

/// Whether the epochs are known as they were at the time of a grant, or before. A fill that finds the same epochs then knows that they
/// have not changed since the grant, because an epoch never returns. If they change between this reading and the grant, one fill is
/// refused without need: so they are read again from time to time.
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
