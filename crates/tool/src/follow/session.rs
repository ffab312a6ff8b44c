//! A session of PostgreSQL whose server must answer in time. The `postgres` crate waits for ever on a connection that has gone dark: a
//! firewall has forgotten it, or the other machine has lost its power.

use std::future::Future;
use std::io::{self, BufRead, ErrorKind, Read};
use std::pin::Pin;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::{Buf, Bytes};
use futures_util::StreamExt;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Config, CopyOutStream, NoTls, Row, Statement, ToStatement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::wire::{TIMEOUT, UNANSWERED};
use crate::database;

/// How long a reader of COPY waits until it fails with [`ErrorKind::TimedOut`]. It can read on.
const COPY_TIMEOUT: Duration = Duration::from_secs(1);

/// A session.
pub struct Client {
    runtime: Runtime,
    client: tokio_postgres::Client,
    /// Whether the server has not answered in time.
    is_dark: bool,
}

type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

impl Client {
    /// Opens a session.
    ///
    /// # Errors
    /// The server cannot be reached, its certificate is not trusted, or it rejects the user.
    pub fn connect(config: &Config) -> Result<Self> {
        let mut config = config.clone();
        // For a COPY, whose silence is no sign.
        config.connect_timeout(TIMEOUT).tcp_user_timeout(TIMEOUT);
        config.keepalives_idle(TIMEOUT / 2).keepalives_interval(TIMEOUT / 5).keepalives_retries(3);
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let connect = async {
            Ok::<_, anyhow::Error>(match database::tls(&config)? {
                Some(tls) => {
                    let (client, connection) = config.connect(MakeRustlsConnect::new(tls)).await?;
                    tokio::spawn(async { _ = connection.await });
                    client
                }
                None => {
                    let (client, connection) = config.connect(NoTls).await?;
                    tokio::spawn(async { _ = connection.await });
                    client
                }
            })
        };
        let client = runtime
            .block_on(async { timeout(TIMEOUT, connect).await })
            .unwrap_or_else(|_| bail!(UNANSWERED))
            .context("cannot reach the PostgreSQL server")?;
        Ok(Self { runtime, client, is_dark: false })
    }

    pub fn query<T: ?Sized + ToStatement>(&mut self, text: &T, parameters: Parameters) -> Result<Vec<Row>> {
        self.answer(async |client| client.query(text, parameters).await)
    }

    pub fn query_one<T: ?Sized + ToStatement>(&mut self, text: &T, parameters: Parameters) -> Result<Row> {
        self.answer(async |client| client.query_one(text, parameters).await)
    }

    pub fn query_opt<T: ?Sized + ToStatement>(&mut self, text: &T, parameters: Parameters) -> Result<Option<Row>> {
        self.answer(async |client| client.query_opt(text, parameters).await)
    }

    pub fn execute<T: ?Sized + ToStatement>(&mut self, text: &T, parameters: Parameters) -> Result<u64> {
        self.answer(async |client| client.execute(text, parameters).await)
    }

    pub fn batch_execute(&mut self, text: &str) -> Result<()> {
        self.answer(async |client| client.batch_execute(text).await)
    }

    pub fn prepare(&mut self, text: &str) -> Result<Statement> {
        self.answer(async |client| client.prepare(text).await)
    }

    /// Begins a COPY to the client.
    pub fn copy_out(&mut self, text: &str) -> Result<CopyReader<'_>> {
        let stream = Box::pin(self.answer(async |client| client.copy_out(text).await)?);
        Ok(CopyReader { runtime: &self.runtime, stream, bytes: Bytes::new() })
    }

    /// Whether the connection has ended or gone dark.
    pub fn is_closed(&self) -> bool {
        self.is_dark || self.client.is_closed()
    }

    fn answer<'a, T, F>(&'a mut self, ask: impl FnOnce(&'a tokio_postgres::Client) -> F) -> Result<T>
    where
        F: Future<Output = Result<T, tokio_postgres::Error>>,
    {
        if self.is_dark {
            bail!(UNANSWERED);
        }
        let reply = ask(&self.client);
        match self.runtime.block_on(async { timeout(TIMEOUT, reply).await }) {
            Ok(result) => Ok(result?),
            Err(_) => {
                self.is_dark = true;
                bail!(UNANSWERED)
            }
        }
    }
}

/// Reads what COPY sends.
pub struct CopyReader<'a> {
    runtime: &'a Runtime,
    stream: Pin<Box<CopyOutStream>>,
    bytes: Bytes,
}

impl BufRead for CopyReader<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.bytes.is_empty() {
            let next = self.stream.next();
            match self.runtime.block_on(async { timeout(COPY_TIMEOUT, next).await }) {
                Ok(Some(Ok(bytes))) => self.bytes = bytes,
                Ok(Some(Err(error))) => return Err(io::Error::other(error)),
                Ok(None) => break,
                Err(_) => return Err(ErrorKind::TimedOut.into()),
            }
        }
        Ok(&self.bytes)
    }

    fn consume(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

impl Read for CopyReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}
