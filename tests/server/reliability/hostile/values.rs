//! The payloads that are damaged: DUMP payloads of every type and shape, from this server, from old releases, and from the
//! kept inputs of the fuzz targets, each with its fields if they can be identified.

use crate::corpus;
use crate::redisbloom::golden;
use crate::redisbloom::payload::{Field, payload_of, payload_of_type, payload_of_value};
use testing::{Connection, Server};

/// The footer of a payload: two bytes of version, eight of checksum.
pub const FOOTER: usize = 10;

/// A payload to start from.
pub struct Seed {
    pub payload: Vec<u8>,
    pub value: Option<Value>,
}

/// The fields of a payload.
#[derive(Clone)]
pub struct Value {
    /// The versions of the module's type and of its encoding.
    pub type_number: u64,
    pub fields: Vec<Field>,
}

/// Filters of every shape: command, key, options, items.
const SHAPES: [(&str, usize); 14] = [
    ("BF.RESERVE k 0.01 100", 0),
    ("BF.RESERVE k 0.01 100 SEED 1", 60),
    ("BF.RESERVE k 0.01 4", 60),
    ("BF.RESERVE k 0.1 1 EXPANSION 1", 20),
    ("BF.RESERVE k 0.001 50 NONSCALING", 50),
    ("BF.RESERVE k 1e-12 3 EXPANSION 32768", 3),
    ("BF.RESERVE k 0.01 1000000 NONSCALING", 0),
    ("BF.RESERVE k 0.01 100 LAYOUT redisbloom", 0),
    ("BF.RESERVE k 0.01 4 LAYOUT redisbloom", 60),
    ("BF.RESERVE k 1e-300 3 NONSCALING LAYOUT redisbloom", 3),
    ("BF.INSERT k CAPACITY 100 TIGHTENING 0.5", 0),
    ("BF.INSERT k CAPACITY 4 TIGHTENING 0.5", 60),
    ("BF.INSERT k CAPACITY 1 EXPANSION 1 TIGHTENING 0.9", 20),
    ("BF.INSERT k CAPACITY 10 TIGHTENING 0.5 NONSCALING", 10),
];

/// Creates a filter at `k`.
pub fn make(client: &mut Connection, words: &str, items: usize) {
    assert!(!client.run(words).is_error(), "{words}");
    (0..items).for_each(|item| drop(client.run(&format!("BF.ADD k {item}"))));
}

/// Returns the commands that create filters for BF.SCANDUMP, with their items.
pub fn dumpable() -> impl Iterator<Item = (&'static str, usize)> {
    SHAPES.into_iter().filter(|(words, _)| words.starts_with("BF.RESERVE") && !words.contains("1000000"))
}

/// Returns all payloads.
pub fn seeds(server: &Server) -> Vec<Seed> {
    let mut client = server.connect();
    let mut seeds = Vec::new();
    for (words, items) in SHAPES {
        make(&mut client, words, items);
        seeds.push(Seed::of(client.run("DUMP k").bytes().to_vec()));
        let half = halves(&mut client, words);
        seeds.extend(half.into_iter().map(Seed::of));
        client.run("DEL k");
    }
    for release in ["1.0.0", "1.1.1", "2.2.0"] {
        let old = golden::filters(release).into_iter().filter(|golden| golden.payload.len() < 16 << 10);
        seeds.extend(old.map(|golden| Seed::of(golden.payload)));
    }
    // Only valid payloads are damaged; a separate test sends the invalid ones unchanged.
    seeds.extend(kept_inputs().into_iter().filter(|seed| {
        let words: [&[u8]; 4] = [b"RESTORE", b"k", b"0", &seed.payload];
        !client.call(&words).is_error() && !client.run("DEL k").is_error()
    }));
    seeds
}

/// Returns the payloads of the filter at `k` when only its first record, and all but its last record, have been loaded.
fn halves(client: &mut Connection, words: &str) -> Vec<Vec<u8>> {
    if !dumpable().any(|(dumpable, _)| dumpable == words) {
        return Vec::new();
    }
    let dump = super::records::dump_of(client);
    [1, dump.len() - 1]
        .map(|count| {
            client.run("DEL half");
            for (iterator, data) in &dump[..count] {
                let words: [&[u8]; 4] = [b"BF.LOADCHUNK", b"half", iterator.as_bytes(), data];
                assert!(!client.call(&words).is_error(), "a record of a dump");
            }
            let payload = client.run("DUMP half").bytes().to_vec();
            client.run("DEL half");
            payload
        })
        .to_vec()
}

impl Seed {
    fn of(payload: Vec<u8>) -> Self {
        let value = Value::read(&payload);
        Self { payload, value }
    }
}

