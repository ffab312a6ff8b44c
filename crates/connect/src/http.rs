//! An HTTP server for a few local clients. One thread serves all connections.

use std::collections::VecDeque;
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

/// How long a connection may take to send a request's header.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of connections, each for one request. A new connection closes the oldest, so that clients that hold connections open
/// cannot lock others out.
const CONNECTIONS_MAX: usize = 64;

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
    let mut connections: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file descriptors. Some will be closed soon.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        connections.retain(|task| !task.is_finished());
        if connections.len() >= CONNECTIONS_MAX
            && let Some(oldest) = connections.pop_front()
        {
            oldest.abort();
        }
        let answer = Rc::clone(&answer);
        let task = spawn_local(async move {
            let service = service_fn(|request| {
                let answer = Rc::clone(&answer);
                async move { Ok::<_, Infallible>(answer(request).await) }
            });
            // A client that disconnects is not an error.
            _ = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
        connections.push_back(task.abort_handle());
    }
}
