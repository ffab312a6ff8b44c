//! What defines a filter of any kind: how it is created, what it is called, how large it becomes.

use std::ffi::CStr;

use super::effect::EffectWord;
use super::plan::Plan;
use super::stats::Names;
use super::{
    CountingSpec, Defaults, Forgets, LayoutName, NativeSpec, RedisBloomSpec, Request, Seed, ValkeyBloomSpec,
    WindowedSpec, redisbloom,
};
use crate::ceiling::Ceiling;
use crate::chain::{Reach, reach};
use crate::error::Error;
use crate::hash::Hasher;
use crate::scaling::Scaling;

/// Everything that makes a filter, whatever its kind: whoever makes one of it gets the same bits for the same items.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spec {
    /// Of our own layout.
    Native(NativeSpec),
    /// Of our own layout, and it forgets.
    Windowed(WindowedSpec),
    /// Of our own layout, with counters in the place of bits.
    Counting(CountingSpec),
    /// Of RedisBloom's.
    RedisBloom(RedisBloomSpec),
    /// Of valkey-bloom's.
    ValkeyBloom(ValkeyBloomSpec),
}

/// Evaluates one expression for the definition of a chain, of whatever kind, and another for that of a ring.
macro_rules! inside {
    ($spec:expr, $chain:ident => $of_chain:expr, $ring:ident => $of_ring:expr) => {
        match $spec {
            Spec::Native($chain) => $of_chain,
            Spec::Windowed($ring) => $of_ring,
            Spec::Counting($chain) => $of_chain,
            Spec::RedisBloom($chain) => $of_chain,
            Spec::ValkeyBloom($chain) => $of_chain,
        }
    };
}

impl Spec {
    /// What a request asks for; nothing where its words are those of different kinds.
    #[must_use]
    pub fn of(request: &Request, defaults: &Defaults) -> Option<Self> {
        let native = |forgets| {
            let hasher = defaults.hasher(request)?;
            Some(match forgets {
                None if request.is_counting => Self::Counting(CountingSpec::of(request, hasher)),
                None => Self::Native(NativeSpec::of(request, hasher)),
                Some(forgets) => Self::Windowed(WindowedSpec::of(request, forgets, hasher)),
            })
        };
        let has_native_words = request.hash.is_some() || request.forgets.is_some() || request.is_counting;
        match (request.seed, request.tightening, request.layout) {
            (_, None, None | Some(LayoutName::Native)) if has_native_words => native(request.forgets),
            _ if has_native_words => None,
            (Some(Seed::Number(_)), None, None | Some(LayoutName::Native)) => native(None),
            (Some(Seed::Bytes(seed)), _, None) => Some(Self::ValkeyBloom(ValkeyBloomSpec::of(request, seed, defaults))),
            (None, Some(_), None) => {
                Some(Self::ValkeyBloom(ValkeyBloomSpec::of(request, defaults.valkey_bloom_seed(), defaults)))
            }
            (None, None, layout) => match layout.unwrap_or(defaults.layout()) {
                LayoutName::Native => native(None),
                LayoutName::RedisBloom => Some(Self::RedisBloom(RedisBloomSpec::of(request))),
            },
            _ => None,
        }
    }

    /// The false positive rate that a filter of it is made for.
    #[must_use]
    pub const fn rate(&self) -> f64 {
        match self {
            Self::Native(spec) => spec.rate,
            Self::Windowed(spec) => spec.rate,
            Self::Counting(spec) => spec.rate,
            Self::RedisBloom(spec) => spec.rate,
            Self::ValkeyBloom(spec) => spec.rules.rate,
        }
    }

    /// Whether a filter of it takes entries of deleted items.
    #[must_use]
    pub(crate) const fn takes_deleted(&self) -> bool {
        match self {
            Self::Native(NativeSpec { hasher, .. }) | Self::Windowed(WindowedSpec { hasher, .. }) => hasher.is_keyed(),
            Self::Counting(_) | Self::RedisBloom(_) | Self::ValkeyBloom(_) => false,
        }
    }

    /// What BF.STATS and BF.PLAN call it.
    #[must_use]
    pub fn names(&self) -> Names {
        let growth = |scaling| if scaling == Scaling::Fixed { c"nonscaling" } else { c"scaling" };
        let native = |hasher: Hasher| if hasher.is_keyed() { c"siphash" } else { c"murmur3" };
        match self {
            Self::Native(spec) => {
                Names { kind: growth(spec.scaling), layout: c"native", hash: native(spec.hasher), forgets: None }
            }
            Self::Windowed(spec) => {
                let kind = if spec.forgets == Forgets::Rolling { c"rolling" } else { c"window" };
                Names { kind, layout: c"native", hash: native(spec.hasher), forgets: Some(spec.forgets) }
            }
            Self::Counting(spec) => {
                Names { kind: c"counting", layout: c"native", hash: native(spec.hasher), forgets: None }
            }
            Self::RedisBloom(spec) => {
                Names { kind: growth(spec.scaling), layout: c"redisbloom", hash: c"murmur2", forgets: None }
            }
            Self::ValkeyBloom(spec) => {
                Names { kind: growth(spec.rules.scaling), layout: c"valkey-bloom", hash: c"siphash13", forgets: None }
            }
        }
    }

    /// Returns what a filter consists of after `items` items were added, by default as many as its capacity.
    /// Works out as many sizes as it has layers then, about 60 ns each.
    ///
    /// # Errors
    /// [`Error::Full`] where it never takes so many, [`Error::TooManyLayers`], and what keeps a filter from being made.
    pub fn plan(&self, items: Option<u64>) -> Result<Plan, Error> {
        inside!(self, chain => Plan::of_chain(chain, items), ring => ring.plan(items))
    }

    /// How far a filter of it can grow under a ceiling, which is asked as for a filter of `filter_bytes` (0: a new one).
    /// Works out as many sizes as it has layers then, about 60 ns each.
    #[must_use]
    pub fn reach(&self, filter_bytes: u64, ceiling: &impl Ceiling) -> Reach {
        inside!(self,
            chain => reach(chain, filter_bytes, ceiling),
            ring => Reach { capacity: ring.capacity, ends_by_rate: false })
    }

    /// Answers with the command that makes a filter of it, and says its words after the key. Items may follow after ITEMS,
    /// but not for BF.RESERVE.
    pub fn spell(&self, say: impl FnMut(EffectWord<'_>)) -> &'static CStr {
        inside!(self, chain => chain.spell(say), ring => ring.spell(say))
    }

    /// Whether the command that makes a filter of it takes items, too.
    #[must_use]
    pub const fn takes_items(&self) -> bool {
        !matches!(self, Self::RedisBloom(_) | Self::Windowed(_))
    }

    /// Whether it is RedisBloom's: its primaries carry what they refused, too.
    #[must_use]
    pub const fn is_redisbloom(&self) -> bool {
        matches!(self, Self::RedisBloom(_))
    }

    /// Whether the most that RedisBloom lets a client ask for binds it.
    #[must_use]
    pub const fn is_beyond_redisbloom(&self) -> bool {
        matches!(self, Self::RedisBloom(spec) if spec.capacity > redisbloom::CAPACITY_MAX)
    }
}
