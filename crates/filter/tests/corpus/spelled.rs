//! The formats, built field by field, so that tests can corrupt any field. Each `Default` is a sound filter of one layer without items.
//! Independent of the crate's own writers.

use super::targets::records::{RIGHT_ITERATORS, RIGHT_SUMS};

/// Writes numbers in 8 bytes each.
fn numbers(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Writes the length of a string, then the string.
fn string(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u64).to_le_bytes(), bytes].concat()
}

/// The records of a dump as the targets read them, which fix checksums and iterators.
pub fn records<'a>(records: impl IntoIterator<Item = (u8, &'a [u8])>) -> Vec<u8> {
    let mut input = vec![RIGHT_SUMS | RIGHT_ITERATORS];
    for (iterator, data) in records {
        input.push(iterator);
        input.extend_from_slice(&u16::try_from(data.len()).unwrap().to_le_bytes());
        input.extend_from_slice(data);
    }
    input
}

/// A layer in RedisBloom's layout.
#[derive(Clone)]
pub struct RedisBloomLayer {
    pub entries: u64,
    pub error: f64,
    pub hashes: u64,
    pub bits_per_entry: f64,
    pub bits: u64,
    pub n2: u64,
    pub string: Vec<u8>,
    /// The length of the string in a header.
    pub bytes: u64,
    pub size: u64,
}

impl Default for RedisBloomLayer {
    fn default() -> Self {
        Self {
            entries: 100,
            error: 0.005,
            hashes: 8,
            bits_per_entry: 11.027_753_418_256_411,
            bits: 1152,
            n2: 0,
            string: vec![0; 144],
            bytes: 144,
            size: 0,
        }
    }
}

/// A filter in RedisBloom's layout.
#[derive(Clone)]
pub struct RedisBloom {
    pub encoding: u8,
    pub size: u64,
    /// The stated number of layers.
    pub count: u64,
    pub options: u64,
    pub growth: u64,
    pub layers: Vec<RedisBloomLayer>,
}

impl Default for RedisBloom {
    fn default() -> Self {
        Self { encoding: 4, size: 0, count: 1, options: 5, growth: 2, layers: vec![RedisBloomLayer::default()] }
    }
}

impl RedisBloom {
    /// Returns the snapshot, without the encoding.
    pub fn snapshot(&self) -> Vec<u8> {
        let from = |encoding: u8, fields: &[u64]| if self.encoding >= encoding { numbers(fields) } else { Vec::new() };
        let mut data = vec![self.encoding];
        data.extend(numbers(&[self.size, self.count]));
        data.extend(from(2, &[self.options]));
        data.extend(from(4, &[self.growth]));
        for layer in &self.layers {
            data.extend(numbers(&[layer.entries, layer.error.to_bits(), layer.hashes, layer.bits_per_entry.to_bits()]));
            data.extend(from(1, &[layer.bits, layer.n2]));
            data.extend(string(&layer.string));
            data.extend(numbers(&[layer.size]));
        }
        data
    }

    /// Returns the header of a dump; for encodings below 4 as in the version of 2018.
    pub fn header(&self) -> Vec<u8> {
        let of_2018 = self.encoding < 4;
        let u32_of = |number: u64| (number as u32).to_le_bytes().to_vec();
        let mut data = [numbers(&[self.size]), u32_of(self.count), u32_of(self.options)].concat();
        if !of_2018 {
            data.extend(u32_of(self.growth));
        }
        for layer in &self.layers {
            data.extend(numbers(&[layer.bytes, layer.bits, layer.size]));
            data.extend(numbers(&[layer.error.to_bits(), layer.bits_per_entry.to_bits()]));
            data.extend(u32_of(layer.hashes));
            data.extend(if of_2018 { u32_of(layer.entries) } else { numbers(&[layer.entries]) });
            data.push(layer.n2 as u8);
        }
        data
    }

    /// Returns the header and the bits of each layer.
    pub fn dump(&self) -> Vec<u8> {
        let header = self.header();
        let layers = self.layers.iter().map(|layer| (0, &layer.string[..]));
        records([(0, &header[..])].into_iter().chain(layers))
    }
}

/// A layer in valkey-bloom's layout.
#[derive(Clone)]
pub struct ValkeyBloomLayer {
    pub capacity: u64,
    pub items: u64,
    pub version: u8,
    /// The length of the bits that the bitmap states.
    pub length: u64,
    pub hashes: u32,
    pub seed: [u8; 32],
    pub bits: Vec<u8>,
}

impl Default for ValkeyBloomLayer {
    fn default() -> Self {
        Self { capacity: 100, items: 0, version: 1, length: 120, hashes: 7, seed: [7; 32], bits: vec![0; 120] }
    }
}

impl ValkeyBloomLayer {
    fn bitmap(&self) -> Vec<u8> {
        let hashes = self.hashes.to_le_bytes();
        [&[self.version][..], &self.length.to_le_bytes(), &hashes, &self.seed, &self.bits].concat()
    }
}

