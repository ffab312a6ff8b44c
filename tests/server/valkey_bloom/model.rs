//! An independent model of valkey-bloom's filter, written from the description of its format and of SipHash (Aumasson and Bernstein,
//! "SipHash: a fast short-input PRF", 2012), without code of the module. It predicts answers and bits, and encodes valid and invalid
//! payloads.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use serde_json::Value;

use crate::golden::{self, Source};
use crate::growth;
use crate::redisbloom::model::{Field, payload_of};
use testing::{Builder, Connection, Reply, Server, Version, dump, integer, ok, simple, value_of};

/// The seed of filters that were made without a random one.
pub const FIXED_SEED: [u8; 32] = [
    0x59, 0x0f, 0xf5, 0x22, 0xea, 0x78, 0x11, 0xda, 0xa7, 0x14, 0xd8, 0x09, 0x3b, 0x3e, 0x7b, 0xd9, 0x1d, 0x89, 0x8a,
    0x73, 0x3e, 0x98, 0x88, 0x87, 0x30, 0x7f, 0x97, 0xcd, 0x28, 0x07, 0x33, 0x83,
];

/// A filter: sub-filters, oldest first.
#[derive(Clone)]
pub struct Model {
    /// 0: not scaling.
    pub expansion: u32,
    pub rate: f64,
    pub tightening: f64,
    pub is_seed_random: u8,
    pub seed: [u8; 32],
    pub layers: Vec<Layer>,
}

/// A sub-filter.
#[derive(Clone)]
pub struct Layer {
    pub capacity: i64,
    pub items: i64,
    pub hashes: u32,
    pub bits: Vec<u8>,
}

impl Model {
    pub fn new(capacity: i64, rate: f64, tightening: f64, expansion: u32, seed: [u8; 32]) -> Self {
        let is_seed_random = u8::from(seed != FIXED_SEED);
        let layers = vec![Layer::sized(capacity, rate)];
        Self { expansion, rate, tightening, is_seed_random, seed, layers }
    }

    pub fn from_payload(payload: &[u8]) -> Self {
        let (first, mut rest) = payload.split_at(1);
        assert_eq!(first, [1]);
        let expansion = u32::from_le_bytes(take(&mut rest));
        let (rate, tightening) = (f64::from_le_bytes(take(&mut rest)), f64::from_le_bytes(take(&mut rest)));
        let [is_seed_random] = take(&mut rest);
        let count = u64::from_le_bytes(take(&mut rest));
        let mut seed = [0; 32];
        let mut layers = Vec::new();
        for _ in 0..count {
            let length = u64::from_le_bytes(take(&mut rest)) as usize;
            let [version] = take(&mut rest);
            assert_eq!(version, 1);
            assert_eq!(u64::from_le_bytes(take(&mut rest)) as usize, length - 45);
            let hashes = u32::from_le_bytes(take(&mut rest));
            seed = take(&mut rest);
            let (bits, after) = rest.split_at(length - 45);
            rest = after;
            let (items, capacity) = (i64::from_le_bytes(take(&mut rest)), i64::from_le_bytes(take(&mut rest)));
            layers.push(Layer { capacity, items, hashes, bits: bits.to_vec() });
        }
        assert!(rest.is_empty());
        Self { expansion, rate, tightening, is_seed_random, seed, layers }
    }

    pub fn contains(&self, item: &[u8]) -> bool {
        let hash = hash(&self.seed, item);
        self.layers.iter().any(|layer| {
            let bits = &layer.bits;
            positions(hash, bits.len(), layer.hashes).all(|bit| bits[bit / 8] >> (bit % 8) & 1 == 1)
        })
    }

    /// Adds an item. Returns whether it was new, or `None` if it does not fit.
    pub fn add(&mut self, item: &[u8]) -> Option<bool> {
        if self.contains(item) {
            return Some(false);
        }
        let newest = self.layers.last().unwrap();
        if newest.items >= newest.capacity {
            if self.expansion == 0 {
                return None;
            }
            let rate = self.rate_of(self.layers.len());
            self.layers.push(Layer::sized(newest.capacity * i64::from(self.expansion), rate));
        }
        let newest = self.layers.last_mut().unwrap();
        for bit in positions(hash(&self.seed, item), newest.bits.len(), newest.hashes) {
            newest.bits[bit / 8] |= 1 << (bit % 8);
        }
        newest.items += 1;
        Some(true)
    }

    /// Adds the items that fit.
    pub fn add_all<W: AsRef<[u8]>>(&mut self, items: impl IntoIterator<Item = W>) {
        for item in items {
            self.add(item.as_ref());
        }
    }

