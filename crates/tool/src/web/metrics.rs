//! `/metrics` of the page. The number of series is limited: about thirty per node, and about
//! fifteen for each filter with its own series.

use std::cmp::Reverse;
use std::time::Duration;

use bloomgate_client::{Bucket, Layer};
use serde_json::{Value, json};

use crate::prometheus::{Metrics, escaped};
use crate::sampler::{Board, FIELDS, Filter, Rates, State, now_ms};
use crate::stats::{Sampled, cells, count_of_buckets, fill};
use crate::web::query::{id, readable};

/// Returns a value of a filter, or `None` if its kind does not have it.
type Number = fn(&Sampled) -> Option<f64>;

/// Metrics of a filter: the name, the help text, and the value.
const FILTER_METRICS: [(&str, &str, Number); 15] = [
    ("items", "Items added, as counted.", |filter| Some(filter.stats.items as f64)),
    ("items_estimated", "Distinct items, estimated from the bits.", |filter| Some(filter.stats.items_estimated as f64)),
    ("capacity_items", "Capacity of all layers.", |filter| Some(filter.stats.capacity as f64)),
    ("fill_ratio", "Items divided by capacity: 1 means full.", |filter| Some(fill(&filter.stats))),
    ("cells_ratio", "Share of set cells in the fullest layer: about 0.5 if that layer is full.", |filter| {
        Some(cells(&filter.stats))
    }),
    ("size_bytes", "Memory, as BF.INFO SIZE.", |filter| Some(filter.stats.size_bytes as f64)),
    ("pending_bytes", "Memory of pending adds.", |filter| Some(filter.stats.pending_bytes as f64)),
    ("error_rate", "The requested false positive rate.", |filter| Some(filter.stats.error_rate)),
    ("error_rate_now", "The current false positive rate.", |filter| Some(filter.stats.error_rate_now)),
    ("layers", "Layers.", |filter| Some(filter.stats.layers.len() as f64)),
    ("buckets", "Buckets of a windowed or rolling filter.", |filter| {
        count_of_buckets(&filter.stats).map(|all| all as f64)
    }),
    ("window_seconds", "Seconds after which items are forgotten.", |filter| {
        filter.stats.window_s.map(|seconds| seconds as f64)
    }),
    ("deleted_items", "Entries in the table of deleted items.", |filter| {
        filter.stats.items_deleted.map(|all| all as f64)
    }),
    ("deleted_room", "Free entries in the table of deleted items.", |filter| {
        filter.stats.room_for_deleted.map(|room| room as f64)
    }),
    ("ttl_seconds", "Seconds until the key expires.", |filter| filter.ttl_ms.map(|ms| ms as f64 / 1000.0)),
];

/// Returns all metrics. The `filters_max` filters of the highest ranks have their own series.
pub fn text(board: &Board, filters_max: usize) -> String {
    let state = board.state();
    let mut metrics = Metrics::default();
    let is_up = state.problem.is_none() && state.samples > 0;
    sampler(&mut metrics, &state, is_up, filters_max);
    // Samples from before the connection was lost may be outdated.
    if is_up {
        nodes(&mut metrics, &state);
        filters(&mut metrics, &state, filters_max);
    }
    metrics.text()
}

fn sampler(metrics: &mut Metrics, state: &State, is_up: bool, filters_max: usize) {
    let mut gauge = |name: &str, help: &str, value: f64| metrics.single(name, "gauge", help, "", value);
    gauge("bloomgate_up", "Whether the last sample succeeded.", f64::from(u8::from(is_up)));
    let (time_s, took_s) = (state.sampled_ms as f64 / 1000.0, state.took.as_secs_f64());
    gauge("bloomgate_sample_timestamp_seconds", "Time of the last sample.", time_s);
    gauge("bloomgate_sample_duration_seconds", "Duration of the last sample, pauses included.", took_s);
    gauge("bloomgate_watched_filters", "Filters that are sampled.", state.filters.len() as f64);
    gauge("bloomgate_unwatched_filters", "Filters found beyond --max.", state.left_out as f64);
    let failed = state.filters.values().filter(|filter| filter.problem.is_some()).count();
    gauge("bloomgate_failed_filters", "Filters whose last sample failed.", failed as f64);
    let without = state.filters.len().saturating_sub(filters_max);
    gauge("bloomgate_filters_without_series", "Sampled filters beyond --metrics-filters.", without as f64);
    metrics.single("bloomgate_samples_total", "counter", "Number of samples.", "", state.samples);
}

