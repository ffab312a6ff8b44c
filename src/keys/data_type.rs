//! The types of our values: `bloomgate`, and those of RedisBloom and valkey-bloom for filters of their layouts. Their callbacks save,
//! load, rewrite, copy, measure, compare and free values.

use std::ffi::{c_int, c_ulong, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed};

use bloomgate_filter::cells::{Cells as _, Mover};
use bloomgate_filter::format::{self, AofRecord, Sink, Source, StoredAs};
use bloomgate_filter::kinds::ValkeyBloomFilter;
use bloomgate_filter::kinds::valkey_bloom::load;
use bloomgate_filter::{Ceiling, Error, Unlimited, Value};
use redis_module::{RedisString, raw};

use super::stored::{Stored, stored_at};
use crate::api;
use crate::context::{Context, LogLevel, Text};
use crate::reply::Refusal;
use crate::server::ceiling::ServerCeiling;
use crate::server::{freeing, huge_pages};
use crate::{config, metrics};

/// A type that is registered with the server.
struct Type {
    stored_as: StoredAs,
    load: raw::RedisModuleTypeLoadFunc,
    /// The server's handle; null before it is registered.
    raw: AtomicPtr<raw::RedisModuleType>,
}

impl Type {
    const fn new(stored_as: StoredAs, load: raw::RedisModuleTypeLoadFunc) -> Self {
        Self { stored_as, load, raw: AtomicPtr::new(null_mut()) }
    }

    #[inline]
    fn raw(&self) -> *mut raw::RedisModuleType {
        self.raw.load(Relaxed)
    }
}

static TYPES: [Type; 3] = [
    Type::new(StoredAs::Own, Some(load_own)),
    Type::new(StoredAs::RedisBloom, Some(load_redisbloom)),
    Type::new(StoredAs::ValkeyBloom, Some(load_valkey_bloom)),
];

/// Whether a handle of the server is that of a type of ours.
#[inline]
pub(super) fn is_ours(raw: *mut raw::RedisModuleType) -> bool {
    !raw.is_null() && TYPES.iter().any(|own| raw == own.raw())
}

/// The server's handle of the type that a value is stored under.
pub(super) fn raw_type_of(value: &Value) -> *mut raw::RedisModuleType {
    let stored_as = value.stored_as();
    TYPES.iter().find(|own| own.stored_as == stored_as).map_or(null_mut(), Type::raw)
}

/// Registers the types.
/// The error is a line for the log.
pub fn register(context: Context) -> Result<(), String> {
    TYPES.iter().try_for_each(|own| register_type(context, own))
}

fn register_type(context: Context, own: &Type) -> Result<(), String> {
    let mut methods = raw::RedisModuleTypeMethods {
        version: raw::REDISMODULE_TYPE_METHOD_VERSION.into(),
        rdb_load: own.load,
        rdb_save: Some(save),
        aof_rewrite: Some(rewrite),
        mem_usage: Some(memory_usage),
        digest: Some(digest),
        free: Some(free),
        aux_load: None,
        aux_save: None,
        aux_save_triggers: 0,
        free_effort: Some(free_effort),
        unlink: None,
        copy: Some(copy),
        defrag: Some(defragment),
        mem_usage2: None,
        free_effort2: None,
        unlink2: None,
        copy2: None,
        aux_save2: None,
    };
    let raw = api::create_type(context, own.stored_as.name(), own.stored_as.encoding().cast_signed(), &mut methods);
    own.raw.store(raw, Relaxed);
    let refused = || {
        format!(
            "the server refuses the type '{}': is another module of Bloom filters loaded?",
            own.stored_as.name().to_string_lossy()
        )
    };
    if raw.is_null() { Err(refused()) } else { Ok(()) }
}

unsafe extern "C" fn load_own(io: *mut raw::RedisModuleIO, encoding: c_int) -> *mut c_void {
    load(io, StoredAs::Own, encoding)
}

unsafe extern "C" fn load_redisbloom(io: *mut raw::RedisModuleIO, encoding: c_int) -> *mut c_void {
    load(io, StoredAs::RedisBloom, encoding)
}

unsafe extern "C" fn load_valkey_bloom(io: *mut raw::RedisModuleIO, encoding: c_int) -> *mut c_void {
    load(io, StoredAs::ValkeyBloom, encoding)
}

