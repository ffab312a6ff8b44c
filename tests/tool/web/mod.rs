//! `web`: the state, lookups and the calculator compared with the server; refused requests; a server that is lost and returns; and that
//! `web` changes no data. `tests/page` tests the page in a browser.

pub mod asking;
pub mod metrics;

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};
use testing::{Connection, Reply, Server, Stop, digest, free_port, on_every_server, patience};

use crate::running::{run, url, with_servers};
use crate::web::asking::{Response, Web, hex};

/// Names that could be misinterpreted.
const NAMES: [&[u8]; 8] = [
    b"plain",
    b"",
    b"<script>alert(1)</script>",
    b"\"quoted\" 'and' \\ {x=\"y\"}",
    b"two\nlines\r\t",
    b"\x00\xff\xfe binary",
    "den\u{202e}gnp \u{65e5}\u{672c}".as_bytes(),
    b"a&b=c%20d+e#f?",
];

/// The arguments of BF.RESERVE after the key for a filter of each kind.
const KINDS: [&str; 7] = [
    "0.01 1000",
    "0.001 50 NONSCALING",
    "0.01 100 COUNTING",
    "0.01 100 WINDOW 600 BUCKETS 4 SLIDING",
    "0.01 100 ROLLING",
    "0.01 1000 HASH siphash",
    "0.01 500 LAYOUT redisbloom",
];

fn fill(client: &mut Connection) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    for (number, words) in KINDS.iter().enumerate() {
        let key = format!("kind:{number}").into_bytes();
        let mut line: Vec<&[u8]> = vec![b"BF.RESERVE", &key];
        line.extend(words.split(' ').map(str::as_bytes));
        assert!(!client.call(&line).is_error(), "{words}");
        let items: Vec<String> = (0..50).map(|item| format!("item{item}")).collect();
        client.batched(&[b"BF.MADD", &key], &items);
        keys.push(key);
    }
    client.run("BF.MDEL kind:5 item1 item2");
    client.run("BF.INSERT valkey TIGHTENING 0.5 CAPACITY 100 ITEMS a b");
    client.run("PEXPIRE kind:0 1000000");
    keys.push(b"valkey".to_vec());
    for name in NAMES {
        client.call(&[&b"BF.RESERVE"[..], name, b"0.01", b"100"]);
        client.call(&[&b"BF.MADD"[..], name, b"a", b"b"]);
        keys.push(name.to_vec());
    }
    for number in 0..600 {
        client.run(&format!("SET other:{number} 1"));
    }
    keys
}

fn of_key<'a>(state: &'a Value, key: &[u8]) -> &'a Value {
    let all = state["filters"].as_array().unwrap();
    all.iter().find(|filter| filter["id"] == hex(key)).unwrap_or_else(|| panic!("{} in {state}", key.escape_ascii()))
}

/// Whether all filters have been sampled.
fn is_sampled(state: &Value) -> bool {
    state["filters"].as_array().unwrap().iter().all(|filter| filter["kind"].is_string())
}

/// Asserts that two numbers are equal except for the last digit, which parsing JSON may change.
#[track_caller]
fn assert_close(ours: &Value, theirs: &Reply) {
    let (ours, theirs) = (ours.as_f64().unwrap(), theirs.text().parse::<f64>().unwrap());
    assert!((ours - theirs).abs() <= theirs.abs() * 1e-14, "{ours} is not {theirs}");
}

