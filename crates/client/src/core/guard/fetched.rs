//! The replies of BF.FETCH, and the tokens in them.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::Reply;
use crate::Error;
use crate::core::Slot;
use crate::replies::{self, unexpected};

/// A lease's token.
pub type Token = Vec<u8>;

/// A row, and the token of the lease for it.
pub type Lease = (Vec<u8>, Token);

/// The options of a fetch.
#[derive(Default)]
pub struct Fetch {
    /// Whether the cached value could not be decoded (REPLACE).
    pub replace: bool,
    /// Whether old values are accepted, and no lease is requested.
    pub peek: bool,
    /// How long the server may withhold the reply, and the slot of a connection for it. Only for a single row.
    pub wait: Option<(Duration, Slot)>,
}

/// A reply of BF.FETCH.
#[derive(Debug, Clone, PartialEq)]
pub enum Fetched {
    Absent,
    Hit(Arc<[u8]>),
    Stale(Arc<[u8]>, Token),
    Load(Token),
    Wait,
    /// The load of the row has failed, and its back-off has not ended.
    Failed,
}

impl Fetched {
    pub fn of(reply: Reply) -> Result<Self, Error> {
        let reply = match reply {
            // CLIENT UNBLOCK has ended the wait.
            Err(error) if error.code() == Some("UNBLOCKED") => return Ok(Self::Wait),
            other => &other.map_err(Error::of_guard)?,
        };
        let Value::Array(parts) = reply else { return Err(unexpected(reply)) };
        let parts: Vec<&[u8]> = parts.iter().map(|part| replies::bytes(part).unwrap_or_default()).collect();
        Ok(match parts.as_slice() {
            [b"absent"] => Self::Absent,
            [b"hit", value] => Self::Hit((*value).into()),
            [b"stale", value, token] => Self::Stale((*value).into(), token.to_vec()),
            [b"load", token] => Self::Load(token.to_vec()),
            [b"wait", _] => Self::Wait,
            [b"failed", _] => Self::Failed,
            _ => return Err(unexpected(reply)),
        })
    }

    /// Returns the first word of the reply.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Hit(_) => "hit",
            Self::Stale(..) => "stale",
            Self::Load(_) => "load",
            Self::Wait => "wait",
            Self::Failed => "failed",
        }
    }

    pub fn token(&self) -> Option<&Token> {
        match self {
            Self::Stale(_, token) | Self::Load(token) => Some(token),
            _ => None,
        }
    }
}
