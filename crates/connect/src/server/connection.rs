//! Opens a connection, and describes each kind of failure in one line.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use anyhow::Result;
use redis::{Client, Connection, ErrorKind, RedisError};
use rustls::{AlertDescription, CertificateError};

/// A connection was lost. It is unknown whether pending commands were executed.
#[derive(Debug)]
pub struct ConnectionLost(pub String);

impl fmt::Display for ConnectionLost {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Error for ConnectionLost {}

/// How long to wait for a connection and its first replies.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Connects to a server, or fails with [`ConnectionLost`]. If a later reply takes longer than `patience`, the connection counts as lost.
pub(super) fn open(client: &Client, address: &str, patience: Duration) -> Result<Connection> {
    let connection = client.get_connection_with_timeout(CONNECT_TIMEOUT).map_err(|error| {
        ConnectionLost(match (tls_reason(&error), error.kind()) {
            (Some(reason), _) => format!("cannot establish TLS with the server at {address}: {reason}"),
            _ if error.is_timeout() => format!(
                "no answer from {address} for {} s: is it a Redis server, and does the use of TLS match?",
                CONNECT_TIMEOUT.as_secs()
            ),
            (_, ErrorKind::Io) => format!("cannot reach a Redis server at {address}: {}", line(&error)),
            (_, ErrorKind::AuthenticationFailed) => format!("the server at {address} rejects the user or password"),
            (_, ErrorKind::Parse) => format!("{address} is not a Redis server: it speaks another protocol"),
            _ => format!("cannot connect to {address}: {}", line(&error)),
        })
    })?;
    connection.set_read_timeout(Some(patience))?;
    connection.set_write_timeout(Some(patience))?;
    Ok(connection)
}

/// Returns the text of an error in one line.
pub(super) fn line(error: &RedisError) -> String {
    if error.kind() == ErrorKind::Parse {
        return "its answer is not in Redis's protocol".to_owned();
    }
    error.to_string().lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

/// Returns why TLS failed, if it did.
fn tls_reason(error: &RedisError) -> Option<String> {
    let inner = error.source()?.downcast_ref::<Arc<dyn Error + Send + Sync>>()?;
    let tls = inner.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(match tls {
        rustls::Error::InvalidCertificate(fault) => {
            format!("its certificate {}. --insecure accepts any certificate", certificate_reason(fault))
        }
        rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "it requires a client certificate: use --cert and --tls-key".to_owned()
        }
        rustls::Error::InvalidMessage(_) => "it does not speak TLS".to_owned(),
        other => other.to_string(),
    })
}

fn certificate_reason(fault: &CertificateError) -> String {
    match fault {
        CertificateError::UnknownIssuer => {
            "is not signed by a trusted authority: give the authority's certificate with --cacert FILE".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "has expired".to_owned(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "is not valid yet".to_owned(),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "is for another host name".to_owned()
        }
        // The library that verifies certificates has no public type for this.
        CertificateError::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            "belongs to an authority (CA:TRUE): give the server a certificate signed by that authority".to_owned()
        }
        other => format!("is refused: {other:?}"),
    }
}
