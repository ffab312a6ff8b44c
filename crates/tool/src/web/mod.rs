//! `bloomgate web`: a page on this machine with the history of a server's filters, and metrics for Prometheus. It only reads. A separate
//! thread (`worker`) queries the server and stores the results on the `board`. Requests are answered from the board, so open pages put no
//! load on the server.

mod metrics;
mod plan;
mod query;
mod worker;

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HOST, HeaderMap, HeaderValue, ORIGIN};
use hyper::{Method, Request, Response, StatusCode, Uri};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::sampler::{Board, Sampler, Settings};
use crate::server::{Options, PATIENCE};
use crate::{http, numbers, prometheus};
use query::Query;
use worker::{Question, Worker};

const EXAMPLES: &str = "\
Examples:
  bloomgate web                              the server on port 6379; open http://127.0.0.1:6390/
  bloomgate web -p 6380 --listen 8080        another server, and another port for the page
  bloomgate web --url rediss://db:6379 --match 'seen:*' --interval 30
  curl http://127.0.0.1:6390/metrics         the metrics

It sends only commands that read (INFO, SCAN, TYPE, PTTL, BF.STATS, BF.INFO, and BF.EXISTS when you try an item),
and keeps the server busy for at most about a tenth of the time. Only this machine can open the page. From elsewhere:
  ssh -L 6390:127.0.0.1:6390 that-machine";

/// Serve a web page with the filters of a server, and metrics for Prometheus
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The port of the page, or a loopback address with a port. Port 0 selects a free one
    #[arg(long, value_name = "[ADDRESS:]PORT", default_value = "127.0.0.1:6390", value_parser = listen_address)]
    listen: SocketAddr,
    /// Seconds between samples
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = |text: &str| numbers::seconds(text, 3600.0))]
    interval: Duration,
    /// The most filters to watch: full ones first, then the largest. The page says if there are more
    #[arg(long, value_name = "NUMBER", default_value = "1000", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max: u32,
    /// Watch only filters whose keys match this glob pattern, as in SCAN
    #[arg(long = "match", value_name = "PATTERN")]
    pattern: Option<String>,
    /// The number of filters with their own metrics: those that an alert concerns, then the largest. Each has about 15 series
    #[arg(long, value_name = "NUMBER", default_value = "200")]
    metrics_filters: usize,
    /// Another address, of any interface, that serves /metrics and nothing else. Everyone who reaches it sees the names of filters
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics_listen: Option<SocketAddr>,
}

/// Runs the subcommand until it is interrupted.
pub fn run(options: &Options, arguments: &Arguments) -> Result<()> {
    // Invalid options are an error at once. An unreachable server is retried.
    options.check()?;
    let listener = TcpListener::bind(arguments.listen)
        .with_context(|| format!("cannot listen on {}: choose another port with --listen", arguments.listen))?;
    let address = listener.local_addr()?;
    let settings = Settings {
        interval: arguments.interval,
        filters_max: usize::try_from(arguments.max)?,
        pattern: arguments.pattern.clone(),
        patience: PATIENCE,
        keeps_history: true,
    };
    let (questions, asked) = mpsc::channel();
    let sampler = Sampler::new(options.clone(), settings)?;
    let board = Arc::clone(&sampler.board);
    let worker = Worker::new(sampler, asked);
    thread::Builder::new().name("sampler".to_owned()).spawn(move || worker.run())?;
    let filters = arguments.metrics_filters;
    if let Some(address) = arguments.metrics_listen {
        let board = Arc::clone(&board);
        prometheus::serve(address, move || metrics::text(&board, filters))?;
    }
    say(address, &board.server);
    let state = Rc::new(AppState { board, questions, port: address.port(), metrics_filters: filters });
    http::serve(listener, move |request| {
        let state = Rc::clone(&state);
        async move { answer(&state, &request).await }
    })
}

/// Prints the URL. Ignores a closed standard output.
fn say(address: SocketAddr, server: &str) {
    let mut output = io::stdout().lock();
    _ = writeln!(output, "http://{address}/  ({server}; metrics for Prometheus: /metrics; Ctrl-C to stop)");
    _ = output.flush();
}

/// Parses a loopback address. Any other address is refused, because the page has no password.
fn listen_address(text: &str) -> Result<SocketAddr> {
    let address = if let Ok(port) = text.parse() {
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    } else if let Some(port) = text.strip_prefix("localhost:") {
        SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse()?))
    } else {
        text.parse().map_err(|_| anyhow!("must be a port, or ADDRESS:PORT as in 127.0.0.1:6390"))?
    };
    ensure!(
        IpAddr::is_loopback(&address.ip()),
        "must be a loopback address, such as 127.0.0.1, because the page has no password. From elsewhere use a \
         tunnel: ssh -L 6390:127.0.0.1:6390 that-machine"
    );
    Ok(address)
}

