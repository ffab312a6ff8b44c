//! How large a client may make a filter: up to the configured ceiling; without one, the room under `maxmemory`; without that, the
//! memory that the machine or the control group has left, whichever is less. And how many layers the filter may have.
//!
//! A cache that evicts keys is always full, so no filter could be created beside it or grow. But the server evicts keys to make room
//! for a filter as for its own types, so memory that it can evict counts as room. All filters together, and what the server needs for
//! itself, stay below `maxmemory`: otherwise it would evict the new filter.
//!
//! With overcommit an allocation of 100 GiB succeeds on a machine with 24, and the server is killed when it uses the pages. So the
//! ceiling is checked before memory is requested.

use std::ffi::{c_char, c_int};
use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use bloomgate_filter::{CLIENT_LAYERS_MAX, Ceiling};
use redis_module::raw;

use super::{freeing, role};
use crate::context::{Context, Text};
use crate::information::Information;
use crate::{config, metrics};

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
        Self { context, pending_from_bytes: role::pending_from_bytes(context) }
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
        Memory::now(self.context).map_or(u64::MAX, |memory| memory.room(metrics::BYTES.get(), metrics::OBJECTS.get()))
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
            let left = available_bytes().unwrap_or(u64::MAX).saturating_sub(promised);
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

// How much memory this process has available: on the machine, and in its control groups. Allocates nothing, because memory may have
// run out.
//
// Only Linux reports both. On other systems the caller uses the size of the machine.

/// The files of a control group, by the version of the hierarchy that it is in.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Files {
    /// Where the hierarchy is mounted.
    mount: &'static str,
    limit: &'static str,
    usage: &'static str,
    /// The line of `memory.stat` with the cached files that the system drops before it kills a process.
    cached: &'static str,
}

const VERSION_2: Files =
    Files { mount: "/sys/fs/cgroup", limit: "memory.max", usage: "memory.current", cached: "inactive_file " };
const VERSION_1: Files = Files {
    mount: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    cached: "total_inactive_file ",
};

/// The bytes that the machine and each control group of this process have available, whichever is least; `None` if the system does
/// not report them.
fn available_bytes() -> Option<u64> {
    available_bytes_under("")
}

/// [`available_bytes`] with the system's files under another root.
fn available_bytes_under(root: &str) -> Option<u64> {
    let mut buffer = [0; 8192];
    let machine = read(&Text::of(format_args!("{root}/proc/meminfo")), &mut buffer).and_then(available_in);
    let groups = read(&Text::of(format_args!("{root}/proc/self/cgroup")), &mut buffer).unwrap_or_default();
    let left = groups
        .lines()
        .filter_map(group)
        .flat_map(|(files, group)| levels(group).filter_map(move |level| left_of(root, files, level)));
    machine.into_iter().chain(left).min()
}

/// The available bytes of /proc/meminfo: without swapping, and with cached files that the system can drop.
fn available_in(meminfo: &str) -> Option<u64> {
    let kibibytes = number_after(meminfo, "MemAvailable:")?;
    kibibytes.checked_mul(1024)
}

/// The group that limits memory, and its files, from a line of /proc/self/cgroup.
fn group(line: &str) -> Option<(Files, &str)> {
    let mut fields = line.splitn(3, ':');
    let (number, controllers, group) = (fields.next()?, fields.next()?, fields.next()?);
    if number == "0" && controllers.is_empty() {
        Some((VERSION_2, group))
    } else if controllers.split(',').any(|controller| controller == "memory") {
        Some((VERSION_1, group))
    } else {
        None
    }
}

/// A group and its parents: `/a/b`, `/a` and the root, an empty string.
fn levels(group: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(group.trim_end_matches('/')), |level| Some(level.rsplit_once('/')?.0))
}

/// The bytes that a group has available under its limit; `None` without a limit.
fn left_of(root: &str, files: Files, group: &str) -> Option<u64> {
    let mut buffer = [0; 8192];
    let Files { mount, limit, usage, cached } = files;
    let mut read = |file: &str, find: fn(&str, &str) -> Option<u64>, name: &str| {
        find(read(&Text::of(format_args!("{root}{mount}{group}/{file}")), &mut buffer)?, name)
    };
    let limit = read(limit, |text, _| text.trim().parse().ok(), "")?;
    let usage = read(usage, |text, _| text.trim().parse().ok(), "").unwrap_or(0);
    let cached = read("memory.stat", number_after, cached).unwrap_or(0);
    Some(limit.saturating_sub(usage.saturating_sub(cached)))
}

