//! How large a client may make a filter: up to the configured ceiling; without one, the room under `maxmemory`; without that, the
//! memory that the machine or the control group has left, whichever is less. And how many layers the filter may have.
//!
//! A cache that evicts keys is always full, so no filter could be created beside it or grow. But the server evicts keys to make room
//! for a filter as for its own types, so memory that it can evict counts as room. All filters together, and what the server needs for
//! itself, stay below `maxmemory`: otherwise it would evict the new filter.
//!
//! With overcommit an allocation of 100 GiB succeeds on a machine with 24, and the server is killed when it uses the pages. So the
//! ceiling is checked before memory is requested.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use bloomgate_filter::{CLIENT_LAYERS_MAX, Ceiling};
use redis_module::raw;

use super::children;
use super::freeing;
use super::machine;
use crate::config;
use crate::context::Context;
use crate::information::Information;
use crate::metrics;
use crate::text::Text;

/// Requests up to this size are not checked: the server itself refuses the command above `maxmemory` (deny-oom), and looking up the
/// room would take longer than creating the filter.
const UNCHECKED_BYTES: u64 = 64 * 1024;

/// Left free for the server if keys are evicted to make room. INFO counts some buffers of clients as data, 0.3 MB of one that has sent
/// 100 KB, and the next command needs its own.
const SPARE_BYTES: u64 = 1024 * 1024;

/// The number of databases. It does not change while the server runs.
static DATABASES: AtomicU32 = AtomicU32::new(16);

/// The server's `maxmemory`; 0: no limit.
static MAXMEMORY: AtomicU64 = AtomicU64::new(0);

/// Reads `maxmemory` when the module is loaded and whenever a setting has changed. To ask for it, the server computes all of INFO's
/// memory section, which takes too long for every add.
pub fn maxmemory_changed(context: Context) {
    if let Some(bytes) = Information::of(context, c"memory").and_then(|memory| memory.number(c"maxmemory")) {
        MAXMEMORY.store(bytes, Relaxed);
    }
}

/// Whether there is room for this much more memory under `maxmemory`, before the server evicts keys or refuses commands. The allocator
/// may round each block up by a quarter.
fn has_room_under_maxmemory(bytes: u64) -> bool {
    let most = MAXMEMORY.load(Relaxed);
    most == 0 || (1.0 - freeing::used_memory_ratio()) * most as f64 > 1.25 * bytes as f64
}

/// More memory than any machine has: 64 TiB.
pub const MACHINE_BYTES_MAX: u64 = 1 << 46;

/// The memory of this machine in bytes, used or not.
pub fn machine_bytes(context: Context) -> u64 {
    Memory::now(context).map_or(MACHINE_BYTES_MAX, |memory| memory.machine)
}

/// The ceiling of filters on this server. It applies to clients, not to effects of a primary or the AOF.
pub struct ServerCeiling {
    context: Context,
    pending_from_bytes: Option<u64>,
}

impl ServerCeiling {
    /// For commands that do not add items.
    pub const fn of(context: Context) -> Self {
        Self { context, pending_from_bytes: None }
    }

    /// For adding items to an existing filter: new adds may be pending.
    #[inline]
    pub fn for_adding(context: Context) -> Self {
        Self { context, pending_from_bytes: children::pending_from_bytes(context) }
    }
}

impl Ceiling for ServerCeiling {
    fn available_bytes(&self, filter_bytes: u64, asked_bytes: u64) -> u64 {
        wait_for_freed_memory(self.context, asked_bytes);
        if self.context.must_obey() {
            return u64::MAX;
        }
        let configured = config::max_filter_bytes();
        if configured > 0 {
            return configured.saturating_sub(filter_bytes);
        }
        if asked_bytes <= UNCHECKED_BYTES {
            return u64::MAX;
        }
        Memory::now(self.context).map_or(u64::MAX, |memory| memory.room(metrics::bytes(), metrics::objects()))
    }

    fn layers_max(&self) -> usize {
        if self.context.must_obey() { usize::MAX } else { CLIENT_LAYERS_MAX }
    }

    #[inline]
    fn pending_from_bytes(&self) -> Option<u64> {
        self.pending_from_bytes
    }

