//! Fuzzes the decoder of a snapshot of our own type.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| (bloomgate_fuzz::NATIVE_SNAPSHOT.check)(data));
