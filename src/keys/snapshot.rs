//! Writes and reads values in the format of snapshots and `DUMP` payloads, digests them, and warns of payloads that no server accepts.
//!
//! RESTORE refuses a payload that is larger than an argument may be, after both servers have worked on it for many seconds. The callback
//! that saves a filter cannot refuse, so it logs what to do instead. The server calls it for snapshots as well: in a child or, for SAVE and
//! SHUTDOWN, in its own process. A server may also save in a thread while commands run. So a value is part of a payload if the command
//! thread saves it in the server's process while that process writes no snapshot. This file never queries the server's state, because only
//! the command thread may.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bloomgate_filter::Value;
use bloomgate_filter::format::{self, Sink, Source};

use crate::api::{self, Digest, Io};
use crate::context::{Context, LogLevel};
use crate::server::{freeing, huge_pages};

/// The maximum length of an argument that a server accepts by default (proto-max-bulk-len), in bytes.
const ARGUMENT_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// Whether the server is saving in the foreground: in its own process, not in a child.
static SAVES_IN_FOREGROUND: AtomicBool = AtomicBool::new(false);

/// Records that the server has started or finished a save in the foreground.
pub fn foreground_save_changed(is_saving: bool) {
    SAVES_IN_FOREGROUND.store(is_saving, Relaxed);
}

/// Warns if a value that was just saved in this many bytes is a payload, and is too large.
fn warn_of_large_payload(bytes: u64) {
    if bytes > ARGUMENT_BYTES_MAX && !SAVES_IN_FOREGROUND.load(Relaxed) && freeing::runs_commands() {
        Context::new(null_mut()).log(
            LogLevel::Warning,
            format_args!(
                "bloomgate: the DUMP or MIGRATE payload of a filter of {bytes} bytes may exceed what RESTORE accepts \
                 (proto-max-bulk-len, {ARGUMENT_BYTES_MAX} by default): use replication, or BF.SCANDUMP and BF.LOADCHUNK"
            ),
        );
    }
}

/// Writes a value to a snapshot or a payload.
pub fn write(io: Io, value: &Value) {
    let mut snapshot = Snapshot::new(io);
    value.write(&mut snapshot);
    warn_of_large_payload(snapshot.written_bytes);
}

/// Digests the fields and the bits: filters have the same digest only if they are equal.
pub fn digest(digest: Digest, value: &Value) {
    struct Digester(Digest);
    impl Sink for Digester {
        fn put_u64(&mut self, number: u64) {
            self.put_bytes(&number.to_le_bytes());
        }
        fn put_f64(&mut self, number: f64) {
            self.put_u64(number.to_bits());
        }
        fn put_bytes(&mut self, bytes: &[u8]) {
            api::digest_bytes(self.0, bytes);
        }
    }
    value.write(&mut Digester(digest));
    api::end_digest(digest);
}

/// A snapshot that is being written or read.
pub struct Snapshot {
    io: Io,
    /// The bytes of strings that were written, before the server compresses them.
    written_bytes: u64,
}

impl Sink for Snapshot {
    fn put_u64(&mut self, number: u64) {
        api::save_integer(self.io, number);
    }

    fn put_f64(&mut self, number: f64) {
        api::save_double(self.io, number);
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        api::save_bytes(self.io, bytes);
        self.written_bytes += bytes.len() as u64;
    }
}

impl Snapshot {
    /// A snapshot of the server.
    pub const fn new(io: Io) -> Self {
        Self { io, written_bytes: 0 }
    }

    /// Returns `read`, or an error if reading has failed. The wrappers of the crate `redis_module` do the same, but their errors allocate.
    fn unless_failed<T>(&self, read: T) -> Result<T, format::Error> {
        if api::has_failed(self.io) == 0 { Ok(read) } else { Err(format::Error::Truncated) }
    }
}

impl Source for Snapshot {
    type Bytes<'a> = Box<[u8]>;

    fn u64(&mut self) -> Result<u64, format::Error> {
        self.unless_failed(api::load_integer(self.io))
    }

    fn f64(&mut self) -> Result<f64, format::Error> {
        self.unless_failed(api::load_double(self.io))
    }

    fn bytes(&mut self) -> Result<Box<[u8]>, format::Error> {
        self.owned_bytes()
    }

    /// Returns the server's buffer itself, without a copy: it comes from the module's own allocator.
    fn owned_bytes(&mut self) -> Result<Box<[u8]>, format::Error> {
        let mut length = 0;
        // SAFETY: the server returns the buffer and its length. The buffer is not null, comes from the server's allocator, to which the
        // global allocator forwards, and has no other owner. An empty buffer is freed here, because a box would not free it.
        unsafe {
            let buffer = api::load_bytes(self.io, &mut length).cast::<u8>();
            if buffer.is_null() {
                return Err(format::Error::Truncated);
            }
            if length == 0 {
                api::free(buffer.cast());
                return Ok(Box::default());
            }
            // The bits of a RedisBloom or valkey-bloom layer stay in this buffer.
            huge_pages::allocated(buffer, length);
            Ok(Box::from_raw(std::ptr::slice_from_raw_parts_mut(buffer, length)))
        }
    }
}
