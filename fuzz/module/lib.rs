//! The module for the fuzz target `restore`: the shipped one, built with coverage counters, and a function that reports their
//! address. `scripts/test --only fuzz` builds it with the flags for that.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

// Linked for the module's own entry point, with which the server loads it.
extern crate bloomgate;

/// The compiler inserts a call of this function before all other code, once for each part of the code, with the range of its counters: one byte per
/// branch. The server's log then contains the addresses.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_8bit_counters_init(first: *const u8, end: *const u8) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Relaxed) {
        eprintln!("counters: {} {}", first.addr(), end.addr());
    }
}
