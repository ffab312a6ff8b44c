//! Writes values to the AOF when the server rewrites it. This runs in a child of the server and needs memory besides the filters'.
//!
//! BF.LOAD has the whole filter in one argument, for small native filters and for filters of valkey-bloom's layout. All others are emitted
//! in chunks. For the argument the server needs one string as large as the filter, into which it would copy a buffer of the module. So the
//! record of a large filter of valkey-bloom's layout is built, layer by layer, in the string that is emitted.

use std::ptr::null_mut;

use bloomgate_filter::Error;
use bloomgate_filter::format::{self, AofRecord};
use bloomgate_filter::kinds::ValkeyBloomFilter;
use bloomgate_filter::kinds::valkey_bloom::load;

use super::stored::Stored;
use crate::api::{self, Io, OwnedString};
use crate::args::Arg;
use crate::context::Context;

/// Writes a value to the AOF. The callback cannot return an error, so a child that has no memory for a record exits, and the server keeps
/// its old file.
pub fn emit(io: Io, key: Arg<'_>, stored: &Stored) {
    let loadchunk = if stored.value.is_redisbloom_cuckoo() { c"CF.LOADCHUNK" } else { c"BF.LOADCHUNK" };
    let emitted = stored.value.for_each_record(stored.generation, |record| {
        match record {
            AofRecord::Chunk { iterator, data } => {
                api::emit_chunk(io, loadchunk, key, iterator.cast_signed(), data);
            }
            AofRecord::Small(data) => api::emit_bytes(io, c"BF.LOAD", key, data),
            AofRecord::Whole(filter) => match Record::of(filter)?.and_then(|record| record.string) {
                Some(string) => api::emit_string(io, c"BF.LOAD", key, string.arg()),
                None => api::emit_bytes(io, c"BF.LOAD", key, &load::encode(filter)?),
            },
        }
        Ok(())
    });
    if let Err(error) = emitted {
        Context::new(null_mut()).give_up(format_args!("bloomgate: cannot rewrite the AOF: {error}"));
    }
}

/// The argument of BF.LOAD as a server string to which bytes can be appended.
struct Record {
    string: Option<OwnedString>,
    /// The first bytes, before the string exists. The server embeds a short string in its object, where it cannot append to it; a
    /// string of this length is separate.
    front: Vec<u8>,
}

impl Record {
    const FRONT_BYTES: usize = 4096;
    /// A smaller record is copied.
    const FROM_BYTES: usize = 64 * 1024;
    /// How often each byte of a record may be copied on average. A string may be copied whenever it grows: with n layers of one size, each
    /// byte is copied n / 2 times.
    const COPIES_MAX: u64 = 8;

    /// The record of a filter; `None` if it is small, or would be copied too often.
    fn of(filter: &ValkeyBloomFilter) -> Result<Option<Self>, format::Error> {
        let length = load::length(filter);
        let (_, copied) = filter.layers().iter().fold((0u64, 0u64), |(before, copied), layer| {
            (before.saturating_add(layer.bytes().len() as u64), copied.saturating_add(before))
        });
        if length < Self::FROM_BYTES || copied > Self::COPIES_MAX.saturating_mul(length as u64) {
            return Ok(None);
        }
        // A server that has no memory for a string exits without a line in the log, so this tries to allocate the memory first.
        let room = |bytes: usize| {
            let mut room = Vec::new();
            let refused = Error::OutOfMemory { asked_bytes: bytes as u64 };
            room.try_reserve_exact(bytes).map(|()| room).map_err(|_| refused)
        };
        drop(room(length)?);
        let mut record = Self { string: None, front: room(Self::FRONT_BYTES)? };
        load::write(filter, |part| record.add(part));
        Ok(Some(record))
    }

    fn add(&mut self, part: &[u8]) {
        let room = if self.string.is_none() { Self::FRONT_BYTES - self.front.len() } else { 0 };
        let (front, rest) = part.split_at_checked(room).unwrap_or((part, &[]));
        self.front.extend_from_slice(front);
        if self.string.is_none() && self.front.len() == Self::FRONT_BYTES {
            self.string = OwnedString::of(&self.front);
        }
        if let Some(string) = self.string.as_mut().filter(|_| !rest.is_empty()) {
            string.append(rest);
        }
    }
}
