//! Compares both servers with each other and with the model.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use super::commands::{Words, cache_key, item_name, key_name};
use super::driver::Driver;
use super::filter::{Filter, Item};
use super::model::{KEYS, Slot};
use super::replies::check_members;
use crate::fleet::assert_equal;
use testing::{Connection, Reply};

impl Driver<'_> {
    /// Compares both servers with each other and with the model.
    pub fn check(&mut self) {
        self.trail.line("a check");
        self.pair.link();
        self.model.confirmed();
        let mut replica = self.pair.replica();
        assert_equal("primary and replica", &mut self.pair.client, &mut replica);
        self.check_server("the replica", &mut replica);
        let mut primary = self.pair.connect();
        self.check_server("the primary", &mut primary);
        self.counts.checks += 1;
    }

    fn check_server(&mut self, who: &str, client: &mut Connection) {
        for key in 0..KEYS {
            let name = key_name(key);
            match &mut self.model.slots[key] {
                Slot::Filter(filter) => {
                    if let Err(fault) = check_filter(client, &name, filter) {
                        panic!("{who}, {}: {fault}", name.escape_ascii());
                    }
                    self.counts.verified += filter.items().count();
                }
                Slot::Arriving(_) => assert!(client.call(&[b"BF.EXISTS", name.as_slice(), b"item:1"]).is_error()),
                _ => {
                    assert_eq!(client.call(&[b"EXISTS", name.as_slice()]).number(), 0, "{who}, {}", name.escape_ascii())
                }
            }
        }
        for (key, item) in self.model.cache_keys() {
            let reply = client.call(&[b"GET".to_vec(), cache_key(key, item)]);
            let value = (reply != Reply::NullBulk).then(|| reply.text().parse().expect("a number"));
            let values = self.model.cached(key, item);
            assert!(values.contains(&value), "{who}: cache:{key}:{item} is {value:?}, not one of {values:?}");
        }
    }
}

/// Returns the type, digest and expiry time of each key.
pub fn contents(client: &mut Connection) -> BTreeMap<Vec<u8>, [Reply; 3]> {
    let commands: [&[&[u8]]; 3] = [&[b"TYPE"], &[b"DEBUG", b"DIGEST-VALUE"], &[b"PEXPIRETIME"]];
    let keys = client.run("KEYS *");
    let keys = keys.elements().iter().map(|key| key.bytes().to_vec());
    keys.map(|key| {
        let replies = commands.map(|command| client.call(&[command, &[&key]].concat()));
        (key, replies)
    })
    .collect()
}

/// The number of lookups of items that are never added.
const STRANGERS: Range<Item> = 60_000..60_200;

/// Looks up every item that was added to a filter, and some that were not.
fn check_filter(client: &mut Connection, name: &[u8], filter: &mut Filter) -> Result<(), String> {
    let items: Vec<Item> = filter.items().chain(STRANGERS).collect();
    for items in items.chunks(500) {
        let names = items.iter().map(|&item| item_name(item));
        let line: Words = [b"BF.MEXISTS".to_vec(), name.to_vec()].into_iter().chain(names).collect();
        let sent = Instant::now();
        check_members(filter, items, &client.call(&line), sent)?;
    }
    let card = client.call(&[b"BF.CARD", name]).number();
    match filter.card {
        _ if filter.shape.forgets() => {}
        Some(expected) if expected.max(0) != card => return Err(format!("BF.CARD is {card}, not {expected}")),
        // After a command without a reply, the model learns the value from the server. A 0 may hide a negative count.
        None if card > 0 => filter.card = Some(card),
        _ => {}
    }
    Ok(())
}
