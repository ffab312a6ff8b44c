//! Reads the fields of a section of INFO: which server this is, and whether the module supports it.

use std::ffi::{CStr, c_int};

use redis_module::raw;

use super::api;
use super::context::Context;

/// A section of INFO at the time when it was requested.
pub struct ServerInfo {
    context: Context,
    raw: *mut raw::RedisModuleServerInfoData,
}

impl ServerInfo {
    /// Requests a section from the server.
    pub fn of(context: Context, section: &CStr) -> Option<Self> {
        let raw = api::server_info(context, section);
        (!raw.is_null()).then_some(Self { context, raw })
    }

    /// A field that is an unsigned number.
    pub fn number(&self, name: &CStr) -> Option<u64> {
        let mut error = 0;
        // SAFETY: the section lives until it is dropped.
        let number = unsafe { api::info_number(self.raw, name, &mut error) };
        (error == 0).then_some(number)
    }

    /// A field as text.
    pub fn text(&self, name: &CStr) -> Option<&str> {
        // SAFETY: the text is a C string that belongs to the section and lives as long.
        unsafe {
            let text = api::info_text(self.raw, name);
            (!text.is_null()).then(|| CStr::from_ptr(text))?.to_str().ok()
        }
    }
}

impl Drop for ServerInfo {
    fn drop(&mut self) {
        // SAFETY: the section came from the server and is freed once, in the context that requested it.
        unsafe { api::free_info(self.context, self.raw) };
    }
}

/// The oldest supported server: 7.0.0, the first with configurations of modules.
const SERVER_MIN: c_int = 0x0007_0000;

/// Checks that the server is supported.
/// The error is a line for the log.
pub fn check_version() -> Result<(), String> {
    new_enough(server_version())
}

/// The server's version as modules see it, a byte for each of its numbers; 0 before Redis 6.2. Valkey returns 7.2.4.
pub fn server_version() -> c_int {
    api::server_version()
}

/// Whether the server is Valkey.
pub fn is_valkey(context: Context) -> bool {
    valkey_version(context).is_some()
}

/// The version of a Valkey server: only Valkey has `valkey_version` in INFO. The server writes a section of INFO for each call,
/// which is too slow for every command.
pub fn valkey_version(context: Context) -> Option<[u32; 3]> {
    ServerInfo::of(context, c"server")?.text(c"valkey_version").map(numbers)
}

/// The numbers of a version such as `8.1.8`; 0 for a part that is missing or not a number.
fn numbers(version: &str) -> [u32; 3] {
    let mut parts = version.split('.').map(|part| part.parse().ok());
    [(); 3].map(|()| parts.next().flatten().unwrap_or(0))
}

fn new_enough(version: c_int) -> Result<(), String> {
    match version {
        0 => Err("Redis 7.0 or Valkey is needed, this server is older than 6.2".to_owned()),
        SERVER_MIN.. => Ok(()),
        version => {
            let [_, major, minor, patch] = version.to_be_bytes();
            Err(format!("Redis 7.0 or Valkey is needed, this server is {major}.{minor}.{patch}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read() {
        assert_eq!(numbers("8.1.8"), [8, 1, 8]);
        assert_eq!(numbers("10.0"), [10, 0, 0]);
        assert_eq!(numbers("9.1.x"), [9, 1, 0]);
    }

    #[test]
    fn servers_below_7_are_refused_with_their_version() {
        for version in [0x0007_0000, 0x0007_000f, 0x0007_0204, 0x0008_0001, 0x0009_0000] {
            assert_eq!(new_enough(version), Ok(()));
        }
        for (version, shown) in [(0x0006_020e, "6.2.14"), (0x0006_0009, "6.0.9")] {
            let refusal = new_enough(version).unwrap_err();
            assert_eq!(refusal, format!("Redis 7.0 or Valkey is needed, this server is {shown}"));
        }
        assert!(new_enough(0).unwrap_err().contains("Redis 7.0 or Valkey is needed"));
    }
}
