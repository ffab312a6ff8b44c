//! The names of a guard's other keys, in the filter's cluster slot.

use crate::Error;

/// Returns a prefix of key names in the cluster slot of the filter. Its hash tag is the text between the first `{` and the next
/// `}`, or else the whole name.
fn in_slot_of(filter: &[u8]) -> Result<Vec<u8>, Error> {
    let mut parts = filter.splitn(2, |byte| *byte == b'{').skip(1);
    let closed = parts.next().and_then(|rest| rest.iter().position(|byte| *byte == b'}'));
    if closed.is_some_and(|length| length > 0) {
        return Ok(filter.to_vec());
    }
    if filter.contains(&b'}') {
        let shown = filter.escape_ascii();
        return Err(Error::Refused(format!("no other key shares the slot of `{shown}`: rename the filter")));
    }
    Ok([b"{", filter, b"}"].concat())
}

/// Returns the prefix of cache keys.
///
/// # Errors
/// No other key shares the filter's slot, for example if its name is `users}`.
///
/// ```
/// assert_eq!(bloomgate_client::keys::cache_prefix(b"users").unwrap(), b"{users}:");
/// ```
pub fn cache_prefix(filter: &[u8]) -> Result<Vec<u8>, Error> {
    Ok([&in_slot_of(filter)?, b":".as_slice()].concat())
}

/// Returns the name under which a filter is filled. No cache key has this name.
///
/// # Errors
/// As [`cache_prefix`].
pub fn filling_name(filter: &[u8]) -> Result<Vec<u8>, Error> {
    Ok([&in_slot_of(filter)?, b"~filling".as_slice()].concat())
}

/// The keys that `bloomgate follow` uses for a filter; crates/follow/src/config.rs defines their names.
pub(crate) struct FeedKeys {
    pub heartbeat: Vec<u8>,
    pub in_flight: Vec<u8>,
}

impl FeedKeys {
    pub fn of(filter: &[u8]) -> Result<Self, Error> {
        let base = in_slot_of(filter)?;
        let named = |end: &[u8]| [&base, end].concat();
        Ok(Self { heartbeat: named(b":feed"), in_flight: named(b":feed:open") })
    }
}
