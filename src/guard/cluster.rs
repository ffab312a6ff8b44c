//! Whether slots may have left this node and come back.
//!
//! While another node owns a slot, rows of that slot change unseen by this node. A filter migrates with its slot and comes back
//! as another instance, which voids its tokens. A missing filter leaves no such trace, and the server does not tell modules
//! about slots. But a node that imports a slot takes a new epoch, unless it has the highest one. So a slot that leaves and
//! comes back changes the cluster's epoch, or this node's own.

use redis_module::raw;

use super::act;
use super::state::Epochs;
use crate::context::Context;

/// The lines of CLUSTER INFO with the epochs.
const LINES: [&[u8]; 2] = [b"cluster_current_epoch:", b"cluster_my_epoch:"];

/// Voids all tokens, leases and NONEs if the epochs have changed since the last call. Returns whether they could be read. CLUSTER INFO
/// takes the time of several lookups, so only rows without a filter need this.
pub fn look(context: Context) -> bool {
    if !context.is_in_cluster() {
        return true;
    }
    let Some(epochs) = ask(context) else { return false };
    act(context, |guard| _ = guard.see_epochs(epochs));
    true
}

fn ask(context: Context) -> Option<Epochs> {
    // SAFETY: the context is valid; the argument is the C string that the format announces. The reply is ours, and is freed
    // once, after its text was read.
    unsafe {
        let reply = raw::RedisModule_Call?(context.raw, c"CLUSTER".as_ptr(), c"c".as_ptr(), c"INFO".as_ptr());
        if reply.is_null() {
            return None;
        }
        let mut length = 0;
        let text = raw::RedisModule_CallReplyStringPtr.map_or(std::ptr::null(), |text| text(reply, &raw mut length));
        let epochs = if text.is_null() { None } else { read(std::slice::from_raw_parts(text.cast(), length)) };
        if let Some(free) = raw::RedisModule_FreeCallReply {
            free(reply);
        }
        epochs
    }
}

fn read(text: &[u8]) -> Option<Epochs> {
    let [current, own] = LINES.map(|name| {
        let digits = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name))?;
        std::str::from_utf8(digits).ok()?.trim_end().parse().ok()
    });
    Some([current?, own?])
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn epochs_are_read_from_cluster_info() {
        let text = "cluster_state:ok\r\ncluster_current_epoch:12\r\ncluster_my_epoch:7\r\ntotal_cluster_links:4\r\n";
        assert_eq!(read(text.as_bytes()), Some([12, 7]));
        assert_eq!(read(text.replace("my_epoch:7", "my_epoch:x").as_bytes()), None);
        assert_eq!(read(b"ERR This instance has cluster support disabled"), None);
    }
}