#[test]
fn the_state_equals_the_servers_replies() {
    with_servers(|server| {
        let mut client = server.connect();
        let keys = fill(&mut client);
        let web = Web::start(&server, &[]);
        let state = web.state_when("all filters", |state| {
            state["filters"].as_array().unwrap().len() == keys.len() && is_sampled(state)
        });
        for key in &keys {
            let shown = of_key(&state, key);
            let stats = client.call(&[&b"BF.STATS"[..], key]);
            for (ours, theirs) in [("items", "Number of items inserted"), ("capacity", "Capacity"), ("size", "Size")] {
                assert_eq!(
                    shown[ours].as_i64(),
                    Some(stats.field(theirs).number()),
                    "{ours} of {}",
                    key.escape_ascii()
                );
                let info = client.call(&[&b"BF.INFO"[..], key]);
                assert_eq!(shown[ours].as_i64(), Some(info.field(theirs).number()), "{ours} of {}", key.escape_ascii());
            }
            for (ours, theirs) in [("kind", "Kind"), ("layout", "Layout"), ("hash", "Hash")] {
                assert_eq!(shown[ours], stats.field(theirs).text());
            }
            for (ours, theirs) in [("rate", "Error rate"), ("rate_now", "Error rate now")] {
                assert_close(&shown[ours], stats.field(theirs));
            }
            let detail = web.ask(&format!("/api/filter?key={}", hex(key))).json();
            let layers = stats.field("Layers").elements();
            assert_eq!(detail["all_layers"].as_array().unwrap().len(), layers.len());
            assert_eq!(shown["layers"].as_u64(), Some(layers.len() as u64));
            for (ours, theirs) in detail["all_layers"].as_array().unwrap().iter().zip(layers) {
                assert_eq!(ours["hashes"].as_i64(), Some(theirs.field("Hashes").number()));
                assert_close(&ours["cells"], theirs.field("Fill"));
            }
            assert!(!detail["history"]["time"].as_array().unwrap().is_empty());
        }
        let window = web.ask(&format!("/api/filter?key={}", hex(b"kind:3"))).json();
        assert_eq!((&window["window"], &window["is_sliding"]), (&json!(600), &json!(true)));
        let theirs = client.run("BF.STATS kind:3");
        let bucket = &theirs.field("Buckets").elements()[0];
        assert_eq!(window["all_buckets"][0]["end"].as_i64(), Some(bucket.field("End").number()));
        assert_eq!(of_key(&state, b"kind:5")["deleted"], 2);
        assert_eq!(of_key(&state, b"kind:0")["expansion"], 2);
        assert!(of_key(&state, b"kind:1")["expansion"].is_null());
        assert!(of_key(&state, b"kind:0")["ttl"].as_u64().unwrap() > 900_000);
        assert_eq!(of_key(&state, NAMES[3])["name"], "\"quoted\" 'and' \\\\ {x=\"y\"}");
        assert_eq!(of_key(&state, NAMES[5])["name"], "\\0\\xff\\xfe binary");
        for (name, value) in state["totals"].as_object().unwrap() {
            assert_eq!(value.as_i64(), Some(client.info_number(name)), "{name}");
        }
        assert_eq!(state["server"]["keys"], 600 + keys.len());
        assert_eq!(state["server"]["module"], client.info("bf_version"));
        assert_eq!(state["name"], format!("127.0.0.1:{}", server.port));
        assert_eq!(state["other_databases"], json!([]));
        client.pipeline(&["SELECT 3", "SET text x"]);
        web.state_when("the other database", |state| state["other_databases"] == json!([3]));
    });
}

