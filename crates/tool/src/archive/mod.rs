//! The file format of `backup`, `restore` and `build`: filters with their keys, as records with checksums.
//!
//! ```text
//! file    8 bytes magic | u32 version | u32 checksum | records
//! record  u8 tag | u32 length of the body | the body | u32 checksum
//!
//! tag 1, the first        u64 time of creation, in ms since 1970 | text: the program
//! tag 2, begin of a key   text key | text type | text kind | u8 how | u64 time to live in ms | contents
//! tag 3, part of its data u64 iterator | u8 compression | u32 uncompressed length | data
//! tag 4, end of the key   contents | u64 parts | u64 uncompressed bytes of data
//! tag 5, the key is void  nothing: it was replaced while it was dumped, and is repeated later
//! tag 6, the last         u64 filters, void ones included | u64 parts | u64 uncompressed bytes of data
//!
//! text      u32 length | bytes
//! contents  u64 capacity | u64 layers | u64 items | u64 bytes, as BF.INFO reports them
//! ```
//! All integers are little-endian. A checksum is the CRC-32 (IEEE) of everything before it in the file except other checksums:
//! the CRC of bytes followed by their own CRC is a constant. So a missing, repeated or misplaced record is detected, like a
//! damaged byte.
//!
//! `how` is 1 if the parts are the records of BF.SCANDUMP, which BF.LOADCHUNK takes with their iterators in this order, and 2 if
//! their concatenation is the reply to DUMP, which RESTORE takes. It is 3 for the key `NAME:shards` of a sharded filter: its only
//! part is the number of shards in decimal digits, and all shards precede it. `compression` is 0 for none, or 1 for a zstd frame.
//! A time to live of 2^64 - 1 means none. No body is longer than 64 MiB.

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

pub const MAGIC: &[u8; 8] = b"\x89bgate\r\n";
const VERSION: u32 = 1;
/// The longest body, in bytes. Records of BF.SCANDUMP have at most 16 MiB.
const BODY_BYTES_MAX: usize = 64 << 20;
/// The length of the parts into which the reply to DUMP is split.
pub const DUMP_PART_BYTES: usize = 1 << 20;

const TAG_BEGIN: u8 = 1;
const TAG_FILTER: u8 = 2;
const TAG_PART: u8 = 3;
const TAG_FILTER_END: u8 = 4;
const TAG_FILTER_VOID: u8 = 5;
const TAG_END: u8 = 6;

const PACKED_NOT: u8 = 0;
const PACKED_ZSTD: u8 = 1;

/// How a filter's data was read and is restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// BF.SCANDUMP and BF.LOADCHUNK.
    Records,
    /// DUMP and RESTORE.
    Dump,
    /// The number of shards of a sharded filter: GET and SET.
    Shards,
}

/// The figures of a filter, as BF.INFO reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// The capacity in items.
    pub capacity: u64,
    /// The number of layers.
    pub layers: u64,
    /// The number of items.
    pub items: u64,
    /// The size in bytes.
    pub bytes: u64,
}

/// The first record of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The key.
    pub key: Vec<u8>,
    /// The reply to TYPE, such as `bloomgate`.
    pub type_name: String,
    /// The kind of filter: `native`, `windowed`, `counting`, `redisbloom` or `valkey-bloom`.
    pub kind: String,
    /// How its data was read.
    pub how: How,
    /// The time to live in milliseconds when it was dumped.
    pub ttl_ms: Option<u64>,
    /// Its contents when the dump began.
    pub before: Contents,
}

/// Totals of a file or of one filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Filters, void ones included.
    pub filters: u64,
    /// Parts.
    pub parts: u64,
    /// Uncompressed bytes of the parts' data.
    pub bytes: u64,
}
