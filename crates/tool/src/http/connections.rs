//! The open connections. Their number is limited. A new connection closes the least recently used one, so clients
//! that hold connections open cannot lock others out.

use std::cell::Cell;
use std::rc::Rc;

use tokio::task::AbortHandle;

/// The maximum number of connections.
const CONNECTIONS_MAX: usize = 64;

/// The connections, all served by one thread.
#[derive(Default)]
pub struct Connections {
    open: Vec<(AbortHandle, Rc<Usage>)>,
    /// Counts up with each request.
    turn: Rc<Cell<u64>>,
}

/// When a connection was last used.
pub struct Usage {
    turn: Rc<Cell<u64>>,
    last: Cell<u64>,
    is_answering: Cell<bool>,
}

impl Usage {
    /// Records the start of a request.
    pub fn begin(&self) {
        self.turn.set(self.turn.get() + 1);
        self.last.set(self.turn.get());
        self.is_answering.set(true);
    }

    /// Records that the response is ready. A client that does not read may not have received it.
    pub fn end(&self) {
        self.is_answering.set(false);
    }
}

impl Connections {
    /// Makes room for a connection. If the limit is reached, it closes a connection without a request in progress: the one
    /// whose last request is the oldest.
    pub fn make_room(&mut self) -> Rc<Usage> {
        self.open.retain(|(task, _)| !task.is_finished());
        if self.open.len() >= CONNECTIONS_MAX {
            let needed =
                |(_, (_, usage)): &(usize, &(AbortHandle, Rc<Usage>))| (usage.is_answering.get(), usage.last.get());
            if let Some((least, _)) = self.open.iter().enumerate().min_by_key(needed) {
                self.open.swap_remove(least).0.abort();
            }
        }
        let usage = Usage { turn: Rc::clone(&self.turn), last: Cell::new(0), is_answering: Cell::new(false) };
        // A new connection counts as used, so the oldest one without a request is closed first.
        usage.begin();
        usage.end();
        Rc::new(usage)
    }

    /// Adds the task of a connection.
    pub fn add(&mut self, task: AbortHandle, usage: Rc<Usage>) {
        self.open.push((task, usage));
    }
}
