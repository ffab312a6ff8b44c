//! Passes lines through a filter: a thread reads them ([`reader`]), each yields an item ([`field`]), and batches of items are
//! sent before earlier replies arrive ([`Flow`]).

pub mod field;
pub mod reader;

use std::collections::VecDeque;

use anyhow::Result;
use redis::Value;

use crate::server::{Address, ConnectionLost, RECONNECT_TIMEOUT, Server};
use crate::target::{Part, Question, Target};
pub use field::{Column, Field};
pub use reader::Lines;

// Batches in flight: several are sent before the first reply is read. Every batch gets its answers, even if the connection is lost or a
// slot migrates.

/// The maximum number of batches in flight.
const BATCHES_AT_ONCE: usize = 8;
/// Sending fails after this many lost connections without a reply, because the connection is then not the cause.
const LOSSES_MAX: u32 = 5;

pub trait Batch {
    fn items(&self) -> Vec<&[u8]>;
}

/// The filter's answer for an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Whether the item is new.
    Known { is_new: bool },
    /// The item was added, but the connection was lost before the reply said whether it was new.
    Unknown,
    /// The server refused to add the item.
    Refused,
}

/// A batch with its answers.
pub struct Answered<B> {
    pub batch: B,
    pub answers: Vec<Answer>,
    /// Whether a part was sent twice.
    pub is_sent_again: bool,
    /// The reasons why items were refused.
    pub error: Option<anyhow::Error>,
}

pub struct Flow<'a, B> {
    pub server: &'a mut Server,
    target: &'a Target,
    question: Question,
    waiting: VecDeque<Waiting<B>>,
    /// Whether the connection is lost. Nothing is sent until it is restored.
    lost: Option<anyhow::Error>,
    /// Lost connections since the last reply.
    losses: u32,
}

struct Waiting<B> {
    batch: B,
    count: usize,
    parts: Vec<(Part, State)>,
    is_sent_again: bool,
}

/// The state of a command.
enum State {
    Unsent,
    Owed(Address),
    Here(Value),
    /// The reply to the resent command.
    Again(Value),
}

impl<'a, B: Batch> Flow<'a, B> {
    /// Creates a flow that asks `question` of `target`.
    pub const fn new(server: &'a mut Server, target: &'a Target, question: Question) -> Self {
        Self { server, target, question, waiting: VecDeque::new(), lost: None, losses: 0 }
    }

