//! The memory that decoders request, counted: at its peak a few times the input and, if a header may announce bits that follow
//! later, the ceiling. Refused requests count as well.

use crate::inputs;
use crate::inputs::targets::words::Parsed;
use crate::inputs::targets::{self, CEILING_BYTES, Target};

/// Bytes per byte of input: it is copied, and a few bytes of it may describe a layer.
const FOR_A_BYTE_OF_INPUT: u64 = 5;

/// The memory that a header may announce. Large layers begin at a page, which takes up to 4095 bytes for each 256 KiB.
const PROMISED: u64 = CEILING_BYTES + CEILING_BYTES / 64;
/// The limit if all bits are in the input.
const ALL_HAVE_COME: u64 = 0;

/// The name of a command, which the target writes in capital letters.
const MOST_OF_A_NAME: u64 = 100;

fn memory(target: Target, promised_bytes: u64) {
    let mut highest = (0, String::new());
    for (name, data) in inputs::of(target.name) {
        let peak = allocation_counter::measure(|| drop((target.decode)(&data))).bytes_max;
        let allowed = promised_bytes + FOR_A_BYTE_OF_INPUT * data.len() as u64;
        assert!(peak <= allowed, "{}/{name} of {} bytes asks for {peak}", target.name, data.len());
        highest = highest.max((peak, name));
    }
    println!("{}: at most {} bytes, by {}", target.name, highest.0, highest.1);
}

#[test]
fn decoders() {
    memory(targets::NATIVE_SNAPSHOT, PROMISED);
    memory(targets::NATIVE_DUMP, PROMISED);
    memory(targets::REDISBLOOM_SNAPSHOT, ALL_HAVE_COME);
    memory(targets::REDISBLOOM_DUMP, PROMISED);
    memory(targets::VALKEY_BLOOM_SNAPSHOT, ALL_HAVE_COME);
    memory(targets::VALKEY_BLOOM_LOAD, ALL_HAVE_COME);
}

/// Words are parsed in place. Only load-time arguments make texts, of a refusal and of arguments without effect.
#[test]
fn command_words() {
    for (name, data) in inputs::of(targets::words::NAME) {
        let (defaults, words) = targets::words::of(&data);
        let mut outcome = None;
        let peak = allocation_counter::measure(|| outcome = Some(targets::words::parsed(&words, &defaults))).bytes_max;
        let texts = matches!(outcome, Some(Parsed::LoadTime(_) | Parsed::LoadTimeRefused(_)));
        let allowed = if texts { 1000 + 30 * data.len() as u64 } else { MOST_OF_A_NAME };
        assert!(peak <= allowed, "{name} of {} bytes asks for {peak}", data.len());
    }
}
