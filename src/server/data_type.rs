//! The type `bloomgate`: what the server calls to save, load, rewrite, copy, measure, compare and free our values.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use redis_module::raw;

use super::ceiling::ServerCeiling;
use super::context::{Context, LogLevel, c_text};
use super::snapshot::Snapshot;
use super::stored::Stored;
use crate::bloom::Unlimited;
use crate::format::native::{self, CHUNK_BYTES, Value};
use crate::format::{self, dump};

/// The encoding version that the server writes beside the type's name. Our own is inside the value.
const ENCODING: c_int = 1;

/// The type, when it is registered.
static TYPE: AtomicPtr<raw::RedisModuleType> = AtomicPtr::new(std::ptr::null_mut());

/// The server's handle of our type.
#[inline]
pub(super) fn raw_type() -> *mut raw::RedisModuleType {
    TYPE.load(Ordering::Relaxed)
}

/// Registers the type; answers whether the server took it.
pub fn register(context: Context) -> bool {
    let mut methods = raw::RedisModuleTypeMethods {
        version: raw::REDISMODULE_TYPE_METHOD_VERSION.into(),
        rdb_load: Some(load),
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
        defrag: None,
        mem_usage2: None,
        free_effort2: None,
        unlink2: None,
        copy2: None,
        aux_save2: None,
    };
    // SAFETY: the name has nine characters; the methods are copied.
    let module_type = unsafe {
        raw::RedisModule_CreateDataType
            .map(|create| create(context.raw, c"bloomgate".as_ptr(), ENCODING, &raw mut methods))
    };
    let module_type = module_type.unwrap_or(std::ptr::null_mut());
    TYPE.store(module_type, Ordering::Relaxed);
    !module_type.is_null()
}

/// # Safety
/// `value` must be one that the server holds for a key of our type, and must not be written to meanwhile.
unsafe fn stored_at<'a>(value: *const c_void) -> &'a Stored {
    // SAFETY: the caller's promise; such a pointer came from `Box::into_raw` of a `Stored`.
    unsafe { &*value.cast::<Stored>() }
}

unsafe extern "C" fn load(io: *mut raw::RedisModuleIO, encoding: c_int) -> *mut c_void {
    let value = if encoding == ENCODING {
        load_value(io)
    } else {
        Err(format::Error::UnknownVersion(encoding.unsigned_abs().into()))
    };
    match value {
        Ok(value) => Stored::into_raw(value),
        Err(error) => {
            let line = c_text(&format!("bloomgate: a filter cannot be loaded: {error}"));
            // SAFETY: the format takes one C string, which is passed.
            unsafe {
                if let Some(log) = raw::RedisModule_LogIOError {
                    log(io, LogLevel::Warning.name().as_ptr(), c"%s".as_ptr(), line.as_ptr());
                }
            }
            std::ptr::null_mut()
        }
    }
}

/// In a client's RESTORE the ceiling binds. A snapshot, the AOF and a primary's stream are obeyed; there is no client to
/// ask here, but only a primary that is not loading has one.
fn load_value(io: *mut raw::RedisModuleIO) -> Result<Value, format::Error> {
    // SAFETY: the server gives the context of the snapshot that it calls us with.
    let context = unsafe { raw::RedisModule_GetContextFromIO.map(|context| Context::new(context(io))) };
    match context {
        Some(context) if context.is_primary() => native::read(&mut Snapshot(io), &ServerCeiling(context)),
        _ => native::read(&mut Snapshot(io), &Unlimited),
    }
}

unsafe extern "C" fn save(io: *mut raw::RedisModuleIO, value: *mut c_void) {
    // SAFETY: the server passes a value of ours.
    native::write(&unsafe { stored_at(value) }.value, &mut Snapshot(io));
}

/// Writes a value to the AOF: as the records of a dump, of an arriving one as many as have come.
unsafe extern "C" fn rewrite(io: *mut raw::RedisModuleIO, key: *mut raw::RedisModuleString, value: *mut c_void) {
    let emit = |(iterator, data): (u64, Vec<u8>)| {
        // SAFETY: the arguments are those that the format announces: a string, a number, bytes and their length.
        unsafe {
            if let Some(emit) = raw::RedisModule_EmitAOF {
                let (name, format) = (c"BF.LOADCHUNK".as_ptr(), c"slb".as_ptr());
                emit(io, name, format, key, iterator.cast_signed(), data.as_ptr(), data.len());
            }
        }
    };
    // SAFETY: the server passes a value of ours.
    let stored = unsafe { stored_at(value) };
    match &stored.value {
        Value::Filter(filter) => dump::records(filter, stored.generation).for_each(emit),
        Value::Arriving(arriving) => arriving.records().for_each(emit),
    }
}

unsafe extern "C" fn memory_usage(value: *const c_void) -> usize {
    // SAFETY: the server passes a value of ours.
    usize::try_from(unsafe { stored_at(value) }.allocated_bytes()).unwrap_or(usize::MAX)
}

/// The fields and the bits: equal filters have equal digests, and others have not.
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
    // SAFETY: the server passes a value of ours.
    native::write(&unsafe { stored_at(value) }.value, &mut Digest(digest));
    // SAFETY: the digest is the one that the server passed.
    unsafe {
        if let Some(end) = raw::RedisModule_DigestEndSequence {
            end(digest);
        }
    }
}

/// May run on a thread in the background: it touches nothing but the value and atomics.
unsafe extern "C" fn free(value: *mut c_void) {
    // SAFETY: the value came from `Box::into_raw` and the server passes it once, when no key holds it any more.
    drop(unsafe { Box::from_raw(value.cast::<Stored>()) });
}

/// Above an effort of 64 the server frees in the background: from 4 MiB on.
unsafe extern "C" fn free_effort(_key: *mut raw::RedisModuleString, value: *const c_void) -> usize {
    const BYTES_PER_EFFORT: usize = 64 * 1024;
    // SAFETY: the server passes a value of ours.
    let bytes = unsafe { stored_at(value) }.allocated_bytes();
    usize::try_from(bytes).unwrap_or(usize::MAX) / BYTES_PER_EFFORT + 1
}

/// COPY. Without the memory for it there is no copy, and the server says so.
unsafe extern "C" fn copy(
    _from: *mut raw::RedisModuleString,
    _to: *mut raw::RedisModuleString,
    value: *const c_void,
) -> *mut c_void {
    // SAFETY: the server passes a value of ours.
    match unsafe { stored_at(value) }.value.try_clone() {
        Ok(copy) => Stored::into_raw(copy),
        Err(_) => std::ptr::null_mut(),
    }
}

// A background thread frees values.
const _: () = {
    const fn send<T: Send>() {}
    send::<Stored>();
    assert!(CHUNK_BYTES <= 16 * 1024 * 1024, "a record of the AOF is at most 16 MiB");
};
