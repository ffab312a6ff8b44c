//! A definition of each kind of filter, for tests and measurements of all kinds.

use bloomgate_filter::kinds::valkey_bloom::ValkeyBloom;
use bloomgate_filter::kinds::{NativeSpec, RedisBloomSpec, ValkeyBloomSpec};
use bloomgate_filter::{Scaling, Spec};

/// A spec of each kind, with the kind's name.
pub fn specs(rate: f64, capacity: u64, expansion: u32) -> [(&'static str, Spec); 3] {
    let scaling = Scaling::from_expansion(expansion);
    let rules = ValkeyBloom::new(rate, 0.5, scaling, [7; 32]);
    [
        ("native", Spec::Native(NativeSpec::murmur3(rate, capacity, scaling, 4242))),
        ("redisbloom", Spec::RedisBloom(RedisBloomSpec { rate, capacity, scaling })),
        ("valkey-bloom", Spec::ValkeyBloom(ValkeyBloomSpec { rules, capacity })),
    ]
}