/// The ceiling applies to a client's RESTORE, not to a snapshot, the AOF or a primary's stream. A callback does not see a client, but
/// only a primary that is not loading has one.
enum LoadCeiling {
    Client(ServerCeiling),
    None,
}

impl Ceiling for LoadCeiling {
    fn available_bytes(&self, filter_bytes: u64, asked_bytes: u64) -> u64 {
        match self {
            Self::Client(ceiling) => ceiling.available_bytes(filter_bytes, asked_bytes),
            Self::None => Unlimited.available_bytes(filter_bytes, asked_bytes),
        }
    }

    fn counts_rounding(&self) -> bool {
        matches!(self, Self::Client(ceiling) if ceiling.counts_rounding())
    }

    fn layers_max(&self) -> usize {
        match self {
            Self::Client(ceiling) => ceiling.layers_max(),
            Self::None => Unlimited.layers_max(),
        }
    }
}

fn load(io: *mut raw::RedisModuleIO, stored_as: StoredAs, encoding: c_int) -> *mut c_void {
    // SAFETY: the server gives the context of the snapshot that it calls us with.
    let context = Context::new(unsafe { api::snapshot_context(io) });
    let ceiling = if context.is_primary() {
        LoadCeiling::Client(ServerCeiling::of(context, context.origin()))
    } else {
        LoadCeiling::None
    };
    let read = stored_as.read(encoding.unsigned_abs(), &mut Snapshot::new(io), &ceiling);
    match read.and_then(|value| Ok(Stored::boxed(value)?)) {
        Ok(stored) => Box::into_raw(stored).cast(),
        Err(error) => {
            let line = Text::of(format_args!("bloomgate: cannot load a filter: {error}"));
            // SAFETY: the snapshot is the one that the server passed.
            unsafe { api::snapshot_log(io, LogLevel::Warning.name(), line.as_c_str()) };
            if must_load(context, error) {
                context.abort_replication(format_args!("the filter at '{}': {error}", key_name(io).escape_ascii()));
            }
            null_mut()
        }
    }
}

/// The key of the value that is loaded; empty if the server does not know it.
fn key_name<'a>(io: *mut raw::RedisModuleIO) -> &'a [u8] {
    // SAFETY: the server's pointer is valid while it loads the value. The string lives longer than that.
    let name = unsafe { api::snapshot_key(io) };
    if name.is_null() { &[] } else { RedisString::string_as_slice(name) }
}

/// Whether a callback must succeed, because the value comes from a snapshot, the AOF, or a primary's RESTORE or COPY. A callback has no
/// client, so on a replica it always must: a client's command cannot be distinguished there.
fn must_succeed(context: Context) -> bool {
    context.origin().is_effect() || !context.is_primary()
}

/// Whether the server must not go on without a value that cannot be loaded. The server itself refuses a snapshot, but only replies with
/// an error to a RESTORE of the primary or the AOF, which accepted the value. On a replica a value that ends too early does not count:
/// the connection to the primary may have been cut, and the replica synchronises again. Neither does a payload that a client may have
/// sent.
fn must_load(context: Context, error: format::Error) -> bool {
    match error {
        format::Error::Filter(error) if error.is_out_of_memory() => must_succeed(context),
        format::Error::Truncated if !context.is_primary() => false,
        _ => context.is_loading() || context.is_read_only_replica(),
    }
}

unsafe extern "C" fn save(io: *mut raw::RedisModuleIO, value: *mut c_void) {
    let mut snapshot = Snapshot::new(io);
    // SAFETY: the server passes a value of ours, and keeps it as it is until this returns.
    unsafe { stored_at(value) }.value.write(&mut snapshot);
    warn_of_large_payload(snapshot.written_bytes);
}

unsafe extern "C" fn memory_usage(value: *const c_void) -> usize {
    // SAFETY: the server passes a value of ours, and keeps it as it is until this returns.
    usize::try_from(unsafe { stored_at(value) }.allocated_bytes()).unwrap_or(usize::MAX)
}

