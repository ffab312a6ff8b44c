//! The context of a command: where the command comes from, its client's protocol, its time, the server's state and its log.

use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::fmt::{self, Display, Write};

use bloomgate_filter::{Clock, Moment, kinds};
use redis_module::raw;

use super::api;
pub use super::api::{Context, ERR, OK};

/// The level of a log line.
#[derive(Clone, Copy)]
pub enum LogLevel {
    /// Useful to operators in production.
    Notice,
    /// Needs an operator's attention.
    Warning,
}

/// The sender of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A client, whose commands are checked against all limits.
    Client,
    /// The primary of this replica, or a node from which slots are imported.
    Primary,
    /// The AOF that the server is reading, or a snapshot.
    Aof,
}

impl Origin {
    /// Whether the command is an effect: a change that has been made already, on the primary or before a restart. No limit for clients
    /// applies, and it must not fail.
    #[inline]
    pub const fn is_effect(self) -> bool {
        !matches!(self, Self::Client)
    }
}

impl From<Origin> for kinds::Origin {
    #[inline]
    fn from(origin: Origin) -> Self {
        if origin.is_effect() { Self::Effect } else { Self::Client }
    }
}

impl Context {
    /// Returns the origin of the running command. A server that reads its AOF runs no client's commands. A replica that loads a data set
    /// while it serves the old one (`repl-diskless-load swapdb`, flag ASYNC_LOADING) does, so that flag is not tested.
    pub fn origin(self) -> Origin {
        let flags = self.flags();
        if flags & raw::REDISMODULE_CTX_FLAGS_LOADING != 0 {
            Origin::Aof
        } else if flags & raw::REDISMODULE_CTX_FLAGS_REPLICATED != 0 {
            Origin::Primary
        } else {
            Origin::Client
        }
    }

    /// Whether the server reads its AOF or a snapshot.
    pub fn is_loading(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_LOADING)
    }

    /// Whether this server is a primary.
    pub fn is_primary(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_MASTER)
    }

    /// Whether this server is a replica that refuses writes from clients.
    pub fn is_read_only_replica(self) -> bool {
        !self.is_primary() && self.has(raw::REDISMODULE_CTX_FLAGS_READONLY)
    }

    /// Whether the client may be blocked: false in MULTI and in scripts, or if the server forbids it.
    pub fn may_block(self) -> bool {
        let flags = raw::REDISMODULE_CTX_FLAGS_MULTI | raw::REDISMODULE_CTX_FLAGS_LUA;
        !self.has(flags | raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING)
    }

    /// Whether a child of the server is running: one that saves, rewrites the AOF, or works for another module.
    pub fn has_child(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_ACTIVE_CHILD)
    }

    /// Whether this server is a node of a cluster.
    pub fn is_in_cluster(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_CLUSTER)
    }

    /// Whether the client speaks RESP3.
    pub fn speaks_resp3(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_RESP3)
    }

    /// Whether new adds may be pending: a child is running, this server is a primary, and the command comes from a client.
    pub fn may_pend(self) -> bool {
        const WANTED: u32 = raw::REDISMODULE_CTX_FLAGS_ACTIVE_CHILD | raw::REDISMODULE_CTX_FLAGS_MASTER;
        const OTHERS: u32 = raw::REDISMODULE_CTX_FLAGS_REPLICATED
            | raw::REDISMODULE_CTX_FLAGS_LOADING
            | raw::REDISMODULE_CTX_FLAGS_IS_CHILD;
        self.flags() & (WANTED | OTHERS) == WANTED
    }

    /// Whether one of these flags is set.
    fn has(self, flags: u32) -> bool {
        self.flags() & flags != 0
    }

    fn flags(self) -> u32 {
        api::context_flags(self).cast_unsigned()
    }

    /// The number of the selected database.
    pub fn database(self) -> c_int {
        api::database(self)
    }

    /// Random bytes from the server.
    pub fn random_bytes<const N: usize>(self) -> [u8; N] {
        let mut bytes = [0; N];
        api::random_bytes(&mut bytes);
        bytes
    }

    /// Writes a line to the server's log.
    pub fn log(self, level: LogLevel, line: impl Display) {
        api::log(self, level.name(), Text::of(line).as_c_str());
    }

    /// Ends the server, because it cannot apply an effect of its primary or its AOF. Otherwise it would report added items as absent.
    pub fn abort_replication(self, reason: impl Display) -> ! {
        self.give_up(format_args!("bloomgate: cannot apply an effect of the primary or the AOF, exiting: {reason}"))
    }

    /// Writes a line to the log and ends the process.
    pub fn give_up(self, line: impl Display) -> ! {
        self.log(LogLevel::Warning, line);
        std::process::exit(1)
    }
}

impl LogLevel {
    pub(super) const fn name(self) -> &'static CStr {
        match self {
            Self::Notice => c"notice",
            Self::Warning => c"warning",
        }
    }
}

/// The time of a command: read when it is first needed, and the same until the command ends. In a script it is the script's cached time, if
/// the server provides one.
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
    Moment(u64::try_from(api::cached_microseconds() / 1000).unwrap_or(0))
}

/// The longest line of the server's log.
const BYTES: usize = 1024;

/// A text that ends with a NUL byte, as the server's functions need it. A text that is too long is cut; a NUL byte inside becomes a
/// question mark.
pub struct Text {
    bytes: [u8; BYTES],
    length: usize,
}

impl Text {
    /// The text of a value.
    pub fn of(value: impl Display) -> Self {
        let mut text = Self { bytes: [0; BYTES], length: 0 };
        // A text that is too long is cut: there is no error.
        let _ = write!(text, "{value}");
        text
    }

    /// The text with the NUL byte after it.
    pub fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }

    /// The text without the NUL byte.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// The text; empty if it was cut inside a character.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.bytes()).unwrap_or_default()
    }
}

impl Write for Text {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let room = self.bytes.get_mut(self.length..BYTES - 1).unwrap_or_default();
        let taken = room.iter_mut().zip(more.bytes());
        self.length += taken.len();
        taken.for_each(|(place, byte)| *place = if byte == 0 { b'?' } else { byte });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_ends_with_nul_and_has_none_inside() {
        let text = Text::of(format_args!("{} of {:?}\0{}", 1, 0.5, "bytes"));
        assert_eq!(text.as_str(), "1 of 0.5?bytes");
        assert_eq!(text.as_c_str().to_bytes(), text.bytes());
        assert_eq!(Text::of("").bytes(), b"");
    }

    #[test]
    fn a_long_text_is_cut() {
        let text = Text::of("x".repeat(5000));
        assert_eq!(text.bytes().len(), BYTES - 1);
        assert_eq!(text.bytes[BYTES - 1], 0);
    }

    /// The longest rates of filters are not cut: replicas parse them.
    #[test]
    fn every_fraction_fits() {
        for number in [5e-324, f64::MIN_POSITIVE, 2.225_073_858_507_201e-308, 1.797_693_134_862_315_7e308, 0.01] {
            assert_eq!(Text::of(number).as_str().parse(), Ok(number));
        }
    }
}
