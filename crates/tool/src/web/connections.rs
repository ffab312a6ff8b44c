//! The open connections of the page. Their number is bounded; a new one takes the place of the one that is needed least, so
//! clients that hold connections open keep nobody else out.

use std::cell::Cell;
use std::rc::Rc;

use tokio::task::AbortHandle;

/// Connections at a time.
const CONNECTIONS_MAX: usize = 64;

/// The connections. All of them belong to one thread.
#[derive(Default)]
pub struct Connections {
    open: Vec<(AbortHandle, Rc<Usage>)>,
    /// Counts up with each request.
    turn: Rc<Cell<u64>>,
}

/// When a connection was needed last.
pub struct Usage {
    turn: Rc<Cell<u64>>,
    last: Cell<u64>,
    is_answering: Cell<bool>,
}

impl Usage {
    /// A request has come.
    pub fn begin(&self) {
        self.turn.set(self.turn.get() + 1);
        self.last.set(self.turn.get());
        self.is_answering.set(true);
    }

    /// Its answer is known. It may still be on its way to a client that does not read it.
    pub fn end(&self) {
        self.is_answering.set(false);
    }
}

impl Connections {
    /// Makes room for a connection. Where there is none, it closes the one that no request is being worked on for, and of
    /// these the one whose last request is longest ago.
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
        // A connection that is new counts as used: the oldest of those that never asked goes first.
        usage.begin();
        usage.end();
        Rc::new(usage)
    }

    /// Takes the task of a connection in.
    pub fn add(&mut self, task: AbortHandle, usage: Rc<Usage>) {
        self.open.push((task, usage));
    }
}
