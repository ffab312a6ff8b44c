//! The guard: what reading one row, reading many and writing have in common.

mod commands;
mod flights;
mod leases;
mod load;
mod many;
mod nesting;
mod read;
mod write;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use redis::Cmd;

use super::{Io, Reply, command};
use crate::guard_options::milliseconds;
use crate::{Codec, Error, GuardOptions};

#[cfg(feature = "tokio")]
pub use commands::is_late;
pub use commands::{Commands, Fetch, Fetched, Found, FoundOne};
use flights::Flights;
pub use flights::Waiter;
pub use flights::lock;
pub use leases::Leases;
use leases::Token;
pub use write::fill_filter;

/// The most ids that are sent together.
pub const BATCH: usize = 500;
/// Times to live are shortened by up to this share, at random: rows that are filled together do not expire together.
const JITTER: f64 = 0.1;

/// What is known of a row. With a lease the caller has to load the row, and `value` is what may be served if that fails.
struct Answer<R, I: Io> {
    /// The cached value, or `None` if there is no row.
    value: Option<R>,
    lease: Option<Leases<I>>,
    /// Whether a value is cached that the codec can decode, or there is no row.
    is_readable: bool,
}

/// One guard.
pub struct GuardCore<C> {
    pub commands: Arc<Commands>,
    codec: C,
    flights: Flights,
    /// Loads without leases. They are apart from the other flights: no caller waits behind the one that tries a server that hangs.
    direct: Flights,
    /// The loads that continue in the background.
    background: Arc<AtomicUsize>,
}

impl<C: Codec> GuardCore<C> {
    pub fn new(io: &impl Io, filter: &[u8], codec: C, options: GuardOptions) -> Result<Self, Error> {
        options.check(io.is_cluster())?;
        let commands = Arc::new(Commands::new(filter, options)?);
        Ok(Self {
            commands,
            codec,
            flights: Flights::default(),
            direct: Flights::default(),
            background: Arc::default(),
        })
    }

    pub fn options(&self) -> &GuardOptions {
        &self.commands.options
    }

    /// Decodes the value of a reply other than `wait`: the value, and whether it is readable. `undecodable` is a value that the
    /// codec has failed on already.
    fn read(&self, found: &Fetched, undecodable: Option<&[u8]>) -> (Option<C::Row>, bool) {
        match found {
            Fetched::Absent => (None, true),
            Fetched::Load(_) | Fetched::Wait => (None, false),
            Fetched::Hit(value) | Fetched::Stale(value, _) => {
                let is_new = undecodable != Some(value.as_ref());
                let warn = |error: &String| self.commands.warn("a cached value cannot be decoded", error);
                let decoded = if is_new { self.codec.decode(value).inspect_err(warn).ok() } else { None };
                self.commands.count("undecodable", usize::from(is_new && decoded.is_none()));
                let is_readable = decoded.is_some();
                (decoded, is_readable)
            }
        }
    }

    /// Returns loaded rows as they are cached.
    fn encode(&self, rows: &[Option<C::Row>]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let encode = |row: &Option<C::Row>| row.as_ref().map(|row| self.codec.encode(row)).transpose();
        rows.iter().map(encode).collect::<Result<_, _>>().map_err(Error::Refused)
    }

    /// Returns loaded rows as callers get them: as everybody gets them who finds them in the cache.
    fn decode(&self, encoded: &[Option<Vec<u8>>]) -> Result<Vec<Option<C::Row>>, Error> {
        let decode = |value: &Option<Vec<u8>>| value.as_ref().map(|value| self.codec.decode(value)).transpose();
        encoded.iter().map(decode).collect::<Result<_, _>>().map_err(Error::Refused)
    }

    /// Returns the command that fills a row, or that there is none.
    fn fill_with(&self, id: &[u8], token: &Token, value: Option<&[u8]>, ttl_ms: u64) -> Cmd {
        let mut fill = self.commands.fill(id, token);
        match value {
            Some(value) => {
                let fresh_ms = jittered(ttl_ms).saturating_add(milliseconds(self.options().fail_safe));
                fill.arg("VALUE").arg(value).arg("PX").arg(fresh_ms);
            }
            None => _ = fill.arg("NONE").arg("PX").arg(jittered(milliseconds(self.options().absent_ttl))),
        }
        fill
    }
}

/// Shortens a time by up to a tenth, at random.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
fn jittered(ms: u64) -> u64 {
    let less = (ms as f64 * JITTER * fastrand::f64()) as u64;
    ms.saturating_sub(less).max(1)
}
