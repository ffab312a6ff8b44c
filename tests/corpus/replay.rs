//! One test for each target: all of its inputs keep the laws.

use crate::inputs;
use crate::inputs::targets::{self, Target};

/// From one input to the next: miri, which is slow, replays some.
const STEP: usize = if cfg!(miri) { 29 } else { 1 };

fn replay(target: Target) {
    replay_with(target.name, target.check);
}

fn replay_with(target: &str, check: fn(&[u8])) {
    for (name, data) in inputs::of(target).into_iter().step_by(STEP) {
        println!("{target}/{name}");
        check(&data);
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

#[test]
fn command_words() {
    replay_with(targets::words::NAME, targets::words::check);
}
