//! Fuzzes the decoder of snapshots of RedisBloom's type.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| (bloomgate_fuzz::REDISBLOOM_SNAPSHOT.check)(data));
