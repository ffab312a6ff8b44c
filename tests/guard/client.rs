//! A client of the guard: the three commands, and a connection that follows the primary across failovers.

use std::sync::atomic::{AtomicU16, Ordering};

use testing::{Connection, Reply};

/// The filter, and its temporary name while it is being refilled.
pub const FILTER: &str = "rows";
pub const FILLING: &str = "rows:filling";

/// The cached value of a row: its id and its version, padded to the length of a row.
pub fn encode_value(id: u64, version: u64) -> String {
    format!("{id}:{version}:{}", "x".repeat(64))
}

/// Returns the version in a cached value; panics if it is the value of another id.
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

/// The reply to BF.FETCH.
pub enum Fetched {
    Absent,
    Hit(Vec<u8>),
    Stale(Vec<u8>, String),
    Load(String),
    Wait(u64),
}

/// Why there is no reply: the connection broke, or the server refused.
#[derive(Debug)]
pub enum ClientError {
    Gone,
    Refused(String),
}

/// The port of the current primary.
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

/// A connection to the current primary, opened when it is needed.
pub struct Client<'a> {
    primary: &'a Primary,
    connection: Option<(u16, Connection)>,
    /// The number of round trips.
    pub round_trips: u64,
}

impl<'a> Client<'a> {
    pub fn new(primary: &'a Primary) -> Self {
        Self { primary, connection: None, round_trips: 0 }
    }

    fn connection(&mut self) -> Result<&mut Connection, ClientError> {
        let port = self.primary.port();
        let connection = match self.connection.take() {
            Some((at, connection)) if at == port => connection,
            _ => Connection::open(port).map_err(|_| ClientError::Gone)?,
        };
        Ok(&mut self.connection.insert((port, connection)).1)
    }

    /// Sends any command. The caller handles errors of the server and lost connections.
    pub fn ask(&mut self, words: &[&str]) -> Result<Reply, ClientError> {
        self.round_trips += 1;
        match self.connection()?.try_call(words) {
            Ok(Reply::Error(text)) => Err(ClientError::Refused(text)),
            Ok(reply) => Ok(reply),
            Err(_) => {
                self.connection = None;
                Err(ClientError::Gone)
            }
        }
    }

    /// Sends a command and disconnects without reading the reply.
    pub fn send_and_disconnect(&mut self, words: &[&str]) {
        if let Ok(connection) = self.connection() {
            let _ = connection.send(words);
        }
        self.disconnect();
    }

    /// Closes the connection.
    pub fn disconnect(&mut self) {
        self.connection = None;
    }

    /// BF.FETCH with its options.
    pub fn fetch(&mut self, id: u64, options: &[String]) -> Result<Fetched, ClientError> {
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

    /// BF.FILL with a value or NONE. Returns whether the token was accepted.
    pub fn fill(&mut self, id: u64, token: &str, version: Option<u64>, ttl_ms: u64) -> Result<bool, ClientError> {
        let ttl = ttl_ms.to_string();
        match version {
            Some(version) => self.end_lease(id, token, &["VALUE", &encode_value(id, version), "PX", &ttl]),
            None => self.end_lease(id, token, &["NONE", "PX", &ttl]),
        }
    }

    /// BF.FILL GIVEUP.
    pub fn give_up(&mut self, id: u64, token: &str) -> Result<bool, ClientError> {
        self.end_lease(id, token, &["GIVEUP"])
    }

    fn end_lease(&mut self, id: u64, token: &str, words: &[&str]) -> Result<bool, ClientError> {
        let (item, key) = (id.to_string(), cache_key(id));
        let mut line = vec!["BF.FILL", FILTER, &item, &key, token];
        line.extend(words);
        match self.ask(&line)? {
            Reply::Simple(text) if text == "OK" => Ok(true),
            Reply::NullBulk => Ok(false),
            other => panic!("BF.FILL answered {other:?}"),
        }
    }

    /// BF.CHANGED of a filter. Any reply except an error is accepted.
    pub fn changed(&mut self, filter: &str, id: u64) -> Result<(), ClientError> {
        match self.ask(&["BF.CHANGED", filter, &id.to_string(), &cache_key(id)])? {
            Reply::Integer(0 | 1) | Reply::NullBulk => Ok(()),
            other => panic!("BF.CHANGED answered {other:?}"),
        }
    }
}
