//! An HTTP server for a few local clients. One thread serves all connections.

use std::cell::Cell;
use std::convert::Infallible;
use std::net::TcpListener;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::task::{AbortHandle, LocalSet, spawn_local};

/// How long a connection may be idle, or take to send a request's header.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves until the process ends. `answer` must not block the thread.
pub fn serve<Answer, Answered>(listener: TcpListener, answer: Answer) -> Result<()>
where
    Answer: Fn(Request<Incoming>) -> Answered + 'static,
    Answered: Future<Output = Response<Full<Bytes>>> + 'static,
{
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, accept(listener, Rc::new(answer)))
}

async fn accept<Answer, Answered>(listener: TcpListener, answer: Rc<Answer>) -> Result<()>
where
    Answer: Fn(Request<Incoming>) -> Answered + 'static,
    Answered: Future<Output = Response<Full<Bytes>>> + 'static,
{
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let mut connections = Connections::default();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file descriptors. Some will be closed soon.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let usage = connections.make_room();
        let (answer, used) = (Rc::clone(&answer), Rc::clone(&usage));
        let task = spawn_local(async move {
            let service = service_fn(|request| {
                let (answer, used) = (Rc::clone(&answer), Rc::clone(&used));
                async move {
                    used.begin();
                    let response = answer(request).await;
                    used.end();
                    Ok::<_, Infallible>(response)
                }
            });
            // A client that disconnects is not an error.
            _ = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
        connections.add(task.abort_handle(), usage);
    }
}

// The open connections. Their number is limited. A new connection closes the least recently used one, so clients
// that hold connections open cannot lock others out.

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
