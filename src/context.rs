//! The context of a command: where the command comes from, its client's protocol, its time, the server's state and its log.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};
use std::fmt::{self, Display, Write};

use bloomgate_filter::kinds::Origin;
use bloomgate_filter::{Clock, Moment};
use redis_module::raw;

/// The context of a command or a callback, valid while that runs; or a null pointer, for callbacks that get no context. The server's
/// functions for flags, the log and INFO take a null pointer as well.
#[derive(Clone, Copy)]
pub struct Context {
    pub(super) raw: *mut raw::RedisModuleCtx,
}

/// The level of a log line.
#[derive(Clone, Copy)]
pub enum LogLevel {
    /// Useful to operators in production.
    Notice,
    /// Needs an operator's attention.
    Warning,
}

impl Context {
    pub(super) const fn new(raw: *mut raw::RedisModuleCtx) -> Self {
        Self { raw }
    }

    /// Whether the command comes from a primary or from the AOF. It repeats what has happened already, so no limit for clients applies.
    /// A server that reads its AOF runs no client's commands. A replica that loads a data set beside the old one
    /// (`repl-diskless-load swapdb`, the flag ASYNC_LOADING) does, so that flag is not tested.
    pub fn must_obey(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_REPLICATED | raw::REDISMODULE_CTX_FLAGS_LOADING)
    }

    /// The origin of the command.
    #[inline]
    pub fn origin(self) -> Origin {
        if self.must_obey() { Origin::Effect } else { Origin::Client }
    }

    /// Whether the server reads its AOF or a snapshot.
    pub fn is_loading(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_LOADING)
    }

    /// Whether a callback without a client must succeed, because the value comes from a snapshot, the AOF, or a primary's RESTORE or
    /// COPY. On a replica it always must: a client's command cannot be told apart there.
    pub fn must_obey_without_client(self) -> bool {
        self.must_obey() || !self.is_primary()
    }

    /// Whether this server is a primary.
    pub fn is_primary(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_MASTER)
    }

    /// Whether this server is a replica that takes no writes from clients.
    pub fn is_read_only_replica(self) -> bool {
        !self.is_primary() && self.has(raw::REDISMODULE_CTX_FLAGS_READONLY)
    }

    /// Whether the client may be blocked: not in MULTI, in scripts, or if the server forbids it.
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
        // SAFETY: the context is valid or null.
        let flags = unsafe { raw::RedisModule_GetContextFlags.map_or(0, |flags| flags(self.raw)) };
        flags.cast_unsigned()
    }

    /// The number of the selected database.
    pub fn database(self) -> c_int {
        // SAFETY: the context is valid.
        unsafe { raw::RedisModule_GetSelectedDb.map_or(0, |selected| selected(self.raw)) }
    }

    /// Random bytes from the server.
    pub fn random_bytes<const N: usize>(self) -> [u8; N] {
        let mut bytes = [0; N];
        // SAFETY: the buffer has the length that is passed.
        unsafe {
            if let Some(random) = raw::RedisModule_GetRandomBytes {
                random(bytes.as_mut_ptr(), bytes.len());
            }
        }
        bytes
    }

    /// Writes a line to the server's log.
    pub fn log(self, level: LogLevel, line: impl Display) {
        let line = Text::of(line);
        // SAFETY: the context is valid or null; the format takes one C string, which is passed.
        unsafe {
            if let Some(log) = raw::RedisModule_Log {
                log(self.raw, level.name().as_ptr(), c"%s".as_ptr(), line.as_ptr());
            }
        }
    }

    /// Ends the server, which cannot apply an effect of its primary or its AOF. If it went on, it would report added items absent.
    pub fn cannot_obey(self, reason: impl Display) -> ! {
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

/// What a callback returns to the server on success.
pub(super) const OK: c_int = 0;
/// What a callback returns to the server on failure.
pub(super) const ERR: c_int = 1;

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

    /// The text with the NUL byte after it, for as long as the value lives.
    pub const fn as_ptr(&self) -> *const c_char {
        self.bytes.as_ptr().cast()
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
        // SAFETY: the text lives and ends with NUL.
        assert_eq!(unsafe { CStr::from_ptr(text.as_ptr()) }.to_bytes(), text.bytes());
        assert_eq!(Text::of("").bytes(), b"");
    }

    #[test]
    fn a_long_text_is_cut() {
        let text = Text::of("x".repeat(5000));
        assert_eq!(text.bytes().len(), BYTES - 1);
        assert_eq!(text.bytes[BYTES - 1], 0);
    }

    /// The longest rates of filters are not cut, so that replicas read them.
    #[test]
    fn every_fraction_fits() {
        for number in [5e-324, f64::MIN_POSITIVE, 2.225_073_858_507_201e-308, 1.797_693_134_862_315_7e308, 0.01] {
            assert_eq!(Text::of(number).as_str().parse(), Ok(number));
        }
    }
}