    fn has_room_to_pend(&self, more_bytes: u64) -> bool {
        has_room_under_maxmemory(more_bytes)
    }
}

/// If there is no room without evicting keys, waits for deleted filters that are not freed yet. Applies to effects, too: a replica
/// exits if its allocator refuses memory.
fn wait_for_freed_memory(context: Context, asked_bytes: u64) {
    if asked_bytes > UNCHECKED_BYTES
        && freeing::is_busy()
        && Memory::now(context).is_none_or(|memory| memory.free() < asked_bytes)
    {
        freeing::wait();
    }
}

/// Reads the number of databases from the server when the module is loaded. If CONFIG was renamed, uses the server's default of 16.
pub fn count_databases(context: Context) {
    // SAFETY: the arguments are those that the format announces: two C strings. The reply is checked; its elements live as
    // long as it does, and it is freed once.
    unsafe {
        let (Some(call), Some(length), Some(element), Some(text), Some(free)) = (
            raw::RedisModule_Call,
            raw::RedisModule_CallReplyLength,
            raw::RedisModule_CallReplyArrayElement,
            raw::RedisModule_CallReplyStringPtr,
            raw::RedisModule_FreeCallReply,
        ) else {
            return;
        };
        // A cluster has another setting for this, whose name ends with `databases`, too.
        let settings = call(context.raw, c"CONFIG".as_ptr(), c"cc".as_ptr(), c"GET".as_ptr(), c"*databases".as_ptr());
        if settings.is_null() {
            return;
        }
        let number = |index| {
            let (setting, mut bytes) = (element(settings, index), 0);
            let text = if setting.is_null() { std::ptr::null() } else { text(setting, &raw mut bytes) };
            let text = (!text.is_null()).then(|| std::slice::from_raw_parts(text.cast::<u8>(), bytes));
            std::str::from_utf8(text?).ok()?.parse::<u32>().ok()
        };
        if let Some(most) = (1..length(settings)).step_by(2).filter_map(number).max() {
            DATABASES.store(most, Relaxed);
        }
        free(settings);
    }
}

/// The server's memory in bytes, from INFO.
#[derive(Clone, Copy)]
struct Memory {
    used: u64,
    /// The part of `used` that the keys hold, without the server's tables and buffers.
    dataset: u64,
    /// The resident part of `used`.
    resident: u64,
    /// 0: no limit.
    maxmemory: u64,
    machine: u64,
    eviction: Eviction,
}

/// Which keys the server evicts at `maxmemory`.
#[derive(Clone, Copy)]
enum Eviction {
    Nothing,
    /// Keys with a time to live: `expires` of all `keys`.
    Volatile {
        keys: u64,
        expires: u64,
    },
    Anything,
}

impl Memory {
    fn now(context: Context) -> Option<Self> {
        let information = Information::of(context, c"memory")?;
        let maxmemory = information.number(c"maxmemory")?;
        Some(Self {
            used: information.number(c"used_memory")?,
            dataset: information.number(c"used_memory_dataset")?,
            resident: information.number(c"used_memory_rss")?,
            maxmemory,
            machine: information.number(c"total_system_memory")?,
            eviction: match information.text(c"maxmemory_policy") {
                None | Some("noeviction") => Eviction::Nothing,
                Some(_) if maxmemory == 0 => Eviction::Nothing,
                Some(policy) if policy.starts_with("volatile-") => keyspace(context),
                Some(_) => Eviction::Anything,
            },
        })
    }

    /// The room before the server evicts a key.
    fn free(&self) -> u64 {
        Self { eviction: Eviction::Nothing, ..*self }.room(0, 0)
    }

