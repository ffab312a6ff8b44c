//! The resident memory of a server, and its peak since a reset, as Linux reports them.

use std::fs;

use super::{Server, watched};

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
}
