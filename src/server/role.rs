//! Whether this server is a primary, and whether commands may come from its primary or its AOF.
//! Querying the server takes as long as half a lookup, so this is cached here; `events.rs` updates it when the server reports a change.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

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

/// Gives new filters RedisBloom's layout if all filters of a promoted server have it. Its former primary and the other replicas may then be
/// RedisBloom, which ignores the creation of a native filter and refuses a snapshot with one. Clients write as soon as they see the new
/// role, so a setting that an operator changes afterwards comes too late. The layout of the existing filters decides, because it survives a
/// restart, unlike knowledge of the replication stream.
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

/// Queries the server. A node of a cluster may import slots, and then receives effects from another node.
fn refresh(context: Context) {
    MAY_GET_EFFECTS.store(!context.is_primary() || context.is_loading() || context.is_in_cluster(), Relaxed);
}
