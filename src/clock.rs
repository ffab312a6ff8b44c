//! The time of a command.

use std::cell::Cell;

use bloomgate_filter::{Clock, Moment};
use redis_module::raw;

/// The time of a command: read when it is first needed, and the same until the command ends. In a script it is the time of the script,
/// if the server has one.
#[derive(Default)]
pub struct CommandClock {
    read: Cell<Option<Moment>>,
}

impl Clock for CommandClock {
    fn now(&self) -> Moment {
        let now = self.read.get().unwrap_or_else(server_time);
        self.read.set(Some(now));
        now
    }
}

fn server_time() -> Moment {
    // SAFETY: the functions take nothing.
    let milliseconds = unsafe {
        match (raw::RedisModule_CachedMicroseconds, raw::RedisModule_Milliseconds) {
            (Some(cached), _) => cached() / 1000,
            (None, Some(now)) => now(),
            (None, None) => 0,
        }
    };
    Moment(u64::try_from(milliseconds).unwrap_or(0))
}
