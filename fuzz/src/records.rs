//! An input as the records of a dump. The first byte says how it is spelled, the records follow:
//!
//! ```text
//! u8     spelling    1: checksums are put right (our own dump); 2: iterators are put right; 4: a primary took the records
//! record iterator    u64, or with spelling 2 a byte: of our own dump the number of the record, 1 for the header; of
//!                    RedisBloom's what is added to the iterator of a chunk that is next, -128 to 127
//!        length      u16 of the data, or as many as are left
//!        data
//! ```
//! All little-endian. Without the checksums put right no change of a byte would get past them.

/// The checksums of our own dump are put right: its records come without them.
pub const RIGHT_SUMS: u8 = 1;
/// The iterators are put right.
pub const RIGHT_ITERATORS: u8 = 2;
/// The records are those that a primary took: RedisBloom takes them in any order.
pub const OF_PRIMARY: u8 = 4;

/// A record as the input spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spelled<'a> {
    /// The iterator, or the byte that stands for it.
    pub iterator: u64,
    /// The data.
    pub data: &'a [u8],
}

/// The spelling of an input and its records.
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

/// What our own dump has besides its data: checksums, and in every iterator the generation and the number of layers.
#[derive(Clone, Copy, Debug)]
pub struct Sums {
    identity: u32,
    stream: u64,
}

impl Sums {
    /// The generation in iterators that are put right.
    pub const GENERATION: u64 = 5;
    /// The number of the record that is the header, in the last bits of its iterator.
    const HEADER: u64 = 1;
    const RECORD_BITS: u32 = 27;
    const LAYERS_BITS: u32 = 12;
    /// Bytes of a native filter's header in front of its layers: magic and 8 numbers, the last of which is that of the
    /// layers. Of a filter that counts there is one more, its kind, after a version of 2; and one more with a keyed hash.
    const FRONT_BYTES: usize = 72;
    /// Bytes of a header for each layer, and where its items are in them.
    const LAYER_BYTES: usize = 48;
    const ITEMS_AT: std::ops::Range<usize> = 16..24;

    /// Those that follow from a header's fields.
    #[must_use]
    pub fn of(fields: &[u8]) -> Self {
        let number_at =
            |at: usize| fields.get(at..).and_then(|rest| rest.first_chunk()).copied().map(u64::from_le_bytes);
        let more = if number_at(8) == Some(2) { 8 } else { 0 };
        let front_bytes = Self::FRONT_BYTES + more + if number_at(16 + more) == Some(2) { 8 } else { 0 };
        let mut without_items = fields.to_vec();
        let layers = without_items.get_mut(front_bytes..).unwrap_or_default();
        layers.chunks_exact_mut(Self::LAYER_BYTES).for_each(|layer| layer[Self::ITEMS_AT].fill(0));
        let count = fields.get(..front_bytes).and_then(|front| front.last_chunk());
        let last_layer =
            count.map_or(0, |count| u64::from_le_bytes(*count)).saturating_sub(1) % (1 << Self::LAYERS_BITS);
        let stream = (Self::GENERATION << Self::LAYERS_BITS | last_layer) << Self::RECORD_BITS;
        Self { identity: crc32fast::hash(&without_items), stream }
    }

    /// A record with all that belongs to it: its iterator, and its data with the checksum where it stands.
    #[must_use]
    pub fn put_right(self, spelling: u8, record: Spelled) -> (u64, Vec<u8>) {
        let iterator = if spelling & RIGHT_ITERATORS == 0 { record.iterator } else { self.stream | record.iterator };
        let data = record.data;
        if spelling & RIGHT_SUMS == 0 {
            return (iterator, data.to_vec());
        }
        if iterator % (1 << Self::RECORD_BITS) == Self::HEADER {
            return (iterator, [data, &crc32fast::hash(data).to_le_bytes()].concat());
        }
        let (tag, bits) = data.split_at(data.len().min(1));
        let summed = [&self.identity.to_le_bytes()[..], &iterator.to_le_bytes(), tag, bits].concat();
        (iterator, [tag, &crc32fast::hash(&summed).to_le_bytes(), bits].concat())
    }
}