#[test]
fn a_lookup_changes_nothing() {
    with_servers(|server| {
        let mut client = server.connect();
        let keys = fill(&mut client);
        let digests =
            |client: &mut Connection| format!("{:?} {:?}", client.run("DEBUG DIGEST"), digest(client, "kind:0"));
        let before = (client.run("DBSIZE"), digests(&mut client));
        client.run("CONFIG RESETSTAT");
        let web = Web::start(&server, &[]);
        let state = web.state_when("samples", |state| state["samples"].as_u64() > Some(3));
        assert_eq!(state["filters"].as_array().unwrap().len(), keys.len());
        let is_in = |key: &[u8], item: &[u8]| {
            let answer = web.ask(&format!("/api/exists?key={}&item={}", hex(key), hex(item))).json();
            answer["is_in"].as_bool().unwrap_or_else(|| panic!("{answer}"))
        };
        for name in NAMES {
            assert!(is_in(name, b"a") && !is_in(name, b"certainly not"));
        }
        assert!(!is_in(b"kind:0", b"") && !is_in(b"kind:0", b"\0\xff"));
        assert!(!is_in(b"there is none", b"a"));
        let other = web.ask(&format!("/api/exists?key={}&item=61", hex(b"other:1")));
        assert_eq!(other.status, 502);
        assert!(other.json()["error"].as_str().unwrap().contains("a value that is not a filter"), "{other:?}");
        for query in ["", "?key=61", "?key=6&item=61", "?item=61", "?key=61&item=zz"] {
            assert_eq!(web.ask(&format!("/api/exists{query}")).status, 400, "{query}");
        }
        assert_eq!(web.ask("/api/filter?key=00").status, 404);
        web.get("/metrics", &[]);
        web.ask("/api/plan?rate=0.01&capacity=100");
        assert_eq!((client.run("DBSIZE"), digests(&mut client)), before);
        let stats = client.run("INFO commandstats").text();
        let asked = stats.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split(':').next());
        let reading = ["info", "scan", "type", "pttl", "bf.stats", "bf.info", "bf.exists"];
        let ours = ["config|resetstat", "dbsize", "debug", "hello", "select"];
        for name in asked {
            assert!(reading.contains(&name) || ours.contains(&name) || name.starts_with("client"), "{name}: {stats}");
        }
    });
}

#[test]
fn the_calculator_equals_bf_plan() {
    with_servers(|server| {
        let mut client = server.connect();
        let web = Web::start(&server, &[]);
        let cases = [
            ("rate=0.01&capacity=1000", "0.01 1000"),
            ("rate=0.001&capacity=1000&items=123456&expansion=3", "0.001 1000 EXPANSION 3 ITEMS 123456"),
            ("rate=0.1%25&capacity=1e3&items=123,456", "0.001 1000 ITEMS 123456"),
            ("rate=0.0001&capacity=5000&kind=nonscaling", "0.0001 5000 NONSCALING"),
            ("rate=0.01&capacity=777&kind=counting&hash=siphash", "0.01 777 COUNTING HASH siphash"),
            ("rate=0.01&capacity=900&kind=window&window=60&buckets=5", "0.01 900 WINDOW 60 BUCKETS 5"),
            ("rate=0.01&capacity=900&kind=rolling", "0.01 900 ROLLING"),
            ("rate=0.01&capacity=900&layout=redisbloom&items=5000", "0.01 900 LAYOUT redisbloom ITEMS 5000"),
            ("rate=0.01&capacity=900&layout=valkey-bloom", "0.01 900 TIGHTENING 0.5"),
        ];
        for (number, (query, words)) in cases.into_iter().enumerate() {
            let ours = web.ask(&format!("/api/plan?{query}")).json();
            let theirs = client.run(&format!("BF.PLAN {words}"));
            assert_eq!(ours["size"].as_i64(), Some(theirs.field("Size").number()), "{query}: {ours}");
            assert_eq!(ours["capacity"].as_i64(), Some(theirs.field("Capacity").number()), "{query}");
            assert_eq!(ours["kind"], theirs.field("Kind").text());
            assert_eq!(ours["layers"].as_array().unwrap().len(), theirs.field("Layers").elements().len(), "{query}");
            assert!(ours["by_rate"]["sizes"].as_array().unwrap().iter().all(Value::is_u64), "{query}");
            let command = ours["command"].as_str().unwrap().replace("key", &format!("made:{number}"));
            assert!(!client.run(&command).is_error(), "{command}");
        }
        assert_eq!(web.ask("/api/plan?rate=7&capacity=1").status, 400);
    });
}

