//! A connection that sends bytes and reads replies without interpreting them: a test can distinguish `:1` from `#t`, `$-1`
//! from `_`, and one error text from another, which client libraries hide.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use super::wait::{eventually, patience};

/// A reply as sent by the server, in RESP2 or RESP3.
#[derive(Clone, PartialEq)]
pub enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    /// RESP2's `$-1`.
    NullBulk,
    /// RESP2's `*-1`.
    NullArray,
    /// RESP3's `_`.
    Null,
    Boolean(bool),
    Double(String),
    BigNumber(String),
    BulkError(Vec<u8>),
    Verbatim(Vec<u8>),
    Array(Vec<Reply>),
    Set(Vec<Reply>),
    Push(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
}

/// `+OK`.
pub fn ok() -> Reply {
    simple("OK")
}

/// A simple string.
pub fn simple(text: &str) -> Reply {
    Reply::Simple(text.to_owned())
}

/// An error with exactly this text.
pub fn error(text: &str) -> Reply {
    Reply::Error(text.to_owned())
}

/// An integer.
pub fn integer(value: i64) -> Reply {
    Reply::Integer(value)
}

/// A bulk string.
pub fn bulk(bytes: impl AsRef<[u8]>) -> Reply {
    Reply::Bulk(bytes.as_ref().to_vec())
}

/// An array.
pub fn array(elements: impl Into<Vec<Reply>>) -> Reply {
    Reply::Array(elements.into())
}

/// The null of RESP`protocol` for a missing value.
pub fn nil(protocol: u8) -> Reply {
    if protocol == 3 { Reply::Null } else { Reply::NullBulk }
}

impl Reply {
    /// The elements of an array, a set or a push.
    pub fn elements(&self) -> &[Reply] {
        match self {
            Self::Array(elements) | Self::Set(elements) | Self::Push(elements) => elements,
            other => panic!("not an array: {other:?}"),
        }
    }

    /// The number in an integer reply.
    pub fn number(&self) -> i64 {
        match self {
            Self::Integer(value) => *value,
            other => panic!("not an integer: {other:?}"),
        }
    }

    /// The number in a double, which is a string in RESP2.
    pub fn fraction(&self) -> f64 {
        let text = if let Self::Double(text) = self { text.clone() } else { self.text() };
        text.parse().unwrap_or_else(|_| panic!("not a number: {text}"))
    }

    /// The bytes of a string of any kind.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Bulk(bytes) | Self::Verbatim(bytes) | Self::BulkError(bytes) => bytes,
            Self::Simple(text) | Self::Error(text) => text.as_bytes(),
            other => panic!("not a string: {other:?}"),
        }
    }

    /// A string of any kind as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }

    /// The text of an error; panics if the reply is not an error.
    pub fn error_text(&self) -> &str {
        match self {
            Self::Error(text) => text,
            other => panic!("not an error: {other:?}"),
        }
    }

    /// A boolean in either protocol: `:1` or `#t`, `:0` or `#f`.
    pub fn truth(&self) -> bool {
        match self {
            Self::Integer(0) | Self::Boolean(false) => false,
            Self::Integer(1) | Self::Boolean(true) => true,
            other => panic!("neither yes nor no: {other:?}"),
        }
    }

    /// Whether this is an error.
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error(_) | Self::BulkError(_))
    }

    /// The value under `name` in a map, or in RESP2's flat array of names and values.
    pub fn field(&self, name: &str) -> &Reply {
        let found = match self {
            Self::Map(pairs) => pairs.iter().find(|(key, _)| key.text() == name).map(|(_, value)| value),
            flat => flat.elements().chunks(2).find(|pair| pair[0].text() == name).map(|pair| &pair[1]),
        };
        found.unwrap_or_else(|| panic!("no field {name:?} in {self:?}"))
    }
}

