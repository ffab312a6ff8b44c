//! Threads of the module. The standard library's function ends the process if a thread cannot be started; this one returns.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

/// Starts a thread that runs as long as the process, and returns whether it runs.
///
/// The function must live that long. It does: the server does not unload a module that has types.
pub fn start(run: extern "C" fn(*mut c_void) -> *mut c_void) -> bool {
    let mut thread = std::mem::MaybeUninit::uninit();
    // SAFETY: the thread's handle is written before it is read, and detached once.
    unsafe {
        let has_started = libc::pthread_create(thread.as_mut_ptr(), std::ptr::null(), run, null_mut()) == 0;
        if has_started {
            libc::pthread_detach(thread.assume_init());
        }
        has_started
    }
}

/// Names the calling thread, and leaves signals to the server's own threads. Linux cuts names after 15 bytes.
pub fn prepare(name: &CStr) {
    set_name(name);
    block_signals();
}

/// Sets the name that the system's tools show.
fn set_name(name: &CStr) {
    #[cfg(target_os = "linux")]
    // SAFETY: the name is a C string.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
    }
    #[cfg(not(target_os = "linux"))]
    let _ = name;
}

fn block_signals() {
    let mut all = std::mem::MaybeUninit::uninit();
    // SAFETY: the set is filled before it is read; the mask is that of this thread alone.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT] {
            libc::sigdelset(all.as_mut_ptr(), fault);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), null_mut());
    }
}