// The routes of the page, and the headers of every response. Requests never wait for the Redis server, only for the sampler.

/// How long a request waits for the answer about an item.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Forbids resources from other sites, frames, inline scripts, and markup made from strings.
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

struct AppState {
    board: Arc<Board>,
    questions: Sender<Question>,
    port: u16,
    metrics_filters: usize,
}

async fn answer(state: &AppState, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    let route = match path {
        "/" => Route::Page,
        _ if path.starts_with("/api/") => Route::Api,
        _ => Route::File,
    };
    if let Err(refused) = check(request.method(), request.uri(), request.headers(), state.port, route) {
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
        "/metrics" => respond(StatusCode::OK, prometheus::TYPE, metrics::text(&state.board, state.metrics_filters)),
        "/api/state" => respond_json(Ok(metrics::state(&state.board))),
        "/api/filter" => respond_json(filter(state, &query)),
        "/api/plan" => respond_json(plan::answer(&query).map_err(|text| (StatusCode::BAD_REQUEST, text))),
        "/api/exists" => respond_json(exists(state, &query).await),
        _ => respond(StatusCode::NOT_FOUND, TEXT, "not found\n"),
    }
}

type Answer = Result<Value, (StatusCode, String)>;

fn filter(state: &AppState, query: &Query) -> Answer {
    let key = key(state, query)?;
    let state = state.board.state();
    let filter = state.filters.get(&key).ok_or_else(gone)?;
    Ok(metrics::filter(&key, filter))
}

fn key(state: &AppState, query: &Query) -> Result<Vec<u8>, (StatusCode, String)> {
    let no_key = || (StatusCode::BAD_REQUEST, "the key is missing or not in hexadecimal".to_owned());
    let id = query.raw("key").ok_or_else(no_key)?;
    let key = query::of_id(id, state.board.state().filters.keys());
    key.ok_or_else(if id.starts_with('~') { gone } else { no_key })
}

fn gone() -> (StatusCode, String) {
    (StatusCode::NOT_FOUND, "the filter no longer exists".to_owned())
}

async fn exists(state: &AppState, query: &Query) -> Answer {
    let bad = |text: &str| (StatusCode::BAD_REQUEST, text.to_owned());
    let key = key(state, query)?;
    let item = query.bytes("item").ok_or_else(|| bad("the item is not in hexadecimal, two digits per byte"))?;
    let (answer, answered) = oneshot::channel();
    let failed = |text: String| (StatusCode::BAD_GATEWAY, text);
    state.questions.send(Question { key, item, answer }).map_err(|_| failed("the sampler has stopped".to_owned()))?;
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

// Admits requests of this page and of programs on this machine. A page of another site can also make the browser send requests here. Such
// requests are recognised by their `Host` header (another name means DNS rebinding), and by `Sec-Fetch-Site` and `Origin`.

/// The header that the page sends with each query. Pages of other sites would need a preflight request, which is refused.
const PAGE_HEADER: &str = "x-bloomgate";

/// The kind of resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The page itself, which other sites may link to.
    Page,
    /// The parts of the page, and the metrics.
    File,
    /// The queries of the page.
    Api,
}

/// The reason why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Its method is neither GET nor HEAD.
    Method,
    /// Its `Host` is not this server.
    Host,
    /// It was sent by another site.
    Site,
}

