//! A key of the server's, opened with the least mode, and the value of ours that it holds.

use std::ffi::CStr;
use std::ptr::{NonNull, null};

use bloomgate_filter::{Filter, Value};
use redis_module::{KeyMode, raw};

use super::args::Arg;
use super::context::{Context, OK};
use super::data_type;
use super::reply::Refusal;
use super::stored::{Reserved, Stored, Writer};

/// An open key. It is closed when it goes out of scope.
pub struct OpenKey(*mut raw::RedisModuleKey);

impl OpenKey {
    /// Opens a key.
    #[inline]
    pub fn open(context: Context, name: Arg<'_>, mode: KeyMode) -> Self {
        Self(raw::open_key(context.raw, name.raw, mode))
    }

    /// The server's number of the type that it holds.
    #[inline]
    pub fn raw_type(&self) -> isize {
        // SAFETY: the server takes an open key, or null for one that is not there.
        unsafe { raw::RedisModule_KeyType.map_or(raw::REDISMODULE_KEYTYPE_EMPTY, |key_type| key_type(self.0) as isize) }
    }

    /// The string that it holds.
    #[inline]
    pub fn string_bytes(&self) -> &[u8] {
        let mut length = 0;
        // SAFETY: the key is open and holds a string, which stays as it is while nobody writes to it.
        unsafe {
            let mode = KeyMode::READ.bits();
            let bytes =
                raw::RedisModule_StringDMA.map_or(null(), |dma| dma(self.0, &raw mut length, mode).cast_const());
            if bytes.is_null() { &[] } else { std::slice::from_raw_parts(bytes.cast(), length) }
        }
    }

    /// How long the value has to live, in milliseconds; nothing for one that does not expire.
    pub fn left_to_live(&self) -> Option<u64> {
        // SAFETY: the key is open.
        let left = unsafe { raw::RedisModule_GetExpire.map_or(-1, |left| left(self.0)) };
        u64::try_from(left).ok()
    }

    /// Deletes what it holds. It is open for writing.
    pub fn delete(&self) {
        // SAFETY: the key is open for writing.
        unsafe {
            if let Some(delete) = raw::RedisModule_DeleteKey {
                delete(self.0);
            }
        }
    }

    /// Where the value of ours is that the key holds; nothing where there is no such key.
    ///
    /// # Errors
    /// [`Refusal::WrongType`].
    #[inline]
    fn stored(&self) -> Result<Option<*mut Stored>, Refusal> {
        if self.0.is_null() {
            return Ok(None);
        }
        // SAFETY: the key is open. A key of our type holds a pointer from `Box::into_raw`.
        unsafe {
            let module_type = raw::RedisModule_ModuleTypeGetType.map(|get| get(self.0));
            if module_type.is_some_and(data_type::is_ours) {
                return Ok(raw::RedisModule_ModuleTypeGetValue.map(|get| get(self.0).cast::<Stored>()));
            }
        }
        if self.raw_type() == raw::REDISMODULE_KEYTYPE_EMPTY { Ok(None) } else { Err(Refusal::WrongType) }
    }
}

impl Drop for OpenKey {
    fn drop(&mut self) {
        if !self.0.is_null() {
            raw::close_key(self.0);
        }
    }
}

/// A key that is open for reading.
pub struct ReadKey(OpenKey);

impl ReadKey {
    /// Opens a key.
    #[inline]
    pub fn open(context: Context, name: Arg<'_>) -> Self {
        Self(OpenKey::open(context, name, KeyMode::READ))
    }

    /// What is stored; nothing where there is no such key.
    ///
    /// # Errors
    /// [`Refusal::WrongType`].
    #[inline]
    pub fn stored(&self) -> Result<Option<&Stored>, Refusal> {
        // SAFETY: the value lives while the key is open and nobody deletes it.
        Ok(self.0.stored()?.and_then(|stored| unsafe { stored.as_ref() }))
    }

    /// The filter; nothing where there is no such key.
    ///
    /// # Errors
    /// [`Refusal::WrongType`], [`Refusal::StillLoading`].
    #[inline]
    pub fn filter(&self) -> Result<Option<&Filter>, Refusal> {
        self.stored()?.map(|stored| filter_of(&stored.value)).transpose()
    }
}

/// The filter that a value is.
///
/// # Errors
/// [`Refusal::StillLoading`].
#[inline]
pub fn filter_of(value: &Value) -> Result<&Filter, Refusal> {
    match value {
        Value::Filter(filter) => Ok(filter),
        Value::Arriving(_) => Err(Refusal::StillLoading),
    }
}

/// A key that is open for reading and writing.
pub struct WriteKey<'a> {
    key: OpenKey,
    context: Context,
    name: Arg<'a>,
}

impl<'a> WriteKey<'a> {
    /// Opens a key.
    #[inline]
    pub fn open(context: Context, name: Arg<'a>) -> Self {
        let key = OpenKey::open(context, name, KeyMode::READ | KeyMode::WRITE);
        Self { key, context, name }
    }

