//! Fuzzes the decoder of a snapshot of valkey-bloom's type.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| (bloomgate_fuzz::VALKEY_BLOOM_SNAPSHOT.check)(data));
