//! The questions that are asked before a filter gets larger: may it have the memory, may it have another layer?

use crate::error::Error;

/// The longest chain that a client may make: a filter with so many layers takes no item for which it would need another.
///
/// An item that is absent is looked for in every layer, so the longest chain is what bounds the work of a command for
/// each of its items. Microseconds of a BF.MEXISTS with 100 absent items, in layers of 100 items at 1% (EXPANSION 1) on
/// Redis 7.0.15, and the same in RedisBloom 8 itself:
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
/// Whoever has layers of one size needs as many as RedisBloom gave: there a chain ends where its rate, halved from layer to
/// layer, is no number any more, after 1067 layers at 1% and never after more than 1074; valkey-bloom's end after 1022 at
/// its usual ratio. None of these ends earlier here, and a lookup costs no more than at the end of RedisBloom's chains.
pub const CLIENT_LAYERS_MAX: usize = 1100;

/// Says how large a filter may become for whoever asks. It is asked before the allocator is, because under overcommit an
/// allocation that succeeds proves nothing.
pub trait Ceiling {
    /// Bytes that a filter of `filter_bytes` (0: a new one), which wants `asked_bytes` more, may still have. Both are
    /// counted as [`Chain::size_bytes`](crate::chain::Chain::size_bytes) counts.
    fn available_bytes(&self, filter_bytes: u64, asked_bytes: u64) -> u64;

    /// The number of layers that a filter may come to have; by default as many as its layout allows.
    fn layers_max(&self) -> usize {
        usize::MAX
    }

    /// From how many bytes on a layer of our own bits keeps new adds in memory of their own for a while, rather than to write
    /// the layer; nothing where every add is written at once. By default nothing.
    fn pending_from_bytes(&self) -> Option<u64> {
        None
    }

    /// Asks for `asked_bytes` that a filter of `filter_bytes` is to have more.
    ///
    /// # Errors
    /// [`Error::AboveCeiling`].
    fn allow(&self, filter_bytes: u64, asked_bytes: u64) -> Result<(), Error> {
        let available_bytes = self.available_bytes(filter_bytes, asked_bytes);
        if asked_bytes > available_bytes { Err(Error::AboveCeiling { asked_bytes, available_bytes }) } else { Ok(()) }
    }
}

/// No ceiling: only the allocator and the layout can refuse.
#[derive(Clone, Copy, Debug)]
pub struct Unlimited;

impl Ceiling for Unlimited {
    fn available_bytes(&self, _filter_bytes: u64, _asked_bytes: u64) -> u64 {
        u64::MAX
    }
}

/// A size and a length that no filter grows beyond.
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
