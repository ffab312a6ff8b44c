//! An independent model of RedisBloom's filter, written from the description of its format: hashes, sizes, bits. The tests send a server
//! and this model the same queries. It shares no code with the module.

use super::golden::{Golden, NARROW, RELEASES, TODAY, filters, items};
use testing::{FOOTER, with_fixed_checksum};

use Field::{Double, Text, Uint};

pub const FORCE_64: u64 = 4;
pub const NO_SCALING: u64 = 8;
/// RedisBloom 2.2 and later: sizes are not rounded to powers of two.
pub const NO_ROUND: u64 = 1;
/// This module's mark in the stored options of a filter whose seeds have 32 bits or 64. RedisBloom refuses such a filter.
pub const EITHER_SEEDS: u64 = 1 << 31;

/// One sub-filter.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    pub entries: u64,
    pub error: f64,
    pub hashes: u64,
    pub bits_per_entry: f64,
    /// As saved: 0 in old filters with `log2_bits`.
    pub bits: u64,
    pub log2_bits: u8,
    pub bytes: Vec<u8>,
    pub items: u64,
}

/// A filter.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    pub items: u64,
    pub options: u64,
    pub growth: u64,
    pub layers: Vec<Layer>,
    /// It is not recorded whether the 64-bit hash used seeds of 32 bits or of 64. Adds use 64.
    pub either_seeds: bool,
}

/// The seeds of the 64-bit hash.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Seeds {
    Of32Bits,
    Of64Bits,
}

impl Layer {
    /// The size rule of today's releases; `error` is the sub-filter's own rate.
    #[allow(clippy::approx_constant)] // RedisBloom's spelling of ln 2, one digit short of a double.
    pub fn sized(entries: u64, error: f64) -> Self {
        let bits_per_entry = -error.ln() / 0.480_453_013_918_201;
        let bytes = ((entries as f64 * bits_per_entry) as u64).max(1).div_ceil(64) * 8;
        Self {
            entries,
            error,
            hashes: (0.693_147_180_559_945 * bits_per_entry).ceil() as u64,
            bits_per_entry,
            bits: bytes * 8,
            log2_bits: 0,
            bytes: vec![0; bytes as usize],
            items: 0,
        }
    }

    fn of_fields(fields: &[Field]) -> Self {
        let [Uint(entries), Double(error), Uint(hashes), Double(bits_per_entry), size @ .., Text(bytes), Uint(items)] =
            fields
        else {
            panic!("no layer: {fields:?}")
        };
        let (bits, log2_bits) = match size {
            [Uint(bits), Uint(log2_bits)] => (*bits, *log2_bits as u8),
            _ => ((*entries as f64 * bits_per_entry) as u64, 0),
        };
        Self {
            entries: *entries,
            error: *error,
            hashes: *hashes,
            bits_per_entry: *bits_per_entry,
            bits,
            log2_bits,
            bytes: bytes.clone(),
            items: *items,
        }
    }

    /// The modulus of positions.
    pub fn modulus(&self) -> u64 {
        if self.log2_bits > 0 { 1 << self.log2_bits } else { self.bits }
    }
}

impl Model {
    /// Creates a filter as BF.RESERVE does; a growth of 0 means NONSCALING.
    pub fn reserve(rate: f64, capacity: u64, growth: u64) -> Self {
        let rate = rate.min(0.25);
        let (options, error) = if growth == 0 { (13, rate) } else { (5, rate * 0.5) };
        // NONSCALING is stored with the configured expansion.
        let stored_growth = if growth == 0 { 2 } else { growth };
        Self {
            items: 0,
            options,
            growth: stored_growth,
            layers: vec![Layer::sized(capacity, error)],
            either_seeds: false,
        }
    }

