//! Fuzzes the decoder of snapshots of valkey-bloom's type.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| (bloomgate_fuzz::VALKEY_BLOOM_SNAPSHOT.check)(data));