impl fmt::Debug for Reply {
    /// Resembles the protocol: `+OK`, `:1`, `$"bytes"`, `*[..]`, `%[..]`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simple(text) => write!(out, "+{text}"),
            Self::Error(text) => write!(out, "-{text}"),
            Self::Integer(value) => write!(out, ":{value}"),
            Self::Bulk(bytes) => write!(out, "$\"{}\"", bytes.escape_ascii()),
            Self::NullBulk => write!(out, "$-1"),
            Self::NullArray => write!(out, "*-1"),
            Self::Null => write!(out, "_"),
            Self::Boolean(value) => write!(out, "#{}", if *value { 't' } else { 'f' }),
            Self::Double(text) => write!(out, ",{text}"),
            Self::BigNumber(text) => write!(out, "({text}"),
            Self::BulkError(bytes) => write!(out, "!\"{}\"", bytes.escape_ascii()),
            Self::Verbatim(bytes) => write!(out, "=\"{}\"", bytes.escape_ascii()),
            Self::Array(elements) => write!(out, "*{elements:?}"),
            Self::Set(elements) => write!(out, "~{elements:?}"),
            Self::Push(elements) => write!(out, ">{elements:?}"),
            Self::Map(pairs) => write!(out, "%{pairs:?}"),
        }
    }
}

/// A client's connection.
pub struct Connection {
    reader: BufReader<TcpStream>,
    /// The protocol: 2 or 3.
    pub protocol: u8,
}

impl Connection {
    /// Connects to a server on this machine, in RESP2.
    pub fn open(port: u16) -> std::io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        // A server that hangs fails its test instead of blocking the whole run.
        stream.set_read_timeout(Some(patience()))?;
        Ok(Self { reader: BufReader::new(stream), protocol: 2 })
    }

    /// Runs a command given as a line, which is split at single spaces (two spaces in a row give an empty argument).
    pub fn run(&mut self, line: &str) -> Reply {
        self.call(&line.split(' ').collect::<Vec<_>>())
    }

    /// Runs a command given as arguments of arbitrary bytes.
    pub fn call<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Reply {
        self.try_call(words).unwrap_or_else(|fault| panic!("the connection broke: {fault}"))
    }

    /// As [`call`](Self::call), for tests in which the server may disappear.
    pub fn try_call<W: AsRef<[u8]>>(&mut self, words: &[W]) -> std::io::Result<Reply> {
        self.send(words)?;
        self.receive()
    }

    /// Sends several commands before it reads the first reply.
    pub fn pipeline(&mut self, lines: &[&str]) -> Vec<Reply> {
        let mut bytes = Vec::new();
        for line in lines {
            encode(&line.split(' ').collect::<Vec<_>>(), &mut bytes);
        }
        self.stream().get_mut().write_all(&bytes).expect("the server takes the pipeline");
        lines.iter().map(|_| self.receive().expect("a reply to each command")).collect()
    }

    /// Sends one command without waiting for its reply.
    pub fn send<W: AsRef<[u8]>>(&mut self, words: &[W]) -> std::io::Result<()> {
        let mut bytes = Vec::new();
        encode(words, &mut bytes);
        self.reader.get_mut().write_all(&bytes)
    }

    /// Reads one reply.
    pub fn receive(&mut self) -> std::io::Result<Reply> {
        read_reply(&mut self.reader)
    }

    /// The connection's own address and port, as the server lists them.
    pub fn address(&self) -> String {
        self.reader.get_ref().local_addr().expect("the connection is there").to_string()
    }

    /// The stream, for arbitrary bytes.
    pub fn stream(&mut self) -> &mut BufReader<TcpStream> {
        &mut self.reader
    }

    /// The boolean reply in this connection's protocol.
    pub fn answer(&self, yes: bool) -> Reply {
        if self.protocol == 3 { Reply::Boolean(yes) } else { integer(i64::from(yes)) }
    }

    /// An array of yes (1) and no (0).
    pub fn answers<const N: usize>(&self, answers: [u8; N]) -> Reply {
        Reply::Array(answers.iter().map(|&answer| self.answer(answer == 1)).collect())
    }

    /// Sends a command with many items as commands of 1000 items each. Returns all answers in order.
    pub fn batched<W: AsRef<[u8]>>(&mut self, head: &[&[u8]], items: &[W]) -> Vec<bool> {
        let mut answers = Vec::with_capacity(items.len());
        for batch in items.chunks(1000) {
            let words: Vec<&[u8]> = head.iter().copied().chain(batch.iter().map(AsRef::as_ref)).collect();
            let reply = self.call(&words);
            answers.extend(reply.elements().iter().map(Reply::truth));
        }
        answers
    }

    /// A number of INFO, such as `sync_partial_ok`.
    pub fn info_number(&mut self, name: &str) -> i64 {
        let text = self.info(name);
        text.parse().unwrap_or_else(|_| panic!("INFO has {name}:{text}, which is not a number"))
    }

    /// Whether a rewrite of the append-only file is scheduled or runs. Each call of INFO reports another moment, and a rewrite is scheduled
    /// before it runs, so the fields must be read in this order.
    pub fn has_rewrite(&mut self) -> bool {
        self.info("aof_rewrite_scheduled") == "1" || self.info("aof_rewrite_in_progress") == "1"
    }

    /// Waits until the memory of deleted keys is freed: Valkey 8 frees it in the background by default.
    pub fn wait_for_frees(&mut self) {
        eventually("the background to be idle", || self.info_number("lazyfree_pending_objects") == 0);
    }

    /// A number of INFO about the existing filters, such as `num_objects`.
    pub fn gauge(&mut self, name: &str) -> i64 {
        self.wait_for_frees();
        self.info_number(&format!("bf_bloom_{name}"))
    }

    /// Waits until INFO reports no filters and no memory of filters.
    pub fn assert_no_filters(&mut self) {
        for name in [
            "num_objects",
            "num_filters_across_objects",
            "num_items_across_objects",
            "capacity_across_objects",
            "total_memory_bytes",
        ] {
            eventually(&format!("{name} to be 0"), || self.gauge(name) == 0);
        }
    }

    /// The maximum number of bytes for the alignment of a bit array of this size: jemalloc aligns small blocks to cache
    /// lines, libc's malloc does not, and neither aligns large blocks to pages.
    pub fn alignment_bytes(&mut self, size: i64) -> i64 {
        match self.info("mem_allocator") {
            _ if size >= 256 << 10 => 4095,
            jemalloc if jemalloc.starts_with("jemalloc") => 0,
            _ => 63,
        }
    }

    /// A line of INFO.
    pub fn info(&mut self, name: &str) -> String {
        let text = self.run("INFO everything").text();
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .unwrap_or_else(|| panic!("INFO has no {name}"))
            .to_owned()
    }
}

