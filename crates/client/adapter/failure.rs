//! The errors of calls, with their names in the cases.

use std::any::Any;

use bloomgate_client::Error;
use serde_json::Value;

use crate::case::plain;

/// The reason why a call of a case failed.
#[derive(Clone, Debug)]
pub enum Failure {
    /// The case contains an element that this adapter does not support.
    Unknown(String),
    /// The call returned an error or panicked.
    Call {
        /// All names of the error.
        names: Vec<&'static str>,
        /// The text of an error that an actor's function raised.
        message: String,
        answers: Vec<Option<bool>>,
        ids: Vec<Value>,
    },
}

impl Failure {
    /// An error with only one name.
    pub fn named(name: &'static str, message: &str) -> Self {
        Self::Call { names: vec![name], message: message.to_owned(), answers: Vec::new(), ids: Vec::new() }
    }

    /// A call that has panicked with a text.
    pub fn panicked(panic: &(dyn Any + Send)) -> Self {
        panic.downcast_ref::<String>().map_or_else(
            || Self::Unknown("a panic without a case's text".to_owned()),
            |message| Self::named("fatal", message),
        )
    }

    /// The error for arguments that the compiler would refuse.
    pub fn refused() -> Self {
        Self::named("refused", "the compiler refuses it")
    }
}

impl From<String> for Failure {
    fn from(what: String) -> Self {
        Self::Unknown(what)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let names = match &error {
            Error::Caller(_) => vec!["load"],
            Error::ModuleMissing { .. } => vec!["ModuleMissing"],
            Error::FilterMissing { .. } => vec!["FilterMissing"],
            Error::FilterExists { .. } => vec!["FilterExists"],
            Error::FilterFull { .. } => vec!["FilterFull"],
            Error::FilterLoading { .. } => vec!["FilterLoading"],
            Error::ShardMissing { .. } => vec!["ShardMissing", "FilterMissing"],
            Error::ShardsChanged { .. } => vec!["ShardsChanged"],
            Error::LoadFailed { .. } => vec!["LoadFailed"],
            Error::Unconfirmed { .. } => vec!["Unconfirmed"],
            Error::NotDurable(_) => vec!["TimeoutError"],
            Error::Refused(_) => vec!["refused"],
            Error::Redis { source, .. } if source.is_io_error() || source.is_timeout() => vec!["connection"],
            Error::Redis { source, .. } if source.code().is_some() => vec!["server"],
            _ => Vec::new(),
        };
        let ids = match &error {
            Error::Unconfirmed { ids } => ids.iter().map(|id| plain(id)).collect(),
            _ => Vec::new(),
        };
        Self::Call { names, message: error.to_string(), answers: error.answers().to_vec(), ids }
    }
}
