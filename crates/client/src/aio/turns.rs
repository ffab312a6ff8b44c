//! Coalesces the fetches of many tasks: the rows that they request in one turn of the runtime are fetched by one BF.MFETCH.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot::{self, Receiver, Sender};
use tokio::task::yield_now;

use super::Client;
use crate::core::{Commands, Fetch, Fetched, Found, Leases, lock, not_fetched};

/// A task's place in a turn: the sender of the reply for its row. A cancelled task has dropped the receiver.
type Seat = Sender<Found<Client>>;

/// The rows that tasks request in one turn.
type Turn = Vec<(Vec<u8>, Seat)>;

/// The turn of a task that has not sent it yet. If the task is dropped because its runtime has ended, the turn is cleared: its
/// callers continue without a reply, and the next caller begins another turn.
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
            // The seats are dropped after the lock is released, because dropping them may run code of their callers.
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

    /// Fetches a row together with the rows that other tasks request. If this task is cancelled, its lease is passed to another
    /// task that requests the row, or given up.
    pub async fn fetch(&self, id: &[u8]) -> Found<Client> {
        let lost = |_| Found::one(&self.commands, &self.client, Err(not_fetched("the runtime ended during a fetch")));
        self.sit(id).await.unwrap_or_else(lost)
    }

    /// Takes a seat in the turn. The first task of a turn sends it.
    fn sit(&self, id: &[u8]) -> Receiver<Found<Client>> {
        let (seat, receiver) = oneshot::channel();
        let mut open = lock(&self.open);
        open.push((id.to_vec(), seat));
        let is_first = open.len() == 1;
        drop(open);
        if is_first {
            let turns = self.clone();
            let opened = Opened { open: Arc::clone(&self.open), is_taken: false };
            tokio::spawn(async move {
                // Tasks that are ready now run before this one runs again.
                yield_now().await;
                turns.send(opened.take()).await;
            });
        }
        receiver
    }

    /// Fetches the rows of the turn, and delivers the reply to each seat.
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
        let fetch = Arc::clone(&self.commands).find(self.client.clone(), ids.clone(), Fetch::default());
        let Found { answers, mut leases } = fetch.await;
        for (id, answer) in ids.iter().zip(answers) {
            let mut found = Found::one(&self.commands, &self.client, answer);
            leases.move_to(&mut found.leases, id);
            self.deliver(seats.remove(id).unwrap_or_default(), found);
        }
    }

    /// Delivers one reply to all waiting tasks, and the lease to the first of them. If all were cancelled, the lease is dropped, which
    /// gives it up.
    fn deliver(&self, seats: Vec<Seat>, found: Found<Client>) {
        let mut others = found.answers.clone();
        for answer in others.iter_mut().flatten() {
            match answer {
                Fetched::Stale(value, _) => *answer = Fetched::Hit(Arc::clone(value)),
                Fetched::Load(_) => *answer = Fetched::Wait,
                _ => (),
            }
        }
        let mut first = Some(found);
        for seat in seats {
            if let Some(found) = first.take() {
                first = seat.send(found).err();
                continue;
            }
            others.iter().flatten().for_each(|answer| self.commands.count(answer.word(), 1));
            let leases = Leases::new(&self.commands, &self.client);
            // The receiver may have been dropped, which loses no lease.
            _ = seat.send(Found { answers: others.clone(), leases });
        }
    }
}
