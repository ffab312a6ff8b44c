//! Reads the fields of a section of INFO.

use std::ffi::CStr;

use redis_module::raw;

use super::context::Context;

/// A section of INFO at the time when it was requested.
pub struct Information {
    context: Context,
    raw: *mut raw::RedisModuleServerInfoData,
}

impl Information {
    /// Requests a section from the server.
    pub fn of(context: Context, section: &CStr) -> Option<Self> {
        // SAFETY: the section is a C string; the server accepts any context, also a null pointer.
        let raw = unsafe { raw::RedisModule_GetServerInfo?(context.raw, section.as_ptr()) };
        (!raw.is_null()).then_some(Self { context, raw })
    }

    /// A field that is an unsigned number.
    pub fn number(&self, name: &CStr) -> Option<u64> {
        let mut error = 0;
        // SAFETY: the section lives until it is dropped; the name is a C string.
        let number = unsafe { raw::RedisModule_ServerInfoGetFieldUnsigned?(self.raw, name.as_ptr(), &raw mut error) };
        (error == 0).then_some(number)
    }

    /// A field as text.
    pub fn text(&self, name: &CStr) -> Option<&str> {
        // SAFETY: the name is a C string. So is the text, which is the section's and lives as long.
        unsafe {
            let text = raw::RedisModule_ServerInfoGetFieldC?(self.raw, name.as_ptr());
            (!text.is_null()).then(|| CStr::from_ptr(text))?.to_str().ok()
        }
    }
}

impl Drop for Information {
    fn drop(&mut self) {
        // SAFETY: the section came from the server and is freed once, in the context that requested it.
        unsafe {
            if let Some(free) = raw::RedisModule_FreeServerInfo {
                free(self.context.raw, self.raw);
            }
        }
    }
}
