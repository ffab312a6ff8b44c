//! Which node of a cluster holds which keys.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use redis::{Value, from_redis_value};

/// The number of hash slots in a cluster.
const SLOTS: u16 = 16_384;

/// The address of a node, `HOST:PORT`.
pub type Address = String;

/// The nodes that hold the slots of a cluster.
#[derive(Debug, Default)]
pub struct Slots {
    /// Ranges by their last slot: the first slot and the node.
    runs: BTreeMap<u16, (u16, Address)>,
}

impl Slots {
    /// Parses the reply to CLUSTER SLOTS. A node without an address is the one that replied.
    ///
    /// # Errors
    /// The reply has another form.
    pub fn of_reply(reply: Value, asked_host: &str) -> Result<Self> {
        let mut runs = BTreeMap::new();
        let Value::Array(rows) = reply else { bail!("the reply to CLUSTER SLOTS is not a list") };
        for row in rows {
            let Value::Array(fields) = row else { bail!("the reply to CLUSTER SLOTS has a range that is not a list") };
            let mut fields = fields.into_iter();
            let (Some(first), Some(last), Some(Value::Array(node))) = (fields.next(), fields.next(), fields.next())
            else {
                bail!("the reply to CLUSTER SLOTS has a range without a node");
            };
            let (Some(host), Some(port)) = (node.first().cloned(), node.get(1).cloned()) else {
                bail!("the reply to CLUSTER SLOTS has a node without an address");
            };
            let host: Option<String> = from_redis_value(host)?;
            let host = host.filter(|host| !host.is_empty()).unwrap_or_else(|| asked_host.to_owned());
            let port: u16 = from_redis_value(port)?;
            runs.insert(from_redis_value(last)?, (from_redis_value(first)?, format!("{host}:{port}")));
        }
        Ok(Self { runs })
    }

    /// Returns the node that holds a slot.
    pub fn node(&self, slot: u16) -> Option<&Address> {
        self.runs.range(slot..).next().filter(|(_, (first, _))| *first <= slot).map(|(_, (_, node))| node)
    }

    /// Returns every node that holds slots, once.
    pub fn nodes(&self) -> Vec<Address> {
        let mut nodes: Vec<_> = self.runs.values().map(|(_, node)| node.clone()).collect();
        nodes.sort();
        nodes.dedup();
        nodes
    }
}

/// Returns the slot of a key, or of its hash tag: the text between its first `{` and the next `}`, unless that is empty.
pub fn slot(key: &[u8]) -> u16 {
    crc16::State::<crc16::XMODEM>::calculate(tag(key)) % SLOTS
}

fn tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else { return key };
    let after = key.get(open + 1..).unwrap_or_default();
    match after.iter().position(|byte| *byte == b'}') {
        Some(length) if length > 0 => after.get(..length).unwrap_or_default(),
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
        let run = |first, last, node| Value::Array(vec![Value::Int(first), Value::Int(last), node]);
        let reply = Value::Array(vec![run(0, 99, node("a", 1)), run(200, 16_383, node("", 2))]);
        let slots = Slots::of_reply(reply, "asked").unwrap();
        assert_eq!(slots.node(0).unwrap(), "a:1");
        assert_eq!((slots.node(99).is_some(), slots.node(100), slots.node(199)), (true, None, None));
        assert_eq!(slots.node(16_383).unwrap(), "asked:2");
        assert_eq!(slots.nodes(), ["a:1", "asked:2"]);
    }
}
