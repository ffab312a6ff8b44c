//! The server's address and credentials: the options of redis-cli, or a URL. All subcommands share them.

use std::borrow::Cow;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, fs};

use anyhow::{Context, Result, anyhow, ensure};
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, TlsCertificates};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::Address;

/// TCP keepalive: the idle time before the first probe, and the interval of further probes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

const FORM: &str = "redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE], rediss:// for TLS, unix:///PATH, or \
    redis-sentinel://[[USER]:PASSWORD@]HOST[:PORT][,HOST[:PORT]...][/DATABASE]#NAME";

/// The server, with the options of redis-cli
#[derive(clap::Args, Clone, Default, PartialEq, Eq)]
#[command(next_help_heading = "The server")]
pub struct Options {
    /// The server: redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]; rediss:// for TLS; unix:///PATH;
    /// redis-sentinel://HOST[:PORT],...#NAME for the primary NAME of these Sentinels
    #[arg(short, long, global = true, value_name = "URL", conflicts_with_all = ["host", "port", "socket"])]
    url: Option<String>,
    /// The server's host [default: 127.0.0.1]
    #[arg(short = 'h', long, global = true)]
    host: Option<String>,
    /// The server's port [default: 6379]
    #[arg(short, long, global = true)]
    port: Option<u16>,
    /// The server's Unix socket, instead of host and port
    #[arg(short, long, global = true, value_name = "PATH", conflicts_with_all = ["host", "port", "tls"])]
    socket: Option<PathBuf>,
    /// The ACL user
    #[arg(long, global = true, value_name = "NAME")]
    user: Option<String>,
    /// The password. Other users of this machine cannot see it if it is in the environment
    #[arg(
        short = 'a',
        long = "pass",
        global = true,
        value_name = "PASSWORD",
        env = "REDISCLI_AUTH",
        hide_env_values = true
    )]
    password: Option<String>,
    /// The database number [default: 0; for survey, `backup --all` and restore: every database]
    #[arg(short = 'n', long, global = true, value_name = "NUMBER")]
    pub(super) database: Option<u32>,
    /// The server is a node of a cluster. Needed only if HELLO does not report it
    #[arg(short, long, global = true)]
    cluster: bool,
    /// Use TLS
    #[arg(long, global = true)]
    tls: bool,
    /// Accept any certificate without verifying it
    #[arg(long, global = true)]
    insecure: bool,
    /// The certificates to trust, in PEM form [default: the system's]
    #[arg(long, global = true, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// The client's certificate, in PEM form
    #[arg(long, global = true, value_name = "FILE", requires = "tls_key")]
    cert: Option<PathBuf>,
    /// The client's private key, in PEM form
    #[arg(long, global = true, value_name = "FILE", requires = "cert")]
    tls_key: Option<PathBuf>,
}

impl Options {
    /// Creates options from a URL only.
    pub fn of_url(url: &str) -> Self {
        Self { url: Some(url.to_owned()), ..Self::default() }
    }

    /// Returns the same options with or without --cluster.
    pub const fn with_cluster(mut self, is_cluster: bool) -> Self {
        self.cluster = is_cluster;
        self
    }

    /// Returns the database that the options name, by number or in the URL.
    pub fn database(&self) -> Result<Option<u32>> {
        let database = self.info()?.redis_settings().db();
        let database = u32::try_from(database).map_err(|_| usage(format!("there is no database {database}")))?;
        let url = self.first_url().as_deref().and_then(redis::parse_redis_url);
        // The URL of a socket has the database in its query, because its path is the socket's path.
        let is_in_url = url.is_some_and(|url| match url.has_host() {
            true => !url.path().trim_matches('/').is_empty(),
            false => url.query_pairs().any(|(name, _)| name == "db"),
        });
        Ok((is_in_url || self.database.is_some()).then_some(database))
    }