    /// The filter in a DUMP payload, and the version of its encoding.
    pub fn of_payload(payload: &[u8]) -> (u64, Self) {
        let (type_number, fields) = fields_of_payload(payload).expect("a module's value");
        let encoding = type_number & 0x3ff;
        let [Uint(items), Uint(count), rest @ ..] = &fields[..] else { panic!("no filter: {fields:?}") };
        let (options, rest) = match rest {
            [Uint(options), rest @ ..] if encoding >= 2 => (*options, rest),
            rest => (0, rest),
        };
        let (growth, rest) = match rest {
            [Uint(growth), rest @ ..] if encoding >= 4 => (*growth, rest),
            rest => (2, rest),
        };
        let layers: Vec<Layer> = rest.chunks(if encoding == 0 { 6 } else { 8 }).map(Layer::of_fields).collect();
        assert_eq!(layers.len() as u64, *count);
        let either_seeds = options & FORCE_64 != 0 && (encoding < 4 || options & EITHER_SEEDS != 0);
        (encoding, Self { items: *items, options, growth, layers, either_seeds })
    }

    /// A DUMP payload in one of the encodings 0 to 4, strings as they are.
    pub fn payload(&self, encoding: u64) -> Vec<u8> {
        payload_of("MBbloom--", encoding, &fields_of(self, encoding))
    }

    /// The filter as it is saved today: without powers of two, unless its hash is not recorded.
    pub fn modernised(&self) -> Self {
        let mut modern = self.clone();
        if modern.either_seeds {
            modern.options |= EITHER_SEEDS;
            modern.layers.iter_mut().filter(|layer| layer.log2_bits > 0).for_each(|layer| layer.bits = 0);
        } else {
            modern.make_powers_numbers();
        }
        modern
    }

    fn make_powers_numbers(&mut self) {
        for layer in &mut self.layers {
            (layer.bits, layer.log2_bits) = (layer.modulus(), 0);
        }
    }

    /// The contents that are independent of the encoding: counters, capacities, rates and every bit.
    pub fn content(&self) -> Self {
        let mut content = self.clone();
        content.make_powers_numbers();
        (content.options, content.either_seeds) = (self.options & NO_SCALING, false);
        content
    }

    /// Whether the filter reports the item present.
    pub fn contains(&self, item: &[u8]) -> bool {
        self.contains_under(Seeds::Of64Bits, item) || self.either_seeds && self.contains_under(Seeds::Of32Bits, item)
    }

    /// Whether a filter whose hash has these seeds reports the item present.
    pub fn contains_under(&self, seeds: Seeds, item: &[u8]) -> bool {
        self.layers.iter().rev().any(|layer| {
            self.positions(layer, seeds, item).all(|place| layer.bytes[place as usize / 8] & (1 << (place % 8)) != 0)
        })
    }

    /// Adds an item. Returns whether it was new, or `None` if the filter is full and cannot grow.
    pub fn add(&mut self, item: &[u8]) -> Option<bool> {
        if self.contains(item) {
            return Some(false);
        }
        let last = &self.layers[self.layers.len() - 1];
        if last.items >= last.entries {
            if self.options & NO_SCALING != 0 {
                return None;
            }
            self.layers.push(Layer::sized(last.entries * self.growth, last.error * 0.5));
        }
        self.put(item);
        Some(true)
    }

    /// Sets the item's bits in the newest layer and counts it.
    pub fn put(&mut self, item: &[u8]) {
        self.put_under(Seeds::Of64Bits, item);
    }

    /// Like [`put`](Self::put), for a hash with these seeds.
    pub fn put_under(&mut self, seeds: Seeds, item: &[u8]) {
        let newest = self.layers.len() - 1;
        let places: Vec<u64> = self.positions(&self.layers[newest], seeds, item).collect();
        let layer = &mut self.layers[newest];
        for place in places {
            layer.bytes[place as usize / 8] |= 1 << (place % 8);
        }
        layer.items += 1;
        self.items += 1;
    }

