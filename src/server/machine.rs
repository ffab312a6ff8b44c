//! How much memory this process has available: on the machine, and in its control groups. Allocates nothing, because memory may have
//! run out.
//!
//! Only Linux reports both. On other systems the caller uses the size of the machine.

use std::ffi::{c_char, c_int};
use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;

use crate::text::Text;

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
pub fn available_bytes() -> Option<u64> {
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

    const GIB: u64 = 1 << 30;

    /// The available bytes according to these files.
    fn left(files: &[(&str, &str)]) -> Option<u64> {
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
        assert_eq!(left(&[MEMINFO]), Some(8 * GIB));
        assert_eq!(left(&[]), None);
        assert_eq!(left(&[("proc/meminfo", "MemTotal: 25165824 kB\n")]), None, "a kernel before 3.14");
    }

    #[test]
    fn a_group_has_its_limit_less_its_usage_without_cached_files() {
        let unlimited = [
            MEMINFO,
            ("proc/self/cgroup", "0::/system.slice/redis\n"),
            ("sys/fs/cgroup/system.slice/redis/memory.max", "max\n"),
            ("sys/fs/cgroup/system.slice/redis/memory.current", "1073741824\n"),
        ];
        assert_eq!(left(&unlimited), Some(8 * GIB));
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
        assert_eq!(left(&limited), Some(2 * GIB));
        let overdrawn =
            [&limited[..3], &[("sys/fs/cgroup/system.slice/redis/memory.current", "5000000000\n")]].concat();
        assert_eq!(left(&overdrawn), Some(0));
        let tight_parent = [&limited[..], &[("sys/fs/cgroup/system.slice/memory.max", "1000\n")]].concat();
        assert_eq!(left(&tight_parent), Some(1000), "the limits of parents apply");
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
        assert_eq!(left(&files), Some(2 * GIB));
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
