//! The text format of Prometheus, version 0.0.4, and a server for it.

use std::fmt::{Display, Write};
use std::future::ready;
use std::net::{SocketAddr, TcpListener};
use std::thread;

use anyhow::{Context, Result};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};

use crate::http;

/// The content type.
pub const TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Starts a thread that serves metrics at `/metrics`.
pub fn serve(address: SocketAddr, text: impl Fn() -> String + Send + 'static) -> Result<()> {
    let listener = TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
    thread::Builder::new().name("metrics".to_owned()).spawn(move || {
        if let Err(error) = http::serve(listener, move |request| ready(answer(&text, &request))) {
            eprintln!("bloomgate: cannot serve metrics: {error:#}");
        }
    })?;
    Ok(())
}

fn answer(text: impl Fn() -> String, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let (status, text) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => (StatusCode::OK, text()),
        (&Method::GET | &Method::HEAD, _) => (StatusCode::NOT_FOUND, "the metrics are at /metrics\n".to_owned()),
        _ => (StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are allowed\n".to_owned()),
    };
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(TYPE));
    response
}

/// Metrics in the order in which they are written.
#[derive(Default)]
pub struct Metrics(String);

impl Metrics {
    /// Starts a metric. `kind` is `counter` or `gauge`. Its samples follow.
    pub fn describe(&mut self, name: &str, kind: &str, help: &str) {
        // Writing into a string does not fail.
        _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Adds a sample. `labels` has the form `name="value",name="value"`, with [`escaped`] values.
    pub fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        _ = if labels.is_empty() {
            writeln!(self.0, "{name} {value}")
        } else {
            writeln!(self.0, "{name}{{{labels}}} {value}")
        };
    }

    /// Adds a metric with one sample.
    pub fn single(&mut self, name: &str, kind: &str, help: &str, labels: &str, value: impl Display) {
        self.describe(name, kind, help);
        self.sample(name, labels, value);
    }

    /// Returns the text.
    pub fn text(self) -> String {
        self.0
    }
}

/// Escapes backslashes, quotes and line feeds in the value of a label.
pub fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_as_the_format_requires() {
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
