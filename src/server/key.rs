//! A key of the server's, opened with the least mode, and the value of ours that it holds.

use std::ffi::CStr;

use redis_module::{KeyMode, raw};

use super::args::Word;
use super::context::{Context, OK};
use super::data_type;
use super::reply::Refusal;
use super::stored::{Room, Stored};
use crate::bloom::Filter;

/// An open key. It is closed when it goes out of scope.
pub struct Key<'a> {
    context: Context,
    name: Word<'a>,
    raw: *mut raw::RedisModuleKey,
}

impl<'a> Key<'a> {
    /// Opens a key for reading.
    #[inline]
    pub fn read(context: Context, name: Word<'a>) -> Self {
        Self { context, name, raw: raw::open_key(context.raw, name.raw, KeyMode::READ) }
    }

    /// Opens a key for reading and writing.
    #[inline]
    pub fn write(context: Context, name: Word<'a>) -> Self {
        Self { context, name, raw: raw::open_key(context.raw, name.raw, KeyMode::READ | KeyMode::WRITE) }
    }

    /// What is stored; nothing where there is no such key.
    ///
    /// # Errors
    /// [`Refusal::WrongType`].
    #[inline]
    pub fn stored(&mut self) -> Result<Option<&mut Stored>, Refusal> {
        if self.raw.is_null() {
            return Ok(None);
        }
        // SAFETY: the key is open. A key of our type holds a pointer from `Box::into_raw`; the value lives while the key
        // is open and nobody deletes it, and both need this `Key` mutably.
        unsafe {
            let module_type = raw::RedisModule_ModuleTypeGetType.map(|get| get(self.raw));
            if module_type.is_some_and(data_type::is_ours) {
                let value = raw::RedisModule_ModuleTypeGetValue.map(|get| get(self.raw));
                return Ok(value.and_then(|value| value.cast::<Stored>().as_mut()));
            }
            let key_type = raw::RedisModule_KeyType.map(|key_type| key_type(self.raw));
            let empty = key_type.is_some_and(|key_type| key_type as isize == raw::REDISMODULE_KEYTYPE_EMPTY);
            if empty { Ok(None) } else { Err(Refusal::WrongType) }
        }
    }

    /// The filter; nothing where there is no such key.
    ///
    /// # Errors
    /// [`Refusal::WrongType`], [`Refusal::StillLoading`].
    #[inline]
    pub fn filter(&mut self) -> Result<Option<&mut Filter>, Refusal> {
        match self.stored()? {
            None => Ok(None),
            Some(stored) => stored.filter().map(Some),
        }
    }

    /// Puts a value under a key that is open for writing, in the place of what it holds, time to live included. The server
    /// tells that the key is new to those who listen, who may delete it: what is to be done to the value comes before.
    pub fn install(&mut self, stored: Box<Stored>) {
        let module_type = data_type::raw_type_of(&stored.value);
        let value = Box::into_raw(stored).cast();
        // SAFETY: the key is open for writing; the server takes the pointer over, or it is taken back.
        unsafe {
            let set = raw::RedisModule_ModuleTypeSetValue;
            let done = set.map(|set| set(self.raw, module_type, value));
            if done != Some(OK) {
                drop(Box::from_raw(value.cast::<Stored>()));
            }
        }
    }

    /// Makes an arriving filter, whose last chunk has come, a filter. Its type may be another one then, and the key a new
    /// one to the server, which is put into `room`; its time to live is kept.
    ///
    /// # Errors
    /// As [`stored`](Self::stored).
    pub fn complete(&mut self, room: Room) -> Result<(), Refusal> {
        let Some(stored) = self.stored()? else { return Ok(()) };
        let arrived_as = data_type::raw_type_of(&stored.value);
        let filter = stored.take_filter().into();
        if data_type::raw_type_of(&filter) == arrived_as {
            stored.replace(filter);
            return Ok(());
        }
        // SAFETY: the key is open for writing.
        unsafe {
            let expires = raw::RedisModule_GetAbsExpire.map(|get| get(self.raw));
            self.install(room.put(filter));
            if let (Some(expires), Some(set)) = (expires, raw::RedisModule_SetAbsExpire)
                && expires != raw::REDISMODULE_NO_EXPIRE.into()
            {
                set(self.raw, expires);
            }
        }
        Ok(())
    }

    /// Closes the key, whose value has changed, and tells the server so: WATCH, client-side caches.
    pub fn close_changed(self) -> Changed<'a> {
        let changed = Changed { context: self.context, name: self.name };
        drop(self);
        // SAFETY: the context and the name are valid while the command runs.
        unsafe {
            if let Some(signal) = raw::RedisModule_SignalModifiedKey {
                signal(changed.context.raw, changed.name.raw);
            }
        }
        changed
    }
}

/// The name of a key whose value a command has changed. The key is closed: whoever listens to key space events is called at
/// once and may delete it.
pub struct Changed<'a> {
    context: Context,
    name: Word<'a>,
}

impl Changed<'_> {
    /// Tells those who listen to key space events.
    pub fn notify(&self, event: &CStr) {
        // SAFETY: the context and the name are valid while the command runs; the event is a C string.
        unsafe {
            if let Some(notify) = raw::RedisModule_NotifyKeyspaceEvent {
                notify(self.context.raw, raw::REDISMODULE_NOTIFY_GENERIC, event.as_ptr(), self.name.raw);
            }
        }
    }
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            raw::close_key(self.raw);
        }
    }
}
