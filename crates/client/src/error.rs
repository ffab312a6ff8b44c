//! The errors of this crate.

use std::fmt;
use std::sync::Arc;

use redis::{ErrorKind, RedisError};

/// The answers of a failed batch; `None` for an unknown answer.
pub type Answers = Vec<Option<bool>>;

/// The error of a caller's function: any error that threads can share, an error of `anyhow`, or a text.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The error of a failed call.
///
/// `answers` are the known answers of a batch, in the order of its items. It is empty if the call was not a batch.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// A function of the caller failed: `load`, `load_many` or `write`. Clones share its error.
    Caller(Arc<dyn std::error::Error + Send + Sync>),
    /// The server lacks a command of bloomgate, or an option of one: the module is missing or older than this client, or
    /// another module provides BF.*.
    ModuleMissing {
        /// The server's error.
        source: RedisError,
    },
    /// The key does not exist.
    FilterMissing {
        /// The key.
        key: Vec<u8>,
        /// The known answers of the batch.
        answers: Answers,
    },
    /// The key exists already.
    FilterExists {
        /// The key.
        key: Vec<u8>,
    },
    /// A NONSCALING filter has reached its capacity. Items before the first `None` of a command were added.
    FilterFull {
        /// The key.
        key: Vec<u8>,
        /// The known answers of the batch.
        answers: Answers,
    },
    /// The filter is still being loaded: the last BF.LOADCHUNK has not arrived yet.
    FilterLoading {
        /// The key.
        key: Vec<u8>,
        /// The known answers of the batch.
        answers: Answers,
    },
    /// A shard of a sharded filter is missing, so the answers for its items are unknown.
    ShardMissing {
        /// The key of the shard, or the name of the sharded filter.
        key: Vec<u8>,
        /// The known answers of the earlier batches.
        answers: Answers,
    },
    /// The number of shards has changed since the sharded filter was opened: open it again, and repeat the batch.
    ShardsChanged {
        /// The name of the sharded filter.
        name: Vec<u8>,
        /// The known answers of the earlier batches.
        answers: Answers,
    },
    /// The last load of a row failed elsewhere, and no value is cached: the row is not loaded again until the back-off ends. Or
    /// the load that this call waited for panicked.
    LoadFailed {
        /// The row.
        id: Vec<u8>,
        /// The text of the panic.
        cause: Option<String>,
    },
    /// A write was committed, but its confirmation was not acknowledged in time. Readers may get the old rows for up to the
    /// longest load and a time to live. `confirm` tries again.
    Unconfirmed {
        /// The rows.
        ids: Vec<Vec<u8>>,
    },
    /// A write did not reach the required number of replicas, or the append-only file, in time.
    NotDurable(String),
    /// The arguments are invalid; nothing was sent. Or a codec could not encode a value.
    Refused(String),
    /// The server sent a reply that this crate does not understand.
    UnexpectedReply(String),
    /// An error of the client library or another error of the server: a lost connection, a missing permission, a server that is
    /// out of memory.
    Redis {
        /// The error.
        source: RedisError,
        /// The known answers of the batch.
        answers: Answers,
    },
}

impl Error {
    /// Wraps the error of a caller's function.
    pub(crate) fn caller(error: impl Into<BoxError>) -> Self {
        Self::Caller(Arc::from(error.into()))
    }

    /// Returns the known answers of a failed batch.
    pub fn answers(&self) -> &[Option<bool>] {
        match self {
            Self::FilterMissing { answers, .. }
            | Self::FilterFull { answers, .. }
            | Self::FilterLoading { answers, .. }
            | Self::ShardMissing { answers, .. }
            | Self::ShardsChanged { answers, .. }
            | Self::Redis { answers, .. } => answers,
            _ => &[],
        }
    }

    /// Returns the answers of a failed batch, if the error has any.
    fn answers_mut(&mut self) -> Option<&mut Answers> {
        match self {
            Self::FilterMissing { answers, .. }
            | Self::FilterFull { answers, .. }
            | Self::FilterLoading { answers, .. }
            | Self::ShardMissing { answers, .. }
            | Self::ShardsChanged { answers, .. }
            | Self::Redis { answers, .. } => Some(answers),
            _ => None,
        }
    }

