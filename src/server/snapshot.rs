//! The server's snapshot as a source and a sink of our codecs.

use redis_module::{RedisBuffer, raw};

use crate::format::{Error, Sink, Source};

/// A snapshot that is being written or read.
pub struct Snapshot(pub *mut raw::RedisModuleIO);

impl Sink for Snapshot {
    fn put_u64(&mut self, number: u64) {
        raw::save_unsigned(self.0, number);
    }

    fn put_f64(&mut self, number: f64) {
        raw::save_double(self.0, number);
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        raw::save_slice(self.0, bytes);
    }
}

impl Source for Snapshot {
    type Bytes<'a> = RedisBuffer;

    fn u64(&mut self) -> Result<u64, Error> {
        raw::load_unsigned(self.0).map_err(|_| Error::Truncated)
    }

    fn f64(&mut self) -> Result<f64, Error> {
        raw::load_double(self.0).map_err(|_| Error::Truncated)
    }

    fn bytes(&mut self) -> Result<RedisBuffer, Error> {
        raw::load_string_buffer(self.0).map_err(|_| Error::Truncated)
    }

    /// The server's buffer itself: it comes from the allocator that is ours, too, and what loads it has no second copy.
    fn owned_bytes(&mut self) -> Result<Box<[u8]>, Error> {
        let mut length = 0;
        // SAFETY: the server writes the length of the buffer that it gives. The buffer is not null, comes from the
        // server's allocator, which the global one forwards to, and nobody else has it; an empty one, which a box would
        // not give back, is freed here.
        unsafe {
            let load = raw::RedisModule_LoadStringBuffer.ok_or(Error::Truncated)?;
            let buffer = load(self.0, &raw mut length).cast::<u8>();
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
