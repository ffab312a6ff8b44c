//! Fuzzes the decoder of the records of our own dumps.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| (bloomgate_fuzz::NATIVE_DUMP.check)(data));
