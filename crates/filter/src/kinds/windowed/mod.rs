//! Filters that forget: a ring of native chains, called buckets. New items are added to the newest bucket, and the oldest
//! bucket is dropped as a whole, after a window of time or after a number of other items.

pub(super) mod description;

use std::ffi::CStr;

pub use crate::ring::{BUCKETS_MAX, Forgets, Turn};

use super::Request;
use super::effect::{EffectWord, say_all, say_hasher, say_scaling};
use super::native::{NativeSpec, taken_rate};
use super::plan::Plan;
use crate::chain::ChainSpec as _;
use crate::error::Error;
use crate::geometry::sizing::{Policy, to_f64};
use crate::hash::Hasher;
use crate::ring::{Ring, RingRules};
use crate::scaling::Scaling;

/// The default number of buckets.
pub const BUCKETS: u32 = 8;
/// The fewest buckets.
pub const BUCKETS_MIN: u32 = 3;
/// The longest window, in seconds: about three hundred years.
pub const SECONDS_MAX: u64 = 10_000_000_000;

/// What defines a filter that forgets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowedSpec {
    /// The requested false positive rate, of all buckets together.
    pub rate: f64,
    /// The expected number of new items per window, or for ROLLING, the number of most recent items to remember; at least 1.
    pub capacity: u64,
    /// What happens when a bucket is full before its time.
    pub scaling: Scaling,
    /// How it hashes.
    pub hasher: Hasher,
    /// When it forgets an item.
    pub forgets: Forgets,
    /// The most live buckets, [`BUCKETS_MIN`] to [`BUCKETS_MAX`].
    pub buckets: u32,
}

/// A filter that forgets.
pub type WindowedFilter = Ring<WindowedSpec>;

impl RingRules for WindowedSpec {
    type Bucket = NativeSpec;

    fn is_sound(&self) -> bool {
        let forgets = match self.forgets {
            Forgets::After { seconds, .. } => (1..=SECONDS_MAX).contains(&seconds),
            Forgets::Rolling => self.scaling == Scaling::Fixed,
        };
        let whole = NativeSpec { rate: self.rate, ..self.bucket(1) };
        forgets && whole.check().is_ok() && self.capacity >= 1 && (BUCKETS_MIN..=BUCKETS_MAX).contains(&self.buckets)
    }

    fn forgets(&self) -> Forgets {
        self.forgets
    }

    fn hasher(&self) -> Hasher {
        self.hasher
    }

    fn buckets(&self) -> u32 {
        self.buckets
    }

    fn bucket_capacity(&self) -> u64 {
        self.capacity.div_ceil(u64::from(self.buckets.saturating_sub(1)).max(1))
    }

    /// A bucket gets its share of the ring's false positive rate. A ring states no policy: it has the first.
    fn bucket(&self, capacity: u64) -> NativeSpec {
        let rate = self.rate / to_f64(self.buckets.into());
        NativeSpec { rate, capacity, scaling: self.scaling, hasher: self.hasher, policy: Policy::One }
    }
}

impl WindowedSpec {
    /// Returns the definition for a request.
    pub(super) fn of(request: &Request, forgets: Forgets, hasher: Hasher) -> Self {
        let Request { rate, capacity, scaling, buckets, .. } = *request;
        let scaling = if forgets == Forgets::Rolling { Scaling::Fixed } else { scaling };
        Self { rate: taken_rate(rate), capacity, scaling, hasher, forgets, buckets: buckets.unwrap_or(BUCKETS) }
    }

    /// See [`Spec::plan`](super::Spec::plan). With a window, plans the whole ring, for new items that arrive evenly, `items`
    /// per window. For ROLLING, plans as many buckets as the ring has after `items` items.
    pub(super) fn plan(&self, items: Option<u64>) -> Result<Plan, Error> {
        let (buckets, capacity) = (u64::from(self.buckets), self.bucket_capacity());
        let (live, wanted) = match (self.forgets, items) {
            (_, None) => (buckets, capacity),
            (Forgets::Rolling, Some(items)) => (items.div_ceil(capacity).clamp(1, buckets), capacity),
            (Forgets::After { .. }, Some(items)) => (buckets, items.div_ceil(buckets.saturating_sub(1).max(1))),
        };
        if wanted > capacity && self.scaling == Scaling::Fixed {
            return Err(Error::Full);
        }
        Plan::of_chain(&self.bucket(capacity.max(wanted)), None)?.repeated(live)
    }

    /// See [`Spec::spell`](super::Spec::spell). The first bucket is replicated separately.
    pub(super) fn spell(&self, mut say: impl FnMut(EffectWord<'_>)) -> &'static CStr {
        use EffectWord::{Bytes, Text};
        let Self { rate, capacity, scaling, hasher, forgets, buckets } = *self;
        say_all(&mut say, &[Bytes(b"CAPACITY"), Text(&capacity), Bytes(b"ERROR"), Text(&rate)]);
        match forgets {
            Forgets::After { seconds, is_sliding } => {
                say_scaling(scaling, &mut say);
                say_all(&mut say, &[Bytes(b"WINDOW"), Text(&seconds)]);
                if is_sliding {
                    say(Bytes(b"SLIDING"));
                }
            }
            Forgets::Rolling => say(Bytes(b"ROLLING")),
        }
        say_all(&mut say, &[Bytes(b"BUCKETS"), Text(&buckets)]);
        say_hasher(hasher, &mut say);
        c"BF.INSERT"
    }
}
