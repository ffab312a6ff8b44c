//! Supplied by callers: the time, and the limits of memory and layers, which are checked before a filter grows. The crate itself reads no
//! clock.

use crate::error::Error;

/// The maximum number of layers of filters created by clients. A filter of this length refuses items that would require another layer.
///
/// An absent item is looked up in every layer, so the longest chain bounds the work of a command per item. Microseconds for a
/// BF.MEXISTS of 100 absent items, in layers of 100 items at 1% (EXPANSION 1) on Redis 7.0.15, and for RedisBloom 8 itself:
///
/// | layers | native | RedisBloom's layout | valkey-bloom's, ratio 0.5 | ratio 0.99 | RedisBloom |
/// |-------:|-------:|--------------------:|--------------------------:|-----------:|-----------:|
/// |     64 |     51 |                 124 |                       129 |        100 |        127 |
/// |    128 |    111 |                 245 |                       255 |        185 |        269 |
/// |    256 |    239 |                 647 |                       547 |        369 |        555 |
/// |    512 |    490 |                1178 |                      1202 |        795 |       1317 |
/// |   1024 |   1038 |                2933 |           2840 (of 1016) |       1744 |       3907 |
/// |   4096 |   4711 |                   - |                         - |       7881 |          - |
///
/// This limit is no lower than the ones of RedisBloom and valkey-bloom. RedisBloom's chains end when the rate, halved from
/// layer to layer, underflows: after 1067 layers at 1% and never after more than 1074. valkey-bloom's end after 1022 at the
/// usual ratio. Lookups here are no slower than at the end of RedisBloom's longest chains.
pub const CLIENT_LAYERS_MAX: usize = 1100;

/// Limits the size of a filter. The limit is checked before allocation, because with overcommit a successful allocation proves nothing.
pub trait Ceiling {
    /// Returns how many more bytes a filter of `filter_bytes` (0: a new one) may have when it requests `asked_bytes`. Both are counted like
    /// [`Filter::size_bytes`](crate::Filter::size_bytes).
    fn available_bytes(&self, filter_bytes: u64, asked_bytes: u64) -> u64;

    /// Whether bytes that the allocator adds by rounding count as requested; by default, they do not.
    fn counts_rounding(&self) -> bool {
        false
    }

    /// The maximum number of layers of a filter; by default, as many as its layout allows.
    fn layers_max(&self) -> usize {
        usize::MAX
    }

    /// The size in bytes from which native layers of bits keep new adds pending instead of writing them at once; by default,
    /// none do.
    fn pending_from_bytes(&self) -> Option<u64> {
        None
    }

    /// Whether pending adds may take this much more memory, in bytes. Called for each batch of adds that may be pending.
    fn has_room_to_pend(&self, _more_bytes: u64) -> bool {
        true
    }

    /// Requests `asked_bytes` more for a filter of `filter_bytes`.
    fn allow(&self, filter_bytes: u64, asked_bytes: u64) -> Result<(), Error> {
        self.allow_blocks(filter_bytes, asked_bytes, 0)
    }

    /// Requests `asked_bytes` in large blocks, to which the allocator adds `rounding_bytes`.
    fn allow_blocks(&self, filter_bytes: u64, asked_bytes: u64, rounding_bytes: u64) -> Result<(), Error> {
        let rounding_bytes = if self.counts_rounding() { rounding_bytes } else { 0 };
        let asked_bytes = asked_bytes.saturating_add(rounding_bytes);
        let available_bytes = self.available_bytes(filter_bytes, asked_bytes);
        if asked_bytes > available_bytes { Err(Error::AboveCeiling { asked_bytes, available_bytes }) } else { Ok(()) }
    }
}

/// No limit: only the allocator and the layout can refuse.
#[derive(Clone, Copy, Debug)]
pub struct Unlimited;

impl Ceiling for Unlimited {
    fn available_bytes(&self, _filter_bytes: u64, _asked_bytes: u64) -> u64 {
        u64::MAX
    }
}

/// Limits of size and length.
#[cfg(test)]
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) size_bytes: u64,
    pub(crate) layers: usize,
}

#[cfg(test)]
impl Ceiling for Limits {
    fn available_bytes(&self, filter_bytes: u64, _asked_bytes: u64) -> u64 {
        self.size_bytes.saturating_sub(filter_bytes)
    }

    fn layers_max(&self) -> usize {
        self.layers
    }
}

/// A moment, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub u64);

/// A source of time. Most filters never use it. It must return the same time throughout a command.
pub trait Clock {
    /// Returns the time.
    fn now(&self) -> Moment;
}

/// A stopped clock.
impl Clock for Moment {
    fn now(&self) -> Self {
        *self
    }
}