    fn rate_of(&self, layer: usize) -> f64 {
        self.rate * self.tightening.powi(layer as i32)
    }

    /// BF.INFO's Size of the first `layers` sub-filters, whose bits have `bits` bytes.
    fn size_bytes(layers: usize, bits: u64) -> u64 {
        let room = if layers == 1 { 1 } else { layers.next_power_of_two().max(4) };
        48 + 208 * layers as u64 + 8 * room as u64 + bits
    }

    /// BF.INFO's Max scaled capacity under a ceiling in bytes.
    pub fn max_scaled_capacity(&self, ceiling: u64) -> i64 {
        let (mut sum, mut bits, mut capacity) = (0, 0, self.layers[0].capacity);
        for layer in 0.. {
            let rate = self.rate_of(layer);
            bits += bytes_of_bits(capacity, rate);
            if rate <= f64::MIN_POSITIVE || Self::size_bytes(layer + 1, bits) > ceiling {
                break;
            }
            sum += capacity;
            capacity *= i64::from(self.expansion);
        }
        sum
    }

    /// The argument of BF.LOAD.
    pub fn payload(&self) -> Vec<u8> {
        let mut bytes = vec![1];
        bytes.extend(self.expansion.to_le_bytes());
        bytes.extend(self.rate.to_le_bytes());
        bytes.extend(self.tightening.to_le_bytes());
        bytes.push(self.is_seed_random);
        bytes.extend((self.layers.len() as u64).to_le_bytes());
        for layer in &self.layers {
            let bitmap = self.bitmap(layer);
            bytes.extend((bitmap.len() as u64).to_le_bytes());
            bytes.extend(bitmap);
            bytes.extend(layer.items.to_le_bytes());
            bytes.extend(layer.capacity.to_le_bytes());
        }
        bytes
    }

    /// The 45-byte header and the bits of a sub-filter.
    pub fn bitmap(&self, layer: &Layer) -> Vec<u8> {
        let mut bytes = vec![1];
        bytes.extend((layer.bits.len() as u64).to_le_bytes());
        bytes.extend(layer.hashes.to_le_bytes());
        bytes.extend(self.seed);
        bytes.extend(&layer.bits);
        bytes
    }

    /// The fields in a snapshot: five values for the filter, two for each sub-filter, three for the last.
    pub fn fields(&self) -> Vec<Field> {
        let mut fields = vec![
            Field::Uint(self.layers.len() as u64),
            Field::Uint(u64::from(self.expansion)),
            Field::Double(self.rate),
            Field::Double(self.tightening),
            Field::Uint(u64::from(self.is_seed_random)),
        ];
        for (number, layer) in self.layers.iter().enumerate() {
            fields.push(Field::Uint(layer.capacity as u64));
            if number + 1 == self.layers.len() {
                fields.push(Field::Uint(layer.items as u64));
            }
            fields.push(Field::Text(self.bitmap(layer)));
        }
        fields
    }

    /// A DUMP without compression.
    pub fn dump(&self) -> Vec<u8> {
        payload_of("bloomfltr", 1, &self.fields())
    }
}

impl Layer {
    fn sized(capacity: i64, rate: f64) -> Self {
        let bytes = bytes_of_bits(capacity, rate);
        let hashes = (bytes as f64 * 8.0 / capacity as f64 * std::f64::consts::LN_2).round().max(1.0);
        Self { capacity, items: 0, hashes: hashes as u32, bits: vec![0; bytes as usize] }
    }
}

fn bytes_of_bits(capacity: i64, rate: f64) -> u64 {
    (capacity as f64 * rate.ln() / (-8.0 * std::f64::consts::LN_2.powi(2))).ceil() as u64
}

fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let (head, tail) = rest.split_first_chunk().expect("a longer payload");
    *rest = tail;
    *head
}

/// The two hashes of an item.
fn hash(seed: &[u8; 32], item: &[u8]) -> (u64, u64) {
    let message = [&(item.len() as u64).to_le_bytes(), item].concat();
    (siphash_1_3(&seed[..16], &message), siphash_1_3(&seed[16..], &message))
}

/// The bits of an item with these hashes in an array of `bytes` bytes.
fn positions((h0, h1): (u64, u64), bytes: usize, hashes: u32) -> impl Iterator<Item = usize> {
    let bits = bytes as u64 * 8;
    let position = move |i: u64| match i {
        0 => h0 % bits,
        1 => h1 % bits,
        _ => h0.wrapping_add(i.wrapping_mul(h1)) % 0xffff_ffff_ffff_ffc5 % bits,
    };
    (0..u64::from(hashes)).map(move |i| position(i) as usize)
}