    /// The room for a filter beside the existing ones: `filters` of them, with `filter_bytes` in total.
    fn room(&self, filter_bytes: u64, filters: u64) -> u64 {
        if self.maxmemory == 0 {
            // Memory that was reserved and not touched yet is not available, though the system counts it.
            let promised = self.used.saturating_sub(self.resident);
            let left = machine::available_bytes().unwrap_or(u64::MAX).saturating_sub(promised);
            return left.min(self.machine.saturating_sub(self.used));
        }
        // The other keys' data. The rest of the used memory stays: the filters, and the server's own tables and buffers.
        let data = self.dataset.saturating_sub(filter_bytes);
        let evictable = match self.eviction {
            Eviction::Nothing => 0,
            // The server does not report how many bytes the keys with a time to live hold. Their share of the data is assumed to be
            // their share of the keys, without filters. Every filter is assumed to have a time to live, which minimises the number of
            // other keys that have one.
            Eviction::Volatile { keys, expires } => {
                part(data, expires.saturating_sub(filters), keys.saturating_sub(filters))
            }
            Eviction::Anything => data,
        };
        let kept = self.used.saturating_sub(evictable).saturating_add(SPARE_BYTES).min(self.used);
        self.maxmemory.saturating_sub(kept.max(filter_bytes))
    }
}

/// The fraction `share / whole` of a number, at most all of it.
fn part(number: u64, share: u64, whole: u64) -> u64 {
    let part = u128::from(number) * u128::from(share.min(whole)) / u128::from(whole.max(1));
    u64::try_from(part).unwrap_or(number)
}

/// Counts the keys of all databases, and those with a time to live.
fn keyspace(context: Context) -> Eviction {
    let (mut keys, mut expires) = (0u64, 0u64);
    let information = Information::of(context, c"keyspace");
    for number in 0..DATABASES.load(Relaxed) {
        let name = Text::of(format_args!("db{number}"));
        let line = information.as_ref().and_then(|information| information.text(name.as_c_str())).unwrap_or_default();
        let field = |name| line.split(',').find_map(|field| field.strip_prefix(name))?.parse::<u64>().ok();
        keys = keys.saturating_add(field("keys=").unwrap_or(0));
        expires = expires.saturating_add(field("expires=").unwrap_or(0));
    }
    Eviction::Volatile { keys, expires }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// The room in a full cache of 100 MiB: the server itself uses 5 of them, three filters 15.
    fn room(eviction: Eviction) -> u64 {
        let [used, dataset, resident] = [100, 95, 100].map(|megabytes| megabytes * MIB);
        let memory = Memory { used, dataset, resident, maxmemory: 100 * MIB, machine: u64::MAX, eviction };
        memory.room(15 * MIB, 3) / MIB
    }

    #[test]
    fn memory_that_can_be_evicted_is_room() {
        assert_eq!(room(Eviction::Nothing), 0);
        assert_eq!(room(Eviction::Anything), 79, "everything but the server itself and the filters");
    }

    #[test]
    fn keys_without_a_time_to_live_are_no_room_under_a_volatile_policy() {
        let room = |keys, expires| room(Eviction::Volatile { keys, expires });
        assert_eq!(room(1000, 0), 0);
        assert_eq!(room(1_000_003, 1_000_003), 79, "everything but the server itself and the filters");
        assert_eq!(room(1_000_003, 1_000_000), 78, "the filters may be keys with a time to live");
        assert_eq!(room(1_000_003, 500_003), 39);
        assert_eq!(room(1003, 3), 0, "the three may be the filters");
        assert_eq!(room(3, 3), 0, "there are only filters");
        assert_eq!(room(2, 5), 0, "the numbers may be from different moments");
    }

    #[test]
    fn no_policy_has_more_room_than_one_that_evicts_any_key() {
        for (used, dataset) in [(100, 99), (100, 0), (5, 5), (200, 150)] {
            for eviction in [Eviction::Nothing, Eviction::Volatile { keys: 100, expires: 100 }] {
                let memory =
                    Memory { used, dataset, resident: 0, maxmemory: 100, machine: 0, eviction: Eviction::Anything };
                assert!(Memory { eviction, ..memory }.room(30, 0) <= memory.room(30, 0), "{used} {dataset}");
            }
        }
    }

    #[test]
    fn reserved_memory_is_not_available() {
        let memory = |used, resident| Memory {
            used,
            dataset: used,
            resident,
            maxmemory: 0,
            machine: u64::MAX,
            eviction: Eviction::Nothing,
        };
        let Some(left) = machine::available_bytes() else {
            eprintln!("SKIPPED: the system does not say what is available");
            return;
        };
        assert_eq!(memory(u64::MAX / 2, 0).room(0, 0), 0);
        assert!(memory(5, 10).room(0, 0) > left / 2, "resident memory is not reserved");
    }
}
