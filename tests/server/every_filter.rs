//! A table with a filter of every kind and layout, in every possible state, and a view of everything that a client can see of each. Laws
//! for all filters use this table: restarts, copies, migrations and replicas must not change a filter.

use crate::golden;
use testing::{Connection, Reply, digest, dump, integer, ok, restore, value_of};

/// One filter: its key and its members after creation.
struct Animal {
    key: Vec<u8>,
    members: Vec<String>,
    life: Life,
}

/// The filters of one server.
pub struct EveryFilter {
    animals: Vec<Animal>,
    strangers: Vec<String>,
}

/// What a client sees of one filter.
#[derive(Clone)]
pub struct View {
    key: Vec<u8>,
    /// Whether each member, and each of some absent items, is reported present.
    answers: Vec<bool>,
    /// The payload of a filter that is not large.
    payload: Vec<u8>,
    facts: Vec<(String, Reply)>,
}

/// What happens to a filter after its creation.
#[derive(Clone, Copy, PartialEq)]
enum Life {
    /// Adds of new items.
    Adds(usize),
    /// Adds of new items in four rounds, with BF.ROTATE between them.
    Turns(usize),
    /// Adds, BF.ROTATE, then adds of half of the items again, which a sliding ring renews in its new bucket.
    Renewals(usize),
    /// Adds, then deletes of a tenth of the items, half of which are added again.
    Deletes(usize),
    /// Adds of items that are members already, and deletes that count down.
    Counts(usize),
}

use Life::{Adds, Counts, Deletes, Renewals, Turns};

