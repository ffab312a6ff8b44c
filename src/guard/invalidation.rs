//! Keyspace events that may make a cached value, a value that is being loaded, or a NONE outdated; and the events of UNLESS hashes. A
//! waiter that such a hash holds is served when the hash loses the field, is deleted, expires, or is evicted.

use std::ffi::{CStr, c_char, c_int};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use redis_module::raw;

use super::{HAS_HELD, is_idle, key_id, table_hash_of_key, with, with_guard};
use crate::api;
use crate::args::Arg;
use crate::context::{Context, LogLevel, OK};
use crate::server::role;
use crate::server_info::valkey_version;

/// The classes of events that the guard listens to: changes of strings (cached values are strings), changes of whole keys, expiry and
/// eviction. A key of another type can replace a cached value without such an event, but blocks all fills until it is deleted, which raises
/// one. Each event costs its command 400 to 710 instructions (`scripts/bench --only instructions`).
const CLASSES: c_int = raw::REDISMODULE_NOTIFY_GENERIC
    | raw::REDISMODULE_NOTIFY_STRING
    | raw::REDISMODULE_NOTIFY_MODULE
    | raw::REDISMODULE_NOTIFY_EXPIRED
    | raw::REDISMODULE_NOTIFY_EVICTED;

/// The versions of Valkey that leave a client in the database of the last event that a module has listened to (valkey#4024): 8.1.8 does,
/// 9.1.2 does not. After MOVE, COPY with DB, or an expiry on the way, the client's commands go to the wrong database, on replicas and in
/// the AOF, too. Events of strings are always of the client's own database.
const MOVES_CLIENTS: Range<[u32; 3]> = [8, 1, 0]..[9, 1, 2];

/// Whether events of other databases than the client's are safe.
pub(super) fn keeps_clients(context: Context) -> bool {
    static KEEPS: OnceLock<bool> = OnceLock::new();
    *KEEPS.get_or_init(|| valkey_version(context).is_none_or(|version| !MOVES_CLIENTS.contains(&version)))
}

fn classes(context: Context) -> c_int {
    if keeps_clients(context) { CLASSES } else { raw::REDISMODULE_NOTIFY_STRING }
}

/// The records that a keyspace event invalidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Invalidation {
    /// If the key is a cache key, a client has changed its value.
    value: bool,
    /// If the key is a filter's, the filter may have been replaced, deleted or added to.
    filter: bool,
}

impl Invalidation {
    /// The meaning of an event, by its name. `by_deletion`: the running command deletes keys.
    fn of(event: &[u8], by_deletion: bool) -> Self {
        let (value, filter) = match event {
            b"expire" | b"persist" => (false, false),
            // An expired or evicted value was not outdated. But Valkey also raises `expired` when a client sets an expiry time in the past
            // (PEXPIREAT, GETEX, SET). It rewrites such a command to DEL or UNLINK first.
            b"expired" => (by_deletion, true),
            b"evicted" => (false, true),
            // Our own commands report their changes themselves.
            event => [!event.starts_with(b"bloom."); 2].into(),
        };
        Self { value, filter }
    }
}

/// Whether the guard listens to the server's events.
static IS_SUBSCRIBED: AtomicBool = AtomicBool::new(false);

/// Subscribes with a lease. Returns whether the server will raise the events.
pub(super) fn subscribe(context: Context) -> bool {
    static HAS_WARNED: AtomicBool = AtomicBool::new(false);
    if IS_SUBSCRIBED.load(Relaxed) {
        return true;
    }
    if !role::is_followed() {
        return false;
    }
    let is_subscribed = api::subscribe_to_keys(context, classes(context), Some(on_key_event)) == OK;
    IS_SUBSCRIBED.store(is_subscribed, Relaxed);
    if is_subscribed && !keeps_clients(context) && !HAS_WARNED.swap(true, Relaxed) {
        let line = "bloomgate: because of a bug of this server (valkey#4024) the guard does not listen to DEL, RENAME, COPY and \
                    RESTORE of cache keys: use BF.CHANGED. It caches nothing while its filter is missing";
        context.log(LogLevel::Warning, line);
    }
    is_subscribed
}

/// Unsubscribes while there is no record and no waiter, if the server supports that: writes then have no extra cost.
pub(super) fn unsubscribe_if_idle(context: Context) {
    if is_idle() && IS_SUBSCRIBED.load(Relaxed) {
        let is_subscribed = api::unsubscribe_from_keys(context, classes(context), Some(on_key_event)) != OK;
        IS_SUBSCRIBED.store(is_subscribed, Relaxed);
    }
}