    /// Returns the address and, if the options name one, the database, as in `localhost:6379/3`, for titles and messages. With Sentinels,
    /// it is `NAME@HOST:PORT,HOST:PORT/3`.
    pub fn name(&self) -> Result<String> {
        let address = match self.sentinels()? {
            Some((infos, primary)) => {
                let addresses: Vec<_> = infos.iter().map(|info| info.addr().to_string()).collect();
                format!("{primary}@{}", addresses.join(","))
            }
            None => self.address()?,
        };
        Ok(self.database()?.map_or(address.clone(), |database| format!("{address}/{database}")))
    }

    /// Whether the options name a server.
    pub const fn is_named(&self) -> bool {
        self.url.is_some() || self.host.is_some() || self.port.is_some() || self.socket.is_some()
    }

    /// Whether any option is given, except the password, which may be in the environment for other subcommands.
    pub fn has_any(&self) -> bool {
        let others = Self { password: None, ..self.clone() };
        others != Self::default() || self.password != std::env::var("REDISCLI_AUTH").ok()
    }

    /// Whether the server is a node of a cluster.
    pub const fn is_cluster(&self) -> bool {
        self.cluster
    }

    /// Fails if the options are invalid, before anything is connected. The error never contains a password.
    pub fn check(&self) -> Result<()> {
        self.client(&self.address()?).map(drop)
    }

    /// Returns the address of the server.
    pub(super) fn address(&self) -> Result<Address> {
        Ok(self.info()?.addr().to_string())
    }

    /// Creates a client of the server, or of another node of the same cluster, with the same user and certificates.
    pub(super) fn client(&self, address: &Address) -> Result<Client> {
        let mut info = self.info()?;
        if info.addr().to_string() != *address {
            let parts = address.rsplit_once(':').and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
            let (host, port) = parts.with_context(|| format!("`{address}` is not the address of a node"))?;
            let addr = match info.addr() {
                ConnectionAddr::TcpTls { insecure, .. } => {
                    ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: None }
                }
                _ => ConnectionAddr::Tcp(host, port),
            };
            info = info.set_addr(addr);
        }
        self.client_of(info)
    }

    pub(super) fn client_of(&self, info: ConnectionInfo) -> Result<Client> {
        let client = match info.addr() {
            ConnectionAddr::TcpTls { .. } => {
                // Fails if it is already installed.
                _ = rustls::crypto::ring::default_provider().install_default();
                Client::build_with_tls(info, self.certificates()?)
            }
            _ => Client::open(info),
        };
        client.map_err(|error| anyhow!("cannot use these options: {error}"))
    }

    /// Whether the options name Sentinels, which provide the address of the server.
    pub(super) fn has_sentinels(&self) -> bool {
        self.url.as_deref().and_then(split).is_some()
    }

    /// Returns how to connect to each Sentinel, with the user and the database of the server, and the name of the primary.
    pub(super) fn sentinels(&self) -> Result<Option<(Vec<ConnectionInfo>, String)>> {
        let Some((urls, primary)) = self.url.as_deref().and_then(split) else { return Ok(None) };
        let infos = urls.iter().map(|url| self.info_of(Some(url))).collect::<Result<_>>()?;
        Ok(Some((infos, primary.to_owned())))
    }

    /// Returns the URL. With Sentinels, it has the first Sentinel's address.
    fn first_url(&self) -> Option<Cow<'_, str>> {
        let url = self.url.as_deref()?;
        let of_sentinel = split(url).and_then(|(urls, _)| urls.into_iter().next());
        Some(of_sentinel.map_or(Cow::Borrowed(url), Cow::Owned))
    }

    fn info(&self) -> Result<ConnectionInfo> {
        self.info_of(self.first_url().as_deref())
    }

    fn info_of(&self, url: Option<&str>) -> Result<ConnectionInfo> {
        let info = match url {
            Some(url) => {
                url.into_connection_info().map_err(|_| usage(format!("a server's URL must have the form {FORM}")))?
            }
            None => self.addr().into_connection_info()?,
        };
        let addr = match info.addr().clone() {
            ConnectionAddr::Tcp(host, port) if self.tls => {
                ConnectionAddr::TcpTls { host, port, insecure: self.insecure, tls_params: None }
            }
            ConnectionAddr::TcpTls { host, port, insecure, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: insecure || self.insecure, tls_params: None }
            }
            addr => addr,
        };
        let info = info.set_addr(addr);
        if self.insecure && !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            return Err(usage("--insecure needs --tls or a rediss:// URL"));
        }
        let redis = self.settings(info.redis_settings());
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
        // Commands must not be delayed until earlier replies arrive.
        Ok(info
            .set_redis_settings(redis)
            .set_tcp_settings(TcpSettings::default().set_nodelay(true).set_keepalive(keepalive)))
    }

    fn addr(&self) -> ConnectionAddr {
        match &self.socket {
            Some(path) => ConnectionAddr::Unix(path.clone()),
            None => {
                let host = self.host.clone().unwrap_or_else(|| "127.0.0.1".to_owned());
                ConnectionAddr::Tcp(host, self.port.unwrap_or(6379))
            }
        }
    }

    fn settings(&self, from_url: &RedisConnectionInfo) -> RedisConnectionInfo {
        let mut settings = from_url.clone().set_lib_name("bloomgate", env!("CARGO_PKG_VERSION"));
        if let Some(user) = &self.user {
            settings = settings.set_username(user);
        }
        // A password in the URL applies to this server, a password in the environment to any server.
        if let (Some(password), None) = (&self.password, from_url.password()) {
            settings = settings.set_password(password);
        }
        self.database.map_or(settings.clone(), |database| settings.set_db(database.into()))
    }

    fn certificates(&self) -> Result<TlsCertificates> {
        let read = |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
        let client_tls = match (&self.cert, &self.tls_key) {
            (Some(cert), Some(key)) => {
                Some(redis::ClientTlsConfig { client_cert: read(cert)?, client_key: read(key)? })
            }
            _ => None,
        };
        let root_cert = self.cacert.as_deref().map(read).transpose()?;
        // With no certificates, every server would be rejected, and the error would blame the server.
        if let (Some(path), Some(bytes)) = (&self.cacert, &root_cert) {
            let first = CertificateDer::pem_slice_iter(bytes).next();
            ensure!(matches!(first, Some(Ok(_))), "{} does not contain a PEM certificate", path.display());
        }
        Ok(TlsCertificates { client_tls, root_cert })
    }
}