    /// Whether a batch must be received before the next one is sent.
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= BATCHES_AT_ONCE
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Sends a batch. If the connection is lost, [`Self::receive`] reports it.
    pub fn send(&mut self, batch: B) -> Result<()> {
        let items = batch.items();
        let mut parts: Vec<_> =
            self.target.parts(self.question, &items).into_iter().map(|part| (part, State::Unsent)).collect();
        let count = items.len();
        if self.lost.is_none() {
            for (part, state) in &mut parts {
                match self.server.send(&part.command.get_packed_command(), &part.key) {
                    Ok(node) => *state = State::Owed(node),
                    Err(error) if error.is::<ConnectionLost>() => {
                        // The server may have received part of the command.
                        *state = State::Owed(Address::new());
                        self.lost = Some(error);
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        self.waiting.push_back(Waiting { batch, count, parts, is_sent_again: false });
        Ok(())
    }

    /// Waits for the answers to the oldest batch. A lost connection is an error only with `is_loss_final`, or if it cannot be restored
    /// before the timeout. After an error, [`Self::give_up`] returns the batches in flight.
    pub fn receive(&mut self, is_loss_final: bool) -> Result<Option<Answered<B>>> {
        if self.waiting.is_empty() {
            return Ok(None);
        }
        loop {
            let result = match self.lost.take() {
                Some(error) => Err(error),
                None => self.collect(),
            };
            match result {
                Ok(()) => break,
                Err(error) if error.is::<ConnectionLost>() && !is_loss_final && self.losses < LOSSES_MAX => {
                    eprintln!("bloomgate: {error}; waiting for it");
                    self.losses += 1;
                    self.send_again()?;
                }
                Err(error) => return Err(error),
            }
        }
        self.losses = 0;
        Ok(self.waiting.pop_front().map(|waiting| self.answered(waiting)))
    }

    /// Returns the batches in flight after [`Self::receive`] failed. Items without a reply are unknown.
    pub fn give_up(mut self) -> Vec<Answered<B>> {
        std::mem::take(&mut self.waiting).into_iter().map(|waiting| self.answered(waiting)).collect()
    }

    /// Reads the replies to the oldest batch, and to all batches if a command must be sent to another node.
    fn collect(&mut self) -> Result<()> {
        let mut is_moving = false;
        for waiting in &mut self.waiting {
            for (_, state) in &mut waiting.parts {
                if let State::Owed(node) = state {
                    *state = State::Here(self.server.receive(node)?);
                }
                is_moving |= matches!(state, State::Here(reply) if self.server.is_elsewhere(reply));
            }
            if !is_moving {
                return Ok(());
            }
        }
        for (part, state) in self.waiting.iter_mut().flat_map(|waiting| &mut waiting.parts) {
            if let State::Here(reply) = state
                && self.server.is_elsewhere(reply)
            {
                let reply = reply.clone();
                // Lost commands are resent.
                *state = State::Owed(Address::new());
                *state = State::Here(self.server.settle(&part.command, reply, &part.key)?);
            }
        }
        Ok(())
    }

    /// Reconnects and sends all commands without a reply again, because it is unknown whether they were executed.
    fn send_again(&mut self) -> Result<()> {
        self.server.reconnect(RECONNECT_TIMEOUT)?;
        for waiting in &mut self.waiting {
            let unanswered =
                waiting.parts.iter_mut().filter(|(_, state)| matches!(state, State::Unsent | State::Owed(_)));
            let (commands, mut states): (Vec<_>, Vec<_>) =
                unanswered.map(|(part, state)| ((part.key.clone(), part.command.clone()), state)).unzip();
            if commands.is_empty() {
                continue;
            }
            let replies = match self.server.replies_of_many(&commands) {
                Ok(replies) => replies,
                Err(error) if error.is::<ConnectionLost>() => {
                    // Try again.
                    states.iter_mut().for_each(|state| **state = State::Owed(Address::new()));
                    self.lost = Some(error);
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            for (state, reply) in states.into_iter().zip(replies) {
                *state = if matches!(state, State::Unsent) {
                    State::Here(reply)
                } else {
                    waiting.is_sent_again = true;
                    State::Again(reply)
                };
            }
        }
        Ok(())
    }

    fn answered(&self, waiting: Waiting<B>) -> Answered<B> {
        let Waiting { batch, count, parts, is_sent_again } = waiting;
        let (mut replied, mut unknown) = (vec![None; count], vec![false; count]);
        let mut error = None;
        for (part, state) in &parts {
            if let State::Here(reply) | State::Again(reply) = state
                && let Err(fault) = self.target.read(self.server, part, reply, &mut replied)
            {
                error.get_or_insert(fault);
            }
            if matches!(state, State::Again(_) | State::Owed(_)) && self.question == Question::Add {
                part.places().for_each(|place| unknown.get_mut(place).map_or((), |unknown| *unknown = true));
            }
        }
        let answers = replied.into_iter().zip(unknown).map(|(replied, is_unknown)| match (replied, is_unknown) {
            // The second attempt finds items that the first one added.
            (Some(false), true) | (None, true) if error.is_none() || replied.is_some() => Answer::Unknown,
            (Some(replied), _) => Answer::Known { is_new: replied == (self.question == Question::Add) },
            (None, _) => Answer::Refused,
        });
        Answered { batch, answers: answers.collect(), is_sent_again, error }
    }
}