/// A filter in valkey-bloom's layout.
#[derive(Clone)]
pub struct ValkeyBloom {
    pub load_version: u8,
    /// The stated number of layers.
    pub count: u64,
    pub expansion: u64,
    pub rate: f64,
    pub tightening: f64,
    pub is_seed_random: u64,
    pub layers: Vec<ValkeyBloomLayer>,
}

impl Default for ValkeyBloom {
    fn default() -> Self {
        let layers = vec![ValkeyBloomLayer::default()];
        Self { load_version: 1, count: 1, expansion: 2, rate: 0.01, tightening: 0.5, is_seed_random: 1, layers }
    }
}

impl ValkeyBloom {
    /// Returns the snapshot.
    pub fn snapshot(&self) -> Vec<u8> {
        let (rate, tightening) = (self.rate.to_bits(), self.tightening.to_bits());
        let mut data = numbers(&[self.count, self.expansion, rate, tightening, self.is_seed_random]);
        for (index, layer) in self.layers.iter().enumerate() {
            data.extend(numbers(&[layer.capacity]));
            if index + 1 == self.layers.len() {
                data.extend(numbers(&[layer.items]));
            }
            data.extend(string(&layer.bitmap()));
        }
        data
    }

    /// Returns the argument of BF.LOAD.
    pub fn load(&self) -> Vec<u8> {
        let mut data = vec![self.load_version];
        data.extend_from_slice(&(self.expansion as u32).to_le_bytes());
        data.extend(numbers(&[self.rate.to_bits(), self.tightening.to_bits()]));
        data.push(self.is_seed_random as u8);
        data.extend(numbers(&[self.count]));
        for layer in &self.layers {
            data.extend(string(&layer.bitmap()));
            data.extend(numbers(&[layer.items, layer.capacity]));
        }
        data
    }
}

/// A native layer.
#[derive(Clone, Debug)]
pub struct NativeLayer {
    pub rate: f64,
    pub capacity: u64,
    pub items: u64,
    pub hashes: u64,
    pub groups: u64,
    pub blocks_per_group: u64,
    /// Its chunks, empty for zeros.
    pub chunks: Vec<Vec<u8>>,
}

impl Default for NativeLayer {
    fn default() -> Self {
        let chunks = vec![vec![]];
        Self { rate: 0.01 / 32.0, capacity: 10, items: 0, hashes: 11, groups: 1, blocks_per_group: 2, chunks }
    }
}

/// A native filter.
#[derive(Clone, Debug)]
pub struct Native {
    pub version: u64,
    /// 1 for a complete filter, 2 for an arriving one.
    pub kind: u64,
    pub hash: u64,
    pub rate: f64,
    pub capacity: u64,
    pub expansion: u64,
    pub seed: u64,
    pub policy: u64,
    /// The stated number of layers.
    pub count: u64,
    pub layers: Vec<NativeLayer>,
    pub generation: u64,
    pub next: u64,
}

impl Default for Native {
    fn default() -> Self {
        let layers = vec![NativeLayer::default()];
        let (version, kind, hash, rate, capacity, expansion, seed, policy) = (1, 1, 1, 0.01, 10, 2, 42, 1);
        let (count, generation, next) = (1, 5, 0);
        Self { version, kind, hash, rate, capacity, expansion, seed, policy, count, layers, generation, next }
    }
}

impl Native {
    fn description(&self) -> Vec<u8> {
        let front = [self.hash, self.rate.to_bits(), self.capacity, self.expansion, self.seed, self.policy, self.count];
        let layers = self.layers.iter().flat_map(|layer| {
            [layer.rate.to_bits(), layer.capacity, layer.items, layer.hashes, layer.groups, layer.blocks_per_group]
        });
        numbers(&front.into_iter().chain(layers).collect::<Vec<_>>())
    }

    fn chunks(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.layers.iter().flat_map(|layer| &layer.chunks)
    }

    /// Returns the snapshot.
    pub fn snapshot(&self) -> Vec<u8> {
        let mut data = [numbers(&[self.version, self.kind]), self.description()].concat();
        if self.kind == 2 {
            data.extend(numbers(&[self.generation, self.next]));
        }
        self.chunks().for_each(|chunk| data.extend(string(chunk)));
        data
    }

    /// Returns the fields of the header of a dump.
    pub fn header(&self) -> Vec<u8> {
        [b"\xb1oomgate".to_vec(), numbers(&[self.version]), self.description()].concat()
    }

    /// Returns the header and the chunks, without checksums.
    pub fn dump(&self) -> Vec<u8> {
        let mut parts = vec![self.header()];
        parts.extend(self.chunks().map(|chunk| [&[u8::from(!chunk.is_empty())], &chunk[..]].concat()));
        records((1..).zip(parts.iter().map(Vec::as_slice)))
    }
}