/// Digests the fields and the bits: filters have the same digest only if they are equal.
unsafe extern "C" fn digest(digest: *mut raw::RedisModuleDigest, value: *mut c_void) {
    struct Digest(*mut raw::RedisModuleDigest);
    impl Sink for Digest {
        fn put_u64(&mut self, number: u64) {
            self.put_bytes(&number.to_le_bytes());
        }
        fn put_f64(&mut self, number: f64) {
            self.put_u64(number.to_bits());
        }
        fn put_bytes(&mut self, bytes: &[u8]) {
            // SAFETY: the digest is the one that the server passed.
            unsafe { api::digest_bytes(self.0, bytes) };
        }
    }
    // SAFETY: the server passes a value of ours, and keeps it as it is until this returns.
    unsafe {
        stored_at(value).value.write(&mut Digest(digest));
        api::end_digest(digest);
    }
}

/// May run on a background thread of the server. INFO's totals change at once, even if another thread frees the memory later.
unsafe extern "C" fn free(value: *mut c_void) {
    let Some(stored) = NonNull::new(value.cast::<Stored>()) else { return };
    // SAFETY: the value came from `Box::into_raw`, and the server passes it once, when no key holds it any more.
    let stored = unsafe { Stored::from_raw(stored) };
    let bytes = stored.value.contents().size_bytes;
    freeing::free(stored, bytes);
}

/// Above an effort of 64 (4 MiB) the server frees values in the background if its settings allow it. It then counts them as lazily
/// freed, which eviction takes into account. `free` drops values that arrive on the server's background thread at once.
unsafe extern "C" fn free_effort(_key: *mut raw::RedisModuleString, value: *const c_void) -> usize {
    const BYTES_PER_EFFORT: usize = 64 * 1024;
    // SAFETY: the server passes a value of ours, and keeps it as it is until this returns.
    let bytes = unsafe { stored_at(value) }.allocated_bytes();
    usize::try_from(bytes).unwrap_or(usize::MAX) / BYTES_PER_EFFORT + 1
}

/// COPY. If there is no room for the copy, the server replies that the key failed to copy, and the log says why. A replica, or a server
/// that reads its AOF, exits.
unsafe extern "C" fn copy(
    _from: *mut raw::RedisModuleString,
    _to: *mut raw::RedisModuleString,
    value: *const c_void,
) -> *mut c_void {
    let context = Context::new(null_mut());
    // SAFETY: the server passes a value of ours, and keeps it as it is until this returns.
    match try_copy(context, &unsafe { stored_at(value) }.value) {
        Ok(copy) => Box::into_raw(copy).cast(),
        Err(error) => {
            if must_succeed(context) {
                context.abort_replication(error);
            }
            let reason = Text::of(Refusal::from(error));
            let reason = reason.as_str().trim_start_matches("ERR ");
            context.log(LogLevel::Warning, format_args!("bloomgate: cannot copy a filter: {reason}"));
            null_mut()
        }
    }
}

/// Copies a value. The ceiling applies to a client's copy. A callback does not see a client, but only a primary that is not loading has
/// one.
fn try_copy(context: Context, value: &Value) -> Result<Box<Stored>, Error> {
    if context.is_primary() {
        let size_bytes = value.contents().size_bytes;
        ServerCeiling::of(context, context.origin()).allow_blocks(
            0,
            size_bytes,
            value.allocated_bytes().saturating_sub(size_bytes),
        )?;
    }
    value.try_clone().and_then(Stored::boxed)
}

// A background thread frees values.
const _: () = {
    const fn send<T: Send>() {}
    send::<Stored>();
    assert!(format::CHUNK_BYTES <= 16 * 1024 * 1024, "a record of the AOF is at most 16 MiB");
};

// Warns of a DUMP or MIGRATE payload that no server accepts: RESTORE refuses one that is larger than an argument may be, after both
// servers have worked on it for many seconds. The callback that saves a filter cannot refuse, so it logs what to do instead.
//
// The server calls it for snapshots as well: in a child or, for SAVE and SHUTDOWN, in its own process. A server may also save in a
// thread while commands run. Whatever the thread of the commands saves in the server's process, and not while that writes a snapshot,
// is a payload. Nothing here asks the server for its state, which only that thread may read.

/// The maximum length of an argument that a server accepts by default (proto-max-bulk-len), in bytes.
const ARGUMENT_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// Whether the server is writing a snapshot in its own process.
static WRITES_SNAPSHOT: AtomicBool = AtomicBool::new(false);

