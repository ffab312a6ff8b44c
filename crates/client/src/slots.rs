//! The nodes of a cluster that hold keys. Public, because programs that manage filters on many nodes, such as the command-line
//! tool, have their own connections.

use std::collections::{BTreeMap, BTreeSet};

use redis::Value;

use crate::Error;
use crate::replies::{bytes, integer, unexpected};

/// The number of hash slots in a cluster.
const SLOTS: u16 = 16_384;

/// A node's host and port.
pub type Address = (String, u16);

/// The nodes that hold the slots of a cluster.
///
/// ```
/// use bloomgate_client::slots::Slots;
/// use redis::Value;
///
/// let node = Value::Array(vec![Value::BulkString(b"10.0.0.7".to_vec()), Value::Int(6379)]);
/// let reply = Value::Array(vec![Value::Array(vec![Value::Int(0), Value::Int(16_383), node])]);
/// let slots = Slots::read(&reply, "10.0.0.1")?;
/// assert_eq!(slots.node(b"users"), Some(&("10.0.0.7".to_owned(), 6379)));
/// # Ok::<(), bloomgate_client::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Slots {
    /// The first slot and the node of each range, by its last slot.
    ranges: BTreeMap<u16, (u16, Address)>,
}

impl Slots {
    /// Reads the reply to CLUSTER SLOTS. A node without a host is the node that replied.
    ///
    /// # Errors
    /// The reply has another form.
    pub fn read(reply: &Value, asked_host: &str) -> Result<Self, Error> {
        let Value::Array(rows) = reply else { return Err(unexpected(reply)) };
        let read = |row: &Value| {
            let Value::Array(fields) = row else { return None };
            let [first, last, Value::Array(node), ..] = fields.as_slice() else { return None };
            let [host, port, ..] = node.as_slice() else { return None };
            let host = bytes(host).and_then(|host| std::str::from_utf8(host).ok()).and_then(known_host);
            let host = host.unwrap_or(asked_host).to_owned();
            let number = |value| integer(value).and_then(|number| u16::try_from(number).ok());
            Some((number(last)?, (number(first)?, (host, number(port)?))))
        };
        let ranges: Option<_> = rows.iter().map(read).collect();
        Ok(Self { ranges: ranges.ok_or_else(|| unexpected(reply))? })
    }

    /// Returns the node that holds the slot of a key.
    pub fn node(&self, key: &[u8]) -> Option<&Address> {
        let slot = slot(key);
        self.ranges.range(slot..).next().filter(|(_, (first, _))| *first <= slot).map(|(_, (_, node))| node)
    }

    /// Returns the number of unassigned slots.
    pub fn unassigned(&self) -> u16 {
        self.ranges.iter().fold(SLOTS, |left, (last, (first, _))| left.saturating_sub(last.saturating_sub(*first) + 1))
    }

    /// Returns each node that holds slots once, in order.
    pub fn nodes(&self) -> impl Iterator<Item = &Address> {
        self.ranges.values().map(|(_, node)| node).collect::<BTreeSet<_>>().into_iter()
    }
}

/// Returns a host, unless the node reports it as unknown.
pub(crate) fn known_host(host: &str) -> Option<&str> {
    (!["", "?"].contains(&host)).then_some(host)
}

/// Returns the slot of a key, or of its hash tag: the bytes between its first `{` and the next `}`, unless there are none. Keys
/// with the same slot can be in one command.
///
/// ```
/// use bloomgate_client::slots::slot;
///
/// assert_eq!(slot(b"{users}:7"), slot(b"users"));
/// ```
pub fn slot(key: &[u8]) -> u16 {
    crc16::State::<crc16::XMODEM>::calculate(tag(key)) % SLOTS
}

fn tag(key: &[u8]) -> &[u8] {
    let mut parts = key.splitn(2, |byte| *byte == b'{').skip(1);
    let rest = parts.next().unwrap_or_default();
    match rest.iter().position(|byte| *byte == b'}') {
        Some(length) if length > 0 => rest.get(..length).unwrap_or_default(),
        _ => key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_match_the_cluster_specification() {
        // The check value of the specification, and replies of `CLUSTER KEYSLOT`.
        assert_eq!(crc16::State::<crc16::XMODEM>::calculate(b"123456789"), 0x31c3);
        assert_eq!([slot(b"foo"), slot(b"a{foo}b"), slot(b"{}foo"), slot(b"{foo")], [12182, 12182, 9500, 13308]);
    }

    #[test]
    fn an_unassigned_slot_has_no_node() {
        let node = |host: &str, port| Value::Array(vec![Value::BulkString(host.into()), Value::Int(port)]);
        let range = |first, last, node| Value::Array(vec![Value::Int(first), Value::Int(last), node]);
        let reply = Value::Array(vec![range(0, 12_181, node("a", 1)), range(12_182, 12_182, node("", 2))]);
        let slots = Slots::read(&reply, "asked").unwrap();
        // Their slots are 12182, 9500 and 13308.
        assert_eq!(slots.node(b"foo"), Some(&("asked".to_owned(), 2)));
        assert_eq!(slots.node(b"{}foo"), Some(&("a".to_owned(), 1)));
        assert_eq!((slots.node(b"{foo"), slots.unassigned()), (None, SLOTS - 12_183));
        assert!(slots.nodes().eq(&[("a".to_owned(), 1), ("asked".to_owned(), 2)]));
    }
}