/// How each filter is created: its key, the options of BF.RESERVE after the key, and the commands that follow. BF.INSERT creates filters
/// with TIGHTENING.
const PLANS: [(&str, &str, Life); 55] = [
    ("empty", "0.01 100", Adds(0)),
    ("one-item", "0.01 1 NONSCALING", Adds(1)),
    ("fixed", "0.01 5000 NONSCALING", Adds(3000)),
    ("fixed-full", "0.001 1000 NONSCALING", Adds(1000)),
    ("defaults", "0.01 100", Adds(99)),
    ("grown", "0.01 100", Adds(5000)),
    ("grown-far", "0.01 1000 EXPANSION 1", Adds(20_000)),
    ("grown-fast", "0.05 2 EXPANSION 100", Adds(3000)),
    ("tiny-rate", "1e-12 1000", Adds(2500)),
    ("loose-rate", "0.25 1000 SEED 0", Adds(2500)),
    ("page-and-more", "0.0001 70000 NONSCALING SEED 4294967295", Adds(20_000)),
    // 64 MiB of bits, nearly all of them zero.
    ("sparse", "0.01 55500000 NONSCALING", Adds(1000)),
    ("huge-empty", "0.01 55500000", Adds(0)),
    ("keyed", "0.001 1000 HASH siphash", Adds(5000)),
    ("windowed", "0.01 1000 WINDOW 100000000", Adds(3000)),
    ("windowed-fixed", "0.001 7000 WINDOW 100000000 NONSCALING BUCKETS 3", Adds(3000)),
    ("sliding-keyed", "0.01 1000 WINDOW 100000000 SLIDING HASH siphash BUCKETS 64", Adds(3000)),
    ("rolling", "0.01 5000 ROLLING", Adds(3000)),
    ("rolling-keyed", "1e-6 100000 ROLLING HASH siphash", Adds(20_000)),
    ("turned-fixed", "0.001 400 WINDOW 100000000 NONSCALING BUCKETS 5", Turns(280)),
    ("turned-growing", "0.001 400 WINDOW 100000000 EXPANSION 2", Turns(280)),
    ("turned-sliding", "0.001 400 WINDOW 100000000 SLIDING HASH siphash", Turns(280)),
    ("turned-rolling", "0.001 400 ROLLING BUCKETS 4", Turns(280)),
    ("renewed", "0.001 2000 WINDOW 100000000 SLIDING", Renewals(600)),
    ("renewed-keyed", "0.001 2000 WINDOW 100000000 SLIDING HASH siphash BUCKETS 3", Renewals(600)),
    ("counting", "0.01 5000 COUNTING", Adds(3000)),
    ("counting-full", "0.001 1000 COUNTING", Adds(1000)),
    ("counting-keyed", "1e-6 300000 COUNTING HASH siphash", Adds(3000)),
    ("counted", "0.01 100000 COUNTING", Counts(600)),
    ("counted-keyed", "0.001 300000 COUNTING HASH siphash", Counts(600)),
    ("counted-full", "0.2 40 COUNTING", Counts(60)),
    ("cuckoo", "0.01 5000 CUCKOO", Adds(3000)),
    ("cuckoo-grown", "0.05 20 CUCKOO EXPANSION 4", Counts(600)),
    ("cuckoo-keyed", "1e-6 3000 CUCKOO NONSCALING HASH siphash", Counts(600)),
    ("cuckoo-large", "0.001 1000000 CUCKOO", Counts(20_000)),
    ("deleted-fixed", "0.01 5000 NONSCALING HASH siphash", Deletes(2000)),
    ("deleted-grown", "0.01 10 EXPANSION 2 HASH siphash", Deletes(2000)),
    ("deleted-windowed", "0.01 20000 HASH siphash WINDOW 100000000", Deletes(300)),
    ("deleted-sliding", "0.01 20000 HASH siphash WINDOW 100000000 SLIDING BUCKETS 3", Deletes(300)),
    ("deleted-rolling", "0.01 20000 HASH siphash ROLLING", Deletes(300)),
    // Thousands of entries in the table of deleted items.
    ("deleted-many", "0.01 100000 HASH siphash", Deletes(50_000)),
    ("redisbloom-grown", "0.001 10 EXPANSION 3 LAYOUT redisbloom", Adds(1500)),
    ("redisbloom-fixed", "0.1 100 NONSCALING LAYOUT redisbloom", Adds(60)),
    ("redisbloom-tiny-rate", "1e-300 3 LAYOUT redisbloom", Adds(60)),
    ("redisbloom-odd-rate", "0.012345678901234567 3 LAYOUT redisbloom", Adds(60)),
    ("redisbloom-loose", "0.9 3 LAYOUT redisbloom", Adds(60)),
    ("redisbloom-empty", "0.01 100 LAYOUT redisbloom", Adds(0)),
    ("valkey-bloom-grown", "TIGHTENING 0.7 CAPACITY 3", Adds(500)),
    ("valkey-bloom-tight", "TIGHTENING 0.2", Adds(500)),
    ("valkey-bloom-loose", "TIGHTENING 0.9 ERROR 0.5", Adds(500)),
    ("valkey-bloom-tiny-rate", "TIGHTENING 0.5 ERROR 1e-30 CAPACITY 5", Adds(50)),
    ("valkey-bloom-empty", "TIGHTENING 0.7", Adds(0)),
    ("valkey-bloom-full", "TIGHTENING 0.7 CAPACITY 3 NONSCALING", Adds(3)),
    // 12 MB of bits.
    ("valkey-bloom-large", "TIGHTENING 0.5 CAPACITY 10000000", Adds(50_000)),
    ("valkey-bloom-seed", "SEED 00000000000000000000000000000007 TIGHTENING 0.5", Adds(300)),
];

/// Keys that are not text, and a key with a time to live.
const ODD_KEYS: [&[u8]; 4] = [b"", b"\0\xff\r\n", "\u{43a}\u{43b}\u{44e}\u{447}-\u{1f338}".as_bytes(), b"with-ttl"];

/// Some time in 2100.
pub const EXPIRES_AT_MS: i64 = 4_102_444_800_123;

/// The largest filter whose payload is part of its view.
const PAYLOAD_BYTES: i64 = 256 << 10;

impl EveryFilter {
    /// Creates all filters in the connection's database, and restores filters made by other programs and releases.
    pub fn build(client: &mut Connection) -> Self {
        let mut animals = Vec::new();
        for (key, words, life) in PLANS {
            let command = if words.contains("TIGHTENING") { "BF.INSERT" } else { "BF.RESERVE" };
            let reply = client.run(&format!("{command} {key} {words}"));
            assert!(!reply.is_error(), "{key}: {reply:?}");
            animals.push(Animal::live(client, key.as_bytes(), life));
        }
        for key in ODD_KEYS {
            animals.push(Animal::live(client, key, Adds(150)));
        }
        for source in golden::sources() {
            for filter in source.filters.iter().filter(|filter| !filter.is_arriving()) {
                let key = format!("{}/{}", source.name, filter.key());
                assert_eq!(restore(client, &key, &filter.payloads()[0]), ok(), "{key}");
                let offered = filter.items();
                let present = client.batched(&[b"BF.MEXISTS", key.as_bytes()], &offered);
                let members = offered.into_iter().zip(present).filter(|(_, present)| *present).map(|(item, _)| item);
                animals.push(Animal { members: members.collect(), key: key.into_bytes(), life: Adds(0) });
            }
        }
        assert_eq!(client.run(&format!("PEXPIREAT with-ttl {EXPIRES_AT_MS}")), integer(1));
        let mut strangers: Vec<String> = (0..800).map(|number| format!("stranger/{number}")).collect();
        strangers.extend(items(0..200));
        Self { animals, strangers }
    }