    fn positions(&self, layer: &Layer, seeds: Seeds, item: &[u8]) -> impl Iterator<Item = u64> + use<> {
        let wide = self.options & FORCE_64 != 0;
        let (a, b) = if wide { pair_64(item, seeds) } else { pair_32(item) };
        let (modulus, narrow) = (layer.modulus(), !wide && (1..=31).contains(&layer.log2_bits));
        (0..layer.hashes).map(move |i| {
            let place = a.wrapping_add(i.wrapping_mul(b));
            (if narrow { u64::from(place as u32) } else { place }) % modulus
        })
    }

    /// The bytes of BF.SCANDUMP's header.
    pub fn header(&self) -> Vec<u8> {
        let mut bytes = self.header_start();
        bytes.extend((self.growth as u32).to_le_bytes());
        for layer in &self.layers {
            bytes.extend(layer_start(layer));
            bytes.extend(layer.entries.to_le_bytes());
            bytes.push(layer.log2_bits);
        }
        bytes
    }

    /// The header in the format of 2018: no growth, 32 bits of capacity.
    pub fn header_of_2018(&self) -> Vec<u8> {
        self.with_short_layers(self.header_start())
    }

    /// The header as RedisShake writes it for release 2.2.0: growth, and 32 bits of capacity.
    pub fn header_of_2_2_0(&self) -> Vec<u8> {
        let mut bytes = self.header_start();
        bytes.extend((self.growth as u32).to_le_bytes());
        self.with_short_layers(bytes)
    }

    fn with_short_layers(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        for layer in &self.layers {
            bytes.extend(layer_start(layer));
            bytes.extend((layer.entries as u32).to_le_bytes());
            bytes.push(layer.log2_bits);
        }
        bytes
    }

    fn header_start(&self) -> Vec<u8> {
        let mut bytes = self.items.to_le_bytes().to_vec();
        bytes.extend((self.layers.len() as u32).to_le_bytes());
        bytes.extend((self.options as u32).to_le_bytes());
        bytes
    }

    /// A whole SCANDUMP: the header, then each layer's bits (none is large enough here to be cut).
    pub fn chunks(&self, header: Vec<u8>) -> Vec<(i64, Vec<u8>)> {
        let mut chunks = vec![(1, header)];
        let mut end = 1;
        for layer in &self.layers {
            end += layer.bytes.len() as i64;
            chunks.push((end, layer.bytes.clone()));
        }
        chunks
    }

    /// The lines of BF.DEBUG.
    pub fn debug(&self) -> Vec<String> {
        let width = if self.options & FORCE_64 != 0 { 64 } else { 32 };
        let mut lines = vec![format!("size:{}", self.items)];
        lines.extend(self.layers.iter().map(|layer| {
            let (bytes, bits, hashes) = (layer.bytes.len(), layer.modulus(), layer.hashes);
            let (entries, items, ratio) = (layer.entries, layer.items, percent_g(layer.error));
            format!(
                "bytes:{bytes} bits:{bits} hashes:{hashes} hashwidth:{width} capacity:{entries} \
                 size:{items} ratio:{ratio}"
            )
        }));
        lines
    }

    /// The values of BF.INFO.
    pub fn info(&self) -> [Option<i64>; 5] {
        let capacity: u64 = self.layers.iter().map(|layer| layer.entries).sum();
        let bytes: usize = self.layers.iter().map(|layer| layer.bytes.len()).sum();
        let size = 32 + 64 * self.layers.len() + bytes;
        let expansion = (self.options & NO_SCALING == 0).then_some(self.growth as i64);
        [Some(capacity as i64), Some(size as i64), Some(self.layers.len() as i64), Some(self.items as i64), expansion]
    }
}

fn layer_start(layer: &Layer) -> Vec<u8> {
    let mut bytes = (layer.bytes.len() as u64).to_le_bytes().to_vec();
    bytes.extend(layer.bits.to_le_bytes());
    bytes.extend(layer.items.to_le_bytes());
    bytes.extend(layer.error.to_le_bytes());
    bytes.extend(layer.bits_per_entry.to_le_bytes());
    bytes.extend((layer.hashes as u32).to_le_bytes());
    bytes
}

