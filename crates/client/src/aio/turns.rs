//! Fetches of many tasks as one command: what they ask for in one turn of the runtime is one BF.MFETCH.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot::{self, Receiver, Sender};
use tokio::task::yield_now;

use super::Client;
use crate::Error;
use crate::core::{BATCH, Commands, Fetch, Fetched, Found, FoundOne, Leases, lock};

/// Where a task waits for the reply for its row. A task that was cancelled has dropped its receiver.
type Seat = Sender<FoundOne<Client>>;

/// The rows that tasks ask for in one turn.
type Turn = Vec<(Vec<u8>, Seat)>;

/// The turn of a task that has not sent it yet. If the task is dropped, because its runtime has ended, the turn is cleared: those
/// that have a seat in it go on without a reply, and the next caller begins another turn.
struct Opened {
    open: Arc<Mutex<Turn>>,
    is_taken: bool,
}

impl Opened {
    /// Closes the turn, and returns its rows.
    fn take(mut self) -> Turn {
        self.is_taken = true;
        std::mem::take(&mut *lock(&self.open))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if !self.is_taken {
            // The seats are dropped after the lock: this may drop what waits for them.
            let turn = std::mem::take(&mut *lock(&self.open));
            drop(turn);
        }
    }
}

/// The fetches of one guard.
#[derive(Clone)]
pub struct Turns {
    client: Client,
    commands: Arc<Commands>,
    open: Arc<Mutex<Turn>>,
}

impl Turns {
    pub fn new(client: &Client, commands: &Arc<Commands>) -> Self {
        Self { client: client.clone(), commands: Arc::clone(commands), open: Arc::default() }
    }

    /// Fetches a row together with those that other tasks ask for. If this task is cancelled, another task that wants the row
    /// gets its lease, or the lease is given up.
    pub async fn fetch(&self, id: &[u8]) -> FoundOne<Client> {
        let lost = || Err(Error::UnexpectedReply("the runtime ended during a fetch".to_owned()));
        self.sit(id).await.unwrap_or_else(|_| (lost(), Leases::new(&self.commands, &self.client)))
    }

    /// Takes a seat in the turn. The first one of a turn sends it.
    fn sit(&self, id: &[u8]) -> Receiver<FoundOne<Client>> {
        let (seat, receiver) = oneshot::channel();
        let mut open = lock(&self.open);
        open.push((id.to_vec(), seat));
        let is_first = open.len() == 1;
        drop(open);
        if is_first {
            let turns = self.clone();
            let opened = Opened { open: Arc::clone(&self.open), is_taken: false };
            tokio::spawn(async move {
                // The tasks that are ready now come before this one is run again.
                yield_now().await;
                turns.send(opened.take()).await;
            });
        }
        receiver
    }

    /// Fetches the rows of the turn, and gives each seat its reply.
    async fn send(&self, turn: Turn) {
        let mut ids: Vec<Vec<u8>> = Vec::new();
        let mut seats: HashMap<Vec<u8>, Vec<Seat>> = HashMap::new();
        for (id, seat) in turn.into_iter().filter(|(_, seat)| !seat.is_closed()) {
            let of_row = seats.entry(id.clone()).or_default();
            if of_row.is_empty() {
                ids.push(id);
            }
            of_row.push(seat);
        }
        // Longer turns are several commands, one after the other.
        for part in ids.chunks(BATCH) {
            let fetch = Arc::clone(&self.commands).find(self.client.clone(), part.to_vec(), Fetch::default());
            let Found { answers, mut leases } = fetch.await;
            for (id, answer) in part.iter().zip(answers) {
                let lease = leases.take(id).unwrap_or_else(|| Leases::new(&self.commands, &self.client));
                deliver(seats.remove(id).unwrap_or_default(), answer, lease);
            }
        }
    }
}

/// Gives one reply to all that wait for it, and the lease to the first of them. If all were cancelled, the lease is dropped, and
/// so given up.
fn deliver(seats: Vec<Seat>, answer: Result<Fetched, Error>, lease: Leases<Client>) {
    let others = match &answer {
        Ok(Fetched::Stale(value, _)) => Ok(Fetched::Hit(Arc::clone(value))),
        Ok(Fetched::Load(_)) => Ok(Fetched::Wait),
        other => other.clone(),
    };
    let none = Leases::new(&lease.commands, &lease.io);
    let mut first = Some((answer, lease));
    for seat in seats {
        match first.take() {
            Some(found) => first = seat.send(found).err(),
            // The receiver may have been dropped. There is no lease to lose.
            None => {
                if let Ok(answer) = &others {
                    none.commands.count(answer.word(), 1);
                }
                _ = seat.send((others.clone(), Leases::new(&none.commands, &none.io)));
            }
        }
    }
}