fn nodes(metrics: &mut Metrics, state: &State) {
    if state.nodes.is_empty() {
        return;
    }
    metrics.describe("bloomgate_build_info", "gauge", "Versions, as labels.");
    for node in &state.nodes {
        let version = |name: &str| escaped(node.info.text(name).unwrap_or_default());
        let labels = format!(
            "node=\"{}\",module=\"{}\",server=\"{}\",tool=\"{}\"",
            escaped(&node.address),
            version("bf_version"),
            version(if node.info.text("valkey_version").is_some() { "valkey_version" } else { "redis_version" }),
            env!("CARGO_PKG_VERSION")
        );
        metrics.sample("bloomgate_build_info", &labels, 1);
    }
    let mut last = "";
    for (field, name, labels, only_grows) in FIELDS {
        if name != last {
            let kind = if only_grows { "counter" } else { "gauge" };
            metrics.describe(
                name,
                kind,
                &format!("{field} of INFO{}.", if labels.is_empty() { "" } else { " and similar fields" }),
            );
            last = name;
        }
        for node in &state.nodes {
            if let Some(number) = node.info.number(field) {
                metrics.sample(name, &format!("node=\"{}\"{labels}", escaped(&node.address)), number);
            }
        }
    }
    metrics.describe("bloomgate_server_used_memory_bytes", "gauge", "used_memory of INFO.");
    for node in &state.nodes {
        let used = node.info.number("used_memory").unwrap_or(0);
        metrics.sample("bloomgate_server_used_memory_bytes", &format!("node=\"{}\"", escaped(&node.address)), used);
    }
    metrics.describe("bloomgate_server_maxmemory_bytes", "gauge", "The limit of the server's memory; 0: none.");
    for node in &state.nodes {
        let policy = escaped(node.info.text("maxmemory_policy").unwrap_or_default());
        let labels = format!("node=\"{}\",policy=\"{policy}\"", escaped(&node.address));
        metrics.sample("bloomgate_server_maxmemory_bytes", &labels, node.info.number("maxmemory").unwrap_or(0));
    }
    metrics.describe("bloomgate_server_keys", "gauge", "Keys of the database.");
    for node in &state.nodes {
        metrics.sample(
            "bloomgate_server_keys",
            &format!("node=\"{}\"", escaped(&node.address)),
            node.info.keys(state.database),
        );
    }
}

