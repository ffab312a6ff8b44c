//! Sends the commands of many tasks that end leases in batches. In a burst each row has a separate command, and thousands of commands
//! sent at once would exceed the time limit in the queue of this process.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use redis::{Cmd, ErrorKind};
use tokio::sync::oneshot::{self, Sender};
use tokio::task::yield_now;

use crate::batch::{bytes_of, fits};
use crate::core::{Io, Reply, is_late, lock};

/// The maximum number of batches in flight.
const MOST_SENDING: usize = 4;

/// The commands of one task, and where their replies are sent.
type Entry = (Vec<Cmd>, Sender<Vec<Reply>>);

/// The commands that wait for their batch.
#[derive(Default)]
pub struct Queue(Mutex<State>);

#[derive(Default)]
struct State {
    entries: VecDeque<Entry>,
    /// The number of tasks that send batches.
    sending: usize,
}

/// One of these tasks. If it is dropped because its runtime has ended, the queue is cleared, so that no caller waits forever.
struct Sending {
    queue: Arc<Queue>,
    has_ended: bool,
}

impl Drop for Sending {
    fn drop(&mut self) {
        if !self.has_ended {
            let mut state = lock(&self.queue.0);
            state.sending -= 1;
            // The entries are dropped after the lock is released, because dropping them may run code of their callers.
            let entries = std::mem::take(&mut state.entries);
            drop(state);
            drop(entries);
        }
    }
}

impl Sending {
    /// Removes and returns the next batch, with the commands of at least one task. If the queue is empty, returns an empty batch, and the
    /// sending task ends.
    fn take(&mut self) -> Vec<Entry> {
        let mut state = lock(&self.queue.0);
        let (mut batch, mut count, mut bytes) = (Vec::new(), 0, 0);
        while let Some((commands, _)) = state.entries.front() {
            let more: usize = commands.iter().map(bytes_of).sum();
            if !batch.is_empty() && !fits(count + commands.len(), bytes + more) {
                break;
            }
            (count, bytes) = (count + commands.len(), bytes + more);
            batch.extend(state.entries.pop_front());
        }
        if batch.is_empty() {
            state.sending -= 1;
            self.has_ended = true;
        }
        batch
    }

    /// Sends batches until the queue is empty.
    async fn run(mut self, io: impl Io) {
        // Tasks that are ready now run before this one resumes.
        yield_now().await;
        loop {
            let batch = self.take();
            if batch.is_empty() {
                return;
            }
            let (commands, senders): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
            let counts: Vec<usize> = commands.iter().map(Vec::len).collect();
            let mut replies = io.ask(commands.into_iter().flatten().collect(), None).await.into_iter();
            let mut late = None;
            for (sender, count) in senders.into_iter().zip(counts) {
                let own: Vec<Reply> = replies.by_ref().take(count).collect();
                late = late.or_else(|| own.iter().find(|reply| is_late(reply)).cloned());
                // The task may have been cancelled.
                _ = sender.send(own);
            }
            if let Some(late) = late {
                // The server hangs. If each batch waited for its own time-out, the last would wait for a very long time.
                let left = std::mem::take(&mut lock(&self.queue.0).entries);
                for (commands, sender) in left {
                    _ = sender.send(vec![late.clone(); commands.len()]);
                }
            }
        }
    }
}

impl Queue {
    /// Sends commands together with the commands of other tasks, and returns their replies.
    pub async fn ask(self: &Arc<Self>, io: &impl Io, commands: Vec<Cmd>) -> Vec<Reply> {
        let (sender, receiver) = oneshot::channel();
        let count = commands.len();
        if let Some(sending) = self.push((commands, sender)) {
            tokio::spawn(sending.run(io.clone()));
        }
        let lost = || (0..count).map(|_| Err((ErrorKind::Io, "the runtime has ended").into())).collect();
        receiver.await.unwrap_or_else(|_| lost())
    }

    /// Adds an entry. Returns a sending task to run, unless enough are running.
    fn push(self: &Arc<Self>, entry: Entry) -> Option<Sending> {
        let mut state = lock(&self.0);
        state.entries.push_back(entry);
        let is_needed = state.sending < MOST_SENDING;
        state.sending += usize::from(is_needed);
        is_needed.then(|| Sending { queue: Arc::clone(self), has_ended: false })
    }
}
