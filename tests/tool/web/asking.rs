//! Starts `bloomgate web` for a test and sends requests to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use serde_json::Value;

use crate::running::{Running, command, url};
use testing::{Server, eventually, patience};

/// `bloomgate web` on a free port, until the test ends.
pub struct Web {
    _running: Running,
    pub port: u16,
}

/// A response.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: String,
}

impl Response {
    /// Returns a header, if it exists.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(said, _)| said == name).map(|(_, value)| value.as_str())
    }

    /// Returns the body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        serde_json::from_str(&self.body).unwrap()
    }

    /// Asserts that the status is 200.
    #[track_caller]
    pub fn success(self) -> Self {
        assert_eq!(self.status, 200, "{self:?}");
        self
    }
}

impl Web {
    /// Starts it for a server, with a sample every tenth of a second.
    pub fn start(server: &Server, words: &[&str]) -> Self {
        Self::of(&url(server), words)
    }

    /// Like [`Self::start`], with the URL of the server.
    pub fn of(url: &str, words: &[&str]) -> Self {
        let fixed = ["web", "--url", url, "--listen", "127.0.0.1:0", "--interval", "0.1"];
        let mut running = Running(command(fixed.iter().chain(words)).stdout(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.strip_prefix("http://127.0.0.1:").and_then(|rest| rest.split('/').next()?.parse().ok());
        Self { _running: running, port: port.unwrap_or_else(|| panic!("it said {line:?}")) }
    }

    /// The value of `Host` that a browser sends.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Sends a request like the page.
    pub fn ask(&self, path: &str) -> Response {
        self.get(path, &[("X-Bloomgate", "page"), ("Sec-Fetch-Site", "same-origin")])
    }

    /// Sends a request like a program.
    pub fn get(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        self.request("GET", path, &self.host(), headers)
    }

    /// Sends any request.
    pub fn request(&self, method: &str, path: &str, host: &str, headers: &[(&str, &str)]) -> Response {
        request(self.port, method, path, host, headers)
    }

    /// Sends bytes, and returns everything received until the connection is closed.
    pub fn raw(&self, bytes: &[u8]) -> String {
        raw(self.port, bytes)
    }

    /// Waits until the state satisfies a condition, and returns it.
    pub fn state_when(&self, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let mut state = Value::Null;
        eventually(what, || {
            state = self.ask("/api/state").success().json();
            condition(&state)
        });
        state
    }
}

/// Sends a request to a port of this machine.
pub fn get(port: u16, path: &str) -> Response {
    request(port, "GET", path, "x", &[])
}

fn request(port: u16, method: &str, path: &str, host: &str, headers: &[(&str, &str)]) -> Response {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let text = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n");
    let answer = raw(port, text.as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{method} {path}: {answer:?}"));
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines.map(|line| line.split_once(": ").unwrap());
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    Response { status, headers, body: body.to_owned() }
}

fn raw(port: u16, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(patience())).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // If the connection is reset, the response is complete.
    _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

/// Formats bytes for a request.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
