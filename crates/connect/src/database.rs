//! Connections to PostgreSQL: unencrypted, or with TLS if the URL contains `sslmode=require`.

use std::sync::Arc;

use anyhow::{Context, Result};
use postgres::config::SslMode;
use postgres::{Client, NoTls};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::Config;
use tokio_postgres::config::Host;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::server::usage;

/// Parses the URL of a server. If the URL has no password, PGPASSWORD from the environment is used. The error never contains a password.
pub fn parse(url: &str) -> Result<Config> {
    let invalid = |_| usage("a PostgreSQL server has the form postgres://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE]");
    let mut config: Config = url.parse().map_err(invalid)?;
    if let (None, Ok(password)) = (config.get_password(), std::env::var("PGPASSWORD")) {
        config.password(password);
    }
    Ok(config)
}

/// Returns the error message for a server that cannot be reached.
pub fn unreachable(config: &Config) -> String {
    let ports = config.get_ports();
    let address = |(index, host): (usize, &Host)| {
        let port = ports.get(index).or(ports.first()).unwrap_or(&5432);
        match host {
            Host::Tcp(name) => format!("{name}:{port}"),
            Host::Unix(folder) => format!("{}/.s.PGSQL.{port}", folder.display()),
        }
    };
    let addresses: Vec<_> = config.get_hosts().iter().enumerate().map(address).collect();
    format!("cannot reach the PostgreSQL server at {}", addresses.join(", "))
}

/// Opens a session.
pub fn connect(config: &Config) -> Result<Client> {
    let postgres = postgres::Config::from(config.clone());
    match tls(config)? {
        Some(tls) => postgres.connect(MakeRustlsConnect::new(tls)),
        None => postgres.connect(NoTls),
    }
    .with_context(|| unreachable(config))
}

/// Returns how to encrypt a connection, or `None` if it is not encrypted. The trusted certificates are the system's, or those in the file
/// that `SSL_CERT_FILE` names in the environment.
pub fn tls(config: &Config) -> Result<Option<ClientConfig>> {
    if config.get_ssl_mode() != SslMode::Require {
        return Ok(None);
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let settings = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Some(settings))
}
