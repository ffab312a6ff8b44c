//! The thread that queries the server for the page. It takes a sample at each interval, walks over the keys between samples, and answers
//! requests in its pauses. It reconnects if the connection is lost.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use redis::{cmd, from_redis_value};
use tokio::sync::oneshot;

use crate::sampler::{Sampler, pause_after};
use crate::server::ConnectionLost;
use crate::web::query::readable;

/// The pause before the first attempt to reconnect. It doubles with each further attempt.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(8);

/// A request for `BF.EXISTS`, which changes nothing.
pub struct Question {
    pub key: Vec<u8>,
    pub item: Vec<u8>,
    pub answer: oneshot::Sender<Result<bool, String>>,
}

pub struct Worker {
    sampler: Sampler,
    questions: Receiver<Question>,
    next_sample: Instant,
    retry: Duration,
}

impl Worker {
    pub fn new(sampler: Sampler, questions: Receiver<Question>) -> Self {
        Self { sampler, questions, next_sample: Instant::now(), retry: RETRY_MIN }
    }

    /// Runs until all senders of questions are dropped.
    pub fn run(mut self) {
        loop {
            let until = match self.turn() {
                Ok(until) => until,
                Err(error) => self.failed(&error),
            };
            if answer_until(&mut self.sampler, &self.questions, until).is_err() {
                return;
            }
        }
    }

    /// Does the work that is due. Returns when more work is due.
    fn turn(&mut self) -> Result<Instant> {
        if self.sampler.is_lost {
            self.sampler.connect()?;
            self.next_sample = Instant::now();
        }
        if Instant::now() >= self.next_sample {
            // A small server is walked in one step, so its first sample already has the filters.
            if self.sampler.walk.is_at_begin() {
                self.step_if_due()?;
            }
            self.sample()?;
            self.retry = RETRY_MIN;
        }
        // Also after a sample, because on a slow server each sample takes longer than the interval, so that the next one is always due.
        self.step_if_due()?;
        Ok(self.next_sample.min(self.sampler.walk.due()))
    }

    fn step_if_due(&mut self) -> Result<()> {
        if Instant::now() >= self.sampler.walk.due() {
            let took = self.sampler.step()?;
            self.sampler.walk.pause(pause_after(took));
        }
        Ok(())
    }

    fn failed(&mut self, error: &anyhow::Error) -> Instant {
        self.sampler.is_lost = true;
        let (mut state, text) = (self.sampler.board.state(), format!("{error:#}"));
        state.sent_at = None;
        let is_new = state.problem.as_ref().is_none_or(|problem| problem.text != text);
        if is_new {
            eprintln!("bloomgate: {text}");
        }
        state.fail(text);
        drop(state);
        let until = Instant::now() + self.retry;
        self.retry = self.retry.saturating_mul(2).min(RETRY_MAX);
        until
    }

    fn sample(&mut self) -> Result<()> {
        let Self { sampler, questions, .. } = self;
        let begun = Instant::now();
        self.next_sample = begun + sampler.board.interval;
        let nodes = sampler.count()?;
        let keys: Vec<Vec<u8>> = sampler.board.state().filters.keys().cloned().collect();
        let mut queried = Vec::with_capacity(keys.len());
        sampler.query(&keys, &mut queried, |sampler, took| {
            answer_until(sampler, questions, Instant::now() + pause_after(took)).map(|()| true)
        })?;
        if sampler.board.state().problem.is_some() {
            eprintln!("bloomgate: the server at {} is back", sampler.board.server);
        }
        sampler.store(nodes, queried, begun.elapsed());
        Ok(())
    }
}

/// Answers questions until the given time.
fn answer_until(sampler: &mut Sampler, questions: &Receiver<Question>, until: Instant) -> Result<()> {
    loop {
        match questions.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Question { key, item, answer }) => {
                let result = exists(sampler, &key, &item).map_err(|error| format!("{error:#}"));
                // The request may have been dropped.
                _ = answer.send(result);
            }
            Err(RecvTimeoutError::Timeout) => return Ok(()),
            Err(RecvTimeoutError::Disconnected) => return Err(anyhow!("the page has stopped")),
        }
    }
}

fn exists(sampler: &mut Sampler, key: &[u8], item: &[u8]) -> Result<bool> {
    let reply = sampler.ask(|server| server.ask(cmd("BF.EXISTS").arg(key).arg(item), key));
    // The next sample reconnects.
    sampler.is_lost |= reply.as_ref().is_err_and(anyhow::Error::is::<ConnectionLost>);
    let (reply, _) = reply.with_context(|| format!("cannot query `{}`", readable(key)))?;
    Ok(from_redis_value(reply)?)
}
