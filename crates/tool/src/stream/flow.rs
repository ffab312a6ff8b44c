//! Batches on their way: several are sent before the first of them is answered. A batch is answered even where the connection
//! is lost, or where a slot of a cluster moves meanwhile.

use std::collections::VecDeque;

use anyhow::Result;
use redis::Value;

use crate::server::{Address, Lost, RECONNECT_TIMEOUT, Server};
use crate::target::{Part, Question, Target};

/// Batches that are on their way at the same time.
const BATCHES_AT_ONCE: usize = 8;
/// After so many losses without an answer in between it is not the connection that is at fault.
const LOSSES_MAX: u32 = 5;

/// What has items.
pub trait Batch {
    /// They, in order.
    fn items(&self) -> Vec<&[u8]>;
}

/// What the filter says of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is new, or was seen.
    Known { is_new: bool },
    /// It is in now. Whether it was new is not known: the connection was lost before the server could say.
    Unknown,
    /// It was not added: the server refused it.
    Refused,
}

/// A batch with its answers.
pub struct Answered<B> {
    pub batch: B,
    pub answers: Vec<Answer>,
    /// Some of it was sent twice.
    pub is_sent_again: bool,
    /// Why there are refused ones.
    pub error: Option<anyhow::Error>,
}

/// Batches on their way.
pub struct Flow<'a, B> {
    pub server: &'a mut Server,
    target: &'a Target,
    question: Question,
    waiting: VecDeque<Waiting<B>>,
    /// The connection was lost, nothing can be sent until it is there again.
    lost: Option<anyhow::Error>,
    /// Losses since the last answer.
    losses: u32,
}

struct Waiting<B> {
    batch: B,
    count: usize,
    parts: Vec<(Part, State)>,
    is_sent_again: bool,
}

/// How far a command has come.
enum State {
    Unsent,
    Owed(Address),
    Here(Value),
    /// The reply to the second time that it was sent.
    Again(Value),
}

impl<'a, B: Batch> Flow<'a, B> {
    /// Asks `question` of `target`.
    pub const fn new(server: &'a mut Server, target: &'a Target, question: Question) -> Self {
        Self { server, target, question, waiting: VecDeque::new(), lost: None, losses: 0 }
    }

    /// Whether no more batches should be sent before one was received.
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= BATCHES_AT_ONCE
    }

    /// Whether no batch is on its way.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Sends a batch. A connection that is lost over that is found by [`Self::receive`].
    ///
    /// # Errors
    /// A cluster that does not settle.
    pub fn send(&mut self, batch: B) -> Result<()> {
        let items = batch.items();
        let mut parts: Vec<_> =
            self.target.parts(self.question, &items).into_iter().map(|part| (part, State::Unsent)).collect();
        let count = items.len();
        if self.lost.is_none() {
            for (part, state) in &mut parts {
                match self.server.send(&part.command.get_packed_command(), &part.key) {
                    Ok(node) => *state = State::Owed(node),
                    Err(error) if error.is::<Lost>() => {
                        // Some of it may have arrived.
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

    /// Waits for the answers to the oldest batch. A loss is an error only if there is no connection again for long, and with
    /// `is_loss_final`: then [`Self::give_up`] has what was on its way.
    ///
    /// # Errors
    /// [`Lost`]; a cluster that does not settle.
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
                Err(error) if error.is::<Lost>() && !is_loss_final && self.losses < LOSSES_MAX => {
                    self.losses += 1;
                    self.send_again()?;
                }
                Err(error) => return Err(error),
            }
        }
        self.losses = 0;
        Ok(self.waiting.pop_front().map(|waiting| self.answered(waiting)))
    }

    /// What was on its way when [`Self::receive`] failed: what was sent and not answered is unknown.
    pub fn give_up(mut self) -> Vec<Answered<B>> {
        std::mem::take(&mut self.waiting).into_iter().map(|waiting| self.answered(waiting)).collect()
    }

    /// Reads the replies to the oldest batch, and to all others if one of these has to be sent to another node.
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
                // What is lost on the way is sent again.
                *state = State::Owed(Address::new());
                *state = State::Here(self.server.follow(&part.command, reply, &part.key)?);
            }
        }
        Ok(())
    }

    /// Connects again, and sends all that has no reply. What was sent before is sent again: nobody knows whether it was done.
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
                Err(error) if error.is::<Lost>() => {
                    // Once more, then.
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
            // An item that was added by the first try is found by the second one.
            (Some(false), true) | (None, true) if error.is_none() || replied.is_some() => Answer::Unknown,
            (Some(replied), _) => Answer::Known { is_new: replied == (self.question == Question::Add) },
            (None, _) => Answer::Refused,
        });
        Answered { batch, answers: answers.collect(), is_sent_again, error }
    }
}