unsafe extern "C" fn on_key_event(
    context: *mut raw::RedisModuleCtx,
    _: c_int,
    event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    if is_idle() {
        return OK;
    }
    let context = Context::new(context);
    // SAFETY: the key's name lives until this returns.
    let name = unsafe { Arg::of(&key) };
    // Most events concern keys without rows, and cost only this check.
    let table_hash = table_hash_of_key(context, name);
    if !with(|guard| guard.concerns(table_hash)) {
        return OK;
    }
    // SAFETY: the event is a C string.
    let event = unsafe { CStr::from_ptr(event) }.to_bytes();
    let changed = Invalidation::of(event, event == b"expired" && deletes(context));
    let key = key_id(context, name);
    with_guard(context, |guard| {
        if changed.value {
            guard.value_changed(key);
        }
        if changed.filter {
            guard.filter_changed(key.filter());
        }
    });
    OK
}

/// Whether the running command deletes keys. Only Valkey, from 8.1 on, lets a listener see the command.
fn deletes(context: Context) -> bool {
    // SAFETY: the name is a C string of the server's, or null.
    unsafe {
        let name = api::current_command(context);
        !name.is_null() && [c"del", c"unlink"].contains(&CStr::from_ptr(name))
    }
}

/// The classes of events of hashes. HASH includes writes and expiry of fields.
const HASH_CLASSES: c_int = raw::REDISMODULE_NOTIFY_HASH
    | raw::REDISMODULE_NOTIFY_GENERIC
    | raw::REDISMODULE_NOTIFY_EXPIRED
    | raw::REDISMODULE_NOTIFY_EVICTED;

fn hash_classes(context: Context) -> c_int {
    if keeps_clients(context) { HASH_CLASSES } else { raw::REDISMODULE_NOTIFY_HASH }
}

/// Subscribes to the events of hashes with the first waiter that names one: until then, HSET has no extra cost. If the server refuses, held
/// waiters wait for BF.CHANGED.
pub(super) fn subscribe_to_hashes(context: Context) {
    static IS_SUBSCRIBED: AtomicBool = AtomicBool::new(false);
    if !IS_SUBSCRIBED.load(Relaxed) && subscribe(context) {
        IS_SUBSCRIBED.store(api::subscribe_to_keys(context, hash_classes(context), Some(on_hash_event)) == OK, Relaxed);
    }
}

unsafe extern "C" fn on_hash_event(
    context: *mut raw::RedisModuleCtx,
    _: c_int,
    event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the event is a C string.
    if HAS_HELD.load(Relaxed) && frees_fields(unsafe { CStr::from_ptr(event) }.to_bytes()) {
        let context = Context::new(context);
        // SAFETY: the key's name lives until this returns.
        let hash = key_id(context, unsafe { Arg::of(&key) }).name_hash();
        with_guard(context, |guard| guard.hash_changed(hash));
    }
    OK
}

/// Whether a hash may have fewer fields after an event: `hdel`, `hexpired`, `del`, `expired`, `evicted`, `rename_from`, and unknown events.
fn frees_fields(event: &[u8]) -> bool {
    ![&b"hset"[..], b"hincrby", b"hincrbyfloat", b"hexpire", b"hpersist", b"expire", b"persist"].contains(&event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_changes_a_value_or_a_filter() {
        for (event, value, filter) in [
            ("set", true, true),
            ("del", true, true),
            ("rename_to", true, true),
            ("expire", false, false),
            ("persist", false, false),
            ("expired", false, true),
            ("evicted", false, true),
            ("bloom.add", false, false),
            ("bloom.reserve", false, false),
        ] {
            assert_eq!(Invalidation::of(event.as_bytes(), false), Invalidation { value, filter }, "{event}");
        }
        assert!(Invalidation::of(b"expired", true).value);
    }

    #[test]
    fn an_event_frees_fields_unless_it_is_known_to_free_none() {
        for event in ["hdel", "hexpired", "del", "unlink", "expired", "evicted", "rename_from", "rename_to", "new"] {
            assert!(frees_fields(event.as_bytes()), "{event}");
        }
        assert!(!frees_fields(b"hset") && !frees_fields(b"expire"));
    }
}