fn encode<W: AsRef<[u8]>>(words: &[W], bytes: &mut Vec<u8>) {
    bytes.extend(format!("*{}\r\n", words.len()).bytes());
    for word in words {
        bytes.extend(format!("${}\r\n", word.as_ref().len()).bytes());
        bytes.extend_from_slice(word.as_ref());
        bytes.extend_from_slice(b"\r\n");
    }
}

fn read_line(reader: &mut dyn BufRead) -> std::io::Result<String> {
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line)?;
    if !line.ends_with(b"\r\n") {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    line.truncate(line.len() - 2);
    Ok(String::from_utf8_lossy(&line).into_owned())
}

fn read_reply(reader: &mut dyn BufRead) -> std::io::Result<Reply> {
    let line = read_line(reader)?;
    let mut letters = line.chars();
    let kind = letters.next();
    let rest = letters.as_str();
    let count = || rest.parse::<usize>().unwrap_or_else(|_| panic!("not a length: {line:?}"));
    let body = |reader: &mut dyn BufRead| {
        let mut bytes = vec![0; count() + 2];
        reader.read_exact(&mut bytes)?;
        bytes.truncate(count());
        Ok::<_, std::io::Error>(bytes)
    };
    let list = |reader: &mut dyn BufRead| (0..count()).map(|_| read_reply(reader)).collect::<std::io::Result<Vec<_>>>();
    Ok(match kind {
        Some('+') => Reply::Simple(rest.to_owned()),
        Some('-') => Reply::Error(rest.to_owned()),
        Some(':') => Reply::Integer(rest.parse().unwrap_or_else(|_| panic!("not an integer: {line:?}"))),
        Some('$') if rest == "-1" => Reply::NullBulk,
        Some('$') => Reply::Bulk(body(reader)?),
        Some('*') if rest == "-1" => Reply::NullArray,
        Some('*') => Reply::Array(list(reader)?),
        Some('_') => Reply::Null,
        Some('#') => Reply::Boolean(rest == "t"),
        Some(',') => Reply::Double(rest.to_owned()),
        Some('(') => Reply::BigNumber(rest.to_owned()),
        Some('!') => Reply::BulkError(body(reader)?),
        Some('=') => Reply::Verbatim(body(reader)?.split_off(4)),
        Some('~') => Reply::Set(list(reader)?),
        Some('>') => Reply::Push(list(reader)?),
        Some('%') => {
            let mut pairs = Vec::new();
            for _ in 0..count() {
                pairs.push((read_reply(reader)?, read_reply(reader)?));
            }
            Reply::Map(pairs)
        }
        _ => panic!("not RESP: {line:?}"),
    })
}