/// C's `%g`: six digits, no zeros at the end.
fn percent_g(value: f64) -> String {
    let text = format!("{value:.5e}");
    let (digits, exponent) = text.split_once('e').expect("an exponent");
    let exponent: i32 = exponent.parse().expect("a number");
    let trim = |text: &str| text.trim_end_matches('0').trim_end_matches('.').to_owned();
    if (-4..6).contains(&exponent) {
        return trim(&format!("{value:.*}", (5 - exponent) as usize)).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trim(digits), exponent.abs())
}

#[test]
fn the_positions_equal_redisblooms() {
    let golden: [(&str, u64, u64, [u64; 8]); 4] = [
        ("", 0x1ab1_1ea5_a7b2_c56e, 0xbbdd_cb5a_b56d_d547, [366, 1077, 764, 451, 138, 849, 536, 223]),
        ("a", 0x4292_cee2_27b9_150a, 0x7e9b_5270_31f5_0c11, [1034, 539, 172, 829, 462, 1119, 752, 257]),
        ("hello", 0x5ba5_b8a5_9803_e699, 0xa7d4_51d5_88a0_c2a4, [537, 957, 97, 517, 809, 77, 497, 789]),
        ("item1", 0xa053_790e_072b_2e8b, 0x707e_5d60_182e_b075, [907, 256, 629, 1002, 351, 724, 73, 446]),
    ];
    let model = Model::reserve(0.01, 100, 2);
    for (item, a, b, places) in golden {
        assert_eq!(pair_64(item.as_bytes(), Seeds::Of64Bits), (a, b), "{item:?}");
        assert_eq!(
            model.positions(&model.layers[0], Seeds::Of64Bits, item.as_bytes()).collect::<Vec<_>>(),
            places,
            "{item:?}"
        );
    }
}

#[test]
fn the_model_writes_numbers_as_c_does() {
    for (value, text) in [(0.005, "0.005"), (5e-5, "5e-05"), (6.25e-8, "6.25e-08"), (0.000_312_5, "0.0003125")] {
        assert_eq!(percent_g(value), text);
    }
    for (value, text) in [(0.25, "0.25"), (1.0 / 3.0, "0.333333"), (0.000_1, "0.0001"), (1e-300, "1e-300")] {
        assert_eq!(percent_g(value), text);
    }
}

/// Checks the model against RedisBloom: it reads RedisBloom's data, and creates the same data itself.
#[test]
fn the_model_does_what_redisbloom_did() {
    for release in RELEASES {
        for golden in filters(release) {
            let model = golden.model();
            let seeds = if release == NARROW { Seeds::Of32Bits } else { Seeds::Of64Bits };
            let strangers: Vec<usize> = (0..20_000)
                .filter(|number| model.contains_under(seeds, format!("absent:{number}").as_bytes()))
                .collect();
            assert_eq!(strangers, golden.false_positives(), "{release}: {}", golden.key);
            assert_eq!(model.debug(), golden.debug(), "{release}: {}", golden.key);
        }
    }
    for golden in filters(TODAY).iter().filter(|golden| golden.key != "capped-rate") {
        let mut model = anew(golden);
        for item in items(0, golden.offered) {
            model.add(item.as_bytes());
        }
        assert_eq!(model, golden.model(), "{}", golden.key);
        assert_eq!(model.chunks(model.header()), golden.chunks, "{}", golden.key);
    }
}

fn anew(golden: &Golden) -> Model {
    let Some(words) = &golden.reserve else { return Model::reserve(0.01, 100, 2) };
    let growth = match words.get(2).map(String::as_str) {
        Some("EXPANSION") => words[3].parse().expect("a number"),
        Some(_) => 0,
        None => 2,
    };
    Model::reserve(words[0].parse().expect("a rate"), words[1].parse().expect("a number"), growth)
}

// RedisBloom's two hashes, written from their public description for the model that the tests compare with.

