//! Fetches rows, and keeps the leases in the replies.

use std::sync::Arc;

use redis::Value;

use super::commands::Commands;
use super::fetched::{Fetch, Fetched};
use super::leases::Leases;
use super::{BATCH, Io, Reply};
use crate::Error;
use crate::core::split;

/// The replies for some rows, and the leases in them.
pub struct Found<I: Io> {
    pub answers: Vec<Result<Fetched, Error>>,
    pub leases: Leases<I>,
}

impl<I: Io> Found<I> {
    /// The answer for one row, without a lease.
    pub fn one(commands: &Arc<Commands>, io: &I, answer: Result<Fetched, Error>) -> Self {
        Self { answers: vec![answer], leases: Leases::new(commands, io) }
    }
}

impl Commands {
    /// Fetches rows. If the caller is cancelled, the replies are still read, and the leases in them are given up.
    pub async fn fetch<I: Io>(self: &Arc<Self>, io: &I, ids: Vec<Vec<u8>>, how: Fetch) -> Found<I> {
        let count = ids.len();
        let found = io.finish(Arc::clone(self).find(io.clone(), ids, how)).await;
        found.unwrap_or_else(|| Found {
            answers: (0..count).map(|_| Err(not_fetched("the runtime ended during a fetch"))).collect(),
            leases: Leases::new(self, io),
        })
    }

    /// Fetches rows, for a caller that is never cancelled.
    pub async fn find<I: Io>(self: Arc<Self>, io: I, ids: Vec<Vec<u8>>, how: Fetch) -> Found<I> {
        let wait = how.wait.as_ref().map(|(wait, _)| *wait);
        let (mut answers, mut leases) = (Vec::with_capacity(ids.len()), Leases::new(&self, &io));
        for part in ids.chunks(BATCH) {
            if self.is_paused() {
                answers.extend(part.iter().map(|_| Err(not_fetched("the server did not answer in time a moment ago"))));
                continue;
            }
            let mut replies = self.send(&io, vec![self.fetching(part, &how)], wait).await;
            if part.len() > 1 {
                replies = replies.into_iter().flat_map(|reply| spread(reply, part.len())).collect();
            }
            let mut replies = replies.into_iter();
            for id in part {
                let missing = || Err(not_fetched("the server sent no reply for a row"));
                let answer = replies.next().map_or_else(missing, Fetched::of);
                self.count(answer.as_ref().map_or("errors", Fetched::word), 1);
                if let Some(token) = answer.as_ref().ok().and_then(Fetched::token) {
                    leases.left.push((id.clone(), token.clone()));
                }
                answers.push(answer);
            }
        }
        Found { answers, leases }
    }
}

/// Returns the error for a row that was not fetched.
pub fn not_fetched(why: &str) -> Error {
    Error::UnexpectedReply(why.to_owned())
}

/// Returns an answer for each row of a command, which itself may have failed.
pub fn spread(reply: Reply, count: usize) -> Vec<Reply> {
    match reply {
        Ok(Value::Array(answers)) => answers.into_iter().map(split).collect(),
        other => vec![other; count],
    }
}