/// The number after a name at the beginning of a line.
fn number_after(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// Reads as much of a file as fits the buffer. `File::open` would copy a long path to the heap.
fn read<'a>(path: &Text, buffer: &'a mut [u8]) -> Option<&'a str> {
    unsafe extern "C" {
        fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    }
    const READ_ONLY: c_int = 0;
    // SAFETY: the path ends with NUL. The descriptor is checked, and nothing else has it.
    let mut file = unsafe {
        let descriptor = open(path.as_ptr(), READ_ONLY);
        if descriptor < 0 {
            return None;
        }
        File::from_raw_fd(descriptor)
    };
    let mut length = 0;
    while let Some(room) = buffer.get_mut(length..).filter(|room| !room.is_empty()) {
        match file.read(room).ok()? {
            0 => break,
            more => length += more,
        }
    }
    std::str::from_utf8(buffer.get(..length)?).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

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
        let Some(left) = available_bytes() else {
            eprintln!("SKIPPED: the system does not say what is available");
            return;
        };
        assert_eq!(memory(u64::MAX / 2, 0).room(0, 0), 0);
        assert!(memory(5, 10).room(0, 0) > left / 2, "resident memory is not reserved");
    }

    const GIB: u64 = 1 << 30;

    /// The available bytes according to these files.
    fn left_in(files: &[(&str, &str)]) -> Option<u64> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        available_bytes_under(root.path().to_str().unwrap())
    }

    const MEMINFO: (&str, &str) =
        ("proc/meminfo", "MemTotal:       25165824 kB\nMemFree:         1048576 kB\nMemAvailable:    8388608 kB\n");

    #[test]
    fn without_groups_the_available_bytes_are_those_of_meminfo() {
        assert_eq!(left_in(&[MEMINFO]), Some(8 * GIB));
        assert_eq!(left_in(&[]), None);
        assert_eq!(left_in(&[("proc/meminfo", "MemTotal: 25165824 kB\n")]), None, "a kernel before 3.14");
    }

    #[test]
    fn a_group_has_its_limit_less_its_usage_without_cached_files() {
        let unlimited = [
            MEMINFO,
            ("proc/self/cgroup", "0::/system.slice/redis\n"),
            ("sys/fs/cgroup/system.slice/redis/memory.max", "max\n"),
            ("sys/fs/cgroup/system.slice/redis/memory.current", "1073741824\n"),
        ];
        assert_eq!(left_in(&unlimited), Some(8 * GIB));
        let limited = [
            MEMINFO,
            ("proc/self/cgroup", "0::/system.slice/redis\n"),
            ("sys/fs/cgroup/system.slice/redis/memory.max", "4294967296\n"),
            ("sys/fs/cgroup/system.slice/redis/memory.current", "3221225472\n"),
            (
                "sys/fs/cgroup/system.slice/redis/memory.stat",
                "anon 1\nfile 2\ninactive_file 1073741824\nactive_file 3\n",
            ),
        ];
        assert_eq!(left_in(&limited), Some(2 * GIB));
        let overdrawn =
            [&limited[..3], &[("sys/fs/cgroup/system.slice/redis/memory.current", "5000000000\n")]].concat();
        assert_eq!(left_in(&overdrawn), Some(0));
        let tight_parent = [&limited[..], &[("sys/fs/cgroup/system.slice/memory.max", "1000\n")]].concat();
        assert_eq!(left_in(&tight_parent), Some(1000), "the limits of parents apply");
    }

    #[test]
    fn version_1_has_other_files() {
        let files = [
            MEMINFO,
            ("proc/self/cgroup", "8:pids:/\n4:cpu,memory:/docker/1\n0::/\n"),
            ("sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "4294967296\n"),
            ("sys/fs/cgroup/memory/docker/1/memory.usage_in_bytes", "3221225472\n"),
            ("sys/fs/cgroup/memory/docker/1/memory.stat", "inactive_file 5\ntotal_inactive_file 1073741824\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        assert_eq!(left_in(&files), Some(2 * GIB));
    }

    #[test]
    fn lines_of_both_control_group_versions_are_read() {
        assert_eq!(group("0::/system.slice/redis"), Some((VERSION_2, "/system.slice/redis")));
        assert_eq!(group("4:cpu,memory:/docker/1"), Some((VERSION_1, "/docker/1")));
        assert_eq!(group("8:pids:/"), None);
        assert_eq!(group(""), None);
    }

    #[test]
    fn a_group_is_followed_by_its_parents() {
        assert_eq!(levels("/system.slice/redis").collect::<Vec<_>>(), ["/system.slice/redis", "/system.slice", ""]);
        assert_eq!(levels("/").collect::<Vec<_>>(), [""]);
    }

    #[test]
    fn a_long_file_is_read_until_the_buffer_is_full() {
        let mut buffer = [0; 4];
        assert_eq!(read(&Text::of("/proc/self/cgroup/none"), &mut buffer), None);
        assert_eq!(read(&Text::of(concat!(env!("CARGO_MANIFEST_DIR"), "/clippy.toml")), &mut buffer), Some("allo"));
    }
}