    /// Prepends the answers of earlier commands.
    pub(crate) fn after(mut self, earlier: &[bool]) -> Self {
        if let Some(answers) = self.answers_mut() {
            answers.splice(0..0, earlier.iter().copied().map(Some));
        }
        self
    }

    /// Replaces the answers.
    pub(crate) fn with(mut self, of_batch: Answers) -> Self {
        if let Some(answers) = self.answers_mut() {
            *answers = of_batch;
        }
        self
    }

    /// Converts an error of the client library to the variant that a caller acts on.
    pub(crate) fn named(source: RedisError, key: &[u8], answers: Answers) -> Self {
        let (detail, key) = (source.detail().unwrap_or_default(), key.to_vec());
        if source.kind() == ErrorKind::Io {
            return Self::Redis { source, answers };
        }
        match detail {
            "not found" => Self::FilterMissing { key, answers },
            "item exists" => Self::FilterExists { key },
            _ if is_unknown_command(&source) => Self::ModuleMissing { source },
            _ if detail.contains("non scaling filter is full") => Self::FilterFull { key, answers },
            _ if detail.contains("filter is still being loaded") => Self::FilterLoading { key, answers },
            _ => Self::Redis { source, answers },
        }
    }
}

/// Whether a command of the module is unknown to the server.
pub(crate) fn is_unknown_command(error: &RedisError) -> bool {
    let detail = error.detail().unwrap_or_default();
    detail.starts_with("unknown command")
        && detail.get(15..).is_some_and(|rest| rest.trim_start_matches([' ', '\'', '`']).starts_with("BF."))
}

impl Error {
    /// Converts an error of the client library for a command of the guard. A module that rejects its options is older than this
    /// client.
    pub(crate) fn of_guard(source: RedisError) -> Self {
        match source.detail() {
            Some("syntax error") => Self::ModuleMissing { source },
            _ => source.into(),
        }
    }
}

impl From<RedisError> for Error {
    fn from(source: RedisError) -> Self {
        if is_unknown_command(&source) {
            return Self::ModuleMissing { source };
        }
        Self::Redis { source, answers: Vec::new() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        let shown = |key: &[u8]| key.escape_ascii().to_string();
        match self {
            Self::Caller(source) => source.fmt(formatter),
            Self::ModuleMissing { source } => {
                let is_older = source.detail() == Some("syntax error");
                let text = if is_older {
                    "the server's module is older than this client"
                } else {
                    "the server has not loaded the module bloomgate"
                };
                write!(formatter, "{text}: {source}")
            }
            Self::FilterMissing { key, .. } => write!(formatter, "there is no filter `{}`", shown(key)),
            Self::FilterExists { key } => write!(formatter, "the key `{}` exists already", shown(key)),
            Self::FilterFull { key, .. } => write!(formatter, "the filter `{}` is full", shown(key)),
            Self::FilterLoading { key, .. } => write!(formatter, "the filter `{}` is still being loaded", shown(key)),
            Self::ShardMissing { key, .. } => write!(formatter, "a shard is missing: `{}`", shown(key)),
            Self::ShardsChanged { name, .. } => {
                write!(formatter, "the number of shards of `{}` has changed: open it again", shown(name))
            }
            Self::LoadFailed { id, cause: None } => {
                write!(formatter, "the row `{}` has no cached value, and its last load failed", shown(id))
            }
            Self::LoadFailed { id, cause: Some(cause) } => {
                write!(formatter, "the load of the row `{}` has panicked: {cause}", shown(id))
            }
            Self::Unconfirmed { ids } => write!(formatter, "the change of {} rows could not be confirmed", ids.len()),
            Self::NotDurable(text) | Self::Refused(text) | Self::UnexpectedReply(text) => formatter.write_str(text),
            Self::Redis { source, .. } => source.fmt(formatter),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // Its text is the text of the caller's error, so its cause is the cause of that error.
            Self::Caller(source) => source.source(),
            Self::ModuleMissing { source } | Self::Redis { source, .. } => Some(source),
            _ => None,
        }
    }
}
