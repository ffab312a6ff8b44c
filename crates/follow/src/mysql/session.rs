//! Sessions of MariaDB or MySQL whose server must answer in time, and the connection on which it sends its log.

use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Error, Result, bail};
use futures_util::StreamExt;
use mysql_async::binlog::events::Event;
use mysql_async::prelude::Queryable;
use mysql_async::{BinlogStream, BinlogStreamRequest, Conn, Opts, OptsBuilder, Row, ServerError, Sid, SslOpts, Value};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::server::usage;

/// The time limit for answers.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// How long [`Session::each_row`] waits for a row before it calls `pass` without one.
const ROW_TIMEOUT: Duration = Duration::from_secs(1);
/// The number of the error that refuses an account.
const ACCESS_DENIED: u16 = 1045;
const DENIED: &str = "the password is wrong, or the account requires TLS (`?sslmode=require` at the end of the URL)";
/// The numbers of the errors for a missing privilege: in a database, on a table, on a column, for a statement.
const PRIVILEGE_MISSING: [u16; 5] = [1044, ACCESS_DENIED, 1142, 1143, 1227];
pub const UNANSWERED: &str = "the database does not answer";

/// The settings that a session relies on, because the server's defaults suit applications. The values have the texts of the log: times in
/// UTC, CHAR without its padding, UTF-8. Uncommitted rows are invisible, a SELECT returns all rows without a time limit, no transaction
/// stays open, the catalogue shows generated keys, a statement that waits for a lock fails soon, and the server keeps the log's stream
/// open while it is not read during a fill. MariaDB ignores the comment for MySQL.
const SETTINGS: &str = "SET SESSION sql_mode = '', time_zone = '+00:00', lock_wait_timeout = 1, net_write_timeout = 86400, \
    sql_select_limit = 18446744073709551615, sql_big_selects = ON, autocommit = ON, completion_type = NO_CHAIN \
    /*M!, max_statement_time = 0 */ /*!80400 , max_execution_time = 0, show_gipk_in_create_table_and_information_schema = ON */; \
    SET NAMES utf8mb4; SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ WRITE";

/// Parses the URL of a server. The environment variable `MYSQL_PWD` is the password if the URL has none. Errors never contain a password.
pub fn parse(url: &str) -> Result<Opts> {
    let invalid = || {
        usage("a MariaDB or MySQL server has the form mysql://USER[:PASSWORD]@HOST[:PORT]/DATABASE[?sslmode=require]")
    };
    let (address, has_tls) = match url.split_once('?') {
        None => (url, false),
        Some((address, "sslmode=require")) => (address, true),
        Some(_) => return Err(invalid()),
    };
    let address = address.replacen("mariadb://", "mysql://", 1);
    let opts = Opts::from_url(&address).map_err(|_| invalid())?;
    if opts.user().is_none_or(str::is_empty) || opts.db_name().is_none_or(str::is_empty) {
        return Err(invalid());
    }
    let password = opts.pass().map(str::to_owned).or_else(|| std::env::var("MYSQL_PWD").ok());
    Ok(OptsBuilder::from_opts(opts)
        .pass(password)
        .prefer_socket(false)
        // Rows and events of the log can have this size.
        .max_allowed_packet(Some(1 << 30))
        .tcp_keepalive(Some(TIMEOUT / 2))
        .ssl_opts(has_tls.then(tls))
        .setup(SETTINGS.split("; ").collect())
        .into())
}

/// Returns the encryption settings of a connection. The trusted certificates are the system's, or those in the file `SSL_CERT_FILE` of
/// the environment.
fn tls() -> SslOpts {
    let roots = rustls_native_certs::load_native_certs().certs;
    let roots = roots.into_iter().map(|root| root.to_vec().into()).collect();
    SslOpts::default().with_disable_built_in_roots(true).with_root_certs(roots)
}

/// A session.
pub struct Session {
    runtime: Runtime,
    /// `None` once it has become a stream.
    connection: Option<Conn>,
    /// Whether the server has timed out.
    is_dark: bool,
}