/// The server starts or finishes writing a snapshot in its own process.
pub fn snapshot_changed(is_writing: bool) {
    WRITES_SNAPSHOT.store(is_writing, Relaxed);
}

/// Warns if a value that was just saved in this many bytes makes a payload that is too large.
fn warn_of_large_payload(bytes: u64) {
    if bytes > ARGUMENT_BYTES_MAX && !WRITES_SNAPSHOT.load(Relaxed) && freeing::runs_commands() {
        Context::new(null_mut()).log(
            LogLevel::Warning,
            format_args!(
                "bloomgate: the DUMP or MIGRATE payload of a filter of {bytes} bytes may exceed what RESTORE accepts \
                 (proto-max-bulk-len, {ARGUMENT_BYTES_MAX} by default): use replication, or BF.SCANDUMP and BF.LOADCHUNK"
            ),
        );
    }
}

/// A snapshot that is being written or read.
struct Snapshot {
    io: *mut raw::RedisModuleIO,
    /// The bytes of strings that were written, before the server compresses them.
    written_bytes: u64,
}

impl Sink for Snapshot {
    fn put_u64(&mut self, number: u64) {
        // SAFETY: the snapshot is the one that the server passed.
        unsafe { api::save_integer(self.io, number) };
    }

    fn put_f64(&mut self, number: f64) {
        // SAFETY: likewise.
        unsafe { api::save_double(self.io, number) };
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        // SAFETY: likewise.
        unsafe { api::save_bytes(self.io, bytes) };
        self.written_bytes += bytes.len() as u64;
    }
}

impl Snapshot {
    /// A snapshot of the server.
    const fn new(io: *mut raw::RedisModuleIO) -> Self {
        Self { io, written_bytes: 0 }
    }

    /// Returns what was read, unless reading has failed. The wrappers of the crate `redis_module` do the same, but their errors
    /// allocate.
    fn unless_failed<T>(&self, read: T) -> Result<T, format::Error> {
        // SAFETY: the snapshot is the one that the server passed.
        if unsafe { api::has_failed(self.io) } == 0 { Ok(read) } else { Err(format::Error::Truncated) }
    }
}

impl Source for Snapshot {
    type Bytes<'a> = Box<[u8]>;

    fn u64(&mut self) -> Result<u64, format::Error> {
        // SAFETY: the snapshot is the one that the server passed.
        self.unless_failed(unsafe { api::load_integer(self.io) })
    }

    fn f64(&mut self) -> Result<f64, format::Error> {
        // SAFETY: the snapshot is the one that the server passed.
        self.unless_failed(unsafe { api::load_double(self.io) })
    }

    fn bytes(&mut self) -> Result<Box<[u8]>, format::Error> {
        self.owned_bytes()
    }

    /// The server's buffer itself, without a copy: it comes from the allocator that this module uses, too.
    fn owned_bytes(&mut self) -> Result<Box<[u8]>, format::Error> {
        let mut length = 0;
        // SAFETY: the server writes the length of the buffer that it gives. The buffer is not null, comes from the
        // server's allocator, which the global one forwards to, and nothing else has it; an empty one, which a box would
        // not free, is freed here.
        unsafe {
            let buffer = api::load_bytes(self.io, &mut length).cast::<u8>();
            if buffer.is_null() {
                return Err(format::Error::Truncated);
            }
            if length == 0 {
                api::free(buffer.cast());
                return Ok(Box::default());
            }
            // A layer of RedisBloom or valkey-bloom stays in it.
            huge_pages::allocated(buffer, length);
            Ok(Box::from_raw(std::ptr::slice_from_raw_parts_mut(buffer, length)))
        }
    }
}

// The callback that writes a value to the AOF when the server rewrites it. It runs in a child of the server and needs memory beside
// the filters.
//
// Filters are emitted in chunks, except those of valkey-bloom's layout. Their command, BF.LOAD, has the whole filter in one argument,
// and the server takes an argument as one string, which is as large as the filter. From a buffer of ours the server would copy it. So
// the record is built, layer by layer, in the string that is emitted.

