//! A collection of filters of every shape, and everything that a client can see of them: what has to be the same after a
//! restart, a copy, a migration or on a replica.

use crate::harness::{Connection, Reply, integer, ok};

/// One filter: its key and the items that were added.
struct Animal {
    key: Vec<u8>,
    members: Vec<String>,
}

/// The filters of one server.
pub struct Zoo {
    animals: Vec<Animal>,
    strangers: Vec<String>,
}

/// What a client sees of one filter.
#[derive(Clone, PartialEq)]
pub struct View {
    key: Vec<u8>,
    /// The answer for each stranger; members are checked when the view is taken.
    strangers: Vec<bool>,
    /// BF.INFO without `Size`: an allocator may place a copy better than the original.
    capacity: Reply,
    layers: Reply,
    items: Reply,
    expansion: Reply,
    card: Reply,
    digest: Reply,
    expires_at_ms: Reply,
}

/// How each filter is made: key, the words of BF.RESERVE after the key, number of items.
const PLANS: [(&[u8], &str, usize); 22] = [
    (b"empty", "0.01 100", 0),
    (b"one-item", "0.01 1 NONSCALING", 1),
    (b"fixed", "0.01 5000 NONSCALING", 3000),
    (b"fixed-full", "0.001 1000 NONSCALING", 1000),
    (b"defaults", "0.01 100", 99),
    (b"grown", "0.01 100", 5000),
    (b"grown-far", "0.01 1000 EXPANSION 1", 20_000),
    (b"grown-fast", "0.05 2 EXPANSION 100", 3000),
    (b"tiny-rate", "1e-12 1000", 2500),
    (b"loose-rate", "0.25 1000 SEED 0", 2500),
    (b"page-and-more", "0.0001 70000 NONSCALING SEED 4294967295", 20_000),
    // 64 MiB of bits, nearly all of them zero.
    (b"sparse", "0.01 55500000 NONSCALING", 1000),
    (b"huge-empty", "0.01 55500000", 0),
    (b"keyed", "0.001 1000 HASH siphash", 5000),
    (b"windowed", "0.01 1000 WINDOW 100000000", 3000),
    (b"windowed-fixed", "0.001 7000 WINDOW 100000000 NONSCALING BUCKETS 3", 3000),
    (b"sliding-keyed", "0.01 1000 WINDOW 100000000 SLIDING HASH siphash BUCKETS 64", 3000),
    (b"rolling", "0.01 5000 ROLLING", 3000),
    (b"rolling-keyed", "1e-6 100000 ROLLING HASH siphash", 20_000),
    (b"counting", "0.01 5000 COUNTING", 3000),
    (b"counting-full", "0.001 1000 COUNTING", 1000),
    (b"counting-keyed", "1e-6 300000 COUNTING HASH siphash", 3000),
];

/// Keys that are no text, and one with a time to live.
const ODD_KEYS: [&[u8]; 4] = [b"", b"\0\xff\r\n", "\u{43a}\u{43b}\u{44e}\u{447}-\u{1f338}".as_bytes(), b"with-ttl"];

/// Some time in 2100.
pub const EXPIRES_AT_MS: i64 = 4_102_444_800_123;

impl Zoo {
    /// Creates all filters in the connection's database.
    pub fn build(client: &mut Connection) -> Self {
        let mut animals = Vec::new();
        for (key, words, count) in PLANS {
            let mut command: Vec<&[u8]> = vec![b"BF.RESERVE", key];
            command.extend(words.split(' ').map(str::as_bytes));
            assert_eq!(client.call(&command), ok(), "{words}");
            animals.push(Animal::fill(client, key, count));
        }
        for key in ODD_KEYS {
            animals.push(Animal::fill(client, key, 150));
        }
        assert_eq!(client.run(&format!("PEXPIREAT with-ttl {EXPIRES_AT_MS}")), integer(1));
        let strangers = (0..20_000).map(|number| format!("stranger/{number}")).collect();
        Self { animals, strangers }
    }

    /// Looks at every filter.
    pub fn view(&self, client: &mut Connection) -> Vec<View> {
        self.animals.iter().map(|animal| self.view_of(client, &animal.key, &animal.key)).collect()
    }

    /// Looks at the filter at `at` as if it were the one at `key`.
    pub fn view_of(&self, client: &mut Connection, key: &[u8], at: &[u8]) -> View {
        let animal = self.animals.iter().find(|animal| animal.key == key).expect("a key of the zoo");
        let known = client.batched(&[b"BF.MEXISTS", at], &animal.members);
        let lost = known.iter().filter(|&&present| !present).count();
        assert_eq!(lost, 0, "{} of {} members are gone from {}", lost, known.len(), key.escape_ascii());
        let info = client.call(&[b"BF.INFO", at]);
        View {
            key: key.to_vec(),
            strangers: client.batched(&[b"BF.MEXISTS", at], &self.strangers),
            capacity: info.field("Capacity").clone(),
            layers: info.field("Number of filters").clone(),
            items: info.field("Number of items inserted").clone(),
            expansion: info.field("Expansion rate").clone(),
            card: client.call(&[b"BF.CARD", at]),
            digest: client.call(&[b"DEBUG".as_slice(), b"DIGEST-VALUE", at]),
            expires_at_ms: client.call(&[b"PEXPIRETIME", at]),
        }
    }

    /// All keys.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.animals.iter().map(|animal| animal.key.as_slice())
    }
}

impl Animal {
    fn fill(client: &mut Connection, key: &[u8], count: usize) -> Self {
        let members: Vec<String> = (0..count).map(|number| format!("https://example.org/member/{number}")).collect();
        client.batched(&[b"BF.MADD", key], &members);
        Self { key: key.to_vec(), members }
    }
}

/// Panics with the first difference between two views of the zoo.
pub fn assert_same(occasion: &str, before: &[View], after: &[View]) {
    assert_eq!(before.len(), after.len(), "{occasion}: number of filters");
    for (old, new) in before.iter().zip(after) {
        let key = old.key.escape_ascii();
        assert!(!old.digest.is_error(), "{occasion}: {key}: {:?}", old.digest);
        for (what, old, new) in [
            ("capacity", &old.capacity, &new.capacity),
            ("number of layers", &old.layers, &new.layers),
            ("number of items", &old.items, &new.items),
            ("expansion", &old.expansion, &new.expansion),
            ("BF.CARD", &old.card, &new.card),
            ("time to live", &old.expires_at_ms, &new.expires_at_ms),
            ("digest", &old.digest, &new.digest),
        ] {
            assert_eq!(old, new, "{occasion}: {what} of {key} changed");
        }
        let changed = old.strangers.iter().zip(&new.strangers).filter(|(old, new)| old != new).count();
        assert_eq!(changed, 0, "{occasion}: {changed} answers of {key} changed");
    }
}
