//! A client of the guard: the three commands, and a connection that follows the primary when servers go and come.

use std::sync::atomic::{AtomicU16, Ordering};

use crate::harness::{Connection, Reply};

/// The filter, and its name while it is filled again.
pub const FILTER: &str = "rows";
pub const FILLING: &str = "rows:filling";

/// What of a row is in the cache: its id and its version, and something that makes it as long as a row is.
pub fn encode_value(id: u64, version: u64) -> String {
    format!("{id}:{version}:{}", "x".repeat(64))
}

/// The version in a value of the cache; panics where it is the value of another id.
pub fn version_in(id: u64, value: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(value);
    let mut parts = text.split(':');
    let mut number = || parts.next().and_then(|part| part.parse::<u64>().ok());
    let (of, version) = (number(), number());
    assert_eq!(of, Some(id), "the cache has {text:?} for {id}");
    version.expect("a version")
}

/// The key of a row in the cache.
pub fn cache_key(id: u64) -> String {
    format!("row:{id}")
}

/// What BF.FETCH answered.
pub enum Fetched {
    Absent,
    Hit(Vec<u8>),
    Stale(Vec<u8>, String),
    Load(String),
    Wait(u64),
}

/// Why there is no answer: the connection broke, or the server refused.
#[derive(Debug)]
pub enum Trouble {
    Gone,
    Refused(String),
}

/// The port of the server that is primary now.
pub struct Primary(AtomicU16);

impl Primary {
    pub fn new(port: u16) -> Self {
        Self(AtomicU16::new(port))
    }

    pub fn set(&self, port: u16) {
        self.0.store(port, Ordering::SeqCst);
    }

    pub fn port(&self) -> u16 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A connection to whichever server is primary, made when it is needed.
pub struct Client<'a> {
    primary: &'a Primary,
    connection: Option<(u16, Connection)>,
    /// Round trips that were begun.
    pub round_trips: u64,
}

impl<'a> Client<'a> {
    pub fn new(primary: &'a Primary) -> Self {
        Self { primary, connection: None, round_trips: 0 }
    }

    fn connection(&mut self) -> Result<&mut Connection, Trouble> {
        let port = self.primary.port();
        let connection = match self.connection.take() {
            Some((at, connection)) if at == port => connection,
            _ => Connection::open(port).map_err(|_| Trouble::Gone)?,
        };
        Ok(&mut self.connection.insert((port, connection)).1)
    }

    /// Any command. An error of the server and a connection that broke are the caller's to deal with.
    pub fn ask(&mut self, words: &[&str]) -> Result<Reply, Trouble> {
        self.round_trips += 1;
        match self.connection()?.try_call(words) {
            Ok(Reply::Error(text)) => Err(Trouble::Refused(text)),
            Ok(reply) => Ok(reply),
            Err(_) => {
                self.connection = None;
                Err(Trouble::Gone)
            }
        }
    }

    /// Sends a command and leaves, without reading its reply.
    pub fn ask_and_leave(&mut self, words: &[&str]) {
        if let Ok(connection) = self.connection() {
            let _ = connection.send(words);
        }
        self.leave();
    }

    /// Closes the connection.
    pub fn leave(&mut self) {
        self.connection = None;
    }

    /// BF.FETCH with its options.
    pub fn fetch(&mut self, id: u64, options: &[String]) -> Result<Fetched, Trouble> {
        let (item, key) = (id.to_string(), cache_key(id));
        let mut words = vec!["BF.FETCH", FILTER, &item, &key];
        words.extend(options.iter().map(String::as_str));
        let reply = self.ask(&words)?;
        let parts = reply.elements();
        let bytes = |index: usize| match &parts[index] {
            Reply::Bulk(bytes) => bytes.clone(),
            other => panic!("not a bulk string: {other:?} in {reply:?}"),
        };
        let token = |index| String::from_utf8_lossy(&bytes(index)).into_owned();
        Ok(match (bytes(0).as_slice(), parts.len()) {
            (b"absent", 1) => Fetched::Absent,
            (b"hit", 2) => Fetched::Hit(bytes(1)),
            (b"stale", 3) => Fetched::Stale(bytes(1), token(2)),
            (b"load", 2) => Fetched::Load(token(1)),
            (b"wait", 2) => Fetched::Wait(parts[1].number() as u64),
            _ => panic!("BF.FETCH answered {reply:?}"),
        })
    }

    /// BF.FILL with a value, or with NONE; whether it was taken.
    pub fn fill(&mut self, id: u64, token: &str, version: Option<u64>, ttl_ms: u64) -> Result<bool, Trouble> {
        let ttl = ttl_ms.to_string();
        match version {
            Some(version) => self.end_lease(id, token, &["VALUE", &encode_value(id, version), "PX", &ttl]),
            None => self.end_lease(id, token, &["NONE", "PX", &ttl]),
        }
    }

    /// BF.FILL GIVEUP.
    pub fn give_up(&mut self, id: u64, token: &str) -> Result<bool, Trouble> {
        self.end_lease(id, token, &["GIVEUP"])
    }

    fn end_lease(&mut self, id: u64, token: &str, words: &[&str]) -> Result<bool, Trouble> {
        let (item, key) = (id.to_string(), cache_key(id));
        let mut line = vec!["BF.FILL", FILTER, &item, &key, token];
        line.extend(words);
        match self.ask(&line)? {
            Reply::Simple(text) if text == "OK" => Ok(true),
            Reply::NullBulk => Ok(false),
            other => panic!("BF.FILL answered {other:?}"),
        }
    }

    /// BF.CHANGED of a filter; the answer is not looked at, but that there is one.
    pub fn changed(&mut self, filter: &str, id: u64) -> Result<(), Trouble> {
        match self.ask(&["BF.CHANGED", filter, &id.to_string(), &cache_key(id)])? {
            Reply::Integer(0 | 1) | Reply::NullBulk => Ok(()),
            other => panic!("BF.CHANGED answered {other:?}"),
        }
    }
}