    /// Applies every command that changes a filter to every filter.
    pub fn write(&self, client: &mut Connection, round: usize) {
        // BF.RESERVE with the original options still accepts the filter, whatever has changed since.
        for (key, words, _) in PLANS.iter().filter(|(_, words, _)| !words.contains("TIGHTENING")) {
            assert_eq!(client.run(&format!("BF.RESERVE {key} {words} EXIST_OK")), ok(), "{key} {words}");
        }
        for animal in &self.animals {
            let key = animal.key.as_slice();
            let fresh = |name: &str| format!("round/{round}/{name}").into_bytes();
            let many: Vec<String> = (0..200).map(|number| format!("round/{round}/{number}")).collect();
            call(client, &[b"BF.MADD", key], &many);
            client.call(&[b"BF.ADD", key, &fresh("alone")]);
            client.call(&[b"BF.INSERT", key, b"NOCREATE", b"ITEMS", &fresh("inserted"), &fresh("alone")]);
            client.run("MULTI");
            client.call(&[b"BF.ADD", key, &fresh("first")]);
            client.call(&[b"BF.MADD", key, &fresh("first"), &fresh("second")]);
            client.run("EXEC");
            let script = b"redis.call('BF.MADD', KEYS[1], ARGV[1], 'script', ARGV[1])".as_slice();
            client.call(&[b"EVAL", script, b"1", key, &fresh("script")]);
            if matches!(animal.life, Turns(_) | Renewals(_)) {
                client.call(&[b"BF.ROTATE", key]);
            }
            if matches!(animal.life, Deletes(_) | Counts(_)) {
                client.call(&[b"BF.MDEL", key, &fresh("script"), b"absent", &fresh("3"), &fresh("3")]);
                client.call(&[b"BF.DEL", key, &fresh("alone")]);
                client.run("MULTI");
                client.call(&[b"BF.DEL", key, b"absent"]);
                client.call(&[b"BF.MDEL", key, b"absent", &fresh("second")]);
                client.run("EXEC");
                let script = b"return redis.call('BF.MDEL', KEYS[1], ARGV[1], 'absent', ARGV[1])".as_slice();
                client.call(&[b"EVAL", script, b"1", key, &fresh("7")]);
            }
        }
    }

    /// Returns a view of every filter.
    pub fn view(&self, client: &mut Connection) -> Vec<View> {
        self.keys().map(|key| self.view_of(client, key, key)).collect()
    }

    /// Returns a view of the filter at `at`, as if its key were `key`.
    pub fn view_of(&self, client: &mut Connection, key: &[u8], at: &[u8]) -> View {
        let animal = self.animals.iter().find(|animal| animal.key == key).expect("a key of the filters");
        let mut answers = client.batched(&[b"BF.MEXISTS", at], &animal.members);
        answers.extend(client.batched(&[b"BF.MEXISTS", at], &self.strangers));
        let info = client.call(&[b"BF.INFO", at]);
        assert!(!info.is_error(), "{}: {info:?}", key.escape_ascii());
        // A copy may be aligned differently, and the ceiling depends on the server.
        let pairs = info.elements().chunks(2).map(|pair| (pair[0].text(), pair[1].clone()));
        let mut facts: Vec<(String, Reply)> =
            pairs.filter(|(name, _)| name != "Size" && name != "Max scaled capacity").collect();
        assert!(facts.len() >= 4, "{info:?}");
        for command in [b"TYPE".as_slice(), b"BF.CARD", b"BF.DEBUG", b"PEXPIRETIME"] {
            facts.push((command.escape_ascii().to_string(), client.call(&[command, at])));
        }
        facts.push(("digest".to_owned(), digest(client, at)));
        if matches!(animal.life, Deletes(_)) {
            let room = client.call(&[b"BF.STATS", at]).field("Room for items deleted").clone();
            facts.push(("room for deleted items".to_owned(), room));
        }
        let is_small = info.field("Size").number() < PAYLOAD_BYTES;
        let payload = if is_small { value_of(&dump(client, at)).to_vec() } else { Vec::new() };
        View { key: key.to_vec(), answers, payload, facts }
    }

