//! The file of `backup`, `restore` and `build`: filters with their keys, record by record, each of them checked.
//!
//! ```text
//! file    8 bytes magic | u32 version | u32 checksum | records
//! record  u8 tag | u32 length of the body | the body | u32 checksum
//!
//! tag 1, the first        u64 when it was made, in ms since 1970 | text: by what
//! tag 2, a key begins     text key | text type | text kind | u8 how | u64 time to live in ms | contents
//! tag 3, a part of it     u64 iterator | u8 packed | u32 length unpacked | data
//! tag 4, it ends          contents | u64 parts | u64 bytes of data, unpacked
//! tag 5, it is void       nothing: it was replaced while it was dumped, and comes again
//! tag 6, the last         u64 filters, void ones included | u64 parts | u64 bytes of data, unpacked
//!
//! text      u32 length | bytes
//! contents  u64 capacity | u64 layers | u64 items | u64 bytes, as BF.INFO tells them
//! ```
//! All little-endian. A checksum is CRC-32 (IEEE) of everything in the file before it, but not of the checksums between: the
//! CRC of bytes with their own CRC after them is always the same. So a record that is lost, comes twice or in another place is
//! noticed, as is one with a damaged byte.
//!
//! `how` is 1 where the parts are the records of BF.SCANDUMP, which BF.LOADCHUNK takes with their iterators in this order, and 2
//! where they are, one after another, what DUMP answered and RESTORE takes. It is 3 for the key `NAME:shards` of a sharded
//! filter: its only part is the number of shards in decimal digits, and all of them come before it. `packed` is 1 where the data is a frame of zstd. A
//! time to live of 2^64 - 1 is none. No record has more than 64 MiB.

mod body;
mod catalogue;
mod file;
mod listing;
mod partial;
mod read;
mod write;

pub use catalogue::{Catalogue, Entry};
pub use file::{Archive, Input, Output};
pub use listing::{Listing, Row};
pub use read::{Event, Reader};
pub use write::Writer;

const MAGIC: [u8; 8] = *b"\x89bgate\r\n";
const VERSION: u32 = 1;
/// The longest body, in bytes. Records of BF.SCANDUMP have at most 16 MiB.
const BODY_BYTES_MAX: usize = 64 << 20;
/// What DUMP answered is kept in parts of so many bytes.
pub const DUMP_PART_BYTES: usize = 1 << 20;

const TAG_BEGIN: u8 = 1;
const TAG_FILTER: u8 = 2;
const TAG_PART: u8 = 3;
const TAG_FILTER_END: u8 = 4;
const TAG_FILTER_VOID: u8 = 5;
const TAG_END: u8 = 6;

const PACKED_NOT: u8 = 0;
const PACKED_ZSTD: u8 = 1;

/// How a filter's data was got, and goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// BF.SCANDUMP and BF.LOADCHUNK.
    Records,
    /// DUMP and RESTORE.
    Dump,
    /// The number of shards of a sharded filter: GET and SET.
    Shards,
}

/// What BF.INFO tells of a filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// The items that it is made for.
    pub capacity: u64,
    /// Number of its layers.
    pub layers: u64,
    /// The items that are in.
    pub items: u64,
    /// What it takes, in bytes.
    pub bytes: u64,
}

/// What a filter begins with in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its key.
    pub key: Vec<u8>,
    /// What TYPE answered: `bloomgate`, say.
    pub type_name: String,
    /// Which kind of filter it is: `native`, `windowed`, `counting`, `redisbloom` or `valkey-bloom`.
    pub kind: String,
    /// How its data was got.
    pub how: How,
    /// Its time to live, in milliseconds, when it was dumped.
    pub ttl_ms: Option<u64>,
    /// What it was when the dump began.
    pub before: Contents,
}

/// What there is of everything together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Filters, void ones included.
    pub filters: u64,
    /// Their parts.
    pub parts: u64,
    /// The parts' data, unpacked.
    pub bytes: u64,
}
