//! A replication connection to PostgreSQL: the start-up, simple queries, and the stream of a logical slot. Ordinary queries use
//! the `postgres` crate, which has no replication mode.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use bytes::{Bytes, BytesMut};
use fallible_iterator::FallibleIterator;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::backend::{ErrorResponseBody, Header, Message};
use postgres_protocol::message::frontend;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use tokio_postgres::Config;
use tokio_postgres::config::Host;

use crate::database;
use crate::engine::position::Place;

/// The time limit for PostgreSQL to accept a connection, and to answer.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// The tag of CopyBothResponse, which `postgres-protocol` does not support.
const COPY_BOTH: u8 = b'W';
/// The number of bytes that one read requests.
const READ_SIZE: usize = 1 << 16;

/// The settings that determine the text form of values. Items consist of that text, so the stream and COPY need the same settings.
pub const TEXT_SETTINGS: [(&str, &str); 6] = [
    ("client_encoding", "UTF8"),
    ("DateStyle", "ISO, YMD"),
    ("IntervalStyle", "postgres"),
    ("TimeZone", "UTC"),
    ("extra_float_digits", "3"),
    ("bytea_output", "hex"),
];

enum Socket {
    Tcp(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
    Unix(UnixStream),
}

impl Socket {
    fn open(host: &Host, port: u16, tls: Option<ClientConfig>) -> Result<Self> {
        let name = match host {
            Host::Tcp(name) => name,
            Host::Unix(folder) => {
                let stream = UnixStream::connect(folder.join(format!(".s.PGSQL.{port}")))?;
                stream.set_read_timeout(Some(TIMEOUT))?;
                stream.set_write_timeout(Some(TIMEOUT))?;
                return Ok(Self::Unix(stream));
            }
        };
        let mut stream = Err(ErrorKind::NotFound.into());
        for address in (name.as_str(), port).to_socket_addrs()? {
            stream = TcpStream::connect_timeout(&address, TIMEOUT);
            if stream.is_ok() {
                break;
            }
        }
        let mut stream = stream?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, TIMEOUT / 2)?;
        sockopt::set_tcp_keepintvl(&stream, TIMEOUT / 5)?;
        sockopt::set_tcp_keepcnt(&stream, 3)?;
        // If a confirmation waited for another packet, every synchronous COMMIT would be delayed.
        stream.set_nodelay(true)?;
        let Some(tls) = tls else { return Ok(Self::Tcp(stream)) };
        let mut request = BytesMut::new();
        frontend::ssl_request(&mut request);
        stream.write_all(&request)?;
        let mut answer = [0];
        stream.read_exact(&mut answer)?;
        ensure!(answer == *b"S", "it does not support TLS");
        let connection = ClientConnection::new(Arc::new(tls), name.to_owned().try_into()?)?;
        Ok(Self::Tls(Box::new(StreamOwned::new(connection, stream))))
    }

    /// Waits until data can be read. Returns false after the timeout. A read timeout of the socket would be rounded up to the kernel's
    /// ticks: 1 ms to 4 ms or 8 ms.
    fn is_readable_within(&mut self, timeout: Duration) -> Result<bool> {
        if let Self::Tls(stream) = self
            && stream.conn.process_new_packets()?.plaintext_bytes_to_read() > 0
        {
            return Ok(true);
        }
        let descriptor = match &*self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Tls(stream) => stream.sock.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        };
        let timeout = Timespec::try_from(timeout).ok();
        match poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], timeout.as_ref()) {
            Ok(count) => Ok(count > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tls(stream) => stream.flush(),
            Self::Tcp(_) | Self::Unix(_) => Ok(()),
        }
    }
}

/// A message of the stream.
pub enum Event {
    /// A message of the output plugin.
    Data(Bytes),
    /// The server has sent everything before this position. `must_reply`: it requests a status update at once.
    Keepalive { end: Place, must_reply: bool },
}

/// A connection in replication mode.
pub struct Wire {
    socket: Socket,
    input: BytesMut,
    /// The time at which a keepalive was requested, if nothing has arrived since.
    asked: Option<Instant>,
}

impl Wire {
    /// Connects to the database's server in replication mode. Errors never contain the password.
    pub fn connect(config: &Config) -> Result<Self> {
        let host = config.get_hosts().first().context("the database's URL names no host")?;
        let port = config.get_ports().first().copied().unwrap_or(5432);
        let socket = Socket::open(host, port, database::tls(config)?).with_context(|| database::unreachable(config))?;
        let mut wire = Self { socket, input: BytesMut::new(), asked: None };
        wire.start(config)?;
        Ok(wire)
    }