impl Value {
    /// The fields of a payload; `None` if they are compressed or truncated.
    pub fn read(payload: &[u8]) -> Option<Self> {
        let mut rest = payload.get(1..payload.len().checked_sub(FOOTER)?)?;
        let type_number = length(&mut rest)?;
        let mut fields = Vec::new();
        loop {
            fields.push(match length(&mut rest)? {
                0 => return rest.is_empty().then_some(Self { type_number, fields }),
                2 => Field::Uint(length(&mut rest)?),
                4 => Field::Double(f64::from_le_bytes(take(&mut rest, 8)?.try_into().ok()?)),
                5 => {
                    let bytes = usize::try_from(length(&mut rest)?).ok()?;
                    Field::Text(take(&mut rest, bytes)?.to_vec())
                }
                _ => return None,
            });
        }
    }

    /// The payload with these fields.
    pub fn payload(&self) -> Vec<u8> {
        payload_of_type(self.type_number, &self.fields)
    }
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(count)?;
    *rest = after;
    Some(taken)
}

fn length(rest: &mut &[u8]) -> Option<u64> {
    let mut number = |count| Some(take(rest, count)?.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte)));
    let first = number(1)?;
    match first {
        0..0x40 => Some(first),
        0x40..0x80 => Some((first & 0x3f) << 8 | number(1)?),
        0x80 => number(4),
        0x81 => number(8),
        _ => None,
    }
}

/// Returns the kept inputs of the fuzz targets of snapshots and of RESTORE as payloads.
pub fn kept_inputs() -> Vec<Seed> {
    let types = [
        ("native_snapshot", "bloomgate"),
        ("redisbloom_snapshot", "MBbloom--"),
        ("valkey_bloom_snapshot", "bloomfltr"),
    ];
    let mut seeds = Vec::new();
    for (target, type_name) in types {
        for input in kept(target) {
            let mut input = input.as_slice();
            let encoding = if type_name == "MBbloom--" { take(&mut input, 1).map_or(0, |byte| byte[0]) } else { 1 };
            let fields = fields_of(type_name, encoding, input);
            let payload = payload_of(type_name, encoding.into(), &fields);
            seeds.push(Seed::of(payload));
        }
    }
    seeds.extend(kept("restore").iter().map(|value| Seed::of(payload_of_value(value))));
    seeds
}

/// Returns the inputs of a fuzz target, sorted by name.
pub fn kept(target: &str) -> Vec<Vec<u8>> {
    corpus::of(target).into_iter().map(|(_, data)| data).collect()
}

/// The types of the fields in a type's snapshot, in order: u for integers, d for doubles, s for strings. First the fields at
/// the beginning, then those that repeat.
fn kinds(type_name: &str, encoding: u8, front: &[u64]) -> (String, &'static str) {
    match type_name {
        "MBbloom--" => {
            let front = ["uu", "uu", "uuu", "uuu"].get(usize::from(encoding)).copied().unwrap_or("uuuu");
            (front.to_owned(), if encoding == 0 { "ududsu" } else { "ududuusu" })
        }
        "bloomfltr" => {
            // Only the newest layer stores its number of items.
            let before_last = front.first().map_or(0, |layers| layers.saturating_sub(1).min(5000)) as usize;
            (format!("uuddu{}uus", "us".repeat(before_last)), "us")
        }
        _ if front.get(1) == Some(&3) => ("uusu".to_owned(), "s"),
        _ => {
            let layers = front.get(8).map_or(0, |layers| (*layers).min(5000)) as usize;
            let arriving = if front.get(1) == Some(&2) { "uu" } else { "" };
            (format!("uuuduuuuu{}{arriving}", "duuuuu".repeat(layers)), "s")
        }
    }
}

/// Returns the fields of a kept input, in which every number has 8 bytes and a string follows its length.
fn fields_of(type_name: &str, encoding: u8, mut input: &[u8]) -> Vec<Field> {
    let front: Vec<u64> =
        input.chunks_exact(8).take(9).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("8 bytes"))).collect();
    let (front, over_and_over) = kinds(type_name, encoding, &front);
    let mut fields = Vec::new();
    for kind in front.bytes().chain(over_and_over.bytes().cycle()) {
        let Some(bytes) = take(&mut input, 8) else { break };
        let number = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        fields.push(match kind {
            b'u' => Field::Uint(number),
            b'd' => Field::Double(f64::from_bits(number)),
            _ => match usize::try_from(number).ok().and_then(|length| take(&mut input, length)) {
                Some(text) => Field::Text(text.to_vec()),
                None => break,
            },
        });
    }
    fields
}
