//! The module of the fuzz target `restore`: the shipped one, built so that it counts which of its code runs, and a function
//! that says where it counts. `scripts/fuzz` builds it with the flags for that.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

// Linked for the module's own entry, by which the server loads it.
extern crate bloomgate;

/// The compiler has this called before anything else, once for each part of the code, with the first and the end of all
/// counters: a byte for each branch. Whoever runs the server finds them in its log.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_8bit_counters_init(first: *const u8, end: *const u8) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Relaxed) {
        eprintln!("counters: {} {}", first.addr(), end.addr());
    }
}
