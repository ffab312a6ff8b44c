//! The types of our values: `bloomgate`, and RedisBloom's and valkey-bloom's for filters of their layouts. Their callbacks save,
//! load, rewrite, copy, measure, compare and free values.

use std::cell::OnceCell;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use bloomgate_filter::format::{self, StoredAs};
use bloomgate_filter::{Ceiling, Error, Unlimited, Value};
use redis_module::{RedisString, raw};

use super::defragment::defragment;
use super::place::{PackedStored, Place};
use super::rewrite;
use super::snapshot::{self, Snapshot};
use super::stored::Stored;
use crate::api::{self, Digest, Io};
use crate::args::Arg;
use crate::context::{Context, LogLevel, Text};
use crate::reply::Refusal;
use crate::server::ceiling::ServerCeiling;

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
static CUCKOO: Type = Type::new(StoredAs::RedisBloomCuckoo, Some(load_cuckoo));

fn types() -> impl Iterator<Item = &'static Type> {
    TYPES.iter().chain([&CUCKOO])
}

/// Whether a handle of the server belongs to the type of cuckoo filters.
pub(super) fn is_cuckoo(raw: *mut raw::RedisModuleType) -> bool {
    !raw.is_null() && raw == CUCKOO.raw()
}

/// Whether a handle of the server belongs to a type of Bloom filters, or of filters that are arriving.
#[inline]
pub(super) fn is_ours(raw: *mut raw::RedisModuleType) -> bool {
    !raw.is_null() && TYPES.iter().any(|own| raw == own.raw())
}

/// The server's handle of a type.
pub(super) fn raw_type(stored_as: StoredAs) -> *mut raw::RedisModuleType {
    types().find(|own| own.stored_as == stored_as).map_or(null_mut(), Type::raw)
}

/// Registers the types.
/// The error is a line for the log.
pub fn register(context: Context) -> Result<(), String> {
    types().try_for_each(|own| register_type(context, own))
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
            "the server refuses the type '{}': is another module of such filters loaded?",
            own.stored_as.name().to_string_lossy()
        )
    };
    if raw.is_null() { Err(refused()) } else { Ok(()) }
}

/// Defines a callback. The last parameter, behind the semicolon, is the server's pointer to our value. The body gets it as a reference.
macro_rules! callback {
    ($(#[$note:meta])* $name:ident($($argument:ident: $type:ty),*; $value:ident in $pointer:ty) $(-> $result:ty)? $body:block) => {
        $(#[$note])*
        unsafe extern "C" fn $name($($argument: $type,)* $value: $pointer) $(-> $result)? {
            let view = OnceCell::new();
            // SAFETY: the value was created by this type, and is not mutated during the call.
            let $value = unsafe { Place::of($value).read(&view) };
            $body
        }
    };
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

unsafe extern "C" fn load_cuckoo(io: *mut raw::RedisModuleIO, encoding: c_int) -> *mut c_void {
    load(io, StoredAs::RedisBloomCuckoo, encoding)
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
    let io = Io::new(io);
    // The server would have to allocate the context of `io`, and to read the clock.
    let context = Context::new(null_mut());
    let ceiling = if context.is_primary() {
        LoadCeiling::Client(ServerCeiling::of(context, context.origin()))
    } else {
        LoadCeiling::None
    };
    let read = stored_as.read(encoding.unsigned_abs(), &mut Snapshot::new(io), &ceiling);
    match read.and_then(|value| Ok(Place::for_value(value)?)) {
        Ok(place) => place.pointer(),
        Err(error) => {
            let line = Text::of(format_args!("bloomgate: cannot load a filter: {error}"));
            api::snapshot_log(io, LogLevel::Warning.name(), line.as_c_str());
            if must_load(context, error) {
                context.abort_replication(format_args!("the filter at '{}': {error}", key_name(io).escape_ascii()));
            }
            null_mut()
        }
    }
}

/// The key of the value that is loaded; empty if the server has no name.
fn key_name<'a>(io: Io) -> &'a [u8] {
    let name = api::snapshot_key(io);
    if name.is_null() { &[] } else { RedisString::string_as_slice(name) }
}

/// Whether a callback must succeed, because the value comes from a snapshot, the AOF, or a primary's RESTORE or COPY. A callback has no
/// client, so on a replica it always must: a client's command cannot be distinguished there.
fn must_succeed(context: Context) -> bool {
    context.origin().is_effect() || !context.is_primary()
}

/// Whether the server must exit if a value cannot be loaded. The server itself refuses a snapshot, but only replies with
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

callback! {
    save(io: *mut raw::RedisModuleIO; value in *mut c_void) {
        snapshot::write(Io::new(io), &value.value);
    }
}

callback! {
    rewrite(io: *mut raw::RedisModuleIO, key: *mut raw::RedisModuleString; value in *mut c_void) {
        // SAFETY: the key's name lives until this returns.
        rewrite::emit(Io::new(io), unsafe { Arg::of(&key) }, value);
    }
}

callback! {
    digest(digest: *mut raw::RedisModuleDigest; value in *mut c_void) {
        snapshot::digest(Digest::new(digest), &value.value);
    }
}

unsafe extern "C" fn memory_usage(value: *const c_void) -> usize {
    // SAFETY: the value was created by this type, and is not mutated during the call.
    let bytes = unsafe { Place::of(value).allocated_bytes() };
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// May run on a background thread of the server. INFO's totals change at once, even if another thread frees the memory later.
unsafe extern "C" fn free(value: *mut c_void) {
    // SAFETY: the server passes the value once, when no key holds it any more.
    unsafe { Place::of(value).free() }
}

/// Above an effort of 64 (4 MiB) the server frees values in the background if its settings allow it. It then counts them as lazily freed,
/// which eviction takes into account. `free` drops values that arrive on the server's background thread at once.
unsafe extern "C" fn free_effort(_key: *mut raw::RedisModuleString, value: *const c_void) -> usize {
    const BYTES_PER_EFFORT: usize = 64 * 1024;
    // SAFETY: as in `memory_usage`.
    unsafe { memory_usage(value) / BYTES_PER_EFFORT + 1 }
}

callback! {
    /// COPY. If there is no room for the copy, the server replies that the key failed to copy, and the log has the reason. A replica, or a
    /// server that reads its AOF, exits.
    copy(_from: *mut raw::RedisModuleString, _to: *mut raw::RedisModuleString; value in *const c_void) -> *mut c_void {
        let context = Context::new(null_mut());
        match try_copy(context, &value.value) {
            Ok(copy) => copy.pointer(),
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
}

/// Copies a value. The ceiling applies to a client's copy. A callback does not see a client, but only a primary that is not loading has
/// one.
fn try_copy(context: Context, value: &Value) -> Result<Place, Error> {
    if context.is_primary() {
        let size_bytes = value.contents().size_bytes;
        ServerCeiling::of(context, context.origin()).allow_blocks(
            0,
            size_bytes,
            value.allocated_bytes().saturating_sub(size_bytes),
        )?;
    }
    value.try_clone().and_then(Place::for_value)
}

// A background thread frees values.
const _: () = {
    const fn send<T: Send>() {}
    send::<Stored>();
    send::<PackedStored>();
    assert!(format::CHUNK_BYTES <= 16 * 1024 * 1024, "a record of the AOF is at most 16 MiB");
};
