//! The server's snapshots as a source and a sink of the filter crate's codecs.

use bloomgate_filter::format::{Error, Sink, Source};
use redis_module::raw;

/// A snapshot that is being written or read.
pub struct Snapshot {
    io: *mut raw::RedisModuleIO,
    /// The bytes of strings that were written, before the server compresses them.
    pub written_bytes: u64,
}

impl Sink for Snapshot {
    fn put_u64(&mut self, number: u64) {
        raw::save_unsigned(self.io, number);
    }

    fn put_f64(&mut self, number: f64) {
        raw::save_double(self.io, number);
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        raw::save_slice(self.io, bytes);
        self.written_bytes += bytes.len() as u64;
    }
}

impl Snapshot {
    /// A snapshot of the server.
    pub const fn new(io: *mut raw::RedisModuleIO) -> Self {
        Self { io, written_bytes: 0 }
    }

    /// Returns what was read, unless reading has failed. The wrappers of the crate `redis_module` do the same, but their errors
    /// allocate.
    fn unless_failed<T>(&self, read: Option<T>) -> Result<T, Error> {
        // SAFETY: the snapshot is the one that the server passed.
        let failed = unsafe { raw::RedisModule_IsIOError.is_some_and(|is_error| is_error(self.io) != 0) };
        read.filter(|_| !failed).ok_or(Error::Truncated)
    }
}

impl Source for Snapshot {
    type Bytes<'a> = Box<[u8]>;

    fn u64(&mut self) -> Result<u64, Error> {
        // SAFETY: the snapshot is the one that the server passed.
        self.unless_failed(unsafe { raw::RedisModule_LoadUnsigned.map(|load| load(self.io)) })
    }

    fn f64(&mut self) -> Result<f64, Error> {
        // SAFETY: the snapshot is the one that the server passed.
        self.unless_failed(unsafe { raw::RedisModule_LoadDouble.map(|load| load(self.io)) })
    }

    fn bytes(&mut self) -> Result<Box<[u8]>, Error> {
        self.owned_bytes()
    }

    /// The server's buffer itself, without a copy: it comes from the allocator that this module uses, too.
    fn owned_bytes(&mut self) -> Result<Box<[u8]>, Error> {
        let mut length = 0;
        // SAFETY: the server writes the length of the buffer that it gives. The buffer is not null, comes from the
        // server's allocator, which the global one forwards to, and nothing else has it; an empty one, which a box would
        // not free, is freed here.
        unsafe {
            let load = raw::RedisModule_LoadStringBuffer.ok_or(Error::Truncated)?;
            let buffer = load(self.io, &raw mut length).cast::<u8>();
            if buffer.is_null() {
                return Err(Error::Truncated);
            }
            if length == 0 {
                if let Some(free) = raw::RedisModule_Free {
                    free(buffer.cast());
                }
                return Ok(Box::default());
            }
            Ok(Box::from_raw(std::ptr::slice_from_raw_parts_mut(buffer, length)))
        }
    }
}
