//! Fuzzes the parsers of the commands' arguments.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bloomgate_fuzz::words::check(data));
