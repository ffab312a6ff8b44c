//! The keyspace events that may make a cached value, a value that is being loaded, or a NONE outdated. The server's other events
//! come through `events.rs` of the module.

use std::ffi::{CStr, c_char, c_int};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use redis_module::raw;

use super::{is_idle, key_event};
use crate::args::Arg;
use crate::context::{Context, LogLevel, OK};
use crate::server::role;
use crate::version;

/// The classes of events that the guard listens to: everything that clients do to keys, expiry and eviction.
const CLASSES: c_int = raw::REDISMODULE_NOTIFY_GENERIC
    | raw::REDISMODULE_NOTIFY_STRING
    | raw::REDISMODULE_NOTIFY_LIST
    | raw::REDISMODULE_NOTIFY_SET
    | raw::REDISMODULE_NOTIFY_HASH
    | raw::REDISMODULE_NOTIFY_ZSET
    | raw::REDISMODULE_NOTIFY_STREAM
    | raw::REDISMODULE_NOTIFY_MODULE
    | raw::REDISMODULE_NOTIFY_EXPIRED
    | raw::REDISMODULE_NOTIFY_EVICTED;

/// The versions of Valkey that may leave a client in another database while a module listens to events (valkey#4024): 8.1.8
/// does, 9.1.2 does not.
const MOVES_CLIENTS: Range<[u32; 3]> = [8, 1, 0]..[9, 1, 2];

/// What an event says of the key that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// If the key is a cache key, a client has changed its value.
    pub value: bool,
    /// If the key is a filter's, there may be another filter now, or none, or more items in it.
    pub filter: bool,
}

impl Meaning {
    /// The meaning of an event, by its name. `by_deletion`: the running command deletes keys.
    fn of(event: &[u8], by_deletion: bool) -> Self {
        let (value, filter) = match event {
            b"expire" | b"persist" => (false, false),
            // A value that expires or is evicted was not outdated. But Valkey also raises `expired` when a client sets an
            // expiry time in the past (PEXPIREAT, GETEX, SET). It rewrites such a command to DEL or UNLINK first.
            b"expired" => (by_deletion, true),
            b"evicted" => (false, true),
            b"bloom.reserve" | b"bloom.clear" | b"bloom.merge" => (true, true),
            // Commands that raise our other events report the items that they add. The filter stays the same.
            event => [!event.starts_with(b"bloom."); 2].into(),
        };
        Self { value, filter }
    }
}

/// Subscribes with the first lease. Returns whether the server will raise the events.
pub fn subscribe(context: Context) -> bool {
    static IS_SUBSCRIBED: AtomicBool = AtomicBool::new(false);
    if IS_SUBSCRIBED.load(Relaxed) {
        return true;
    }
    if !role::is_followed() {
        return false;
    }
    // SAFETY: the callback is a function; the context is valid while the command runs.
    let subscribed = unsafe {
        raw::RedisModule_SubscribeToKeyspaceEvents
            .is_some_and(|subscribe| subscribe(context.raw, CLASSES, Some(key_changed)) == OK)
    };
    IS_SUBSCRIBED.store(subscribed, Relaxed);
    if subscribed && version::valkey_version(context).is_some_and(|version| MOVES_CLIENTS.contains(&version)) {
        let line = "bloomgate: this server has a bug (valkey#4024): from now on MOVE, and COPY with DB, leave their client \
                    in the other database: SELECT after them";
        context.log(LogLevel::Warning, line);
    }
    subscribed
}

unsafe extern "C" fn key_changed(
    context: *mut raw::RedisModuleCtx,
    _: c_int,
    event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    if is_idle() {
        return OK;
    }
    let context = Context::new(context);
    // SAFETY: the event is a C string.
    let event = unsafe { CStr::from_ptr(event) }.to_bytes();
    let meaning = Meaning::of(event, event == b"expired" && deletes(context));
    if meaning.value || meaning.filter {
        // SAFETY: the key's name lives until this returns.
        let name = unsafe { Arg::of(&key) };
        key_event(context, name, meaning);
    }
    OK
}

/// Whether the running command deletes keys. Only Valkey, from 8.1 on, lets a listener see the command.
fn deletes(context: Context) -> bool {
    // SAFETY: the context is valid; the name is a C string of the server's, or null.
    unsafe {
        let name = raw::RedisModule_GetCurrentCommandName.map_or(std::ptr::null(), |name| name(context.raw));
        !name.is_null() && [c"del", c"unlink"].contains(&CStr::from_ptr(name))
    }
}

#[cfg(test)]
mod tests {
    use super::Meaning;

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
            ("bloom.reserve", true, true),
            ("bloom.clear", true, true),
            ("bloom.merge", true, true),
        ] {
            assert_eq!(Meaning::of(event.as_bytes(), false), Meaning { value, filter }, "{event}");
        }
        assert!(Meaning::of(b"expired", true).value);
    }
}