    /// All keys.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.animals.iter().map(|animal| animal.key.as_slice())
    }
}

/// Sends one command with many items at its end.
fn call(client: &mut Connection, head: &[&[u8]], items: &[String]) -> Reply {
    let words: Vec<&[u8]> = head.iter().copied().chain(items.iter().map(String::as_bytes)).collect();
    client.call(&words)
}

/// The names of items.
fn items(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| format!("https://example.org/member/{number}")).collect()
}

impl Animal {
    fn live(client: &mut Connection, key: &[u8], life: Life) -> Self {
        let members = match life {
            Adds(count) => {
                client.batched(&[b"BF.MADD", key], &items(0..count));
                items(0..count)
            }
            Turns(count) => {
                for (round, some) in items(0..count).chunks(count / 4).enumerate() {
                    client.batched(&[b"BF.MADD", key], some);
                    // A rolling filter also rotates by itself.
                    assert!(round == 3 || client.call(&[b"BF.ROTATE", key]).number() == 0);
                }
                items(0..count)
            }
            Renewals(count) => {
                call(client, &[b"BF.MADD", key], &items(0..count));
                let card = client.call(&[b"BF.CARD", key]);
                assert_eq!(client.call(&[b"BF.ROTATE", key]).number(), 0);
                call(client, &[b"BF.MADD", key], &items(0..count / 2));
                assert_eq!(
                    client.call(&[b"BF.CARD", key]),
                    card,
                    "{}: an item in two buckets counts once",
                    key.escape_ascii()
                );
                items(0..count)
            }
            Deletes(count) => Self::delete_some(client, key, count),
            Counts(count) => {
                for end in [count, count / 2, count / 3] {
                    call(client, &[b"BF.MADD", key], &items(0..end));
                }
                call(client, &[b"BF.MDEL", key], &items(0..count / 4));
                call(client, &[b"BF.MDEL", key], &items(count / 2..count / 2 + 9));
                let present = client.batched(&[b"BF.MEXISTS", key], &items(0..count / 2));
                let members = items(0..count / 2).into_iter().zip(present);
                members.filter(|(_, present)| *present).map(|(item, _)| item).collect()
            }
        };
        let present = client.batched(&[b"BF.MEXISTS", key], &members);
        let lost = present.iter().filter(|present| !**present).count();
        assert_eq!(lost, 0, "{lost} of {} members of {} are gone", members.len(), key.escape_ascii());
        // The digest covers all members; a view looks up a thousand.
        let step = members.len() / 1000 + 1;
        Self { key: key.to_vec(), members: members.into_iter().step_by(step).collect(), life }
    }

    /// Deletes the first tenth of the items, and adds half of them again; a ring rotates in between.
    fn delete_some(client: &mut Connection, key: &[u8], count: usize) -> Vec<String> {
        let (end, half) = (count / 10, count / 20);
        client.batched(&[b"BF.MADD", key], &items(0..count));
        if !client.call(&[b"BF.ROTATE", key]).is_error() {
            // These items are in two buckets of a sliding ring.
            client.batched(&[b"BF.MADD", key], &items(half / 2..half));
        }
        client.batched(&[b"BF.MDEL", key], &items(0..end));
        client.batched(&[b"BF.MADD", key], &items(0..half));
        let deleted = client.batched(&[b"BF.MEXISTS", key], &items(half..end));
        assert!(!deleted.contains(&true), "{} has items that were deleted", key.escape_ascii());
        [items(0..half), items(end..count)].concat()
    }
}

/// Panics with the first difference between two views of the filters.
pub fn assert_same(occasion: &str, before: &[View], after: &[View]) {
    assert_eq!(before.len(), after.len(), "{occasion}: number of filters");
    for (old, new) in before.iter().zip(after) {
        let key = old.key.escape_ascii();
        assert_eq!(old.facts, new.facts, "{occasion}: {key} changed");
        let changed = old.answers.iter().zip(&new.answers).filter(|(old, new)| old != new).count();
        assert_eq!(changed, 0, "{occasion}: {changed} answers of {key} changed");
        assert!(old.payload == new.payload, "{occasion}: DUMP of {key} gives other bytes");
    }
}