/// Writes a value to the AOF. The callback cannot return an error, so a child that lacks the memory for a record exits, and the server
/// keeps the file that it has.
unsafe extern "C" fn rewrite(io: *mut raw::RedisModuleIO, key: *mut raw::RedisModuleString, value: *mut c_void) {
    // SAFETY: the server passes a value of ours, and keeps it as it is until this returns.
    let stored = unsafe { stored_at(value) };
    let emitted = stored.value.for_each_record(stored.generation, |record| {
        // SAFETY: the file and the key are those that the server passed; the record's string lives until the call returns.
        unsafe {
            match record {
                AofRecord::Chunk { iterator, data } => {
                    api::emit_chunk(io, c"BF.LOADCHUNK", key, iterator.cast_signed(), data);
                }
                AofRecord::Whole(filter) => match Record::of(filter)? {
                    Some(record) => api::emit_string(io, c"BF.LOAD", key, record.string),
                    None => api::emit_bytes(io, c"BF.LOAD", key, &load::encode(filter)?),
                },
            }
        }
        Ok(())
    });
    if let Err(error) = emitted {
        Context::new(null_mut()).give_up(format_args!("bloomgate: cannot rewrite the AOF: {error}"));
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
        if self.string.is_null() && self.front.len() == Self::FRONT_BYTES {
            self.string = api::create_string(&self.front);
        }
        if !rest.is_empty() {
            // SAFETY: the string has no other owner.
            unsafe { api::append_to_string(self.string, rest) };
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if !self.string.is_null() {
            // SAFETY: the string came from `create_string` and is freed once.
            unsafe { api::free_string(self.string) };
        }
    }
}

// The callback of the server's defragmenter: it moves the blocks of a value to where the allocator prefers them.
//
// The allocator moves only small blocks. The bits of a large layer stay where they are and cost only the call.

/// Every block of the value was offered to the allocator.
const DONE: c_int = 0;
/// Blocks are left: the server calls again.
const MORE: c_int = 1;

struct Defragmenter(*mut raw::RedisModuleDefragCtx);

// SAFETY: the server's function copies a block of its allocator, which is the module's global allocator, into another block of
// the same usable size and frees the old one. If it returns null, the block stays where it is.
unsafe impl Mover for Defragmenter {
    fn moved(&mut self, block: NonNull<u8>) -> Option<NonNull<u8>> {
        // SAFETY: the context is that of the call; the block is one of the server's allocator, and the caller gives it up.
        let moved = NonNull::new(unsafe { api::move_block(self.0, block.as_ptr().cast()) }.cast());
        if moved.is_some() { &metrics::DEFRAG_HITS } else { &metrics::DEFRAG_MISSES }.count(1);
        moved
    }

    fn has_done_enough(&mut self) -> bool {
        // SAFETY: the context is that of the call.
        unsafe { api::should_stop(self.0) != 0 }
    }
}

/// Moves a value: its own block first, then its layers, from where the previous call stopped if the server remembers that.
unsafe extern "C" fn defragment(
    context: *mut raw::RedisModuleDefragCtx,
    _key: *mut raw::RedisModuleString,
    value: *mut *mut c_void,
) -> c_int {
    // SAFETY: the server passes a pointer to its pointer to a value of ours.
    let Some(mut stored) = NonNull::new(unsafe { *value }.cast::<Stored>()) else { return DONE };
    if !config::defrag_enabled() {
        return DONE;
    }
    let mut mover = Defragmenter(context);
    let mut first: c_ulong = 0;
    // SAFETY: the context is that of the call. The value is in its new block once the mover has moved the old one; the server is told
    // where.
    unsafe {
        api::defrag_cursor(context, &mut first);
        if first == 0 {
            stored = mover.moved(stored.cast()).map_or(stored, NonNull::cast);
            *value = stored.as_ptr().cast();
        }
    }
    // SAFETY: a key holds the value, no command is running on it, and the timer runs on this thread.
    let stored = unsafe { &mut stored.as_mut().value };
    // An arriving filter is short-lived: only its own block is moved.
    let Value::Filter(filter) = stored else { return DONE };
    let Some(next) = filter.relocate(usize::try_from(first).unwrap_or(usize::MAX), &mut mover) else { return DONE };
    // SAFETY: the context is that of the call.
    unsafe { api::set_defrag_cursor(context, next as c_ulong) };
    MORE
}
