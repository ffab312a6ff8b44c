//! Tokens: a stamp, the time of the grant, and a hash of both and of the row.

use super::hash;
use super::load_times::Tick;
use super::row::{KeyId, Row, Stamp};
use crate::context::Context;

/// A caller's credential for BF.FILL: the stamp, the time of the grant, and a hash of both and of the row. So the token is invalid for any
/// other row, filter or server.
pub type Token = u128;

/// The bits of a stamp in a token, which are enough for years. The time of the grant is above them.
const STAMP_BITS: u32 = 48;

pub(super) fn token(context: Context, row: &Row, stamp: Stamp, granted: Tick) -> Token {
    let Row { key: KeyId([first, second]), item, instance, .. } = *row;
    let stamp = stamp | u64::from(granted) << STAMP_BITS;
    let bytes = [stamp, first, second, item, instance].map(u64::to_le_bytes);
    let [tag, _] = hash(context, bytes.as_flattened());
    Token::from(stamp) << u64::BITS | Token::from(tag)
}

pub(super) const fn stamp(token: Token) -> Stamp {
    (token >> u64::BITS) as Stamp & ((1 << STAMP_BITS) - 1)
}

/// The time of the grant.
pub(super) const fn granted(token: Token) -> Tick {
    (token >> (u64::BITS + STAMP_BITS)) as Tick
}
