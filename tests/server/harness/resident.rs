//! The resident memory of a server, and its peak since a reset, as Linux reports them.

use std::fs;

use super::{Server, watched};

/// Resident bytes of a process.
#[derive(Clone, Copy)]
pub struct Resident {
    /// Now.
    pub now: i64,
    /// The most since the peak was forgotten.
    pub peak: i64,
}

impl Resident {
    /// What the system says; nothing on one that does not say it, and where a tool that watches the server has memory of
    /// its own in it.
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

    /// Begins to measure the peak anew, where that is allowed.
    pub fn with_peak_forgotten(server: &Server) -> Option<Self> {
        fs::write(format!("/proc/{}/clear_refs", server.process_id()), "5").ok()?;
        Self::of(server)
    }
}
