//! Fuzzes the decoder of the records of RedisBloom's dumps.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| (bloomgate_fuzz::REDISBLOOM_DUMP.check)(data));
