//! Parses an input as the records of a dump. The first byte is the spelling, and the records follow:
//!
//! ```text
//! u8     spelling    1: checksums are corrected (our own dumps); 2: iterators are corrected; 4: a primary accepted the records
//! record iterator    u64, or with spelling 2 a byte: for our own dumps the number of the record, 1 for the header; for
//!                    RedisBloom's an offset from the iterator of the next chunk, -128 to 127
//!        length      u16, the length of the data; at most what is left
//!        data
//! ```
//! All integers are little-endian. Without this correction, the checksums would reject every changed byte.

/// Our own dumps come without checksums, which are then added.
pub const RIGHT_SUMS: u8 = 1;
/// The iterators are corrected.
pub const RIGHT_ITERATORS: u8 = 2;
/// A primary accepted the records, so RedisBloom accepts them in any order.
pub const OF_PRIMARY: u8 = 4;

/// A record as spelled in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spelled<'a> {
    /// The iterator, or the byte that represents it.
    pub iterator: u64,
    /// The data.
    pub data: &'a [u8],
}

/// The spelling of an input, and its records.
#[must_use]
pub fn of(input: &[u8]) -> (u8, Vec<Spelled<'_>>) {
    let Some((spelling, mut rest)) = input.split_first() else { return (0, Vec::new()) };
    let (spelling, mut records) = (spelling & (RIGHT_SUMS | RIGHT_ITERATORS | OF_PRIMARY), Vec::new());
    while let Some((iterator, after)) = iterator(spelling, rest) {
        let Some((length, after)) = after.split_first_chunk() else { break };
        let (data, after) = after.split_at(usize::from(u16::from_le_bytes(*length)).min(after.len()));
        records.push(Spelled { iterator, data });
        rest = after;
    }
    (spelling, records)
}

fn iterator(spelling: u8, input: &[u8]) -> Option<(u64, &[u8])> {
    if spelling & RIGHT_ITERATORS != 0 {
        input.split_first().map(|(byte, rest)| (u64::from(*byte), rest))
    } else {
        input.split_first_chunk().map(|(bytes, rest)| (u64::from_le_bytes(*bytes), rest))
    }
}

/// The parts of our own dumps besides data: checksums, and in every iterator the generation and the number of layers.
#[derive(Clone, Copy, Debug)]
pub struct Sums {
    identity: u32,
    stream: u64,
    /// The number of low bits of an iterator that are the record's number.
    record_bits: u32,
}

impl Sums {
    /// The generation in corrected iterators.
    pub const GENERATION: u64 = 5;
    /// The number of the header record.
    const HEADER: u64 = 1;
    const STREAM_AT: u32 = 27;
    const LAYERS_BITS: u32 = 12;

    /// Parses the fields of a header, as specified in `format/stored.rs`: magic, version, from version 2 on the kind, and the description.
    /// For a record that is not a header of ours, the values are arbitrary.
    #[must_use]
    pub fn of(fields: &[u8]) -> Self {
        let mut reader = Fields { rest: fields.get(8..).unwrap_or_default() };
        let kind = if reader.number() == 2 { reader.number() } else { 1 };
        let is_keyed = reader.number() == 2;
        // Rate, capacity, expansion, seed or key, policy.
        reader.skip(if is_keyed { 6 } else { 5 });
        let (mut layers, mut identified) = (0_u64, Vec::new());
        if kind == 6 {
            // The window, whether it slides, the maximum number of buckets; then the number of buckets, which is
            // skipped.
            reader.skip(3);
            identified = fields[..fields.len() - reader.rest.len()].to_vec();
            for _ in 0..reader.number().min(64) {
                // Slot, begin, end and capacity; whether a dump omitted the bucket, which is also skipped.
                identified.extend_from_slice(reader.rest.get(..32).unwrap_or(reader.rest));
                reader.skip(5);
                layers = layers.wrapping_add(reader.layers(&mut identified));
            }
        } else {
            identified.extend_from_slice(&fields[..fields.len() - reader.rest.len()]);
            layers = reader.layers(&mut identified);
            identified.extend_from_slice(reader.rest);
        }
        let last_layer = layers.saturating_sub(1) % (1 << Self::LAYERS_BITS);
        let stream = (Self::GENERATION << Self::LAYERS_BITS | last_layer) << Self::STREAM_AT;
        let record_bits = if kind == 6 || is_keyed && kind == 1 { 19 } else { Self::STREAM_AT };
        Self { identity: crc32fast::hash(&identified), stream, record_bits }
    }

    /// Returns a record in its final form: its iterator, and its data with its checksum.
    #[must_use]
    pub fn correct(self, spelling: u8, record: Spelled) -> (u64, Vec<u8>) {
        let iterator = if spelling & RIGHT_ITERATORS == 0 { record.iterator } else { self.stream | record.iterator };
        let data = record.data;
        if spelling & RIGHT_SUMS == 0 {
            return (iterator, data.to_vec());
        }
        if iterator % (1 << self.record_bits) == Self::HEADER {
            return (iterator, [data, &crc32fast::hash(data).to_le_bytes()].concat());
        }
        let (tag, bits) = data.split_at(data.len().min(1));
        let summed = [&self.identity.to_le_bytes()[..], &iterator.to_le_bytes(), tag, bits].concat();
        (iterator, [tag, &crc32fast::hash(&summed).to_le_bytes(), bits].concat())
    }
}

/// The unread fields of a header, 8 bytes each.
struct Fields<'a> {
    rest: &'a [u8],
}

impl Fields<'_> {
    /// The next field; 0 if there is none.
    fn number(&mut self) -> u64 {
        let Some((number, rest)) = self.rest.split_first_chunk() else { return 0 };
        self.rest = rest;
        u64::from_le_bytes(*number)
    }

    fn skip(&mut self, fields: usize) {
        self.rest = self.rest.get(8 * fields..).unwrap_or_default();
    }

    /// Reads the number of layers and the description of each, as if no items had been added. Returns the number.
    fn layers(&mut self, said: &mut Vec<u8>) -> u64 {
        /// Bytes of a layer, and where its items are in them.
        const LAYER_BYTES: usize = 48;
        const ITEMS_AT: std::ops::Range<usize> = 16..24;
        let before = self.rest;
        let layers = self.number();
        said.extend_from_slice(&before[..before.len() - self.rest.len()]);
        for _ in 0..layers {
            let Some((layer, rest)) = self.rest.split_first_chunk::<LAYER_BYTES>() else { break };
            let mut layer = *layer;
            layer[ITEMS_AT].fill(0);
            said.extend_from_slice(&layer);
            self.rest = rest;
        }
        layers
    }
}
