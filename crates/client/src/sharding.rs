//! The location of the items of a sharded filter, which is the same for all clients of the project.
//!
//! A sharded filter NAME with n shards is n filters at the keys `NAME:{0}` to `NAME:{n-1}`, and n in decimal at `NAME:shards`.
//! The braces are part of the key: shard i of every sharded filter is in the slot of "i".

use crate::Error;

/// The maximum number of shards of a filter.
pub const MOST_SHARDS: u32 = 16384;

/// Returns the shard of an item: the CRC-32 of its bytes (ISO 3309, as in zlib) modulo the number of shards.
///
/// ```
/// assert_eq!(bloomgate_client::sharding::shard_of(b"a", 7), 4);
/// ```
pub fn shard_of(item: &[u8], shards: u32) -> u32 {
    crc32fast::hash(item).checked_rem(shards).unwrap_or_default()
}

/// Returns the key of a shard.
pub fn shard_key(name: &[u8], shard: u32) -> Vec<u8> {
    [name, format!(":{{{shard}}}").as_bytes()].concat()
}

/// Returns the key that holds the number of shards.
pub fn count_key(name: &[u8]) -> Vec<u8> {
    [name, b":shards"].concat()
}

/// Returns the capacity of one shard: its part plus four standard deviations, so that shards do not fill early by chance.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
pub fn shard_capacity(capacity: u64, shards: u32) -> u64 {
    let part = capacity as f64 / f64::from(shards);
    (part + 4.0 * part.sqrt()).ceil() as u64
}

/// Checks a number of shards.
pub(crate) fn check_shards(shards: u32) -> Result<u32, Error> {
    if (1..=MOST_SHARDS).contains(&shards) {
        return Ok(shards);
    }
    Err(Error::Refused(format!("a sharded filter must have 1 to {MOST_SHARDS} shards, not {shards}")))
}
