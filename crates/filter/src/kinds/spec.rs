//! The definition of a filter of any kind: how it is created, what it is called, how large it becomes.

use std::ffi::CStr;
use std::fmt;

use super::effect::ArgToken;
use super::native::Word;
use super::plan::Plan;
use super::{
    CountingSpec, CuckooSpec, Defaults, LayoutName, NativeSpec, RedisBloomSpec, Request, Retention, Seed,
    ValkeyBloomSpec, WindowedSpec, redisbloom,
};
use crate::chain::{GrowthLimit, growth_limit};
use crate::error::Error;
use crate::geometry::sizing::Scaling;
use crate::hash::Hasher;
use crate::host::Ceiling;

/// The names of a filter's properties, as in the options that create it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Names {
    /// Its kind: how it grows or forgets.
    pub kind: &'static CStr,
    /// The module whose layout it has.
    pub layout: &'static CStr,
    /// How it hashes.
    pub hash: &'static CStr,
    /// When it forgets items, if ever.
    pub forgets: Option<Retention>,
}

/// The definition of a filter of any kind. Filters with equal definitions set the same bits for the same items.
///
/// ```
/// use bloomgate_filter::kinds::NativeSpec;
/// use bloomgate_filter::{Filter, Moment, Scaling, Spec, Unlimited};
///
/// let spec = Spec::Native(NativeSpec::murmur3(0.01, 1000, Scaling::Fixed, 42));
/// let filter = Filter::new(&spec, &Unlimited)?;
/// assert_eq!(filter.spec(), spec);
///
/// // The arguments with which a replica creates the same filter.
/// let mut words = Vec::new();
/// let command = spec.encode_args(|word| {
///     word.write_to(&mut words).unwrap();
///     words.push(b' ');
/// });
/// assert_eq!(command, c"BF.INSERT");
/// assert_eq!(words, b"CAPACITY 1000 ERROR 0.01 NONSCALING SEED 42 ");
/// # assert!(!filter.contains(b"absent", &Moment(0)));
/// # Ok::<(), bloomgate_filter::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spec {
    /// The native layout.
    Native(NativeSpec),
    /// A ring of native filters, which forgets.
    Windowed(WindowedSpec),
    /// The native layout with counters in place of bits.
    Counting(CountingSpec),
    /// Our own layout of a cuckoo filter.
    Cuckoo(CuckooSpec),
    /// RedisBloom's layout.
    RedisBloom(RedisBloomSpec),
    /// valkey-bloom's layout.
    ValkeyBloom(ValkeyBloomSpec),
}

/// Evaluates one expression for the definition of any chain, and another for the definition of a ring.
macro_rules! match_kind {
    ($spec:expr, $chain:ident => $of_chain:expr, $ring:ident => $of_ring:expr) => {
        match $spec {
            Spec::Native($chain) => $of_chain,
            Spec::Windowed($ring) => $of_ring,
            Spec::Counting($chain) => $of_chain,
            Spec::Cuckoo($chain) => $of_chain,
            Spec::RedisBloom($chain) => $of_chain,
            Spec::ValkeyBloom($chain) => $of_chain,
        }
    };
}

impl Spec {
    /// Returns the definition that a request asks for; `None` if its options belong to different kinds.
    pub(crate) fn of(request: &Request, defaults: &Defaults) -> Option<Self> {
        let spec = Self::of_any_policy(request, defaults);
        spec.filter(|spec| request.policy.is_none() || matches!(spec, Self::Native(_)))
    }

