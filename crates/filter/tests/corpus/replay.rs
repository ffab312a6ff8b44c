//! All inputs of each target keep the laws.

use crate::inputs;
use crate::inputs::targets::{self, words};

/// The distance between replayed inputs: larger under miri, which is slow.
const STEP: usize = if cfg!(miri) { 29 } else { 1 };

fn replay(target: &str, check: fn(&[u8])) {
    for (name, data) in inputs::of(target).into_iter().step_by(STEP) {
        println!("{target}/{name}");
        check(&data);
    }
}

#[test]
fn decoders() {
    targets::DECODERS.iter().for_each(|target| replay(target.name, target.check));
}

#[test]
fn command_words() {
    replay(words::NAME, words::check);
}
