//! `/metrics`: its text format, its values compared with the server's, and the metrics that
//! the dashboard in `packaging` and the documented alerts query.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use super::asking::Web;
use super::{NAMES, fill, is_sampled};
use crate::running::with_servers;

/// Returns all metrics as sent to Prometheus.
pub fn of(web: &Web) -> String {
    let response = web.get("/metrics", &[]).success();
    assert_eq!(response.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    response.body
}

/// A sample: its name, its labels, its value.
pub type Sample = (String, BTreeMap<String, String>, f64);

/// Parses the text format by its grammar, and fails if it is invalid.
pub fn parse(text: &str) -> Vec<Sample> {
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
    with_servers(|server| {
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
                testing::Reply::Integer(number) => *number as f64,
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
        let served: BTreeSet<_> = samples.into_iter().map(|(name, ..)| name).collect();
        let (of_web, _) = queried();
        assert!(of_web.len() > 10 && of_web.is_subset(&served), "{of_web:?} are queried of {served:?}");
    });
}

/// Every alert has an entry in the runbook, whose anchor is its name. `scripts/check-links` checks that the anchors exist.
#[test]
fn every_alert_has_an_entry_in_the_runbook() {
    let rules =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/compose/alerts.yml")).unwrap();
    let of = |prefix: &str| -> Vec<String> {
        rules.lines().filter_map(|line| line.trim_start().strip_prefix(prefix)).map(str::to_owned).collect()
    };
    let (names, pages) = (of("- alert: "), of("runbook_url: "));
    assert!(names.len() > 10);
    let anchor = |name: &String| {
        format!("{}/blob/main/docs/monitoring.md#{}", env!("CARGO_PKG_REPOSITORY"), name.to_lowercase())
    };
    assert_eq!(pages, names.iter().map(anchor).collect::<Vec<_>>());
}

/// Returns the metrics that the dashboard and the alerts query, of `bloomgate web` and of `bloomgate follow`.
pub fn queried() -> (BTreeSet<String>, BTreeSet<String>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let dashboard: Value = serde_json::from_str(&read("packaging/grafana-dashboard.json")).unwrap();
    let targets = dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let mut expressions: Vec<String> = targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect();
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    expressions.extend(variables.map(|variable| variable["query"].to_string()));
    let rules = read("packaging/compose/alerts.yml");
    let alerts: Vec<_> = rules.lines().filter_map(|line| line.trim_start().strip_prefix("expr: ")).collect();
    assert!(expressions.len() > 20 && alerts.len() > 4, "{expressions:?} {alerts:?}");
    expressions.extend(alerts.into_iter().map(str::to_owned));
    let words = expressions.iter().flat_map(|text| text.split(|character: char| !matches!(character, 'a'..='z' | '_')));
    let names = words.filter(|word| word.starts_with("bloomgate_")).map(str::to_owned);
    names.partition(|name| !name.starts_with("bloomgate_follow_"))
}
