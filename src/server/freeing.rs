//! A thread that frees large values: returning a gigabyte to the system takes as long as a hundred thousand commands. The module passes
//! large values to this thread, whatever the server's lazyfree settings are.
//!
//! These values are dropped at once instead, by the thread that frees them:
//! - Small values.
//! - Values that a background thread of the server frees (UNLINK, lazyfree settings): that delays no command.
//! - Values that a child of the server frees, for example in a script of the debugger. A child does not have the thread, and the lock
//!   may never be released there. So nothing here is used in a child, which is known by its process id.
//! - Values that are freed while the server is above `maxmemory`: it evicts keys until the memory is returned.
//!
//! The thread starts with the first such value, and is never joined: a server does not unload a module that has types,
//! and when it exits, the system frees the rest.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::api;

/// Values of this size or more are passed to the thread. Their free effort is above 64, so the server frees them in the background if its
/// settings allow it.
pub const FROM_BYTES: u64 = 4 << 20;

/// The id of the process that loaded the module; 0 before.
static PROCESS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// Whether this thread is the one that runs the server's commands.
    static RUNS_COMMANDS: Cell<bool> = const { Cell::new(false) };
}

/// The values queued for the thread.
struct Queue {
    garbage: VecDeque<Box<dyn Send>>,
    has_thread: bool,
    /// Whether the thread is dropping a value.
    is_dropping: bool,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue { garbage: VecDeque::new(), has_thread: false, is_dropping: false });
/// Signals that a value is queued.
static MORE: Condvar = Condvar::new();
/// Signals that all values are dropped.
static DONE: Condvar = Condvar::new();

impl Queue {
    /// Locks the queue. Must not be called in a child of the server.
    fn lock() -> MutexGuard<'static, Self> {
        QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_idle(&self) -> bool {
        self.garbage.is_empty() && !self.is_dropping
    }
}

/// Remembers the thread that loads the module: it runs the commands.
pub fn register() {
    PROCESS.store(std::process::id(), Relaxed);
    RUNS_COMMANDS.set(true);
}

/// Whether this thread runs the server's commands. False in a child of the server, whose copy of that thread runs no client's commands.
pub fn runs_commands() -> bool {
    RUNS_COMMANDS.get() && !is_child()
}

/// Drops a value of this many bytes, here or in the thread.
pub fn free<T: Send + 'static>(garbage: Box<T>, bytes: u64) {
    if bytes < FROM_BYTES || !runs_commands() || used_memory_ratio() >= 1.0 {
        return drop(garbage);
    }
    if let Err(refused) = hand_over(garbage) {
        drop(refused);
    }
}

/// Whether a value waits for the thread or is being dropped by it.
pub fn is_busy() -> bool {
    !is_child() && !Queue::lock().is_idle()
}

/// Waits until the thread has dropped all values. This takes as long as dropping them here would have taken.
pub fn wait() {
    if is_child() {
        return;
    }
    let mut queue = Queue::lock();
    while !queue.is_idle() {
        queue = DONE.wait(queue).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Hands a value over to the thread.
/// Returns the value if there is no memory for its entry, or no thread.
fn hand_over(garbage: Box<dyn Send>) -> Result<(), Box<dyn Send>> {
    let mut queue = Queue::lock();
    if queue.garbage.try_reserve(1).is_err() || !(queue.has_thread || start_thread(run)) {
        return Err(garbage);
    }
    queue.has_thread = true;
    queue.garbage.push_back(garbage);
    drop(queue);
    MORE.notify_one();
    Ok(())
}

/// Whether this is not the process that loaded the module.
pub fn is_child() -> bool {
    PROCESS.load(Relaxed) != std::process::id()
}

/// The memory that the server counts against `maxmemory`, as a share of it; 0 without a limit. The server returns the share with 24 bits of
/// precision, so memory slightly above `maxmemory` may give 1. Also 1 if the server lacks the function.
pub fn used_memory_ratio() -> f64 {
    api::used_memory_ratio().into()
}

/// The thread: drops one value after the other.
extern "C" fn run(_: *mut c_void) -> *mut c_void {
    prepare_thread(c"bloom_free");
    loop {
        let mut queue = Queue::lock();
        queue.is_dropping = false;
        let garbage = loop {
            match queue.garbage.pop_front() {
                Some(garbage) => break garbage,
                None => {
                    DONE.notify_all();
                    queue = MORE.wait(queue).unwrap_or_else(PoisonError::into_inner);
                }
            }
        };
        queue.is_dropping = true;
        drop(queue);
        drop(garbage);
    }
}

// Threads of the module. Unlike the standard library's function, `start_thread` does not end the process if a thread cannot be started.

/// Starts a thread that runs as long as the process, and returns whether it runs.
///
/// The function must stay loaded that long. It does: the server does not unload a module that has types.
pub fn start_thread(run: extern "C" fn(*mut c_void) -> *mut c_void) -> bool {
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

/// Names the calling thread, and blocks all signals, which the server's own threads handle. Linux cuts names after 15 bytes.
pub fn prepare_thread(name: &CStr) {
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
    // SAFETY: the set is filled before it is read; the mask belongs to this thread alone.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT] {
            libc::sigdelset(all.as_mut_ptr(), fault);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), null_mut());
    }
}