impl Refused {
    /// Returns the status and the text of the response.
    pub const fn answer(self) -> (StatusCode, &'static str) {
        match self {
            Self::Method => (StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are allowed\n"),
            Self::Host => (
                StatusCode::MISDIRECTED_REQUEST,
                "only requests for 127.0.0.1 or localhost with the right port are answered\n",
            ),
            Self::Site => (StatusCode::FORBIDDEN, "requests from other sites are refused\n"),
        }
    }
}

/// Checks a request to the page on `port`.
pub fn check(method: &Method, uri: &Uri, headers: &HeaderMap, port: u16, route: Route) -> Result<(), Refused> {
    if method != Method::GET && method != Method::HEAD {
        return Err(Refused::Method);
    }
    let mut hosts = headers.get_all(HOST).iter();
    let is_ours =
        |host: Option<&HeaderValue>| host.and_then(|host| host.to_str().ok()).is_some_and(|host| names(host, port));
    if !is_ours(hosts.next())
        || hosts.next().is_some()
        || uri.authority().is_some_and(|host| !names(host.as_str(), port))
    {
        return Err(Refused::Host);
    }
    let is_own_origin = |origin: &HeaderValue| {
        origin.to_str().ok().and_then(|origin| origin.strip_prefix("http://")).is_some_and(|host| names(host, port))
    };
    if !headers.get_all(ORIGIN).iter().all(is_own_origin) {
        return Err(Refused::Site);
    }
    let said = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let may_enter = match (route, said("sec-fetch-site")) {
        (Route::Api, None | Some("same-origin")) => headers.contains_key(PAGE_HEADER),
        (Route::Page | Route::File, None | Some("same-origin" | "none")) => true,
        (Route::Page, Some(_)) => {
            said("sec-fetch-mode") == Some("navigate") && said("sec-fetch-dest") == Some("document")
        }
        (Route::File | Route::Api, Some(_)) => false,
    };
    if may_enter { Ok(()) } else { Err(Refused::Site) }
}

/// Whether `host` is a loopback name with this port.
fn names(host: &str, port: u16) -> bool {
    let (name, said) = match host.rsplit_once(':') {
        Some((name, said)) if !said.ends_with(']') => (name, said.parse().ok()),
        _ => (host, Some(80)),
    };
    let is_loopback = name.eq_ignore_ascii_case("localhost") || name == "127.0.0.1" || name == "[::1]";
    is_loopback && said == Some(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listens_on_loopback_addresses_only() {
        let shown = |text| listen_address(text).unwrap().to_string();
        assert_eq!(shown("80"), "127.0.0.1:80");
        assert_eq!(shown("localhost:0"), "127.0.0.1:0");
        assert_eq!(shown("[::1]:7"), "[::1]:7");
        for text in ["0.0.0.0:80", "192.168.0.1:80", "[::]:80", "example.com:80", "", "127.0.0.1"] {
            assert!(listen_address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_interval_is_between_a_tenth_of_a_second_and_an_hour() {
        let seconds = |text| numbers::seconds(text, 3600.0);
        assert_eq!(seconds("0.5").unwrap(), Duration::from_millis(500));
        for text in ["0", "-1", "nan", "inf", "1e9", "x"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    fn try_with(route: Route, lines: &[(&'static str, &str)]) -> Result<(), Refused> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        check(&Method::GET, &Uri::from_static("/"), &headers, 6390, route)
    }

    #[test]
    fn only_loopback_hosts_are_answered() {
        for host in ["127.0.0.1:6390", "localhost:6390", "LOCALHOST:6390", "[::1]:6390"] {
            assert_eq!(try_with(Route::File, &[("host", host)]), Ok(()), "{host}");
        }
        for host in [
            "evil.example:6390",
            "127.0.0.1",
            "localhost",
            "127.0.0.1:80",
            "[::1]",
            "localhost.:6390",
            "a@localhost:6390",
            "",
        ] {
            assert_eq!(try_with(Route::File, &[("host", host)]), Err(Refused::Host), "{host}");
        }
        assert_eq!(try_with(Route::File, &[]), Err(Refused::Host));
        let two = [("host", "localhost:6390"), ("host", "evil.example:6390")];
        assert_eq!(try_with(Route::File, &two), Err(Refused::Host));
        let mut headers = HeaderMap::new();
        headers.append(HOST, HeaderValue::from_static("localhost:6390"));
        let absolute = Uri::from_static("http://evil.example/");
        assert_eq!(check(&Method::GET, &absolute, &headers, 6390, Route::Page), Err(Refused::Host));
        assert!(names("localhost", 80) && names("[::1]", 80));
    }

    #[test]
    fn other_sites_may_only_link_to_the_page() {
        let with =
            |route, lines: &[(&'static str, &str)]| try_with(route, &[&[("host", "localhost:6390")], lines].concat());
        let page = [("x-bloomgate", "page"), ("sec-fetch-site", "same-origin")];
        assert_eq!(with(Route::Api, &page), Ok(()));
        assert_eq!(with(Route::Api, &page[..1]), Ok(()));
        assert_eq!(with(Route::Api, &page[1..]), Err(Refused::Site));
        for site in ["cross-site", "same-site", "none", "?"] {
            assert_eq!(with(Route::Api, &[page[0], ("sec-fetch-site", site)]), Err(Refused::Site), "{site}");
        }
        for origin in ["http://evil.example", "http://localhost:1", "https://localhost:6390", "null"] {
            assert_eq!(with(Route::Api, &[page[0], ("origin", origin)]), Err(Refused::Site), "{origin}");
        }
        assert_eq!(with(Route::Api, &[page[0], ("origin", "http://localhost:6390")]), Ok(()));
        for site in ["cross-site", "same-site"] {
            let link = [("sec-fetch-site", site), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
            assert_eq!(with(Route::Page, &link), Ok(()));
            assert_eq!(with(Route::File, &link), Err(Refused::Site));
            let frame = [link[0], link[1], ("sec-fetch-dest", "iframe")];
            assert_eq!(with(Route::Page, &frame), Err(Refused::Site));
            assert_eq!(with(Route::Page, &link[..1]), Err(Refused::Site));
        }
    }
}