/// The hash of 64 bits as two numbers.
pub fn pair_64(item: &[u8], seeds: Seeds) -> (u64, u64) {
    let seed_mask = if seeds == Seeds::Of32Bits { u64::from(u32::MAX) } else { u64::MAX };
    let a = murmur_64a(item, 0xc6a4_a793_5bd1_e995 & seed_mask);
    (a, murmur_64a(item, a & seed_mask))
}

/// The hash of 32 bits, which filters without FORCE64 have.
pub fn pair_32(item: &[u8]) -> (u64, u64) {
    let a = murmur_32(item, 0x9747_b28c);
    (u64::from(a), u64::from(murmur_32(item, a)))
}

/// MurmurHash2's variant with 64 bits for 64-bit machines (Austin Appleby, public domain).
fn murmur_64a(item: &[u8], seed: u64) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    let words = item.chunks_exact(8);
    let rest = words.remainder();
    let mut hash = seed ^ (item.len() as u64).wrapping_mul(M);
    for word in words {
        let k = u64::from_le_bytes(word.try_into().expect("eight bytes")).wrapping_mul(M);
        hash = (hash ^ (k ^ (k >> 47)).wrapping_mul(M)).wrapping_mul(M);
    }
    if !rest.is_empty() {
        let tail = rest.iter().rev().fold(0, |tail, &byte| (tail << 8) | u64::from(byte));
        hash = (hash ^ tail).wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 47)).wrapping_mul(M);
    hash ^ (hash >> 47)
}

/// MurmurHash2 with 32 bits (Austin Appleby, public domain).
fn murmur_32(item: &[u8], seed: u32) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let words = item.chunks_exact(4);
    let rest = words.remainder();
    let mut hash = seed ^ item.len() as u32;
    for word in words {
        let k = u32::from_le_bytes(word.try_into().expect("four bytes")).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ (k ^ (k >> 24)).wrapping_mul(M);
    }
    if !rest.is_empty() {
        let tail = rest.iter().rev().fold(0, |tail, &byte| (tail << 8) | u32::from(byte));
        hash = (hash ^ tail).wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}

// DUMP payloads of the type `MBbloom--`, read and written according to the description of the format: the server's lengths and module
// opcodes around RedisBloom's fields, in each of its encodings.

/// A field of a module's value.
#[derive(Clone, Debug, PartialEq)]
pub enum Field {
    Uint(u64),
    Double(f64),
    Text(Vec<u8>),
}

/// A payload of any fields under any module type's name.
pub fn payload_of(type_name: &str, encoding: u64, fields: &[Field]) -> Vec<u8> {
    payload_of_type(type_number(type_name, encoding), fields)
}

/// A payload of any fields under any module type's number.
pub fn payload_of_type(type_number: u64, fields: &[Field]) -> Vec<u8> {
    let mut value = Vec::new();
    write_value(&mut value, type_number, fields);
    payload_of_value(&value)
}

/// The payload of a value.
pub fn payload_of_value(value: &[u8]) -> Vec<u8> {
    // The version of the format is Redis 7.0's; newer servers accept it, too.
    with_fixed_checksum([&[7], value, &[10, 0], &[0; 8]].concat())
}

/// The value alone, as stored in a snapshot after the kind and the key.
pub fn encoded_value(type_name: &str, encoding: u64, fields: &[Field]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_value(&mut bytes, type_number(type_name, encoding), fields);
    bytes
}

/// A snapshot with one key, without a checksum, as the zeros at its end state.
pub fn snapshot_of_value(key: &str, value: &[u8]) -> Vec<u8> {
    let mut bytes = b"REDIS0010".to_vec();
    bytes.extend([0xfe, 0, 7, key.len() as u8]);
    bytes.extend(key.bytes());
    bytes.extend(value);
    bytes.push(0xff);
    bytes.extend([0; 8]);
    bytes
}

fn type_number(type_name: &str, encoding: u64) -> u64 {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    assert_eq!(type_name.len(), 9);
    let sextet = |letter: u8| ALPHABET.iter().position(|&other| other == letter).expect("a letter") as u64;
    type_name.bytes().fold(0, |id, letter| (id << 6) | sextet(letter)) << 10 | encoding
}