    fn start(&mut self, config: &Config) -> Result<()> {
        let user = config.get_user().context("the database's URL names no user")?;
        let password = config.get_password().unwrap_or_default();
        let mut parameters = vec![
            ("user", user),
            ("database", config.get_dbname().unwrap_or(user)),
            ("replication", "database"),
            ("application_name", config.get_application_name().unwrap_or("bloomgate")),
        ];
        parameters.extend(TEXT_SETTINGS);
        // The limits of the database or the role are meant for applications. Creating a slot waits until all running transactions have
        // ended.
        parameters.extend([("statement_timeout", "0"), ("lock_timeout", "0")]);
        let mut output = BytesMut::new();
        frontend::startup_message(parameters, &mut output)?;
        self.send(&output)?;
        let mut scram = None;
        loop {
            let mut output = BytesMut::new();
            match self.message()? {
                Message::AuthenticationOk => {}
                Message::AuthenticationCleartextPassword => frontend::password_message(password, &mut output)?,
                Message::AuthenticationMd5Password(body) => {
                    let hash = md5_hash(user.as_bytes(), password, body.salt());
                    frontend::password_message(hash.as_bytes(), &mut output)?;
                }
                Message::AuthenticationSasl(body) => {
                    if !body.mechanisms().any(|name| Ok(name == SCRAM_SHA_256))? {
                        bail!("the PostgreSQL server asks for an unknown kind of password");
                    }
                    let state = ScramSha256::new(password, ChannelBinding::unsupported());
                    frontend::sasl_initial_response(SCRAM_SHA_256, state.message(), &mut output)?;
                    scram = Some(state);
                }
                Message::AuthenticationSaslContinue(body) => {
                    let state = scram.as_mut().context(UNEXPECTED)?;
                    state.update(body.data())?;
                    frontend::sasl_response(state.message(), &mut output)?;
                }
                Message::AuthenticationSaslFinal(body) => scram.as_mut().context(UNEXPECTED)?.finish(body.data())?,
                Message::ReadyForQuery(_) => return Ok(()),
                Message::ErrorResponse(body) => return Err(refused(&body)),
                Message::BackendKeyData(_) | Message::ParameterStatus(_) | Message::NoticeResponse(_) => {}
                _ => bail!("the PostgreSQL server asks for a kind of password that is not supported"),
            }
            self.send(&output)?;
        }
    }

    /// Executes a replication command. Returns the fields of its only row, or an empty list. While the server does not answer, calls
    /// `silence` every ten seconds and at each signal, and continues to wait if that succeeds.
    pub fn query(&mut self, text: &str, mut silence: impl FnMut() -> Result<()>) -> Result<Vec<String>> {
        let mut output = BytesMut::new();
        frontend::query(text, &mut output)?;
        self.send(&output)?;
        let (mut row, mut failure) = (Vec::new(), None);
        loop {
            match self.message_after(&mut silence)? {
                Message::DataRow(body) => {
                    let field = |range: Option<std::ops::Range<usize>>| {
                        let bytes = range.and_then(|range| body.buffer().get(range)).unwrap_or_default();
                        Ok(String::from_utf8_lossy(bytes).into_owned())
                    };
                    row = body.ranges().map(field).collect()?;
                }
                Message::ErrorResponse(body) => failure = Some(refused(&body)),
                Message::ReadyForQuery(_) => return failure.map_or(Ok(row), Err),
                _ => {}
            }
        }
    }

    /// Starts the stream of a logical slot from the position that the server has confirmed, or from `from` if that is later.
    pub fn start_stream(&mut self, slot: &str, from: Place, publication: &str) -> Result<()> {
        let text = format!(
            "START_REPLICATION SLOT {slot} LOGICAL {from} (proto_version '1', publication_names '{}')",
            publication.replace('\'', "''")
        );
        let mut output = BytesMut::new();
        frontend::query(&text, &mut output)?;
        self.send(&output)?;
        loop {
            self.fill_header()?;
            if self.input.first() == Some(&COPY_BOTH) {
                let length = Header::parse(&self.input)?.map_or(0, |header| usize::try_from(header.len()).unwrap_or(0));
                while self.input.len() < length + 1 {
                    self.read(TIMEOUT)?;
                }
                _ = self.input.split_to(length + 1);
                return Ok(());
            }
            match self.message()? {
                Message::ErrorResponse(body) => return Err(refused(&body)),
                // These messages end an earlier, refused attempt.
                Message::ReadyForQuery(_) | Message::NoticeResponse(_) | Message::ParameterStatus(_) => {}
                _ => bail!(UNEXPECTED),
            }
        }
    }

