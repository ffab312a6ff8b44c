//! HTTP itself: HEAD, and clients that hold connections open.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::asking::Web;
use testing::{Server, patience};

fn connect(web: &Web) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", web.port)).unwrap();
    stream.set_read_timeout(Some(patience())).unwrap();
    stream
}

/// Sends more requests than responses fit into the socket buffers, and reads none of them.
fn stuck(web: &Web) -> TcpStream {
    let mut stream = connect(web);
    let request = format!("GET /page.css HTTP/1.1\r\nHost: {}\r\n\r\n", web.host());
    stream.write_all(request.repeat(4000).as_bytes()).unwrap();
    stream
}

#[test]
fn clients_that_do_not_read_lock_no_one_out() {
    let server = Server::start(&testing::servers()[0]);
    let web = Web::start(&server, &[]);
    let stuck: Vec<_> = (0..64).map(|_| stuck(&web)).collect();
    for path in ["/", "/metrics"] {
        web.get(path, &[]).success();
    }
    drop(stuck);
}

#[test]
fn the_most_recently_used_connection_survives_a_crowd_of_idle_ones() {
    let server = Server::start(&testing::servers()[0]);
    let web = Web::start(&server, &[]);
    let mut used = connect(&web);
    let request = format!("GET /icon.svg HTTP/1.1\r\nHost: {}\r\n\r\n", web.host());
    let mut crowd = Vec::new();
    // Between two requests, fewer connections arrive than are allowed, even if a batch is accepted late.
    for _ in 0..10 {
        crowd.extend((0..25).map(|_| connect(&web)));
        used.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // The response ends with the icon.
        while !answer.ends_with(b"</svg>\n") {
            let mut byte = [0];
            used.read_exact(&mut byte).unwrap();
            answer.extend(byte);
        }
        assert!(answer.starts_with(b"HTTP/1.1 200 OK"));
    }
    // The oldest idle connections were closed.
    assert_eq!(crowd[0].read(&mut [0]).unwrap_or(0), 0);
}

#[test]
fn idle_connections_are_closed() {
    let server = Server::start(&testing::servers()[0]);
    let web = Web::start(&server, &[]);
    let mut silent = connect(&web);
    let mut half = connect(&web);
    half.write_all(b"GET / HTTP/1.1\r\nHost: ").unwrap();
    let mut kept = connect(&web);
    kept.write_all(format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", web.host()).as_bytes()).unwrap();
    for stream in [&mut silent, &mut half, &mut kept] {
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
    }
}

#[test]
fn head_answers_like_get_without_the_body() {
    let server = Server::start(&testing::servers()[0]);
    let web = Web::start(&server, &[]);
    for path in ["/", "/page.css", "/icon.svg", "/metrics", "/api/plan?rate=0.01&capacity=5", "/api/plan", "/nothing"] {
        let ask = |method| web.request(method, path, &web.host(), &[("X-Bloomgate", "page")]);
        let (get, head) = (ask("GET"), ask("HEAD"));
        assert_eq!((head.status, &*head.body), (get.status, ""), "{path}");
        for name in ["content-type", "content-security-policy", "cache-control"] {
            assert_eq!(head.header(name), get.header(name), "{path}: {name}");
        }
        let length = head.header("content-length").unwrap();
        // The metrics contain the time.
        assert!(length == get.body.len().to_string() || path == "/metrics" && length.len() > 3, "{path}: {length}");
    }
}
