//! An HTTP server for a few local clients. One thread serves all connections.

mod connections;

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
use tokio::task::{LocalSet, spawn_local};

use connections::Connections;

/// How long a connection may be idle, or take to send a request's header.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves until the process ends. `answer` must not block the thread.
///
/// # Errors
/// The listener cannot be used.
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