    fn of_any_policy(request: &Request, defaults: &Defaults) -> Option<Self> {
        let native = |forgets| {
            let hasher = defaults.hasher(request)?;
            Some(match forgets {
                None if request.is_cuckoo => Self::Cuckoo(CuckooSpec::of(request, hasher)),
                None if request.is_counting => Self::Counting(CountingSpec::of(request, hasher)),
                None => Self::Native(NativeSpec::of(request, hasher, defaults.must_obey)?),
                Some(forgets) => Self::Windowed(WindowedSpec::of(request, forgets, hasher)),
            })
        };
        let has_native_words =
            request.hash.is_some() || request.forgets.is_some() || request.is_counting || request.is_cuckoo;
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

    /// The requested false positive rate.
    pub const fn rate(&self) -> f64 {
        match self {
            Self::Native(spec) => spec.rate,
            Self::Windowed(spec) => spec.rate,
            Self::Counting(spec) => spec.rate,
            Self::Cuckoo(spec) => spec.rate,
            Self::RedisBloom(spec) => spec.rate,
            Self::ValkeyBloom(spec) => spec.rules.rate,
        }
    }

    /// Whether its filters have tables of deleted items.
    pub(crate) const fn takes_deleted(&self) -> bool {
        match self {
            Self::Native(NativeSpec { hasher, .. }) | Self::Windowed(WindowedSpec { hasher, .. }) => hasher.is_keyed(),
            Self::Counting(_) | Self::Cuckoo(_) | Self::RedisBloom(_) | Self::ValkeyBloom(_) => false,
        }
    }

    /// Its names in the replies of BF.STATS and BF.PLAN.
    pub fn names(&self) -> Names {
        let growth = |scaling| if scaling == Scaling::Fixed { c"nonscaling" } else { c"scaling" };
        let native = |hasher: Hasher| if hasher.is_keyed() { c"siphash" } else { c"murmur3" };
        match self {
            Self::Native(spec) => {
                Names { kind: growth(spec.scaling), layout: c"native", hash: native(spec.hasher), forgets: None }
            }
            Self::Windowed(spec) => {
                let kind = if spec.forgets == Retention::Rolling { c"rolling" } else { c"window" };
                Names { kind, layout: c"native", hash: native(spec.hasher), forgets: Some(spec.forgets) }
            }
            Self::Counting(spec) => {
                Names { kind: c"counting", layout: c"native", hash: native(spec.hasher), forgets: None }
            }
            Self::Cuckoo(spec) => {
                Names { kind: c"cuckoo", layout: c"native", hash: native(spec.hasher), forgets: None }
            }
            Self::RedisBloom(spec) => {
                Names { kind: growth(spec.scaling), layout: c"redisbloom", hash: c"murmur2", forgets: None }
            }
            Self::ValkeyBloom(spec) => {
                Names { kind: growth(spec.rules.scaling), layout: c"valkey-bloom", hash: c"siphash13", forgets: None }
            }
        }
    }

    /// Returns the first parameter in which a filter's definition differs from the definition in a BF.RESERVE. Compares seeds if the
    /// command states one. Ignores the sizing rules, which no argument of BF.RESERVE selects.
    pub(crate) fn difference(&self, asked: &Self, has_seed: bool) -> Option<Difference> {
        let mut pairs = self.parameters().into_iter().zip(asked.parameters());
        let shown = pairs.find(|(existing, asked)| existing != asked);
        let shown = shown.map(|((name, existing), (_, asked))| Difference { name, values: Some((existing, asked)) });
        let is_other_seed = has_seed && self.hasher() != asked.hasher();
        shown.or(is_other_seed.then_some(Difference { name: "SEED", values: None }))
    }

    /// The names and values of the parameters that BF.RESERVE decides, except the seed.
    fn parameters(&self) -> [(&'static str, Parameter); 9] {
        use Parameter::{Fraction, Number, Word};
        let Names { kind, layout, hash, forgets } = self.names();
        // Filters of the same kind have the same parameters, so the values of the others do not matter.
        let (seconds, sliding) = match forgets {
            Some(Retention::After { seconds, is_sliding }) => (seconds, if is_sliding { c"on" } else { c"off" }),
            Some(Retention::Rolling) | None => (0, c"off"),
        };
        let (capacity, scaling, buckets) = match self {
            Self::Native(spec) => (spec.capacity, spec.scaling, 0),
            Self::Windowed(spec) => (spec.capacity, spec.scaling, spec.buckets),
            Self::Counting(spec) => (spec.capacity, Scaling::Fixed, 0),
            Self::Cuckoo(spec) => (spec.capacity, spec.scaling, 0),
            Self::RedisBloom(spec) => (spec.capacity, spec.scaling, 0),
            Self::ValkeyBloom(spec) => (spec.capacity, spec.rules.scaling, 0),
        };
        [
            ("error rate", Fraction(self.rate())),
            ("capacity", Number(capacity)),
            ("LAYOUT", Word(layout)),
            ("kind", Word(kind)),
            ("EXPANSION", Number(scaling.expansion().into())),
            ("HASH", Word(hash)),
            ("WINDOW", Number(seconds)),
            ("SLIDING", Word(sliding)),
            ("BUCKETS", Number(buckets.into())),
        ]
    }

    /// How a filter of the native layout hashes.
    const fn hasher(&self) -> Option<Hasher> {
        match self {
            Self::Native(NativeSpec { hasher, .. })
            | Self::Windowed(WindowedSpec { hasher, .. })
            | Self::Counting(CountingSpec { hasher, .. })
            | Self::Cuckoo(CuckooSpec { hasher, .. }) => Some(*hasher),
            Self::RedisBloom(_) | Self::ValkeyBloom(_) => None,
        }
    }

    /// Returns the layers of a filter after `items` new items, by default as many as its capacity. Computes the size of every layer,
    /// about 60 ns each.
    ///
    /// ```
    /// use bloomgate_filter::kinds::NativeSpec;
    /// use bloomgate_filter::{Scaling, Spec};
    ///
    /// let spec = Spec::Native(NativeSpec::murmur3(0.01, 1000, Scaling::from_expansion(2), 42));
    /// let plan = spec.plan(Some(5000))?;
    /// let capacities: Vec<u64> = plan.layers.iter().map(|layer| layer.capacity).collect();
    /// assert_eq!((capacities, plan.capacity), (vec![1000, 2000, 4000], 7000));
    /// assert_eq!(plan.bits_per_item().round(), 15.0);
    /// # Ok::<(), bloomgate_filter::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Full`] if it cannot take that many items, [`Error::TooManyLayers`], and the errors of
    /// [`Filter::new`](crate::Filter::new).
    pub fn plan(&self, items: Option<u64>) -> Result<Plan, Error> {
        match_kind!(self, chain => Plan::of_chain(chain, items), ring => ring.plan(items))
    }

    /// Returns how far a filter can grow under a ceiling. `filter_bytes` is the filter's present size, 0 if it does not exist
    /// yet. Computes the size of every layer, about 60 ns each.
    pub fn growth_limit(&self, filter_bytes: u64, ceiling: &impl Ceiling) -> GrowthLimit {
        match_kind!(self,
            chain => growth_limit(chain, filter_bytes, ceiling),
            ring => GrowthLimit { capacity: ring.capacity, ends_by_rate: false })
    }

    /// Returns the definition as one word: `BF.INSERT key AS word [item ...]` creates the filter. `None` unless it is a native filter with
    /// MurmurHash3.
    pub fn to_word(&self) -> Option<Word> {
        let Self::Native(spec) = self else { return None };
        spec.to_word()
    }

    /// Returns the command that creates a filter, and passes its arguments after the key to `push`. ITEMS and items may follow,
    /// except for BF.RESERVE. Filters without a [word](Self::to_word) are replicated with it, as version 0.3 replicated every filter.
    pub fn encode_args(&self, push: impl FnMut(ArgToken<'_>)) -> &'static CStr {
        match_kind!(self, chain => chain.encode_args(push), ring => ring.encode_args(push))
    }

    /// Whether the command that creates a filter also accepts items.
    pub const fn takes_items(&self) -> bool {
        !matches!(self, Self::RedisBloom(_) | Self::Windowed(_))
    }

    /// Whether the layout is another module's. Primaries with such a module also propagate adds that they refused.
    pub const fn is_foreign(&self) -> bool {
        matches!(self, Self::RedisBloom(_) | Self::ValkeyBloom(_))
    }

    /// Whether its capacity exceeds RedisBloom's limit for clients.
    pub const fn is_beyond_redisbloom(&self) -> bool {
        matches!(self, Self::RedisBloom(spec) if spec.capacity > redisbloom::CAPACITY_MAX)
    }
}

/// A parameter whose value differs from the requested one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    name: &'static str,
    /// The filter's value and the requested one; `None` for a seed, which may be secret.
    values: Option<(Parameter, Parameter)>,
}

/// The value of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Parameter {
    Number(u64),
    Fraction(f64),
    Word(&'static CStr),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        self.values.map_or(Ok(()), |(existing, asked)| write!(f, ": {existing}, not {asked}"))
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            // In this form, small rates have an exponent.
            Self::Fraction(number) => write!(f, "{number:?}"),
            Self::Word(word) => f.write_str(word.to_str().unwrap_or_default()),
        }
    }
}