/// Splits a URL of Sentinels into a server URL for each Sentinel and the name of the primary. `None` for any other URL.
fn split(url: &str) -> Option<(Vec<String>, &str)> {
    let (scheme, rest) = url.split_once("-sentinel://")?;
    let (rest, primary) = rest.split_once('#').filter(|(_, primary)| !primary.is_empty())?;
    let (rest, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (user, hosts) = rest.split_at(rest.rfind('@').map_or(0, |at| at + 1));
    let urls = hosts.split(',').map(|host| {
        let is_port = |(_, port): (&str, &str)| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let port = if host.rsplit_once(':').is_some_and(is_port) { "" } else { ":26379" };
        format!("{scheme}://{user}{host}{port}{path}")
    });
    Some((urls.collect(), primary))
}

// Command lines that are invalid.

/// The reason why a command line is invalid.
#[derive(Debug)]
pub struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Error for Usage {}

/// Creates an error that exits with status 2.
pub fn usage(text: impl Into<String>) -> anyhow::Error {
    Usage(text.into()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_of_sentinels_names_each_of_them() {
        for (url, expected, primary) in [
            ("redis-sentinel://one#main", &["redis://one:26379"][..], "main"),
            (
                "rediss-sentinel://gate:p%40s@10.0.0.1:5000,[::1],[::2]:7/3#a.b-c",
                &[
                    "rediss://gate:p%40s@10.0.0.1:5000/3",
                    "rediss://gate:p%40s@[::1]:26379/3",
                    "rediss://gate:p%40s@[::2]:7/3",
                ],
                "a.b-c",
            ),
        ] {
            assert_eq!(split(url), Some((expected.iter().map(|&url| url.to_owned()).collect(), primary)));
        }
        for url in ["redis://one:26379#main", "redis-sentinel://one", "redis-sentinel://one#"] {
            assert_eq!(split(url), None, "{url}");
        }
    }
}
