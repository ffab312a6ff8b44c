//! The callback that writes a value to the AOF when the server rewrites it. It runs in a child of the server and needs memory beside
//! the filters.
//!
//! Filters are emitted in chunks, except those of valkey-bloom's layout. Their command, BF.LOAD, has the whole filter in one argument,
//! and the server takes an argument as one string, which is as large as the filter. From a buffer of ours the server would copy it. So
//! the record is built, layer by layer, in the string that is emitted.

use std::ffi::c_void;
use std::ptr::null_mut;

use bloomgate_filter::format::AofRecord;
use bloomgate_filter::kinds::ValkeyBloomFilter;
use bloomgate_filter::kinds::valkey_bloom::load;
use bloomgate_filter::{Error, cells::Cells as _, format};
use redis_module::raw;

use super::stored::stored_at;
use crate::context::Context;

/// Writes a value to the AOF. The callback cannot return an error, so a child that lacks the memory for a record exits, and the server
/// keeps the file that it has.
pub(super) unsafe extern "C" fn run(io: *mut raw::RedisModuleIO, key: *mut raw::RedisModuleString, value: *mut c_void) {
    let rewriting = Rewriting { io, key };
    // SAFETY: the server passes a value of ours, and keeps it as it is until this returns.
    let stored = unsafe { stored_at(value) };
    let emitted = stored.value.for_each_record(stored.generation, |record| match record {
        AofRecord::Chunk { iterator, data } => {
            rewriting.chunk(iterator, data);
            Ok(())
        }
        AofRecord::Whole(filter) => rewriting.whole(filter),
    });
    if let Err(error) = emitted {
        Context::new(null_mut()).give_up(format_args!("bloomgate: cannot rewrite the AOF: {error}"));
    }
}

/// The server's file and the key of the value.
struct Rewriting {
    io: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
}

impl Rewriting {
    fn chunk(&self, iterator: u64, data: &[u8]) {
        // SAFETY: the arguments are those that the format announces: a string, a number, bytes and their length.
        unsafe {
            if let Some(emit) = raw::RedisModule_EmitAOF {
                let (name, format) = (c"BF.LOADCHUNK".as_ptr(), c"slb".as_ptr());
                emit(self.io, name, format, self.key, iterator.cast_signed(), data.as_ptr(), data.len());
            }
        }
    }

    /// Emits a filter as one command.
    fn whole(&self, filter: &ValkeyBloomFilter) -> Result<(), format::Error> {
        let record = Record::of(filter)?;
        let data = if record.is_some() { Vec::new() } else { load::encode(filter)? };
        // SAFETY: the arguments are those that the formats announce: two strings; a string, bytes and their length.
        unsafe {
            if let Some(emit) = raw::RedisModule_EmitAOF {
                let name = c"BF.LOAD".as_ptr();
                match record {
                    Some(record) => emit(self.io, name, c"ss".as_ptr(), self.key, record.string),
                    None => emit(self.io, name, c"sb".as_ptr(), self.key, data.as_ptr(), data.len()),
                };
            }
        }
        Ok(())
    }
}

/// The argument of BF.LOAD as a string of the server, to which bytes can be appended.
struct Record {
    string: *mut raw::RedisModuleString,
    /// The first bytes, before the string exists. The server embeds a short string in its object, where it cannot append to it; a
    /// string of this length is separate.
    front: Vec<u8>,
}

impl Record {
    const FRONT_BYTES: usize = 4096;
    /// A smaller record may exist twice.
    const FROM_BYTES: usize = 64 * 1024;
    /// How often each byte of a record may be copied on average. A string may be copied whenever it grows: with many layers of one
    /// size, half as often as there are layers.
    const COPIES_MAX: u64 = 8;

    /// The record of a filter; `None` if it is small, or would be copied too often.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    fn of(filter: &ValkeyBloomFilter) -> Result<Option<Self>, format::Error> {
        let length = load::length(filter);
        let (_, copied) = filter.layers().iter().fold((0u64, 0u64), |(before, copied), layer| {
            (before.saturating_add(layer.cells().allocated_bytes()), copied.saturating_add(before))
        });
        if length < Self::FROM_BYTES || copied > Self::COPIES_MAX.saturating_mul(length as u64) {
            return Ok(None);
        }
        // A server that lacks the memory for a string exits without a line in the log: so this tries to allocate it first.
        let room = |bytes: usize| {
            let mut room = Vec::new();
            let refused = Error::OutOfMemory { asked_bytes: bytes as u64 };
            room.try_reserve_exact(bytes).map(|()| room).map_err(|_| refused)
        };
        drop(room(length)?);
        let mut record = Self { string: null_mut(), front: room(Self::FRONT_BYTES)? };
        load::write(filter, |part| record.add(part));
        Ok(Some(record))
    }

    fn add(&mut self, part: &[u8]) {
        let room = if self.string.is_null() { Self::FRONT_BYTES - self.front.len() } else { 0 };
        let (front, rest) = part.split_at_checked(room).unwrap_or((part, &[]));
        self.front.extend_from_slice(front);
        // SAFETY: pointers and lengths are those of bytes that the server copies; the string has no other owner.
        unsafe {
            if self.string.is_null()
                && self.front.len() == Self::FRONT_BYTES
                && let Some(create) = raw::RedisModule_CreateString
            {
                self.string = create(null_mut(), self.front.as_ptr().cast(), self.front.len());
            }
            if !rest.is_empty()
                && let Some(append) = raw::RedisModule_StringAppendBuffer
            {
                append(null_mut(), self.string, rest.as_ptr().cast(), rest.len());
            }
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // SAFETY: the string came from `CreateString` and is freed once.
        unsafe {
            if let Some(free) = raw::RedisModule_FreeString
                && !self.string.is_null()
            {
                free(null_mut(), self.string);
            }
        }
    }
}
