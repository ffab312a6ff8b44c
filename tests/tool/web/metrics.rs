//! `/metrics`: its text format, its values compared with the server's, and the metrics of the dashboard in `packaging`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use super::asking::Web;
use super::{NAMES, fill, is_sampled};
use crate::harness::{Server, on_every_server};

/// Returns all metrics as Prometheus gets them.
pub fn of(web: &Web) -> String {
    let response = web.get("/metrics", &[]).success();
    assert_eq!(response.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    response.body
}

/// A sample: its name, its labels, its value.
type Sample = (String, BTreeMap<String, String>, f64);

/// Parses the text format by its grammar, and fails if it is invalid.
fn parse(text: &str) -> Vec<Sample> {
    assert!(text.ends_with('\n'));
    let mut types = BTreeMap::new();
    let mut samples = Vec::new();
    let mut seen = BTreeSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["counter", "gauge"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(types.insert(name.to_owned(), kind).is_none(), "twice: {line}");
            continue;
        }
        if line.starts_with("# HELP ") {
            continue;
        }
        let name_end = line.find(['{', ' ']).unwrap();
        let name = &line[..name_end];
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{line}");
        assert!(types.contains_key(name), "without a type: {line}");
        let (labels, value) = labels(&line[name_end..]);
        assert!(seen.insert((name.to_owned(), labels.clone())), "twice: {line}");
        samples.push((name.to_owned(), labels, value.trim().parse().unwrap_or_else(|_| panic!("{line}"))));
    }
    samples
}

fn labels(text: &str) -> (BTreeMap<String, String>, &str) {
    let mut labels = BTreeMap::new();
    let Some(mut rest) = text.strip_prefix('{') else { return (labels, text) };
    loop {
        let (name, after) = rest.split_once("=\"").unwrap();
        let mut value = String::new();
        let mut characters = after.char_indices();
        let end = loop {
            match characters.next().unwrap() {
                (at, '"') => break at,
                (_, '\\') => value.push(match characters.next().unwrap().1 {
                    'n' => '\n',
                    other @ ('\\' | '"') => other,
                    other => panic!("\\{other} in {text}"),
                }),
                (_, other) => value.push(other),
            }
        };
        labels.insert(name.to_owned(), value);
        rest = &after[end + 1..];
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => return (labels, rest.strip_prefix('}').unwrap()),
        }
    }
}

#[test]
fn metrics_equal_the_servers_figures() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        let keys = fill(&mut client);
        client.run("BF.FETCH kind:0 nobody cache:1");
        client.run("BF.FETCH kind:0 item1 cache:2");
        client.run("BF.MCHANGED kind:0 ITEMS item1 cache:3");
        let web = Web::start(&server, &[]);
        web.state_when("samples of all filters", |state| {
            state["filters"].as_array().unwrap().len() == keys.len() && is_sampled(state)
        });
        let samples = parse(&of(&web));
        let value = |name: &str, label: Option<(&str, &str)>| {
            let found = samples.iter().find(|(said, labels, _)| {
                said == name && label.is_none_or(|(label, value)| labels.get(label).is_some_and(|said| said == value))
            });
            found.unwrap_or_else(|| panic!("no {name} {label:?}: {samples:?}")).2
        };
        assert_eq!(value("bloomgate_up", None), 1.0);
        for (name, field) in [
            ("bloomgate_filters", "num_objects"),
            ("bloomgate_items", "num_items_across_objects"),
            ("bloomgate_memory_bytes", "total_memory_bytes"),
            ("bloomgate_adds_total", "adds"),
            ("bloomgate_new_items_total", "new_items"),
            ("bloomgate_leases", "leases"),
            ("bloomgate_guard_batches_total", "batches"),
        ] {
            assert_eq!(value(name, None), client.gauge(field) as f64, "{name}");
        }
        assert_eq!(value("bloomgate_fetches_total", Some(("answer", "absent"))), 1.0);
        assert_eq!(value("bloomgate_fetches_total", Some(("answer", "load"))), 1.0);
        for (key, field, name) in [
            ("kind:0", "Capacity", "capacity_items"),
            ("kind:1", "Number of items inserted", "items"),
            ("kind:3", "Size", "size_bytes"),
            ("valkey", "Error rate now", "error_rate_now"),
        ] {
            let theirs: f64 = match client.run(&format!("BF.STATS {key}")).field(field) {
                crate::harness::Reply::Integer(number) => *number as f64,
                other => other.text().parse().unwrap(),
            };
            assert_eq!(value(&format!("bloomgate_filter_{name}"), Some(("key", key))), theirs, "{key}");
        }
        assert_eq!(value("bloomgate_filter_window_seconds", Some(("key", "kind:3"))), 600.0);
        assert_eq!(value("bloomgate_filter_deleted_items", Some(("key", "kind:5"))), 2.0);
        let shown: BTreeSet<_> = samples
            .iter()
            .filter(|(name, ..)| name == "bloomgate_filter_items")
            .map(|(_, labels, _)| labels["key"].clone())
            .collect();
        assert_eq!(shown.len(), keys.len(), "{shown:?}");
        for name in ["", "<script>alert(1)</script>", "two\\nlines\\r\\t", "\\0\\xff\\xfe binary"] {
            assert!(shown.contains(name), "{name:?} in {shown:?}");
        }
        assert!(NAMES.len() < shown.len());
    });
}

#[test]
fn every_metric_of_the_dashboard_is_served() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/grafana-dashboard.json");
    let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let server = Server::start(&crate::harness::servers()[0]);
    let mut client = server.connect();
    let keys = fill(&mut client);
    client.run("BF.FETCH kind:0 nobody cache:1");
    let web = Web::start(&server, &[]);
    web.state_when("all filters", |state| {
        state["filters"].as_array().unwrap().len() == keys.len() && is_sampled(state)
    });
    let served: BTreeSet<_> = parse(&of(&web)).into_iter().map(|(name, ..)| name).collect();
    let mut named = BTreeSet::new();
    let mut expressions = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            expressions += 1;
            let text = target["expr"].as_str().unwrap();
            let words = text.split(|character: char| !(character.is_ascii_lowercase() || character == '_'));
            named.extend(words.filter(|word| word.starts_with("bloomgate_")).map(str::to_owned));
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        let text = variable["query"].to_string();
        let words = text.split(|character: char| !(character.is_ascii_lowercase() || character == '_'));
        named.extend(words.filter(|word| word.starts_with("bloomgate_")).map(str::to_owned));
    }
    assert!(expressions > 8 && named.len() > 10, "{named:?}");
    let missing: Vec<_> = named.difference(&served).collect();
    assert!(missing.is_empty(), "the dashboard asks for {missing:?}, there is {served:?}");
}