    /// Whether there is a value of ours.
    ///
    /// # Errors
    /// [`Refusal::WrongType`].
    pub fn exists(&self) -> Result<bool, Refusal> {
        Ok(self.key.stored()?.is_some())
    }

    /// What is stored, to be changed; nothing where there is no such key.
    ///
    /// # Errors
    /// [`Refusal::WrongType`].
    #[inline(always)]
    pub fn writer(&mut self) -> Result<Option<Writer<'_>>, Refusal> {
        // SAFETY: the value lives while the key is open and nobody deletes it, which needs this key mutably.
        Ok(self.key.stored()?.and_then(NonNull::new).map(|stored| unsafe { Writer::new(stored) }))
    }

    /// Puts a value under the key, in place of what it holds, time to live included. The server tells that the key is new to
    /// those who listen, who may delete it: what is to be done to the value comes before.
    pub fn install(&mut self, stored: Box<Stored>) {
        let module_type = data_type::raw_type_of(&stored.value);
        let value = Box::into_raw(stored).cast();
        // SAFETY: the key is open for writing; the server takes the pointer over, or it is taken back.
        unsafe {
            let set = raw::RedisModule_ModuleTypeSetValue;
            let done = set.map(|set| set(self.key.0, module_type, value));
            if done != Some(OK) {
                drop(Box::from_raw(value.cast::<Stored>()));
            }
        }
    }

    /// Sets when the key expires, in milliseconds since 1970.
    pub fn expire_at(&self, milliseconds: u64) {
        // SAFETY: the key is open for writing and holds a value.
        unsafe {
            if let Some(set) = raw::RedisModule_SetAbsExpire {
                set(self.key.0, i64::try_from(milliseconds).unwrap_or(i64::MAX));
            }
        }
    }

    /// Makes an arriving filter, whose last chunk has come or is not waited for, a filter. Its type may be another one then,
    /// and the key a new one to the server, for which memory is `reserved`; its time to live is kept.
    ///
    /// # Errors
    /// As [`writer`](Self::writer).
    pub fn complete(&mut self, reserved: Reserved) -> Result<(), Refusal> {
        // SAFETY: the value lives while the key is open and nobody deletes it, which needs this key mutably.
        let Some(stored) = self.key.stored()?.and_then(|stored| unsafe { stored.as_mut() }) else { return Ok(()) };
        let Some(filter) = stored.complete() else { return Ok(()) };
        // SAFETY: the key is open for writing.
        unsafe {
            let expires = raw::RedisModule_GetAbsExpire.map(|get| get(self.key.0));
            self.install(reserved.put(filter));
            if let (Some(expires), Some(set)) = (expires, raw::RedisModule_SetAbsExpire)
                && expires != raw::REDISMODULE_NO_EXPIRE.into()
            {
                set(self.key.0, expires);
            }
        }
        Ok(())
    }

    /// Makes a filter of RedisBloom's that is arriving a filter, as far as it has come: the primary's is in use from its
    /// header on.
    ///
    /// # Errors
    /// [`Refusal::StillLoading`] for one of ours; as [`complete`](Self::complete).
    pub fn put_into_use(&mut self) -> Result<(), Refusal> {
        if let Some(writer) = self.writer()?
            && let Value::Arriving(arrival) = &*writer
            && !arrival.is_in_use_from_its_header()
        {
            return Err(Refusal::StillLoading);
        }
        self.complete(Stored::reserve()?)
    }

    /// Closes the key, whose value has changed, and tells the server (WATCH, client-side caches) and those who listen to
    /// key space events which of these came. They may do anything with the key, so it is closed first.
    #[inline]
    pub fn close_changed(self, events: &[(bool, &CStr)]) {
        let Self { key, context, name } = self;
        drop(key);
        tell_changed(context, name, events);
    }

    /// Closes the key, whose value is as it was, and tells those who listen to key space events which of these came.
    pub fn close_unchanged(self, events: &[(bool, &CStr)]) {
        let Self { key, context, name } = self;
        drop(key);
        tell(context, name, events);
    }
}

/// Tells the server (WATCH, client-side caches) that a key has changed, and those who listen to key space events which of
/// these came.
#[inline]
pub fn tell_changed(context: Context, name: Arg<'_>, events: &[(bool, &CStr)]) {
    // SAFETY: the context and the name are valid while the command runs.
    unsafe {
        if let Some(signal) = raw::RedisModule_SignalModifiedKey {
            signal(context.raw, name.raw);
        }
    }
    tell(context, name, events);
}

/// Tells those who listen to key space events which of these came.
#[inline]
fn tell(context: Context, name: Arg<'_>, events: &[(bool, &CStr)]) {
    // SAFETY: the context and the name are valid while the command runs; the events are C strings.
    unsafe {
        if let Some(notify) = raw::RedisModule_NotifyKeyspaceEvent {
            for (came, event) in events {
                if *came {
                    notify(context.raw, raw::REDISMODULE_NOTIFY_GENERIC, event.as_ptr(), name.raw);
                }
            }
        }
    }
}