    /// Returns the next event of the stream, or `None` if none arrives in time.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Event>> {
        loop {
            match Message::parse(&mut self.input)? {
                Some(Message::CopyData(body)) => return event(body.into_bytes()).map(Some),
                Some(Message::ErrorResponse(body)) => return Err(refused(&body)),
                Some(Message::CopyDone) => bail!("the PostgreSQL server ended the stream"),
                Some(_) => continue,
                None => {}
            }
            if !self.read(timeout)? {
                return Ok(None);
            }
        }
    }

    /// Whether nothing has arrived in [`TIMEOUT`] although a keepalive was requested. If so, the next period begins now.
    pub fn was_silent(&mut self) -> bool {
        let was_silent = self.asked.is_some_and(|asked| asked.elapsed() >= TIMEOUT);
        if was_silent {
            self.asked = None;
        }
        was_silent
    }

    /// Whether a complete event has already arrived.
    pub fn has_event(&self) -> bool {
        matches!(Header::parse(&self.input), Ok(Some(header)) if usize::try_from(header.len()).is_ok_and(|length| self.input.len() > length))
    }

    /// Confirms a position: the server may discard the log before it, and synchronous COMMITs before it return. `asks`: whether to
    /// request a keepalive, which contains the position of the stream.
    pub fn confirm(&mut self, position: Place, asks: bool) -> Result<()> {
        let mut status = Vec::with_capacity(34);
        status.push(b'r');
        for _ in 0..3 {
            status.extend(position.0.to_be_bytes());
        }
        // The client's clock, which the server only shows in its statistics.
        status.extend(0_u64.to_be_bytes());
        status.push(asks.into());
        let mut output = BytesMut::new();
        frontend::CopyData::new(&status[..])?.write(&mut output);
        if asks {
            self.asked.get_or_insert_with(Instant::now);
        }
        self.send(&output)
    }

    fn message(&mut self) -> Result<Message> {
        self.message_after(unanswered)
    }

    fn message_after(&mut self, mut silence: impl FnMut() -> Result<()>) -> Result<Message> {
        loop {
            if let Some(message) = Message::parse(&mut self.input)? {
                return Ok(message);
            }
            if !self.read(TIMEOUT)? {
                silence()?;
            }
        }
    }

    fn fill_header(&mut self) -> Result<()> {
        while Header::parse(&self.input)?.is_none() {
            if !self.read(TIMEOUT)? {
                unanswered()?;
            }
        }
        Ok(())
    }

    /// Reads the bytes that have arrived. Returns false after the timeout.
    fn read(&mut self, timeout: Duration) -> Result<bool> {
        if !self.socket.is_readable_within(timeout)? {
            return Ok(false);
        }
        self.asked = None;
        let old = self.input.len();
        self.input.resize(old + READ_SIZE, 0);
        let result = self.socket.read(self.input.get_mut(old..).unwrap_or_default());
        self.input.truncate(old + result.as_ref().copied().unwrap_or(0));
        match result {
            Ok(0) => bail!("the PostgreSQL server closed the connection"),
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(false),
            // The rest of an encrypted packet has not arrived.
            Err(error) if error.kind() == ErrorKind::WouldBlock => unanswered().map(|()| false),
            Err(error) => Err(anyhow!(error).context("lost the PostgreSQL server")),
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.socket.write_all(bytes).and_then(|()| self.socket.flush()).context("lost the PostgreSQL server")
    }
}

/// Returns the error after a timeout.
pub fn unanswered() -> Result<()> {
    bail!(UNANSWERED)
}

/// The error for a server that does not answer.
pub const UNANSWERED: &str = "the PostgreSQL server does not answer";
const UNEXPECTED: &str = "the PostgreSQL server sent an unexpected message";

/// Parses a message of the streaming replication protocol.
fn event(mut bytes: Bytes) -> Result<Event> {
    let number = |at: usize| -> Result<u64> {
        let field = bytes.get(at..at + 8).context(UNEXPECTED)?;
        Ok(u64::from_be_bytes(field.try_into()?))
    };
    match bytes.first() {
        // The tag, the start and the end of the data in the log, the server's clock.
        Some(b'w') if bytes.len() >= 25 => Ok(Event::Data(bytes.split_off(25))),
        Some(b'k') => {
            let must_reply = bytes.get(17).context(UNEXPECTED)? != &0;
            Ok(Event::Keepalive { end: Place(number(1)?), must_reply })
        }
        _ => bail!(UNEXPECTED),
    }
}

/// An error of the server, with its SQLSTATE.
#[derive(Debug)]
pub struct Refused {
    /// The SQLSTATE, five characters.
    pub code: String,
    text: String,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(formatter, "PostgreSQL: {} ({})", self.text, self.code)
    }
}

impl std::error::Error for Refused {}

fn refused(body: &ErrorResponseBody) -> anyhow::Error {
    let mut refused = Refused { code: String::new(), text: String::new() };
    _ = body.fields().for_each(|field| {
        let value = String::from_utf8_lossy(field.value_bytes()).into_owned();
        match field.type_() {
            b'C' => refused.code = value,
            b'M' => refused.text = value,
            _ => {}
        }
        Ok(())
    });
    refused.into()
}
