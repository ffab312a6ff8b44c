//! One test for each target: all of its inputs keep the laws.

use crate::inputs;
use crate::targets::{self, Target};

fn replay(target: Target) {
    for (name, data) in inputs(target.name) {
        println!("{}/{name}", target.name);
        (target.check)(&data);
    }
}

#[test]
fn native_snapshot() {
    replay(targets::NATIVE_SNAPSHOT);
}

#[test]
fn native_dump() {
    replay(targets::NATIVE_DUMP);
}

#[test]
fn redisbloom_snapshot() {
    replay(targets::REDISBLOOM_SNAPSHOT);
}

#[test]
fn redisbloom_dump() {
    replay(targets::REDISBLOOM_DUMP);
}

#[test]
fn valkey_bloom_snapshot() {
    replay(targets::VALKEY_BLOOM_SNAPSHOT);
}

#[test]
fn valkey_bloom_load() {
    replay(targets::VALKEY_BLOOM_LOAD);
}
