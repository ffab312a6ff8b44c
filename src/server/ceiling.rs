//! How large a filter may become for a client: the configured ceiling; without one the room under `maxmemory`; without
//! that what the machine and the control group have left, the lesser of both. And how many layers it may have.
//!
//! In a cache that evicts there is no room once it is full, and filters beside it could neither be made nor grow. There
//! the server makes room for what is added, as it does for its own types, so what it can evict counts as room; all filters
//! together stay below `maxmemory`.
//!
//! Under overcommit an allocation of 100 GiB succeeds on a machine of 24, and the server dies when the pages are used.
//! So the question is asked before the allocator is.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

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

/// Requests up to this size are left to the server's own `maxmemory`, which refuses the command (deny-oom): looking up
/// the room would cost more than making the filter.
const UNCHECKED_BYTES: u64 = 64 * 1024;

/// The number of databases, which a server cannot change while it runs.
static DATABASES: AtomicU32 = AtomicU32::new(16);

/// More memory than any machine has: 64 TiB.
pub const MACHINE_BYTES_MAX: u64 = 1 << 46;

/// All memory of this machine, used or not, in bytes.
pub fn machine_bytes(context: Context) -> u64 {
    Memory::now(context).map_or(MACHINE_BYTES_MAX, |memory| memory.machine)
}

/// The ceiling of filters of this server. It binds clients; what comes from a primary or the AOF is obeyed.
pub struct ServerCeiling {
    context: Context,
    pending_from_bytes: Option<u64>,
}

impl ServerCeiling {
    /// For whatever a command does but adding.
    pub const fn of(context: Context) -> Self {
        Self { context, pending_from_bytes: None }
    }

    /// For adding items to a filter that is there: new ones may pend.
    #[inline]
    pub fn for_adding(context: Context) -> Self {
        Self { context, pending_from_bytes: children::pending_from_bytes(context) }
    }
}

impl Ceiling for ServerCeiling {
    fn available_bytes(&self, filter_bytes: u64, asked_bytes: u64) -> u64 {
        wait_for_what_is_freed(self.context, asked_bytes);
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
}

/// Where there is no room, or none before something is evicted, waits for filters that are gone and not freed yet. Also for
/// those that must be obeyed: a replica whose allocator refuses ends.
fn wait_for_what_is_freed(context: Context, asked_bytes: u64) {
    if asked_bytes > UNCHECKED_BYTES
        && freeing::is_busy()
        && Memory::now(context).is_none_or(|memory| memory.free() < asked_bytes)
    {
        freeing::wait();
    }
}

/// Asks the server how many databases it has, when the module is loaded. A server whose CONFIG has another name has as many
/// as most.
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
        // In a cluster it is another setting that counts, with `databases` at the end of its name.
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

/// What the server says of its memory, in bytes.
#[derive(Clone, Copy)]
struct Memory {
    used: u64,
    /// What of it the keys hold: not the server's tables and buffers.
    dataset: u64,
    /// What of it is in the machine's memory.
    resident: u64,
    /// 0: no limit.
    maxmemory: u64,
    machine: u64,
    eviction: Eviction,
}

/// What the server evicts at `maxmemory`.
#[derive(Clone, Copy)]
enum Eviction {
    Nothing,
    /// Of so many keys those that have a time to live.
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

    /// What is left before something is evicted.
    fn free(&self) -> u64 {
        Self { eviction: Eviction::Nothing, ..*self }.room(0, 0)
    }

    /// What is left for a filter beside those that are there, so many and of so many bytes.
    fn room(&self, filter_bytes: u64, filters: u64) -> u64 {
        if self.maxmemory == 0 {
            // What was reserved and is not touched yet is promised all the same.
            let promised = self.used.saturating_sub(self.resident);
            let left = machine::available_bytes().unwrap_or(u64::MAX).saturating_sub(promised);
            return left.min(self.machine.saturating_sub(self.used));
        }
        let stays = match self.eviction {
            Eviction::Nothing => self.used,
            Eviction::Volatile { keys, expires } => {
                // What the keys with a time to live hold, nobody knows. It is taken for as large a part of the data as they
                // are of the keys, filters aside; and those with a time to live for as few as they may be, as if every
                // filter were one of them.
                let data = self.dataset.saturating_sub(filter_bytes);
                let goes = part(data, expires.saturating_sub(filters), keys.saturating_sub(filters));
                self.used.saturating_sub(goes)
            }
            Eviction::Anything => 0,
        };
        self.maxmemory.saturating_sub(stays.max(filter_bytes))
    }
}

/// The part of a number that `share` is of `whole`, at most all of it.
fn part(number: u64, share: u64, whole: u64) -> u64 {
    let part = u128::from(number) * u128::from(share.min(whole)) / u128::from(whole.max(1));
    u64::try_from(part).unwrap_or(number)
}

/// The keys of all databases.
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

    /// A cache of 100 MiB that is full: 5 of them are the server's own, 15 those of three filters.
    fn room(eviction: Eviction) -> u64 {
        let [used, dataset, resident] = [100, 95, 100].map(|megabytes| megabytes * MIB);
        let memory = Memory { used, dataset, resident, maxmemory: 100 * MIB, machine: u64::MAX, eviction };
        memory.room(15 * MIB, 3) / MIB
    }

    #[test]
    fn what_can_be_evicted_is_room() {
        assert_eq!(room(Eviction::Nothing), 0);
        assert_eq!(room(Eviction::Anything), 85);
    }

    #[test]
    fn of_keys_without_a_time_to_live_nothing_is_room() {
        let room = |keys, expires| room(Eviction::Volatile { keys, expires });
        assert_eq!(room(1000, 0), 0);
        assert_eq!(room(1_000_003, 1_000_003), 80, "all but the server's own and the filters");
        assert_eq!(room(1_000_003, 1_000_000), 79, "only the filters stay");
        assert_eq!(room(1_000_003, 500_003), 40);
        assert_eq!(room(1003, 3), 0, "those may be the filters");
        assert_eq!(room(3, 3), 0, "nothing but filters");
        assert_eq!(room(2, 5), 0, "numbers of different moments");
    }

    #[test]
    fn there_is_never_more_room_than_if_anything_could_go() {
        for (used, dataset) in [(100, 99), (100, 0), (5, 5), (200, 150)] {
            for eviction in [Eviction::Nothing, Eviction::Volatile { keys: 100, expires: 100 }] {
                let memory =
                    Memory { used, dataset, resident: 0, maxmemory: 100, machine: 0, eviction: Eviction::Anything };
                assert!(Memory { eviction, ..memory }.room(30, 0) <= memory.room(30, 0), "{used} {dataset}");
            }
        }
    }

    #[test]
    fn what_is_promised_is_not_given_twice() {
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
        assert!(memory(5, 10).room(0, 0) > left / 2, "what is resident is not promised any more");
    }
}
