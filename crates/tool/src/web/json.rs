//! The JSON that the page requests.

use std::time::Duration;

use bloomgate_client::{Bucket, Layer};
use serde_json::{Value, json};

use super::board::{Board, COUNTERS, Filter, Rates, State, now_ms};
use super::names::{id, readable};
use crate::stats::{Sampled, cells, count_of_buckets, fill};

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
            "keys": state.nodes.iter().map(|node| node.keys).fold(0, u64::saturating_add),
        },
        "walk": { "looked_at": state.walk.looked_at, "is_complete": state.walk.is_complete },
        "left_out": state.left_out,
        "totals": COUNTERS.iter().map(|name| ((*name).to_owned(), state.total(name).into())).collect::<Map>(),
        "rates": state.rates.map(rates),
        "history": history(&state),
        "filters": state.filters.iter().map(|(key, filter)| brief(key, filter)).collect::<Vec<_>>(),
    })
}

fn rates(rates: Rates) -> Map {
    COUNTERS.iter().map(|name| (*name).to_owned()).zip(rates.map(Value::from)).collect()
}

fn history(state: &State) -> Value {
    let points = state.totals.points();
    let mut history = Map::new();
    history.insert("time".to_owned(), points.iter().map(|(time, _)| *time).collect());
    for (index, name) in COUNTERS.iter().enumerate() {
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
    let Sampled { stats, expansion, ttl_ms } = sampled;
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
