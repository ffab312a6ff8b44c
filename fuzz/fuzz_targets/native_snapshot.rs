//! Fuzzes the decoder of snapshots of our own type.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| (bloomgate_fuzz::NATIVE_SNAPSHOT.check)(data));
