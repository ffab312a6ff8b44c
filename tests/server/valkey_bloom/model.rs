//! A second valkey-bloom filter, written from the description of its format and of SipHash (Aumasson and Bernstein,
//! "SipHash: a fast short-input PRF", 2012) and sharing no code with the module: it predicts answers and bits, and it
//! spells payloads, sound ones and others.

use super::golden::goldens;
use testing::value_of;
use testing::with_fixed_checksum;

/// The seed of filters that were made without a random one.
pub const FIXED_SEED: [u8; 32] = [
    0x59, 0x0f, 0xf5, 0x22, 0xea, 0x78, 0x11, 0xda, 0xa7, 0x14, 0xd8, 0x09, 0x3b, 0x3e, 0x7b, 0xd9, 0x1d, 0x89, 0x8a,
    0x73, 0x3e, 0x98, 0x88, 0x87, 0x30, 0x7f, 0x97, 0xcd, 0x28, 0x07, 0x33, 0x83,
];

/// `bloomfltr` as a module type's number: nine letters of six bits, and encoding version 1 in the lowest ten bits.
const TYPE_NUMBER: u64 = 0x6e5a_2899_f96d_ac01;

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

/// What a snapshot or a DUMP holds of a filter, value by value.
#[derive(Clone)]
pub enum Field {
    Integer(u64),
    Double(f64),
    Text(Vec<u8>),
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

    /// Whether the item was new; nothing where it found no room.
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

    /// Adds what there is room for.
    pub fn add_all<W: AsRef<[u8]>>(&mut self, items: impl IntoIterator<Item = W>) {
        for item in items {
            self.add(item.as_ref());
        }
    }

    fn rate_of(&self, layer: usize) -> f64 {
        self.rate * self.tightening.powi(layer as i32)
    }

    /// BF.INFO's Size of the first `layers` sub-filters with so many bytes of bits.
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

    /// What a snapshot holds: five values for the filter, two for each sub-filter, three for the last.
    pub fn fields(&self) -> Vec<Field> {
        let mut fields = vec![
            Field::Integer(self.layers.len() as u64),
            Field::Integer(u64::from(self.expansion)),
            Field::Double(self.rate),
            Field::Double(self.tightening),
            Field::Integer(u64::from(self.is_seed_random)),
        ];
        for (number, layer) in self.layers.iter().enumerate() {
            fields.push(Field::Integer(layer.capacity as u64));
            if number + 1 == self.layers.len() {
                fields.push(Field::Integer(layer.items as u64));
            }
            fields.push(Field::Text(self.bitmap(layer)));
        }
        fields
    }

    /// A DUMP without compression.
    pub fn dump(&self) -> Vec<u8> {
        dump_of(&self.fields())
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

/// A DUMP payload with these values, version 10 and the right checksum.
pub fn dump_of(fields: &[Field]) -> Vec<u8> {
    let mut bytes = vec![7, 0x81];
    bytes.extend(TYPE_NUMBER.to_be_bytes());
    for field in fields {
        match field {
            Field::Integer(number) => {
                bytes.push(2);
                write_length(&mut bytes, *number);
            }
            Field::Double(number) => {
                bytes.push(4);
                bytes.extend(number.to_le_bytes());
            }
            Field::Text(text) => {
                bytes.push(5);
                write_length(&mut bytes, text.len() as u64);
                bytes.extend(text);
            }
        }
    }
    bytes.push(0);
    bytes.extend([10, 0]);
    bytes.extend([0; 8]);
    with_fixed_checksum(bytes)
}

/// A length as snapshots have it.
fn write_length(bytes: &mut Vec<u8>, length: u64) {
    match length {
        0..64 => bytes.push(length as u8),
        64..16_384 => bytes.extend((0x4000 | length as u16).to_be_bytes()),
        16_384..0x1_0000_0000 => {
            bytes.push(0x80);
            bytes.extend((length as u32).to_be_bytes());
        }
        _ => {
            bytes.push(0x81);
            bytes.extend(length.to_be_bytes());
        }
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let (head, tail) = rest.split_first_chunk().expect("a payload that goes on");
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