fn write_value(bytes: &mut Vec<u8>, type_number: u64, fields: &[Field]) {
    write_length(bytes, type_number);
    for field in fields {
        match field {
            Uint(number) => {
                bytes.push(2);
                write_length(bytes, *number);
            }
            Double(number) => {
                bytes.push(4);
                bytes.extend(number.to_le_bytes());
            }
            Text(text) => {
                bytes.push(5);
                write_length(bytes, text.len() as u64);
                bytes.extend(text);
            }
        }
    }
    bytes.push(0);
}

/// The fields of a filter in one of the encodings 0 to 4.
pub fn fields_of(model: &Model, encoding: u64) -> Vec<Field> {
    let mut fields = vec![Uint(model.items), Uint(model.layers.len() as u64)];
    if encoding >= 2 {
        fields.push(Uint(model.options));
    }
    if encoding >= 4 {
        fields.push(Uint(model.growth));
    }
    for layer in &model.layers {
        fields.extend([Uint(layer.entries), Double(layer.error)]);
        fields.extend([Uint(layer.hashes), Double(layer.bits_per_entry)]);
        if encoding >= 1 {
            fields.extend([Uint(layer.bits), Uint(u64::from(layer.log2_bits))]);
        }
        fields.extend([Text(layer.bytes.clone()), Uint(layer.items)]);
    }
    fields
}

fn write_length(bytes: &mut Vec<u8>, number: u64) {
    match number {
        0..0x40 => bytes.push(number as u8),
        0x40..0x4000 => bytes.extend((number as u16 | 0x4000).to_be_bytes()),
        0x4000..0x1_0000_0000 => {
            bytes.push(0x80);
            bytes.extend((number as u32).to_be_bytes());
        }
        _ => {
            bytes.push(0x81);
            bytes.extend(number.to_be_bytes());
        }
    }
}

/// The number of a module's type, with the version of its encoding, and the fields of a payload; `None` if they are incomplete.
pub fn fields_of_payload(payload: &[u8]) -> Option<(u64, Vec<Field>)> {
    let mut rest = payload.get(1..payload.len().checked_sub(FOOTER)?)?;
    let type_number = read_length(&mut rest)?;
    let mut fields = Vec::new();
    loop {
        fields.push(match read_length(&mut rest)? {
            0 => return rest.is_empty().then_some((type_number, fields)),
            2 => Uint(read_length(&mut rest)?),
            4 => Double(f64::from_le_bytes(take(&mut rest, 8)?.try_into().ok()?)),
            5 if rest.first() == Some(&0xc3) => {
                take(&mut rest, 1)?;
                let (packed, length) = (read_length(&mut rest)?, read_length(&mut rest)?);
                let text = unpack(take(&mut rest, usize::try_from(packed).ok()?)?)?;
                if text.len() as u64 != length {
                    return None;
                }
                Text(text)
            }
            5 => {
                let length = usize::try_from(read_length(&mut rest)?).ok()?;
                Text(take(&mut rest, length)?.to_vec())
            }
            _ => return None,
        });
    }
}

/// Removes and returns the next bytes.
pub fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(count)?;
    *rest = after;
    Some(taken)
}

fn read_length(rest: &mut &[u8]) -> Option<u64> {
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

/// LZF (Marc Lehmann), with which the servers compress strings.
fn unpack(mut packed: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    while let [control, rest @ ..] = packed {
        let control = usize::from(*control);
        if control < 32 {
            text.extend(rest.get(..=control)?);
            packed = &rest[control + 1..];
            continue;
        }
        let (more, rest) = if control >> 5 == 7 { (usize::from(*rest.first()?), &rest[1..]) } else { (0, rest) };
        let begin = text.len().checked_sub(((control & 31) << 8) + usize::from(*rest.first()?) + 1)?;
        for place in begin..begin + (control >> 5) + more + 2 {
            text.push(text[place]);
        }
        packed = &rest[1..];
    }
    Some(text)
}
