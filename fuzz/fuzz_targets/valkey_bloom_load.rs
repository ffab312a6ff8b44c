//! Fuzzes the decoder of the argument of valkey-bloom's BF.LOAD.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| (bloomgate_fuzz::VALKEY_BLOOM_LOAD.check)(data));
