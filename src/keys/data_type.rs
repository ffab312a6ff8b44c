//! The types of our values: `bloomgate`, and those of RedisBloom and valkey-bloom for filters of their layouts. Their callbacks save,
//! load, rewrite, copy, measure, compare and free values.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};

use bloomgate_filter::format::StoredAs;
use bloomgate_filter::{Ceiling, Error, Unlimited, Value, format};
use redis_module::{RedisString, raw};

use super::defrag;
use super::payload;
use super::rewrite;
use super::snapshot::Snapshot;
use super::stored::{Stored, stored_at};
use crate::context::{Context, LogLevel};
use crate::reply::Refusal;
use crate::server::ceiling::ServerCeiling;
use crate::server::freeing;
use crate::text::Text;

/// A type that is registered with the server.
struct Type {
    stored_as: StoredAs,
    load: raw::RedisModuleTypeLoadFunc,
    /// The server's handle; null before it is registered.
    raw: AtomicPtr<raw::RedisModuleType>,
}

impl Type {
    const fn new(stored_as: StoredAs, load: raw::RedisModuleTypeLoadFunc) -> Self {
        Self { stored_as, load, raw: AtomicPtr::new(std::ptr::null_mut()) }
    }

    #[inline]
    fn raw(&self) -> *mut raw::RedisModuleType {
        self.raw.load(Ordering::Relaxed)
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
    TYPES.iter().find(|own| own.stored_as == stored_as).map_or(std::ptr::null_mut(), Type::raw)
}

/// Registers the types.
///
/// # Errors
/// A line for the log.
pub fn register(context: Context) -> Result<(), String> {
    TYPES.iter().try_for_each(|own| register_type(context, own))
}

fn register_type(context: Context, own: &Type) -> Result<(), String> {
    let mut methods = raw::RedisModuleTypeMethods {
        version: raw::REDISMODULE_TYPE_METHOD_VERSION.into(),
        rdb_load: own.load,
        rdb_save: Some(save),
        aof_rewrite: Some(rewrite::run),
        mem_usage: Some(memory_usage),
        digest: Some(digest),
        free: Some(free),
        aux_load: None,
        aux_save: None,
        aux_save_triggers: 0,
        free_effort: Some(free_effort),
        unlink: None,
        copy: Some(copy),
        defrag: Some(defrag::run),
        mem_usage2: None,
        free_effort2: None,
        unlink2: None,
        copy2: None,
        aux_save2: None,
    };
    // SAFETY: the name has nine characters; the server copies the methods.
    let raw = unsafe {
        raw::RedisModule_CreateDataType.map(|create| {
            create(context.raw, own.stored_as.name().as_ptr(), own.stored_as.encoding().cast_signed(), &raw mut methods)
        })
    };
    let raw = raw.filter(|raw| !raw.is_null());
    own.raw.store(raw.unwrap_or(std::ptr::null_mut()), Ordering::Relaxed);
    let refused = || {
        format!(
            "the server refuses the type '{}': is another module of Bloom filters loaded?",
            own.stored_as.name().to_string_lossy()
        )
    };
    raw.map(|_| ()).ok_or_else(refused)
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

    fn layers_max(&self) -> usize {
        match self {
            Self::Client(ceiling) => ceiling.layers_max(),
            Self::None => Unlimited.layers_max(),
        }
    }
}

fn load(io: *mut raw::RedisModuleIO, stored_as: StoredAs, encoding: c_int) -> *mut c_void {
    // SAFETY: the server gives the context of the snapshot that it calls us with.
    let context = unsafe { raw::RedisModule_GetContextFromIO.map(|context| Context::new(context(io))) };
    let client = context.filter(|context| context.is_primary());
    let ceiling = client.map_or(LoadCeiling::None, |context| LoadCeiling::Client(ServerCeiling::of(context)));
    let read = stored_as.read(encoding.unsigned_abs(), &mut Snapshot::new(io), &ceiling);
    match read.and_then(|value| Ok(Stored::boxed(value)?)) {
        Ok(stored) => Box::into_raw(stored).cast(),
        Err(error) => {
            let line = Text::of(format_args!("bloomgate: cannot load a filter: {error}"));
            // SAFETY: the format takes one C string, which is passed.
            unsafe {
                if let Some(log) = raw::RedisModule_LogIOError {
                    log(io, LogLevel::Warning.name().as_ptr(), c"%s".as_ptr(), line.as_ptr());
                }
            }
            if let Some(context) = context
                && must_load(context, error)
            {
                context.cannot_obey(format_args!("the filter at '{}': {error}", key_name(io).escape_ascii()));
            }
            std::ptr::null_mut()
        }
    }
}

/// The key of the value that is loaded; empty if the server does not know it.
fn key_name<'a>(io: *mut raw::RedisModuleIO) -> &'a [u8] {
    // SAFETY: the server's pointer is valid while it loads the value. The string lives longer than that.
    let name = unsafe { raw::RedisModule_GetKeyNameFromIO.map_or(std::ptr::null(), |name| name(io)) };
    if name.is_null() { &[] } else { RedisString::string_as_slice(name) }
}

/// Whether the server must not go on without a value that cannot be loaded. The server itself refuses a snapshot, but only replies with
/// an error to a RESTORE of the primary or the AOF, which accepted the value. On a replica a value that ends too early does not count:
/// the connection to the primary may have been cut, and the replica synchronises again. Neither does a payload that a client may have
/// sent.
fn must_load(context: Context, error: format::Error) -> bool {
    match error {
        format::Error::Filter(error) if error.is_want_of_memory() => context.must_obey_without_client(),
        format::Error::Truncated if !context.is_primary() => false,
        _ => context.is_loading() || context.is_read_only_replica(),
    }
}

unsafe extern "C" fn save(io: *mut raw::RedisModuleIO, value: *mut c_void) {
    let mut snapshot = Snapshot::new(io);
    // SAFETY: the server passes a value of ours, and keeps it as it is until this returns.
    unsafe { stored_at(value) }.value.write(&mut snapshot);
    payload::saved(snapshot.written_bytes);
}

unsafe extern "C" fn memory_usage(value: *const c_void) -> usize {
    // SAFETY: the server passes a value of ours, and keeps it as it is until this returns.
    usize::try_from(unsafe { stored_at(value) }.allocated_bytes()).unwrap_or(usize::MAX)
}

/// Digests the fields and the bits: filters have the same digest only if they are equal.
unsafe extern "C" fn digest(digest: *mut raw::RedisModuleDigest, value: *mut c_void) {
    struct Digest(*mut raw::RedisModuleDigest);
    impl format::Sink for Digest {
        fn put_u64(&mut self, number: u64) {
            self.put_bytes(&number.to_le_bytes());
        }
        fn put_f64(&mut self, number: f64) {
            self.put_u64(number.to_bits());
        }
        fn put_bytes(&mut self, bytes: &[u8]) {
            // SAFETY: the pointer and the length are those of the bytes, which the server reads at once.
            unsafe {
                if let Some(add) = raw::RedisModule_DigestAddStringBuffer {
                    add(self.0, bytes.as_ptr().cast(), bytes.len());
                }
            }
        }
    }
    // SAFETY: the server passes a value of ours, and keeps it as it is until this returns.
    unsafe { stored_at(value) }.value.write(&mut Digest(digest));
    // SAFETY: the digest is the one that the server passed.
    unsafe {
        if let Some(end) = raw::RedisModule_DigestEndSequence {
            end(digest);
        }
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
    let context = Context::new(std::ptr::null_mut());
    // SAFETY: the server passes a value of ours, and keeps it as it is until this returns.
    match try_copy(context, &unsafe { stored_at(value) }.value) {
        Ok(copy) => Box::into_raw(copy).cast(),
        Err(error) => {
            if context.must_obey_without_client() {
                context.cannot_obey(error);
            }
            let reason = Text::of(Refusal::from(error));
            let reason = reason.as_str().trim_start_matches("ERR ");
            context.log(LogLevel::Warning, format_args!("bloomgate: cannot copy a filter: {reason}"));
            std::ptr::null_mut()
        }
    }
}

/// Copies a value. The ceiling applies to a client's copy. A callback does not see a client, but only a primary that is not loading has
/// one.
fn try_copy(context: Context, value: &Value) -> Result<Box<Stored>, Error> {
    if context.is_primary() {
        ServerCeiling::of(context).allow(0, value.contents().size_bytes)?;
    }
    value.try_clone().and_then(Stored::boxed)
}

// A background thread frees values.
const _: () = {
    const fn send<T: Send>() {}
    send::<Stored>();
    assert!(format::CHUNK_BYTES <= 16 * 1024 * 1024, "a record of the AOF is at most 16 MiB");
};
