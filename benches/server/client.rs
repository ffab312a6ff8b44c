//! A client that keeps many commands in flight on many connections, and counts the answers without keeping them.

use std::io::Write;
use std::ops::Range;
use std::time::Instant;

use anyhow::Result;

use super::answers::{Answers, count_reply};
use super::items::{Batch, Set, next_size};
use testing::Connection;

/// The largest number of connections. A short stream has one for each of its batches.
const CONNECTIONS: u64 = 50;

/// Sends commands on the items with the numbers of a range.
pub struct Stream<'a> {
    /// The arguments before the items.
    pub words: &'a [&'a str],
    /// The set of the items.
    pub set: Set,
    /// Items per command. With none, each number is a command's.
    pub items: u64,
    /// Pipelined commands per connection.
    pub pipeline: u64,
}

/// The time of a stream of commands, and the answers.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// From the first byte sent to the last reply read.
    pub seconds: f64,
    /// The number of commands.
    pub commands: u64,
    /// The answers.
    pub answers: Answers,
}

impl Outcome {
    /// Commands per second, as seen by the client.
    pub fn commands_per_second(&self) -> f64 {
        self.commands as f64 / self.seconds
    }
}

impl Stream<'_> {
    /// Sends the items with these numbers. Connections alternate: while the replies of one are read, the commands
    /// of the others are waiting at the server, so the server is always busy.
    pub fn run(&self, port: u16, numbers: Range<u64>) -> Result<Outcome> {
        let batches = (numbers.end - numbers.start).div_ceil(self.items.max(1) * self.pipeline);
        let connections = 0..batches.min(CONNECTIONS);
        let mut clients = connections.map(|_| Connection::open(port)).collect::<std::io::Result<Vec<_>>>()?;
        let mut waiting = vec![0; clients.len()];
        let mut batch = Batch::new(self.words, self.set, self.items, self.pipeline);
        let (mut next, mut commands) = (numbers.start, 0);
        let (mut line, mut answers) = (Vec::new(), Answers::default());
        let start = Instant::now();
        loop {
            let mut busy = false;
            for (client, waiting) in clients.iter_mut().zip(&mut waiting) {
                for _ in 0..std::mem::take(waiting) {
                    count_reply(client.stream(), &mut line, &mut answers)?;
                }
                if next < numbers.end {
                    let (used, together) = next_size(self.items.max(1), self.pipeline, numbers.end - next);
                    let items = used.min(self.items);
                    if (items, together) != (batch.items, batch.commands) {
                        batch = Batch::new(self.words, self.set, items, together);
                    }
                    client.stream().get_mut().write_all(batch.numbered_from(next))?;
                    next += used * together;
                    commands += together;
                    *waiting = together;
                }
                busy |= *waiting > 0;
            }
            if !busy {
                return Ok(Outcome { seconds: start.elapsed().as_secs_f64(), commands, answers });
            }
        }
    }
}
