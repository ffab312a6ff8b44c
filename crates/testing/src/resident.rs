//! The resident memory of a server, and its peak since a reset, as Linux reports them.

use std::fs;

use super::{Connection, Server, watched};

/// Memory that the server itself may use during the measurement.
const SLACK_BYTES: i64 = 2 << 20;
/// The maximum number of attempts to meet the limit of memory.
const TRIES: u32 = 5;

/// Resident bytes of a process.
#[derive(Clone, Copy)]
pub struct Resident {
    /// The current value.
    pub now: i64,
    /// The peak since the last reset.
    pub peak: i64,
}

impl Resident {
    /// Reads the values; `None` if the system does not report them, or if the memory of a checker is included.
    pub fn of(server: &Server) -> Option<Self> {
        if watched() {
            return None;
        }
        let status = fs::read_to_string(format!("/proc/{}/status", server.process_id())).ok()?;
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().trim_end_matches(" kB").parse::<i64>().ok().map(|kibibytes| kibibytes << 10)
        };
        Some(Self { now: bytes("VmRSS:")?, peak: bytes("VmHWM:")? })
    }

    /// Resets the peak, if permitted.
    pub fn with_peak_forgotten(server: &Server) -> Option<Self> {
        fs::write(format!("/proc/{}/clear_refs", server.process_id()), "5").ok()?;
        Self::of(server)
    }

    /// Runs `attempt` on an idle server and returns its first result. The second result is a number of bytes: at most eight times this
    /// number may become resident in the process, apart from the server's own memory; `None` for no limit. The allocator may also touch
    /// pages for its own reasons, such as a block that it clears before reuse. So if the limit is exceeded, the allocator's free pages are
    /// purged and `attempt` runs again: memory that the module touches is touched in every attempt.
    pub fn bounded<T>(
        server: &Server,
        client: &mut Connection,
        mut attempt: impl FnMut(&mut Connection) -> (T, Option<usize>),
    ) -> T {
        let mut excess = String::new();
        for _ in 0..TRIES {
            let before = Self::with_peak_forgotten(server);
            let (result, bytes) = attempt(client);
            let (Some(bytes), Some(before), Some(after)) = (bytes, before, Self::of(server)) else { return result };
            let resident = after.peak - before.now;
            if resident <= 8 * bytes as i64 + SLACK_BYTES {
                return result;
            }
            excess = format!("{resident} bytes resident for {bytes}");
            client.run("MEMORY PURGE");
        }
        panic!("{excess}, the last of {TRIES} times");
    }
}
