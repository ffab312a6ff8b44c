//! How large a filter may become for a client: the configured ceiling; without one the room under `maxmemory`; without
//! that what is left of the machine's memory, or of the control group's where that is less.
//!
//! In a cache that evicts there is no room once it is full, and filters beside it could neither be made nor grow. There
//! the server makes room for what is added, as it does for its own types, so what other keys hold counts as room; all
//! filters together stay below `maxmemory`.
//!
//! Under overcommit an allocation of 100 GiB succeeds on a machine of 24, and the server dies when the pages are used.
//! So the question is asked before the allocator is.

use std::ffi::{CStr, c_char, c_int};
use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;

use redis_module::raw;

use super::config;
use super::context::Context;
use super::metrics;
use super::text::Text;
use crate::bloom::{CLIENT_LAYERS_MAX, Ceiling};

/// Requests up to this size are left to the server's own `maxmemory`, which refuses the command (deny-oom): looking up
/// the room would cost more than making the filter.
const UNCHECKED_BYTES: u64 = 64 * 1024;

/// The ceiling of filters of this server. It binds clients; what comes from a primary or the AOF is obeyed.
pub struct ServerCeiling(pub Context);

impl Ceiling for ServerCeiling {
    fn available_bytes(&self, filter_bytes: u64, asked_bytes: u64) -> u64 {
        if self.0.must_obey() {
            return u64::MAX;
        }
        let configured = config::max_filter_bytes();
        if configured > 0 {
            return configured.saturating_sub(filter_bytes);
        }
        if asked_bytes <= UNCHECKED_BYTES {
            return u64::MAX;
        }
        let Some(memory) = ServerMemory::now(self.0) else { return u64::MAX };
        memory.limit().saturating_sub(if memory.evicts { metrics::bytes() } else { memory.used })
    }

    fn layers_max(&self) -> usize {
        if self.0.must_obey() { usize::MAX } else { CLIENT_LAYERS_MAX }
    }
}

/// What INFO memory says, in bytes.
struct ServerMemory {
    used: u64,
    /// 0: no limit.
    maxmemory: u64,
    machine: u64,
    /// Whether the server evicts keys at `maxmemory`.
    evicts: bool,
}

impl ServerMemory {
    fn now(context: Context) -> Option<Self> {
        // SAFETY: the section is a C string; what the server gives is read while it is there and freed once.
        unsafe {
            let info = raw::RedisModule_GetServerInfo?(context.raw, c"memory".as_ptr());
            let field = |name: &CStr| {
                let mut error = 0;
                let read = raw::RedisModule_ServerInfoGetFieldUnsigned?;
                let value = read(info, name.as_ptr(), &raw mut error);
                (error == 0).then_some(value)
            };
            let evicts = raw::RedisModule_ServerInfoGetFieldC
                .map(|read| read(info, c"maxmemory_policy".as_ptr()))
                .filter(|policy| !policy.is_null())
                .is_some_and(|policy| CStr::from_ptr(policy) != c"noeviction");
            let memory = (field(c"used_memory"), field(c"maxmemory"), field(c"total_system_memory"));
            if let Some(free) = raw::RedisModule_FreeServerInfo {
                free(context.raw, info);
            }
            let (Some(used), Some(maxmemory), Some(machine)) = memory else { return None };
            Some(Self { used, maxmemory, machine, evicts: evicts && maxmemory > 0 })
        }
    }

    fn limit(&self) -> u64 {
        if self.maxmemory > 0 { self.maxmemory } else { control_group_bytes().unwrap_or(u64::MAX).min(self.machine) }
    }
}

/// The memory limit of the control group that this process is in, its parents included; nothing where there is none.
/// Whoever asks may have no memory left: this takes none.
fn control_group_bytes() -> Option<u64> {
    let mut buffer = [0; 8192];
    let groups = read(&Text::of("/proc/self/cgroup"), &mut buffer)?;
    groups
        .lines()
        .filter_map(limit_file)
        .flat_map(|(root, group, file)| levels(group).filter_map(move |level| read_limit(root, level, file)))
        .min()
}

/// A group and its parents: `/a/b`, `/a` and the root, which is empty here.
fn levels(group: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(group.trim_end_matches('/')), |level| Some(level.rsplit_once('/')?.0))
}

/// From a line of /proc/self/cgroup: where the hierarchy is mounted, the group in it, the file with its limit.
fn limit_file(line: &str) -> Option<(&'static str, &str, &'static str)> {
    let mut fields = line.splitn(3, ':');
    let (number, controllers, group) = (fields.next()?, fields.next()?, fields.next()?);
    if number == "0" && controllers.is_empty() {
        Some(("/sys/fs/cgroup", group, "memory.max"))
    } else if controllers.split(',').any(|controller| controller == "memory") {
        Some(("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes"))
    } else {
        None
    }
}

fn read_limit(root: &str, group: &str, file: &str) -> Option<u64> {
    let mut buffer = [0; 64];
    read(&Text::of(format_args!("{root}{group}/{file}")), &mut buffer)?.trim().parse().ok()
}

/// As much of a file as fits the buffer. `File::open` would copy a long path to the heap.
fn read<'a>(path: &Text, buffer: &'a mut [u8]) -> Option<&'a str> {
    unsafe extern "C" {
        fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    }
    const READ_ONLY: c_int = 0;
    // SAFETY: the path ends with NUL. The descriptor is checked, and nobody else has it.
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
    use super::*;

    #[test]
    fn lines_of_both_control_group_versions_are_understood() {
        assert_eq!(limit_file("0::/system.slice/redis"), Some(("/sys/fs/cgroup", "/system.slice/redis", "memory.max")));
        assert_eq!(
            limit_file("4:cpu,memory:/docker/1"),
            Some(("/sys/fs/cgroup/memory", "/docker/1", "memory.limit_in_bytes"))
        );
        assert_eq!(limit_file("8:pids:/"), None);
        assert_eq!(limit_file(""), None);
    }

    #[test]
    fn a_group_is_in_all_above_it() {
        assert_eq!(levels("/system.slice/redis").collect::<Vec<_>>(), ["/system.slice/redis", "/system.slice", ""]);
        assert_eq!(levels("/").collect::<Vec<_>>(), [""]);
    }

    #[test]
    fn a_file_is_read_as_far_as_there_is_room() {
        let mut buffer = [0; 4];
        assert_eq!(read(&Text::of("/proc/self/cgroup/none"), &mut buffer), None);
        assert_eq!(read(&Text::of(concat!(env!("CARGO_MANIFEST_DIR"), "/clippy.toml")), &mut buffer), Some("allo"));
    }
}