#[test]
fn a_lost_server_is_reported_and_reconnected() {
    with_servers(|mut server| {
        server.connect().run("BF.ADD before a");
        let web = Web::start(&server, &[]);
        web.state_when("the filter", |state| state["filters"].as_array().unwrap().len() == 1 && is_sampled(state));
        server.stop(Stop::Kill);
        let state = web.state_when("that it is gone", |state| !state["problem"].is_null());
        let problem = state["problem"]["text"].as_str().unwrap();
        assert!(problem.contains("lost the server") || problem.contains("cannot reach"), "{problem}");
        // The last values are still available.
        assert_eq!(of_key(&state, b"before")["items"], 1);
        let served = metrics::of(&web);
        assert!(served.contains("\nbloomgate_up 0\n") && !served.contains("bloomgate_filter_items"), "{served}");
        let refused = web.ask(&format!("/api/exists?key={}&item=61", hex(b"before")));
        assert_eq!(refused.status, 502, "{refused:?}");
        let port = server.port;
        server.start_again();
        assert_eq!(
            server.port, port,
            "another process took the port of the server that was killed: run the test again"
        );
        server.connect().run("BF.ADD after a");
        let state = web.state_when("the server and its new filter", |state| {
            state["problem"].is_null()
                && state["filters"].as_array().unwrap().iter().any(|filter| filter["name"] == "after")
        });
        assert_eq!(state["filters"].as_array().unwrap().len(), 1, "{state}");
        server.connect().run("DEL after");
        web.state_when("no filter", |state| state["filters"].as_array().unwrap().is_empty());
    });
}

#[test]
fn web_waits_for_its_server_and_serves_its_metrics_elsewhere_too() {
    let mut server = Server::start(&testing::servers()[0]);
    server.stop(Stop::Kill);
    let port = free_port();
    let web = Web::start(&server, &["--metrics-listen", &format!("127.0.0.1:{port}")]);
    let state = web.state_when("that it is not there", |state| !state["problem"].is_null());
    assert!(state["problem"]["text"].as_str().unwrap().contains("cannot reach"), "{state}");
    let metrics = || asking::get(port, "/metrics").success().body;
    assert!(metrics().contains("\nbloomgate_up 0\n"));
    server.start_again();
    let mut client = server.connect();
    client.run("BF.RESERVE counting 0.01 100 COUNTING");
    client.run("BF.RESERVE rolling 0.01 100 ROLLING");
    client.run("BF.ADD growing item");
    testing::eventually("the filters", || metrics().matches("bloomgate_filter_info{").count() == 3);
    for (name, is_fixed) in [("counting", true), ("rolling", false), ("growing", false)] {
        let text = metrics();
        let line = text.lines().find(|line| line.starts_with(&format!("bloomgate_filter_info{{key=\"{name}\"")));
        assert!(line.is_some_and(|line| line.contains(&format!("fixed=\"{is_fixed}\""))), "{line:?}");
    }
    assert_eq!((asking::get(port, "/").status, asking::get(port, "/api/state").status), (404, 404));
    // A filter without read permission is counted.
    client.run("ACL SETUSER default -bf.stats");
    testing::eventually("the failures", || metrics().contains("\nbloomgate_failed_filters 3\n"));
}

