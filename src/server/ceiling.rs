//! How large a filter may become for a client: the configured ceiling; without one the room under `maxmemory`; without
//! that what the machine and the control group have left, the lesser of both. And how many layers it may have.
//!
//! In a cache that evicts there is no room once it is full, and filters beside it could neither be made nor grow. There
//! the server makes room for what is added, as it does for its own types, so what other keys hold counts as room; all
//! filters together stay below `maxmemory`.
//!
//! Under overcommit an allocation of 100 GiB succeeds on a machine of 24, and the server dies when the pages are used.
//! So the question is asked before the allocator is.

use super::config;
use super::context::Context;
use super::information::Information;
use super::machine;
use super::metrics;
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
        Memory::now(self.0).map_or(u64::MAX, |memory| memory.room(metrics::bytes()))
    }

    fn layers_max(&self) -> usize {
        if self.0.must_obey() { usize::MAX } else { CLIENT_LAYERS_MAX }
    }
}

/// What the server says of its memory, in bytes.
#[derive(Clone, Copy)]
struct Memory {
    used: u64,
    /// What of it is in the machine's memory.
    resident: u64,
    /// 0: no limit.
    maxmemory: u64,
    machine: u64,
    /// Whether the server evicts keys at `maxmemory`.
    evicts: bool,
}

impl Memory {
    fn now(context: Context) -> Option<Self> {
        let information = Information::of(context, c"memory")?;
        let maxmemory = information.number(c"maxmemory")?;
        Some(Self {
            used: information.number(c"used_memory")?,
            resident: information.number(c"used_memory_rss")?,
            maxmemory,
            machine: information.number(c"total_system_memory")?,
            evicts: maxmemory > 0 && information.text(c"maxmemory_policy").is_some_and(|policy| policy != "noeviction"),
        })
    }

    /// What is left for a filter beside those that are there, of so many bytes.
    fn room(&self, filter_bytes: u64) -> u64 {
        if self.maxmemory == 0 {
            // What was reserved and is not touched yet is promised all the same.
            let promised = self.used.saturating_sub(self.resident);
            let left = machine::available_bytes().unwrap_or(u64::MAX).saturating_sub(promised);
            return left.min(self.machine.saturating_sub(self.used));
        }
        self.maxmemory.saturating_sub(if self.evicts { filter_bytes } else { self.used })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_promised_is_not_given_twice() {
        let memory = |used, resident| Memory { used, resident, maxmemory: 0, machine: u64::MAX, evicts: false };
        let Some(left) = machine::available_bytes() else {
            eprintln!("SKIPPED: the system does not say what is available");
            return;
        };
        assert_eq!(memory(u64::MAX / 2, 0).room(0), 0);
        assert!(memory(5, 10).room(0) > left / 2, "what is resident is not promised any more");
    }
}
