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
}
