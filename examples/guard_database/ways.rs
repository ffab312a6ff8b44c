//! Three ways to look a page up: a cache; a filter, a cache and a lock; the guard. Each of them counts its round trips.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use bloomgate_client::Guard;
use redis::{Cmd, Connection, ConnectionLike, FromRedisValue, RedisResult, Value, cmd};

use crate::pages::Pages;

/// The number of round trips to Redis since the last reset, without the guard's, which it counts itself.
pub static ROUND_TRIPS: AtomicUsize = AtomicUsize::new(0);

const VALUE_SECONDS: u64 = 60;
const LOCK_MS: u64 = 3000;
/// A client that does not get the lock checks the cache again after this long.
const LOCKED_OUT: Duration = Duration::from_millis(5);
/// The cached value of a page that does not exist.
const NO_PAGE: &str = "\0";
/// Deletes the lock if this client still owns it.
const UNLOCK: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// A connection that counts its round trips.
pub struct Counted(Connection);

impl ConnectionLike for Counted {
    fn req_packed_command(&mut self, command: &[u8]) -> RedisResult<Value> {
        ROUND_TRIPS.fetch_add(1, Ordering::Relaxed);
        self.0.req_packed_command(command)
    }

    fn req_packed_commands(&mut self, commands: &[u8], offset: usize, count: usize) -> RedisResult<Vec<Value>> {
        ROUND_TRIPS.fetch_add(1, Ordering::Relaxed);
        self.0.req_packed_commands(commands, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.0.get_db()
    }

    fn check_connection(&mut self) -> bool {
        self.0.check_connection()
    }

    fn is_open(&self) -> bool {
        self.0.is_open()
    }
}

/// Deletes what an earlier run may have left in the caches.
pub fn empty_caches(redis: &mut Connection, urls: &[&String]) -> Result<()> {
    let mut unlink = cmd("UNLINK");
    for url in urls {
        unlink.arg(format!("cached:{url}")).arg(format!("locked:{url}")).arg(format!("{{known-pages}}:{url}"));
    }
    Ok(unlink.exec(redis)?)
}

/// A way to look up pages.
#[derive(Clone, Copy, PartialEq)]
pub enum Way {
    /// GET, the database, SET.
    Cache,
    /// BF.EXISTS, GET, a lock, the database, SET.
    FilterCacheLock,
    /// BF.FETCH, the database, BF.FILL.
    Guard,
}

impl Way {
    /// All ways, the guard last.
    pub const ALL: [Self; 3] = [Self::Cache, Self::FilterCacheLock, Self::Guard];

    /// The steps, in order.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cache => "GET, database, SET",
            Self::FilterCacheLock => "filter, GET, lock, database, SET",
            Self::Guard => "BF.FETCH, database, BF.FILL",
        }
    }
}

/// Reads a page through the guard.
pub fn read(guard: &Guard, pages: &Pages, url: &str) -> Result<Option<String>> {
    let title = guard.get(url, |url| pages.title(url).map(|title| title.map(String::into_bytes)))?;
    Ok(title.map(String::from_utf8).transpose()?)
}

/// A client of a service that looks up pages.
pub struct ServiceClient {
    way: Way,
    filter: &'static str,
    redis: Counted,
    guard: Guard,
    pages: Pages,
}

impl ServiceClient {
    /// Opens a client with a separate connection and the guard of the process.
    pub fn open(way: Way, client: &redis::Client, guard: &Guard, filter: &'static str, file: &Path) -> Result<Self> {
        let redis = Counted(client.get_connection()?);
        Ok(Self { way, filter, redis, guard: guard.clone(), pages: Pages::open(file)? })
    }

    /// Returns the title of a page, if the page exists.
    pub fn look_up(&mut self, url: &str) -> Result<Option<String>> {
        match self.way {
            Way::Cache => self.by_cache(url),
            Way::FilterCacheLock => self.by_filter_cache_and_lock(url),
            Way::Guard => read(&self.guard, &self.pages, url),
        }
    }

    fn by_cache(&mut self, url: &str) -> Result<Option<String>> {
        let key = format!("cached:{url}");
        if let Some(title) = self.ask(cmd("GET").arg(&key))? {
            return Ok(Some(title));
        }
        let title = self.pages.title(url)?;
        if let Some(title) = &title {
            self.ask::<()>(cmd("SET").arg(&key).arg(title).arg("EX").arg(VALUE_SECONDS))?;
        }
        Ok(title)
    }

    fn by_filter_cache_and_lock(&mut self, url: &str) -> Result<Option<String>> {
        if !self.ask::<bool>(cmd("BF.EXISTS").arg(self.filter).arg(url))? {
            return Ok(None);
        }
        let (key, lock, owner) =
            (format!("locked:{url}"), format!("lock:{url}"), format!("{:?}", thread::current().id()));
        loop {
            if let Some(title) = self.ask::<Option<String>>(cmd("GET").arg(&key))? {
                return Ok(Some(title).filter(|title| title != NO_PAGE));
            }
            let locked: Option<String> =
                self.ask(cmd("SET").arg(&lock).arg(&owner).arg("NX").arg("PX").arg(LOCK_MS))?;
            if locked.is_some() {
                break;
            }
            thread::sleep(LOCKED_OUT);
        }
        let title = self.pages.title(url)?;
        self.ask::<()>(cmd("SET").arg(&key).arg(title.as_deref().unwrap_or(NO_PAGE)).arg("EX").arg(VALUE_SECONDS))?;
        self.ask::<()>(cmd("EVAL").arg(UNLOCK).arg(1).arg(&lock).arg(&owner))?;
        Ok(title)
    }

    fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        command.query(&mut self.redis)
    }
}
