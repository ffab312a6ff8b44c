//! Whether this server is a primary, whether commands may come from its primary or its AOF, and whether a forked child of it is running.
//! Querying the server takes as long as half a lookup, so this is cached here; `events.rs` updates it when the server reports a change.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::context::{Context, LogLevel, Origin};
use crate::{config, metrics};

/// Whether the server raises the events that keep this file up to date.
static IS_FOLLOWED: AtomicBool = AtomicBool::new(false);
/// Stays false if the server raises no events.
static IS_PRIMARY: AtomicBool = AtomicBool::new(false);
/// Whether a command may come from a primary or the AOF. Stays true if the server raises no events.
static MAY_GET_EFFECTS: AtomicBool = AtomicBool::new(true);

/// Reads the role when the module is loaded, after it has subscribed to the events that change it.
pub fn follow(context: Context) {
    IS_FOLLOWED.store(true, Relaxed);
    IS_PRIMARY.store(context.is_primary(), Relaxed);
    refresh(context);
}

/// Whether the server raises an event when its role changes and when it loads a data set.
pub fn is_followed() -> bool {
    IS_FOLLOWED.load(Relaxed)
}

/// Whether this server is a primary.
#[inline]
pub fn is_primary() -> bool {
    IS_PRIMARY.load(Relaxed)
}

/// Returns the origin of the running command.
#[inline]
pub fn origin(context: Context) -> Origin {
    if MAY_GET_EFFECTS.load(Relaxed) { context.origin() } else { Origin::Client }
}

/// The server became a primary or a replica.
pub fn changed(context: Context, is_primary: bool) {
    IS_PRIMARY.store(is_primary, Relaxed);
    if is_primary {
        refresh(context);
        keep_redisbloom_layout(context);
    } else {
        MAY_GET_EFFECTS.store(true, Relaxed);
    }
}

/// Gives new filters RedisBloom's layout if all filters of a promoted server have it. Its former primary and the other replicas may then
/// be RedisBloom, which ignores the creation of a native filter and refuses a snapshot with one. Clients write as soon as they see the new
/// role, so a setting that an operator changes afterwards is too late. The data decides, not the stream: it survives a restart.
fn keep_redisbloom_layout(context: Context) {
    if metrics::has_redisbloom_filters_only() && config::adopt_redisbloom_layout() {
        context.log(
            LogLevel::Warning,
            "bloomgate: promoted with filters of RedisBloom's layout only: bf.layout is now redisbloom, so that RedisBloom can be a \
             replica. CONFIG REWRITE keeps this setting; CONFIG SET bf.layout native ends it",
        );
    }
}

/// The server starts or finishes loading a data set.
pub fn loading_changed(context: Context, is_loading: bool) {
    if is_loading {
        MAY_GET_EFFECTS.store(true, Relaxed);
    } else {
        refresh(context);
    }
}

/// Queries the server. A node of a cluster may import slots, and with them the effects of another node's commands.
fn refresh(context: Context) {
    MAY_GET_EFFECTS.store(!context.is_primary() || context.is_loading() || context.is_in_cluster(), Relaxed);
}

// Whether a forked child of the server is running, and so whether new adds may be pending; `events.rs` updates this when a child
// starts or exits.
//
// A child shares the server's memory: the first write to a page after the fork copies the page. So while a child is running, new
// adds to large layers are kept in a set beside the layer instead of its bits. `pending.rs` flushes them.

/// Adds to layers of this size or more may be pending. Smaller layers have few pages to copy. The module of `tests/fault_module` finds
/// this number by its name and lowers it, so that tests need no large filters.
#[unsafe(export_name = "bloomgate_pending_from_bytes")]
static PENDING_FROM_BYTES: AtomicU64 = AtomicU64::new(4 << 20);

/// Whether a child is running. Not a count: the script debugger's children raise an event when they start, but none when they exit.
static CHILD_LIVES: AtomicBool = AtomicBool::new(false);

/// Records that a child has started or exited. Returns whether one is running.
pub fn child_changed(context: Context) -> bool {
    let lives = context.has_child();
    CHILD_LIVES.store(lives, Relaxed);
    lives
}

/// The layer size in bytes from which adds of a command may be pending; `None` if the command writes all of its adds to the
/// bits.
#[inline]
pub fn pending_from_bytes(context: Context) -> Option<u64> {
    let may_pend = CHILD_LIVES.load(Relaxed) && context.may_pend();
    may_pend.then(|| PENDING_FROM_BYTES.load(Relaxed))
}