#[test]
fn other_hosts_sites_and_methods_are_refused() {
    let server = Server::start(&testing::servers()[0]);
    server.connect().run("BF.ADD secret a");
    let web = Web::start(&server, &[]);
    web.state_when("the filter", |state| state["filters"].as_array().unwrap().len() == 1);
    let paths = ["/", "/page.js", "/metrics", "/api/state", "/api/exists?key=736563726574&item=61", "/nothing"];
    let refused = |response: &Response, status: u16, what: &str| {
        assert_eq!(response.status, status, "{what}: {response:?}");
        assert!(!response.body.contains("secret") && !response.body.contains("73656372"), "{what}: {response:?}");
    };
    // The unit tests of `check` have all hosts, methods and origins.
    let page = ("X-Bloomgate", "page");
    for path in paths {
        refused(&web.request("GET", path, "evil.example", &[page]), 421, path);
        let response = web.request("POST", path, &web.host(), &[page]);
        refused(&response, 405, path);
        assert_eq!(response.header("allow"), Some("GET, HEAD"));
        let foreign = [page, ("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "no-cors")];
        refused(&web.request("GET", path, &web.host(), &foreign), 403, path);
    }
    for host in ["localhost", "[::1]"] {
        assert_eq!(web.request("GET", "/api/state", &format!("{host}:{}", web.port), &[page]).status, 200, "{host}");
    }
    for path in paths {
        let response = web.request("GET", path, &web.host(), &[page]);
        assert!(response.header("content-security-policy").unwrap().starts_with("default-src 'none'"));
        assert_eq!(response.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(response.header("x-frame-options"), Some("DENY"));
        assert_eq!(response.header("cache-control"), Some("no-store"));
        assert_eq!(response.header("access-control-allow-origin"), None);
    }
    for text in [
        "GET /\r\n\r\n",
        "GET / HTTP/1.1\r\nConnection: close\r\n\r\n",
        "\0\0\0\0\r\n\r\n",
        "GET http://evil.example/ HTTP/1.1\r\nConnection: close\r\n\r\n",
    ] {
        let answer = web.raw(text.as_bytes());
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{text:?}: {answer}");
    }
    let long = format!("GET /{} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", "x".repeat(100_000), web.host());
    assert!(web.raw(long.as_bytes()).starts_with("HTTP/1.1 4"));
    assert_eq!(web.ask("/api/state").status, 200);
}

#[test]
fn the_page_loads_nothing_from_other_sites() {
    let server = Server::start(&testing::servers()[0]);
    let web = Web::start(&server, &[]);
    let page = web.get("/", &[]);
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let mut files = vec![("/".to_owned(), page.body.clone())];
    for part in page.body.split("=\"/").skip(1).chain(page.body.split("from \"./").skip(1)) {
        let path = format!("/{}", part.split('"').next().unwrap());
        files.push((path.clone(), web.get(&path, &[]).success().body));
    }
    assert!(files.len() > 4, "{files:?}");
    for (path, text) in files {
        assert!(!text.contains("https://") && !text.replace("http://www.w3.org/", "").contains("http://"), "{path}");
        for sink in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!text.contains(sink), "{path} has {sink}");
        }
    }
}

#[test]
fn watched_filters_are_limited_by_max_and_match() {
    let server = Server::start(&testing::servers()[0]);
    let mut client = server.connect();
    for number in 0..60 {
        client.run(&format!("BF.RESERVE {}:{number} 0.01 100", if number % 3 == 0 { "one" } else { "other" }));
    }
    let few = Web::start(&server, &["--max", "25", "--metrics-filters", "4"]);
    let state = few.state_when("the first 25", |state| state["left_out"] == 35 && is_sampled(state));
    assert_eq!(state["filters"].as_array().unwrap().len(), 25);
    let metrics = metrics::of(&few);
    assert!(metrics.contains("\nbloomgate_unwatched_filters 35\n"), "{metrics}");
    assert!(metrics.contains("\nbloomgate_filters_without_series 21\n"), "{metrics}");
    assert_eq!(metrics.matches("\nbloomgate_filter_items{").count(), 4, "{metrics}");
    // A larger filter replaces one of them.
    client.run("BF.RESERVE large 0.01 100000");
    few.state_when("the largest", |state| {
        let filters = state["filters"].as_array().unwrap();
        state["left_out"] == 36 && filters.len() == 25 && filters.iter().any(|filter| filter["name"] == "large")
    });
    let some = Web::start(&server, &["--match", "one:*"]);
    let state = some.state_when("those of the pattern", |state| state["filters"].as_array().unwrap().len() == 20);
    assert_eq!(state["left_out"], 0);
}

/// Small filters that are nearly full, or whose table of deleted items is, have metrics before 250 larger filters, however few are watched.
#[test]
fn filters_that_alerts_concern_come_before_larger_ones() {
    let server = Server::start(&testing::servers()[0]);
    let mut client = server.connect();
    for number in 0..250 {
        let kind = ["EXPANSION 2", "NONSCALING", "ROLLING"][number % 3];
        assert_eq!(client.run(&format!("BF.RESERVE larger:{number} 0.01 1000 {kind}")), testing::ok());
    }
    client.run("BF.RESERVE full 0.01 10 NONSCALING");
    client.run("BF.MADD full 0 1 2 3 4 5 6 7 8 9 10 11 12 13");
    client.run("BF.RESERVE nearly 0.01 10 COUNTING");
    client.run("BF.MADD nearly 0 1 2 3 4 5 6 7 8");
    client.run("BF.RESERVE layers 0.01 1 EXPANSION 1");
    client.run("BF.MADD layers 0 1 2 3 4 5 6 7 8 9 10");
    let has_all = |metrics: &str, names: &[&str]| {
        names.iter().all(|name| metrics.contains(&format!("\nbloomgate_filter_fill_ratio{{key=\"{name}\"}} ")))
    };
    let names = ["full", "nearly", "layers"];
    let web = Web::start(&server, &[]);
    web.state_when("all filters", |state| state["filters"].as_array().unwrap().len() == 253 && is_sampled(state));
    assert!(has_all(&metrics::of(&web), &names), "{}", metrics::of(&web));
    let few = Web::start(&server, &["--max", "5", "--metrics-filters", "3"]);
    testing::eventually("the filters that an alert concerns", || has_all(&metrics::of(&few), &names));
    assert!(metrics::of(&few).contains("\nbloomgate_unwatched_filters 248\n"));
    let refused = client.gauge("refused");
    let line = format!("bloomgate_refused_total{{node=\"127.0.0.1:{}\"}} {refused}\n", server.port);
    assert!(refused > 0 && metrics::of(&few).contains(&line), "{line}");
    let url = url(&server);
    let table = run(["watch", "--once", "--sort", "full", "--top", "3", "--url", &url]).success().text();
    let shown: Vec<_> = table.lines().skip(2).filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(shown[..3], names, "{table}");
}

#[test]
fn a_cluster_has_one_page_and_metrics_per_node() {
    on_every_server(|program| {
        let mut server = Server::with(program).line("cluster-enabled yes").start();
        let mut client = server.connect();
        client.run("CLUSTER ADDSLOTSRANGE 0 16383");
        testing::eventually("the cluster", || client.run("CLUSTER INFO").text().contains("cluster_state:ok"));
        client.run("BF.ADD seen a");
        let web = Web::start(&server, &[]);
        web.state_when("the filter", |state| state["filters"].as_array().unwrap().len() == 1 && is_sampled(state));
        let port = server.port;
        assert!(metrics::of(&web).contains(&format!("bloomgate_filters{{node=\"127.0.0.1:{port}\"}} 1")));
        server.stop(Stop::Kill);
        web.state_when("that it is gone", |state| !state["problem"].is_null());
        server.start_again();
        if server.port == port {
            web.state_when("that it is back", |state| state["problem"].is_null());
        }
    });
}

// HTTP: HEAD, and clients that hold connections open.

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
fn clients_that_do_not_read_do_not_lock_others_out() {
    let server = Server::start(&testing::servers()[0]);
    let web = Web::start(&server, &[]);
    let stuck: Vec<_> = (0..64).map(|_| stuck(&web)).collect();
    for path in ["/", "/metrics"] {
        web.get(path, &[]).success();
    }
    drop(stuck);
}

#[test]
fn the_newest_connections_are_served_in_a_crowd_of_idle_ones() {
    let server = Server::start(&testing::servers()[0]);
    let web = Web::start(&server, &[]);
    let mut crowd = Vec::new();
    for _ in 0..10 {
        crowd.extend((0..25).map(|_| connect(&web)));
        web.get("/icon.svg", &[]).success();
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