impl Session {
    /// Opens a session.
    pub fn connect(options: &Opts) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let connection = runtime.block_on(async { timeout(TIMEOUT, Conn::new(options.clone())).await });
        let connection = connection
            .map_err(|_| Error::msg(UNANSWERED))
            .and_then(|connection| connection.map_err(plain))
            .map_err(|error| match number(&error) {
                Some(ACCESS_DENIED) => error.context(DENIED),
                _ => naming_privilege(error, "SELECT on the tables"),
            });
        let (host, port) = (options.ip_or_hostname(), options.tcp_port());
        let connection = connection.with_context(|| format!("cannot reach the database at {host}:{port}"))?;
        Ok(Self { runtime, connection: Some(connection), is_dark: false })
    }

    /// Executes statements, separated by semicolons, and returns the rows of all of them.
    pub fn query(&mut self, text: &str) -> Result<Vec<Vec<Value>>> {
        let rows = self.answer(async |connection| {
            let mut result = connection.query_iter(text).await?;
            let mut rows = Vec::new();
            while !result.is_empty() {
                rows.extend(result.collect::<Row>().await?);
            }
            // An error of a later statement leaves nothing to collect.
            result.drop_result().await?;
            Ok(rows)
        })?;
        Ok(rows.into_iter().map(Row::unwrap).collect())
    }

    /// Like [`Self::query`], with values as text, and NULL as `None`.
    pub fn texts(&mut self, text: &str) -> Result<Vec<Vec<Option<String>>>> {
        let rows = self.query(text)?;
        Ok(rows.into_iter().map(|row| row.iter().map(to_text).collect()).collect())
    }

    /// Returns the first value of a query as text.
    pub fn value(&mut self, text: &str) -> Result<Option<String>> {
        Ok(self.texts(text)?.into_iter().flatten().next().flatten())
    }

    /// Returns the values of these columns of a query; columns that are missing from the result are skipped.
    pub fn fields(&mut self, text: &str, names: &[&str]) -> Result<Vec<Vec<String>>> {
        let rows = self.answer(async |connection| connection.query::<Row, _>(text).await)?;
        let field = |row: &Row, name: &str| {
            let at = row.columns_ref().iter().position(|column| column.name_str().eq_ignore_ascii_case(name))?;
            to_text(row.as_ref(at)?)
        };
        let fields = |row: &Row| names.iter().map(|name| field(row, name).unwrap_or_default()).collect();
        Ok(rows.iter().map(fields).collect())
    }

    /// Calls `pass` with each row of a query, and with `None` while the server is silent. `pass` may use other sessions, because it is
    /// called outside this session's runtime.
    pub fn each_row(&mut self, text: &str, mut pass: impl FnMut(Option<Vec<Value>>) -> Result<()>) -> Result<()> {
        let connection = self.connection.as_mut().context(UNANSWERED)?;
        let mut begin = pin!(connection.query_iter(text));
        let mut result = loop {
            match self.runtime.block_on(async { timeout(ROW_TIMEOUT, &mut begin).await }) {
                Ok(result) => break result.map_err(plain)?,
                Err(_) => pass(None)?,
            }
        };
        loop {
            let mut next = pin!(result.next());
            let row = loop {
                match self.runtime.block_on(async { timeout(ROW_TIMEOUT, &mut next).await }) {
                    Ok(row) => break row.map_err(plain)?,
                    Err(_) => pass(None)?,
                }
            };
            match row {
                Some(row) => pass(Some(row.unwrap()))?,
                None => return Ok(()),
            }
        }
    }

    /// Whether the server no longer answers.
    pub const fn is_closed(&self) -> bool {
        self.is_dark
    }

    /// Requests the log as a replica with this id. MySQL sends the transactions that are not in the set of GTIDs; MariaDB reads its GTIDs
    /// from a variable.
    pub fn into_log(mut self, server_id: u32, gtids: Option<&str>) -> Result<LogStream> {
        let connection = self.connection.take().context(UNANSWERED)?;
        let mut request = BinlogStreamRequest::new(server_id);
        if let Some(gtids) = gtids {
            let sources = gtids.split(',').filter(|source| !source.is_empty());
            let sources = sources.map(str::parse::<Sid>).collect::<Result<Vec<_>, _>>().context("a set of GTIDs")?;
            request = request.with_gtid().with_gtid_set(sources);
        }
        let stream = self.runtime.block_on(async { timeout(TIMEOUT, connection.get_binlog_stream(request)).await });
        let stream = stream.context(UNANSWERED)?.map_err(plain);
        let stream = stream.map_err(|error| naming_privilege(error, "REPLICATION SLAVE ON *.*"));
        let stream = stream.context("the database does not send its log")?;
        Ok(LogStream { runtime: self.runtime, stream })
    }

    fn answer<T>(&mut self, ask: impl AsyncFnOnce(&mut Conn) -> mysql_async::Result<T>) -> Result<T> {
        let connection = self.connection.as_mut().filter(|_| !self.is_dark).context(UNANSWERED)?;
        match self.runtime.block_on(async { timeout(TIMEOUT, ask(connection)).await }) {
            Ok(result) => {
                self.is_dark = matches!(result, Err(mysql_async::Error::Io(_) | mysql_async::Error::Driver(_)));
                result.map_err(plain)
            }
            Err(_) => {
                self.is_dark = true;
                bail!(UNANSWERED)
            }
        }
    }
}

/// The stream of the log from the server.
pub struct LogStream {
    runtime: Runtime,
    stream: BinlogStream,
}

impl LogStream {
    /// Returns the next event, or `None` after the timeout.
    pub fn next(&mut self, wait: Duration) -> Result<Option<Event>> {
        let next = self.stream.next();
        // With a timeout of zero, tokio would not check whether an event has arrived.
        match self.runtime.block_on(async { timeout(wait.max(Duration::from_micros(100)), next).await }) {
            Ok(Some(event)) => event.map(Some).map_err(plain),
            Ok(None) => bail!("the database ended its log"),
            Err(_) => Ok(None),
        }
    }
}

/// Returns the number of an error of the server.
pub fn number(error: &Error) -> Option<u16> {
    error.chain().find_map(|cause| cause.downcast_ref::<ServerError>()).map(|error| error.code)
}

/// Adds the privileges that the account needs to an error about a missing one.
pub fn naming_privilege(error: Error, privilege: &str) -> Error {
    match number(&error) {
        Some(number) if PRIVILEGE_MISSING.contains(&number) => {
            error.context(format!("the account needs GRANT {privilege}"))
        }
        _ => error,
    }
}

/// Returns the server's own error if there is one, or else the cause, whose text the crate's errors repeat, with a remedy if one is
/// known.
fn plain(error: mysql_async::Error) -> Error {
    const UNKNOWN: &str =
        "the certificate is not signed by a trusted authority (SSL_CERT_FILE names a file with its certificate)";
    let error = match error {
        mysql_async::Error::Server(error) => return error.into(),
        other => Error::msg(Error::from(other).root_cause().to_string()),
    };
    if error.to_string().contains("UnknownIssuer") { error.context(UNKNOWN) } else { error }
}

fn to_text(value: &Value) -> Option<String> {
    match value {
        Value::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    }
}