/// SipHash with one round for each eight bytes and three at the end.
fn siphash_1_3(key: &[u8], message: &[u8]) -> u64 {
    let [k0, k1] = [0, 8].map(|at| u64::from_le_bytes(key[at..at + 8].try_into().unwrap()));
    let mut v = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let mut padded = message.to_vec();
    padded.resize(message.len() / 8 * 8 + 7, 0);
    padded.push(message.len() as u8);
    for word in padded.chunks_exact(8) {
        let word = u64::from_le_bytes(word.try_into().unwrap());
        v[3] ^= word;
        round(&mut v);
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    for _ in 0..3 {
        round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

#[test]
fn the_model_puts_items_where_the_golden_positions_are() {
    for (item, expected) in [
        ("a", [596, 218, 72, 34, 252, 214, 432]),
        ("hello", [953, 573, 179, 752, 365, 938, 551]),
        ("", [598, 580, 798, 418, 38, 618, 238]),
    ] {
        assert_eq!(positions(hash(&FIXED_SEED, item.as_bytes()), 120, 7).collect::<Vec<_>>(), expected, "{item:?}");
    }
}

#[test]
fn the_model_makes_every_golden_filter_again() {
    for golden in goldens() {
        let theirs = Model::from_payload(&golden.payload);
        let capacity = theirs.layers[0].capacity;
        let mut model = Model::new(capacity, theirs.rate, theirs.tightening, theirs.expansion, theirs.seed);
        let new = golden.items.iter().filter(|item| model.add(item.as_bytes()) == Some(true)).count();
        assert_eq!(new as i64, golden.card, "{}", golden.key);
        assert!(model.payload() == golden.payload, "BF.LOAD of {}", golden.key);
        assert!(value_of(&model.dump()) == value_of(&golden.dump_uncompressed), "DUMP of {}", golden.key);
        if theirs.expansion > 0 {
            let ceiling = model.max_scaled_capacity(134_217_728);
            assert_eq!(golden.info.as_array().unwrap().last().unwrap(), ceiling, "{}", golden.key);
        }
    }
}

// Filters made by valkey-bloom, with all answers of its server (`tests/data/valkey_bloom`), and the ways to load them into our server.

/// The ceiling under which the golden answers were recorded.
pub const THEIR_CEILING: &str = "bf.bloom-memory-usage-limit 134217728";

/// Names that were never added to any golden filter.
const STRANGERS: usize = 20_000;

/// One filter made by valkey-bloom.
pub struct Golden {
    pub key: String,
    pub items: Vec<String>,
    /// Which of `absent:0` to `absent:19999` are false positives.
    pub false_positives: Vec<usize>,
    pub info: Value,
    pub card: i64,
    pub dump: Vec<u8>,
    pub dump_uncompressed: Vec<u8>,
    /// The argument of BF.LOAD.
    pub payload: Vec<u8>,
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/valkey_bloom").join(name)
}

/// A compressed file, unpacked.
pub fn unpacked(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let file = File::open(path(name)).unwrap_or_else(|fault| panic!("{name}: {fault}"));
    GzDecoder::new(file).read_to_end(&mut bytes).expect("a gzip file");
    bytes
}

/// The recorded stream of commands: `steps` and `keys_after`.
pub fn stream() -> Value {
    serde_json::from_slice(&fs::read(path("stream.json")).expect("stream.json")).expect("JSON")
}

/// Bytes written in base64.
pub fn decoded(text: &Value) -> Vec<u8> {
    STANDARD.decode(text.as_str().expect("a string")).expect("base64")
}

/// All filters made by valkey-bloom.
pub fn goldens() -> Vec<Golden> {
    let all: Value = serde_json::from_slice(&unpacked("expected.json.gz")).expect("JSON");
    let all = all.as_object().expect("an object");
    assert_eq!(all.len(), 8);
    all.iter().map(|(key, facts)| Golden::read(key, facts)).collect()
}

impl Golden {
    fn read(key: &str, facts: &Value) -> Self {
        assert_eq!(facts["missing"].as_array().expect("a list").len(), 0);
        assert_eq!(facts["type"], "bloomfltr");
        let offered = facts["items_offered"].as_u64().expect("a number");
        let positives = facts["absent_that_exist_below_20000"].as_array().expect("a list");
        Self {
            key: key.to_owned(),
            items: (0..offered).map(|number| format!("item:{number}")).collect(),
            false_positives: positives.iter().map(|number| number.as_u64().expect("a number") as usize).collect(),
            info: facts["info"].clone(),
            card: facts["card"].as_i64().expect("a number"),
            dump: decoded(&facts["dump_b64"]),
            dump_uncompressed: decoded(&facts["dump_uncompressed_b64"]),
            payload: decoded(&facts["bf_load_b64"]),
        }
    }

    /// Sends every recorded query about the filter at `key`, and compares the answers.
    pub fn assert_is_at(&self, client: &mut Connection, key: &str) {
        let head: [&[u8]; 2] = [b"BF.MEXISTS", key.as_bytes()];
        let known = client.batched(&head, &self.items);
        assert_eq!(known.iter().filter(|&&found| !found).count(), 0, "{key} denies items that are in it");
        let strangers: Vec<String> = (0..STRANGERS).map(|number| format!("absent:{number}")).collect();
        let found = client.batched(&head, &strangers);
        let found: Vec<usize> = (0..STRANGERS).filter(|&number| found[number]).collect();
        assert_eq!(found, self.false_positives, "{key}: which strangers are found");
        assert_eq!(client.run(&format!("BF.CARD {key}")), integer(self.card), "{key}");
        assert_eq!(client.run(&format!("TYPE {key}")), simple("bloomfltr"), "{key}");
        assert_info(client, key, &self.info);
        for (compression, payload) in [("no", &self.dump_uncompressed), ("yes", &self.dump)] {
            client.run(&format!("CONFIG SET rdbcompression {compression}"));
            assert!(value_of(&dump(client, key)) == value_of(payload), "DUMP of {key} is not theirs");
        }
    }
}

/// Compares BF.INFO in RESP2 with valkey-bloom's, element by element. The latter was recorded on Redis 7.0, with its 17 digits.
pub fn assert_info(client: &mut Connection, key: &str, theirs: &Value) {
    let server = Version::of_server(client);
    let ours: Vec<Value> = client
        .run(&format!("BF.INFO {key}"))
        .elements()
        .iter()
        .map(|element| match element {
            Reply::Integer(number) => Value::from(*number),
            Reply::NullBulk => Value::Null,
            other => Value::from(other.text()),
        })
        .collect();
    let double = |text: &str| text.parse().map_or(text.to_owned(), |number| server.double(number));
    let theirs: Vec<Value> = theirs
        .as_array()
        .expect("an array")
        .iter()
        .map(|element| element.as_str().map_or(element.clone(), |text| Value::from(double(text))))
        .collect();
    assert_eq!(ours, theirs, "BF.INFO {key}");
}

/// BF.LOAD.
pub fn load(client: &mut Connection, key: &str, payload: &[u8]) -> Reply {
    client.call(&[b"BF.LOAD".as_slice(), key.as_bytes(), payload])
}

/// Starts a server with every golden filter, each loaded by BF.LOAD.
pub fn server_with_goldens(builder: Builder) -> (Server, Connection, Vec<Golden>) {
    let server = builder.line(THEIR_CEILING).start();
    let mut client = server.connect();
    let goldens = goldens();
    for golden in &goldens {
        assert_eq!(load(&mut client, &golden.key, &golden.payload), ok(), "{}", golden.key);
    }
    (server, client, goldens)
}

/// All filters made by valkey-bloom.
pub fn source() -> Source {
    Source {
        name: "valkey-bloom",
        snapshot: unpacked("snapshot.rdb.gz"),
        append_only_files: vec![unpacked("rewritten.aof.gz")],
        filters: goldens().into_iter().map(|filter| Box::new(filter) as Box<dyn golden::Golden>).collect(),
    }
}

impl golden::Golden for Golden {
    fn key(&self) -> &str {
        &self.key
    }

    fn items(&self) -> Vec<String> {
        self.items.clone()
    }

    fn payloads(&self) -> Vec<Vec<u8>> {
        vec![self.dump.clone(), self.dump_uncompressed.clone()]
    }

    fn commands(&self, key: &str) -> Vec<Vec<Vec<u8>>> {
        vec![vec![b"BF.LOAD".into(), key.into(), self.payload.clone()]]
    }

    fn check(&self, server: &Server, at: &str) {
        self.assert_is_at(&mut server.connect(), at);
    }

    fn model(&self) -> Option<Box<dyn growth::Model>> {
        Some(Box::new(Model::from_payload(&self.payload)))
    }

    fn sizes(&self) -> Option<[usize; 4]> {
        let layers = Model::from_payload(&self.payload).layers;
        let (bytes, capacity) =
            (layers.iter().map(|layer| layer.bits.len()), layers.iter().map(|layer| layer.capacity));
        Some([bytes.sum(), layers.len(), self.card as usize, capacity.sum::<i64>() as usize])
    }
}