fn filters(metrics: &mut Metrics, state: &State, filters_max: usize) {
    let with_stats = |(key, filter): (_, &'_ Filter)| Some((key, filter.sampled.clone()?));
    let mut filters: Vec<(&Vec<u8>, Sampled)> = state.filters.iter().filter_map(with_stats).collect();
    filters.sort_by_cached_key(|(_, sampled)| Reverse(sampled.rank()));
    filters.truncate(filters_max);
    if filters.is_empty() {
        return;
    }
    let filters: Vec<(String, Sampled)> =
        filters.into_iter().map(|(key, stats)| (format!("key=\"{}\"", escaped(&readable(key))), stats)).collect();
    metrics.describe("bloomgate_filter_info", "gauge", "Describes a filter by its labels.");
    for (key, sampled @ Sampled { stats, .. }) in &filters {
        let [kind, layout, hash] = [&stats.kind, &stats.layout, &stats.hash].map(|word| escaped(word));
        let is_fixed = sampled.is_fixed();
        let labels = format!("{key},kind=\"{kind}\",layout=\"{layout}\",hash=\"{hash}\",fixed=\"{is_fixed}\"");
        metrics.sample("bloomgate_filter_info", &labels, 1);
    }
    for (name, help, number) in FILTER_METRICS {
        let mut samples = filters.iter().filter_map(|(key, stats)| Some((key, number(stats)?))).peekable();
        if samples.peek().is_none() {
            continue;
        }
        let name = format!("bloomgate_filter_{name}");
        metrics.describe(&name, "gauge", help);
        for (key, number) in samples {
            // A rate can be as small as 1e-300.
            if number > 0.0 && number < 1e-6 {
                metrics.sample(&name, key, format_args!("{number:e}"));
            } else {
                metrics.sample(&name, key, number);
            }
        }
    }
}

// The JSON that the page requests.

type Map = serde_json::Map<String, Value>;

/// The page reports a pending command after this time.
const SILENCE: Duration = Duration::from_secs(3);

/// Returns everything except the details of filters.
pub fn state(board: &Board) -> Value {
    let state = board.state();
    let first = state.nodes.first();
    let info = |name: &str| first.and_then(|node| node.info.text(name));
    let silence = state.sent_at.map(|sent_at| sent_at.elapsed()).filter(|silence| *silence >= SILENCE);
    json!({
        "tool": env!("CARGO_PKG_VERSION"),
        "name": board.server,
        "other_databases": state.other_databases(),
        "now": now_ms(),
        "interval": millis(board.interval),
        "samples": state.samples,
        "sampled": state.sampled_ms,
        "took": millis(state.took),
        "problem": state.problem.as_ref().map(|problem| json!({ "since": problem.since_ms, "text": problem.text })),
        "silence": silence.map(millis),
        "nodes": state.nodes.iter().map(|node| node.address.as_str()).collect::<Vec<_>>(),
        "server": {
            "name": info("valkey_version").map_or("Redis", |_| "Valkey"),
            "version": info("valkey_version").or_else(|| info("redis_version")),
            "module": info("bf_version"),
            "uptime": first.and_then(|node| node.info.number("uptime_in_seconds")),
            "used_memory": state.total("used_memory"),
            "maxmemory": state.total("maxmemory"),
            "policy": info("maxmemory_policy"),
            "keys": state.nodes.iter().map(|node| node.info.keys(state.database)).fold(0, u64::saturating_add),
        },
        "walk": { "looked_at": state.walk.looked_at, "is_complete": state.walk.is_complete },
        "left_out": state.left_out,
        "totals": FIELDS.iter().map(|(field, ..)| ((*field).to_owned(), state.total(field).into())).collect::<Map>(),
        "rates": state.rates.map(rates),
        "history": history(&state),
        "filters": state.filters.iter().map(|(key, filter)| brief(key, filter)).collect::<Vec<_>>(),
    })
}

fn rates(rates: Rates) -> Map {
    FIELDS.iter().map(|(field, ..)| (*field).to_owned()).zip(rates.map(Value::from)).collect()
}

fn history(state: &State) -> Value {
    let points = state.totals.points();
    let mut history = Map::new();
    history.insert("time".to_owned(), points.iter().map(|(time, _)| *time).collect());
    for (index, (name, ..)) in FIELDS.iter().enumerate() {
        let values = points.iter().filter_map(|(_, totals)| totals.get(index).copied());
        history.insert((*name).to_owned(), values.collect());
    }
    history.into()
}

/// Returns a row of the table.
fn brief(key: &[u8], filter: &Filter) -> Map {
    let mut line = filter.sampled.as_ref().map(numbers).unwrap_or_default();
    line.insert("id".to_owned(), id(key).into());
    line.insert("name".to_owned(), readable(key).into());
    line.insert("problem".to_owned(), filter.problem.clone().into());
    line
}

fn numbers(sampled: &Sampled) -> Map {
    let Sampled { stats, expansion, ttl_ms, .. } = sampled;
    let numbers = [
        ("kind", json!(stats.kind)),
        ("layout", json!(stats.layout)),
        ("hash", json!(stats.hash)),
        ("rate", json!(stats.error_rate)),
        ("rate_now", json!(stats.error_rate_now)),
        ("items", json!(stats.items)),
        ("items_estimated", json!(stats.items_estimated)),
        ("capacity", json!(stats.capacity)),
        ("fill", json!(fill(stats))),
        ("cells", json!(cells(stats))),
        ("size", json!(stats.size_bytes)),
        ("pending", json!(stats.pending_bytes)),
        ("layers", json!(stats.layers.len())),
        ("buckets", json!(count_of_buckets(stats))),
        ("expansion", json!(expansion)),
        ("is_fixed", json!(sampled.is_fixed())),
        ("ttl", json!(ttl_ms)),
        ("window", json!(stats.window_s)),
        ("is_sliding", json!(stats.window_s.map(|_| stats.sliding))),
        ("deleted", json!(stats.items_deleted)),
        ("deleted_room", json!(stats.room_for_deleted)),
    ];
    numbers.into_iter().map(|(name, number)| (name.to_owned(), number)).collect()
}

/// Returns a filter with its layers, buckets and history.
pub fn filter(key: &[u8], filter: &Filter) -> Value {
    let mut fields = brief(key, filter);
    if let Some(Sampled { stats, .. }) = &filter.sampled {
        fields.insert("all_layers".to_owned(), stats.layers.iter().map(layer).collect());
        fields.insert("all_buckets".to_owned(), stats.buckets.iter().map(bucket).collect());
    }
    let points = filter.history.points();
    let history = json!({
        "time": points.iter().map(|point| point.time_ms).collect::<Vec<_>>(),
        "items": points.iter().map(|point| point.items).collect::<Vec<_>>(),
        "size": points.iter().map(|point| point.size_bytes).collect::<Vec<_>>(),
        "rate_now": points.iter().map(|point| point.rate_now).collect::<Vec<_>>(),
        "fill": points.iter().map(|point| point.fill).collect::<Vec<_>>(),
    });
    fields.insert("history".to_owned(), history);
    fields.into()
}

fn layer(layer: &Layer) -> Value {
    let Layer { capacity, items, size_bytes, hashes, fill, .. } = layer;
    json!({ "capacity": capacity, "items": items, "size": size_bytes, "hashes": hashes, "cells": fill })
}

fn bucket(bucket: &Bucket) -> Value {
    json!({ "slot": bucket.slot, "begin": bucket.begin_ms, "end": bucket.end_ms, "items": bucket.items })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
