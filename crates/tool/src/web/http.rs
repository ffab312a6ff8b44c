//! The routes of the page, and the headers of every response. Requests never wait for the Redis server, only for the sampler.

use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use anyhow::Result;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::{Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::board::Board;
use super::gate::{self, Door};
use super::query::Query;
use super::sampler::Question;
use super::{json, metrics, names, plan};
use crate::{http, prometheus};

/// How long a request waits for the answer about an item.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Forbids foreign resources, frames, and markup from text.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";
const HEADERS: [(header::HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The files of the page: path, content type, content.
const FILES: [(&str, &str, &str); 11] = [
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("/page.js", SCRIPT, include_str!("page/page.js")),
    ("/asking.js", SCRIPT, include_str!("page/asking.js")),
    ("/dom.js", SCRIPT, include_str!("page/dom.js")),
    ("/filters.js", SCRIPT, include_str!("page/filters.js")),
    ("/detail.js", SCRIPT, include_str!("page/detail.js")),
    ("/calculator.js", SCRIPT, include_str!("page/calculator.js")),
    ("/charts.js", SCRIPT, include_str!("page/charts.js")),
    ("/words.js", SCRIPT, include_str!("page/words.js")),
    ("/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
];

/// What the routes need.
pub struct Site {
    board: Arc<Board>,
    questions: Sender<Question>,
    port: u16,
    metrics_filters: usize,
}

impl Site {
    /// Creates the site on this port.
    pub const fn new(board: Arc<Board>, questions: Sender<Question>, port: u16, metrics_filters: usize) -> Self {
        Self { board, questions, port, metrics_filters }
    }
}

/// Serves until the process ends.
///
/// # Errors
/// The listener cannot be used.
pub fn serve(listener: TcpListener, site: Site) -> Result<()> {
    let site = Rc::new(site);
    http::serve(listener, move |request| {
        let site = Rc::clone(&site);
        async move { answer(&site, &request).await }
    })
}

async fn answer(site: &Site, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    let door = match path {
        "/" => Door::Page,
        _ if path.starts_with("/api/") => Door::Api,
        _ => Door::File,
    };
    if let Err(refused) = gate::check(request.method(), request.uri(), request.headers(), site.port, door) {
        let (status, text) = refused.answer();
        let mut response = respond(status, TEXT, text);
        if status == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        return response;
    }
    if let Some((_, kind, content)) = FILES.iter().find(|(name, _, _)| *name == path) {
        return respond(StatusCode::OK, kind, *content);
    }
    let query = Query::of(request.uri().query().unwrap_or_default());
    match path {
        "/metrics" => respond(StatusCode::OK, prometheus::TYPE, metrics::text(&site.board, site.metrics_filters)),
        "/api/state" => respond_json(Ok(json::state(&site.board))),
        "/api/filter" => respond_json(filter(site, &query)),
        "/api/plan" => respond_json(plan::answer(&query).map_err(|text| (StatusCode::BAD_REQUEST, text))),
        "/api/exists" => respond_json(exists(site, &query).await),
        _ => respond(StatusCode::NOT_FOUND, TEXT, "not found\n"),
    }
}

type Answer = Result<Value, (StatusCode, String)>;

fn filter(site: &Site, query: &Query) -> Answer {
    let key = key(site, query)?;
    let state = site.board.state();
    let filter = state.filters.get(&key).ok_or_else(gone)?;
    Ok(json::filter(&key, filter))
}

/// Returns the key in the query.
fn key(site: &Site, query: &Query) -> Result<Vec<u8>, (StatusCode, String)> {
    let no_key = || (StatusCode::BAD_REQUEST, "the key is missing or not in hexadecimal".to_owned());
    let id = query.raw("key").ok_or_else(no_key)?;
    let key = names::of_id(id, site.board.state().filters.keys());
    key.ok_or_else(if id.starts_with('~') { gone } else { no_key })
}

fn gone() -> (StatusCode, String) {
    (StatusCode::NOT_FOUND, "the filter no longer exists".to_owned())
}

async fn exists(site: &Site, query: &Query) -> Answer {
    let bad = |text: &str| (StatusCode::BAD_REQUEST, text.to_owned());
    let key = key(site, query)?;
    let item = query.bytes("item").ok_or_else(|| bad("the item is not in hexadecimal, two digits per byte"))?;
    let (answer, answered) = oneshot::channel();
    let failed = |text: String| (StatusCode::BAD_GATEWAY, text);
    site.questions.send(Question { key, item, answer }).map_err(|_| failed("the sampler has stopped".to_owned()))?;
    match tokio::time::timeout(ANSWER_TIMEOUT, answered).await {
        Ok(Ok(Ok(is_in))) => Ok(json!({ "is_in": is_in })),
        Ok(Ok(Err(text))) => Err(failed(text)),
        Ok(Err(_)) | Err(_) => Err(failed("the server did not reply".to_owned())),
    }
}

fn respond_json(answer: Answer) -> Response<Full<Bytes>> {
    match answer {
        Ok(value) => respond(StatusCode::OK, JSON, value.to_string()),
        Err((status, text)) => respond(status, JSON, json!({ "error": text }).to_string()),
    }
}

fn respond(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
