//! Fuzzes the decoders of RedisBloom's cuckoo filters.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| (bloomgate_fuzz::REDISBLOOM_CUCKOO.check)(data));
