//! What INFO shows of the module: the section `bf`, with the fields that `metrics.rs` counts and those of the guard.

use std::ffi::{CStr, c_int};

use redis_module::raw;

use super::context::Context;
use super::{guard, metrics};

/// Registers the section.
pub fn register(context: Context) {
    raw::register_info_function(context.raw, Some(show));
}

/// Writes the section. A crash report has none: the guard's lock may be held by the thread that crashed.
unsafe extern "C" fn show(info: *mut raw::RedisModuleInfoCtx, for_crash_report: c_int) {
    if for_crash_report != 0 {
        return;
    }
    const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => c"",
    };
    let (leases, nones, waiting) = guard::counts();
    let of_guard = [(c"bloom_leases", leases), (c"bloom_nones", nones), (c"bloom_waiting", waiting)];
    // SAFETY: the server passes the place for the fields; the names are C strings.
    unsafe {
        if let Some(section) = raw::RedisModule_InfoAddSection {
            section(info, std::ptr::null());
        }
        if let Some(text) = raw::RedisModule_InfoAddFieldCString {
            text(info, c"version".as_ptr(), VERSION.as_ptr());
        }
        if let Some(number) = raw::RedisModule_InfoAddFieldULongLong {
            for (name, value) in metrics::fields().chain(of_guard) {
                number(info, name.as_ptr(), value);
            }
        }
    }
}
